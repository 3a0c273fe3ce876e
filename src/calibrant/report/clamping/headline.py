"""The one sentence about a clamped network: whether δ helps, and what would change how that is read."""

from calibrant.clamping import REFITTED, ClampingEvaluation, ClampingOutcome
from calibrant.comparison import TEMPERATURE, UNCALIBRATED
from calibrant.report.clamping.effect import effect_headline
from calibrant.report.clamping.fit_words import reservations
from calibrant.report.comparison import difference_words

__all__ = ["clamping_headline", "head_words"]


def clamping_headline(found: ClampingEvaluation) -> str:
    """The answer, and in the same breath what would change how it is read."""
    first = "".join(f"Warning: {caution.problem}. " for caution in found.cautions)
    held = reservations(found.summary)
    last = f" But {', and '.join(held)}." if held else ""
    return f"{first}{_answer(found)}{last}"


def _answer(found: ClampingEvaluation) -> str:
    if not found.has_delta:
        return _answer_without_delta(found)
    effect, rows = found.effect, found.n_test
    if effect is None:
        change = found.clamped.differences[found.baseline]["nll"]
        against = f"{difference_words(change)} than {head_words(found.baseline)}"
        return (
            f"Whether δ helps cannot be told, as a temperature could not be fitted both with it and without. The "
            f"clamped network's log-loss is {against}, on {rows:,} test rows."
        )
    return effect_headline(found, head_words(found.head), answer=head_words(found.baseline)) + _beside(found)


def _beside(found: ClampingEvaluation) -> str:
    """What the clamped network does against temperature scaling, where δ alone does something else."""
    rival, temperature = found.clamped.differences.get(TEMPERATURE), found.find(TEMPERATURE)
    if found.effect is None or rival is None or temperature is None:
        return ""
    side, own, what = found.effect["nll"].side, rival["nll"].side, _head(found)
    against = f"temperature scaling ({found.clamped.nll:.4f} against {temperature.nll:.4f})"
    if side == own:
        is_short = side == "better" and found.clamped.differences.get(REFITTED, rival)["nll"].side == "worse"
        return f" Its own {what} leaves the clamped network at {found.clamped.nll:.4f}." if is_short else ""
    if side == "better" or own == "worse":
        return (
            f" But its {what} leaves the clamped network {'worse' if own == 'worse' else 'no better'} than {against}."
        )
    return f" By its {what}, the clamped network is better than {against} all the same." if own == "better" else ""


def _head(found: ClampingEvaluation) -> str:
    return "head" if found.temperature is None else f"T = {found.temperature:.3f}"


def _answer_without_delta(found: ClampingEvaluation) -> str:
    at = "" if found.temperature is None else f" (T = {found.temperature:.3f})"
    focal = " by the focal loss" if found.summary.gamma > 0 else ""
    head = f"{head_words(found.head)}{focal}{at}"
    best, rival = found.find(TEMPERATURE), found.clamped.differences.get(TEMPERATURE)
    though = ""
    if focal and best is not None and rival is not None and rival["nll"].side == "worse":
        though = f" By the log-loss it would be better: {best.nll:.4f} instead of {found.clamped.nll:.4f}."
    if found.summary.settings.get("strength") == float("inf"):
        return f"δ was held at 0, as asked: this is {head}.{though}"
    if found.summary.outcome is ClampingOutcome.untried:
        return f"Whether δ helps is not known, as it could not be tried: this is {head}, with δ = 0.{though}"
    if found.is_no_better_than_uncalibrated:
        return f"δ does not help here, and neither does {head} beyond noise.{though}"
    return f"δ does not help here: the answer is {head}, with δ = 0.{though}"


def head_words(name: str) -> str:
    """A head without δ."""
    if name == TEMPERATURE:
        return "temperature scaling"
    return "the network as it is" if name == UNCALIBRATED else f"{name} alone"
