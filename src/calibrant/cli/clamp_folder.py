"""The folder that ``calibrant clamp`` leaves, and goes on in after a stop. Nothing in it can be half written.

::

    settings.json         what decides the result
    *.journal             while it runs: what was found so far
    clamped.safetensors   δ and the head
    before.npz            logits and labels of the test rows by the network as it is
    temperature.npz       the same behind temperature scaling
    after.npz             the same of the clamped network
    report.md, report.json
"""

import hashlib
import json
from itertools import chain
from pathlib import Path
from typing import Any, final

import torch

from calibrant.clamping import CalibrationRows
from calibrant.errors import FileError
from calibrant.sources.atomic import atomic_text

__all__ = ["ClampFolder", "digest_of"]

_FORMAT = "calibrant.clamp/1"
_LEFT = ("clamped.safetensors", "before.npz", "temperature.npz", "after.npz", "report.md", "report.json")


@final
class ClampFolder:
    """One fit's folder.

    Args:
        path: Made when the fit begins.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._is_made = False

    @property
    def clamped(self) -> Path:
        """The clamped model, once it is fitted."""
        return self.path / "clamped.safetensors"

    def check(self) -> None:
        """Refuse, before anything is read, what is neither new, nor empty, nor such a folder.

        Raises:
            FileError: If it holds something else.
        """
        if (self.path / "settings.json").exists():
            self._settings()
        elif self.path.exists() and not (self.path.is_dir() and all(map(_is_abandoned, self.path.iterdir()))):
            raise FileError(
                f"{self.path} must be a new or empty folder, or one that calibrant clamp began; it holds something "
                "else. Name another."
            )

    def begin(self, settings: dict[str, Any]) -> None:
        """Make the folder, or see that it holds this very fit.

        Args:
            settings: What decides the result, as JSON can hold it.

        Raises:
            FileError: If it holds another fit, or cannot be written.
        """
        self.check()
        # As they will be read back.
        settings = json.loads(json.dumps(settings))
        if (self.path / "settings.json").exists():
            told = _differences(settings, self._settings())
            if told and not self._is_bare:
                raise FileError(
                    f"{self.path} must hold a fit of the same settings to go on with it; here they are "
                    f"{'; '.join(told)}. Name another folder, or delete this one."
                )
            if not told:
                return
        self._is_made = not self.path.exists()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"{self.path} could not be made: {error.strerror}.") from error
        with atomic_text(self.path / "settings.json") as file:
            json.dump({"format": _FORMAT, "settings": settings}, file, indent=2)

    def withdraw(self) -> None:
        """Leave nothing behind of a fit that could not be, unless something was found."""
        if self._is_made and self._is_bare:
            (self.path / "settings.json").unlink(missing_ok=True)
            if not any(self.path.iterdir()):
                self.path.rmdir()

    def forget(self) -> None:
        """Delete what an earlier fit found and left here, and nothing else, so that any other may begin."""
        if (self.path / "settings.json").exists():
            self._settings()
            for path in self._found():
                path.unlink()

    @property
    def _is_bare(self) -> bool:
        """Whether nothing was found yet, as after a fit that could not be: then it is in nobody's way."""
        return not self._found()

    def _found(self) -> list[Path]:
        left = [path for path in (self.path / name for name in _LEFT) if path.exists()]
        return [*left, *self.path.glob("*.journal")]

    def _settings(self) -> dict[str, Any]:
        path = self.path / "settings.json"
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise FileError(f"{path} must be the settings of a fit; it cannot be read ({error}).") from error
        if not isinstance(document, dict) or document.get("format") != _FORMAT:
            raise FileError(f"{path} must be the settings of a fit by calibrant clamp; it is not. Name another folder.")
        settings: dict[str, Any] = document["settings"]
        return settings


def digest_of(rows: CalibrationRows) -> str:
    """A fingerprint of all inputs and labels, in their order."""
    digest = hashlib.sha256(f"{len(rows)} {rows.input_shape} {rows.input_dtype}".encode())
    for values in chain([rows.labels], (inputs for inputs, _ in rows.batches(device="cpu"))):
        digest.update(values.contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]


def _differences(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    names = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
    return [f"{name} {ours.get(name)!r}, not {theirs.get(name)!r}" for name in names]


def _is_abandoned(path: Path) -> bool:
    """Whether this is what a fit that was killed in the middle of a write left."""
    return path.name.startswith(".calibrant-") and path.suffix == ".tmp"
