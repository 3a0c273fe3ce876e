"""The command ``calibrant``. Each command has a module, which loads what it needs only when it runs."""

import gc
import os
import shlex
import shutil
import signal
import sys
import textwrap
import threading
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, NoReturn

import typer

import calibrant
from calibrant.cli import (
    apply,
    clamp,
    compare,
    confidence,
    demo,
    diagnose,
    evaluate,
    export,
    fit,
    listing,
    serve,
    shift,
    state,
    train,
    trend,
)
from calibrant.cli.options import CommandWithExamples, with_groups_expanded
from calibrant.errors import Argument, CalibrantError, CalibrantWarning
from calibrant.text import accept_all_signs, terminal_text

app = typer.Typer(
    name="calibrant",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: it fits 80 columns and needs no rich
)

_INTERRUPTED = 130  # the exit code that typer turns Ctrl-C into


def _show_version(is_given: bool) -> None:
    if is_given:
        print(f"calibrant {calibrant.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", is_eager=True, callback=_show_version, show_default=False
        ),
    ] = False,
) -> None:
    """Measure and calibrate the confidence of classifiers."""


def _with_torch_imported(command: Callable[..., object]) -> Callable[..., None]:
    """Return the command with torch imported first, without garbage collection, which takes longer than short work.

    Ctrl-C waits for the import: torch goes on without what was interrupted, and fails elsewhere.
    """

    @wraps(command)
    def run_command(**options: object) -> None:
        if "torch" not in sys.modules:
            gc.disable()
            interrupts, handler = list[int](), signal.getsignal(signal.SIGINT)
            is_ours = handler is not None and threading.current_thread() is threading.main_thread()
            if is_ours:
                signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
            try:
                import torch  # noqa: F401
            finally:
                gc.freeze()
                gc.enable()
                if is_ours:
                    signal.signal(signal.SIGINT, handler)
            if interrupts:
                raise KeyboardInterrupt
        command(**options)

    return run_command


def _add(name: str, command: Callable[..., Any], examples: str) -> None:
    app.command(name, cls=CommandWithExamples, epilog=examples)(with_groups_expanded(command))


_MODULES = (evaluate, compare, fit, apply, export, clamp, train, confidence, diagnose, state, trend, shift, serve)
for _module in _MODULES:  # each has a command of its own name
    _name = _module.__name__.rpartition(".")[2]
    _add(_name, _with_torch_imported(getattr(_module, _name)), _module.EXAMPLES)
_add("list", listing.list_catalogue, listing.EXAMPLES)
_add("cite", listing.cite, listing.CITE_EXAMPLES)
_add("demo", _with_torch_imported(demo.demo), demo.EXAMPLES)


# Options of the commands by the argument of the library that they set, where the names differ.
_OPTIONS = {"n_bins": "--bins", "name": "--features"}


def _as_option(argument: Argument) -> str:
    """Return an argument of the library as an option: ``--labels y``, and ``--logits`` for a kind."""
    if argument.name == "kind":
        return f"--{argument.value}"
    option = _OPTIONS.get(argument.name, f"--{argument.name.replace('_', '-')}")
    return option if argument.value in {None, "True"} else f"{option} {shlex.quote(argument.value)}"


def run() -> None:
    """Run the command line: exit code 0 for success, 1 if a gate of ``evaluate`` fails, 2 for bad input."""
    warnings.formatwarning = _format_warning
    for stream in (sys.stdout, sys.stderr):
        accept_all_signs(stream)
    try:
        app(prog_name="calibrant")
    except Exception as error:
        # Only our own errors become one line; any other is a defect and shows its traceback.
        if isinstance(error, OSError) and error.filename is None:
            _exit_unwritable(error)
        if not isinstance(error, CalibrantError):
            raise
        message = f"calibrant: {terminal_text(error.message(_as_option))}"
        if sys.stderr.isatty():
            width = shutil.get_terminal_size().columns
            message = textwrap.fill(message, width, break_long_words=False, break_on_hyphens=False)
        print(message, file=sys.stderr)
        sys.exit(2)
    except SystemExit as stopped:
        if stopped.code == _INTERRUPTED:
            print("calibrant: interrupted; no partial files were left.", file=sys.stderr)
        try:
            print(end="", flush=True)  # unlike sys.stdout.flush also where there is no standard output
        except OSError as error:
            _exit_unwritable(error)
        raise
    finally:
        warnings.formatwarning = _format_foreign


_format_foreign = warnings.formatwarning


def _format_warning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> str:
    """Return our own warnings as a line, and others with the line of the source that caused them."""
    return (
        f"note: {message}\n"
        if issubclass(category, CalibrantWarning)
        else _format_foreign(message, category, *where, **more)
    )


def _exit_unwritable(error: OSError) -> NoReturn:
    """Exit with 2 because standard output cannot be written, as when the disk is full."""
    # Python would flush again at exit, and show a traceback.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    print(f"calibrant: the output could not be written: {error.strerror}.", file=sys.stderr)
    sys.exit(2)
