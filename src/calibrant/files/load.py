"""Load predictions, other columns of the same samples, and features."""

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from calibrant.checks import as_features, existing_file, with_devices_of_inputs
from calibrant.errors import Argument, Caveat, FileError, InputError, Row, UnknownNameError, check_kind, warn
from calibrant.files.assemble import assemble, complete, renumbered, rows_of, with_samples
from calibrant.files.choose import ColumnChoice, LoadOptions, choose, shown_names
from calibrant.files.source import (
    Arrays,
    Column,
    Content,
    Kind,
    array_batches,
    open_mapping,
    open_npy,
    open_npz,
    open_safetensors,
    open_torch,
)
from calibrant.labels import Words, nearest, words_of
from calibrant.predictions import Predictions, TopLabel
from calibrant.text import listed


def in_module(module: str, name: str) -> Callable[..., Any]:
    """Return a function of a module of this package, which is imported when it is called: it loads pyarrow."""

    def call(*arguments: Any) -> Any:
        return getattr(import_module(f"calibrant.files.{module}"), name)(*arguments)

    return call


OPENERS: dict[str, Callable[[Path], Content]] = {
    ".arrow": in_module("tables", "open_arrow"),
    ".csv": in_module("text", "open_csv"),
    ".csv.gz": in_module("text", "open_csv"),
    ".feather": in_module("tables", "open_arrow"),
    ".jsonl": in_module("text", "open_jsonl"),
    ".jsonl.gz": in_module("text", "open_jsonl"),
    ".npy": open_npy,
    ".npz": open_npz,
    ".parquet": in_module("tables", "open_parquet"),
    ".pt": open_torch,
    ".pth": open_torch,
    ".safetensors": open_safetensors,
    ".tsv": in_module("text", "open_csv"),
    ".tsv.gz": in_module("text", "open_csv"),
}
DELIMITED = (".csv", ".csv.gz", ".tsv", ".tsv.gz")


def suffix_of(path: str | os.PathLike[str]) -> str:
    """Return the ending that decides a file's format; a FileError if it is none of :data:`OPENERS`."""
    check_kind(path, (str, os.PathLike), "path", "Name a file.")
    suffix = next((suffix for suffix in OPENERS if Path(path).name.lower().endswith(suffix)), None)
    if suffix is not None:
        return suffix
    instead = {".json": "Write one object a line, as .jsonl.", ".xlsx": "Save the sheet as CSV in UTF-8."}
    hint = instead.get(Path(path).suffix.lower(), "Convert the file, or load it yourself and pass the arrays.")
    raise FileError(
        f"the name of a file of predictions must end in one of {', '.join(OPENERS)}; {os.fspath(path)} ends in "
        f"{Path(path).suffix!r}. {hint}"
    )


