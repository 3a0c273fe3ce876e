"""The curves of a diagnosis as short tables: over a coefficient, calibration rows and epochs; learned rows."""

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from calibrant.diagnosis import Band, CoefficientCurve, Diagnosis, EpochCurves, LearnedGroup, SizePoint
from calibrant.errors import markdown_code
from calibrant.report.diagnosis.cells import brief, in_full
from calibrant.report.diagnosis.rows import in_order, map_words

__all__ = [
    "Grid",
    "coefficient_grids",
    "epoch_grids",
    "group_words",
    "learned_grid",
    "loss_grids",
    "shown_epochs",
    "size_grids",
]

_ALL_EPOCHS, _MOST_EPOCHS = 10, 7  # columns: so many are shown without a gap, and so many of more
_LEARNED = "#.4g"  # a weight decay may be of any size

_Found = TypeVar("_Found")


class Grid(NamedTuple):
    """A table of text, ready to print."""

    title: str
    header: list[str]
    rows: list[list[str]]


def coefficient_grids(found: Diagnosis) -> list[Grid]:
    """A table for every curve, a line for every value."""
    return [
        Grid(
            f"{markdown_code(curve.option)} of {markdown_code(curve.loss)}",
            [curve.option.rpartition(".")[2], *_error_headings(found), "optimal", "T", "accuracy"],
            _coefficient_rows(curve, found),
        )
        for curve in found.coefficients
    ]


def _coefficient_rows(curve: CoefficientCurve, found: Diagnosis) -> list[list[str]]:
    return [
        [
            f"{point.value:g}",
            *(in_full(point.ece[name]) for name in found.maps),
            in_full(point.optimal_ece),
            in_full(point.temperature, 3),
            in_full(point.accuracy),
        ]
        for point in curve.points
    ]


def _error_headings(found: Diagnosis) -> list[str]:
    return [map_words(name) for name in found.maps]


def size_grids(found: Diagnosis) -> list[Grid]:
    """A line for every candidate and map, a column for every number of rows; a table for each set of these."""
    grids = []
    for members in _alike(in_order(found, found.validation_sizes), lambda one: tuple(p.rows for p in one.points)):
        header = ["candidate", "map", *(f"{point.rows:,} rows" for point in members[0].points)]
        rows = [
            [markdown_code(one.candidate), name, *(_size_text(point, name) for point in one.points)]
            for one in members
            for name in found.maps[1:]
        ]
        grids.append(Grid("", header, rows))
    return grids


def _size_text(point: SizePoint, name: str) -> str:
    spread, failed = point.ece[name], point.failed[name]
    if math.isnan(spread.mean):
        return "–"
    many = len(spread.values) - failed
    text = f"{spread.mean:.4f}" + (f" ({spread.lowest:.4f} … {spread.highest:.4f})" if many > 1 else "")
    return f"{text}, {failed} of {len(spread.values)} not fitted" if failed else text


def epoch_grids(found: Diagnosis) -> list[Grid]:
    """A line for every candidate, a column for some of the epochs; a table for each set of these."""
    grids = []
    for members in _alike(in_order(found, found.epochs), lambda one: one.epochs):
        shown = shown_epochs(members[0])
        header = ["candidate", *(f"epoch {epoch}" for epoch in shown), "lowest", "at epoch", "rise to the end"]
        rows = [[markdown_code(one.candidate), *_epoch_cells(one, shown)] for one in members]
        grids.append(Grid("", header, rows))
    return grids


def shown_epochs(curves: EpochCurves) -> list[int]:
    """All of a few; of more some, evenly spaced, the first and the last among them."""
    if len(curves.epochs) <= _ALL_EPOCHS:
        return list(curves.epochs)
    step = (len(curves.epochs) - 1) / (_MOST_EPOCHS - 1)
    return [curves.epochs[round(place * step)] for place in range(_MOST_EPOCHS)]


def _epoch_cells(curves: EpochCurves, shown: Sequence[int]) -> list[str]:
    band = curves.numbers["optimal_ece"]
    cells = _band_cells(curves, band, shown, ".4f")
    lowest = band.mean[curves.epochs.index(curves.lowest_epoch)]
    return [*cells, f"{lowest:.4f}", str(curves.lowest_epoch), f"{curves.rise:+.4f}"]


def _band_cells(curves: EpochCurves, band: Band, shown: Sequence[int], form: str) -> list[str]:
    places = [curves.epochs.index(epoch) for epoch in shown]
    ranges = [f" ({band.lowest[place]:{form}} … {band.highest[place]:{form}})" * (curves.runs > 1) for place in places]
    return [f"{band.mean[place]:{form}}{told}" for place, told in zip(places, ranges, strict=True)]


def loss_grids(found: Diagnosis) -> list[Grid]:
    """Of losses that are learned: a line for every number that they tell, such as the mean γ, over the epochs."""
    grids = []
    learned = [one for one in in_order(found, found.epochs) if one.learned]
    for members in _alike(learned, lambda one: one.epochs):
        shown = shown_epochs(members[0])
        rows = [
            [markdown_code(one.candidate), name, *_band_cells(one, band, shown, _LEARNED)]
            for one in members
            for name, band in one.learned.items()
        ]
        grids.append(Grid("", ["candidate", "", *(f"epoch {epoch}" for epoch in shown)], rows))
    return grids


def learned_grid(found: Diagnosis) -> Grid | None:
    """A line for every candidate whose runs were traced: share of rows and their top logits, by group."""
    if not found.learned_epochs:
        return None
    groups = found.learned_epochs[0].groups
    header = ["candidate", *(group_words(group) for group in groups), "rank correlation"]
    rows = [
        [markdown_code(one.candidate), *(_group_text(group) for group in one.groups), in_full(one.rank_correlation, 3)]
        for one in in_order(found, found.learned_epochs)
    ]
    return Grid("", header, rows)


def group_words(group: LearnedGroup) -> str:
    """``epochs 2–5``, or ``never``."""
    if group.first is None:
        return "never"
    return f"epoch {group.first}" if group.first == group.last else f"epochs {group.first}–{group.last}"


def _group_text(group: LearnedGroup) -> str:
    if not group.rows:
        return "–"
    return f"{brief(group.share, 2)} of rows: {group.mean:.1f} ± {group.std:.1f}"


def _alike(found: Iterable[_Found], key: Callable[[_Found], Hashable]) -> list[list[_Found]]:
    """Those with the same key together, in order of first appearance."""
    groups: dict[Hashable, list[_Found]] = {}
    for one in found:
        groups.setdefault(key(one), []).append(one)
    return list(groups.values())
