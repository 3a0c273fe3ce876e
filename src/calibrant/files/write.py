"""One writer a format: named tensors or words, and the classes' names if there are any, into an empty file."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calibrant.errors import FileError
from calibrant.files.content import Column, Words
from calibrant.files.tensors import save_tensors

__all__ = ["WRITERS"]

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
