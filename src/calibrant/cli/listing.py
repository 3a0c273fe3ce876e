"""``calibrant list`` and ``calibrant cite``: the catalogue as tables and its papers, from an index that needs no torch.

``make docs`` writes the index, ``index.json``, from the classes; a test fails if it is out of date. Where a package
exports other classes than the index was made from, the tables are made from the classes.
"""

import ast
import json
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from calibrant.cli.options import argument
from calibrant.paper import Paper

EXAMPLES = """\
calibrant list
calibrant list calibrators
calibrant list metrics"""

INDEX = Path(__file__).with_name("index.json")
_PACKAGE = Path(__file__).parent.parent
# Packages and modules of the classes that are listed: if one exports other classes, the index is out of date.
EXPORTING = ("calibrators", "datasets", "losses", "metrics", "models")
_NUMBERS = {"classes", "parameters"}
_WIDE = 21  # longest word that is not folded
_GAP = 2  # between columns


class Kind(StrEnum):
    """Kinds of entries of the catalogue."""

    calibrators = "calibrators"
    metrics = "metrics"
    losses = "losses"
    models = "models"
    datasets = "datasets"
    corruptions = "corruptions"


def list_catalogue(
    kind: Annotated[
        Kind | None, argument("KIND", f"{', '.join(list(Kind)[:-1])} or {list(Kind)[-1]}.", show_default="all of them")
    ] = None,
) -> None:
    """List calibrators, metrics, losses, models and datasets."""
    from rich.table import Table

    from calibrant.cli.output import standard_output

    console = standard_output()
    for listed in [kind] if kind else Kind:
        listing, index = LISTINGS[listed], _index()
        lines = list(listing.rows()) if index is None else index["lists"][listed]
        table = Table(box=None, pad_edge=False, header_style="bold")
        widths = _widths([listing.headings, *lines], console.width)
        for heading, width in zip(listing.headings, widths, strict=True):
            justify: Literal["left", "right"] = "right" if heading in _NUMBERS else "left"
            table.add_column(heading, width=width, justify=justify, overflow="fold")
        for line in lines:
            table.add_row(*line)
        if kind is None:
            console.print(f"\n{listed.upper()}", style="bold")
        console.print(table)
        if listing.note:
            console.print(listing.note, style="dim")


def _widths(lines: Sequence[Sequence[str]], available: int) -> list[int]:
    """Return widths of columns that fit into a width: the widest are narrowed first, down to their longest word."""
    columns = list(zip(*lines, strict=True))
    widths = [max(map(len, cells)) for cells in columns]
    least = [min(_WIDE, max(len(word) for cell in cells for word in cell.split())) for cells in columns]
    least[0] = widths[0]  # names are not folded
    while sum(widths) + _GAP * (len(widths) - 1) > available:
        wider = [place for place, width in enumerate(widths) if width > least[place]]
        if not wider:
            break
        widths[max(wider, key=lambda place: widths[place])] -= 1
    return widths


def listed_papers(text: str) -> tuple[Paper, ...] | None:
    """Return the papers of a name or a chain of calibrators from the index; None if it has none."""
    index, names = _index(), text.split("+")
    if index is None or not all(index["papers"].get(name) for name in names):
        return None
    if len(names) > 1 and not set(names) <= set(index["steps"]):
        return None
    return tuple(dict.fromkeys(Paper(**fields) for name in names for fields in index["papers"][name]))


def other_papers() -> "dict[str, Paper | None]":
    """Return the papers of networks, data sets, mixup, confidence estimators and Neural Clamping by name."""
    from calibrant import catalogue
    from calibrant.clamping import NeuralClamping
    from calibrant.confidence import ConfidNet, TrustScore
    from calibrant.models import all_models
    from calibrant.training import Mixup

    papers = {name: model.paper for name, model in all_models().items()}
    papers |= {name: reader.paper for name, reader in catalogue.datasets.items()}
    return papers | {method.name: method.paper for method in (Mixup, ConfidNet, TrustScore, NeuralClamping)}


@cache
def _index() -> dict[str, Any] | None:
    """Return the index if it was made from the classes that are exported now, and no plugin adds others."""
    if not INDEX.exists() or any(group.startswith("calibrant.") for group in entry_points().groups):
        return None
    index: dict[str, Any] = json.loads(INDEX.read_text(encoding="utf-8"))
    return index if all(exported_classes(name) == classes for name, classes in index["exports"].items()) else None


def exported_classes(name: str) -> list[str]:
    """Return the classes that a package or module exports, without importing it."""
    files = [_PACKAGE / name / "__init__.py", _PACKAGE / f"{name}.py"]
    text = next((file.read_text(encoding="utf-8") for file in files if file.exists()), "")
    exports: list[str] = []
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            exports += [export for export in ast.literal_eval(node.value) if export[0].isupper()]
        elif isinstance(node, ast.AugAssign) and ast.unparse(node.target) == "__all__":  # += module.__all__
            exports += exported_classes(f"{name}/{ast.unparse(node.value).partition('.')[0]}")
    return exports


