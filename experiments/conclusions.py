"""``docs/results.md``: what the studies say to someone who has a network to calibrate, from their records alone.

Every sentence has its numbers from records, and says what they say: where they turn, the sentence turns.
"""

from collections.abc import Callable, Mapping, Sequence
from math import isnan
from pathlib import Path
from statistics import mean
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from experiments.meta.page import TITLES
from experiments.meta_regularization.results import lower_than_focal
from experiments.overconfidence.pools import pools_of, title_of
from experiments.overconfidence.results import groups_of
from experiments.overconfidence.results import numbers_of as overconfidence_numbers
from experiments.overconfidence.training_sizes import best_coefficients
from experiments.page import joined, plain_table, save
from experiments.records import Record, Records
from experiments.refinement.results import numbers_of as refinement_numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from calibrant.plots.layout import Theme

__all__ = ["PAGE", "page_of_results"]

_FOLDER = Path(__file__).parent
PAGE = _FOLDER.parent / "docs" / "results.md"
CURVES = ("svs", "sms", "temperature", "isotonic", "histogram", "platt")  # of the figure of sizes
LOSSES = ("cross-entropy", "label smoothing", "focal loss")
DARK = {"Baseline": "cross-entropy", "LS": "label smoothing", "FL": "focal loss", "ERL": "entropy term", "MX": "mixup"}
Draw: TypeAlias = "Callable[[Axes, Theme], None]"
Rows: TypeAlias = Callable[[Mapping[str, Any]], Mapping[str, Any]]  # a record's numbers -> its rows by map
INTRODUCTION = """
# What to conclude

<!-- Written by `python -m experiments results` from the records of the studies. -->

Five questions about calibrating a network, answered from the records of our studies. Unless stated otherwise, networks
are trained on CIFAR-100, and ECE has 15 bins. The linked studies give intervals, settings and seeds, and compare with
what the papers report.
"""


class Section(NamedTuple):
    """A question, what the records answer, and what the answer rests on."""

    name: str  # of the figure's file
    question: str
    answer: str
    parts: tuple[str, ...]  # paragraphs, items that begin with "- ", and tables
    figure: str  # what it shows
    height: float
    panels: tuple[Draw, ...]


def page_of_results(*, images: Path | None) -> str:
    """Return the page, and draw its five figures where a folder is given.

    Args:
        images: Folder of the figures; None draws none.
    """
    sections = [_losses(), _maps(), _sizes(), _delta(), _shift()]
    anchors = [section.question.rstrip("?").lower().replace(" ", "-") for section in sections]
    rows = [
        (f"[{section.question}](#{anchor})", section.answer) for section, anchor in zip(sections, anchors, strict=True)
    ]
    parts = [INTRODUCTION, plain_table(["question", "answer"], rows)]
    for section in sections:
        lines = [f"## {section.question}", _wrapped(f"**{section.answer}**"), *map(_wrapped, section.parts)]
        parts.append("\n\n".join([*lines, f"![{section.figure}](images/results-{section.name}.png)"]))
        if images is not None:
            _draw(images / f"results-{section.name}.png", section.height, section.panels)
    return joined(parts)


def _wrapped(text: str) -> str:
    """Return a paragraph, or items one below the other, in lines of 120 characters; a table as it is written."""
    if text.startswith("|"):
        return text
    paragraph, *items = (" ".join(part.split()) for part in f"\n{text.strip()}".split("\n- "))
    lines = [fill(paragraph, 120, break_long_words=False, break_on_hyphens=False)] if paragraph else []
    lines += [
        fill(f"- {item}", 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False) for item in items
    ]
    return "\n".join(lines)


def _records(study: str, **settings: object) -> list[Record]:
    """Return the records of a study whose cells have these settings."""
    return [
        record
        for record in Records(_FOLDER / study / "records.jsonl").read()
        if "numbers" in record and all(record["cell"].get(name) == value for name, value in settings.items())
    ]


