"""Metrics: states that add up, and values computed from them."""

from calibrant.metrics import binned, proper, ranked, smooth
from calibrant.metrics.base import Metric, Tally
from calibrant.metrics.binned import *  # noqa: F403
from calibrant.metrics.proper import *  # noqa: F403
from calibrant.metrics.ranked import *  # noqa: F403
from calibrant.metrics.smooth import *  # noqa: F403
from calibrant.metrics.states import RankedCells, RankedSamples, State

__all__ = ["Metric", "RankedCells", "RankedSamples", "State", "Tally"]
__all__ += binned.__all__
__all__ += proper.__all__
__all__ += ranked.__all__
__all__ += smooth.__all__
