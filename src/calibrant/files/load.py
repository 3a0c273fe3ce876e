"""Load predictions and features.

Column names decide whether scores are logits or probabilities; values never do.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, final, get_args

import torch
from torch import Tensor

from calibrant.checks import as_features, existing_file
from calibrant.errors import Argument, FileError, InputError, UnknownNameError
from calibrant.files.source import (
    PREFIXES,
    Arrays,
    Column,
    Content,
    Kind,
    open_mapping,
    open_npz,
    open_safetensors,
    open_torch,
)
from calibrant.labels import Words, class_numbers, truths
from calibrant.predictions import Predictions, TopLabel

# Names of the score columns, and the class names in them, if they are words.
_ScoreNames: TypeAlias = tuple[tuple[str, ...], tuple[str, ...] | None]

_LABELS = ("labels", "label", "targets", "ground_truth")
_SCORES: dict[Kind, tuple[str, ...]] = {
    "logits": ("logits", "logit"),
    "probs": ("probs", "prob", "probabilities"),
    "top-label": (),
}


def in_tables(name: str) -> Callable[..., Any]:
    """Return a function of :mod:`calibrant.files.tables`, which is imported when it is called: it loads pyarrow."""

    def call(*arguments: Any) -> Any:
        return getattr(import_module("calibrant.files.tables"), name)(*arguments)

    return call


OPENERS: dict[str, Callable[[Path], Content]] = {
    ".arrow": in_tables("open_arrow"),
    ".csv": in_tables("open_csv"),
    ".csv.gz": in_tables("open_csv"),
    ".feather": in_tables("open_arrow"),
    ".npz": open_npz,
    ".parquet": in_tables("open_parquet"),
    ".pt": open_torch,
    ".pth": open_torch,
    ".safetensors": open_safetensors,
}
SUFFIXES = tuple(OPENERS)


def suffix_of(path: str | os.PathLike[str]) -> str:
    """Return the ending that decides a file's format; a FileError if it is none of :data:`SUFFIXES`."""
    suffix = next((suffix for suffix in SUFFIXES if Path(path).name.lower().endswith(suffix)), None)
    if suffix is not None:
        return suffix
    raise FileError(
        f"the name of a file of predictions must end in one of {', '.join(SUFFIXES)}; {os.fspath(path)} ends in "
        f"{Path(path).suffix!r}. Convert the file, or load it yourself and pass the arrays."
    )


def load(
    source: Any,
    *,
    kind: Kind | None = None,
    scores: str | None = None,
    labels: str | None = None,
    confidence: str | None = None,
    correct: str | None = None,
) -> Predictions | TopLabel:
    """Load predictions. Names or options decide whether scores are logits or probabilities; values never do.

    Without options: ``logits`` (or ``logit_0``, ``logit_1``, ...) with ``labels``, else ``probs`` (or ``prob_0``, ...)
    with ``labels``, else ``confidence`` with ``correct``. ``logit``, ``prob``, ``probabilities``, ``label``,
    ``targets`` and ``ground_truth`` (also with ``predictions`` as probabilities) are known as well. One logit a row
    means two classes. Number types are kept; a CSV file has only float64.

    Args:
        source: The path of a ``.npz``, ``.safetensors``, ``.pt``, ``.csv``, ``.csv.gz``, ``.parquet``, ``.feather`` or
            ``.arrow`` file; or a data frame (pandas, polars, pyarrow, any with ``__arrow_c_stream__``); or a mapping of
            names to arrays.
        kind: Kind of the scores: "logits", "probs" or "top-label".
        scores: Name of the array or column of scores, or the start of the names of their columns (``"p_"``).
        labels: Name of the labels. They are class numbers, or words where the source has class names.
        confidence: Name of the confidence, for "top-label".
        correct: Name of the column of whether the prediction is correct, for "top-label".

    Returns:
        TopLabel for "top-label", else Predictions.

    Raises:
        InputError: If names are missing or options contradict each other; a FileError if a file cannot be read.

    Example:
        >>> load({"logits": [[2.0, 0.0], [0.0, 1.0]], "labels": [0, 1]})
        Predictions(n=2, classes=2, torch.float64, cpu)
        >>> load({"p": [[0.9, 0.1], [0.2, 0.8]], "y": [0, 1]}, kind="probs", scores="p", labels="y").predicted.tolist()
        [0, 1]
    """
    return load_detailed(source, LoadOptions(kind, scores, labels, confidence, correct))[0]


