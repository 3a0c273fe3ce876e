"""Run the cells of a study that have no record yet: in worker processes, one record per finished cell.

A worker takes one cell at a time, or several that its study trains together on one device. Only the parent writes. A
worker that dies costs its own cells and is replaced; a parent that dies costs the cells under way, and its workers end
with it. Networks that are trained resume from a state that is at most a minute old.
"""

import json
import multiprocessing
import os
import platform
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from itertools import islice
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, Protocol, TypeAlias, final

from calibrant.errors import InputError
from experiments.numbers import Number
from experiments.records import Record, Records, Writer

__all__ = [
    "Cell",
    "Place",
    "Progress",
    "RunReport",
    "Study",
    "Table",
    "finished",
    "one_by_one",
    "run_cells",
    "selected",
]

Scalar: TypeAlias = str | int | float | bool
Settings: TypeAlias = Mapping[str, Scalar]
RunCell: TypeAlias = Callable[[Settings], dict[str, Any]]
Report: TypeAlias = Callable[[int, dict[str, Any] | Exception], None]  # a cell's place, and its numbers or its error
RunCells: TypeAlias = Callable[[Sequence[Settings], Report], None]
_ROOT = Path(__file__).parents[1]


def commit_of_the_code() -> str:
    """Return the commit that git names, with ``-dirty`` where tracked files differ from it; ``unknown`` without git."""
    try:
        asked = subprocess.run(
            ["git", "describe", "--always", "--exclude=*", "--abbrev=40", "--dirty"],  # noqa: S607
            cwd=_ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return asked.stdout.strip()


@final
@dataclass(frozen=True)
class Cell:
    """One entry of a study's grid: everything that decides its numbers.

    Args:
        settings: Names and values, the seed among them. A cell whose settings change is another cell.
    """

    settings: Mapping[str, Scalar]

    @property
    def key(self) -> str:
        """The settings as text; equal settings have equal keys, in whatever order they were named."""
        return json.dumps(self.settings, ensure_ascii=False, sort_keys=True)

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.settings.items())


@final
@dataclass(frozen=True)
class Place:
    """Where a study runs.

    Args:
        data: File or folder of its data set; None where the study brings its own.
        device: As torch names it.
        commit: Of the code that runs.
        networks: Folder of networks that are trained once for many cells, and of fits under way.
    """

    data: Path | None = None
    device: str = field(default_factory=lambda: "cuda" if _cuda().is_available() else "cpu")
    commit: str = field(default_factory=commit_of_the_code)
    networks: Path | None = None

    def described(self) -> Record:
        """Return what a record says of it."""
        name = _cuda().get_device_name(self.device) if self.device.startswith("cuda") else platform.machine()
        python = platform.python_version()
        return {"device": name, "torch": version("torch"), "python": python, "commit": self.commit}


def _cuda() -> ModuleType:
    import torch.cuda  # here, as a study whose cells need no torch starts its workers without

    return torch.cuda


class Prepare(Protocol):
    """Load data and networks for the cells that are to run, once per worker; return what runs and reports cells."""

    def __call__(self, place: Place, cells: Sequence[Cell], /, *, quick: bool) -> RunCells: ...


class PageOf(Protocol):
    """Return a page in Markdown, from records alone, and draw its figures into ``images``."""

    def __call__(self, records: Sequence[Record], *, images: Path | None) -> str: ...


class Table(NamedTuple):
    """A table or figure of a paper, with the conditions of ``--only`` that its cells meet."""

    title: str
    only: tuple[str, ...] = ()


@final
@dataclass(frozen=True)
class Study:
    """A paper's tables and figures as a grid of cells.

    Args:
        name: On the command line.
        title: For lists.
        folder: Holds ``published.toml`` and ``records.jsonl``.
        grid: Returns the settings of every cell, the most valuable first.
        quick_grid: Returns those of a small grid on bundled data, for a CPU.
        prepare: Raises InputError if the data are not there. It is pickled for the workers.
        numbers: Returns the numbers that published ones are held against, by id, from records alone.
        page: Writes the page.
        tables: What the cells are for.
        page_file: File name of the page, if it is not made of the study's.
        fetched: Conditions of ``--only`` of the cells whose files can be downloaded, where not all of them can.
    """

    name: str
    title: str
    folder: Path
    grid: Callable[[], Iterable[Settings]]
    quick_grid: Callable[[], Iterable[Settings]]
    prepare: Prepare
    numbers: Callable[[Sequence[Record]], dict[str, Number]]
    page: PageOf
    tables: tuple[Table, ...] = ()
    page_file: str | None = None
    fetched: tuple[str, ...] = ()

    @property
    def page_name(self) -> str:
        """File name of the page."""
        return self.page_file or f"{self.name}-study.md"

    def cells(self, *, quick: bool) -> list[Cell]:
        """Return the grid, or the small one."""
        return [Cell(settings) for settings in (self.quick_grid() if quick else self.grid())]


