"""Options for predictions in many files, or too many for memory, which are streamed."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, final

import typer

from calibrant.cli import options
from calibrant.cli.inputs import InMemory, Progress, Slicing, Source, load_states, read_in_memory
from calibrant.cli.options import flag, option
from calibrant.errors import CalibrantError, InputError

if TYPE_CHECKING:
    from calibrant.catalogue import AnyCalibrator
    from calibrant.evaluation import Evaluation
    from calibrant.evidence import Difference
    from calibrant.files.choose import LoadOptions
    from calibrant.files.load import Part
    from calibrant.predictions import Predictions, TopLabel
    from calibrant.scale import Engine, EvaluationState, Gathered, Plan, Shard, StreamedFit
    from calibrant.slices import Slice

SCALE = "Scale"
_CHECKPOINT = "Folder from which a killed run continues."
_ALLOW_MISSING = "Leave out shards that cannot be read, and say which; otherwise they are an error."
# Scores that are evaluated in memory; more are streamed.
_MOST_NUMBERS = 1 << 26


@final
@dataclass(frozen=True)
class ScaleOptions:
    """Options for files that are too many or too large for memory."""

    stream: Annotated[bool, flag("--stream", "Read in batches, in bounded memory, as large files are.", SCALE)] = False
    engine: Annotated[str, option("NAME", "Where to read: local, torchrun, dask, ray or spark.", SCALE)] = "local"
    workers: Annotated[int, option("N", "Processes of the engine on this machine.", SCALE, min=1, max=1024)] = 1
    address: Annotated[str | None, option("URL", "Address of a Dask, Ray or Spark cluster.", SCALE)] = None
    checkpoint: Annotated[Path | None, option("FOLDER", _CHECKPOINT, SCALE)] = None
    allow_missing: Annotated[bool, flag("--allow-missing", _ALLOW_MISSING, SCALE)] = False

    def streams(self, source: Source) -> bool:
        """Return whether files are streamed: if an option says so, or they are too large for memory."""
        return source.are_states or self != ScaleOptions() or _numbers_in(source.shards) > _MOST_NUMBERS

    def read(
        self,
        source: Source,
        reading: "LoadOptions",
        split: options.SplitOption | None,
        *,
        slicing: Slicing,
        baseline: Source | None,
        n_bins: int,
        seed: int,
        progress: Progress,
    ) -> "InMemory | Streamed":
        """Read predictions into memory, or gather their state; and likewise those of a baseline."""
        if baseline is not None and source.are_states != baseline.are_states:
            raise InputError("--baseline must be states if the others are, and only then; got one of each.")
        if not self.streams(source):
            return read_in_memory(source, baseline, reading, split, slicing, n_bins=n_bins, seed=seed)
        import numpy as np

        from calibrant.scale import gather
        from calibrant.scale.jobs import warn_of_missing

        sources = [source] if baseline is None else [source, baseline]
        if source.are_states:
            return Streamed.of([load_states(one.paths) for one in sources], slicing)
        paired, allowed = [one.paired_with(source).shards for one in sources], self.allow_missing
        plans, lacking, gathered = list["Plan"](), list[list[Any]](), list["Gathered | None"]()
        left_out, twice, has_both = dict[str, bytes](), 0, len(sources) > 1
        with self.started() as engine:  # once for both
            for one, by in zip(sources, (slicing, Slicing()), strict=False):
                wanted = replace(reading, extra=by.wanted)
                plans.append(self.plan(one.shards, wanted, split, "test", by_class=by.classes))
                lacking.append(
                    warn_of_missing(one.shards, plans[-1], engine=engine, allow_missing=allowed, are_all=has_both)
                )
            for shard, mine, theirs in zip(source.shards, *lacking, strict=False) if has_both else ():
                left_out[shard.name] = np.union1d(mine, theirs).tobytes()  # out of both
                twice += len(np.intersect1d(mine, theirs))
            for shards, plan, folder in zip(paired, plans, ("", "baseline"), strict=False):
                chosen, own = replace(plan, left_out=left_out), self.checkpoint and self.checkpoint / folder
                alike: dict[str, Any] = {"n_bins": n_bins, "seed": seed, "checkpoint": own, "allow_missing": allowed}
                gathered.append(gather(shards, chosen, engine=engine, progress=progress, **alike))
        states = [one for one in gathered if one is not None]
        if len(states) < len(gathered):
            raise typer.Exit  # a process of ``torchrun`` that has no more to do
        return Streamed.of(states, slicing, twice=twice)

    def plan(
        self,
        shards: "Sequence[Shard]",
        reading: "LoadOptions",
        split: options.SplitOption | None,
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

    def fit(
        self,
        calibrator: "AnyCalibrator",
        source: Source,
        reading: "LoadOptions",
        split: options.SplitOption | None,
        *,
        progress: Progress,
    ) -> "StreamedFit":
        """Fit a calibrator on shards that are streamed; processes of ``torchrun`` but the first end here."""
        if source.are_states:
            raise InputError("a map must be fitted on predictions; got states, which hold sums. Name the files.")
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
        from calibrant.scale import Engine

        joined = join_processes() if self.engine == "torchrun" else contextlib.nullcontext()
        chosen = Engine(self.engine, self.workers, self.address)  # type: ignore[arg-type]  # checked there
        with joined, chosen.started() as engine:
            yield engine


@final
@dataclass(frozen=True)
class Streamed:
    """The state of predictions that were streamed, and a uniform sample of them."""

    gathered: "Gathered"
    columns: Mapping[str, Any]  # of the sample, to slice by
    baseline: "EvaluationState | None"
    twice: int  # rows that lack a value in both tables

    @classmethod
    def of(cls, gathered: "Sequence[Gathered]", slicing: Slicing, *, twice: int = 0) -> "Streamed":
        """Return predictions, and those of a baseline if there are two; check that slices are known."""
        state, *baseline = [one.state for one in gathered]
        held = state.sample.columns(state.design.by, [value for _, value in state.slices["slices"].rows])
        if unknown := [name for name in slicing.names if name not in held]:
            known = ", ".join(map(repr, held)) or "nothing"
            raise InputError(f"states must be gathered with --by {unknown[0]} to be sliced so; these are by {known}.")
        columns = {name: held[name] for name in slicing.names}
        return cls(gathered[0], columns, baseline[0] if baseline else None, twice)

    @property
    def predictions(self) -> "Predictions | TopLabel":
        """A uniform sample of the predictions."""
        return self.gathered.state.sample.predictions

    @property
    def other(self) -> "Predictions | TopLabel | None":
        """A uniform sample of the predictions of the baseline."""
        return None if self.baseline is None else self.baseline.sample.predictions

    def evaluate(self, **options: Any) -> "Evaluation":
        """Evaluate all samples, with these options of :func:`calibrant.evaluate`."""
        from calibrant.scale import evaluate_state

        state, shards, missing = self.gathered
        return evaluate_state(state, shards=len(shards), missing=missing, **options)

    def slices(self, **options: Any) -> "list[Slice]":
        """Evaluate the slices of all samples, with these options of :func:`calibrant.evaluate_slices`."""
        from calibrant.scale.evaluation import evaluate_state_slices

        return evaluate_state_slices(self.gathered.state, [*self.columns], **options) if self.columns else []

    def differences(self, *, resamples: int) -> "dict[str, Difference]":
        """Compare all samples with those of the baseline."""
        from calibrant.scale.compare import state_differences

        assert self.baseline is not None
        return state_differences(self.baseline, self.gathered.state, resamples=resamples)


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
