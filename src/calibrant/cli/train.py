"""``calibrant train``: train networks, and write their predictions for evaluation and calibration."""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import astuple, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, final, get_args

from calibrant.cli.options import Device, check_folder, check_seed, choose_device, flag, option
from calibrant.errors import FileError, FitError, InputError, caught_warnings, ours_in, warn
from calibrant.processes import ProcessGroup, join_processes
from calibrant.text import without_middle

if TYPE_CHECKING:
    from rich.console import Console

    from calibrant.datasets import Dataset
    from calibrant.training import EpochRecord, Recipe, Run

EXAMPLES = """\
calibrant train --dataset digits --model digits_cnn --epochs 5 -o runs
calibrant train --dataset cifar10 --data ~/data --download -o runs/resnet20
calibrant train --dataset digits --loss ce --loss 'focal(gamma=3)' -o runs
calibrant train --model 'nets:build(width=64)' --data train.npz \\
    --test test.npz -o runs/own"""

_DATA, _RECIPE, _RUNNING = "Data", "Training recipe", "Running"
_LINES = 10  # printed by a run where there is no terminal
_SECONDS_A_BAR, _SECONDS_A_LINE = 0.5, 60.0  # between two numbers of batches, with and without a terminal
_MODEL = (
    "Name from `calibrant list models`, or a function of your own: module:factory or 'module:factory(width=64)'. May "
    "be repeated."
)
_DATASET = (
    "Name from `calibrant list datasets`, with options if any: 'medmnist(flag=pathmnist)'. Folders of pictures of your "
    "own: image_folder, or large_image_folder if they do not fit into memory. Left out for arrays of your own."
)
_DATA_FILE = "Folder (or file) of the data set; or, without --dataset, your own training samples (npz)."
_TEST = "Your own test samples (npz), with --data of your own."
_VALIDATION = "Your own calibration samples (npz); by default --split takes them from the others."
_LAYOUT = "Channels of your own images: auto, channels_first or channels_last."
_LOSS = "Name from `calibrant list losses`, with options if any: 'focal(gamma=3)'. May be repeated."
_SEED = "Random seed of the weights, the batches and the augmentation. May be repeated."
_OUT = "Folder of the run; of several runs, a folder each inside it. The same command resumes a stopped run."
_UNCHECKED = "Accept files of the same layout that differ from the published ones."
_SPLIT = "Calibration samples: holdout (from the training samples), half-test, official or 8:1:1."
_PRESET = (
    "default, or that of a paper: overconfidence, dark-side, dark-side-by-5, dark-side-imagenet, meta-regularization. "
    "The options below change single settings of it."
)
_NESTEROV, _SCHEDULE = "Use Nesterov momentum, or not.", "Learning rate schedule: cosine, steps or constant."
_AUGMENTATION, _USUAL = "none, crop or crop-flip; of large pictures resized-crop-flip.", "as usual for the data set"
_CLIP = "Largest norm of the gradient; larger ones are clipped."
_MILESTONES = "Epochs at whose start the learning rate falls, as in 60,120. Implies --schedule steps."
_SELECT = "Epoch to keep: last, best (lowest error rate on the calibration samples) or best-nll (lowest log-loss)."
_COMPILE = "Do not compile the network on a GPU: starts at once, runs slower."
_DETERMINISTIC = "On a GPU, the same weights in every run: slower, and not compiled."
_THREADS = "Threads that read pictures of a large_image_folder; the result does not depend on it."
_TRACE = "Evaluate all training samples after each epoch, to record when each was learned."


@final
@dataclass(frozen=True)
class RecipeChanges:
    """Settings that differ from those of the recipe; None keeps the recipe's."""

    epochs: Annotated[int | None, option("N", "Passes over the training samples; scales milestones.", _RECIPE)] = None
    batch_size: Annotated[int | None, option("N", "Samples in a batch.", _RECIPE)] = None
    learning_rate: Annotated[float | None, option("X", "Highest learning rate.", _RECIPE)] = None
    momentum: Annotated[float | None, option("X", "Momentum of the gradient, in 0..1.", _RECIPE)] = None
    nesterov: Annotated[bool | None, flag("--nesterov/--no-nesterov", _NESTEROV, _RECIPE)] = None
    weight_decay: Annotated[float | None, option("X", "Weight decay.", _RECIPE)] = None
    schedule: Annotated[str | None, option("NAME", _SCHEDULE, _RECIPE)] = None
    milestones: Annotated[str | None, option("NUMBERS", _MILESTONES, _RECIPE)] = None
    decay: Annotated[float | None, option("X", "Factor of the learning rate at each milestone.", _RECIPE)] = None
    warmup: Annotated[int | None, option("N", "Epochs in which the learning rate rises.", _RECIPE)] = None
    augmentation: Annotated[str | None, option("NAME", _AUGMENTATION, _RECIPE, show_default=_USUAL)] = None
    mixup: Annotated[float | None, option("X", "Alpha of mixup; 0 for none.", _RECIPE)] = None
    clip: Annotated[float | None, option("X", _CLIP, _RECIPE)] = None
    precision: Annotated[str | None, option("NAME", "auto, float32 or bfloat16.", _RECIPE)] = None
    select: Annotated[str | None, option("NAME", _SELECT, _RECIPE)] = None

    def applied_to(self, recipe: "Recipe") -> "Recipe":
        """Return the recipe with the settings that were given."""
        given = {name: value for name, value in vars(self).items() if value is not None}
        if self.milestones is not None:
            try:
                given["milestones"] = tuple(int(part) for part in self.milestones.split(","))
            except ValueError as error:
                raise InputError(f"--milestones must be whole numbers, as 60,80; got {self.milestones!r}.") from error
        return recipe.changed(given)


