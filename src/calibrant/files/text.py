"""Read and write tables of text: CSV, TSV and JSON lines, plain or compressed by gzip."""

import csv as plain_csv
import gzip
import io
import json
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, final

import numpy as np
import pyarrow as pa
from pyarrow import csv
from torch import Tensor

from calibrant.errors import Argument, FileError, InputError, check_expansion, check_memory, reading
from calibrant.files.source import PERCENT, PREFIXES, Arrays, Content, Form, text_error
from calibrant.files.tables import arrow_column, column_of, content_of, in_rows, table_of
from calibrant.labels import NOTHING, whole_number

_CSV, _JSON = "CSV file", "file of JSON lines, one object each"
_BLOCK, _MOST_BLOCK = 1 << 20, 1 << 30  # bytes of a file that are parsed together
_LONGEST_HEADER, _LONGEST_NUMBER = 1 << 26, 64
_LONGER = 8  # times its first line that a line of JSON may be long
_CHECKED_EVERY = 1 << 26
_JSON_CHUNK = 1 << 24  # bytes of lines that are parsed together where not all are
_DEEPEST = 64  # lists within lists in a line of JSON
_QUOTED = re.compile(rb'"(?:[^"\\]|\\.)*"')
_MARKS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_WORDS = {"tab": "\t", "\\t": "\t", "csv2": ";"}  # what the command line may call them; csv2 has decimal commas


def open_csv(path: Path, separator: str | None = None) -> Content:
    """Open separated values with the names in the first row, plain or compressed (``.gz``).

    The separator is the comma, and the tab in ``.tsv`` files, unless given. Decimal commas are those of ``csv2``.
    """
    mark, options, quoted_lines = _csv_form(path, separator)
    point = _decimal_point(separator)
    kept: dict[str, Any] = {}  # columns that were read as text, so that copying labels takes no second pass

    def parsed(parse: Callable[[Any], Any], *, held: bool = True) -> Any:
        # Again in larger blocks, as a row may lie in two of them at most, and on one thread: errors then number rows.
        while True:
            try:
                with _reading_csv(path), _csv_text(path, held=held) as file:
                    return parse(file)
            except FileError as error:
                if options.block_size >= _MOST_BLOCK or not isinstance(error.__cause__, pa.ArrowInvalid):
                    raise
                options.block_size, options.use_threads = min(64 * options.block_size, _MOST_BLOCK), False

    def read(wanted: Sequence[str], text: Collection[str] | None) -> Arrays:
        # Labels are read as text first: a class called "true", "nan" or "2024-01-01" must stay a word.
        texts = {text} if isinstance(text, str) else set(text or ())
        types = dict.fromkeys(texts, pa.string())
        convert = csv.ConvertOptions(include_columns=list(wanted), column_types=types, decimal_point=point)
        table = parsed(lambda file: csv.read_csv(file, options, quoted_lines, convert))
        kept.update({name: table[name] for name in texts})
        columns = {name: _as_numbers(table[name], point) if name in texts else table[name] for name in wanted}
        return {name: column_of(column, name, may_lack=True) for name, column in columns.items()}

    def verbatim(wanted: Sequence[str]) -> dict[str, Any]:
        missing = [name for name in wanted if name not in kept]
        if missing:
            read(missing, missing)
        return {name: kept[name] for name in wanted}

    names = tuple(parsed(lambda file: csv.open_csv(file, options, quoted_lines).schema.names, held=False))
    hint = f"The first row must hold the names, separated by {_MARKS.get(mark, repr(mark))}."
    return Content(path, "column", names, None, read, lambda _name: (None,), hint, verbatim)


