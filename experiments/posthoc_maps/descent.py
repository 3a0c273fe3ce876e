"""Affine maps of the logits by full-batch gradient descent of a fixed length, as the paper fits its baselines.

A thousand steps at rate .001 end wherever they have come to by then. The paper does not say whether its loss is the
mean or the sum over the samples, which makes the steps 5,000 times as long.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from calibrant.errors import FitError
from calibrant.metrics import nll
from calibrant.predictions import Predictions

__all__ = ["STRENGTHS", "Affine", "Kind", "Reduction", "descend", "descend_odir"]

Kind: TypeAlias = Literal["temperature", "vector", "matrix"]
Reduction: TypeAlias = Literal["mean", "sum"]
STRENGTHS = tuple(10.0**power for power in range(4, -3, -1))  # of ODIR, for the matrix and the offsets alike


class Affine(NamedTuple):
    """The map ``W z + b`` of logits."""

    weight: Tensor  # (k, k)
    bias: Tensor  # (k,)

    def transform(self, predictions: Predictions) -> Predictions:
        """Return the predictions with mapped logits."""
        logits = predictions.logits.double() @ self.weight.T + self.bias
        return Predictions.from_logits(logits, predictions.labels, class_names=predictions.class_names)


def descend(
    calibration: Predictions,
    kind: Kind,
    reduction: Reduction,
    *,
    epochs: int = 1_000,
    rate: float = 1e-3,
    strength: float = 0.0,
) -> Affine:
    """Fit a map to the log-loss of all calibration samples, from the identity, by plain gradient descent.

    Args:
        calibration: Samples to fit.
        kind: ``temperature`` divides the logits by one number, which is what descends; ``vector`` has a factor and an
            offset per class, ``matrix`` a full matrix and offsets.
        reduction: Of the loss over the samples.
        epochs: Steps.
        rate: Of learning.
        strength: λ and μ of ODIR, for ``matrix``. The penalty is added once, to the mean as to the sum.

    Raises:
        FitError: If the parameters are no longer finite.
    """
    logits, labels = calibration.logits.double(), calibration.labels
    n, k = logits.shape
    targets = torch.zeros_like(logits).scatter_(1, labels[:, None], 1.0)
    step = rate / n if reduction == "mean" else rate
    temperature, identity = logits.new_ones(()), torch.eye(k, dtype=logits.dtype, device=logits.device)
    factors, weight, bias = logits.new_ones(k), identity, logits.new_zeros(k)
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
            change = step * residuals.T @ logits
            if strength:
                change = change + 2 * rate * strength / (k * (k - 1)) * (weight - weight.diag().diag())
            weight = weight - change
        bias = bias - step * residuals.sum(0) - 2 * rate * strength / k * bias
    if kind != "matrix":
        weight = torch.diag(factors) if kind == "vector" else identity / temperature
    if not (bool(weight.isfinite().all()) and bool(bias.isfinite().all())):
        raise FitError(f"gradient descent of {kind} scaling must stay finite; it does not. Lower the rate.")
    return Affine(weight, bias)


def descend_odir(
    calibration: Predictions, reduction: Reduction, *, epochs: int = 1_000, strengths: Sequence[float] = STRENGTHS
) -> Affine:
    """Fit matrix scaling with ODIR by :func:`descend` at every strength; return that of the lowest log-loss.

    The log-loss is that of the calibration samples themselves, as the paper chooses. A strength at which the descent
    diverges is left out.

    Args:
        calibration: Samples to fit; of log-probabilities, for Dirichlet calibration.
        reduction: Of the loss over the samples.
        epochs: Steps.
        strengths: Of the penalty.

    Raises:
        FitError: If the descent diverges at every strength.
    """
    fits: list[tuple[float, Affine]] = []
    for strength in strengths:
        try:
            fitted = descend(calibration, "matrix", reduction, epochs=epochs, strength=strength)
        except FitError as error:
            failure = error
        else:
            fits.append((nll(fitted.transform(calibration)), fitted))
    if not fits:
        raise failure
    return min(fits, key=lambda fit: fit[0])[1]