class Trained(NamedTuple):
    """One network, data set and recipe, trained with each of the three losses of :data:`LOSSES`."""

    title: str
    page: str
    methods: Mapping[str, str]  # name in the records -> loss
    runs: Mapping[str, list[Mapping[str, Any]]]  # rows by map of each seed

    def mean(self, loss: str, row: str, metric: str) -> float:
        """Return the mean over seeds."""
        values = [run[row][metric] for run in self.runs[loss]]
        return mean(value[0] if isinstance(value, list) else value for value in values)


def _trained() -> list[Trained]:
    """Return every setting in which all three losses were trained."""

    def setting(title: str, study: str, methods: Sequence[str], rows: Rows, **settings: object) -> Trained:
        losses = dict(zip(methods, LOSSES, strict=True))
        runs: dict[str, list[Mapping[str, Any]]] = {}
        for record in _records(study, train_samples=None, **settings):  # not those of smaller training sets
            cell = record["cell"]
            if loss := losses.get(cell.get("method", cell.get("way"))):
                runs.setdefault(loss, []).append(rows(record["numbers"]))
        return Trained(title, f"{study.replace('_', '-')}-study.md", losses, runs)

    def whole(numbers: Mapping[str, Any]) -> Mapping[str, Any]:
        return numbers["rows"]

    def selected(numbers: Mapping[str, Any]) -> Mapping[str, Any]:
        return numbers["rules"]["best"]["rows"]

    def clean(numbers: Mapping[str, Any]) -> Mapping[str, Any]:
        return numbers["rows"]["test"]

    def short(numbers: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"none": numbers["none"], "TS": numbers["ts"]}

    dark = tuple(DARK)[:3]
    return [
        setting("ResNet-32", "overconfidence", ("CE", "LS (0.09)", "Focal (5)"), whole, data="cifar100"),
        setting(
            "ResNet-18, 350 epochs", "meta_regularization", ("CE", "LS (0.05)", "Focal"), selected, data="cifar100"
        ),
        setting("ResNet-18, 40 epochs", "meta", ("ce", "ls-05", "focal"), short, about="run"),
        setting("VGG-16", "refinement", dark, clean, data="cifar100"),
        setting("ResNet-32, CIFAR-10", "overconfidence", ("CE", "LS (0.05)", "Focal (3)"), whole, data="cifar10"),
        setting("ResNet-18, CIFAR-10", "meta_regularization", ("CE", "LS (0.05)", "Focal"), selected, data="cifar10"),
        setting("VGG-16, CIFAR-10", "refinement", dark, clean, data="cifar10"),
        setting("CNN, 20 Newsgroups", "overconfidence", ("CE", "LS (0.09)", "Focal (5)"), whole, data="newsgroups"),
    ]


class Column(NamedTuple):
    title: str
    row: str  # of the record
    metric: str
    scale: int
    digits: int
    best: Callable[..., str]


COLUMNS = (
    Column("accuracy, %", "none", "accuracy", 100, 1, max),
    Column("AUROC, %", "none", "auroc", 100, 1, max),
    Column("ECE, %", "none", "ece", 100, 1, min),
    Column("ECE after a temperature", "TS", "ece", 100, 1, min),
    Column("log-loss after it", "TS", "nll", 1, 3, min),
)


