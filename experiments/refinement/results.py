"""What the records of Tables 1 to 3 say: numbers to check, and the page with its figure."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from experiments.diagrams import draw_densities
from experiments.numbers import Estimate, Number, minus, pooled
from experiments.page import claims, interval, number_by_number, page, provenance, save, table
from experiments.published import findings, read_published
from experiments.records import Record

__all__ = ["numbers_of", "page_of"]

PUBLISHED = Path(__file__).parent / "published.toml"
DATA = {
    "cifar100": "CIFAR-100",
    "cifar10": "CIFAR-10",
    "cifar10.1": "CIFAR-10.1",
    "cifar10.2": "CIFAR-10.2",
    "cinic10": "CINIC-10, images of ImageNet",
    "imagenet": "ImageNet",
    "imagenet-v2": "ImageNet-v2",
    "digits": "digits",
}
NETWORKS = {
    "vgg16_bn": "VGG-16",
    "resnet50": "ResNet-50",
    "densenet121": "DenseNet-121",
    "resnet50_imagenet": "ResNet-50",
    "digits_cnn": "small CNN",
}
ROWS = ("none", "TS (1.5)", "TS (1.1)", "TS", "SVS")
METRICS = {"accuracy": ("accuracy", 100), "brier": ("Brier", 100), "ece": ("ECE", 100), "auroc": ("AUROC", 100)}
FIGURE = """
## Error against order

Each way to train beside the cross-entropy of the same network: left is a lower calibration error, below a confidence
that separates right from wrong less well. Crosses are 95 % intervals.

![Difference of AUROC against difference of ECE](images/refinement.png)
"""
DENSITIES = """
## Confidences of right and of wrong predictions

Fig. 2 of the paper has the baseline's; here each way to train beside it, of the first seed that has them. The further
the two curves lie apart, the better the confidence tells right from wrong.

![Shares of right and of wrong predictions by confidence](images/refinement-densities.png)
"""
Runs: TypeAlias = dict[int, Any]  # rows of one set of test samples, by seed


def numbers_of(records: Sequence[Record]) -> dict[str, Number]:
    """Return every number, and its difference to the baseline's, by test set, network, method, row and metric.

    A difference is taken seed by seed, over the seeds that both have. That of a row is to the same network without a
    map, from draws of the same samples for both where the record has them.

    Args:
        records: Successful ones.
    """
    numbers: dict[str, Number] = {}
    groups, paired = _groups(records), _groups(records, "differences")
    for (data, network, method), runs in groups.items():
        baseline = groups.get((data, network, "Baseline"), {})
        for row in _rows_of(runs):
            for metric in METRICS:
                ours = {seed: _estimate(rows, row, metric) for seed, rows in runs.items()}
                place = f"{data}.{network}.{method}"
                number = pooled(list(ours.values()))
                numbers[f"{place}.{row}.{metric}"] = number._replace(low=max(number.low, 0.0))
                if row != "none":
                    drawn = paired.get((data, network, method), {})
                    own = [
                        _estimate(drawn[seed], row, metric)
                        if seed in drawn
                        else minus(number, _estimate(runs[seed], "none", metric))
                        for seed, number in ours.items()
                    ]
                    numbers[f"{place}.{row} - none.{metric}"] = pooled(own)
                others = [
                    minus(ours[seed], _estimate(baseline[seed], row, metric))
                    for seed in sorted(ours.keys() & baseline.keys())
                    if method != "Baseline"
                ]
                if others:
                    numbers[f"{place} - Baseline.{row}.{metric}"] = pooled(others)
    return numbers


def page_of(records: Sequence[Record], *, images: Path | None) -> str:
    """Return the page, and draw its figure where a folder is given.

    Args:
        records: Successful ones.
        images: Folder of the figure; None draws none.
    """
    groups, numbers = _groups(records), numbers_of(records)
    entries = findings(read_published(PUBLISHED), numbers)
    epochs = " and ".join(sorted({str(record["cell"]["epochs"]) for record in records}))
    introduction = f"""
