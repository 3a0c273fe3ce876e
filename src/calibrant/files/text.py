"""Read and write tables of text: CSV, TSV and JSON lines, plain or compressed by gzip."""

import csv as plain_csv
import gzip
import io
import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Any, final

import numpy as np
import pyarrow as pa
from pyarrow import csv
from torch import Tensor

from calibrant.errors import Argument, FileError, InputError, check_expansion, check_memory, reading
from calibrant.files.source import PREFIXES, Arrays, ClassNames, Content
from calibrant.files.tables import arrow_column, column_of, content_of, in_rows, table_of
from calibrant.labels import whole_number

_CSV, _JSON = "CSV file", "file of JSON lines, one object each"
_BLOCK, _MOST_BLOCK = 1 << 20, 1 << 30  # bytes of a file that are parsed together
_LONGEST_HEADER, _LONGEST_NUMBER = 1 << 26, 64
_LONGER = 8  # times its first line that a line of JSON may be long
_CHECKED_EVERY = 1 << 26
_JSON_CHUNK = 1 << 24  # bytes of lines that are parsed together where not all are
_DEEPEST = 64  # lists within lists in a line of JSON
_QUOTED = re.compile(rb'"(?:[^"\\]|\\.)*"')
_MARKS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_WORDS = {"tab": "\t", "\\t": "\t"}  # what the command line may call the tab


def open_csv(path: Path, separator: str | None = None) -> Content:
    """Open separated values with the names in the first row, plain or compressed (``.gz``).

    The separator is the comma, and the tab in ``.tsv`` files, unless given.
    """
    mark, options, quoted_lines = _csv_form(path, separator)
    kept: dict[str, Any] = {}  # columns that were read as text, so that copying labels takes no second pass

    def parsed(parse: Callable[[Any], Any]) -> Any:  # again in larger blocks, as a row may lie in two of them at most
        while True:
            try:
                with reading(path, _CSV), _csv_text(path) as file:
                    return parse(file)
            except FileError as error:
                if options.block_size >= _MOST_BLOCK or not isinstance(error.__cause__, pa.ArrowInvalid):
                    raise
                options.block_size = min(64 * options.block_size, _MOST_BLOCK)

    def read(wanted: Sequence[str], text: Collection[str] | None) -> Arrays:
        # Labels are read as text first: a class called "true", "nan" or "2024-01-01" must stay a word.
        texts = {text} if isinstance(text, str) else set(text or ())
        types = dict.fromkeys(texts, pa.string())
        convert = csv.ConvertOptions(include_columns=list(wanted), column_types=types)
        table = parsed(lambda file: csv.read_csv(file, options, quoted_lines, convert))
        kept.update({name: table[name] for name in texts})
        return {name: column_of(_as_numbers(table[name]) if name in texts else table[name], name) for name in wanted}

    def verbatim(wanted: Sequence[str]) -> Arrays:
        missing = [name for name in wanted if name not in kept]
        if missing:
            read(missing, missing)
        return {name: column_of(kept[name], name) for name in wanted}

    names = tuple(parsed(lambda file: csv.open_csv(file, options, quoted_lines).schema.names))
    hint = f"The first row must hold the names, separated by {_MARKS.get(mark, repr(mark))}."
    return Content(path, "column", names, None, read, lambda _name: (None,), hint, verbatim)


def _csv_form(path: Path, separator: str | None) -> tuple[str, Any, Any]:
    """Return the separator of a CSV file, and how it is read and parsed."""
    mark = _as_character(separator) or ("\t" if path.name.lower().endswith((".tsv", ".tsv.gz")) else ",")
    with reading(path, _CSV), gzip.open(path) if _is_gzip(path) else path.open("rb") as file:
        # A block must hold a whole line, and those of many classes are long.
        header = file.readline(_LONGEST_HEADER)
        block = max(_BLOCK, len(header) + _LONGEST_NUMBER * (header.count(mark.encode()) + 1))
        options = csv.ReadOptions(block_size=min(block, _MOST_BLOCK))
    # Before parsing: with decimal commas, the rows have other numbers of commas than the first.
    others = [other for other in _MARKS if mark.encode() not in header and other.encode() in header]
    if others:
        word = next((word for word, character in _WORDS.items() if character == others[0]), others[0])
        raise FileError(
            f"{path} must have its columns separated by {_MARKS.get(mark, repr(mark))}; its first row has none, but "
            f"{_MARKS[others[0]]}. Pass ",
            *(Argument("separator", word), "."),
        )
    return mark, options, csv.ParseOptions(delimiter=mark, newlines_in_values=True)


