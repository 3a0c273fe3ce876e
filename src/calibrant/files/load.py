"""``load``: predictions from a file, a data frame or a mapping of arrays."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, final

from calibrant.errors import FileError, InputError
from calibrant.files.archive import open_mapping, open_npz, open_safetensors, open_torch
from calibrant.files.assemble import assemble
from calibrant.files.columns import Choice, Kind, Wish, choose
from calibrant.files.content import Content
from calibrant.files.formats import existing_file, suffix_of
from calibrant.files.table import is_frame, open_arrow, open_csv, open_frame, open_parquet
from calibrant.predictions import Predictions, TopLabel

__all__ = ["OPENERS", "Loaded", "load", "load_as_wished"]

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
    :mod:`calibrant.files.columns`. One logit a row means two classes. Number types are kept; a CSV file has only
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
        InputError: The same as the first, of a source in memory; or options that contradict each other.

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
        raise FileError(f"{content.title}: {error}") from error


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