Singh et al. (2021), Tables 1 to 3: label smoothing (LS, .05; .1 on ImageNet), focal loss (FL, γ = 3), an entropy term
(ERL, .1) and mixup (MX, α = .2) beside the cross-entropy. They lower the calibration error; does the confidence still
tell right from wrong (AUROC)? {epochs} epochs instead of the paper's 300, batch 128 and weight decay 5e-4, which it
does not give (on ImageNet its 100, with batch 256 and 1e-4); VGG-16 has batch normalisation. TS (1.5), on ImageNet
TS (1.1), is the paper's given temperature; TS and SVS are fitted on a tenth of the
training samples. All in percent; the Brier score is summed over classes, ECE has 15 bins. In brackets the 95 %
interval: of the test images, and of the seeds where there are several; a difference is taken seed by seed. **A verdict
from one seed is about those networks alone.** {provenance(records)}
"""
    densities = _densities(records)
    if images is not None:
        _draw(numbers, groups, images / "refinement.png")
        if densities:
            draw_densities(densities, images / "refinement-densities.png", columns=5)
    tables = [_table(*panel, groups, numbers) for panel in dict.fromkeys(place[:2] for place in groups)]
    parts = [claims(entries), *tables, FIGURE, DENSITIES * bool(densities), number_by_number(entries)]
    return page("Calibrated training and the order of confidences", "refinement", introduction, parts)


def _table(data: str, network: str, groups: Mapping[tuple[str, str, str], Runs], numbers: Mapping[str, Number]) -> str:
    heads = ["way", "map", "seeds", *(words for words, _ in METRICS.values()), "AUROC minus the baseline's"]
    rows = []
    for (at, by, method), runs in groups.items():
        for row in _rows_of(runs) if (at, by) == (data, network) else ():
            place = f"{data}.{network}.{method}"
            difference = numbers.get(f"{place} - Baseline.{row}.auroc")
            cells = (interval(numbers[f"{place}.{row}.{metric}"], 2) for metric in METRICS)
            last = interval(difference, 2, signed=True) if difference else ""
            rows.append([method, row, str(len(runs)), *cells, last])
    return table(f"{NETWORKS[network]} on {DATA[data]}", heads, rows)


def _groups(records: Sequence[Record], kind: str = "rows") -> dict[tuple[str, str, str], Runs]:
    """Return the rows, or differences, of each set of test samples, network and method by seed."""
    groups: dict[tuple[str, str, str], Runs] = {}
    for record in records:
        cell = record["cell"]
        for name, rows in record["numbers"].get(kind, {}).items():
            data = cell["data"] if name == "test" else name
            groups.setdefault((data, cell["network"], cell["method"]), {})[cell["seed"]] = rows
    order = list(DATA)
    return dict(sorted(groups.items(), key=lambda group: order.index(group[0][0])))


def _densities(records: Sequence[Record]) -> dict[str, Mapping[str, Sequence[int]]]:
    """Return the confidences of each network's own test samples by a title, of the first seed that has them."""
    return {
        f"{NETWORKS[network]}, {DATA[data]}\n{method}": runs[min(runs)]
        for (data, network, method), runs in _groups(records, "densities").items()
        if any(record["cell"]["data"] == data for record in records)
    }


def _rows_of(runs: Runs) -> list[str]:
    """Return the rows that all runs have; those of ImageNet have another given temperature."""
    return [row for row in ROWS if all(row in rows for rows in runs.values())]


def _estimate(rows: Mapping[str, Any], row: str, metric: str) -> Estimate:
    value, low, high = (METRICS[metric][1] * end for end in rows[row][metric])
    return value, low, high


def _draw(numbers: Mapping[str, Number], groups: Mapping[tuple[str, str, str], Runs], path: Path) -> None:
    from calibrant.plots.layout import SIZES, bare_axes, name_axes, new_figure, theme_named

    theme = theme_named("light")
    panels = list(dict.fromkeys((data, network) for data, network, _ in groups))
    rows, columns = (list(dict.fromkeys(column)) for column in zip(*panels, strict=True))
    figure = new_figure(theme, width=max(6.4, 3.6 * len(columns)), height=0.4 + 3.2 * len(rows))
    for data, network in panels:
        down, right = rows.index(data), columns.index(network)
        ax = figure.add_subplot(len(rows), len(columns), 1 + down * len(columns) + right)
        bare_axes(ax, theme)
        ax.axhline(0, color=theme.muted, linewidth=0.8)
        ax.axvline(0, color=theme.muted, linewidth=0.8)
        for method in (method for *panel, method in groups if tuple(panel) == (data, network)):
            place = f"{data}.{network}.{method} - Baseline.none"
            if f"{place}.ece" in numbers:
                x, y = numbers[f"{place}.ece"], numbers[f"{place}.auroc"]
                ax.plot([x.low, x.high], [y.value] * 2, color=theme.under, linewidth=1.2)
                ax.plot([x.value] * 2, [y.low, y.high], color=theme.under, linewidth=1.2)
                where, size = (x.value, y.value), SIZES["note"]
                ax.annotate(method, where, xytext=(4, 4), textcoords="offset points", fontsize=size, color=theme.ink)
        ax.set_title(f"{NETWORKS[network]}, {DATA[data]}", loc="left", color=theme.ink, fontsize=SIZES["label"])
        name_axes(
            ax,
            theme,
            "ECE minus the baseline's" if down == len(rows) - 1 else "",
            "AUROC minus the baseline's" if right == 0 else "",
        )
    save(figure, path)
