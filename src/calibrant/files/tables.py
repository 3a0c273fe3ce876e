"""Read and write tables with types: Parquet, Feather and Arrow files, and data frames with ``__arrow_c_stream__``."""

import io
import json
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from calibrant.checks import stays_inside
from calibrant.errors import MULTI_LABEL, FileError, InputError, Row, check_expansion, check_memory, reading
from calibrant.files import source
from calibrant.labels import Words


def column_of(column: Any, name: str, *, may_lack: bool = False) -> source.Column:
    """Return an Arrow column as a tensor (n,), lists as (n, k), text and categories as words.

    What may lack is NaN, or no text; true and false are words then.
    """
    if not len(column):
        raise InputError(f"column {name!r} must have at least one row; got none.")
    column = _as_basic_type(column)
    if column.null_count and not may_lack:
        raise InputError(f"column {name!r} must have a value in every row; got none at ", Row(_first(column.is_null())))
    if _is_list(column.type):
        return _matrix(column, name, may_lack=may_lack)
    column = _filled(column) if column.null_count else column
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        encoded = _combined(column).dictionary_encode()
        return Words(tuple(encoded.dictionary.to_pylist()), from_dlpack(encoded.indices).long())
    return _numbers(column, name)


def _filled(column: Any) -> Any:
    """Return a column with NaN, or no text, in place of nulls."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.string())
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return column.fill_null("")
    if pa.types.is_integer(column.type) or pa.types.is_null(column.type):
        column = column.cast(pa.float64())
    return column.fill_null(float("nan")) if pa.types.is_floating(column.type) else column


def _days(column: Any) -> Any:
    """Return times as text, without the hour where that is always midnight; other columns unchanged."""
    import pyarrow.compute as pc

    if not pa.types.is_temporal(column.type):
        return column
    return pc.replace_substring_regex(column.cast(pa.string()), r" 00:00:00(\.0+)?(Z|[+-]\d{4})?$", "")


def _is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _as_basic_type(column: Any) -> Any:
    """Convert tensor types to lists, categories to their values, text to one type, decimals to float64."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return _as_basic_type(pa.chunked_array([chunk.storage for chunk in column.chunks], kind.storage_type))
    if pa.types.is_dictionary(kind):
        values = [_as_basic_type(pa.chunked_array([chunk.dictionary])) for chunk in column.chunks]
        taken = [_combined(part).take(chunk.indices) for part, chunk in zip(values, column.chunks, strict=True)]
        return pa.chunked_array(taken) if taken else column.cast(kind.value_type)
    if pa.types.is_string_view(kind):
        return column.cast(pa.large_string())
    if pa.types.is_decimal(kind):
        return column.cast(pa.float64())
    return column


def _numbers(column: Any, name: str) -> Tensor:
    """Return a zero-copy tensor, not to be written to; `to_numpy` would import pandas."""
    if pa.types.is_boolean(column.type):
        return from_dlpack(_combined(column.cast(pa.uint8()))).bool()
    if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
        chat = source.CHAT_HINT * pa.types.is_struct(column.type)
        raise InputError(f"column {name!r} must hold numbers; its type is {column.type}.{chat}")
    return from_dlpack(_combined(column))


def _matrix(column: Any, name: str, *, may_lack: bool) -> Tensor:
    import pyarrow.compute as pc

    if pa.types.is_string(column.type.value_type) or pa.types.is_large_string(column.type.value_type):
        raise InputError(f"column {name!r} must hold numbers, or one label a row; it has lists of text. ", *MULTI_LABEL)
    lengths = pc.list_value_length(column)
    width = pc.max(lengths).as_py() if lengths[0].as_py() is None else lengths[0].as_py()
    odd = pc.not_equal(lengths, width)
    if pc.any(odd).as_py():
        row = _first(odd)
        raise InputError(
            f"every row of column {name!r} must have as many numbers as there are classes; the first has {width} and ",
            *(Row(row), f" has {lengths[row].as_py()}. {source.OWN_CLASSES}"),
        )
    values = _as_basic_type(pa.chunked_array([chunk.flatten() for chunk in column.chunks], column.type.value_type))
    values = _filled(values) if may_lack and values.null_count else values
    if values.null_count:
        raise InputError(f"column {name!r} must have a number for every class; got none in some rows.")
    if not column.null_count:
        return _numbers(values, name).reshape(len(column), width)
    is_there = from_dlpack(_combined(column.is_valid().cast(pa.uint8()))).bool()
    matrix = torch.full((len(column), width or 0), torch.nan, dtype=torch.float64)
    matrix[is_there] = _numbers(values, name).reshape(-1, width or 0).double()
    return matrix


