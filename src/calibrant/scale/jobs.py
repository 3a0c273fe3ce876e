"""Gather the state of many shards, by an engine, with a checkpoint that a killed job continues from.

A checkpoint is a folder with one state, of all tasks up to some number, and a description of the job. Answers are
added in the order of the tasks, which the shards alone decide: the sums are the same bits for any number of workers,
and for a job that was killed and continued.
"""

import ctypes
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, final, get_args

import numpy as np

from calibrant.atomic import atomic_binary, held_alone
from calibrant.errors import CalibrantError, FileError, InputError, without_our_warnings
from calibrant.files.load import MOST_ROWS, warn_of_dropped
from calibrant.processes import ProcessGroup
from calibrant.scale.engines import Run, run_torchrun, start_dask, start_local, start_ray, start_spark
from calibrant.scale.shards import Plan, Shard, Task
from calibrant.scale.state import Design, EvaluationState

EngineName: TypeAlias = Literal["local", "torchrun", "dask", "ray", "spark"]
_SHARE = 0.02  # of the time, at most, is spent on checkpoints
_ENDS = 1 << 16  # bytes of each end of a shard that a checkpoint knows it by


@final
@dataclass(frozen=True)
class Engine:
    """Where the tasks run."""

    name: EngineName = "local"
    workers: int = 1
    address: str | None = None
    _run: Run | None = field(default=None, repr=False, compare=False)  # of a started one

    def __post_init__(self) -> None:
        if self.name not in get_args(EngineName):
            raise InputError(f"--engine must be one of {', '.join(get_args(EngineName))}; got {self.name!r}.")
        if self.address is not None and self.name not in {"dask", "ray", "spark"}:
            raise InputError(f"--address belongs to --engine dask, ray or spark; got --engine {self.name}. Omit it.")

    @property
    def collects(self) -> bool:
        """Whether this process gets the answers: all do but the later ones of ``torchrun``."""
        return self.name != "torchrun" or os.environ.get("RANK", "0") == "0"

    @contextmanager
    def started(self) -> "Iterator[Engine]":
        """Start the processes or the cluster once, for all that runs within the block; a started engine stays."""
        with ExitStack() as stack:
            run = self._run or (run_torchrun if self.name == "torchrun" else None)
            if run is None:
                clusters = {"dask": start_dask, "ray": start_ray, "spark": start_spark}
                start = partial(clusters[self.name], self.address) if self.name in clusters else start_local
                run = stack.enter_context(start(self.workers))
            yield replace(self, _run=run)

    def run(self, work: Callable[[Task], bytes], tasks: Sequence[Task]) -> Iterator[bytes | CalibrantError]:
        with self.started() as engine:
            assert engine._run is not None
            yield from engine._run(work, tasks)


LOCAL = Engine()


class Gathered(NamedTuple):
    """The state of all shards, and what it lacks because it could not be read."""

    state: EvaluationState
    shards: list[Any]
    missing: list[str]


def gather_task(task: Task, *, plan: Plan, design: Design) -> EvaluationState:
    """Gather the state of the samples of one task."""
    state = EvaluationState(design)
    with without_our_warnings():  # the report says what they say, for all samples
        for samples, keys, columns in plan.keyed(task, design.seed):
            design.check(samples, task.shard.path)
            state.add(samples, keys, columns)
            del samples  # before the next are read
    return state


def _answer(task: Task, *, plan: Plan, design: Design) -> bytes:
    state = gather_task(task, plan=plan, design=design)
    _return_freed_memory()
    return state.to_bytes()


