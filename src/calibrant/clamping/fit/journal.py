"""What a long fit has found so far, in a folder, so that a killed one goes on where it was."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from safetensors import SafetensorError, safe_open
from torch import Tensor

from calibrant.atomic import atomic_path, save_tensors
from calibrant.errors import FileError
from calibrant.inference import state_digest

__all__ = ["Journal"]

_FORMAT = "calibrant.clamping/2"


@final
class Journal:
    """Named entries of tensors; every one is written whole or not at all.

    Args:
        folder: Made if need be; None remembers nothing.
        identity: What decides the result. A folder that was begun with another is refused.
        every: Seconds between two writings of an entry that is not final.

    Raises:
        FileError: If the folder belongs to another fit, or cannot be made.
    """

    def __init__(self, folder: Path | None, identity: Mapping[str, Any], *, every: float = 30.0) -> None:
        self._folder, self._every = folder, every
        self._identity = json.dumps(dict(identity), sort_keys=True)
        self._written = time.monotonic()
        if folder is None:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"{folder} could not be made: {error.strerror}.") from error
        for path in sorted(folder.glob("*.journal")):
            self._read(path)

    def recall(self, name: str) -> dict[str, Tensor] | None:
        """The tensors of an entry, or None if there is none.

        Raises:
            FileError: If it cannot be read.
        """
        path = self._path(name)
        return None if path is None or not path.exists() else self._read(path)

    def note(self, name: str, tensors: Mapping[str, Tensor], *, final: bool = False) -> None:
        """Write an entry, unless one was written a moment ago and this is not final."""
        path = self._path(name)
        if path is None or not (final or time.monotonic() - self._written >= self._every):
            return
        plain = {each: tensor.detach().cpu().contiguous() for each, tensor in tensors.items()}
        with atomic_path(path) as temporary:
            written = {"format": _FORMAT, "identity": self._identity, "digest": state_digest(plain)}
            save_tensors(plain, temporary, written)
        self._written = time.monotonic()

    def clear(self) -> None:
        """Forget everything: the fit is done, and safe elsewhere."""
        if self._folder is not None:
            for path in self._folder.glob("*.journal"):
                path.unlink(missing_ok=True)

    def _path(self, name: str) -> Path | None:
        return None if self._folder is None else self._folder / f"{name}.journal"

    def _read(self, path: Path) -> dict[str, Tensor]:
        try:
            with safe_open(path, framework="pt") as opened:
                metadata = opened.metadata() or {}
                tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118  # not a mapping
        except (SafetensorError, OSError) as error:
            raise FileError(f"{path} cannot be read ({error}). Delete it, and the fit starts anew there.") from error
        if metadata.get("format") != _FORMAT or metadata.get("identity") != self._identity:
            raise FileError(
                f"{path.parent} must be new, or hold the beginnings of this very fit; it holds those of another "
                "network, data or settings. Name another folder, or delete its .journal files."
            )
        if metadata.get("digest") != state_digest(tensors):
            raise FileError(
                f"{path} must hold what was written into it; it does not. Delete it, and the fit starts anew."
            )
        return tensors
