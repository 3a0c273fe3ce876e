"""What a data set is once it is read: inputs and labels as tensors, and how its pixels are usually scaled."""

from dataclasses import dataclass
from typing import Literal, TypeAlias, final

import torch
from torch import Tensor

from calibrant.checks import check_labels, check_same_length
from calibrant.errors import InputError

__all__ = ["Augmentation", "Dataset", "Examples", "PixelScale"]

Augmentation: TypeAlias = Literal["none", "crop", "crop-flip"]


@final
@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs and what they show: images as they were stored, or texts as numbered words."""

    inputs: Tensor  # (n, c, h, w) uint8, or (n, length) int64 words, 0 where the text has ended
    labels: Tensor  # (n,) int64

    def __post_init__(self) -> None:
        check_same_length(self.inputs, "inputs", self.labels, "labels")

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: Tensor | slice) -> "Examples":
        return Examples(self.inputs[rows], self.labels[rows])


@final
@dataclass(frozen=True)
class PixelScale:
    """How stored pixels become network inputs: (pixel / peak - mean) / std, for each channel."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    peak: int = 255

    @classmethod
    def of(cls, images: Tensor, *, peak: int = 255) -> "PixelScale":
        """The scale that gives these images, (n, c, h, w), mean 0 and deviation 1 in each channel.

        Example:
            >>> PixelScale.of(torch.tensor([0, 255], dtype=torch.uint8).reshape(2, 1, 1, 1)).mean
            (0.5,)
        """
        # Counts of the 256 values, as the numbers themselves would take eight times the memory of the images.
        values = torch.arange(256, dtype=torch.float64) / peak
        means, deviations = [], []
        for channel in range(images.shape[1]):
            blocks = (block[:, channel].flatten() for block in images.split(10_000))
            counts = torch.stack([torch.bincount(block, minlength=256) for block in blocks]).sum(0).double()
            mean = counts @ values / counts.sum()
            means.append(round(float(mean), 4))
            spread = (counts @ (values - mean) ** 2 / (counts.sum() - 1).clamp(min=1)).sqrt()
            deviations.append(max(round(float(spread), 4), 1e-4))
        return cls(tuple(means), tuple(deviations), peak)


@final
@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set as its publisher divides it."""

    name: str
    class_names: tuple[str, ...]
    training: Examples
    test: Examples
    validation: Examples | None = None  # where the publisher sets one apart
    pixel_scale: PixelScale | None = None  # None for texts
    augmentation: Augmentation = "none"  # the usual one
    n_words: int | None = None  # of texts: numbers run from 0 (no word) to this, exclusive

    def __post_init__(self) -> None:
        for part in filter(None, (self.training, self.test, self.validation)):
            check_labels(part.labels, len(self.class_names))
            if part.inputs.shape[1:] != self.training.inputs.shape[1:]:
                raise InputError(
                    f"all parts of {self.name} must have inputs of one shape; got "
                    f"{tuple(part.inputs.shape[1:])} beside {tuple(self.training.inputs.shape[1:])}."
                )

    @property
    def n_classes(self) -> int:
        """How many classes there are."""
        return len(self.class_names)