def gather(
    shards: Sequence[Shard],
    plan: Plan,
    *,
    n_bins: int = 15,
    seed: int = 0,
    engine: Engine = LOCAL,
    checkpoint: Path | None = None,
    allow_missing: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Gathered | None:
    """Gather the state of the samples of all shards; None in the other processes of ``torchrun``."""
    unreadable, usable = list[str](), list[Shard]()
    for shard in shards:
        try:
            plan.check(shard)
            usable.append(shard)
        except CalibrantError as error:
            if not allow_missing:
                raise
            unreadable.append(f"{shard.name} ({error})")
    tasks = plan.tasks(usable)
    design = first_design(plan, tasks, n_bins=n_bins, seed=seed)
    description = {} if checkpoint is None else _description(tasks, plan, design)
    with _Checkpoint.open(checkpoint, description, writes=engine.collects) as saved, engine.started() as running:
        state, done, missing = saved.state or EvaluationState(design), saved.done, saved.missing
        if done and engine.collects:
            progress(f"continuing after {done} of {len(tasks)} parts")
        started, before = time.monotonic(), state.n
        for answer in running.run(partial(_answer, plan=plan, design=design), tasks[done:]):
            task = tasks[done]
            done += 1
            if isinstance(answer, CalibrantError):
                if not allow_missing:
                    raise answer
                missing.append(f"{task.title} ({answer})")
            else:
                state.merge(EvaluationState.from_bytes(answer))
            progress(_pace(done, len(tasks), state.n, state.n - before, time.monotonic() - started))
            saved.keep(state, done, missing, is_last=done == len(tasks))
            del answer  # before the next one is made
            _return_freed_memory()
    if not engine.collects:
        return None
    if not state.n:
        raise InputError("the shards must hold at least one sample; none of them does.")
    return Gathered(state, usable, [*unreadable, *missing])


def warn_of_missing(
    shards: Sequence[Shard], plan: Plan, *, engine: Engine, allow_missing: bool = False, are_all: bool = False
) -> list[Any]:
    """Warn of rows that are left out, if any are to be, in a pass over the shards; return the first of each, or all."""
    if plan.options.missing != "drop":
        return []
    tasks, counts = plan.tasks(shards), {shard: [np.zeros(2, np.int64)] for shard in shards}
    work = partial(_lacking, plan=plan, most=sys.maxsize if are_all else MOST_ROWS)
    for task, answer in zip(tasks, engine.run(work, tasks), strict=False):
        if not isinstance(answer, CalibrantError):
            counts[task.shard].append(np.frombuffer(answer, np.int64))
        elif not allow_missing:
            raise answer
    rows = [np.concatenate([part[2:] for part in counts[shard]]) for shard in shards]
    for shard, lacking in zip(shards, rows, strict=True):
        if len(lacking):
            n, dropped = np.sum([part[:2] for part in counts[shard]], axis=0).tolist()
            warn_of_dropped(shard.path, dropped, n, lacking[:MOST_ROWS].tolist(), name=shard.name)
    return ProcessGroup.current().from_first(lambda: rows)


def _lacking(task: Task, *, plan: Plan, most: int) -> bytes:
    return np.array(plan.lacking(task, most), np.int64).tobytes()


def _return_freed_memory() -> None:
    """Give freed memory back to the system, so that a job of many parts needs no more than one of few."""
    if "pyarrow" in sys.modules:
        sys.modules["pyarrow"].default_memory_pool().release_unused()
    with suppress(OSError, TypeError, AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)


def _pace(done: int, tasks: int, n: int, added: int, seconds: float) -> str:
    rate = added / max(seconds, 1e-9)
    left = seconds / done * (tasks - done)
    return f"{done} of {tasks} parts, {n:,} samples, {rate / 1e6:.2f} million a second, about {left:.0f} s left"


def first_design(plan: Plan, tasks: Sequence[Task], *, n_bins: int, seed: int) -> Design:
    """Return the design that the first samples call for."""
    small = replace(plan, rows=64)
    with without_our_warnings():
        for task in tasks:
            for batch in small.batches(task):
                return Design.of(batch.samples, n_bins=n_bins, seed=seed, by=plan.by)
    raise InputError("the shards must hold at least one sample of the wanted part; none of them does.")


def _description(tasks: Sequence[Task], plan: Plan, design: Design) -> dict[str, Any]:
    """Describe a job by its options, and its shards by size, time and both ends, one of which tables keep facts at."""
    shards = {}
    for shard in {task.shard for task in tasks}:
        with shard.path.open("rb") as file:
            head, _, tail = file.read(_ENDS), file.seek(max(0, shard.size - _ENDS)), file.read(_ENDS)
        shards[shard.name] = [shard.size, shard.modified, hashlib.sha256(head + tail).hexdigest()]
    asked = repr((plan, design, [(task.shard.name, task.groups) for task in tasks]))
    return {"job": hashlib.sha256(asked.encode()).hexdigest(), "shards": shards}


@final
class _Checkpoint:
    """The state of the first tasks of a job, in a folder."""

    def __init__(self, folder: Path | None, description: Mapping[str, Any], *, writes: bool) -> None:
        self.folder, self._description, self._writes = folder, description, writes
        self.state: EvaluationState | None = None
        self.done, self.missing, self._due = 0, list[str](), 0.0

    @classmethod
    @contextmanager
    def open(cls, folder: Path | None, description: Mapping[str, Any], *, writes: bool) -> "Iterator[_Checkpoint]":
        """Open or make a checkpoint. One process may write it; others of its job read how far it is."""
        made = cls(folder, description, writes=writes)
        with ExitStack() as stack:
            try:
                if folder is not None and writes:
                    folder.mkdir(parents=True, exist_ok=True)
                    stack.enter_context(held_alone(folder))
            except BlockingIOError as error:
                raise FileError(f"{folder} must be the checkpoint of one job; another is running with it.") from error
            made._read()
            yield made

    def _read(self) -> None:
        if self.folder is None:
            return
        about, state = self.folder / "job.json", self.folder / "done.state"
        if not about.is_file():
            if self._writes:
                with atomic_binary(about) as file:
                    file.write(json.dumps(self._description).encode())
            return
        try:
            known = json.loads(about.read_bytes())
        except ValueError as error:
            raise FileError(f"{about} must describe a job; it is damaged. Remove the folder to begin again.") from error
        changed = [name for name, facts in self._description["shards"].items() if known["shards"].get(name) != facts]
        if changed := changed + sorted(known["shards"].keys() - self._description["shards"].keys()):
            raise FileError(
                f"{self.folder} must be the checkpoint of these shards; {changed[0]} has changed since, is new or is "
                "gone. Name another folder, or remove this one to begin again."
            )
        if known["job"] != self._description["job"]:
            raise FileError(f"{self.folder} must be this job's checkpoint; options or columns differ. Name another.")
        if state.is_file():
            self.state, notes = EvaluationState.load(state)
            self.done, self.missing = notes["done"], notes["missing"]

    def keep(self, state: EvaluationState, done: int, missing: Sequence[str], *, is_last: bool) -> None:
        """Write the state, if the last time was long ago."""
        start = time.monotonic()
        if self.folder is None or not (is_last or start >= self._due):
            return
        state.save(self.folder / "done.state", notes={"done": done, "missing": list(missing)})
        self._due = (end := time.monotonic()) + (end - start) / _SHARE
