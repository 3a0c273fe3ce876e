"""The lines of a diagnosis' main tables, shared by the terminal and the Markdown page. The reference stands first."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol, TypeVar

from calibrant.diagnosis import Diagnosis, Direction, Refinement, RefinementRow
from calibrant.diagnosis.calibratability import ORACLE
from calibrant.diagnosis.evaluated import UNCALIBRATED
from calibrant.diagnosis.refinement import SEPARATION
from calibrant.report.diagnosis.cells import Cell

__all__ = [
    "Line",
    "calibratability_lines",
    "direction_lines",
    "in_order",
    "map_words",
    "refinement_lines",
    "split_lines",
    "term_lines",
]


class _OfCandidate(Protocol):
    @property
    def candidate(self) -> str: ...


_Found = TypeVar("_Found", bound=_OfCandidate)


class Line(NamedTuple):
    """One candidate, or one under one map, with its numbers by heading."""

    candidate: str
    map: str
    cells: Mapping[str, Cell]


def in_order(found: Diagnosis, each: Iterable[_Found]) -> list[_Found]:
    """The reference's first; the others as they came."""
    return sorted(each, key=lambda one: one.candidate != found.baseline)


def map_words(name: str) -> str:
    """What a table calls a map."""
    return "as it is" if name == UNCALIBRATED else name


def calibratability_lines(found: Diagnosis) -> list[Line]:
    """A candidate a line: accuracy; ECE as it is and after each map; the oracle's; the temperatures of both."""
    accuracies = {verdict.candidate: verdict.accuracy for verdict in found.verdicts}
    lines = []
    for one in in_order(found, found.calibratability):
        errors = {name: Cell(one.ece[name], one.t_tests.get(name), one.differences.get(name)) for name in found.maps}
        lines.append(
            Line(
                one.candidate,
                UNCALIBRATED,
                {
                    "accuracy": Cell(one.accuracy, against=accuracies.get(one.candidate)),
                    **errors,
                    "optimal": Cell(one.optimal_ece, one.t_tests.get(ORACLE)),
                    "T": Cell(one.temperature),
                    "optimal T": Cell(one.oracle_temperature),
                },
            )
        )
    return lines


def refinement_lines(found: Diagnosis) -> list[Line]:
    """A candidate under a map a line: its accuracy, how confidence ranks right and wrong answers, and its scores."""
    return [
        Line(
            one.candidate,
            row.map,
            {
                name: Cell(row.metrics[name], row.t_tests.get(name), row.auroc_difference if name == "auroc" else None)
                for name in SEPARATION
            },
        )
        for one, row in _rows(found)
    ]


def split_lines(found: Diagnosis) -> list[Line]:
    """A candidate a line: log-loss and Brier score as the network is, and what of them a temperature can mend."""
    return [
        Line(
            one.candidate,
            UNCALIBRATED,
            {
                f"{score}{part}": Cell(spread)
                for score, split in one.splits.items()
                for part, spread in (("", split.total), (" calibration", split.calibration),
                                     (" refinement", split.refinement))
            },
        )
        for one in in_order(found, found.refinement)
        if one.splits
    ]  # fmt: skip


def term_lines(found: Diagnosis) -> list[Line]:
    """A candidate under a map a line: the top-label Brier score taken apart, and the terms of equation 9."""
    return [
        Line(
            one.candidate,
            row.map,
            {name: Cell(spread) for name, spread in (*row.murphy.items(), *row.terms.items())},
        )
        for one, row in _rows(found)
        if row.density is not None
    ]


def direction_lines(found: Diagnosis) -> list[tuple[str, dict[str, Direction]]]:
    """A candidate a line: mean confidence minus accuracy, by map."""
    lines: dict[str, dict[str, Direction]] = {}
    for one in in_order(found, found.directions):
        lines.setdefault(one.candidate, {})[one.map] = one
    return list(lines.items())


def _rows(found: Diagnosis) -> list[tuple[Refinement, RefinementRow]]:
    return [(one, row) for one in in_order(found, found.refinement) for row in one.rows]
