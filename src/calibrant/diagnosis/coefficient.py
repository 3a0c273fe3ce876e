"""Coefficient sensitivity: candidates that differ in one number alone, along that number."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from calibrant.diagnosis.fitting import RAW
from calibrant.diagnosis.judged import Judged, JudgedCandidate
from calibrant.diagnosis.over_seeds import Spread, spread
from calibrant.diagnosis.record import Record

__all__ = ["CoefficientCurve", "CoefficientPoint", "coefficient_curves"]


@final
@dataclass(frozen=True)
class CoefficientPoint(Record):
    """One candidate of a curve."""

    value: float
    candidate: str
    ece: Mapping[str, Spread]  # by map
    optimal_ece: Spread  # an oracle's
    temperature: Spread
    accuracy: Spread


@final
@dataclass(frozen=True)
class CoefficientCurve(Record):
    """Candidates that are alike in everything but one number, in its order."""

    option: str  # such as "loss.smoothing" or "recipe.mixup"
    loss: str
    points: tuple[CoefficientPoint, ...]


def coefficient_curves(judged: Judged) -> tuple[CoefficientCurve, ...]:
    """Every curve that the candidates hold: two of them or more that differ in one numeric option of loss or recipe.

    Reading the best coefficient off the raw curve, which is of test rows, chooses on those that judge, as the paper
    does; the number there flatters.

    Reference:
        Wang, Feng & Zhang (2021), Rethinking Calibration of Deep Neural Networks: Do Not Be Afraid of Overconfidence,
        Figure 1.
    """
    groups: dict[tuple[str, str], list[JudgedCandidate]] = {}
    for each in judged.candidates:
        options = each.candidate.options
        for path, value in options.items():
            if path.startswith(("loss.", "recipe.")) and isinstance(value, int | float) and not isinstance(value, bool):
                rest = repr(sorted((name, other) for name, other in options.items() if name != path))
                groups.setdefault((path, rest), []).append(each)
    return tuple(_curve(path, members) for (path, _), members in groups.items() if len(members) > 1)


def _curve(path: str, members: list[JudgedCandidate]) -> CoefficientCurve:
    points = sorted((_point(path, each) for each in members), key=lambda point: point.value)
    return CoefficientCurve(path, str(members[0].candidate.options["loss.loss"]), tuple(points))


def _point(path: str, judged: JudgedCandidate) -> CoefficientPoint:
    value = judged.candidate.options[path]
    assert isinstance(value, int | float), "only numbers make a curve"
    return CoefficientPoint(
        value=float(value),
        candidate=judged.name,
        ece={name: judged.over_runs(name, "ece") for name in judged.runs[0].outcomes},
        optimal_ece=spread([run.oracle.ece for run in judged.runs]),
        temperature=spread([run.temperature for run in judged.runs]),
        accuracy=judged.over_runs(RAW, "accuracy"),
    )
