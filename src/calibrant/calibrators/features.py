"""Calibrators that use features as well as predictions: density ratio, and bin-mean-shift by proximity."""

import math
import time
from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal, TypeAlias, final

import torch
from torch import Tensor

from calibrant.calibrators.base import Method, gathered_warnings, log_odds_bounds, top_label, with_scores
from calibrant.calibrators.binning import padded
from calibrant.checks import AtLeastOne, PositiveShare, as_features, with_devices_of_inputs
from calibrant.errors import FitError, warn
from calibrant.maps import Bands, FitSummary, ProximityMap, Surface, Table
from calibrant.numerics.isotonic import equal_mass_edges
from calibrant.numerics.neighbours import Closeness, proximity, unit_rows
from calibrant.paper import Paper
from calibrant.predictions import Predictions, check_predictions

_XIONG = Paper(
    "Xiong et al.", 2023, "Proximity-Informed Calibration for Deep Neural Networks", "arXiv:2306.04590", "Section 5.1"
)
_XIONG_EQ_5 = _XIONG.at("eq. 5")


class FeatureCalibrator(Method):
    """A method that is fitted on predictions and features.

    The features are those of the layer before the logits, one vector per sample, normalised to unit length.
    """

    neighbours: int
    closeness: Closeness

    @abstractmethod
    def _fit(self, predictions: Predictions, nearness: Tensor) -> Surface:
        """Fit the new log-odds, given each sample's proximity to the others (n,), float64; called by :meth:`fit`."""

    @final
    @with_devices_of_inputs
    def fit(self, predictions: Predictions, features: object) -> ProximityMap:
        """Fit the map, with a summary of the fit, on held-out predictions and features.

        Args:
            predictions: Samples that the model was not trained on, and on which the map will not be evaluated.
            features: Features of the same samples, (n, d): the inputs of the last layer.
        """
        check_predictions(predictions, f"{type(self).__name__}().fit")
        given = as_features(features, rows=len(predictions)).to(predictions.logits.device)
        if predictions.weights is not None:
            given, predictions = given[predictions.weights > 0], predictions.with_positive_weights()
        if len(predictions) <= self.neighbours:
            raise FitError(
                f"{self.name} needs more samples than neighbours ({self.neighbours}), since no sample is its own "
                f"neighbour; got {len(predictions)}. Use more samples, or fewer neighbours."
            )
        start = time.perf_counter()
        with gathered_warnings() as warned:
            nearness = proximity(given, neighbours=self.neighbours, closeness=self.closeness).double()
            surface = self._fit(predictions, nearness)
        reference, k = unit_rows(given), predictions.n_classes
        fitted = ProximityMap(reference, surface, n_classes=k, neighbours=self.neighbours, closeness=self.closeness)
        seconds, notes = time.perf_counter() - start, tuple(map(str, warned))
        summary = FitSummary(self.name, self.settings(), len(predictions), seconds, notes=notes)
        known, fitted.class_names = predictions.normalised, predictions.class_names
        fitted.summary = with_scores(
            summary, predictions, lambda logits, places: fitted.apply_as(logits, given[places], known)
        )
        return fitted


CellRule: TypeAlias = Literal["shift", "replace"]


