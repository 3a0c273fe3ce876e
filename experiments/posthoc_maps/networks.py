"""The networks of Tables 1 to 3 with their images: bundled, trained once into a folder, or published by others.

A network runs over its images once for all cells that a worker has of it. A training resumes from its last epoch, a fit
of Neural Clamping from its journal; of several workers one trains, and the others wait for it.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, final

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset

from calibrant import catalogue
from calibrant.clamping import InputSpace, NetworkPredictions
from calibrant.datasets import Dataset, PictureDataset, load_resnet110, split_dataset
from calibrant.errors import FileError, InputError
from calibrant.files.source import read_torch
from calibrant.inference import LabelledInputs, features_of, frozen, load_weights
from calibrant.losses import CrossEntropyLoss
from calibrant.models import build_model, own_names
from calibrant.predictions import Predictions
from calibrant.training import RECIPES, Recipe, Run, RuntimeOptions, load_network, train_runs
from calibrant.training.stores import Standardise
from experiments.neural_clamping.graphed import Folded, Graphed
from experiments.neural_clamping.study import resnet110_on_cifar100
from experiments.records import alone
from experiments.runner import Cell, Place, Settings

__all__ = ["OTHER_DIVISION", "PUBLISHED", "Bench", "PublishedNetwork", "bench_of", "check_files", "recipe_of"]

PARTS = ("calibration", "test")
# How each data set is divided; of BloodMNIST there is also a file with the same images, divided in another way.
SPLITS = {"cifar100": "holdout", "bloodmnist": "official", "digits": "holdout"}
OTHER_DIVISION = "bloodcells_28.npz"
QUICK_SAMPLES = 1_000
_BATCH = 256  # pictures that are read at once
_LOADERS = 8  # processes that read pictures for a GPU
_COMPILED = 10_000  # steps of a training that is compiled, which takes a minute or two before the first
_LOOKS = 4  # evaluations of the held-out images in a training, to show how it goes: in float32 they take long
# Settings of a cell that are options of the recipe of its network.
_OPTIONS = {
    "train_epochs": "epochs",
    "batch_size": "batch_size",
    "learning_rate": "learning_rate",
    "warmup": "warmup",
    "augmentation": "augmentation",
    "network_seed": "seed",
}
Images: TypeAlias = tuple[Tensor, Tensor] | DataLoader[Any]


class PublishedNetwork(NamedTuple):
    """Weights that others trained on ImageNet, and the images that they were trained for."""

    file: str
    origin: str
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    size: int = 224
    crop: float = 0.875


_MIDDLE = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
PUBLISHED: dict[str, PublishedNetwork] = {
    "resnet101_imagenet": PublishedNetwork(
        "resnet101-63fe2227.pth", "torchvision, IMAGENET1K_V1", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    ),
    "vit_s16": PublishedNetwork(
        "vit_small_patch16_224.augreg_in21k_ft_in1k.safetensors", "timm, model.safetensors", *_MIDDLE, crop=0.9
    ),
    "mixer_b16": PublishedNetwork("mixer_b16_224.goog_in21k_ft_in1k.safetensors", "timm, model.safetensors", *_MIDDLE),
}


@final
@dataclass(frozen=True, eq=False)
class Bench:
    """A network with the images that calibrate and evaluate it.

    Args:
        predictions: Of both parts.
        images: Of both parts, as the network takes them; none where only predictions are known.
        model: From these images to logits.
        space: Range of the images.
        folder: Of fits under way; None where none can be resumed.
    """

    predictions: Mapping[str, Predictions]
    images: Mapping[str, Images] = field(default_factory=dict)
    model: nn.Module | None = None
    space: InputSpace | None = None
    folder: Path | None = None
    fitted: dict[str, Predictions] = field(default_factory=dict)  # the test part, by maps that others are compared with

    @classmethod
    def of(cls, model: nn.Module, images: Mapping[str, Images], space: InputSpace, folder: Path | None) -> "Bench":
        """Run the network over all images."""
        device = next(model.parameters()).device
        predictions = {}
        for part in PARTS:
            output = NetworkPredictions(model, images[part]).at_zero()
            predictions[part] = Predictions.from_logits(output.logits.to(device), output.labels.to(device))
        return cls(predictions, images, model, space, folder)

    @cached_property
    def features(self) -> dict[str, Tensor]:
        """What the last layer takes, of both parts."""
        assert self.model is not None
        by_part = {}
        with frozen(self.model), torch.no_grad():
            device = next(self.model.parameters()).device
            for part in PARTS:
                batches = LabelledInputs.of(self.images[part]).batches(device=device)
                by_part[part] = torch.cat([features_of(self.model, inputs) for inputs, _ in batches])
        return by_part

    @cached_property
    def for_gradients(self) -> nn.Module:
        """The network, faster where a gradient in the inputs is wanted; the same up to rounding."""
        assert self.model is not None
        return (Graphed if next(self.model.parameters()).is_cuda else Folded)(self.model)

    def clamped(self, clamped: Any) -> Predictions:
        """Return what a clamped network says of the test images."""
        assert self.model is not None
        output = NetworkPredictions(self.model, self.images["test"], space=self.space).predictions_of(clamped)
        device = self.predictions["test"].logits.device
        return Predictions.from_logits(output.logits.to(device), output.labels.to(device))


def check_files(place: Place, cells: Iterable[Cell]) -> None:
    """Check that every file which the cells need is there, before one begins.

    Raises:
        InputError: With all that is missing.
    """
    missing: dict[str, None] = {}
    for cell in (cell.settings for cell in cells):
        if "data" in cell and cell["data"] != "digits":
            name = OTHER_DIVISION if cell.get("division") == "other" else str(cell["data"])
            if place.data is None or not place.data.exists():
                missing[f"the files of {name}"] = None
            elif name == OTHER_DIVISION and not (place.data / name).is_file():
                missing[f"{name} in {place.data}"] = None
        if "weights" in cell:
            folder = place.data or Path("DATA")
            if not _pictures(folder).is_dir():
                missing[f"{folder / 'val'}/<class>/ with ImageNet's 50,000 validation images"] = None
            if not (folder / str(cell["weights"])).is_file():
                missing[f"{folder / str(cell['weights'])} ({PUBLISHED[str(cell['network'])].origin})"] = None
    if missing:
        raise InputError(
            f"--data must name a folder with what the cells need; missing: {'; '.join(missing)}. docs/reproduce.md "
            "lists files and addresses; --only chooses cells that need fewer."
        )
    for name in dict.fromkeys(str(cell.settings["data"]) for cell in cells if _is_of_publisher(cell.settings)):
        assert place.data is not None
        catalogue.datasets.parse(name).read(place.data)  # a FileError where one is missing or another


def _is_of_publisher(cell: Settings) -> bool:
    return "data" in cell and cell["data"] != "digits" and cell.get("division") != "other"


def bench_of(place: Place, cell: Settings, *, quick: bool) -> Bench:
    """Return a cell's network with its images; train it, if it is one to train and there are no weights yet."""
    if "recipe" in cell:
        return _trained(place, cell)
    if "weights" in cell:
        return _published(place, cell)
    if "data" in cell:
        network = resnet110_on_cifar100(place)
        return Bench.of(
            network.model, {"calibration": network.calibration, "test": network.test}, network.space, _fits(place, cell)
        )
    rows = slice(QUICK_SAMPLES if quick else None)
    return Bench({part: samples[rows] for part, samples in zip(PARTS, load_resnet110(), strict=True)})


