"""What is going on, for a person who waits. Nothing is shown where nobody looks."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

__all__ = ["counted", "stages"]


@contextmanager
def stages(console: Console) -> Iterator[Callable[[str], None]]:
    """A line with the stage that runs and the time since the start; gone when all is done."""
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("starting", total=None)
        yield lambda stage: progress.update(task, description=stage)


@contextmanager
def counted(console: Console) -> Iterator[Callable[[str, int, int], None]]:
    """A bar with what runs, how many are done of how many, and the time since the start; gone when all is done."""
    columns = (BarColumn(24), MofNCompleteColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("starting", total=None)
        yield lambda text, done, total: progress.update(task, description=text, completed=done, total=total)
