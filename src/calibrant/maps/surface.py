"""Functions of two numbers, log-odds and proximity in and log-odds out: what curves are to maps that see features."""

from abc import ABC, abstractmethod
from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from calibrant.maps.base import Setting
from calibrant.maps.learned import Learned, require, rises

__all__ = ["Bands", "Surface", "Table"]


class Surface(Learned, ABC):
    """New log-odds of the predicted class, given the old ones and the row's proximity in 0..1.

    Built by keyword from its buffers, under the names it keeps them by, as maps are.
    """

    kind: ClassVar[str]  # its name in files

    @abstractmethod
    def forward(self, log_odds: Tensor, proximity: Tensor) -> Tensor:
        """New log-odds, (...) and (...) -> (...)."""

    @final
    def settings(self) -> dict[str, Setting]:
        """What the constructor needs beside the buffers: nothing."""
        return {}


@final
class Table(Surface):
    """Log-odds at evenly spaced confidences and proximities, and in between as the four around say.

    Beyond the ends the nearest end counts.

    Args:
        values: Log-odds, (c, p), c, p >= 2.
        confidence: Of the first and the last line, (2,).
        proximity: Of the first and the last column, (2,).
    """

    kind: ClassVar[str] = "table"
    values: Tensor
    confidence: Tensor
    proximity: Tensor

    def __init__(self, values: Tensor, confidence: Tensor, proximity: Tensor) -> None:
        super().__init__()
        self.keep(values=values, confidence=confidence, proximity=proximity)

    def check_numbers(self) -> None:
        sized = self.values.ndim == 2 and min(self.values.shape) > 1
        require(sized, "values must have at least two lines and two columns", self.values)
        for name, ends in (("confidence", self.confidence), ("proximity", self.proximity)):
            require(ends.shape == (2,), f"{name} must be two numbers, the ends of an axis", ends)
            require(ends[0] < ends[1], f"the ends of {name} must be rising", ends)

    def forward(self, log_odds: Tensor, proximity: Tensor) -> Tensor:
        values = self.values.to(log_odds)
        line, down = _place(logsigmoid(log_odds).exp(), self.confidence, values.shape[0])
        column, along = _place(proximity.to(log_odds), self.proximity, values.shape[1])
        upper = torch.lerp(values[line, column], values[line, column + 1], along)
        lower = torch.lerp(values[line + 1, column], values[line + 1, column + 1], along)
        return torch.lerp(upper, lower, down)


@final
class Bands(Surface):
    """Bands of proximity, each cut into cells of confidence; in a cell ``keep_share * confidence + offset``.

    Args:
        edges: Between bands, rising, (b,); a band is (lo, hi].
        cell_edges: Between the cells of each band, as rising log-odds, (b + 1, c). Bands with fewer repeat infinity.
        offsets: Of each cell, (b + 1, c + 1).
        keep_share: 1 to shift confidences, 0 to replace them; a single number.
        least: How close to 0 and 1 the result may come, a single number.
    """

    kind: ClassVar[str] = "bands"
    may_be_infinite: ClassVar[tuple[str, ...]] = ("cell_edges",)
    edges: Tensor
    cell_edges: Tensor
    offsets: Tensor
    keep_share: Tensor
    least: Tensor

    def __init__(self, edges: Tensor, cell_edges: Tensor, offsets: Tensor, keep_share: Tensor, least: Tensor) -> None:
        super().__init__()
        self.keep(edges=edges, cell_edges=cell_edges, offsets=offsets, keep_share=keep_share, least=least)

    def check_numbers(self) -> None:
        bands = self.edges.numel() + 1
        require(self.edges.ndim == 1 and rises(self.edges), "edges must be a rising line of numbers", self.edges)
        cells = self.cell_edges.ndim == 2 and len(self.cell_edges) == bands
        require(cells and rises(self.cell_edges), f"cell_edges must be rising, ({bands}, edges)", self.cell_edges)
        shape = (bands, self.cell_edges.shape[1] + 1)
        require(self.offsets.shape == shape, f"offsets must have shape {shape}", self.offsets)
        require((self.offsets.abs() <= 1).all(), "offsets must lie in -1..1", self.offsets)
        for name, most in (("keep_share", 1.0), ("least", 0.5)):
            value = self.get_buffer(name)
            require(value.numel() == 1, f"{name} must be a single number", value)
            require((value >= 0) & (value <= most), f"{name} must lie in 0..{most:g}", value)

    def forward(self, log_odds: Tensor, proximity: Tensor) -> Tensor:
        band = torch.searchsorted(self.edges.to(proximity), proximity.contiguous())
        cell = (log_odds[..., None] > self.cell_edges.to(log_odds)[band]).sum(dim=-1)
        offset = self.offsets.to(log_odds)[band, cell]
        keep, least = self.keep_share.to(log_odds), self.least.to(log_odds)
        # Both sides by themselves: one minus a number near 1 has lost its digits.
        hit = (keep * logsigmoid(log_odds).exp() + offset).clamp(least, 1 - least)
        miss = (keep * logsigmoid(-log_odds).exp() + (1 - keep - offset)).clamp(least, 1 - least)
        return hit.log() - miss.log()


def _place(values: Tensor, ends: Tensor, nodes: int) -> tuple[Tensor, Tensor]:
    """The node before each number, and how far it is on the way to the next, in 0..1."""
    low, high = ends.to(values)
    position = ((values - low) / (high - low) * (nodes - 1)).clamp(0, nodes - 1)
    before = position.long().clamp(max=nodes - 2)
    return before, position - before
