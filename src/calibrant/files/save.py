"""Save predictions, one writer per format; load scores with all other columns, to save them again calibrated."""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, final

import numpy as np
import torch
from torch import Tensor

from calibrant.atomic import atomic_path, save_tensors
from calibrant.checks import stays_inside
from calibrant.errors import FileError, InputError
from calibrant.files.choose import LoadOptions, is_reserved_name
from calibrant.files.load import DELIMITED, in_module, load_detailed, suffix_is, suffix_of
from calibrant.files.source import Arrays, ClassNames, Column, Content, as_numpy
from calibrant.labels import Words
from calibrant.predictions import Predictions, TopLabel


def _write_npz(arrays: Arrays, names: ClassNames, file: Path, _is_laid_out: bool) -> None:
    held: dict[str, Any] = {name: as_numpy(array) for name, array in arrays.items()}
    if names is not None:
        held["class_names"] = np.array(names, dtype=np.str_)
    with file.open("wb") as opened:
        np.savez(opened, **held)


def _write_safetensors(arrays: Arrays, names: ClassNames, file: Path, _is_laid_out: bool) -> None:
    save_tensors(_tensors(arrays), file, None if names is None else {"class_names": json.dumps(names)})


def _tensors(arrays: Arrays) -> dict[str, Tensor]:
    words = [name for name, array in arrays.items() if isinstance(array, Words)]
    if words:
        raise FileError(f"an archive of tensors must hold numbers only; {words[0]!r} is text. Save as .npz.")
    return {name: array for name, array in arrays.items() if isinstance(array, Tensor)}


def _write_torch(arrays: Arrays, names: ClassNames, file: Path, _is_laid_out: bool) -> None:
    torch.save(_tensors(arrays) | ({} if names is None else {"class_names": list(names)}), file)


def _text(suffix: str, separator: str | None = None) -> "Writer":
    def write(arrays: Arrays, names: ClassNames, file: Path, is_laid_out: bool) -> None:
        in_module("text", "write_text")(arrays, names, file, suffix, is_laid_out, separator)

    return write


# The last argument: whether arrays are the columns of the table to write, with their own names.
Writer: TypeAlias = Callable[[Arrays, ClassNames, Path, bool], None]
WRITERS: dict[str, Writer] = {
    ".arrow": in_module("tables", "write_arrow"),
    ".feather": in_module("tables", "write_arrow"),
    ".npz": _write_npz,
    ".parquet": in_module("tables", "write_parquet"),
    ".pt": _write_torch,
    ".pth": _write_torch,
    ".safetensors": _write_safetensors,
    **{suffix: _text(suffix) for suffix in (".csv", ".csv.gz", ".jsonl", ".jsonl.gz", ".tsv", ".tsv.gz")},
}


def writable_suffix(path: str | os.PathLike[str]) -> str:
    """Return the ending of a file to write; a FileError if it is none of :data:`WRITERS`."""
    suffix = suffix_of(path)
    if suffix not in WRITERS:
        raise FileError(f"{os.fspath(path)} could not be written: {suffix} holds one array. Name it .npz, or .parquet.")
    return suffix


def save(predictions: Predictions | TopLabel, path: str | os.PathLike[str]) -> None:
    """Save predictions in the format of the path's ending; the folder must exist, and a file is replaced at once.

    Archives (``.npz``, ``.safetensors``, ``.pt``) hold ``logits`` and ``labels``; tables (``.csv``, ``.parquet``,
    ``.feather``, ``.arrow``) hold ``logit_0``, ``logit_1``, ... and ``label``; of a TopLabel both hold ``confidence``
    and ``correct``. Weights are saved as ``weights``, to be named when they are loaded. Class names are saved too: in a
    CSV file as the names of the columns (``logit_cat``).

    Number types are kept, with two exceptions: bfloat16 becomes float32 in ``.npz`` and in tables, which do not know
    it, and CSV holds every number with the digits that float64 needs to give back the same value.

    Example:
        >>> import tempfile
        >>> from calibrant.files import load
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(Predictions.from_logits([[2.0, 0.0]], [1]), f"{folder}/test.parquet")
        ...     load(f"{folder}/test.parquet").logits.tolist()
        [[2.0, 0.0]]
    """
    if not isinstance(predictions, Predictions | TopLabel):
        raise InputError(f"what is saved must be Predictions or a TopLabel; got {type(predictions).__name__}.")
    weights = {} if predictions.weights is None else {"weights": predictions.weights}
    if isinstance(predictions, TopLabel):
        _write_arrays({"confidence": predictions.confidence, "correct": predictions.correct, **weights}, None, path)
    else:
        arrays = {"logits": predictions.logits, "labels": predictions.labels, **weights}
        _write_arrays(arrays, predictions.class_names, path)


