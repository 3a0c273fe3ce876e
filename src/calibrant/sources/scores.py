"""Scores to be calibrated: read with labels or without, and written as they were given, logits or probabilities."""

import os
from dataclasses import dataclass
from typing import Literal, final

from calibrant.errors import FileError
from calibrant.predictions import Predictions
from calibrant.sources.columns import Kind, Wish
from calibrant.sources.load import load_as_wished
from calibrant.sources.save import write_arrays

__all__ = ["Scores", "load_scores", "save_scores"]


@final
@dataclass(frozen=True, eq=False)
class Scores:
    """Predictions that need no labels: a model in use has none yet.

    Args:
        predictions: The rows. Without labels, the predicted class stands in for them.
        kind: What the file held, and what it is to hold again.
        labelled: Whether the labels are the file's.
    """

    predictions: Predictions
    kind: Literal["logits", "probs"]
    labelled: bool


def load_scores(
    path: str | os.PathLike[str], *, kind: Kind | None = None, scores: str | None = None, labels: str | None = None
) -> Scores:
    """Read logits or probabilities, and labels if there are any; names are understood as by :func:`calibrant.load`.

    Raises:
        FileError: If the file cannot be read, or has no scores of every class.
        UnknownNameError: If a name that was given is not in it.
    """
    found, choice = load_as_wished(path, Wish(kind, scores, labels, labels_needed=False))
    if not isinstance(found, Predictions) or choice.kind == "top-label":
        raise FileError(f"{os.fspath(path)} must have logits or probabilities of every class; it has the top label's.")
    return Scores(found, choice.kind, choice.labels is not None)


def save_scores(scores: Scores, path: str | os.PathLike[str]) -> None:
    """Write logits or probabilities, with the labels and the classes' names if the source had them.

    Raises:
        FileError: If the ending is not known, the file cannot be written, or CSV cannot hold the class names.
    """
    rows = scores.predictions
    arrays = {scores.kind: rows.probs if scores.kind == "probs" else rows.logits}
    write_arrays(arrays | ({"labels": rows.labels} if scores.labelled else {}), rows.class_names, path)