def _csv_form(path: Path, separator: str | None) -> tuple[str, Any, Any]:
    """Return the separator of a CSV file, and how it is read and parsed."""
    mark = _as_character(separator) or ("\t" if path.name.lower().endswith((".tsv", ".tsv.gz")) else ",")
    with _reading_csv(path), gzip.open(path) if _is_gzip(path) else path.open("rb") as file:
        # A block must hold a whole line, and those of many classes are long.
        header = file.readline(_LONGEST_HEADER)
        _check_text(path, header)
        second = file.readline(_LONGEST_HEADER)
        block = max(_BLOCK, len(header) + _LONGEST_NUMBER * (header.count(mark.encode()) + 1))
        options = csv.ReadOptions(block_size=min(block, _MOST_BLOCK))
    if header.lower().startswith((b"sep=", b"\xef\xbb\xbfsep=")):  # Excel's
        raise FileError(f"{path} must begin with the names of the columns; it begins with sep=. Delete that line.")
    # Before parsing: with decimal commas, the rows have other numbers of commas than the first.
    others = [other for other in _MARKS if mark.encode() not in header and other.encode() in header]
    if others:
        has_commas = others[0] == ";" and re.search(rb'(^|;)\s*"?[-+]?\d+,\d', second) is not None
        also = ", and its numbers have decimal commas" * has_commas
        raise FileError(
            f"{path} must have its columns separated by {_MARKS.get(mark, repr(mark))}; its first row has none, but "
            f"{_MARKS[others[0]]}{also}. Pass ",
            *(Argument("separator", "csv2" if has_commas else "tab" if others[0] == "\t" else others[0]), "."),
        )
    if mark.encode() not in header and _has_spaced_columns(header, second):
        raise FileError(
            f"{path} must have its columns separated by {_MARKS.get(mark, repr(mark))}; its rows have none, but spaces "
            "between words. Replace the spaces by commas, or, where there is one between any two, pass ",
            *(Argument("separator", " "), "."),
        )
    if mark.encode() + b" " in header and b'"' not in header:  # Arrow would keep the spaces of "a, b"
        options.column_names = [name.strip() for name in header.decode("utf-8-sig", "replace").split(mark)]
        options.skip_rows = 1
    return mark, options, csv.ParseOptions(delimiter=mark, newlines_in_values=True)


def _has_spaced_columns(header: bytes, second: bytes) -> bool:
    """Return whether both rows have as many words, several, of which those of the second are not all text."""
    words = second.split()
    return len(words) == len(header.split()) > 1 and b'"' not in header and any(word[-1:].isdigit() for word in words)


def _check_text(path: Path, start: bytes) -> None:
    """Check by its first bytes that a file is not of another format or encoding."""
    forms = {b"PK\x03\x04": "an Excel file or another zip archive", b"\x1f\x8b": "compressed"}
    form = next((form for mark, form in forms.items() if start.startswith(mark)), None)
    if form is not None:
        raise FileError(f"{path} must be text in UTF-8; it is {form}. Save it as UTF-8, or name it by its format.")
    # Letters, digits and marks of UTF-16 have a byte of 0 each, the second one in the order of Windows.
    marks = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
    zeros = {"UTF-16LE": start[1::2].count(0), "UTF-16BE": start[::2].count(0)}
    likely = marks.get(start[:2]) or max(zeros, key=lambda encoding: zeros[encoding])
    if likely == "UTF-16" or 4 * zeros[likely] > len(start):
        raise _not_utf8_error(path, f"it is {'' if likely == 'UTF-16' else 'probably '}{likely}", likely)


def _not_utf8_error(path: Path, what: str, encoding: str) -> FileError:
    new = shlex.quote(f"utf-8-{path.name}")
    return FileError(
        f"{path} must be text in UTF-8; {what}. Save it as UTF-8 (Excel: CSV UTF-8), or convert it: "
        f"iconv -f {encoding} -t UTF-8 {shlex.quote(path.name)} > {new}"
    )


@contextmanager
def _reading_csv(path: Path) -> Iterator[None]:
    """Name the first line that is not in UTF-8 in the error."""
    try:
        with reading(path, _CSV):
            yield
    except FileError as error:
        if isinstance(error.__cause__, UnicodeDecodeError | pa.ArrowInvalid):
            _check_lines(path, bytes.decode)
        raise


