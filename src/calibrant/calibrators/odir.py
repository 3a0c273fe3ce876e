"""Matrix scaling and Dirichlet calibration with off-diagonal and intercept regularisation (ODIR)."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, TypeAlias, final

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from calibrant.calibrators.affine import check_every_class_seen, log_probs_at, temperature_fit
from calibrant.calibrators.base import Calibrator, Fitted, fold_positions
from calibrant.checks import AtLeastTwo, Positive, Seed
from calibrant.errors import FitError
from calibrant.maps import Affine, Mixture
from calibrant.numerics.softmax_regression import AffineFit, Ridge, Samples, WeightShape, fit_affine
from calibrant.paper import Paper
from calibrant.predictions import Predictions

OdirSearch: TypeAlias = Literal["stepwise", "neural-clamping", "kull"]

# The path ends when the held-out loss has risen so often in a row, or is this multiple of the lowest.
_PATIENCE, _CLEARLY = 2, 1.02
# Gradient of fits whose held-out losses are only compared, and the share to which the losses are then known.
_COMPARED, _KNOWN = 2e-6, 1e-6
# The same for matrices of many classes: their fits are slow, and strengths ten times apart need no more.
_MANY_CLASSES = 100
_ROUGHLY_COMPARED, _ROUGHLY_KNOWN = 1e-4, 2e-4


class Strengths(NamedTuple):
    """λ of the off-diagonal, infinite for a diagonal matrix, and μ of the bias."""

    off_diagonal: float
    bias: float


class Chosen(NamedTuple):
    """The best strengths, their mean log-loss on held-out samples, and the fits of all folds."""

    strengths: Strengths
    loss: float
    fits: tuple[AffineFit, ...]


def fit_odir(
    samples: Samples, strengths: Strengths, start: tuple[Tensor | float, Tensor | float], *, tolerance: float = 1e-8
) -> AffineFit:
    """Fit weight and bias at given strengths, to a gradient below the tolerance."""
    k, is_diagonal = samples.inputs.shape[1], math.isinf(strengths.off_diagonal)
    # Kull et al., Section 4.1.
    ridge = Ridge(off_diagonal=0 if is_diagonal else strengths.off_diagonal / (k * (k - 1)), bias=strengths.bias / k)
    shape: WeightShape = "diagonal" if is_diagonal else "matrix"
    inputs, labels, weights = samples
    return fit_affine(inputs, labels, weights=weights, shape=shape, ridge=ridge, start=start, tolerance=tolerance)


def _powers(largest: int, smallest: int) -> Iterator[float]:
    return (10.0**power for power in range(largest, smallest - 1, -1))


class _FoldFits:
    """Fits on all folds but one, evaluated on that one; ``start`` is the multiple of the identity to start from."""

    def __init__(self, method: "_Odir", samples: Samples, start: float, clusters: Tensor | None) -> None:
        self._method, self._samples, self._start = method, samples, start
        self._n_classes = samples.inputs.shape[1]
        self._folds = fold_positions(samples.labels, method.folds, method.seed, clusters)

    def search(self) -> Chosen:
        """Search the strengths with the smallest log-loss on held-out samples, by the method's rule.

        If none can be fitted in every fold, the error is that of the strongest.
        """
        strength, bias_strength = self._method.strength, self._method.bias_strength
        if self._method.search == "neural-clamping":
            pairs = (
                Strengths(power if strength is None else strength, power if bias_strength is None else bias_strength)
                for power in _powers(4, -2)
            )
            return self.best(dict.fromkeys(pairs))
        weakest = -2 if self._n_classes >= _MANY_CLASSES else -5
        if self._method.search == "kull":
            by_strength = [power * share for power in _powers(6, weakest) for share in (1, 0.5, 0.25)]
            paths = (
                self.best([Strengths(value, mu) for value in (by_strength if strength is None else [strength])])
                for mu in (_powers(6, weakest) if bias_strength is None else [bias_strength])
            )
            return min(paths, key=lambda chosen: chosen.loss)
        diagonal = None
        if bias_strength is None:
            diagonal = self.best([Strengths(math.inf, power) for power in _powers(6, weakest)], patience=_PATIENCE)
            bias_strength = diagonal.strengths.bias
        powers = _powers(6, weakest) if strength is None else [strength]
        return self.best([Strengths(power, bias_strength) for power in powers], patience=_PATIENCE, after=diagonal)

    def best(self, path: Iterable[Strengths], *, patience: int | None = None, after: Chosen | None = None) -> Chosen:
        """Find the best strengths of a path from strong to weak, which starts where another ended.

        With patience the path ends when the loss has risen so often, or is clearly higher. The latter is decided on the
        first folds if these alone lose as much: fits at the weakest strengths are the slowest.
        """
        starts: list[tuple[Tensor | float, Tensor | float]] = [(self._start, 0.0) for _ in self._folds]
        if after is not None:
            starts = [(fit.weight, fit.bias) for fit in after.fits]
        chosen, before, rises, failure, n = None, math.inf, 0, None, self._samples.size
        lowest: list[float] = []  # losses of the folds at the chosen strengths
        for strengths in path:
            tolerance, known = self._precision(strengths)
            fits: list[AffineFit] = []
            losses: list[float] = []
            try:
                for (others, held_out), start in zip(self._folds, starts, strict=True):
                    fits.append(fit_odir(self._samples.at(others), strengths, start, tolerance=tolerance))
                    losses.append(self._loss(fits[-1], held_out))
                    if chosen is not None and patience is not None:
                        rise = sum(losses) - sum(lowest[: len(losses)])
                        if rise > (_CLEARLY - 1) * chosen.loss * n:
                            return chosen
            except FitError as error:  # weaker ones would fail, too
                failure = error
                break
            starts = [(fit.weight, fit.bias) for fit in fits]
            loss = sum(losses) / n
            if chosen is None or loss < chosen.loss:
                chosen, lowest = Chosen(strengths, loss, tuple(fits)), losses
            rises = rises + 1 if loss > before + known * before else 0
            before = loss
            if patience is not None and (rises >= patience or loss > _CLEARLY * chosen.loss):
                break
        if chosen is None:
            assert failure is not None, "a path has strengths to try"
            raise failure
        return chosen

    def _precision(self, strengths: Strengths) -> tuple[float, float]:
        """Return the tolerance of the fits, and the share to which their losses are known."""
        if self._method.search == "kull":  # which keeps the fits of the folds; the others only compare them
            return 1e-8, _KNOWN
        is_slow = self._n_classes >= _MANY_CLASSES and not math.isinf(strengths.off_diagonal)
        return (_ROUGHLY_COMPARED, _ROUGHLY_KNOWN) if is_slow else (_COMPARED, _KNOWN)

    def _loss(self, fit: AffineFit, held_out: Tensor) -> float:
        """Return the sum of the log-losses of held-out samples."""
        (inputs, labels, weights), weight = self._samples.at(held_out), fit.weight
        inputs = inputs.double()
        logits = (inputs @ weight.T if weight.ndim == 2 else inputs * weight) + fit.bias
        losses = cross_entropy(logits, labels, reduction="none")
        return float((losses if weights is None else losses * weights).sum())


_KULL = Paper("Kull et al.", 2019, "Beyond Temperature Scaling: Obtaining Well-Calibrated Multiclass Probabilities "
              "with Dirichlet Calibration", "arXiv:1910.12656", "Section 4.1")  # fmt: skip


@dataclass(frozen=True)
class _Odir(Calibrator, family="scaling", paper=_KULL):
    """An affine function of logits or log-probabilities that is penalised as in ODIR."""

    of_log_probs: ClassVar[bool]

    strength: Positive | None = None
    bias_strength: Positive | None = None
    search: OdirSearch = "stepwise"
    folds: AtLeastTwo = 5
    seed: Seed = 0

    def _fit(self, predictions: Predictions) -> Fitted:
        return _fit(self, predictions)


@final
@dataclass(frozen=True)
class MatrixScalingODIR(_Odir, name="ms_odir", title="Matrix scaling with ODIR"):
    """Matrix scaling of the logits, with penalties on the off-diagonal of the matrix and on the shifts.

    The diagonal is free, so that at large strengths the method is a slope for each class, and at small ones matrix
    scaling. The result depends on the strengths: with a hundred classes and 5,000 samples λ = 10³ can be better than a
    temperature and λ = 10² ruin the predictions. Searching them costs a fit for each fold and value: a second at 10
    classes, five at 100. Structured matrix scaling (sms) sets its strengths by a rule, penalises the diagonal as well,
    and is mostly both faster and better.

    Formula: q = softmax(W z + b); W, b minimise NLL + λ/(k(k − 1)) Σ_{j≠l} w_jl² + μ/k Σ b_j²
    Samples: about 50 of each class. With none of a class (one where strengths are searched), or none predicted wrong,
        there is no optimum, since the diagonal is not penalised.

    Args:
        strength: λ; None to search it.
        bias_strength: μ; None to search it.
        search: Which strengths are tried, by the log-loss of held-out samples. ``stepwise``: first μ without an
            off-diagonal, then λ, each from 10⁶ down by tens until the loss has risen twice, or by 2 %; then fitted on
            all samples. ``neural-clamping``: λ = μ, the seven powers of ten from 10⁴ to 10⁻². ``kull``: all pairs of λ
            in {1, ½, ¼} times, and μ in, the powers of ten from 10⁶ to 10⁻⁵ (10⁻² from 100 classes on), and then the
            mean of the probabilities that the fits of the folds give: an hour at 100 classes.
        folds: Number of folds.
        seed: Random seed of the fold assignment.

    Example:
        >>> logits = torch.randn(2000, 3, generator=torch.manual_seed(0), dtype=torch.float64)
        >>> labels = torch.multinomial(logits.softmax(1), 1, generator=torch.manual_seed(1))[:, 0]
        >>> fitted = MatrixScalingODIR(strength=1e6, bias_strength=1e6).fit(Predictions.from_logits(2 * logits, labels))
        >>> bool((fitted.weight - fitted.weight.diag().diag()).abs().max() < 1e-6)
        True
    """

    of_log_probs = False


@final
@dataclass(frozen=True)
class DirichletODIR(_Odir, name="dirichlet_odir", title="Dirichlet calibration with ODIR"):
    """Dirichlet calibration: a linear function of the log-probabilities, penalised as in ODIR.

    One Dirichlet distribution of the probabilities for each class leads to this map. It does not depend on a number
    added to all logits of a sample; else it is like :class:`MatrixScalingODIR`, with the same costs and dangers.

    Formula: q = softmax(W ln p + b), p = softmax(z); W, b minimise NLL + λ/(k(k − 1)) Σ_{j≠l} w_jl² + μ/k Σ b_j²
    Samples: about 50 of each class. With none of a class (one where strengths are searched), or none predicted wrong,
        there is no optimum, since the diagonal is not penalised.

    Args:
        strength: λ; None to search it.
        bias_strength: μ; None to search it.
        search: Which strengths are tried, as for :class:`MatrixScalingODIR`.
        folds: Number of folds.
        seed: Random seed of the fold assignment.

    Example:
        >>> probs = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.2, 0.8], [0.1, 0.9]])
        >>> samples = Predictions.from_probs(probs, [0, 1, 0, 1, 1])
        >>> fitted = DirichletODIR(strength=1.0, bias_strength=1.0).fit(samples)
        >>> fitted.of_log_probs
        True
    """

    of_log_probs = True


def _fit(method: _Odir, predictions: Predictions) -> Fitted:
    strength, bias_strength, of_log_probs = method.strength, method.bias_strength, method.of_log_probs
    is_searched = strength is None or bias_strength is None
    check_every_class_seen(predictions, method.title, least=2 if is_searched else 1)
    start = temperature_fit(predictions, method.title).beta
    inputs = log_probs_at(predictions, 1.0) if of_log_probs else predictions.logits
    samples = Samples(inputs, predictions.labels, predictions.sample_counts)

    def as_map(fit: AffineFit) -> Affine:
        return Affine(fit.weight, fit.bias, n_classes=predictions.n_classes, of_log_probs=of_log_probs)

    if strength is not None and bias_strength is not None:
        fit = fit_odir(samples, Strengths(strength, bias_strength), (start, 0.0))
        return Fitted(as_map(fit), fit.certificate)
    # Differs from Neural Clamping's paper: it takes the best "on the calibration dataset". On the samples of the fit
    # the loss is always smallest at the weakest penalty; the section of Kull et al. that it cites holds samples out.
    chosen = _FoldFits(method, samples, start, predictions.clusters).search()
    note = (
        f"strength {chosen.strengths.off_diagonal:g} and bias_strength {chosen.strengths.bias:g} have the smallest "
        f"log-loss in {method.folds}-fold cross-validation: {chosen.loss:.4f}"
    )
    if method.search == "kull":
        folds = len(chosen.fits)  # those that are not empty
        shares = torch.full((folds,), 1 / folds, dtype=torch.float64, device=inputs.device)
        worst = max((fit.certificate for fit in chosen.fits), key=lambda certificate: certificate.gradient)
        mean = Mixture(shares, [as_map(fit) for fit in chosen.fits], n_classes=predictions.n_classes)
        return Fitted(mean, worst, (note,))
    fit = fit_odir(samples, chosen.strengths, (chosen.fits[0].weight, chosen.fits[0].bias))
    return Fitted(as_map(fit), fit.certificate, (note,))
