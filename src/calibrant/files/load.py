"""Load predictions and features: names decide what the numbers are, and values are never looked at to find out."""

import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Literal, NamedTuple, TypeAlias, final, get_args

import torch
from torch import Tensor

from calibrant.checks import existing_file
from calibrant.errors import Argument, FileError, InputError, UnknownNameError
from calibrant.files.save import write_arrays
from calibrant.files.source import (
    Column,
    Content,
    Words,
    open_mapping,
    open_npz,
    open_safetensors,
    open_torch,
    suffix_of,
)
from calibrant.files.tables import is_frame, open_arrow, open_csv, open_frame, open_parquet
from calibrant.numerics.neighbours import as_features
from calibrant.predictions import Predictions, TopLabel

__all__ = [
    "OPENERS",
    "Choice",
    "Kind",
    "Loaded",
    "ScoreNames",
    "Scores",
    "Wish",
    "assemble",
    "can_hold",
    "choose",
    "group_of",
    "has_meaning",
    "load",
    "load_as_wished",
    "load_features",
    "load_scores",
    "missing",
    "names_beside",
    "read_beside",
    "save_scores",
    "shown",
]

ScoreNames = tuple[
    tuple[str, ...], tuple[str, ...] | None
]  # the names of the scores and, if these say so, of the classes


