"""What the studies do alike with one network: begin its training, calibrate it, evaluate it with intervals."""

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor, nn

from calibrant import catalogue
from calibrant.calibrators import Calibrator, TemperatureScaling
from calibrant.datasets import Dataset
from calibrant.evidence import Difference, Estimate, difference, estimate
from calibrant.metrics import Metric
from calibrant.models import build_model
from calibrant.predictions import Predictions, TopLabel
from calibrant.training import RECIPES, RuntimeOptions, Session
from calibrant.training.data import DeviceData
from experiments.runner import Settings

__all__ = ["calibrated_rows", "differences_of", "network_of", "rounded", "session_of", "with_intervals"]

RESAMPLES = 200


def session_of(cell: Settings, dataset: Dataset, data: DeviceData, *, recipe: str, evaluate_every: int) -> Session:
    """Return the training of a cell's ``network`` with its ``loss`` and ``seed``.

    Args:
        cell: Its ``epochs``, ``batch_size`` and ``mixup`` replace those of the recipe.
        dataset: Which the network has its sizes from.
        data: Its parts, on the device.
        recipe: Name of a recipe.
        evaluate_every: Number of epochs between evaluations.
    """
    return Session(
        network_of(cell, dataset),
        catalogue.parse_any_loss(str(cell["loss"])),
        data,
        RECIPES[recipe].changed(
            {name: cell[name] for name in ("epochs", "batch_size", "mixup", "seed") if name in cell}
        ),
        RuntimeOptions(evaluate_every=evaluate_every),
        name=str(cell["method"]),
    )


def network_of(cell: Settings, dataset: Dataset) -> nn.Module:
    """Return a cell's ``network`` as its ``seed`` begins it, with the sizes of a data set."""
    shape, n_words = dataset.training.inputs.shape, dataset.n_words
    sizes = {} if n_words else {"in_channels": shape[1], "image_size": shape[-1]}
    return build_model(
        str(cell["network"]), n_classes=dataset.n_classes, n_words=n_words, seed=int(cell["seed"]), **sizes
    )


def calibrated_rows(
    logits: Mapping[str, Tensor],
    labels: Mapping[str, Tensor],
    methods: Mapping[str, Calibrator],
    metrics: Iterable[Metric],
) -> dict[str, Any]:
    """Return metrics of the test samples, uncalibrated (``none``) and by each method, differences, and temperatures.

    Args:
        logits: Of the parts ``calibration`` and ``test``.
        labels: Of the same.
        methods: Fitted on the calibration samples, by name.
        metrics: To evaluate.
    """
    calibration, test = (Predictions.from_logits(logits[part], labels[part]) for part in ("calibration", "test"))
    fitted: dict[str, Any] = {name: method.fit(calibration) for name, method in methods.items()}
    rows = {"none": test} | {name: each.transform(test) for name, each in fitted.items()}
    metrics = tuple(metrics)
    return {
        "T": {
            name: rounded(float(fitted[name].temperature))
            for name, method in methods.items()
            if isinstance(method, TemperatureScaling)
        },
        "rows": {name: with_intervals(row, metrics) for name, row in rows.items()},
        "differences": {name: differences_of(test, rows[name], metrics) for name in fitted},
    }


def with_intervals(predictions: Predictions | TopLabel, metrics: Iterable[Metric]) -> dict[str, list[float]]:
    """Return value, low and high of each metric, by 200 resamples."""
    return _in_short(estimate(predictions, metrics, resamples=RESAMPLES, seed=0))


def differences_of(
    baseline: Predictions | TopLabel, other: Predictions | TopLabel, metrics: Iterable[Metric]
) -> dict[str, list[float]]:
    """Return value, low and high of each metric's difference, the same samples being drawn for both."""
    return _in_short(difference(baseline, other, metrics, resamples=RESAMPLES, seed=0))


def _in_short(found: Mapping[str, Estimate] | Mapping[str, Difference]) -> dict[str, list[float]]:
    return {name: [rounded(number) for number in (each.value, each.low, each.high)] for name, each in found.items()}


def rounded(value: float) -> float:
    """Return a number with six significant digits, as records have it."""
    return float(f"{value:.6g}")