@final
@dataclass(frozen=True)
class LoadOptions:
    """Options of :func:`load`; None where the names in the source decide."""

    kind: Kind | None = None
    scores: str | None = None
    labels: str | None = None
    confidence: str | None = None
    correct: str | None = None
    labels_needed: bool = True
    extra: tuple[str, ...] = ()  # other columns to read, such as weights and groups, one entry per sample


@final
@dataclass(frozen=True)
class ColumnChoice:
    """The names of the columns or arrays to read, and the kind of their scores."""

    kind: Kind
    scores: tuple[str, ...]  # one, or one per class in the order of the classes; for the top label, the confidence
    labels: str | None  # for the top label, whether it is correct; None if there are none and none are needed
    class_names: tuple[str, ...] | None = None  # the words in the names of the scores, if they are words


class Loaded(NamedTuple):
    """Predictions, the names they were read from, the source, and the other columns that were wanted."""

    predictions: Predictions | TopLabel
    choice: ColumnChoice
    content: Content
    extra: Arrays  # by name: numbers (n,), or Words


def load_detailed(source: Any, options: LoadOptions) -> Loaded:
    """Load predictions and other columns of the same samples; see :func:`load`.

    Example:
        >>> table = {"logits": [[2.0, 0.0], [0.0, 1.0]], "labels": [0, 1], "region": ["north", "south"]}
        >>> load_detailed(table, LoadOptions(extra=("region",))).extra["region"].distinct
        ('north', 'south')
    """
    if isinstance(source, str | os.PathLike):
        path = existing_file(source)
        content = OPENERS[suffix_of(path)](path)
    elif hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__"):  # a data frame
        content = in_tables("open_frame")(source)
    elif isinstance(source, Mapping):
        content = open_mapping(source)
    else:
        raise InputError(
            "the source must be the path of a file, a data frame or a mapping of names to arrays; "
            f"got {type(source).__name__}. For arrays, use Predictions.from_logits or Predictions.from_probs."
        )
    choice = choose(content, options)
    for name in options.extra:
        if name not in content.names:
            raise UnknownNameError(f"{content.title} must have the {content.noun} {name!r}; found {_shown(content)}.")
    try:
        predictions = assemble(content, choice)
        return Loaded(predictions, choice, content, _extra(content, options.extra, len(predictions)))
    except InputError as error:
        if content.path is None or isinstance(error, FileError):
            raise
        raise FileError(f"{content.title}: ", *error.args) from error


def choose(content: Content, options: LoadOptions) -> ColumnChoice:
    """Decide by name what to read from a source; exactly one complete set of names must be there."""
    kinds = _kinds(options)
    incomplete: list[tuple[Kind, bool]] = []  # kinds of which only one half is present; True: the scores
    for kind in kinds:
        if kind != "top-label":
            scores, class_names = _score_names(content, kind, options.scores)
            labels = _find_column(content, _LABELS, options.labels, "labels")
        else:
            confidence = _find_column(content, ("confidence",), options.confidence, "confidence")
            scores, class_names = ((confidence,) if confidence else ()), None
            labels = _find_column(content, ("correct",), options.correct, "correct")
        if scores and (labels or not options.labels_needed):
            return ColumnChoice(kind, scores, labels, class_names)
        if scores or (labels and kind == "top-label"):
            incomplete.append((kind, bool(scores)))
    if incomplete:
        kind, has_scores = incomplete[0]
        raise _missing_columns_error(content, (kind,), lacks_scores=not has_scores, lacks_labels=has_scores)
    lacks_labels = options.labels_needed and _find_column(content, _LABELS, options.labels, "labels") is None
    raise _missing_columns_error(content, kinds, lacks_labels=lacks_labels, labels_needed=options.labels_needed)


