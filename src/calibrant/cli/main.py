"""The command ``calibrant``. Each command has its own file and loads what it needs only when it runs."""

import os
import re
import sys
from importlib.metadata import version as installed_version
from typing import Annotated, NoReturn

import typer

from calibrant.cli import apply, cite, clamp, compare, demo, diagnose, evaluate, fit, listing, train

__all__ = ["app", "run"]

app = typer.Typer(
    name="calibrant",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_INTERRUPTED = 130  # the exit code that typer turns Ctrl-C into


def _show_version(asked: bool) -> None:
    if asked:
        print(f"calibrant {installed_version('calibrant')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """How far a classifier's confidence can be trusted, in numbers, words and pictures."""


app.command("evaluate")(evaluate.evaluate)
app.command("fit")(fit.fit)
app.command("apply")(apply.apply)
app.command("compare")(compare.compare)
app.command("clamp")(clamp.clamp)
app.command("train")(train.train)
app.command("diagnose")(diagnose.diagnose)
app.command("list")(listing.listing)
app.command("cite")(cite.cite)
app.command("demo")(demo.demo)


def _as_options(message: str) -> str:
    """What the library says about its arguments, in the words of the command line."""
    message = re.sub(r"kind='([\w-]+)' \(or '([\w-]+)'\)", r"--\1 (or --\2)", message)
    message = re.sub(r"kind='([\w-]+)'", r"--\1", message)
    message = re.sub(r"\bstrength='([\w-]+)'", r"--strength \1", message)
    message = re.sub(r"^the folder of (.+) must be named, to", r"--data must name the folder of \1, to", message)
    message = re.sub(r"\bname=NAME\b", "--features NAME", message)
    # An argument stands alone, or before a name in quotes; labels=labels is code to be copied.
    return re.sub(r"\b(scores|labels|confidence|correct)=(?=NAME\b|['\"\s])", r"--\1 ", message)


def run() -> None:
    """Run the command line: exit code 0 is well, 1 a gate that failed, 2 bad input."""
    try:
        app()
    except Exception as error:
        # Only our own errors are turned into one line; anything else is a defect and shows its trace.
        from calibrant.errors import CalibrantError

        if isinstance(error, OSError) and error.filename is None:
            _give_up(error)
        if not isinstance(error, CalibrantError):
            raise
        from calibrant.shown_text import terminal_text

        print(f"calibrant: {terminal_text(_as_options(str(error)))}", file=sys.stderr)
        sys.exit(2)
    except SystemExit as stopped:
        if stopped.code == _INTERRUPTED:
            print("calibrant: stopped; nothing was left half-written.", file=sys.stderr)
        try:
            sys.stdout.flush()
        except OSError as error:
            _give_up(error)
        raise


def _give_up(error: OSError) -> NoReturn:
    """End a command whose answer nobody can be given, as when the disk that it is sent to is full."""
    # Python would try again when it ends, and show a trace.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    print(f"calibrant: the answer could not be written: {error.strerror}.", file=sys.stderr)
    sys.exit(2)
