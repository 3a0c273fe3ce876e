"""One candidate of a diagnosis: its numbers over runs as cells, and the verdict on it in words."""

import math
from collections.abc import Mapping
from typing import NamedTuple

from calibrant.diagnosis import CandidateVerdict, Direction, Spread, TwoSample
from calibrant.diagnosis.over_seeds import RunSide
from calibrant.evidence import Difference, Side
from calibrant.report.page import Cell, counted, sentence

_LONGEST_NAME = 40  # characters of a baseline's name in sentences
_MOST_DIGITS = 5
# Unlike in a comparison, where ▲ is better, the marks are the paper's: higher and lower, and higher is worse.
_OVER_SEEDS: dict[RunSide, str] = {"higher": "▲", "lower": "▼", "alike": ""}
_SIDES: dict[Side, str] = {"better": "✓", "worse": "✗", "alike": ""}


class SeedCell(NamedTuple):
    """A number, and how it compares with the baseline's: over seeds alone, and with the noise of samples too."""

    spread: Spread
    test: TwoSample | None = None
    difference: Difference | None = None

    @property
    def side(self) -> Side:
        return "alike" if self.difference is None else self.difference.side

    def cell(self, text: str | None = None) -> Cell:
        """Return mean and deviation, or another text, with the marks of both tests."""
        marks = ("" if self.test is None else _OVER_SEEDS[self.test.side]) + _SIDES[self.side]
        return Cell(spread_text(self.spread) if text is None else text, self.side, marks)

    def mean(self) -> Cell:
        """Return the mean with the marks."""
        return self.cell("–" if math.isnan(self.spread.mean) else f"{self.spread.mean:.4f}")


def spread_text(spread: Spread, digits: int = 4) -> str:
    """Return mean ± standard deviation over the runs, and how many have the number, if not all.

    Example:
        >>> from calibrant.diagnosis import spread
        >>> spread_text(spread([0.1, 0.3])), spread_text(spread([0.1, math.nan]))
        ('0.2000 ± 0.1414', '0.1000 (1 of 2 runs)')
    """
    if math.isnan(spread.mean):
        return "–"
    text = f"{spread.mean:.{digits}f}"
    if not math.isnan(spread.std):
        text += f" ± {spread.std:.{digits}f}"
    known = sum(not math.isnan(value) for value in spread.values)
    return text if known == len(spread.values) else f"{text} ({known} of {len(spread.values)} runs)"


def short_text(value: float, digits: int = 3) -> str:
    """Return a share as sentences have it, ``.094``; a dash where there is none.

    Example:
        >>> short_text(0.0941), short_text(-0.5), short_text(1.25), short_text(-1e-9), short_text(math.nan)
        ('.094', '-.500', '1.250', '.000', '–')
    """
    if math.isnan(value):
        return "–"
    text = f"{round(value, digits) + 0.0:.{digits}f}"  # + 0.0, because there is no -.000
    return text.replace("0.", ".", 1) if text.lstrip("-").startswith("0.") else text


def signed_text(value: float, digits: int = 3) -> str:
    """Return a share with its sign."""
    text = short_text(value, digits)
    return text if math.isnan(value) or text.startswith("-") else f"+{text}"


def direction_text(direction: Direction) -> str:
    """Return mean confidence − accuracy with its interval and its side."""
    if math.isnan(direction.gap.mean):
        return "–"
    side = "" if direction.side == "neither" else f", {direction.side}"
    return f"{direction.gap.mean:+.4f} ({direction.low:+.4f} … {direction.high:+.4f}){side}"


def verdict_words(verdict: CandidateVerdict, candidate: str, baseline: str) -> str:
    """Return one sentence about a candidate against the baseline; a second if their accuracies differ.

    If both have a single run, the sentence says so: another seed may reverse it.
    """
    raw, scaled, auroc, accuracy = verdict.raw_ece, verdict.ece_after_temperature, verdict.auroc, verdict.accuracy
    numbers = {candidate: (auroc.candidate, accuracy.candidate), baseline: (auroc.baseline, accuracy.baseline)}
    undefined = _no_auroc(numbers)
    if raw.side == scaled.side == auroc.side == "alike":
        missing = "no number after temperature scaling, which could not be fitted"
        after = missing if _is_missing(scaled) else f"after temperature scaling {_pair(scaled, 3)}"
        parts = [f"raw ECE {_pair(raw, 3)}, {after}", undefined or f"AUROC {_pair(auroc, 2)}"]
        text = f"{candidate} and {baseline} do not differ clearly: {', '.join(parts)}."
    else:
        separation = f"; there is {undefined}" if undefined else _auroc_words(raw, scaled, auroc)
        text = f"{_ece_words(candidate, baseline, raw, scaled)}{separation}."
    text = sentence(text) if raw.covers_seeds else f"In single runs, {text}"
    if accuracy.side == "alike":
        return text
    return f"{text} Its accuracy is {'higher' if accuracy.side == 'better' else 'lower'}: {_pair(accuracy, 3)}."