def _losses() -> Section:
    settings = _trained()
    leaders = [
        {
            column: _name({loss: setting.mean(loss, column.row, column.metric) for loss in LOSSES}, column.best)
            for column in COLUMNS
        }
        for setting in settings
    ]
    led = {column.title: sum(leader[column] == LOSSES[0] for leader in leaders) for column in COLUMNS}
    n, by_log_loss = len(settings), led["log-loss after it"]
    lead = "Cross-entropy, then a temperature" if 2 * by_log_loss > n else "None is best everywhere"
    answer = (
        f"{lead}: of three losses, it has the lowest log-loss after temperature scaling in {by_log_loss} of {n} "
        f"settings, and the highest AUROC in {led['AUROC, %']}. Before temperature scaling, it has the lowest ECE in "
        f"{led['ECE, %'] or 'none'}."
    )
    rows = []
    for setting, leader in zip(settings, leaders, strict=True):
        for place, loss in enumerate(LOSSES):
            cells = []
            for column in COLUMNS:
                text = f"{column.scale * setting.mean(loss, column.row, column.metric):.{column.digits}f}"
                cells.append(f"**{text}**" if leader[column] == loss else text)
            rows.append(["" if place else f"[{setting.title}]({setting.page})", loss, *cells])

    def errors(ax: "Axes", theme: "Theme") -> None:
        _by_setting(ax, theme, settings, "ECE uncalibrated (ring) and after a temperature (dot), %")
        for place, setting in enumerate(settings):
            for loss, shift, colour in _looks(theme):
                label = loss if place == 0 else None
                before, after = (100 * setting.mean(loss, row, "ece") for row in ("none", "TS"))
                ax.plot([before, after], [place + shift] * 2, color=colour, linewidth=1.2, zorder=1)
                ax.scatter(before, place + shift, s=26, facecolor=theme.background, edgecolor=colour, zorder=2)
                ax.scatter(after, place + shift, s=26, color=colour, label=label, zorder=3)
        ax.set_xlim(left=0)

    def log_losses(ax: "Axes", theme: "Theme") -> None:
        _by_setting(ax, theme, settings, "Log-loss after a temperature, less cross-entropy's")
        ax.axvline(0, color=theme.ink, linewidth=1)
        for loss, shift, colour in _looks(theme)[1:]:
            gaps = [setting.mean(loss, "TS", "nll") - setting.mean(LOSSES[0], "TS", "nll") for setting in settings]
            ax.barh([place + shift for place in range(n)], gaps, height=0.24, color=colour)
        ax.tick_params(labelleft=False)

    table = plain_table(["network, data", "loss", *(column.title for column in COLUMNS)], rows)
    figure = "ECE before and after a temperature, and the log-loss after it, of three losses in every setting"
    return Section("losses", "Which loss?", answer, (_loss_reading(), table), figure, 5.2, (errors, log_losses))


def _looks(theme: "Theme") -> list[tuple[str, float, str]]:
    """Return each loss with its place in a setting's row and its colour."""
    return list(zip(LOSSES, (-0.26, 0.0, 0.26), (theme.ink, theme.under, theme.over), strict=True))


def _by_setting(ax: "Axes", theme: "Theme", settings: Sequence[Trained], title: str) -> None:
    """Give axes a row for every setting, the first on top, and a title below."""
    ax.set_yticks(range(len(settings)), [setting.title for setting in settings])
    ax.set_ylim(len(settings) - 0.4, -0.6)
    ax.set_xlabel(title, color=theme.muted)


def _loss_reading() -> str:
    learned = {
        data: lower_than_focal(_records("meta_regularization", data=data), constant_rate=False)
        for data in ("cifar100", "cifar10")
    }
    pairs = [f"{sum(is_lower) or 'none'} of {len(is_lower)} ({title_of(data)})" for data, is_lower in learned.items()]
    over, both = overconfidence_numbers(_records("overconfidence")), refinement_numbers(_records("refinement"))
    costs = [
        f"{name} changes the ECE of VGG-16 by {ece.value:+.1f} points and its AUROC by {auc.value:+.1f} "
        f"({auc.low:+.1f} … {auc.high:+.1f})"
        for name, key in (("label smoothing", "LS - Baseline.none"), ("a temperature", "Baseline.TS - none"))
        for ece, auc in [[both[f"cifar100.vgg16_bn.{key}.{metric}"] for metric in ("ece", "auroc")]]
    ]
    return f"""
- A loss that lowers the ECE before calibration is not necessarily easier to calibrate. {_by_coefficient(over)}
- {_by_size(over)}
- A temperature needs logits that separate easy samples from hard ones. {_by_learned_epoch(over)}
- Better calibration can come with a worse separation of right from wrong predictions: {"; ".join(costs)}
([study](refinement-study.md)). Look at both.
- γ-Net, which learns the γ of focal loss for each sample, has a lower ECE than γ = 1 in {" and ".join(pairs)}
pairs of networks ([study](meta-regularization-study.md)). Compared side by side,
[thirteen losses](meta-study.md) have an ECE of {_short_range("none")} before temperature scaling, and of
{_short_range("ts")} after it.
- Choose the loss by accuracy and log-loss, then calibrate, and evaluate the result.
"""


