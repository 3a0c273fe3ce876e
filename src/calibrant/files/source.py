"""Named columns and arrays that are read lazily, and the openers of .npz, .safetensors and .pt files."""

import json
import math
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from pickle import UnpicklingError
from typing import IO, Any, Literal, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from calibrant.checks import as_tensor, existing_file, text_outside
from calibrant.errors import Argument, FileError, InputError, Row, caught_warnings, check_expansion, reading
from calibrant.labels import NOTHING, Words, encode
from calibrant.npy import npy_rows, npy_shape, numpy_archive, read_npy

Column = Tensor | Words
Arrays = dict[str, Column]
ClassNames = tuple[str, ...] | None
Kind = Literal["logits", "probs", "top-label"]
# In a table a matrix of scores is one column per class, named so.
PREFIXES: dict[Kind, str] = {"logits": "logit_", "probs": "prob_"}
_EXAMPLE = "{'logits': logits, 'labels': labels}"  # what torch.save writes
OWN_CLASSES = (
    "Where samples have classes of their own, or only the highest scores are known, write the 'confidence' of each "
    "prediction and whether it is 'correct'."
)
# Ends a message about nested answers of a chat server.
CHAT_HINT = (
    " If these are answers of a chat server, write one line for each, with the log-probabilities of all options: "
    '{"logprobs": {"yes": -0.1, "no": -2.4}, "label": "yes"}. docs/files.md has the code, under Language models.'
)


@final
@dataclass(frozen=True, eq=False)
class Content:
    """The named arrays of an archive or columns of a table, not read yet."""

    path: Path | None  # None if the source is in memory
    noun: str  # "array" or "column", for messages
    names: tuple[str, ...]  # in the source's order
    class_names: ClassNames
    # Reads columns by name. Second argument: the columns, or the one, that may hold text, which CSV does not tell from
    # numbers: numbers if all rows are, else words.
    read: Callable[[Sequence[str], Collection[str] | None], Arrays]
    shape: Callable[[str], tuple[int | None, ...]]  # for messages; None where it is not known
    hint: str = ""  # shown after a list of the names
    verbatim: Callable[[Sequence[str]], dict[str, Any]] | None = None  # Arrow columns of a table: those of CSV are text
    label_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # class names that a column of labels has
    metadata: Mapping[Any, Any] = field(default_factory=dict)  # what the file says of itself
    index: tuple[str, ...] = ()  # columns of pandas that are only copied
    kept: Tensor | None = None  # which rows of the source are read, bool (n,), where some are left out

    @property
    def title(self) -> str:
        """Return the name of the source in messages."""
        return "the source" if self.path is None else str(self.path)

    def error(self, *parts: str | Argument) -> InputError:
        """Return a FileError if the source is a file, else an InputError."""
        return InputError(*parts) if self.path is None else FileError(*parts)


class Form(NamedTuple):
    """What a writer of batches of columns has to know."""

    suffix: str
    class_names: ClassNames
    is_laid_out: bool = False  # whether arrays are the columns of the table to write, with their own names
    separator: str | None = None  # that was given for a CSV file
    metadata: Mapping[Any, Any] = {}
    made_from: Mapping[str, str] = {}  # what an unfinished job compares, where the format holds metadata


def as_column(values: object, name: str) -> Column:
    """Return an array or lists as a tensor, which shares memory if it can, and an array of text as words."""
    if isinstance(values, Words):
        return values
    if isinstance(values, Tensor):
        return as_tensor(values, repr(name))
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
        return encode(array)
    return as_tensor(array, name)


def as_numpy(column: Column) -> Any:
    """Return a column as an array; bfloat16, which NumPy lacks, as float32."""
    if isinstance(column, Words):
        return np.array(column.distinct, dtype=np.str_)[column.codes.numpy()]
    return (column.float() if column.dtype == torch.bfloat16 else column).numpy()


def as_class_names(names: object) -> ClassNames:
    """Return the class names of a source, a list or an array of text, as a tuple."""
    if names is None:
        return None
    listed = names.tolist() if isinstance(names, np.ndarray) else names
    if not isinstance(listed, list | tuple) or not all(isinstance(name, str) for name in listed):
        raise InputError(f"class_names must be a list of text, one name a class; got {type(names).__name__}.")
    return tuple(listed)


_CLASS_NAMES, _SAFETENSORS = "class_names", "safetensors file"


