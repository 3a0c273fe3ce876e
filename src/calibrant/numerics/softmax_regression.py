"""Softmax regression of labels on logits: the affine family of calibration maps, fitted exactly.

All its problems are convex. The softmax does not see a number added to every logit of a row, so where nothing is
penalised many parameters give the same probabilities; of these the one is returned whose bias sums to zero and whose
off-diagonal weights do so in every column, the limit of ever weaker penalties. Directions that the rows leave open for
another reason stay as they were at the start.
"""

from dataclasses import replace
from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from calibrant.errors import FitError, SeparableError
from calibrant.numerics.affine_loss import AffineLoss, Ridge
from calibrant.numerics.certificate import Certificate
from calibrant.numerics.diagonal_loss import DiagonalLoss, ScalarLoss
from calibrant.numerics.matrix_loss import MatrixLoss
from calibrant.numerics.newton import Minimum, Settings, minimise

__all__ = ["AffineFit", "Ridge", "WeightShape", "fit_affine"]

WeightShape: TypeAlias = Literal["number", "diagonal", "matrix"]

# Largest entry of the mean gradient, inputs being of unit size.
_TOLERANCE = 1e-8
# Share of what one row on the wrong side adds to the gradient, which would hold runaway parameters back.
_LESS_THAN_A_ROW = 0.05
# Share of the log-loss at the start below which a fit without penalties has told the rows apart, but for a few.
_TOLD_APART = 0.02
# A fit on a sixteenth of the rows gives the start, if every class has so many rows a parameter there.
_THINNED, _ROWS_A_PARAMETER, _ROUGH = 16, 20, 1e-5
# The gradient that single precision knows well enough.
_SINGLE = 1e-6


class AffineFit(NamedTuple):
    """The optimum and how well it is known; the gradient is that for inputs of unit size."""

    weight: Tensor  # (), (k,) or (k, k), float64
    bias: Tensor  # (k,), float64
    certificate: Certificate


def fit_affine(
    inputs: Tensor,
    labels: Tensor,
    *,
    shape: WeightShape,
    ridge: Ridge = Ridge(),  # noqa: B008  # a tuple of numbers
    start: tuple[Tensor | float, Tensor | float] = (1.0, 0.0),
    tolerance: float = _TOLERANCE,
) -> AffineFit:
    """Weight W and bias b that minimise the mean log-loss of ``softmax(W x + b)`` and the penalties.

    Args:
        inputs: Logits or log-probabilities, shape (n, k), finite.
        labels: Shape (n,).
        shape: What W is: one number, a diagonal or a matrix.
        ridge: Penalties; of the off-diagonal only for a matrix.
        start: Weight and bias to begin from; a number stands for that multiple of the identity.
        tolerance: Largest entry of the gradient, inputs being of unit size. From 1e-6 on single precision will do.

    Raises:
        FitError: If there is no finite optimum, because the rows can be told apart without error, or if the gradient
            did not fall below the tolerance.

    Example:
        >>> inputs = torch.tensor([[2.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 2.0]])
        >>> fit = fit_affine(inputs, torch.tensor([0, 1, 0, 1]), shape="number")
        >>> round(float(fit.weight), 6), fit.certificate.gradient < 1e-8
        (0.419618, True)
    """
    theta = _pack(start, inputs.shape[1], shape, inputs.device)
    settings = Settings(
        size=_sizes(inputs, theta, shape),
        tolerance=tolerance,
        coarse=tolerance >= _SINGLE,
        negligible=0.0 if any(ridge) else _LESS_THAN_A_ROW / len(labels),
        loose=0.3 if shape == "matrix" else 0.03,
        least=0.0 if any(ridge) else _TOLD_APART,
    )
    theta, passes = _rough(inputs, labels, shape, ridge, theta, settings)
    loss = _loss(inputs, labels, shape, ridge)
    best = minimise(loss, loss.levelled(theta), settings)
    _check_found(best, len(labels), tolerance)
    weight, bias = _unpack(best.theta, shape)
    certificate = best.certificate._replace(passes=best.certificate.passes + passes)
    return AffineFit(*_in_gauge(weight, bias, ridge), certificate)


