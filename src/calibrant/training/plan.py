"""What an epoch will do, decided before it starts: which rows in which step, how shifted, mirrored and mixed.

Everything random is drawn here, on the CPU, from the seed and the epoch's number alone. So an interrupted run goes on
exactly as if it had not stopped, a GPU sees the same rows as a CPU, and several processes share one plan.
"""

import hashlib
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

__all__ = ["PADDING", "EpochPlan", "generator_of", "plan_epoch"]

PADDING = 4  # pixels by which a crop may be off, to each side


@final
@dataclass(frozen=True, eq=False)
class EpochPlan:
    """Of each row of each step: which example it is, and what is done to it. Also the buffers that steps read."""

    rows: Tensor  # (steps, b) int64
    shifts: Tensor  # (steps, b, 2) int64, down and right, 0 to twice the padding
    mirrored: Tensor  # (steps, b) bool
    partners: Tensor  # (steps, b) int64, a permutation of each step's places
    shares: Tensor  # (steps,) float32, of the row itself where it is mixed with its partner
    judges: Tensor  # (steps, m) int64, which held-out rows judge a loss that is learned; m is 0 if there are none

    def to(self, device: torch.device) -> "EpochPlan":
        return EpochPlan(*(field.to(device, non_blocking=True) for field in self.fields()))

    def fields(self) -> tuple[Tensor, ...]:
        return self.rows, self.shifts, self.mirrored, self.partners, self.shares, self.judges

    def copy_(self, other: "EpochPlan") -> None:
        """Take over another epoch's plan, in the place that captured steps read."""
        for mine, theirs in zip(self.fields(), other.fields(), strict=True):
            mine.copy_(theirs, non_blocking=True)


def generator_of(seed: int, epoch: int) -> torch.Generator:
    """The one source of chance in an epoch: neighbours in seed or epoch have nothing in common."""
    digest = hashlib.sha256(f"calibrant epoch {seed}/{epoch}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little", signed=True))


def plan_epoch(n: int, batch_size: int, *, seed: int, epoch: int, mixup: float = 0.0, n_judges: int = 0) -> EpochPlan:
    """Draw an epoch.

    Args:
        n: Training rows, at least ``batch_size``; what is left over after the last full step is not used.
        batch_size: Rows a step.
        seed: Of the run.
        epoch: Counted from 0.
        mixup: The α of the Beta distribution that shares are drawn from; 0 leaves every row whole.
        n_judges: Held-out rows that a batch of judges is drawn from in each step, as large as the training batch if
            there are as many; 0 draws none.
    """
    chance = generator_of(seed, epoch)
    steps = n // batch_size
    shape = (steps, batch_size)
    rows = torch.randperm(n, generator=chance)[: steps * batch_size].view(shape)
    shifts = torch.randint(2 * PADDING + 1, (*shape, 2), generator=chance)
    mirrored = torch.rand(shape, generator=chance) < 0.5
    partners = torch.rand(shape, generator=chance).argsort(dim=1)
    shares = mixing_shares(steps, mixup, chance)
    return EpochPlan(rows, shifts, mirrored, partners, shares, _judges(n_judges, batch_size, steps, chance))


def _judges(n: int, batch_size: int, steps: int, chance: torch.Generator) -> Tensor:
    """As many rows a step as there are in a batch, or all; each as often as any other, in turns, (steps, m)."""
    size = min(batch_size, n)
    rounds = -(-steps * size // n) if n else 0
    order = [torch.randperm(n, generator=chance) for _ in range(rounds)] or [torch.zeros(0, dtype=torch.int64)]
    return torch.cat(order)[: steps * size].view(steps, size)


def mixing_shares(n: int, alpha: float, chance: torch.Generator) -> Tensor:
    """Draws from Beta(α, α), (n,) float32; all 1 where α is 0."""
    if alpha == 0:
        return torch.ones(n)
    both = torch._standard_gamma(torch.full((n, 2), alpha, dtype=torch.float64), generator=chance)
    # For a tiny α both draws can be too small to be told apart, which stands for all of one or all of the other. Torch
    # then gives the smallest number there is, not 0.
    return torch.where(both.sum(1) > 1e-300, both[:, 0] / both.sum(1), 1.0).float()
