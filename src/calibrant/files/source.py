"""A source of predictions before it is understood: names, and a way to read the values under them."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
import torch
from torch import Tensor

from calibrant.checks import as_tensor
from calibrant.errors import Argument, FileError, InputError

__all__ = ["SUFFIXES", "Column", "Content", "Words", "as_class_names", "as_column", "existing_file", "suffix_of"]

SUFFIXES = (".arrow", ".csv", ".csv.gz", ".feather", ".npz", ".parquet", ".pt", ".pth", ".safetensors")


def suffix_of(path: str | os.PathLike[str]) -> str:
    """The ending that tells a file's format.

    Raises:
        FileError: If it is none of those known.

    Example:
        >>> suffix_of("runs/Predictions.CSV.gz")
        '.csv.gz'
    """
    name = Path(path).name.lower()
    for suffix in SUFFIXES:
        if name.endswith(suffix):
            return suffix
    ending = Path(path).suffix
    raise FileError(
        f"the name of a file of predictions must end in one of {', '.join(SUFFIXES)}; "
        f"{os.fspath(path)} ends in {ending!r}. Convert the file, or load it yourself and pass the arrays."
    )


def existing_file(path: str | os.PathLike[str], *, holding: str = "predictions") -> Path:
    """The path of a file that is there and has something in it.

    Args:
        path: Where it should be.
        holding: What it should hold, for the message.

    Raises:
        FileError: If it is missing, a folder, empty, or may not be looked at.
    """
    file = Path(path)
    try:
        size = file.stat().st_size
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        reason = "there is none" if isinstance(error, FileNotFoundError) else str(error)
        raise FileError(f"{file} must be an existing file; {reason}. Seen from the folder {Path.cwd()}.") from error
    if file.is_dir():
        raise FileError(f"{file} must be a file; it is a folder. Name one file in it.")
    if file.is_file() and size == 0:
        raise FileError(f"{file} must hold {holding}; it is empty. The program that wrote it may have been stopped.")
    return file


@final
@dataclass(frozen=True, eq=False)
class Words:
    """A column of words: each different word once, and for every row the place of its word."""

    distinct: tuple[str, ...]
    codes: Tensor  # (n,) int64

    def first(self, wrong: Callable[[str], bool]) -> tuple[int, str] | None:
        """First row, and its word, of which something holds."""
        bad = torch.tensor([wrong(word) for word in self.distinct], dtype=torch.bool)[self.codes].nonzero()
        if not bad.numel():
            return None
        row = int(bad[0])
        return row, self.distinct[int(self.codes[row])]


Column = Tensor | Words


@final
@dataclass(frozen=True, eq=False)
class Content:
    """The named arrays of an archive or columns of a table, not read yet.

    Args:
        where: The file, or None if the source is in memory.
        noun: What a name stands for: "array" or "column".
        names: Every name, in the source's order.
        class_names: The classes' names, if the source has them.
        read: Reads the names asked for. The second argument is the one of them that may hold words.
        shape: The shape behind a name, for messages; None where it is not known.
        hint: Said after a list of what was found, if anything more should be known.
    """

    where: Path | None
    noun: str
    names: tuple[str, ...]
    class_names: tuple[str, ...] | None
    read: Callable[[Sequence[str], str | None], dict[str, Column]]
    shape: Callable[[str], tuple[int | None, ...]]
    hint: str = ""

    @property
    def title(self) -> str:
        """How messages call it."""
        return "the source" if self.where is None else str(self.where)

    def error(self, *parts: str | Argument) -> InputError:
        """The error for this kind of source."""
        return InputError(*parts) if self.where is None else FileError(*parts)


def as_column(values: object, name: str) -> Column:
    """A tensor as it is, an array or lists as a tensor that shares memory if it can, an array of text as words."""
    if isinstance(values, Tensor):
        if values.is_nested or values.layout is not torch.strided or values.is_quantized:
            raise InputError(f"{name!r} must be a dense tensor; got {values.layout}, {values.dtype}. Call .to_dense().")
        return values.detach()
    try:
        array = np.asarray(values)
        if array.dtype.kind == "S":
            array = np.char.decode(array, "utf-8")
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{name!r} must be an array or lists of equal length; got {error}.") from error
    if array.dtype.kind == "O" and array.ndim == 1 and all(isinstance(word, str) for word in array):
        array = array.astype(np.str_)
    if array.dtype.kind == "U" and array.ndim == 1:
        if not array.size:
            raise InputError(f"{name!r} must have at least one row; got none.")
        distinct, codes = np.unique(array, return_inverse=True)
        return Words(tuple(distinct.tolist()), torch.from_numpy(codes.astype(np.int64, copy=False)))
    # Torch reads neither the other byte order nor, without a warning, memory that must not be written.
    array = array.astype(array.dtype.newbyteorder("="), copy=not array.flags.writeable)
    return as_tensor(array, name)


def as_class_names(names: object) -> tuple[str, ...] | None:
    """The names of the classes as the source gives them: a list, or an array of text."""
    if names is None:
        return None
    listed = names.tolist() if isinstance(names, np.ndarray) else names
    if not isinstance(listed, list | tuple) or not all(isinstance(name, str) for name in listed):
        raise InputError(f"class_names must be a list of text, one name a class; got {type(names).__name__}.")
    return tuple(listed)
