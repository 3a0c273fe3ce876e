"""Engines: they map a function over tasks in other processes, and give its answers back in the order of the tasks.

An engine is independent of calibration, and is started once for any number of maps. An answer is bytes. A task that
fails gives its error; one whose worker dies is run again, and gives an error if that happens every time.
"""

import importlib
import multiprocessing
import os
import pickle
import signal
import socket
import sys
import threading
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, Protocol, TypeAlias, TypeVar, final

from calibrant.errors import CalibrantError, InputError, one_line

T = TypeVar("T")
Work: TypeAlias = Callable[[T], bytes]
Answer: TypeAlias = bytes | CalibrantError
_LIVES = 4  # times that a task may lose its worker before it is given up
_AHEAD = 2  # tasks given to each worker at a time
_LAST_SECONDS = 5.0  # for a worker that closed its pipe to end by itself, and show its error


class Run(Protocol):
    """An engine that was started."""

    def __call__(self, work: "Work[T]", tasks: Sequence[T], /) -> Iterator[Answer]: ...


def attempt(work: "Work[T]", task: T) -> Answer:
    """Return the answer to a task, or the library's own error."""
    try:
        return work(task)
    except CalibrantError as error:
        return error


def _in_order(submit: Callable[[T], Any], tasks: Sequence[T], workers: int, *lost: type[Exception]) -> Iterator[Answer]:
    """Submit tasks, some for each worker at a time, and yield what their futures give; errors if workers are lost."""
    pending: deque[tuple[T, Any]] = deque()
    rest = iter(tasks)
    try:
        while True:
            while len(pending) < _AHEAD * workers and (task := next(rest, None)) is not None:
                pending.append((task, submit(task)))
            if not pending:
                return
            task, future = pending.popleft()
            try:
                answer = future.result()
            except lost as error:
                answer = CalibrantError(
                    f"a worker must live until its task is done; all were lost at {getattr(task, 'title', task)}: "
                    f"{one_line(error)[:300]}. Is there enough memory for so many workers? Use fewer."
                )
            yield answer
    finally:
        for _, future in pending:
            future.cancel()


@contextmanager
def start_local(workers: int) -> Iterator[Run]:
    """Use processes on this machine, each of which starts when it is first needed; for one worker, this process."""
    if workers <= 1:
        yield lambda work, tasks: (attempt(work, task) for task in tasks)
        return
    made = [_Worker() for _ in range(workers)]
    idle = made.copy()

    def answer(work: "Work[T]", task: T) -> Answer:
        worker = idle.pop()
        try:
            return worker.answer(work, task)
        finally:
            idle.append(worker)

    with ThreadPoolExecutor(workers) as pool:  # a thread waits for each process, also while answers are added up
        try:
            yield lambda work, tasks: _in_order(
                lambda task: pool.submit(answer, work, task), tasks, workers, ChildProcessError
            )
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in made:
                worker.end()


