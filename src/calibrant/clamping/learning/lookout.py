"""What the objective is at a δ: the best head for it, the loss behind that head, and which way the loss falls.

A pass gives the logits at δ, and the gradient in δ behind a head that must be known before. A temperature is taken from
the δ before: it is then solved for this δ on the logits, which costs next to nothing, so that the loss is exact, and
only the gradient lags by what the temperature moved. A head of more numbers would lead astray so; it is solved first,
which takes another half pass.
"""

import math
import warnings
from typing import NamedTuple, final

import torch
from torch import Tensor

from calibrant.clamping.learning.freedom import Basis
from calibrant.clamping.learning.heads import HeadFit
from calibrant.clamping.learning.objective import Objective
from calibrant.clamping.learning.passes import Passes
from calibrant.errors import CalibrantWarning
from calibrant.maps import Map, Scale

__all__ = ["Lookout", "Viewpoint"]

# How far two ways to compute a loss may differ by rounding, relative to it; in 16 bits, too.
_SAME = 1e-2


class Viewpoint(NamedTuple):
    """A δ that was looked at."""

    coefficients: Tensor  # (p,), float64
    head: Map
    loss: float  # infinite where logits are not finite
    gradient: Tensor  # of the loss alone, (p,), float64
    lag: float  # how far the gradient's temperature was from the best one, in its logarithm

    def value(self, objective: Objective) -> float:
        """The loss and the penalty."""
        return self.loss + objective.penalty_of(self.coefficients)


@final
class Lookout:
    """Looks at one δ after the other, and counts the passes.

    Args:
        passes: Over the rows to fit.
        basis: How δ may vary.
        head: Fits the map behind the network.
        dtype: Of δ.
    """

    def __init__(self, passes: Passes, basis: Basis, head: HeadFit, dtype: torch.dtype) -> None:
        self._passes, self._basis, self._head_fit, self._dtype = passes, basis, head, dtype
        self.passes_taken = 0.0

    def look(self, coefficients: Tensor, head: Map | None, objective: Objective) -> Viewpoint:
        """The objective at a δ, given by its coefficients (p,).

        Args:
            coefficients: Where to look.
            head: The best one nearby; None if there is none yet, and logits that are not finite are then an error.
            objective: Its strength does not matter here.
        """
        delta = self.spread(coefficients)
        if head is None or not self._head_fit.is_temperature:
            logits = self._passes.logits(delta)
            self.passes_taken += 0.5
            if head is None:
                self._passes.check_finite(logits)
            elif not bool(logits.isfinite().all()):
                return _too_far(coefficients, head)
            head = self._fitted(logits, self._passes.labels, last=head)
        slope = self._passes.slope(delta, head, objective)
        self.passes_taken += 1
        if not bool(slope.logits.isfinite().all()):
            return _too_far(coefficients, head)
        labels, best = self._passes.seen_labels, head
        if self._head_fit.is_temperature or self._passes.augments:  # else it was fitted to these very logits
            best = self._fitted(slope.logits, labels, last=head)
        with torch.no_grad():
            loss = float(objective.row_losses(best(slope.logits).double(), labels).mean())
        gradient = self._basis.gathered(slope.gradient).flatten()
        return Viewpoint(coefficients, best, loss, gradient, _apart(head, best))

    def is_true(self, point: Viewpoint, objective: Objective) -> bool:
        """Whether the loss of a δ is the same when every row goes the whole way through the network."""
        if self._passes.augments:
            return True
        with torch.no_grad():
            logits = point.head(self._passes.logits(self.spread(point.coefficients)))
            loss = float(objective.row_losses(logits.double(), self._passes.labels).mean())
        return abs(loss - point.loss) <= _SAME * max(abs(loss), abs(point.loss))

    def plain_head(self, coefficients: Tensor) -> Map:
        """The best head for the rows as they are, where passes see them augmented or coarsely."""
        return self._fitted(self._passes.precise_logits(self.spread(coefficients)), self._passes.labels)

    def spread(self, coefficients: Tensor) -> Tensor:
        """δ, of an input's shape."""
        return self._basis.spread(coefficients.reshape(self._basis.shape)).to(self._dtype)

    def _fitted(self, logits: Tensor, labels: Tensor, *, last: Map | None = None) -> Map:
        with warnings.catch_warnings():
            # Of heads on the way; the one that is kept is fitted again, and may warn.
            warnings.simplefilter("ignore", CalibrantWarning)
            return self._head_fit.fit(logits, labels, last=last)


def _too_far(coefficients: Tensor, head: Map) -> Viewpoint:
    """Where logits are not finite: no step ends there."""
    return Viewpoint(coefficients, head, math.inf, torch.full_like(coefficients, math.nan), 0.0)


def _apart(used: Map, best: Map) -> float:
    if not (isinstance(used, Scale) and isinstance(best, Scale)):
        return 0.0
    return abs(math.log(float(best.temperature) / float(used.temperature)))
