"""Temperature, vector and matrix scaling by full-batch gradient descent of a fixed length, as the paper fits them.

A thousand steps at rate .001 end wherever they have come to by then. The paper does not say whether its loss is the
mean or the sum over the samples, which makes the steps 5,000 times as long.
"""

from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from calibrant.errors import FitError
from calibrant.predictions import Predictions

__all__ = ["Affine", "Kind", "Reduction", "descend"]

Kind: TypeAlias = Literal["temperature", "vector", "matrix"]
Reduction: TypeAlias = Literal["mean", "sum"]


class Affine(NamedTuple):
    """The map ``W z + b`` of logits."""

    weight: Tensor  # (k, k)
    bias: Tensor  # (k,)

    def transform(self, predictions: Predictions) -> Predictions:
        """Return the predictions with mapped logits."""
        logits = predictions.logits.double() @ self.weight.T + self.bias
        return Predictions.from_logits(logits, predictions.labels, class_names=predictions.class_names)


def descend(
    calibration: Predictions, kind: Kind, reduction: Reduction, *, epochs: int = 1_000, rate: float = 1e-3
) -> Affine:
    """Fit a map to the log-loss of all calibration samples, from the identity, by plain gradient descent.

    Args:
        calibration: Samples to fit.
        kind: ``temperature`` divides the logits by one number, which is what descends; ``vector`` has a factor and an
            offset per class, ``matrix`` a full matrix and offsets.
        reduction: Of the loss over the samples.
        epochs: Steps.
        rate: Of learning.

    Raises:
        FitError: If the parameters are no longer finite.
    """
    logits, labels = calibration.logits.double(), calibration.labels
    n, k = logits.shape
    targets = torch.zeros_like(logits).scatter_(1, labels[:, None], 1.0)
    step = rate / n if reduction == "mean" else rate
    temperature = torch.ones((), dtype=torch.float64)
    factors, weight, bias = torch.ones(k).double(), torch.eye(k).double(), torch.zeros(k).double()
    for _ in range(epochs):
        if kind == "temperature":
            slope = ((logits / temperature).softmax(1) - targets).mul(logits).sum()
            temperature = temperature + step * slope / temperature**2
            continue
        scaled = logits * factors if kind == "vector" else logits @ weight.T
        residuals = (scaled + bias).softmax(1) - targets
        if kind == "vector":
            factors = factors - step * (residuals * logits).sum(0)
        else:
            weight = weight - step * residuals.T @ logits
        bias = bias - step * residuals.sum(0)
    if kind != "matrix":
        weight = torch.diag(factors) if kind == "vector" else torch.eye(k).double() / temperature
    if not (bool(weight.isfinite().all()) and bool(bias.isfinite().all())):
        raise FitError(f"gradient descent of {kind} scaling must stay finite; it does not. Lower the rate.")
    return Affine(weight, bias)
