"""The data set that runs were trained on, read again, and made sure to be the same."""

from collections.abc import Sequence
from pathlib import Path

from calibrant import catalogue
from calibrant.datasets import Dataset, DatasetReader, Examples, MedMNIST, split_dataset
from calibrant.datasets.medmnist import MEDMNIST_FLAGS
from calibrant.diagnosis.run_images import check_sees_images
from calibrant.diagnosis.runs import DiagnosedRun
from calibrant.errors import Argument, FileError, InputError
from calibrant.training.data import TrainingData
from calibrant.training.recipe import data_digest

__all__ = ["clean_examples", "read_run_dataset"]


def read_run_dataset(runs: Sequence[DiagnosedRun], folder: Path | None = None, *, checked: bool = True) -> Dataset:
    """Read the data set of runs, as training did; :func:`clean_examples` makes sure that it is the same.

    Args:
        runs: Of one data set.
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
                f"runs that are judged on the same images must be of one data set; {first.path} is of "
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


def clean_examples(runs: Sequence[DiagnosedRun], dataset: Dataset) -> Examples:
    """The images and labels that the runs were judged on, in their order.

    Args:
        runs: From :func:`~calibrant.diagnosis.runs.read_runs`, which all have the same test rows.
        dataset: That they were trained on.

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


def _checked(run: DiagnosedRun, dataset: Dataset) -> Examples:
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
