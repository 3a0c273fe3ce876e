"""What to do with a clamped network, once it is judged."""

from calibrant.clamping import REFITTED, ClampingEvaluation, ClampingSummary
from calibrant.comparison import TEMPERATURE
from calibrant.errors import Caveat
from calibrant.report.clamping.headline import head_words

__all__ = ["next_steps"]

_BY_LOG_LOSS = "with the default preset and --gamma 0, which solve T for the log-loss"


def next_steps(found: ClampingEvaluation) -> list[str]:
    """What to do, the most pressing first; nothing with the answer, where the rows are in doubt."""
    if found.cautions:
        return ["Settle the warning above first, then clamp again: the answer may be another."]
    return [_next_step(found), *_weaker(found.summary)]


def _next_step(found: ClampingEvaluation) -> str:
    rival, effect = found.clamped.differences.get(TEMPERATURE), found.effect
    helps = effect is not None and effect["nll"].side == "better"
    is_beaten = rival is not None and rival["nll"].side in ({"worse", "alike"} if found.has_delta else {"worse"})
    if not found.has_delta and not is_beaten and found.is_no_better_than_uncalibrated:
        return "Leave the network as it is, or judge on more test rows."
    if (helps or not found.has_delta) and not is_beaten:
        if rival is not None and found.clamped.differences.get(REFITTED, rival)["nll"].side == "worse":
            return f"Clamp {_BY_LOG_LOSS}; or deploy what there is, clamped.safetensors."
        is_costly = effect is not None and effect["accuracy"].side == "worse"
        deploy = "eploy clamped.safetensors: load_clamped(path, network) is the network with this built in."
        return f"If a lower accuracy may be, d{deploy}" if is_costly else f"D{deploy}"
    return f"Use {head_words(found.baseline)}{_instead(found, helps=helps)}."


def _instead(found: ClampingEvaluation, *, helps: bool) -> str:
    """What else could be tried."""
    if not found.has_delta:
        return " by the log-loss (--gamma 0)" if found.summary.gamma > 0 else ""
    if found.find(REFITTED) is not None:
        return f", or clamp {_BY_LOG_LOSS}"
    if helps:
        return ", or clamp with another head"
    if found.summary.trials:
        return ", or more calibration rows, or a δ of fewer numbers (--freedom)"
    return ", or let cross-validation choose how tightly δ is held (--strength path)"


def _weaker(summary: ClampingSummary) -> list[str]:
    if Caveat.weakest_strength not in summary.caveats:
        return []
    weaker = ",".join(f"{summary.strength / by:.2g}" for by in (1, 10, 100))
    return [f"Try weaker strengths as well: --strength {weaker}."]
