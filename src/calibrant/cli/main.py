"""The command ``calibrant``. Each command has its own file and loads what it needs only when it runs."""

import os
import shlex
import sys
from importlib.metadata import version as installed_version
from typing import Annotated, NoReturn

import typer

from calibrant.cli import apply, cite, clamp, compare, demo, diagnose, evaluate, fit, listing, train
from calibrant.errors import Argument, CalibrantError

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


# Options of the commands by the argument of the library that they set, where the names differ.
_OPTIONS = {"n_bins": "--bins", "name": "--features"}


def _as_option(argument: Argument) -> str:
    """An argument of the library as the command line has it: ``--labels y``, and ``--logits`` for a kind."""
    if argument.name == "kind":
        return f"--{argument.value}"
    option = _OPTIONS.get(argument.name, f"--{argument.name.replace('_', '-')}")
    return option if argument.value is None else f"{option} {shlex.quote(argument.value)}"


def run() -> None:
    """Run the command line: exit code 0 is well, 1 a gate that failed, 2 bad input."""
    try:
        app()
    except Exception as error:
        # Only our own errors are turned into one line; anything else is a defect and shows its trace.
        if isinstance(error, OSError) and error.filename is None:
            _give_up(error)
        if not isinstance(error, CalibrantError):
            raise
        from calibrant.shown_text import terminal_text

        print(f"calibrant: {terminal_text(error.message(_as_option))}", file=sys.stderr)
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
