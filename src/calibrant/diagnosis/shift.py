"""Networks and maps evaluated on shifted images: corrupted test sets, and sets from files."""

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, Literal, TypeAlias, final

import numpy as np
import torch

from calibrant import catalogue
from calibrant.checks import are_images, check_at_least, check_known, check_labels, check_seed
from calibrant.datasets import Dataset, ImageLayout, MedMNIST, Samples, corrupt, read_shifted, split_dataset
from calibrant.datasets.corruptions import CORRUPTIONS, MOST_SEVERE
from calibrant.datasets.medmnist import MEDMNIST_FLAGS
from calibrant.diagnosis.evaluated import (
    BaselineDifferences,
    Evaluated,
    EvaluatedCandidate,
    EvaluatedRun,
    Oracle,
    differences_from,
    outcome_of,
)
from calibrant.diagnosis.over_seeds import Spread, TwoSample, spread, two_sample
from calibrant.diagnosis.runs import DiagnosedRun, labels_differ
from calibrant.diagnosis.summaries import Direction, directions
from calibrant.errors import Argument, FileError, InputError
from calibrant.evidence import Difference
from calibrant.predictions import Predictions
from calibrant.training import load_network, predict
from calibrant.training.data import TrainingData
from calibrant.training.recipe import data_digest
from calibrant.training.run import subset_split

__all__ = [
    "CLEAN", "SEVERITIES", "ShiftLevel", "ShiftPanel", "ShiftRow", "ShiftSource", "ShiftSummary", "ShiftedSet",
    "clean_samples", "corrupted_sets", "held_out_samples", "read_run_dataset", "shift_panel", "stored_sets",
]  # fmt: skip

ShiftSource: TypeAlias = Literal["clean", "corruption", "file"]
_PathLike: TypeAlias = str | os.PathLike[str]

SEVERITIES = tuple(range(1, MOST_SEVERE + 1))
CLEAN: Final = "clean"  # the test samples, unchanged
_METRICS = ("accuracy", "ece", "nll", "brier", "auroc")
_IMAGE = 3  # axes: channels, rows, columns


def check_sees_images(run: DiagnosedRun) -> None:
    """Check that the inputs of a run are images, rather than texts or plain numbers."""
    settings = run.settings
    if settings.n_words is not None or len(settings.input_shape) != _IMAGE:
        kind = "texts" if settings.n_words is not None else f"inputs of shape {settings.input_shape}"
        raise InputError(
            f"a network that is evaluated on shifted images must take images; {run.path} was trained on {kind} "
            f"({settings.dataset}), which no corruption is made for. Diagnose it without a shift."
        )


def check_suits(samples: Samples, run: DiagnosedRun, what: str) -> None:
    """Check that these images and labels have the shape, range and classes that a run's network was trained on."""
    check_sees_images(run)
    images, shape = samples.tensor, run.settings.input_shape
    if not are_images(images) or tuple(images.shape[1:]) != shape or images.dtype != torch.uint8 or not len(images):
        raise InputError(
            f"images of a shifted set must be of the size and channels that the networks take, {shape} in uint8, at "
            f"least one; {what} has shape {tuple(images.shape)} in {images.dtype}, and {run.path} cannot take it. "
            "Resize them, or diagnose without them."
        )
    if (most := int(images.max())) > (peak := _peak_of(run)):
        raise InputError(
            f"images of a shifted set must lie in 0..{peak}, as the pixels of {run.settings.dataset} do; {what} has "
            f"{most}. Scale them in the same way."
        )
    try:
        check_labels(samples.labels, len(run.settings.class_names))
    except InputError as error:
        raise InputError(f"{what}: {error}") from error


def _peak_of(run: DiagnosedRun) -> int:
    """Return the largest value of the pixels in a run's data."""
    scale = run.settings.pixel_scale
    return 255 if scale is None else int(scale.peak)