def is_reserved_name(name: str) -> bool:
    """Return whether a column name is reserved for scores or labels."""
    known = {*_LABELS, "predictions", "confidence", "correct"}.union(*_SCORES.values())
    return name in known or name.startswith(tuple(PREFIXES.values()))


def _kinds(options: LoadOptions) -> tuple[Kind, ...]:
    """Return the kinds that the options allow, in order of preference."""
    kind = options.kind
    if kind is not None and kind not in get_args(Kind):
        raise UnknownNameError(f"kind must be 'logits', 'probs' or 'top-label'; got {kind!r}.")
    top = options.confidence is not None or options.correct is not None
    full = options.scores is not None or options.labels is not None
    if (top and full) or (top and kind not in {None, "top-label"}) or (full and kind == "top-label"):
        raise InputError(
            *(Argument("confidence"), " and ", Argument("correct"), " belong to ", Argument("kind", "top-label"), ", "),
            *(Argument("scores"), " and ", Argument("labels"), " to ", Argument("kind", "logits"), " or "),
            *(Argument("kind", "probs"), "; got both. Leave one pair out."),
        )
    if kind is not None:
        return (kind,)
    if top:
        return ("top-label",)
    if options.scores is not None:
        for named, prefix in PREFIXES.items():
            if options.scores in _SCORES[named] or options.scores == prefix:
                return (named,)
        raise InputError(
            Argument("scores", options.scores),
            *(" needs ", Argument("kind", "logits"), " or ", Argument("kind", "probs")),
            ", because the name does not tell which.",
        )
    return ("logits", "probs") if full or not options.labels_needed else ("logits", "probs", "top-label")


def _find_column(content: Content, known: tuple[str, ...], requested: str | None, option: str) -> str | None:
    """Return the name that was requested or is known, or None if it is not in the source."""
    if requested is not None and requested not in content.names:
        raise UnknownNameError(
            Argument(option, requested),
            f" must be among the {content.noun}s of {content.title}; found {_shown(content)}.",
        )
    names = [name for name in content.names if (name in known if requested is None else name == requested)]
    if len(names) > 1:
        raise content.error(
            f"{content.title} must have one {content.noun} of {option}; found {', '.join(map(repr, names))}. ",
            *(("Pass ", Argument(option, names[0]), " or the other.") if len(set(names)) > 1 else ("Rename one.",)),
        )
    return names[0] if names else None


def _score_names(content: Content, kind: Kind, requested: str | None) -> _ScoreNames:
    if requested is not None and requested not in content.names:
        group = _group(content, requested)
        if group is None:
            raise UnknownNameError(
                Argument("scores", requested),
                f" must be among the {content.noun}s of {content.title}, or be what the names of at least two of them "
                f"start with; found {_shown(content)}.",
            )
        return group
    known = _SCORES[kind]
    if kind == "probs" and "ground_truth" in content.names:
        known = (*known, "predictions")
    whole = _find_column(content, known, requested, "scores")
    group = None if requested is not None else _group(content, PREFIXES[kind])
    if whole and group:
        raise content.error(
            f"{content.title} must have one set of {kind}; found {whole!r} and {group[0][0]!r}, {group[0][1]!r}, ... ",
            *("Pass ", Argument("kind", kind), " with ", Argument("scores", whole), " or "),
            *(Argument("scores", PREFIXES[kind]), "."),
        )
    return group or ((whole,) if whole else (), None)


def _group(content: Content, prefix: str) -> _ScoreNames | None:
    """Return the names with a prefix, in the order of the classes; None if there are fewer than two."""
    names = [name for name in content.names if name.startswith(prefix)]
    if len(names) < 2:
        return None
    suffixes = [name.removeprefix(prefix) for name in names]
    numbered = [suffix.isascii() and suffix.isdecimal() for suffix in suffixes]
    if any(numbered) and not all(numbered):
        raise content.error(
            f"the {content.noun}s {prefix}* of {content.title} must end in numbers, or all in class names; found "
            f"{names[numbered.index(True)]!r} and {names[numbered.index(False)]!r}. Rename or remove the wrong one."
        )
    classes = [int(suffix) for suffix in suffixes] if all(numbered) else suffixes
    twice, times = Counter(classes).most_common(1)[0]
    if times > 1:
        raise content.error(f"{content.title} must have one {content.noun} {prefix}{twice}; found {times}. Rename one.")
    if not all(numbered):
        return tuple(names), tuple(suffixes)
    by_class = dict(zip(classes, names, strict=True))
    gap = next((number for number in range(len(names)) if number not in by_class), None)
    if gap is not None:
        raise content.error(
            f"the {content.noun}s {prefix}* of {content.title} must be numbered from 0 without a gap; "
            f"{prefix}{gap} is missing (found {names[0]!r} to {names[-1]!r}). Add it, or rename the others."
        )
    return tuple(by_class[number] for number in range(len(names))), None


