"""Worker processes: answers, errors, time limits, crashes and cancelled jobs leave the pool working."""

import asyncio
import json
import queue
import time

import pytest

from calibrant.studio.workers import Workers

MODULE = f"{__package__}.tasks_for_tests" if __package__ else "tasks_for_tests"


@pytest.fixture(scope="module")
def workers():
    pool = Workers(MODULE, size=1, waiting=2)
    yield pool
    pool.close()


def run(workers, task, *, limit=600, **arguments):
    job = workers.submit(task, arguments, seconds=limit)
    assert job.finished.wait(600)
    return job


def test_a_task_answers_with_progress(workers):
    job = run(workers, "double", number=21)
    assert job.as_dict()["answer"] == {"number": 42}
    assert (job.message, job.share) == ("half way", 0.5)


def test_what_was_done_with_equal_arguments_is_found(workers):
    job = run(workers, "double", number=5)
    assert workers.find_done("double", {"number": 5, "folder": "another"}) is job
    assert workers.find_done("double", {"number": 6}) is None
    run(workers, "refuse")
    assert workers.find_done("refuse", {}) is None


@pytest.mark.parametrize(
    ("task", "words"),
    [("refuse", "number must be even"), ("break_down", "ZeroDivisionError"), ("crash", "ended unexpectedly"),
     ("lose_file", "FileNotFoundError"),
     ("swallow", "more memory than is free"), ("not_json", "Internal error"), ("absent", "Internal error")],
)  # fmt: skip
def test_what_goes_wrong_is_told_and_the_next_job_runs(workers, task, words):
    job = run(workers, task)
    assert job.status == "failed"
    assert words in job.error
    assert run(workers, "double", number=1).status == "done"


def test_a_worker_that_cannot_be_started_fails_its_job_alone(monkeypatch):
    def refuse(**_options):
        raise OSError(12, "Cannot allocate memory")

    pool = Workers(MODULE, size=1)
    with monkeypatch.context() as patch:
        patch.setattr(pool._context, "Process", refuse)
        job = pool.submit("double", {"number": 1})
        assert job.finished.wait(60)
    assert job.status == "failed"
    assert "Cannot allocate memory" in job.error
    assert run(pool, "double", number=2).answer == {"number": 4}
    pool.close()


def test_an_overdue_job_is_ended(workers):
    run(workers, "double", number=1)  # the worker has started
    job = run(workers, "sleep", seconds=3600, limit=0.5)
    assert job.status == "failed"
    assert "longer than" in job.error


def test_jobs_beyond_the_queue_are_refused_and_cancelled_ones_do_not_run(workers):
    running = workers.submit("sleep", {"seconds": 3600})
    while running.status == "waiting":
        time.sleep(0.01)
    waiting = [workers.submit("double", {"number": number}) for number in range(2)]
    with pytest.raises(queue.Full):
        workers.submit("double", {"number": 3})
    workers.cancel(waiting[0])
    workers.cancel(running)
    assert all(job.finished.wait(600) for job in (running, *waiting))
    assert [running.status, *(job.status for job in waiting)] == ["cancelled", "cancelled", "done"]


def test_closing_ends_the_processes():
    pool = Workers(MODULE, size=1)
    job = pool.submit("sleep", {"seconds": 3600})
    while job.status == "waiting":
        time.sleep(0.01)
    pool.close()
    assert job.finished.wait(600)
    assert job.status == "cancelled"


def asked(app, path, body=b"", token=""):
    """Return the answer of the application itself, without a server, as JSON."""
    headers = [(b"host", b"studio"), (b"x-calibrant-token", token.encode())]
    scope = {"type": "http", "method": "POST" if body else "GET", "path": path, "raw_path": path.encode(),
             "query_string": b"wait=20", "headers": headers}  # fmt: skip
    sent = []

    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message):
        sent.append(message.get("body", b""))

    asyncio.run(app(scope, receive, send))
    return json.loads(b"".join(sent))


def test_a_task_has_the_time_limit_of_its_kind_and_the_studio_goes_on(workers, monkeypatch):
    pytest.importorskip("starlette", reason="needs Starlette, which serves the studio")
    from calibrant.studio import server

    monkeypatch.setattr(server, "_SECONDS", {"sleep": 0.5, "double": 600.0})
    studio = server.Studio(workers=workers)
    app = studio.app({"studio"})
    run(workers, "double", number=1)  # the worker has started
    for task, given, status in (("sleep", {"seconds": 3600}, "failed"), ("double", {"number": 2}, "done")):
        job = asked(app, "/api/jobs", json.dumps({"task": task, "arguments": given}).encode(), studio.token)
        assert workers.find(job["id"]).finished.wait(600)
        job = asked(app, f"/api/jobs/{job['id']}")
        assert job["status"] == status
        assert ("longer than" in job["error"]) == (status == "failed")
    studio.folder.rmdir()
