"""Intra-order-preserving functions: more flexible than a temperature, without changing a prediction."""

import copy
import math
from dataclasses import dataclass
from typing import NamedTuple, Self, final

import torch
from torch import Tensor

from calibrant.calibrators.affine import TemperatureScaling
from calibrant.calibrators.base import Calibrator, Fitted, warn_of_missing_classes
from calibrant.checks import AtLeastOne, AtLeastTwo, Positive, Seed
from calibrant.errors import SeparableError
from calibrant.maps import MonotoneMap, OrderPreservingMap, Sees
from calibrant.numerics.newton import Certificate, newton_by_part, quasi_newton, quasi_newton_by_part
from calibrant.numerics.softmax import row_blocks, sort_in_place
from calibrant.paper import Paper
from calibrant.predictions import Predictions

_RAHIMI = Paper("Rahimi et al.", 2020, "Intra Order-preserving Functions for Calibration of Multi-Class Neural "
                "Networks", "arXiv:2003.06820")  # fmt: skip
# Log-probabilities of a class that hardly vary carry no information, and are not scaled up.
_LEAST_SPREAD = 0.1
# Least slope of the diagonal function; temperature scaling is 1 everywhere.
_LEAST_SLOPE = 0.01


@final
@dataclass(frozen=True)
class OrderPreserving(
    Calibrator, name="order_preserving", title="Order-preserving network", family="scaling", paper=_RAHIMI
):
    """Stretch each gap between neighbouring logits by a number that a small network computes from the sample (OP).

    The order of all classes in a sample is kept, so that neither accuracy nor top-5 accuracy can change. The network
    sees which class is which, and can lower the confidence in overrated classes, as vector scaling does. With few
    samples it has little to learn from and stays at temperature scaling, to which a strong ``weight_decay`` leads. It
    hurts where the calibration samples have another distribution than later ones: the network then extrapolates.
    Without a wrong prediction no finite stretch is best, and the fit is refused.

    Formula: q = softmax(S⁻¹(−Σ_{i<j} m_i(z) (z_(i) − z_(i+1)))), m = softplus(network(z)) > 0, S sorts z downwards
    Samples: about 50 per class to improve on temperature scaling; with fewer it is no better and, as regularised, no
        worse. The confidence in a class without samples falls, with a warning.

    Args:
        hidden: Size of the hidden layer.
        weight_decay: Penalty on the squared distance of the weights from their start, divided by the number of samples.
            Below 1 it overfits a hundred classes with 5,000 samples; infinitely large it is temperature scaling.
        seed: Random seed of the network's initial weights.
    """

    preserves_accuracy = True
    preserves_ranking = False  # samples are stretched differently

    hidden: AtLeastOne = 32
    weight_decay: Positive = 3.0
    seed: Seed = 0

    def _fit(self, predictions: Predictions) -> Fitted:
        warn_of_missing_classes(predictions, self.title)
        return _stretched(self, predictions, "given")


@final
@dataclass(frozen=True)
class OrderInvariant(
    Calibrator, name="order_invariant", title="Order-invariant network", family="scaling", paper=_RAHIMI
):
    """Stretch each gap between neighbouring logits by a number that a network computes from the sorted sample (OI).

    As :class:`OrderPreserving`, with a network that sees the largest logit, the second largest and so on, and not which
    class is which: it learns from all classes at once, needs fewer samples, and can correct what depends on the shape
    of a sample (confident in one class, undecided between two, spread over many), but not a single class. The order of
    all classes in a sample is kept. It hurts where later samples have shapes that the calibration samples had not.

    Formula: q = softmax(S⁻¹(−Σ_{i<j} m_i(Sz) (z_(i) − z_(i+1)))), m = softplus(network(Sz)) > 0, S sorts z downwards
    Samples: about 1,000 to improve on temperature scaling; with fewer it is no better and, as regularised, no worse.

    Args:
        hidden: Size of the hidden layer.
        weight_decay: Penalty on the squared distance of the weights from their start, divided by the number of samples;
            infinitely large it is temperature scaling.
        seed: Random seed of the network's initial weights.
    """

    preserves_accuracy = True
    preserves_ranking = False  # samples are stretched differently

    hidden: AtLeastOne = 32
    weight_decay: Positive = 3.0
    seed: Seed = 0

    def _fit(self, predictions: Predictions) -> Fitted:
        return _stretched(self, predictions, "sorted")


