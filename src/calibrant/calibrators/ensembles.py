"""Chains and means of methods, and ensemble temperature scaling: the scaled, given and uniform probabilities mixed."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibrant.calibrators.affine import Uncalibrated, temperature_fit
from calibrant.calibrators.base import Calibrator, Fitted, check_calibrators
from calibrant.errors import FitError, InputError, warn
from calibrant.maps import ChainMap, Identity, LogMixture, Mixture, Scale
from calibrant.numerics.inverse_temperature import beta_range, temperature_derivatives
from calibrant.numerics.newton import Certificate
from calibrant.paper import ZHANG, Paper
from calibrant.predictions import Predictions


@final
@dataclass(frozen=True)
class Chain(Calibrator, name="chain", title="Methods one after the other", family="composition", paper=ZHANG):
    """Fit the first method, apply it, fit the next on the result, and so on.

    Temperature scaling before an isotonic or binning method gives the latter a better scale to work on (the
    composition of Mix-n-Match). All are fitted on the same samples, so a long chain of flexible methods overfits. On
    the command line a chain is written ``temperature+isotonic``.

    Formula: q = (m_r ∘ … ∘ m_1)(z)
    Samples: as many as the most demanding of its methods needs.

    Args:
        steps: The methods, in order.
    """

    steps: tuple[Calibrator, ...] = (Uncalibrated(),)

    def __post_init__(self) -> None:
        check_calibrators(self.steps, "steps")
        if not self.steps:
            raise InputError("a chain must have at least one step; got none.")

    @property
    def expression(self) -> str:
        return "+".join(step.expression for step in self.steps)

    def _fit(self, predictions: Predictions) -> Fitted:
        maps = []
        for step in self.steps:
            maps.append(step.fit_without_scores(predictions))
            predictions = maps[-1].transform(predictions)
        return Fitted(ChainMap(maps, n_classes=predictions.n_classes))


_GENEST = Paper("Genest & Zidek", 1986, "Combining Probability Distributions: A Critique and an Annotated Bibliography",
                "doi:10.1214/ss/1177013825", "the logarithmic opinion pool")  # fmt: skip


@final
@dataclass(frozen=True)
class LogOpinionPool(Calibrator, name="pool", title="Mean of several methods", family="composition", paper=_GENEST):
    """Fit several methods and average their log-probabilities, with weights above 0 that sum to one.

    The map is a :class:`~calibrant.maps.LogMixture`.
    """

    members: tuple[Calibrator, ...]
    weights: tuple[float, ...]

    @property
    def expression(self) -> str:
        return " & ".join(member.expression for member in self.members)

    def _fit(self, predictions: Predictions) -> Fitted:
        maps = [member.fit_without_scores(predictions) for member in self.members]
        weights = torch.tensor(self.weights, dtype=torch.float64, device=predictions.logits.device)
        return Fitted(LogMixture(weights, maps, n_classes=predictions.n_classes))


EtsCriterion: TypeAlias = Literal["nll", "brier"]
# A value, its gradient (m,) and its Hessian (m, m).
Curved: TypeAlias = Callable[[Tensor], tuple[float, Tensor, Tensor]]
Array: TypeAlias = NDArray[np.float64]

# The Brier score is not convex: the ratio of inverse temperatures of the first grid, the number of samples it is
# computed on, and the precision of the best one, as a logarithm.
_RATIO, _FEW_SAMPLES, _FINE = 1.3, 500, 1e-11


@final
@dataclass(frozen=True)
class EnsembleTemperatureScaling(
    Calibrator, name="ets", title="Ensemble temperature scaling", family="scaling", paper=ZHANG.at("eq. 8")
):
    """Mix three predictions, the temperature-scaled, the given and the uniform one, in the best shares.

    No prediction changes. The uniform part puts a floor under every probability, which helps a network that is
    sometimes confident and wrong, and costs little elsewhere: shares that do not help become exactly 0, which leaves
    temperature scaling. Like it, it treats all classes and samples alike. The temperature is fitted first and kept.

    Formula: q = w₁ softmax(z / T) + w₂ softmax(z) + w₃ / k, w on the simplex
    Samples: about 300, some of them predicted wrong; four numbers can hardly overfit.

    Args:
        criterion: What T and then w minimise. ``nll``, the log-loss, is what a floor under the probabilities is for; on
            a DenseNet's CIFAR-100 logits it has the lower log-loss on new samples, by 0.0015, and the same Brier score.
            ``brier`` is the paper's.

    Example:
        >>> logits = 4 * torch.randn(2000, 5, generator=torch.manual_seed(0), dtype=torch.float64)
        >>> labels = torch.multinomial(0.7 * logits.softmax(1) + 0.06, 1, generator=torch.manual_seed(1))[:, 0]
        >>> fitted = EnsembleTemperatureScaling().fit(Predictions.from_logits(logits, labels))
        >>> [round(share, 1) for share in fitted.weights.tolist()]
        [0.0, 0.7, 0.3]
    """

    preserves_accuracy = True
    preserves_ranking = False  # only for two classes

    criterion: EtsCriterion = "nll"

    def _fit(self, predictions: Predictions) -> Fitted:
        if self.criterion == "brier":
            beta, slope, passes = _beta_by_brier(predictions)
            objective = _brier(predictions, beta)
        else:
            best = temperature_fit(predictions, self.title)
            beta, slope, passes = best.beta, 0.0, best.certificate.passes  # its slope is bounded there
            objective = mixture_log_loss(predictions, beta)
        shares, certificate = minimise_on_simplex(objective, 3)
        gradient = max(certificate.gradient, slope)
        return Fitted(mixture(predictions, beta, shares), certificate._replace(gradient=gradient, passes=passes + 2))


def mixture(predictions: Predictions, beta: float, shares: Tensor) -> Mixture:
    """Return the map of an inverse temperature and three shares."""
    k = predictions.n_classes
    fitted, flat = predictions.logits.new_tensor([1 / beta, math.inf], dtype=torch.float64)
    parts = (Scale(fitted, n_classes=k), Identity(n_classes=k), Scale(flat, n_classes=k))
    return Mixture(shares.to(fitted), parts, n_classes=k, keeps_predicted=True)


def mixture_log_loss(predictions: Predictions, beta: float) -> Curved:
    """Mean log-loss of the mixture in its shares, which needs only the probabilities of the labels."""
    samples = predictions.logits, predictions.labels
    logs = [torch.cat([part.log_prob.double() for part in temperature_derivatives(*samples, at)]) for at in (beta, 1.0)]
    label_logs = torch.stack([*logs, torch.full_like(logs[0], -math.log(predictions.n_classes))])  # (3, n)
    # Divided by the largest of each sample, so that one of them is 1 however small they are.
    largest = label_logs.amax(dim=0)
    parts, counts = (label_logs - largest).exp_(), predictions.sample_counts

    def mean(values: Tensor) -> Tensor:  # over the samples, which are the last dimension
        return values.mean(dim=-1) if counts is None else values @ counts / predictions.effective_size

    level = float(mean(largest))

    def curved(shares: Tensor) -> tuple[float, Tensor, Tensor]:
        mixed = shares.to(parts) @ parts
        ratios = parts / mixed
        hessian = mean(ratios[:, None] * ratios)
        return -float(mean(mixed.log())) - level, -mean(ratios).cpu(), hessian.cpu()

    return curved


def _brier(predictions: Predictions, beta: float) -> Curved:
    """Brier score of the mixture in its shares: a quadratic."""
    n, k = predictions.effective_size, predictions.n_classes
    products, of_label = (predictions.logits.new_zeros(shape, dtype=torch.float64) for shape in ((3, 3), (3,)))
    for block, labels, counts in _blocks(predictions):
        parts = torch.stack([(block * beta).softmax(dim=1), block.softmax(dim=1), torch.full_like(block, 1 / k)])
        products += torch.einsum("anj,bnj,n->ab", parts, parts, counts)
        of_label += parts.gather(2, labels.expand(3, -1)[:, :, None])[:, :, 0] @ counts
    products, of_label = (products / n).cpu(), (of_label / n).cpu()

    def curved(shares: Tensor) -> tuple[float, Tensor, Tensor]:
        inner = products @ shares
        return float(1 - 2 * of_label @ shares + shares @ inner), 2 * (inner - of_label), 2 * products

    return curved


def _beta_by_brier(predictions: Predictions) -> tuple[float, float, float]:
    """The inverse temperature of the smallest Brier score, the slope there in its logarithm, and the passes it took.

    A grid on a few samples brackets it; all samples refine it.
    """
    from scipy.optimize import brentq

    lowest, highest = (math.log(end) for end in beta_range(predictions.logits))
    points = math.ceil((highest - lowest) / math.log(_RATIO)) + 1
    width = (highest - lowest) / (points - 1)
    few = predictions[:: max(1, len(predictions) // _FEW_SAMPLES)]
    tried = [_brier_score(few, lowest + width * place)[0] for place in range(points)]
    place = min(range(points), key=tried.__getitem__)
    calls = 0

    def slope(at: float) -> float:
        nonlocal calls
        calls += 1
        return _brier_score(predictions, at)[1]

    left, right = (min(max(lowest + width * end, lowest), highest) for end in (place - 1, place + 1))
    while left > lowest and slope(left) > 0:  # the minimum of all samples is outside the bracket
        left, right = max(left - width, lowest), left
    while right < highest and slope(right) < 0:
        left, right = right, min(right + width, highest)
    flat, sharp = left <= lowest and slope(left) >= 0, right >= highest and slope(right) <= 0
    at = left if flat else right if sharp else float(brentq(slope, left, right, xtol=_FINE))
    if flat or sharp:
        warn(
            f"the Brier score always falls as the temperature {'rises' if flat else 'falls'}, so the last one tried "
            f"is taken, {math.exp(-at):.3g}: {'equal probabilities are' if flat else 'naming one class is'} best for "
            'these samples. Check that labels and logits belong together, or use criterion="nll".'
        )
    return math.exp(at), abs(slope(at)), calls + points * len(few) / len(predictions)


def _brier_score(predictions: Predictions, log_beta: float) -> tuple[float, float]:
    """Brier score less one at an inverse temperature, and its slope in that number's logarithm."""
    total, slope, beta = 0.0, 0.0, math.exp(log_beta)
    for block, labels, counts in _blocks(predictions):
        logits = block * beta
        probs, label = logits.softmax(dim=1), labels[:, None]
        powers = probs * logits
        mean, of_label, squares = powers.sum(dim=1), probs.gather(1, label)[:, 0], probs.square().sum(dim=1)
        total += float((squares - 2 * of_label) @ counts)
        moved = (probs * powers).sum(dim=1) - squares * mean
        slope += 2 * float((moved - of_label * (logits.gather(1, label)[:, 0] - mean)) @ counts)
    return total / predictions.effective_size, slope / predictions.effective_size


