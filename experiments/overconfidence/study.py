"""The grid of the study of overconfidence, and how one of its networks is trained and evaluated.

Cross-entropy, label smoothing, the L1 norm of the logits and focal loss with the coefficients of the paper's Table 1,
its pools of coefficients (Fig. 1), and inverse focal loss (Fig. 6). Focal loss is trained as it is written and as the
authors' code has it, without a gradient through its weight. A tenth of the training samples fits the maps.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from calibrant.calibrators import Calibrator, HistogramBinning, StructuredVectorScaling, TemperatureScaling
from calibrant.datasets import Dataset, split_dataset
from calibrant.metrics import AUROC, ECE, NLL, Accuracy, Metric
from calibrant.predictions import Predictions
from calibrant.training import EpochRecord, TrainingData
from experiments.evaluation import calibrated_rows, errors_by_size, logits_by_learned_epoch, reliability_bins, rounded
from experiments.overconfidence.results import numbers_of, page_of
from experiments.runner import Scalar, Settings, Study, Table
from experiments.trained import Network, Training

__all__ = ["OVERCONFIDENCE_STUDY"]

SEEDS = range(5)
# The paper's coefficients of label smoothing, the L1 norm and focal loss, by data set.
COEFFICIENTS = {
    "cifar100": (0.09, 0.01, 5),
    "newsgroups": (0.09, 0.01, 5),
    "cifar10": (0.05, 0.05, 3),
    "svhn": (0.01, 0.01, 1),
}
POOLS = {"LS": (0.01, 0.03, 0.05, 0.07, 0.09), "L1": (0.001, 0.005, 0.01, 0.05, 0.1), "Focal": (1, 3, 5, 7, 9)}
# Fig. 1d, on CIFAR-10: coarser pools than the paper's, over numbers of training samples that it does not name.
SIZES = (5_000, 15_000, 30_000)
SIZED_POOLS = {
    "LS": (0.01, 0.05, 0.09, 0.13, 0.17, 0.21, 0.25),
    "L1": (0.01, 0.03, 0.05, 0.07, 0.1),
    "Focal": POOLS["Focal"],
}
LOSSES = {"LS": "label_smoothing(smoothing={})", "L1": "logit_norm(weight={},p=1)", "Focal": "focal(gamma={})"}
INVERSE = {"Inverse focal (2)": "inverse_focal(gamma=2)"}
TRACED = ("cifar10", "cifar100"), SEEDS[-1]  # Fig. 5: networks whose training samples are evaluated after each epoch
CALIBRATION_SIZES = (100, 200, 500, 1_000, 2_000)  # Fig. 3, whose numbers the paper does not print
MEASURED: tuple[Metric, ...] = (Accuracy(), NLL(), ECE(), AUROC())
# The first of each pair is the paper's.
METHODS: dict[str, Calibrator] = {
    "TS (grid)": TemperatureScaling("ece-overconfidence"),
    "TS": TemperatureScaling(),
    "HB": HistogramBinning(bins="equal_width"),
    "HB (equal mass)": HistogramBinning(),
    "SVS": StructuredVectorScaling(),
}
SIZED = {name: METHODS[name] for name in ("TS (grid)", "TS", "HB", "HB (equal mass)")}


def _grid() -> Iterator[dict[str, Scalar]]:
    for data, coefficients in COEFFICIENTS.items():
        is_text = data == "newsgroups"
        common: dict[str, Scalar] = {
            "data": data,
            "network": "text_cnn" if is_text else "resnet32",
            "recipe": "overconfidence-newsgroups" if is_text else "overconfidence",
            "evaluate_every": 10,
        }
        losses = _losses(coefficients) | (INVERSE if data in TRACED[0] else {})
        for seed in SEEDS:
            traced: dict[str, Scalar] = {"traced": True} if data in TRACED[0] and seed == TRACED[1] else {}
            for method, loss in losses.items():
                yield _cell(method, loss, seed) | common | traced
        for method, loss in _pool(POOLS).items():
            if method not in losses:
                yield _cell(method, loss, 0) | common
        for size in SIZES if data == "cifar10" else ():
            for method, loss in _pool(SIZED_POOLS).items():
                yield _cell(method, loss, 0) | common | {"train_samples": size}


def _losses(coefficients: Sequence[float]) -> dict[str, str]:
    """Return the losses of Table 1 by name, focal loss in both forms."""
    pairs = zip(LOSSES.items(), coefficients, strict=True)
    chosen = {f"{name} ({value})": loss.format(value) for (name, loss), value in pairs}
    gamma = coefficients[-1]
    return {"CE": "ce"} | chosen | {f"Focal ({gamma}), weight detached": f"focal(gamma={gamma},detach_weight=true)"}


def _cell(method: str, loss: str, seed: int) -> dict[str, Scalar]:
    return {"method": method, "loss": loss, "seed": seed}


def _pool(pools: Mapping[str, Sequence[float]]) -> dict[str, str]:
    return {f"{name} ({value})": LOSSES[name].format(value) for name, values in pools.items() for value in values}


def _quick_grid() -> Iterator[dict[str, Scalar]]:
    common: dict[str, Scalar] = {"data": "digits", "network": "digits_cnn", "recipe": "overconfidence"}
    common |= {"evaluate_every": 2, "epochs": 4, "batch_size": 64, "traced": True}
    for method, loss in ({"CE": "ce"} | _pool({"LS": (0.09,), "L1": (0.01,)})).items():
        yield _cell(method, loss, 0) | common


def _divided(dataset: Dataset, cell: Settings, _folder: Path) -> TrainingData:
    """Return the data with a tenth held out, and of the rest as many training samples as the cell says."""
    split = split_dataset(dataset, "holdout", seed=0)
    if "train_samples" in cell:
        order = torch.randperm(len(split.training), generator=torch.Generator().manual_seed(0))
        split = replace(split, training=split.training[order[: int(cell["train_samples"])].sort().values])
    return TrainingData.of(dataset, split)


def _evaluated(network: Network) -> dict[str, Any]:
    logits, labels = network.logits, network.labels
    calibration = Predictions.from_logits(logits["calibration"], labels["calibration"])
    epochs = [_in_short(record) for record in network.session.records if record.held_out]
    results = {"calibration_ece": rounded(ECE()(calibration))} | calibrated_rows(logits, labels, METHODS, MEASURED)
    results |= {"calibration_samples": len(calibration), "epochs": epochs, "diagrams": _diagrams(logits, labels)}
    results["sizes"] = errors_by_size(logits, labels, SIZED, CALIBRATION_SIZES)
    if network.session.trace is not None:
        results["learned"] = logits_by_learned_epoch(network.session.trace)
    return results


def _diagrams(logits: Mapping[str, Tensor], labels: Mapping[str, Tensor]) -> dict[str, list[list[float]]]:
    """Return the reliability of the test samples, uncalibrated and by the paper's temperature."""
    calibration, test = (Predictions.from_logits(logits[part], labels[part]) for part in ("calibration", "test"))
    scaled = METHODS["TS (grid)"].fit(calibration).transform(test)
    return {"none": reliability_bins(test), "TS (grid)": reliability_bins(scaled)}


