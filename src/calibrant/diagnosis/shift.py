"""Networks and maps evaluated on shifted images: corrupted test sets, and sets from files."""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, Literal, TypeAlias, final

import numpy as np
import torch
from torch import nn

from calibrant import catalogue
from calibrant.checks import are_images, check_at_least, check_known, check_labels, check_seed
from calibrant.datasets import (
    Dataset,
    DatasetReader,
    ImageLayout,
    MedMNIST,
    Samples,
    corrupt,
    read_shifted,
    split_dataset,
)
from calibrant.datasets.corruptions import MOST_SEVERE
from calibrant.datasets.medmnist import MEDMNIST_FLAGS
from calibrant.diagnosis.calibratability import Direction, directions
from calibrant.diagnosis.evaluated import (
    BaselineDifferences,
    Evaluated,
    EvaluatedCandidate,
    EvaluatedRun,
    Oracle,
    differences_from,
    outcome_of,
)
from calibrant.diagnosis.over_seeds import Record, Spread, TwoSample, spread, two_sample
from calibrant.diagnosis.runs import DiagnosedRun
from calibrant.errors import Argument, FileError, InputError
from calibrant.evidence import Difference
from calibrant.predictions import Predictions
from calibrant.training import load_network, predict
from calibrant.training.data import TrainingData
from calibrant.training.recipe import data_digest

__all__ = [
    "CLEAN",
    "SEVERITIES",
    "ShiftLevel",
    "ShiftPanel",
    "ShiftRow",
    "ShiftSource",
    "ShiftSummary",
    "ShiftedSet",
    "check_sees_images",
    "check_suits",
    "clean_examples",
    "corrupted_sets",
    "peak_of",
    "read_run_dataset",
    "shift_levels",
    "shift_panel",
    "shift_rows",
    "stored_sets",
]

_IMAGE = 3  # axes: channels, rows, columns


def check_sees_images(run: DiagnosedRun) -> None:
    """A run whose inputs can be shifted: pictures, and not words.

    Raises:
        InputError: If it is of texts, or of plain numbers.
    """
    settings = run.settings
    if settings.n_words is not None or len(settings.input_shape) != _IMAGE:
        kind = "texts" if settings.n_words is not None else f"inputs of shape {settings.input_shape}"
        raise InputError(
            f"a network that is evaluated on shifted images must take images; {run.path} was trained on {kind} "
            f"({settings.dataset}), which no corruption is made for. Diagnose it without a shift."
        )


def check_suits(examples: Samples, run: DiagnosedRun, what: str) -> None:
    """Images that a run's network can take, with labels that it can give.

    Raises:
        InputError: If they are not.
    """
    check_sees_images(run)
    images, shape = examples.inputs, run.settings.input_shape
    if not are_images(images) or tuple(images.shape[1:]) != shape or images.dtype != torch.uint8 or not len(images):
        raise InputError(
            f"images of a shifted set must be of the size and channels that the networks take, {shape} in uint8, at "
            f"least one; {what} has shape {tuple(images.shape)} in {images.dtype}, and {run.path} cannot take it. "
            "Resize them, or diagnose without them."
        )
    peak = peak_of(run)
    if (most := int(images.max())) > peak:
        raise InputError(
            f"images of a shifted set must lie in 0..{peak}, as the pixels of {run.settings.dataset} do; {what} has "
            f"{most}. Scale them as those are."
        )
    try:
        check_labels(examples.labels, len(run.settings.class_names))
    except InputError as error:
        raise InputError(f"{what}: {error}") from error


def peak_of(run: DiagnosedRun) -> int:
    """The largest value of the pixels that a run saw."""
    scale = run.settings.pixel_scale
    return 255 if scale is None else int(scale["peak"])


def read_run_dataset(runs: Sequence[DiagnosedRun], folder: Path | None = None, *, checked: bool = True) -> Dataset:
    """Read the data set of runs, as training did; :func:`clean_examples` makes sure that it is the same.

    Args:
        runs: Runs of one data set.
        folder: Where its files lie, or the one file; None where the data come with the package.
        checked: Whether the files must be the published ones, to the byte.

    Raises:
        InputError: If the runs are of several data sets, or of one that has no reader.
        FileError: If no folder is named, or its files are not those of the data set.
    """
    first = runs[0]
    for run in runs[1:]:
        if run.settings.dataset != first.settings.dataset:
            raise InputError(
                f"runs that are evaluated on the same images must be of one data set; {first.path} is of "
                f"{first.settings.dataset} and {run.path} of {run.settings.dataset}. Diagnose them apart."
            )
    reader = _reader_of(first)
    if folder is None and not reader.is_embedded:
        raise FileError(
            Argument("data"),
            f" must name the folder of {reader.title}, to read the test images of {first.path}; got none. Download its "
            f"files from {reader.homepage}.",
        )
    return reader.read(folder or Path(), checked=checked)