def _blocks(predictions: Predictions) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Logits less the largest of their sample, in float64, labels, and how much each sample counts."""
    start = 0
    for block in predictions.small_blocks():
        logits, counts = block.logits.double(), predictions.sample_counts
        counts = logits.new_ones(len(block)) if counts is None else counts[start : start + len(block)]
        yield logits - logits.amax(dim=1, keepdim=True), block.labels, counts
        start += len(block)


_TOLERANCE = 1e-9
_MAX_STEPS = 200
# Final weight of the barrier relative to the tolerance; share of the way to the boundary that a step may take.
_WEAKEST, _TO_EDGE = 1e-3, 0.99
# Smaller shares are tried as 0.
_NEGLIGIBLE = 1e-6


@np.errstate(all="ignore")  # NaN ends in an error below
def minimise_on_simplex(function: Curved, size: int) -> tuple[Tensor, Certificate]:
    """Minimise a convex function, smooth where no share is 0, over a few shares, (m,), that sum to one.

    An interior-point method: ``function - μ Σ ln w`` is lowered by Newton's method while μ decreases, and steps end
    short of the boundary. So a function that is nearly infinite there, such as the log-loss of a mixture whose parts
    give a label the probability 10⁻³⁰⁰, is approached from inside. At the end negligible shares become exactly 0 where
    that costs nothing. The certificate is the gap ``g·w - min g`` at the shares returned, which by convexity bounds how
    much lower the function can be anywhere.

    Example:
        >>> def squares(w):
        ...     return float((w * w).sum()), 2 * w, 2 * torch.eye(2, dtype=torch.float64)
        >>> [round(share, 9) for share in minimise_on_simplex(squares, 2)[0].tolist()]
        [0.5, 0.5]
    """
    path, steps = _Path(function, size), 0
    while not path.ended and steps < _MAX_STEPS:
        path.advance()
        steps += 1
    path.settle()
    gap = simplex_gap(path.shares, path.gradient)
    if not gap <= _TOLERANCE:
        raise FitError(f"the shares of a mixture did not converge in {steps} steps; the remaining gap is {gap:.2g}.")
    return torch.from_numpy(path.shares), Certificate(path.value, max(gap, 0.0), steps, path.calls)


def simplex_gap(shares: Array, gradient: Array) -> float:
    """Return how much lower a convex function can be on the simplex, given its gradient."""
    return float(gradient @ shares - gradient.min())


class _Path:
    """The shares reached, and the weight of the barrier there; in NumPy, which is faster for a few numbers."""

    def __init__(self, function: Curved, size: int) -> None:
        self._function, self.calls = function, 0
        self.shares = np.full(size, 1 / size)
        self.value, self.gradient, self._hessian = self._evaluate(self.shares)
        self._barrier = max(simplex_gap(self.shares, self.gradient), _TOLERANCE) / size
        self._multipliers = self._barrier / self.shares
        self.ended = False

    def _evaluate(self, shares: Array) -> tuple[float, Array, Array]:
        self.calls += 1
        value, gradient, hessian = self._function(torch.from_numpy(shares))
        return value, gradient.numpy(), hessian.numpy()

    def _with_barrier(self, value: float, shares: Array) -> float:
        return value - self._barrier * float(np.log(shares).sum())

    def advance(self) -> None:
        """Take a Newton step, and weaken the barrier where that came close to its minimum."""
        shares, weight = self.shares, self._barrier
        # In units of the shares themselves, d = w s, so that tiny ones are as well conditioned as the others. The
        # multipliers, w z -> μ, give the model the barrier's curvature at its minimum.
        slope = shares * self.gradient - weight
        curved = shares[:, None] * self._hessian * shares + np.diag(self._multipliers * shares)
        relative = _newton_on_the_plane(curved, slope, shares)
        fall = -float(slope @ relative)
        longest = min(1.0, _TO_EDGE / max(-float(relative.min()), 1e-300))
        start, length = self._with_barrier(self.value, shares), longest
        while True:
            trial = shares * (1 + length * relative)
            trial = trial / trial.sum()
            seen = self._evaluate(trial)
            lower = start - 1e-4 * length * fall + 1e-15 * max(1.0, abs(start))
            if self._with_barrier(seen[0], trial) <= lower or length < 1e-12:
                break
            length /= 2
        towards = weight / shares - self._multipliers * (1 + relative)
        back = float((towards / self._multipliers).min())
        self._multipliers = self._multipliers + min(1.0, _TO_EDGE / max(-back, 1e-300)) * towards
        # Kept near the barrier's own multipliers, so that a bad step is forgotten.
        own = weight / trial
        self._multipliers = self._multipliers.clip(own / 1e3, own * 1e3)
        self.shares, (self.value, self.gradient, self._hessian) = trial, seen
        if fall <= 0.1 * weight * len(shares) or length < 1e-12:
            self.ended = weight <= _WEAKEST * _TOLERANCE
            self._barrier = max(weight / 20, _WEAKEST * _TOLERANCE)

    def settle(self) -> None:
        """Make negligible shares exactly 0 and re-optimise the others without the barrier, where the gap allows it."""
        inside = self.shares >= _NEGLIGIBLE
        self._take(np.where(inside, self.shares, 0.0))
        kept = self.shares > 0
        gradient, hessian = self.gradient[kept], self._hessian[kept][:, kept]
        step = np.zeros_like(self.shares)
        step[kept] = _newton_on_the_plane(hessian, gradient, np.ones_like(gradient))
        self._take((self.shares + step).clip(min=0))

    def _take(self, shares: Array) -> None:
        shares = shares / shares.sum()
        seen = self._evaluate(shares)
        allowed = max(simplex_gap(self.shares, self.gradient), _TOLERANCE)
        if seen[0] <= self.value + _TOLERANCE and simplex_gap(shares, seen[1]) <= allowed:
            self.shares, (self.value, self.gradient, self._hessian) = shares, seen


def _newton_on_the_plane(hessian: Array, gradient: Array, normal: Array) -> Array:
    """Minimise ``gradient·s + s·H s / 2`` over s with ``normal·s = 0``."""
    size = len(gradient)
    system = np.zeros((size + 1, size + 1))
    system[:size, :size] = hessian
    system[:size, size] = system[size, :size] = normal
    if not np.isfinite(system).all() or not np.isfinite(gradient).all():
        return np.full(size, np.nan)
    # Least squares, because parts may be alike.
    solution: Array = np.linalg.lstsq(system, np.append(-gradient, 0.0), rcond=None)[0]
    return solution[:size]