def open_mapping(arrays: Mapping[str, Any], *, path: Path | None = None) -> Content:
    """Open a mapping of names to arrays or tensors; ``class_names`` names the classes."""

    def read(wanted: Sequence[str], _text: Collection[str] | None) -> Arrays:
        return {name: as_column(arrays[name], name) for name in wanted}

    def shape(name: str) -> tuple[int | None, ...]:
        return tuple(getattr(arrays[name], "shape", (None,)))

    names = tuple(name for name in arrays if isinstance(name, str) and name != _CLASS_NAMES)
    return Content(path, "array", names, as_class_names(arrays.get(_CLASS_NAMES)), read, shape)


def open_npz(path: Path) -> Content:
    """Open an archive of NumPy (``.npz``)."""

    def read(wanted: Sequence[str], _text: Collection[str] | None) -> Arrays:
        with numpy_archive(path) as archive:
            return {name: as_column(values, name) for name, values in zip(wanted, archive.read(wanted), strict=True)}

    def shape(name: str) -> tuple[int | None, ...]:
        try:
            with numpy_archive(path) as archive:
                return archive.shape(name)
        except InputError:  # the shape is for a message about another error
            return (None,)

    with numpy_archive(path) as archive:
        names = tuple(name for name in archive.names if name != _CLASS_NAMES)
        class_names = as_class_names(archive.read([_CLASS_NAMES])[0] if _CLASS_NAMES in archive.names else None)
    return Content(path, "array", names, class_names, read, shape)


def open_npy(path: Path, labels: str | None = None) -> Content:
    """Open an array of NumPy (``.npy``), named by its file's stem, and its labels in another such file.

    The path of the labels is their name. It is looked for beside the scores first, so that one name fits several files.
    """
    files = _npy_files(path, labels)

    def read(wanted: Sequence[str], _text: Collection[str] | None) -> Arrays:
        return {name: as_column(read_npy(files[name]), name) for name in wanted}

    def shape(name: str) -> tuple[int | None, ...]:
        try:
            return npy_shape(files[name])
        except InputError:  # the shape is for a message about another error
            return (None,)

    return Content(path, "array", tuple(files), None, read, shape)


def _npy_files(path: Path, labels: str | None) -> dict[str, Path]:
    files = {path.stem: path}
    if labels is not None:
        beside = path.parent / labels
        files[labels] = existing_file(beside if beside.is_file() else labels, holding="labels")
    return files


def array_batches(
    whole: Content, path: Path, names: Sequence[str], rows: int, *, optional: Collection[str] = ()
) -> Iterator[Content]:
    """Yield some rows of a .npz, .npy or .safetensors file at a time, unpacked as they are read.

    An array that is stored by columns is held whole, and all are if they differ in length, which is an error. Optional
    ones that cannot be read are left out.
    """
    lengths, suffix = {whole.shape(name)[:1] for name in names}, path.suffix.lower()
    length = lengths.pop() if len(lengths) == 1 else ()
    if not length or not length[0]:
        yield whole
        return
    parts: dict[str, Iterator[Any]] = {}
    with reading(path, "file of arrays"), ExitStack() as opened:
        archive = opened.enter_context(numpy_archive(path)) if suffix == ".npz" else None
        tensors = _tensor_rows(opened.enter_context(path.open("rb")), rows) if suffix == ".safetensors" else {}
        for name in names:
            try:
                if suffix == ".safetensors":
                    part: Iterator[Any] | None = tensors.get(name)
                else:
                    own = path if archive or name == path.stem else _npy_files(path, name)[name]
                    part = npy_rows(opened.enter_context(archive.open(name) if archive else own.open("rb")), rows)
                parts[name] = _slices(whole.read((name,), None)[name], rows) if part is None else part
            except InputError:
                if name not in optional:
                    raise
        class_names = {} if whole.class_names is None else {_CLASS_NAMES: list(whole.class_names)}
        for _ in range(0, length[0], rows):
            batch = open_mapping({**{name: next(part) for name, part in parts.items()}, **class_names}, path=path)
            yield replace(batch, metadata=whole.metadata)


def _slices(column: Column, rows: int) -> Iterator[Column]:
    for start in count(0, rows):
        yield column[start : start + rows]