def clean_examples(runs: Sequence[DiagnosedRun], dataset: Dataset) -> Samples:
    """The images and labels that the runs were evaluated on, in their order.

    Args:
        runs: From :func:`~calibrant.diagnosis.runs.read_runs`, which all have the same test samples.
        dataset: The data set they were trained on.

    Raises:
        InputError: If a run sees no images, or the data set does not give its rows.
    """
    known: set[tuple[str, int, str]] = set()
    for run in runs:
        check_sees_images(run)
        settings = run.settings
        key = (settings.split, settings.split_seed, settings.data_digest)
        if key not in known:
            examples = _checked(run, dataset)
            known.add(key)
    return examples


def _reader_of(run: DiagnosedRun) -> DatasetReader:
    name, known = run.settings.dataset, catalogue.datasets
    if name in known:
        return known[name]
    if name in MEDMNIST_FLAGS:  # a part of the collection is called by its own name
        return MedMNIST(name)
    raise InputError(
        f"a run's data set must be one of {', '.join(known)} to be read again; {run.path} is of {name!r}. Read it "
        "yourself, and pass the Dataset."
    )


def _checked(run: DiagnosedRun, dataset: Dataset) -> Samples:
    """The test part of a run, once everything in the data set is found to be what it was."""
    settings = run.settings
    start = f"the data must be those that {run.path} was trained on"
    end = "Name the folder of those data."
    if dataset.class_names != settings.class_names:
        ours, theirs = len(settings.class_names), len(dataset.class_names)
        told = f"it has {ours} classes and {dataset.name} {theirs}" if ours != theirs else "their classes differ"
        raise InputError(f"{start}; {told}. {end}")
    split = split_dataset(dataset, settings.split, seed=settings.split_seed)
    stored, found = run.test.labels, split.test.labels
    if len(stored) != len(found):
        raise InputError(f"{start}; it has {len(stored):,} test rows and {dataset.name} gives {len(found):,}. {end}")
    differ = (stored != found).nonzero()
    if differ.numel():
        row = int(differ[0])
        raise InputError(
            f"{start}; test row {row} is of class {int(stored[row])} in its test.npz and {int(found[row])} in "
            f"{dataset.name} ({differ.numel():,} rows differ). {end}"
        )
    if data_digest(TrainingData.of(dataset, split)) != settings.data_digest:
        raise InputError(
            f"{start}; the test labels of {dataset.name} are the same, but its images or its other rows are not. {end}"
        )
    return split.test


ShiftSource: TypeAlias = Literal["clean", "corruption", "file"]
_PathLike: TypeAlias = str | os.PathLike[str]

SEVERITIES = tuple(range(1, MOST_SEVERE + 1))


@final
@dataclass(frozen=True, eq=False)
class ShiftedSet:
    """Images under one shift, and how to make them: a set is made, evaluated and dropped, so many need little memory.

    Args:
        name: Name of the corruption or of the file.
        severity: 1 to 5; None for a shift that has no severities.
        source: Whether the library made it, or a file holds it.
        make: Gives the set, with images on this device if they are made there.
    """

    name: str
    severity: int | None
    source: ShiftSource
    make: Callable[[torch.device], Samples]

    @property
    def title(self) -> str:
        """As a message calls it."""
        return self.name if self.severity is None else f"{self.name}, severity {self.severity}"


def corrupted_sets(
    runs: Sequence[DiagnosedRun],
    dataset: Dataset,
    *,
    names: Sequence[str] | None = None,
    severities: Sequence[int] = SEVERITIES,
    seed: int = 0,
) -> tuple[ShiftedSet, ...]:
    """The runs' own test images, under corruptions at rising severities.

    All networks see the same corrupted images. They are the library's corruptions, and not those of the files called
    CIFAR-10-C: numbers of the two are not to be mixed.

    Args:
        runs: From :func:`~calibrant.diagnosis.runs.read_runs`.
        dataset: The data set they were trained on; all its rows are checked against what the runs have kept.
        names: Names of corruptions; None takes all.
        severities: Each 1 to 5.
        seed: Random seed of the corruptions.

    Raises:
        InputError: If a run sees no images, the data set is not that of the runs, or an option is out of range.
        UnknownNameError: If there is no such corruption.
    """
    for severity in severities:
        if check_at_least(severity, 1, "severity") > MOST_SEVERE:
            raise InputError(f"severity must be at most {MOST_SEVERE}; got {severity}.")
    known, seed = catalogue.corruptions, check_seed(seed)
    for name in names or ():
        check_known(name, known, "a corruption")
    test = clean_examples(runs, dataset)
    peak = peak_of(runs[0])
    return tuple(
        ShiftedSet(name, severity, "corruption", partial(_corrupted, test, name, severity, seed, peak))
        for name in (known if names is None else names)
        for severity in severities
    )


