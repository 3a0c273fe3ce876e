"""Softmax regression of labels on logits: the log-loss of ``softmax(W x + b)``, minimised exactly.

All its problems are convex. The softmax does not see a number added to every logit of a sample, so where nothing is
penalised many parameters give the same probabilities; of these the one is returned whose bias sums to zero and whose
off-diagonal weights do so in every column, the limit of ever weaker penalties. Directions that the samples leave open
for another reason stay as they were at the start.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Literal, NamedTuple, TypeAlias, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibrant.errors import FitError, SeparableError
from calibrant.numerics.newton import Certificate, Minimum, Point, Preconditioner, Settings, minimise
from calibrant.numerics.softmax import columns_first, row_blocks, to_working_precision, working_dtype

# Numbers in a block, and samples at least, so that matrix products stay efficient. On a GPU only memory matters.
_BLOCK, _GPU_BLOCK, _LEAST_ROWS = 1 << 17, 1 << 26, 512
_FEW = 32  # classes up to which the inputs are transposed, on a CPU
_RIGHT = 0.999 * math.log(2)  # a sample with less loss has its label ahead, also in single precision


class Ridge(NamedTuple):
    """Weights of the squared penalties: ``diagonal·Σ(w_jj − 1)² + off_diagonal·Σ w_jl² + bias·Σ b_j²``."""

    diagonal: float = 0.0
    off_diagonal: float = 0.0
    bias: float = 0.0


class Samples(NamedTuple):
    """Inputs and labels, and weights above 0 where samples do not count alike."""

    inputs: Tensor  # (n, k)
    labels: Tensor  # (n,)
    weights: Tensor | None = None  # (n,), float64

    @property
    def size(self) -> float:
        """Sum of the weights: the number of samples without them."""
        return len(self.labels) if self.weights is None else float(self.weights.sum())

    @property
    def least_share(self) -> float:
        """Share of the sample that counts least."""
        return (1.0 if self.weights is None else float(self.weights.min())) / self.size

    def at(self, rows: Tensor | slice) -> "Samples":
        """Return some of the samples."""
        return Samples(self.inputs[rows], self.labels[rows], None if self.weights is None else self.weights[rows])


class AffineLoss(ABC):
    """Mean log-loss over samples, weighted or not, plus penalties, as a function of parameters theta, (k, c).

    The last column of theta is b; subclasses define how the others make W. ``penalty`` weights the squared distance of
    each parameter from ``centre``. Where a number added to a whole column changes nothing but the penalty, the column
    less its centre is to have a mean of zero by the weights ``level``; they are 0 for other columns. All are (k, c).
    """

    def __init__(self, samples: Samples, penalty: Tensor, centre: Tensor, level: Tensor) -> None:
        inputs, labels, weights = samples
        n, k = inputs.shape
        inputs = to_working_precision(inputs)
        transposed = k <= _FEW and inputs.device.type == "cpu"
        self._inputs = columns_first(inputs, out=inputs.new_empty(k, n)) if transposed else inputs.T
        self._labels, self.penalty, self.centre = labels, penalty, centre
        self._level = level / level.sum(dim=0).clamp(min=1e-300)
        self._free = not bool(penalty.any())
        self._coarse = self._inputs.float()
        self._probs = torch.empty_like(self._coarse)
        self._moved = True  # the curvature is not that of the current probabilities
        self._weights = None if weights is None else weights * (n / samples.size)
        self.n, self.k = n, k

    @final
    def value_and_gradient(self, theta: Tensor, *, exact: bool) -> Point:  # sums over samples are float64
        source, dtype = (self._inputs, torch.float64) if exact else (self._coarse, torch.float32)
        working, self._moved = (theta * math.log2(math.e)).to(dtype), True  # powers of two are a third faster
        total, gradient, separable = torch.zeros_like(theta[0, 0]), torch.zeros_like(theta), self._free
        for rows in self._blocks():
            inputs, labels = source[:, rows].to(dtype), self._labels[rows]
            probs = self._logits(working, inputs)
            # The softmax of logits in units of ln 2, in place, (k, m), and the loss of each sample, (m,).
            probs.sub_(probs.amax(dim=0))
            label_gap = probs.gather(0, labels[None])[0]
            sums = probs.exp2_().sum(dim=0)
            probs.mul_(sums.reciprocal())
            losses = sums.log2_().sub_(label_gap).mul_(math.log(2))
            separable = separable and bool(losses.max() < _RIGHT)
            total += self._weigh(losses, rows).sum(dtype=torch.float64)
            self._probs[:, rows] = probs
            probs.scatter_add_(0, labels[None], probs.new_full((1, len(labels)), -1.0))
            self._add_moments(gradient, self._weigh(probs, rows), inputs)
        away = theta - self.centre
        value = float(total) / self.n + float((self.penalty * away.square()).sum())
        return Point(value, gradient / self.n + 2 * self.penalty * away, separable)

    @abstractmethod
    def hessian_product(self, direction: Tensor) -> Tensor: ...

    @final
    def preconditioner(self, *, strong: bool) -> Preconditioner:  # does not shift columns as a whole
        solve = self._solver(strong=strong)
        return lambda residual: self._keep_level(solve(residual))

    @final
    def levelled(self, theta: Tensor) -> Tensor:
        """Return parameters with the same probabilities to start from: steps keep the level of columns."""
        return self.centre + self._keep_level(theta - self.centre)

    @final
    def _keep_level(self, change: Tensor) -> Tensor:
        return change - (self._level * change).sum(dim=0)

    @abstractmethod
    def _solver(self, *, strong: bool) -> Preconditioner:
        """Approximate inverse of the Hessian of every class by itself."""

    @abstractmethod
    def _logits(self, theta: Tensor, inputs: Tensor) -> Tensor:
        """``W x + b`` in a new tensor, laid out as the inputs are, (k, m)."""

    @abstractmethod
    def _add_moments(self, sums: Tensor, weights: Tensor, inputs: Tensor) -> None:
        """Add to sums, (k, c), the sums over the samples of weights times the derivatives of the logits."""

    @final
    def _blocks(self) -> list[slice]:
        most = (_BLOCK if self._inputs.device.type == "cpu" else _GPU_BLOCK) // self.k
        return row_blocks(self.n, max(_LEAST_ROWS, most))

    @final
    def _weigh(self, values: Tensor, rows: slice) -> Tensor:
        """Multiply numbers of some samples, (m,) or (k, m), by their weights in place."""
        return values if self._weights is None else values.mul_(self._weights[rows].to(values.dtype))


_FLAT = 1e-9  # curvature relative to the largest below which a direction is rounding


@final
class DiagonalLoss(AffineLoss):
    """Log-loss of ``softmax(w ⊙ x + b)`` as a function of (w, b), shape (k, 2).

    With U = (p ⊙ x, p) the Hessian is that of the separate classes minus U Uᵀ. U is kept, in float32.
    """

    def __init__(self, samples: Samples, ridge: Ridge) -> None:
        k = samples.inputs.shape[1]
        penalty = torch.tensor([ridge.diagonal, ridge.bias], dtype=torch.float64, device=samples.inputs.device)
        only_w, only_b = torch.eye(2).to(penalty)[:, None].expand(2, k, 2)
        super().__init__(samples, penalty.expand(k, 2), centre=only_w, level=only_b)
        self._weighted = torch.empty_like(self._probs)  # p ⊙ x
        self._alone, self._shared = torch.zeros(2, k, 2, 2).to(penalty)

    def hessian_product(self, direction: Tensor) -> Tensor:
        self._settle()
        steeper, higher = direction.float().unbind(dim=1)
        common = self._weigh(steeper @ self._weighted + higher @ self._probs, slice(None))
        shared = torch.stack([self._weighted @ common, self._probs @ common], dim=1).double() / self.n
        return (self._alone @ direction[:, :, None])[:, :, 0] - shared + 2 * self.penalty * direction

    def _solver(self, *, strong: bool) -> Preconditioner:
        del strong  # two by two blocks are enough
        self._settle()
        blocks = self._alone - self._shared + torch.diag_embed(2 * self.penalty)
        least = _FLAT * blocks.diagonal(dim1=1, dim2=2).amax(dim=0) + torch.finfo(torch.float64).tiny
        size = (blocks.diagonal(dim1=1, dim2=2) + least).rsqrt()
        # In units in which both have curvature 1, so that nearly constant inputs of a class do no harm.
        blocks = blocks * size[:, :, None] * size[:, None, :] + _FLAT * torch.eye(2).to(blocks)
        inverse = torch.linalg.inv(blocks) * size[:, :, None] * size[:, None, :]
        return lambda residual: (inverse @ residual[:, :, None])[:, :, 0]

    def drop_means(self) -> None:
        """Leave out of single precision what the softmax does not see while all of w are equal; it may be large."""
        self._coarse = (self._inputs - self._inputs.mean(dim=0)).float()

    def scalar_curvatures(self) -> Tensor:
        """Return the curvature when all of w move together, and in each entry of b, (k + 1,)."""
        all_steeper = torch.tensor([1.0, 0.0]).to(self.penalty).expand(self.k, 2)
        together = self.hessian_product(all_steeper)[:, 0].sum()
        return torch.cat([together[None], (self._alone - self._shared)[:, 1, 1] + 2 * self.penalty[:, 1]])

    def _settle(self) -> None:  # computes what the curvature needs from the last probabilities
        if not self._moved:
            return
        self._alone.zero_()
        self._shared.zero_()
        for rows in self._blocks():
            inputs, probs, weighted = self._coarse[:, rows], self._probs[:, rows], self._weighted[:, rows]
            torch.mul(probs, inputs, out=weighted)
            ones = self._weigh(probs.new_ones(probs.shape[1]), rows)
            self._alone[:, 0, 0] += (weighted * inputs) @ ones
            self._alone[:, 0, 1] += weighted @ ones
            self._alone[:, 1, 1] += probs @ ones
            self._shared[:, 0, 0] += weighted.square() @ ones
            self._shared[:, 0, 1] += (weighted * probs) @ ones
            self._shared[:, 1, 1] += probs.square() @ ones
        for moments in (self._alone, self._shared):
            moments[:, 1, 0] = moments[:, 0, 1]
            moments.div_(self.n)
        self._moved = False

    def _logits(self, theta: Tensor, inputs: Tensor) -> Tensor:
        return torch.mul(theta[:, :1], inputs, out=torch.empty_like(inputs)).add_(theta[:, 1:])

    def _add_moments(self, sums: Tensor, weights: Tensor, inputs: Tensor) -> None:
        ones = weights.new_ones(weights.shape[1])
        sums[:, 1] += weights @ ones
        sums[:, 0] += weights.mul_(inputs) @ ones


@final
class ScalarLoss:
    """Log-loss of ``softmax(a x + b)`` as a function of (a, b), shape (k + 1,): the diagonal one with w = (a, …, a)."""

    def __init__(self, samples: Samples, ridge: Ridge) -> None:
        self._wide = DiagonalLoss(samples, ridge)
        self._wide.drop_means()

    def value_and_gradient(self, theta: Tensor, *, exact: bool) -> Point:
        point = self._wide.value_and_gradient(self._widen(theta), exact=exact)
        return point._replace(gradient=self._gather(point.gradient))

    def levelled(self, theta: Tensor) -> Tensor:
        return torch.cat([theta[:1], theta[1:] - theta[1:].mean()])

    def hessian_product(self, direction: Tensor) -> Tensor:
        return self._gather(self._wide.hessian_product(self._widen(direction)))

    def preconditioner(self, *, strong: bool) -> Preconditioner:
        del strong  # the inverse of the diagonal is enough
        diagonal = self._wide.scalar_curvatures()
        diagonal = diagonal.clamp(min=_FLAT * float(diagonal.max()) + torch.finfo(torch.float64).tiny)
        return lambda residual: self.levelled(residual / diagonal)

    @staticmethod
    def _widen(theta: Tensor) -> Tensor:
        return torch.stack([theta[:1].expand(len(theta) - 1), theta[1:]], dim=1)

    @staticmethod
    def _gather(wide: Tensor) -> Tensor:
        return torch.cat([wide[:, 0].sum()[None], wide[:, 1]])


# Classes up to which building and inverting a matrix for each pays off, and multiplications that building may take.
_STRONG_CLASSES, _STRONG_WORK = 256, 2e8


@final
class MatrixLoss(AffineLoss):
    """Log-loss of ``softmax(W x + b)`` as a function of (W, b), shape (k, k + 1)."""

    def __init__(self, samples: Samples, ridge: Ridge) -> None:
        k = samples.inputs.shape[1]
        penalty = torch.full((k, k + 1), ridge.off_diagonal, dtype=torch.float64, device=samples.inputs.device)
        penalty[:, k] = ridge.bias
        penalty.diagonal().fill_(ridge.diagonal)
        identity = torch.eye(k, k + 1).to(penalty)
        # The penalty determines the level of a penalised column; of others the off-diagonal is levelled.
        level = torch.where(penalty.any(dim=0), penalty, 1 - identity)
        super().__init__(samples, penalty, centre=identity, level=level)

    def hessian_product(self, direction: Tensor) -> Tensor:
        turned, product = direction.float(), torch.zeros_like(direction)
        for rows in self._blocks():
            inputs, probs = self._coarse[:, rows], self._probs[:, rows]
            change = self._logits(turned, inputs)
            change.sub_((probs * change).sum(dim=0)).mul_(probs)
            self._add_moments(product, self._weigh(change, rows), inputs)
        return product / self.n + 2 * self.penalty * direction

    def _solver(self, *, strong: bool) -> Preconditioner:
        return self._class_blocks() if strong and self.k <= _STRONG_CLASSES else self._diagonals_and_means()

    def _diagonals_and_means(self) -> Preconditioner:
        # Class j sees inputs weighted by v = p_j (1 - p_j): Hessian v_total (variances + mean meanᵀ), nearly.
        means, squares = torch.zeros_like(self.penalty), torch.zeros_like(self.penalty)
        for rows in self._blocks():
            inputs, probs = self._coarse[:, rows], self._probs[:, rows]
            spread = self._weigh(probs - probs.square(), rows)
            self._add_moments(means, spread, inputs)
            self._add_moments(squares, spread, inputs.square())
        total = (means[:, -1:] / self.n).clamp(min=torch.finfo(torch.float32).tiny)
        means = means / self.n / total
        diagonal = 2 * self.penalty + (squares / self.n - total * means.square()).clamp(min=0)
        diagonal += _FLAT * diagonal.max() + torch.finfo(torch.float64).tiny
        lever = means / diagonal
        weight = lever / (1 / total + (means * lever).sum(dim=1, keepdim=True))
        # Inverse of diagonal + total · mean meanᵀ (Sherman and Morrison).
        return lambda residual: residual / diagonal - weight * (lever * residual).sum(dim=1, keepdim=True)

    def _class_blocks(self) -> Preconditioner:
        k, inputs = self.k, self._coarse.T
        size = int(min(self.n, max(2 * (k + 1), _STRONG_WORK / (k * (k + 1) ** 2))))
        every = max(1, self.n // (16 * size))  # a subsample of very many samples is enough
        probs = self._probs[:, ::every]
        spread = self._weigh(probs - probs.square(), slice(None, None, every))
        largest, rows = spread.topk(min(size, spread.shape[1]), dim=1)
        # The samples least certain of a class represent all of them.
        share = spread.sum(dim=1) / largest.sum(dim=1).clamp(min=torch.finfo(torch.float32).tiny) / spread.shape[1]
        blocks = torch.empty(k, k + 1, k + 1).to(self.penalty)
        for j in range(k):
            chosen = torch.cat([inputs[rows[j] * every], inputs.new_ones(rows.shape[1], 1)], dim=1)
            chosen = chosen.double() * (largest[j] * share[j]).sqrt()[:, None]
            torch.mm(chosen.T, chosen, out=blocks[j])
        blocks += torch.diag_embed(2 * self.penalty + _FLAT * blocks.diagonal(dim1=1, dim2=2).amax())
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(blocks)).float()
        return lambda residual: (inverse @ residual.float()[:, :, None])[:, :, 0].double()

    def _logits(self, theta: Tensor, inputs: Tensor) -> Tensor:
        return torch.addmm(theta[:, -1:], theta[:, :-1], inputs, out=torch.empty_like(inputs))

    def _add_moments(self, sums: Tensor, weights: Tensor, inputs: Tensor) -> None:
        sums[:, :-1] += weights @ inputs.T
        sums[:, -1] += weights.sum(dim=1)


WeightShape: TypeAlias = Literal["number", "diagonal", "matrix"]
Array: TypeAlias = NDArray[np.float64]

_TOLERANCE = 1e-8  # largest entry of the mean gradient, inputs being of unit size
_LESS_THAN_A_SAMPLE = 0.05  # share of one misclassified sample's gradient, which would hold diverging parameters back
# Spread below which a direction is rounding: a multiple of eps times the inputs' size, and at least, relative to the
# largest, what a matrix of products resolves.
_ROUNDING, _LEAST_SPREAD = 16, 1e-7
# The linear program that searches separating parameters: their number at most, margins added per round, rounds; and
# how far below 0 a margin of 1 may round.
_MOST_PARAMETERS, _MARGINS_AT_ONCE, _ROUNDS, _ROUNDED = 700, 2000, 12, 1e-7
_LARGE = 10.0  # change of a logit by one parameter from which separable samples are looked for
_MORE_STEPS = 200  # further steps for growing parameters where the samples were not shown to be separable
# A fit on a sixteenth of the samples gives the start, if every class has so many samples per parameter there.
_THINNED, _SAMPLES_PER_PARAMETER, _ROUGH = 16, 20, 1e-5
_MUCH = 100  # times the differences of a sample's logits: what they share, from which it costs digits
_SINGLE = 1e-6  # the smallest gradient that single precision resolves


class AffineFit(NamedTuple):
    """The optimum; the certificate's gradient is that for inputs of unit size."""

    weight: Tensor  # (), (k,) or (k, k), float64
    bias: Tensor  # (k,), float64
    certificate: Certificate


