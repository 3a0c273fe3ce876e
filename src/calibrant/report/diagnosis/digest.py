"""The curves of a diagnosis in a line a candidate, for where there is no room for tables."""

import math

from calibrant.diagnosis import Diagnosis
from calibrant.diagnosis.evaluated import TEMPERATURE, UNCALIBRATED
from calibrant.report.diagnosis.cells import brief
from calibrant.report.diagnosis.curves import Grid
from calibrant.report.diagnosis.rows import in_order

__all__ = ["coefficient_lines", "digest_grid"]


def digest_grid(found: Diagnosis) -> Grid | None:
    """By candidate: ECE after temperature scaling on few and all rows; the oracle's lowest and last; learned late."""
    columns: dict[str, dict[str, str]] = {}
    few = _few(found)
    for size in found.validation_sizes:
        errors = {point.rows: point.ece[TEMPERATURE].mean for point in size.points}
        heading = "temperature on all rows" if few is None else f"temperature on {few:,} rows → all"
        start = "" if few is None else f"{brief(errors[few])} → "
        columns.setdefault(heading, {})[size.candidate] = f"{start}{brief(size.points[-1].ece[TEMPERATURE].mean)}"
    for curves in found.epochs:
        mean = curves.numbers["optimal_ece"].mean
        lowest = mean[curves.epochs.index(curves.lowest_epoch)]
        text = f"{brief(lowest)} (epoch {curves.lowest_epoch}) → {brief(mean[-1])}"
        columns.setdefault("optimal ECE: lowest → end", {})[curves.candidate] = text
    for learned in found.learned_epochs:
        columns.setdefault("learned late, top logit", {})[learned.candidate] = _correlation(
            learned.rank_correlation.mean
        )
    if not columns:
        return None
    rows = [
        [one.candidate, *(column.get(one.candidate, "–") for column in columns.values())]
        for one in in_order(found, found.calibratability)
    ]
    return Grid("", ["candidate", *columns], rows)


def _few(found: Diagnosis) -> int | None:
    """The fewest rows on which a temperature could be fitted in all runs and draws: of others the lucky ones remain."""
    fitted = [
        {point.rows for point in size.points[:-1] if not point.failed[TEMPERATURE]} for size in found.validation_sizes
    ]
    return min(set.intersection(*fitted), default=None) if fitted else None


def coefficient_lines(found: Diagnosis) -> list[str]:
    """A line for every curve: the ECE along it, as it is, after temperature scaling, and the oracle's."""
    lines = []
    for curve in found.coefficients:
        values = ", ".join(f"{point.value:g}" for point in curve.points)
        told = {
            "ECE": [point.ece[UNCALIBRATED].mean for point in curve.points],
            "after temperature": [point.ece[TEMPERATURE].mean for point in curve.points],
            "optimal": [point.optimal_ece.mean for point in curve.points],
        }
        numbers = "; ".join(f"{name} {', '.join(map(brief, errors))}" for name, errors in told.items())
        lines.append(f"{curve.loss}, {curve.option.rpartition('.')[2]} {values}: {numbers}")
    return lines


def _correlation(value: float) -> str:
    return "–" if math.isnan(value) else f"ρ = {value:+.2f}"