def _short_range(row: str) -> str:
    """Return the range of the ECE over the losses of the study of 40 epochs."""
    ways: dict[str, list[float]] = {}
    for record in _records("meta", about="run"):
        ways.setdefault(record["cell"]["way"], []).append(100 * record["numbers"][row]["ece"])
    return _range({way: mean(values) for way, values in ways.items()})


def _by_coefficient(numbers: Mapping[str, Any]) -> str:
    """Say what log-loss and what ECE make of the coefficients of three losses."""
    log_losses = {
        (pool.data, method): [numbers[f"{pool.data}.{name}.TS.nll"].value for name in (method, "CE")]
        for pool in pools_of(groups_of(_records("overconfidence")), numbers)
        for method in pool.methods
        if f"{pool.data}.CE.TS.nll" in numbers
    }
    lower = sum(ours < plain for ours, plain in log_losses.values())
    on_cifar100 = [method for data, method in log_losses if data == "cifar100"]
    best = min(on_cifar100, key=lambda method: numbers[f"cifar100.{method}.none.ece"].value)
    ece, accuracy = (numbers[f"cifar100.{best}.none.{metric}"].value for metric in ("ece", "accuracy"))
    plain = numbers["cifar100.CE.none.accuracy"].value
    where = ", ".join(title_of(data) for data in dict.fromkeys(data for data, _ in log_losses))
    return (
        f"Of {len(log_losses)} coefficients of these losses ({where}), {lower or 'none'} give a lower log-loss than "
        f"cross-entropy after temperature scaling. The lowest ECE before it on CIFAR-100, {ece:.1f} % with {best}, "
        f"belongs to a network with an accuracy of {accuracy:.1f} %; cross-entropy reaches {plain:.1f} %."
    )


def _by_size(numbers: Mapping[str, Any]) -> str:
    """Say how the best coefficient of label smoothing depends on the number of training samples."""
    best = best_coefficients(groups_of(_records("overconfidence")), numbers)["LS"]
    fewest, most = min(best), max(best)
    errors = [
        numbers[f"cifar10, {most:,} training samples.LS ({best[size].coefficient:g}).none.ece"].value
        for size in (most, fewest)
    ]
    if best[fewest].coefficient == best[most].coefficient:
        return (
            f"The best coefficient of label smoothing is the same with {fewest:,} training samples and with {most:,}."
        )
    return (
        "A coefficient that calibrates one network need not calibrate the next. "
        f"With {fewest:,} training samples of {title_of('cifar10')} label smoothing has its lowest ECE at "
        f"{best[fewest].coefficient:g}, with {most:,} at {best[most].coefficient:g}, where the former "
        f"leaves {errors[1]:.1f} % instead of {errors[0]:.1f} % ([study](overconfidence-study.md#the-coefficients))."
    )


def _by_learned_epoch(numbers: Mapping[str, Any]) -> str:
    """Say how the logits of training samples follow the epoch of learning, by loss."""
    parts = []
    for data, methods in {
        "cifar10": ("CE", "LS (0.05)", "Focal (3)"),
        "cifar100": ("CE", "LS (0.09)", "Focal (5)"),
    }.items():
        values = [numbers[f"{data}.{method}.learned.correlation"].value for method in methods]
        texts = [f"{value:+.2f} with {loss}" for value, loss in zip(values, LOSSES, strict=True)]
        parts.append(f"{', '.join(texts)} on {title_of(data)}")
    return (
        "The rank correlation between a training sample's largest logit and the epoch from which it stays correctly "
        "classified is "
        f"{'; '.join(parts)} ([study](overconfidence-study.md#logits-by-the-epoch-of-learning))."
    )