def one_by_one(run: RunCell) -> RunCells:
    """Return what runs cells in turn, from what turns one cell's settings into its numbers."""

    def run_all(cells: Sequence[Settings], report: Report) -> None:
        for place, cell in enumerate(cells):
            try:
                numbers = run(cell)
            except Exception as error:  # noqa: BLE001  # isolated: the record says what happened
                report(place, error)
            else:
                report(place, numbers)

    return run_all


class RunReport(NamedTuple):
    """What came of running a study."""

    done: int
    failed: dict[str, str]  # error by cell key
    left: int  # cells that were not begun


Progress: TypeAlias = Callable[[str], None]


def finished(cells: Sequence[Cell], records: Sequence[Record]) -> tuple[dict[str, Record], list[Record]]:
    """Return the latest successful record of each cell by its key, and the records of cells no longer in the grid.

    Args:
        cells: The grid.
        records: All records.
    """
    keys = {cell.key for cell in cells}
    done: dict[str, Record] = {}
    strangers: list[Record] = []
    for record in records:
        key = Cell(record["cell"]).key
        if key not in keys:
            strangers.append(record)
        elif "numbers" in record:
            done[key] = record
    return done, strangers


def selected(cells: Sequence[Cell], conditions: Sequence[str]) -> list[Cell]:
    """Return the cells that have one of the values given for every name that is given.

    Args:
        cells: The grid.
        conditions: NAME=VALUE; the value None is that of cells without the setting.

    Raises:
        InputError: If a condition is not of this form, or is one that no cell meets.
    """
    allowed: dict[str, set[str]] = {}
    for condition in conditions:
        name, equals, value = condition.partition("=")
        values = list(dict.fromkeys(str(cell.settings.get(name)) for cell in cells))
        if not equals or values == ["None"]:
            names = ", ".join(dict.fromkeys(name for cell in cells for name in cell.settings))
            raise InputError(f"--only must be NAME=VALUE with one of the names {names}; got {condition!r}.")
        if value not in values:
            raise InputError(f"--only {name} must have a value of the grid: {', '.join(values)}; got {value}.")
        allowed.setdefault(name, set()).add(value)
    return [cell for cell in cells if all(str(cell.settings.get(name)) in allowed[name] for name in allowed)]


def run_cells(  # noqa: PLR0913  # each is an option of the command line
    study: Study,
    records: Records,
    place: Place,
    *,
    quick: bool = False,
    only: Sequence[str] = (),
    workers: int = 1,
    together: int = 1,
    seconds: float = float("inf"),
    progress: Progress = print,
) -> RunReport:
    """Run every cell of the grid that has no record, in its order, and append one record for each.

    Args:
        study: Whose cells.
        records: Where they are kept.
        place: Data and device.
        quick: The small grid.
        only: Conditions of the cells that are to run, as of :func:`selected`.
        workers: Processes that run cells side by side; each loads the data once.
        together: Cells that a worker is given at once.
        seconds: No cell begins later than this.
        progress: Called with a line of text per event.

    Raises:
        InputError: If another process runs the study, the records are broken, or the data are not there.
    """
    cells = study.cells(quick=quick)
    _check_distinct(cells)
    with records.writing() as writer:
        if writer.dropped:
            progress(f"dropped a torn last line of {len(writer.dropped)} bytes; its cell runs again")
        done, strangers = finished(cells, records.read())
        if strangers:
            progress(
                f"the grid has changed: {len(strangers)} records are of cells that it no longer has, such as "
                f"{Cell(strangers[0]['cell'])}; they are kept and not used"
            )
        missing = [cell for cell in selected(cells, only) if cell.key not in done]
        progress(f"{study.name}: {len(cells)} cells, {len(done)} done, {len(missing)} to run; records: {records.path}")
        if not missing:
            progress("nothing is run again that has a record; for records of your own, name another file by --records")
            return RunReport(0, {}, 0)
        crew = _Crew(partial(study.prepare, place, missing, quick=quick), place, writer, progress)
        return crew.work(missing, workers, together, seconds)


def _check_distinct(cells: Sequence[Cell]) -> None:
    keys = [cell.key for cell in cells]
    if len(set(keys)) < len(keys):
        twice = next(cell for cell in cells if keys.count(cell.key) > 1)
        raise InputError(f"every cell of a grid must differ from the others; {twice} is there twice.")


class _Worker(NamedTuple):
    process: BaseProcess
    pipe: Connection


