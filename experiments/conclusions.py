"""``docs/results.md``: what the studies say to someone who has a network to calibrate, from their records alone.

Every sentence has its numbers from records, and says what they say: where they turn, the sentence turns.
"""

from collections.abc import Callable, Mapping, Sequence
from math import isnan
from pathlib import Path
from statistics import mean
from textwrap import fill
from typing import TYPE_CHECKING, Any, TypeAlias

from experiments.meta.page import TITLES
from experiments.meta_regularization.results import lower_than_focal, numbers_of
from experiments.overconfidence.pools import pools_of, title_of
from experiments.overconfidence.results import groups_of
from experiments.overconfidence.results import numbers_of as overconfidence_numbers
from experiments.page import joined, save
from experiments.records import Record, Records
from experiments.refinement.results import numbers_of as refinement_numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from calibrant.plots.layout import Theme

__all__ = ["PAGE", "page_of_results"]

_FOLDER = Path(__file__).parent
PAGE = _FOLDER.parent / "docs" / "results.md"
CURVES = ("svs", "sms", "temperature", "isotonic", "histogram", "platt")  # of the figure of sizes
Draw: TypeAlias = "Callable[[Axes, Theme], None]"


def page_of_results(*, images: Path | None) -> str:
    """Return the page, and draw its five figures where a folder is given.

    Args:
        images: Folder of the figures; None draws none.
    """
    introduction = """
# What to conclude

<!-- Written by `python -m experiments results` from the records of the studies. -->

Networks on CIFAR-100, where nothing else is said; ECE in 15 bins. Each section links its study, which has the
intervals, the settings and the seeds.
"""
    parts = [introduction]
    for section in (_losses, _maps, _sizes, _delta, _shift):
        name, text, figure = section()
        title, _, paragraph = text.strip().partition("\n")
        wrapped = fill(" ".join(paragraph.split()), 120, break_long_words=False, break_on_hyphens=False)
        parts.append(f"{title}\n\n{wrapped}\n\n![{figure[0]}](images/results-{name}.png)")
        if images is not None:
            _draw(images / f"results-{name}.png", *figure[1:])
    return joined(parts)


Figure: TypeAlias = tuple[str, float, Draw]  # what it shows, its height, and how it is drawn
Section: TypeAlias = tuple[str, str, Figure]


def _records(study: str, **settings: object) -> list[Record]:
    """Return the records of a study whose cells have these settings."""
    return [
        record
        for record in Records(_FOLDER / study / "records.jsonl").read()
        if "numbers" in record and all(record["cell"].get(name) == value for name, value in settings.items())
    ]