def _maps() -> Section:
    against: dict[str, list[list[float]]] = {}
    for record in _records("posthoc", kind="board"):
        if difference := record["numbers"]["against"].get("temperature"):
            against.setdefault(record["cell"]["method"], []).append(difference["nll"])
    against.pop("temperature", None)
    seeds = max(len(values) for values in against.values())
    gains = {method: mean(split[0] for split in values) for method, values in against.items() if len(values) == seeds}
    wins = [method for method in gains if all(high < 0 for _, _, high, _ in against[method])]
    losses = [method for method in gains if all(low > 0 for _, low, _, _ in against[method])]
    best = sorted(gains, key=lambda method: gains[method])
    winners = _named([method for method in best if method in wins])
    answer = (
        f"A temperature, or `auto`: of {len(gains)} other methods, {len(wins)} have a lower log-loss beyond noise on "
        f"every split, and {len(losses)} a higher one."
    )
    reading = f"""
- On one ResNet-110 with {seeds} splits ([study](comparison.md)), better on every split: {winners}.
- On average `{best[0]}` is the best ({gains[best[0]]:+.4f} compared with a temperature), then `{best[1]}`
({gains[best[1]]:+.4f}): small differences next to the gain of a temperature itself.
- Another network can need more than a temperature: {_of_wide_network()}
- `auto` chooses among a dozen methods by cross-validated log-loss, so that you do not have to.
"""

    def draw(ax: "Axes", theme: "Theme") -> None:
        shown = [method for method in best if gains[method] < 0.06][::-1]
        colours = [theme.under if gains[method] < 0 else theme.over for method in shown]
        ax.barh(range(len(shown)), [gains[method] for method in shown], color=colours, height=0.7)
        ax.set_yticks(range(len(shown)), shown)
        ax.axvline(0, color=theme.ink, linewidth=1)
        ax.set_xlabel("Log-loss less a temperature's (above +0.06: not shown)", color=theme.muted)

    figure = "Log-loss of each method less that of a temperature"
    return Section("maps", "Which calibration method?", answer, (reading,), figure, 5.0, (draw,))


def _of_wide_network() -> str:
    """Return what the best method and ``auto`` gain behind Wide-ResNet-40-10."""
    fitted = {
        record["cell"]["method"]: record["numbers"]
        for record in _records("posthoc_maps", network="wrn40_10", fit="optimum")
        if "metrics" in record["numbers"]
    }
    changes = {method: numbers["to_temperature"]["nll"] for method, numbers in fitted.items() if method != "auto"}
    best = min(changes, key=lambda method: changes[method][0])
    change, low, high = changes[best]
    before, after = (100 * fitted[method]["metrics"]["ece"][0] for method in ("TS", best))
    chosen = fitted["auto"]["to_temperature"]["nll"][0]
    return f"""behind a Wide-ResNet-40-10 ([study](posthoc-maps-study.md)), compared with a temperature, the {best} map
changes the log-loss by {change:+.4f} ({low:+.4f} … {high:+.4f}), and the ECE from {before:.1f} to {after:.1f} %; `auto`
changes the log-loss by {chosen:+.4f}."""


