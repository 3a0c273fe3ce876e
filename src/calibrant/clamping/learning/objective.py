"""What Neural Clamping minimises (eq. 9): a focal loss of every row, and a penalty on the size of δ.

Here both are per row: the mean loss plus strength · ‖δ‖². Eq. 9 adds the losses up, so its λ is the strength times the
number of rows.
"""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias, final

from torch import Tensor

from calibrant.losses.base import log_losses
from calibrant.losses.focal import focal_weighted

__all__ = ["Objective", "Penalty"]

Penalty: TypeAlias = Literal["squared", "norm"]


@final
@dataclass(frozen=True)
class Objective:
    """The mean loss of rows, and the penalty on δ's coefficients.

    Args:
        gamma: Of the focal loss; 0 is the cross-entropy.
        strength: What the penalty is multiplied by.
        penalty: ``squared``, ‖δ‖², as in eq. 9; ``norm``, ‖δ‖, as the authors' toolkit has it.
        clip: How far a label's probability is kept from 0 and 1; rows beyond have no gradient. The toolkit has 1e-7,
            the paper nothing.
    """

    gamma: float = 0.0
    strength: float = 1.0
    penalty: Penalty = "squared"
    clip: float = 0.0

    def sample_losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss of each row, (n,), of calibrated logits (n, k) and labels (n,)."""
        losses = log_losses(logits, labels)
        if self.clip > 0:
            losses = losses.clamp(-math.log1p(-self.clip), -math.log(self.clip))
        return focal_weighted(losses, self.gamma) if self.gamma > 0 else losses

    def penalty_of(self, coefficients: Tensor) -> float:
        """The penalty on δ, of its coefficients (p,)."""
        square = float(coefficients.double().square().sum())
        return self.strength * (square if self.penalty == "squared" else square**0.5)

    def pull(self, coefficients: Tensor) -> Tensor:
        """The penalty's gradient, (p,); at 0, where the norm has none, it is taken as 0."""
        return self.ridge(coefficients) * coefficients

    def ridge(self, coefficients: Tensor) -> float:
        """The penalty's curvature across its gradient, which is its gradient over δ as well."""
        if self.penalty == "squared":
            return 2 * self.strength
        norm = float(coefficients.norm())
        return self.strength / norm if norm > 0 else 0.0
