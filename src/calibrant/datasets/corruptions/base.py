"""What a corruption is: a way to spoil images, at five strengths, that leaves what they show recognisable."""

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor

from calibrant.datasets.corruptions.draws import RowDraws
from calibrant.paper import Paper

__all__ = ["HENDRYCKS", "Corruption"]

HENDRYCKS = Paper(
    "Hendrycks & Dietterich",
    2019,
    "Benchmarking Neural Network Robustness to Common Corruptions and Perturbations",
    "arXiv:1903.12261",
)


class Corruption(ABC):
    """Spoils images. A concrete one is a frozen record without options.

    Strengths are those that the authors' code used for CIFAR-10-C, images of 32 x 32 pixels; a file says where it
    departs from them. Blurs are measured in pixels and are not made wider for larger images, on which they do less.
    """

    name: ClassVar[str]  # short: the key and the word on the command line
    title: ClassVar[str]  # as people say it
    strengths: ClassVar[tuple[float, ...]]  # at severities 1 to 5
    unit: ClassVar[str]  # what a strength is, in words
    paper: ClassVar[Paper] = HENDRYCKS

    @abstractmethod
    def spoil(self, pixels: Tensor, strength: float, draws: RowDraws) -> Tensor:
        """Images at one strength.

        What becomes of an image must not depend on the images beside it.

        Args:
            pixels: In 0..1, (n, c, h, w) float32 with one or three channels; not to be written to.
            strength: One of ``strengths``.
            draws: Where chance comes from, if any is needed.

        Returns:
            (n, c, h, w) float32; what leaves 0..1 is cut off afterwards.
        """