def _in_short(record: EpochRecord) -> dict[str, float]:
    test = record.held_out["test"]
    numbers = {"loss": record.loss, "accuracy": test.accuracy, "ece": test.ece, "optimal_ece": test.optimal_ece}
    return {"epoch": record.epoch} | {name: rounded(value) for name, value in numbers.items()}


def _tables() -> Iterator[Table]:
    titles = {"cifar100": "CIFAR-100", "newsgroups": "20 Newsgroups", "cifar10": "CIFAR-10", "svhn": "SVHN"}
    for data, coefficients in COEFFICIENTS.items():
        methods = _losses(coefficients)
        whole = ("train_samples=None",) if data == "cifar10" else ()
        only = (f"data={data}", *(f"method={method}" for method in methods), *whole)
        yield Table(f"Tables 1 and 2, {titles[data]}", only)


FIGURE_1 = Table("Fig. 1a to c, coefficients", ("seed=0", "train_samples=None"))
FIGURE_1D = Table("Fig. 1d, training samples", tuple(f"train_samples={size}" for size in SIZES))
FIGURE_4 = Table(
    "Fig. 4, label smoothing over epochs",
    (*(f"method={name}" for name in ("CE", *_pool({"LS": POOLS["LS"]}))), "train_samples=None"),
)
FIGURE_5 = Table("Fig. 2, 3 and 5, traced networks", ("traced=True",))
FIGURE_6 = Table(
    "Fig. 6, inverse focal loss",
    (*(f"data={data}" for data in TRACED[0]), "method=CE", *(f"method={name}" for name in INVERSE)),
)
OVERCONFIDENCE_STUDY = Study(
    name="overconfidence",
    title="Do Not Be Afraid of Overconfidence, Wang et al. 2021",
    folder=Path(__file__).parent,
    grid=_grid,
    quick_grid=_quick_grid,
    prepare=Training(_evaluated, divide=_divided).prepare,
    numbers=numbers_of,
    page=page_of,
    tables=(*_tables(), FIGURE_1, FIGURE_1D, FIGURE_4, FIGURE_5, FIGURE_6),
)
