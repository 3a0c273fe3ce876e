"""Reading the pickles of CIFAR's Python version without running anything that stands in them.

A pickle is a program that may call any function of the computer. This one may call four, and all of them are written
here: they take bytes, lists, dicts, numbers and text, and give back arrays of bytes. Everything else is refused.
"""

import io
import pickle
from collections.abc import Callable, Mapping
from math import prod
from typing import Any, final

import numpy as np

from calibrant.bad_file import reading
from calibrant.errors import FileError

__all__ = ["read_pickled_batch"]


def read_pickled_batch(content: bytes, where: str) -> dict[str, Any]:
    """The dict of a CIFAR batch: arrays of bytes as NumPy arrays, everything else as plain Python.

    Args:
        content: The whole file.
        where: Its name, for messages.

    Returns:
        Names to values. Names that Python 2 wrote as bytes become text; values that it wrote as bytes stay bytes.

    Raises:
        FileError: If the pickle asks for any other function or class, is damaged, or holds no dict.

    Example:
        >>> read_pickled_batch(pickle.dumps({b"labels": [6, 9]}, protocol=2), "data_batch_1")
        {'labels': [6, 9]}
    """
    with reading(where, "pickle of a CIFAR batch"):
        held = _Restricted(content, where).load()
    if not isinstance(held, dict):
        raise FileError(f"{where} must hold a dict; it holds a {type(held).__name__}. Download it again.")
    named = {_text(name): value for name, value in held.items()}
    return {name: value.array(where) if isinstance(value, _Array) else value for name, value in named.items()}


def _text(name: object) -> str:
    return name.decode("latin-1") if isinstance(name, bytes) else str(name)


@final
class _Restricted(pickle.Unpickler):
    """An unpickler whose every function is one of this file's."""

    def __init__(self, content: bytes, where: str) -> None:
        # Python 2 wrote pixels as a string; as bytes they need no decoding.
        super().__init__(io.BytesIO(content), encoding="bytes")
        self._where = where

    def find_class(self, module: str, name: str) -> object:
        known = _STAND_INS.get((module, name))
        if known is None:
            raise FileError(
                f"{self._where} must hold arrays of bytes, lists, numbers and text only; it asks for {module}.{name}, "
                "which could run code. It is not CIFAR's file: download it again."
            )
        return known


class _Array:
    """What stands for an array while the pickle is read: filled once, and checked when it is taken out."""

    __slots__ = ("_content", "_order", "_shape")

    def __init__(self, content: object = b"", shape: object = (0,), order: object = "C") -> None:
        self._content, self._shape, self._order = content, shape, order

    def __setstate__(self, state: tuple[object, object, object, object, object]) -> None:
        _, shape, kind, by_column, content = state
        if not isinstance(kind, _Byte):
            raise TypeError("arrays must be of bytes")
        self._content, self._shape, self._order = content, shape, "F" if by_column else "C"

    def array(self, where: str) -> np.ndarray:
        """The array itself; it shares the memory of what was read, and may not be writable."""
        content, shape, by_column = self._content, self._shape, self._order in {"F", b"F"}
        sizes = shape if isinstance(shape, tuple) and all(type(size) is int and size >= 0 for size in shape) else ()
        if not isinstance(content, bytes | bytearray) or not sizes or prod(sizes) != len(content):
            raise FileError(f"{where} must hold arrays with a byte for every place; one does not. Download it again.")
        return np.frombuffer(content, dtype=np.uint8).reshape(sizes, order="F" if by_column else "C")


class _Byte:
    """What stands for the type of an array's entries, of which there is only one."""

    __slots__ = ()

    def __setstate__(self, state: object) -> None:
        del state  # byte order and the like, which a byte has not


def _reconstruct(subtype: object, shape: object, kind: object) -> _Array:
    del subtype, shape, kind  # all of it comes again, with the content
    return _Array()


def _frombuffer(content: object, kind: object, shape: object, order: object) -> _Array:
    if not isinstance(kind, _Byte):
        raise TypeError("arrays must be of bytes")
    return _Array(content, shape, order)


def _dtype(name: object, align: object = False, copy: object = False) -> _Byte:
    del align, copy
    if name not in {"u1", b"u1", "|u1", b"|u1"}:
        raise TypeError(f"arrays must be of bytes (u1), not {name!r}")
    return _Byte()


def _encode(text: object, encoding: object) -> bytes:
    if not isinstance(text, str) or encoding not in {"latin1", b"latin1"}:
        raise TypeError("text must be encoded as latin1")
    return text.encode("latin-1")


# Python 3 writes bytes as encoded text in the older protocols; NumPy has moved its functions once.
_STAND_INS: Mapping[tuple[str, str], str | Callable[..., object]] = {
    ("_codecs", "encode"): _encode,
    ("numpy", "dtype"): _dtype,
    ("numpy", "ndarray"): "ndarray",  # only ever handed to the next one
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy.core.numeric", "_frombuffer"): _frombuffer,
    ("numpy._core.numeric", "_frombuffer"): _frombuffer,
}
