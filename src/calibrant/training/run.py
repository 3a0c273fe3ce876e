"""Train one network or several side by side, in folders, resumable after a stop; and load their results."""

import copy
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn

from calibrant import catalogue
from calibrant.calibrators import TemperatureScaling
from calibrant.checks import check_at_least
from calibrant.datasets.dataset import Dataset, Samples, Split, split_dataset
from calibrant.datasets.digits import Digits, load_digits
from calibrant.errors import CalibrantError, FileError, FitError, InputError
from calibrant.files import load
from calibrant.inference import evaluating, forward_errors, load_weights
from calibrant.losses import CrossEntropyLoss, Loss, MetaLoss, loss_settings
from calibrant.maps import Scale
from calibrant.metrics import accuracy, auroc, ece, nll
from calibrant.models import DigitsCNN, build_model
from calibrant.models.zoo import model_shapes
from calibrant.processes import SINGLE_PROCESS, ProcessGroup
from calibrant.training.data import TrainingData
from calibrant.training.folder import RunFolder
from calibrant.training.recipe import Recipe, RunSettings, data_digest
from calibrant.training.record import EpochRecord
from calibrant.training.session import RuntimeOptions, Session
from calibrant.training.stores import Standardise, store_of

_OWN = ":"  # in the name of a network of one's own, module:factory
_IMAGE = 3  # axes: channels, rows, columns


def train_together(
    sessions: Sequence[Session],
    *,
    after_epoch: Callable[[Session, EpochRecord], None] = lambda _session, _record: None,
    after_failure: Callable[[Session, FitError], None] | None = None,
    after_step: Callable[[Session, int], None] = lambda _session, _steps: None,
) -> None:
    """Train all networks to their last epoch, an epoch of each in turn. Torch's random state is restored.

    A network whose loss or logits are no longer finite is stopped, and the others continue.

    Args:
        sessions: Some may be finished, or further than others.
        after_epoch: Called after each epoch of each network.
        after_failure: Called when a network is stopped. None raises the first such error once the others are done.
        after_step: Called after each step of each network, with the number of steps since its epoch began.

    Raises:
        FileError: If a picture that is read in batches cannot be read.
    """
    failed: dict[Session, FitError] = {}
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        while unfinished := [session for session in sessions if not (session.is_finished or session in failed)]:
            # Captured steps overlap on a GPU. All others have it to themselves, and torch's random state for dropout.
            captured = [session for session in unfinished if session.is_captured]
            for group in (captured, *([session] for session in unfinished if not session.is_captured)):
                _take_steps(group, after_step)
                for session in group:
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


def _take_steps(sessions: Sequence[Session], after_step: Callable[[Session, int], None]) -> None:
    """Begin an epoch of each network, and take its steps in turn."""
    for session in sessions:
        session.begin_epoch()
    for step in range(max((session.steps_an_epoch for session in sessions), default=0)):
        for session in sessions:
            if step < session.steps_an_epoch:
                session.advance()
                after_step(session, step + 1)


@final
@dataclass(frozen=True, eq=False)
class Run:
    """A network to train, and the folder of its results."""

    folder: Path
    model: str
    loss: Loss | MetaLoss
    recipe: Recipe
    factory: Callable[[], nn.Module] | None = None  # makes a network of one's own; None for one of calibrant.models


