"""A diagnosis in words: what is better and worse than the reference, on which side, and what that rests on."""

import math
from collections.abc import Iterable

from calibrant.diagnosis import Diagnosis, Verdict
from calibrant.diagnosis.evaluated import TEMPERATURE, UNCALIBRATED
from calibrant.evidence import Side
from calibrant.report.diagnosis.cells import brief
from calibrant.report.diagnosis.under_shift import shift_words
from calibrant.report.diagnosis.verdict_words import baseline_words, basis_words, verdict_words
from calibrant.report.wording import Verdict as Words

__all__ = ["diagnosis_words", "note_lines", "runs_words", "words_of_verdict"]

_FEW = 2  # runs that hardly know their own noise


def diagnosis_words(found: Diagnosis) -> Words:
    """The headline counts, the findings tell each candidate's story, and the last of them what they rest on."""
    stated = [words_of_verdict(found, verdict) for verdict in found.verdicts]
    bases = list(dict.fromkeys(basis for _, basis in stated))
    several = len(found.verdicts) > 1
    told = [words if len(bases) == 1 else f"{words} ({basis.rstrip('.')})" for words, basis in stated]
    return Words(
        headline=_headline(found),
        findings=[
            *_of_reference(found),
            *(told if several else []),
            *(bases if len(bases) == 1 else []),
            *_shift(found),
        ],
        next_steps=_next_steps(found),
    )


def words_of_verdict(found: Diagnosis, verdict: Verdict) -> tuple[str, str]:
    """A verdict in words, and what it is based on."""
    words = {candidate.name: candidate.words for candidate in found.candidates}
    stated = verdict_words(verdict, words[verdict.candidate], baseline_words(words[found.baseline]))
    return stated, basis_words(verdict, found.n)


def runs_words(found: Diagnosis) -> str:
    """What was diagnosed."""
    runs, ways = sum(len(each.seeds) for each in found.candidates), len(found.candidates)
    counted = f"{_count(runs, 'run')} of {_count(ways, 'way')} to train" if runs > ways else _count(runs, "run")
    return f"{counted}, {found.n:,} test rows"


def note_lines(found: Diagnosis) -> list[str]:
    """What runs lack, why maps could not be fitted, and what others warn of; what candidates share is said once."""
    said: dict[str, list[str]] = {}
    for one in found.candidates:
        for note in one.notes:
            said.setdefault(note, []).append(one.name)
    for each in found.calibratability:
        for where, why in each.failures.items():
            said.setdefault(f"{where}: not fitted, because {why}", []).append(each.candidate)
        for note in each.notes:
            said.setdefault(note, []).append(each.candidate)
    return [f"{', '.join(candidates)}: {note}" for note, candidates in said.items()]


def _headline(found: Diagnosis) -> str:
    if not found.verdicts:
        return f"One way to train, {_reference_in_full(found)}: there is nothing to hold it against."
    if len(found.verdicts) == 1:
        return words_of_verdict(found, found.verdicts[0])[0]
    calibrated = _sides(found.verdicts, "ece_after_temperature", "is", "are", "{} calibrated")
    separated = _sides(found.verdicts, "auroc", "separates", "separate", "errors {}")
    return (
        f"{len(found.verdicts)} ways to train against {_reference(found)}: after temperature scaling {calibrated}; "
        f"{separated}."
    )


def _sides(verdicts: Iterable[Verdict], number: str, one: str, many: str, how: str) -> str:
    """``2 are better calibrated (a, b), 1 is worse calibrated (c)``."""
    sides: dict[Side, list[str]] = {"better": [], "worse": []}
    for verdict in verdicts:
        sides.setdefault(getattr(verdict, number).side, []).append(verdict.candidate)
    told = [
        f"{len(names)} {one if len(names) == 1 else many} {how.format(side)} ({', '.join(names)})"
        for side, names in sides.items()
        if names and side != "alike"
    ]
    return ", ".join(told) or f"none {one} {how.format('better or worse')} beyond noise"


def _of_reference(found: Diagnosis) -> list[str]:
    mine = next(each for each in found.calibratability if each.candidate == found.baseline)
    auroc = next(each for each in found.refinement if each.candidate == found.baseline).rows[0].metrics["auroc"]
    direction = next(each for each in found.directions if (each.candidate, each.map) == (found.baseline, UNCALIBRATED))
    claim = "" if direction.side == "neither" else f", {direction.side}"
    name = _reference_in_full(found)
    if name != _reference(found):
        name += f", {_reference(found)},"
    separation = (
        "no AUROC, as its answers are all right or all wrong"
        if math.isnan(auroc.mean)
        else f"AUROC {brief(auroc.mean)}"
    )
    said = (
        f"{name[0].upper()}{name[1:]} itself: accuracy {brief(mine.accuracy.mean)}, ECE "
        f"{brief(mine.ece[UNCALIBRATED].mean)}{claim}, after temperature scaling {brief(mine.ece[TEMPERATURE].mean)}, "
        f"{separation}."
    )
    return [said]


def _shift(found: Diagnosis) -> list[str]:
    return [] if found.shift is None else shift_words(found.shift, _reference(found))


def _next_steps(found: Diagnosis) -> list[str]:
    fewest = min(len(each.seeds) for each in found.candidates)
    steps = []
    if fewest == 1:
        steps.append(
            "One run cannot tell a way to train from luck: train with more seeds (--seed 0 --seed 1 --seed 2)."
        )
    elif fewest == _FEW:
        steps.append("Two runs hardly know their own noise: a third seed narrows every interval.")
    steps.append(
        "Raw ECE is what a map can mend. Choose by accuracy, by the ECE after a map and by AUROC; then calibrant "
        "compare RUN/calibration.npz RUN/test.npz says which map to use."
    )
    return steps


def _reference(found: Diagnosis) -> str:
    return baseline_words(_reference_in_full(found))


def _reference_in_full(found: Diagnosis) -> str:
    return next(each.words for each in found.candidates if each.name == found.baseline)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