# Differs from the paper: one hidden layer of tanh, whose start gives temperature scaling; it sees log-probabilities
# after temperature scaling, so that adding a constant to the logits of a sample, or scaling all of them, changes
# nothing; weights decay towards the start, not towards 0, where the hidden layer would be lost; all samples are fitted
# at once and to an optimum, where the paper takes some epochs of Adam.
def _stretched(method: OrderPreserving | OrderInvariant, predictions: Predictions, sees: Sees) -> Fitted:
    beta = _fitted_beta(predictions)
    n, k = predictions.logits.shape
    gaps, seen = (predictions.logits.new_empty(n, size, dtype=torch.float64) for size in (k - 1, k))
    label_rank = torch.empty_like(predictions.labels)
    for rows in row_blocks(n, max(1, _SORTED // k)):
        logits = predictions.logits[rows].double() * beta
        ranked, order = logits.sort(dim=1, descending=True, stable=True)
        gaps[rows] = ranked[:, :-1] - ranked[:, 1:]
        seen[rows] = (ranked if sees == "sorted" else logits).log_softmax(dim=1)
        label_rank[rows] = (order == predictions.labels[rows, None]).byte().argmax(dim=1)
    counts = predictions.sample_counts
    share = seen.new_full((n,), 1 / n) if counts is None else counts / counts.sum()
    centre = share @ seen
    seen -= centre
    squares = [share @ seen[:, columns].square() for columns in row_blocks(k, max(1, _SORTED // n))]
    spread = torch.cat(squares).sqrt().clamp(min=_LEAST_SPREAD)
    seen /= spread
    if n > _MANY:  # sums are in double precision
        gaps, seen = gaps.float(), seen.float()
    hidden, decay, seed = method.hidden, method.weight_decay, method.seed
    objective = GapStretchLoss(gaps, seen, label_rank, counts=counts, hidden=hidden, weight_decay=decay, seed=seed)
    flat, certificate = _minimum(objective, n)
    weights = objective.network(flat)
    weights = weights._replace(hidden_weight=weights.hidden_weight / spread)
    return Fitted(OrderPreservingMap(beta, centre, *weights, n_classes=predictions.n_classes, sees=sees), certificate)


def _minimum(objective: "GapStretchLoss", n: int) -> tuple[Tensor, Certificate]:
    """Minimise the objective of n samples, by curvatures of some of them where they are many and the weights few."""
    start, steps, passes = objective.start, 0, 0.0
    if n >= _TWO_STAGES and len(start) <= _DENSE:
        part = objective.part(_some_of(n))
        start, (_, _, steps, passes) = newton_by_part(
            objective, part, part.curvature, start, share=_PART / n, tolerance=_ROUGH, gain=_GAIN
        )
    flat, certificate = quasi_newton(objective, start, tolerance=_FINE if n <= _MANY else _ROUGH)
    return flat, certificate._replace(steps=steps + certificate.steps, passes=passes + certificate.passes)


def _some_of(n: int) -> Tensor:
    return torch.randperm(n, generator=torch.Generator().manual_seed(0))[:_PART]


def _fitted_beta(predictions: Predictions) -> Tensor:
    """Return the inverse temperature that these methods start from."""
    if bool(predictions.correct.all()):
        raise SeparableError(
            f"order-preserving functions must have some wrong predictions to learn from; here all {len(predictions)} "
            "are right, so steeper functions are always better. Fit on more samples."
        )
    return TemperatureScaling().fit_without_scores(predictions).get_buffer("temperature").reciprocal()


_SORTED = 1 << 20  # logits that are sorted at a time
# Largest gradient at the end. The noise of many samples hides a rougher one: at 100,000 samples the log-loss is 3e-6
# above its minimum, after a fifth of the passes.
_FINE, _ROUGH, _MANY = 1e-7, 1e-5, 20_000
# From so many samples on, and up to so many weights, the curvature is that of so many samples: a step takes longer, but
# an order of magnitude fewer are needed. A step that lowers the log-loss by less than the gain is not worth a pass.
_TWO_STAGES, _DENSE, _PART, _GAIN = 200_000, 2000, 50_000, 2e-6
# Numbers in a block: the dozen arrays of its size stay in a processor's last cache.
_BLOCK = 1 << 18
# No fitted output is as large as this, but a trial step's may be, and its exponential must be finite.
_HUGE = 80.0
_FISHER_BLOCK = 4096  # samples whose gradients are kept at a time
# softplus of this is 1: gaps stay unchanged.
_NEUTRAL = math.log(math.e - 1)


class StretchWeights(NamedTuple):
    """The weights of the network, or parts of a flat vector of them."""

    hidden_weight: Tensor  # (h, k)
    hidden_bias: Tensor  # (h,)
    out_weight: Tensor  # (k - 1, h)
    out_bias: Tensor  # ()

    @classmethod
    def read(cls, flat: Tensor, hidden: int, n_classes: int) -> Self:
        """Split a flat vector, in the order of the fields."""
        shapes = ((hidden, n_classes), (hidden,), (n_classes - 1, hidden), ())
        parts = flat.split([math.prod(shape) for shape in shapes])
        return cls(*(part.view(shape) for part, shape in zip(parts, shapes, strict=True)))

    def flat(self) -> Tensor:
        return torch.cat([part.reshape(-1) for part in self])


@final
class GapStretchLoss:
    """Mean log-loss plus a penalty on the distance of the weights from a random start that stretches nothing.

    Inputs and outputs of the hidden layer are divided by the root of their number, so that a weight means as much in a
    small network as in a large one.

    Args:
        gaps: Gaps between neighbours of each sample's logits, sorted in falling order, (n, k - 1). Passes over the
            samples have its precision; sums over them are double.
        seen: Inputs of the network, of mean 0 and spread 1, (n, k), of the same precision.
        label_rank: Number of logits of the sample ahead of its label's, (n,).
        counts: How much each sample counts, (n,), float64; None for 1 each.
        hidden: Size of the hidden layer.
        weight_decay: The penalty is this times the squared distance, divided by the sum of the counts.
        seed: Random seed of the initial weights.
    """

    def __init__(
        self,
        gaps: Tensor,
        seen: Tensor,
        label_rank: Tensor,
        *,
        counts: Tensor | None = None,
        hidden: int,
        weight_decay: float,
        seed: int,
    ) -> None:
        n, k = seen.shape
        self._counts, self._size = counts, n if counts is None else float(counts.sum())
        self._gaps, self._seen, self._label_rank = gaps, seen / math.sqrt(k), label_rank
        self._hidden, self._share = hidden, 1 / math.sqrt(hidden)
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randn(hidden, k, generator=generator, dtype=torch.float64).to(seen.device)
        zeros = drawn.new_zeros
        self.start = StretchWeights(drawn, zeros(hidden), zeros(k - 1, hidden), zeros(())).flat()
        # The output's bias is a temperature, and so is not penalised.
        self._penalty = torch.full_like(self.start, weight_decay / self._size)
        self._penalty[-1] = 0

    def part(self, rows: Tensor) -> "GapStretchLoss":
        """Return the objective of some samples, (m,), with the penalty of all."""
        part = copy.copy(self)
        rows = rows.to(self._seen.device)
        part._gaps, part._seen, part._label_rank = self._gaps[rows], self._seen[rows], self._label_rank[rows]
        part._counts = None if self._counts is None else self._counts[rows]
        part._size = len(rows) if part._counts is None else float(part._counts.sum())
        return part

    def __call__(self, flat: Tensor) -> tuple[Tensor, Tensor]:
        """Return the objective and its gradient, summed in double precision over blocks of samples."""
        network, loss, gradient = self._read(flat), flat.new_zeros(()), torch.zeros_like(flat)
        for rows in row_blocks(len(self._seen), max(1, _BLOCK // self._seen.shape[1])):
            losses, (of_hidden, seen, of_given, scaled) = self._backward(rows, network)
            loss += losses.sum(dtype=torch.float64)
            gradient += StretchWeights(
                of_hidden.T @ seen, of_hidden.sum(dim=0), of_given.T @ scaled, of_given.sum()
            ).flat()
        away = flat - self.start
        penalty, slope = self._penalty @ away.square(), 2 * self._penalty * away
        return loss / self._size + penalty, gradient / self._size + slope

    def curvature(self, flat: Tensor) -> Tensor:
        """Return the mean product of a sample's gradient with itself, plus the curvature of the penalty, (p, p).

        This is the Fisher information, and so the Hessian where the predictions are calibrated; never indefinite.
        """
        network, total = self._read(flat), torch.diag(2 * self._penalty)
        for rows in row_blocks(len(self._seen), _FISHER_BLOCK):
            _, (of_hidden, seen, of_given, scaled) = self._backward(rows, network)
            hidden_weight, out_weight = of_hidden[:, :, None] * seen[:, None], of_given[:, :, None] * scaled[:, None]
            slopes = torch.cat(
                [hidden_weight.flatten(1), of_hidden, out_weight.flatten(1), of_given.sum(dim=1, keepdim=True)], dim=1
            )
            if self._counts is not None:  # which multiply every slope
                slopes /= self._counts[rows, None].sqrt()
            total += (slopes.T @ slopes).double() / self._size
        return total

    def _read(self, flat: Tensor) -> StretchWeights:
        return StretchWeights.read(flat.to(self._seen.dtype), self._hidden, self._seen.shape[1])

    def _backward(self, rows: slice, network: StretchWeights) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor, Tensor]]:
        """Return the losses of some samples, and the slopes in and the inputs of the hidden and of the output layer."""
        gaps, seen, label = self._gaps[rows], self._seen[rows], self._label_rank[rows, None]
        # tanh x is 2 sigmoid(2x) - 1, in half the time.
        hidden = torch.addmm(2 * network.hidden_bias, seen, 2 * network.hidden_weight.T).sigmoid_().mul_(2).sub_(1)
        scaled = hidden * self._share
        given = torch.addmm(network.out_bias + _NEUTRAL, scaled, network.out_weight.T)
        grown = given.clamp_(max=_HUGE).exp_()
        below = grown.log1p().mul_(gaps).cumsum_(dim=1)
        # The largest logit is 0, the j-th minus what lies below the first j.
        logits = torch.cat([torch.zeros_like(below[:, :1]), below.neg_()], dim=1)
        label_logit = logits.gather(1, label)
        # At most 1, one of them is; smaller ones add nothing, and would be slow: their products are denormal numbers.
        powers = logits.clamp_(min=2 * math.log(torch.finfo(logits.dtype).eps)).exp_()
        total = powers.sum(dim=1, keepdim=True)
        losses = total.log() - label_logit
        residual = powers.div_(total).scatter_add_(1, label, torch.full_like(total, -1.0))
        if self._counts is not None:
            counts = self._counts[rows, None]
            losses, residual = losses * counts, residual * counts.to(residual.dtype)
        # A gap lowers all logits after it; the residuals of a sample sum to 0.
        of_given = residual.cumsum_(dim=1)[:, :-1].mul(gaps).mul_(grown.div_(1 + grown))
        of_hidden = (of_given @ network.out_weight).mul_(self._share).mul_(hidden.square_().neg_().add_(1))
        return losses, (of_hidden, seen, of_given, scaled)

    def network(self, flat: Tensor) -> StretchWeights:
        """Return plain weights, without the division by roots and with the bias that stretches nothing."""
        k = self._seen.shape[1]
        weight, bias, out_weight, out_bias = StretchWeights.read(flat, self._hidden, k)
        return StretchWeights(weight / math.sqrt(k), bias, out_weight * self._share, out_bias + _NEUTRAL)


@final
@dataclass(frozen=True)
class DiagonalOrderPreserving(
    Calibrator, name="diagonal", title="Diagonal order-preserving function", family="scaling", paper=_RAHIMI
):
    """One rising function applied to every log-probability (DIAG).

    Temperature scaling is a straight line; this one may bend, so that large and small probabilities are sharpened or
    softened to different degrees. It has a few numbers and a convex fit, with one optimum. The order of all classes in
    a sample is kept. It cannot correct a single class, and where a temperature suffices it only adds a little noise.
    Without a wrong prediction no finite slope is best, and the fit is refused.

    Formula: q = softmax(f(ln p_1), …, f(ln p_k)), p = softmax(z / T), f rising and straight between knots
    Samples: about 500; with fewer the penalty keeps f close to a straight line.

    Args:
        pieces: Straight pieces of the function, between equal shares of each sample's ten largest log-probabilities.
        weight_decay: Penalty on squared changes of slope, divided by the number of samples; infinitely large it is
            temperature scaling.
    """

    preserves_accuracy = True
    preserves_ranking = False  # the logits of the other classes change too

    pieces: AtLeastTwo = 16
    weight_decay: Positive = 5.0

    # Differs from the paper: a piecewise straight function in place of the numerical integral of a positive network,
    # which makes the fit convex and the function exact; of log-probabilities after temperature scaling, so that adding
    # a constant to the logits of a sample, or scaling all of them, changes nothing; fitted to its optimum.
    def _fit(self, predictions: Predictions) -> Fitted:
        beta = _fitted_beta(predictions)
        log_probs = predictions.by_blocks(lambda block: (block.logits.double() * beta).log_softmax(dim=1))
        counts = predictions.sample_counts
        knots = knots_for(log_probs, self.pieces, counts)
        objective = SlopeLoss(log_probs, predictions.labels, knots, counts=counts, weight_decay=self.weight_decay)
        start, n = knots.new_ones(len(knots) + 1), len(predictions)
        if n < _TWO_STAGES:
            slopes, certificate = quasi_newton(objective, start, least=_LEAST_SLOPE)
        else:
            part, share = objective.part(_some_of(n)), _PART / n
            slopes, certificate = quasi_newton_by_part(objective, part, start, share=share, least=_LEAST_SLOPE)
        return Fitted(MonotoneMap(beta, knots, slopes, n_classes=predictions.n_classes), certificate)


# Log-probabilities per sample that place the knots: the others are small together.
_LARGEST = 10
_EVEN = 1e-11  # shares of all samples that differ by less are the same


def knots_for(log_probs: Tensor, pieces: int, counts: Tensor | None = None) -> Tensor:
    """Return knots of a function of log-probabilities (n, k), rising, (b,), 1 <= b < pieces.

    They are quantiles of each sample's ten largest, where samples have counts (n,); ties can leave fewer.
    """
    largest = log_probs.topk(min(_LARGEST, log_probs.shape[1]), dim=1).values
    places = torch.arange(1, pieces, device=largest.device)
    if counts is None:
        return sort_in_place(largest.flatten())[places * largest.numel() // pieces].unique()
    rising, order = largest.flatten().sort()
    up_to = counts.repeat_interleave(largest.shape[1])[order].cumsum(dim=0)
    wanted = places.double() / pieces * (1 + _EVEN) * up_to[-1]  # at a cut the next one, whatever weights round to
    return rising[torch.searchsorted(up_to, wanted, right=True).clamp(max=len(rising) - 1)].unique()


@final
class SlopeLoss:
    """Mean log-loss plus a penalty on changes of slope, as a function of the slopes: convex.

    Args:
        log_probs: Shape (n, k), float64.
        labels: Shape (n,).
        knots: Rising, (b,), b >= 1.
        counts: How much each sample counts, (n,), float64; None for 1 each.
        weight_decay: The penalty is this times the number of pieces times the summed squared changes, divided by the
            sum of the counts: a steady change over all pieces costs the same however many there are.
    """

    def __init__(
        self, log_probs: Tensor, labels: Tensor, knots: Tensor, *, counts: Tensor | None = None, weight_decay: float
    ) -> None:
        self._counts, self._size = counts, len(labels) if counts is None else float(counts.sum())
        self._labels, self._pieces = labels[:, None], len(knots) + 1
        self._cell, self._along = torch.searchsorted(knots, log_probs, out_int32=True), log_probs.clone()
        self._blocks = row_blocks(len(labels), max(1, _BLOCK // log_probs.shape[1]))
        for rows in self._blocks:
            self._along[rows] -= knots[(self._cell[rows] - 1).clamp_(min=0)]
        self._widths = knots.diff()
        self._penalty = weight_decay * self._pieces / self._size

    def part(self, rows: Tensor) -> "SlopeLoss":
        """Return the objective of some samples, (m,), with the penalty of all."""
        part = copy.copy(self)
        rows = rows.to(self._labels.device)
        part._labels, part._cell, part._along = self._labels[rows], self._cell[rows], self._along[rows]
        part._counts = None if self._counts is None else self._counts[rows]
        part._size = len(rows) if part._counts is None else float(part._counts.sum())
        part._blocks = row_blocks(len(rows), max(1, _BLOCK // self._cell.shape[1]))
        return part

    def __call__(self, slopes: Tensor) -> tuple[Tensor, Tensor]:
        """Return the objective and its gradient, (b + 1,)."""
        # Pieces below and above the first knot both start there, at 0.
        starts = torch.cat([slopes.new_zeros(2), (slopes[1:-1] * self._widths).cumsum(dim=0)])
        loss, (of_starts, of_slopes) = slopes.new_zeros(()), slopes.new_zeros(2, self._pieces)
        for rows in self._blocks:
            cell, along, labels = self._cell[rows], self._along[rows], self._labels[rows]
            logits = torch.addcmul(starts[cell], slopes[cell], along)
            log_total = logits.logsumexp(dim=1, keepdim=True)
            losses = log_total - logits.gather(1, labels)
            residual = logits.sub_(log_total).exp_()
            residual.scatter_add_(1, labels, torch.full_like(log_total, -1.0))
            if self._counts is not None:
                counts = self._counts[rows, None]
                losses, residual = losses * counts, residual.mul_(counts)
            loss += losses.sum()
            of_starts += torch.bincount(cell.view(-1), residual.view(-1), minlength=self._pieces)
            of_slopes += torch.bincount(cell.view(-1), residual.mul_(along).view(-1), minlength=self._pieces)
        loss /= self._size
        # A slope also lifts every piece to its right.
        of_slopes[1:-1] += self._widths * of_starts.flip(0).cumsum(dim=0).flip(0)[2:]
        change = slopes.diff()
        second = torch.cat([-change[:1], -change.diff(), change[-1:]])
        return loss + self._penalty * change.square().sum(), of_slopes / self._size + 2 * self._penalty * second
