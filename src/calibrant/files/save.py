"""Save predictions, one writer per format; load scores with all other columns, to save them again calibrated.

Writers take batches of rows. What is saved from memory is one batch.
"""

import json
import math
import os
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, Any, Literal, NamedTuple, TypeAlias, final

import numpy as np
import torch
from torch import Tensor

from calibrant.atomic import atomic_path
from calibrant.checks import stays_inside
from calibrant.errors import CalibrantError, FileError, InputError
from calibrant.files.assemble import assemble, complete, holding, lacking_rows, numbers_of, renumbered
from calibrant.files.choose import ColumnChoice, LoadOptions, choose, is_reserved_name
from calibrant.files.load import (
    check_names,
    in_module,
    naming,
    open_for_names,
    open_in_batches,
    open_source,
    suffix_is,
    suffix_of,
)
from calibrant.files.source import TENSOR_TYPES, Column, Content, Form, as_numpy, as_percentages
from calibrant.labels import Words
from calibrant.predictions import Predictions, TopLabel

MADE_FROM = "calibrant.made_from"  # in the metadata of a file, where it has any
_PIECE, _IN_MEMORY = 1 << 20, 1 << 24  # numbers that are written together; bytes of arrays that wait in memory
_ZIP_DATE = (1980, 1, 1, 0, 0, 0)  # so that the same arrays give the same file
Batches: TypeAlias = Iterable[Mapping[str, Any]]  # columns: tensors, words, or those of Arrow