def _losses() -> Section:
    ways: dict[str, list[dict[str, Any]]] = {}
    for record in _records("meta", about="run"):
        ways.setdefault(record["cell"]["way"], []).append(record["numbers"])
    before, after, auroc = (
        {TITLES[way]: 100 * mean(run[row][metric] for run in runs) for way, runs in ways.items()}
        for row, metric in (("none", "ece"), ("ts", "ece"), ("none", "auroc"))
    )
    plain = TITLES["ce"]
    trained_long = _records("meta_regularization", data="cifar100")
    long, is_lower = numbers_of(trained_long), lower_than_focal(trained_long, constant_rate=False)
    steps = [
        f"{name} from {uncalibrated:.1f} to {calibrated:.1f}"
        for method, name in (("CE", "cross-entropy"), ("Focal", "focal loss"), ("LS (0.05)", "label smoothing"))
        for uncalibrated, calibrated in [[long[f"cifar100.{method}.best.{row}.ece"].value for row in ("none", "TS")]]
    ]
    over = overconfidence_numbers(_records("overconfidence"))
    by_temperature = _by_temperature(over, "cifar100", ("CE", "LS (0.09)", "Focal (5)", "L1 (0.01)"))
    on_ten_classes = _by_temperature(over, "cifar10", ("CE", "LS (0.05)", "Focal (3)", "L1 (0.05)"))
    both = refinement_numbers(_records("refinement"))
    costs = [
        f"{name} changes ECE by {ece.value:+.1f}, AUROC by {auc.value:+.1f} points ({auc.low:+.1f} … {auc.high:+.1f})"
        for name, key in (("label smoothing", "LS - Baseline.none"), ("one temperature", "Baseline.TS - none"))
        for ece, auc in [[both[f"cifar100.vgg16_bn.{key}.{metric}"] for metric in ("ece", "auroc")]]
    ]
    better = [way for way in after if after[way] < after[plain]]
    text = f"""
## Which loss

The loss decides the calibration error before calibration more than that after it: trained in {len(ways)} ways
([study](meta-study.md)), networks have an ECE of {_range(before)} uncalibrated, and of {_range(after)} after one
temperature. Cross-entropy goes from {before[plain]:.1f} to {after[plain]:.1f}; {len(better)} of the other
{len(ways) - 1} end lower, the lowest {_extreme(after, min)}. On ResNet-32 ([study](overconfidence-study.md)) one
temperature takes {by_temperature}. On CIFAR-10 it takes {on_ten_classes}. {_by_coefficient(over)}
What tells right from wrong, AUROC, is {auroc[plain]:.1f} for cross-entropy, lowest for {_extreme(auroc, min)} and
highest for {_extreme(auroc, max)}.
After 350 epochs instead of 40 ([study](meta-regularization-study.md)) one temperature takes {", ".join(steps)}; a γ of
focal loss that is learned for each sample has a lower ECE than γ = 1 in {sum(is_lower)} of {len(is_lower)} pairs of
networks. Look at both: on VGG-16 ([study](refinement-study.md)) {"; ".join(costs)}. So choose the loss by accuracy and
log-loss, calibrate afterwards, and evaluate what is left.
"""

    def draw(ax: "Axes", theme: "Theme") -> None:
        order = sorted(before, key=lambda way: before[way])
        for place, way in enumerate(order):
            ax.plot([after[way], before[way]], [place, place], color=theme.faint, linewidth=2, zorder=1)
        ax.scatter([before[way] for way in order], range(len(order)), color=theme.over, label="uncalibrated", zorder=2)
        ax.scatter(
            [after[way] for way in order], range(len(order)), color=theme.under, label="after a temperature", zorder=2
        )
        ax.set_yticks(range(len(order)), order)
        ax.set_xlabel("ECE, %", color=theme.muted)

    return "losses", text, ("ECE before and after a temperature, by loss", 4.4, draw)


def _by_temperature(numbers: Mapping[str, Any], data: str, methods: Sequence[str]) -> str:
    """Return in words what one temperature makes of the ECE of cross-entropy and three other losses."""
    names = ("cross-entropy", "label smoothing", "focal loss", "an L1 norm")
    errors = {
        name: [round(numbers[f"{data}.{method}.{row}.ece"].value, 1) for row in ("none", "TS")]
        for name, method in zip(names, methods, strict=True)
    }
    ends = [f"{name} from {before} to {after}" for name, (before, after) in errors.items()]
    lowest = [min(pair[row] for pair in errors.values()) for row in (0, 1)]
    first, last = (" and ".join(n for n, pair in errors.items() if pair[row] == lowest[row]) for row in (0, 1))
    return f"{', '.join(ends)}; lowest is {first} before, {last} after"


def _by_coefficient(numbers: Mapping[str, Any]) -> str:
    """Say what log-loss and what ECE make of the coefficients of three losses."""
    log_losses = {
        (pool.data, method): [numbers[f"{pool.data}.{each}.TS.nll"].value for each in (method, "CE")]
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
        f"Of {len(log_losses)} coefficients of these losses ({where}) {lower or 'none'} have a lower log-loss than "
        f"cross-entropy after one temperature. The lowest ECE before it on CIFAR-100, {ece:.1f} with {best}, is that "
        f"of a network with an accuracy of {accuracy:.1f} %; cross-entropy has {plain:.1f} %."
    )


