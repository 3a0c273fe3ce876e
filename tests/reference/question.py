"""What peers are asked, where they are right (:class:`Question`) and where they are wrong (:class:`WrongAnswer`)."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from data import Dataset
from torch import Tensor

__all__ = [
    "COARSE_MESH",
    "EVEN_BINS",
    "EXACT",
    "HALF_WEIGHT_AT_ONE",
    "ROUNDED_TO_FLOAT32",
    "Question",
    "Tolerance",
    "WrongAnswer",
    "said",
    "tensors",
]

# Equal-mass bins of exactly equal size: with a remainder, peers disagree about which bins get the extra sample.
EVEN_BINS = 20


@dataclass(frozen=True)
class Tolerance:
    """The largest absolute difference that is still agreement, and why it is not zero."""

    absolute: float
    reason: str


EXACT = Tolerance(1e-10, "same definition, both in float64: only the order of summation differs")
ROUNDED_TO_FLOAT32 = Tolerance(2e-6, "same definition; the peer computes or returns in float32")
COARSE_MESH = Tolerance(
    5e-4, "the peer bisects the width to 1/1024 only and sums 200 mesh points with the end points at full weight"
)
HALF_WEIGHT_AT_ONE = {"ties": "the peer gives confidences of exactly 1.0 half their weight (see wrong answers)"}


@dataclass(frozen=True)
class Question:
    """One of our metrics asked of a peer, on every data set but those left out (with the reason).

    Where the peer's definition differs from ours by a closed form, ``convert`` is it, and ``conversion`` its words.
    """

    metric: str
    call: str
    ask: Callable[[Dataset], Any]
    tolerance: Tolerance = EXACT
    options: dict[str, Any] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    convert: Callable[[Dataset, float], float] | None = None
    conversion: str | None = None

    def record(self, name: str, data: Dataset) -> dict[str, Any]:
        """What the peer says about one data set; ``value`` is what ours must be."""
        raw = float(self.ask(data))
        answer = {"metric": self.metric, "dataset": name, "call": self.call, "options": self.options, "value": raw}
        if self.convert is not None:
            answer |= {"value": float(self.convert(data, raw)), "peer_value": raw, "conversion": self.conversion}
        return answer | {"tolerance": self.tolerance.absolute, "reason": self.tolerance.reason}


@dataclass(frozen=True)
class WrongAnswer:
    """A peer's number that is not what the definition gives, on data small enough to check by hand.

    ``rows`` holds either ``probs`` and ``labels`` or ``confidence`` and ``correct``, repeated ``times`` times; it is
    empty where the case has no samples of its own. ``right`` is None where no number is right (an error is due), and
    ``answer`` is a number, or the error the peer raised. ``metric`` is None where the number is not a metric of ours.
    """

    case: str
    call: str
    right: float | None
    derivation: str
    answer: float | str
    metric: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, Any] = field(default_factory=dict)


def said(ask: Callable[[], Any]) -> float | str:
    """The peer's number (in words where it is none), or the error it raised."""
    try:
        number = float(ask())
    except Exception as error:  # noqa: BLE001  # which error a peer raises is what is being recorded
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return number if math.isfinite(number) else str(number)


def tensors(data: Dataset) -> tuple[Tensor, Tensor]:
    """Probabilities and labels for peers that take tensors."""
    return torch.from_numpy(data.probs), torch.from_numpy(data.labels)