def _sizes() -> Section:
    gains: dict[str, dict[int, list[float]]] = {}
    for record in _records("posthoc", kind="size"):
        gain = record["numbers"].get("gain")
        if gain is not None and not isnan(gain):
            gains.setdefault(record["cell"]["method"], {}).setdefault(record["cell"]["size"], []).append(gain)
    sizes = sorted({size for by_size in gains.values() for size in by_size})
    curves = {method: {size: mean(by_size[size]) for size in by_size} for method, by_size in gains.items()}
    few, many = sizes[0], sizes[-1]
    harm = [method for method in curves if curves[method].get(few, 0.0) < 0]
    ahead = all(curves["svs"][size] >= curves["temperature"][size] for size in sizes)
    svs = "never worse than a temperature" if ahead else "at times worse than a temperature"
    reach = [size for size in sizes if curves["sms"][size] >= curves["temperature"][size]]
    passed = f"{reach[0]:,}" if reach else "none of these numbers of"
    share = curves["temperature"][few] / curves["temperature"][many]
    answer = (
        f"{few:,} are enough for a temperature, which then reaches {100 * share:.0f} % of what it gains with {many:,}; "
        "methods with many parameters need more."
    )
    reading = f"""
- `svs` is {svs}; `sms` overtakes it at {passed} samples ([study](comparison.md)).
- With {few:,} samples, {len(harm)} of {len(curves)} methods are worse than no calibration: {_named(sorted(harm))}.
"""

    def draw(ax: "Axes", theme: "Theme") -> None:
        looks = (
            (theme.under, "-"),
            (theme.under, "--"),
            (theme.ink, "-"),
            (theme.over, "-"),
            (theme.over, "--"),
            (theme.muted, ":"),
        )
        for method, (colour, line) in zip(CURVES, looks, strict=True):
            known = sorted(curves[method])
            ax.plot(known, [curves[method][size] for size in known], color=colour, linestyle=line, label=method)
        ax.set_xscale("log")
        ax.set_xticks(sizes, [f"{size:,}" for size in sizes], minor=False)
        ax.set_ylim(0, 0.4)
        ax.set_xlabel("Calibration samples", color=theme.muted)
        ax.set_ylabel("Log-loss gained on others", color=theme.muted)

    figure = "Log-loss gained by each method against the number of samples"
    return Section("sizes", "How many samples?", answer, (reading,), figure, 3.8, (draw,))


class Clamped(NamedTuple):
    """Networks of one kind behind which δ was fitted: changes of the log-loss from that of a temperature."""

    title: str
    page: str
    is_well_trained: bool  # on many samples, to the end
    library: Sequence[Sequence[float]]  # (change, low, high) of each fit
    paper: Sequence[Sequence[float]]  # of fits by the paper's protocol with cross-entropy, which T has, too


def _clamped() -> list[Clamped]:
    def earlier(title: str, part: str, *, is_well_trained: bool = True) -> Clamped:
        changes = [
            [record["numbers"]["to_ts"]["nll"][:3] for record in _records("clamping", part=part, method=method)]
            for method in ("nc", "paper-ce")
        ]
        return Clamped(title, "clamping-study.md", is_well_trained, *changes)

    def behind(title: str, *, is_well_trained: bool = True, **settings: object) -> Clamped:
        changes = [
            [
                record["numbers"]["to_temperature"]["nll"]
                for record in _records("posthoc_maps", method=method, fit=fit, **settings)
            ]
            for method, fit in (("NC", "library"), ("NC (CE)", "paper"))
        ]
        return Clamped(title, "posthoc-maps-study.md", is_well_trained, *changes)

    kinds = [
        earlier("ResNet-110", "resnet110"),
        behind("Wide-ResNet-40-10", network="wrn40_10"),
        earlier("ResNet-32", "resnet32"),
        earlier("ResNet-32, blood cells", "blood"),
        earlier("small network, 1,000 digits", "digits-many"),
        behind("ResNet-50, 1,500 blood cells", train_samples=1_500, is_well_trained=False),
        behind(
            "ResNet-50, blood cells, 3 epochs", network="resnet50_imagenet", train_samples=None, is_well_trained=False
        ),
        earlier("ResNet-20, 600 blood cells", "blood-few", is_well_trained=False),
        earlier("small network, 100 digits", "digits-few", is_well_trained=False),
    ]
    return [kind for kind in kinds if kind.library or kind.paper]


def _beyond_noise(changes: Sequence[Sequence[float]]) -> tuple[int, int]:
    """Return how many changes are below 0 beyond noise, and how many above."""
    return sum(high < 0 for _, _, high in changes), sum(low > 0 for _, low, _ in changes)


