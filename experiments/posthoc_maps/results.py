"""What the records of the post-hoc maps say: numbers to check, and the page."""

from collections.abc import Sequence
from pathlib import Path

from experiments.numbers import Number, pooled
from experiments.page import claims, interval, number_by_number, page, provenance, table
from experiments.published import Finding, Published, findings, read_published
from experiments.records import Record

__all__ = ["numbers_of", "page_of"]

PUBLISHED = Path(__file__).parent / "published.toml"
COLUMNS = {
    "accuracy": ("accuracy", 100, 2),
    "entropy": ("entropy", 1, 4),
    "ece": ("ECE", 100, 2),
    "ace": ("AECE", 100, 2),
    "sce": ("SCE", 100, 4),
    "nll": ("log-loss", 1, 4),
}


def numbers_of(records: Sequence[Record]) -> dict[str, Number]:
    """Return each map's numbers, and its differences to temperature scaling at its optimum.

    Args:
        records: Successful ones.
    """
    found: dict[str, Number] = {}
    for record in records:
        if "refused" in record["numbers"]:
            continue
        label = f"{record['cell']['method']}.{record['cell']['fit']}"
        for metric, (_, scale, _) in COLUMNS.items():
            for prefix, part in (("", "metrics"), ("to TS.", "to_temperature")):
                ends = [scale * end for end in record["numbers"][part][metric]]
                found[f"{prefix}{label}.{metric}"] = pooled([ends])
    return found


def page_of(records: Sequence[Record], *, images: Path | None) -> str:  # noqa: ARG001  # without figures
    """Return the page.

    Args:
        records: Successful ones.
        images: Folder of figures, of which it has none.
    """
    numbers = numbers_of(records)
    entries = findings(read_published(PUBLISHED), numbers)
    introduction = f"""
Post-hoc maps behind our own ResNet-110 on CIFAR-100 (`load_resnet110()`): 5,000 images that it was not trained on
calibrate, 10,000 test images evaluate. The paper fits its baselines by 1,000 epochs of full-batch gradient descent at
rate .001 and does not say whether the loss is the mean or the sum over the images; both are here, and the optimum by
the library. ODIR's strengths are chosen among the paper's seven. Maps in the last rows that are not in the tables of
agreement are not in the paper. Accuracy, ECE and adaptive ECE in percent, classwise ECE (SCE) times 100, 15 bins. In
brackets the 95 % interval of the test images.

{provenance(records)}
"""
    tables = [
        _table("Table 2", records, numbers, ""),
        _table("Minus temperature scaling at its optimum", records, numbers, "to TS."),
    ]
    parts = [claims(entries), _agreement(entries), *tables, number_by_number(entries)]
    return page("Neural Clamping's baselines: Table 2, ResNet-110", "posthoc-maps", introduction, parts)


def _agreement(entries: Sequence[Finding]) -> str:
    """Return which way of fitting gives the paper's numbers of each map."""
    counts: dict[tuple[str, str], list[bool]] = {}
    for each in entries:
        if isinstance(each.published, Published) and each.number is not None:
            method, fit, _ = each.published.id.split(".")
            counts.setdefault((method, fit), []).append(each.verdict == "agrees")
    rows = [[method, fit, f"{sum(agree)} of {len(agree)}"] for (method, fit), agree in counts.items()]
    return (
        table("Which fit gives the paper's numbers", ["map", "fitted by", "numbers that agree"], rows) if rows else ""
    )


def _table(title: str, records: Sequence[Record], numbers: dict[str, Number], prefix: str) -> str:
    heads = ["map", "fitted by", *(head for head, _, _ in COLUMNS.values())]
    lines = [f"## {title}", "", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for record in records:
        method, fit = record["cell"]["method"], record["cell"]["fit"]
        if "refused" in record["numbers"]:
            reason = record["numbers"]["refused"].partition(":")[0]
            lines.append(f"| {method} | {fit} | refused: {reason} {'| ' * len(COLUMNS)}|")
            continue
        cells = [
            interval(numbers[f"{prefix}{method}.{fit}.{metric}"], digits, signed=bool(prefix))
            for metric, (_, _, digits) in COLUMNS.items()
        ]
        lines.append(f"| {method} | {fit} | {' | '.join(cells)} |")
    return "\n".join(lines)
