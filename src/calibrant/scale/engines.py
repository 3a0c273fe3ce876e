"""Engines: they map a function over tasks in other processes, and give its answers back in the order of the tasks.

An engine knows nothing of calibration. An answer is bytes; a task that fails gives its error; a task whose worker dies
is run again.
"""

import importlib
import multiprocessing
import os
import pickle
import socket
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias, TypeVar

from calibrant.errors import CalibrantError, InputError, one_line

T = TypeVar("T")
Work: TypeAlias = Callable[[T], bytes]
Answer: TypeAlias = bytes | CalibrantError
_LIVES = 4  # times that a task may lose its worker before it is given up
_AHEAD = 2  # tasks given to each worker at a time


def attempt(work: "Work[T]", task: T) -> Answer:
    """Return the answer to a task, or the library's own error."""
    try:
        return work(task)
    except CalibrantError as error:
        return error


def run_local(
    work: "Work[T]", tasks: Sequence[T], *, workers: int = 1, pool: ProcessPoolExecutor | None = None
) -> Iterator[Answer]:
    """Run the tasks in this process, or in several on this machine: those of a pool, or of one of its own."""
    if workers <= 1:
        yield from (attempt(work, task) for task in tasks)
        return
    lives = [_LIVES] * len(tasks)
    start = 0
    while start < len(tasks):
        try:
            given = partial(attempt, work), tasks[start:], workers
            for answer in _in_pool(*given) if pool is None else _submitted(pool, *given):
                yield answer
                start += 1
        except BrokenProcessPool as error:
            pool = None
            lives[start] -= 1
            if not lives[start]:
                raise CalibrantError(
                    f"a worker must live until its task is done; {_LIVES} in a row were killed at task {start + 1} of "
                    f"{len(tasks)} ({tasks[start]}). Is there enough memory for so many workers? Use fewer."
                ) from error


@contextmanager
def local_pool(workers: int, tasks: int) -> Iterator[ProcessPoolExecutor]:
    """Yield processes for so many tasks, which start when they are first needed."""
    context = multiprocessing.get_context("spawn")  # threads of this process do not survive a fork
    threads = max(1, (os.cpu_count() or 1) // workers)
    pool = ProcessPoolExecutor(max(1, min(workers, tasks)), context, initializer=_limit, initargs=(threads,))
    try:
        yield pool
        # All answers are there. A worker that was killed while it waited for more work may hold the lock that others
        # wait for, so that these would never end by themselves.
        for process in list((getattr(pool, "_processes", None) or {}).values()):
            process.terminate()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _in_pool(work: Callable[[T], Answer], tasks: Sequence[T], workers: int) -> Iterator[Answer]:
    with local_pool(workers, len(tasks)) as pool:
        yield from _submitted(pool, work, tasks, workers)


def _submitted(
    pool: ProcessPoolExecutor, work: Callable[[T], Answer], tasks: Sequence[T], workers: int
) -> Iterator[Answer]:
    pending: deque[Future[Answer]] = deque()
    rest = iter(tasks)
    while True:
        while len(pending) < _AHEAD * workers and (task := next(rest, None)) is not None:
            pending.append(pool.submit(work, task))
        if not pending:
            return
        yield pending.popleft().result()


def _limit(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)


def run_torchrun(work: "Work[T]", tasks: Sequence[T]) -> Iterator[Answer]:
    """Run the tasks on the processes that ``torchrun`` started; the first one gets all answers, the others none."""
    import torch.distributed as dist

    if "RANK" not in os.environ:
        raise InputError(
            "--engine torchrun must run under torchrun; got none. Use: torchrun --nproc-per-node 2 -m calibrant ..."
        )
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


def run_dask(work: "Work[T]", tasks: Sequence[T], *, address: str | None, workers: int) -> Iterator[Answer]:
    """Run the tasks on a Dask cluster at that address, or on one of its own on this machine."""
    distributed = _imported("distributed", "dask")
    if address:
        _check_answers(address)
    try:
        client = (
            distributed.Client(address, timeout=10)
            if address
            else distributed.Client(n_workers=workers, threads_per_worker=1, dashboard_address=None)
        )
    except (OSError, TimeoutError, ValueError) as error:
        raise InputError(
            f"--address must be that of a Dask scheduler; {address!r} does not answer: {error}."
        ) from error
    with client:
        ahead = _AHEAD * max(1, len(client.scheduler_info()["workers"]))
        submit = partial(client.submit, partial(attempt, work), pure=False, retries=_LIVES)
        pending: deque[Any] = deque()
        rest = iter(tasks)
        while True:
            while len(pending) < ahead and (task := next(rest, None)) is not None:
                pending.append(submit(task))
            if not pending:
                return
            yield pending.popleft().result()


def run_ray(work: "Work[T]", tasks: Sequence[T], *, address: str | None, workers: int) -> Iterator[Answer]:
    """Run the tasks on a Ray cluster at that address, or on one of its own on this machine."""
    ray = _imported("ray", "ray")
    if address:
        _check_answers(address)
    try:
        ray.init(address=address, num_cpus=None if address else workers, include_dashboard=False, log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise InputError(f"--address must be that of a Ray cluster; {address!r} does not answer: {error}.") from error
    try:
        remote = ray.remote(max_retries=_LIVES)(attempt)
        ahead = _AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
        pending: deque[Any] = deque()
        rest = iter(tasks)
        while True:
            while len(pending) < ahead and (task := next(rest, None)) is not None:
                pending.append(remote.remote(work, task))
            if not pending:
                return
            yield ray.get(pending.popleft())
    finally:
        ray.shutdown()


def run_spark(work: "Work[T]", tasks: Sequence[T], *, address: str | None, workers: int) -> Iterator[Answer]:
    """Run the tasks on the Spark cluster of that master, or on this machine: each a row that ``mapInArrow`` answers."""
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
    try:
        with _without_warnings():
            session = builder.config(map=options).getOrCreate()
    except failures as error:
        place = f"at --address {address!r}" if address else "on this machine"
        raise InputError(f"Spark must start {place}, with Java 17 or later; it does not: {one_line(error)}.") from error
    ahead = _AHEAD * session.sparkContext.defaultParallelism
    pending: deque[Future[Any]] = deque()
    rest = iter(tasks)
    with ThreadPoolExecutor(ahead) as pool:  # a job for each task, so that answers come in their order
        try:
            while True:
                while len(pending) < ahead and (task := next(rest, None)) is not None:
                    with _without_warnings():
                        row = session.createDataFrame([(pickle.dumps((work, task)),)], "task binary").coalesce(1)
                        pending.append(pool.submit(row.mapInArrow(_answer_rows, "answer binary").collect))
                if not pending:
                    return
                yield pickle.loads(pending.popleft().result()[0].answer)  # noqa: S301  # our own
        except failures as error:
            reason = next((line for line in str(error).splitlines() if "failed" in line), str(error)).strip(": ")[:200]
            raise CalibrantError(
                f"a worker must live until its task is done; Spark gave a task up: {reason}"
            ) from error
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            session.stop()


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
