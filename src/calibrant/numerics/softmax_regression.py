"""Softmax regression of labels on logits: the affine family of calibration maps, fitted exactly.

All its problems are convex. The softmax does not see a number added to every logit of a row, so where nothing is
penalised many parameters give the same probabilities; of these the one is returned whose bias sums to zero and whose
off-diagonal weights do so in every column, the limit of ever weaker penalties. Directions that the rows leave open for
another reason stay as they were at the start.
"""

from dataclasses import replace
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linprog
from torch import Tensor

from calibrant.errors import FitError, SeparableError
from calibrant.numerics.affine_loss import AffineLoss, DiagonalLoss, MatrixLoss, Ridge, ScalarLoss
from calibrant.numerics.newton import Certificate, Minimum, Settings, minimise
from calibrant.numerics.numpy_kernels import working

__all__ = ["AffineFit", "Ridge", "WeightShape", "fit_affine"]

WeightShape: TypeAlias = Literal["number", "diagonal", "matrix"]
Array: TypeAlias = NDArray[np.float64]

# Largest entry of the mean gradient, inputs being of unit size.
_TOLERANCE = 1e-8
# Share of what one row on the wrong side adds to the gradient, which would hold runaway parameters back.
_LESS_THAN_A_ROW = 0.05
# Share of the inputs' largest spread below which a direction is rounding: so many times eps of the type they are
# multiplied in, and at least what a matrix of products can tell.
_ROUNDING, _LEAST_SPREAD = 16, 1e-7
# The linear program that looks for separating parameters: how many of them at most, margins at once, turns; and how
# far below 0 a margin of 1 may round.
_MOST_PARAMETERS, _MARGINS_AT_ONCE, _TURNS, _ROUNDED = 700, 2000, 12, 1e-7
# Steps more for parameters that grow, where the rows were not shown to be separable.
_MORE_STEPS = 200
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
    if shape == "matrix" and not any(ridge):
        return _fit_matrix(inputs, labels, start, tolerance)
    return _fit(inputs, labels, shape, ridge, _pack(start, inputs.shape[1], shape, inputs.device), tolerance)


def _fit_matrix(
    inputs: Tensor, labels: Tensor, start: tuple[Tensor | float, Tensor | float], tolerance: float
) -> AffineFit:
    """A matrix without penalties, in coordinates in which the inputs are uncorrelated and of unit size.

    There the sum of a row's logits, which may all but vanish, is as good a direction as any other. What is rounding
    stays as it was at the start. The certificate is that of the parameters returned, of the inputs as they are.
    """
    theta = _pack(start, inputs.shape[1], "matrix", inputs.device)
    unit = float(inputs.abs().max())
    if unit == 0:
        return _fit(inputs, labels, "matrix", Ridge(), theta, tolerance)
    plain = inputs.double() / unit
    mean = plain.mean(dim=0)
    centred = plain - mean
    variance, directions = torch.linalg.eigh(centred.T @ centred / len(plain))
    spread = variance.clamp(min=0).sqrt()
    eps = torch.finfo(working(inputs).dtype).eps
    kept = spread > max(_ROUNDING * eps, _LEAST_SPREAD) * spread.max()
    inverse = torch.where(kept, 1 / spread, 0.0)
    begun = theta[:, :-1] * unit
    weight = (begun @ directions) * torch.where(kept, spread, 0.0)
    bias = theta[:, -1] + begun @ mean
    fit = _fit(
        centred @ (directions * inverse),
        labels,
        "matrix",
        Ridge(),
        torch.cat([weight, bias[:, None]], dim=1),
        tolerance / 4,
    )
    left = directions[:, ~kept]
    weight = fit.weight * inverse @ directions.T + begun @ left @ left.T
    weight, bias = _in_gauge(weight / unit, fit.bias - weight @ mean, Ridge())
    theta = torch.cat([weight, bias[:, None]], dim=1)
    point = MatrixLoss(inputs, labels, Ridge()).look(theta, exact=True)
    gradient = float((point.gradient / _sizes(inputs, theta, "matrix")).abs().max())
    certificate = fit.certificate._replace(objective=point.value, gradient=gradient, passes=fit.certificate.passes + 2)
    return AffineFit(weight, bias, certificate)


