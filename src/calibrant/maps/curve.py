"""Functions of one number, log-odds in and log-odds out: for one column, or one for each class."""

from abc import ABC, abstractmethod
from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from calibrant.maps.base import Setting
from calibrant.maps.learned import Learned, require, rises

__all__ = ["BetaCurve", "Curve", "Line", "Polynomial", "Steps"]


class Curve(Learned, ABC):
    """A function of log-odds for each of c columns; a single one serves any number of columns.

    Built by keyword from its buffers, under the names it keeps them by, as maps are.
    """

    kind: ClassVar[str]  # its name in files

    @abstractmethod
    def forward(self, log_odds: Tensor) -> Tensor:
        """New log-odds, (..., c) -> (..., c)."""

    def log_probs(self, log_odds: Tensor) -> Tensor:
        """Logarithms of the new probabilities, (..., c) -> (..., c)."""
        most = torch.finfo(log_odds.dtype).max / 4  # differences of such are numbers
        return logsigmoid(self(log_odds).clamp(-most, most))

    @property
    @abstractmethod
    def columns(self) -> int:
        """How many columns it has a function for, c."""

    @final
    def settings(self) -> dict[str, Setting]:
        """What the constructor needs beside the buffers: nothing."""
        return {}


@final
class Steps(Curve):
    """One value between each two edges.

    Args:
        edges: Rising, (c, b); a cell is (lo, hi]. Columns with fewer edges repeat infinity.
        values: Log-odds, (c, b + 1).
    """

    kind: ClassVar[str] = "steps"
    may_be_infinite: ClassVar[tuple[str, ...]] = ("edges",)
    edges: Tensor
    values: Tensor

    def __init__(self, edges: Tensor, values: Tensor) -> None:
        super().__init__()
        self.keep(edges=edges, values=values)

    @property
    def columns(self) -> int:
        return len(self.edges)

    def check_numbers(self) -> None:
        matrix = self.edges.ndim == 2 and len(self.edges) > 0
        require(matrix and rises(self.edges), "edges must be rising, (columns, edges), at least one column", self.edges)
        c, b = self.edges.shape
        require(self.values.shape == (c, b + 1), f"values must have shape ({c}, {b + 1})", self.values)

    def forward(self, log_odds: Tensor) -> Tensor:
        return self._look_up(log_odds, self.values)

    def log_probs(self, log_odds: Tensor) -> Tensor:
        return self._look_up(log_odds, logsigmoid(self.values))  # of each step once, not of each row

    def _look_up(self, log_odds: Tensor, values: Tensor) -> Tensor:
        columns, shape = _columns(log_odds, len(self.edges))
        cells = torch.searchsorted(self.edges.to(columns), columns)
        return _as_before(values.to(columns).gather(1, cells), shape)


@final
class Line(Curve):
    """Straight between knots, level beyond the first and the last.

    Args:
        knots: Rising, (c, b), b >= 2.
        values: Log-odds at the knots, (c, b).
    """

    kind: ClassVar[str] = "line"
    knots: Tensor
    values: Tensor

    def __init__(self, knots: Tensor, values: Tensor) -> None:
        super().__init__()
        self.keep(knots=knots, values=values)

    @property
    def columns(self) -> int:
        return len(self.knots)

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
class Polynomial(Curve):
    """``c0 + c1 s + c2 s² + …`` of the log-odds s.

    Args:
        coefficients: Lowest power first, (c, degree + 1).
    """

    kind: ClassVar[str] = "polynomial"
    coefficients: Tensor

    def __init__(self, coefficients: Tensor) -> None:
        super().__init__()
        self.keep(coefficients=coefficients)

    @property
    def columns(self) -> int:
        return len(self.coefficients)

    def check_numbers(self) -> None:
        filled = self.coefficients.ndim == 2 and self.coefficients.numel() > 0
        require(filled, "coefficients must have shape (columns, degree + 1)", self.coefficients)

    def forward(self, log_odds: Tensor) -> Tensor:
        # Far beyond all that matters, and so that its powers are numbers.
        most = torch.finfo(log_odds.dtype).max ** (1 / self.coefficients.shape[1])
        log_odds = log_odds.clamp(-most, most)
        value = torch.zeros_like(log_odds)
        for coefficient in self.coefficients.to(log_odds).T.flip(0):
            value = value * log_odds + coefficient
        return value


@final
class BetaCurve(Curve):
    """``a ln p - b ln(1 - p) + c``, p being the probability.

    Args:
        a: Shape (c,).
        b: Shape (c,).
        c: Shape (c,).
    """

    kind: ClassVar[str] = "beta"
    a: Tensor
    b: Tensor
    c: Tensor

    def __init__(self, a: Tensor, b: Tensor, c: Tensor) -> None:
        super().__init__()
        self.keep(a=a, b=b, c=c)

    @property
    def columns(self) -> int:
        return len(self.a)

    def check_numbers(self) -> None:
        sized = self.a.ndim == 1 and len(self.a) > 0 and self.a.shape == self.b.shape == self.c.shape
        require(sized, "a, b and c must be one number a column each, at least one", self.a)

    def forward(self, log_odds: Tensor) -> Tensor:
        a, b, c = (each.to(log_odds) for each in (self.a, self.b, self.c))
        return a * logsigmoid(log_odds) - b * logsigmoid(-log_odds) + c


def _columns(log_odds: Tensor, n_curves: int) -> tuple[Tensor, torch.Size]:
    """One line of numbers a curve, (c, m), and the shape to go back to."""
    if n_curves == 1:
        return log_odds.reshape(1, -1), log_odds.shape
    turned = log_odds.movedim(-1, 0)
    return turned.reshape(n_curves, -1).contiguous(), turned.shape


def _as_before(columns: Tensor, shape: torch.Size) -> Tensor:
    return columns.reshape(shape) if len(columns) == 1 else columns.reshape(shape).movedim(0, -1)
