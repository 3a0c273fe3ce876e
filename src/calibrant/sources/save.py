"""``save``: predictions to a file that :func:`calibrant.sources.load` reads back, written whole or not at all."""

import os

from torch import Tensor

from calibrant.errors import FileError, InputError
from calibrant.predictions import Predictions, TopLabel
from calibrant.sources.atomic import atomic_path
from calibrant.sources.formats import suffix_of
from calibrant.sources.write import WRITERS

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
        >>> from calibrant.sources import load
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(Predictions.from_logits([[2.0, 0.0]], [1]), f"{folder}/test.parquet")
        ...     load(f"{folder}/test.parquet").logits.tolist()
        [[2.0, 0.0]]
    """
    if isinstance(predictions, TopLabel):
        arrays, names = {"confidence": predictions.confidence, "correct": predictions.correct}, None
    elif isinstance(predictions, Predictions):
        arrays, names = {"logits": predictions.logits, "labels": predictions.labels}, predictions.class_names
    else:
        raise InputError(f"what is saved must be Predictions or a TopLabel; got {type(predictions).__name__}.")
    write_arrays(arrays, names, path)


def write_arrays(arrays: dict[str, Tensor], names: tuple[str, ...] | None, path: str | os.PathLike[str]) -> None:
    """Write named tensors in the format that the path's ending names, whole or not at all; see :func:`save`."""
    write = WRITERS[suffix_of(path)]
    with atomic_path(path) as file:
        try:
            write({name: _compact(array) for name, array in arrays.items()}, names, file)
        except (InputError, OSError):
            raise
        except Exception as error:
            raise FileError(f"{os.fspath(path)} could not be written: {error}.") from error


def _compact(array: Tensor) -> Tensor:
    """On the CPU, and without the rows it was cut out of: torch and safetensors would write those too."""
    array = array.detach().cpu().contiguous()
    return array if array.untyped_storage().nbytes() == array.nbytes else array.clone()