def _fit(
    inputs: Tensor, labels: Tensor, shape: WeightShape, ridge: Ridge, theta: Tensor, tolerance: float
) -> AffineFit:
    settings = Settings(
        size=_sizes(inputs, theta, shape),
        tolerance=tolerance,
        coarse=tolerance >= _SINGLE,
        negligible=0.0 if any(ridge) else _LESS_THAN_A_ROW / len(labels),
        loose=0.3 if shape == "matrix" else 0.03,
    )
    theta, passes = _rough(inputs, labels, shape, ridge, theta, settings)
    loss = _loss(inputs, labels, shape, ridge)
    best = minimise(loss, loss.levelled(theta), settings)
    if best.end == "runaway" and not _separable(inputs, labels, shape, best.theta):
        settings = replace(settings, negligible=0.0, steps=_MORE_STEPS)
        best = minimise(loss, best.theta, settings)
        best = best._replace(end="stuck") if best.end == "runaway" else best
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


def _separable(inputs: Tensor, labels: Tensor, shape: WeightShape, theta: Tensor) -> bool:
    """Whether some parameters separate the rows: for none is another class ahead of the label, for some the label is.

    Larger multiples of such parameters always fit better. They are looked for by a linear program over the margins that
    are smallest, to which those are added that its answer violates; the last answer was checked on all rows. Where
    there are too many parameters, or turns, nothing is claimed.

    Args:
        inputs: Shape (n, k).
        labels: Shape (n,).
        shape: What the weight is.
        theta: Where the parameters have run to.
    """
    n, k = inputs.shape
    if theta.numel() > _MOST_PARAMETERS:
        return False
    x, label = inputs.double().cpu().numpy(), labels.cpu().numpy()
    x = x / max(np.abs(x).max(), np.finfo(np.float64).tiny)
    hot = np.eye(k)[label]

    def margins_of(values: Array) -> Array:
        """Logit of the label less that of each class, (n, k), infinite for the label itself."""
        weight, bias = _unpack(torch.from_numpy(values).reshape(theta.shape), shape)
        logits = (x @ weight.numpy().T if shape == "matrix" else x * weight.numpy()) + bias.numpy()
        return np.where(hot > 0, np.inf, logits[np.arange(n), label][:, None] - logits)

    def rows_of(weights: Array, rows: NDArray[np.intp]) -> Array:
        """Derivatives of weighted sums of some rows' logits in the parameters, one a row, (m, parameters)."""
        if shape == "number":
            return np.concatenate([(weights * x[rows]).sum(axis=1, keepdims=True), weights], axis=1)
        of_weight = weights[:, :, None] * (x[rows][:, None, :] if shape == "matrix" else x[rows][:, :, None])
        return np.concatenate([of_weight, weights[:, :, None]], axis=2).reshape(len(rows), -1)

    total = np.zeros(theta.numel())
    for start in range(0, n, 1000):
        rows = np.arange(start, min(start + 1000, n))
        total += rows_of(k * hot[rows] - 1, rows).sum(axis=0)
    begun = theta.cpu().numpy().ravel()
    margins, chosen = margins_of(begun), np.empty(0, dtype=np.intp)
    for _ in range(_TURNS):
        worst = np.argsort(margins, axis=None)[:_MARGINS_AT_ONCE]
        chosen = np.union1d(chosen, worst[np.isfinite(margins.ravel()[worst])])
        rows, others = np.divmod(chosen, k)
        held = rows_of(hot[rows] - np.eye(k)[others], rows)
        found = linprog(-total, A_ub=-held, b_ub=np.zeros(len(held)), bounds=(-1, 1), method="highs")
        if found.x is None or -found.fun <= _ROUNDED * np.abs(total).sum():
            return False
        margins = margins_of(found.x)
        largest = float(margins[np.isfinite(margins)].max())
        if largest > 0 and float(margins.min()) >= -_ROUNDED * largest:
            return True
    return False


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