def _combined(column: Any) -> Any:
    """Return the column as one array, without a copy if it has one chunk."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _first(flags: Any) -> int:
    import pyarrow.compute as pc

    return int(pc.index(flags, True).as_py())


_ARROW, _PARQUET = "Feather (version 2) or Arrow file", "Parquet file"
_ROWS = 1 << 16  # of a record batch that is written
_BATCH = 1 << 22  # numbers of a Parquet file that are decoded together
_SMALL_FILE = 1 << 25  # bytes
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3  # kinds of Arrow messages


def open_frame(frame: Any) -> source.Content:
    """Open a data frame with Arrow's C interface. The index of a pandas frame is not a column."""
    try:
        # pa.table() takes either, but imports pandas to test whether the frame is a pandas one.
        stream = hasattr(frame, "__arrow_c_stream__")
        table = pa.RecordBatchReader.from_stream(frame).read_all() if stream else pa.table(frame)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InputError(
            f"the source must be a table; a {type(frame).__qualname__} could not be read as one: {error}. "
            "Pass a data frame with only the columns that are needed, or a dict of arrays."
        ) from error
    return content_of(None, table.schema, table.select)


def parquet_file(path: Path) -> Any:
    """Open a Parquet file to be read in batches; page checksums are verified where it has them."""
    import pyarrow.parquet as pq

    # Otherwise all row groups that are asked for are held, as they are stored, until the last is read. But a buffer
    # grows to the size that a page claims, up to two gigabytes: a small file, which may be damaged, is read without.
    buffer = 1 << 16 if path.stat().st_size > _SMALL_FILE else 0
    return pq.ParquetFile(path, pre_buffer=False, buffer_size=buffer, page_checksum_verification=True)