_SHOWN = 8
_NEEDED = {
    "logits": "'logits' (or 'logit_0', 'logit_1', ...)",
    "probs": "'probs' (or 'probabilities', or 'prob_0', 'prob_1', ...)",
    "top-label": "'confidence' with 'correct'",
}
_LIKE = {
    "labels": ("label", "labels", "target", "targets", "ground_truth", "y", "y_true", "true", "class", "gt"),
    "confidence": ("confidence", "confidences", "conf", "score"),
    "correct": ("correct", "is_correct", "right", "accuracy"),
}


def _missing_columns_error(
    content: Content,
    kinds: Sequence[Kind],
    *,
    lacks_scores: bool = True,
    lacks_labels: bool = True,
    labels_needed: bool = True,
) -> InputError:
    """Return the error for a source without a complete set of names; it suggests likely ones."""
    needed = ", or ".join(_NEEDED[kind] + " with 'labels'" * (labels_needed and kind != "top-label") for kind in kinds)
    options: list[str | Argument] = []
    if list(kinds) == ["top-label"]:
        for name in ("confidence", "correct"):
            if name not in content.names:
                options += [", ", _suggested(name, _like(content, name))]
    else:
        if lacks_scores and len(kinds) > 1:
            options += [", ", Argument("kind", "logits"), " (or ", Argument("kind", "probs"), ")"]
        if lacks_scores:
            options += [", ", _suggested("scores", _scores_like(content))]
        if lacks_labels:
            options += [", ", _suggested("labels", _like(content, "labels"))]
    hint = f" {content.hint}" if content.hint else ""
    found = f"{content.title} must have {content.noun}s {needed}; found {_shown(content)}.{hint} "
    return content.error(found, "Rename the intended one, or pass ", *options[1:], ".")


def _shown(content: Content) -> str:
    """Return the first names of a source, with their shapes where these are known."""
    listed = []
    for name in content.names[:_SHOWN]:
        shape = content.shape(name) if content.names.count(name) == 1 else (None,)  # a repeated name has no one shape
        size = " x ".join("?" if size is None else str(size) for size in shape)
        listed.append(repr(name) if shape == (None,) else f"{name!r} ({size})")
    rest = len(content.names) - _SHOWN
    return (", ".join(listed) or "nothing") + (f" and {rest} more" if rest > 0 else "")


def _suggested(option: str, value: str | None) -> Argument:
    return Argument(option, "NAME", is_literal=False) if value is None else Argument(option, value)


def _scores_like(content: Content) -> str | None:
    """Return the name of the only matrix, or the prefix of numbered names, that could be the scores."""
    ends = Counter(match[1] for name in content.names if (match := re.fullmatch(r"(.*\D)\d+", name)))
    if ends and ends.most_common(1)[0][1] > 1:
        prefix = ends.most_common(1)[0][0]
        return None if prefix in PREFIXES.values() else prefix
    wide = [name for name in content.names[:_SHOWN] if content.names.count(name) == 1 and len(content.shape(name)) == 2]
    return wide[0] if len(wide) == 1 and not is_reserved_name(wide[0]) else None


def _like(content: Content, option: str) -> str | None:
    """Return a name that differs from a usual one in case or by a letter."""
    lowered = {name.lower(): name for name in reversed(content.names)}
    for word in _LIKE[option]:
        if word in lowered:
            return lowered[word]
    close = get_close_matches(_LIKE[option][0], list(lowered), n=1, cutoff=0.8)
    return lowered[close[0]] if close else None


