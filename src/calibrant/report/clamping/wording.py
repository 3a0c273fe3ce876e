"""A clamped network in words: whether δ helps, what it gains, what it costs, and what to use."""

from calibrant.report.clamping.judgement import ClampingJudgement
from calibrant.report.comparison.board import NOTHING, TEMPERATURE
from calibrant.report.comparison.phrases import accuracy_words, difference_words, separation_words
from calibrant.report.wording import Verdict

__all__ = ["clamping_verdict", "head_words", "other_notes"]

# How the fit itself says what cross-validation found, which is said here in another place.
_SAID = ("δ helps: ", "δ does not help here: ")


def clamping_verdict(found: ClampingJudgement) -> Verdict:
    """Put a judgement into words."""
    return Verdict(
        headline=_headline(found),
        findings=[
            *(f"{caution[0].upper()}{caution[1:]}" for caution in found.cautions),
            *_cross_validated(found),
            *_gains(found),
            *accuracy_words(found.clamped),
            *separation_words(found.clamped),
            _calibration(found),
            *_size(found),
        ],
        next_steps=[*["Settle the warning above first, then clamp again."] * bool(found.cautions), _next_step(found)],
    )


def other_notes(found: ClampingJudgement) -> list[str]:
    """What the fits say, less what the verdict says."""
    beside = [f"{entry.name}: {note}" for entry in found.entries[:-1] for note in entry.notes]
    return [*beside, *(note for note in found.summary.notes if not note.startswith(_SAID))]


def head_words(name: str) -> str:
    """A head without δ."""
    if name == TEMPERATURE:
        return "temperature scaling"
    if name.startswith(f"{TEMPERATURE}(criterion=focal"):
        return "temperature scaling by the focal loss"
    return "the network as it is" if name == NOTHING else f"{name} alone"


def _headline(found: ClampingJudgement) -> str:
    at = "" if found.temperature is None else f" (T = {found.temperature:.3f})"
    if not found.moves:
        return _headline_without_delta(found, f"{head_words(found.head)}{at}")
    change, clamped, rival = found.clamped.against[found.rival]["nll"], found.clamped, head_words(found.rival)
    moved = f"the log-loss from {clamped.nll - change.value:.4f} ({rival}) to {clamped.nll:.4f}"
    on = f"on {found.test_rows:,} test rows"
    if change.side == "better":
        told = f"it lowers {moved} {on}."
        if _has_best_head(found):
            return f"δ helps: {told}"
        return f"The clamped network is better: {told} Whether δ did it or its temperature, an ablation tells."
    if change.side == "worse":
        return f"δ does harm here: it raises {moved} {on}. The answer is {rival}."
    return f"δ makes no difference beyond noise, taking {moved} {on}: the simpler answer is {rival}."


def _headline_without_delta(found: ClampingJudgement, head: str) -> str:
    if found.summary.settings.get("strength") == float("inf"):
        return f"δ was held at 0, as asked: this is {head}."
    if _is_idle(found):
        return f"δ does not help here, and neither does {head} beyond noise."
    return f"δ does not help here: the answer is {head}, with δ = 0."


def _has_best_head(found: ClampingJudgement) -> bool:
    """Whether the head is at the log-loss's optimum, so that nothing but δ can have made the difference."""
    settings = found.summary.settings
    return settings.get("gamma", 0) == 0 and settings.get("solver", {}).get("kind", "ExactSolver") == "ExactSolver"


def _cross_validated(found: ClampingJudgement) -> list[str]:
    """How the strength was chosen, where it was."""
    if not found.summary.trials:
        return []
    best = min(found.summary.trials, key=lambda trial: trial.gain)
    chosen = next((trial for trial in found.summary.trials if trial.strength == found.summary.strength), best)
    n, which = len(found.summary.trials), "chosen" if found.moves else "best"
    told = f"the {which} of {n} strengths" if n > 1 else "the one strength tried"
    told += f", λ = {chosen.strength:.3g} a row, changes the log-loss"
    error = f"{chosen.gain:+.4f} ± {chosen.error:.4f} (standard error)"
    return [f"Cross-validated on the calibration rows, {told} by {error} against δ = 0."]


def _gains(found: ClampingJudgement) -> list[str]:
    """The log-loss against the others."""
    told = [
        f"{difference_words(change['nll'], 'lower', 'higher')} than {head_words(rival)}"
        for rival, change in reversed(found.clamped.against.items())
    ]
    return [f"On the test rows its log-loss is {', '.join([*told[:-2], ' and '.join(told[-2:])])}."] if told else []


def _calibration(found: ClampingJudgement) -> str:
    told = [f"{entry.metrics['ece'].value:.4f} of {entry.name}" for entry in found.entries[:-1]]
    return f"Its ECE is {found.clamped.metrics['ece'].value:.4f}, against {', '.join(told)}."


def _size(found: ClampingJudgement) -> list[str]:
    if not found.moves:
        return []
    at = "" if found.temperature is None else f", and T = {found.temperature:.3f}"
    return [f"‖δ‖ is {found.norm:.4g}, its largest number {found.largest:.4g} in the network's own units{at}."]


def _is_idle(found: ClampingJudgement) -> bool:
    """Whether the network as it is does as well, for all that these rows can tell."""
    against = found.clamped.against.get(NOTHING)
    return against is not None and against["nll"].side != "better"


def _next_step(found: ClampingJudgement) -> str:
    if not found.moves and _is_idle(found):
        return "Leave the network as it is, or judge on more test rows."
    if not found.moves or found.clamped.against[found.rival]["nll"].side == "better":
        return "Deploy clamped.safetensors: load_clamped(path, network) is the network with this built in."
    instead = f"Use {head_words(found.rival)}"
    if found.summary.trials:
        return f"{instead}, or more calibration rows, or a δ of fewer numbers (--freedom)."
    return f"{instead}, or let cross-validation choose how tightly δ is held (--strength path)."