@final
@dataclass(frozen=True)
class DataOptions:
    """A published data set, or files of one's own."""

    dataset: Annotated[str | None, option("NAME", _DATASET, _DATA)] = None
    data: Annotated[Path | None, option("PATH", _DATA_FILE, _DATA)] = None
    download: Annotated[bool, flag("--download", "Download missing files into --data first.", _DATA)] = False
    unchecked: Annotated[bool, flag("--unchecked", _UNCHECKED, _DATA)] = False
    test: Annotated[Path | None, option("FILE", _TEST, _DATA)] = None
    validation: Annotated[Path | None, option("FILE", _VALIDATION, _DATA)] = None
    inputs: Annotated[str, option("NAME", "Array of your own inputs.", _DATA)] = "inputs"
    labels: Annotated[str, option("NAME", "Array of your own labels.", _DATA)] = "labels"
    layout: Annotated[str, option("NAME", _LAYOUT, _DATA)] = "auto"

    def check(self) -> None:
        """Check that the options belong together."""
        from calibrant.checks import check_known
        from calibrant.datasets import ImageLayout

        check_known(self.layout, get_args(ImageLayout), "--layout")
        of_own = ("test", "validation", "inputs", "labels", "layout")
        if self.dataset is not None:
            if any(getattr(self, name) != getattr(DataOptions, name) for name in of_own):
                raise InputError(f"--{', --'.join(of_own)} must be left out with --dataset, which has all parts.")
        elif self.data is None or self.data.suffix.lower() != ".npz" or self.download or self.unchecked:
            raise InputError(
                "--dataset must name a data set, or --data a file of your own (.npz), without --download and "
                f"--unchecked; got --data {self.data}. Your own: --data train.npz --test test.npz."
            )
        elif self.test is None:
            raise InputError(f"--test must name your own test samples (npz) with --data {self.data}; got none.")

    def fetch(self, stage: Callable[[str], None]) -> None:
        """Download the data set, if that is wanted."""
        from calibrant import catalogue
        from calibrant.datasets import download

        if self.download and self.dataset is not None:
            reader = catalogue.datasets.parse(self.dataset)
            if self.data is not None or reader.is_embedded:
                stage(f"downloading {reader.title}")
                download(reader, self.data or Path())

    def read(self, stage: Callable[[str], None]) -> "Dataset":
        """Read the data set."""
        from calibrant import catalogue
        from calibrant.training import read_arrays

        if self.dataset is None:
            assert self.data is not None
            assert self.test is not None
            stage(f"reading {self.data}")
            layout: Any = self.layout
            arrays = {"inputs": self.inputs, "labels": self.labels}
            return read_arrays(self.data, self.test, self.validation, **arrays, layout=layout)
        reader = catalogue.datasets.parse(self.dataset)
        if self.data is None and not reader.is_embedded:
            raise FileError(f"--data must name the folder of {reader.title}. Get its files from {reader.homepage}.")
        stage(f"reading {reader.title}")
        return reader.read(self.data or Path(), checked=not self.unchecked)