def csv_batches(
    path: Path, names: Sequence[str], rows: int, *, numbers: Collection[str], separator: str | None = None
) -> Iterator[Content]:
    """Yield some rows of a CSV file at a time, columns of the types that they have if it is read whole.

    ``numbers`` are columns that must hold numbers. A column of text is one of numbers if all its rows are, which takes
    a pass over the file to know.
    """
    texts = tuple(name for name in names if name not in numbers)
    facts = path.stat()
    kinds = _types_of_text(path, texts, separator, (facts.st_size, facts.st_mtime_ns))
    for table in in_rows(_csv_records(path, names, texts, separator), rows):
        columns = {name: _cast_text(table[name], kinds[name]) if name in kinds else table[name] for name in names}
        typed = pa.table(columns)
        yield content_of(path, typed.schema, typed.select)


def _csv_records(path: Path, names: Sequence[str], texts: Sequence[str], separator: str | None) -> Iterator[Any]:
    """Yield record batches of a CSV file, with some columns as text and the others as float64."""
    _, options, parse = _csv_form(path, separator)
    types = {name: pa.string() if name in texts else pa.float64() for name in names}
    convert = csv.ConvertOptions(include_columns=list(names), column_types=types)
    with (
        reading(path, _CSV),
        _csv_text(path) as file,
        csv.open_csv(file, read_options=options, parse_options=parse, convert_options=convert) as reader,
    ):
        yield from reader


@lru_cache(maxsize=64)
def _types_of_text(path: Path, texts: tuple[str, ...], separator: str | None, _facts: Any) -> dict[str, Any]:
    """Return the type of each column that holds text, or only numbers, of a file as it was at some time."""
    kinds = dict.fromkeys(texts, pa.int64())
    for batch in _csv_records(path, texts, texts, separator) if texts else ():
        for name in texts:
            seen = _as_numbers(batch[name]).type
            if kinds[name] != pa.string() and seen != pa.int64():
                kinds[name] = seen if pa.types.is_string(seen) else pa.float64()
    return kinds


def _cast_text(column: Any, kind: Any) -> Any:
    import pyarrow.compute as pc

    return column if kind == pa.string() else pc.utf8_trim_whitespace(column).cast(kind)


def _as_character(separator: str | None) -> str | None:
    """Return the one character that separates columns; ``tab`` is the tab."""
    if separator is None:
        return None
    mark = _WORDS.get(separator.lower(), separator)
    if len(mark) != 1 or not mark.isascii() or mark.isalnum() or mark in '"\n\r.-+':
        raise InputError(
            Argument("separator", separator), " must be one character that is in no number, such as ';', '|' or tab."
        )
    return mark


def _as_numbers(column: Any) -> Any:
    """Return a column of text as int64 or float64 if every row is a number, else unchanged."""
    import pyarrow.compute as pc

    trimmed = pc.utf8_trim_whitespace(column)
    try:
        return trimmed.cast(pa.int64())
    except pa.ArrowInvalid:
        pass
    if pc.any(pc.match_substring_regex(trimmed, "(?i)^[-+]?(nan|inf)")).as_py():  # words, if they are names
        return column
    try:
        return trimmed.cast(pa.float64())
    except pa.ArrowInvalid:
        return column


def _is_gzip(path: Path) -> bool:
    return path.name.lower().endswith(".gz")