@final
@dataclass(frozen=True)
class BinMeanShift(
    FeatureCalibrator, name="bin_mean_shift", title="Bin-mean-shift by proximity", family="binning", paper=_XIONG_EQ_5
):
    """Sort samples into bands of proximity and cells of confidence, and subtract part of each cell's mean gap.

    It removes the mean error of samples that lie far from the others, and keeps the differences inside a cell; only
    part of the gap is removed, because a cell of few samples estimates it badly. It can follow a method that gives only
    a few confidences, where a density has no meaning. The prediction stays; the other classes share the rest in
    proportion. It hurts with few samples, whose cells measure noise, and the result jumps at the edges of cells.

    Formula: q = c + λ (accuracy of the cell − mean confidence of the cell), within 1/(n + 2) of 0 and 1
    Samples: about 50 per cell, 2,500 for 5 bands of 10 cells. With fewer, use fewer bands and cells.

    Args:
        bands: Bands of proximity, with equal numbers of samples.
        cells: Cells of confidence in each band, with equal numbers of samples; ties can leave fewer.
        shrinkage: λ, above 0 and at most 1.
        rule: "shift", as in the paper's text, or "replace" the confidence by the accuracy of the cell, as its public
            code does by histogram binning in each band; λ then has no effect.
        neighbours: Number of nearest calibration samples whose distances give the proximity.
        closeness: "exp_mean_distance", as in the paper's text, or "mean_exp_square", as in its public code.
    """

    preserves_accuracy = True
    preserves_ranking = False  # neighbouring cells may swap order

    bands: AtLeastOne = 5
    cells: AtLeastOne = 10
    shrinkage: PositiveShare = 0.5
    rule: CellRule = "shift"
    neighbours: AtLeastOne = 10
    closeness: Closeness = "exp_mean_distance"

    def _fit(self, predictions: Predictions, nearness: Tensor) -> Bands:
        log_odds, correct = top_label(predictions)
        counts = predictions.sample_counts
        edges = equal_mass_edges(nearness, self.bands, counts)
        band = torch.searchsorted(edges, nearness)
        inside = (band == number for number in range(len(edges) + 1))
        lines = [self._line(log_odds[at], correct[at], None if counts is None else counts[at]) for at in inside]
        keep_share, least = float(self.rule == "shift"), 1 / (predictions.effective_size + 2)
        return Bands(edges, *padded(lines), keep_share=edges.new_tensor(keep_share), least=edges.new_tensor(least))

    def _line(self, log_odds: Tensor, correct: Tensor, counts: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the edges of the cells of one band, (c,), and the offset of each, (c + 1,)."""
        edges = equal_mass_edges(log_odds, self.cells, counts)
        # Exactly as the map will search them.
        cell = (log_odds[:, None] > edges.to(log_odds)).sum(dim=1)
        once = torch.ones_like(log_odds, dtype=torch.float64) if counts is None else counts
        count, right, claimed = (
            torch.bincount(cell, weights, minlength=len(edges) + 1)
            for weights in (once, once * correct, once * log_odds.double().sigmoid())
        )
        count = torch.where(count > 0, count, 1)
        if self.rule == "replace":
            return edges, right / count
        return edges, self.shrinkage * (right - claimed) / count


# Nodes of the table per bandwidth, and bounds on their number. The error of interpolation stays below a thousandth of
# the probability.
_NODES_A_BANDWIDTH, _FEWEST, _MOST = 16, 32, 512
_POINTS_AT_ONCE = 1 << 13  # whose kernels are held
# The bandwidth where samples do not differ at all.
_LEAST_BANDWIDTH = 1e-3
# With fewer right, or wrong, samples their density is hardly known.
_FEW = 10


@final
@dataclass(frozen=True)
class DensityRatioCalibration(
    FeatureCalibrator, name="density_ratio", title="Density-ratio calibration", family="curve", paper=_XIONG
):
    """The confidence becomes the accuracy among samples of similar confidence and proximity.

    Networks are more overconfident on samples that lie far from the others, and a map of the confidence alone, such as
    a temperature, cannot see which those are. Here the densities of right and of wrong calibration samples in the plane
    of confidence and proximity are estimated by Gaussian kernels, and their ratio is the new odds. The prediction
    stays; the other classes share the rest in proportion, and so stay too sharp if they were. It hurts on uncalibrated
    predictions whose confidences crowd near 1, where the kernels blur what matters: fit a temperature first, and this
    on its output (on a CIFAR-100 network, with features that carry no information, log-loss 1.02 alone, .866 after a
    temperature, .858 for the temperature alone).

    Formula: q = p(c, D | right) N_right / (p(c, D | right) N_right + p(c, D | wrong) N_wrong), D = exp(−mean distance)
    Samples: about 1,000, of which 100 wrong; with fewer than 10 right or wrong there is a warning.

    Args:
        neighbours: Number of nearest calibration samples whose distances give the proximity.
        closeness: "exp_mean_distance", as in the paper's text, or "mean_exp_square", as in its public code.
    """

    preserves_accuracy = True
    preserves_ranking = False  # it depends on the proximity as well

    neighbours: AtLeastOne = 10
    closeness: Closeness = "exp_mean_distance"

    def _fit(self, predictions: Predictions, nearness: Tensor) -> Table:
        log_odds, correct = top_label(predictions)
        confidence, counts = log_odds.double().sigmoid(), predictions.sample_counts
        counts = torch.ones_like(confidence) if counts is None else counts
        fewest = int(torch.minimum(correct.sum(), (~correct).sum()))
        if fewest < _FEW:
            side = "right" if int(correct.sum()) == fewest else "wrong"
            warn(f"the density of {side} predictions rests on {fewest} samples; below {_FEW} it is hardly known.")
        sides = (correct, ~correct)
        widths = [(bandwidth(confidence, side, counts), bandwidth(nearness, side, counts)) for side in sides]
        across = _nodes(confidence, min(first for first, _ in widths))
        along = _nodes(nearness, min(second for _, second in widths))
        right, wrong = (
            grid_density(confidence[side], nearness[side], counts[side], (across, along), both)
            for side, both in zip(sides, widths, strict=True)
        )
        # Differs from the paper: one more sample, calibrated, is spread evenly over the table. Where there are samples
        # its effect is negligible; where there are none, 0/0, it keeps the confidence.
        spread = 1 / ((across[-1] - across[0]) * (along[-1] - along[0]))
        prior = across[:, None]
        odds = (right + prior * spread).log() - (wrong + (1 - prior) * spread).log()
        return Table(odds.clamp(*log_odds_bounds(predictions.effective_size)), across[[0, -1]], along[[0, -1]])


def bandwidth(values: Tensor, side: Tensor, counts: Tensor) -> float:
    """Return the best bandwidth for normal values, those of the right or wrong samples; of all where they are equal."""
    deviation = _deviation(values[side], counts[side]) if int(side.sum()) > 1 else 0.0
    spread = deviation if deviation > 0 else _deviation(values, counts)
    # Differs from the paper: it prints n^(-1/5), the rule for one variable; the library it names takes n^(-1/6).
    return max(1.06 * spread * max(float(counts[side].sum()), 1) ** (-1 / 6), _LEAST_BANDWIDTH)


def _deviation(values: Tensor, counts: Tensor) -> float:
    """Return the standard deviation of samples that count so much."""
    share = counts / counts.sum()
    return float((share @ (values - share @ values).square()).sqrt())


def _nodes(values: Tensor, width: float) -> Tensor:
    """Return evenly spaced numbers from the smallest to the largest value, closer than the kernels are wide."""
    low, high = (float(end) for end in values.aminmax())
    high = max(high, low + width)
    nodes = math.ceil((high - low) / width * _NODES_A_BANDWIDTH)
    return torch.linspace(low, high, min(max(nodes, _FEWEST), _MOST), dtype=values.dtype, device=values.device)


def grid_density(
    x: Tensor, y: Tensor, counts: Tensor, nodes: tuple[Tensor, Tensor], widths: tuple[float, float]
) -> Tensor:
    """Return a Gaussian density of points times their number, at the nodes of a grid, (nodes of x, nodes of y)."""
    across, along = nodes
    total = x.new_zeros(len(across), len(along))
    for xs, ys, weights in zip(*(column.split(_POINTS_AT_ONCE) for column in (x, y, counts)), strict=True):
        # The kernel is a product, so that the sum over points is a product of matrices.
        kernel = _gaussian((across[:, None] - xs) / widths[0]).mul_(weights)
        total.addmm_(kernel, _gaussian((along[:, None] - ys) / widths[1]).T)
    return total / (2 * torch.pi * widths[0] * widths[1])


def _gaussian(z: Tensor) -> Tensor:
    return z.square_().mul_(-0.5).exp_()
