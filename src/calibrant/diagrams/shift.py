"""Numbers behind the figures of a shift."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from calibrant.diagrams.comparison import Dot

if TYPE_CHECKING:
    from calibrant.evidence import Estimate
    from calibrant.shift import Distribution, Shift

__all__ = ["ClassDots", "ShiftDiagram", "shift_diagram"]

_MOST = 20  # classes in a figure


@final
@dataclass(frozen=True)
class ClassDots:
    """The proportion of one class in both sets of samples, and the actual one where the new samples have labels."""

    name: str
    reference: Dot
    new: Dot
    is_changed: bool
    actual: float | None


@final
@dataclass(frozen=True)
class ShiftDiagram:
    """Classes, those whose proportion changed most first if they are many, and the distributions that were compared."""

    classes: tuple[ClassDots, ...]
    left_out: int  # classes that changed less
    distributions: Mapping[str, "Distribution"]  # of confidence and spread
    p: Mapping[str, float]  # that they are those of the reference in the new proportions
    is_label_shift: bool
    n_reference: int
    n_new: int
    of_two: bool


def shift_diagram(shift: "Shift") -> ShiftDiagram:
    """Return the numbers behind the figures of a shift."""
    ranked = sorted(shift.classes, key=lambda one: -abs(one.new.value - one.reference.value))
    shown = shift.classes if len(shift.classes) <= _MOST else ranked[:_MOST]
    classes = [ClassDots(one.name, _dot(one.reference), _dot(one.new), one.is_changed, one.actual) for one in shown]
    test = (shift.distributions, {name: part.p for name, part in shift.parts.items()}, shift.is_label_shift)
    size = (shift.n_reference, shift.n_new)
    return ShiftDiagram(tuple(classes), len(shift.classes) - len(shown), *test, *size, len(shift.classes) == 2)


def _dot(one: "Estimate") -> Dot:
    return Dot(one.value, one.low, one.high)
