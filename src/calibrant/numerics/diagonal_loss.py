"""The affine log-loss where W is diagonal, and where it is one number: curvature by products with vectors only."""

from typing import final

import torch
from torch import Tensor

from calibrant.numerics.affine_loss import AffineLoss, Ridge
from calibrant.numerics.newton import Point, Preconditioner

__all__ = ["DiagonalLoss", "ScalarLoss"]

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
