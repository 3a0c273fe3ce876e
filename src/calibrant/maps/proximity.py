"""Functions of log-odds and proximity, and the map that uses features beside logits."""

from abc import ABC, abstractmethod
from typing import final, get_args

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from calibrant.checks import as_features, check_at_least, check_known, with_devices_of_inputs
from calibrant.errors import InputError
from calibrant.maps.base import FitSummary, FittedModule, Setting, as_result, check_logits, require, rises
from calibrant.maps.curves import top_log_odds, with_top_log_odds
from calibrant.numerics.neighbours import Closeness, blocks_of, closeness_of, nearest_distances, unit_rows
from calibrant.numerics.softmax import Normalised, to_working_precision
from calibrant.predictions import Predictions, check_predictions


class Surface(FittedModule, ABC):
    """New log-odds of the predicted class, given the old ones and the sample's proximity in 0..1. Built as maps are."""

    @abstractmethod
    def forward(self, log_odds: Tensor, proximity: Tensor) -> Tensor:
        """Return new log-odds, (...) and (...) -> (...)."""


@final
class Table(Surface, kind="table"):
    """Log-odds on a grid of evenly spaced confidences and proximities, interpolated, and constant beyond its ends.

    Args:
        values: Log-odds, (c, p), c, p >= 2.
        confidence: Confidence at the first and the last row of the grid, (2,).
        proximity: Proximity at the first and the last column of the grid, (2,).
    """

    def __init__(self, values: Tensor, confidence: Tensor, proximity: Tensor) -> None:
        super().__init__(values=values, confidence=confidence, proximity=proximity)

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
class Bands(Surface, kind="bands", may_be_infinite=("cell_edges",)):
    """Bands of proximity, each cut into cells of confidence; in a cell ``keep_share * confidence + offset``.

    Args:
        edges: Between bands, rising, (b,); a band is (lo, hi].
        cell_edges: Between the cells of each band, as rising log-odds, (b + 1, c). Bands with fewer repeat infinity.
        offsets: Offset of each cell, (b + 1, c + 1).
        keep_share: 1 to shift confidences, 0 to replace them; a single number.
        least: How close to 0 and 1 the result may come, a single number.
    """

    def __init__(self, edges: Tensor, cell_edges: Tensor, offsets: Tensor, keep_share: Tensor, least: Tensor) -> None:
        super().__init__(edges=edges, cell_edges=cell_edges, offsets=offsets, keep_share=keep_share, least=least)

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
        # Each side by itself: one minus a number near 1 has lost its digits.
        hit = (keep * logsigmoid(log_odds).exp() + offset).clamp(least, 1 - least)
        miss = (keep * logsigmoid(-log_odds).exp() + (1 - keep - offset)).clamp(least, 1 - least)
        return hit.log() - miss.log()


def _place(values: Tensor, ends: Tensor, nodes: int) -> tuple[Tensor, Tensor]:
    """Return the node before each number, and the share of the way to the next, in 0..1."""
    low, high = ends.to(values)
    position = ((values - low) / (high - low) * (nodes - 1)).clamp(0, nodes - 1)
    before = position.long().clamp(max=nodes - 2)
    return before, position - before


@final
class ProximityMap(FittedModule, kind="proximity"):
    """A module from logits and features to calibrated logits; the prediction never changes.

    It holds the features of all calibration samples, in the type they came in, to find each sample's nearest neighbours
    among them: 25,000 samples of 2,048 float32 features are 200 MB. A call processes all its samples at once;
    :meth:`transform` takes large arrays in blocks. Built as maps are.

    Args:
        reference: Features of the calibration samples, of length one, (r, d).
        surface: From log-odds and proximity to log-odds.
        neighbours: Number of neighbours.
        closeness: How their distances become a proximity.
    """

    def __init__(
        self,
        reference: Tensor,
        surface: Surface,
        *,
        n_classes: int,
        neighbours: int = 10,
        closeness: Closeness = "exp_mean_distance",
    ) -> None:
        super().__init__()
        check_known(closeness, get_args(Closeness), "closeness")
        self.n_classes, self.neighbours, self.closeness = n_classes, neighbours, closeness
        self.surface = surface
        self.summary: FitSummary | None = None
        self.register_buffer("reference", reference.detach())

    def settings(self) -> dict[str, Setting]:
        return {"neighbours": self.neighbours, "closeness": self.closeness}

    def check_numbers(self) -> None:
        rows = len(self.reference) if self.reference.ndim == 2 else 0
        require(rows > 0 and self.reference.shape[1] > 0, "reference must have shape (rows, features)", self.reference)
        if check_at_least(self.neighbours, 1, "neighbours") > rows:
            raise InputError(f"neighbours must be at most {rows}, the calibration samples; got {self.neighbours}.")
        # Of length one, at least in float32, or of zeros.
        slack = (self.reference.shape[1] + 4) * torch.finfo(torch.float32).eps
        lengths = self.reference.double().square().sum(dim=1)
        require((lengths <= 1 + slack).all(), "rows of the reference must have the length one", lengths)

    def proximity(self, features: Tensor) -> Tensor:
        """Return how close each sample lies to the calibration samples, in 0..1, (..., d) -> (...)."""
        d = self.reference.shape[1]
        if features.shape[-1] != d:
            raise InputError(f"this map was fitted on {d} features; got {features.shape[-1]}. Use the same layer.")
        rows = unit_rows(features).to(self.reference).reshape(-1, d)
        distances = nearest_distances(rows, self.reference, self.neighbours)
        return closeness_of(distances, self.closeness).reshape(features.shape[:-1])

    def forward(self, logits: Tensor, features: Tensor) -> Tensor:
        """Return calibrated log-probabilities, (..., k) and (..., d) -> (..., k) of the logits' type, or float32."""
        return self.apply_as(logits, features, Normalised.NO)

    def apply_as(self, logits: Tensor, features: Tensor, normalised: Normalised) -> Tensor:
        """Return calibrated logits; ``normalised`` says whether the given ones are known to be log-probabilities."""
        check_logits(logits, self.n_classes, "For arrays there is transform, with Predictions.from_logits(z, y).")
        if logits.shape[:-1] != features.shape[:-1]:
            raise InputError(
                f"logits and features must have as many rows; got {tuple(logits.shape)} and {tuple(features.shape)}."
            )
        precise = to_working_precision(logits)
        top = top_log_odds(precise, normalised)
        changed = self.surface(top.log_odds.squeeze(-1), self.proximity(features).to(precise))
        return as_result(with_top_log_odds(top, changed.unsqueeze(-1)), logits, keeps_predicted=True)

    @with_devices_of_inputs
    @torch.no_grad()
    def transform(self, predictions: Predictions, features: object) -> Predictions:
        """Return the same samples and labels with calibrated logits.

        Args:
            predictions: Predictions of the model that the map was fitted for.
            features: Features of the same samples, from the same layer, (n, d).
        """
        check_predictions(predictions, "transform")
        self.check_class_names(predictions.class_names)
        given = as_features(features, rows=len(predictions)).to(predictions.logits.device)
        blocks = blocks_of(len(predictions), self.reference, self.neighbours)
        parts = [self.apply_as(predictions.logits[rows], given[rows], predictions.normalised) for rows in blocks]
        return predictions.with_logits(torch.cat(parts), normalised=Normalised.EXACT)

    def extra_repr(self) -> str:
        return f"classes={self.n_classes}, rows={len(self.reference)}, neighbours={self.neighbours}, {self.closeness}"
