"""Options for predictions in many files, or too many for memory; and ``calibrant state``, which adds up over days."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias, final

import typer

from calibrant.cli import options
from calibrant.cli.options import argument, check_output, flag, option
from calibrant.errors import CalibrantError, CalibrantWarning, FileError, InputError, counted, terminal_text

if TYPE_CHECKING:
    from torch import Tensor

    from calibrant.catalogue import AnyCalibrator
    from calibrant.evaluation import Evaluation
    from calibrant.evidence import Difference
    from calibrant.files.choose import LoadOptions
    from calibrant.files.load import Part
    from calibrant.metrics import Metric
    from calibrant.predictions import Predictions, TopLabel
    from calibrant.scale import Engine, EvaluationState, Gathered, Plan, Shard, StreamedFit
    from calibrant.slices import Slice

STATE_EXAMPLES = """\
calibrant state monday.parquet -o monday.state
calibrant state 'preds/*.parquet' -o week.state --workers 4 --checkpoint job"""

SCALE = "Scale"
Progress: TypeAlias = Callable[[str], None]
_FILES = (
    "Predictions and labels: csv, tsv, jsonl, npz, npy, parquet, feather, arrow, safetensors or pt; several files, a "
    "folder, a quoted pattern; or states (.state)."
)
Files: TypeAlias = Annotated[list[Path], argument("FILE", _FILES)]
_CHECKPOINT = "Folder from which a killed run continues."
_ALLOW_MISSING = "Leave out shards that cannot be read, and say which; otherwise they are an error."
# Scores that are evaluated in memory; more are streamed.
_MOST_NUMBERS = 1 << 26
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


@final
@dataclass(frozen=True)
class Scale:
    """Options for files that are too many or too large for memory."""

    stream: Annotated[
        bool, flag("--stream", "Read in batches, in bounded memory; large files are without it, too.", SCALE)
    ] = False
    engine: Annotated[str, option("NAME", "Where shards are read: local, torchrun, dask, ray or spark.", SCALE)] = (
        "local"
    )
    workers: Annotated[int, option("N", "Processes of the engine on this machine.", SCALE, min=1, max=1024)] = 1
    address: Annotated[str | None, option("URL", "Address of a Dask, Ray or Spark cluster.", SCALE)] = None
    checkpoint: Annotated[Path | None, option("FOLDER", _CHECKPOINT, SCALE)] = None
    allow_missing: Annotated[bool, flag("--allow-missing", _ALLOW_MISSING, SCALE)] = False

    def streams(self, source: "Source") -> bool:
        """Return whether files are streamed: if an option says so, or they are too large for memory."""
        return source.are_states or self != Scale() or _numbers_in(source.shards) > _MOST_NUMBERS

    def read(
        self,
        source: "Source",
        reading: "LoadOptions",
        split: options.Split | None,
        *,
        slicing: Slicing,
        baseline: "Source | None",
        n_bins: int,
        seed: int,
        progress: Progress,
    ) -> "Opened":
        """Read predictions into memory, or gather their state; and likewise those of a baseline."""
        if baseline is not None and source.are_states != baseline.are_states:
            raise InputError("--baseline must be states if the others are, and only then; got one of each.")
        if not self.streams(source):
            return _opened(source, baseline, reading, split, slicing)
        sources = [source] if baseline is None else [source, baseline]
        if source.are_states:
            return Opened.of([load_states(one.paths) for one in sources], slicing)
        paired = [one.paired_with(source).shards for one in sources]
        with self.started() as engine:  # once for both
            plans, twice = self._plans(sources, reading, split, slicing, engine)
            gathered: list[Gathered | None] = []
            for shards, plan, folder in zip(paired, plans, ("", "baseline"), strict=False):
                own = replace(self, checkpoint=None if self.checkpoint is None else self.checkpoint / folder)
                gathered.append(own.gather(shards, plan, engine, n_bins=n_bins, seed=seed, progress=progress))
        states = [one for one in gathered if one is not None]
        if len(states) < len(gathered):
            raise typer.Exit  # a process of ``torchrun`` that has no more to do
        return Opened.of(states, slicing, twice=twice)

    def _plans(
        self,
        sources: "Sequence[Source]",
        reading: "LoadOptions",
        split: options.Split | None,
        slicing: Slicing,
        engine: "Engine",
    ) -> "tuple[list[Plan], int]":
        """Decide what to read from predictions and a baseline, and count the rows that lack a value in both."""
        import numpy as np

        from calibrant.scale.jobs import warn_of_missing

        plans: list[Plan] = []
        lacking, left_out, twice = list[list[Any]](), dict[str, bytes](), 0
        for one, by in zip(sources, (slicing, Slicing()), strict=False):
            wanted = replace(reading, extra=by.wanted)
            plans.append(self.plan(one.shards, wanted, split, "test", by_class=by.classes))
            allowed = {"allow_missing": self.allow_missing, "are_all": len(sources) > 1}
            lacking.append(warn_of_missing(one.shards, plans[-1], engine=engine, **allowed))
        if len(sources) > 1:
            for shard, mine, theirs in zip(sources[0].shards, *lacking, strict=False):
                left_out[shard.name] = np.union1d(mine, theirs).tobytes()
                twice += len(np.intersect1d(mine, theirs))
        return [replace(plan, left_out=left_out) for plan in plans], twice

    def plan(
        self,
        shards: "Sequence[Shard]",
        reading: "LoadOptions",
        split: options.Split | None,
        part: "Part",
        *,
        by_class: bool = False,
    ) -> "Plan":
        """Decide what to read from the shards: by the first, or if others may be missing by the first that can be."""
        from calibrant.scale import Plan

        values = None if split is None else (split.column, part, getattr(split, part))
        *others, last = shards if self.allow_missing else shards[:1]
        for shard in others:
            with contextlib.suppress(CalibrantError):
                return Plan.of(shard, reading, values, by_class=by_class)
        return Plan.of(last, reading, values, by_class=by_class)

    def gather(
        self, shards: "Sequence[Shard]", plan: "Plan", engine: "Engine", *, n_bins: int, seed: int, progress: Progress
    ) -> "Gathered | None":
        """Gather the state of all shards; None in processes of ``torchrun`` but the first."""
        from calibrant.scale import gather

        return gather(
            shards,
            plan,
            n_bins=n_bins,
            seed=seed,
            engine=engine,
            checkpoint=self.checkpoint,
            allow_missing=self.allow_missing,
            progress=progress,
        )

    def fit(
        self,
        calibrator: "AnyCalibrator",
        source: "Source",
        reading: "LoadOptions",
        split: options.Split | None,
        *,
        progress: Progress,
    ) -> "StreamedFit":
        """Fit a calibrator on shards that are streamed; processes of ``torchrun`` but the first end here."""
        if source.are_states:
            raise InputError(
                "a map must be fitted on predictions; got states, which hold sums. Name the files themselves."
            )
        from calibrant.calibrators import Calibrator
        from calibrant.scale import fit_streamed
        from calibrant.scale.fits import check_streams
        from calibrant.scale.jobs import warn_of_missing

        check_streams(calibrator)
        assert isinstance(calibrator, Calibrator)
        self.check_passes("a fit")
        plan = self.plan(source.shards, reading, split, "calibration")
        with self.started() as engine:
            warn_of_missing(source.shards, plan, engine=engine)
            fitted = fit_streamed(calibrator, source.shards, plan, engine=engine, progress=progress)
        if fitted is None:
            raise typer.Exit
        return fitted

    def check_passes(self, work: str) -> None:
        """Refuse the options of work that reads every shard once."""
        for name, is_given in (("--checkpoint", self.checkpoint), ("--allow-missing", self.allow_missing)):
            if is_given:
                raise InputError(f"{name} must be left out of {work}, which reads all shards in every pass.")

    @contextlib.contextmanager
    def started(self) -> "Iterator[Engine]":
        """Start the engine, in every process of ``torchrun``."""
        from calibrant.processes import join_processes

        joined = join_processes() if self.engine == "torchrun" else contextlib.nullcontext()
        with joined, self._engine().started() as engine:
            yield engine

    def _engine(self) -> "Engine":
        from calibrant.scale import Engine

        return Engine(self.engine, self.workers, self.address)  # type: ignore[arg-type]  # checked there


class LoadedPart(NamedTuple):
    """Predictions of a part of the rows, other columns of the same samples, and their place among all rows."""

    predictions: "Predictions | TopLabel"
    columns: dict[str, Any]
    rows: "Tensor"  # numbers of the rows, (n,)
    complete: "Tensor"  # whether each of all rows has every value, bool


def _load_file(path: Path, reading: "LoadOptions", split: options.Split | None, part: "Part") -> LoadedPart:
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
            raise InputError(
                f"--baseline must have a file for each of the {len(other.shards)} others; got {len(self.shards)}."
            )
        pairs = zip(self.shards, other.shards, strict=True)
        return Source(self.paths, [replace(mine, name=theirs.name) for mine, theirs in pairs])

    def load(self, reading: "LoadOptions", split: options.Split | None, part: "Part") -> LoadedPart:
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

    def load_classes(self, given: options.Scores, split: options.Split | None, part: "Part") -> "Predictions":
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


def _opened(
    source: Source, baseline: Source | None, reading: "LoadOptions", split: options.Split | None, slicing: Slicing
) -> "Opened":
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
    return Opened(predictions, slicing.columns(predictions, columns), baseline=other, twice=twice)


class Opened(NamedTuple):
    """Predictions in memory, or a uniform sample of those behind a state."""

    predictions: "Predictions | TopLabel"
    columns: Mapping[str, Any]  # to slice by
    gathered: "Gathered | None" = None
    baseline: "Predictions | TopLabel | EvaluationState | None" = None
    twice: int = 0  # rows that lack a value in both tables

    @classmethod
    def of(cls, gathered: "Sequence[Gathered]", slicing: Slicing, *, twice: int = 0) -> "Opened":
        state, *baseline = [one.state for one in gathered]
        held = state.sample.columns(state.design.by, [value for _, value in state.slices.rows])
        if unknown := [name for name in slicing.names if name not in held]:
            known = ", ".join(map(repr, held)) or "nothing"
            raise InputError(f"states must be gathered with --by {unknown[0]} to be sliced so; these are by {known}.")
        columns = {name: held[name] for name in slicing.names}
        return cls(state.sample.predictions, columns, gathered[0], baseline[0] if baseline else None, twice)

    @property
    def other(self) -> "Predictions | TopLabel | None":
        """Predictions of the baseline, or a uniform sample of them."""
        from calibrant.scale.state import EvaluationState

        return self.baseline.sample.predictions if isinstance(self.baseline, EvaluationState) else self.baseline

    def evaluate(
        self,
        *,
        n_bins: int,
        resamples: int,
        seed: int,
        error_rates: Sequence[float],
        thresholds: Sequence[float],
        progress: Progress,
    ) -> "Evaluation":
        """Evaluate all samples."""
        from calibrant.evaluation import evaluate
        from calibrant.scale import evaluate_state

        wanted: dict[str, Any] = {"resamples": resamples, "error_rates": error_rates, "thresholds": thresholds}
        wanted["progress"] = progress
        if self.gathered is None:
            return evaluate(self.predictions, n_bins=n_bins, seed=seed, **wanted)
        state, shards, missing = self.gathered
        return evaluate_state(state, shards=len(shards), missing=missing, **wanted)

    def slices(
        self, *, n_bins: int, resamples: int, seed: int, error_rates: Sequence[float], progress: Progress
    ) -> "list[Slice]":
        """Evaluate the slices of all samples."""
        from calibrant.scale.evaluation import evaluate_state_slices, with_thresholds
        from calibrant.slices import evaluate_slices

        if not self.columns:
            return []
        if self.gathered is not None:
            options: dict[str, Any] = {"resamples": resamples, "error_rates": error_rates}
            return evaluate_state_slices(self.gathered.state, [*self.columns], **options, progress=progress)
        resampling = {"resamples": resamples, "seed": seed}
        slices = evaluate_slices(self.predictions, by=self.columns, n_bins=n_bins, **resampling, progress=progress)
        return with_thresholds(slices, self.predictions, self.columns, error_rates)

    def differences(self, metrics: "Sequence[Metric]", *, resamples: int, seed: int) -> "dict[str, Difference]":
        """Compare all samples with those of the baseline."""
        from calibrant.evidence import report_differences
        from calibrant.scale.compare import state_differences
        from calibrant.scale.state import EvaluationState

        assert self.baseline is not None
        if isinstance(self.baseline, EvaluationState):
            assert self.gathered is not None
            return state_differences(self.baseline, self.gathered.state, resamples=resamples)
        return report_differences(self.baseline, self.predictions, metrics, resamples=resamples, seed=seed)


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


def _numbers_in(shards: "Sequence[Shard]") -> int:
    """Return about how many scores the files hold."""
    numbers = 0
    for shard in shards:
        if shard.path.name.lower().endswith(".parquet"):
            import pyarrow.parquet as pq

            from calibrant.errors import reading

            with reading(shard.path, "Parquet file"):
                about = pq.read_metadata(shard.path)
            numbers += about.num_rows * about.num_columns
        else:
            numbers += shard.size // 4
    return numbers


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


def state(  # noqa: PLR0913, PLR0917  # a command line has many options
    files: Files,
    out: Annotated[Path, option("FILE", "The state to write (.state).", names=("--out", "-o"))],
    slicing: Slicing = Slicing(),
    bins: options.Bins = 15,
    seed: options.Seed = 0,
    given: options.Scores = options.Scores(),
    confidences: options.Confidences = options.Confidences(),
    split: options.SplitColumn = None,
    scale: Scale = Scale(),
) -> None:
    """Write a state of predictions, which adds up with others.

    It is what an evaluation needs to know of them: a few megabytes, whatever their number. States of several days,
    files or machines add up: `calibrant evaluate day*.state` is the evaluation of all their samples.
    """
    from calibrant.cli.output import print_warnings, spinner, standard_error, standard_output
    from calibrant.scale import find_shards
    from calibrant.scale.jobs import warn_of_missing

    if not out.name.lower().endswith(".state"):
        raise InputError(f"--out must end in .state; got {out}.")
    shards = find_shards(files)
    check_output(out, [shard.path for shard in shards])
    err = standard_error()
    dropped: list[CalibrantWarning] = []
    with print_warnings(err, dropped), spinner(err) as stage, scale.started() as engine:
        reading = replace(confidences.as_options(given), extra=slicing.wanted)
        plan = scale.plan(shards, reading, options.Split.parse(split), "test", by_class=slicing.classes)
        warn_of_missing(shards, plan, engine=engine, allow_missing=scale.allow_missing)
        gathered = scale.gather(shards, plan, engine, n_bins=bins, seed=seed, progress=stage)
    if gathered is None:
        return
    described = [{"name": one.name, "size": one.size, "modified": one.modified} for one in gathered.shards]
    facts = [warning.facts for warning in dropped]
    gathered.state.save(out, notes={"shards": described, "missing": gathered.missing, "dropped": facts})
    console = standard_output()
    for warning in dropped:
        console.print(f"Caution: {terminal_text(warning)}", style="yellow")
    for name in gathered.missing:
        console.print(f"missing: {name}", style="yellow")
    read, size = f"{gathered.state.n:,} samples of {counted(len(shards), 'file')}", out.stat().st_size / 1e6
    console.print(f"Wrote {out}: {read}, {size:.1f} MB")
