"""Engines on this machine: the same answers, also when workers are killed, and errors in words."""

import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from held_ports import held_port

from calibrant.errors import CalibrantError, InputError
from calibrant.scale import engines

ENGINES = {"local": "multiprocessing", "dask": "distributed", "ray": "ray", "spark": "pyspark"}


@pytest.fixture(params=ENGINES)
def start(request, monkeypatch):
    """What starts an engine whose workers can import this file, and what it imports."""
    pytest.importorskip(ENGINES[request.param])
    if request.param == "spark" and shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    folder = Path(__file__).parent
    path = [str(folder), str(folder.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    if request.param == "local":
        return lambda _address, workers: engines.start_local(workers)
    return getattr(engines, f"start_{request.param}")


def die_once(task, *, folder):
    """Kill the own process the first time that task 2 is seen."""
    if task == 2 and not (folder / "died").exists():
        (folder / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if task == 4:
        raise InputError("the fourth must fail; it does.")
    return bytes([task])


def test_a_killed_worker_is_replaced(start, tmp_path):
    with start(None, 2) as run:
        answers = list(run(partial(die_once, folder=tmp_path), range(6)))
        again = list(run(partial(die_once, folder=tmp_path), range(2)))  # by the same workers
    assert (tmp_path / "died").exists()
    assert [bytes([task]) for task in (0, 1, 2, 3, 5)] == answers[:4] + answers[5:]
    assert isinstance(answers[4], CalibrantError)
    assert again == answers[:2]


def test_an_address_that_does_not_answer_is_named(start, request):
    if "local" in request.node.name:
        pytest.skip("it has no address")
    with held_port() as port:
        place, started = f"127.0.0.1:{port}", time.monotonic()
        with (
            pytest.raises(InputError, match=f"{place}' does not answer"),
            start(f"spark://{place}" if start is engines.start_spark else place, 1),
        ):
            pass
    assert time.monotonic() - started < 20  # the frameworks themselves try for longer


def workers() -> list[int]:
    return sorted(child.pid for child in multiprocessing.active_children())


def test_a_worker_may_be_killed_in_the_middle_of_an_answer():
    worker = engines._Worker()
    worker._start()
    worker.pipe.send((bytes, 50_000_000))
    assert worker.pipe.recv() is None
    assert worker.pipe.poll(120)  # the pipe holds the beginning of it
    os.kill(worker.process.pid, signal.SIGKILL)
    with pytest.raises((EOFError, OSError)):
        worker.pipe.recv_bytes()
    assert worker.answer(bytes, 3) == bytes(3)
    worker.end()


def test_workers_that_are_killed_while_idle_are_replaced():
    with engines.start_local(2) as run:
        for _ in range(2):
            assert [*map(len, run(bytes, [1, 2, 3, 4]))] == [1, 2, 3, 4]
            for worker in workers():
                os.kill(worker, signal.SIGKILL)
    assert not workers()


def die(task: int) -> bytes:
    if task == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return bytes(task)


def test_a_task_that_kills_every_worker_gives_an_error():
    with engines.start_local(2) as run:
        first, second, third = run(die, [0, 1, 2])
    assert (first, third) == (b"", bytes(2))
    assert isinstance(second, CalibrantError)
    assert "all were lost at 1: ChildProcessError: 4 in a row" in str(second)


class StrangeError(Exception):
    """One that cannot be sent."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def fail(task: int) -> bytes:
    if task:
        raise StrangeError(1, 2)
    return bytes(1 // task)


@pytest.mark.parametrize(("task", "kind", "words"), [(0, ZeroDivisionError, "division"), (1, RuntimeError, "1 and 2")])
def test_errors_of_a_task_are_raised_and_end_the_workers(task, kind, words):
    with pytest.raises(kind, match=words) as raised, engines.start_local(2) as run:
        list(run(fail, [task, task]))
    assert "in fail" in raised.value.__notes__[0]
    assert not workers()


def test_a_script_that_starts_workers_when_it_is_imported_is_told_so(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from calibrant.scale.engines import start_local\n"
        "with start_local(2) as run:\n"
        "    print(list(run(bytes, [1, 2])))\n"
    )
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1].endswith('under `if __name__ == "__main__":`.')
    assert "NoneType" not in run.stderr


def test_places_are_looked_for_only_in_addresses_that_name_some():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        answers = f"127.0.0.1:{listening.getsockname()[1]}"
        for address in (answers, f"tcp://{answers}", f"spark://127.0.0.1:1,{answers}", "auto", "k8s://here", "yarn"):
            engines._check_answers(address)
    with pytest.raises(InputError, match="does not answer"):
        engines._check_answers(f"ray://{answers}")
