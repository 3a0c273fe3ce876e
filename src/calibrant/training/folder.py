"""The folder of a run: settings, records, checkpoint and results. Every file is written atomically.

::

    settings.json            everything that decides the result, and the machine and versions
    epochs.jsonl             one record per epoch
    checkpoint.safetensors   during the run: the state to resume from
    weights.safetensors      at the end: weights of the network, of the epoch that the recipe selects
    loss.safetensors         at the end: parameters of a meta-learned loss, after the same epoch
    calibration.npz          at the end: logits and labels of the calibration samples
    test.npz                 at the end: logits and labels of the test samples
    learning.npz             at the end, if traced: when each training sample was learned, and its largest logit
"""

import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from calibrant import __version__
from calibrant.atomic import SettingsFolder, atomic_binary, atomic_path, atomic_text, save_tensors
from calibrant.errors import CalibrantError, FileError, InputError, reading
from calibrant.files import save
from calibrant.files.map_file import contents_metadata, digest_fits
from calibrant.inference import network_state
from calibrant.losses import MetaLoss
from calibrant.predictions import Predictions
from calibrant.training.recipe import RunSettings
from calibrant.training.record import EpochRecord, learned_epochs
from calibrant.training.session import Session

_FORMAT = "calibrant.run/1"
# What reading a damaged file may raise.
DAMAGED = (SafetensorError, CalibrantError, LookupError, TypeError, ValueError, OSError, RuntimeError, AttributeError)


@final
class RunFolder:
    """The folder of one run; it is created when the run begins."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._folder = SettingsFolder(self.path, _FORMAT, work="run", command="calibrant train")

    @property
    def is_finished(self) -> bool:
        return (self.path / "weights.safetensors").exists()

    @property
    def has_answers(self) -> bool:
        """Whether it holds the predictions of the trained network; a finished run does, also without its weights."""
        has_test = (self.path / "test.npz").exists
        return self.is_finished or (has_test() and len(self.records()) == self.settings().recipe.epochs)

    def begin(self, settings: RunSettings, device: torch.device) -> None:
        """Create the folder, or check that it holds this very run; a FileError if it does not."""
        self._folder.check()
        if self._folder.is_begun:
            if different := settings.differences(self.settings()):
                raise FileError(
                    f"{self.path} must hold a run of the same settings to resume it; here they are "
                    f"{'; '.join(different)}. Name another folder, or delete this one."
                )
            return
        ran_on = {
            "calibrant": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine(),
        }
        self._folder.begin({"settings": settings.as_dict(), "ran_on": ran_on})

    def settings(self) -> RunSettings:
        """Read the settings of the run; a FileError if this is not the folder of one."""
        document = self._folder.document()
        try:
            return RunSettings.from_dict(document["settings"])
        except (InputError, KeyError, TypeError, ValueError, AttributeError) as error:
            path = self._folder.settings
            raise FileError(f"{path} must be the settings of a run; a value is wrong ({error}).") from error

    def records(self) -> list[EpochRecord]:
        """Read the records of the epochs so far."""
        path = self.path / "epochs.jsonl"
        if not path.exists():
            return []
        with reading(path, "file of epoch records (.jsonl)"):
            return [EpochRecord.from_dict(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]

    def checkpoint(self, session: Session) -> None:
        """Write the state of a run to resume from."""
        document = {"format": _FORMAT, "records": [record.as_dict() for record in session.records]}
        self._write_records(session.records)
        write_tensors(session.state(), self.path / "checkpoint.safetensors", document)

    def resume(self, session: Session) -> None:
        """Restore the last checkpoint; a run without one starts from the beginning."""
        path = self.path / "checkpoint.safetensors"
        if not path.exists():
            return
        try:
            document, state = read_tensors(path)
            session.restore(state, [EpochRecord.from_dict(record) for record in document["records"]])
        except DAMAGED as error:
            raise FileError(
                f"{path} must be a checkpoint of this run; it is damaged or another's ({error}). Delete it to start "
                "anew."
            ) from error

    def finish(self, session: Session, class_names: Sequence[str]) -> None:
        """Write the results; the weights last, as they mark a finished run."""
        self._write_records(session.records)
        epoch = session.selected_epoch
        session.select()
        for name, part in session.data.held_out.items():
            logits = session.logits(part).cpu()
            save(Predictions.from_logits(logits, part.labels.cpu(), class_names=class_names), self.path / f"{name}.npz")
        if session.trace is not None:
            learned = learned_epochs(session.trace.correct).to(torch.int32)
            with atomic_binary(self.path / "learning.npz") as file:
                np.savez_compressed(file, learned_epoch=learned.numpy(), max_logit=session.trace.max_logit.numpy())
        results = {"loss": session.loss} if isinstance(session.loss, MetaLoss) else {}
        for name, module in (results | {"weights": session.model}).items():
            # Copies: a file cannot hold tensors that share memory, as tied layers do.
            tensors = {key: values.detach().cpu().contiguous().clone() for key, values in network_state(module).items()}
            write_tensors(tensors, self.path / f"{name}.safetensors", {"format": _FORMAT, "epoch": epoch})
        (self.path / "checkpoint.safetensors").unlink(missing_ok=True)

    def weights(self) -> dict[str, Tensor]:
        """Read the weights of the trained network; a FileError if the run is not finished."""
        return self._tensors("weights.safetensors", "a network's weights")

    def loss_parameters(self) -> dict[str, Tensor]:
        """Read the parameters of the meta-learned loss, after the same epoch as the weights."""
        return self._tensors("loss.safetensors", "the parameters of a meta-learned loss")

    def _tensors(self, name: str, words: str) -> dict[str, Tensor]:
        path = self.path / name
        if not path.exists():
            raise FileError(f"{self.path} must be the folder of a finished run; it has no {name}, and so not {words}.")
        try:
            return read_tensors(path)[1]
        except DAMAGED as error:
            raise FileError(f"{path} must hold {words}; it is damaged ({error}).") from error

    def _write_records(self, records: Sequence[EpochRecord]) -> None:
        with atomic_text(self.path / "epochs.jsonl") as file:
            file.writelines(json.dumps(record.as_dict()) + "\n" for record in records)


def write_tensors(tensors: dict[str, Tensor], path: Path, document: dict[str, Any]) -> None:
    """Write a document and tensors to a file, with their digest."""
    with atomic_path(path) as file:
        # The document declares the digest, so that its loss is noticed; earlier files have none.
        save_tensors(tensors, file, contents_metadata({**document, "has_digest": True}, tensors))


def read_tensors(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read the document and the tensors of a file; an InputError if they are not those that were written."""
    with safe_open(str(path), framework="pt") as file:
        metadata = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # no mapping
    text = metadata.get("calibrant", "{}")
    document = json.loads(text)
    if not isinstance(document, dict):
        raise InputError("its document must be a mapping")
    if ("has_digest" in document or "sha256" in document) and not digest_fits(text, tensors):
        raise InputError("its contents do not match its digest")
    return document, tensors