def load(  # noqa: PLR0913  # the options of the command line
    source: Any,
    *,
    kind: Kind | None = None,
    scores: str | Sequence[str] | None = None,
    labels: str | None = None,
    confidence: str | None = None,
    correct: str | None = None,
    positive: str | None = None,
    positive_class: str | None = None,
    class_names: Sequence[str] | None = None,
    normalise: bool = False,
    percent: bool = False,
    separator: str | None = None,
    where: Mapping[str, str | float | Sequence[str | float]] | None = None,
    weights: str | None = None,
    clusters: str | None = None,
    missing: Literal["refuse", "drop"] = "refuse",
) -> Predictions | Any:
    """Load predictions. Names or options decide whether scores are logits or probabilities; values never do.

    Without options: ``logits`` (or ``logit_0``, ``logit_1``, ...) with ``labels``, else ``probs`` (or ``prob_0``, ...)
    with ``labels``, else ``confidence`` with ``correct``. ``logit``, ``logprobs``, ``log_probs``, ``prob``,
    ``probabilities``, ``probs_0``, ..., ``label``, ``targets`` and ``ground_truth`` (also with ``predictions`` as
    probabilities) are known as well. One logit a row means two classes. Number types are kept; CSV has only float64.

    Args:
        source: The path of a ``.csv``, ``.tsv``, ``.jsonl`` (these also with ``.gz``), ``.parquet``, ``.feather``,
            ``.arrow``, ``.npz``, ``.npy``, ``.safetensors`` or ``.pt`` file, or of a folder that Hugging Face
            ``datasets`` saved; or a data frame (pandas, polars, pyarrow, any with ``__arrow_c_stream__``); or a mapping
            of names to arrays.
        kind: Kind of the scores: "logits", "probs" or "top-label".
        scores: Name of the array or column of scores; or their columns, one per class: a list (also ``"a,b,c"``), a
            pattern (``"prob_*"``) or a prefix (``"p_"``). Their own names or the varying parts name the classes.
        labels: Name of the labels; of a ``.npy`` file, the path of another one, first looked for beside it. They are
            class numbers or class names.
        confidence: Name of the confidence, for "top-label".
        correct: Name of the column of whether the prediction is correct, for "top-label".
        positive: Name of the one column of scores of a two-class model: the probability (or the logit, by ``kind``) of
            its positive class, which becomes class 1.
        positive_class: Label of the positive class, unless labels are 0/1 or true/false.
        class_names: Names of the classes in the order of the scores, if the source has none.
        normalise: Divide each row of probabilities by its sum, if they are counts or were rounded.
        percent: Read probabilities or confidences as percentages, from 0 to 100, with or without a ``%`` sign. A column
            of text in which all have the sign needs no option.
        separator: Character between the columns of a CSV file; by default the comma, and the tab in ``.tsv``;
            ``"csv2"`` is the semicolon beside decimal commas.
        where: Columns and the value, or values, that the samples to load have there: ``{"part": "test", "fold": 1}``.
        weights: Name of the column of the samples' weights; without it, all samples count alike.
        clusters: Name of a column of numbers or words that are equal for samples that are not independent, such as the
            answers to one question; without it, all are.
        missing: What to do with rows without a score, label, weight or cluster (null, NaN, an empty field): "refuse"
            them, or "drop" them with a warning. Numbers of the others are biased if rows lack something for a reason.

    Returns:
        TopLabel for "top-label", else Predictions; the source decides, which no type checker knows.

    Raises:
        InputError: If names are missing or options contradict each other; a FileError if a file cannot be read.

    Example:
        >>> load({"logits": [[2.0, 0.0], [0.0, 1.0]], "labels": [0, 1]})
        Predictions(n=2, classes=2, torch.float64, cpu)
        >>> load({"p": [[0.9, 0.1], [0.2, 0.8]], "y": [0, 1]}, kind="probs", scores="p", labels="y").predicted.tolist()
        [0, 1]
        >>> load({"p": [0.9, 0.2], "y": ["spam", "ham"]}, positive="p", positive_class="spam", labels="y").class_names
        ('ham', 'spam')
    """
    options = LoadOptions(
        kind, scores, labels, confidence, correct, positive=positive, positive_class=positive_class,
        class_names=class_names, normalise=normalise, percent=percent, separator=separator, where=where,
        weights=weights, clusters=clusters, missing=missing,
    )  # fmt: skip
    return load_detailed(source, options).predictions


class Loaded(NamedTuple):
    """Predictions, the names they were read from, the source, and the other columns that were wanted."""

    predictions: Predictions | TopLabel
    choice: ColumnChoice
    content: Content
    extra: Arrays  # by name: numbers (n,), or Words