def _calibrators() -> Iterator[tuple[str, ...]]:
    from calibrant import catalogue
    from calibrant.catalogue import AnyCalibrator

    with_features = catalogue.feature_calibrators
    methods: dict[str, AnyCalibrator] = {**catalogue.calibrators, **with_features}
    for name, method in sorted(methods.items()):
        kept = {"accuracy": method.preserves_accuracy, "ranking": method.preserves_ranking}
        keeps = ", ".join(what for what, is_kept in kept.items() if is_kept)
        title = f"{method.title} (needs features)" if name in with_features else method.title
        yield name, title, method.family, keeps, method.paper.short


def _metrics() -> Iterator[tuple[str, ...]]:
    from calibrant import catalogue

    for metric in catalogue.metrics.values():
        better = {True: "lower", False: "higher", None: ""}[metric.lower_is_better]
        yield metric.name, metric.title, metric.family, better, metric.paper.short


def _losses() -> Iterator[tuple[str, ...]]:
    from calibrant import catalogue
    from calibrant.losses import RowLoss

    for loss in catalogue.losses.values():
        evaluates = "samples" if isinstance(loss, RowLoss) else "batch"
        yield loss.name, loss.title, evaluates, "yes" if loss.takes_soft_labels else "", loss.paper.short
    for meta in catalogue.meta_losses.values():
        yield meta.name, f"{meta.title} (needs --split 8:1:1)", "samples", "", meta.paper.short


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
    from calibrant import catalogue

    for name, reader in catalogue.datasets.items():
        count, where = reader.n_classes, "comes with the package" if reader.is_embedded else reader.homepage
        fetched = "yes" if reader.remote else "with a flag" if isinstance(count, tuple) else ""
        where = "your own, laid out as ImageNet is" if count is None else where
        shown = f"{count[0]} to {count[1]}" if isinstance(count, tuple) else str(count or "")
        yield name, reader.title, shown, where, fetched


def _corruptions() -> Iterator[tuple[str, ...]]:
    from calibrant.datasets.corruptions import CORRUPTIONS

    for corruption in CORRUPTIONS.values():
        strengths = ", ".join(f"{strength:g}" for strength in corruption.strengths)
        yield corruption.name, corruption.title, f"{corruption.unit}: {strengths}", corruption.paper.short


class _Listing(NamedTuple):
    """A table: its headings, its rows, and a note on how to read them."""

    headings: tuple[str, ...]
    rows: Callable[[], Iterator[tuple[str, ...]]]
    note: str = ""


LISTINGS = {
    Kind.calibrators: _Listing(
        ("name", "method", "family", "keeps", "paper"),
        _calibrators,
        "Neural Clamping calibrates the network itself and not its predictions: calibrant clamp.",
    ),
    Kind.metrics: _Listing(("name", "metric", "family", "better", "paper"), _metrics),
    Kind.losses: _Listing(
        ("name", "loss", "evaluates", "soft labels", "paper"),
        _losses,
        "calibrant train --loss NAME, or with options: 'focal(gamma=2)', 'mmce(weight=0.5,base=focal(gamma=1))'.",
    ),
    Kind.models: _Listing(
        ("name", "network", "parameters", "takes", "paper"),
        _models,
        "Parameters for 10 classes and colour images of 32 x 32 pixels, or 20,000 words.",
    ),
    Kind.datasets: _Listing(
        ("name", "data set", "classes", "source", "--download"),
        _datasets,
        "calibrant train --dataset NAME --data FOLDER reads the files, and fetches them first with --download.",
    ),
    Kind.corruptions: _Listing(
        ("name", "corruption", "at severities 1 to 5", "paper"),
        _corruptions,
        "calibrant diagnose RUN --corrupt NAME evaluates networks under them.",
    ),
}


CITE_EXAMPLES = """\
calibrant cite ece
calibrant cite svs ece temperature+isotonic > methods.bib"""


def cite(
    names: Annotated[list[str], argument("NAME", "Names from `calibrant list`, or methods as for `calibrant fit`.")],
) -> None:
    """Print the paper of a method, metric, loss or data set.

    Prints the reference with the place in the paper, and a BibTeX entry; for a chain, those of every step.
    """
    papers = [paper for name in names for paper in _papers_of(name)]
    entries = dict.fromkeys(paper.bibtex for paper in papers)  # two places in one paper are one entry
    print("\n".join(dict.fromkeys(map(str, papers))), *entries, sep="\n\n")


def _papers_of(name: str) -> "Sequence[Paper]":
    papers = listed_papers(name)
    if papers is None:  # with options, added since the index was made, or unknown
        from calibrant.catalogue import find_papers
        from calibrant.errors import InputError

        others = other_papers()
        if name not in others:
            return find_papers(name)
        if (paper := others[name]) is None:
            raise InputError(f"{name} must come from a paper to be cited; it comes from none.")
        papers = (paper,)
    return papers