@join_processes()
def train(  # noqa: PLR0913, PLR0917  # a command line has many options
    out: Annotated[Path, option("FOLDER", _OUT, names=("--out", "-o"))],
    model: Annotated[list[str] | None, option("NAME", _MODEL, show_default="resnet20")] = None,
    loss: Annotated[list[str] | None, option("NAME", _LOSS, show_default="ce")] = None,
    gamma: Annotated[float | None, option("X", "Option gamma of a single loss that is given without options.")] = None,
    seed: Annotated[list[int] | None, option("N", _SEED, callback=check_seed, show_default="0")] = None,
    source: DataOptions = DataOptions(),
    split: Annotated[str | None, option("NAME", _SPLIT, _DATA, show_default="holdout")] = None,
    split_seed: Annotated[int, option("N", "Random seed of the split.", _DATA, callback=check_seed)] = 0,
    train_samples: Annotated[
        int | None, option("N", "Number of training samples, drawn by --split-seed.", _DATA, min=1, show_default="all")
    ] = None,
    recipe: Annotated[str, option("NAME", _PRESET, _RECIPE)] = "default",
    changes: RecipeChanges = RecipeChanges(),
    device: Device = None,
    no_compile: Annotated[bool, flag("--no-compile", _COMPILE, _RUNNING)] = False,
    deterministic: Annotated[bool, flag("--deterministic", _DETERMINISTIC, _RUNNING)] = False,
    trace: Annotated[bool, flag("--trace", _TRACE, _RUNNING)] = False,
    evaluate_every: Annotated[int, option("N", "Epochs between evaluations of held-out samples.", _RUNNING, min=1)] = 1,
    read_threads: Annotated[int | None, option("N", _THREADS, _RUNNING, min=1, show_default="one per core")] = None,
) -> None:
    """Train one network, or several side by side.

    Writes weights, the history, and the logits of calibration and test samples, ready for `calibrant evaluate`,
    `compare` and `diagnose`.
    """
    from calibrant.checks import check_known
    from calibrant.cli.output import print_warnings, spinner, standard_error
    from calibrant.datasets import all_splits
    from calibrant.models import all_models
    from calibrant.training import RECIPES, RuntimeOptions, deterministic_algorithms, train_runs
    from calibrant.training.folder import RunFolder

    check_known(recipe, RECIPES, "--recipe")
    split = split or ("holdout" if source.validation is None else "official")
    check_known(split, all_splits(), "--split")
    source.check()
    models, losses, seeds = model or ["resnet20"], loss or ["ce"], seed or [0]
    for name in models:
        if ":" not in name:
            check_known(name, all_models(), "--model")
    if gamma is not None:
        if len(losses) > 1 or "(" in losses[0]:
            raise InputError(
                f"--gamma must come with one plain --loss; got {' and '.join(losses)}. Write it as 'focal(gamma=3)'."
            )
        losses = [f"{losses[0]}(gamma={gamma})"]
    runs = _runs(out, models, losses, seeds, changes.applied_to(RECIPES[recipe]))
    chosen = choose_device(device)
    check_folder(out)
    processes, err = ProcessGroup.current(), standard_error()
    err.quiet = not processes.is_first
    with print_warnings(err):
        with spinner(err) as stage:
            processes.from_first(partial(source.fetch, stage))
            with processes.agreed():
                samples = source.read(stage)
        compiled = not (no_compile or deterministic)
        runtime = RuntimeOptions(
            compiled=compiled, traced=trace, evaluate_every=evaluate_every, read_threads=read_threads
        )
        with deterministic_algorithms() if deterministic else nullcontext():
            finished = [run for run in runs if RunFolder(run.folder).is_finished]
            start = partial(train_runs, runs, samples, device=chosen, runtime=runtime, processes=processes)
            start = partial(start, split=split, split_seed=split_seed, train_samples=train_samples)
            if not err.is_terminal and len(finished) < len(runs):
                err.print(f"Training for {runs[0].recipe.epochs} epochs on {chosen}.")
            if samples.are_files and len(finished) < len(runs):
                err.print("Pictures are read in batches; those that are held out are read once before the first epoch.")
            try:
                with _progress_bars(runs, err, is_shown=processes.is_first) as (after_epoch, after_step):
                    start(after_epoch=after_epoch, after_step=after_step)
            except (FitError, KeyboardInterrupt) as stopped:  # one of several diverged: the others may be finished
                _print_results(runs, processes)
                if isinstance(stopped, KeyboardInterrupt):
                    err.print("Stopped. The same command resumes from the last checkpoint.")
                raise
            # train_runs has now checked that the folder holds this run.
            for run in finished:
                err.print(f"{run.folder} holds a finished run: nothing is trained there.")
            _print_results(runs, processes)


def _runs(
    out: Path, models: Sequence[str], losses: Sequence[str], seeds: Sequence[int], recipe: "Recipe"
) -> "list[Run]":
    """Return a run for every network, loss and seed; several have separate folders, named after them."""
    from calibrant import catalogue
    from calibrant.cli.networks import network_factory
    from calibrant.training import Run

    given = list(product(models, losses, seeds))
    if len(given) > 1 and (out / "settings.json").exists():
        raise FileError(f"--out must be a folder for {len(given)} runs; {out} is that of one. Name another.")
    if len(set(given)) < len(given):
        raise InputError("each network, loss and seed must be named once; got one of them twice.")
    runs = []
    for model, loss, seed in given:
        folder = out
        if len(given) > 1:
            names = (re.sub(r"[^\w.]+", "-", re.sub(r"[=\s]", "", text)).strip("-") for text in (model, loss))
            folder = out / f"{'-'.join(names)}-seed{seed}"
        factory = network_factory(model) if ":" in model else None
        runs.append(Run(folder, model, catalogue.parse_any_loss(loss), replace(recipe, seed=seed), factory))
    return runs


