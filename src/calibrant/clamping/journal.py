"""Journal of a long fit: partial results in a folder, from which an interrupted fit resumes."""

import hashlib
import json
import time
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any, final

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from calibrant.atomic import atomic_path, save_tensors
from calibrant.clamping.inputs import upgraded_settings
from calibrant.errors import FileError
from calibrant.inference import CalibrationSamples, network_digest, state_digest

__all__ = ["Journal", "fit_identity", "samples_digest"]

_FORMAT, _EARLIER = "calibrant.clamping/3", "calibrant.clamping/2"


def fit_identity(settings: Mapping[str, Any], model: nn.Module, samples: CalibrationSamples) -> dict[str, Any]:
    """Return the fingerprint of a fit: options, weights and data; a fit is resumed only if it matches.

    The batch size is left out: after running out of memory, a fit resumes with smaller batches.

    Args:
        settings: Options of the method, as plain values.
        model: The network.
        samples: All are read, for a digest of their inputs.
    """
    decisive = {name: value for name, value in settings.items() if name != "batch_size"}
    return {"settings": decisive, "network": network_digest(model), "samples": samples_digest(samples)}


def samples_digest(samples: CalibrationSamples) -> str:
    """Return a fingerprint of all inputs and labels, in their order."""
    digest = hashlib.sha256(f"{len(samples)} {samples.input_shape} {samples.input_dtype}".encode())
    for values in chain([samples.labels], (inputs for inputs, _ in samples.batches(device="cpu"))):
        digest.update(values.contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]


@final
class Journal:
    """Named entries of tensors, each written atomically.

    Args:
        folder: Created if necessary; None to write nothing.
        identity: Fingerprint of the fit. A folder of another fit is refused.
        every: Seconds between two writes of an entry that is not final.

    Raises:
        FileError: If the folder belongs to another fit, or cannot be created.
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
            raise FileError(f"{folder} could not be created: {error.strerror}.") from error
        for path in sorted(folder.glob("*.journal")):
            self._read(path)

    def read(self, name: str) -> dict[str, Tensor] | None:
        """Return the tensors of an entry, or None if there is none.

        Raises:
            FileError: If it cannot be read.
        """
        path = self._path(name)
        return None if path is None or not path.exists() else self._read(path)

    def write(self, name: str, tensors: Mapping[str, Tensor], *, final: bool = False) -> None:
        """Write an entry, unless one was written a moment ago and this is not final."""
        path = self._path(name)
        if path is None or not (final or time.monotonic() - self._written >= self._every):
            return
        plain = {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}
        with atomic_path(path) as temporary:
            metadata = {"format": _FORMAT, "identity": self._identity, "digest": state_digest(plain)}
            save_tensors(plain, temporary, metadata)
        self._written = time.monotonic()

    def clear(self) -> None:
        """Delete all entries: the fit is complete."""
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
            raise FileError(f"{path} cannot be read ({error}). Delete it, and that step is repeated.") from error
        if _identity_in(metadata) != self._identity:
            raise FileError(
                f"{path.parent} must be new, or hold the journal of this same fit; it holds that of another network, "
                "data or settings. Name another folder, or delete its .journal files."
            )
        if metadata.get("digest") != state_digest(tensors):
            raise FileError(
                f"{path} must hold what was written into it; it does not. Delete it, and that step is repeated."
            )
        return tensors


def _identity_in(metadata: Mapping[str, str]) -> str | None:
    """Return the fingerprint in an entry's metadata, under today's names; None if there is none."""
    if metadata.get("format") != _EARLIER or "identity" not in metadata:
        return metadata.get("identity") if metadata.get("format") == _FORMAT else None
    identity = json.loads(metadata["identity"])
    renamed = {
        "settings": upgraded_settings(identity.get("settings", {})),
        "network": identity.get("network"),
        "samples": identity.get("rows"),
    }
    return json.dumps(renamed, sort_keys=True)
