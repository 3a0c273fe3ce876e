"""The studio's server in a process of its own: files, jobs, downloads, refusals, and its end."""

import http.client
import io
import json
import os
import re
import signal
import struct
import subprocess
import sys
import threading
import urllib.error
import urllib.request
import zipfile
from urllib.parse import quote, urlsplit

import numpy as np
import pytest

from calibrant.files import load, load_map
from calibrant.files.load import OPENERS

pytest.importorskip("starlette", reason="needs Starlette, which serves the studio")
pytest.importorskip("uvicorn", reason="needs Uvicorn, which serves the studio")


def probabilities(n=600, classes=4, seed=0):
    rng = np.random.default_rng(seed)
    logits = 3 * rng.normal(size=(n, classes))
    labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(1)
    probs = np.exp(logits - logits.max(1, keepdims=True))
    return probs / probs.sum(1, keepdims=True), labels


def archive(**arrays):
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


class Client:
    """A browser's requests to a running studio."""

    def __init__(self, address):
        self.address, self.token = address, ""
        self.token = self.get("/api/session")["token"]

    def ask(self, path, *, method="GET", body=None, **headers):
        """Return status, headers and body of an answer."""
        headers = {"x-calibrant-token": self.token, **headers}
        request = urllib.request.Request(self.address + path, data=body, method=method, headers=headers)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310
                return answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read()

    def get(self, path):
        return json.loads(self.ask(path)[2])

    def upload(self, name, content):
        status, _, answer = self.ask(f"/api/files?name={quote(name)}", method="POST", body=content)
        return status, json.loads(answer)

    def start(self, task, **arguments):
        body = json.dumps({"task": task, "arguments": arguments}).encode()
        status, _, answer = self.ask("/api/jobs", method="POST", body=body)
        return status, json.loads(answer)

    def run(self, task, **arguments):
        """Return the finished job."""
        return self.finished(self.start(task, **arguments)[1])

    def finished(self, job):
        for _ in range(60):
            job = self.get(f"/api/jobs/{job['id']}?wait=10")
            if job["status"] not in {"waiting", "running"}:
                return job
        raise AssertionError(job)


