"""Functions of log-odds, and the maps that apply them: to the top label, to each class, or to all classes."""

import math
from abc import ABC, abstractmethod
from typing import NamedTuple, final

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from calibrant.maps.base import FittedModule, Map, is_traced, require, rises
from calibrant.numerics.binning import bin_index
from calibrant.numerics.softmax import Normalised, logaddexp, odds_of_largest

# The predicted class is kept ahead of the next by this share, so that rounding cannot change the prediction.
_AHEAD = 1e-4


class Top(NamedTuple):
    """The predicted class of each sample and its log-odds, (..., 1), and how the others share the rest, (..., k)."""

    predicted: Tensor
    log_odds: Tensor
    log_shares: Tensor  # minus infinity for the predicted class


def below_the_largest(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return each logit minus the sample's largest, (..., k), and its class, (..., 1): offsets cost no digits."""
    highest, predicted = logits.max(dim=-1, keepdim=True)
    return (logits - highest).clamp_(min=torch.finfo(logits.dtype).min / 4), predicted


def top_log_odds(logits: Tensor, normalised: Normalised = Normalised.NO) -> Top:
    """Return the predicted class, its log-odds and the shares of the others, of logits (..., k).

    Of log-probabilities the log-odds are those of the given confidence, where it has enough digits.
    """
    depths, predicted = below_the_largest(logits)
    others = depths.scatter_(-1, predicted, -math.inf)
    rest = others.gather(-1, 1 - predicted) if depths.shape[-1] == 2 else others.logsumexp(dim=-1, keepdim=True)
    log_odds = -rest
    if normalised:
        odds, known = odds_of_largest(logits.gather(-1, predicted), rest.exp(), normalised)
        log_odds = torch.where(known, -odds.log(), log_odds)
    return Top(predicted, log_odds, depths - rest)


def predicted_log_odds(logits: Tensor, normalised: Normalised = Normalised.NO) -> tuple[Tensor, Tensor]:
    """Return the predicted class and its log-odds, (n, 1) each, as :func:`top_log_odds` does, of logits (n, k)."""
    if not normalised:
        return top_log_odds(logits)[:2]
    highest, predicted = logits.max(dim=-1, keepdim=True)
    odds, known = odds_of_largest(highest, torch.full_like(highest, math.nan), normalised)
    log_odds = -odds.log()
    if len(unknown := (~known[:, 0]).nonzero()[:, 0]):  # of most samples no sum is needed
        log_odds[unknown] = top_log_odds(logits[unknown], normalised).log_odds
    return predicted, log_odds


def class_log_odds(logits: Tensor) -> Tensor:
    """Return the log-odds of every class against all others, (..., k)."""
    depths, top = below_the_largest(logits)
    others = depths.scatter(-1, top, -math.inf)
    second = others.amax(dim=-1, keepdim=True)
    powers = (others - second).exp()
    rest = powers.sum(dim=-1, keepdim=True)
    # Against any class but the predicted one stands that one, whose power is 1, so that nothing cancels.
    against = (rest - powers) * second.exp() + 1
    return (depths - against.log()).scatter(-1, top, -second - rest.log())


def with_top_log_odds(top: Top, log_odds: Tensor) -> Tensor:
    """Return log-probabilities with new log-odds of the predicted class, (..., 1); the others share the rest.

    The prediction stays. Where the others' largest share would overtake it, their shares are made more equal, as far as
    needed; and below one class's fair share, 1/k, where that cannot help, the log-odds are raised to it.
    """
    log_shares = top.log_shares
    log_odds = log_odds.clamp(min=_AHEAD - math.log(log_shares.shape[-1] - 1))
    # Above even odds no class can overtake.
    overtaken = log_odds < _AHEAD
    if is_traced():
        log_shares = torch.where(overtaken, _held_back(log_shares, log_odds), log_shares)
    elif overtaken.any():
        samples, log_shares = overtaken[..., 0], log_shares.clone()
        log_shares[samples] = _held_back(log_shares[samples], log_odds[samples])
    return (log_shares + logsigmoid(-log_odds)).scatter(-1, top.predicted, logsigmoid(log_odds))


def _held_back(log_shares: Tensor, log_odds: Tensor) -> Tensor:
    """Shares of the other classes, mixed with equal ones until the largest is below the predicted class's odds."""
    fair = 1 / (log_shares.shape[-1] - 1)
    largest = log_shares.amax(dim=-1, keepdim=True).exp()
    below = (log_odds - _AHEAD / 2).exp()
    blend = ((largest - below) / (largest - fair).clamp(min=1e-12)).clamp(0, 1 - _AHEAD / 100)
    needed = blend > 0
    blend = blend.where(needed, 0.5)
    blended = logaddexp(log_shares + torch.log1p(-blend), (blend * fair).log())
    return torch.where(needed, blended, log_shares)


class Curve(FittedModule, ABC):
    """A function of log-odds for each of c columns; a single one serves any number of columns. Built as maps are."""

    @abstractmethod
    def forward(self, log_odds: Tensor) -> Tensor:
        """Return new log-odds, (..., c) -> (..., c)."""

    def log_probs(self, log_odds: Tensor) -> Tensor:
        """Return logarithms of the new probabilities, (..., c) -> (..., c)."""
        most = torch.finfo(log_odds.dtype).max / 4  # differences of such are finite
        return logsigmoid(self(log_odds).clamp(-most, most))

    @final
    @property
    def columns(self) -> int:
        """Number of columns it has a function for, c: the length of every buffer."""
        return len(next(self.buffers()))


@final
class Steps(Curve, kind="steps", may_be_infinite=("edges",)):
    """One value between each two edges.

    Args:
        edges: Rising, (c, b); a cell is (lo, hi]. Columns with fewer edges repeat infinity.
        values: Log-odds, (c, b + 1).
    """

    def __init__(self, edges: Tensor, values: Tensor) -> None:
        super().__init__(edges=edges, values=values)

    def check_numbers(self) -> None:
        matrix = self.edges.ndim == 2 and len(self.edges) > 0
        require(matrix and rises(self.edges), "edges must be rising, (columns, edges), at least one column", self.edges)
        c, b = self.edges.shape
        require(self.values.shape == (c, b + 1), f"values must have shape ({c}, {b + 1})", self.values)

    def forward(self, log_odds: Tensor) -> Tensor:
        return self._look_up(log_odds, self.values)

    def log_probs(self, log_odds: Tensor) -> Tensor:
        return self._look_up(log_odds, logsigmoid(self.values))  # of each step once, not of each sample

    def _look_up(self, log_odds: Tensor, values: Tensor) -> Tensor:
        columns, shape = _columns(log_odds, len(self.edges))
        cells = torch.searchsorted(self.edges.to(columns), columns)
        return _as_before(values.to(columns).gather(1, cells), shape)


@final
class Line(Curve, kind="line"):
    """Linear between rising knots (c, b), b >= 2, with log-odds ``values`` (c, b); constant beyond the ends."""

    def __init__(self, knots: Tensor, values: Tensor) -> None:
        super().__init__(knots=knots, values=values)

    def check_numbers(self) -> None:
        matrix = self.knots.ndim == 2 and len(self.knots) > 0 and self.knots.shape[1] > 1
        require(matrix and rises(self.knots), "knots must be rising, (columns, knots), at least two", self.knots)
        shape = tuple(self.knots.shape)
        require(self.values.shape == shape, f"values must have shape {shape}", self.values)

    def forward(self, log_odds: Tensor) -> Tensor:
        columns, shape = _columns(log_odds, len(self.knots))
        knots, values = self.knots.to(columns), self.values.to(columns)
        right = torch.searchsorted(knots, columns).clamp(1, knots.shape[1] - 1)
        start, end = knots.gather(1, right - 1), knots.gather(1, right)
        share = ((columns - start) / (end - start).clamp(min=1e-12)).clamp(0, 1)
        return _as_before(torch.lerp(values.gather(1, right - 1), values.gather(1, right), share), shape)


@final
class Polynomial(Curve, kind="polynomial"):
    """``c0 + c1 s + c2 s² + …`` of the log-odds s; coefficients (c, degree + 1), the lowest power first."""

    def __init__(self, coefficients: Tensor) -> None:
        super().__init__(coefficients=coefficients)

    def check_numbers(self) -> None:
        filled = self.coefficients.ndim == 2 and self.coefficients.numel() > 0
        require(filled, "coefficients must have shape (columns, degree + 1)", self.coefficients)

    def forward(self, log_odds: Tensor) -> Tensor:
        # Far beyond all that matters, and its powers stay finite.
        most = torch.finfo(log_odds.dtype).max ** (1 / self.coefficients.shape[1])
        log_odds = log_odds.clamp(-most, most)
        value = torch.zeros_like(log_odds)
        for coefficient in self.coefficients.to(log_odds).T.flip(0):
            value = value * log_odds + coefficient
        return value


@final
class BetaCurve(Curve, kind="beta"):
    """``a ln p - b ln(1 - p) + c``, p being the probability; a, b and c of shape (c,)."""

    def __init__(self, a: Tensor, b: Tensor, c: Tensor) -> None:
        super().__init__(a=a, b=b, c=c)

    def check_numbers(self) -> None:
        sized = self.a.ndim == 1 and len(self.a) > 0 and self.a.shape == self.b.shape == self.c.shape
        require(sized, "a, b and c must be one number per column each, at least one", self.a)

    def forward(self, log_odds: Tensor) -> Tensor:
        a, b, c = (parameter.to(log_odds) for parameter in (self.a, self.b, self.c))
        return a * logsigmoid(log_odds) - b * logsigmoid(-log_odds) + c


def _columns(log_odds: Tensor, n_curves: int) -> tuple[Tensor, torch.Size]:
    """One line of numbers per curve, (c, m), and the original shape."""
    if n_curves == 1:
        return log_odds.reshape(1, -1), log_odds.shape
    turned = log_odds.movedim(-1, 0)
    return turned.reshape(n_curves, -1).contiguous(), turned.shape


def _as_before(columns: Tensor, shape: torch.Size) -> Tensor:
    return columns.reshape(shape) if len(columns) == 1 else columns.reshape(shape).movedim(0, -1)


@final
class TopLabelMap(Map, kind="top_label", keeps_predicted_exactly=True):
    """A new confidence for the predicted class, by a curve of one column; the other classes share the rest as before.

    The prediction never changes: a confidence below 1/k is raised to it, see :func:`with_top_log_odds`.
    """

    def __init__(self, curve: Curve, *, n_classes: int) -> None:
        super().__init__(n_classes, gives_log_probs=Normalised.EXACT, keeps_predicted=True)
        self.curve = curve

    def check_numbers(self) -> None:
        check_columns(self.curve, 1)

    def calibrated(self, logits: Tensor) -> Tensor:
        return self.calibrated_as(logits, Normalised.NO)

    def calibrated_as(self, logits: Tensor, normalised: Normalised) -> Tensor:
        top = top_log_odds(logits, normalised)
        return with_top_log_odds(top, self.curve(top.log_odds))


@final
class OneVsRest(Map, kind="one_vs_rest"):
    """A new probability for every class against the rest, by a curve per class or one for all, then normalised."""

    def __init__(self, curve: Curve, *, n_classes: int) -> None:
        super().__init__(n_classes, gives_log_probs=True)
        self.curve = curve

    def check_numbers(self) -> None:
        check_columns(self.curve, 1, self.n_classes)

    def calibrated(self, logits: Tensor) -> Tensor:
        return self.curve.log_probs(class_log_odds(logits)).log_softmax(dim=-1)


@final
class TwoClassMap(Map, kind="two_class"):
    """New log-odds of class 1 against class 0, by a curve of one column."""

    def __init__(self, curve: Curve, *, n_classes: int = 2) -> None:
        super().__init__(n_classes, gives_log_probs=True)
        self.curve = curve

    def check_numbers(self) -> None:
        check_columns(self.curve, 1)
        require(self.n_classes == 2, "n_classes of a two-class map must be 2", torch.tensor(self.n_classes))

    def calibrated(self, logits: Tensor) -> Tensor:
        log_odds = self.curve(logits[..., 1:] - logits[..., :1])
        return torch.cat([logsigmoid(-log_odds), logsigmoid(log_odds)], dim=-1)


def check_columns(curve: Curve, *allowed: int) -> None:
    """Raise an InputError unless the curve has an allowed number of columns."""
    wanted = " or ".join(map(str, sorted(set(allowed))))
    require(curve.columns in allowed, f"the curve must have {wanted} columns", torch.tensor(curve.columns))


@final
class PooledMap(Map, kind="pooled", keeps_predicted_exactly=True):
    """A new probability for every class against the rest, all by one non-decreasing curve, then normalised.

    The classes of a sample keep their order, or become equal; only the predicted one stays ahead of all others.
    """

    def __init__(self, curve: Curve, *, n_classes: int) -> None:
        super().__init__(n_classes, gives_log_probs=True, keeps_predicted=True)
        self.curve = curve

    def check_numbers(self) -> None:
        check_columns(self.curve, 1)
        if isinstance(self.curve, Line | Steps):
            require(rises(self.curve.values), "the curve's values must not fall", self.curve.values)

    def calibrated(self, logits: Tensor) -> Tensor:
        top = logits.argmax(dim=-1, keepdim=True)
        log_odds = class_log_odds(logits)
        # Rounding must not put a class that is as likely as the predicted one on a higher step.
        log_odds = log_odds.minimum(log_odds.gather(-1, top))
        log_probs = self.curve.log_probs(log_odds)
        return log_probs.scatter(-1, top, log_probs.gather(-1, top) + _AHEAD).log_softmax(dim=-1)


@final
class ClassBins(Map, kind="class_bins"):
    """A new probability for every class by the equal-width bin of its old one, then normalised.

    :class:`OneVsRest` with steps of equal width, whose bins need no search. ``values`` are the log-odds in each bin
    (lo, hi] of 0..1, (k, b).
    """

    def __init__(self, values: Tensor, *, n_classes: int) -> None:
        super().__init__(n_classes, gives_log_probs=True, values=values)

    def check_numbers(self) -> None:
        sized = self.values.ndim == 2 and len(self.values) == self.n_classes and self.values.shape[1] > 0
        require(sized, f"values must have shape ({self.n_classes}, bins), at least one bin", self.values)

    def calibrated(self, logits: Tensor) -> Tensor:
        k, n_bins = self.values.shape
        table = logsigmoid(self.values).to(logits)
        first = torch.arange(0, k * n_bins, n_bins, device=logits.device)
        return table.take(bin_index(logits.softmax(dim=-1), n_bins) + first).log_softmax(dim=-1)
