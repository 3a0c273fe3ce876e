"""Log-loss of ``softmax(W x + b)``, its gradient and its curvature, over blocks of rows.

Blocks are class-first, (k, m): few classes are laid out so in memory, many are a view of the rows as given. Gradients
are added up in float64. For the curvature the probabilities are kept in float32, which is as much as a Newton step,
corrected by the next gradient, has use for.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple, final

import torch
from torch import Tensor

from calibrant.numerics.fast import columns_first
from calibrant.numerics.newton import Point, Preconditioner
from calibrant.numerics.precision import working

__all__ = ["AffineLoss", "Ridge"]

# Numbers in a block, and rows at least, so that products of matrices stay efficient. On a GPU only memory matters.
_BLOCK, _GPU_BLOCK, _LEAST_ROWS = 1 << 17, 1 << 26, 512
# Up to this many classes, on a CPU, rows are turned on their side.
_FEW = 32
# A row with less loss has its label ahead of all other classes, in single precision, too.
_RIGHT = 0.999 * math.log(2)


class Ridge(NamedTuple):
    """How strongly squares are penalised: ``diagonal·Σ(w_jj − 1)² + off_diagonal·Σ w_jl² + bias·Σ b_j²``."""

    diagonal: float = 0.0
    off_diagonal: float = 0.0
    bias: float = 0.0


class AffineLoss(ABC):
    """Mean log-loss over rows, and penalties, as a function of parameters theta, (k, c).

    The last column of theta is b; the others make W, in a way that subclasses know.

    Args:
        inputs: Shape (n, k).
        labels: Shape (n,).
        penalty: Of the square of each parameter's distance from ``centre``, shape (k, c).
        centre: Shape (k, c).
        level: A number added to a whole column of theta may change nothing but the penalty. These are the weights, (k,
            c), by which a column should then have a mean of zero, less the centre; 0 for other columns.
    """

    def __init__(self, inputs: Tensor, labels: Tensor, penalty: Tensor, centre: Tensor, level: Tensor) -> None:
        n, k = inputs.shape
        inputs = working(inputs)
        sideways = k <= _FEW and inputs.device.type == "cpu"
        self._inputs = columns_first(inputs, out=inputs.new_empty(k, n)) if sideways else inputs.T
        self._labels, self._penalty, self._centre = labels, penalty, centre
        self._level = level / level.sum(dim=0).clamp(min=1e-300)
        self._free = not bool(penalty.any())
        self._coarse = self._inputs.float()
        self._probs = torch.empty_like(self._coarse)
        self._moved = True  # the probabilities are other than those the curvature was made of
        self.n, self.k = n, k

    @final
    def look(self, theta: Tensor, *, exact: bool) -> Point:
        """Value and gradient, in double or in single precision; sums over rows are float64."""
        source, dtype = (self._inputs, torch.float64) if exact else (self._coarse, torch.float32)
        working, self._moved = (theta * math.log2(math.e)).to(dtype), True
        total, gradient, apart = torch.zeros_like(theta[0, 0]), torch.zeros_like(theta), self._free
        for rows in self._blocks():
            inputs, labels = source[:, rows].to(dtype), self._labels[rows]
            probs = self._logits(working, inputs)
            losses = _turn_to_probs(probs, labels)
            total += losses.sum(dtype=torch.float64)
            apart = apart and bool(losses.max() < _RIGHT)
            self._probs[:, rows] = probs
            probs.scatter_add_(0, labels[None], probs.new_full((1, len(labels)), -1.0))
            self._add_moments(gradient, probs, inputs)
        away = theta - self._centre
        value = float(total) / self.n + float((self._penalty * away.square()).sum())
        return Point(value, gradient / self.n + 2 * self._penalty * away, apart)

    @abstractmethod
    def bend(self, direction: Tensor) -> Tensor:
        """Hessian times direction at the point looked at last, (k, c)."""

    @final
    def preconditioner(self, *, strong: bool) -> Preconditioner:
        """About the inverse of that Hessian, kept level: it knows nothing of columns that shift as a whole."""
        solve = self._solver(strong=strong)
        return lambda residual: self._keep_level(solve(residual))

    @final
    def levelled(self, theta: Tensor) -> Tensor:
        """Parameters with the same probabilities to begin from: steps leave the level of columns as it is."""
        return self._centre + self._keep_level(theta - self._centre)

    @final
    def _keep_level(self, change: Tensor) -> Tensor:
        return change - (self._level * change).sum(dim=0)

    @abstractmethod
    def _solver(self, *, strong: bool) -> Preconditioner:
        """About the inverse of the Hessian of every class by itself."""

    @abstractmethod
    def _logits(self, theta: Tensor, inputs: Tensor) -> Tensor:
        """``W x + b``, newly made and laid out as the inputs are, (k, m)."""

    @abstractmethod
    def _add_moments(self, sums: Tensor, weights: Tensor, inputs: Tensor) -> None:
        """Add to sums, (k, c), those over the rows of weights times the derivatives of the logits."""

    @final
    def _blocks(self) -> Iterator[slice]:
        most = max(_LEAST_ROWS, (_BLOCK if self._inputs.device.type == "cpu" else _GPU_BLOCK) // self.k)
        step = math.ceil(self.n / math.ceil(self.n / most))  # blocks of even size
        return (slice(start, min(start + step, self.n)) for start in range(0, self.n, step))

    @final
    def _coarse_blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs and probabilities in single precision, (k, m) each."""
        return ((self._coarse[:, rows], self._probs[:, rows]) for rows in self._blocks())


def _turn_to_probs(logits: Tensor, labels: Tensor) -> Tensor:
    """Softmax over the classes in place, (k, m), and the loss of each row, (m,).

    The logits are in units of ln 2: powers of two are a third faster than powers of e.
    """
    logits.sub_(logits.amax(dim=0))
    label_gap = logits.gather(0, labels[None])[0]
    total = logits.exp2_().sum(dim=0)
    logits.mul_(total.reciprocal())
    return total.log2_().sub_(label_gap).mul_(math.log(2))
