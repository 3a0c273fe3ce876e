"""A leaderboard in words: what to use, what it gains, what it costs."""

import math

from calibrant.calibrators import Auto
from calibrant.comparison import TEMPERATURE, UNCALIBRATED, Comparison, MethodResult
from calibrant.report.comparison.inaction import headline_for_nothing, step_for_nothing
from calibrant.report.comparison.phrases import ENOUGH, accuracy_words, difference_words, separation_words
from calibrant.report.wording import Verdict

__all__ = ["leaderboard_verdict"]

_MOST_NAMED = 6
_SHOWN = 0.00005  # the least difference that four decimals show


def leaderboard_verdict(board: Comparison) -> Verdict:
    """Put a leaderboard into words."""
    chosen = board.recommended
    return Verdict(
        headline=_headline(board, chosen),
        findings=[
            *(f"{str(caution)[0].upper()}{str(caution)[1:]}" for caution in board.cautions),
            *_undecided(board, chosen),
            *_gains(board, chosen),
            *_brier(board, chosen),
            *_alike(board),
            *accuracy_words(chosen),
            *separation_words(chosen),
            *_calibration(board, chosen),
            *_harmful(board),
            *_failed(board),
        ],
        next_steps=_next_steps(board, chosen),
    )


def _headline(board: Comparison, chosen: MethodResult) -> str:
    nothing = board.find(UNCALIBRATED)
    assert nothing is not None, "doing nothing is always on the board"
    others = len(board.fitted) - 1
    if chosen is nothing:
        return headline_for_nothing(board)
    gain = f"it lowers the log-loss from {nothing.nll:.4f} to {chosen.nll:.4f}"
    if chosen.name == TEMPERATURE and others > 1:
        return f"Temperature scaling is enough: {gain}, and none of {others - 1} others beats it {ENOUGH}."
    return f"Use {chosen.name} ({chosen.title}): {gain}."


def _undecided(board: Comparison, chosen: MethodResult) -> list[str]:
    """What the rows leave open, where nothing is recommended."""
    open_to = board.undecided if chosen.name == UNCALIBRATED else None
    if open_to is None:
        return []
    change = open_to.differences[UNCALIBRATED]["nll"]
    if math.isnan(change.p):
        return ["The test rows show no spread at all, so nothing can be said about noise."]
    found = f"The log-loss of {open_to.name} is {difference_words(change, 'lower', 'higher')} than doing nothing"
    return [f"{found}: the interval has room for a gain that would matter."]


def _gains(board: Comparison, chosen: MethodResult) -> list[str]:
    """The log-loss against both rivals."""
    found = [
        f"{difference_words(chosen.differences[rival]['nll'], 'lower', 'higher')} than {words}"
        for rival, words in ((UNCALIBRATED, "doing nothing"), (TEMPERATURE, "temperature scaling"))
        if rival in chosen.differences
    ]
    lines = [f"Its log-loss is {', and '.join(found)}."] if found and chosen.name != UNCALIBRATED else []
    best, gap = board.best, chosen.to_best
    if gap is not None and chosen.name != UNCALIBRATED:
        doubt = "doing nothing" if best.beats(TEMPERATURE) or board.find(TEMPERATURE) is None else "temperature scaling"
        lines.append(
            f"The log-loss of {best.name} is lower still, by {gap.value:.4f} ({gap.low:.4f} to {gap.high:.4f}), but "
            f"with {len(board.fitted)} methods to choose from it does not beat {doubt} {ENOUGH}."
        )
    return lines


def _alike(board: Comparison) -> list[str]:
    """Methods that the test rows cannot tell from the best."""
    names = [e.name for e in board.fitted if e.to_best is not None and e.to_best.side == "alike"]
    if not names:
        return []
    return [f"On these samples {board.best.name} is not better {ENOUGH} than {_listed(names)}."]


