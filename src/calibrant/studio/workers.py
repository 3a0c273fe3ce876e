"""A bounded pool of worker processes: heavy work runs there, with progress, a time limit, and a way to cancel.

A worker is a process of its own, so that a cancelled or overdue job is ended for certain and what it held is freed, and
a crash in native code ends one job, not the server. Nor can a job take all memory: each worker has its share of what is
free when it starts. It stays for the next job: importing torch takes seconds, on Linux once for all workers. Jobs and
answers travel as JSON.
"""

import contextlib
import json
import multiprocessing
import os
import queue
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Literal, TypeAlias, final

from calibrant.errors import CalibrantError, free_memory, is_out_of_memory, one_line

Progress: TypeAlias = Callable[[str, float | None], None]  # a message, and the share done if it is known
Status = Literal["waiting", "running", "done", "failed", "cancelled"]
_KEPT = 200  # finished jobs that are remembered
_POLL = 0.05  # seconds between looks at a job that runs


@final
@dataclass
class Job:
    """One piece of work: the task, where it stands, and its answer."""

    task: str
    arguments: Mapping[str, Any]
    seconds: float  # after which it is ended
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    status: Status = "waiting"
    message: str = ""
    share: float | None = None  # done so far, where it is known
    answer: Any = None
    error: str = ""
    argument: str | None = None  # that the error is about
    is_cancelled: bool = False
    finished: threading.Event = field(default_factory=threading.Event)

    def as_dict(self) -> dict[str, Any]:
        """Return what a client may know."""
        known = {
            name: getattr(self, name) for name in ("id", "task", "status", "message", "share", "error", "argument")
        }
        return known | {"answer": self.answer if self.status == "done" else None}


@final
class Workers:
    """Run the functions of a module in at most ``size`` processes; at most ``waiting`` jobs wait for one.

    A task takes keyword arguments and ``progress``, a function of a message and the share done. Its answer is JSON. A
    CalibrantError of it is shown to the user; any other error is shown by its type, and printed with its traceback.
    """

    def __init__(self, module: str, *, size: int = 2, waiting: int = 64) -> None:
        self._module = module
        self._context: Any = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")
        if sys.platform == "linux":
            self._context.set_forkserver_preload([module])
        self._jobs: dict[str, Job] = {}
        self._queue: queue.Queue[Job | None] = queue.Queue(waiting)
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._serve, args=(size,), daemon=True) for _ in range(size)]
        for thread in self._threads:
            thread.start()

    def submit(self, task: str, arguments: Mapping[str, Any], *, seconds: float = 600) -> Job:
        """Queue a job.

        Raises:
            queue.Full: If too many jobs wait already.
        """
        job = Job(task, arguments, seconds)
        with self._lock:
            self._queue.put_nowait(job)
            self._jobs[job.id] = job
            finished = [known for known in self._jobs.values() if known.finished.is_set()]
            for old in finished[: max(0, len(finished) - _KEPT)]:
                del self._jobs[old.id]
        return job

    def find(self, identifier: str) -> Job | None:
        """Return a job by its id."""
        return self._jobs.get(identifier)

    def find_done(self, task: str, arguments: Mapping[str, Any]) -> Job | None:
        """Return a job that has done a task with equal arguments, in whatever folder."""
        with self._lock:
            done = [job for job in self._jobs.values() if job.task == task and job.status == "done"]
        return next((job for job in done if {**job.arguments, "folder": None} == {**arguments, "folder": None}), None)

    def cancel(self, job: Job) -> None:
        """End a job; the worker that runs it is replaced."""
        job.is_cancelled = True

    def close(self) -> None:
        """End all jobs and workers."""
        with self._lock:
            for job in self._jobs.values():
                self.cancel(job)
        for _ in self._threads:
            self._queue.put(None)  # after the jobs that wait, which are cancelled and so over at once
        for thread in self._threads:
            thread.join(timeout=5)

    def _serve(self, size: int) -> None:
        """Feed one worker process, on a thread of its own."""
        worker: tuple[BaseProcess, Connection] | None = None
        while (job := self._queue.get()) is not None:
            if not job.is_cancelled:
                is_usable = False
                try:
                    if worker is None or not worker[0].is_alive():
                        worker = self._start(size)
                    job.status = "running"
                    is_usable = self._follow(job, worker[1])
                except Exception as error:  # noqa: BLE001  # no memory for a process, no file for a pipe: others may run
                    job.error, job.status = f"No worker could be started: {one_line(error)}. Try again later.", "failed"
                if worker is not None and not is_usable:
                    worker[0].kill()
                    worker[0].join()
                    worker = None
            if job.status not in {"done", "failed"}:
                job.status = "cancelled"
            job.finished.set()
        if worker is not None:
            worker[0].kill()
            worker[0].join()

    def _start(self, size: int) -> tuple[BaseProcess, Connection]:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_work, args=(self._module, theirs, size), daemon=True)
        with theirs:
            try:
                process.start()
            except BaseException:
                ours.close()
                raise
        return process, ours

    def _follow(self, job: Job, pipe: Connection) -> bool:
        """Pass a job to the worker and read what it sends; return whether the worker can be used again."""
        end = time.monotonic() + job.seconds
        try:
            pipe.send_bytes(json.dumps([job.task, job.arguments]).encode())
            while not job.is_cancelled:
                if time.monotonic() > end:
                    job.error, job.status = f"It took longer than {job.seconds:.0f} s and was ended.", "failed"
                    return False
                if not pipe.poll(_POLL):
                    continue
                kind, *content = json.loads(pipe.recv_bytes())
                if kind == "progress":
                    job.message, job.share = content
                else:
                    if kind == "done":
                        job.answer = content[0]
                    else:
                        job.error, job.argument = content
                    job.status = kind
                    return True
        except (EOFError, OSError):
            if not job.is_cancelled:
                job.error, job.status = "The worker ended unexpectedly, probably for want of memory.", "failed"
        return False


def _work(module: str, pipe: Connection, size: int) -> None:
    """Run jobs until the pipe closes."""
    import signal

    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in the terminal reaches all processes; the server ends us
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // size))
    if (free := free_memory()) is not None:  # on Linux
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (free // size, resource.RLIM_INFINITY))
    tasks = import_module(module)

    def send(kind: str, *content: Any) -> None:
        pipe.send_bytes(json.dumps([kind, *content], allow_nan=False).encode())

    def progress(message: str, share: float | None = None) -> None:
        send("progress", message, share)

    with contextlib.suppress(EOFError, OSError):
        while True:
            task, arguments = json.loads(pipe.recv_bytes())
            try:
                function: Callable[..., Any] = getattr(tasks, task)
                send("done", function(**arguments, progress=progress))
            except CalibrantError as error:
                send("failed", str(error), error.argument)
            except BrokenPipeError:  # the server has ended
                raise
            except Exception as error:  # noqa: BLE001  # whatever it is, the server goes on
                if is_out_of_memory(error):
                    send("failed", "It needs more memory than is free. Use fewer samples or classes.", None)
                    continue
                traceback.print_exc()
                send("failed", f"Internal error: {type(error).__name__}: {error}", None)
