"""Words for the verdict on a candidate, for every combination of better, worse, alike and unknown."""

import math
from collections.abc import Mapping

from calibrant.diagnosis import Verdict
from calibrant.evidence import Difference

__all__ = ["baseline_words", "basis_words", "verdict_words"]

_MOST_DIGITS = 5
_LONGEST_NAME = 40  # of a baseline that many sentences name


def verdict_words(verdict: Verdict, candidate: str, baseline: str) -> str:
    """One sentence about a candidate against the baseline; a second if their accuracies differ.

    If there is one run of each, the sentence says so: another seed may reverse it.

    Args:
        verdict: The differences.
        candidate: Name of the candidate within a sentence.
        baseline: Name of the baseline within a sentence.
    """
    raw, scaled, auroc, accuracy = (
        verdict.raw_ece,
        verdict.ece_after_temperature,
        verdict.auroc,
        verdict.accuracy,
    )
    no_auroc = _no_auroc(
        {candidate: (auroc.candidate, accuracy.candidate), baseline: (auroc.baseline, accuracy.baseline)}
    )
    if raw.side == scaled.side == auroc.side == "alike":
        parts = [_all_alike(raw, scaled), no_auroc or f"AUROC {_pair(auroc, 2)}"]
        said = f"{candidate} and {baseline} do not differ appreciably: {', '.join(parts)}."
    else:
        separation = f"; there is {no_auroc}" if no_auroc else _auroc_words(raw, scaled, auroc)
        said = f"{_ece_words(candidate, baseline, raw, scaled)}{separation}."
    said = said[0].upper() + said[1:] if raw.covers_seeds else f"In one run each, {said}"
    return said + _accuracy_words(accuracy)


def baseline_words(words: str) -> str:
    """What sentences call the baseline: a long name is told once, and not in every one.

    Example:
        >>> baseline_words("cross-entropy")
        'cross-entropy'
    """
    return words if len(words) <= _LONGEST_NAME else "the baseline"


def basis_words(verdict: Verdict, n: int) -> str:
    """The runs, test samples and kinds of noise behind a verdict.

    Args:
        verdict: The verdict.
        n: Number of test samples.
    """
    runs, baseline_runs, candidates = verdict.runs, verdict.baseline_runs, verdict.n_compared
    rows = f"on the same {n:,} test rows"
    if runs == baseline_runs == 1:
        said = f"One run each, {rows}: the noise of rows is known, that of seeds is not."
    elif 1 in {runs, baseline_runs}:
        said = (
            f"{_count(runs)} against {_count(baseline_runs)}, {rows}: the noise of rows and of seeds, where a single "
            "run is taken to vary as those of the other side do."
        )
    else:
        said = f"{_count(runs)} against {_count(baseline_runs)}, {rows}: the noise of rows and of seeds."
    return said if candidates == 1 else f"{said} Corrected for {candidates} comparisons at once (Holm)."


def _count(runs: int) -> str:
    return "1 run" if runs == 1 else f"{runs} runs"


def _all_alike(raw: Difference, scaled: Difference) -> str:
    after = "no number after temperature scaling, which could not be fitted" if _is_missing(scaled) else (
        f"after temperature scaling {_pair(scaled, 3)}"
    )  # fmt: skip
    return f"raw ECE {_pair(raw, 3)}, {after}"


def _no_auroc(found: Mapping[str, tuple[float, float]]) -> str:
    """Why there is none, from the AUROC and the accuracy of both; empty where both have one."""
    shares = {name: accuracy for name, (auroc, accuracy) in found.items() if math.isnan(auroc)}
    if not shares:
        return ""
    how = " or ".join(dict.fromkeys("right" if share > 0.5 else "wrong" for share in shares.values()))
    return f"no AUROC, because all answers of {' and of '.join(shares)} are {how}"


def _ece_words(candidate: str, baseline: str, raw: Difference, scaled: Difference) -> str:
    """ECE as it is, and after temperature scaling."""
    if raw.side == "alike" and scaled.side == "alike" and not _is_missing(scaled):
        return (
            f"{candidate} does not change ECE appreciably, neither raw ({_pair(raw, 3)} for {baseline}) nor after "
            f"temperature scaling ({_pair(scaled, 3)})"
        )
    if raw.side == "alike":
        said = f"{candidate} does not change raw ECE appreciably ({_pair(raw, 3)} for {baseline})"
    else:
        value, other = _texts(raw, 3)
        said = f"{candidate} {'lowers' if raw.side == 'better' else 'raises'} raw ECE from {other} to {value}"
    if _is_missing(scaled):
        return f"{said}; temperature scaling could not be fitted"
    return f"{said}, {_after_temperature(raw, scaled)} for {baseline}"


def _after_temperature(raw: Difference, scaled: Difference) -> str:
    numbers = _pair(scaled, 3)
    if scaled.side == "alike":
        return f"but after temperature scaling the two do not differ appreciably: {numbers}"
    word = "lower" if scaled.side == "better" else "higher"
    if raw.side == scaled.side:
        return f"and after temperature scaling it is still {word}: {numbers}"
    if raw.side == "alike":
        return f"but after temperature scaling it is {word}: {numbers}"
    return f"but after temperature scaling it is {numbers}"


def _auroc_words(raw: Difference, scaled: Difference, auroc: Difference) -> str:
    if auroc.side == "alike":
        return f", and it separates errors neither better nor worse: AUROC {_pair(auroc, 2)}"
    # What was said last, unless that was that nothing differs.
    before = scaled.side if scaled.side != "alike" else raw.side if _is_missing(scaled) else "alike"
    same_way = before == auroc.side or (before == "alike" and raw.side != "alike")
    return f", {'and' if same_way else 'but'} it separates errors {auroc.side}: AUROC {_pair(auroc, 2)}"


def _accuracy_words(accuracy: Difference) -> str:
    if accuracy.side == "alike":
        return ""
    word = "higher" if accuracy.side == "better" else "lower"
    return f" Its accuracy is {word}: {_pair(accuracy, 3)}."


def _is_missing(found: Difference) -> bool:
    return math.isnan(found.value)


def _pair(found: Difference, digits: int) -> str:
    value, other = _texts(found, digits)
    return f"{value} against {other}"


def _texts(found: Difference, digits: int) -> tuple[str, str]:
    """Both numbers, with as many digits as it takes to tell them apart where they differ appreciably."""
    texts = _text(found.candidate, digits), _text(found.baseline, digits)
    while found.side != "alike" and texts[0] == texts[1] and digits < _MOST_DIGITS:
        digits += 1
        texts = _text(found.candidate, digits), _text(found.baseline, digits)
    return texts


def _text(value: float, digits: int) -> str:
    """A share as people write it: .094."""
    return f"{value:.{digits}f}".removeprefix("0") if value < 1 else f"{value:.{digits}f}"
