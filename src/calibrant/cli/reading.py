"""Reading the file that a command was given."""

from pathlib import Path

from torch import Tensor

from calibrant.cli.options import Names
from calibrant.errors import FileError, InputError
from calibrant.files import load, load_features
from calibrant.predictions import Predictions, TopLabel

__all__ = ["read", "read_features", "read_predictions", "refuse_features"]


def read(path: Path, names: Names) -> Predictions | TopLabel:
    """What the file holds."""
    return load(
        path,
        kind=names.kind,  # type: ignore[arg-type]  # the command line offers only the three kinds
        scores=names.scores,
        labels=names.labels,
        confidence=names.confidence,
        correct=names.correct,
    )


def read_predictions(path: Path, names: Names) -> Predictions:
    """The scores of every class and the labels.

    Raises:
        FileError: If the file holds the confidence of the top label only.
    """
    found = read(path, names)
    if isinstance(found, TopLabel):
        raise FileError(
            f"{path} must have logits or probabilities of every class to be calibrated; it has only the confidence of "
            "the predicted one and whether it was right. Save the model's logits."
        )
    return found


def read_features(path: Path, name: str | None, predictions: Predictions) -> Tensor:
    """The features that stand beside the predictions, under the name ``features`` unless another is given."""
    return load_features(path, name=name or "features", rows=len(predictions))


def refuse_features(name: str | None, method: str) -> None:
    """Features that were named, and that nothing would look at.

    Raises:
        InputError: If they were.
    """
    if name is not None:
        raise InputError(f"--features must be left out: {method} does not look at features.")
