"""The paper's rule for λ, in both readings: a tenth of the initial loss, or such that the term is a tenth of it."""

from typing import Literal

from calibrant.clamping.fit.fit_run import FitRun
from calibrant.errors import Argument, InputError

__all__ = ["strength_by_rule"]

_TENTH = 0.1


def strength_by_rule(run: FitRun, rule: Literal["path", "tenth-of-loss", "tenth-as-term"], gamma: float) -> float:
    """The strength, per row, that the rule gives for the method's start, at T = 1.

    Raises:
        InputError: If the rule divides by the size of a start that is 0.
    """
    start, passes = run.start(), run.task.passes()
    losses = run.objective(gamma, 0.0).sample_losses(passes.logits(start), passes.labels)
    tenth = _TENTH * float(losses.double().mean())
    if rule == "tenth-of-loss":
        return tenth
    term = run.objective(gamma, 1.0).penalty_of(start)
    if term == 0:
        raise InputError(
            Argument("strength", "tenth-as-term"), " divides by the size of the first δ; here it is 0. Take another."
        )
    return tenth / term