@with_devices_of_inputs
def load_detailed(source: Any, options: LoadOptions) -> Loaded:
    """Load predictions and other columns of the same samples; see :func:`load`.

    Example:
        >>> table = {"logits": [[2.0, 0.0], [0.0, 1.0]], "labels": [0, 1], "region": ["north", "south"]}
        >>> load_detailed(table, LoadOptions(extra=("region",))).extra["region"].distinct
        ('north', 'south')
    """
    content = open_source(source, options)
    choice = choose(content, options)
    where = options.where or {}
    wanted = tuple(dict.fromkeys((*options.extra, *where, *options.of_samples)))
    check_names(content, wanted)
    if options.missing == "keep":
        raise InputError(Argument("missing", "keep"), " is for files that are written again; pass refuse or drop.")
    with naming(content.path):
        content = complete(content, choice, options)
        if content.kept is not None:
            rows = (~content.kept).nonzero()[:, 0]
            warn_of_dropped(content.path, len(rows), len(content.kept), rows[:MOST_ROWS].tolist())
    with naming(content.path), renumbered(content):
        predictions = assemble(content, choice, options)
        extra = extra_columns(content, wanted, len(predictions))
        predictions = with_samples(predictions, extra, content, options)
        for name, values in where.items():
            given = values if isinstance(values, Collection) and not isinstance(values, str) else [values]
            texts = [one if isinstance(one, str) else words_of(torch.tensor([one]), name).distinct[0] for one in given]
            rows = rows_with(extra[name], name, texts)
            predictions, extra = predictions[rows], {key: rows_of(column, rows) for key, column in extra.items()}
        return Loaded(predictions, choice, content, {name: extra[name] for name in options.extra})


def check_order(ours: Content, theirs: Content) -> None:
    """Raise if two tables have the same samples in another order, as a column that both have shows, such as an id.

    Its text or whole numbers are distinct, and the same in both. Tables of the top label have no labels to compare.
    """
    if ours.verbatim is None or theirs.verbatim is None:  # arrays
        return
    for name in (name for name in ours.names if name in theirs.names and len(ours.shape(name)) == 1):
        columns = ours.verbatim([name])[name], theirs.verbatim([name])[name]
        row = in_module("tables", "first_moved")(*columns)
        if row is not None:
            mine, other = (column[row].as_py() for column in columns)
            raise InputError(
                f"both sets must have the same samples in the same order; {name!r} has the same values in both, but "
                f"{mine!r} and {other!r} in row {row} (counting from 0). Sort both by {name!r} first."
            )


@contextmanager
def naming(path: Path | None, first: int = 0) -> Iterator[None]:
    """Name the file in errors about what it holds, and the line of a row of text; rows are counted from ``first``."""
    try:
        yield
    except InputError as error:
        is_named = isinstance(error, FileError)
        if path is None or (is_named and not any(isinstance(part, Row) for part in error.args)):
            raise
        parts = [_placed(part, path, first) if isinstance(part, Row) else part for part in error.args]
        raise FileError(*(parts if is_named else [f"{path}: ", *parts])) from error


def _placed(row: Row, path: Path, first: int) -> Row:
    if row.line is not None:
        return row
    number = row.number + first
    return Row(number, in_module("text", "lines_of")(path, [number])[0] if _has_lines(path) else None)


def _has_lines(path: Path | None) -> bool:
    return path is not None and suffix_is(path, *DELIMITED, ".jsonl", ".jsonl.gz")


MOST_ROWS = 5  # that lack something and are named


def warn_of_dropped(path: Path | None, dropped: int, of: int, rows: Sequence[int], *, name: str | None = None) -> None:
    """Warn that rows of a source were left out, with the first of them; an InputError if none is left."""
    title, has_lines = name or ("the source" if path is None else path.name), _has_lines(path)
    if dropped == of:
        raise InputError(f"{title} must have rows with all scores and a label; all {of:,} lack one.")
    first = in_module("text", "lines_of")(path, rows) if has_lines else rows
    warn_again({"source": title, "dropped": dropped, "of": of, "lines" if has_lines else "rows": list(first)})