def stored_sets(
    runs: Sequence[DiagnosedRun],
    path: _PathLike | tuple[_PathLike, _PathLike],
    *,
    name: str | None = None,
    layout: ImageLayout = "auto",
) -> tuple[ShiftedSet, ...]:
    """The set that a file holds; five where it holds five severities of the runs' own test samples, as in CIFAR-10-C.

    It is looked through now, and read again when its turn comes. Where the runs were calibrated on a part of the test
    rows (``half-test``), a file made of all of them holds images that the maps were fitted on.

    Args:
        runs: From :func:`~calibrant.diagnosis.runs.read_runs`.
        path: As :func:`~calibrant.datasets.read_shifted` takes it.
        name: Name of the set; None takes that of the file.
        layout: Where the channels stand, if the shape leaves it open.

    Raises:
        FileError: If a file is missing or damaged, or a label is none of the runs' classes.
        InputError: If a run sees no images, or images of another size.
    """
    check_sees_images(runs[0])
    n_classes = len(runs[0].settings.class_names)
    read = partial(read_shifted, path, n_classes=n_classes, layout=layout)
    examples = read()
    called = _name_of(path) if name is None else name
    for run in runs:
        check_suits(examples, run, called)
    test, n = runs[0].test.labels, len(examples)
    # Nothing else has the same labels in the same order five times over.
    if n != MOST_SEVERE * len(test) or not torch.equal(examples.labels, test.repeat(MOST_SEVERE)):
        return (ShiftedSet(called, None, "file", lambda _device: read()),)
    parts = {severity: slice((severity - 1) * len(test), severity * len(test)) for severity in SEVERITIES}
    return tuple(ShiftedSet(called, severity, "file", partial(_part, read, rows)) for severity, rows in parts.items())


def _corrupted(test: Samples, name: str, severity: int, seed: int, peak: int, device: torch.device) -> Samples:
    images = corrupt(test.inputs.to(device), name, severity=severity, seed=seed, peak=peak)
    return Samples(images, test.labels)


def _part(read: Callable[[], Samples], rows: slice, _device: torch.device) -> Samples:
    return read()[rows]


def _name_of(path: _PathLike | tuple[_PathLike, _PathLike]) -> str:
    """The file's name less what every such file is called."""
    file = Path(path[0] if isinstance(path, tuple | list) else path)
    if file.suffix.lower() not in {".npy", ".npz"}:
        return file.name
    for ending in ("data", "images"):
        if file.stem.endswith(("_" + ending, "-" + ending)):
            return file.stem[: -len(ending) - 1]
    return file.stem


CLEAN: Final = "clean"  # the test samples as they are
_METRICS = ("accuracy", "ece", "nll", "brier", "auroc")


@final
@dataclass(frozen=True)
class ShiftSummary(Record):
    """Description of a set."""

    shift: str  # its name; "clean" for the test samples as they are
    source: ShiftSource
    severity: int | None  # None for a shift that has no severities
    n: int


@final
@dataclass(frozen=True, eq=False)
class ShiftRow(Record):
    """One candidate under one map on one set, over its runs.

    The maps were fitted on clean calibration samples. A map that calibrates the clean samples need not
    calibrate these, on which accuracy is another.
    """

    candidate: str
    map: str
    shift: str
    source: ShiftSource
    severity: int | None
    n: int
    metrics: Mapping[str, Spread]  # accuracy, ece, nll, brier, auroc, and gap: mean confidence minus accuracy
    change: Mapping[str, Spread]  # of each since the clean samples, run by run
    direction: Direction
    differences: Mapping[str, Difference]  # from the baseline: ece, auroc, accuracy; empty where not compared
    by_seed: Mapping[str, Mapping[int, Difference]]  # the same of the two runs of a seed


