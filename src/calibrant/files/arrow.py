"""From an Arrow column to a tensor or to words, in whole columns and with no loop over rows."""

from typing import Any

from torch import Tensor
from torch.utils.dlpack import from_dlpack

from calibrant.errors import InputError
from calibrant.files.content import Column, Words

__all__ = ["column_of", "shape_of", "whole_numbers_if_they_are"]


def column_of(column: Any, name: str) -> Column:
    """Numbers as a tensor (n,), lists of equal length as a tensor (n, k), text or categories as words.

    Args:
        column: A ``pyarrow.ChunkedArray``.
        name: Its name, for messages.

    Raises:
        InputError: If there are no rows, one has no value, lists differ in length, or the type is neither number nor
            text.
    """
    from pyarrow import types

    if not len(column):
        raise InputError(f"column {name!r} must have at least one row; got none.")
    if column.null_count:
        raise _no_value(name, _first(column.is_null()))
    column = _plain(column)
    if _is_list(column.type):
        return _matrix(column, name)
    if types.is_string(column.type) or types.is_large_string(column.type):
        encoded = _one(column).dictionary_encode()
        return Words(tuple(encoded.dictionary.to_pylist()), from_dlpack(encoded.indices).long())
    return _numbers(column, name)


def shape_of(kind: Any) -> tuple[int | None, ...]:
    """One number a row, or several, by a column's type."""
    if not _is_list(kind):
        return (None,)
    return (None, getattr(kind, "list_size", None))


def whole_numbers_if_they_are(column: Any) -> Any:
    """A column of text as int64 if every row is a whole number, else as it is."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        return pc.utf8_trim_whitespace(column).cast(pa.int64())
    except pa.ArrowInvalid:
        return column


def _is_list(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _plain(column: Any) -> Any:
    """Without the wrappings: tensor types become lists, categories become what they stand for, text one type."""
    import pyarrow as pa

    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return _plain(pa.chunked_array([chunk.storage for chunk in column.chunks], kind.storage_type))
    if pa.types.is_dictionary(kind):
        values = [_plain(pa.chunked_array([chunk.dictionary])) for chunk in column.chunks]
        taken = [_one(part).take(chunk.indices) for part, chunk in zip(values, column.chunks, strict=True)]
        return pa.chunked_array(taken) if taken else column.cast(kind.value_type)
    if pa.types.is_string_view(kind):
        return column.cast(pa.large_string())
    if pa.types.is_decimal(kind):
        return column.cast(pa.float64())
    return column


def _numbers(column: Any, name: str) -> Tensor:
    import pyarrow as pa

    if pa.types.is_boolean(column.type):
        return _shared(column.cast(pa.uint8())).bool()
    if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
        raise InputError(f"column {name!r} must hold numbers; its type is {column.type}.")
    return _shared(column)


def _shared(column: Any) -> Tensor:
    """The memory of the column itself, which nobody writes; Arrow's own way to NumPy would import pandas."""
    return from_dlpack(_one(column))


def _matrix(column: Any, name: str) -> Tensor:
    import pyarrow as pa
    import pyarrow.compute as pc

    lengths = pc.list_value_length(column)
    width = lengths[0].as_py()
    odd = pc.not_equal(lengths, width)
    if pc.any(odd).as_py():
        row = _first(odd)
        raise InputError(
            f"every row of column {name!r} must have as many numbers as there are classes; "
            f"row 0 has {width} and row {row} has {lengths[row].as_py()}."
        )
    values = pa.chunked_array([chunk.flatten() for chunk in column.chunks], column.type.value_type)
    if values.null_count:
        raise _no_value(name, _first(values.is_null()) // width)
    return _numbers(_plain(values), name).reshape(len(column), width)


def _one(column: Any) -> Any:
    """The whole column as one array; without a copy if it is one already."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _first(flags: Any) -> int:
    import pyarrow.compute as pc

    return int(pc.index(flags, True).as_py())


def _no_value(name: str, row: int) -> InputError:
    return InputError(
        f"column {name!r} must have a value in every row; got none (null, NaN or an empty field) at row {row}. "
        "Fill it in, or remove the row."
    )
