"""The affine log-loss where W is a full matrix: k (k + 1) parameters, curvature by two products of matrices."""

from typing import final

import torch
from torch import Tensor

from calibrant.numerics.affine_loss import AffineLoss, Ridge
from calibrant.numerics.newton import Preconditioner

__all__ = ["MatrixLoss"]

# Curvature, as a share of the largest, below which a direction is rounding.
_FLAT = 1e-9
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
        diagonal += _FLAT * diagonal.max() + torch.finfo(torch.float64).tiny
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
        blocks += torch.diag_embed(2 * self._penalty + _FLAT * blocks.diagonal(dim1=1, dim2=2).amax())
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(blocks)).float()
        return lambda residual: (inverse @ residual.float()[:, :, None])[:, :, 0].double()

    def _logits(self, theta: Tensor, inputs: Tensor) -> Tensor:
        return torch.addmm(theta[:, -1:], theta[:, :-1], inputs, out=torch.empty_like(inputs))

    def _add_moments(self, sums: Tensor, weights: Tensor, inputs: Tensor) -> None:
        sums[:, :-1] += weights @ inputs.T
        sums[:, -1] += weights.sum(dim=1)
