"""Which names mean what: the only place where a source's arrays or columns are given a meaning.

=============  ===================================================================================================
meaning        names
=============  ===================================================================================================
logits         ``logits`` or ``logit``: (n, k), or (n,) and (n, 1) for two classes;
               or ``logit_0``, ``logit_1``, ... one a class
probabilities  ``probs``, ``prob`` or ``probabilities``: (n, k); or ``prob_0``, ``prob_1``, ... one a class;
               netcal's ``predictions``, if its ``ground_truth`` stands beside it
labels         ``labels``, ``label``, ``targets`` or ``ground_truth``
top label      ``confidence`` and ``correct``
class names    ``class_names``; or words in place of numbers: ``prob_cat``, ``prob_dog``, ...
=============  ===================================================================================================

Logits go before probabilities, and both before the top label, unless ``kind`` says otherwise. Two names for the same
thing are an error, because either could be meant. Upper and lower case differ.
"""

from dataclasses import dataclass
from typing import Literal, final, get_args

from calibrant.errors import InputError, UnknownNameError
from calibrant.files.content import Content
from calibrant.files.group import Scores, group_of
from calibrant.files.missing import missing, shown

__all__ = ["Choice", "Kind", "Wish", "choose", "has_meaning"]

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
            "confidence= and correct= belong to kind='top-label', scores= and labels= to kind='logits' or 'probs'; "
            "got both. Leave one pair out."
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
        f"scores={scores!r} must come with what they are, because the name does not say; "
        "add kind='logits' or kind='probs'."
    )


def _one(content: Content, known: tuple[str, ...], asked: str | None, option: str) -> str | None:
    """The one name asked for or known, or None if there is none."""
    if asked is not None and asked not in content.names:
        raise UnknownNameError(
            f"{option}={asked!r} must be among the {content.noun}s of {content.title}; found {shown(content)}."
        )
    found = [name for name in content.names if (name in known if asked is None else name == asked)]
    if len(found) > 1:
        raise content.error(
            f"{content.title} must have one {content.noun} of {option}; found {', '.join(map(repr, found))}. "
            + (f"Pass {option}={found[0]!r} or the other." if len(set(found)) > 1 else "Rename or remove one.")
        )
    return found[0] if found else None


def _scores(content: Content, kind: Kind, asked: str | None) -> Scores:
    """Names of the scores and, if they say so, of the classes."""
    if asked is not None and asked not in content.names:
        group = group_of(content, asked)
        if group is None:
            raise UnknownNameError(
                f"scores={asked!r} must be among the {content.noun}s of {content.title}, "
                f"or be what the names of at least two of them start with; found {shown(content)}."
            )
        return group
    known = SCORES[kind]
    if kind == "probs" and "ground_truth" in content.names:
        known = (*known, "predictions")
    whole = _one(content, known, asked, "scores")
    group = None if asked is not None else group_of(content, PREFIXES[kind])
    if whole and group:
        raise content.error(
            f"{content.title} must have one set of {kind}; found {whole!r} and {group[0][0]!r}, {group[0][1]!r}, ... "
            f"Pass kind={kind!r} with scores={whole!r} or scores={PREFIXES[kind]!r}."
        )
    return group or ((whole,) if whole else (), None)
