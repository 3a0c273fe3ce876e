"""Save predictions and scores: one writer a format, atomic, readable by ``load``."""

import gzip
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calibrant.atomic import atomic_path, save_tensors
from calibrant.errors import FileError, InputError
from calibrant.files.source import Column, Words, suffix_of
from calibrant.predictions import Predictions, TopLabel

__all__ = ["WRITERS", "save", "write_arrays"]

Arrays = dict[str, Column]
Names = tuple[str, ...] | None

PREFIXES = {"logits": "logit_", "probs": "prob_"}  # a matrix becomes one column a class


def _numpy(array: Column) -> Any:
    if isinstance(array, Words):
        return np.array(array.distinct, dtype=np.str_)[array.codes.numpy()]
    return (array.float() if array.dtype == torch.bfloat16 else array).numpy()


def _write_npz(arrays: Arrays, names: Names, file: Path) -> None:
    held: dict[str, Any] = {name: _numpy(array) for name, array in arrays.items()}
    if names is not None:
        held["class_names"] = np.array(names, dtype=np.str_)
    with file.open("wb") as opened:
        np.savez(opened, **held)


def _write_safetensors(arrays: Arrays, names: Names, file: Path) -> None:
    save_tensors(_tensors(arrays), file, None if names is None else {"class_names": json.dumps(names)})


def _tensors(arrays: Arrays) -> dict[str, Tensor]:
    words = [name for name, array in arrays.items() if isinstance(array, Words)]
    if words:
        raise FileError(f"an archive of tensors must hold numbers only; {words[0]!r} is text. Save as .npz.")
    return {name: array for name, array in arrays.items() if isinstance(array, Tensor)}


def _write_torch(arrays: Arrays, names: Names, file: Path) -> None:
    torch.save(_tensors(arrays) | ({} if names is None else {"class_names": list(names)}), file)


def _table(arrays: Arrays, names: Names) -> Any:
    """The same as a table, with one column a class."""
    import pyarrow as pa

    columns = {"label" if name == "labels" else name: array for name, array in arrays.items() if name not in PREFIXES}
    for name in PREFIXES.keys() & arrays.keys():
        columns = {**_by_class(arrays[name], PREFIXES[name]), **columns}
    table = pa.table({name: _column(array) for name, array in columns.items()})
    return table if names is None else table.replace_schema_metadata({"class_names": json.dumps(names)})


def _by_class(scores: Column, prefix: str) -> Arrays:
    assert isinstance(scores, Tensor)
    by_class = scores.reshape(len(scores), -1).T.contiguous()
    if len(by_class) == 1:  # the one logit of two classes
        return {prefix.removesuffix("_"): by_class[0]}
    return {f"{prefix}{place}": column for place, column in enumerate(by_class)}


def _column(array: Column) -> Any:
    """An Arrow array over the same memory; Arrow's own way from NumPy would import pandas."""
    import pyarrow as pa

    if isinstance(array, Words):
        return pa.array(list(array.distinct), pa.string()).take(_column(array.codes))
    values = _numpy(array.byte() if array.dtype == torch.bool else array)
    column = pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])
    return column.cast(pa.bool_()) if array.dtype == torch.bool else column


def _write_parquet(arrays: Arrays, names: Names, file: Path) -> None:
    import pyarrow.parquet as pq

    # Scores hardly ever repeat, so a dictionary of them only costs time.
    pq.write_table(_table(arrays, names), file, use_dictionary=False, write_page_checksum=True)


def _write_arrow(arrays: Arrays, names: Names, file: Path) -> None:
    import pyarrow as pa

    table = _table(arrays, names)
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def _write_csv(arrays: Arrays, names: Names, file: Path) -> None:
    from pyarrow import csv

    with file.open("wb") as sink:
        csv.write_csv(_csv_table(arrays, names), sink)


def _write_csv_gz(arrays: Arrays, names: Names, file: Path) -> None:
    from pyarrow import csv

    # Digits of scores are close to noise: higher levels take four times as long for a twentieth less.
    with gzip.GzipFile(file, "wb", compresslevel=1, mtime=0) as sink:
        csv.write_csv(_csv_table(arrays, names), sink)


