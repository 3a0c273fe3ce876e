"""Read the predictions that a command was given: which files they are, and those that fit into memory."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias, final

from calibrant.cli import options
from calibrant.cli.options import argument, flag, option
from calibrant.errors import FileError, InputError

if TYPE_CHECKING:
    from torch import Tensor

    from calibrant.evaluation import Evaluation
    from calibrant.evidence import Difference
    from calibrant.files.choose import LoadOptions
    from calibrant.files.load import Part
    from calibrant.predictions import Predictions, TopLabel
    from calibrant.scale import Gathered, Shard
    from calibrant.slices import Slice

Progress: TypeAlias = Callable[[str], None]
_FILES = (
    "Predictions and labels: csv, tsv, jsonl, npz, npy, parquet, feather, arrow, safetensors or pt; several files, a "
    "folder, a quoted pattern; or states (.state)."
)
Files: TypeAlias = Annotated[list[Path], argument("FILE", _FILES)]
_MIN_LOGITS_FOR_THREADS = 1 << 22
_SAME_ROWS = "with --missing drop, --baseline must have the same rows in the same order, also those without values"
_BY = "Evaluate the samples of every value of this column too, the worst first. May be repeated."


@final
@dataclass(frozen=True)
class Slicing:
    """Columns to slice the samples by."""

    by: Annotated[list[str] | None, option("COLUMN", _BY)] = None
    classes: Annotated[bool, flag("--classes", "Evaluate every predicted class too, the worst first.")] = False

    @property
    def wanted(self) -> tuple[str, ...]:
        """Columns to read from the file."""
        return tuple(dict.fromkeys(self.by or ()))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns that slices are by."""
        from calibrant.slices import PREDICTED

        return (*self.wanted, *((PREDICTED,) if self.classes else ()))

    def columns(self, predictions: "Predictions | TopLabel", read: "Mapping[str, Any]") -> dict[str, Any]:
        """Return the columns by name, one entry per sample."""
        from calibrant.predictions import TopLabel
        from calibrant.slices import PREDICTED, predicted_classes

        if not self.classes:
            return dict(read)
        if isinstance(predictions, TopLabel):
            raise InputError("--classes must be given predictions of every class; this file has only the top label.")
        return {**read, PREDICTED: predicted_classes(predictions)}


class LoadedPart(NamedTuple):
    """Predictions of a part of the rows, other columns of the same samples, and their place among all rows."""

    predictions: "Predictions | TopLabel"
    columns: dict[str, Any]
    rows: "Tensor"  # numbers of the rows, (n,)
    complete: "Tensor"  # whether each of all rows has every value, bool


def _load_file(path: Path, reading: "LoadOptions", split: options.SplitOption | None, part: "Part") -> LoadedPart:
    """Load predictions from a file, with ``--split`` those of one part."""
    import torch

    from calibrant.files.load import load_detailed, rows_of_part

    wanted = reading.extra if split is None else tuple(dict.fromkeys((*reading.extra, split.column)))
    loaded = load_detailed(path, replace(reading, extra=wanted))
    complete = loaded.content.kept
    complete = torch.ones(len(loaded.predictions), dtype=torch.bool) if complete is None else complete
    rows = complete.nonzero()[:, 0]
    if split is None:
        return LoadedPart(loaded.predictions, dict(loaded.extra), rows, complete)
    chosen = rows_of_part(loaded.extra[split.column], split.column, part, getattr(split, part))
    columns = {name: loaded.extra[name][chosen] for name in reading.extra}
    return LoadedPart(loaded.predictions[chosen], columns, rows[chosen], complete)


