"""Words for the effect of δ alone, separated from the temperature that was fitted jointly."""

import math

from calibrant.clamping import REFITTED, ClampingEvaluation
from calibrant.evidence import Difference
from calibrant.report.comparison import difference_words, points_words

__all__ = ["effect_headline", "effect_sentence"]


def effect_headline(found: ClampingEvaluation, without_delta: str, *, answer: str) -> str:
    """Whether δ helps, in a sentence.

    Args:
        found: The numbers, with an effect.
        without_delta: Name of the head without δ in a sentence.
        answer: What to use where δ does not help.
    """
    assert found.effect is not None, "the effect is known"
    change, n = found.effect["nll"], found.n_test
    after = f"{change.candidate:.4f}{' (T refitted)' if found.with_delta == REFITTED else ''}"
    on = f"{n:,} test row{'' if n == 1 else 's'}"
    moved = f"from {change.baseline:.4f} ({without_delta}) to {after} on {on}{_though(found.effect)}"
    if math.isnan(change.p):
        return f"Whether δ helps cannot be told, as the test rows show no spread: it takes the log-loss {moved}."
    if change.side == "better":
        return f"δ helps: it lowers the log-loss {moved}."
    if change.side == "worse":
        return f"δ does harm here: it raises the log-loss {moved}. The answer is {answer}."
    by = "by enough to matter" if change.is_beyond_noise else "beyond noise"
    return f"δ does not change the log-loss {by}, {moved}: the simpler answer is {answer}."


def effect_sentence(effect: dict[str, Difference], how: str) -> str:
    """The changes in log-loss, calibration error and accuracy, with their intervals.

    Args:
        effect: The differences by metric.
        how: The head of both, as in "with the best T both times".
    """
    parts = []
    for name, title in (("nll", "log-loss"), ("ece", "ECE"), ("accuracy", "accuracy")):
        change = effect[name]
        by = points_words(change) if name == "accuracy" else difference_words(change)
        doubt = ", too little to matter" if change.is_beyond_noise else ", noise"
        parts.append(f"{title} {by}{doubt if change.side == 'alike' else ''}")
    return f"δ by itself, {how}: {'; '.join(parts)}."


def _though(effect: dict[str, Difference]) -> str:
    """What goes the other way."""
    parts = []
    for name, title in (("accuracy", "accuracy"), ("ece", "ECE")):
        change = effect[name]
        if change.side not in {"alike", effect["nll"].side}:
            size = f"{100 * abs(change.value):.2f} points" if name == "accuracy" else f"{abs(change.value):.4f}"
            parts.append(f"{title} {'rises' if change.value > 0 else 'falls'} by {size}")
    return f", though {' and '.join(parts)}" if parts else ""