def fit_affine(
    inputs: Tensor,
    labels: Tensor,
    *,
    weights: Tensor | None = None,
    shape: WeightShape,
    ridge: Ridge = Ridge(),  # noqa: B008  # a tuple of numbers
    start: tuple[Tensor | float, Tensor | float] = (1.0, 0.0),
    tolerance: float = _TOLERANCE,
) -> AffineFit:
    """Fit weight W and bias b that minimise the mean log-loss of ``softmax(W x + b)`` plus the penalties.

    Args:
        inputs: Logits or log-probabilities, shape (n, k), finite.
        labels: Shape (n,).
        weights: Weights of the samples in the mean, (n,), float64, above 0; None for equal ones.
        shape: Whether W is one number, a diagonal or a matrix.
        ridge: Penalties; that of the off-diagonal only for a matrix.
        start: Initial weight and bias; a number stands for that multiple of the identity.
        tolerance: Largest entry of the gradient, inputs being of unit size. From 1e-6 on single precision is enough.

    Raises:
        FitError: If there is no finite optimum, or the gradient did not fall below the tolerance.

    Example:
        >>> inputs = torch.tensor([[2.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 2.0]])
        >>> fit = fit_affine(inputs, torch.tensor([0, 1, 0, 1]), shape="number")
        >>> round(float(fit.weight), 6), fit.certificate.gradient < 1e-8
        (0.419618, True)
    """
    samples = Samples(inputs, labels, weights)
    if shape == "matrix" and not any(ridge):
        return _fit_matrix(samples, start, tolerance)
    theta = pack(start, inputs.shape[1], shape, inputs.device)
    if shape == "diagonal" and not any(ridge) and _shared(inputs) > _MUCH:  # the bias takes what all samples share
        middle = float(inputs.mean(dtype=torch.float64))
        theta[:, 1] += theta[:, 0] * middle
        fit = _fit(samples._replace(inputs=inputs.double() - middle), shape, ridge, theta, tolerance)
        bias = fit.bias - fit.weight * middle
        return fit._replace(bias=bias - bias.mean())
    return _fit(samples, shape, ridge, theta, tolerance)