def assemble(content: Content, choice: ColumnChoice) -> Predictions | TopLabel:
    """Read the chosen names and build the record."""
    names = choice.scores if choice.labels is None else (*choice.scores, choice.labels)
    columns = content.read(names, choice.labels if choice.kind != "top-label" else None)
    scores = _as_matrix([_numbers(columns[name], name) for name in choice.scores])
    if choice.kind == "top-label":
        assert choice.labels is not None
        correct = columns[choice.labels]
        return TopLabel(scores, truths(correct, repr(choice.labels)) if isinstance(correct, Words) else correct)
    if choice.class_names and content.class_names and choice.class_names != content.class_names:
        raise InputError(
            f"the names of the scores and class_names must agree; got {choice.class_names[0]!r}, "
            f"{choice.class_names[1]!r}, ... and {', '.join(map(repr, content.class_names[:2]))}, ..."
        )
    class_names = content.class_names or choice.class_names
    if choice.labels is not None:
        labels = _labels(columns[choice.labels], choice.labels, class_names)
    elif scores.ndim == 2 and scores.shape[1] > 1 and scores.dtype != torch.bool and not scores.is_complex():
        labels = scores.argmax(dim=1)  # placeholder labels that pass the checks
    else:
        labels = torch.zeros(scores.shape[:1], dtype=torch.int64)
    if choice.kind == "probs":
        return Predictions.from_probs(scores, labels, class_names=class_names)
    if scores.ndim == 1 or (scores.ndim == 2 and scores.shape[1] == 1):
        return Predictions.from_binary_logits(scores, labels, class_names=class_names)
    return Predictions.from_logits(scores, labels, class_names=class_names)


def _as_matrix(columns: Sequence[Tensor]) -> Tensor:
    """Return several columns as a matrix, in float64 if their types differ; a single one unchanged."""
    if len(columns) == 1:
        return columns[0]
    if len({column.shape for column in columns}) > 1 or columns[0].ndim != 1:
        shapes = sorted({tuple(column.shape) for column in columns})
        raise InputError(f"scores of one class each must have one number a row, shape (n,); got shapes {shapes}.")
    if len({column.dtype for column in columns}) > 1:
        columns = [column.double() for column in columns]
    return torch.stack(list(columns)).T.contiguous()


def _numbers(column: Column, name: str) -> Tensor:
    if isinstance(column, Tensor):
        return column

    def is_not_numeric(word: str) -> bool:
        try:
            float(word)
        except ValueError:
            return True
        return False

    row, word = column.first(is_not_numeric) or (0, column.distinct[0])
    raise InputError(f"{name!r} must hold numbers; got the text {word!r} at row {row}.")


def _labels(column: Column, name: str, class_names: tuple[str, ...] | None) -> Tensor:
    """Return class numbers unchanged, and words as the numbers of their classes."""
    if isinstance(column, Tensor):
        return column
    return class_numbers(column, class_names, name=repr(name))


def _extra(content: Content, names: tuple[str, ...], n: int) -> Arrays:
    """Read other columns by name, one entry per sample; those of a CSV file are numbers if all their rows are."""
    columns = content.read(names, names) if names else {}
    for name, column in columns.items():
        shape = tuple((column.codes if isinstance(column, Words) else column).shape)
        if shape != (n,):
            raise InputError(f"{name!r} must have one entry per sample, shape ({n},); got {shape}.")
    return columns


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
            f"a file of features must end in .npz or .safetensors; {file} ends in {suffix!r}. "
            f"Save it with numpy.savez(path, {name}=array)."
        )
    content = OPENERS[suffix](file)
    if name not in content.names:
        choice = Argument("name", "NAME", is_literal=False)
        raise UnknownNameError(
            f"{file} must have an array {name!r}; found {_shown(content)}. Choose one: ", choice, "."
        )
    column = content.read((name,), None)[name]
    if not isinstance(column, Tensor):
        raise FileError(f"{file}: {name!r} must hold numbers; it holds text.")
    try:
        return as_features(column, rows=rows, name=repr(name))
    except InputError as error:
        raise FileError(f"{file}: ", *error.args) from error
