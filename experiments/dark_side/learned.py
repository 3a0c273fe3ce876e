"""ConfidNet behind our ResNet-110: how many samples its head needs, and from which inputs it learns.

Features come from the predictions that the package brings: there are 64 of them and 100 logits, so that the head's
weights give them back, to about 1e-4 of their size (the stored logits are rounded).
"""

from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from calibrant.confidence import ConfidNet
from calibrant.datasets import load_resnet110
from calibrant.metrics import AUROC
from calibrant.predictions import Predictions
from experiments.evaluation import with_intervals
from experiments.runner import Settings

__all__ = ["learned_confidence"]

WEIGHTS = Path(__file__).parents[1] / "training" / "resnet110-ce.safetensors"
HIGHEST = 10  # log-probabilities that the other input has


def learned_confidence(cell: Settings) -> dict[str, Any]:
    """Return the AUROC of a head and of the softmax on the test samples, each with its interval.

    Args:
        cell: ``inputs`` (``features``, or ``log-probabilities``, the highest ones, sorted), ``samples``, ``units``,
            ``epochs``, ``learning_rate`` and ``seed``.
    """
    calibration, test = load_resnet110()
    inputs = _features if cell["inputs"] == "features" else _highest
    seed = int(cell["seed"])
    drawn = torch.randperm(len(calibration), generator=torch.Generator().manual_seed(seed))[: int(cell["samples"])]
    method = ConfidNet(
        units=int(cell["units"]), epochs=int(cell["epochs"]), learning_rate=float(cell["learning_rate"]), seed=seed
    )
    head = method.fit_features(calibration[drawn], inputs(calibration)[drawn])
    assert head.choice is not None
    return {
        "auroc": with_intervals(head.top_label(test, inputs(test)), (AUROC(),))["auroc"],
        "softmax": with_intervals(test.top, (AUROC(),))["auroc"],
        "wrong": int((~calibration[drawn].top.correct).sum()),
        "epoch": head.choice.epoch,
    }


def _features(predictions: Predictions) -> Tensor:
    """Return the features f whose head gives these logits, W f + b."""
    weight, bias = _head()
    solved: Tensor = torch.linalg.lstsq(weight, (predictions.logits.double() - bias).T).solution
    return solved.T.float()


@lru_cache
def _head() -> tuple[Tensor, Tensor]:
    stored = load_file(WEIGHTS)
    return stored["head.weight"].double(), stored["head.bias"].double()


def _highest(predictions: Predictions) -> Tensor:
    return predictions.logits.log_softmax(dim=1).topk(HIGHEST, dim=1).values