def recipe_of(cell: Settings) -> Recipe:
    """Return the recipe by which a cell's network is trained."""
    changed: dict[str, Any] = {ours: cell[name] for name, ours in _OPTIONS.items() if name in cell}
    if "milestone" in cell:
        changed["milestones"] = (int(cell["milestone"]),)
    return RECIPES[str(cell["recipe"])].changed(changed)


def _name(cell: Settings) -> str:
    few = f"{cell['train_samples']}-images-{cell['train_epochs']}-epochs" if "train_samples" in cell else None
    named = (cell.get("data"), cell.get("division"), cell["network"], few, cell.get("network_seed"))
    return "-".join(str(part) for part in named if part is not None)


def _fits(place: Place, cell: Settings) -> Path | None:
    return None if place.networks is None else place.networks / f"{_name(cell)}-fits"


def _trained(place: Place, cell: Settings) -> Bench:
    dataset, split = _dataset(place, cell), SPLITS[str(cell["data"])]
    if place.networks is None:
        raise InputError("--networks must name a folder for the networks that are trained; got none.")
    folder, device = place.networks / _name(cell), torch.device(place.device)
    run = Run(folder, str(cell["network"]), CrossEntropyLoss(), recipe_of(cell))
    steps = run.recipe.epochs * int(cell.get("train_samples", len(dataset.training))) // run.recipe.batch_size
    with alone(folder):
        train_runs(
            [run],
            dataset,
            split=split,
            device=device,
            train_samples=None if "train_samples" not in cell else int(cell["train_samples"]),
            runtime=RuntimeOptions(
                compiled=steps > _COMPILED, evaluate_every=max(1, run.recipe.epochs // _LOOKS), checkpoint_seconds=60.0
            ),
            after_epoch=lambda _run, record: print(
                f"{_name(cell)} epoch {record.epoch} {record.seconds:.1f} s {record.held_out}", flush=True
            ),
        )
    network = load_network(folder)
    assert isinstance(network, nn.Sequential)
    scale, model = network
    assert isinstance(scale, Standardise)
    parts, images = split_dataset(dataset, split, seed=0), {}
    for name in PARTS:
        part = getattr(parts, name)
        images[name] = scale(part.inputs).to(device), part.labels.to(device)
    pixels = dataset.pixel_scale
    assert pixels is not None
    return Bench.of(model.to(device), images, InputSpace(mean=pixels.mean, std=pixels.std), _fits(place, cell))


def _dataset(place: Place, cell: Settings) -> Dataset:
    reader, folder = catalogue.datasets.parse(str(cell["data"])), place.data or Path()
    return reader.read(folder / OTHER_DIVISION if cell.get("division") == "other" else folder)


def _pictures(folder: Path) -> Path:
    """Return the folder of ImageNet's validation pictures, which may lie in one of the data set's name."""
    return folder / "val" if (folder / "val").is_dir() else folder / "imagenet" / "val"


def _published(place: Place, cell: Settings) -> Bench:
    """Return a network with its published weights; a random half of ImageNet's validation images calibrates it."""
    assert place.data is not None
    made, file = PUBLISHED[str(cell["network"])], place.data / str(cell["weights"])
    pictures = PictureDataset(_pictures(place.data), size=made.size, crop=made.crop, mean=made.mean, std=made.std)
    model = build_model(str(cell["network"]), n_classes=len(pictures.class_names), image_size=made.size)
    weights = load_file(file) if file.suffix == ".safetensors" else read_torch(file, inside=("state_dict", "model"))
    try:
        load_weights(model, own_names(model, weights), casts=True)
    except InputError as error:
        raise FileError(
            f"{file} must hold the weights of {cell['network']} for the {len(pictures.class_names)} class folders of "
            f"{place.data / 'val'}: {error}"
        ) from error
    # As calibrant.datasets.split_dataset divides by half-test.
    order = torch.randperm(len(pictures), generator=torch.Generator().manual_seed(0))
    loaders = min(_LOADERS, os.cpu_count() or 1) if place.device.startswith("cuda") else 0
    halves: dict[str, Images] = {
        part: DataLoader(Subset(pictures, rows.sort().values.tolist()), batch_size=_BATCH, num_workers=loaders)
        for part, rows in zip(PARTS, order.split([len(order) // 2, len(order) - len(order) // 2]), strict=True)
    }
    space = InputSpace(mean=made.mean, std=made.std)
    return Bench.of(model.to(place.device).eval(), halves, space, _fits(place, cell))