@final
@dataclass(frozen=True)
class Source:
    """The files that a command was given."""

    paths: list[Path]
    shards: "list[Shard]"  # none if they are states

    @classmethod
    def find(cls, files: Sequence[Path]) -> "Source":
        """Return the files that names, folders and patterns mean."""
        from calibrant.scale import find_shards

        states = [
            file.name.lower().endswith(".state") or (file.is_dir() and any(file.glob("*.state"))) for file in files
        ]
        if any(states) and not all(states):
            raise InputError("files must all be states, or none of them; got both. Make the others: calibrant state.")
        if all(states):
            return cls(find_states(files), [])
        shards = find_shards(files)
        return cls([shard.path for shard in shards], shards)

    @property
    def are_states(self) -> bool:
        return not self.shards

    def paired_with(self, other: "Source") -> "Source":
        """Return the same files under the names of others, so that their samples form the same groups."""
        if self.are_states:
            return self
        if len(self.shards) != len(other.shards):
            raise InputError(f"--baseline must have as many files, {len(other.shards)}; got {len(self.shards)}.")
        pairs = zip(self.shards, other.shards, strict=True)
        return Source(self.paths, [replace(mine, name=theirs.name) for mine, theirs in pairs])

    def load(self, reading: "LoadOptions", split: options.SplitOption | None, part: "Part") -> LoadedPart:
        """Load the predictions of all files, or of one part of them, into memory."""
        import torch

        from calibrant.labels import joined_columns
        from calibrant.scale import Plan
        from calibrant.scale.state import join

        if len(self.shards) == 1:
            return _load_file(self.paths[0], reading, split, part)
        plan = Plan.of(self.shards[0], reading)
        loaded = []
        for shard in self.shards:
            plan.check(shard)
            loaded.append(_load_file(shard.path, plan.options, split, part))
        columns = {name: joined_columns([one.columns[name] for one in loaded]) for name in loaded[0].columns}
        starts = [0, *accumulate(len(one.complete) for one in loaded)]
        rows = torch.cat([one.rows + start for one, start in zip(loaded, starts, strict=False)])
        complete = torch.cat([one.complete for one in loaded])
        return LoadedPart(join([one.predictions for one in loaded]), columns, rows, complete)

    def load_classes(
        self, given: options.ScoreOptions, split: options.SplitOption | None, part: "Part"
    ) -> "Predictions":
        """Load the scores of every class; a FileError if the files have only those of the predicted one."""
        from calibrant.predictions import TopLabel

        predictions = self.load(given.as_options(), split, part).predictions
        if isinstance(predictions, TopLabel):
            title = self.paths[0] if len(self.paths) == 1 else "each file"
            raise FileError(
                f"{title} must have logits or probabilities of every class to be calibrated; it has only the "
                "confidence of the predicted one and whether it was right. Save the model's logits, or calibrate the "
                "probability of being right, by isotonic_ovr or platt: --probs --positive confidence --labels correct."
            )
        return predictions

    @property
    def name(self) -> str:
        """Name of the source in the report."""
        return self.paths[0].name if len(self.paths) == 1 else f"{len(self.paths)} files"


def find_states(files: Sequence[Path]) -> list[Path]:
    """Return the states that names, folders of states and patterns mean."""
    from calibrant.scale import find_shards

    paths: list[Path] = []
    for file in files:
        is_pattern = not file.is_file() and any(mark in str(file) for mark in "*?[")
        in_folder = sorted(file.glob("*.state")) if file.is_dir() else []
        paths += [shard.path for shard in find_shards([file])] if is_pattern else in_folder or [file]
    return paths


def load_states(files: Sequence[Path]) -> "Gathered":
    """Load states and add them up."""
    from calibrant.files.load import warn_again
    from calibrant.scale import EvaluationState, Gathered

    total, seen = None, dict[str, Path]()
    shards, missing = list[Any](), list[str]()
    for file in files:
        state, notes = EvaluationState.load(file)
        for shard in notes.get("shards", ()):
            name = f"{shard['name']} ({shard['size']} bytes, {shard['modified']})"
            if name in seen:
                raise FileError(f"{file} must not hold samples twice; {shard['name']} is in {seen[name]} too.")
            seen[name] = file
        shards += notes.get("shards", ())
        for facts in notes.get("dropped", ()):
            warn_again(facts)
        missing += notes.get("missing", ())
        if total is None:
            total = state
            continue
        try:
            total.merge(state)
        except InputError as error:
            raise FileError(f"{file} must add up with {files[0]}: ", *error.args) from error
    assert total is not None
    return Gathered(total, shards, missing)


