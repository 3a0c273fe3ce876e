"""Calibratability: not how calibrated a network is, but how calibrated it can be made afterwards."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from calibrant.diagnosis.against import Against
from calibrant.diagnosis.judged import JudgedCandidate
from calibrant.diagnosis.over_seeds import Spread, TwoSample, spread, two_sample
from calibrant.diagnosis.record import Record

__all__ = ["ORACLE", "Calibratability", "calibratability"]

ORACLE = "oracle"  # the optimal ECE's place beside those after each map


@final
@dataclass(frozen=True)
class Calibratability(Record):
    """One candidate: its ECE as it is and after each map fitted on its calibration rows, over its runs.

    ``optimal_ece`` is an oracle's, chosen on the test rows: a bound on what a temperature can do, and no method. A loss
    that lowers the raw ECE but not this one has only moved all confidences; one that raises it has lost something that
    no temperature brings back.
    """

    candidate: str
    seeds: tuple[int, ...]
    accuracy: Spread
    ece: Mapping[str, Spread]  # by map; "none" is the network as it is
    temperature: Spread  # fitted
    optimal_ece: Spread
    oracle_temperature: Spread
    t_tests: Mapping[str, TwoSample]  # of the ECE against the reference's runs, by map and "oracle"; empty for itself
    against: Mapping[str, Against]  # of the ECE on the same rows, by map; empty for the reference
    failures: Mapping[str, str]  # why a map could not be fitted, by map and seed: "temperature, seed 0"
    notes: tuple[str, ...]  # what fits warned of


def calibratability(
    candidate: JudgedCandidate, reference: JudgedCandidate, against: Mapping[str, Mapping[str, Against]]
) -> Calibratability:
    """Put one candidate's numbers beside the reference's.

    Args:
        candidate: Of a :class:`~calibrant.diagnosis.judged.Judged`.
        reference: Another of it, or the same one.
        against: The candidate's own of :func:`~calibrant.diagnosis.against.compared_with`, by map and metric; empty
            for the reference.

    Reference:
        Wang, Feng & Zhang (2021), Rethinking Calibration of Deep Neural Networks: Do Not Be Afraid of Overconfidence,
        Table 2 and Section 5.1.
    """
    maps = list(candidate.runs[0].outcomes)
    ece = {name: candidate.over_runs(name, "ece") for name in maps}
    optimal = spread([run.oracle.ece for run in candidate.runs])
    tests = {}
    if candidate is not reference:
        tests = {name: two_sample(reference.over_runs(name, "ece").values, ece[name].values) for name in maps}
        tests[ORACLE] = two_sample([run.oracle.ece for run in reference.runs], optimal.values)
    outcomes = [(name, run.seed, run.outcomes[name]) for run in candidate.runs for name in maps]
    return Calibratability(
        candidate=candidate.name,
        seeds=candidate.candidate.seeds,
        accuracy=candidate.over_runs(maps[0], "accuracy"),
        ece=ece,
        temperature=spread([run.temperature for run in candidate.runs]),
        optimal_ece=optimal,
        oracle_temperature=spread([run.oracle.temperature for run in candidate.runs]),
        t_tests=tests,
        against={name: found["ece"] for name, found in against.items()},
        failures={
            f"{name}, seed {seed}": outcome.failure for name, seed, outcome in outcomes if outcome.failure is not None
        },
        notes=tuple(dict.fromkeys(f"{name}: {note}" for name, _, outcome in outcomes for note in outcome.notes)),
    )
