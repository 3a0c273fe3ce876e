"""One rising curve for all classes, which keeps the predicted class ahead."""

from typing import ClassVar, final

from torch import Tensor

from calibrant.maps.base import Map
from calibrant.maps.curve import Curve, Line, Steps
from calibrant.maps.curved import check_columns
from calibrant.maps.learned import require, rises
from calibrant.maps.log_odds import class_log_odds

__all__ = ["PooledMap"]

# By how much the predicted class is put ahead of those that share its step: more than float32 rounds away.
_AHEAD = 1e-4


@final
class PooledMap(Map):
    """A new probability for every class against the rest, all by one rising curve, then divided by their sum.

    Classes of a row keep their order, or become equal; only the predicted one stays ahead of all others.

    Args:
        curve: Of one column, nowhere falling.
        n_classes: Length of a row of logits.
    """

    kind: ClassVar[str] = "pooled"

    def __init__(self, curve: Curve, *, n_classes: int) -> None:
        super().__init__(n_classes, gives_log_probs=True, keeps_predicted=True)
        self.curve = curve

    def check_numbers(self) -> None:
        check_columns(self.curve, 1)
        if isinstance(self.curve, Line | Steps):
            require(rises(self.curve.values), "the curve's values must not fall", self.curve.values)

    def calibrated(self, logits: Tensor) -> Tensor:
        top = logits.argmax(dim=-1, keepdim=True)
        log_odds = class_log_odds(logits)
        # Rounding must not put a class that is as likely as the predicted one on a higher step.
        log_odds = log_odds.minimum(log_odds.gather(-1, top))
        log_probs = self.curve.log_probs(log_odds)
        return log_probs.scatter(-1, top, log_probs.gather(-1, top) + _AHEAD).log_softmax(dim=-1)
