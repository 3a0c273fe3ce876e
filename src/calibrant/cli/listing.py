"""``calibrant list``: what there is."""

from enum import StrEnum
from typing import Annotated

import typer

__all__ = ["Kind", "listing"]


class Kind(StrEnum):
    """What can be listed."""

    metrics = "metrics"


def listing(
    kind: Annotated[Kind, typer.Argument(help="What to list.")],  # noqa: ARG001  # one kind so far
) -> None:
    """List what there is, one a line, with where it comes from."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from calibrant.catalogue import all_metrics

    console = Console()
    if not console.is_terminal:
        console.width = 120
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("name", "what it is", "family", "better", "from"):
        table.add_column(heading, no_wrap=heading in ("name", "better"))
    for metric in all_metrics().values():
        better = {True: "lower", False: "higher", None: ""}[metric.lower_is_better]
        table.add_row(metric.name, metric.title, metric.family, better, metric.paper.short)
    console.print(table)
