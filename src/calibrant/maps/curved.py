"""Maps that bend log-odds by a curve: those of the predicted class, of each class by itself, or of two classes."""

from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from calibrant.maps.base import Map
from calibrant.maps.curve import Curve
from calibrant.maps.learned import require
from calibrant.maps.log_odds import class_log_odds, top_log_odds, with_top_log_odds

__all__ = ["OneVsRest", "TopLabelMap", "TwoClassMap", "check_columns"]


@final
class TopLabelMap(Map):
    """A new confidence for the predicted class; the other classes share the rest as before.

    The prediction never changes: a confidence below 1/k is lifted to it, see :func:`with_top_log_odds`.

    Args:
        curve: Of one column.
        n_classes: Length of a row of logits.
    """

    kind: ClassVar[str] = "top_label"

    def __init__(self, curve: Curve, *, n_classes: int) -> None:
        super().__init__(n_classes, gives_log_probs=True, keeps_predicted=True)
        self.curve = curve

    def check_numbers(self) -> None:
        check_columns(self.curve, 1)

    def calibrated(self, logits: Tensor) -> Tensor:
        top = top_log_odds(logits)
        return with_top_log_odds(top, self.curve(top.log_odds))


@final
class OneVsRest(Map):
    """A new probability for every class against the rest, then divided by their sum.

    Args:
        curve: Of one column a class, or one for all.
        n_classes: Length of a row of logits.
    """

    kind: ClassVar[str] = "one_vs_rest"

    def __init__(self, curve: Curve, *, n_classes: int) -> None:
        super().__init__(n_classes, gives_log_probs=True)
        self.curve = curve

    def check_numbers(self) -> None:
        check_columns(self.curve, 1, self.n_classes)

    def calibrated(self, logits: Tensor) -> Tensor:
        return self.curve.log_probs(class_log_odds(logits)).log_softmax(dim=-1)


@final
class TwoClassMap(Map):
    """New log-odds of class 1 against class 0.

    Args:
        curve: Of one column.
        n_classes: Must be 2.
    """

    kind: ClassVar[str] = "two_class"

    def __init__(self, curve: Curve, *, n_classes: int = 2) -> None:
        super().__init__(n_classes, gives_log_probs=True)
        self.curve = curve

    def check_numbers(self) -> None:
        check_columns(self.curve, 1)
        require(self.n_classes == 2, "a map of two classes must have two", torch.tensor(self.n_classes))

    def calibrated(self, logits: Tensor) -> Tensor:
        log_odds = self.curve(logits[..., 1:] - logits[..., :1])
        return torch.cat([logsigmoid(-log_odds), logsigmoid(log_odds)], dim=-1)


def check_columns(curve: Curve, *allowed: int) -> None:
    """A curve has a function for as many columns as its map has use for.

    Raises:
        InputError: If it has not.
    """
    wanted = " or ".join(str(each) for each in sorted(set(allowed)))
    require(curve.columns in allowed, f"the curve must have {wanted} columns", torch.tensor(curve.columns))