def _write_arrays(
    arrays: Mapping[str, Column],
    names: ClassNames,
    path: str | os.PathLike[str],
    *,
    is_laid_out: bool = False,
    separator: str | None = None,
) -> None:
    suffix = writable_suffix(path)
    write = _text(suffix, separator) if separator is not None and suffix in DELIMITED else WRITERS[suffix]
    with atomic_path(path) as file:
        try:
            write({name: _compact(array) for name, array in arrays.items()}, names, file, is_laid_out)
        except (InputError, OSError):
            raise
        except Exception as error:
            raise FileError(f"{os.fspath(path)} could not be written: {error}.") from error


def _compact(array: Column) -> Column:
    """Copy a slice to its own memory on the CPU: torch and safetensors would write the whole tensor behind it."""
    if isinstance(array, Words):
        return array
    array = array.detach().cpu().contiguous()
    return array if array.untyped_storage().nbytes() == array.nbytes else array.clone()


@final
@dataclass(frozen=True, eq=False)
class Scores:
    """Predictions that need no labels: a model in use has none yet."""

    predictions: Predictions  # without labels, the predicted classes are placeholders
    kind: Literal["logits", "probs"]  # kind of the scores in the file, and in the file to write
    labelled: bool  # whether the labels are the file's
    single: tuple[int, ...] | None = None  # shape of a row, () or (1,), if two classes had one logit
    others: Mapping[str, Column] = field(default_factory=dict)  # the other columns of the file, such as features
    left: tuple[str, ...] = ()  # names in the file that are not written again
    layout: "Layout | None" = None  # the names and the order that the columns had


@final
@dataclass(frozen=True, eq=False)
class Layout:
    """The names of a source in order, which of them are scores and labels, and the labels as they were written."""

    content: Content
    scores: tuple[str, ...]
    labels: Mapping[str, Column]
    separator: str | None  # that was given for a CSV file


def load_scores(
    source: str | os.PathLike[str] | Content, options: LoadOptions | None = None, *, with_others: bool = True
) -> Scores:
    """Load logits or probabilities, labels if there are any, and the other columns; names as in :func:`load`."""
    options = replace(options or LoadOptions(), labels_needed=False)
    record, choice, content, _ = load_detailed(source, options)
    if not isinstance(record, Predictions) or choice.kind == "top-label":
        raise FileError(f"{content.title} must have logits or probabilities of every class; it has the top label's.")
    single = None
    if len(choice.scores) == 1 and record.n_classes == 2:
        # Of two classes only, so that the scores of many are not read twice.
        column = content.read(choice.scores, None)[choice.scores[0]]
        assert isinstance(column, Tensor)
        row = tuple(column.shape[1:])
        single = row if row in {(), (1,)} else None
    names = dict.fromkeys(name for name in content.names if name not in {*choice.scores, choice.labels})
    labelled = choice.labels is not None
    if not with_others:
        left = tuple(names.keys() - set(_copied(content, names)))
        numbers = {} if choice.labels is None else {choice.labels: record.labels}
        return Scores(record, choice.kind, labelled, single, {}, left, Layout(content, choice.scores, numbers, None))
    others = _read_others(content, list(names), len(record))
    left = tuple(name for name in names if name not in others)
    labels = {} if choice.labels is None else _verbatim(content, (choice.labels,))
    layout = Layout(content, choice.scores, labels, options.separator)
    return Scores(record, choice.kind, labelled, single, others, left, layout)


def _verbatim(content: Content, names: Sequence[str]) -> Arrays:
    """Read columns with their types, or, of a CSV file, as they are written: "007" is an identifier."""
    return content.read(names, None) if content.verbatim is None else content.verbatim(names)


_TAKEN = {"class_names", "file", "allow_pickle"}  # the last two are arguments of NumPy's savez


def _read_others(content: Content, names: Sequence[str], n: int) -> dict[str, Column]:
    """Read the columns with one entry per sample, such as features or identifiers.

    Left out: other scores and labels, which would stand uncalibrated beside the new ones; a repeated name, or one that
    leads out of an archive (``../``); and what has another length, which is not even read.
    """
    free = [name for name in _copied(content, names) if content.shape(name)[:1] in {(n,), (None,)}]
    read = _readable(content, free)
    return {
        name: column
        for name, column in read.items()
        if (column if isinstance(column, Tensor) else column.codes).shape[:1] == (n,)
    }