def open_parquet(path: Path) -> source.Content:
    """Open a Parquet file."""
    import pyarrow.parquet as pq

    def select(names: list[str]) -> Any:
        with reading(path, _PARQUET), parquet_file(path) as file:
            # In batches, so that a small file that claims to be large does not fill the memory. (Do not read its
            # detailed metadata: with a damaged file the library ends the process.)
            stored = file.schema_arrow
            schema = pa.schema([stored.field(name) for name in names])
            read = file.iter_batches(max(1024, _BATCH // max(1, len(names))), columns=names)
            return pa.Table.from_batches(_bounded(path, (batch.select(names) for batch in read)), schema=schema)

    with reading(path, _PARQUET), pq.ParquetFile(path) as file:
        return content_of(path, file.schema_arrow, select)


def open_arrow(path: Path) -> source.Content:
    """Open Arrow's file format (Feather version 2), or its stream format, which some libraries also call ``.arrow``."""
    with reading(path, _ARROW):
        return content_of(path, _arrow_table(path, None), partial(_arrow_table, path))


def parquet_batches(
    path: Path, names: Sequence[str], rows: int, groups: Sequence[int] | None = None
) -> Iterator[source.Content]:
    """Yield some rows of a Parquet file, or of some of its row groups, at a time."""
    with reading(path, _PARQUET), parquet_file(path) as file:
        for batch in file.iter_batches(rows, groups, list(names), use_threads=False):
            yield content_of(path, file.schema_arrow, pa.Table.from_batches([batch]).select)


def arrow_batches(path: Path, names: Sequence[str], rows: int) -> Iterator[source.Content]:
    """Yield some rows of an Arrow file at a time; its record batches are read one by one."""
    schema = _arrow_table(path, None)
    for table in in_rows(_arrow_records(path, list(names), held=False), rows):
        yield content_of(path, schema, table.select)


def in_rows(batches: Iterable[Any], rows: int) -> Iterator[Any]:
    """Yield record batches as tables of so many rows; the last may have fewer."""
    table = None
    for batch in batches:
        more = pa.Table.from_batches([batch])
        table = more if table is None else pa.concat_tables([table, more])
        while len(table) >= rows:
            yield table.slice(0, rows)
            table = table.slice(rows)
    if table is not None and len(table):
        yield table


def _arrow_table(path: Path, names: list[str] | None) -> Any:
    """Return some columns of an Arrow file, or the schema."""
    with reading(path, _ARROW):
        with pa.OSFile(str(path)) as file:
            file.seek(_arrow_start(file))
            with pa.ipc.open_stream(file) as reader:
                schema = reader.schema
        if names is None:
            return schema
        batches = list(_arrow_records(path, names))
        return pa.Table.from_batches(batches, schema=pa.schema([schema.field(name) for name in names], schema.metadata))


def _arrow_start(file: Any) -> int:
    """Return where the stream of an Arrow file begins: a file is one with a list of its batches at the end."""
    return 8 if file.read(6) == b"ARROW1" else 0


def _arrow_records(path: Path, names: list[str], *, held: bool = True) -> Iterator[Any]:
    """Yield the record batches of an Arrow file, with some columns."""
    with reading(path, _ARROW), pa.OSFile(str(path)) as file:
        start, listed, seen = _arrow_start(file), None, 0
        if start:
            file.seek(0)
            with pa.ipc.open_file(file) as reader:
                listed = reader.num_record_batches
        _check_arrow_buffers(path, start)
        file.seek(start)
        with pa.ipc.open_stream(file) as reader:
            fields = [reader.schema.get_field_index(name) for name in names]
        file.seek(start)
        with pa.ipc.open_stream(file, options=pa.ipc.IpcReadOptions(included_fields=fields)) as reader:
            for batch in _bounded(path, reader, held=held):
                batch.validate(full=True)  # the format has no checksum, and a wrong offset would read foreign memory
                seen += 1
                yield batch.select(names)
        if listed not in {None, seen}:
            raise ValueError(f"it lists {listed} batches and holds {seen}")


def open_dataset_folder(path: Path) -> source.Content:
    """Open a folder that Hugging Face ``datasets`` saved: Arrow files, listed in ``state.json``."""
    with reading(path, "folder of Hugging Face datasets"):
        if (path / "dataset_dict.json").is_file():
            splits = _json(path / "dataset_dict.json").get("splits", [])
            raise FileError(f"{path} must be one split; it holds {splits}. Name one: {path}/{splits[-1]}.")
        state = _json(path / "state.json") if (path / "state.json").is_file() else {}
        if state.get("_indices_data_files"):
            raise FileError(f"{path} must hold its rows in order; it selects them by indices. Save flatten_indices().")
        listed = [entry["filename"] for entry in state.get("_data_files") or ()]
        files = [path / name for name in listed if stays_inside(name)] or sorted(path.glob("*.arrow"))
        if not files:
            raise FileError(f"{path} must hold Arrow files; there are none. Save it with dataset.save_to_disk(path).")
        schema = _arrow_table(files[0], None)

        def select(names: list[str]) -> Any:
            return pa.concat_tables([_arrow_table(file, names) for file in files])

        info = _json(path / "dataset_info.json") if (path / "dataset_info.json").is_file() else {}
        content = content_of(path, schema, select)
        return replace(content, label_names={**content.label_names, **_class_labels(info.get("features"))})


def _json(path: Path) -> dict[str, Any]:
    held = json.loads(path.read_bytes())
    if not isinstance(held, dict):
        raise FileError(f"{path} must hold a JSON object; it holds a {type(held).__name__}.")
    return held


def _class_labels(features: object) -> dict[str, tuple[str, ...]]:
    """Return the class names of the label columns of a Hugging Face data set, by column."""
    if not isinstance(features, dict):
        return {}
    names = {name: feature.get("names") for name, feature in features.items() if isinstance(feature, dict)}
    return {name: tuple(map(str, listed)) for name, listed in names.items() if isinstance(listed, list)}


def _check_arrow_buffers(path: Path, start: int) -> None:
    """Check the stated sizes of all compressed buffers before one is decompressed."""
    with path.open("rb") as file:
        file.seek(start)
        while len(head := file.read(8)) == 8:
            mark, length = struct.unpack("<Ii", head)
            if mark != 0xFFFFFFFF:  # the length alone, as written before version 0.15
                length = struct.unpack_from("<i", head)[0]
                file.seek(-4, io.SEEK_CUR)
            if length <= 0:
                return
            check_memory(path, length)
            metadata = file.read(length)
            body = file.tell()
            body_length, offsets = _compressed_buffers(metadata)
            if body_length < 0:
                raise ValueError("a message has a negative length")
            expanded = 0
            for offset in offsets:
                file.seek(body + offset)
                expanded += max(0, struct.unpack("<q", file.read(8))[0])  # -1: not compressed
            check_expansion(path, expanded)
            file.seek(body + body_length)


def _compressed_buffers(metadata: bytes) -> tuple[int, list[int]]:
    """Return the size of a message's body, and the offsets of its compressed buffers (format: Arrow's Message.fbs)."""

    def field(table: int, index: int) -> int | None:
        """Return the position of a field of a FlatBuffers table."""
        entries = table - struct.unpack_from("<i", metadata, table)[0]
        if 4 + 2 * index >= struct.unpack_from("<H", metadata, entries)[0]:
            return None
        offset = struct.unpack_from("<H", metadata, entries + 4 + 2 * index)[0]
        return table + offset if offset else None

    def follow(position: int) -> int:
        return position + int(struct.unpack_from("<I", metadata, position)[0])

    message = follow(0)
    kind, header, body = (field(message, index) for index in (1, 2, 3))
    body_length = 0 if body is None else int(struct.unpack_from("<q", metadata, body)[0])
    batch = None if header is None else follow(header)
    if kind is not None and batch is not None and metadata[kind] == _DICTIONARY_BATCH:
        data = field(batch, 1)
        batch = None if data is None else follow(data)
    elif kind is None or metadata[kind] != _RECORD_BATCH:
        batch = None
    buffers = None if batch is None or field(batch, 3) is None else field(batch, 2)
    if buffers is None:
        return body_length, []
    vector = follow(buffers)
    end = vector + 4 + 16 * struct.unpack_from("<I", metadata, vector)[0]
    pairs = struct.iter_unpack("<qq", metadata[vector + 4 : end])
    return body_length, [offset for offset, length in pairs if length >= 8]


def _bounded(path: Path, batches: Iterable[Any], *, held: bool = True) -> Iterator[Any]:
    """Yield the batches of a file; raise if they are larger than is plausible for its size."""
    size = 0
    for batch in batches:
        size += batch.get_total_buffer_size()
        check_expansion(path, size, held=held)
        yield batch


def first_moved(ours: Any, theirs: Any) -> int | None:
    """Return the first row that differs if two columns hold the same distinct texts or whole numbers, else None."""
    import pyarrow.compute as pc

    kinds = (pa.types.is_integer, pa.types.is_string, pa.types.is_large_string)
    is_alike = ours.type == theirs.type and len(ours) == len(theirs) and any(kind(ours.type) for kind in kinds)
    if not is_alike or ours.equals(theirs) or pc.count_distinct(ours, mode="all").as_py() < len(ours):
        return None
    if not ours.take(pc.sort_indices(ours)).equals(theirs.take(pc.sort_indices(theirs))):
        return None
    return int(pc.index(pc.equal(ours, theirs), False).as_py())


def content_of(path: Path | None, schema: Any, select: Callable[[list[str]], Any]) -> source.Content:
    """Return the content of a table whose columns have types."""
    metadata = schema.metadata or {}
    index = _pandas_index(metadata)
    names = tuple(name for name in schema.names if name not in index)
    shown = ", ".join(map(repr, index))
    hint = f"(A pandas index is not a column: {shown}; reset_index() makes it one.)" if index else ""

    def read(wanted: Sequence[str], text: Collection[str] | None) -> source.Arrays:
        table, others = select(list(wanted)), () if text is None or isinstance(text, str) else text
        columns = {name: _days(table[name]) if name in others else table[name] for name in wanted}
        return {name: column_of(column, name, may_lack=True) for name, column in columns.items()}

    def verbatim(wanted: Sequence[str]) -> dict[str, Any]:
        table = select(list(wanted))
        return {name: table[name] for name in wanted}

    def shape(name: str) -> tuple[int | None, ...]:
        kind = schema.field(name).type
        is_matrix = _is_list(kind) and not pa.types.is_struct(kind.value_type)
        return (None, getattr(kind, "list_size", None)) if is_matrix else (None,)

    try:
        features = json.loads(metadata.get(b"huggingface", b"{}")).get("info", {}).get("features")
    except (ValueError, AttributeError):
        features = None
    label_names, stored = _class_labels(features), tuple(name for name in index if name in schema.names)
    class_names = _class_names(metadata)
    return source.Content(
        path, "column", names, class_names, read, shape, hint, verbatim, label_names, metadata, stored
    )


def _class_names(metadata: dict[bytes, bytes]) -> tuple[str, ...] | None:
    listed = metadata.get(b"class_names")
    try:
        return source.as_class_names(None if listed is None else json.loads(listed))
    except ValueError as error:  # also an InputError
        raise InputError("the metadata 'class_names' must be a JSON list of a name per class; it is not.") from error


def _pandas_index(metadata: dict[bytes, bytes]) -> tuple[str, ...]:
    """Return the columns that pandas added for a frame's index, which it lists in the metadata."""
    try:
        noted = json.loads(metadata.get(b"pandas", b"{}")).get("index_columns", [])
        return tuple(name for name in noted if isinstance(name, str))
    except (ValueError, AttributeError, TypeError):
        return ()  # another library's metadata under pandas' key


def table_of(arrays: Mapping[str, Any], form: source.Form) -> Any:
    """Return a table with one column per class, or of columns that are laid out already."""
    columns = dict(arrays)
    if not form.is_laid_out:
        columns = {
            "label" if name == "labels" else name: arrays[name] for name in arrays if name not in source.PREFIXES
        }
        for name in source.PREFIXES.keys() & arrays.keys():
            columns = {**_by_class(arrays[name], source.PREFIXES[name]), **columns}
    table = pa.table({name: arrow_column(array) for name, array in columns.items()})
    names = {} if form.class_names is None else {"class_names": json.dumps(form.class_names)}
    return table.replace_schema_metadata({**form.metadata, **names, **form.made_from} or None)


def _by_class(scores: source.Column, prefix: str) -> source.Arrays:
    assert isinstance(scores, Tensor)
    by_class = scores.reshape(len(scores), -1).T.contiguous()
    if len(by_class) == 1:  # the one logit of two classes
        return {prefix.removesuffix("_"): by_class[0]}
    return {f"{prefix}{place}": column for place, column in enumerate(by_class)}


def arrow_column(array: Any) -> Any:
    """Return a zero-copy Arrow array; `pa.array` would import pandas."""
    if isinstance(array, Words):
        return pa.array(list(array.distinct), pa.string()).take(arrow_column(array.codes))
    if not isinstance(array, Tensor):
        return array
    if array.ndim == 2:
        return pa.FixedSizeListArray.from_arrays(arrow_column(array.reshape(-1)), array.shape[1])
    values = source.as_numpy(array.byte() if array.dtype == torch.bool else array)
    column = pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])
    return column.cast(pa.bool_()) if array.dtype == torch.bool else column


