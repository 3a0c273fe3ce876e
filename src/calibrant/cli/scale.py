"""Options for predictions in many files, or too many for memory; and ``calibrant state``, which adds up over days."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias, final

import typer

from calibrant.cli import options
from calibrant.cli.options import argument, check_output, flag, option
from calibrant.errors import CalibrantError, FileError, InputError

if TYPE_CHECKING:
    from calibrant.catalogue import AnyCalibrator
    from calibrant.evaluation import Evaluation
    from calibrant.files.choose import LoadOptions
    from calibrant.files.load import Part
    from calibrant.predictions import Predictions, TopLabel
    from calibrant.scale import Engine, Gathered, Plan, Shard, StreamedFit

STATE_EXAMPLES = """\
calibrant state monday.parquet -o monday.state
calibrant state 'preds/*.parquet' -o week.state --workers 4 --checkpoint job"""

SCALE = "Scale"
_FILES = (
    "Predictions and labels: csv, tsv, jsonl, npz, npy, parquet, feather, arrow, safetensors or pt; several files, a "
    "folder, a quoted pattern; or states (.state)."
)
Files: TypeAlias = Annotated[list[Path], argument("FILE", _FILES)]
_CHECKPOINT = "Folder from which a killed run continues."
_ALLOW_MISSING = "Leave out shards that cannot be read, and say which; otherwise they are an error."
# Scores that are evaluated in memory; more are streamed.
_MOST_NUMBERS = 1 << 26


@final
@dataclass(frozen=True)
class Scale:
    """How more samples than memory holds are read, and where."""

    stream: Annotated[
        bool, flag("--stream", "Read in batches, in bounded memory; large files are without it, too.", SCALE)
    ] = False
    engine: Annotated[str, option("NAME", "Where shards are read: local, torchrun, dask, ray or spark.", SCALE)] = (
        "local"
    )
    workers: Annotated[int, option("N", "Processes of the engine on this machine.", SCALE, min=1, max=1024)] = 1
    address: Annotated[str | None, option("URL", "Address of a Dask or Ray cluster.", SCALE)] = None
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
        part: "Part",
        *,
        n_bins: int,
        seed: int,
        progress: Callable[[str], None],
    ) -> "Opened":
        """Read predictions into memory, or gather their state."""
        if source.are_states:
            return Opened.of(load_states(source.paths))
        if self.streams(source):
            plan = self.plan(source.shards, reading, split, part)
            return Opened.of(self.gather(source.shards, plan, n_bins=n_bins, seed=seed, progress=progress))
        if len(source.shards) == 1:
            return Opened(*options.load_part(source.paths[0], reading, split, part))
        return Opened(*load_all(source.shards, reading, split, part))

    def plan(
        self, shards: "Sequence[Shard]", reading: "LoadOptions", split: options.Split | None, part: "Part"
    ) -> "Plan":
        """Decide what to read from the shards: by the first, or if others may be missing by the first that can be."""
        from calibrant.scale import Plan

        values = None if split is None else (split.column, part, getattr(split, part))
        for shard in shards[:-1] if self.allow_missing else ():
            with contextlib.suppress(CalibrantError):
                return Plan.of(shard, reading, values)
        return Plan.of(shards[-1] if self.allow_missing else shards[0], reading, values)

    def gather(
        self, shards: "Sequence[Shard]", plan: "Plan", *, n_bins: int, seed: int, progress: Callable[[str], None]
    ) -> "Gathered":
        """Gather the state of all shards; processes of ``torchrun`` that have no more to do end here."""
        from calibrant.scale import gather

        gathered = gather(
            *(shards, plan),
            n_bins=n_bins,
            seed=seed,
            engine=self.as_engine(),
            checkpoint=self.checkpoint,
            allow_missing=self.allow_missing,
            progress=progress,
        )
        if gathered is None:
            raise typer.Exit
        return gathered

    def fit(
        self,
        calibrator: "AnyCalibrator",
        source: "Source",
        reading: "LoadOptions",
        split: options.Split | None,
        *,
        progress: Callable[[str], None],
    ) -> "StreamedFit":
        """Fit a calibrator on shards that are streamed; processes of ``torchrun`` but the first end here."""
        if source.are_states:
            raise InputError(
                "a map must be fitted on predictions; got states, which hold sums. Name the files themselves."
            )
        from calibrant.calibrators import Calibrator
        from calibrant.scale import fit_streamed
        from calibrant.scale.fits import check_streams

        check_streams(calibrator)
        assert isinstance(calibrator, Calibrator)
        for name, is_given in (("--checkpoint", self.checkpoint), ("--allow-missing", self.allow_missing)):
            if is_given:
                raise InputError(f"{name} must be left out of a fit, which reads all shards in every pass.")
        plan = self.plan(source.shards, reading, split, "calibration")
        fitted = fit_streamed(calibrator, source.shards, plan, engine=self.as_engine(), progress=progress)
        if fitted is None:
            raise typer.Exit
        return fitted

    def as_engine(self) -> "Engine":
        from calibrant.scale import Engine

        return Engine(self.engine, self.workers, self.address)  # type: ignore[arg-type]  # checked there


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

        states = [file.name.lower().endswith(".state") for file in files]
        if any(states) and not all(states):
            raise InputError("files must all be states, or none of them; got both. Make the others: calibrant state.")
        if all(states):
            return cls(list(files), [])
        shards = find_shards(files)
        return cls([shard.path for shard in shards], shards)

    @property
    def are_states(self) -> bool:
        return not self.shards

    @property
    def name(self) -> str:
        """What the report calls them."""
        return self.paths[0].name if len(self.paths) == 1 else f"{len(self.paths)} files"


class Opened(NamedTuple):
    """Predictions in memory, or a uniform sample of those behind a state."""

    predictions: "Predictions | TopLabel"
    extra: Mapping[str, Any]  # other columns
    gathered: "Gathered | None" = None

    @classmethod
    def of(cls, gathered: "Gathered") -> "Opened":
        return cls(gathered.state.sample.predictions, {}, gathered)

    def evaluate(self, *, n_bins: int, resamples: int, seed: int, progress: Callable[[str], None]) -> "Evaluation":
        """Evaluate all samples."""
        from calibrant.evaluation import evaluate
        from calibrant.scale import evaluate_state

        if self.gathered is None:
            return evaluate(self.predictions, n_bins=n_bins, resamples=resamples, seed=seed, progress=progress)
        state, shards, missing = self.gathered
        return evaluate_state(state, resamples=resamples, shards=len(shards), missing=missing, progress=progress)


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


def load_all(
    shards: "Sequence[Shard]", reading: "LoadOptions", split: options.Split | None, part: "Part"
) -> "tuple[Predictions | TopLabel, dict[str, Any]]":
    """Load the predictions of several files, and other columns of theirs, into memory."""
    from calibrant.labels import joined_columns
    from calibrant.scale import Plan
    from calibrant.scale.state import join

    plan = Plan.of(shards[0], reading)
    loaded = []
    for shard in shards:
        plan.check(shard)
        loaded.append(options.load_part(shard.path, reading, split, part))
    columns = {name: joined_columns([extra[name] for _, extra in loaded]) for name in loaded[0][1]}
    return join([predictions for predictions, _ in loaded]), columns


def load_for_fit(source: Source, given: options.Scores, split: options.Split | None) -> "Predictions":
    """Load the scores of every class of all files into memory."""
    from calibrant.predictions import Predictions

    if len(source.paths) == 1:
        return given.load(source.paths[0], split, "calibration")
    predictions = load_all(source.shards, given.as_options(), split, "calibration")[0]
    if not isinstance(predictions, Predictions):
        raise InputError("files must have scores of every class to be calibrated; they have only the top label.")
    return predictions


def state(
    files: Files,
    out: Annotated[Path, option("FILE", "The state to write (.state).", names=("--out", "-o"))],
    bins: options.Bins = 15,
    seed: options.Seed = 0,
    given: options.Scores = options.Scores(),
    split: options.SplitColumn = None,
    scale: Scale = Scale(),
) -> None:
    """Write a state of predictions, which adds up with others.

    It is what an evaluation needs to know of them: a few megabytes, whatever their number. States of several days,
    files or machines add up: `calibrant evaluate day*.state` is the evaluation of all their samples.
    """
    from calibrant.cli.output import print_warnings, spinner, standard_error, standard_output
    from calibrant.scale import find_shards

    if not out.name.lower().endswith(".state"):
        raise InputError(f"--out must end in .state; got {out}.")
    shards = find_shards(files)
    check_output(out, [shard.path for shard in shards])
    err = standard_error()
    with print_warnings(err), spinner(err) as stage:
        plan = scale.plan(shards, given.as_options(), options.Split.parse(split), "test")
        gathered = scale.gather(shards, plan, n_bins=bins, seed=seed, progress=stage)
    described = [{"name": one.name, "size": one.size, "modified": one.modified} for one in gathered.shards]
    gathered.state.save(out, notes={"shards": described, "missing": gathered.missing})
    console = standard_output()
    for name in gathered.missing:
        console.print(f"missing: {name}", style="yellow")
    files_read = f"{len(shards)} file{'s' * (len(shards) != 1)}"
    console.print(f"Wrote {out}: {gathered.state.n:,} samples of {files_read}, {out.stat().st_size / 1e6:.1f} MB")