def _check_lines(path: Path, parse: Callable[[bytes], Any]) -> None:
    """Raise with the first line of a file that is not in UTF-8, or that cannot be parsed as JSON."""
    with gzip.open(path) if _is_gzip(path) else path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                parse(line)
            except UnicodeDecodeError as failure:
                what = f"line {number} is in another encoding, such as Windows-1252 (Latin-1)"
                raise _not_utf8_error(path, what, "WINDOWS-1252") from failure
            except ValueError as failure:
                text = f"{path} must hold one JSON object in every line; line {number} holds none ({failure})."
                raise FileError(f"{text} It may have been cut short or damaged; write it again.") from failure


def csv_batches(
    path: Path,
    names: Sequence[str],
    rows: int,
    *,
    numbers: Collection[str],
    copied: Collection[str] = (),
    shares: Collection[str] = (),
    separator: str | None = None,
    percent: bool = False,
) -> Iterator[Content]:
    """Yield some rows of a CSV file at a time, columns of the types that they have if it is read whole.

    ``numbers`` are columns that must hold numbers, and ``copied`` those that stay text. Another is one of numbers if
    all its rows are, which takes a pass over the file to know. Those of ``shares`` may be text with percent signs: if
    ``percent`` all, else those that have some in the first block.
    """
    point = _decimal_point(separator)
    signed = tuple(shares) if percent else _signed(path, shares, separator)
    texts = tuple(name for name in names if name not in numbers or name in signed)
    untyped = tuple(name for name in texts if name not in copied and name not in signed)
    kinds = _types_of_text(path, untyped, separator, _facts(path))
    for table in in_rows(_csv_records(path, names, texts, separator), rows):
        columns = {name: table[name] for name in names}
        columns |= {name: _cast_text(columns[name], kind, point) for name, kind in kinds.items()}
        columns |= {name: _as_numbers(columns[name], point) for name in signed if percent}
        typed = pa.table(columns)
        stored = content_of(path, table.schema, table.select)
        yield replace(content_of(path, typed.schema, typed.select), verbatim=stored.verbatim)


def _signed(path: Path, names: Collection[str], separator: str | None) -> tuple[str, ...]:
    """Return the columns of a CSV file that have percent signs in its first block."""
    import pyarrow.compute as pc

    first = next(_csv_records(path, tuple(names), tuple(names), separator), None) if names else None
    return tuple(name for name in names if first and pc.any(pc.match_substring_regex(first[name], r"%\s*$")).as_py())


def _facts(path: Path) -> tuple[int, int]:
    return path.stat().st_size, path.stat().st_mtime_ns


def _csv_records(
    path: Path, names: Sequence[str], texts: Sequence[str], separator: str | None, *, threads: bool = True
) -> Iterator[Any]:
    """Yield record batches of a CSV file, with some columns as text and the others as float64."""
    _, options, parse = _csv_form(path, separator)
    options.use_threads = threads
    types = {name: pa.string() if name in texts else pa.float64() for name in names}
    point = _decimal_point(separator)
    convert = csv.ConvertOptions(include_columns=list(names), column_types=types, decimal_point=point)
    with _reading_csv(path):
        try:
            with _csv_text(path, held=False) as file, csv.open_csv(file, options, parse, convert) as reader:
                yield from reader
        except pa.ArrowInvalid:
            if threads:
                _check_rows(path, names, [name for name in names if name not in texts], separator)
            raise


def _check_rows(path: Path, names: Sequence[str], numbers: Sequence[str], separator: str | None) -> None:
    """Raise with the first row of a CSV file that has too few columns, or text for a number: Arrow does not know it."""
    first, nothing, point = 0, csv.ConvertOptions().null_values, _decimal_point(separator)
    for batch in _csv_records(path, names, names, separator, threads=False):
        for row, words in enumerate(zip(*(batch[name].to_pylist() for name in numbers), strict=True), first):
            for name, word in zip(numbers, words, strict=True):
                with suppress(ValueError):
                    if word in nothing or float(word.replace(point, ".")) is not None:
                        continue
                raise text_error(name, word, row)
        first += len(batch)