# Types in safetensors files by their bytes, in the order in which its library writes them.
_8 = {"U64": torch.uint64, "I64": torch.int64, "F64": torch.float64, "C64": torch.complex64}
_4 = {"F32": torch.float32, "U32": torch.uint32, "I32": torch.int32}
_2 = {"BF16": torch.bfloat16, "F16": torch.float16, "U16": torch.uint16, "I16": torch.int16}
_1 = {"F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "I8": torch.int8, "U8": torch.uint8}
TENSOR_TYPES: dict[str, torch.dtype] = {**_8, **_4, **_2, **_1, "BOOL": torch.bool}


def _tensor_rows(file: IO[bytes], rows: int) -> dict[str, Iterator[Tensor]]:
    """Return the tensors of a safetensors file some rows at a time, not mapped: its pages would count as memory."""
    length = int.from_bytes(file.read(8), "little")
    header, start = json.loads(file.read(length)), 8 + length

    def parts(kind: torch.dtype, shape: Sequence[int], begin: int) -> Iterator[Tensor]:
        for first in range(0, shape[0], rows):
            part = (min(rows, shape[0] - first), *shape[1:])
            size = math.prod(part) * kind.itemsize
            file.seek(start + begin)
            held = bytearray(file.read(size))
            if len(held) < size:
                raise ValueError("a tensor is shorter than its header says")
            begin += size
            yield torch.frombuffer(held, dtype=kind).reshape(part) if held else torch.empty(part, dtype=kind)

    return {
        name: parts(TENSOR_TYPES[about["dtype"]], about["shape"], about["data_offsets"][0])
        for name, about in header.items()
        if name != "__metadata__" and about["dtype"] in TENSOR_TYPES and about["shape"]
    }


def open_safetensors(path: Path) -> Content:
    """Open a safetensors file; class names are a JSON list under ``class_names`` of its metadata."""
    from safetensors import safe_open

    def read(wanted: Sequence[str], _text: Collection[str] | None) -> Arrays:
        with reading(path, _SAFETENSORS), safe_open(str(path), framework="pt") as file:
            # A copy: the tensor is the file's own memory, which changes if the file is written to.
            return {name: file.get_tensor(name).clone() for name in wanted}

    with reading(path, _SAFETENSORS), safe_open(str(path), framework="pt") as file:
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118  # no mapping
        metadata = file.metadata() or {}
        listed = metadata.get(_CLASS_NAMES)
        class_names = as_class_names(None if listed is None else json.loads(listed))
    return Content(path, "array", tuple(shapes), class_names, read, lambda name: shapes[name], metadata=metadata)


def read_torch(path: Path, *, inside: Collection[str] = ()) -> dict[str, Any]:
    """Read the tensors, and class names, of a dict that ``torch.save`` wrote, or of one ``inside`` it by these names.

    Anything else in the pickle is refused before it can run.
    """
    advice = f"Save it with torch.save({'network.state_dict()' if inside else _EXAMPLE}, path)."
    with reading(path, "file of tensors (.pt)"), caught_warnings():  # torch warns about how it was pickled
        sizes = _record_sizes(path)
        try:
            held = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:
            # Torch's message suggests reading the file without this protection; an odd operand means a broken file.
            if not isinstance(error, UnpicklingError) or "operand" in str(error):
                raise
            objects = "other Python objects, which could run code when read"
            raise FileError(f"{path} must hold tensors only; it holds {objects}. {advice}") from error
        if not isinstance(held, dict):
            raise FileError(f"{path} must hold a dict of tensors; it holds a {type(held).__name__}. {advice}")
        held = next((held[name] for name in inside if isinstance(held.get(name), dict)), held)
        kept = {name: value for name, value in held.items() if isinstance(value, Tensor) or name == _CLASS_NAMES}
        _check_storages(kept, sizes)
        return kept


def open_torch(path: Path) -> Content:
    """Open a dict of tensors saved by ``torch.save``."""
    return open_mapping(read_torch(path), path=path)


def _record_sizes(path: Path) -> Counter[int] | None:
    """Return the sizes of the records of torch's zip archive; None for the older format, which is not a zip archive."""
    if not zipfile.is_zipfile(path):
        return None
    with zipfile.ZipFile(path) as archive:
        sizes = [record.file_size for record in archive.infolist()]
        check_expansion(path, sum(sizes))
        if damaged := archive.testzip():  # torch does not verify the checksums
            raise FileError(f"{path} must be as it was written; the checksum of {damaged!r} in it does not match.")
    return Counter(sizes)


def _check_storages(tensors: Mapping[str, Any], sizes: Counter[int] | None) -> None:
    """Check that no tensor is larger than what is stored for it."""
    for name, values in tensors.items():
        if not isinstance(values, Tensor) or values.is_nested or values.layout is not torch.strided:
            continue
        held = values.untyped_storage().nbytes()
        if values.numel() * values.element_size() > held or (sizes is not None and held and not sizes[held]):
            raise InputError(
                f"{name!r} must be stored whole; its shape is {tuple(values.shape)}, and {held:,} bytes are stored. "
                "Save tensors.contiguous()."
            )


def text_error(name: str, word: str, row: int) -> InputError:
    """Return the error for a column of numbers that has some text in a row."""
    if not word.strip():
        return InputError(f"{name!r} must hold numbers; the cell at ", Row(row), " is empty. Fill it, or drop the row.")
    hint: tuple[Any, ...] = ()
    if re.fullmatch(r"\s*[-+]?\d+,\d+\s*", word):
        hint = (" Write the decimal comma as a point, or, beside semicolons, pass ", Argument("separator", "csv2"), ".")
    if (match := _PERCENTAGE.fullmatch(word)) and not hint:
        share = (
            f" Write {float(match[1].replace(',', '.')) / 100:.10g} for {word.strip()}, or, if" if match[2] else " If"
        )
        hint = (f"{share} all are percentages, with or without a sign, pass ", PERCENT, ".")
    hint = hint or (" Write a number there, or remove the row.",)
    return InputError(f"{name!r} must hold numbers; got the text {word!r} at ", Row(row), ".", *hint)


PERCENT = Argument("percent", "True", is_literal=False)
_PERCENTAGE = re.compile(r"\s*([-+]?(?:\d+[.,]?\d*|[.,]\d+)(?:[eE][-+]?\d+)?)(\s*%)?\s*")  # 85, 85 %, 85,5%


def as_shares(column: Column, name: str, *, percent: bool) -> Column:
    """Return percentages as shares of one: all numbers if ``percent``, and text in which all numbers have a % sign.

    Other columns are returned unchanged. A gap is NaN.
    """
    if isinstance(column, Words):
        pairs = [(word, _PERCENTAGE.fullmatch(word)) for word in column.distinct]
        signed = {word for word, match in pairs if match and match[2]}
        if not percent and not signed:
            return column
        gaps = {word for word in column.distinct if word.strip().lower() in NOTHING}
        numbers_or_gaps, signed_or_gaps = {word for word, match in pairs if match} | gaps, signed | gaps
        if stray := column.first(lambda word: word not in numbers_or_gaps):
            raise text_error(name, stray[1], stray[0])
        if not percent and (bare := column.first(lambda word: word not in signed_or_gaps)):
            raise InputError(
                f"{name!r} must have a % sign in every row or in none; got {bare[1].strip()!r} at ",
                *(Row(bare[0]), f" and {min(signed).strip()!r} elsewhere. If all are percentages, pass ", PERCENT, "."),
            )
        values = [float(match[1].replace(",", ".")) if match else math.nan for _, match in pairs]
        numbers = torch.tensor(values, dtype=torch.float64)[column.codes]
    elif not percent or column.dtype == torch.bool or column.is_complex():
        return column
    else:
        numbers = column if column.dtype in {torch.float32, torch.float64} else column.double()
    outside = ((numbers < 0) | (numbers > 100)).nonzero()
    if len(outside):
        first = outside[0].tolist()
        got = text_outside(numbers[tuple(first)].item(), 100)
        raise InputError(
            f"{name!r} must lie in 0..100, as percentages do; got {got} at ",
            *(Row(first[0]), ". Correct this row, or remove it."),
        )
    return numbers / 100


def as_percentages(shares: Tensor, like: Column, *, comma: bool) -> Column:
    """Return shares of one as percentages, written as those ``like`` them in the same rows: as text, with their signs.

    They are (n,) or, beside a tensor, of any shape. Text has decimal commas where there is a ``comma`` or one like it.
    """
    numbers = 100 * shares
    if isinstance(like, Tensor):
        return numbers
    signs = [(match and match[2]) or "" for match in map(_PERCENTAGE.fullmatch, like.distinct)]
    comma = comma or any("," in word for word in like.distinct)
    texts = [f"{number!r}{signs[code]}" for number, code in zip(numbers.tolist(), like.codes.tolist(), strict=True)]
    return encode(np.array([text.replace(".", ",") for text in texts] if comma else texts))
