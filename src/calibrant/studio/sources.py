"""Sources of the studio: a file with its options, its samples in parts, and the lines that read the same.

A *source* is a dictionary: ``path`` of the file, the ``name`` to show, when it was last ``written`` (a worker keeps
what it has read), the options of :func:`calibrant.files.load` (those of :data:`CONTROLS`), for scores in a ``.npy``
file another such dictionary as ``labels_file``, the columns to slice ``by``, whether to slice by predicted ``classes``,
and how to ``split`` its samples:

- absent: all samples are test samples, and methods are compared in folds of them;
- ``{"by": "half", "seed": 0}``: a random half to calibrate on, the other to evaluate;
- ``{"by": "column", "column": "split", "calibration": "val", "test": "test"}``: by the values of a column;
- ``{"by": "file", "source": {...}}``: another source to calibrate on, with the same options unless it has its own.

The examples of :data:`EXAMPLES` have no path on the disk, and are split already, whatever ``split`` says. A *baseline*
is another source of the same samples: another file, or other columns of the same one.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, lru_cache
from json import dumps, loads
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from calibrant.datasets import load_resnet110
from calibrant.errors import (
    Argument,
    CalibrantError,
    CalibrantWarning,
    FileError,
    InputError,
    UnknownNameError,
    caught_warnings,
    ours_in,
)
from calibrant.evidence import check_pair
from calibrant.files.choose import LoadOptions, shown_names
from calibrant.files.load import check_order, load_detailed, open_source, rows_with
from calibrant.files.source import Arrays, Content, open_mapping
from calibrant.predictions import Predictions, TopLabel
from calibrant.slices import PREDICTED, predicted_classes
from calibrant.studio.workers import Progress
from calibrant.training import DIGITS, predict, train_on_digits

RESNET110, SMALL = "example:resnet110", "example:digits"
EXAMPLES = {RESNET110: "ResNet-110 on CIFAR-100 (example)", SMALL: "Small network on digits (example)"}
Source: TypeAlias = Mapping[str, Any]
CONTROLS = {  # labels of the options on the page, by their names in load or on the command line
    "kind": "Kind of scores",
    "scores": "Scores",
    "positive": "Score of the positive class",
    "positive_class": "Positive class",
    "labels": "True class",
    "confidence": "Confidence",
    "correct": "Correct",
    "class_names": "Class names",
    "normalise": "Divide each row by its sum",
    "percent": "Percentages",
    "separator": "Separator",
    "weights": "Weights",
    "clusters": "Clusters",
    "missing": "Leave out rows without values",
    "by": "Slices by",
    "classes": "Slices by predicted class",
    "split": "Samples to calibrate on",
}
_OPTIONS = tuple(name for name in CONTROLS if name not in {"by", "classes", "split"})
_OF_SAMPLES = ("weights", "clusters")
_FEWEST = 10  # samples of a part


class Parts(NamedTuple):
    """The samples of a source: to calibrate on, if it is split, and to evaluate."""

    calibration: Predictions | TopLabel | None
    test: Predictions | TopLabel
    places: Tensor  # (n,) row of each test sample in its file
    kept: Tensor  # bool, one for every row of that file: False if it was left out
    columns: dict[str, Any]  # of the test samples, to slice by
    cautions: tuple[CalibrantWarning, ...] = ()  # of reading
    twice: int = 0  # rows that were left out of this file and of the baseline

    @property
    def dropped(self) -> int:
        """The number of rows that were left out."""
        return sum(caution.facts.get("dropped", 0) for caution in self.cautions) - self.twice


def options_of(source: Source) -> dict[str, Any]:
    """Return the options for :func:`calibrant.files.load` that a source has; names of classes as a list."""
    given = {name: source[name] for name in _OPTIONS if source.get(name)}
    if "class_names" in given:
        given["class_names"] = [name.strip() for name in given["class_names"].split(",")]
    return given | ({"labels": source["labels_file"]["path"]} if source.get("labels_file") else {})


def as_probability_of_right(source: Source) -> Source:
    """Return a source of confidences with these as the probability of one class, that the prediction is right."""
    columns = {"positive": source.get("confidence") or "confidence", "labels": source.get("correct") or "correct"}
    others = {name: value for name, value in source.items() if name not in {"confidence", "correct"}}
    return others | {"kind": "probs"} | columns


def opened(source: Source) -> Content:
    """Open the file of a source; nothing large is read."""
    if source["path"] in EXAMPLES:
        _, test = example(source["path"])
        return open_mapping({"logits": test.logits, "labels": test.labels, "class_names": test.class_names})
    return open_source(source["path"], LoadOptions(**options_of(source)))


def reading_of(source: Source) -> tuple[Content, LoadOptions]:
    """Return the opened file and the options to choose its columns by; those with another use hold no scores."""
    content, options = opened(source), options_of(source)
    column = (source.get("split") or {}).get("column")
    taken = {name: [options.pop(name, None)] for name in _OF_SAMPLES} | {
        "by": source.get("by") or (),
        "split": [column],
    }
    wanted = [(control, name) for control, names in taken.items() for name in names if name]
    for control, name in wanted:
        if name not in content.names:
            raise UnknownNameError(
                f"the file must have the {content.noun} {name!r}; it has {shown_names(content)}.", argument=control
            )
    if source["path"].endswith(".npy") and "positive" not in options:
        options.setdefault("scores", content.names[0])
    return content, LoadOptions(**options, extra=tuple(name for _, name in wanted))


@cache
def example(path: str) -> tuple[Predictions, Predictions]:
    """Return the calibration and test samples of an example."""
    if path == RESNET110:
        return load_resnet110()
    network = train_on_digits(seed=0)
    calibration, test = (
        Predictions.from_logits(predict(network.model, images), labels, class_names=DIGITS)
        for images, labels in (network.calibration, network.test)
    )
    return calibration, test


def load_parts(source: Source, progress: Progress) -> Parts:
    """Load the samples of a source, and split them; an error is in the words of the page."""
    progress("training a small network on digits" if source["path"] == SMALL else f"reading {source['name']}", None)
    try:
        return _loaded(dumps(source, sort_keys=True))
    except CalibrantError as error:
        raise on_page(error, source) from error


def on_page(error: CalibrantError, source: Source) -> FileError:
    """Return an error with the names of files and controls that the user knows, and the control it is about."""

    def shown(argument: Argument) -> str:
        has_value = argument.value is not None and argument.is_literal and argument.name != "missing"
        value = f": {argument.value}" if has_value else ""
        return f"‘{CONTROLS.get(argument.name, argument.name)}{value}’"

    return FileError(in_known_names(error.message(shown), source), argument=error.argument)


def in_known_names(text: str, source: Source) -> str:
    """Return a text with the names that the user knows in place of the paths of stored copies."""
    for file in filter(None, [source, source.get("labels_file"), (source.get("split") or {}).get("source")]):
        text = text.replace(file["path"], file["name"])
        if file["path"].endswith(".npy"):  # an array is named by its file
            text = text.replace(Path(file["path"]).stem, Path(file["name"]).stem)
    return text


def load_pair(
    source: Source, baseline: Source | None, progress: Progress
) -> tuple[Parts, Predictions | TopLabel | None]:
    """Load the samples of a source, and those of a baseline, if there is one, for the same test samples.

    Files of equally many rows are matched by them: where rows are left out or split off, samples that both have stay.

    Raises:
        InputError: If the two differ in the number of samples, in labels, weights or kind.
    """
    parts = load_parts(source, progress)
    if baseline is None:
        return parts, None
    second = load_parts(baseline, progress)
    other, pair = second.test, (source, baseline)
    if isinstance(other, TopLabel) and not any(one["path"] in EXAMPLES for one in pair):
        check_order(*(open_source(one["path"], LoadOptions(**options_of(one))) for one in pair))
    if len(second.kept) == len(parts.kept):
        rows = torch.isin(parts.places, second.places).nonzero()[:, 0]
        if not len(rows):
            raise InputError("both tables must have samples in common; every row is left out of one of them.")
        other, test = other[torch.isin(second.places, parts.places)], parts.test[rows]
        kept = {name: parts.columns[name][rows] for name in source.get("by") or () if name in parts.columns}
        twice, columns = int((~(parts.kept | second.kept)).sum()), _columns(source, test, kept)
        parts = parts._replace(test=test, places=parts.places[rows], columns=columns, twice=twice)
    check_pair(other, parts.test)
    return parts._replace(cautions=(*parts.cautions, *second.cautions)), other


def _caution(warning: CalibrantWarning, source: Source) -> CalibrantWarning:
    """Return a warning about a file with the name that the user knows."""
    stored = str(warning.facts.get("source", source["path"]))
    facts = warning.facts | {"source": source["name"]} if warning.facts else {}
    return CalibrantWarning(str(warning).replace(stored, source["name"]), caveat=warning.caveat, facts=facts)


@lru_cache(maxsize=4)
def _loaded(text: str) -> Parts:
    """Load and split a source; a worker keeps the last few, since most requests are about the same."""
    source = loads(text)
    by, split = tuple(source.get("by") or ()), source.get("split") or {}
    if source["path"] in EXAMPLES:
        calibration, test = example(source["path"])
        places = torch.arange(len(test))
        return Parts(calibration, test, places, places >= 0, _columns(source, test, {}))
    column = (split["column"],) if split.get("by") == "column" else ()
    reading = LoadOptions(**options_of(source), extra=tuple(dict.fromkeys((*by, *column))))
    with caught_warnings() as caught:
        try:
            whole, _, content, read = load_detailed(source["path"], reading)
        except InputError as error:
            without = {"weights": replace(reading, weights=None), "clusters": replace(reading, clusters=None)}
            for name, others in without.items() if error.argument is None and reading.of_samples else ():
                with suppress(InputError):  # an error that stays is not about them
                    load_detailed(source["path"], others)
                    error.argument = name
            raise
    ours_in(caught)  # others go on
    cautions = tuple(_caution(one.message, source) for one in caught if isinstance(one.message, CalibrantWarning))
    kept = torch.ones(len(whole), dtype=torch.bool) if content.kept is None else content.kept
    rows = kept.nonzero()[:, 0]
    if split and split["by"] == "file":
        other = {name: source[name] for name in _OPTIONS if source.get(name)} | split["source"]
        second = _loaded(dumps(other, sort_keys=True))
        columns, cautions = _columns(source, whole, read), (*second.cautions, *cautions)
        return Parts(second.test, whole, rows, kept, columns, cautions)
    if not split:
        return Parts(None, whole, rows, kept, _columns(source, whole, read), cautions)
    calibration_rows, test_rows = _split_rows(split, whole, read)
    columns = _columns(source, whole[test_rows], {name: values[test_rows] for name, values in read.items()})
    return Parts(whole[calibration_rows], whole[test_rows], rows[test_rows], kept, columns, cautions)


def _columns(source: Source, test: Predictions | TopLabel, read: Arrays) -> dict[str, Any]:
    """Return the columns to slice the test samples by."""
    columns: dict[str, Any] = {name: read[name] for name in source.get("by") or () if name in read}
    if not source.get("classes"):
        return columns
    if isinstance(test, TopLabel):
        raise InputError(
            "slices by predicted class need scores of all classes; this file has only the top label.",
            argument="classes",
        )
    return columns | {PREDICTED: predicted_classes(test)}


def _split_rows(split: Mapping[str, Any], samples: Predictions | TopLabel, read: Arrays) -> tuple[Tensor, Tensor]:
    """Return the rows of the calibration and of the test samples; a cluster is in one half."""
    if split["by"] == "half":
        units = torch.arange(len(samples)) if samples.clusters is None else samples.clusters
        order = torch.randperm(int(units.max()) + 1, generator=torch.Generator().manual_seed(int(split.get("seed", 0))))
        first = torch.isin(units, order[: len(order) // 2])
        calibration, test = first.nonzero()[:, 0], (~first).nonzero()[:, 0]
    elif split["by"] == "column":
        column = split["column"]
        try:
            calibration, test = (rows_with(read[column], column, [split[part]]) for part in ("calibration", "test"))
        except InputError as error:
            raise InputError(*error.args, argument="split") from error
    else:
        raise InputError(f"a split must be by half, column or file; got {split['by']!r}.", argument="split")
    for part, rows in (("calibration", calibration), ("test", test)):
        if len(rows) < _FEWEST:
            raise InputError(
                f"the split must leave at least {_FEWEST} {part} samples; it leaves {len(rows)}.", argument="split"
            )
    return calibration, test


_DOWNLOADED = "# calibration.npz and test.npz are under Take home."


def lines_of(source: Source, function: str, *, n_bins: int, seed: int, methods: Iterable[str] = ()) -> dict[str, str]:
    """Return command and Python lines that give the same numbers.

    They read the user's files where these can be split so, else the parts as they can be downloaded.
    """
    split, names = source.get("split") or {}, ",".join(methods)
    in_parts = function == "compare" and (bool(split) or source["path"] in EXAMPLES)
    both = ("calibration", "test") if in_parts else ("test",)
    files, words, before = [source["name"]], option_words(source), []
    slices = [f"--by {quote(column)}" for column in source.get("by") or ()]
    if source["path"] in EXAMPLES:
        start = "demo/resnet110/" if source["path"] == RESNET110 else "demo/digits-"
        files, words, before, slices = [f"{start}{part}.npz" for part in both], [], ["calibrant demo"], []
    elif split.get("by") == "file":
        files = [split["source"]["name"], source["name"]][-len(both) :]
    elif split.get("by") == "column" and "," not in split["calibration"] + split["test"] and "=" not in split["column"]:
        words.append("--split " + quote("{column}={calibration},{test}".format(**split)))
    elif split:  # the parts have no other columns to slice by
        files, words, before, slices = [f"{part}.npz" for part in both], saved_words(source), [_DOWNLOADED], []
    words += [] if function == "compare" else [*slices, *(["--classes"] if source.get("classes") else [])]
    words += [f"--methods {quote(names)}"] if names else []
    cli = ["calibrant", function, *map(quote, files), *words, f"--bins {n_bins}", f"--seed {seed}"]
    chosen = ", ".join(f"catalogue.parse_calibrator({name!r})" for name in methods)
    chosen = f", calibrators=[{chosen}]" if names else ""
    python = [
        f"from calibrant import catalogue, {function}, load" if names else f"from calibrant import {function}, load",
        *_loading_lines(source, both),
        *([] if function == "compare" else _slicing_lines(source, n_bins, seed)),
        f"{function}({', '.join(both)}{chosen}, n_bins={n_bins}, seed={seed})",
    ]
    return {"cli": "\n".join([*before, " ".join(cli)]), "python": "\n".join(python)}


_COMPARED = "# test.npz and baseline.npz are under Take home."


def baseline_lines(source: Source, baseline: Source, *, n_bins: int, seed: int, resamples: int) -> dict[str, str]:
    """Return command and Python lines that give the same numbers of two models.

    They read the user's files where all rows of both are test samples; the command has the same options for both.
    """
    both, words, before = [source["name"], baseline["name"]], option_words(source), [_COMPARED]
    is_whole = all(one["path"] not in EXAMPLES and not one.get("missing") for one in (source, baseline))
    is_whole &= (source.get("split") or {}).get("by") in {None, "file"}
    python = [f"test = {_load_line(source)}", f"baseline = {_load_line(baseline)}"]
    if is_whole and _named(source) == _named(baseline):
        words += [f"--by {quote(column)}" for column in source.get("by") or ()]
        before = []
    else:
        both, words = ["test.npz", "baseline.npz"], saved_words(source)
    if not is_whole:
        named = "".join(f", {name}='{name}'" for name in _OF_SAMPLES if source.get(name))
        python = [_COMPARED, *(f"{part} = load('{part}.npz'{named})" for part in ("test", "baseline"))]
    words += ["--classes"] if source.get("classes") else []
    test, other = map(quote, both)
    cli = ["calibrant evaluate", test, "--baseline", other, *words, f"--bins {n_bins}", f"--seed {seed}"]
    python = [
        "from calibrant import load",
        "from calibrant.evaluation import metrics_for",
        "from calibrant.evidence import report_differences",
        *python,
        f"metrics = metrics_for(test, n_bins={n_bins})",
        f"report_differences(baseline, test, metrics, resamples={resamples}, seed={seed})",
    ]
    return {"cli": "\n".join([*before, " ".join(cli)]), "python": "\n".join(python)}


def _named(source: Source) -> dict[str, Any]:
    """Return the options of a source for a line that a user runs: files have their names."""
    own = options_of(source)
    return own | ({"labels": source["labels_file"]["name"]} if source.get("labels_file") else {})


def saved_words(source: Source) -> list[str]:
    """Return the options that read what the page has saved of the samples."""
    return [f"--{name} {name}" for name in _OF_SAMPLES if source.get(name)]


def option_words(source: Source) -> list[str]:
    """Return the options of a source for a command line."""
    words = []
    for name, value in _named(source).items():
        if name == "kind":
            words.append(f"--{value}")
        elif value is True:
            words.append(f"--{name}")
        else:
            words.append(f"--{name.replace('_', '-')} {quote(','.join(value) if isinstance(value, list) else value)}")
    return words


def _load_line(source: Source, **more: object) -> str:
    options = "".join(f", {name}={value!r}" for name, value in {**_named(source), **more}.items())
    return f"load({source['name']!r}{options})"


def _loading_lines(source: Source, parts: Sequence[str]) -> list[str]:
    """Return Python lines that load the parts named; calibration samples come first, if at all."""
    split = source.get("split") or {}
    if source["path"] == RESNET110:
        return ["from calibrant.datasets import load_resnet110", "calibration, test = load_resnet110()"]
    if source["path"] == SMALL:
        return [
            "from calibrant import Predictions",
            "from calibrant.training import DIGITS, predict, train_on_digits",
            "model, *parts = train_on_digits(seed=0)",
            "calibration, test = (",
            "    Predictions.from_logits(predict(model, images), labels, class_names=DIGITS)",
            "    for images, labels in parts",
            ")",
        ]
    if split.get("by") == "half":
        units = "whole.clusters" if source.get("clusters") else "torch.arange(len(whole))"
        seeded = f"generator=torch.Generator().manual_seed({int(split.get('seed', 0))})"
        return [
            "import torch",
            f"whole = {_load_line(source)}",
            f"units = {units}",
            f"order = torch.randperm(int(units.max()) + 1, {seeded})",
            "first = torch.isin(units, order[: len(order) // 2])",
            "calibration, test = whole[first], whole[~first]",
        ]
    if split.get("by") == "column":
        return [f"{part} = {_load_line(source, where={split['column']: split[part]})}" for part in parts]
    lines = [f"test = {_load_line(source)}"]
    if split.get("by") == "file" and len(parts) > 1:
        own = {name: source[name] for name in _OPTIONS if source.get(name)} | split["source"]
        lines.insert(0, f"calibration = {_load_line(own)}")
    return lines


def _slicing_lines(source: Source, n_bins: int, seed: int) -> list[str]:
    """Return Python lines for the slices; the columns of a random half are those of its rows."""
    by, split = list(source.get("by") or ()), source.get("split") or {}
    if not by and not source.get("classes"):
        return []
    lines, columns = ["from calibrant.slices import evaluate_slices, predicted_classes"], []
    if by:
        where = {"where": {split["column"]: split["test"]}} if split.get("by") == "column" else {}
        options = "".join(f", {name}={value!r}" for name, value in {**_named(source), **where}.items())
        lines += [
            "from calibrant.files.choose import LoadOptions",
            "from calibrant.files.load import load_detailed",
            f"read = load_detailed({source['name']!r}, LoadOptions(extra={tuple(by)!r}{options})).extra",
        ]
        half = "{name: values[~first] for name, values in read.items()}"
        columns.append(f"**{half}" if split.get("by") == "half" else "**read")
    columns += [f"{PREDICTED!r}: predicted_classes(test)"] if source.get("classes") else []
    call = f"slices = evaluate_slices(test, by={{{', '.join(columns)}}}, n_bins={n_bins}, seed={seed})"
    return [*lines, call]
