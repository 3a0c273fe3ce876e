"""Log-loss of ``softmax(W x + b)`` with its derivatives, for a full matrix, a diagonal one, and one number."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple, final

import torch
from torch import Tensor

from calibrant.numerics.newton import Point, Preconditioner
from calibrant.numerics.numpy_kernels import columns_first, working

__all__ = ["AffineLoss", "DiagonalLoss", "MatrixLoss", "Ridge", "ScalarLoss"]

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
        penalty: Weight of the squared distance of each parameter from ``centre``, shape (k, c).
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


# Curvature, as a share of the largest, below which a direction is rounding.
_FLAT = 1e-9


@final
class DiagonalLoss(AffineLoss):
    """Log-loss of ``softmax(w ⊙ x + b)`` as a function of (w, b), shape (k, 2).

    With U = (p ⊙ x, p) the Hessian is that of classes by themselves less U Uᵀ. U is kept, in float32.
    """

    def __init__(self, inputs: Tensor, labels: Tensor, ridge: Ridge) -> None:
        k = inputs.shape[1]
        penalty = torch.tensor([ridge.diagonal, ridge.bias], dtype=torch.float64, device=inputs.device)
        only_w, only_b = torch.eye(2).to(penalty)[:, None].expand(2, k, 2)
        super().__init__(inputs, labels, penalty.expand(k, 2), centre=only_w, level=only_b)
        self._weighted = torch.empty_like(self._probs)  # p ⊙ x
        self._alone, self._shared = torch.zeros(2, k, 2, 2).to(penalty)

    def bend(self, direction: Tensor) -> Tensor:
        self._settle()
        steeper, higher = direction.float().unbind(dim=1)
        common = steeper @ self._weighted + higher @ self._probs
        shared = torch.stack([self._weighted @ common, self._probs @ common], dim=1).double() / self.n
        return (self._alone @ direction[:, :, None])[:, :, 0] - shared + 2 * self._penalty * direction

    def _solver(self, *, strong: bool) -> Preconditioner:
        # Two by two blocks. There is no stronger one, nor need of it.
        del strong
        self._settle()
        blocks = self._alone - self._shared + torch.diag_embed(2 * self._penalty)
        least = _FLAT * blocks.diagonal(dim1=1, dim2=2).amax(dim=0) + torch.finfo(torch.float64).tiny
        size = (blocks.diagonal(dim1=1, dim2=2) + least).rsqrt()
        # In units in which both have curvature 1, so that inputs of a class that hardly differ do no harm.
        blocks = blocks * size[:, :, None] * size[:, None, :] + _FLAT * torch.eye(2).to(blocks)
        inverse = torch.linalg.inv(blocks) * size[:, :, None] * size[:, None, :]
        return lambda residual: (inverse @ residual[:, :, None])[:, :, 0]

    def total_bend(self) -> float:
        """Curvature when all of w move together."""
        all_steeper = torch.tensor([1.0, 0.0]).to(self._penalty).expand(self.k, 2)
        return float(self.bend(all_steeper)[:, 0].sum())

    def level_bends(self) -> Tensor:
        """Curvature in each entry of b, (k,)."""
        self._settle()
        return (self._alone - self._shared)[:, 1, 1] + 2 * self._penalty[:, 1]

    def _settle(self) -> None:
        """Take what the curvature needs from the probabilities looked at last."""
        if not self._moved:
            return
        self._alone.zero_()
        self._shared.zero_()
        for rows in self._blocks():
            inputs, probs, weighted = self._coarse[:, rows], self._probs[:, rows], self._weighted[:, rows]
            torch.mul(probs, inputs, out=weighted)
            ones = probs.new_ones(probs.shape[1])
            self._alone[:, 0, 0] += (weighted * inputs) @ ones
            self._alone[:, 0, 1] += weighted @ ones
            self._alone[:, 1, 1] += probs @ ones
            self._shared[:, 0, 0] += weighted.square() @ ones
            self._shared[:, 0, 1] += (weighted * probs) @ ones
            self._shared[:, 1, 1] += probs.square() @ ones
        for moments in (self._alone, self._shared):
            moments[:, 1, 0] = moments[:, 0, 1]
            moments.div_(self.n)
        self._moved = False

    def _logits(self, theta: Tensor, inputs: Tensor) -> Tensor:
        return torch.mul(theta[:, :1], inputs, out=torch.empty_like(inputs)).add_(theta[:, 1:])

    def _add_moments(self, sums: Tensor, weights: Tensor, inputs: Tensor) -> None:
        ones = weights.new_ones(weights.shape[1])
        sums[:, 1] += weights @ ones
        sums[:, 0] += weights.mul_(inputs) @ ones


@final
class ScalarLoss:
    """Log-loss of ``softmax(a x + b)`` as a function of (a, b), shape (k + 1,): the diagonal one with w = (a, …, a)."""

    def __init__(self, inputs: Tensor, labels: Tensor, ridge: Ridge) -> None:
        self._wide = DiagonalLoss(inputs, labels, ridge)
        self._k = inputs.shape[1]

    def look(self, theta: Tensor, *, exact: bool) -> Point:
        point = self._wide.look(self._widen(theta), exact=exact)
        return point._replace(gradient=self._gather(point.gradient))

    def levelled(self, theta: Tensor) -> Tensor:
        return torch.cat([theta[:1], theta[1:] - theta[1:].mean()])

    def bend(self, direction: Tensor) -> Tensor:
        return self._gather(self._wide.bend(self._widen(direction)))

    def preconditioner(self, *, strong: bool) -> Preconditioner:
        """The inverse of the diagonal. There is no stronger one, nor need of it."""
        del strong
        diagonal = torch.cat([self._wide.level_bends().new_tensor([self._wide.total_bend()]), self._wide.level_bends()])
        diagonal = diagonal.clamp(min=_FLAT * float(diagonal.max()) + torch.finfo(torch.float64).tiny)

        return lambda residual: self.levelled(residual / diagonal)

    def _widen(self, theta: Tensor) -> Tensor:
        return torch.stack([theta[:1].expand(self._k), theta[1:]], dim=1)

    @staticmethod
    def _gather(wide: Tensor) -> Tensor:
        return torch.cat([wide[:, 0].sum()[None], wide[:, 1]])


# Curvature, as a share of the largest, below which a direction is rounding.
_FLAT_MATRIX = 1e-9
# Classes up to which a matrix for each of them can be made and inverted in the time that it saves.
_STRONG_CLASSES = 256
# The multiplications it may take to make these matrices.
_STRONG_WORK = 2e8


@final
class MatrixLoss(AffineLoss):
    """Log-loss of ``softmax(W x + b)`` as a function of (W, b), shape (k, k + 1)."""

    def __init__(self, inputs: Tensor, labels: Tensor, ridge: Ridge) -> None:
        k = inputs.shape[1]
        penalty = torch.full((k, k + 1), ridge.off_diagonal, dtype=torch.float64, device=inputs.device)
        penalty[:, k] = ridge.bias
        penalty.diagonal().fill_(ridge.diagonal)
        identity = torch.eye(k, k + 1).to(penalty)
        # Where a column is penalised the penalty says where its level is best; elsewhere its off-diagonal is levelled.
        level = torch.where(penalty.any(dim=0), penalty, 1 - identity)
        super().__init__(inputs, labels, penalty, centre=identity, level=level)

    def bend(self, direction: Tensor) -> Tensor:
        turned, bent = direction.float(), torch.zeros_like(direction)
        for inputs, probs in self._coarse_blocks():
            change = self._logits(turned, inputs)
            change.sub_((probs * change).sum(dim=0)).mul_(probs)
            self._add_moments(bent, change, inputs)
        return bent / self.n + 2 * self._penalty * direction

    def _solver(self, *, strong: bool) -> Preconditioner:
        # A diagonal and the mean of its inputs for each class, or if strong all their products.
        return self._class_blocks() if strong and self.k <= _STRONG_CLASSES else self._diagonals_and_means()

    def _diagonals_and_means(self) -> Preconditioner:
        # Class j sees inputs weighted by v = p_j (1 - p_j): Hessian v_total (variances + mean meanᵀ), nearly.
        means, squares = torch.zeros_like(self._penalty), torch.zeros_like(self._penalty)
        for inputs, probs in self._coarse_blocks():
            spread = probs - probs.square()
            self._add_moments(means, spread, inputs)
            self._add_moments(squares, spread, inputs.square())
        total = (means[:, -1:] / self.n).clamp(min=torch.finfo(torch.float32).tiny)
        means = means / self.n / total
        diagonal = 2 * self._penalty + (squares / self.n - total * means.square()).clamp(min=0)
        diagonal += _FLAT_MATRIX * diagonal.max() + torch.finfo(torch.float64).tiny
        lever = means / diagonal
        weight = lever / (1 / total + (means * lever).sum(dim=1, keepdim=True))
        # Inverse of diagonal + total · mean meanᵀ (Sherman and Morrison).
        return lambda residual: residual / diagonal - weight * (lever * residual).sum(dim=1, keepdim=True)

    def _class_blocks(self) -> Preconditioner:
        k, inputs, probs = self.k, self._coarse.T, self._probs
        size = int(min(self.n, max(2 * (k + 1), _STRONG_WORK / (k * (k + 1) ** 2))))
        every = max(1, self.n // (16 * size))  # of very many rows some will do
        spread = (probs - probs.square())[:, ::every]
        largest, rows = spread.topk(min(size, spread.shape[1]), dim=1)
        # The rows that are least sure of a class stand for all of them.
        share = spread.sum(dim=1) / largest.sum(dim=1).clamp(min=torch.finfo(torch.float32).tiny) / spread.shape[1]
        blocks = torch.empty(k, k + 1, k + 1).to(self._penalty)
        for j in range(k):
            chosen = torch.cat([inputs[rows[j] * every], inputs.new_ones(rows.shape[1], 1)], dim=1)
            chosen = chosen.double() * (largest[j] * share[j]).sqrt()[:, None]
            torch.mm(chosen.T, chosen, out=blocks[j])
        blocks += torch.diag_embed(2 * self._penalty + _FLAT_MATRIX * blocks.diagonal(dim1=1, dim2=2).amax())
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(blocks)).float()
        return lambda residual: (inverse @ residual.float()[:, :, None])[:, :, 0].double()

    def _logits(self, theta: Tensor, inputs: Tensor) -> Tensor:
        return torch.addmm(theta[:, -1:], theta[:, :-1], inputs, out=torch.empty_like(inputs))

    def _add_moments(self, sums: Tensor, weights: Tensor, inputs: Tensor) -> None:
        sums[:, :-1] += weights @ inputs.T
        sums[:, -1] += weights.sum(dim=1)