def _delta() -> Section:
    kinds = _clamped()

    def all_of(*, well_trained: bool) -> list[Sequence[float]]:
        return [change for kind in kinds if kind.is_well_trained is well_trained for change in kind.library]

    well, badly = all_of(well_trained=True), all_of(well_trained=False)
    verdict = "Seldom" if 2 * _beyond_noise(well)[0] < len(well) else "Often"
    answer = (
        f"{verdict} behind a network that was trained well: of {len(well)} fits by the library, "
        f"{_beyond_noise(well)[0] or 'none'} have a lower log-loss than temperature scaling beyond noise. Behind "
        f"networks trained on few samples or for few epochs, {_beyond_noise(badly)[0]} of {len(badly)} do."
    )
    swept = [
        record["numbers"]["differences"]["TS on δ* - TS"] for record in _records("neural_clamping", method="clamping")
    ]
    lower, higher = _beyond_noise([fit["nll"][:3] for fit in swept])
    reading = f"""
- The library's own fit tests δ on held-out samples, and returns δ = 0 where it does not help. The paper's protocol
always adds δ, which can cost more than it gains.
- Another γ does not change this behind ResNet-110: of {len(swept)} fits by the paper's protocol
([study](neural-clamping-study.md)), with T refitted at δ, {lower or "none"} have a lower log-loss than temperature
scaling beyond noise, and {higher or "none"} a higher one; on average the accuracy changes by
{100 * mean(fit["accuracy"][0] for fit in swept):+.2f} points.
- Where the calibration samples are many compared with the training samples, training on them would gain more. δ is for
a network that can no longer be trained.
"""

    def cells(changes: Sequence[Sequence[float]]) -> tuple[str, str, str, str]:
        if not changes:
            return "", "", "", ""
        less, more = _beyond_noise(changes)
        return str(len(changes)), str(less), str(more), f"{mean(change[0] for change in changes):+.4f}"

    heads = [
        "network",
        *(f"{name}{column}" for name in ("", "paper's: ") for column in ("fits", "lower", "higher", "mean change")),
    ]
    table = plain_table(
        heads, [[f"[{kind.title}]({kind.page})", *cells(kind.library), *cells(kind.paper)] for kind in kinds]
    )
    note = """
Change of the log-loss of test samples from that of a temperature: of fits by the library, and of fits by the paper's
protocol with cross-entropy; lower and higher beyond noise.
"""

    def draw(ax: "Axes", theme: "Theme") -> None:
        for place, kind in enumerate(kinds):
            for changes, shift, colour, name in (
                (kind.library, -0.14, theme.ink, "the library's fit"),
                (kind.paper, 0.14, theme.over, "the paper's protocol"),
            ):
                at = [place + shift + 0.02 * (number - (len(changes) - 1) / 2) for number in range(len(changes))]
                for height, (value, low, high) in zip(at, changes, strict=True):
                    ax.plot([low, high], [height, height], color=colour, linewidth=0.8, alpha=0.5)
                    ax.plot(value, height, ".", color=colour, markersize=4)
                if place == 0:
                    ax.plot([], [], ".", color=colour, label=name)
        ax.axvline(0, color=theme.ink, linewidth=1)
        ax.set_xscale("symlog", linthresh=0.01)
        ax.set_xticks([-0.1, -0.01, 0, 0.01, 0.1], ["−.1", "−.01", "0", ".01", ".1"])
        ax.set_yticks(range(len(kinds)), [kind.title for kind in kinds])
        ax.invert_yaxis()
        ax.set_xlabel("Log-loss less a temperature's: lower is better", color=theme.muted)

    figure = "Change of the log-loss by δ, each fit with its interval, behind every network"
    return Section("delta", "Does an input perturbation help?", answer, (reading, note, table), figure, 4.4, (draw,))


