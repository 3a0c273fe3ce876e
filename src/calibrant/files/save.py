"""Save predictions, one writer per format; load scores with all other columns, to save them again calibrated."""

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
import torch
from torch import Tensor

from calibrant.atomic import atomic_path, save_tensors
from calibrant.checks import stays_inside
from calibrant.errors import FileError, InputError
from calibrant.files.choose import LoadOptions, is_reserved_name
from calibrant.files.load import in_module, load_detailed, suffix_of
from calibrant.files.source import Arrays, ClassNames, Column, Content, Kind, as_numpy
from calibrant.labels import Words
from calibrant.predictions import Predictions, TopLabel, check_unweighted


def _write_npz(arrays: Arrays, names: ClassNames, file: Path) -> None:
    held: dict[str, Any] = {name: as_numpy(array) for name, array in arrays.items()}
    if names is not None:
        held["class_names"] = np.array(names, dtype=np.str_)
    with file.open("wb") as opened:
        np.savez(opened, **held)


def _write_safetensors(arrays: Arrays, names: ClassNames, file: Path) -> None:
    save_tensors(_tensors(arrays), file, None if names is None else {"class_names": json.dumps(names)})


def _tensors(arrays: Arrays) -> dict[str, Tensor]:
    words = [name for name, array in arrays.items() if isinstance(array, Words)]
    if words:
        raise FileError(f"an archive of tensors must hold numbers only; {words[0]!r} is text. Save as .npz.")
    return {name: array for name, array in arrays.items() if isinstance(array, Tensor)}


def _write_torch(arrays: Arrays, names: ClassNames, file: Path) -> None:
    torch.save(_tensors(arrays) | ({} if names is None else {"class_names": list(names)}), file)


def _text(suffix: str) -> Callable[[Arrays, ClassNames, Path], None]:
    return lambda arrays, names, file: in_module("text", "write_text")(arrays, names, file, suffix)


WRITERS: dict[str, Callable[[Arrays, ClassNames, Path], None]] = {
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
    and ``correct``. Class names are saved too: in a CSV file as the names of the columns (``logit_cat``).

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
    if isinstance(predictions, Predictions | TopLabel):
        check_unweighted(predictions, "save")
    if isinstance(predictions, TopLabel):
        _write_arrays({"confidence": predictions.confidence, "correct": predictions.correct}, None, path)
    elif isinstance(predictions, Predictions):
        _write_arrays({"logits": predictions.logits, "labels": predictions.labels}, predictions.class_names, path)
    else:
        raise InputError(f"what is saved must be Predictions or a TopLabel; got {type(predictions).__name__}.")


def _write_arrays(arrays: Mapping[str, Column], names: ClassNames, path: str | os.PathLike[str]) -> None:
    write = WRITERS[writable_suffix(path)]
    with atomic_path(path) as file:
        try:
            write({name: _compact(array) for name, array in arrays.items()}, names, file)
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


def load_scores(
    path: str | os.PathLike[str], *, kind: Kind | None = None, scores: str | None = None, labels: str | None = None
) -> Scores:
    """Load logits or probabilities, labels if there are any, and the other columns; names as in :func:`load`."""
    record, choice, content, _ = load_detailed(path, LoadOptions(kind, scores, labels, labels_needed=False))
    if not isinstance(record, Predictions) or choice.kind == "top-label":
        raise FileError(f"{os.fspath(path)} must have logits or probabilities of every class; it has the top label's.")
    single = None
    if choice.kind == "logits" and len(choice.scores) == 1 and record.n_classes == 2:
        # Of two classes only, so that the scores of many are not read twice.
        column = content.read(choice.scores, None)[choice.scores[0]]
        assert isinstance(column, Tensor)
        row = tuple(column.shape[1:])
        single = row if row in {(), (1,)} else None
    names = dict.fromkeys(name for name in content.names if name not in {*choice.scores, choice.labels})
    others = _read_others(content, list(names), len(record))
    left = tuple(name for name in names if name not in others)
    return Scores(record, choice.kind, choice.labels is not None, single, others, left)


_TAKEN = {"class_names", "file", "allow_pickle"}  # the last two are arguments of NumPy's savez


def _read_others(content: Content, names: Sequence[str], n: int) -> dict[str, Column]:
    """Read the columns with one entry per sample, such as features or identifiers.

    Left out: other scores and labels, which would stand uncalibrated beside the new ones; a repeated name, or one that
    leads out of an archive (``../``); what has another length, which is not even read; and everything in a CSV file,
    whose text could only be guessed at ("007" is an identifier).
    """
    if content.path is not None and suffix_of(content.path).startswith((".csv", ".tsv")):
        return {}
    times = Counter(content.names)
    free = [name for name in names if not (is_reserved_name(name) or name in _TAKEN) and times[name] == 1]
    free = [
        name
        for name in free
        if name.isprintable() and stays_inside(name) and content.shape(name)[:1] in {(n,), (None,)}
    ]
    read = _readable(content, free)
    return {
        name: column
        for name, column in read.items()
        if (column if isinstance(column, Tensor) else column.codes).shape[:1] == (n,)
    }


def _readable(content: Content, names: Sequence[str]) -> dict[str, Column]:
    """Read all columns that can be read, by bisection, so that a bad one costs few passes over the file."""
    try:
        return content.read(names, None) if names else {}
    except InputError:
        middle = len(names) // 2
        halves = (names[:middle], names[middle:]) if middle else ()
        return {name: column for half in halves for name, column in _readable(content, half).items()}


def save_scores(scores: Scores, path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Save logits or probabilities, with the labels, the class names and the other columns of their source.

    No probability is written as 0, which would claim that a class is impossible: the smallest is the smallest normal
    number of its type. One logit a row stays one, except in a CSV file with class names, whose columns are named after
    the classes. Returns the columns that the format cannot hold: matrices in a table, text in an archive of tensors.
    """
    rows, suffix = scores.predictions, writable_suffix(path)
    others = {name: column for name, column in scores.others.items() if _can_hold(suffix, column)}
    values = rows.logits
    if scores.kind == "probs":
        values = rows.probs.clamp(min=torch.finfo(rows.probs.dtype).smallest_normal)
    elif scores.single is not None and not (rows.class_names and suffix.startswith((".csv", ".tsv", ".jsonl"))):
        values = (values[:, 1] - values[:, 0]).reshape(len(values), *scores.single)
    arrays: dict[str, Column] = {scores.kind: values}
    if scores.labelled:
        arrays["labels"] = rows.labels
    _write_arrays(arrays | others, rows.class_names, path)
    return tuple(name for name in scores.others if name not in others)


def _can_hold(suffix: str, column: Column) -> bool:
    if isinstance(column, Words):
        return suffix not in {".pt", ".pth", ".safetensors"}
    is_archive = suffix in {".npz", ".pt", ".pth", ".safetensors"}
    return is_archive or (column.ndim == 1 and not column.is_complex())
