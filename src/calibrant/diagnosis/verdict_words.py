"""The two-sided verdict in words: right for every combination of better, worse, alike and not to be had."""

import math
from collections.abc import Mapping

from calibrant.diagnosis.against import Against

__all__ = ["basis_words", "reference_words", "verdict_words"]

_MOST_DIGITS = 5
_LONGEST_NAME = 40  # of a reference that many sentences name


def verdict_words(
    candidate: str, reference: str, *, raw: Against, scaled: Against, auroc: Against, accuracy: Against
) -> str:
    """One sentence about a candidate against a reference; a second where their accuracies differ beyond noise.

    What rests on one run of each is said to: another seed may turn it round.

    Args:
        candidate: What it is called within a sentence.
        reference: The same of what it is held against.
        raw: ECE as they are.
        scaled: ECE after temperature scaling.
        auroc: As they are.
        accuracy: As they are.
    """
    no_auroc = _no_auroc({candidate: (auroc.value, accuracy.value), reference: (auroc.reference, accuracy.reference)})
    if raw.side == scaled.side == auroc.side == "alike":
        parts = [_all_alike(raw, scaled), no_auroc or f"AUROC {_pair(auroc, 2)}"]
        said = f"{candidate} and {reference} do not differ beyond noise: {', '.join(parts)}."
    else:
        separation = f"; there is {no_auroc}" if no_auroc else _auroc_words(raw, scaled, auroc)
        said = f"{_ece_words(candidate, reference, raw, scaled)}{separation}."
    said = said[0].upper() + said[1:] if raw.covers_seeds else f"In one run each, {said}"
    return said + _accuracy_words(accuracy)


def reference_words(words: str) -> str:
    """What sentences call the reference: a long name is told once, and not in every one.

    Example:
        >>> reference_words("cross-entropy")
        'cross-entropy'
    """
    return words if len(words) <= _LONGEST_NAME else "the reference"


def basis_words(runs: int, reference_runs: int, *, n: int, candidates: int) -> str:
    """What a verdict rests on.

    Example:
        >>> basis_words(1, 1, n=500, candidates=1)
        'One run each, on the same 500 test rows: the noise of rows is known, that of seeds is not.'
    """
    rows = f"on the same {n:,} test rows"
    if runs == reference_runs == 1:
        said = f"One run each, {rows}: the noise of rows is known, that of seeds is not."
    elif 1 in {runs, reference_runs}:
        said = (
            f"{_count(runs)} against {_count(reference_runs)}, {rows}: the noise of rows and of seeds, where a single "
            "run is taken to vary as those of the other side do."
        )
    else:
        said = f"{_count(runs)} against {_count(reference_runs)}, {rows}: the noise of rows and of seeds."
    return said if candidates == 1 else f"{said} Corrected for {candidates} comparisons at once (Holm)."


def _count(runs: int) -> str:
    return "1 run" if runs == 1 else f"{runs} runs"


def _all_alike(raw: Against, scaled: Against) -> str:
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


def _ece_words(candidate: str, reference: str, raw: Against, scaled: Against) -> str:
    """ECE as it is, and after temperature scaling."""
    if raw.side == "alike" and scaled.side == "alike" and not _is_missing(scaled):
        return (
            f"{candidate} does not change ECE beyond noise, neither raw ({_pair(raw, 3)} for {reference}) nor after "
            f"temperature scaling ({_pair(scaled, 3)})"
        )
    if raw.side == "alike":
        said = f"{candidate} does not change raw ECE beyond noise ({_pair(raw, 3)} for {reference})"
    else:
        value, other = _texts(raw, 3)
        said = f"{candidate} {'lowers' if raw.side == 'better' else 'raises'} raw ECE from {other} to {value}"
    if _is_missing(scaled):
        return f"{said}; temperature scaling could not be fitted"
    return f"{said}, {_after_temperature(raw, scaled)} for {reference}"


def _after_temperature(raw: Against, scaled: Against) -> str:
    numbers = _pair(scaled, 3)
    if scaled.side == "alike":
        return f"but after temperature scaling the two do not differ beyond noise: {numbers}"
    word = "lower" if scaled.side == "better" else "higher"
    if raw.side == scaled.side:
        return f"and after temperature scaling it is still {word}: {numbers}"
    if raw.side == "alike":
        return f"but after temperature scaling it is {word}: {numbers}"
    return f"but after temperature scaling it is {numbers}"


def _auroc_words(raw: Against, scaled: Against, auroc: Against) -> str:
    if auroc.side == "alike":
        return f", and it separates errors neither better nor worse: AUROC {_pair(auroc, 2)}"
    # What was said last, unless that was that nothing differs.
    before = scaled.side if scaled.side != "alike" else raw.side if _is_missing(scaled) else "alike"
    same_way = before == auroc.side or (before == "alike" and raw.side != "alike")
    return f", {'and' if same_way else 'but'} it separates errors {auroc.side}: AUROC {_pair(auroc, 2)}"


def _accuracy_words(accuracy: Against) -> str:
    if accuracy.side == "alike":
        return ""
    word = "higher" if accuracy.side == "better" else "lower"
    return f" Its accuracy is {word}: {_pair(accuracy, 3)}."


def _is_missing(found: Against) -> bool:
    return math.isnan(found.difference)


def _pair(found: Against, digits: int) -> str:
    value, other = _texts(found, digits)
    return f"{value} against {other}"


def _texts(found: Against, digits: int) -> tuple[str, str]:
    """Both numbers, with as many digits as it takes to tell them apart where they differ beyond noise."""
    texts = _text(found.value, digits), _text(found.reference, digits)
    while found.side != "alike" and texts[0] == texts[1] and digits < _MOST_DIGITS:
        digits += 1
        texts = _text(found.value, digits), _text(found.reference, digits)
    return texts


def _text(value: float, digits: int) -> str:
    """A share as people write it: .094."""
    return f"{value:.{digits}f}".removeprefix("0") if value < 1 else f"{value:.{digits}f}"