@final
class _Crew:
    """Deals cells to worker processes and writes down what they answer."""

    def __init__(self, prepare: Callable[[], RunCells], place: Place, writer: Writer, progress: Progress) -> None:
        self._prepare, self._place, self._writer, self._progress = prepare, place, writer, progress
        self._busy: dict[_Worker, dict[int, Cell]] = {}  # cells that are not answered yet, by their place

    def work(self, missing: list[Cell], workers: int, together: int, seconds: float) -> RunReport:
        begun, done, failed = time.monotonic(), 0, dict[str, str]()
        waiting, left = iter(missing), len(missing)
        idle: list[_Worker] = []
        try:
            idle += [self._started() for _ in range(max(1, min(workers, left)))]
            for worker in idle:
                _check_ready(worker)
            while True:
                while idle and left and time.monotonic() - begun < seconds:
                    worker = idle.pop()
                    self._busy[worker] = dict(enumerate(islice(waiting, together)))
                    left -= len(self._busy[worker])
                    worker.pipe.send([cell.settings for cell in self._busy[worker].values()])
                if not self._busy:
                    break
                for worker, cell, answer in self._answers():
                    if "numbers" in answer:
                        done += 1
                        self._progress(f"done {cell} ({answer['seconds']:.1f} s)")
                    else:
                        failed[cell.key] = answer["error"].strip().splitlines()[-1]
                        self._progress(f"FAILED {cell}: {failed[cell.key]}")
                    self._writer.append({"cell": dict(cell.settings)} | answer)
                    if not self._busy[worker]:
                        del self._busy[worker]
                        idle.append(self._alive(worker))
            for worker in idle:
                worker.pipe.send(None)
                worker.process.join()
        finally:
            for process in (worker.process for worker in (*self._busy, *idle)):
                process.terminate()
        return RunReport(done, failed, left)

    def _alive(self, worker: _Worker) -> _Worker:
        """Return the worker, or one in its place if it has died."""
        if worker.process.is_alive():
            return worker
        other = self._started()
        _check_ready(other)
        return other

    def _started(self) -> _Worker:
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.get_context("spawn").Process(
            target=_serve, args=(theirs, self._prepare, self._place, os.getpid())
        )  # no daemon, which could have no processes of its own, such as torch's compilers
        process.start()
        theirs.close()
        return _Worker(process, ours)

    def _answers(self) -> Iterator[tuple[_Worker, Cell, Record]]:
        ready = wait([worker.pipe for worker in self._busy])
        for worker in [worker for worker in self._busy if worker.pipe in ready]:
            cells = self._busy[worker]
            try:
                place, answer = worker.pipe.recv()
            except EOFError:
                worker.process.join()
                error = f"the worker died with exit code {worker.process.exitcode}"
                while cells:
                    yield worker, cells.pop(next(iter(cells))), {"error": error, **self._place.described()}
            else:
                yield worker, cells.pop(place), answer


def _check_ready(worker: _Worker) -> None:
    """Wait until a worker has loaded its data."""
    try:
        problem = worker.pipe.recv()
    except EOFError:
        worker.process.join()
        raise InputError(
            f"a worker must start; it ended with exit code {worker.process.exitcode} while it loaded its data."
        ) from None
    if problem is not None:
        raise InputError(problem)


def _serve(pipe: Connection, prepare: Callable[[], RunCells], place: Place, parent: int) -> None:
    """Answer cells until there are no more; the main function of a worker."""
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    try:
        run = prepare()
    except InputError as error:
        pipe.send(str(error))
        return
    pipe.send(None)
    while (cells := pipe.recv()) is not None:
        _run_and_answer(pipe, run, cells, place)


def _run_and_answer(pipe: Connection, run: RunCells, cells: Sequence[Settings], place: Place) -> None:
    """Send one answer per cell, whatever happens."""
    began = time.perf_counter()
    unanswered = dict(enumerate(cells))

    def report(at: int, result: dict[str, Any] | Exception) -> None:
        answer: Record = {"numbers": result}
        if not isinstance(result, Exception):
            try:
                json.dumps(answer, allow_nan=False)  # which a record must stand
            except (TypeError, ValueError) as error:
                result = error
        if isinstance(result, Exception):  # isolated: the other cells go on, and the record says what happened
            answer = {"error": "".join(traceback.format_exception(result, limit=-4))}
        answer |= place.described() | {"together": len(cells)}
        earlier = sum(run["seconds"] for run in answer.get("numbers", {}).get("before", ()))  # where it was resumed
        answer["seconds"] = round(time.perf_counter() - began + earlier, 3)
        answer["finished"] = datetime.now(UTC).isoformat(timespec="seconds")
        del unanswered[at]
        pipe.send((at, answer))

    try:
        run(cells, report)
        missing: Exception = RuntimeError("the study did not report this cell")
    except Exception as error:  # noqa: BLE001  # as above
        missing = error
        with suppress(Exception):
            if "torch" in sys.modules:
                _cuda().empty_cache()
    for at in tuple(unanswered):
        report(at, missing)


def _end_with(parent: int) -> None:
    """End this process soon after its parent, which may have been killed without a chance to say so."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