@final
class _Waiting:
    """An array that comes in batches, which wait with those of others in one file until its length is known."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._places = file, list[int]()
        self.shape, self.dtype, self.tensor_type = (0,), np.dtype("V1"), ""

    def add(self, column: Column) -> None:
        """Add some rows; a ValueError if they do not go with the others."""
        array = as_numpy(column)
        if self._places and array.shape[1:] != self.shape[1:]:
            raise ValueError(f"all rows must have the shape {self.shape[1:]}; got {array.shape[1:]}")
        self.dtype = np.result_type(self.dtype, array.dtype) if self._places else array.dtype  # of the longest text
        self.shape = (self.shape[0] + len(array), *array.shape[1:])
        step = max(1, _PIECE // max(1, math.prod(self.shape[1:])))
        for start in range(0, len(array), step):
            self._places.append(self._file.tell())
            np.lib.format.write_array(self._file, array[start : start + step], allow_pickle=False)

    def write(self, target: IO[bytes]) -> None:
        """Write all rows."""
        for place in self._places:
            self._file.seek(place)
            target.write(np.lib.format.read_array(self._file, allow_pickle=False).astype(self.dtype).tobytes())


def _columns(batches: Batches, add: Callable[[str, Column], None]) -> tuple[str, ...]:
    """Add the columns of all batches; return those of a table that cannot be arrays, such as times or with gaps."""
    dropped = dict[str, None]()
    for arrays in batches:
        for name, column in arrays.items():
            try:
                if name not in dropped:
                    is_array = isinstance(column, Tensor | Words)
                    add(name, column if is_array else in_module("tables", "column_of")(column, name))
            except ValueError:  # also an InputError
                if isinstance(column, Tensor):
                    raise
                dropped[name] = None
    return tuple(dropped)


def _write_npz(batches: Batches, form: Form, file: Path) -> tuple[str, ...]:
    with SpooledTemporaryFile(_IN_MEMORY, dir=str(file.parent)) as waiting:
        held = defaultdict[str, _Waiting](lambda: _Waiting(waiting))
        dropped = _columns(batches, lambda name, column: held[name].add(column))
        if form.class_names is not None:
            held["class_names"].add(Words(form.class_names, torch.arange(len(form.class_names))))
        with zipfile.ZipFile(file, "w") as archive:
            for name in [name for name in held if name not in dropped]:
                array = held[name]
                with archive.open(zipfile.ZipInfo(f"{name}.npy", _ZIP_DATE), "w", force_zip64=True) as member:
                    header = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape}
                    np.lib.format.write_array_header_1_0(member, header)
                    array.write(member)
    return dropped


def _write_safetensors(batches: Batches, form: Form, file: Path) -> tuple[str, ...]:
    with SpooledTemporaryFile(_IN_MEMORY, dir=str(file.parent)) as waiting:
        held = defaultdict[str, _Waiting](lambda: _Waiting(waiting))

        def add(name: str, given: Column) -> None:
            column = numbers_of(given, name)
            # NumPy lacks some types of numbers; their bytes are written.
            held[name].add(column.view(_LACKING[column.dtype]) if column.dtype in _LACKING else column)
            held[name].tensor_type = {dtype: kind for kind, dtype in TENSOR_TYPES.items()}[column.dtype]

        dropped = _columns(batches, add)
        names = {} if form.class_names is None else {"class_names": json.dumps(form.class_names)}
        metadata = {**form.metadata, **names, **form.made_from}
        header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
        order, start = list(TENSOR_TYPES), 0
        kept = [name for name in held if name not in dropped]
        for name in sorted(kept, key=lambda name: (order.index(held[name].tensor_type), name)):
            array = held[name]
            end = start + math.prod(array.shape) * array.dtype.itemsize
            header[name] = {"dtype": array.tensor_type, "shape": array.shape, "data_offsets": (start, end)}
            start = end
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        with file.open("wb") as target:
            target.write(len(text).to_bytes(8, "little") + text)
            for name in [name for name in header if name in held]:
                held[name].write(target)
    return dropped


_LACKING = {torch.bfloat16: torch.int16, torch.float8_e4m3fn: torch.uint8, torch.float8_e5m2: torch.uint8}


def _write_torch(batches: Batches, form: Form, file: Path) -> tuple[str, ...]:
    held = defaultdict[str, list[Tensor]](list)

    def add(name: str, given: Column) -> None:
        column = numbers_of(given, name)
        if name in held and held[name][0].shape[1:] != column.shape[1:]:
            raise ValueError("all rows must have one shape")
        held[name].append(column)

    dropped = _columns(batches, add)
    names = {} if form.class_names is None else {"class_names": list(form.class_names)}
    torch.save({name: torch.cat(held[name]) for name in held if name not in dropped} | names, file)
    return dropped


# Each writes batches of columns, and returns the names of those that it cannot hold.
Writer: TypeAlias = Callable[[Batches, Form, Path], tuple[str, ...]]
WRITERS: dict[str, Writer] = {
    ".arrow": in_module("tables", "write_arrow"),
    ".feather": in_module("tables", "write_arrow"),
    ".npz": _write_npz,
    ".parquet": in_module("tables", "write_parquet"),
    ".pt": _write_torch,
    ".pth": _write_torch,
    ".safetensors": _write_safetensors,
    **dict.fromkeys((".csv", ".csv.gz", ".jsonl", ".jsonl.gz", ".tsv", ".tsv.gz"), in_module("text", "write_text")),
}


def writable_suffix(path: str | os.PathLike[str]) -> str:
    """Return the ending of a file to write; a FileError if it is none of :data:`WRITERS`."""
    suffix = suffix_of(path)
    if suffix not in WRITERS:
        raise FileError(f"{os.fspath(path)} could not be written: {suffix} holds one array. Name it .npz, or .parquet.")
    return suffix


def save(predictions: Predictions | TopLabel, path: str | os.PathLike[str]) -> None:
    """Save predictions in the format of the path's ending; the folder must exist, and a file is replaced at once.

    Archives (``.npz``, ``.safetensors``, ``.pt``) hold ``logits`` and ``labels``; tables (``.csv``, ``.parquet``,
    ``.feather``, ``.arrow``) hold ``logit_0``, ``logit_1``, ... and ``label``; of a TopLabel both hold ``confidence``
    and ``correct``. Weights and clusters are saved under these names, to be named when they are loaded. Class names are
    saved too: in a CSV file as the names of the columns (``logit_cat``).

    Number types are kept, with two exceptions: bfloat16 becomes float32 in ``.npz`` and in tables, which do not know
    it, and CSV holds every number with the digits that float64 needs to give back the same value.

    Example:
        >>> import tempfile
        >>> from calibrant.files import load
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(Predictions.from_logits([[2.0, 0.0]], [1]), f"{folder}/test.parquet")
        ...     load(f"{folder}/test.parquet").logits.tolist()
        [[2.0, 0.0]]
    """
    if not isinstance(predictions, Predictions | TopLabel):
        raise InputError(f"what is saved must be Predictions or a TopLabel; got {type(predictions).__name__}.")
    known = {"weights": predictions.weights, "clusters": predictions.clusters}
    of_samples = {name: column for name, column in known.items() if column is not None}
    if isinstance(predictions, TopLabel):
        arrays, names = {"confidence": predictions.confidence, "correct": predictions.correct, **of_samples}, None
    else:
        names = predictions.class_names
        arrays = {"logits": predictions.logits, "labels": predictions.labels, **of_samples}
    _write([arrays], Form(writable_suffix(path), names), path)


def _write(batches: Batches, form: Form, path: str | os.PathLike[str]) -> tuple[str, ...]:
    compact = ({name: _compact(array) for name, array in arrays.items()} for arrays in batches)
    with atomic_path(path) as file:
        try:
            return WRITERS[form.suffix](compact, form, file)
        except (CalibrantError, OSError):
            raise
        except Exception as error:
            raise FileError(f"{os.fspath(path)} could not be written: {error}.") from error


def _compact(array: Any) -> Any:
    """Copy a slice to its own memory on the CPU: torch would write the whole tensor behind it."""
    if not isinstance(array, Tensor):
        return array
    array = array.detach().cpu().contiguous()
    return array if array.untyped_storage().nbytes() == array.nbytes else array.clone()


@final
@dataclass(frozen=True, eq=False)
class Scores:
    """Predictions that need no labels: a model in use has none yet."""

    predictions: Predictions  # without labels, the predicted classes are placeholders
    kind: Literal["logits", "probs"]  # kind of the scores in the file, and in the file to write
    labelled: bool  # whether the labels are the file's
    single: tuple[int, ...] | None = None  # shape of a row, () or (1,), if two classes had one logit
    others: Mapping[str, Any] = field(default_factory=dict)  # the other columns of the file, those of tables as stored
    left: tuple[str, ...] = ()  # names in the file that are not written again
    layout: "Layout | None" = None  # the names and the order that the columns had
    kept: Tensor | None = None  # which rows have scores, bool (n,), where some lack them and keep their place
    is_gapless: bool = True  # whether all rows have scores and, if any do, labels

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.predictions if self.kept is None else self.kept)


@final
@dataclass(frozen=True, eq=False)
class Layout:
    """The names of a source in order, which of them are scores and labels, and the labels as they were written."""

    content: Content
    names: tuple[str, ...]
    scores: tuple[str, ...]
    labels: Mapping[str, Any]
    separator: str | None  # that was given for a CSV file
    percentages: Mapping[str, Column]  # scores that are written in percent, as they were


def load_scores(source: str | os.PathLike[str] | Content, options: LoadOptions | None = None) -> Scores:
    """Load logits or probabilities, labels if there are any, and the other columns; names as in :func:`load`."""
    options = replace(options or LoadOptions(), labels_needed=False)
    content = open_source(source, options)
    choice = choose(content, options)
    check_names(content, options.of_samples)
    with naming(content.path):
        return _scores(content, content, choice, options)


def load_score_batches(
    path: Path, options: LoadOptions, choice: ColumnChoice, rows: int | None = None
) -> Iterator[Scores]:
    """Load the scores of a file, with all other columns, some rows at a time: as many as memory should hold."""
    whole = open_for_names(path, options, is_typed=True)
    copied = _copied(whole, choice)
    names = tuple(dict.fromkeys((*choice.scores, *filter(None, [choice.labels]), *copied)))
    if rows is None:
        width = sum(math.prod(size or 1 for size in whole.shape(name)[1:]) for name in names)
        rows = min(_ROWS[1], max(_ROWS[0], _NUMBERS // width))
    first = 0
    with naming(path):
        for content in open_in_batches(path, options, choice, names, rows, copied=copied):
            with naming(path, first):
                scores = _scores(content, whole, choice, options)
            yield scores
            first += scores.n
    if not first:
        raise FileError(f"{path} must have at least one row to be calibrated; it has none.")


_NUMBERS, _ROWS = 1 << 21, (1 << 10, 1 << 17)  # in a batch, and its fewest and most rows


def _scores(content: Content, whole: Content, choice: ColumnChoice, options: LoadOptions) -> Scores:
    """Return the scores in some rows of a file, with the columns that are copied."""
    scored, own = complete(content, replace(choice, labels=None), options), choice
    if options.missing == "keep" and choice.labels is not None:  # which are copied, and need not be there
        lacking = lacking_rows(content.read((choice.labels,), choice.labels), content, choice, options)
        is_needed = scored.kept is None and (lacking is None or not lacking.any())
        own = choice if is_needed else replace(choice, labels=None)
    if scored.kept is not None and not scored.kept.any():
        raise InputError(f"some of the {len(scored.kept):,} rows that are read together must have scores; none has.")
    scored = holding(scored)
    with renumbered(scored):
        record = assemble(scored, own, options)
    given = scored.read(choice.scores, None)
    if not isinstance(record, Predictions):
        raise InputError("there must be logits or probabilities of every class; there are the top label's.")
    single = None
    if len(choice.scores) == 1 and record.n_classes == 2:
        column = given[choice.scores[0]]
        row = () if isinstance(column, Words) else tuple(column.shape[1:])
        single = row if row in {(), (1,)} else None
    percentages = {name: column for name, column in given.items() if options.percent or isinstance(column, Words)}
    others = _read(content, _copied(whole, choice))
    labels = {} if choice.labels is None else _read(content, (choice.labels,))
    left = tuple(name for name in dict.fromkeys(whole.names) if name not in {*others, *choice.scores, choice.labels})
    layout = Layout(whole, (*whole.names, *whole.index), choice.scores, labels, options.separator, percentages)
    is_gapless = scored.kept is None and own is choice
    labelled = choice.labels is not None
    return Scores(record, choice.kind, labelled, single, others, left, layout, scored.kept, is_gapless)  # type: ignore[arg-type]


def _read(content: Content, names: Sequence[str]) -> dict[str, Any]:
    """Read columns as they are stored ("007" in a CSV file is an identifier); arrays that can be."""
    if content.verbatim is not None:
        return content.verbatim(names) if names else {}
    read: dict[str, Any] = {}
    for name in names:
        with suppress(InputError):
            read |= content.read((name,), None)
    return read


_TAKEN = "class_names"


def _copied(content: Content, choice: ColumnChoice) -> list[str]:
    """Return the columns that have one entry per sample and are copied, such as features or identifiers.

    Left out: other scores and labels, which would stand uncalibrated beside the new ones; a repeated name, or one that
    leads out of an archive (``../``); and what has another length, which is not even read.
    """
    times, n = Counter(content.names), content.shape(choice.scores[0])[0]
    free = (
        name
        for name in dict.fromkeys((*content.names, *content.index))
        if times[name] < 2 and name not in {*choice.scores, choice.labels, _TAKEN} and not is_reserved_name(name)
    )
    same = [name for name in free if name.isprintable() and stays_inside(name)]
    return [name for name in same if content.noun != "array" or content.shape(name)[:1] == (n,)]


class Applied(NamedTuple):
    """What was calibrated and written."""

    samples: int
    kind: str  # logits or probs
    labelled: bool
    left: tuple[str, ...]  # columns that were not copied
    copied: tuple[str, ...]
    skipped: tuple[str, ...] = ()  # files that an earlier run had finished
    missing: tuple[str, ...] = ()  # shards that could not be read, and why
    notes: tuple[str, ...] = ()  # warnings
    unscored: int = 0  # rows without scores, which keep their place


def save_score_batches(
    batches: Iterator[Scores], path: str | os.PathLike[str], *, made_from: str | None = None
) -> Applied:
    """Save logits or probabilities, with the labels, the class names and the other columns of their source.

    From table to table, and from archive to archive, names and order stay. No probability is written as 0, which would
    claim that a class is impossible: the smallest is the smallest normal number of its type. One number a row stays
    one, except in another kind of file. Columns that the format cannot hold are left out: matrices in a CSV file, text
    in an archive of tensors. All batches have the same columns. The metadata, where the format has any, say what the
    file was ``made_from``.
    """
    suffix = writable_suffix(path)
    first = next(batches)
    others = [name for name, column in first.others.items() if _can_hold(suffix, column)]
    n, unscored, content = 0, 0, first.layout and first.layout.content
    laid_out = _laid_out(first, others, suffix) is not None

    def arrays() -> Iterator[Mapping[str, Any]]:
        nonlocal n, unscored
        for scores in chain([first], batches):
            n, unscored = n + len(scores.predictions), unscored + scores.n - len(scores.predictions)
            columns = _laid_out(scores, others, suffix) if laid_out else _named(scores, others, suffix)
            assert columns is not None, "all batches have the same columns"
            yield columns

    form = Form(suffix, first.predictions.class_names)
    if laid_out:
        assert content is not None
        assert first.layout is not None
        metadata = content.metadata if (content.noun == "column") == (suffix not in _ARCHIVES) else {}
        own = {"class_names", b"class_names", MADE_FROM, MADE_FROM.encode()}
        kept = {name: value for name, value in metadata.items() if name not in own}
        form = Form(suffix, content.class_names, True, first.layout.separator, kept)
    dropped = _write(arrays(), form._replace(made_from={} if made_from is None else {MADE_FROM: made_from}), path)
    copied = tuple(name for name in others if name not in dropped)
    lost = (name for name in first.others if name not in copied)
    return Applied(n, first.kind, first.labelled, (*first.left, *lost), copied, unscored=unscored)


def known_source(path: Path) -> str | None:
    """Return what a file was made from, if it exists and says so."""
    try:
        metadata = open_source(path).metadata if suffix_is(path, *_WITH_METADATA) else {}
    except InputError:
        return None
    known = metadata.get(MADE_FROM, metadata.get(MADE_FROM.encode()))
    return known.decode() if isinstance(known, bytes) else known


_WITH_METADATA = (".arrow", ".feather", ".parquet", ".safetensors")


def _named(scores: Scores, others: Iterable[str], suffix: str) -> dict[str, Any]:
    """Return what to write by our own names."""
    if not scores.is_gapless:
        raise InputError(
            "a file with rows without a score or a label must be written as one of its kind, a table as a table and "
            f"an archive as an archive; got {suffix}."
        )
    rows, values = scores.predictions, _values(scores)
    if scores.kind == "logits" and scores.single is not None and not (rows.class_names and suffix in _TEXT):
        values = (values[:, 1] - values[:, 0]).reshape(len(values), *scores.single)
    labels = {"labels": rows.labels} if scores.labelled else {}
    return {scores.kind: values, **labels, **{name: scores.others[name] for name in others}}


def _values(scores: Scores) -> Tensor:
    """Return the logits or probabilities to write, (n, k)."""
    if scores.kind == "logits":
        return scores.predictions.logits
    probs = scores.predictions.probs
    return probs.clamp(min=torch.finfo(probs.dtype).smallest_normal)


_ARCHIVES = (".npz", ".pt", ".pth", ".safetensors")
_TEXT = (".csv", ".csv.gz", ".jsonl", ".jsonl.gz", ".tsv", ".tsv.gz")


def _laid_out(scores: Scores, others: Iterable[str], suffix: str) -> dict[str, Any] | None:
    """Return what to write by the names and in the order of the source; None if the new file is of another kind."""
    layout = scores.layout
    if layout is None or (layout.content.noun == "array") != (suffix in _ARCHIVES):
        return None
    if layout.content.path is not None and suffix_is(layout.content.path, ".npy"):  # its names are those of files
        return None
    names, values = layout.scores, _values(scores)
    columns: dict[str, Any] = {**layout.labels, **{name: scores.others[name] for name in others}}
    if scores.single is not None:
        one = values[:, 1] - values[:, 0]
        if scores.kind == "probs":  # neither class has probability 0
            one = values[:, 1].clamp(max=1 - torch.finfo(values.dtype).eps)
        columns[names[0]] = one.reshape(len(values), *scores.single)
    else:
        columns |= {names[0]: values} if len(names) == 1 else dict(zip(names, values.T, strict=True))
    comma = (layout.separator or "").lower() == "csv2"
    columns |= {name: as_percentages(columns[name], column, comma=comma) for name, column in layout.percentages.items()}
    if scores.kept is not None:
        columns |= {name: _with_gaps(columns[name], scores.kept, suffix) for name in names}
    if not all(_can_hold(suffix, column) for column in columns.values()):
        return None
    return {name: columns[name] for name in layout.names if name in columns}


def _with_gaps(column: Column, kept: Tensor, suffix: str) -> Any:
    """Return a column for all rows: null, or in an archive NaN or no text, in those that are not kept."""
    if suffix not in _ARCHIVES:
        return in_module("tables", "gapped_column")(column, kept)
    if isinstance(column, Words):
        codes = column.codes.new_full((len(kept),), len(column.distinct))
        codes[kept] = column.codes
        return Words((*column.distinct, ""), codes)
    whole = column.new_full((len(kept), *column.shape[1:]), torch.nan)
    whole[kept] = column
    return whole


def _can_hold(suffix: str, column: Any) -> bool:
    if isinstance(column, Words):
        return suffix not in {".pt", ".pth", ".safetensors"}
    if not isinstance(column, Tensor):
        return suffix not in _TEXT or bool(in_module("tables", "can_hold")(suffix, column.type))
    is_flat = column.ndim == 1 or (column.ndim == 2 and not suffix.startswith((".csv", ".tsv")))
    return suffix in _ARCHIVES or (is_flat and not column.is_complex())
