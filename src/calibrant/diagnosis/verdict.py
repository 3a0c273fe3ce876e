"""The two-sided verdict: what a way to train does to calibration, to calibratability, and to separation of errors."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, final

from calibrant.diagnosis.against import Against, Side
from calibrant.diagnosis.fitting import RAW, TEMPERATURE
from calibrant.diagnosis.judged import JudgedCandidate
from calibrant.diagnosis.record import Record
from calibrant.diagnosis.verdict_words import basis_words, reference_words, verdict_words

__all__ = ["Overall", "Verdict", "verdict"]

Overall: TypeAlias = Literal["better", "worse", "mixed", "alike"]


@final
@dataclass(frozen=True)
class Verdict(Record):
    """A candidate against the reference, in numbers and in words.

    ``overall`` weighs ECE after temperature scaling and AUROC: "better" or "worse" where all that differs beyond noise
    points one way, "mixed" where it does not, "alike" where nothing differs. ECE as it is has no say: a map mends it.
    """

    candidate: str
    reference: str
    raw_ece: Against
    ece_after_temperature: Against
    auroc: Against  # of the network as it is
    accuracy: Against
    overall: Overall
    words: str  # one sentence; a second where accuracy differs
    basis: str  # what the words rest on: runs, rows, and which noise is known


def verdict(
    candidate: JudgedCandidate,
    reference: JudgedCandidate,
    against: Mapping[str, Mapping[str, Against]],
    *,
    n: int,
    candidates: int,
) -> Verdict:
    """Judge one candidate.

    Args:
        candidate: Of a :class:`~calibrant.diagnosis.judged.Judged`.
        reference: Another of it.
        against: The candidate's own of :func:`~calibrant.diagnosis.against.compared_with`, by map and metric.
        n: Test rows.
        candidates: How many were compared with the reference, for which p-values were corrected.
    """
    raw, scaled = against[RAW]["ece"], against[TEMPERATURE]["ece"]
    auroc, accuracy = against[RAW]["auroc"], against[RAW]["accuracy"]
    return Verdict(
        candidate=candidate.name,
        reference=reference.name,
        raw_ece=raw,
        ece_after_temperature=scaled,
        auroc=auroc,
        accuracy=accuracy,
        overall=_overall({scaled.side, auroc.side}),
        words=verdict_words(
            candidate.candidate.words,
            reference_words(reference.candidate.words),
            raw=raw,
            scaled=scaled,
            auroc=auroc,
            accuracy=accuracy,
        ),
        basis=basis_words(len(candidate.runs), len(reference.runs), n=n, candidates=candidates),
    )


def _overall(sides: set[Side]) -> Overall:
    if {"better", "worse"} <= sides:
        return "mixed"
    return "better" if "better" in sides else "worse" if "worse" in sides else "alike"
