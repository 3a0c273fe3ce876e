"""Train one network or several side by side, in folders, resumable after a stop."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, final

import torch
from torch import nn

from calibrant import catalogue
from calibrant.checks import check_at_least
from calibrant.datasets.dataset import Dataset, PixelScale, Split, split_dataset
from calibrant.errors import CalibrantError, FileError, FitError, InputError
from calibrant.inference import with_features
from calibrant.losses import Loss, MetaLoss, loss_settings
from calibrant.models.zoo import build_model, model_shapes
from calibrant.training.data import Standardise, TrainingData
from calibrant.training.device import ALONE, Peers
from calibrant.training.folder import RunFolder
from calibrant.training.recipe import Recipe, RunSettings, data_digest
from calibrant.training.record import EpochRecord
from calibrant.training.session import Session, Speed

__all__ = ["Run", "load_learned_loss", "load_network", "train_runs", "train_together"]


def train_together(
    sessions: Sequence[Session],
    *,
    after_epoch: Callable[[Session, EpochRecord], None] = lambda _session, _record: None,
    after_failure: Callable[[Session, FitError], None] | None = None,
) -> None:
    """Train all networks to their last epoch, an epoch of each in turn. Torch's random state is left as it was.

    A network whose loss or logits are no longer finite is given up, and the others go on.

    Args:
        sessions: Some may be finished, or further than others.
        after_epoch: Called after each epoch of each network.
        after_failure: Called when a network is given up. None raises the first such error once the others are done.

    Raises:
        FitError: If a network was given up, and nobody was to be told of it.
    """
    failed: dict[Session, FitError] = {}
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        while unfinished := [session for session in sessions if not (session.is_finished or session in failed)]:
            _take_an_epochs_steps(unfinished)
            for session in unfinished:
                try:
                    record = session.end_epoch()
                except FitError as error:
                    failed[session] = error
                    if after_failure is not None:
                        after_failure(session, error)
                else:
                    after_epoch(session, record)
    if failed and after_failure is None:
        raise next(iter(failed.values()))


def _take_an_epochs_steps(sessions: Sequence[Session]) -> None:
    for session in sessions:
        session.begin_epoch()
    for at in range(max(session.steps_an_epoch for session in sessions)):
        for session in sessions:
            if at < session.steps_an_epoch:
                session.advance()


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
        cls,
        run: Run,
        dataset: Dataset,
        data: TrainingData,
        device: torch.device,
        division: tuple[str, int, int | None, str],
    ) -> "_Begun":
        """Settle it; the division is its name, its seed, how many train if not all, and the digest of what it gave."""
        split, split_seed, train_samples, digest = division
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
            train_samples=train_samples,
        )
        return cls(run, RunFolder(run.folder), settings)


def train_runs(  # noqa: PLR0913  # two of them are callers' business alone
    runs: Sequence[Run],
    dataset: Dataset,
    *,
    split: str = "holdout",
    split_seed: int = 0,
    device: torch.device,
    train_samples: int | None = None,
    speed: Speed | None = None,
    peers: Peers = ALONE,
    after_epoch: Callable[[Run, EpochRecord], None] = lambda _run, _record: None,
) -> None:
    """Train networks side by side on one data set; each goes on from its folder's checkpoint, if there is one.

    Args:
        runs: With different folders; finished ones are left as they are.
        dataset: As its publisher divides it.
        split: How to divide it; see :func:`~calibrant.datasets.all_splits`.
        split_seed: Random seed of the split.
        device: Where to compute.
        train_samples: How many of the training samples to train on, drawn by ``split_seed``; fewer are among more. None
            takes all.
        speed: What is allowed to make it fast.
        peers: Other processes that train the same weights; only the first writes.
        after_epoch: Called after each epoch of each run.

    Raises:
        FileError: If a folder holds another run, or cannot be written.
        InputError: If there are fewer training samples than ``train_samples``.
        FitError: If the loss or the logits of a run are no longer finite; the others are finished first.
    """
    speed = speed or Speed()
    data = TrainingData.of(dataset, _thinned(split_dataset(dataset, split, seed=split_seed), train_samples, split_seed))
    digest = data_digest(data)
    division = (split, split_seed, train_samples, digest)
    begun = [_Begun.of(run, dataset, data, device, division) for run in runs]
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


def load_learned_loss(folder: Path) -> MetaLoss:
    """The loss that a run learned, with its parameters: of γ-Net, γ of any samples from their features.

    Args:
        folder: Left by :func:`train_runs` or ``calibrant train``.

    Raises:
        FileError: If it is no folder of a finished run, or its loss is not learned.
    """
    opened = RunFolder(folder)
    settings = opened.settings()
    parameters = opened.loss_parameters()
    try:
        loss = _loss_of(settings.loss)
    except (CalibrantError, LookupError, TypeError, ValueError) as error:
        raise FileError(f"{folder} must say which loss was learned; its settings do not ({error}).") from error
    if not isinstance(loss, MetaLoss):
        raise FileError(f"{folder} must be a run whose loss is learned; its loss is {loss.name}.")
    head = with_features(_built(settings)).head
    loss.build(head.in_features, head.out_features, seed=settings.recipe.seed)
    try:
        loss.load_state_dict(parameters)
    except RuntimeError as error:
        raise FileError(f"{folder} must hold the parameters of its {loss.name}; it holds others ({error}).") from error
    return loss.eval()


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


def _loss_of(settings: Mapping[str, Any]) -> Loss | MetaLoss:
    """The loss that these settings are of."""
    known: dict[str, Any] = {**catalogue.losses, **catalogue.meta_losses}
    options = {name: _loss_of(each) if isinstance(each, Mapping) else each for name, each in settings.items()}
    made: Loss | MetaLoss = type(known[str(options.pop("loss"))])(**options)
    return made


def _thinned(split: Split, n: int | None, seed: int) -> Split:
    """The split with so many of its training samples, in their own order."""
    if n is None:
        return split
    check_at_least(n, 1, "train_samples")
    if n > len(split.training):
        raise InputError(f"train_samples must be at most the {len(split.training):,} there are to train on; got {n:,}.")
    chosen = torch.randperm(len(split.training), generator=torch.Generator().manual_seed(seed))[:n]
    return replace(split, training=split.training[chosen.sort().values])


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
