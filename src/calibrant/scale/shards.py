"""Predictions in many files: found, checked to be alike, and read in batches of bounded size."""

import glob
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import torch

from calibrant.errors import Argument, FileError, InputError, reading, warn
from calibrant.files.assemble import assemble, complete, lacking_rows, numbers_of, renumbered
from calibrant.files.choose import ColumnChoice, LoadOptions, choose
from calibrant.files.load import (
    MOST_ROWS,
    OPENERS,
    Part,
    check_names,
    extra_columns,
    in_module,
    naming,
    open_for_names,
    open_in_batches,
    part_names,
    suffix_is,
)
from calibrant.files.source import Content
from calibrant.labels import Words, words_of
from calibrant.predictions import Predictions, TopLabel
from calibrant.scale.state import Keys, sample_keys
from calibrant.slices import PREDICTED, slice_words, warn_of_truth
from calibrant.text import listed

_MOST_ROWS, _FEWEST_ROWS, _BATCH_NUMBERS = 1 << 18, 1 << 12, 1 << 20  # in a batch, and scores
# In what one worker reads of a file at a time: many enough that its answer, a state, is small beside them.
_TASK_BATCHES, _TASK_ROWS, _MOST_TASKS = 32, 1 << 18, 512
_MARKS = "*?["


@final
@dataclass(frozen=True)
class Shard:
    """A file of predictions, as it was when it was found."""

    path: Path
    name: str  # below the folder that all shards are in, so that it stays the same where that is moved
    size: int
    modified: int  # nanoseconds

    def check_unchanged(self) -> None:
        """Raise if the file is gone or has changed since it was found."""
        try:
            now = self.path.stat()
        except OSError as error:
            raise FileError(f"{self.path} must stay while it is read; it is gone ({error.strerror}).") from error
        if (now.st_size, now.st_mtime_ns) != (self.size, self.modified):
            raise FileError(f"{self.path} must not change while it is read; it has. Start again when it is complete.")


def find_shards(sources: Sequence[str | os.PathLike[str]]) -> list[Shard]:
    """Return the files that paths, folders and patterns mean, each once, in the order of their names.

    Of a folder these are all files of predictions in it and below, except hidden ones and those that begin with ``_``.

    Example:
        >>> find_shards(["no/*.parquet"])
        Traceback (most recent call last):
        calibrant.errors.FileError: 'no/*.parquet' must match files of predictions; it matches none.
    """
    paths: dict[Path, Path] = {}
    for source in sources:
        for path in _files_of(os.fspath(source)):
            paths.setdefault(path.resolve(), path)
    try:
        root = Path(os.path.commonpath([path.parent for path in paths])).as_posix()
    except ValueError:  # two drives of Windows
        root = ""
    shards = []
    for resolved, path in paths.items():
        facts = path.stat()
        name = resolved.as_posix().removeprefix(root).lstrip("/")
        shards.append(Shard(path, name, facts.st_size, facts.st_mtime_ns))
    return sorted(shards, key=lambda shard: shard.name)


def _files_of(source: str) -> list[Path]:
    path = Path(source)
    if path.is_file():
        return [path]
    if path.is_dir():
        if (path / "state.json").is_file() or (path / "dataset_info.json").is_file():
            return sorted(path.glob("*.arrow"))  # a folder of Hugging Face datasets
        inside = [file for file in sorted(path.rglob("*")) if file.is_file() and suffix_is(file, *OPENERS)]
        files = [file for file in inside if not any(part[0] in "._" for part in file.relative_to(path).parts)]
        if not files:
            raise FileError(f"{source} must have files of predictions in it ({', '.join(OPENERS)}); there is none.")
        return files
    if any(mark in source for mark in _MARKS):
        files = [Path(name) for name in sorted(glob.glob(source, recursive=True)) if Path(name).is_file()]  # noqa: PTH207  # of any folder
        if not files:
            raise FileError(f"{source!r} must match files of predictions; it matches none.")
        return files
    is_pipe = source == "-" or path.exists()
    state = "is a pipe, and files are read more than once: write it to one first" if is_pipe else "does not exist"
    raise FileError(f"{source} must be a file of predictions, a folder of them, or a pattern; it {state}.")


@final
@dataclass(frozen=True)
class Task:
    """A part of a shard that one worker reads: some row groups of a Parquet file, or the whole of another file."""

    shard: Shard
    groups: tuple[int, ...] = ()
    first: int = 0  # row

    @property
    def title(self) -> str:
        return self.shard.name + (f", row groups {self.groups[0]}-{self.groups[-1]}" if self.groups else "")


class Batch(NamedTuple):
    """Samples of a shard that follow each other, or some of them."""

    first: int  # row of the first, also if it is not wanted
    samples: Predictions | TopLabel
    rows: torch.Tensor | None  # of the samples, counted from the first; None: all
    columns: dict[str, Words]  # to slice by


