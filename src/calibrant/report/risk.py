"""The words and tables of a risk, the probability of the positive class of two, and of decisions taken by it."""

import math
from collections.abc import Mapping, Sequence

from calibrant.comparison import UNCALIBRATED
from calibrant.evaluation import Evaluation, is_beyond_noise
from calibrant.evidence import Estimate, NetBenefit, Risk
from calibrant.report import page
from calibrant.report.page import Row, Section, code, number_text, table
from calibrant.text import joined, percent, without_middle

_SIZES = ((0.01, "very slightly"), (0.03, "slightly"), (0.07, "clearly"), (0.15, "strongly"))
_SEPARATION = (  # from an AUROC, up to the next
    (0.4, "hardly separates {}"),
    (0.6, "separates {} poorly"),
    (0.7, "separates {} fairly well"),
    (0.8, "separates {} well"),
    (0.9, "separates {} very well"),
)
_REACH = 0.1  # of an interval beyond the range of its words, as wide as most of the ranges
_LEAST = 1e-8  # a number below is shown as 0

HEADER = ("value", "95 % interval", "noise floor", "p")


def size_of(error: float) -> str:
    """Return an adverb for the size of a calibration error."""
    return next((word for bound, word in _SIZES if error < bound), "severely").capitalize()


def share_text(share: float) -> str:
    """Return a share in percent with one decimal, or two digits where it is small.

    Example:
        >>> share_text(0.1234), share_text(0.003), share_text(0.0)
        ('12.3 %', '0.30 %', '0 %')
    """
    if share >= 0.01:
        return percent(share)
    return f"{100 * share:.{places_of(100 * share, 1)}f} %" if share else "0 %"


def shares_text(one: Estimate, joined: str) -> str:
    """Return both bounds of a share in percent."""
    return f"{share_text(one.low).removesuffix(' %')} {joined} {share_text(one.high)}"


def places_of(value: float, least: int) -> int:
    """Return the number of decimals that show two digits of a number, or at least so many.

    Example:
        >>> places_of(0.125, 3), places_of(0.00067, 3), places_of(0.0, 3)
        (3, 5, 3)
    """
    return max(least, 1 - math.floor(math.log10(abs(value)))) if abs(value) >= _LEAST else least


def error_text(error: float) -> str:
    """Return a calibration error with three decimals, or two digits where it is small.

    Example:
        >>> error_text(0.1304), error_text(0.0000667)
        ('0.130', '0.000067')
    """
    return f"{error:.{places_of(error, 3)}f}"


def separates(auroc: Estimate, subject: str, what: str) -> str:
    """Return how well something separates what, or that the samples cannot say it.

    The words are those of the value, where the interval supports them: neither end is further outside of their range
    than that of the next words is wide. The range around guessing is 0.4 to 0.6.

    Example:
        >>> separates(Estimate(0.85, 0.82, 0.88), "it", "spam from the rest")
        'it separates spam from the rest well'
        >>> separates(Estimate(0.85, 0.30, 0.99), "it", "spam from the rest")
        'these samples cannot say how well it separates spam from the rest'
    """
    if auroc.high < 0.5:
        return f"{subject} separates {what} in the wrong order"
    place = max(0, sum(auroc.value >= start for start, _ in _SEPARATION) - 1)
    start, words = _SEPARATION[place]
    end = _SEPARATION[place + 1][0] if place + 1 < len(_SEPARATION) else math.inf
    if auroc.low >= start - _REACH and auroc.high < end + _REACH:
        return f"{subject} {words.format(what)}"
    return f"these samples cannot say how well {subject} separates {what}"


def class_name(label: int, name: str | None, longest: int = 40) -> str:
    """Return a class as a sentence names it."""
    return f"“{without_middle(name, longest)}”" if name else f"class {label}"


def risk_headline(evaluation: Evaluation, risk: Risk) -> str:
    """Return whether the probability of the positive class is right, and if not, in which direction it is off."""
    of, error = class_name(1, evaluation.positive), risk.ece.value
    predicted, observed = share_text(risk.predicted.value), share_text(risk.observed.value)
    claim = f"the probability of {of} is {predicted} on average, and {observed} of samples are {of}"
    if not is_beyond_noise(evaluation.metrics):
        return f"No miscalibration beyond noise: {claim}."
    size, gap = size_of(error / evaluation.scale), risk.difference.value
    if abs(gap) >= error / 2:
        return f"{size} too {'high' if gap > 0 else 'low'}: {claim}."
    slope = None if evaluation.line is None else evaluation.line.slope
    if slope is not None and slope.high < 1:
        return f"{size} too extreme, too high where it is high and too low where it is low: {claim}."
    if slope is not None and slope.low > 1:
        return f"{size} too moderate, too low where it is high and too high where it is low: {claim}."
    return f"{size} miscalibrated, too high in some places and too low in others: {claim}."


def highest_words(risk: Risk) -> str:
    """Return what is predicted and what happens where the risk is highest."""
    one = risk.highest
    observed = f"{share_text(one.observed.value)} are ({shares_text(one.observed, 'to')})."
    share = percent(one.share, 0) if one.share >= 0.05 else share_text(one.share)
    if one.low == 1:
        return f"Of the {share} of samples whose probability of being positive is 100 %, {observed}"
    return (
        f"Of the {share} of samples with the highest probability, {share_text(one.low)} or more, "
        f"{share_text(one.predicted)} are predicted to be positive and {observed}"
    )


