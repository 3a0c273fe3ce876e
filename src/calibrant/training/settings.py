"""What decides a run's result, in one record: two runs with the same settings end with the same weights."""

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from typing import Any, final

from calibrant.datasets.dataset import Examples
from calibrant.training.data import TrainingData
from calibrant.training.recipe import Recipe

__all__ = ["RunSettings", "data_digest"]


@final
@dataclass(frozen=True)
class RunSettings:
    """The network, the data, the loss and the recipe of a run."""

    dataset: str
    data_digest: str  # of training and held-out rows as they were divided
    split: str
    split_seed: int
    model: str
    loss: dict[str, Any]
    recipe: Recipe
    input_shape: tuple[int, ...]
    n_words: int | None
    class_names: tuple[str, ...]
    pixel_scale: dict[str, Any] | None

    def as_dict(self) -> dict[str, Any]:
        """As a file can hold it."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "RunSettings":
        """As read from a file."""
        recipe = dict(values["recipe"])
        recipe["milestones"] = tuple(recipe["milestones"])
        lists = {name: tuple(values[name]) for name in ("input_shape", "class_names")}
        return cls(**{**values, **lists, "recipe": Recipe(**recipe)})

    def differences(self, other: "RunSettings") -> list[str]:
        """What is not the same, in words."""
        mine, theirs = self.as_dict(), other.as_dict()
        told = []
        for field in fields(self):
            ours, others = mine[field.name], theirs[field.name]
            if isinstance(ours, dict) and isinstance(others, dict):
                names = [name for name in {**ours, **others} if ours.get(name) != others.get(name)]
                told += [f"{field.name}.{name} {ours.get(name)!r}, not {others.get(name)!r}" for name in names]
            elif ours != others:
                told.append(f"{field.name} {ours!r}, not {others!r}")
        return told


def data_digest(data: TrainingData) -> str:
    """A fingerprint of all rows, in their order."""
    digest = hashlib.sha256()
    parts = (data.training, *(data.held_out[name] for name in sorted(data.held_out)), data.meta)
    for part in parts:
        if part is not None:
            _feed(digest, part)
    return digest.hexdigest()[:16]


def _feed(digest: "hashlib._Hash", part: Examples) -> None:
    for values in (part.inputs, part.labels):
        digest.update(str((tuple(values.shape), values.dtype)).encode())
        digest.update(values.contiguous().numpy().data)
