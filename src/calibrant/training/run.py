"""Runs with folders: begun, gone on with after a stop, finished; several at once on one device."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, final

import torch
from torch import nn

from calibrant.datasets.dataset import Dataset, PixelScale
from calibrant.datasets.splits import split_dataset
from calibrant.errors import FileError, FitError, InputError
from calibrant.losses import Loss, MetaLoss, loss_settings
from calibrant.models.zoo import build_model, model_shapes
from calibrant.training.data import TrainingData
from calibrant.training.folder import RunFolder
from calibrant.training.inputs import Standardise
from calibrant.training.peers import ALONE, Peers
from calibrant.training.recipe import Recipe
from calibrant.training.record import EpochRecord
from calibrant.training.session import Session, Speed
from calibrant.training.settings import RunSettings, data_digest
from calibrant.training.together import train_together

__all__ = ["Run", "load_network", "train_runs"]


@final
@dataclass(frozen=True, eq=False)
class Run:
    """A network to train, and the folder it is to leave."""

    folder: Path
    model: str
    loss: Loss | MetaLoss
    recipe: Recipe


@final
@dataclass(frozen=True, eq=False)
class _Begun:
    """A run with its folder, and with everything settled that decides its result."""

    run: Run
    folder: RunFolder
    settings: RunSettings

    @classmethod
    def of(
        cls, run: Run, dataset: Dataset, data: TrainingData, device: torch.device, division: tuple[str, int, str]
    ) -> "_Begun":
        """Settle it; the division is its name, its seed, and the digest of what it gave."""
        split, split_seed, digest = division
        settings = RunSettings(
            dataset=dataset.name,
            data_digest=digest,
            split=split,
            split_seed=split_seed,
            model=run.model,
            loss=loss_settings(run.loss),
            recipe=_settled(run.recipe, data, device),
            input_shape=tuple(data.training.inputs.shape[1:]),
            n_words=dataset.n_words,
            class_names=dataset.class_names,
            pixel_scale=None if data.pixel_scale is None else asdict(data.pixel_scale),
        )
        return cls(run, RunFolder(run.folder), settings)


def train_runs(
    runs: Sequence[Run],
    dataset: Dataset,
    *,
    split: str = "holdout",
    split_seed: int = 0,
    device: torch.device,
    speed: Speed | None = None,
    peers: Peers = ALONE,
    after_epoch: Callable[[Run, EpochRecord], None] = lambda _run, _record: None,
) -> None:
    """Train networks side by side on one data set; each goes on from its folder's checkpoint, if there is one.

    Args:
        runs: With different folders; finished ones are left as they are.
        dataset: As its publisher divides it.
        split: How to divide it; see :func:`~calibrant.datasets.all_splits`.
        split_seed: Of that division.
        device: Where to compute.
        speed: What is allowed to make it fast.
        peers: Other processes that train the same weights; only the first writes.
        after_epoch: Called after each epoch of each run.

    Raises:
        FileError: If a folder holds another run, or cannot be written.
        FitError: If the loss or the logits of a run are no longer finite; the others are finished first.
    """
    speed = speed or Speed()
    data = TrainingData.of(dataset, split_dataset(dataset, split, seed=split_seed))
    digest = data_digest(data)
    begun = [_Begun.of(run, dataset, data, device, division=(split, split_seed, digest)) for run in runs]
    unfinished = [each for each in begun if not each.folder.is_finished]
    kinds = dict.fromkeys(each.settings.recipe.augmentation for each in unfinished)
    placed = {kind: data.on(device, kind) for kind in kinds}
    sessions: dict[Session, _Begun] = {}
    for each in unfinished:
        model, recipe = _built(each.settings), each.settings.recipe
        name, rows = str(each.folder.path), placed[recipe.augmentation]
        sessions[Session(model, each.run.loss, rows, recipe, speed, peers, name=name)] = each
    # Not before all networks stand: a run that is refused leaves no folder in the way of the next try.
    for each in begun if peers.is_first else ():
        each.folder.begin(each.settings, device)
    for session, each in sessions.items():
        each.folder.resume(session)
    written = dict.fromkeys(sessions, time.monotonic())
    failures: list[str] = []

    def ended(session: Session, record: EpochRecord) -> None:
        folder = sessions[session].folder
        if peers.is_first:
            if session.is_finished:
                folder.finish(session, dataset.class_names)
            elif time.monotonic() - written[session] >= speed.checkpoint_seconds:
                folder.checkpoint(session)
                written[session] = time.monotonic()
        after_epoch(sessions[session].run, record)

    def failed(session: Session, error: FitError) -> None:
        failures.append(f"{sessions[session].folder.path}: {error}")

    train_together(list(sessions), after_epoch=ended, after_failure=failed)
    if failures:
        raise FitError(" ".join(failures))


def load_network(folder: Path) -> nn.Module:
    """The trained network of a run, from stored pixels (or word numbers) to logits, in evaluation mode.

    Args:
        folder: Left by :func:`train_runs` or ``calibrant train``.

    Raises:
        FileError: If it is no folder of a finished run.
    """
    opened = RunFolder(folder)
    settings, weights = opened.settings(), opened.weights()
    try:
        # Compared before the network is made, which could be of any size.
        fits = model_shapes(settings.model, **_sizes(settings)) == {n: tuple(t.shape) for n, t in weights.items()}
        model = _built(settings) if fits else None
    except (InputError, RuntimeError, ArithmeticError) as error:
        raise FileError(f"{folder} must hold the weights of a {settings.model}; it holds others ({error}).") from error
    if model is None:
        raise FileError(
            f"{folder} must hold the weights of a {settings.model}; it holds others: names or sizes differ."
        )
    model.load_state_dict(weights)
    # As in training: sums run in another order in another layout, and the logits would differ in the last digit.
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if settings.pixel_scale is None:
        return model.eval()
    scale = settings.pixel_scale
    standardise = Standardise(PixelScale(tuple(scale["mean"]), tuple(scale["std"]), scale["peak"]))
    return nn.Sequential(standardise, model).eval()


def _settled(recipe: Recipe, data: TrainingData, device: torch.device) -> Recipe:
    """The recipe with what it leaves open decided, so that the folder tells it."""
    precision = recipe.multiplies_in(device.type)
    return replace(recipe, precision=precision, augmentation=recipe.augmentation or data.augmentation)


def _built(settings: RunSettings) -> nn.Module:
    """The network with the weights it starts from."""
    return build_model(settings.model, seed=settings.recipe.seed, **_sizes(settings))


def _sizes(settings: RunSettings) -> dict[str, Any]:
    shape, n_words = settings.input_shape, settings.n_words
    images = {} if n_words else {"in_channels": shape[0], "image_size": shape[-1]}
    return {"n_classes": len(settings.class_names), "n_words": n_words, **images}
