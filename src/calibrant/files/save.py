"""``save``: predictions to a file that :func:`calibrant.files.load` reads back, written whole or not at all."""

import os
from collections.abc import Mapping

from calibrant.errors import FileError, InputError
from calibrant.files.atomic import atomic_path
from calibrant.files.content import Column, Words
from calibrant.files.formats import suffix_of
from calibrant.files.write import WRITERS
from calibrant.predictions import Predictions, TopLabel

__all__ = ["save", "write_arrays"]


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