def warn_again(facts: Mapping[str, Any]) -> None:
    """Warn of rows that were left out, also by an earlier command that wrote down these facts."""
    dropped, unit = facts["dropped"], "lines" if "lines" in facts else "rows"
    places = ", ".join(f"{place:,}" for place in facts[unit])
    more = f" and {dropped - len(facts[unit]):,} more" if dropped > len(facts[unit]) else ""
    start = ", counting from 0" if unit == "rows" else ""
    warn(
        f"{dropped:,} of {facts['of']:,} rows of {facts['source']} lack a score, label, weight or cluster and are left "
        f"out ({unit if dropped > 1 else unit[:-1]} {places}{more}{start}). If they lack it for a reason, as hard "
        "samples may, the numbers are biased.",
        caveat=Caveat.rows_dropped,
        facts=facts,
    )


def check_names(content: Content, names: Sequence[str]) -> None:
    """Check that a source has these columns."""
    for name in names:
        if name not in content.names:
            raise UnknownNameError(
                f"{content.title} must have the {content.noun} {name!r}; found {shown_names(content)}"
                f"{nearest(name, content.names)}."
            )


def open_source(source: Any, options: LoadOptions | None = None) -> Content:
    """Open a file, a folder of Hugging Face ``datasets``, a data frame or a mapping; nothing large is read yet."""
    options = options or LoadOptions()
    if isinstance(source, Content):
        return source
    if isinstance(source, str | os.PathLike):
        if Path(source).is_dir() and any((Path(source) / name).is_file() for name in _DATASET_FILES):
            return in_module("tables", "open_dataset_folder")(Path(source))
        path = existing_file(source)
        suffix = suffix_of(path)
        if options.separator is not None and suffix not in DELIMITED:
            raise InputError(Argument("separator"), f" is for .csv and .tsv; {path} ends in {suffix}. Leave it out.")
        if suffix in DELIMITED:
            return in_module("text", "open_csv")(path, options.separator)
        return open_npy(path, options.labels) if suffix == ".npy" else OPENERS[suffix](path)
    if hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__"):  # a data frame
        return in_module("tables", "open_frame")(source)
    if isinstance(source, Mapping):
        return open_mapping(source)
    raise InputError(
        "the source must be the path of a file, a data frame or a mapping of names to arrays; "
        f"got {type(source).__name__}. For arrays, use Predictions.from_logits or Predictions.from_probs."
    )


def open_for_names(path: Path, options: LoadOptions, *, is_typed: bool = False) -> Content:
    """Open a file for its names; those of JSON are in its first lines, so that not all are read, unless for types."""
    if not suffix_is(path, ".jsonl", ".jsonl.gz"):
        return open_source(path, options)
    batches = import_module("calibrant.files.text").jsonl_batches(existing_file(path), (), is_typed=is_typed)
    first: Content = next(batches)
    return first


def open_in_batches(
    path: Path,
    options: LoadOptions,
    choice: ColumnChoice,
    names: Sequence[str],
    rows: int,
    *,
    copied: Collection[str] | None = None,
) -> Iterator[Content]:
    """Open some rows of a file at a time, with the columns of these names; a file of torch whole.

    If some are only to be ``copied``, which may be none, columns of all batches have the same types.
    """
    suffix = suffix_of(path)
    if suffix in DELIMITED:
        numbers = {*choice.scores, options.weights}.difference(copied or ())
        form = {"numbers": numbers, "copied": copied or (), "separator": options.separator, "percent": options.percent}
        form["shares"] = () if choice.kind == "logits" else choice.scores
        yield from import_module("calibrant.files.text").csv_batches(path, names, rows, **form)
    elif suffix.startswith(".jsonl"):
        alike = () if options.percent or choice.kind == "logits" else choice.scores
        is_typed = copied is not None
        yield from import_module("calibrant.files.text").jsonl_batches(path, names, is_typed=is_typed, alike=alike)
    elif suffix in {".arrow", ".feather"}:
        yield from in_module("tables", "arrow_batches")(path, names, rows)
    elif suffix == ".parquet":
        yield from in_module("tables", "parquet_batches")(path, names, rows)
    elif suffix in {".npy", ".npz", ".safetensors"}:
        yield from array_batches(open_source(path, options), path, names, rows, optional=copied or ())
    else:
        yield open_source(path, options)


