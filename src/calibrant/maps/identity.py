"""The map that changes nothing: what every other must beat."""

from typing import ClassVar, final

from torch import Tensor

from calibrant.maps.base import Map

__all__ = ["Identity"]


@final
class Identity(Map):
    """Logits as they came."""

    kind: ClassVar[str] = "identity"

    def __init__(self, *, n_classes: int) -> None:
        super().__init__(n_classes, gives_log_probs=None, keeps_predicted=True)

    def calibrated(self, logits: Tensor) -> Tensor:
        return logits
