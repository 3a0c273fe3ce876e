"""The grid of Tables 1 to 3 of "On the Dark Side of Calibration"; how a network of it is trained and evaluated.

Five ways to train three networks on CIFAR and one on ImageNet, temperatures after each, and images from elsewhere for
those of CIFAR-10 and ImageNet. A tenth of the training samples fits the maps, which the paper does not need: its
temperature is given.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from calibrant.calibrators import Calibrator, StructuredVectorScaling, TemperatureScaling
from calibrant.datasets import Dataset, Samples, read_shifted
from calibrant.datasets.image_folder import pictures_by_class
from calibrant.datasets.pictures import Pictures
from calibrant.metrics import AUROC, ECE, NLL, Accuracy, Brier, Metric
from calibrant.predictions import Predictions
from calibrant.training import TrainingData
from experiments.evaluation import calibrated_rows, confidence_counts, rounded
from experiments.refinement.results import numbers_of, page_of
from experiments.runner import Scalar, Settings, Study, Table
from experiments.trained import Network, Training, holdout

__all__ = ["REFINEMENT_STUDY"]

SEEDS = range(3)
# By the paper's names, with its coefficients; its rate falls to a tenth for two of them, and to a fifth for the others.
WAYS: dict[str, dict[str, Scalar]] = {
    "Baseline": {"loss": "ce", "recipe": "dark-side-by-5"},
    "LS": {"loss": "label_smoothing(smoothing=0.05)", "recipe": "dark-side"},
    "FL": {"loss": "focal(gamma=3)", "recipe": "dark-side"},
    "ERL": {"loss": "entropy(weight=0.1)", "recipe": "dark-side-by-5"},
    "MX": {"loss": "ce", "recipe": "dark-side-by-5", "mixup": 0.2},
}
# On ImageNet all rates fall alike.
IMAGENET_WAYS: dict[str, dict[str, Scalar]] = {
    method: {**way, "recipe": "dark-side-imagenet"}
    for method, way in (WAYS | {"LS": {"loss": "label_smoothing(smoothing=0.1)"}}).items()
}
NETWORKS = ("vgg16_bn", "resnet50", "densenet121")
EPOCHS = 100  # the paper has 300 on CIFAR
# Table 3, by the publishers' names of the files; and a sample of CINIC-10's images from ImageNet.
SHIFTED = {
    "cifar10": {
        "cifar10.1": "cifar10.1_v6_data.npy",
        "cifar10.2": "cifar102_test.npz",
        "cinic10": "cinic10_sample.npz",
    },
    "imagenet": {"imagenet-v2": "imagenetv2-matched-frequency-format-val"},
}
MEASURED: tuple[Metric, ...] = (Accuracy(), NLL(), Brier(), ECE(), AUROC())
# The first is the paper's.
MAPS: dict[str, Calibrator] = {
    "TS (1.5)": TemperatureScaling(value=1.5),
    "TS": TemperatureScaling(),
    "SVS": StructuredVectorScaling(),
}
IMAGENET_MAPS: dict[str, Calibrator] = {"TS (1.1)": TemperatureScaling(value=1.1), "TS": TemperatureScaling()}


def _grid() -> Iterator[dict[str, Scalar]]:
    for network in NETWORKS:
        for data in ("cifar100", "cifar10"):
            for seed in SEEDS:
                for method, way in WAYS.items():
                    yield {
                        "method": method,
                        **way,
                        "seed": seed,
                        "data": data,
                        "network": network,
                        "epochs": EPOCHS,
                        "evaluate_every": 25,
                    }
    for seed in SEEDS:
        for method, way in IMAGENET_WAYS.items():
            where: dict[str, Scalar] = {"data": "imagenet", "network": "resnet50_imagenet"}
            yield {"method": method, **way, "seed": seed, **where, "epochs": EPOCHS, "evaluate_every": 25}


def _quick_grid() -> Iterator[dict[str, Scalar]]:
    common: dict[str, Scalar] = {"data": "digits", "network": "digits_cnn", "epochs": 3, "batch_size": 64}
    for method in ("Baseline", "MX"):
        yield {"method": method, **WAYS[method], "seed": 0, **common, "evaluate_every": 3}


def _with_shifted(dataset: Dataset, cell: Settings, folder: Path) -> TrainingData:
    """Return the data with every shifted set that lies beside CIFAR-10 or ImageNet held out too."""
    data = holdout(dataset, cell, folder)
    shifted = {}
    for name, file in SHIFTED.get(dataset.name, {}).items():
        if (folder / file).exists():
            shifted[name] = _shifted(folder / file, dataset)
        else:
            print(f"there is no {file} in {folder}: these networks will have no numbers of {name}", flush=True)
    return replace(data, held_out={**data.held_out, **shifted})


def _shifted(path: Path, dataset: Dataset) -> Samples:
    if not isinstance(taken := dataset.test.inputs, Pictures):
        return read_shifted(path, n_classes=dataset.n_classes)
    return pictures_by_class(path, size=taken.size, crop=taken.crop, class_names=dataset.class_names)


def _evaluated(network: Network) -> dict[str, Any]:
    accuracy = network.session.records[-1].accuracy
    maps = IMAGENET_MAPS if network.cell["data"] == "imagenet" else MAPS
    logits, labels = network.logits, network.labels
    densities = {
        name: confidence_counts(Predictions.from_logits(logits[name], labels[name]))
        for name in logits
        if name != "calibration"
    }
    return {"training_accuracy": rounded(accuracy), "densities": densities} | _rows(logits, labels, maps)


def _rows(
    logits: Mapping[str, Tensor], labels: Mapping[str, Tensor], maps: Mapping[str, Calibrator] = MAPS
) -> dict[str, Any]:
    """Return the rows of each set of test samples, by maps that are fitted on the calibration samples."""
    evaluated = {
        name: calibrated_rows(
            {"calibration": logits["calibration"], "test": logits[name]},
            {"calibration": labels["calibration"], "test": labels[name]},
            maps,
            MEASURED,
        )
        for name in logits
        if name != "calibration"
    }
    parts = {kind: {name: rows[kind] for name, rows in evaluated.items()} for kind in ("rows", "differences")}
    return {"T": evaluated["test"]["T"]} | parts


REFINEMENT_STUDY = Study(
    name="refinement",
    title="On the Dark Side of Calibration, Singh et al. 2021: Tables 1 to 3",
    folder=Path(__file__).parent,
    grid=_grid,
    quick_grid=_quick_grid,
    prepare=Training(_evaluated, divide=_with_shifted).prepare,
    numbers=numbers_of,
    page=page_of,
    tables=(
        Table("Table 2, VGG-16", ("network=vgg16_bn",)),
        Table("Table 2, ResNet-50", ("network=resnet50",)),
        Table("Table 2, DenseNet-121", ("network=densenet121",)),
        Table("Table 3, CIFAR-10.1 and CIFAR-10.2", ("network=vgg16_bn", "data=cifar10")),
        Table("Table 1; Table 3, ImageNet-v2 (data not at hand)", ("data=imagenet",)),
    ),
)
