"""Words for the fit of a clamped network: how the strength was chosen, caveats of the answer, notes."""

import math

from calibrant.clamping import ClampingOutcome, ClampingSummary
from calibrant.errors import Caveat

__all__ = ["cross_validated_words", "fit_notes", "reservations"]

_RESERVATIONS = {
    Caveat.not_at_optimum: "δ is not quite at its optimum",
    Caveat.objective_rose: "the objective rose during the fit",
    Caveat.weakest_strength: "the weakest of the strengths tried won, so a weaker one may do better",
    Caveat.path_cut_short: "weaker strengths could not be tried",
    Caveat.delta_too_large: "δ is so large that the network hardly sees its inputs",
    Caveat.no_better_than_guessing: "the predictions are no better than guessing",
}


def reservations(summary: ClampingSummary) -> list[str]:
    """The caveats that belong beside the answer, in a few words each."""
    return [words for caveat, words in _RESERVATIONS.items() if caveat in summary.caveats]


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
    """The notes of the fit, without the outcome of cross-validation, which a report words beside the test samples."""
    is_stated = summary.outcome in {ClampingOutcome.helps, ClampingOutcome.no_help}
    return list(summary.notes[1:] if is_stated else summary.notes)