@contextmanager
def _csv_text(path: Path) -> Iterator[Any]:
    """Open the bytes of a CSV file, decompressed in bounded steps."""
    if _is_gzip(path):
        with gzip.open(path) as unpacked:
            file = _BoundedFile(unpacked, path)
            try:
                yield file
            finally:
                if file.failure is not None:
                    raise file.failure
    else:
        with pa.OSFile(str(path)) as file:
            yield file


@final
class _BoundedFile(io.BufferedIOBase):
    """A decompressed file that ends once more bytes were decompressed than is plausible.

    It keeps its error for the caller: one that leaves ``read`` passes through Arrow's threads, and Arrow 18 then hangs
    in the next file that it reads.
    """

    def __init__(self, file: gzip.GzipFile, path: Path) -> None:
        super().__init__()
        self._file, self._path, self._given, self._checked = file, path, 0, 0
        self.failure: Exception | None = None

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        try:
            given = b"" if self.failure else self._file.read(_BLOCK if size is None or size < 0 else size)
            self._given += len(given)
            if self._given - self._checked >= _CHECKED_EVERY:
                self._checked = self._given
                # A number takes about as many bytes in memory as it has digits, and is held more than once.
                check_expansion(self._path, self._given)
                check_memory(self._path, 2 * self._given)
        except Exception as failure:  # noqa: BLE001 - raised where the file is closed
            self.failure, given = failure, b""
        return given


def open_jsonl(path: Path) -> Content:
    """Open JSON lines: one object per sample, whose fields are numbers, text, arrays of numbers, or objects of these.

    The fields of an object within are columns too: ``{"probs": {"cat": 0.9, "dog": 0.1}}`` has ``probs.cat``.
    """
    with reading(path, _JSON):
        with gzip.open(path) if _is_gzip(path) else path.open("rb") as file:
            first = file.readline(_LONGEST_HEADER)
        if not _is_gzip(path):
            check_memory(path, 2 * path.stat().st_size)
        _check_nesting(path)
        table = _json_table(lambda: _csv_text(path), max(_BLOCK, _LONGER * len(first)))
        return content_of(path, table.schema, table.select)  # older pyarrow decodes the names of columns only here


def jsonl_batches(path: Path, names: Sequence[str]) -> Iterator[Content]:
    """Yield the lines of a file of JSON some megabytes at a time."""
    with reading(path, _JSON), gzip.open(path) if _is_gzip(path) else path.open("rb") as file:
        given, size, lines = 0, 0, list[bytes]()
        while True:
            line = file.readline(_LONGEST_HEADER)
            _check_line(line, path)
            lines.append(line)
            size += len(line)
            if lines != [b""] and (not line or size >= _JSON_CHUNK):
                given += size
                check_expansion(path, given)
                held = b"".join(lines)
                table = _json_table(lambda held=held: nullcontext(io.BytesIO(held)), size)  # type: ignore[misc]
                if missing := [name for name in names if name not in table.column_names]:
                    raise InputError(f"column {missing[0]!r} must have a value in every row; it has none in some.")
                yield content_of(path, table.schema, table.select)
                size, lines = 0, []
            if not line:
                return


def _json_table(source: Callable[[], AbstractContextManager[Any]], block: int) -> Any:
    """Return the table of a file of JSON, which may be read twice: text that looks like a date stays text."""
    from pyarrow import json as json_lines

    options = json_lines.ReadOptions(block_size=min(max(_BLOCK, block), _MOST_BLOCK))
    with source() as file:
        table = json_lines.read_json(file, options)
    if times := [field.name for field in table.schema if pa.types.is_timestamp(field.type)]:
        parse = json_lines.ParseOptions(explicit_schema=pa.schema(dict.fromkeys(times, pa.string())))
        with source() as file:
            table = json_lines.read_json(file, options, parse)
    table.validate(full=True)
    while any(pa.types.is_struct(column.type) for column in table.schema):
        table = table.flatten()
    return table


def _check_nesting(path: Path) -> None:
    """Check that no line is nested so deeply that the parser, which calls itself, would end the process."""
    size, checked = 0, 0
    with gzip.open(path) if _is_gzip(path) else path.open("rb") as file:
        while line := file.readline(_LONGEST_HEADER):
            size += len(line)
            if size - checked >= _CHECKED_EVERY:
                checked = size
                check_expansion(path, size)
            _check_line(line, path)


