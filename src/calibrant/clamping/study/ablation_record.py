"""What an ablation found: a row for each combination of δ and head, and how some of them differ."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, final

from calibrant.checks import check_known
from calibrant.clamping.clamped.clamped_model import ClampedModel
from calibrant.diagrams.ablation import AblationDiagram, AblationPanel
from calibrant.diagrams.leaderboard import Dot, DotSide
from calibrant.evidence import Difference, Estimate
from calibrant.maps import Map
from calibrant.metrics import Metric
from calibrant.predictions import Predictions

__all__ = ["Ablation", "AblationComparison", "AblationRow", "Cell"]

Cell: TypeAlias = str | float | bool | None


@final
@dataclass(frozen=True)
class AblationRow:
    """One combination: its numbers on the test rows.

    Args:
        name: Such as ``joint``.
        is_moved: Whether the inputs were moved by δ*.
        temperature: T; None where the head is another map.
        metrics: By name, with their intervals.
        head: What stood behind the network.
    """

    name: str
    is_moved: bool
    temperature: float | None
    metrics: dict[str, Estimate]
    head: Map = field(repr=False, compare=False)


@final
@dataclass(frozen=True)
class AblationComparison:
    """A row's numbers minus a rival's, on the same test rows: paired intervals and p-values, by metric."""

    row: str
    rival: str
    differences: dict[str, Difference]
    is_planned: bool  # rather than for the marks of the picture


@final
@dataclass(frozen=True, eq=False)
class Ablation:
    """A fit taken apart.

    Args:
        rows: In the order of the paper's Table 4, then those that it leaves out.
        comparisons: The planned ones first, then the rest against the same rival.
        metrics: What was measured.
        gamma: Of the focal loss of the row that has one.
        resamples: Draws behind intervals and p-values.
        seed: Of the draws.
        clamped: The joint fit.
        still: The network's own test predictions.
        moved: The same at x + δ*, before any head.
        calibration_rows: How many it was fitted on.
    """

    rows: tuple[AblationRow, ...]
    comparisons: tuple[AblationComparison, ...]
    metrics: tuple[Metric, ...]
    gamma: float
    resamples: int
    seed: int
    clamped: ClampedModel = field(repr=False)
    still: Predictions = field(repr=False)
    moved: Predictions = field(repr=False)
    calibration_rows: int

    @property
    def norm(self) -> float:
        """‖δ*‖."""
        return float(self.clamped.delta.double().norm())

    @property
    def rival(self) -> str:
        """The row that is the head without δ: temperature scaling, where the head is a temperature."""
        return self.comparisons[0].rival

    def row(self, name: str) -> AblationRow:
        """The row of this name.

        Raises:
            UnknownNameError: If there is none.
        """
        check_known(name, [row.name for row in self.rows], "an ablation's row")
        return next(row for row in self.rows if row.name == name)

    def predictions(self, name: str) -> Predictions:
        """The test predictions of a row, for a reliability diagram or another metric.

        Raises:
            UnknownNameError: If there is no such row.
        """
        row = self.row(name)
        return row.head.transform(self.moved if row.is_moved else self.still)

    def comparison(self, row: str, rival: str) -> AblationComparison | None:
        """One row against another, if they were compared."""
        return next((each for each in self.comparisons if (each.row, each.rival) == (row, rival)), None)

    def table(self) -> list[dict[str, Cell]]:
        """Plain data, one record a row: name, whether δ* is added, T, and of each metric the value, low and high."""
        lines: list[dict[str, Cell]] = []
        for row in self.rows:
            line: dict[str, Cell] = {"row": row.name, "delta": row.is_moved, "temperature": row.temperature}
            for name, found in row.metrics.items():
                line |= {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}
            lines.append(line)
        return lines

    def diagram(self, metrics: Sequence[str] = ("nll", "ece", "accuracy")) -> AblationDiagram:
        """The numbers of a picture, a panel for each of these metrics.

        Raises:
            UnknownNameError: If one was not measured.
        """
        known = {metric.name: metric for metric in self.metrics}
        for name in metrics:
            check_known(name, known, "an ablation's metric")
        return AblationDiagram(
            names=tuple(row.name for row in self.rows),
            temperatures=tuple(row.temperature for row in self.rows),
            rival=self.rival,
            panels=tuple(
                AblationPanel(
                    name, known[name].lower_is_better, tuple(self._dot(row, known[name]) for row in self.rows)
                )
                for name in metrics
            ),
            norm=self.norm,
            n=len(self.still),
        )

    def _dot(self, row: AblationRow, metric: Metric) -> Dot:
        found, against = row.metrics[metric.name], self.comparison(row.name, self.rival)
        side: DotSide = "alike" if against is None else against.differences[metric.name].side
        return Dot(found.value, found.low, found.high, side)