def read_run_dataset(runs: Sequence[DiagnosedRun], folder: Path | None = None, *, checked: bool = True) -> Dataset:
    """Read the data set of runs, as training did; :func:`clean_samples` checks that it is the same.

    Args:
        runs: Runs of one data set.
        folder: Folder of its files, or the one file; None where the data come with the package.
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
                f"{first.settings.dataset} and {run.path} of {run.settings.dataset}. Diagnose them separately."
            )
    name = first.settings.dataset
    try:  # a part of the collection has a name of its own
        reader = MedMNIST(name) if name in MEDMNIST_FLAGS else catalogue.datasets.parse(name)
    except InputError:
        raise InputError(
            f"a run's data set must be one of {', '.join(catalogue.datasets)} to be read again; {first.path} is of "
            f"{name!r}. Read it yourself, and pass the Dataset."
        ) from None
    if folder is None and not reader.is_embedded:
        raise FileError(
            Argument("data"),
            f" must name the folder of {reader.title}, to read the samples of {first.path}; got none. Download its "
            f"files from {reader.homepage}.",
        )
    return reader.read(folder or Path(), checked=checked)


def clean_samples(runs: Sequence[DiagnosedRun], dataset: Dataset) -> Samples:
    """Return the images and labels of a data set that the runs were evaluated on, in their order.

    Raises:
        InputError: If the inputs of a run are not images, or the data set does not give its samples.
    """
    known: dict[tuple[str, int, str], Samples] = {}
    for run in runs:
        check_sees_images(run)
        key = (run.settings.split, run.settings.split_seed, run.settings.data_digest)
        known[key] = known.get(key) or held_out_samples(run, dataset)[1]
    return known[key]


def held_out_samples(run: DiagnosedRun, dataset: Dataset) -> tuple[Samples, Samples]:
    """Return the calibration and test samples of a run; an InputError if the data set is not that of its training."""
    settings = run.settings
    ours, theirs = len(settings.class_names), len(dataset.class_names)
    if ours != theirs:
        difference = f"it has {ours} classes and {dataset.name} {theirs}"
    elif dataset.class_names != settings.class_names:
        difference = "their classes differ"
    else:
        split = split_dataset(dataset, settings.split, seed=settings.split_seed)
        difference = labels_differ(run.test.labels, "its test.npz", split.test.labels, dataset.name)
        used = split if difference else subset_split(split, settings.train_samples, settings.split_seed)
        if not difference and data_digest(TrainingData.of(dataset, used)) != settings.data_digest:
            difference = f"the test labels of {dataset.name} are the same, but its images or its other samples are not"
    if difference:
        raise InputError(f"the data must be those that {run.path} was trained on; {difference}. Name their folder.")
    return split.calibration, split.test


@final
@dataclass(frozen=True, eq=False)
class ShiftedSet:
    """Images under one shift, and how to make them: a set is made, evaluated and dropped, to need little memory."""

    name: str  # of the corruption or of the file
    severity: int | None  # 1 to 5; None for a shift that has no severities
    source: ShiftSource
    make: Callable[[torch.device], Samples]  # on this device, where the images are computed

    @property
    def title(self) -> str:
        return self.name if self.severity is None else f"{self.name}, severity {self.severity}"


def corrupted_sets(
    runs: Sequence[DiagnosedRun],
    dataset: Dataset,
    *,
    names: Sequence[str] | None = None,
    severities: Sequence[int] = SEVERITIES,
    seed: int = 0,
) -> tuple[ShiftedSet, ...]:
    """Corrupt the runs' own test images at rising severities.

    All networks see the same corrupted images. They are the library's corruptions, not those of the files called
    CIFAR-10-C: numbers of the two are not comparable.

    Args:
        runs: From :func:`~calibrant.diagnosis.runs.read_runs`.
        dataset: The data set they were trained on; all its samples are checked against what the runs recorded.
        names: Names of corruptions; None takes all.
        severities: Each 1 to 5.
        seed: Random seed of the corruptions.

    Raises:
        InputError: If inputs of a run are not images, the data set is not that of the runs, or an option is out of
            range.
        UnknownNameError: If there is no such corruption.
    """
    for severity in severities:
        check_at_least(severity, 1, "severity", most=MOST_SEVERE)
    seed = check_seed(seed)
    for name in names or ():
        check_known(name, CORRUPTIONS, "a corruption")
    test = clean_samples(runs, dataset)
    peak = _peak_of(runs[0])

    def make(name: str, severity: int, device: torch.device) -> Samples:
        return Samples(corrupt(test.tensor.to(device), name, severity=severity, seed=seed, peak=peak), test.labels)

    return tuple(
        ShiftedSet(name, severity, "corruption", partial(make, name, severity))
        for name in (CORRUPTIONS if names is None else names)
        for severity in severities
    )


def stored_sets(
    runs: Sequence[DiagnosedRun],
    path: _PathLike | tuple[_PathLike, _PathLike],
    *,
    name: str | None = None,
    layout: ImageLayout = "auto",
) -> tuple[ShiftedSet, ...]:
    """Return the set in a file; five where it holds five severities of the runs' own test samples, as in CIFAR-10-C.

    It is checked now, and read again when it is evaluated. Where the runs were calibrated on a part of the test samples
    (``half-test``), a file made of all of them holds images that the maps were fitted on.

    Args:
        runs: From :func:`~calibrant.diagnosis.runs.read_runs`.
        path: As :func:`~calibrant.datasets.read_shifted` takes it.
        name: Name of the set; None takes that of the file.
        layout: Where the channels stand, if the shape leaves it open.

    Raises:
        FileError: If a file is missing or damaged, or a label is none of the runs' classes.
        InputError: If inputs of a run are not images, or are images of another size.
    """
    check_sees_images(runs[0])
    names, side = runs[0].settings.class_names, runs[0].settings.input_shape[-1]
    read = partial(read_shifted, path, n_classes=len(names), layout=layout, class_names=names, size=side)
    samples = read()
    file = Path(path[0] if isinstance(path, tuple | list) else path)
    plain = re.sub(r"[_-](data|images)$", "", file.stem) if file.suffix.lower() in {".npy", ".npz"} else file.name
    title = plain if name is None else name
    for run in runs:
        check_suits(samples, run, title)
    test, n = runs[0].test.labels, len(samples)
    # Nothing else has the same labels in the same order five times over.
    if n != MOST_SEVERE * len(test) or not torch.equal(samples.labels, test.repeat(MOST_SEVERE)):
        return (ShiftedSet(title, None, "file", lambda _device: read()),)

    def make(severity: int, _device: torch.device) -> Samples:
        return read()[(severity - 1) * len(test) : severity * len(test)]

    return tuple(ShiftedSet(title, severity, "file", partial(make, severity)) for severity in SEVERITIES)


@final
@dataclass(frozen=True)
class ShiftSummary:
    """Name, source, severity and size of a shifted set."""

    shift: str  # its name; "clean" for the unchanged test samples
    source: ShiftSource
    severity: int | None  # None for a shift that has no severities
    n: int


@final
@dataclass(frozen=True, eq=False)
class ShiftRow:
    """One candidate under one map on one set, over its runs.

    The maps were fitted on clean calibration samples. A map that calibrates clean samples need not calibrate these, on
    which the accuracy differs.
    """

    candidate: str
    map: str
    shift: str
    source: ShiftSource
    severity: int | None
    n: int
    metrics: Mapping[str, Spread]  # accuracy, ece, nll, brier, auroc, and gap: mean confidence minus accuracy
    change: Mapping[str, Spread]  # each metric minus that of the clean samples, run by run
    direction: Direction
    differences: Mapping[str, Difference]  # from the baseline: ece, auroc, accuracy; empty where not compared
    by_seed: Mapping[str, Mapping[int, Difference]]  # the same of the two runs of a seed


def _shift_rows(
    evaluated: Evaluated,
    summary: ShiftSummary,
    *,
    clean: Sequence[ShiftRow] = (),
    compared: BaselineDifferences | None = None,
) -> list[ShiftRow]:
    """Return a row for every candidate and map, in their order; ``clean`` are the rows of the clean samples, if any."""
    rows: list[ShiftRow] = []
    for candidate in evaluated.candidates:
        differences = compared.means.get(candidate.name, {}) if compared else {}
        by_seed = compared.by_seed.get(candidate.name, {}) if compared else {}
        for direction in directions(candidate):
            metrics = {name: candidate.over_runs(direction.map, name) for name in _METRICS} | {"gap": direction.gap}
            before = clean[len(rows)].metrics if clean else metrics
            change = {
                name: spread([new - old for old, new in zip(before[name].values, after.values, strict=True)])
                for name, after in metrics.items()
            }
            rows.append(ShiftRow(
                candidate.name, direction.map, **vars(summary), metrics=metrics, change=change, direction=direction,
                differences=differences.get(direction.map, {}), by_seed=by_seed.get(direction.map, {}),
            ))  # fmt: skip
    return rows


@final
@dataclass(frozen=True, eq=False)
class ShiftLevel:
    """One candidate under one map at one severity: the mean over corruptions of each run, over its runs.

    A mean of calibration errors is not the error of the mean: a network that is overconfident under noise and
    underconfident under blur has an ECE under both, and ``gap`` may be 0. A number that one corruption does not give
    (AUROC, where all predictions are wrong) is missing, because the mean of the others would not be comparable.
    """

    candidate: str
    map: str
    source: ShiftSource  # corruptions of the library, or of files; the two are not mixed
    severity: int  # 0 for the clean samples
    shifts: tuple[str, ...]  # that the mean is over
    metrics: Mapping[str, Spread]
    change: Mapping[str, Spread]  # each metric minus that of the clean samples, run by run
    t_tests: Mapping[str, TwoSample]  # each metric against the baseline's runs under this map; empty for the baseline


def shift_levels(rows: Sequence[ShiftRow], baseline: str) -> tuple[ShiftLevel, ...]:
    """Average over corruptions, by source, candidate, map and rising severity; empty where no set has a severity.

    ``rows`` are of all sets, the clean samples among them.

    Reference:
        Hendrycks & Dietterich (2019), Benchmarking Neural Network Robustness to Common Corruptions and Perturbations.
    """
    groups: dict[tuple[ShiftSource, str, str, int], list[ShiftRow]] = {}
    for source in dict.fromkeys(row.source for row in rows if row.severity is not None):
        for row in rows:
            if row.source == CLEAN or (row.source == source and row.severity is not None):
                groups.setdefault((source, row.candidate, row.map, row.severity or 0), []).append(row)
    means = {  # over the sets of a group, of each run, (runs,) by metric
        key: {name: np.array([row.metrics[name].values for row in group]).mean(0) for name in group[0].metrics}
        for key, group in groups.items()
    }
    order = list(dict.fromkeys((row.candidate, row.map) for row in rows))
    levels = []
    for key in sorted(groups, key=lambda key: (key[0], order.index(key[1:3]), key[3])):
        source, candidate, name, severity = key
        values, clean = means[key], means[source, candidate, name, 0]
        others = {} if candidate == baseline else means[source, baseline, name, severity]
        levels.append(ShiftLevel(
            candidate, name, source, severity, shifts=tuple(row.shift for row in groups[key]),
            metrics={metric: spread(runs.tolist()) for metric, runs in values.items()},
            change={metric: spread((runs - clean[metric]).tolist()) for metric, runs in values.items()},
            t_tests={metric: two_sample(runs.tolist(), values[metric].tolist()) for metric, runs in others.items()},
        ))  # fmt: skip
    return tuple(levels)


@final
@dataclass(frozen=True, eq=False)
class ShiftPanel:
    """All sets, the clean samples first.

    A set without severities is compared with the baseline sample by sample (``differences`` of its rows). Sets with
    severities are many, and of the same images; they are compared by their mean, over seeds (``levels``).
    """

    baseline: str
    maps: tuple[str, ...]  # the uncalibrated network first
    sets: tuple[ShiftSummary, ...]
    rows: tuple[ShiftRow, ...]  # by set, then by candidate, then by map
    levels: tuple[ShiftLevel, ...]  # means over corruptions, the clean samples (severity 0) first

    @property
    def candidates(self) -> list[str]:
        """Names of the candidates, the baseline first."""
        return sorted(dict.fromkeys(row.candidate for row in self.rows), key=lambda name: name != self.baseline)

    @property
    def levels_by_source(self) -> dict[ShiftSource, dict[tuple[str, str, int], ShiftLevel]]:
        """The levels by source, then by candidate, map and rising severity."""
        levels: dict[ShiftSource, dict[tuple[str, str, int], ShiftLevel]] = {level.source: {} for level in self.levels}
        for level in self.levels:
            levels[level.source][level.candidate, level.map, level.severity] = level
        return levels

    @property
    def sets_without_severity(self) -> list[ShiftSummary]:
        """The clean samples, and the files that are one set each."""
        return [summary for summary in self.sets if summary.severity is None]

    def rows_of(self, summary: ShiftSummary) -> dict[tuple[str, str], ShiftRow]:
        """Return the rows of a set by candidate and map."""
        key = (summary.shift, summary.source, summary.severity)
        rows = (row for row in self.rows if (row.shift, row.source, row.severity) == key)
        return {(row.candidate, row.map): row for row in rows}


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
    """Run every network on every set, under the maps fitted on clean calibration samples; nothing is fitted.

    The device holds all networks, and one set at a time. Numbers on the clean samples are those that the runs saved: on
    another device than they were trained on, logits differ in their last digits, and these are in every change. A set
    without severities is compared with the baseline by resampling it. ``progress`` is called with the current step, how
    many passes of a network over a set are done, and how many there are.

    Raises:
        InputError: If there is no set, one is there twice, or one does not suit the networks.
        UnknownNameError: If there is no such baseline.
        FileError: If a run's weights cannot be read.

    Reference:
        Singh et al. (2021), Table 3 (natural shifts).
    """
    check_at_least(resamples, 2, "resamples")
    check_known(baseline, [candidate.name for candidate in evaluated.candidates], "a candidate")
    _check_different(sets)
    paths = [run.path for candidate in evaluated.candidates for run in candidate.candidate.runs]
    networks = {path: load_network(path).to(device) for path in paths}
    summaries = [ShiftSummary(CLEAN, CLEAN, None, evaluated.n)]
    clean = _shift_rows(evaluated, summaries[0])
    rows, done, total = list(clean), 0, len(sets) * len(paths)

    def evaluate_on(shifted: ShiftedSet) -> Evaluated:  # the set is dropped at its end
        nonlocal done
        progress(f"making {shifted.title}", done, total)
        samples = shifted.make(device)
        images, labels = samples.tensor.to(device), samples.labels.cpu()
        candidates = []
        for candidate in evaluated.candidates:
            runs = []
            for run, before in zip(candidate.candidate.runs, candidate.runs, strict=True):
                check_suits(samples, run, shifted.title)
                progress(f"{run.path.name} on {shifted.title}", done, total)
                done += 1
                # Where the clean samples were evaluated: sums of another device would differ in the last digits.
                logits = predict(networks[run.path], images).cpu()
                runs.append(_under_maps(Predictions.from_logits(logits, labels), before, evaluated.n_bins))
            candidates.append(EvaluatedCandidate(candidate.candidate, tuple(runs)))
        return replace(evaluated, candidates=tuple(candidates), n=len(labels))

    for shifted in sets:
        on_set = evaluate_on(shifted)
        summaries.append(ShiftSummary(shifted.name, shifted.source, shifted.severity, on_set.n))
        is_one = shifted.severity is None
        compared = differences_from(on_set, baseline, resamples=resamples, seed=seed) if is_one else None
        rows += _shift_rows(on_set, summaries[-1], clean=clean, compared=compared)
    return ShiftPanel(baseline, evaluated.map_names, tuple(summaries), tuple(rows), shift_levels(rows, baseline))


def _check_different(sets: Sequence[ShiftedSet]) -> None:
    if not sets:
        raise InputError("there must be a shifted set to evaluate networks on; got none.")
    titles = [(shifted.source, shifted.title) for shifted in sets]
    twice = next((title for title in titles if titles.count(title) > 1), None)
    if twice is not None:
        raise InputError(f"each shifted set must have its own name; {twice[1]} is there twice. Rename one.")


def _under_maps(samples: Predictions, before: EvaluatedRun, n_bins: int) -> EvaluatedRun:
    outcomes = {
        # A map that could not be fitted is missing here too.
        name: outcome if outcome.top is None else outcome_of(samples, outcome.map, n_bins=n_bins, notes=outcome.notes)
        for name, outcome in before.outcomes.items()
    }
    return replace(before, outcomes=outcomes, oracle=Oracle(math.nan, math.nan), splits={})
