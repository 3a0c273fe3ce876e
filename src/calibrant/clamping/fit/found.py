"""What a fit leaves, before it becomes a clamped model."""

from typing import NamedTuple

from torch import Tensor

from calibrant.clamping.clamped.summary import StrengthTrial
from calibrant.errors import Caveat
from calibrant.maps import Map
from calibrant.numerics.certificate import Certificate

__all__ = ["Found"]


class Found(NamedTuple):
    """δ, the head behind it, and how they were found."""

    delta: Tensor
    head: Map
    strength: float
    gamma: float
    certificate: Certificate | None
    trials: tuple[StrengthTrial, ...] = ()
    notes: tuple[str, ...] = ()
    caveats: tuple[Caveat, ...] = ()

    def noted(self, *first: str) -> "Found":
        """The same with other notes before its own."""
        return self._replace(notes=(*first, *self.notes))