@lru_cache(maxsize=64)
def _types_of_text(path: Path, texts: tuple[str, ...], separator: str | None, _facts: Any) -> dict[str, Any]:
    """Return the type of each column: text, or a number type if every row is a number. Cached by the file's facts."""
    if not texts:
        return {}
    kinds = dict.fromkeys(texts, pa.int64())
    for batch in _csv_records(path, texts, texts, separator):
        for name in texts:
            seen = _as_numbers(batch[name], _decimal_point(separator)).type
            if seen == pa.string() and _with_gaps(batch[name]).null_count == len(batch):  # empty: fits every type
                continue
            if kinds[name] != pa.string() and seen != pa.int64():
                kinds[name] = seen if pa.types.is_string(seen) else pa.float64()
    return kinds


def _cast_text(column: Any, kind: Any, point: str) -> Any:
    return column if kind == pa.string() else _with_gaps(_trimmed(column, point)).cast(kind)


def _trimmed(column: Any, point: str) -> Any:
    """Return a column of text without spaces around it, and with a point for the decimal point of the file."""
    import pyarrow.compute as pc

    column = pc.utf8_trim_whitespace(column)
    return column if point == "." else pc.replace_substring(column, point, ".")


def _as_character(separator: str | None) -> str | None:
    """Return the one character that separates columns; ``tab`` is the tab."""
    if separator is None:
        return None
    mark = _WORDS.get(separator.lower(), separator)
    if len(mark) != 1 or not mark.isascii() or mark.isalnum() or mark in '"\n\r.-+':
        raise InputError(
            Argument("separator", separator),
            " must be one character that is in no number, such as ';', '|' or tab, or csv2.",
        )
    return mark


def _decimal_point(separator: str | None) -> str:
    """Return the decimal point: the comma in what R calls ``csv2``, and Excel writes in many countries."""
    return "," if separator is not None and separator.lower() == "csv2" else "."


def _as_numbers(column: Any, point: str) -> Any:
    """Return a column of text as int64 or float64 if every row is a number, or a gap beside numbers; else unchanged."""
    import pyarrow.compute as pc

    trimmed = _trimmed(column, point)
    try:
        return trimmed.cast(pa.int64())
    except pa.ArrowInvalid:
        trimmed = _with_gaps(trimmed)
    with suppress(pa.ArrowInvalid):
        return trimmed.cast(pa.int64()) if trimmed.null_count < len(trimmed) else column
    if pc.any(pc.match_substring_regex(trimmed, "(?i)^[-+]?(nan|inf)")).as_py():  # words, if they are names
        return column
    try:
        return trimmed.cast(pa.float64())
    except pa.ArrowInvalid:
        return column


def _with_gaps(trimmed: Any) -> Any:
    """Return text with nulls in place of what stands for no number."""
    import pyarrow.compute as pc

    nothing = pc.is_in(pc.utf8_lower(trimmed), pa.array(sorted(NOTHING), trimmed.type))
    return pc.if_else(nothing, pa.scalar(None, trimmed.type), trimmed)


def lines_of(path: Path, rows: Collection[int]) -> list[int]:
    """Return the lines of a file, counted from 1, in which rows begin, counted from 0 and without that of the names.

    Empty lines are no rows, and what stands in quotes in a CSV file may have several lines.
    """
    is_csv, is_inside, row, lines = ".jsonl" not in path.name.lower(), False, -1, dict[int, int]()
    row -= is_csv
    with gzip.open(path) if _is_gzip(path) else path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not is_inside and line.strip(b"\r\n"):
                row += 1
                lines |= {row: number} if row in rows else {}
                if row >= max(rows):
                    break
            is_inside ^= is_csv and bool(line.count(b'"') % 2)
    return [lines.get(row, row + 1 + is_csv) for row in rows]


def _is_gzip(path: Path) -> bool:
    return path.name.lower().endswith(".gz")


