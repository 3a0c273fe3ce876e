"""What the tests of the studies share."""

import multiprocessing
import pickle
import threading

import pytest
from experiments import runner


class WorkerThread(threading.Thread):
    """A worker of a study in this process, as if it were one of its own."""

    exitcode = 1  # of one that ends before it has answered

    def terminate(self):
        """Do nothing: it ends with its last cell."""


@pytest.fixture
def here(monkeypatch):
    """Run the cells of a study in this process, which has torch loaded; those of dark-side run in one of their own."""

    def serve(pipe, crew):
        with pipe:
            runner._serve(pipe, pickle.loads(pickle.dumps(crew._prepare)), crew._place, None)  # noqa: S301

    def start(crew):
        ours, theirs = multiprocessing.Pipe()
        thread = WorkerThread(target=serve, args=(theirs, crew))
        thread.start()
        return runner._Worker(thread, ours)

    monkeypatch.setattr(runner, "_end_with", lambda _parent: None)
    monkeypatch.setattr(runner._Crew, "_started", start)
