"""Engines of other packages on this machine: the same answers, also after a worker is killed, and errors in words."""

import os
import shutil
import signal
import socket
import time
from functools import partial
from pathlib import Path

import pytest

from calibrant.errors import CalibrantError, InputError
from calibrant.scale import engines

ENGINES = {"dask": "distributed", "ray": "ray", "spark": "pyspark"}


@pytest.fixture(params=ENGINES)
def run(request, monkeypatch):
    """An engine whose workers can import this file."""
    pytest.importorskip(ENGINES[request.param])
    if request.param == "spark" and shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    path = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    return getattr(engines, f"run_{request.param}")


def die_once(task, *, folder):
    """Kill the own process the first time that task 2 is seen."""
    if task == 2 and not (folder / "died").exists():
        (folder / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if task == 4:
        raise InputError("the fourth must fail; it does.")
    return bytes([task])


def test_a_killed_worker_is_replaced(run, tmp_path):
    answers = list(run(partial(die_once, folder=tmp_path), range(6), address=None, workers=2))
    assert (tmp_path / "died").exists()
    assert [bytes([task]) for task in (0, 1, 2, 3, 5)] == answers[:4] + answers[5:]
    assert isinstance(answers[4], CalibrantError)


def test_an_address_that_does_not_answer_is_named(run):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{free.getsockname()[1]}"
    started = time.monotonic()
    with pytest.raises(InputError, match=f"{place}' does not answer"):
        list(run(bytes, [1], address=f"spark://{place}" if run is engines.run_spark else place, workers=1))
    assert time.monotonic() - started < 5


def test_places_are_looked_for_only_in_addresses_that_name_some():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        answers = f"127.0.0.1:{listening.getsockname()[1]}"
        for address in (answers, f"tcp://{answers}", f"spark://127.0.0.1:1,{answers}", "auto", "k8s://here", "yarn"):
            engines._check_answers(address)
    with pytest.raises(InputError, match="does not answer"):
        engines._check_answers(f"ray://{answers}")