@contextmanager
def _csv_text(path: Path, *, held: bool = True) -> Iterator[Any]:
    """Open the bytes of a CSV file, decompressed in bounded steps; ``held`` if memory must hold them all."""
    if _is_gzip(path):
        with gzip.open(path) as unpacked:
            file = _BoundedFile(unpacked, path, held=held)
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

    def __init__(self, file: gzip.GzipFile, path: Path, *, held: bool) -> None:
        super().__init__()
        self._file, self._path, self._given, self._checked, self._held = file, path, 0, 0, held
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
                check_expansion(self._path, self._given, held=self._held)
                if self._held:
                    check_memory(self._path, 2 * self._given)
        except Exception as failure:  # noqa: BLE001 - raised where the file is closed
            self.failure, given = failure, b""
        return given


def open_jsonl(path: Path) -> Content:
    """Open JSON lines: one object per sample, whose fields are numbers, text, arrays of numbers, or objects of these.

    The fields of an object within are columns too: ``{"probs": {"cat": 0.9, "dog": 0.1}}`` has ``probs.cat``.
    """
    with _reading_json(path):
        with gzip.open(path) if _is_gzip(path) else path.open("rb") as file:
            first = file.readline(_LONGEST_HEADER)
            _check_text(path, first)
        if not _is_gzip(path):
            check_memory(path, 2 * path.stat().st_size)
        for _ in _json_chunks(path):  # before Arrow parses them: it calls itself for every level of a line
            pass
        table = _flat(_json_table(lambda: _csv_text(path), max(_BLOCK, _LONGER * len(first))))
        return content_of(path, table.schema, table.select)  # older pyarrow decodes the names of columns only here


def jsonl_batches(
    path: Path, names: Sequence[str], *, is_typed: bool = False, alike: Collection[str] = ()
) -> Iterator[Content]:
    """Yield the lines of a file of JSON some megabytes at a time.

    If ``is_typed``, columns have the types that they have if it is read whole, which takes a pass over it to know.
    Those of ``alike`` must be text everywhere or nowhere: beside ``85%``, 1 could be a share or a percentage.
    """
    are_text = dict[str, bool]()
    schema = _json_schema(path, _facts(path)) if is_typed else None
    for held in _json_chunks(path):
        with _reading_json(path):
            table = _flat(_json_table(lambda held=held: nullcontext(io.BytesIO(held)), len(held), schema))  # type: ignore[misc]
        for name in [name for name in names if name not in table.column_names]:
            table = table.append_column(name, pa.nulls(len(table)))
        for name in (name for name in alike if not pa.types.is_null(table[name].type)):
            is_text = pa.types.is_string(table[name].type)
            if are_text.setdefault(name, is_text) != is_text:
                text = f"{path} must have a % sign in every {name!r} or in none. If all are percentages, pass "
                raise FileError(text, PERCENT, ".")
        yield content_of(path, table.schema, table.select)


@lru_cache(maxsize=64)
def _json_schema(path: Path, _known: Any) -> Any:
    """Return the schema that fits all lines of a file. Cached by the file's size and time of change."""
    schema = pa.schema([])
    with _reading_json(path):
        for held in _json_chunks(path):
            some = _json_table(lambda held=held: nullcontext(io.BytesIO(held)), len(held)).schema  # type: ignore[misc]
            schema = _unified(schema, some)
    return schema


def _unified(schema: Any, other: Any) -> Any:
    """Return the schema of both, with text for a field that has text in one and something else in the other."""
    try:
        return pa.unify_schemas([schema, other], promote_options="permissive")
    except pa.ArrowTypeError:
        for place, field in enumerate(other):
            own = schema.get_field_index(field.name)
            if own >= 0 and pa.string() in (field.type, schema.types[own]):
                text = field.with_type(pa.string())
                schema, other = schema.set(own, text), other.set(place, text)
        return pa.unify_schemas([schema, other], promote_options="permissive")