def train_runs(  # noqa: PLR0913  # two of them matter to the command line alone
    runs: Sequence[Run],
    dataset: Dataset,
    *,
    split: str = "holdout",
    split_seed: int = 0,
    device: torch.device,
    train_samples: int | None = None,
    runtime: RuntimeOptions | None = None,
    processes: ProcessGroup = SINGLE_PROCESS,
    after_epoch: Callable[[Run, EpochRecord], None] = lambda _run, _record: None,
    after_step: Callable[[Run, int, int], None] = lambda _run, _steps, _of: None,
) -> None:
    """Train networks side by side on one data set; each resumes from its folder's checkpoint, if there is one.

    Args:
        runs: With different folders; finished ones are left unchanged.
        dataset: Data set with the publisher's own parts.
        split: How to divide it; see :func:`~calibrant.datasets.all_splits`.
        split_seed: Random seed of the split.
        device: Where to compute.
        train_samples: Number of training samples, drawn by ``split_seed``; a smaller number draws a subset. None takes
            all.
        runtime: How the networks are run.
        processes: The processes that train the same weights; only the first writes.
        after_epoch: Called after each epoch of each run.
        after_step: Called after each step of each run, with the number of steps in this epoch so far, and of all.

    Raises:
        FileError: If a folder holds another run, or cannot be written; or a picture that is read in batches cannot be
            read, after which the same call resumes from the last epoch.
        FitError: If the loss or the logits of a run are no longer finite; the others are finished first.
    """
    runtime = runtime or RuntimeOptions()
    data = TrainingData.of(
        dataset, subset_split(split_dataset(dataset, split, seed=split_seed), train_samples, split_seed)
    )
    shared: dict[str, Any] = {
        "dataset": dataset.name, "data_digest": data_digest(data), "split": split, "split_seed": split_seed,
        "input_shape": tuple(data.training.inputs.shape[1:]), "n_words": dataset.n_words,
        "class_names": dataset.class_names, "train_samples": train_samples,
        "pixel_scale": data.pixel_scale,
    }  # fmt: skip

    def decided(recipe: Recipe) -> Recipe:  # here, so that the settings record precision and augmentation
        augmentation = recipe.augmentation or data.augmentation
        return replace(recipe, precision=recipe.multiplies_in(device.type), augmentation=augmentation)

    settings = {
        run: RunSettings(model=run.model, loss=loss_settings(run.loss), recipe=decided(run.recipe), **shared)
        for run in runs
    }
    folders = {run: RunFolder(run.folder) for run in runs}
    finished = processes.from_first(lambda: [folders[run].is_finished for run in runs])
    unfinished = {run: settings[run] for run, is_finished in zip(runs, finished, strict=True) if not is_finished}
    sessions = _sessions(unfinished, data, device, runtime, processes)
    # Only after all networks are built: a run that is refused leaves no folder behind.
    with processes.agreed():
        for run in runs if processes.is_first else ():
            folders[run].begin(settings[run], device)
        for session, run in sessions.items():
            folders[run].resume(session)
    processes.check_same(str([shared["data_digest"], *(session.epoch for session in sessions)]), "data and checkpoints")
    written = dict.fromkeys(sessions, time.monotonic())
    failures: list[str] = []

    def ended(session: Session, record: EpochRecord) -> None:
        run = sessions[session]
        if processes.is_first:
            if session.is_finished:
                folders[run].finish(session, dataset.class_names)
            elif dataset.are_files or time.monotonic() - written[session] >= runtime.checkpoint_seconds:
                # A damaged picture may end the next epoch.
                folders[run].checkpoint(session)
                written[session] = time.monotonic()
        after_epoch(run, record)

    def failed(session: Session, error: FitError) -> None:
        failures.append(f"{sessions[session].folder}: {error}")

    train_together(
        list(sessions),
        after_epoch=ended,
        after_failure=failed,
        after_step=lambda session, steps: after_step(sessions[session], steps, session.steps_an_epoch),
    )
    if failures:
        raise FitError(" ".join(failures))


def _sessions(
    runs: Mapping[Run, RunSettings],
    data: TrainingData,
    device: torch.device,
    runtime: RuntimeOptions,
    processes: ProcessGroup,
) -> dict[Session, Run]:
    """Build the networks of runs, each with its own copy of its loss, and with the data as it augments them."""
    augmentations = dict.fromkeys(settings.recipe.augmentation for settings in runs.values())
    stored = {name: data.on(device, name, read_threads=runtime.read_threads) for name in augmentations}
    sessions: dict[Session, Run] = {}
    for run, settings in runs.items():
        how = runtime
        if run.factory is None:
            model = _built(settings)
        else:  # what it does cannot be captured without knowing it
            model, how = _own_network(run.factory, settings, data), replace(runtime, compiled=False)
        loss, on_device = copy.deepcopy(run.loss), stored[settings.recipe.augmentation]
        sessions[Session(model, loss, on_device, settings.recipe, how, processes, name=str(run.folder))] = run
    if len({session.model for session in sessions}) < len(sessions):
        raise InputError("a function must make a new network for every run; one returned the same network again.")
    return sessions


@final
@dataclass(frozen=True)
class RunMetrics:
    """Metrics of a finished run on its test samples, and at the temperature fitted on its calibration samples.

    The ECE is that of the predicted class, for two classes too.
    """

    accuracy: float
    nll: float
    ece: float
    auroc: float
    temperature: float | None = None  # None if none is best, as where a few samples are all predicted correctly
    nll_at_temperature: float | None = None
    ece_at_temperature: float | None = None