def started(*options, **environment):
    """Start the command; return its process and its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "calibrant", "serve", "--port", "0", *options],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"} | environment,
    )  # fmt: skip
    return process, re.search(r"http://\S+", process.stdout.readline())[0].rstrip("/")


def ended(process):
    """End the command as a service manager would; return whether it ended cleanly and had nothing to complain of."""
    process.send_signal(signal.SIGTERM)
    with process.stdout:
        return process.wait(timeout=300) in {0, -signal.SIGTERM} and not process.stdout.read()


@pytest.fixture(scope="module")
def client():
    process, address = started("--max-upload", "1")
    yield Client(address)
    assert ended(process)


@pytest.fixture(scope="module")
def uploaded(client):
    probs, labels = probabilities()
    return client.upload("mine.npz", archive(probs=probs, labels=labels))[1]["id"]


def test_a_file_is_previewed_evaluated_and_its_samples_are_shown(client, uploaded, tmp_path):
    preview = client.run("preview", source={"file": uploaded})["answer"]
    assert preview["chosen"]["kind"] == "probs"
    assert preview["columns"][0]["shape"] == [600, 4]
    refused = client.run("preview", source={"file": uploaded, "kind": "logits"})["answer"]
    assert "mine.npz" in refused["error"]
    answer = client.run("evaluate", source={"file": uploaded, "kind": "probs"})["answer"]
    path = tmp_path / "mine.npz"
    probs, labels = probabilities()
    np.savez(path, probs=probs, labels=labels)
    top = load(path).top
    assert answer["document"]["n"] == 600
    assert answer["charts"]["views"][0]["accuracy"] == pytest.approx(top.accuracy)
    assert answer["lines"]["cli"] == "calibrant evaluate mine.npz --probs --bins 15 --seed 0"
    shown = client.run("samples", source={"file": uploaded, "kind": "probs"}, low=0.9, high=1.0, correct=False)[
        "answer"
    ]
    expected = int(((top.confidence > 0.9) & ~top.correct).sum())
    assert shown["count"] == len(shown["samples"]) == expected
    assert all(sample["confidence"] > 0.9 and not sample["correct"] for sample in shown["samples"])


def test_methods_are_compared_on_a_split_and_the_map_can_be_taken_home(client, uploaded, tmp_path):
    source = {"file": uploaded, "kind": "probs", "split": {"by": "half", "seed": 3}}
    job = client.run("compare", source=source, methods=["temperature", "isotonic"], folder=str(tmp_path))
    assert job["status"] == "done", job["error"]
    assert list(tmp_path.iterdir()) == []  # where to write is not for a client to say
    answer = job["answer"]
    assert answer["n"] == {"calibration": 300, "test": 300}
    assert {"temperature", "isotonic"} <= set(answer["files"].values())
    names = {title: name for name, title in answer["files"].items()}
    _, headers, content = client.ask(f"/api/jobs/{job['id']}/files/{names['temperature']}")
    assert "attachment" in headers["content-disposition"]
    path = tmp_path / "map.safetensors"
    path.write_bytes(content)
    (tmp_path / "test.npz").write_bytes(client.ask(f"/api/jobs/{job['id']}/files/test.npz")[2])
    test = load(tmp_path / "test.npz")
    assert load_map(path).transform(test).top.accuracy == pytest.approx(test.top.accuracy)
    report = client.ask(f"/api/jobs/{job['id']}/files/report.html")[2].decode()
    assert report.startswith("<!DOCTYPE html>")
    for name in ("../secret", "..%2f..%2fetc%2fpasswd", "calibration.csv"):
        assert client.ask(f"/api/jobs/{job['id']}/files/{name}")[0] == 404


def test_hosts_origins_and_writing_without_the_token_are_refused(client):
    assert client.ask("/api/session", host="evil.example")[0] == 403
    assert client.ask("/api/session", origin="http://evil.example")[0] == 403
    assert client.ask("/api/session", origin="null")[0] == 403
    assert client.ask("/api/session", origin=client.address)[0] == 200
    body = json.dumps({"task": "methods"}).encode()
    for token in ("x", "", "\xff"):
        assert client.ask("/api/jobs", method="POST", body=body, **{"x-calibrant-token": token})[0] == 403
        assert client.ask("/api/files?name=x.csv", method="POST", body=b"a", **{"x-calibrant-token": token})[0] == 403
    _, headers, _ = client.ask("/")
    assert "script-src 'self'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("name", "content", "status"),
    [("virus.exe", b"x", 415), ("../../etc/passwd", b"x", 415), ("large.npz", b"0" * 1_000_001, 413)],
    ids=["kind", "path", "size"],  # a name with all bytes would be in the environment of the server's process
)
def test_what_cannot_be_uploaded_is_refused(client, name, content, status):
    given, answer = client.upload(name, content)
    assert given == status
    assert answer["error"]


def npy(shape, content=b"", kind="<f8"):
    """An array of NumPy whose header claims this shape."""
    header = str({"descr": kind, "fortran_order": False, "shape": shape}).encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + content


def zipped(**arrays):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in arrays.items():
            file.writestr(f"{name}.npy", content)
    return bytearray(stream.getvalue())


def bomb():
    """An archive of a few kilobytes whose directory says that it unpacks to four gigabytes."""
    content = zipped(probs=npy((50_000_000, 10), bytes(4_000_000)), labels=npy((50_000_000,)))
    entry = content.index(b"PK\x01\x02") + 24  # the size of the first array
    content[entry : entry + 4] = struct.pack("<I", 4_000_000_000)
    return bytes(content)


NOISE = bytes(np.random.default_rng(0).integers(0, 256, 4000, dtype=np.uint8))
HEADER = struct.pack("<Q", 1 << 60) + b"{}"  # says that it is an exabyte long
MALFORMED = [(f"noise{suffix}", NOISE) for suffix in OPENERS if suffix != ".npy"] + [
    *(
        ("broken.npz", b"PK\x03\x04nonsense"),
        ("empty.csv", b""),
        ("words.csv", b"a,b\nx,y\n"),
        ("bad.pt", b"\x80\x04."),
    ),
    ("declared.npz", bytes(zipped(probs=npy((1 << 62, 10)), labels=npy((1 << 62,), kind="<i8")))),
    *(("bomb.npz", bomb()), ("header.safetensors", HEADER), ("line.csv", b"x" * 900_000)),
    ("footer.parquet", b"PAR1" + NOISE + struct.pack("<I", (1 << 31) - 1) + b"PAR1"),
]


@pytest.mark.parametrize(("name", "content"), MALFORMED, ids=[name for name, _ in MALFORMED])
def test_a_malformed_file_gets_a_clear_error_and_the_server_goes_on(client, name, content):
    _, file = client.upload(name, content)
    preview, job = (client.run(task, source={"file": file["id"]}) for task in ("preview", "evaluate"))
    assert job["status"] == "failed"
    assert name in job["error"]
    assert "calibrant-studio-" not in job["error"] + preview["error"]  # no path of ours
    assert "Internal" not in job["error"] + preview["error"]
    assert client.get("/api/session")["files"]


def test_two_arrays_are_a_pair_and_their_errors_name_no_stored_file(client):
    probs, labels = probabilities(80)
    ids = []
    for name, array in (("scores.npy", probs), ("labels.npy", labels)):
        stream = io.BytesIO()
        np.save(stream, array)
        ids.append(client.upload(name, stream.getvalue())[1]["id"])
    source = {"file": ids[0], "kind": "probs"}
    alone = client.run("preview", source=source)["answer"]
    assert alone["argument"] == "labels"
    assert not any(one in json.dumps(alone) for one in ids)
    answer = client.run("evaluate", source=source | {"labels_file": {"file": ids[1]}})["answer"]
    assert answer["document"]["n"] == 80
    assert answer["lines"]["cli"].startswith("calibrant evaluate scores.npy --probs --labels labels.npy")
    failed = client.run("check", source=source | {"labels_file": {"file": ids[1]}, "weights": "w"})
    assert (failed["status"], failed["argument"]) == ("failed", "weights")
    assert client.start("preview", source=source | {"labels_file": {"file": "/etc/passwd"}})[0] == 404


def test_only_a_map_that_a_comparison_has_saved_is_exported(client, uploaded):
    job = client.run("preview", source={"file": uploaded})["id"]
    for given in ({"job": job, "file": "map-0.safetensors"}, {"job": "none", "file": "x"}, {"map_file": "/etc/passwd"}):
        assert client.start("export", **given)[0] == 404


def test_a_hostile_name_reaches_neither_the_disk_nor_the_screen(client):
    probs, labels = probabilities(60)
    name = "../../..\\evil/\x1b[2J\u202e<script>alert(1)</script>'\n.npz"
    status, file = client.upload(name, archive(probs=probs, labels=labels))
    assert status == 200
    assert not set(file["name"]) & {*map(chr, range(32)), "\u202e"}
    assert ".." not in file["name"]
    job = client.run("evaluate", source={"file": file["id"]})
    assert job["status"] == "done", job["error"]
    assert "<script" not in job["answer"]["html"]
    assert client.ask(f"/api/files/{quote('../' + file['id'], safe='')}", method="DELETE")[0] == 404
    assert client.ask(f"/api/files/{file['id']}", method="DELETE")[0] == 200
    assert client.start("evaluate", source={"file": file["id"]})[0] == 404


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"{", 400), (b"[]", 400), (b'{"task": "os.system"}', 400), (b"[" * 100_000, 400), (b" " * (1 << 21), 413),
     (b'{"task": "evaluate", "arguments": {"source": {"file": "../x"}}}', 404),
     (b'{"task": "evaluate", "arguments": {"source": 3}}', 400)],
)  # fmt: skip
def test_requests_that_make_no_sense_are_answered(client, body, status):
    assert client.ask("/api/jobs", method="POST", body=body)[0] == status


def test_a_client_cannot_name_a_path(client, uploaded):
    source = {"file": uploaded, "kind": "probs", "split": {"by": "file", "source": {"path": "/etc/passwd"}}}
    assert client.start("evaluate", source=source)[0] == 404
    job = client.run("evaluate", source={"file": uploaded, "path": "/etc/passwd", "name": "x", "kind": "probs"})
    assert job["status"] == "done"
    assert job["answer"]["document"]["source"] == "mine.npz"


def test_a_baseline_is_a_file_of_the_studio_as_the_source_is(client, uploaded):
    probs, labels = probabilities()
    other = client.upload("other.npz", archive(probs=(probs + 0.25) / 2, labels=labels))[1]["id"]
    source = {"file": uploaded, "kind": "probs"}
    answer = client.run("evaluate", source=source, baseline={"file": other, "kind": "probs", "path": "/etc/passwd"})
    assert answer["answer"]["charts"]["comparison"]["baseline"] == "other.npz"
    assert client.start("evaluate", source=source, baseline={"file": "absent"})[0] == 404
    assert client.start("evaluate", source=source, baseline="/etc/passwd")[0] == 400
    short = client.upload("short.npz", archive(probs=probs[1:], labels=labels[1:]))[1]["id"]
    refused = client.run("check", source=source, baseline={"file": short, "kind": "probs"})
    assert "got 599 and 600 samples" in refused["error"]
    large = np.random.default_rng(0).bytes(1_100_000)
    assert client.upload("large.npz", large)[0] == 413


def test_a_job_can_be_cancelled_and_the_next_one_runs(client, uploaded):
    source = {"file": uploaded, "kind": "probs", "split": {"by": "half", "seed": 0}}
    _, job = client.start("compare", source=source, methods=["auto", "dirichlet_odir", "order_preserving"])
    client.ask(f"/api/jobs/{job['id']}", method="DELETE")
    assert client.finished(job)["status"] == "cancelled"
    assert client.run("methods")["answer"]["temperature"]


def test_twenty_clients_are_served_while_jobs_run(client):
    probs, labels = probabilities(20_000)  # which take minutes
    uploaded = client.upload("large.npz", archive(probs=probs, labels=labels))[1]["id"]
    source = {"file": uploaded, "kind": "probs", "split": {"by": "half", "seed": 1}}
    _, job = client.start("compare", source=source, methods=["auto", "dirichlet_odir", "order_preserving"])
    answers, stages = [], []

    def use():
        answers.extend(client.ask(path)[0] for path in ("/", "/static/calibrant.js", "/api/session"))
        stages.append(client.get(f"/api/jobs/{job['id']}")["status"])

    threads = [threading.Thread(target=use) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    client.ask(f"/api/jobs/{job['id']}", method="DELETE")
    assert answers == 60 * [200]
    assert len(stages) == 20
    assert set(stages) <= {"waiting", "running"}  # nobody had to wait for the job


def test_the_end_deletes_what_was_uploaded(tmp_path):
    probs, labels = probabilities(50)
    path = tmp_path / "given.npz"
    np.savez(path, probs=probs, labels=labels)
    process, address = started(str(path), TMPDIR=str(tmp_path))
    client = Client(address)
    assert [file["name"] for file in client.get("/api/session")["files"]] == [
        "ResNet-110 on CIFAR-100 (example)",
        "Small network on digits (example)",
        "given.npz",
    ]
    _, uploaded = client.upload("other.npz", path.read_bytes())
    source = {"file": uploaded["id"], "split": {"by": "half"}}
    status, job = client.start("compare", source=source, methods=["dirichlet_odir"])
    assert status == 202
    waiting = http.client.HTTPConnection(urlsplit(address).netloc, timeout=300)
    waiting.request("GET", f"/api/jobs/{job['id']}?wait=60")  # which waits when the end comes
    client.get("/api/session")  # when this is answered, what was asked before has been read
    (folder,) = tmp_path.glob("calibrant-studio-*")
    assert list(folder.iterdir())
    assert ended(process)
    assert waiting.getresponse().status == 200
    waiting.close()
    assert not folder.exists()
    assert path.exists()
