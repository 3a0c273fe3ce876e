"""Division by a temperature."""

from typing import ClassVar, final

from torch import Tensor

from calibrant.maps.base import Map
from calibrant.maps.learned import require

__all__ = ["Scale"]


@final
class Scale(Map):
    """Logits divided by one number; above 1 it softens, below 1 it sharpens, and infinity gives equal probabilities.

    Args:
        temperature: Above 0, a single number.
        n_classes: Length of a row of logits.
    """

    kind: ClassVar[str] = "scale"
    may_be_infinite: ClassVar[tuple[str, ...]] = ("temperature",)
    temperature: Tensor

    def __init__(self, temperature: Tensor, *, n_classes: int) -> None:
        super().__init__(n_classes, keeps_predicted=True)
        self.keep(temperature=temperature)

    def check_numbers(self) -> None:
        require(self.temperature.numel() == 1, "temperature must be a single number", self.temperature)
        require(self.temperature > 0, "temperature must be above 0", self.temperature)

    def calibrated(self, logits: Tensor) -> Tensor:
        return logits / self.temperature.to(logits)
