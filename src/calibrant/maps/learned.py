"""What maps, curves and surfaces share: learned numbers in buffers that no cast may blunt."""

from collections.abc import Callable
from typing import ClassVar, Self, final

import torch
from torch import Tensor, nn

from calibrant.errors import InputError

__all__ = ["Learned", "require", "rises"]


class Learned(nn.Module):
    """A module whose buffers keep at least float32.

    ``model.bfloat16()`` and ``model.half()`` cast all that a model holds. The edge of a step with two or three digits
    lies elsewhere, and rows get another step's probability; so such casts leave these buffers as they are.
    """

    may_be_infinite: ClassVar[tuple[str, ...]] = ()  # names of buffers

    @final
    def keep(self, **values: Tensor) -> None:
        """Keep what was learned as float64 buffers."""
        for name, value in values.items():
            self.register_buffer(name, torch.as_tensor(value).detach().double())

    @final
    def check(self) -> None:
        """See that all numbers, those of the parts too, can be what they are for; files are checked by this.

        Raises:
            InputError: If one is NaN or infinite where it must not be, out of range, or of a size that does not fit.
        """
        for part in reversed(list(self.modules())):  # parts before what they are parts of
            if isinstance(part, Learned):
                for name, values in part.named_buffers(recurse=False):
                    bad = values.isnan() if name in part.may_be_infinite else ~values.isfinite()
                    require(not bad.any(), f"{name} must be finite", values)
                part.check_numbers()

    def check_numbers(self) -> None:
        """See that the sizes of its own numbers fit together, and that the numbers are in their range.

        Raises:
            InputError: If they are not.
        """

    @final
    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """What torch does to every buffer for ``to``, ``float``, ``half``, ``cuda`` and the like."""

        def with_enough_digits(values: Tensor) -> Tensor:
            changed = fn(values)
            blunted = changed.is_floating_point() and changed.element_size() < 4
            return values.to(changed.device) if blunted else changed

        return super()._apply(with_enough_digits, recurse)  # type: ignore[no-untyped-call]


def require(holds: Tensor | bool, what: str, got: Tensor) -> None:
    """Refuse numbers of which something does not hold.

    Raises:
        InputError: Then; with what must hold and, of the numbers, their shape and range.
    """
    if holds:
        return
    shown = f"shape {tuple(got.shape)}"
    if got.numel() == 1:
        shown = f"{got.item():.6g}"
    elif got.numel():
        low, high = got.double().aminmax()
        shown += f", from {float(low):.6g} to {float(high):.6g}"
    raise InputError(f"{what}; got {shown}.")


def rises(values: Tensor) -> Tensor:
    """Whether no number along the last axis is below the one before it, a single truth value."""
    return (values[..., 1:] >= values[..., :-1]).all()
