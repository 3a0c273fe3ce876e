"""What maps, curves and surfaces share: learned numbers in buffers that no cast may blunt."""

from collections.abc import Callable
from typing import Self, final

import torch
from torch import Tensor, nn

__all__ = ["Learned"]


class Learned(nn.Module):
    """A module whose buffers keep at least float32.

    ``model.bfloat16()`` and ``model.half()`` cast all that a model holds. The edge of a step with two or three digits
    lies elsewhere, and rows get another step's probability; so such casts leave these buffers as they are.
    """

    @final
    def keep(self, **values: Tensor) -> None:
        """Keep what was learned as float64 buffers."""
        for name, value in values.items():
            self.register_buffer(name, torch.as_tensor(value).detach().double())

    @final
    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """What torch does to every buffer for ``to``, ``float``, ``half``, ``cuda`` and the like."""

        def with_enough_digits(values: Tensor) -> Tensor:
            changed = fn(values)
            blunted = changed.is_floating_point() and changed.element_size() < 4
            return values.to(changed.device) if blunted else changed

        return super()._apply(with_enough_digits, recurse)  # type: ignore[no-untyped-call]