def _maps() -> Section:
    against: dict[str, list[list[float]]] = {}
    for record in _records("posthoc", kind="board"):
        if found := record["numbers"]["against"].get("temperature"):
            against.setdefault(record["cell"]["method"], []).append(found["nll"])
    against.pop("temperature", None)
    seeds = max(len(each) for each in against.values())
    gains = {method: mean(each[0] for each in found) for method, found in against.items() if len(found) == seeds}
    wins = [method for method in gains if all(high < 0 for _, _, high, _ in against[method])]
    losses = [method for method in gains if all(low > 0 for _, low, _, _ in against[method])]
    best = sorted(gains, key=lambda method: gains[method])
    winners = _named([method for method in best if method in wins])
    text = f"""
## Which map

A temperature is hard to beat: of {len(gains)} other methods on one network ([study](comparison.md), {seeds} splits)
{len(wins)} have a lower log-loss on every split beyond noise ({winners}), and {len(losses)} a higher one. The best
mean is that of `{best[0]}`, {gains[best[0]]:+.4f} against a temperature, then `{best[1]}`, {gains[best[1]]:+.4f}.
Take a temperature, or `auto`, which chooses among a dozen methods by cross-validated log-loss.
"""

    def draw(ax: "Axes", theme: "Theme") -> None:
        shown = [method for method in best if gains[method] < 0.06][::-1]
        colours = [theme.under if gains[method] < 0 else theme.over for method in shown]
        ax.barh(range(len(shown)), [gains[method] for method in shown], color=colours, height=0.7)
        ax.set_yticks(range(len(shown)), shown)
        ax.axvline(0, color=theme.ink, linewidth=1)
        ax.set_xlabel("Log-loss less a temperature's (above +0.06: not shown)", color=theme.muted)

    return "maps", text, ("Log-loss of each method less that of a temperature", 5.0, draw)


def _sizes() -> Section:
    gains: dict[str, dict[int, list[float]]] = {}
    for record in _records("posthoc", kind="size"):
        gain = record["numbers"].get("gain")
        if gain is not None and not isnan(gain):
            gains.setdefault(record["cell"]["method"], {}).setdefault(record["cell"]["size"], []).append(gain)
    sizes = sorted({size for found in gains.values() for size in found})
    curves = {method: {size: mean(found[size]) for size in found} for method, found in gains.items()}
    few, many = sizes[0], sizes[-1]
    harm = [method for method in curves if curves[method].get(few, 0.0) < 0]
    ahead = all(curves["svs"][size] >= curves["temperature"][size] for size in sizes)
    svs = "never behind it" if ahead else "at times behind it"
    reach = [size for size in sizes if curves["sms"][size] >= curves["temperature"][size]]
    passed = f"{reach[0]:,}" if reach else "none of these numbers of"
    share = curves["temperature"][few] / curves["temperature"][many]
    text = f"""
## How many samples

A temperature has with {few:,} samples {share:.0%} of what it gains with {many:,} ([study](comparison.md)), and `svs`
is {svs}. `sms` passes it at {passed} samples. With {few:,} samples {len(harm)} of {len(curves)} methods are worse
than no calibration ({_named(sorted(harm))}).
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

    return "sizes", text, ("Log-loss gained by each method against the number of samples", 3.8, draw)


def _delta() -> Section:
    records = [
        each["numbers"]["differences"]["TS on δ* - TS"] for each in _records("neural_clamping", method="clamping")
    ]
    changes = {metric: [each[metric][:3] for each in records] for metric in ("nll", "accuracy", "ece")}
    worse, better = sum(low > 0 for _, low, _ in changes["nll"]), sum(high < 0 for _, _, high in changes["nll"])
    nll, accuracy = (mean(each[0] for each in changes[metric]) for metric in ("nll", "accuracy"))
    accuracy, verdict = 100 * accuracy, "Seldom" if better else "Not on such a network"
    lower_ece = sum(high < 0 for _, _, high in changes["ece"])
    text = f"""
## When δ helps

