"""What ``calibrant train`` does once torch may be loaded: read, train, write, and say what came of it."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, final

import torch
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from calibrant.calibrators import TemperatureScaling
from calibrant.catalogue import find_any_loss
from calibrant.checks import check_known
from calibrant.cli.device import chosen_device
from calibrant.cli.notes import warnings_shown
from calibrant.cli.output import check_folder, standard_error, standard_output
from calibrant.cli.progress import stages
from calibrant.datasets import Dataset, all_splits, download, find_dataset
from calibrant.errors import FileError, FitError, InputError
from calibrant.files import load
from calibrant.maps import Scale
from calibrant.metrics import accuracy, auroc, ece, nll
from calibrant.models import all_models
from calibrant.predictions import Predictions
from calibrant.training import RECIPES, EpochRecord, Recipe, Run, Speed, train_runs
from calibrant.training.device import Peers, joined_peers
from calibrant.training.folder import RunFolder

__all__ = ["TrainingRequest", "run_training", "whole_numbers"]

_LINES = 10  # that a run says of itself where there is no terminal


@final
@dataclass(frozen=True)
class TrainingRequest:
    """What the person asked for."""

    dataset: str
    out: Path
    data: Path | None
    models: tuple[str, ...]
    losses: tuple[str, ...]
    gamma: float | None
    seeds: tuple[int, ...]
    recipe: str
    changes: Mapping[str, Any]
    split: str
    split_seed: int
    train_samples: int | None
    device: str | None
    is_compiled: bool
    is_traced: bool
    judge_every: int
    download: bool
    is_checked: bool


def whole_numbers(text: str, option: str) -> tuple[int, ...]:
    """Return the whole numbers of a text with commas between them.

    Raises:
        InputError: If they are none.

    Example:
        >>> whole_numbers("60, 120", "--milestones")
        (60, 120)
    """
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise InputError(f"{option} must be whole numbers with commas between them; got {text!r}.") from error


def run_training(request: TrainingRequest) -> None:
    """Carry the request out. What can be known to be wrong with it without the data is found before they are read."""
    check_known(request.recipe, RECIPES, "--recipe")
    check_known(request.split, all_splits(), "--split")
    for model in request.models:
        check_known(model, all_models(), "--model")
    recipe = RECIPES[request.recipe].changed(request.changes)
    runs = _runs(request, recipe)
    device = chosen_device(request.device)
    check_folder(request.out)
    err = standard_error()
    with warnings_shown(err):
        with stages(err) as stage:
            dataset = _dataset(request, stage)
        try:
            _train(request, runs, dataset, device, err)
        except KeyboardInterrupt:
            err.print("Stopped. The same command goes on from the last checkpoint.")
            raise


def _train(request: TrainingRequest, runs: Sequence[Run], dataset: Dataset, device: torch.device, err: Console) -> None:
    speed = Speed(compiled=request.is_compiled, traced=request.is_traced, judge_every=request.judge_every)
    with joined_peers(device) as peers:
        finished = [run for run in runs if RunFolder(run.folder).is_finished]
        try:
            with _bars(runs, err, is_shown=peers.is_first) as shown:
                train_runs(
                    runs,
                    dataset,
                    split=request.split,
                    split_seed=request.split_seed,
                    device=device,
                    train_samples=request.train_samples,
                    speed=speed,
                    peers=peers,
                    after_epoch=shown,
                )
        except (FitError, KeyboardInterrupt):  # one of several has come apart, or all were stopped: some are finished
            _tell(runs, peers)
            raise
        # Not before: only now is it known that a folder holds this very run.
        for run in finished if peers.is_first else ():
            err.print(f"{run.folder} holds a finished run: nothing is trained there.")
        _tell(runs, peers)


def _dataset(request: TrainingRequest, stage: Callable[[str], None]) -> Dataset:
    reader = find_dataset(request.dataset)
    if request.data is None and not reader.is_embedded:
        raise FileError(
            f"--data must name the folder of {reader.title}. Its files are to be had from {reader.homepage}."
        )
    folder = request.data or Path()
    if request.download:
        stage(f"fetching {reader.title}")
        download(reader, folder)
    stage(f"reading {reader.title}")
    return reader.read(folder, checked=request.is_checked)


def _runs(request: TrainingRequest, recipe: Recipe) -> list[Run]:
    """One for each network, loss and seed, each with a folder that tells them apart."""
    if request.gamma is not None and (len(request.losses) > 1 or "(" in request.losses[0]):
        raise InputError(
            "--gamma must stand beside a single --loss without options; got "
            f"{' and '.join(request.losses)}. Write it as 'focal(gamma=3)'."
        )
    given = list(product(request.models, request.losses, request.seeds))
    if len(given) > 1 and (request.out / "settings.json").exists():
        raise FileError(f"--out must be a folder for {len(given)} runs; {request.out} is that of one. Name another.")
    if len(set(given)) < len(given):
        raise InputError("each network, loss and seed must be named once; got one of them twice.")
    runs = []
    for model, loss, seed in given:
        text = loss if request.gamma is None else f"{loss}(gamma={request.gamma})"
        folder = request.out if len(given) == 1 else request.out / f"{model}-{_in_a_path(text)}-seed{seed}"
        runs.append(Run(folder, model, find_any_loss(text), replace(recipe, seed=seed)))
    return runs


def _in_a_path(text: str) -> str:
    return re.sub(r"[^\w.]+", "-", re.sub(r"[=\s]", "", text)).strip("-")


@contextmanager
def _bars(runs: Sequence[Run], err: Console, *, is_shown: bool) -> Iterator[Callable[[Run, EpochRecord], None]]:
    """A bar for each run with the time left and how it does on the test rows; without a terminal, a few lines."""
    columns = (
        TextColumn("{task.fields[run]}", markup=False),
        BarColumn(16),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=err, transient=True, disable=not (err.is_terminal and is_shown)) as progress:
        tasks = {
            run: progress.add_task(
                "finished before" if RunFolder(run.folder).is_finished else "starting",
                total=run.recipe.epochs,
                run=run.folder.name,
            )
            for run in runs
        }

        def shown(run: Run, record: EpochRecord) -> None:
            told = f"loss {record.loss:.3f}"
            if test := record.held_out.get("test"):
                told += f", test accuracy {test.accuracy:.3f}, ece {test.ece:.3f}"
            progress.update(tasks[run], completed=record.epoch, description=told)
            epochs = run.recipe.epochs
            if is_shown and not err.is_terminal and record.epoch % max(1, epochs // _LINES) == 0:
                err.print(f"{run.folder.name} epoch {record.epoch} of {epochs}: {told}")

        yield shown


def _tell(runs: Sequence[Run], peers: Peers) -> None:
    """What each finished run came to, before and after the temperature that its calibration rows ask for."""
    runs = [run for run in runs if RunFolder(run.folder).is_finished]
    if not runs or not peers.is_first:
        return
    console = standard_output()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("run", "accuracy", "nll", "ece", "auroc", "T", "nll at T", "ece at T"):
        table.add_column(heading, justify="left" if heading == "run" else "right", no_wrap=True)
    for run in runs:
        table.add_row(run.folder.name, *_numbers(run.folder))
    console.print(table)
    folder = runs[0].folder
    console.print(f"calibrant evaluate {folder / 'test.npz'}", style="dim")
    console.print(f"calibrant compare {folder / 'calibration.npz'} {folder / 'test.npz'}", style="dim")
    if len(runs) > 1:
        console.print(f"calibrant diagnose {folder.parent}", style="dim")


def _numbers(folder: Path) -> list[str]:
    calibration, test = (load(folder / f"{part}.npz") for part in ("calibration", "test"))
    assert isinstance(calibration, Predictions)
    assert isinstance(test, Predictions)
    before = [f"{float(number):.4f}" for number in (accuracy(test), nll(test), ece(test), auroc(test))]
    try:
        fitted = TemperatureScaling().fit(calibration)
    except FitError:  # of few rows that are all answered right, no temperature is low enough
        return [*before, "none", "", ""]
    assert isinstance(fitted, Scale)
    scaled = fitted.transform(test)
    return [*before, *(f"{float(number):.4f}" for number in (fitted.temperature, nll(scaled), ece(scaled)))]
