"""The studio's web server: the page, a JSON interface to :mod:`calibrant.studio.api`, uploads and downloads.

It listens on this machine only, unless another host is given. Requests must name a host it knows; those of a page must
come from its own; writing needs a token that only its own page can read. Uploads are kept in a private folder under
names of ours until the server ends: no name or path of a client ever reaches the disk.
"""

import contextlib
import json
import queue
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any, final
from urllib.parse import urlsplit

from anyio import to_thread
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from calibrant import __version__
from calibrant.errors import CalibrantError
from calibrant.files.load import suffix_of
from calibrant.studio.sources import EXAMPLES
from calibrant.studio.workers import Workers
from calibrant.text import terminal_text

_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_SECONDS = {
    "preview": 60.0, "check": 120.0, "evaluate": 600.0, "take_home": 600.0, "samples": 60.0, "methods": 60.0,
    "compare": 1800.0, "export": 120.0, "clamp": 600.0, "clamped": 60.0,
}  # fmt: skip
_WRITING = {"take_home", "compare", "export", "clamp"}  # tasks that save files
_LONGEST_REQUEST = 1 << 20  # bytes of JSON
_LONGEST_WAIT = 20.0  # seconds that a question about a job may wait for its end
_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Calibrant studio</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/static/calibrant.css">
</head>
<body class="calibrant-page">
<noscript>The studio needs JavaScript. Reports (calibrant evaluate --html) can be read without it.</noscript>
<main id="calibrant-studio" class="calibrant"></main>
<script src="/static/calibrant.js"></script>
</body>
</html>
"""


class Guard:
    """Refuse foreign hosts and origins, and writing without the token; add headers of safety to every answer."""

    def __init__(self, app: ASGIApp, *, hosts: set[str], token: str) -> None:
        self.app, self.hosts, self.token = app, hosts, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer that it is refused."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *((k.encode(), v.encode()) for k, v in _HEADERS.items())]
            await send(message)

        refusal = self._refusal(Request(scope))
        app = _error(403, refusal) if refusal else self.app
        await app(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> str:
        if request.headers.get("host", "") not in self.hosts:
            return "The host of the request is not this studio's."
        origin = request.headers.get("origin")
        if origin is not None and urlsplit(origin).netloc not in self.hosts:
            return "The request comes from another page."
        given = request.headers.get("x-calibrant-token", "").encode()
        if request.method not in {"GET", "HEAD"} and not secrets.compare_digest(given, self.token.encode()):
            return "The token is missing or of an earlier start of the studio: reload the page."
        return ""


def _error(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": message}, status_code=status)


@final
@dataclass
class Dataset:
    """A file that the studio may read: a copy of an upload, or one named when it was started."""

    name: str  # as the user knows it
    path: Path
    is_ours: bool  # whether to delete it


@final
@dataclass
class Studio:
    """The state behind the server: files, jobs and their results.

    Args:
        opened: Files, and folders of ``calibrant clamp``, to offer from the start.
        most_bytes: The largest upload.
        workers: The processes for heavy work.
        is_ending: Whether the server is to stop, so that no request waits for a job any more.
    """

    opened: Iterable[Path] = ()
    most_bytes: int = 1 << 28
    workers: Workers = field(default_factory=partial(Workers, "calibrant.studio.api"))
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    is_ending: Callable[[], bool] = lambda: False

    def __post_init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="calibrant-studio-"))
        self.datasets = {
            path.partition(":")[2]: Dataset(name, Path(path), is_ours=False) for path, name in EXAMPLES.items()
        }
        self.clamped: dict[str, Dataset] = {}  # folders
        for number, path in enumerate(path.resolve() for path in self.opened):
            entry = Dataset(terminal_text(path.name), path, is_ours=False)
            if not path.is_dir():
                self.datasets[f"file-{number}"] = entry
                continue
            self.clamped[f"clamped-{number}"] = entry
            for part in ("before", "after"):
                if (file := path / f"{part}.npz").exists():
                    self.datasets[f"{part}-{number}"] = Dataset(f"{entry.name}/{part}.npz", file, is_ours=False)

    def close(self) -> None:
        """End the work and delete what was uploaded and computed."""
        self.workers.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def app(self, hosts: set[str]) -> ASGIApp:
        """Return the application, for requests to these hosts (with port)."""

        @contextlib.asynccontextmanager
        async def lifespan(_app: Starlette) -> AsyncIterator[None]:
            try:
                yield
            finally:
                await to_thread.run_sync(self.close)

        routes = [
            Route("/", self.page),
            Route("/static/{name}", self.static),
            Route("/api/session", self.session),
            Route("/api/files", self.upload, methods=["POST"]),
            Route("/api/files/{dataset}", self.forget, methods=["DELETE"]),
            Route("/api/jobs", self.start, methods=["POST"]),
            Route("/api/jobs/{job}", self.job),
            Route("/api/jobs/{job}", self.cancel, methods=["DELETE"]),
            Route("/api/jobs/{job}/files/{name}", self.download),
        ]
        return Guard(Starlette(routes=routes, lifespan=lifespan), hosts=hosts, token=self.token)

    async def page(self, _request: Request) -> Response:
        """Answer with the page, whatever is shown on it: its state is behind the #."""
        return Response(_PAGE, media_type="text/html")

    async def static(self, request: Request) -> Response:
        """Answer with the bundle."""
        name = request.path_params["name"]
        media = {"calibrant.js": "text/javascript", "calibrant.css": "text/css"}.get(name)
        if media is None:
            return PlainTextResponse("There is no such file.", status_code=404)
        content = files("calibrant.studio").joinpath("static", name).read_bytes()
        return Response(content, media_type=media, headers={"cache-control": "no-cache"})

    async def session(self, _request: Request) -> Response:
        """Answer with what the page needs to begin: token, files at hand, limits."""
        listed = [
            {"id": key, "name": dataset.name, "example": str(dataset.path) in EXAMPLES}
            for key, dataset in self.datasets.items()
        ]
        clamped = [{"id": key, "name": folder.name} for key, folder in self.clamped.items()]
        limits = {"version": __version__, "most_bytes": self.most_bytes, "onnx": find_spec("onnx") is not None}
        return JSONResponse({"token": self.token, "files": listed, "clamped": clamped, **limits})

    async def upload(self, request: Request) -> Response:
        """Store the body of the request as a file; its name says the format."""
        name = request.query_params.get("name", "")
        try:
            suffix = suffix_of(name)
        except CalibrantError as error:
            return _error(415, str(error))
        identifier = secrets.token_hex(8)
        path, size = self.folder / f"{identifier}{suffix}", 0
        try:
            with path.open("xb") as file:
                async for chunk in request.stream():
                    size += len(chunk)
                    if size > self.most_bytes:
                        path.unlink(missing_ok=True)
                        most = f"{self.most_bytes:,} bytes; see calibrant serve --max-upload"
                        return _error(413, f"The file must have at most {most}.")
                    await to_thread.run_sync(file.write, chunk)
        except ClientDisconnect:
            path.unlink(missing_ok=True)
            return _error(400, "The upload broke off.")
        except OSError as error:
            path.unlink(missing_ok=True)
            return _error(507, f"The upload could not be stored: {error.strerror}.")
        shown = terminal_text(Path(name).name)
        self.datasets[identifier] = Dataset(shown, path, is_ours=True)
        return JSONResponse({"id": identifier, "name": shown, "bytes": size})

    async def forget(self, request: Request) -> Response:
        """Delete an upload."""
        dataset = self.datasets.pop(request.path_params["dataset"], None)
        if dataset is None:
            return _error(404, "There is no such file.")
        if dataset.is_ours:
            dataset.path.unlink(missing_ok=True)
        return JSONResponse({})

    async def start(self, request: Request) -> Response:
        """Queue a task of the API; its sources name files by their id."""
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > _LONGEST_REQUEST:
                return _error(413, f"The request must have at most {_LONGEST_REQUEST:,} bytes.")
        try:
            asked = json.loads(body)
            task, arguments = asked["task"], dict(asked.get("arguments", {}))
            seconds = _SECONDS[task]
        except (ValueError, KeyError, TypeError, RecursionError):
            return _error(400, f"The request must name one of the tasks {', '.join(_SECONDS)}, and its arguments.")
        try:
            arguments = self._resolved(task, arguments)
        except KeyError:
            return _error(404, "There is no such file any more: open it again.")
        except (TypeError, AttributeError):
            return _error(400, "The arguments of the task are not well-formed.")
        try:
            job = self.workers.find_done(task, arguments)  # the arguments decide the answer
            if job is None:
                if task in _WRITING:
                    arguments["folder"] = tempfile.mkdtemp(dir=self.folder)
                job = self.workers.submit(task, arguments, seconds=seconds)
        except queue.Full:
            return _error(503, "Too much is waiting already: try again later.")
        return JSONResponse(job.as_dict(), status_code=202)

    def _resolved(self, task: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Put paths in place of the ids of files; where to write is ours to say."""
        for name in ("folder", "map_file"):
            arguments.pop(name, None)
        if task == "export":  # a map that a comparison has saved
            job, name = self.workers.find(arguments.pop("job")), arguments.pop("file")
            if job is None or job.task != "compare" or name not in (job.answer or {}).get("files", {}):
                raise KeyError(name)
            arguments["map_file"] = str(Path(job.arguments["folder"]) / name)
        return arguments | {name: self._source(arguments[name]) for name in ("source", "baseline") if name in arguments}

    def _source(self, given: dict[str, Any]) -> dict[str, Any]:
        dataset = {**self.datasets, **self.clamped}[given["file"]]
        source = {key: value for key, value in given.items() if key not in {"file", "path", "name", "written"}}
        split = source.get("split")
        if split and split.get("by") == "file":
            source["split"] = {"by": "file", "source": self._source(split["source"])}
        if source.get("labels_file"):
            source["labels_file"] = self._source(source["labels_file"])
        written = dataset.path.stat().st_mtime_ns if dataset.path.exists() else 0
        return source | {"path": str(dataset.path), "name": dataset.name, "written": written}

    async def job(self, request: Request) -> Response:
        """Answer where a job stands; with ``wait``, when it has ended or so many seconds later."""
        job = self.workers.find(request.path_params["job"])
        if job is None:
            return _error(404, "There is no such job any more.")
        try:
            wait = min(float(request.query_params.get("wait", 0)), _LONGEST_WAIT)
        except ValueError:
            wait = 0.0
        if wait > 0 and not job.finished.is_set():
            from anyio import move_on_after, sleep

            with move_on_after(wait):
                while not (job.finished.is_set() or self.is_ending()):
                    await sleep(0.05)
        return JSONResponse(job.as_dict())

    async def cancel(self, request: Request) -> Response:
        """End a job."""
        job = self.workers.find(request.path_params["job"])
        if job is None:
            return _error(404, "There is no such job any more.")
        self.workers.cancel(job)
        return JSONResponse(job.as_dict())

    async def download(self, request: Request) -> Response:
        """Answer with a file that a job has written, one of those its answer lists."""
        job, name = self.workers.find(request.path_params["job"]), request.path_params["name"]
        answer = job.answer if job is not None and job.status == "done" else None
        if job is None or answer is None or name not in answer.get("files", {}):
            return _error(404, "There is no such file any more.")
        return FileResponse(Path(job.arguments["folder"]) / name, filename=terminal_text(name))