def baseline_words(words: str) -> str:
    """Return what sentences call the baseline: a long name is written once, and not in every one."""
    return words if len(words) <= _LONGEST_NAME else "the baseline"


def basis_words(verdict: CandidateVerdict, samples: str) -> str:
    """Return the runs, test samples and kinds of noise behind a verdict."""
    runs, others, candidates = verdict.runs, verdict.baseline_runs, verdict.n_compared
    if runs == others == 1:
        basis = f"Single runs, on the same {samples}: the noise of samples is known, that of seeds is not."
    else:
        single = ", where a single run is assumed to vary as those of the other side do" * (1 in {runs, others})
        both = f"{counted(runs, 'run')} against {counted(others, 'run')}"
        basis = f"{both}, on the same {samples}: the noise of samples and of seeds{single}."
    return basis if candidates == 1 else f"{basis} Corrected for {candidates} comparisons at once (Holm)."


def _no_auroc(metrics: Mapping[str, tuple[float, float]]) -> str:
    """Return why there is no AUROC, from the AUROC and the accuracy of both; empty where both have one."""
    shares = {name: accuracy for name, (auroc, accuracy) in metrics.items() if math.isnan(auroc)}
    if not shares:
        return ""
    how = " or ".join(dict.fromkeys("right" if share > 0.5 else "wrong" for share in shares.values()))
    return f"no AUROC, because all predictions of {' and of '.join(shares)} are {how}"


def _ece_words(candidate: str, baseline: str, raw: Difference, scaled: Difference) -> str:
    """Return the ECE before and after temperature scaling."""
    if raw.side == "alike" and scaled.side == "alike" and not _is_missing(scaled):
        before, after = f"raw ({_pair(raw, 3)} for {baseline})", f"after temperature scaling ({_pair(scaled, 3)})"
        return f"{candidate} does not change ECE clearly, neither {before} nor {after}"
    if raw.side == "alike":
        text = f"{candidate} does not change raw ECE clearly ({_pair(raw, 3)} for {baseline})"
    else:
        value, other = _texts(raw, 3)
        text = f"{candidate} {'lowers' if raw.side == 'better' else 'raises'} raw ECE from {other} to {value}"
    if _is_missing(scaled):
        return f"{text}; temperature scaling could not be fitted"
    return f"{text}, {_after_temperature(raw, scaled)} for {baseline}"


def _after_temperature(raw: Difference, scaled: Difference) -> str:
    numbers = _pair(scaled, 3)
    if scaled.side == "alike":
        return f"but after temperature scaling the two do not differ clearly: {numbers}"
    word = "lower" if scaled.side == "better" else "higher"
    if raw.side == scaled.side:
        return f"and after temperature scaling it is still {word}: {numbers}"
    if raw.side == "alike":
        return f"but after temperature scaling it is {word}: {numbers}"
    return f"but after temperature scaling it is {numbers}"


def _auroc_words(raw: Difference, scaled: Difference, auroc: Difference) -> str:
    if auroc.side == "alike":
        return f", and it separates errors neither better nor worse: AUROC {_pair(auroc, 2)}"
    # The side of the last clause, unless that was that nothing differs.
    before = scaled.side if scaled.side != "alike" else raw.side if _is_missing(scaled) else "alike"
    same_way = before == auroc.side or (before == "alike" and raw.side != "alike")
    return f", {'and' if same_way else 'but'} it separates errors {auroc.side}: AUROC {_pair(auroc, 2)}"


def _is_missing(change: Difference) -> bool:
    return math.isnan(change.value)


def _pair(change: Difference, digits: int) -> str:
    value, other = _texts(change, digits)
    return f"{value} against {other}"


def _texts(change: Difference, digits: int) -> tuple[str, str]:
    """Return both numbers, with as many digits as it takes to distinguish them where they differ clearly."""
    most = digits if change.side == "alike" else _MOST_DIGITS
    texts = [(short_text(change.candidate, by), short_text(change.baseline, by)) for by in range(digits, most + 1)]
    return next((pair for pair in texts if pair[0] != pair[1]), texts[-1])
