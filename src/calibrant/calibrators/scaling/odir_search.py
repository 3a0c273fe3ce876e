"""How strong the penalties of ODIR should be: the searches of the literature, and a quicker one.

All judge a pair of strengths by the log-loss of rows held out, and go from strong to weak, each fit beginning where the
last one ended.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple, TypeAlias

from torch import Tensor
from torch.nn.functional import cross_entropy

from calibrant.errors import FitError
from calibrant.numerics.softmax_regression import AffineFit, Ridge, fit_affine

__all__ = ["Chosen", "OdirSearch", "Strengths", "fit_odir", "search_strengths"]

OdirSearch: TypeAlias = Literal["stepwise", "neural-clamping", "kull"]

# How often the held-out loss may rise, one strength after the other, before weaker ones are not tried.
_PATIENCE = 2
# What the held-out loss may be, as a multiple of the lowest, before weaker ones are not tried.
_CLEARLY = 1.02
# Gradient of fits whose held-out losses are only compared, and the share to which the losses are then known.
_COMPARED, _KNOWN = 2e-6, 1e-6
_MANY_CLASSES = 100


class Strengths(NamedTuple):
    """λ of the off-diagonal, infinity for none of it, and μ of the bias."""

    off_diagonal: float
    bias: float


class Chosen(NamedTuple):
    """The best strengths, the log-loss they had on rows held out, and the fits of all folds."""

    strengths: Strengths
    loss: float
    fits: tuple[AffineFit, ...]


def fit_odir(
    inputs: Tensor,
    labels: Tensor,
    strengths: Strengths,
    start: tuple[Tensor | float, Tensor | float],
    *,
    tolerance: float = 1e-8,
) -> AffineFit:
    """Weight and bias at given strengths, to a gradient below the tolerance."""
    k = inputs.shape[1]
    if math.isinf(strengths.off_diagonal):
        ridge = Ridge(bias=strengths.bias / k)
        return fit_affine(inputs, labels, shape="diagonal", ridge=ridge, start=start, tolerance=tolerance)
    # Kull et al., Section 4.1.
    ridge = Ridge(off_diagonal=strengths.off_diagonal / (k * (k - 1)), bias=strengths.bias / k)
    return fit_affine(inputs, labels, shape="matrix", ridge=ridge, start=start, tolerance=tolerance)


def search_strengths(
    inputs: Tensor,
    labels: Tensor,
    fold: Tensor,
    *,
    search: OdirSearch,
    fixed: tuple[float | None, float | None],
    start: float,
) -> Chosen:
    """Strengths with the smallest log-loss on held-out rows.

    Args:
        inputs: Logits or log-probabilities, (n, k).
        labels: Shape (n,).
        fold: Of every row, (n,).
        search: Which strengths are tried.
        fixed: Those given, λ and μ; None for those to be searched.
        start: Multiple of the identity to begin from.

    Raises:
        FitError: If none could be fitted in every fold; the message is that of the strongest.
    """
    # The fits of the folds are what the search of Kull et al. keeps; the others' are only compared.
    k, trial = inputs.shape[1], _Trial(inputs, labels, fold, start, tolerance=1e-8 if search == "kull" else _COMPARED)
    strength, bias_strength = fixed
    if search == "neural-clamping":
        pairs = (Strengths(_or(strength, each), _or(bias_strength, each)) for each in _powers(4, -2))
        return trial.best(dict.fromkeys(pairs))
    weakest = -2 if k >= _MANY_CLASSES else -5
    if search == "kull":
        by_strength = [each * share for each in _powers(6, weakest) for share in (1, 0.5, 0.25)]
        paths = (
            trial.best([Strengths(each, of_bias) for each in _given(strength, by_strength)])
            for of_bias in _given(bias_strength, _powers(6, weakest))
        )
        return min(paths, key=lambda chosen: chosen.loss)
    diagonal = None
    if bias_strength is None:
        diagonal = trial.best([Strengths(math.inf, each) for each in _powers(6, weakest)], patience=_PATIENCE)
        bias_strength = diagonal.strengths.bias
    path = [Strengths(each, bias_strength) for each in _given(strength, _powers(6, weakest))]
    return trial.best(path, patience=_PATIENCE, after=diagonal)


def _powers(largest: int, smallest: int) -> Iterator[float]:
    return (10.0**power for power in range(largest, smallest - 1, -1))


def _given(value: float | None, otherwise: Iterable[float]) -> Iterable[float]:
    return otherwise if value is None else [value]


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value


class _Trial:
    """Fits on all folds but one, judged on that one."""

    def __init__(self, inputs: Tensor, labels: Tensor, fold: Tensor, start: float, *, tolerance: float) -> None:
        self._inputs, self._labels, self._fold, self._start = inputs, labels, fold, start
        self._tolerance = tolerance
        self._folds = range(int(fold.max()) + 1)

    def best(
        self, strengths: Iterable[Strengths], *, patience: int | None = None, after: Chosen | None = None
    ) -> Chosen:
        """The best of a path from strong to weak, which begins where another ended.

        With patience the path ends when the loss has risen so often, or is clearly higher; the latter is seen on the
        first folds, if these alone lose as much: fits at the weakest strengths are the slowest.
        """
        starts: list[tuple[Tensor | float, Tensor | float]] = [(self._start, 0.0) for _ in self._folds]
        if after is not None:
            starts = [(fit.weight, fit.bias) for fit in after.fits]
        chosen, before, rises, failure, n = None, math.inf, 0, None, len(self._labels)
        lowest: list[float] = []  # losses of the folds at the chosen strengths
        for each in strengths:
            fits: list[AffineFit] = []
            losses: list[float] = []
            try:
                for number in self._folds:
                    fits.append(self._fit(number, each, starts[number]))
                    losses.append(self._held_out(number, fits[-1]))
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
                chosen, lowest = Chosen(each, loss, tuple(fits)), losses
            rises = rises + 1 if loss > before + _KNOWN * before else 0
            before = loss
            if patience is not None and (rises >= patience or loss > _CLEARLY * chosen.loss):
                break
        if chosen is None:
            assert failure is not None, "a path has strengths to try"
            raise failure
        return chosen

    def _fit(self, number: int, strengths: Strengths, start: tuple[Tensor | float, Tensor | float]) -> AffineFit:
        rows = (self._fold != number).nonzero()[:, 0]
        return fit_odir(self._inputs[rows], self._labels[rows], strengths, start, tolerance=self._tolerance)

    def _held_out(self, number: int, fit: AffineFit) -> float:
        """Sum of the log-losses of one fold."""
        rows = (self._fold == number).nonzero()[:, 0]
        inputs, weight = self._inputs[rows].double(), fit.weight
        logits = (inputs @ weight.T if weight.ndim == 2 else inputs * weight) + fit.bias
        return float(cross_entropy(logits, self._labels[rows], reduction="sum"))
