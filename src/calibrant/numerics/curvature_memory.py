"""What a minimiser has learned of curvature from its last steps: limited-memory quasi-Newton directions."""

from typing import final

import torch
from torch import Tensor

__all__ = ["CurvatureMemory"]

# A step across which the gradient turns tells of no curvature that could be divided by; a cosine, so that the units of
# steps do not matter.
_LEAST_CURVATURE = 1e-10


@final
class CurvatureMemory:
    """The last steps, and how the gradient changed along each.

    A quadratic penalty is kept apart, so that what was learned under one holds under another.

    Args:
        size: Steps remembered.

    Example:
        >>> memory = CurvatureMemory()
        >>> memory.learn(torch.tensor([1.0]), torch.tensor([4.0]))  # f(x) = 2 x²
        >>> memory.direction(torch.tensor([8.0]), ridge=0.0)
        tensor([-2.])
        >>> memory.direction(torch.tensor([8.0]), ridge=4.0)  # f(x) = 2 x² + 2 x²
        tensor([-1.])
    """

    def __init__(self, size: int = 10) -> None:
        self._size = size
        self._steps: list[Tensor] = []
        self._changes: list[Tensor] = []

    def __len__(self) -> int:
        return len(self._steps)

    def learn(self, step: Tensor, change: Tensor) -> None:
        """Remember a step, (p,), and by how much the gradient changed along it, (p,), the penalty's left out."""
        self._steps = [*self._steps, step][-self._size :]
        self._changes = [*self._changes, change][-self._size :]

    def direction(self, gradient: Tensor, *, ridge: float) -> Tensor | None:
        """The step to the minimum of the quadratic that fits what is remembered, (p,); None if nothing fits.

        Args:
            gradient: Of function and penalty, (p,).
            ridge: The penalty's curvature, the same in every direction.
        """
        pairs = [
            (step, change + ridge * step, float(step @ change + ridge * (step @ step)))
            for step, change in zip(self._steps, self._changes, strict=True)
        ]
        pairs = [pair for pair in pairs if pair[2] > _LEAST_CURVATURE * float(pair[0].norm() * pair[1].norm())]
        if not pairs:
            return None
        aim, shares = gradient.clone(), []
        for step, change, curvature in reversed(pairs):
            shares.append(float(step @ aim) / curvature)
            aim -= shares[-1] * change
        _, change, curvature = pairs[-1]
        aim *= curvature / float(change @ change)
        for (step, change, curvature), share in zip(pairs, reversed(shares), strict=True):
            aim += step * (share - float(change @ aim) / curvature)
        return -aim

    def state(self) -> dict[str, Tensor]:
        """Everything it knows, for :meth:`restore`."""
        if not self._steps:
            return {}
        return {"steps": torch.stack(self._steps), "changes": torch.stack(self._changes)}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Know what another knew."""
        self._steps = list(state["steps"]) if "steps" in state else []
        self._changes = list(state["changes"]) if "changes" in state else []
