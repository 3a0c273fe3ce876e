"""Scores to be calibrated: read with labels or without, and written as they were given, logits or probabilities."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, final

import torch
from torch import Tensor

from calibrant.errors import FileError
from calibrant.files.beside import can_hold, names_beside, read_beside
from calibrant.files.columns import Kind, Wish
from calibrant.files.content import Column
from calibrant.files.formats import suffix_of
from calibrant.files.load import Loaded, load_as_wished
from calibrant.files.save import write_arrays
from calibrant.predictions import Predictions

__all__ = ["Scores", "load_scores", "save_scores"]


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