def _csv_table(arrays: Arrays, names: Names) -> Any:
    """All numbers as float64, and the classes' names in those of the columns."""
    import pyarrow as pa

    # The digits of a float32 read as float64 would be another number; those of the same number as float64 are not.
    wide = {name: _wide(array) for name, array in arrays.items()}
    table = _table(wide, None)
    if names is None or names == tuple(str(place) for place in range(len(names))):
        return table
    _check_words(names)
    prefix = next(prefix for name, prefix in PREFIXES.items() if name in arrays)
    columns = {f"{prefix}{name}": table[place] for place, name in enumerate(names)}
    if "labels" in arrays:
        columns["label"] = pa.array(list(names), pa.string()).take(_column(arrays["labels"]))
    others = {name: table[name] for name in arrays if name not in PREFIXES and name != "labels"}
    return pa.table({**columns, **others})


def _wide(array: Column) -> Column:
    return array.double() if isinstance(array, Tensor) and array.is_floating_point() else array


def _check_words(names: tuple[str, ...]) -> None:
    """Class names that are still class names when they stand in the names of columns."""
    numbers = [name for name in names if not name or (name.isascii() and name.isdecimal())]
    if numbers or len(set(names)) < len(names):
        got = f"{numbers[0]!r}" if numbers else "the same name twice"
        raise FileError(
            f"class names in a CSV file must be different words, not numbers, as its columns are named after them; "
            f"got {got}. Save as .parquet, or leave the class names out."
        )


WRITERS: dict[str, Callable[[Arrays, Names, Path], None]] = {
    ".arrow": _write_arrow,
    ".csv": _write_csv,
    ".csv.gz": _write_csv_gz,
    ".feather": _write_arrow,
    ".npz": _write_npz,
    ".parquet": _write_parquet,
    ".pt": _write_torch,
    ".pth": _write_torch,
    ".safetensors": _write_safetensors,
}


def save(predictions: Predictions | TopLabel, path: str | os.PathLike[str]) -> None:
    """Write predictions in the format that the path's ending names; a file already there is replaced at once.

    Archives (``.npz``, ``.safetensors``, ``.pt``) hold ``logits`` and ``labels``; tables (``.csv``, ``.parquet``,
    ``.feather``, ``.arrow``) hold ``logit_0``, ``logit_1``, ... and ``label``; of a TopLabel both hold ``confidence``
    and ``correct``. Class names go along: in a CSV file they stand in the names of the columns (``logit_cat``).

    Number types are kept, with two exceptions: bfloat16 becomes float32 in ``.npz`` and in tables, which do not know
    it, and CSV holds every number with the digits that float64 needs to give back the same value.

    Args:
        predictions: What to write.
        path: Where to; the folder must exist.

    Raises:
        FileError: If the ending is not known, the file cannot be written, or CSV cannot hold the class names.

    Example:
        >>> import tempfile
        >>> from calibrant.files import load
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(Predictions.from_logits([[2.0, 0.0]], [1]), f"{folder}/test.parquet")
        ...     load(f"{folder}/test.parquet").logits.tolist()
        [[2.0, 0.0]]
    """
    if isinstance(predictions, TopLabel):
        write_arrays({"confidence": predictions.confidence, "correct": predictions.correct}, None, path)
    elif isinstance(predictions, Predictions):
        write_arrays({"logits": predictions.logits, "labels": predictions.labels}, predictions.class_names, path)
    else:
        raise InputError(f"what is saved must be Predictions or a TopLabel; got {type(predictions).__name__}.")


def write_arrays(arrays: Mapping[str, Column], names: tuple[str, ...] | None, path: str | os.PathLike[str]) -> None:
    """Write named tensors and words in the format that the path's ending names, whole or not at all."""
    write = WRITERS[suffix_of(path)]
    with atomic_path(path) as file:
        try:
            write({name: _compact(array) for name, array in arrays.items()}, names, file)
        except (InputError, OSError):
            raise
        except Exception as error:
            raise FileError(f"{os.fspath(path)} could not be written: {error}.") from error


def _compact(array: Column) -> Column:
    """On the CPU, and without the rows it was cut out of: torch and safetensors would write those too."""
    if isinstance(array, Words):
        return array
    array = array.detach().cpu().contiguous()
    return array if array.untyped_storage().nbytes() == array.nbytes else array.clone()