def _copied(content: Content, names: Iterable[str]) -> list[str]:
    times = Counter(content.names)
    free = (name for name in names if not (is_reserved_name(name) or name in _TAKEN) and times[name] == 1)
    return [name for name in free if name.isprintable() and stays_inside(name)]


def _readable(content: Content, names: Sequence[str]) -> dict[str, Column]:
    """Read all columns that can be read, by bisection, so that a bad one costs few passes over the file."""
    try:
        return _verbatim(content, names) if names else {}
    except InputError:
        middle = len(names) // 2
        halves = (names[:middle], names[middle:]) if middle else ()
        return {name: column for half in halves for name, column in _readable(content, half).items()}


def save_scores(scores: Scores, path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Save logits or probabilities, with the labels, the class names and the other columns of their source.

    From table to table, and from archive to archive, names and order stay. No probability is written as 0, which would
    claim that a class is impossible: the smallest is the smallest normal number of its type. One number a row stays
    one, except in another kind of file. Returns the columns that the format cannot hold: matrices in a CSV file, text
    in an archive of tensors.
    """
    rows, suffix = scores.predictions, writable_suffix(path)
    others = {name: column for name, column in scores.others.items() if _can_hold(suffix, column)}
    left = tuple(name for name in scores.others if name not in others)
    values = _values(scores)
    laid_out = _laid_out(scores, values, others, suffix)
    if laid_out is not None:
        assert scores.layout is not None
        names, separator = scores.layout.content.class_names, scores.layout.separator
        _write_arrays(laid_out, names, path, is_laid_out=True, separator=separator)
        return left
    if scores.kind == "logits" and scores.single is not None and not (rows.class_names and suffix in _TEXT):
        values = (values[:, 1] - values[:, 0]).reshape(len(values), *scores.single)
    arrays: dict[str, Column] = {scores.kind: values}
    if scores.labelled:
        arrays["labels"] = rows.labels
    _write_arrays(arrays | others, rows.class_names, path)
    return left


def _values(scores: Scores) -> Tensor:
    """Return the logits or probabilities to write, (n, k)."""
    if scores.kind == "logits":
        return scores.predictions.logits
    probs = scores.predictions.probs
    return probs.clamp(min=torch.finfo(probs.dtype).smallest_normal)


def score_columns(scores: Scores, values: Tensor | None = None) -> dict[str, Tensor]:
    """Return the scores to write, under the names and in the shape that they had."""
    assert scores.layout is not None, "scores of a source have its layout"
    names, values = scores.layout.scores, _values(scores) if values is None else values
    if scores.single is not None:
        one = values[:, 1] - values[:, 0]
        if scores.kind == "probs":  # neither class has probability 0
            one = values[:, 1].clamp(max=1 - torch.finfo(values.dtype).eps)
        return {names[0]: one.reshape(len(values), *scores.single)}
    return {names[0]: values} if len(names) == 1 else dict(zip(names, values.T, strict=True))


_ARCHIVES = (".npz", ".pt", ".pth", ".safetensors")
_TEXT = (".csv", ".csv.gz", ".jsonl", ".jsonl.gz", ".tsv", ".tsv.gz")


def _laid_out(scores: Scores, values: Tensor, others: Mapping[str, Column], suffix: str) -> dict[str, Column] | None:
    """Return what to write by the names and in the order of the source; None if the new file is of another kind."""
    layout = scores.layout
    if layout is None or (layout.content.noun == "array") != (suffix in _ARCHIVES):
        return None
    if layout.content.path is not None and suffix_is(layout.content.path, ".npy"):  # its names are those of files
        return None
    columns: dict[str, Column] = {**score_columns(scores, values), **layout.labels, **others}
    if not all(_can_hold(suffix, column) for column in columns.values()):
        return None
    return {name: columns[name] for name in layout.content.names if name in columns}


def _can_hold(suffix: str, column: Column) -> bool:
    if isinstance(column, Words):
        return suffix not in {".pt", ".pth", ".safetensors"}
    is_flat = column.ndim == 1 or (column.ndim == 2 and not suffix.startswith((".csv", ".tsv")))
    return suffix in _ARCHIVES or (is_flat and not column.is_complex())