def shift_rows(
    evaluated: Evaluated,
    summary: ShiftSummary,
    *,
    clean: Sequence[ShiftRow] = (),
    compared: BaselineDifferences | None = None,
) -> tuple[ShiftRow, ...]:
    """A row for every candidate and map, in their order.

    Args:
        evaluated: Evaluation on the samples of this set.
        summary: Summary of the set.
        clean: The rows of the clean samples, in the same order; empty if these are the clean samples.
        compared: From :func:`~calibrant.diagnosis.evaluated.differences_from` on the samples of this set, if at all.
    """
    found: list[ShiftRow] = []
    for candidate in evaluated.candidates:
        for direction in directions(candidate):
            metrics = {name: candidate.over_runs(direction.map, name) for name in _METRICS} | {"gap": direction.gap}
            before = clean[len(found)].metrics if clean else metrics
            is_compared = compared is not None and candidate.name in compared.means
            found.append(
                ShiftRow(
                    candidate=candidate.name,
                    map=direction.map,
                    shift=summary.shift,
                    source=summary.source,
                    severity=summary.severity,
                    n=summary.n,
                    metrics=metrics,
                    change={name: _change(before[name], value) for name, value in metrics.items()},
                    direction=direction,
                    differences=compared.means[candidate.name][direction.map] if compared and is_compared else {},
                    by_seed=compared.by_seed[candidate.name][direction.map] if compared and is_compared else {},
                )
            )
    return tuple(found)


def _change(before: Spread, after: Spread) -> Spread:
    return spread([new - old for old, new in zip(before.values, after.values, strict=True)])


@final
@dataclass(frozen=True, eq=False)
class ShiftLevel(Record):
    """One candidate under one map at one severity: the mean over corruptions of each run, over its runs.

    A mean of calibration errors is not the error of the mean: a network that claims too much under noise and too little
    under blur has an ECE under both, and ``gap`` may be 0. A number that one corruption does not give (AUROC, where all
    answers are wrong) is missing, because the mean of the others would not be comparable.
    """

    candidate: str
    map: str
    source: ShiftSource  # corruptions of the library, or of files; the two are not mixed
    severity: int  # 0 for the clean samples
    shifts: tuple[str, ...]  # that the mean is over
    metrics: Mapping[str, Spread]
    change: Mapping[str, Spread]  # of each since the clean samples, run by run
    t_tests: Mapping[str, TwoSample]  # of each against the baseline's runs under this map; empty for the baseline


def shift_levels(rows: Sequence[ShiftRow], baseline: str) -> tuple[ShiftLevel, ...]:
    """By source, candidate, map and rising severity; none where no set has a severity.

    Args:
        rows: Rows of all sets, those of the clean samples among them.
        baseline: The name of a candidate.

    Reference:
        Hendrycks & Dietterich (2019), Benchmarking Neural Network Robustness to Common Corruptions and Perturbations.
    """
    groups: dict[tuple[ShiftSource, str, str, int], list[ShiftRow]] = {}
    sources = dict.fromkeys(row.source for row in rows if row.severity is not None)
    for source in sources:
        for row in rows:
            if row.source == CLEAN or (row.source == source and row.severity is not None):
                groups.setdefault((source, row.candidate, row.map, row.severity or 0), []).append(row)
    means = {key: _means(group) for key, group in groups.items()}
    order = list(dict.fromkeys((row.candidate, row.map) for row in rows))
    found = []
    for source, candidate, name, severity in sorted(groups, key=lambda key: (key[0], order.index(key[1:3]), key[3])):
        values, clean = means[source, candidate, name, severity], means[source, candidate, name, 0]
        others = {} if candidate == baseline else means[source, baseline, name, severity]
        found.append(
            ShiftLevel(
                candidate=candidate,
                map=name,
                source=source,
                severity=severity,
                shifts=tuple(row.shift for row in groups[source, candidate, name, severity]),
                metrics={metric: spread(each.tolist()) for metric, each in values.items()},
                change={metric: spread((each - clean[metric]).tolist()) for metric, each in values.items()},
                t_tests={metric: two_sample(each.tolist(), values[metric].tolist()) for metric, each in others.items()},
            )
        )
    return tuple(found)


def _means(rows: Sequence[ShiftRow]) -> dict[str, np.ndarray]:
    """The mean over sets of each run, (runs,) by metric."""
    return {name: np.array([row.metrics[name].values for row in rows]).mean(0) for name in rows[0].metrics}


@final
@dataclass(frozen=True, eq=False)
class ShiftPanel(Record):
    """All sets, the clean samples first.

    A set without severities is compared with the baseline sample by sample (``differences`` of its rows). Sets with
    severities are many, and of the same images; they are compared by their mean, over seeds (``levels``).
    """

    baseline: str
    maps: tuple[str, ...]  # "uncalibrated", then those that were fitted
    sets: tuple[ShiftSummary, ...]
    rows: tuple[ShiftRow, ...]  # by set, then by candidate, then by map
    levels: tuple[ShiftLevel, ...]  # means over corruptions, the clean samples (severity 0) first


