"""Data shipped with the package: 1,797 handwritten digits, and the predictions of a ResNet-110 on CIFAR-100."""

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import ClassVar, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from calibrant.datasets.cifar import CIFAR100_CLASSES
from calibrant.datasets.dataset import Dataset, DatasetReader, PixelScale, RemoteFile, Samples
from calibrant.paper import Paper
from calibrant.predictions import Predictions

_PEAK = 16
_N_TEST = 500


class Digits(NamedTuple):
    """Images and their labels."""

    images: Tensor  # (1797, 1, 8, 8) float32 in 0..1
    labels: Tensor  # (1797,) int64


def load_digits() -> Digits:
    """Load the digits.

    Example:
        >>> load_digits().images.shape
        torch.Size([1797, 1, 8, 8])
    """
    stored = _stored()
    return Digits(stored.tensor.float().div_(_PEAK), stored.labels)


@final
@dataclass(frozen=True)
class DigitsReader(DatasetReader):
    """The digits as a data set of 1,297 training and 500 test images, always the same ones.

    The publisher does not divide these images, so 500 are drawn at random, with seed 0. Training and test images were
    written by the same people, so a network looks a little better here than on a stranger's digits.
    """

    name = "digits"
    title = "Hand-written digits, 8 x 8"
    n_classes = 10
    is_embedded = True
    paper = Paper("Alpaydin & Kaynak", 1998, "Optical Recognition of Handwritten Digits", "doi:10.24432/C50P49")
    homepage = "https://archive.ics.uci.edu/dataset/80"
    remote: ClassVar[tuple[RemoteFile, ...]] = ()

    def read(self, folder: Path | None = None, *, checked: bool = True) -> Dataset:
        """Read the data set from the package; the folder is ignored."""
        del folder, checked
        stored = _stored()
        order = torch.randperm(len(stored), generator=torch.Generator().manual_seed(0))
        training, test = stored[order[_N_TEST:].sort().values], stored[order[:_N_TEST].sort().values]
        scale = PixelScale.of(training.tensor, peak=_PEAK)
        return Dataset(self.name, tuple("0123456789"), training, test, pixel_scale=scale)


def _stored() -> Samples:
    with (files("calibrant.datasets") / "digits.npz").open("rb") as stream, np.load(stream) as archive:
        images, labels = archive["images"], archive["labels"]
    return Samples(torch.from_numpy(images)[:, None], torch.from_numpy(labels).long())


class BundledPredictions(NamedTuple):
    """Predictions for calibration and for test samples."""

    calibration: Predictions  # 5,000 samples
    test: Predictions  # 10,000 samples


def load_resnet110() -> BundledPredictions:
    """Load the predictions of a ResNet-110 on CIFAR-100."""
    with (files("calibrant.datasets") / "resnet110-cifar100.npz").open("rb") as stream, np.load(stream) as archive:
        parts = [(archive[f"{part}_logits"], archive[f"{part}_labels"]) for part in ("calibration", "test")]
    calibration, test = (
        Predictions.from_logits(torch.from_numpy(logits).float(), labels.astype(np.int64), class_names=CIFAR100_CLASSES)
        for logits, labels in parts
    )
    return BundledPredictions(calibration, test)