{verdict}: of {len(records)} fits of Neural Clamping's δ to 5,000 images and one ResNet-110
([study](neural-clamping-study.md)), with T refitted at δ,
{worse} have a higher log-loss than a temperature alone beyond the noise of the test images, and
{better} a lower one; the mean change is {nll:+.4f}, that of accuracy {accuracy:+.2f} points. The ECE is lower beyond
noise in {lower_ece}. The library's own solver tests δ on held-out samples and returns δ = 0 where it does not help
([where it does](clamping-study.md)).
"""

    def draw(ax: "Axes", theme: "Theme") -> None:
        order = sorted(changes["nll"])
        for place, (value, low, high) in enumerate(order):
            ax.plot([place, place], [low, high], color=theme.over if low > 0 else theme.muted, linewidth=1.2)
            ax.plot(place, value, ".", color=theme.ink, markersize=4)
        ax.axhline(0, color=theme.ink, linewidth=1)
        ax.set_xticks([])
        ax.set_xlabel("Fits, by their change", color=theme.muted)
        ax.set_ylabel("Log-loss less a temperature's", color=theme.muted)

    return "delta", text, ("Change of the log-loss by δ, each fit with its interval", 3.4, draw)


def _shift() -> Section:
    shown: dict[str, dict[str, dict[int, float]]] = {}
    for record in _records("meta", about="shift"):
        cell = record["cell"]
        way = shown.setdefault(cell["map"], {}).setdefault(TITLES[cell["way"]], {})
        way[cell["severity"]] = 100 * record["numbers"]["ece"][0]
    none, calibrated = shown["none"], next(found for name, found in shown.items() if name != "none")
    severities = sorted(next(iter(calibrated.values())))
    clean, worst = (
        {way: found[severity] for way, found in calibrated.items()} for severity in (severities[0], severities[-1])
    )
    uncalibrated = {way: found[severities[-1]] for way, found in none.items()}
    natural = refinement_numbers(_records("refinement", data="cifar10"))
    clean_ce, other_ce, other_focal = (
        " to ".join(f"{natural[f'{place}.{row}.ece'].value:.1f}" for row in ("none", "TS"))
        for place in ("cifar10.vgg16_bn.Baseline", "cinic10.vgg16_bn.Baseline", "cinic10.vgg16_bn.FL")
    )
    text = f"""
## What survives shift

Nothing that was fitted on clean images: after a temperature the ECE of {len(worst)} ways to train is {_range(clean)}
on clean images and {_range(worst)} on the most corrupted ([study](meta-study.md)); the lowest there is
{_extreme(worst, min)}, the highest {_extreme(worst, max)}. Uncalibrated it is {_range(uncalibrated)}, lowest where a
network is underconfident on clean images. The same without corruptions: a temperature from CIFAR-10 takes VGG-16's
cross-entropy from an ECE of {clean_ce} there, and from {other_ce} on ImageNet's pictures of the same classes; focal
loss goes from {other_focal} on these ([study](refinement-study.md)). Collect labelled samples of the shifted kind, and
`calibrant evaluate` them.
"""

    def draw(ax: "Axes", theme: "Theme") -> None:
        for way, found in calibrated.items():
            name = {_name(worst, min): theme.under, _name(worst, max): theme.over, TITLES["ce"]: theme.ink}
            colour = name.get(way, theme.faint)
            ax.plot(severities, [found[each] for each in severities], color=colour, label=way if way in name else None)
        ax.set_xlabel("Severity of the corruption", color=theme.muted)
        ax.set_ylabel("ECE after a temperature, %", color=theme.muted)
        ax.set_ylim(bottom=0)
        ax.set_xticks(severities)

    return "shift", text, ("ECE after a temperature against the severity of corruptions", 3.6, draw)


def _range(values: Mapping[str, float]) -> str:
    return f"{min(values.values()):.1f} to {max(values.values()):.1f} %"


def _name(values: Mapping[str, float], side: Callable[..., str]) -> str:
    return side(values, key=lambda each: values[each])


def _extreme(values: Mapping[str, float], side: Callable[..., str]) -> str:
    return f"{_name(values, side)} ({values[_name(values, side)]:.1f})"


def _named(names: Sequence[str]) -> str:
    return ", ".join(f"`{each}`" for each in names) or "none"


def _draw(path: Path, height: float, draw: Draw) -> None:
    from calibrant.plots.layout import SIZES, bare_axes, new_figure, theme_named

    theme = theme_named("light")
    figure = new_figure(theme, width=7.2, height=height)
    ax = figure.add_subplot()
    bare_axes(ax, theme)
    draw(ax, theme)
    if ax.get_legend_handles_labels()[0]:
        ax.legend(frameon=False, fontsize=SIZES["note"], labelcolor=theme.ink)
    save(figure, path)
