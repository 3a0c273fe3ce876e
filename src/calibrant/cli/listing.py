"""``calibrant list``: what there is."""

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Annotated, NamedTuple

import typer

__all__ = ["LISTINGS", "Kind", "listing"]


class Kind(StrEnum):
    """What can be listed."""

    calibrators = "calibrators"
    corruptions = "corruptions"
    datasets = "datasets"
    losses = "losses"
    metrics = "metrics"
    models = "models"


def listing(kind: Annotated[Kind, typer.Argument(help="What to list.")]) -> None:
    """List what there is, one a line, with where it comes from."""
    from rich import box
    from rich.table import Table

    from calibrant.cli.index import rows_of
    from calibrant.cli.output import standard_output

    shown = LISTINGS[kind]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in shown.headings:
        is_number = heading in {"classes", "parameters"}
        is_narrow = is_number or heading in {"name", "better", "keeps", "judges", "soft labels", "--download"}
        table.add_column(heading, no_wrap=is_narrow, justify="right" if is_number else "left")
    rows = rows_of(kind)
    for row in shown.rows() if rows is None else rows:
        table.add_row(*row)
    console = standard_output()
    console.print(table)
    if shown.note:
        console.print(shown.note, style="dim")


class _Listing(NamedTuple):
    """A table: its headings, its rows, and what must be known to read them."""

    headings: tuple[str, ...]
    rows: Callable[[], Iterator[tuple[str, ...]]]
    note: str = ""


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


def _losses() -> Iterator[tuple[str, ...]]:
    from calibrant.catalogue import all_losses, all_meta_losses
    from calibrant.losses import RowLoss

    for loss in all_losses().values():
        judges = "rows" if isinstance(loss, RowLoss) else "batch"
        yield loss.name, loss.title, judges, "yes" if loss.takes_soft_labels else "", loss.paper.short
    for meta in all_meta_losses().values():
        yield meta.name, f"{meta.title} (needs --split 8:1:1)", "rows", "", meta.paper.short


def _models() -> Iterator[tuple[str, ...]]:
    import torch

    from calibrant.models import Sizes, all_models

    for name, spec in all_models().items():
        with torch.device("meta"):  # sizes alone: no memory, no random numbers
            network = spec.build(Sizes(n_classes=10, n_words=20_000))
        parameters = sum(weight.numel() for weight in network.parameters())
        takes = f"images from {spec.smallest_side} x {spec.smallest_side}" if spec.input_kind == "image" else "texts"
        yield name, spec.title, f"{parameters:,}", takes, spec.paper.short if spec.paper else ""


def _datasets() -> Iterator[tuple[str, ...]]:
    from calibrant.datasets import all_datasets

    for name, reader in all_datasets().items():
        where = "comes with the package" if reader.is_embedded else reader.homepage
        if reader.n_classes is None:
            where = "your own, laid out as ImageNet is"
        is_collection = isinstance(reader.n_classes, tuple)
        fetched = "yes" if reader.remote else "with a flag" if is_collection else ""
        yield name, reader.title, _classes(reader.n_classes), where, fetched


def _corruptions() -> Iterator[tuple[str, ...]]:
    from calibrant.datasets import all_corruptions

    for each in all_corruptions().values():
        strengths = ", ".join(f"{strength:g}" for strength in each.strengths)
        yield each.name, each.title, f"{each.unit}: {strengths}", each.paper.short


def _classes(count: int | tuple[int, int] | None) -> str:
    if isinstance(count, tuple):
        return f"{count[0]} to {count[1]}"
    return "" if count is None else str(count)


LISTINGS = {
    Kind.calibrators: _Listing(
        ("name", "what it is", "family", "keeps", "from"),
        _calibrators,
        "Neural Clamping works on the network itself and not on its predictions: calibrant clamp.",
    ),
    Kind.corruptions: _Listing(
        ("name", "what it is", "at severities 1 to 5", "from"),
        _corruptions,
        "calibrant diagnose RUN --corrupt NAME judges networks under them.",
    ),
    Kind.datasets: _Listing(
        ("name", "what it is", "classes", "where to get it", "--download"),
        _datasets,
        "calibrant train --dataset NAME --data FOLDER reads the files, and fetches them first with --download.",
    ),
    Kind.losses: _Listing(
        ("name", "what it is", "judges", "soft labels", "from"),
        _losses,
        "calibrant train --loss NAME, or with options: 'focal(gamma=2)', 'mmce(weight=0.5,base=focal(gamma=1))'.",
    ),
    Kind.metrics: _Listing(("name", "what it is", "family", "better", "from"), _metrics),
    Kind.models: _Listing(
        ("name", "what it is", "parameters", "takes", "from"),
        _models,
        "Parameters for 10 classes and colour images of 32 x 32 pixels, or 20,000 words.",
    ),
}