@final
class _Worker:
    """A process with a pipe of its own, which ends with it: one that is killed in the middle of an answer, too."""

    def __init__(self) -> None:
        self._lock, self._ended = threading.Lock(), False
        self.process: Any = None

    def answer(self, work: "Work[T]", task: T) -> Answer:
        """Have the process answer a task, and another if that one is killed."""
        for _ in range(_LIVES):
            if self.process is None or not self.process.is_alive():
                self._start()
            try:
                self.pipe.send((work, task))
                error: Exception | None = self.pipe.recv()
                answer = self.pipe.recv_bytes() if error is None else error
            except (EOFError, OSError):
                self.process.join(_LAST_SECONDS)
                self.process.kill()
                self.process.join()
                if self.process.exitcode == 1:  # by an error, and a task's errors are answers
                    raise CalibrantError(
                        "workers must start, and one ended with the error above. Each worker imports the script that "
                        'starts it: put what the script does under `if __name__ == "__main__":`.'
                    ) from None
                continue
            if isinstance(answer, bytes | CalibrantError):
                return answer
            raise answer
        raise ChildProcessError(f"{_LIVES} in a row were killed")

    def _start(self) -> None:
        # Never a fork of this process, whose threads would be lost and whose pipes be shared; on Linux that of a server
        # which imports this library once, so that later processes start in some milliseconds.
        has_server = sys.platform == "linux"
        context: Any = multiprocessing.get_context("forkserver" if has_server else "spawn")
        if has_server:
            context.set_forkserver_preload(["calibrant.scale.jobs"])
        with self._lock:
            if self._ended:
                raise CancelledError
            self.pipe, other = context.Pipe()
            process = context.Process(target=_serve, args=(other,), daemon=True)
            process.start()
            self.process = process
            other.close()

    def end(self) -> None:
        """End the process, whatever it does: a thread that waits for it sees that it is gone."""
        with self._lock:
            self._ended = True
        if self.process is not None:
            self.process.kill()
            self.process.join()


def _serve(pipe: "Connection[Any, Any]") -> None:
    """Answer tasks until the process that gives them closes the pipe, or dies."""
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # that process gets it, too, and ends this one
    torch.set_num_threads(1)  # the processes are the parallelism; of a batch, threads would be slower than one
    threading.Thread(target=_end_with, args=(multiprocessing.parent_process(),), daemon=True).start()
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            _serve_one(pipe)


def _serve_one(pipe: "Connection[Any, Any]") -> None:
    answer: bytes | Exception
    message = pipe.recv_bytes()
    try:
        answer = attempt(*pickle.loads(message))  # noqa: S301  # our own
    except Exception as error:  # noqa: BLE001  # raised again by the process that gave the task
        answer = error
        try:
            pickle.loads(pickle.dumps(error))  # noqa: S301  # our own
        except Exception:  # noqa: BLE001  # not every error can be sent
            answer = RuntimeError(one_line(error))
        answer.add_note(f"In a worker:\n{traceback.format_exc()}")
    if isinstance(answer, bytes):
        pipe.send(None)
        pipe.send_bytes(answer)
    else:
        pipe.send(answer)


def _end_with(parent: Any) -> None:
    """End this process with the one that started it, in the middle of a task, too."""
    parent.join()
    os._exit(1)


def run_torchrun(work: "Work[T]", tasks: Sequence[T]) -> Iterator[Answer]:
    """Run the tasks on the processes that ``torchrun`` started; the first one gets all answers, the others none."""
    import torch.distributed as dist

    if "RANK" not in os.environ:
        raise InputError("--engine torchrun must run under torchrun: torchrun --nproc-per-node 2 -m calibrant ...")
    started = not dist.is_initialized()
    if started:
        dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    group = dist.new_group(backend="gloo")  # answers are on the CPU, also where the default is nccl
    try:
        for start in range(0, len(tasks), world):
            mine = start + rank
            answer = attempt(work, tasks[mine]) if mine < len(tasks) else None
            gathered: list[Any] | None = [None] * world if rank == 0 else None
            dist.gather_object(answer, gathered, dst=0, group=group)
            if gathered is not None:
                yield from gathered[: len(tasks) - start]
    finally:
        if started:
            dist.destroy_process_group()


@contextmanager
def start_dask(address: str | None, workers: int) -> Iterator[Run]:
    """Use the Dask cluster at that address, or start one on this machine."""
    distributed = _imported("distributed", "dask")
    if address:
        _check_answers(address)
    try:
        own = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None, "direct_to_workers": True}
        client = distributed.Client(address, timeout=10) if address else distributed.Client(**own)
    except (OSError, TimeoutError, ValueError) as error:
        raise InputError(f"--address must be of a Dask scheduler; {address!r} does not answer: {error}.") from error
    with client:
        submit = partial(client.submit, attempt, pure=False, retries=_LIVES)
        count = max(1, len(client.scheduler_info()["workers"]))
        yield lambda work, tasks: _in_order(partial(submit, work), tasks, count, distributed.KilledWorker)