def _shift() -> Section:
    shown: dict[str, dict[str, dict[int, float]]] = {}
    for record in _records("meta", about="shift"):
        cell = record["cell"]
        way = shown.setdefault(cell["map"], {}).setdefault(TITLES[cell["way"]], {})
        way[cell["severity"]] = 100 * record["numbers"]["ece"][0]
    none, calibrated = shown["none"], next(by_loss for name, by_loss in shown.items() if name != "none")
    severities = sorted(next(iter(calibrated.values())))
    clean, worst = (
        {way: by_severity[severity] for way, by_severity in calibrated.items()}
        for severity in (severities[0], severities[-1])
    )
    uncalibrated = {way: by_severity[severities[-1]] for way, by_severity in none.items()}
    natural = refinement_numbers(_records("refinement", data="cifar10"))
    errors = {
        loss: [
            natural[f"{data}.vgg16_bn.{method}.{row}.ece"].value
            for data in ("cifar10", "cinic10")
            for row in ("none", "TS")
        ]
        for method, loss in DARK.items()
    }
    lowered = [loss for loss, (_, _, before, after) in errors.items() if after < before]
    raised = [loss for loss in errors if loss not in lowered]
    raised_too = f", and raises that of {_named_plain(raised)}" if raised else ""
    heads = (
        "loss of VGG-16",
        "ECE on CIFAR-10, %",
        "after a temperature",
        "ECE on ImageNet's pictures",
        "after the same temperature",
    )
    table = plain_table(heads, [[loss, *(f"{value:.1f}" for value in values)] for loss, values in errors.items()])
    answer = (
        f"Nothing that was fitted on clean data: after temperature scaling, the ECE of {len(worst)} losses is "
        f"{_range(clean)} on clean images, and {_range(worst)} on the most corrupted ones."
    )
    reading = f"""
- On the most corrupted images ([study](meta-study.md)), the ECE after temperature scaling is lowest with
{_extreme(worst, min)} and highest with {_extreme(worst, max)}. Before it, the ECE is {_range(uncalibrated)}, lowest for
networks that are underconfident on clean images.
- Without corruptions, on ImageNet's pictures of CIFAR-10's classes ([study](refinement-study.md)), the temperature
fitted on CIFAR-10 lowers the ECE of {_named_plain(lowered)}{raised_too}.
- Collect labelled samples of the shifted kind, and run `calibrant evaluate` on them.
"""

    def draw(ax: "Axes", theme: "Theme") -> None:
        for way, by_severity in calibrated.items():
            name = {_name(worst, min): theme.under, _name(worst, max): theme.over, TITLES["ce"]: theme.ink}
            colour = name.get(way, theme.faint)
            errors = [by_severity[severity] for severity in severities]
            ax.plot(severities, errors, color=colour, label=way if way in name else None)
        ax.set_xlabel("Severity of the corruption", color=theme.muted)
        ax.set_ylabel("ECE after a temperature, %", color=theme.muted)
        ax.set_ylim(bottom=0)
        ax.set_xticks(severities)

    figure = "ECE after a temperature against the severity of corruptions"
    return Section("shift", "What survives shift?", answer, (reading, table), figure, 3.6, (draw,))


def _range(values: Mapping[str, float]) -> str:
    return f"{min(values.values()):.1f} to {max(values.values()):.1f} %"


def _name(values: Mapping[str, float], side: Callable[..., str]) -> str:
    return side(values, key=lambda name: values[name])


def _extreme(values: Mapping[str, float], side: Callable[..., str]) -> str:
    return f"{_name(values, side)} ({values[_name(values, side)]:.1f})"


def _named(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


def _named_plain(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1]))) if names else "none"


def _draw(path: Path, height: float, panels: Sequence[Draw]) -> None:
    from calibrant.plots.layout import SIZES, bare_axes, new_figure, theme_named

    theme = theme_named("light")
    figure = new_figure(theme, width=7.2 if len(panels) == 1 else 9.6, height=height)
    for place, draw in enumerate(panels, start=1):
        ax = figure.add_subplot(1, len(panels), place)
        bare_axes(ax, theme)
        draw(ax, theme)
    handles, names = figure.axes[0].get_legend_handles_labels()
    looks = {"frameon": False, "fontsize": SIZES["note"], "labelcolor": theme.ink}
    if handles and len(panels) > 1:
        figure.legend(handles, names, loc="outside upper center", ncols=len(names), **looks)
    elif handles:
        figure.axes[0].legend(**looks)
    save(figure, path)
