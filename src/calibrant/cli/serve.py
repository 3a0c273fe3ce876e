"""``calibrant serve``: the studio, a local web page to look at predictions and to calibrate them."""

from pathlib import Path
from typing import Annotated

from calibrant.cli.options import argument, flag, option

EXAMPLES = """\
calibrant serve
calibrant serve test.csv --open
calibrant serve clamped/
calibrant serve --port 8080 --max-upload 1000"""

_FILES = "Files of predictions to offer, and folders that `calibrant clamp` has written."
_HOST = "Address to listen on. Others than 127.0.0.1 let other machines in: there is no password."


def serve(
    files: Annotated[list[Path] | None, argument("FILE", _FILES)] = None,
    host: Annotated[str, option("ADDRESS", _HOST)] = "127.0.0.1",
    port: Annotated[int, option("N", "Port to listen on; 0 for any that is free.", min=0, max=65535)] = 8899,
    max_upload: Annotated[int, option("MB", "The largest upload, in megabytes.", min=1)] = 256,
    open_page: Annotated[bool, flag("--open", "Open the page in the browser.")] = False,
) -> None:
    """Evaluate and calibrate predictions on a local web page.

    Files stay on this machine: uploads are kept in a private folder and deleted at the end. Ctrl-C ends it.
    """
    import socket
    import webbrowser

    import uvicorn

    from calibrant.checks import existing_file
    from calibrant.cli.output import standard_error, standard_output
    from calibrant.errors import InputError
    from calibrant.files.load import suffix_of
    from calibrant.studio.server import Studio

    opened = [file if file.is_dir() else existing_file(file) for file in files or ()]
    for file in opened:
        if not file.is_dir():
            suffix_of(file)
        elif not (file / "clamped.safetensors").is_file():
            raise InputError(
                f"{file} must be a file of predictions, or a folder that calibrant clamp has written; it has no "
                "clamped.safetensors. Name the files in it."
            )
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen()  # a browser that opens the address at once is answered
        except OSError as error:
            raise InputError(
                f"--host {host} and --port {port} must be an address that is free here: {error.strerror}. "
                "Name another, or --port 0 for any."
            ) from error
        port = listener.getsockname()[1]
        named = f"[{host}]" if ":" in host else host
        address = f"http://{named}:{port}/"
        if host not in {"127.0.0.1", "::1", "localhost"}:
            standard_error().print(f"note: every machine that reaches {host} can use this studio.", style="yellow")
        standard_output().print(f"Calibrant studio: {address}   (Ctrl-C ends it)")
        studio = Studio(opened, most_bytes=max_upload * 1_000_000)
        app = studio.app({f"{name}:{port}" for name in (named, "127.0.0.1", "localhost")})
        if open_page:
            webbrowser.open(address)
        server = uvicorn.Server(
            uvicorn.Config(app, log_level="warning", server_header=False, timeout_graceful_shutdown=3)
        )
        studio.is_ending = lambda: server.should_exit
        try:
            server.run(sockets=[listener])
        finally:
            studio.close()
