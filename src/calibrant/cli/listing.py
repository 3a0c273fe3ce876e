"""``calibrant list``: what there is."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

import typer

__all__ = ["Kind", "listing"]


class Kind(StrEnum):
    """What can be listed."""

    calibrators = "calibrators"
    metrics = "metrics"


def listing(kind: Annotated[Kind, typer.Argument(help="What to list.")]) -> None:
    """List what there is, one a line, with where it comes from."""
    from rich import box
    from rich.table import Table

    from calibrant.cli.output import standard_output

    headings, rows = (_METRICS, _metrics()) if kind is Kind.metrics else (_CALIBRATORS, _calibrators())
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        table.add_column(heading, no_wrap=heading in {"name", "better", "keeps"})
    for row in rows:
        table.add_row(*row)
    standard_output().print(table)


_METRICS = ("name", "what it is", "family", "better", "from")
_CALIBRATORS = ("name", "what it is", "family", "keeps", "from")


def _metrics() -> Iterator[tuple[str, ...]]:
    from calibrant.catalogue import all_metrics

    for metric in all_metrics().values():
        better = {True: "lower", False: "higher", None: ""}[metric.lower_is_better]
        yield metric.name, metric.title, metric.family, better, metric.paper.short


def _calibrators() -> Iterator[tuple[str, ...]]:
    from calibrant.catalogue import all_calibrators, all_feature_calibrators
    from calibrant.method_text import AnyCalibrator

    needy = all_feature_calibrators()
    methods: dict[str, AnyCalibrator] = {**all_calibrators(), **needy}
    for name, each in sorted(methods.items()):
        kept = {"accuracy": each.preserves_accuracy, "ranking": each.preserves_ranking}
        keeps = ", ".join(what for what, is_kept in kept.items() if is_kept)
        yield name, each.title + " (needs features)" * (name in needy), each.family, keeps, each.paper.short
