"""Load predictions, scores to calibrate, and features, from a file, a data frame or a mapping of arrays."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, final

import torch
from torch import Tensor

from calibrant.errors import Argument, FileError, InputError, UnknownNameError
from calibrant.files.archives import open_mapping, open_npz, open_safetensors, open_torch
from calibrant.files.columns import Choice, Kind, Wish, can_hold, choose, names_beside, read_beside, shown
from calibrant.files.save import write_arrays
from calibrant.files.source import Column, Content, existing_file, suffix_of
from calibrant.files.tables import is_frame, open_arrow, open_csv, open_frame, open_parquet
from calibrant.numerics.neighbours import as_features
from calibrant.predictions import Predictions, TopLabel

__all__ = [
    "OPENERS",
    "Loaded",
    "Scores",
    "assemble",
    "load",
    "load_as_wished",
    "load_features",
    "load_scores",
    "save_scores",
]


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