@final
@dataclass(frozen=True)
class InMemory:
    """Predictions in memory, with the number of bins and the seed of their evaluation."""

    predictions: "Predictions | TopLabel"
    columns: Mapping[str, Any]  # to slice by
    n_bins: int
    seed: int
    other: "Predictions | TopLabel | None"  # predictions of the baseline
    twice: int  # rows that lack a value in both tables

    def evaluate(self, **options: Any) -> "Evaluation":
        """Evaluate all samples, with these options of :func:`calibrant.evaluate`."""
        from calibrant.evaluation import evaluate

        return evaluate(self.predictions, n_bins=self.n_bins, seed=self.seed, **options)

    def slices(self, **options: Any) -> "list[Slice]":
        """Evaluate the slices of all samples, with these options of :func:`calibrant.evaluate_slices`."""
        from calibrant.slices import evaluate_slices

        if not self.columns:
            return []
        return evaluate_slices(self.predictions, by=self.columns, n_bins=self.n_bins, seed=self.seed, **options)

    def differences(self, *, resamples: int) -> "dict[str, Difference]":
        """Compare all samples with those of the baseline."""
        from calibrant.evaluation import metrics_for
        from calibrant.evidence import report_differences

        assert self.other is not None
        metrics = metrics_for(self.predictions, n_bins=self.n_bins)
        return report_differences(self.other, self.predictions, metrics, resamples=resamples, seed=self.seed)


def read_in_memory(
    source: Source,
    baseline: Source | None,
    reading: "LoadOptions",
    split: options.SplitOption | None,
    slicing: Slicing,
    *,
    n_bins: int,
    seed: int,
) -> InMemory:
    """Read predictions into memory, and those of a baseline; rows that either lacks are left out of both."""
    import torch

    from calibrant.files.load import check_order, open_source
    from calibrant.predictions import TopLabel

    predictions, columns, rows, complete = source.load(replace(reading, extra=slicing.wanted), split, "test")
    other, twice = None, 0
    if baseline is not None:
        other, _, other_rows, other_complete = baseline.load(reading, split, "test")
        if isinstance(other, TopLabel):
            for path, other_path in zip(source.paths, baseline.paths, strict=False):
                check_order(open_source(path, reading), open_source(other_path, reading))
        if reading.missing == "drop":
            if len(complete) != len(other_complete):
                raise InputError(f"{_SAME_ROWS}; got {len(complete):,} and {len(other_complete):,} rows.")
            in_both = torch.isin(rows, other_rows)
            if not in_both.any():
                raise InputError(f"{_SAME_ROWS}, some of them complete in both files; none is.")
            predictions, other = predictions[in_both], other[torch.isin(other_rows, rows)]
            columns = {name: column[in_both] for name, column in columns.items()}
            twice = int((~complete & ~other_complete).sum())
    return InMemory(predictions, slicing.columns(predictions, columns), n_bins, seed, other, twice)


@contextlib.contextmanager
def threads_for(*predictions: "Predictions | TopLabel") -> Iterator[None]:
    """Compute on one thread, unless predictions are many: threads would mostly wait for each other.

    Of 100,000 to 4,000,000 logits two threads compare methods no faster than one, and on a busy machine several times
    slower.
    """
    import torch

    threads, numbers = torch.get_num_threads(), sum(len(one) * getattr(one, "n_classes", 1) for one in predictions)
    torch.set_num_threads(threads if numbers >= _MIN_LOGITS_FOR_THREADS else 1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