_DATASET_FILES = ("state.json", "dataset_info.json", "dataset_dict.json")  # of Hugging Face datasets


def suffix_is(path: Path, *suffixes: str) -> bool:
    """Return whether a file's name has one of these endings."""
    return path.name.lower().endswith(suffixes)


def extra_columns(content: Content, names: tuple[str, ...], n: int) -> Arrays:
    """Read other columns by name, one entry per sample; those of a CSV file are numbers if all their rows are."""
    columns = content.read(names, names) if names else {}
    for name, column in columns.items():
        shape = tuple((column.codes if isinstance(column, Words) else column).shape)
        if shape != (n,):
            raise InputError(f"{name!r} must have one entry per sample, shape ({n},); got {shape}.")
    return columns


def rows_with(column: Column, name: str, values: Sequence[str]) -> Tensor:
    """Return the rows where a column has one of these values, compared as text; an InputError if there are none."""
    words = column if isinstance(column, Words) else words_of(column, name)
    rows = words.rows_of(values)
    if not len(rows):
        raise InputError(f"{name!r} must hold {' or '.join(map(repr, values))} in some rows; it holds {_held(words)}.")
    return rows


Part = Literal["calibration", "test"]
_PARTS: dict[Part, tuple[str, ...]] = {  # what the two parts of a data set are called
    "calibration": ("calibration", "cal", "calib", "validation", "valid", "val", "dev"),
    "test": ("test",),
}


def rows_of_part(column: Column, name: str, part: Part, value: str | None = None) -> Tensor:
    """Return the rows of one part of a split by a column: with a value, or that of the part's usual names."""
    if value is not None:
        return rows_with(column, name, [value])
    words = column if isinstance(column, Words) else words_of(column, name)
    called = part_names(words, part)
    if len(called) == 1:
        return rows_with(words, name, called)
    raise InputError(
        f"{name!r} must hold one value for {part} samples, {' or '.join(map(repr, _PARTS[part]))}; it holds "
        f"{_held(words)}. Name the values for calibration and test: ",
        *(Argument("split", f"{name}=CALIBRATION,TEST", is_literal=False), "."),
    )


def part_names(words: Words, part: Part, value: str | None = None) -> list[str]:
    """Return the words that are the value, or without one a usual name of the part."""
    return [w for w in words.distinct if (w.strip().lower() in _PARTS[part] if value is None else w == value)]


def _held(words: Words) -> str:
    counts = words.codes.bincount(minlength=len(words.distinct)).tolist()
    return listed((f"{word!r} ({count:,})" for word, count in zip(words.distinct, counts, strict=True)), 8)


def load_features(path: str | os.PathLike[str], *, name: str = "features", rows: int | None = None) -> Tensor:
    """Load the features of predictions, one row each, from their archive or a separate one; no code in it is run.

    Args:
        path: A ``.npz`` or ``.safetensors`` file.
        name: Name of the array in the file, (n, d), whose number type is kept.
        rows: Expected number of rows, ``len(predictions)``; not checked unless given.

    Raises:
        FileError: If the file cannot be read, or the array is not a matrix of finite numbers with so many rows.
        UnknownNameError: If there is no array of that name.
    """
    file = existing_file(path, holding="features")
    suffix = file.suffix.lower()
    if suffix not in {".npz", ".safetensors"}:
        raise FileError(
            f"features must be in an .npz or .safetensors file; got {file}. Use numpy.savez(path, {name}=x)."
        )
    content = OPENERS[suffix](file)
    if name not in content.names:
        choice = Argument("name", "NAME", is_literal=False)
        raise UnknownNameError(f"{file} must have {name!r}; found {shown_names(content)}. Choose one: ", choice, ".")
    column = content.read((name,), None)[name]
    if not isinstance(column, Tensor):
        raise FileError(f"{file}: {name!r} must hold numbers; it holds text.")
    try:
        return as_features(column, rows=rows, name=repr(name))
    except InputError as error:
        raise FileError(f"{file}: ", *error.args) from error