@contextmanager
def start_ray(address: str | None, workers: int) -> Iterator[Run]:
    """Use the Ray cluster at that address or of this program, or start one on this machine."""
    ray = _imported("ray", "ray")
    if address:
        _check_answers(address)
    started = not ray.is_initialized()
    try:
        if started:
            cpus = None if address else workers
            ray.init(address=address, num_cpus=cpus, include_dashboard=False, log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise InputError(f"--address must be that of a Ray cluster; {address!r} does not answer: {error}.") from error
    try:
        remote = ray.remote(max_retries=_LIVES)(attempt).remote
        count = max(1, int(ray.cluster_resources().get("CPU", 1)))
        yield lambda work, tasks: _in_order(
            lambda task: remote(work, task).future(), tasks, count, ray.exceptions.WorkerCrashedError
        )
    finally:
        if started:
            ray.shutdown()


@contextmanager
def start_spark(address: str | None, workers: int) -> Iterator[Run]:
    """Use the Spark cluster of that master or of this program, or start one on this machine.

    A task is a job of one row, which ``mapInArrow`` answers.
    """
    spark, py4j = _imported("pyspark.sql", "spark").SparkSession, _imported("py4j.protocol", "spark")
    failures = (_imported("pyspark.errors", "spark").PySparkException, py4j.Py4JError)
    options = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "OFF"}
    if address is None:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        options["spark.ui.enabled"] = "false"
    else:
        _check_answers(address)
    builder = spark.builder.appName("calibrant").master(address or f"local[{workers},{_LIVES}]")
    session = spark.getActiveSession()
    started = session is None
    try:
        with _without_warnings():
            session = session or builder.config(map=options).getOrCreate()
    except failures as error:
        place = f"at --address {address!r}" if address else "on this machine"
        raise InputError(f"Spark must start {place}, with Java 17 or later; it does not: {one_line(error)}.") from error
    count = session.sparkContext.defaultParallelism
    with ThreadPoolExecutor(_AHEAD * count) as pool:

        def submit(work: "Work[T]", task: T) -> Any:
            with _without_warnings():
                row = session.createDataFrame([(pickle.dumps((work, task)),)], "task binary").coalesce(1)
                return pool.submit(_collect, row.mapInArrow(_answer_rows, "answer binary"))

        try:
            yield lambda work, tasks: _in_order(partial(submit, work), tasks, count, *failures)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            if started:
                session.stop()


def _collect(rows: Any) -> Answer:
    answer: Answer = pickle.loads(rows.collect()[0].answer)  # noqa: S301  # our own
    return answer


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Silence a library about the versions of others."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _answer_rows(batches: Iterator[Any]) -> Iterator[Any]:
    """Answer the tasks in record batches of Arrow, in a worker of Spark."""
    import pyarrow as pa

    for batch in batches:
        for task in batch.column(0).to_pylist():
            answer = pickle.dumps(attempt(*pickle.loads(task)))  # noqa: S301  # our own
            yield pa.RecordBatch.from_pydict({"answer": pa.array([answer], pa.binary())})


def _check_answers(address: str) -> None:
    """Check that something listens at one of the places, host:port, that an address names, before a library waits."""
    problem: OSError | None = None
    for place in address.rpartition("://")[2].split(","):
        host, _, port = place.rpartition(":")
        if not (host and port.isdecimal() and int(port) < 2**16):
            return  # of another kind, such as auto or yarn
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=5):
                return
        except OSError as error:
            problem = error
    raise InputError(f"--address must be that of a running cluster; {address!r} does not answer: {problem}.")


def _imported(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            f"--engine {extra} needs {module}, which could not be imported ({error}). "
            f"Install it: pip install 'calibrant[{extra}]'."
        ) from error