def _check_line(line: bytes, path: Path) -> None:
    if line.count(b"[") + line.count(b"{") > _DEEPEST:
        marks = np.frombuffer(_QUOTED.sub(b"", line), dtype=np.uint8)
        steps = np.isin(marks, list(b"[{")).astype(np.int32) - np.isin(marks, list(b"]}"))
        if steps.cumsum().max() > _DEEPEST:
            raise FileError(f"{path} must have lines of numbers, text, lists and objects; one is nested too deeply.")


def write_text(
    arrays: Arrays, names: ClassNames, file: Path, suffix: str, is_laid_out: bool, separator: str | None
) -> None:
    """Write CSV, TSV or JSON lines, compressed for ``.gz``, with the class names in those of the columns."""
    table = _csv_table(arrays, names, is_laid_out=is_laid_out)
    with file.open("wb") as plain:
        # Digits of scores are close to noise: higher levels take four times as long for a twentieth less.
        sink = gzip.GzipFile("", "wb", 1, plain, mtime=0) if suffix.endswith(".gz") else nullcontext(plain)
        with sink as target:
            if suffix.startswith(".jsonl"):
                for batch in table.to_batches(max_chunksize=1 << 12):
                    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in batch.to_pylist())
                    target.write(lines.encode())
            else:
                mark = _as_character(separator) or ("\t" if suffix.startswith(".tsv") else ",")
                _write_delimited(table, target, mark)


def _write_delimited(table: pa.Table, target: Any, mark: str) -> None:
    """Write a table, with quotes only where a name or some text cannot do without."""
    import pyarrow.compute as pc

    head = io.StringIO()
    plain_csv.writer(head, delimiter=mark, lineterminator="\n").writerow(table.column_names)
    target.write(head.getvalue().encode())
    texts = (column for column in table.columns if pa.types.is_string(column.type))
    special = rf'[\x{ord(mark):02x}"\r\n]'
    style = "needed" if any(pc.any(pc.match_substring_regex(text, special)).as_py() for text in texts) else "none"
    csv.write_csv(table, target, csv.WriteOptions(include_header=False, delimiter=mark, quoting_style=style))


def _csv_table(arrays: Arrays, names: ClassNames, *, is_laid_out: bool) -> Any:
    """Return a table with all numbers as float64 and the class names in the names of the columns."""
    # The digits of a float32 read as float64 would be another number; those of the same number as float64 are not.
    wide = {
        name: array.double() if isinstance(array, Tensor) and array.is_floating_point() else array
        for name, array in arrays.items()
    }
    table = table_of(wide, None, is_laid_out=is_laid_out)
    if is_laid_out or names is None or names == tuple(str(place) for place in range(len(names))):
        return table
    _check_words(names)
    prefix = next(prefix for name, prefix in PREFIXES.items() if name in arrays)
    columns = {f"{prefix}{name}": table[place] for place, name in enumerate(names)}
    if "labels" in arrays:
        columns["label"] = pa.array(list(names), pa.string()).take(arrow_column(arrays["labels"]))
    others = {name: table[name] for name in arrays if name not in PREFIXES and name != "labels"}
    return pa.table({**columns, **others})


def _check_words(names: tuple[str, ...]) -> None:
    """Check that class names can be read back from the names of columns: different words, or 1, 2, ... in order."""
    numbers = [whole_number(name) for name in names]
    first = numbers[0]
    if first and names == tuple(str(number) for number in range(first, first + len(names))):
        return
    wrong = [name for name, number in zip(names, numbers, strict=True) if number is not None or not name]
    if wrong or len(set(names)) < len(names):
        got = f"{wrong[0]!r}" if wrong else "the same name twice"
        raise FileError(
            f"class names in a CSV file must be different words, not numbers, as its columns are named after them; "
            f"got {got}. Save as .parquet, or leave the class names out."
        )