def run_metrics(folder: str | os.PathLike[str]) -> RunMetrics:
    """Evaluate a finished run before and after temperature scaling, from the folder that :func:`train_runs` wrote."""
    calibration, test = (load(Path(folder) / f"{part}.npz") for part in ("calibration", "test"))
    metrics = RunMetrics(accuracy(test), nll(test), ece(test), auroc(test))
    try:
        fitted = TemperatureScaling().fit(calibration)
    except FitError:
        return metrics
    assert isinstance(fitted, Scale)
    scaled = fitted.transform(test)
    values = {"nll_at_temperature": nll(scaled), "ece_at_temperature": ece(scaled)}
    return replace(metrics, temperature=float(fitted.temperature), **values)


def load_learned_loss(folder: str | os.PathLike[str]) -> MetaLoss:
    """Load the meta-learned loss of a run with its parameters: with γ-Net, γ of any samples from their features.

    Args:
        folder: Written by :func:`train_runs` or ``calibrant train``; a FileError if it is not that of a finished run
            with such a loss.
    """
    settings, parameters = RunFolder(folder).settings(), RunFolder(folder).loss_parameters()
    try:
        loss = _loss_of(settings.loss)
    except (CalibrantError, LookupError, TypeError, ValueError) as error:
        raise FileError(f"{folder} must name a known loss in its settings; it does not ({error}).") from error
    if not isinstance(loss, MetaLoss):
        raise FileError(f"{folder} must be a run with a meta-learned loss; its loss is {loss.name}.")
    n_classes, n_features = RunFolder(folder).weights()["head.weight"].shape
    loss.build(n_features, n_classes, seed=settings.recipe.seed)
    try:
        loss.load_state_dict(parameters)
    except RuntimeError as error:
        raise FileError(f"{folder} must hold the parameters of its {loss.name}; it holds others ({error}).") from error
    return loss.eval()


def load_network(folder: str | os.PathLike[str], model: nn.Module | None = None) -> nn.Module:
    """Load the trained network of a run, from stored pixels (or word numbers) to logits, in evaluation mode.

    Args:
        folder: Written by :func:`train_runs` or ``calibrant train``; a FileError if it is not that of a finished run.
        model: A new network, where the run trained one of your own: no file decides what code is run. It is changed.
    """
    settings, weights = RunFolder(folder).settings(), RunFolder(folder).weights()
    if model is not None:
        try:
            load_weights(model, weights, casts=False)
        except InputError as error:
            raise FileError(f"{folder} must hold the weights of this {type(model).__name__}: {error}") from error
        return _from_stored(model, settings)
    if _OWN in settings.model:
        raise FileError(
            f"{folder} was trained with a network of your own, {settings.model}; no file decides what code is run, so "
            f"name it too: load_network(folder, model), or --model {settings.model} --weights {folder}."
        )
    try:
        # Compared before the network is built, which could be of any size.
        fits = model_shapes(settings.model, **_sizes(settings)) == {n: tuple(t.shape) for n, t in weights.items()}
        model = _built(settings) if fits else None
    except (InputError, RuntimeError, ArithmeticError) as error:
        raise FileError(f"{folder} must hold the weights of a {settings.model}; it holds others ({error}).") from error
    if model is None:
        raise FileError(f"{folder} must hold the weights of a {settings.model}; names or sizes differ.")
    model.load_state_dict(weights)
    return _from_stored(model, settings)


def _from_stored(model: nn.Module, settings: RunSettings) -> nn.Module:
    """Return a trained network behind the scaling of its stored inputs, in evaluation mode."""
    # As in training: sums run in another order in another layout, and the logits would differ in the last digit.
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    scale = settings.pixel_scale
    return model.eval() if scale is None else nn.Sequential(Standardise(scale), model).eval()


def _loss_of(settings: Mapping[str, Any]) -> Loss | MetaLoss:
    known: dict[str, Any] = {**catalogue.losses.kinds, **catalogue.meta_losses.kinds}
    options = {name: _loss_of(value) if isinstance(value, Mapping) else value for name, value in settings.items()}
    loss: Loss | MetaLoss = known[str(options.pop("loss"))](**options)
    return loss


