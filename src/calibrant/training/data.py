"""What a training run sees: training rows, and held-out rows that watch it; then the same on the device."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from calibrant.datasets.dataset import Augmentation, Dataset, Examples, PixelScale, Split
from calibrant.errors import InputError
from calibrant.training.inputs import InputStore, store_of

__all__ = ["DeviceData", "StoredExamples", "TrainingData"]


@final
@dataclass(frozen=True, eq=False)
class TrainingData:
    """Rows to train on, and held-out rows by what they are for."""

    training: Examples
    held_out: Mapping[str, Examples]  # "calibration", "test"
    class_names: tuple[str, ...]
    pixel_scale: PixelScale | None = None
    augmentation: Augmentation = "none"  # the usual one
    meta: Examples | None = None  # rows that tune a loss which is learned

    def __post_init__(self) -> None:
        if self.pixel_scale is None and self.augmentation != "none":
            raise InputError(
                f"augmentation must be 'none' for inputs without a pixel scale; got {self.augmentation!r}."
            )

    @classmethod
    def of(cls, dataset: Dataset, split: Split) -> "TrainingData":
        """A data set divided by one of the named protocols."""
        held_out = {"calibration": split.calibration, "test": split.test}
        return cls(split.training, held_out, dataset.class_names, dataset.pixel_scale, dataset.augmentation, split.meta)

    def on(self, device: torch.device, augmentation: Augmentation | None = None) -> "DeviceData":
        """Move everything to a device, once for all networks that train there."""
        chosen = self.augmentation if augmentation is None else augmentation
        if self.pixel_scale is None and chosen != "none":
            raise InputError(f"augmentation must be 'none' for inputs that are no images; got {chosen!r}.")

        def stored(examples: Examples, moved: Augmentation) -> StoredExamples:
            store = store_of(examples.inputs, self.pixel_scale, moved, device)
            return StoredExamples(store, examples.labels.to(device))

        held_out = {name: stored(part, "none") for name, part in self.held_out.items()}
        meta = None if self.meta is None else stored(self.meta, "none")
        return DeviceData(stored(self.training, chosen), held_out, device, meta)


@final
@dataclass(frozen=True, eq=False)
class StoredExamples:
    """Inputs and labels on a device."""

    inputs: InputStore
    labels: Tensor  # (n,)

    def __len__(self) -> int:
        return len(self.labels)


@final
@dataclass(frozen=True, eq=False)
class DeviceData:
    """Training and held-out rows on one device."""

    training: StoredExamples
    held_out: Mapping[str, StoredExamples]
    device: torch.device
    meta: StoredExamples | None = None