def group_of(content: Content, prefix: str) -> ScoreNames | None:
    """Names that start alike, in the order of the classes; None if there are fewer than two.

    Raises:
        InputError: If the numbers have a gap, stand twice, or are mixed with words. A FileError if it is a file.
    """
    names = [name for name in content.names if name.startswith(prefix)]
    if len(names) < 2:
        return None
    suffixes = [name.removeprefix(prefix) for name in names]
    numbered = [suffix.isascii() and suffix.isdecimal() for suffix in suffixes]
    if any(numbered) and not all(numbered):
        raise content.error(
            f"the {content.noun}s {prefix}* of {content.title} must end in numbers, or all in class names; found "
            f"{names[numbered.index(True)]!r} and {names[numbered.index(False)]!r}. Rename or remove what is no score."
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


Kind = Literal["logits", "probs", "top-label"]

LABELS = ("labels", "label", "targets", "ground_truth")
SCORES: dict[Kind, tuple[str, ...]] = {
    "logits": ("logits", "logit"),
    "probs": ("probs", "prob", "probabilities"),
    "top-label": (),
}
PREFIXES: dict[Kind, str] = {"logits": "logit_", "probs": "prob_"}


@final
@dataclass(frozen=True)
class Wish:
    """What the caller said about the source; None where nothing was said."""

    kind: Kind | None = None
    scores: str | None = None
    labels: str | None = None
    confidence: str | None = None
    correct: str | None = None
    labels_needed: bool = True


@final
@dataclass(frozen=True)
class Choice:
    """What to read, and what it is.

    Args:
        kind: What the scores are.
        scores: One name, or one a class in the order of the classes. For the top label, the confidence.
        labels: The labels; for the top label, whether it was right. None if there are none and none are needed.
        class_names: The words in the names of the scores, if they are words.
    """

    kind: Kind
    scores: tuple[str, ...]
    labels: str | None
    class_names: tuple[str, ...] | None = None


def choose(content: Content, wish: Wish) -> Choice:
    """Settle by name what to read from a source.

    Raises:
        UnknownNameError: If a name that was asked for is not there, or ``kind`` is none of the three.
        InputError: If no complete set of names is there, or more than one. A FileError if the source is a file.
    """
    kinds = _kinds(wish)
    begun: list[tuple[Kind, bool]] = []  # the kinds of which one half is there, and whether that is the scores
    for kind in kinds:
        if kind == "top-label":
            confidence = _one(content, ("confidence",), wish.confidence, "confidence")
            correct = _one(content, ("correct",), wish.correct, "correct")
            found: ScoreNames = ((confidence,) if confidence else (), None)
        else:
            found = _score_names(content, kind, wish.scores)
            correct = _one(content, LABELS, wish.labels, "labels")
        scores, class_names = found
        if scores and (correct or not wish.labels_needed):
            return Choice(kind, scores, correct, class_names)
        if scores or (correct and kind == "top-label"):
            begun.append((kind, bool(scores)))
    if begun:
        kind, has_scores = begun[0]
        raise missing(content, (kind,), lacks_scores=not has_scores, lacks_labels=has_scores)
    lacks_labels = wish.labels_needed and _one(content, LABELS, wish.labels, "labels") is None
    raise missing(content, kinds, lacks_labels=lacks_labels, labels_needed=wish.labels_needed)


def has_meaning(name: str) -> bool:
    """Whether a name stands for scores or labels of some kind.

    Example:
        >>> has_meaning("prob_cat"), has_meaning("features")
        (True, False)
    """
    known = {*LABELS, "predictions", "confidence", "correct"}.union(*SCORES.values())
    return name in known or name.startswith(tuple(PREFIXES.values()))


def _kinds(wish: Wish) -> tuple[Kind, ...]:
    """The kinds that may be meant, in order of preference."""
    if wish.kind is not None and wish.kind not in get_args(Kind):
        raise UnknownNameError(f"kind must be 'logits', 'probs' or 'top-label'; got {wish.kind!r}.")
    top = wish.confidence is not None or wish.correct is not None
    full = wish.scores is not None or wish.labels is not None
    if (top and full) or (top and wish.kind not in {None, "top-label"}) or (full and wish.kind == "top-label"):
        raise InputError(
            *(Argument("confidence"), " and ", Argument("correct"), " belong to ", Argument("kind", "top-label"), ", "),
            *(Argument("scores"), " and ", Argument("labels"), " to ", Argument("kind", "logits"), " or "),
            *(Argument("kind", "probs"), "; got both. Leave one pair out."),
        )
    if wish.kind is not None:
        return (wish.kind,)
    if top:
        return ("top-label",)
    if wish.scores is not None:
        return (_kind_named(wish.scores),)
    return ("logits", "probs") if full or not wish.labels_needed else ("logits", "probs", "top-label")


def _kind_named(scores: str) -> Kind:
    for kind, prefix in PREFIXES.items():
        if scores in SCORES[kind] or scores == prefix:
            return kind
    raise InputError(
        Argument("scores", scores),
        " must come with what they are, because the name does not say; add ",
        *(Argument("kind", "logits"), " or ", Argument("kind", "probs"), "."),
    )


def _one(content: Content, known: tuple[str, ...], asked: str | None, option: str) -> str | None:
    """The one name asked for or known, or None if there is none."""
    if asked is not None and asked not in content.names:
        raise UnknownNameError(
            Argument(option, asked), f" must be among the {content.noun}s of {content.title}; found {shown(content)}."
        )
    found = [name for name in content.names if (name in known if asked is None else name == asked)]
    if len(found) > 1:
        raise content.error(
            f"{content.title} must have one {content.noun} of {option}; found {', '.join(map(repr, found))}. ",
            *(("Pass ", Argument(option, found[0]), " or the other.") if len(set(found)) > 1 else ("Rename one.",)),
        )
    return found[0] if found else None


def _score_names(content: Content, kind: Kind, asked: str | None) -> ScoreNames:
    """Names of the scores and, if they say so, of the classes."""
    if asked is not None and asked not in content.names:
        group = group_of(content, asked)
        if group is None:
            raise UnknownNameError(
                Argument("scores", asked),
                f" must be among the {content.noun}s of {content.title}, or be what the names of at least two of them "
                f"start with; found {shown(content)}.",
            )
        return group
    known = SCORES[kind]
    if kind == "probs" and "ground_truth" in content.names:
        known = (*known, "predictions")
    whole = _one(content, known, asked, "scores")
    group = None if asked is not None else group_of(content, PREFIXES[kind])
    if whole and group:
        raise content.error(
            f"{content.title} must have one set of {kind}; found {whole!r} and {group[0][0]!r}, {group[0][1]!r}, ... ",
            *("Pass ", Argument("kind", kind), " with ", Argument("scores", whole), " or "),
            *(Argument("scores", PREFIXES[kind]), "."),
        )
    return group or ((whole,) if whole else (), None)


_Option: TypeAlias = tuple[str | Argument, ...]
_SHOWN = 8
_NEEDED = {
    "logits": "'logits' (or 'logit_0', 'logit_1', ...)",
    "probs": "'probs' (or 'probabilities', or 'prob_0', 'prob_1', ...)",
    "top-label": "'confidence' with 'correct'",
}
_LABEL_LIKE = ("label", "labels", "target", "targets", "ground_truth", "y", "y_true", "true", "class", "gt")
_OPTION_LIKE = {
    "confidence": ("confidence", "confidences", "conf", "score"),
    "correct": ("correct", "is_correct", "right", "accuracy"),
}


def missing(
    content: Content,
    kinds: Sequence[str],
    *,
    lacks_scores: bool = True,
    lacks_labels: bool = True,
    labels_needed: bool = True,
) -> InputError:
    """The error for a source without a complete set of names."""
    needed = ", or ".join(_NEEDED[kind] + " with 'labels'" * (labels_needed and kind != "top-label") for kind in kinds)
    if list(kinds) == ["top-label"]:
        lacking = [name for name in ("confidence", "correct") if name not in content.names]
        options = [_option(name, _like(content, _OPTION_LIKE[name])) for name in lacking]
    else:
        options = _options(content, kinds, lacks_scores=lacks_scores, lacks_labels=lacks_labels)
    hint = f" {content.hint}" if content.hint else ""
    return content.error(
        f"{content.title} must have {content.noun}s {needed}; found {shown(content)}.{hint} ",
        "Rename what is meant, or pass ",
        *[part for option in options for part in (", ", *option)][1:],
        ".",
    )


def shown(content: Content) -> str:
    """The first names of a source, with their shapes where these tell anything."""
    listed = [f"{name!r}{_size(content, name)}" for name in content.names[:_SHOWN]]
    rest = len(content.names) - _SHOWN
    return (", ".join(listed) or "nothing") + (f" and {rest} more" if rest > 0 else "")


def _size(content: Content, name: str) -> str:
    # A name that stands twice has no one shape.
    shape = content.shape(name) if content.names.count(name) == 1 else (None,)
    if shape == (None,):
        return ""
    return f" ({' x '.join('?' if size is None else str(size) for size in shape)})"


def _options(content: Content, kinds: Sequence[str], *, lacks_scores: bool, lacks_labels: bool) -> list[_Option]:
    """The arguments that would name what is missing, with the likely name in them; nothing is taken without them."""
    options: list[_Option] = []
    if lacks_scores:
        if len(kinds) > 1:
            options.append((Argument("kind", "logits"), " (or ", Argument("kind", "probs"), ")"))
        options.append(_option("scores", _scores_like(content)))
    if lacks_labels:
        options.append(_option("labels", _like(content, _LABEL_LIKE)))
    return options


def _option(name: str, value: str | None) -> _Option:
    return (Argument(name, "NAME", is_literal=False) if value is None else Argument(name, value),)


def _scores_like(content: Content) -> str | None:
    """A lone matrix, or a run of numbered names, that could be the scores."""
    ends = Counter(match[1] for name in content.names if (match := re.fullmatch(r"(.*\D)\d+", name)))
    if ends and ends.most_common(1)[0][1] > 1:
        prefix = ends.most_common(1)[0][0]
        return None if prefix in {"logit_", "prob_"} else prefix
    wide = [name for name in content.names[:_SHOWN] if content.names.count(name) == 1 and len(content.shape(name)) == 2]
    return wide[0] if len(wide) == 1 and wide[0] not in {"logits", "logit", "probs", "prob", "probabilities"} else None


def _like(content: Content, words: Sequence[str]) -> str | None:
    """A name that differs from one of these in case or by a letter."""
    lowered = {name.lower(): name for name in reversed(content.names)}
    for word in words:
        if word in lowered:
            return lowered[word]
    close = get_close_matches(words[0], list(lowered), n=1, cutoff=0.8)
    return lowered[close[0]] if close else None


_ARCHIVES = (".npz", ".pt", ".pth", ".safetensors")
_TENSORS_ONLY = (".pt", ".pth", ".safetensors")
_TAKEN = {"class_names", "file", "allow_pickle"}  # the last two are arguments of NumPy's savez


def names_beside(content: Content, choice: Choice) -> tuple[str, ...]:
    """Every name that was not chosen, in the source's order."""
    chosen = {*choice.scores, choice.labels}
    return tuple(dict.fromkeys(name for name in content.names if name not in chosen))


def read_beside(content: Content, choice: Choice, rows: int) -> dict[str, Column]:
    """What has one entry a row, such as features or identifiers, by name.

    Left out: other scores and labels, which would stand uncalibrated beside the new ones; what stands under one name
    twice, or under a name that leads out of an archive (``../``); what has another length, which is not even read; and
    all of a CSV file, whose text could only be guessed at ("007" is an identifier).

    Args:
        content: The source.
        choice: What of it are the scores and labels.
        rows: How many there are.
    """
    if content.where is not None and suffix_of(content.where).startswith(".csv"):
        return {}
    times = Counter(content.names)
    free = [
        name
        for name in names_beside(content, choice)
        if not has_meaning(name)
        and name not in _TAKEN
        and times[name] == 1
        and _stays_inside(name)
        and content.shape(name)[:1] in {(rows,), (None,)}
    ]
    read = _readable(content, free)
    return {name: column for name, column in read.items() if _length(column) == rows}


def can_hold(suffix: str, column: Column) -> bool:
    """Whether a file of that ending can hold it: matrices want an archive, and text is no tensor."""
    if isinstance(column, Words):
        return suffix not in _TENSORS_ONLY
    return suffix in _ARCHIVES or (column.ndim == 1 and not column.is_complex())


def _stays_inside(name: str) -> bool:
    """Whether a file of that name, which it is in an archive, would lie where the archive is unpacked."""
    path = PurePosixPath(name)
    outside = path.is_absolute() or ".." in path.parts or "\\" in name or PureWindowsPath(name).drive
    return name.isprintable() and not outside


def _readable(content: Content, names: Sequence[str]) -> dict[str, Column]:
    """All that can be read at all, by halves, so that one odd column costs few passes over the file."""
    try:
        return content.read(names, None) if names else {}
    except InputError:
        middle = len(names) // 2
        halves = (names[:middle], names[middle:]) if middle else ()
        return {name: column for half in halves for name, column in _readable(content, half).items()}


def _length(column: Column) -> int | None:
    values = column if isinstance(column, Tensor) else column.codes
    return values.shape[0] if values.ndim else None


def assemble(content: Content, choice: Choice) -> Predictions | TopLabel:
    """Read what was chosen and build the record it is for.

    Raises:
        InputError: If the values are not what their names promise.
    """
    names = choice.scores if choice.labels is None else (*choice.scores, choice.labels)
    columns = content.read(names, choice.labels if choice.kind != "top-label" else None)
    scores = _side_by_side([_numbers(columns[name], name) for name in choice.scores])
    if choice.kind == "top-label":
        assert choice.labels is not None
        return TopLabel(scores, _numbers(columns[choice.labels], choice.labels))
    class_names = _class_names(content, choice)
    if choice.labels is None:
        labels = _stand_ins(scores)
    else:
        labels = _labels(columns[choice.labels], choice.labels, class_names)
    if choice.kind == "probs":
        return Predictions.from_probs(scores, labels, class_names=class_names)
    if scores.ndim == 1 or (scores.ndim == 2 and scores.shape[1] == 1):
        return Predictions.from_binary_logits(scores, labels, class_names=class_names)
    return Predictions.from_logits(scores, labels, class_names=class_names)


def _side_by_side(columns: Sequence[Tensor]) -> Tensor:
    """One column as it is; several as the columns of a matrix, in float64 if their types differ."""
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
    row, word = column.first(_is_no_number) or (0, column.distinct[0])
    raise InputError(f"{name!r} must hold numbers; got the text {word!r} at row {row}.")


def _is_no_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return True
    return False


def _class_names(content: Content, choice: Choice) -> tuple[str, ...] | None:
    if choice.class_names and content.class_names and choice.class_names != content.class_names:
        raise InputError(
            f"the names of the scores and class_names must agree; got {choice.class_names[0]!r}, "
            f"{choice.class_names[1]!r}, ... and {', '.join(map(repr, content.class_names[:2]))}, ..."
        )
    return content.class_names or choice.class_names


def _stand_ins(scores: Tensor) -> Tensor:
    """Labels that no check objects to, for scores that have none: the predicted classes, or 0 of a single score."""
    comparable = scores.ndim == 2 and scores.shape[1] > 1 and scores.dtype != torch.bool and not scores.is_complex()
    return scores.argmax(dim=1) if comparable else torch.zeros(scores.shape[:1], dtype=torch.int64)


def _labels(column: Column, name: str, class_names: tuple[str, ...] | None) -> Tensor:
    """Class numbers as they are; words as the places of their classes."""
    if isinstance(column, Tensor):
        return column
    if class_names is None:
        row, word = column.first(lambda word: not word.strip().isdecimal()) or (0, column.distinct[0])
        raise InputError(
            f"{name!r} must hold class numbers 0, 1, ..., because there are no class names to look words up in; "
            f"got {word!r} at row {row}. Write class numbers, or give the class names: name the score columns "
            "prob_cat, prob_dog, ..., or add class_names."
        )
    places = {class_name: place for place, class_name in enumerate(class_names)}
    if len(places) < len(class_names):
        raise InputError(f"{name!r} must hold class numbers, because two classes have the same name; got words.")
    unknown = column.first(lambda word: word not in places)
    if unknown is not None:
        raise InputError(
            f"{name!r} must hold class names ({', '.join(map(repr, class_names[:5]))}{', ...' * (len(places) > 5)}) "
            f"or class numbers; got {unknown[1]!r} at row {unknown[0]}."
        )
    return torch.tensor([places[word] for word in column.distinct])[column.codes]


OPENERS: dict[str, Callable[[Path], Content]] = {
    ".arrow": open_arrow,
    ".csv": open_csv,
    ".csv.gz": open_csv,
    ".feather": open_arrow,
    ".npz": open_npz,
    ".parquet": open_parquet,
    ".pt": open_torch,
    ".pth": open_torch,
    ".safetensors": open_safetensors,
}


def load(
    source: Any,
    *,
    kind: Kind | None = None,
    scores: str | None = None,
    labels: str | None = None,
    confidence: str | None = None,
    correct: str | None = None,
) -> Predictions | TopLabel:
    """Read predictions. What the numbers are is told by their names, or by you; never by their values.

    Without options: ``logits`` (or ``logit_0``, ``logit_1``, ...) with ``labels``, else ``probs`` (or ``prob_0``, ...)
    with ``labels``, else ``confidence`` with ``correct``; every name that is known is listed in
    :mod:`calibrant.files.load`. One logit a row means two classes. Number types are kept; a CSV file has only
    float64.

    Args:
        source: The path of a ``.npz``, ``.safetensors``, ``.pt``, ``.csv``, ``.csv.gz``, ``.parquet``, ``.feather`` or
            ``.arrow`` file; or a data frame (pandas, polars, pyarrow, anything that speaks Arrow); or a mapping of
            names to arrays.
        kind: What the scores are: "logits", "probs" or "top-label".
        scores: Name of the array or column of scores, or what the names of their columns start with (``"p_"``).
        labels: Name of the labels. They are class numbers, or words where the source has class names.
        confidence: Name of the confidence, for "top-label".
        correct: Name of the column that says whether the answer was right, for "top-label".

    Returns:
        TopLabel for "top-label", else Predictions.

    Raises:
        FileError: If a file cannot be read, or what it holds are no predictions.
        UnknownNameError: If a name that was given is not in the source.
        InputError: If a source in memory lacks the names, or options contradict each other.

    Example:
        >>> load({"logits": [[2.0, 0.0], [0.0, 1.0]], "labels": [0, 1]})
        Predictions(n=2, classes=2, torch.float64, cpu)
        >>> load({"p": [[0.9, 0.1], [0.2, 0.8]], "y": [0, 1]}, kind="probs", scores="p", labels="y").predicted.tolist()
        [0, 1]
    """
    return load_as_wished(source, Wish(kind, scores, labels, confidence, correct)).record


@final
class Loaded(NamedTuple):
    """Predictions, which names they were read from, and all there was."""

    record: Predictions | TopLabel
    choice: Choice
    content: Content


def load_as_wished(source: Any, wish: Wish) -> Loaded:
    """Predictions, and where they come from; see :func:`load`."""
    content = _open(source)
    choice = choose(content, wish)
    try:
        return Loaded(assemble(content, choice), choice, content)
    except InputError as error:
        if content.where is None or isinstance(error, FileError):
            raise
        raise FileError(f"{content.title}: ", *error.args) from error


def _open(source: Any) -> Content:
    if isinstance(source, str | os.PathLike):
        path = existing_file(source)
        return OPENERS[suffix_of(path)](path)
    if is_frame(source):
        return open_frame(source)
    if isinstance(source, Mapping):
        return open_mapping(source)
    raise InputError(
        "the source must be the path of a file, a data frame or a mapping of names to arrays; "
        f"got {type(source).__name__}. For arrays, use Predictions.from_logits or Predictions.from_probs."
    )


@final
@dataclass(frozen=True, eq=False)
class Scores:
    """Predictions that need no labels: a model in use has none yet.

    Args:
        predictions: The rows. Without labels, the predicted class stands in for them.
        kind: What the file held, and what it is to hold again.
        labelled: Whether the labels are the file's.
        single: Shape of a row of scores, () or (1,), if two classes had one logit; None otherwise.
        others: What else the file has for every row, such as features.
        left: Names of what it has besides, and what is not to be written again.
    """

    predictions: Predictions
    kind: Literal["logits", "probs"]
    labelled: bool
    single: tuple[int, ...] | None = None
    others: Mapping[str, Column] = field(default_factory=dict)
    left: tuple[str, ...] = ()


def load_scores(
    path: str | os.PathLike[str], *, kind: Kind | None = None, scores: str | None = None, labels: str | None = None
) -> Scores:
    """Read logits or probabilities, labels if there are any, and what else there is for every row.

    Names are understood as by :func:`calibrant.load`.

    Raises:
        FileError: If the file cannot be read, or has no scores of every class.
        UnknownNameError: If a name that was given is not in it.
    """
    loaded = load_as_wished(path, Wish(kind, scores, labels, labels_needed=False))
    found, choice, content = loaded
    if not isinstance(found, Predictions) or choice.kind == "top-label":
        raise FileError(f"{os.fspath(path)} must have logits or probabilities of every class; it has the top label's.")
    others = read_beside(content, choice, len(found))
    left = tuple(name for name in names_beside(content, choice) if name not in others)
    return Scores(found, choice.kind, choice.labels is not None, _single(loaded, found), others, left)


def save_scores(scores: Scores, path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Write logits or probabilities, with the labels, the classes' names and what else the source had for every row.

    No probability is written as 0, which would claim that a class is impossible: what is smaller than the smallest
    normal number of its type is written as that number. One logit a row stays one, except in a CSV file with class
    names, which stand in the names of its columns.

    Returns:
        The names of the others that could not go along: matrices into a table, text into an archive of tensors.

    Raises:
        FileError: If the ending is not known, the file cannot be written, or CSV cannot hold the class names.
    """
    rows, suffix = scores.predictions, suffix_of(path)
    others = {name: column for name, column in scores.others.items() if can_hold(suffix, column)}
    one_a_row = scores.single is not None and not (rows.class_names and suffix.startswith(".csv"))
    arrays: dict[str, Column] = {scores.kind: _one_logit(scores) if one_a_row else _every_class(scores)}
    if scores.labelled:
        arrays["labels"] = rows.labels
    write_arrays(arrays | others, rows.class_names, path)
    return tuple(name for name in scores.others if name not in others)


def _every_class(scores: Scores) -> Tensor:
    if scores.kind == "logits":
        return scores.predictions.logits
    probs = scores.predictions.probs
    return probs.clamp(min=torch.finfo(probs.dtype).smallest_normal)


def _one_logit(scores: Scores) -> Tensor:
    assert scores.single is not None
    logits = scores.predictions.logits
    return (logits[:, 1] - logits[:, 0]).reshape(len(logits), *scores.single)


def _single(loaded: Loaded, predictions: Predictions) -> tuple[int, ...] | None:
    names = loaded.choice.scores
    if loaded.choice.kind != "logits" or len(names) > 1 or predictions.n_classes > 2:
        return None
    # Of two classes only, so that the scores of many are not read twice.
    column = loaded.content.read(names, None)[names[0]]
    assert isinstance(column, Tensor)
    row = tuple(column.shape[1:])
    return row if row in {(), (1,)} else None


_OPENERS: dict[str, Callable[[Path], Content]] = {".npz": open_npz, ".safetensors": open_safetensors}


def load_features(path: str | os.PathLike[str], *, name: str = "features", rows: int | None = None) -> Tensor:
    """Read the features that predictions were made from, one row a prediction.

    They can lie in the archive of the predictions themselves, or in one of their own. Nothing in the file is run.

    Args:
        path: A ``.npz`` or ``.safetensors`` file.
        name: Name of the array in the file.
        rows: How many there must be, ``len(predictions)``; not looked at unless given.

    Returns:
        Shape (n, d), in the type they were saved in.

    Raises:
        FileError: If the file cannot be read, or the array is not a matrix of finite numbers with so many rows.
        UnknownNameError: If there is no array of that name.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.savez(f"{folder}/test.npz", features=np.ones((3, 2), dtype=np.float32))
        ...     load_features(f"{folder}/test.npz", rows=3).shape
        torch.Size([3, 2])
    """
    file = existing_file(path, holding="features")
    suffix = file.suffix.lower()
    if suffix not in _OPENERS:
        raise FileError(
            f"a file of features must end in {' or '.join(_OPENERS)}; {file} ends in {suffix!r}. "
            f"Save it with numpy.savez(path, {name}=array)."
        )
    content = _OPENERS[suffix](file)
    if name not in content.names:
        raise UnknownNameError(
            f"{file} must have an array {name!r}; found {shown(content)}. Say which one is meant: ",
            Argument("name", "NAME", is_literal=False),
            ".",
        )
    column = content.read((name,), None)[name]
    if not isinstance(column, Tensor):
        raise FileError(f"{file}: {name!r} must hold numbers; it holds text.")
    try:
        return as_features(column, rows=rows, name=repr(name))
    except InputError as error:
        raise FileError(f"{file}: ", *error.args) from error
