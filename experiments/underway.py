"""Networks under way: what a cell's training needs to resume, written every minute until the cell has a record."""

import json
import time
from collections.abc import Mapping
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any, final

from torch import Tensor

from calibrant.errors import FileError
from calibrant.training import EpochRecord, Session
from calibrant.training.folder import DAMAGED, read_tensors, write_tensors
from experiments.runner import Cell

__all__ = ["Underway"]

_SECONDS = 60.0  # between two states
_KEPT = "kept."  # begins the names of tensors that the study keeps of its epochs


@final
class Underway:
    """The state of one cell's training, in a file.

    Args:
        folder: Of all states; with None nothing is written.
        cell: The cell.
        commit: Of the code that runs.
    """

    def __init__(self, folder: Path | None, cell: Cell, commit: str) -> None:
        name = f"under-way-{sha256(cell.key.encode()).hexdigest()[:16]}.safetensors"
        self._path, self._cell = None if folder is None else folder / name, cell
        self._commit = commit
        self._began = self._written = time.monotonic()
        self.before: list[dict[str, Any]] = []  # earlier runs: their commit, last epoch and seconds

    def resume(self, session: Session, kept: dict[str, Any]) -> None:
        """Restore the last state, if there is one, and what the study had ``kept`` of its epochs.

        Raises:
            FileError: If it is damaged, or one of another training.
        """
        if self._path is None or not self._path.exists():
            return
        try:
            document, tensors = read_tensors(self._path)
            if (document["cell"], document["recipe"]) != self._settings(session):
                raise FileError("its settings are others")
            logits = {name: tensors.pop(name) for name in tuple(tensors) if name.startswith(_KEPT)}
            session.restore(tensors, [EpochRecord.from_dict(record) for record in document["records"]])
            kept.update(_joined(document["kept"], logits))
            self.before = [*document["before"], document["run"]]
        except DAMAGED as error:
            raise FileError(
                f"{self._path} must be the state of this cell's training ({self._cell}); it is damaged or another's "
                f"({error}). Delete it to begin the cell again."
            ) from error

    def write(self, session: Session, kept: Mapping[str, Any]) -> None:
        """Write the state if the last one is a minute old."""
        now = time.monotonic()
        if self._path is None or session.is_finished or now - self._written < _SECONDS:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        logits: dict[str, Tensor] = {}
        cell, recipe = self._settings(session)
        document = {
            "cell": cell,
            "recipe": recipe,
            "records": [record.as_dict() for record in session.records],
            "kept": _parted(kept, logits, _KEPT),
            "before": self.before,
            "run": {"commit": self._commit, "epoch": session.epoch, "seconds": round(now - self._began, 3)},
        }
        write_tensors(session.state() | logits, self._path, document)
        self._written = now

    def end(self) -> None:
        """Remove the state of a network whose cell has an answer."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _settings(self, session: Session) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what decides the result, as JSON has it."""
        recipe: dict[str, Any] = json.loads(json.dumps(asdict(session.recipe)))
        return dict(self._cell.settings), recipe


def _parted(value: Any, tensors: dict[str, Tensor], name: str) -> Any:
    """Return plain data with the names of the tensors in it, which are put into ``tensors``."""
    if isinstance(value, Tensor):
        tensors[name] = value.cpu().contiguous().clone()  # two names may have one tensor, which a file cannot
        return {"tensor": name}
    if isinstance(value, Mapping):
        return {key: _parted(inner, tensors, f"{name}{key}.") for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_parted(inner, tensors, f"{name}{place}.") for place, inner in enumerate(value)]
    return value


def _joined(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Return what :func:`_parted` took apart; tuples are lists."""
    if isinstance(value, dict):
        if value.keys() == {"tensor"}:
            return tensors[value["tensor"]]
        return {key: _joined(inner, tensors) for key, inner in value.items()}
    return [_joined(inner, tensors) for inner in value] if isinstance(value, list) else value