def shift_panel(
    evaluated: Evaluated,
    sets: Sequence[ShiftedSet],
    *,
    baseline: str,
    device: torch.device,
    resamples: int = 500,
    seed: int = 0,
    progress: Callable[[str, int, int], None] = lambda _what, _done, _of: None,
) -> ShiftPanel:
    """Run every network on every set, under the maps that clean calibration samples gave; nothing is fitted.

    The device holds all networks, and one set at a time. Numbers on the clean samples are those that the runs saved: on
    another device than they were trained on, logits differ in their last digits, and these are in every change.

    Args:
        evaluated: From :func:`~calibrant.diagnosis.evaluated.evaluate_candidates`, with its maps.
        sets: From :func:`~calibrant.diagnosis.shift.corrupted_sets` and
            :func:`~calibrant.diagnosis.shift.stored_sets`.
        baseline: The candidate that the others are compared with.
        device: Where the networks run.
        resamples: Bootstrap draws of the rows of a set without severities.
        seed: Random seed of the draws.
        progress: Called with what is being done, how many passes of a network over a set are, and how many there are.

    Raises:
        InputError: If there is no set, one is there twice, or one does not suit the networks.
        UnknownNameError: If there is no such baseline.
        FileError: If a run's weights cannot be read.

    Reference:
        Singh et al. (2021), On the Dark Side of Calibration for Modern Neural Networks, Table 3 (natural shifts).
    """
    check_at_least(resamples, 2, "resamples")
    check_known(baseline, [each.name for each in evaluated.candidates], "a candidate")
    _check_different(sets)
    paths = [run.path for each in evaluated.candidates for run in each.candidate.runs]
    networks = {path: load_network(path).to(device) for path in paths}
    summaries = [ShiftSummary(CLEAN, CLEAN, None, evaluated.n)]
    clean = shift_rows(evaluated, summaries[0])
    rows, done, total = list(clean), 0, len(sets) * len(paths)

    def network_of(path: Path, on: ShiftedSet) -> nn.Module:
        nonlocal done
        progress(f"{path.name} on {on.title}", done, total)
        done += 1
        return networks[path]

    for each in sets:
        progress(f"making {each.title}", done, total)
        found = _evaluated_on(evaluated, each, device, network_of)
        summaries.append(ShiftSummary(each.name, each.source, each.severity, found.n))
        is_one = each.severity is None
        compared = differences_from(found, baseline, resamples=resamples, seed=seed) if is_one else None
        rows += shift_rows(found, summaries[-1], clean=clean, compared=compared)
    return ShiftPanel(baseline, evaluated.map_names, tuple(summaries), tuple(rows), shift_levels(rows, baseline))


def _check_different(sets: Sequence[ShiftedSet]) -> None:
    if not sets:
        raise InputError("there must be a shifted set to judge networks on; got none.")
    titles = [(each.source, each.title) for each in sets]
    twice = next((title for title in titles if titles.count(title) > 1), None)
    if twice is not None:
        raise InputError(f"each shifted set must have its own name; {twice[1]} is there twice. Name one otherwise.")


def _evaluated_on(
    evaluated: Evaluated, shifted: ShiftedSet, device: torch.device, network_of: Callable[[Path, ShiftedSet], nn.Module]
) -> Evaluated:
    """Every run evaluated on another set; the set is dropped at the end."""
    examples = shifted.make(device)
    images, labels = examples.inputs.to(device), examples.labels.cpu()
    candidates = []
    for each in evaluated.candidates:
        runs = []
        for run, before in zip(each.candidate.runs, each.runs, strict=True):
            check_suits(examples, run, shifted.title)
            logits = predict(network_of(run.path, shifted), images)
            # Where the clean samples were evaluated: sums of another device would differ in the last digits.
            runs.append(_under_maps(Predictions.from_logits(logits.cpu(), labels), before, evaluated.n_bins))
        candidates.append(EvaluatedCandidate(each.candidate, tuple(runs)))
    return replace(evaluated, candidates=tuple(candidates), n=len(labels))


def _under_maps(rows: Predictions, before: EvaluatedRun, n_bins: int) -> EvaluatedRun:
    outcomes = {
        # A map that could not be fitted is not to be had here either.
        name: outcome if outcome.top is None else outcome_of(rows, outcome.map, n_bins=n_bins, notes=outcome.notes)
        for name, outcome in before.outcomes.items()
    }
    return replace(before, outcomes=outcomes, oracle=Oracle(math.nan, math.nan), splits={})