@contextmanager
def _progress_bars(
    runs: "Sequence[Run]", err: "Console", *, is_shown: bool
) -> "Iterator[tuple[Callable[[Run, EpochRecord], None], Callable[[Run, int, int], None]]]":
    """Show a bar for each run with the time left and its test accuracy; without a terminal, print a few lines.

    Within an epoch the bar counts batches, and a line does once a minute.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Column

    from calibrant.training.folder import RunFolder

    rest = Column(ratio=1, no_wrap=True)  # where the terminal is narrow, only this one is cut
    columns = (
        *(TextColumn("{task.fields[run]}", markup=False), BarColumn(8), MofNCompleteColumn()),
        *(TimeRemainingColumn(), TextColumn("{task.description}", markup=False, table_column=rest)),
    )
    progress = Progress(*columns, console=err, transient=True, expand=True)
    with progress if err.is_terminal and is_shown else nullcontext():  # a disabled one of rich 14 ends with a line
        tasks, texts, shown = {}, {}, dict.fromkeys(runs, time.monotonic())
        for run in runs:
            status = "finished before" if RunFolder(run.folder).is_finished else "starting"
            texts[run] = status
            tasks[run] = progress.add_task(status, total=run.recipe.epochs, run=without_middle(run.folder.name, 32))

        def show(run: "Run", record: "EpochRecord") -> None:
            test, text = record.held_out.get("test"), f"loss {record.loss:.3f}"
            text = f"test accuracy {test.accuracy:.3f}, {text}, ece {test.ece:.3f}" if test else text
            texts[run] = text
            progress.update(tasks[run], completed=record.epoch, description=text)
            epochs = run.recipe.epochs
            is_due = record.epoch == 1 or record.epoch % max(1, epochs // _LINES) == 0  # the first tells the pace
            if is_shown and not err.is_terminal and is_due:
                err.print(f"{run.folder.name} epoch {record.epoch} of {epochs}: {text}")
            shown[run] = time.monotonic()

        def show_step(run: "Run", steps: int, of: int) -> None:
            if (now := time.monotonic()) - shown[run] >= (_SECONDS_A_BAR if err.is_terminal else _SECONDS_A_LINE):
                shown[run] = now
                progress.update(tasks[run], description=f"batch {steps:,} of {of:,}, {texts[run]}")
                if is_shown and not err.is_terminal:
                    err.print(f"{run.folder.name}: batch {steps:,} of {of:,} in this epoch")

        yield show, show_step


def _print_results(runs: "Sequence[Run]", processes: ProcessGroup) -> None:
    """Print the metrics of finished runs, before and after temperature scaling on their calibration samples."""
    from calibrant.cli.output import standard_output
    from calibrant.training import run_metrics
    from calibrant.training.folder import RunFolder

    folders = [run.folder for run in runs if RunFolder(run.folder).is_finished]
    if not folders or not processes.is_first:
        return
    console = standard_output()
    rows = [("run", ["accuracy", "nll", "ece", "auroc", "T", "nll at T", "ece at T"])]
    for folder in folders:
        with caught_warnings() as caught:
            metrics = run_metrics(folder)
        for note in ours_in(caught):
            warn(f"{folder.name}: {note}")
        numbers = ["" if number is None else f"{number:.4f}" for number in astuple(metrics)]
        if metrics.temperature is None:  # none could be fitted
            numbers[4:] = ["none", "", ""]
        rows.append((folder.name, numbers))
    width = max(len(name) for name, _ in rows)
    after_name = "" if width + 10 * len(rows[0][1]) <= console.width else "\n"  # long names have lines of their own
    for name, numbers in rows:
        line = f"{name:{width}}{after_name}{''.join(f'{number:>10}' for number in numbers)}"
        console.print(line, style="bold" if name == "run" else None, highlight=False, soft_wrap=True)
    if len(RunFolder(folders[0]).settings().class_names) == 2:
        console.print("The ECE is that of the predicted class.", style="dim", highlight=False, soft_wrap=True)
    test, calibration = folders[0] / "test.npz", folders[0] / "calibration.npz"
    commands = (f"evaluate {test}", f"compare {calibration} {test}", f"diagnose {folders[0].parent}")
    for command in commands if len(folders) > 1 else commands[:2]:
        # In one piece, to be copied.
        console.print(f"calibrant {command}", style="dim", highlight=False, soft_wrap=True)