def _brier(board: Comparison, chosen: MethodResult) -> list[str]:
    """Where the other proper score disagrees beyond noise: with the method itself, or with the choice of it."""
    nothing, lowest = board.find(UNCALIBRATED), min(board.fitted, key=lambda entry: entry.metrics["brier"].value)
    assert nothing is not None, "doing nothing is always on the board"
    if chosen is not nothing and chosen.differences[UNCALIBRATED]["brier"].side == "worse":
        found = difference_words(chosen.differences[UNCALIBRATED]["brier"], "lower", "higher")
        said = (
            f"The Brier score, the other proper score, disagrees: that of {chosen.name} is {found} than doing nothing."
        )
        return [
            f"{said} It forgives the confident mistakes that the log-loss counts most; by it, {lowest.name} is best."
        ]
    rival = (
        TEMPERATURE
        if chosen.name not in (UNCALIBRATED, TEMPERATURE) and TEMPERATURE in chosen.differences
        else UNCALIBRATED
    )
    if lowest is chosen or rival not in lowest.differences:
        return []
    beaten = chosen.name == rival or chosen.differences[rival]["brier"].side != "better"
    if beaten and lowest.differences[rival]["brier"].side == "better":
        words = {UNCALIBRATED: "doing nothing", TEMPERATURE: "temperature scaling"}[rival]
        found = difference_words(lowest.differences[rival]["brier"], "lower", "higher")
        but = f"which cannot be said of {'that' if chosen.name == rival else chosen.name}"
        said = f"The Brier score, the other proper score, would take {lowest.name}"
        return [f"{said}: it is {found} than that of {words}, beyond noise, {but}."]
    return []


def _calibration(board: Comparison, chosen: MethodResult) -> list[str]:
    """The calibration error, and whether it would have chosen otherwise."""
    nothing, lowest = board.find(UNCALIBRATED), min(board.fitted, key=lambda entry: entry.metrics["ece"].value)
    assert nothing is not None, "doing nothing is always on the board"
    value = chosen.metrics["ece"].value
    before = "" if chosen is nothing else f", before {nothing.metrics['ece'].value:.4f}"
    line = f"Its ECE is {value:.4f}{before}"
    if lowest is chosen:
        return [f"{line}, the lowest here too."]
    gap = lowest.nll - chosen.nll
    line += f". ECE ranks {lowest.name} first ({lowest.metrics['ece'].value:.4f}), whose log-loss is "
    if abs(gap) < _SHOWN:
        return [f"{line}the same."]
    if gap < 0:
        return [f"{line}{-gap:.4f} lower too."]
    advice = "choose by the log-loss, because a low ECE alone does not make good probabilities."
    return [f"{line}{gap:.4f} higher: {advice}"]


def _harmful(board: Comparison) -> list[str]:
    names = [
        e.name
        for e in board.fitted
        if UNCALIBRATED in e.differences and e.differences[UNCALIBRATED]["nll"].side == "worse"
    ]
    return [f"Worse than doing nothing, beyond noise: {_listed(names)}."] if names else []


def _failed(board: Comparison) -> list[str]:
    names = [entry.name for entry in board.methods if entry.failure is not None]
    return [f"Did not fit: {_listed(names)}; the reasons stand below the table."] if names else []


def _next_steps(board: Comparison, chosen: MethodResult) -> list[str]:
    first = ["Settle the warning above first, then compare again: the answer may be another."] * bool(board.cautions)
    if chosen.name == UNCALIBRATED:
        return first or [step_for_nothing(board)]
    step = f"Fit {chosen.name} on the calibration rows and put it behind the model."
    if len(board.fitted) > 2 and chosen.name not in (TEMPERATURE, Auto.name):
        step += " It was picked on these test rows, so expect a little less on new ones; auto picks without them."
    return [*first, step]


def _listed(names: list[str]) -> str:
    shown = names if len(names) <= _MOST_NAMED else [*names[: _MOST_NAMED - 1], f"{len(names) - _MOST_NAMED + 1} more"]
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else shown[0]
