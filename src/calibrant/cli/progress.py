"""What is going on, for a person who waits. Nothing is shown where nobody looks."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

__all__ = ["stages"]


@contextmanager
def stages(console: Console) -> Iterator[Callable[[str], None]]:
    """A line with the stage that runs and the time since the start; gone when all is done."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("starting", total=None)
        yield lambda stage: progress.update(task, description=stage)
