"""A job that is killed as a process: the next one continues, and gives the same report."""

import os
import signal
import subprocess
import sys

import pytest
from tests.unit.scale.test_state import predictions_of

from calibrant import save
from calibrant.scale import jobs

SHARDS = 8
# The command, which stops before it reads the shard that is named first.
STOPPED = """
import os, signal, sys
from calibrant.cli.main import run
from calibrant.scale import jobs
name, gather_task = sys.argv.pop(1), jobs.gather_task
def gather(task, **options):
    if task.shard.name == name:
        os.kill(os.getpid(), signal.SIGSTOP)
    return gather_task(task, **options)
jobs.gather_task = gather
run()
"""


@pytest.fixture
def tasks_done(monkeypatch):
    """The shards whose state is gathered in this process."""
    done, gather_task = [], jobs.gather_task

    def counted(task, **options):
        done.append(task.shard.name)
        return gather_task(task, **options)

    monkeypatch.setattr(jobs, "gather_task", counted)
    return done


def test_a_killed_job_is_continued_by_the_next(tmp_path, calibrant, tasks_done):
    samples, shards, job = predictions_of(200 * SHARDS, 3), tmp_path / "preds", tmp_path / "job"
    shards.mkdir()
    for number in range(SHARDS):
        save(samples[200 * number : 200 * (number + 1)], shards / f"{number:02}.npz")
    report = tmp_path / "report.json"
    command = ["evaluate", shards, "--resamples", 100, "--json", report]
    assert calibrant(*command, "--stream")[0] == 0
    expected, names = report.read_text(), tasks_done.copy()
    assert len(names) == SHARDS
    report.unlink()
    command += ["--checkpoint", job]

    stopped = [sys.executable, "-c", STOPPED, names[SHARDS // 2], *map(str, command)]
    process = subprocess.Popen(stopped, stdout=subprocess.DEVNULL)
    assert os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1])
    assert (job / "done.state").exists()
    tasks_done.clear()
    code, _, error = calibrant(*command)
    assert code == 2
    assert "another is running with it" in error
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert not report.exists()

    assert not tasks_done
    assert calibrant(*command)[0] == 0
    assert 0 < len(tasks_done) < SHARDS
    assert tasks_done == names[-len(tasks_done) :]
    assert report.read_text() == expected

    os.utime(shards / "07.npz", ns=(1, 1))
    code, _, error = calibrant(*command)
    assert code == 2
    assert "07.npz has changed since" in error
