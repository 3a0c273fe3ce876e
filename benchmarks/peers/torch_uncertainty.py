"""torch-uncertainty: its metric files alone, since the package does not import without torchvision."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import torch

from .rows import Rows

_LOADER = Path(__file__).parents[2] / "tests" / "reference" / "torch_uncertainty_files.py"


def _loader() -> ModuleType:
    spec = importlib.util.spec_from_file_location("torch_uncertainty_files", _LOADER)
    if spec is None or spec.loader is None:
        raise ImportError(f"{_LOADER} is missing")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_metric_file = _loader().metric_file
_calibration, _brier, _risk = (_metric_file(name) for name in ("calibration", "brier_score", "risk_coverage"))


def ace_from_probs(rows: Rows) -> float:
    """Fifteen bins of equal mass."""
    metric = _calibration.AdaptiveCalibrationError("multiclass", num_bins=15, num_classes=rows.n_classes)
    metric.update(rows.probs, rows.labels)
    return float(metric.compute())


def sce_from_probs(rows: Rows) -> float:
    """Class by class, fifteen bins of equal width."""
    metric = _calibration.ClasswiseCalibrationError(num_classes=rows.n_classes, num_bins=15)
    metric.update(rows.probs, rows.labels)
    return float(metric.compute())


def brier_from_probs(rows: Rows) -> float:
    """Summed over classes."""
    metric = _brier.BrierScore(num_classes=rows.n_classes)
    metric.update(rows.probs, rows.labels)
    return float(metric.compute())


def aurc_from_probs(rows: Rows) -> float:
    """Area under the risk-coverage curve."""
    metric = _risk.AURC()
    metric.update(rows.probs, rows.labels)
    return float(metric.compute())


def smece_from_top(rows: Rows) -> float:
    """Reflected kernel, from its state filled with what update() would have stored."""
    metric = _calibration.SmoothCalibrationError(kernel_type="reflected")
    metric.confidences.append(torch.from_numpy(rows.confidence).float())
    metric.accuracies.append(torch.from_numpy(rows.correct).float())
    return float(metric.compute())


TASKS: dict[str, Callable[[Rows], float]] = {
    "ace from probs": ace_from_probs,
    "sce from probs": sce_from_probs,
    "brier from probs": brier_from_probs,
    "aurc from probs": aurc_from_probs,
    "smece from top": smece_from_top,
}
