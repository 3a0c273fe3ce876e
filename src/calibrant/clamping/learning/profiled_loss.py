"""The loss at a δ behind the best head for it, and its gradient: what is left to minimise is a function of δ alone.

The head follows δ, and yet the gradient is found behind a head that stands still: where the head minimises the very
sum that δ does, its own movement changes that sum only to second order (the envelope theorem). So the loss here has the
head's own penalty in it, where it has one.

A temperature is taken from the δ before, as a pass needs one before it knows the logits. It is then solved for this δ
on the logits, which costs next to nothing, so that the loss is exact, and only the gradient lags by what the
temperature moved. A head of more numbers would lead astray so; it is solved first, which takes another half pass.
"""

import math
from typing import NamedTuple, final

import torch
from torch import Tensor

from calibrant.clamping.learning.first_temperature import follow_first_temperature
from calibrant.clamping.learning.freedom import Basis
from calibrant.clamping.learning.heads import HeadFit, own_penalty
from calibrant.clamping.learning.objective import Objective
from calibrant.clamping.learning.passes import Passes
from calibrant.errors import without_our_warnings
from calibrant.maps import Map, Scale

__all__ = ["ProfiledLoss", "ProfiledPoint"]

# How far two ways to compute a loss may differ by rounding, relative to it; in 16 bits, too.
_SAME = 1e-2


class ProfiledPoint(NamedTuple):
    """What is known at one δ."""

    coefficients: Tensor  # (p,), float64
    head: Map
    loss: float  # mean over rows and the head's own penalty; infinite where logits are not finite
    gradient: Tensor  # of that, (p,), float64
    lag: float = 0.0  # how far the gradient's temperature was from the best one, in its logarithm
    head_penalty: float = 0.0

    def value(self, objective: Objective) -> float:
        """The loss, and the penalty on δ."""
        return self.loss + objective.penalty_of(self.coefficients)


@final
class ProfiledLoss:
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

    def at(
        self, coefficients: Tensor, head: Map | None, objective: Objective, *, logits: Tensor | None = None
    ) -> ProfiledPoint:
        """The loss at a δ, given by its coefficients (p,).

        Args:
            coefficients: Where to look.
            head: The best one nearby; None if there is none yet, and logits that are not finite are then an error.
            objective: Its strength does not matter here.
            logits: As the pass for the first head would give them, if they are known.

        Raises:
            FitError: If the head has no optimum there.
        """
        if self._head_fit.is_temperature:
            return self._behind_last_temperature(coefficients, head, objective, logits)
        return self._behind_solved_head(coefficients, head, objective, logits)

    def is_true(self, point: ProfiledPoint, objective: Objective) -> bool:
        """Whether the loss of a δ is the same when every row goes the whole way through the network."""
        if self._passes.augments:
            return True
        with torch.no_grad():
            logits = point.head(self._passes.logits(self.spread(point.coefficients)))
            loss = float(objective.sample_losses(logits.double(), self._passes.labels).mean()) + point.head_penalty
        return abs(loss - point.loss) <= _SAME * max(abs(loss), abs(point.loss))

    def plain_head(self, coefficients: Tensor) -> Map:
        """The best head for the rows as they are, where passes see them augmented or coarsely."""
        logits = self._passes.precise_logits(self.spread(coefficients))
        return self._solved(logits, self._passes.labels, coefficients)

    def spread(self, coefficients: Tensor) -> Tensor:
        """δ, of an input's shape."""
        return self._basis.spread(coefficients.reshape(self._basis.shape)).to(self._dtype)

    def _behind_last_temperature(
        self, coefficients: Tensor, head: Map | None, objective: Objective, logits: Tensor | None
    ) -> ProfiledPoint:
        delta = self.spread(coefficients)
        if head is None:
            if logits is None:
                logits = self._passes.logits(delta)
                self.passes_taken += 0.5
            self._passes.check_finite(logits)
            head = self._solved(logits, self._passes.labels, coefficients)
        slope = self._passes.slope(delta, head, objective)
        self.passes_taken += 1
        if not bool(slope.logits.isfinite().all()):
            return _too_far(coefficients, head)
        labels = self._passes.seen_labels
        best = self._solved(slope.logits, labels, coefficients, last=head)
        loss = _mean_loss(best, slope.logits, labels, objective)
        return ProfiledPoint(coefficients, best, loss, self._gathered(slope.gradient), _apart(head, best))

    def _behind_solved_head(
        self, coefficients: Tensor, last: Map | None, objective: Objective, logits: Tensor | None
    ) -> ProfiledPoint:
        delta, labels = self.spread(coefficients), self._passes.seen_labels
        if logits is None:
            logits = self._passes.seen_logits(delta)
            self.passes_taken += 0.5
        if last is None:
            self._passes.check_finite(logits)
        elif not bool(logits.isfinite().all()):
            return _too_far(coefficients, last)
        head = self._solved(logits, labels, coefficients)
        penalty = own_penalty(head, logits, labels)
        following = follow_first_temperature(head, logits, labels, objective)
        slope = self._passes.slope(delta, head, objective, following=following)
        self.passes_taken += 1
        if not bool(slope.logits.isfinite().all()):
            return _too_far(coefficients, head)
        loss = _mean_loss(head, slope.logits, labels, objective) + penalty
        return ProfiledPoint(coefficients, head, loss, self._gathered(slope.gradient), head_penalty=penalty)

    def _gathered(self, gradient: Tensor) -> Tensor:
        return self._basis.gathered(gradient).flatten()

    def _solved(self, logits: Tensor, labels: Tensor, coefficients: Tensor, *, last: Map | None = None) -> Map:
        # Of heads on the way; the one that is kept is fitted again, and may warn.
        with without_our_warnings():
            return self._head_fit.fit(logits, labels, last=last, is_moved=bool(coefficients.any()))


def _mean_loss(head: Map, logits: Tensor, labels: Tensor, objective: Objective) -> float:
    with torch.no_grad():
        return float(objective.sample_losses(head(logits).double(), labels).mean())


def _too_far(coefficients: Tensor, head: Map) -> ProfiledPoint:
    """Where logits are not finite: no step ends there."""
    return ProfiledPoint(coefficients, head, math.inf, torch.full_like(coefficients, math.nan))


def _apart(used: Map, best: Map) -> float:
    if not (isinstance(used, Scale) and isinstance(best, Scale)):
        return 0.0
    return abs(math.log(float(best.temperature) / float(used.temperature)))
