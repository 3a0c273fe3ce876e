"""What the fit of a clamped network says of itself: how λ was chosen, what to hold against the answer, its notes."""

import math

from calibrant.clamping import ClampingSummary

__all__ = ["cross_validated_words", "fit_notes", "has_weakest", "is_untried", "reservations"]

# How the fit itself says what cross-validation found. A report says it in its own words, beside the test rows, which
# may disagree.
_SAID = ("δ helps: ", "δ does not help here: ")
_UNTRIED = "δ was not tried"
_WEAKEST = "the weakest of the strengths tried is the best"
# What stands in notes that change how an answer is to be read, and what they come to.
_RESERVATIONS = {
    "δ is not quite at its optimum": "δ is not quite at its optimum",
    "the objective rose": "the objective rose during the fit",
    _WEAKEST: "the weakest of the strengths tried won, so a weaker one may do better",
    "no strength of": "weaker strengths could not be tried",
    "the network sees hardly any of its inputs": "δ is so large that the network hardly sees its inputs",
    "no better than guessing": "the predictions are no better than guessing",
}


def reservations(summary: ClampingSummary) -> list[str]:
    """What should be read in one breath with the answer, in a few words each."""
    return [words for said, words in _RESERVATIONS.items() if any(said in note for note in summary.notes)]


def has_weakest(summary: ClampingSummary) -> bool:
    """Whether the search ended at its edge, for no other reason than that it had one."""
    return any(note.startswith(_WEAKEST) for note in summary.notes)


def is_untried(summary: ClampingSummary) -> bool:
    """Whether δ is 0 because nothing could be found out about it."""
    return any(note.startswith(_UNTRIED) for note in summary.notes)


def cross_validated_words(summary: ClampingSummary) -> list[str]:
    """How the strength was chosen, where it was, and how much that number is worth."""
    if not summary.trials:
        return []
    best = min(summary.trials, key=lambda trial: trial.change)
    chosen = next((trial for trial in summary.trials if trial.strength == summary.strength), best)
    n, which = len(summary.trials), "best" if math.isinf(summary.strength) else "chosen"
    told = f"the {which} of {n} strengths" if n > 1 else "the one strength tried"
    told += f", λ = {chosen.strength:.3g} a row, changes the log-loss by {chosen.change:+.4f} ± "
    told += f"{chosen.standard_error:.4f} (standard error) against δ = 0"
    if n > 1:
        told += (
            f". That is optimistic, as it was picked from {n} on the same folds; the test rows are the honest figure"
        )
    return [f"Cross-validated on the calibration rows, {told}."]


def fit_notes(summary: ClampingSummary) -> list[str]:
    """Its notes, less what a report says in its own words."""
    return [note for note in summary.notes if not note.startswith(_SAID)]