@contextmanager
def _reading_json(path: Path) -> Iterator[None]:
    """Name the first line that is not JSON in the error; Arrow numbers the rows of one block at most."""
    try:
        with reading(path, _JSON):
            yield
    except FileError as error:
        if isinstance(error.__cause__, pa.ArrowInvalid):
            _check_lines(path, lambda line: json.loads(line if line.strip() else b"{}"))
        raise


def _json_chunks(path: Path) -> Iterator[bytes]:
    """Yield whole lines of a file, some megabytes at a time, none of which is nested so deeply that a parser fails."""
    with reading(path, _JSON), gzip.open(path) if _is_gzip(path) else path.open("rb") as file:
        given, size, lines = 0, 0, list[bytes]()
        while line := file.readline(_LONGEST_HEADER):
            if line.count(b"[") + line.count(b"{") > _DEEPEST:
                marks = np.frombuffer(_QUOTED.sub(b"", line), dtype=np.uint8)
                steps = np.isin(marks, list(b"[{")).astype(np.int32) - np.isin(marks, list(b"]}"))
                if steps.cumsum().max() > _DEEPEST:
                    raise FileError(f"{path} must have lines of numbers, text, lists and objects; one nests too deep.")
            lines.append(line)
            size += len(line)
            if size >= _JSON_CHUNK:
                given += size
                check_expansion(path, given, held=False)
                yield b"".join(lines)
                size, lines = 0, []
        if lines:
            yield b"".join(lines)


def _json_table(source: Callable[[], AbstractContextManager[Any]], block: int, schema: Any = None) -> Any:
    """Return the table of a file of JSON, which may be read again: text that looks like a date stays text.

    A field is text if it has text in some lines and numbers in others, or truth values and numbers.
    """
    try:
        return _parsed_json(source, block, schema)
    except pa.ArrowInvalid as error:
        with source() as file:
            lines = b"".join(iter(lambda: file.read(_BLOCK), b"")).splitlines()
        try:
            rows = [json.loads(line) for line in lines if line.strip()]
        except ValueError:
            raise error from None
        same = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in _in_one_type(rows, schema)).encode()
        return _parsed_json(lambda: nullcontext(io.BytesIO(same)), len(same), schema)


def _in_one_type(values: Sequence[Any], kind: Any = None) -> Sequence[Any]:
    """Return the values of one field of JSON, all as text if they are of several types, or are to be of text."""
    given = [value for value in values if value is not None]
    is_of_objects = not isinstance(kind, pa.DataType) or pa.types.is_struct(kind)
    if given and is_of_objects and all(isinstance(value, dict) for value in given):
        kinds = {} if kind is None else {field.name: field.type for field in kind}
        names = dict.fromkeys(name for value in given for name in value)
        columns = {
            name: iter(_in_one_type([value[name] for value in given if name in value], kinds.get(name)))
            for name in names
        }
        return [value and {name: next(columns[name]) for name in value} for value in values]
    types = {float if type(value) is int else type(value) for value in given}
    is_text = kind is not None and pa.types.is_string(kind)
    if not is_text and types != {bool, float} and (len(types) < 2 or str not in types):
        return values
    return [value if isinstance(value, str | None) else json.dumps(value, ensure_ascii=False) for value in values]


def _parsed_json(source: Callable[[], AbstractContextManager[Any]], block: int, schema: Any) -> Any:
    from pyarrow import json as json_lines

    options = json_lines.ReadOptions(block_size=min(max(_BLOCK, block), _MOST_BLOCK))
    with source() as file:
        table = json_lines.read_json(file, options, json_lines.ParseOptions(explicit_schema=schema))
    if times := [field.name for field in table.schema if pa.types.is_timestamp(field.type)]:
        parse = json_lines.ParseOptions(explicit_schema=pa.schema(dict.fromkeys(times, pa.string())))
        with source() as file:
            table = json_lines.read_json(file, options, parse).select(table.column_names)
    table.validate(full=True)
    return table


