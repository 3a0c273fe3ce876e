"""The trained networks of the study, with the rows that calibrate and those that judge."""

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from calibrant.clamping import InputSpace
from calibrant.datasets import CIFAR100, BloodMNIST, Dataset, PixelScale, Samples, load_digits, split_dataset
from calibrant.losses import CrossEntropyLoss
from calibrant.models import DigitsCNN, build_model
from calibrant.training import RECIPES, Recipe, Session, TrainingData, load_network, train_together
from calibrant.training.data import Standardise

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
CIFAR_SCALE = PixelScale((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))
WEIGHTS = {"resnet110": Path(__file__).parents[1] / "training" / "resnet110-ce.safetensors"}
CALIBRATION_ROWS = 5_000
FEW_TRAINING_ROWS = 600


class Network(NamedTuple):
    """A network that takes standardised pixels, and rows it was not trained on."""

    name: str
    seed: int
    model: nn.Module
    space: InputSpace
    inputs: dict[str, Tensor]
    labels: dict[str, Tensor]


def pack(data: Path, out: Path) -> None:
    """The CIFAR-100 images that no network of ours was trained on: 5,000 held out, and 10,000 of the test part."""
    split = split_dataset(CIFAR100().read(data), "holdout", seed=0)
    images = torch.cat([split.calibration.inputs, split.test.inputs])
    labels = torch.cat([split.calibration.labels, split.test.labels])
    np.savez(out, images=images.numpy(), labels=labels.numpy())


def unseen(
    given: argparse.Namespace, name: str, seeds: Iterable[int], *, rows: int = CALIBRATION_ROWS, pattern: float = 0.0
) -> Iterator[Network]:
    """A CIFAR-100 network, and for each seed another draw of the images that calibrate it; the rest judges.

    With a pattern, every image has the same fixed noise on it, of that deviation, as of a sensor: what a single δ could
    take away.
    """
    with np.load(given.images) as archive:
        images, labels = torch.from_numpy(archive["images"]), torch.from_numpy(archive["labels"]).long()
    path = WEIGHTS.get(name) or given.runs / f"{name}-ce" / "weights.safetensors"
    model = build_model(name, n_classes=100)
    weights = load_file(path)
    model.load_state_dict({key: each.float() if each.is_floating_point() else each for key, each in weights.items()})
    for seed in seeds:
        chance = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(labels), generator=chance)
        shown = images.float()
        if pattern:
            noise = pattern * torch.randn(shown.shape[1:], generator=chance)
            shown = (shown + noise).clamp(0, 255).round()
        yield _dealt(name, seed, model, CIFAR_SCALE, shown, labels, order.split([rows, len(order) - rows]))


def blood_cells(given: argparse.Namespace, seeds: Iterable[int]) -> Iterator[Network]:
    """ResNet-32 trained on the blood cells with each seed (train_blood.py); their own validation and test parts."""
    dataset = BloodMNIST().read(given.blood)
    split = split_dataset(dataset, "official", seed=0)
    images = torch.cat([split.calibration.inputs, split.test.inputs])
    labels = torch.cat([split.calibration.labels, split.test.labels])
    places = torch.arange(len(labels)).split([len(split.calibration.labels), len(split.test.labels)])
    for seed in seeds:
        _standardise, model = load_network(given.runs / f"blood-{seed}").children()
        yield _dealt("blood", seed, model, _scale(dataset), images.float(), labels, places)


def few_blood_cells(given: argparse.Namespace, seeds: Iterable[int]) -> Iterator[Network]:
    """ResNet-20 trained on a few hundred blood cells only; thousands of others calibrate it."""
    dataset = BloodMNIST().read(given.blood)
    split = split_dataset(dataset, "official", seed=0)
    for seed in seeds:
        order = torch.randperm(len(split.training.labels), generator=torch.Generator().manual_seed(seed))
        few, rest = order.split([FEW_TRAINING_ROWS, len(order) - FEW_TRAINING_ROWS])
        training = Samples(split.training.inputs[few], split.training.labels[few])
        data = TrainingData(training, {}, dataset.class_names, dataset.pixel_scale, "crop-flip")
        recipe = RECIPES["default"].changed({"epochs": 60, "batch_size": 64, "seed": seed})
        model = build_model("resnet20", n_classes=8, seed=seed)
        train_together([Session(model, CrossEntropyLoss(), data.on(DEVICE), recipe)])
        images = torch.cat([split.training.inputs[rest[:CALIBRATION_ROWS]], split.test.inputs])
        labels = torch.cat([split.training.labels[rest[:CALIBRATION_ROWS]], split.test.labels])
        places = torch.arange(len(labels)).split([CALIBRATION_ROWS, len(split.test.labels)])
        yield _dealt("blood-few", seed, model, _scale(dataset), images.float(), labels, places)


def digits(seeds: Iterable[int], *, training_rows: int, calibration_rows: int) -> Iterator[Network]:
    """A small network on 8 x 8 digits, trained until it knows its few by heart."""
    known = load_digits()
    scale = PixelScale((0.0,), (1.0,), peak=1)
    for seed in seeds:
        order = torch.randperm(len(known.labels), generator=torch.Generator().manual_seed(seed))
        few, rest = order.split([training_rows, len(order) - training_rows])
        data = TrainingData(Samples(known.images[few], known.labels[few]), {}, tuple("0123456789"))
        recipe = Recipe(epochs=100, batch_size=32, learning_rate=0.05, weight_decay=0.0, seed=seed)
        torch.manual_seed(seed)
        model = DigitsCNN()
        train_together([Session(model, CrossEntropyLoss(), data.on(DEVICE), recipe)])
        places = rest.split([calibration_rows, len(rest) - calibration_rows])
        yield _dealt("digits", seed, model, scale, known.images.float(), known.labels, places)


def _scale(dataset: Dataset) -> PixelScale:
    assert dataset.pixel_scale is not None
    return dataset.pixel_scale


def _dealt(
    name: str,
    seed: int,
    model: nn.Module,
    scale: PixelScale,
    images: Tensor,
    labels: Tensor,
    places: tuple[Tensor, ...],
) -> Network:
    parts = dict(zip(("calibration", "test"), places, strict=True))
    standardise = Standardise(scale).to(DEVICE)
    return Network(
        name,
        seed,
        model.to(DEVICE, memory_format=torch.contiguous_format).eval(),
        InputSpace(mean=scale.mean, std=scale.std),
        {part: standardise(images[rows].to(DEVICE)) for part, rows in parts.items()},
        {part: labels[rows].long().to(DEVICE) for part, rows in parts.items()},
    )