def _shared(inputs: Tensor) -> float:
    """Return how large what the inputs of a sample share is, beside their differences."""
    spread, mean = torch.std_mean(inputs.double(), dim=1)
    return float(mean.abs().mean() / spread.mean().clamp(min=1e-300))


def _fit_matrix(samples: Samples, start: tuple[Tensor | float, Tensor | float], tolerance: float) -> AffineFit:
    """Fit a matrix without penalties, in coordinates in which the inputs are uncorrelated and of unit size.

    There the sum of a sample's logits, which may be nearly constant, is as good a direction as any other. Directions
    that are rounding stay as they were at the start. The certificate is recomputed at the parameters returned.
    """
    inputs = samples.inputs
    theta = pack(start, inputs.shape[1], "matrix", inputs.device)
    axes = Axes.of(inputs)
    turned = samples._replace(inputs=axes.turned(inputs))
    fit = _fit(turned, "matrix", Ridge(), axes.inwards(theta), tolerance / 4)
    weight, bias = axes.outwards(fit.weight, fit.bias, theta)
    theta = torch.cat([weight, bias[:, None]], dim=1)
    point = MatrixLoss(samples, Ridge()).value_and_gradient(theta, exact=True)
    gradient = float((point.gradient / parameter_sizes(inputs, theta, "matrix")).abs().max())
    certificate = fit.certificate._replace(objective=point.value, gradient=gradient, passes=fit.certificate.passes + 2)
    return AffineFit(weight, bias, certificate)