def gapped_column(column: source.Column, kept: Tensor) -> Any:
    """Return an Arrow array with the entries of a column where ``kept``, (n,), and nulls between."""
    import pyarrow.compute as pc

    places = pc.if_else(arrow_column(kept), arrow_column(kept.cumsum(0) - 1), pa.scalar(None, pa.int64()))
    return arrow_column(column if isinstance(column, Words) else column.contiguous()).take(places)


def can_hold(suffix: str, kind: Any) -> bool:
    """Return whether a file of text can hold Arrow columns of a type; other tables hold all."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if suffix.startswith(".jsonl") and _is_list(kind):
        return can_hold(suffix, kind.value_type)
    tests = ("boolean", "integer", "floating", "string", "large_string", "string_view", "null")
    more = () if suffix.startswith(".jsonl") else ("temporal", "decimal")
    return any(getattr(pa.types, f"is_{test}")(kind) for test in (*tests, *more))


def write_parquet(batches: Iterable[Mapping[str, Any]], form: source.Form, file: Path) -> tuple[str, ...]:
    """Write a Parquet file with checksums."""
    import pyarrow.parquet as pq

    with ExitStack() as opened:
        writer = None
        for arrays in batches:
            table = table_of(arrays, form)
            if writer is None:
                # Scores hardly ever repeat, so a dictionary of them only costs time.
                repeated = [
                    f.name for f in table.schema if pa.types.is_string(f.type) or pa.types.is_dictionary(f.type)
                ]
                writer = opened.enter_context(
                    pq.ParquetWriter(file, table.schema, use_dictionary=repeated, write_page_checksum=True)
                )
            writer.write_table(table.cast(writer.schema))
    return ()


def write_arrow(batches: Iterable[Mapping[str, Any]], form: source.Form, file: Path) -> tuple[str, ...]:
    """Write Arrow's file format (Feather version 2); categories as text, as it has one list of them for all batches."""
    with pa.OSFile(str(file), "wb") as sink, ExitStack() as opened:
        writer = schema = None
        for arrays in batches:
            table = table_of(arrays, form)
            if schema is None:
                plain = {f.name: f.type.value_type if pa.types.is_dictionary(f.type) else f.type for f in table.schema}
                schema = pa.schema(plain, table.schema.metadata)
                writer = opened.enter_context(pa.ipc.new_file(sink, schema))
            writer.write_table(table.cast(schema), max_chunksize=_ROWS)  # type: ignore[union-attr]
    return ()