@final
@dataclass(frozen=True)
class Plan:
    """What to read from every shard, as the names in the first one decide."""

    options: LoadOptions
    choice: ColumnChoice
    part: tuple[str, Part, str | None] | None = None  # column, part and value of --split
    rows: int = _MOST_ROWS  # in a batch
    names: tuple[str, ...] = field(default=())  # columns to read
    by_class: bool = False  # whether to slice by the predicted class, besides the ``extra`` columns of the options
    left_out: Mapping[str, bytes] = field(default_factory=dict)  # by shard: rows, int64, that another table lacks

    @classmethod
    def of(
        cls,
        shard: Shard,
        options: LoadOptions,
        part: tuple[str, Part, str | None] | None = None,
        *,
        by_class: bool = False,
    ) -> "Plan":
        """Decide what to read, from the first shard."""
        if given := next((name for name in ("where", "clusters") if getattr(options, name)), None):
            raise InputError(Argument(given), " is for one file in memory; shards have splits, and no clusters.")
        content = open_for_names(shard.path, options)
        choice = choose(content, options)
        labels = () if choice.labels is None else (choice.labels,)
        more = ((options.weights,) if options.weights else ()) + ((part[0],) if part else ()) + options.extra
        check_names(content, more)
        if choice.labels in options.extra:
            warn_of_truth(choice.labels)
        names = tuple(dict.fromkeys((*choice.scores, *labels, *more)))
        width = max(len(names), *(math.prod(size or 1 for size in content.shape(name)[1:]) for name in choice.scores))
        rows = min(_MOST_ROWS, max(_FEWEST_ROWS, _BATCH_NUMBERS // width))
        if options.positive_class is not None and options.class_names is None and labels:
            of_labels = cls(options, choice, None, rows, labels)
            names_of_both = of_labels._two_names(shard, options.positive_class.strip())
            options = replace(options, class_names=names_of_both[0], negative_class=names_of_both[1])
        return cls(options, choice, part, rows, names, by_class)

    def _two_names(self, shard: Shard, positive: str) -> tuple[tuple[str, str], str | None]:
        """Return the names of both classes and the label of the other one, if the first shard has it."""
        (labels,), distinct = self.names, set[str]()
        for task in self.tasks([shard]):
            for content in self._contents(task):
                column = content.read((labels,), labels)[labels]
                words = column if isinstance(column, Words) else words_of(column[column == column], labels)  # noqa: PLR0124  # no NaN
                distinct |= {word.strip() for word in words.distinct if word.strip()}
                if positive in distinct and len(distinct) > 1:
                    other = min(distinct - {positive})
                    return (other, positive), other
        if positive not in distinct:
            raise InputError(
                Argument("positive_class", positive),
                f" must be a label in {labels!r} of the first shard; it has {listed(map(repr, sorted(distinct)), 4)}",
                ". If others have it, name both classes: ",
                *(Argument("class_names", f"OTHER,{positive}", is_literal=False), "."),
            )
        return (f"not {positive}", positive), None

    @property
    def by(self) -> tuple[str, ...]:
        """Columns to slice by."""
        return (*self.options.extra, *((PREDICTED,) if self.by_class else ()))

    def check(self, shard: Shard) -> None:
        """Raise if the names in another shard decide otherwise."""
        content = open_for_names(shard.path, self.options)
        own = choose(content, self.options)
        missing = next((name for name in self.names if name not in content.names), None)
        if missing is not None:
            raise FileError(f"{shard.path} must have the {content.noun} {missing!r}, as the first has; it does not.")
        if own != self.choice:
            got, wanted = (f"{listed(map(repr, one.scores), 4)} ({one.kind})" for one in (own, self.choice))
            raise FileError(
                f"{shard.path} must have the same {content.noun}s in the same order as the first shard; its scores are "
                f"{got} instead of {wanted}."
            )

    def tasks(self, shards: Sequence[Shard]) -> list[Task]:
        """Divide the shards, as their contents alone decide, so that sums are added in the same order everywhere."""
        tasks: list[Task] = []
        groups = {shard: _group_sizes(shard) for shard in shards if suffix_is(shard.path, ".parquet")}
        total = sum(map(sum, groups.values()))
        most = max(self.rows * _TASK_BATCHES, _TASK_ROWS, total // _MOST_TASKS)
        for shard in shards:
            if shard not in groups:
                tasks.append(Task(shard))
                continue
            sizes, start, first = groups[shard], 0, 0
            while start < len(sizes):
                stop, rows = start + 1, sizes[start]
                while stop < len(sizes) and rows + sizes[stop] <= most:
                    rows, stop = rows + sizes[stop], stop + 1
                if rows:
                    tasks.append(Task(shard, tuple(range(start, stop)), first))
                start, first = stop, first + rows
        return tasks

    def batches(self, task: Task) -> Iterator[Batch]:
        """Yield the samples of a task in batches."""
        shard, first = task.shard, task.first
        left_out = np.frombuffer(self.left_out.get(shard.name, b""), np.int64)
        with _naming(shard):
            for content in self._contents(task):
                with naming(shard.path, first):
                    n, batch = self._wanted(content, first, left_out)
                if batch is not None:
                    yield batch
                first += n
        if first == task.first:
            raise FileError(f"{shard.path} must have at least one row; it has none.")
        shard.check_unchanged()

    def _contents(self, task: Task) -> Iterator[Content]:
        """Yield what a task reads, some rows at a time."""
        path = task.shard.path
        if not task.groups:
            yield from open_in_batches(path, self.options, self.choice, self.names, self.rows)
            return
        yield from in_module("tables", "parquet_batches")(path, self.names, self.rows, task.groups)

    def keyed(self, task: Task, seed: int) -> Iterator[tuple[Predictions | TopLabel, Keys, dict[str, Words]]]:
        """Yield batches of samples, the key of each sample, and the columns to slice by."""
        for first, samples, rows, columns in self.batches(task):
            keys = sample_keys(seed, task.shard.name, first, len(samples) if rows is None else int(rows[-1]) + 1)
            keys = keys if rows is None else keys[rows.numpy()]
            for start in range(0, len(samples), self.rows):
                block = slice(start, start + self.rows)
                chosen = samples[block]
                if chosen.weights is None or bool(chosen.weights.any()):
                    yield chosen, keys[block], {name: words[block] for name, words in columns.items()}
                del chosen  # and what was computed from them, before the next are read

    def _wanted(self, content: Content, first: int, left_out: Any) -> tuple[int, Batch | None]:
        """Return the number of rows of a batch, and its samples that are asked for; None if there are none."""
        content = complete(content, self.choice, self.options, left_out[np.searchsorted(left_out, first) :] - first)
        kept = None if content.kept is None else content.kept.nonzero()[:, 0]
        if kept is not None and not len(kept):
            return len(content.kept), None  # type: ignore[arg-type]
        with renumbered(content):
            return self._of_rows(content, first, kept)

    def _of_rows(self, content: Content, first: int, kept: torch.Tensor | None) -> tuple[int, Batch | None]:
        """Return the same of the rows that are kept; None: all."""
        samples: Predictions | TopLabel = assemble(content, self.choice, self.options)
        n = len(samples) if content.kept is None else len(content.kept)
        if (name := self.options.weights) is not None:
            weights = numbers_of(content.read((name,), None)[name], name)
            if not weights.any():
                return n, None
            samples = samples.with_weights(weights)
        extra = extra_columns(content, self.options.extra, len(samples))
        columns = {name: slice_words(column) for name, column in extra.items()}
        if self.by_class:
            if not isinstance(samples, Predictions):
                raise InputError("--classes must be given predictions of every class; this has only the top label.")
            names = samples.class_names or tuple(map(str, range(samples.n_classes)))
            columns[PREDICTED] = Words(names, samples.predicted)
        if self.part is None:
            return n, Batch(first, samples, kept, columns)
        name, part, value = self.part
        column = content.read((name,), (name,))[name]
        words = column if isinstance(column, Words) else words_of(column, name)
        rows = words.rows_of(part_names(words, part, value))
        sliced = {name: words[rows] for name, words in columns.items()}
        return n, Batch(first, samples[rows], rows if kept is None else kept[rows], sliced) if len(rows) else None

    def lacking(self, task: Task, most: int = MOST_ROWS) -> list[int]:
        """Return how many rows a task has, how many of them lack a score, label or weight, and the first of these."""
        first, dropped, rows = task.first, 0, list[int]()
        names = [*self.choice.scores, *filter(None, (self.choice.labels, self.options.weights))]
        with _naming(task.shard):
            for content in self._contents(task):
                columns = content.read(names, None if self.choice.kind == "top-label" else self.choice.labels)
                lacking = lacking_rows(columns, content, self.choice, self.options)
                if lacking is not None:
                    places = lacking.nonzero()[:, 0]
                    rows += (places[: most - len(rows)] + first).tolist()
                    dropped, first = dropped + len(places), first + len(lacking)
        return [first - task.first, dropped, *rows]


def _group_sizes(shard: Shard) -> list[int]:
    """Return the number of rows in every row group of a Parquet file."""
    import pyarrow.parquet as pq

    with reading(shard.path, "Parquet file"):
        about = pq.read_metadata(shard.path)
        sizes = [about.row_group(index).num_rows for index in range(about.num_row_groups)]
    if not sum(sizes):
        warn(f"{shard.path} has no rows, and adds nothing.")
    return sizes


@contextmanager
def _naming(shard: Shard) -> Iterator[None]:
    """Name the shard in errors about what it holds."""
    try:
        with naming(shard.path):
            yield
    except OSError as error:
        raise FileError(f"{shard.path} could not be read: {error.strerror or error}.") from error