class Axes(NamedTuple):
    """Coordinates in which inputs are uncorrelated and of unit size."""

    unit: float
    mean: Tensor  # (k,)
    directions: Tensor  # (k, k)
    spread: Tensor  # (k,), 0 where it is rounding
    inverse: Tensor  # (k,), 0 there, too

    @classmethod
    def of(cls, inputs: Tensor) -> "Axes":
        unit = float(inputs.abs().max()) or 1.0
        plain = inputs.double() / unit
        mean = plain.mean(dim=0)
        centred = plain - mean
        variance, directions = torch.linalg.eigh(centred.T @ centred / len(plain))
        spread = variance.clamp(min=0).sqrt()
        size = float((variance.sum() + mean @ mean) / len(mean)) ** 0.5  # of the inputs, as they were rounded
        rounding = _ROUNDING * torch.finfo(working_dtype(inputs)).eps * size
        kept = spread > (_LEAST_SPREAD * spread.max()).clamp(min=rounding)
        return cls(unit, mean, directions, torch.where(kept, spread, 0.0), torch.where(kept, 1 / spread, 0.0))

    def turned(self, inputs: Tensor) -> Tensor:
        """Return inputs in these coordinates, (n, k), float64."""
        return (inputs.double() / self.unit - self.mean) @ (self.directions * self.inverse)

    def inwards(self, theta: Tensor) -> Tensor:
        """Return parameters for inputs in these coordinates."""
        weight = theta[:, :-1] * self.unit
        bias = theta[:, -1] + weight @ self.mean
        return torch.cat([(weight @ self.directions) * self.spread, bias[:, None]], dim=1)

    def outwards(self, weight: Tensor, bias: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        """Return weight and bias for the inputs themselves, in directions that are rounding those of the start."""
        left = self.directions[:, self.spread == 0]
        weight = weight * self.inverse @ self.directions.T + (start[:, :-1] * self.unit) @ left @ left.T
        bias = bias - weight @ self.mean
        weight = (weight - (weight.sum(dim=0) - weight.diagonal()) / (len(weight) - 1)) / self.unit
        return weight, bias - bias.mean()


def _fit(samples: Samples, shape: WeightShape, ridge: Ridge, theta: Tensor, tolerance: float) -> AffineFit:
    settings = Settings(
        size=parameter_sizes(samples.inputs, theta, shape),
        tolerance=tolerance,
        coarse=tolerance >= _SINGLE,
        negligible=0.0 if any(ridge) else _LESS_THAN_A_SAMPLE * samples.least_share,
        loose=0.3 if shape == "matrix" else 0.03,
    )
    theta, passes = _rough(samples, shape, ridge, theta, settings)
    loss = affine_loss(samples, shape, ridge)
    best = minimise(loss, loss.levelled(theta), settings)
    is_large = float((best.theta * settings.size).abs().max()) > _LARGE  # rounding may hide that it still grows
    if best.end == "diverging" or (is_large and best.end != "separable" and not any(ridge)):
        if _separable(samples.inputs, samples.labels, shape, best.theta):
            best = best._replace(end="diverging")
        elif best.end == "diverging":
            best = minimise(loss, best.theta, replace(settings, negligible=0.0, steps=_MORE_STEPS))
            best = best._replace(end="stalled") if best.end == "diverging" else best
    _check_end(best, samples.inputs, tolerance)
    certificate = best.certificate._replace(passes=best.certificate.passes + passes)
    return AffineFit(*unpack(loss.levelled(best.theta), shape), certificate)


def _rough(
    samples: Samples, shape: WeightShape, ridge: Ridge, theta: Tensor, settings: Settings
) -> tuple[Tensor, float]:
    """Return a start from a subsample, if that is large enough, and the passes over all samples that it cost."""
    few, k = samples.at(slice(None, None, _THINNED)), samples.inputs.shape[1]
    if torch.bincount(few.labels, minlength=k).min() < _SAMPLES_PER_PARAMETER * (k + 1 if shape == "matrix" else 2):
        return theta, 0.0
    settings = replace(settings, tolerance=_ROUGH, negligible=settings.negligible * _THINNED, steps=12, coarse=True)
    loss = affine_loss(few, shape, ridge)
    rough = minimise(loss, loss.levelled(theta), settings)
    passes = rough.certificate.passes / _THINNED
    return (theta if rough.end in {"separable", "diverging"} else rough.theta), passes


def _check_end(best: Minimum, inputs: Tensor, tolerance: float) -> None:
    reached, n = best.certificate, len(inputs)
    if best.end in {"separable", "diverging"}:
        lines = best.theta[1:, None] if best.theta.ndim == 1 else best.theta
        whose = f" (those of class {int(lines.abs().amax(dim=1).argmax())} first)" if best.end == "diverging" else ""
        raise SeparableError(
            f"the {n} calibration samples are separable in part or in all: larger and larger parameters{whose} fit "
            f"them ever better (log-loss {reached.objective:.3g} after {reached.steps} steps), so there is no optimum. "
            "Use a method with a penalty, such as svs or sms, or more samples."
        )
    if best.end == "stalled":
        advice = "Check the logits for extreme values, or use a method with a penalty."
        if _shared(inputs) > _MUCH:
            advice = "All logits of a sample share a large number, which the weights multiply: take it out first "
            advice += "(log_softmax), or use dirichlet_odir, svs or sms."
        raise FitError(
            f"the gradient must fall below {tolerance:g} for the fit to count; it is {reached.gradient:.2g} after "
            f"{reached.steps} steps. {advice}"
        )


def _separable(inputs: Tensor, labels: Tensor, shape: WeightShape, theta: Tensor) -> bool:
    """Whether some parameters separate the samples: no class is ahead of a label, and some labels are ahead.

    A linear program over the smallest margins searches them; margins that its solution violates are added, and the last
    solution is checked on all samples. With too many parameters or rounds, the answer is no.
    """
    n, k = inputs.shape
    if theta.numel() > _MOST_PARAMETERS:
        return False
    from scipy.optimize import linprog

    x, label = inputs.double().cpu().numpy(), labels.cpu().numpy()
    x = x / max(np.abs(x).max(), np.finfo(np.float64).tiny)
    hot = np.eye(k)[label]

    def margins_of(values: Array) -> Array:
        """Return the logit of the label minus that of each class, (n, k); infinite for the label itself."""
        weight, bias = unpack(torch.from_numpy(values).reshape(theta.shape), shape)
        logits = (x @ weight.numpy().T if shape == "matrix" else x * weight.numpy()) + bias.numpy()
        return np.where(hot > 0, np.inf, logits[np.arange(n), label][:, None] - logits)

    def rows_of(weights: Array, rows: NDArray[np.intp]) -> Array:
        """Return derivatives of weighted sums of some samples' logits in the parameters, (m, parameters)."""
        if shape == "number":
            return np.concatenate([(weights * x[rows]).sum(axis=1, keepdims=True), weights], axis=1)
        of_weight = weights[:, :, None] * (x[rows][:, None, :] if shape == "matrix" else x[rows][:, :, None])
        return np.concatenate([of_weight, weights[:, :, None]], axis=2).reshape(len(rows), -1)

    total = np.zeros(theta.numel())
    for start in range(0, n, 1000):
        rows = np.arange(start, min(start + 1000, n))
        total += rows_of(k * hot[rows] - 1, rows).sum(axis=0)
    initial = theta.cpu().numpy().ravel()
    margins, chosen = margins_of(initial), np.empty(0, dtype=np.intp)
    for _ in range(_ROUNDS):
        worst = np.argpartition(margins, min(_MARGINS_AT_ONCE, margins.size - 1), axis=None)[:_MARGINS_AT_ONCE]
        chosen = np.union1d(chosen, worst[np.isfinite(margins.ravel()[worst])])
        rows, others = np.divmod(chosen, k)
        held = rows_of(hot[rows] - np.eye(k)[others], rows)
        solution = linprog(-total, A_ub=-held, b_ub=np.zeros(len(held)), bounds=(-1, 1), method="highs")
        if solution.x is None or -solution.fun <= _ROUNDED * np.abs(total).sum():
            return False
        margins = margins_of(solution.x)
        largest = float(margins[np.isfinite(margins)].max())
        if largest > 0 and float(margins.min()) >= -_ROUNDED * largest:
            return True
    return False


def affine_loss(samples: Samples, shape: WeightShape, ridge: Ridge) -> AffineLoss | ScalarLoss:
    """Return the log-loss of a weight of that shape, as a function of its parameters."""
    if shape == "number":
        return ScalarLoss(samples, ridge)
    return (DiagonalLoss if shape == "diagonal" else MatrixLoss)(samples, ridge)


def parameter_sizes(inputs: Tensor, theta: Tensor, shape: WeightShape) -> Tensor:
    """Return how far a unit of each parameter moves a logit: the spread within a sample for weights, 1 for the bias."""
    n, most = len(inputs), 2000
    # Multiples of the golden ratio: evenly distributed, and in step with no period of the samples.
    rows = slice(None) if n <= most else (torch.arange(most, dtype=torch.float64) * 0.5 * (1 + 5**0.5) % 1 * n).long()
    some = inputs[rows].double()
    size = torch.ones_like(theta)
    size[0 if shape == "number" else (..., slice(-1))] = (some - some.mean(dim=1, keepdim=True)).square().mean().sqrt()
    return size.clamp(min=torch.finfo(torch.float32).tiny)


def pack(start: tuple[Tensor | float, Tensor | float], k: int, shape: WeightShape, device: torch.device) -> Tensor:
    """Return weight and bias as parameters."""
    weight, bias = (torch.as_tensor(part, dtype=torch.float64, device=device) for part in start)
    bias = bias.expand(k)
    if shape == "number":
        return torch.cat([weight.reshape(1), bias])
    if shape == "diagonal":
        return torch.stack([weight.expand(k), bias], dim=1)
    weight = weight if weight.ndim == 2 else torch.diag(weight.expand(k))
    return torch.cat([weight, bias[:, None]], dim=1)


def unpack(theta: Tensor, shape: WeightShape) -> tuple[Tensor, Tensor]:
    """Return the weight and the bias that parameters stand for."""
    if shape == "number":
        return theta[0], theta[1:].clone()
    return (theta[:, 0] if shape == "diagonal" else theta[:, :-1]), theta[:, -1].clone()