def separation_words(evaluation: Evaluation, risk: Risk) -> str:
    """Return how well the risk separates the two classes."""
    of, auroc = class_name(1, evaluation.positive), risk.auroc
    if math.isnan(auroc.value):
        which = "Every" if risk.observed.value == 1 else "No"
        return f"{which} sample is {of}, so how well the probability separates the classes is undefined."
    interval = "" if math.isnan(auroc.low) else f"{auroc.low:.3f} to {auroc.high:.3f}; "
    words = page.sentence(separates(auroc, "it", f"{of} from the rest"))
    words = f"{words}: AUROC {auroc.value:.3f} ({interval}guessing is 0.5)."
    if auroc.high < 0.5:
        words += " If it is the probability of the other class, say so by --positive-class or --positive."
    return words


def risk_section(evaluation: Evaluation, risk: Risk) -> Section:
    """Return the numbers of the risk."""
    line = evaluation.line
    shown = {
        "Mean probability": risk.predicted,
        "Share of samples": risk.observed,
        "Predicted − observed": risk.difference,
        "Observed / predicted": risk.ratio,
        "Calibration slope": None if line is None else line.slope,
        "Calibration in the large": None if line is None else line.in_the_large,
        "Calibration error ↓": risk.ece,
        "AUROC of the class ↑": risk.auroc,
        "Share, highest tenth": risk.highest.observed,
    }
    rows = [[title, *estimate_cells(one)] for title, one in shown.items() if one is not None]
    title = f"Probability of {class_name(1, evaluation.positive)}"
    return Section(title, (table(["", *HEADER], rows),))


def estimate_cells(one: Estimate) -> list[str]:
    """Return the cells of an estimate below :data:`HEADER`."""
    floor = "" if one.floor is None else number_text(one.floor)
    return [number_text(one.value), page.interval_text(one), floor, page.p_text(one.p)]


def tenths_section(evaluation: Evaluation, risk: Risk) -> Section:
    """Return predicted and observed shares in tenths of the samples, the highest risks first."""
    rows = [
        [
            f"{share_text(one.low)} … {share_text(one.high)}", share_text(one.share), share_text(one.predicted),
            share_text(one.observed.value), shares_text(one.observed, "…"),
        ]
        for one in reversed(risk.tenths)
    ]  # fmt: skip
    header = ["probability", "samples", "predicted", "observed", "95 % interval"]
    title = f"Probability of {class_name(1, evaluation.positive)}, by tenths of the samples"
    return Section(title, (table(header, rows),))


def decision_sections(decisions: Mapping[str, Sequence[NetBenefit]], positive: str) -> list[Section]:
    """Return the net benefit of acting at thresholds, of one model (with an empty name) or of methods by name."""
    if not all(decisions.values()):
        return []
    has_names = list(decisions) != [""]
    benefits, shares = list[Row](), list[Row]()
    for points in zip(*decisions.values(), strict=True):
        for name, one in zip(decisions, points, strict=True):
            asked = [f"≥ {100 * one.threshold:g} %", *([code(name)] if has_names else [])]
            second = one.to_treat_all if not has_names else None if name == UNCALIBRATED else one.to_baseline
            gains = (one.net_benefit, second)
            benefits.append([*asked, *("–" if gain is None else _in_hundredths(gain, 2, "+z") for gain in gains)])
            shares.append([*asked, *map(_share, (one.treated, one.sensitivity, one.precision))])
    names, compared = (["method"], "− uncalibrated") if has_names else ([], "− act on all")
    text = (1,) if has_names else ()
    tables = (
        table(["act if", *names, "net benefit", compared], benefits, text=text),
        table(["act if", *names, "act on, %", "find, %", "right, %"], shares, text=text),
    )
    legend = (
        f"Acting on every sample with at least this probability of {positive}, where a missed one costs as much as "
        "(1 − t)/t needless acts at threshold t: 9 at 10 %, 1 at 50 %. Net benefit: true positives per 100 samples, "
        "less the needless acts by that exchange; to act on none is 0. In brackets: 95 % intervals. Act on: share of "
        f"samples; find: share of {positive} among which is acted; right: share of {positive} among those acted on."
    )
    return [Section("Decisions", tables, legend=legend)]


def _share(one: Estimate) -> str:
    return "–" if math.isnan(one.value) else _in_hundredths(one, 1)


def _in_hundredths(one: Estimate, least: int, sign: str = "") -> str:
    """Return a number times 100 with its interval, all with the decimals that show two digits of the largest."""
    numbers = [100 * number for number in (one.value, one.low, one.high) if not math.isnan(number)]
    form = f"{sign}.{places_of(max(map(abs, numbers)), least)}f"
    value, *bounds = (f"{number:{form}}" for number in numbers)
    return f"{value} ({bounds[0]} … {bounds[1]})" if bounds else value


def decision_words(decisions: Sequence[NetBenefit], positive: str) -> list[str]:
    """Return at which of the thresholds acting by the risk is better than acting on all and on none."""
    useful, others = (
        joined([f"{100 * one.threshold:g} %" for one in decisions if one.is_useful is kind], "or")
        for kind in (True, False)
    )
    start = f"Acting from a probability of {positive} of"
    return [
        *([f"{start} {useful} is better than acting on all samples, and than on none."] if useful else []),
        *([f"{start} {others} is not clearly better than both acting on all samples and on none."] if others else []),
    ]
