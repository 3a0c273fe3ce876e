"""The numbers behind the picture of a sweep over the focal loss's γ."""

from dataclasses import dataclass
from typing import final

from torch import Tensor

__all__ = ["GammaSweep"]


@final
@dataclass(frozen=True, eq=False)
class GammaSweep:
    """One entry for each γ, each (m,) in float64; of the test rows unless said otherwise."""

    gamma: Tensor  # rising
    ece: Tensor
    ece_low: Tensor  # 95 % interval
    ece_high: Tensor
    ece_floor: Tensor  # of a calibrated model with the same confidences
    calibration_ece: Tensor  # of the rows that were fitted
    objective: Tensor  # that was minimised: mean loss and penalty, of the rows that were fitted
    entropy: Tensor  # nats
    nll: Tensor
    accuracy: Tensor
    temperature: Tensor
    norm: Tensor  # of δ
    strength: Tensor  # of the penalty, a row; infinity where δ is 0
    n: int
    n_calibration: int

    @property
    def chosen(self) -> int:
        """Where the paper's rule chooses: the least calibration error of the rows that were fitted."""
        return int(self.calibration_ece.argmin())
