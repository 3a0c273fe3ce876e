"""What decides a run's result, in one record: two runs with the same settings end with the same weights."""

import hashlib
import json
import math
from dataclasses import asdict, dataclass, fields
from typing import Any, final

from calibrant.checks import check_at_least, check_positive
from calibrant.datasets.dataset import Examples
from calibrant.errors import InputError
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
    train_samples: int | None = None  # how many were drawn to train on; None: all

    def as_dict(self) -> dict[str, Any]:
        """As a file can hold it."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "RunSettings":
        """As read from a file.

        Raises:
            InputError: If a size is none, or something is of another type.
        """
        recipe = dict(values["recipe"])
        recipe["milestones"] = tuple(recipe["milestones"])
        lists = {name: tuple(values[name]) for name in ("input_shape", "class_names")}
        read = cls(**{**values, **lists, "recipe": Recipe(**recipe)})
        read._check()
        return read

    def _check(self) -> None:
        for name in ("dataset", "data_digest", "split", "model"):
            if not isinstance(getattr(self, name), str):
                raise InputError(f"{name} must be text; got {getattr(self, name)!r}.")
        check_at_least(self.split_seed, 0, "split_seed")
        if not isinstance(self.loss, dict):
            raise InputError(f"loss must be options under names; got {self.loss!r}.")
        if not self.input_shape:
            raise InputError("input_shape must have a size; got none.")
        for size in self.input_shape:
            check_at_least(size, 1, "every size in input_shape")
        if self.n_words is not None:
            check_at_least(self.n_words, 1, "n_words")
        if len(self.class_names) < 2 or not all(isinstance(name, str) for name in self.class_names):
            raise InputError("class_names must be a list of text, at least two.")
        if self.pixel_scale is not None:
            self._check_pixel_scale(self.pixel_scale)

    def _check_pixel_scale(self, scale: dict[str, Any]) -> None:
        if not isinstance(scale, dict) or set(scale) != {"mean", "std", "peak"}:
            raise InputError(f"pixel_scale must have mean, std and peak; got {scale!r}.")
        for name, least in (("mean", None), ("std", 0)):
            numbers = scale[name]
            if not isinstance(numbers, list) or len(numbers) != self.input_shape[0]:
                raise InputError(
                    f"{name} of pixel_scale must be one number for each of {self.input_shape[0]} channels."
                )
            for number in numbers:
                real = isinstance(number, int | float) and not isinstance(number, bool) and math.isfinite(number)
                if not real or (least is not None and number <= least):
                    raise InputError(f"{name} of pixel_scale must be finite, and std above 0; got {number!r}.")
        check_positive(scale["peak"], "peak")

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
