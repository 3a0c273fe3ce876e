"""A clamped network in words: whether δ helps, what it gains, what it costs, and what to use."""

from calibrant.clamping import CLAMPED, REFITTED, ClampingEvaluation
from calibrant.comparison import TEMPERATURE, UNCALIBRATED
from calibrant.report.clamping.advice import next_steps
from calibrant.report.clamping.effect import effect_sentence
from calibrant.report.clamping.fit_words import cross_validated_words, fit_notes
from calibrant.report.clamping.headline import clamping_headline, head_words
from calibrant.report.comparison import accuracy_words, difference_words, separation_words
from calibrant.report.comparison import method_notes as note_lines
from calibrant.report.wording import Verdict

__all__ = ["clamping_verdict", "other_notes"]


def clamping_verdict(found: ClampingEvaluation) -> Verdict:
    """Put a judgement into words."""
    return Verdict(
        headline=clamping_headline(found),
        findings=[
            *(f"{str(caution)[0].upper()}{str(caution)[1:]}" for caution in found.cautions),
            *_effect(found),
            *_temperature(found),
            *cross_validated_words(found.summary),
            *_gains(found),
            *_changed(found),
            *separation_words(found.clamped),
            *_calibration(found),
            *_size(found),
        ],
        next_steps=next_steps(found),
    )


def other_notes(found: ClampingEvaluation) -> list[str]:
    """What the fits say, less what the verdict says."""
    return [*note_lines([*found.failures, *found.methods[:-1], *found.parts]), *fit_notes(found.summary)]


def _effect(found: ClampingEvaluation) -> list[str]:
    if found.effect is None:
        return []
    head = "T" if found.temperature is not None else found.head
    return [
        effect_sentence(found.effect, "with no head" if head == UNCALIBRATED else f"with the best {head} both times")
    ]


def _temperature(found: ClampingEvaluation) -> list[str]:
    """What T does by itself, where it is not the best one."""
    alone, best, refitted = (found.find(name) for name in ("T* only", TEMPERATURE, REFITTED))
    if alone is None or best is None or refitted is None:
        return []
    assert refitted.map is not None
    behind, without = (
        difference_words(change["nll"])
        for change in (found.clamped.differences[REFITTED], alone.differences[TEMPERATURE])
    )
    optimum = float(refitted.map.get_buffer("temperature"))
    told = f"T by itself: it is {found.temperature:.3f}, where {optimum:.3f} would be the best behind δ, so that the"
    return [f"{told} log-loss is {behind}; without δ it is {without} than that of temperature scaling."]


def _gains(found: ClampingEvaluation) -> list[str]:
    """The log-loss of what is deployed against the others, less what was said of δ alone."""
    said = found.without_delta if found.with_delta == CLAMPED else None
    told = [
        f"{difference_words(change['nll'])} than {head_words(rival)}"
        for rival, change in reversed(found.clamped.differences.items())
        if rival not in {said, REFITTED}
    ]
    return [f"The clamped network's log-loss is {', '.join([*told[:-2], ' and '.join(told[-2:])])}."] if told else []


def _changed(found: ClampingEvaluation) -> list[str]:
    """How many predictions change; accuracy only where what δ alone does to it is something else."""
    if found.effect is None or found.without_delta not in {TEMPERATURE, UNCALIBRATED}:
        return accuracy_words(found.clamped)
    return [f"It changes the predicted class of {100 * found.clamped.changed:.1f} % of rows."]


def _calibration(found: ClampingEvaluation) -> list[str]:
    """The calibration error, where it was not told of δ alone."""
    if found.effect is not None:
        return []
    told = [f"{entry.metrics['ece'].value:.4f} of {entry.name}" for entry in found.methods[:-1]]
    return [f"Its ECE is {found.clamped.metrics['ece'].value:.4f}, against {', '.join(told)}."]


def _size(found: ClampingEvaluation) -> list[str]:
    if not found.has_delta:
        return []
    at = "" if found.temperature is None else f", and T = {found.temperature:.3f}"
    return [f"‖δ‖ is {found.norm:.4g}, its largest number {found.largest:.4g} in the network's own units{at}."]