def _flat(table: Any) -> Any:
    """Return a table with the fields of objects as columns."""
    while any(pa.types.is_struct(column.type) for column in table.schema):
        table = table.flatten()
    return table


def write_text(batches: Iterable[Mapping[str, Any]], form: Form, file: Path) -> tuple[str, ...]:
    """Write CSV, TSV or JSON lines, compressed for ``.gz``, with the class names in those of the columns."""
    mark = _as_character(form.separator) or ("\t" if form.suffix.startswith(".tsv") else ",")
    with file.open("wb") as plain:
        # Digits of scores are close to noise: higher levels take four times as long for a twentieth less.
        sink = gzip.GzipFile("", "wb", 1, plain, mtime=0) if form.suffix.endswith(".gz") else nullcontext(plain)
        with sink as target:
            for place, arrays in enumerate(batches):
                table = _text_table(arrays, form)
                if not place and not form.suffix.startswith(".jsonl"):
                    head = io.StringIO()
                    plain_csv.writer(head, delimiter=mark, lineterminator="\n").writerow(table.column_names)
                    target.write(head.getvalue().encode())
                for batch in table.to_batches(max_chunksize=1 << 12):
                    if form.suffix.startswith(".jsonl"):
                        rows = (json.dumps(row, ensure_ascii=False) + "\n" for row in batch.to_pylist())
                        target.write("".join(rows).encode())
                    else:
                        target.write(_lines(batch, mark, _decimal_point(form.separator)))
    return ()


def _lines(batch: Any, mark: str, point: str) -> bytes:
    """Return the rows of a table as lines, with quotes only around text that cannot do without."""
    import pyarrow.compute as pc

    def join(*parts: Any) -> Any:
        texts = (pa.scalar(part, pa.large_string()) if isinstance(part, str) else part for part in parts)
        return pc.binary_join_element_wise(*texts, null_handling="replace")

    columns = [column.cast(pa.large_string()) for column in batch.columns]
    for place, kind in enumerate(batch.schema.types):
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            special = pc.match_substring_regex(columns[place], rf'[\x{ord(mark):02x}"\r\n]')
            if pc.any(special).as_py():
                quoted = join('"', pc.replace_substring(columns[place], '"', '""'), '"', "")
                columns[place] = pc.if_else(special, quoted, columns[place])
        elif point != ".":
            columns[place] = pc.replace_substring(columns[place], ".", point)
    lines = join(*columns[:-1], join(columns[-1], "\n", ""), mark)
    return "".join(lines.to_pylist()).encode()


def _text_table(arrays: Mapping[str, Any], form: Form) -> Any:
    """Return a table with all numbers as float64 and the class names in the names of the columns."""
    # The digits of a float32 read as float64 would be another number; those of the same number as float64 are not.
    wide = {
        name: array.double() if isinstance(array, Tensor) and array.is_floating_point() else array
        for name, array in arrays.items()
    }
    table = table_of(wide, form._replace(class_names=None, metadata={}, made_from={}))
    table = table.cast(pa.schema([(field.name, _text_type(field.type)) for field in table.schema]))
    names = form.class_names
    if form.is_laid_out or names is None or names == tuple(str(place) for place in range(len(names))):
        return table
    _check_words(names)
    prefix = next(prefix for name, prefix in PREFIXES.items() if name in arrays)
    columns = {f"{prefix}{name}": table[place] for place, name in enumerate(names)}
    if "labels" in arrays:
        columns["label"] = pa.array(list(names), pa.string()).take(arrow_column(arrays["labels"]))
    others = {name: table[name] for name in arrays if name not in PREFIXES and name != "labels"}
    return pa.table({**columns, **others})


def _text_type(kind: Any) -> Any:
    """Return the type in which columns of some type are written as text: all numbers with a point as float64."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.large_list(_text_type(kind.value_type))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_text_type(kind.value_type), kind.list_size)
    if pa.types.is_string_view(kind):
        return pa.large_string()
    return pa.float64() if pa.types.is_floating(kind) else kind


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