def _rough(
    inputs: Tensor, labels: Tensor, shape: WeightShape, ridge: Ridge, theta: Tensor, settings: Settings
) -> tuple[Tensor, float]:
    """A better start from some of the rows, if that is many enough, and the passes over all rows that it cost."""
    inputs, labels = inputs[::_THINNED], labels[::_THINNED]
    k, of_a_class = inputs.shape[1], inputs.shape[1] + 1 if shape == "matrix" else 2
    if torch.bincount(labels, minlength=k).min() < _ROWS_A_PARAMETER * of_a_class:
        return theta, 0.0
    settings = replace(settings, tolerance=_ROUGH, negligible=settings.negligible * _THINNED, steps=12)
    loss = _loss(inputs, labels, shape, ridge)
    rough = minimise(loss, loss.levelled(theta), settings)
    passes = rough.certificate.passes / _THINNED
    return (theta if rough.end in {"apart", "runaway"} else rough.theta), passes


def _check_found(best: Minimum, n: int, tolerance: float) -> None:
    reached = best.certificate
    if best.end in {"apart", "runaway"}:
        lines = best.theta[1:, None] if best.theta.ndim == 1 else best.theta
        whose = f" (those of class {int(lines.abs().amax(dim=1).argmax())} first)" if best.end == "runaway" else ""
        raise SeparableError(
            f"the {n} calibration rows are separable in part or in all: larger and larger parameters{whose} fit them "
            f"ever better (log-loss {reached.objective:.3g} after {reached.steps} steps), so there are no best ones. "
            "Use a method with a penalty, such as svs or sms, or more rows."
        )
    if best.end == "stuck":
        raise FitError(
            f"the gradient must fall below {tolerance:g} for the fit to count; it is {reached.gradient:.2g} after "
            f"{reached.steps} steps. Check the logits for extreme values, or use a method with a penalty."
        )


def _loss(inputs: Tensor, labels: Tensor, shape: WeightShape, ridge: Ridge) -> AffineLoss | ScalarLoss:
    if shape == "number":
        return ScalarLoss(inputs, labels, ridge)
    return (DiagonalLoss if shape == "diagonal" else MatrixLoss)(inputs, labels, ridge)


def _sizes(inputs: Tensor, theta: Tensor, shape: WeightShape) -> Tensor:
    """How far a unit of each parameter moves a logit: the inputs' spread within a row for weights, 1 for the bias."""
    some = inputs[:: max(1, len(inputs) // 2000)].double()
    size = torch.ones_like(theta)
    size[0 if shape == "number" else (..., slice(-1))] = (some - some.mean(dim=1, keepdim=True)).square().mean().sqrt()
    return size.clamp(min=torch.finfo(torch.float32).tiny)


def _pack(start: tuple[Tensor | float, Tensor | float], k: int, shape: WeightShape, device: torch.device) -> Tensor:
    weight, bias = (torch.as_tensor(each, dtype=torch.float64, device=device) for each in start)
    bias = bias.expand(k)
    if shape == "number":
        return torch.cat([weight.reshape(1), bias])
    if shape == "diagonal":
        return torch.stack([weight.expand(k), bias], dim=1)
    weight = weight if weight.ndim == 2 else torch.diag(weight.expand(k))
    return torch.cat([weight, bias[:, None]], dim=1)


def _unpack(theta: Tensor, shape: WeightShape) -> tuple[Tensor, Tensor]:
    if shape == "number":
        return theta[0], theta[1:]
    return (theta[:, 0] if shape == "diagonal" else theta[:, :-1]), theta[:, -1]


def _in_gauge(weight: Tensor, bias: Tensor, ridge: Ridge) -> tuple[Tensor, Tensor]:
    """Of all parameters that give the same probabilities, those that the module promises."""
    if ridge.bias == 0:
        bias = bias - bias.mean()
    if weight.ndim == 2 and ridge == ridge._replace(diagonal=0, off_diagonal=0):
        weight = weight - (weight.sum(dim=0) - weight.diagonal()) / (len(weight) - 1)
    return weight, bias.clone()
