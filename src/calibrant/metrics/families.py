"""Families of metrics that share a statistic and its options."""

from dataclasses import dataclass, field

from calibrant.metrics.base import Metric
from calibrant.metrics.statistics import EXACT, Binned, RankedCells, RankedRows

__all__ = ["BinMetric", "RankMetric"]


@dataclass(frozen=True)
class BinMetric(Metric):
    """A metric read off equal-width bins of confidence."""

    n_bins: int = 15

    @property
    def statistic(self) -> Binned:
        """Equal-width bins."""
        return Binned(self.n_bins)


@dataclass(frozen=True)
class RankMetric(Metric):
    """A metric read off ranked answers: exactly, or with ``ranks=RankedCells()`` in bounded memory."""

    ranks: RankedRows | RankedCells = field(default=EXACT, kw_only=True)

    @property
    def statistic(self) -> RankedRows | RankedCells:
        """Ranked answers."""
        return self.ranks