def subset_split(split: Split, n: int | None, seed: int) -> Split:
    """Return the split with a number of its training samples, in their own order."""
    if n is None:
        return split
    check_at_least(n, 1, "train_samples")
    if n > len(split.training):
        raise InputError(f"train_samples must be at most the {len(split.training):,} there are to train on; got {n:,}.")
    chosen = torch.randperm(len(split.training), generator=torch.Generator().manual_seed(seed))[:n]
    return replace(split, training=split.training[chosen.sort().values])


def _built(settings: RunSettings) -> nn.Module:
    """Build the network with its initial weights."""
    return build_model(settings.model, seed=settings.recipe.seed, **_sizes(settings))


def _own_network(factory: Callable[[], nn.Module], settings: RunSettings, data: TrainingData) -> nn.Module:
    """Make a network of one's own with initial weights that follow from the seed, and try it on two samples."""
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(settings.recipe.seed)
        model = factory()
        if not isinstance(model, nn.Module):
            raise InputError(f"{settings.model} must make a torch.nn.Module; it returned a {type(model).__name__}.")
        few = store_of(data.training.inputs[:2], data.pixel_scale, "none", torch.device("cpu"))
        inputs = few.plain(torch.arange(min(2, len(data.training))))
        with evaluating(model), torch.no_grad(), forward_errors(model, inputs):
            logits: object = model(inputs)
    wanted = (len(inputs), len(settings.class_names))
    if not isinstance(logits, Tensor) or tuple(logits.shape) != wanted or not logits.is_floating_point():
        got = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else f"a {type(logits).__name__}"
        raise InputError(
            f"{settings.model} must return logits, a tensor of shape (n, {wanted[1]}) for {wanted[1]} classes; for "
            f"{wanted[0]} inputs it gave {got}. If labels do not show all classes, name them in the array class_names."
        )
    if bool((logits >= 0).all()) and bool(((logits.sum(dim=1) - 1).abs() < 1e-4).all()):
        raise InputError(f"{settings.model} must return logits; got probabilities. Leave out its last softmax.")
    if not any(weight.requires_grad for weight in model.parameters()):
        raise InputError(f"{settings.model} must have weights to train; none of its parameters takes gradients.")
    return model


def _sizes(settings: RunSettings) -> dict[str, Any]:
    shape, n_words = settings.input_shape, settings.n_words
    if not n_words and len(shape) != _IMAGE:
        raise InputError(
            f"{settings.model} takes images, (channels, height, width); inputs have shape {shape}. Give a network of "
            "your own: --model module:factory."
        )
    images = {} if n_words else {"in_channels": shape[0], "image_size": shape[-1]}
    return {"n_classes": len(settings.class_names), "n_words": n_words, **images}


DIGITS = tuple("0123456789")
# So few images that the network memorises them and becomes overconfident.
_TRAINING_IMAGES, _CALIBRATION_IMAGES, DIGITS_EPOCHS = 100, 500, 100


class DigitsNetwork(NamedTuple):
    """The trained network, in evaluation mode, and digits that it has not seen."""

    model: DigitsCNN
    calibration: Digits
    test: Digits


def train_on_digits(seed: int = 0, *, after_epoch: Callable[[], None] = lambda: None) -> DigitsNetwork:
    """Train a small network on a hundred of the digits, which takes seconds; the others are to calibrate and test it.

    Args:
        seed: Random seed of the split, the first weights and the order of the images.
        after_epoch: Called after each of ``DIGITS_EPOCHS`` epochs.
    """
    digits = load_digits()
    order = torch.randperm(len(digits.images), generator=torch.Generator().manual_seed(seed))
    sizes = [_TRAINING_IMAGES, _CALIBRATION_IMAGES, len(order) - _TRAINING_IMAGES - _CALIBRATION_IMAGES]
    training, calibration, test = (Digits(digits.images[part], digits.labels[part]) for part in order.split(sizes))
    torch.manual_seed(seed)
    model = DigitsCNN()
    recipe = Recipe(epochs=DIGITS_EPOCHS, batch_size=32, learning_rate=0.05, weight_decay=0.0, seed=seed)
    data = TrainingData(Samples(*training), {}, DIGITS).on(torch.device("cpu"))
    session = Session(model, CrossEntropyLoss(), data, recipe)
    train_together([session], after_epoch=lambda _session, _record: after_epoch())
    # Training lays weights out channels last, which rounds otherwise than weights read from a file do.
    network = DigitsCNN()
    network.load_state_dict(model.state_dict())
    return DigitsNetwork(network.eval(), calibration, test)
