"""The meaning of names: which arrays or columns of a source are scores, labels, weights or anything else."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import PurePosixPath, PureWindowsPath
from typing import Literal, TypeAlias, final, get_args

from torch import Tensor

from calibrant.errors import Argument, InputError, UnknownNameError
from calibrant.files.source import Column, Content, Words, suffix_of

__all__ = [
    "Choice",
    "Kind",
    "Scores",
    "Wish",
    "can_hold",
    "choose",
    "group_of",
    "has_meaning",
    "missing",
    "names_beside",
    "read_beside",
    "shown",
]

Scores = tuple[tuple[str, ...], tuple[str, ...] | None]  # the names of the scores and, if these say so, of the classes


def group_of(content: Content, prefix: str) -> Scores | None:
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
            found: Scores = ((confidence,) if confidence else (), None)
        else:
            found = _scores(content, kind, wish.scores)
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


def _scores(content: Content, kind: Kind, asked: str | None) -> Scores:
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
