"""Samples in clusters, such as several answers to one question, or images of one patient.

Samples of a cluster are right or wrong together more often than their confidences say, so that they know less than as
many independent ones. Intervals draw clusters instead of samples. What a calibrated model would show is drawn with the
correlation that the samples have: behind every outcome stands a normal number, in part common to its cluster, and the
prediction is right where it is below the quantile of its confidence. So every single confidence is calibrated.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np
import torch
from torch import Tensor

from calibrant.metrics.states import EXACT, Ranked, effective_number
from calibrant.numerics.binning import bin_index, sums_by
from calibrant.numerics.softmax import row_blocks, row_products
from calibrant.predictions import Predictions, TopLabel

_PAIRED = 20_000  # samples that the correlation is estimated from
_MANY = 100  # clusters that are among some of the samples, if there are as many
_FEWEST = 10  # clusters below which they show no correlation
_BINS = 15
_PER_BIN = 5  # clusters
_NODES = 64  # quantiles of the normal number that a cluster has in common
_STRONGEST = 0.999
_DRAWN = 1 << 24  # outcomes drawn one by one; of more samples, blocks are drawn a few times each and combined
_BLOCKS, _DRAWS_PER_BLOCK = 8, 40
_TOGETHER = 1 << 21  # outcomes drawn at a time
_NUMBERS = 1 << 20  # logits that are read at a time
_PROJECTION_SEED = 1973
_DIFFERENCES = 10.0  # expected between samples of equal outputs: that one or none occurs is then a chance of 1 in 2,000


@final
@dataclass(frozen=True, eq=False)
class Clusters:
    """Confidence and correctness of samples, and the cluster of each."""

    top: TopLabel
    of_class: bool = False  # whether confidence and correctness are those of class 0 of two, whatever is predicted

    @classmethod
    def of(cls, top: TopLabel) -> "Clusters | None":
        """Return the clusters of the samples; None where they are independent."""
        if top.clusters is None:
            return None
        kept: Clusters = top.__dict__.setdefault("_clusters", cls(top))  # as it estimates correlations from all pairs
        return kept

    @cached_property
    def codes(self) -> Tensor:  # (n,) the clusters of these samples, without gaps where they are a part of others
        assert self.top.clusters is not None
        return self.top.clusters.unique(return_inverse=True)[1]

    @cached_property
    def mass(self) -> Tensor:  # (n,) the weight of each sample
        return self.top.mass

    def sums(self, values: Tensor) -> Tensor:
        """Return numbers per sample, (n,), added up by cluster, (clusters,)."""
        return sums_by(self.codes, values, int(self.codes.max()) + 1)

    def number(self, chosen: Tensor | None = None) -> float:
        """Return the effective number of clusters of all, or of the chosen, samples, as if each were one sample."""
        mass = self.sums(self.mass if chosen is None else self.mass * chosen)
        return float(effective_number(mass.sum(), mass.square().sum()))

    def degrees(self, chosen: Tensor | None = None) -> float:
        """Return the degrees of freedom of a variance from clusters as uneven as those of all, or the chosen, samples.

        Reference: Satterthwaite (1946), An Approximate Distribution of Estimates of Variance Components, Biometrics.
        """
        mass = self.mass if chosen is None else self.mass * chosen
        own = self.sums(mass.square())
        variances = own + self._correlations[1] * (self.sums(mass).square() - own)
        return max(1.0, float(variances.sum().square() / variances.square().sum()) - 1)

    def effective_size(self, rows: Tensor | None = None) -> float:
        """Return how many independent samples of equal weight know as much as all, or some, of these."""
        chosen = torch.zeros_like(self.codes)
        chosen[... if rows is None else rows] = 1
        return float((self.mass * chosen).sum().square() / self.squares(chosen, 2)[1])

    @property
    def latent_correlation(self) -> float:
        """Correlation of the normal numbers behind the outcomes of a cluster, at least 0."""
        return self._correlations[0]

    def squares(self, place: Tensor, size: int) -> Tensor:
        """Return the sum of squared weights at each place, (size,), of independent samples that know as much."""
        place, clusters = place.long(), int(self.codes.max()) + 1
        own = sums_by(place, self.mass.square(), size)
        together, index = (place * clusters + self.codes).unique(return_inverse=True)
        of_clusters = sums_by(index, self.mass, len(together)).square()
        all_alike = sums_by(together // clusters, of_clusters, size)
        return own + self._correlations[1] * (all_alike - own)

    @cached_property
    def design_effect(self) -> float:
        """Variance of the mean of all samples over that of as many independent ones."""
        squares = self.squares(torch.zeros_like(self.codes), 1)
        return float(squares[0] / self.mass.square().sum())

    def as_trials(self, ranked: Ranked) -> Ranked:
        """Return ranked samples whose squared weights, added up from the highest confidence, count clusters.

        Whatever their correlation, samples of a cluster know no less together than one of them.
        """
        log_odds = EXACT(self.top).log_odds
        order = log_odds.argsort(descending=True, stable=True)
        order = order[self.codes[order].argsort(stable=True)]
        starts = self.codes[order].diff(prepend=self.codes.new_full((1,), -1)) != 0
        place = torch.searchsorted(ranked.log_odds, log_odds[order])

        def increments(mass: Tensor) -> Tensor:
            """Return what the samples of each entry add to the sum of the squared weights of clusters, (m,)."""
            up_to = mass.cumsum(0)
            before = up_to - mass
            before = before - before[starts][starts.cumsum(0) - 1]
            return sums_by(place, mass * (2 * before + mass), len(ranked.log_odds))

        mass, wrong = self.mass[order], ~self.top.correct[order]
        squares = increments(mass)
        return replace(ranked, squared_weights=squares, squared_right=squares - increments(mass * wrong))

    @cached_property
    def _correlations(self) -> tuple[float, float]:
        """Correlation of the normal numbers behind the outcomes of a cluster, and of outcomes, by moments; at least 0.

        The first gives the outcomes of all pairs the covariance that they have around the accuracy at their confidence,
        so that miscalibration is not taken for correlation. A cluster counts as many times as it has samples. Few
        clusters show too little of it: there, each knows as much as one sample.
        """
        if self.number() < _FEWEST:
            return _STRONGEST, 1.0
        accuracy, *residuals = self._around_accuracy()
        rows = some_of_clusters(self.codes, _PAIRED)
        accuracy, codes = accuracy[rows], self.codes[rows].unique(return_inverse=True)[1]
        quantile, size = torch.special.ndtri(accuracy), torch.bincount(codes).double()
        share = torch.where(size > 1, 1 / (size - 1).clamp(min=1), 0.0)

        def covariance(first: Tensor, second: Tensor) -> float:
            """Return the sum of the products of pairs; residuals are (..., n), of which it is the mean."""
            one, own = (sums_by(codes, part, len(size)) for part in (first, first * second))
            other = one if second is first else sums_by(codes, second, len(size))
            return float(((one * other - own) * share).sum(-1).mean())

        def excess(correlation: float) -> float:
            common = math.sqrt(correlation) * nodes[:, None]
            # The normal distribution by erf: a third of the time of ndtr, whose digits far out are lost here anyway.
            chance = torch.erf((quantile - common) / math.sqrt(2 - 2 * correlation)) / 2 + (0.5 - accuracy)
            return covariance(chance, chance) - seen

        grid = (torch.arange(_NODES, dtype=torch.float64, device=codes.device) + 0.5) / _NODES
        nodes, seen = torch.special.ndtri(grid), covariance(*(residual[rows] for residual in residuals))
        if seen <= 0:
            return 0.0, 0.0
        spread = (accuracy * (1 - accuracy)).sqrt()
        of_outcomes = min(1.0, seen / covariance(spread, spread))
        low, high = 0.0, _STRONGEST
        if excess(high) <= 0:
            return high, of_outcomes
        while high - low > 0.005:
            middle = (low + high) / 2
            low, high = (low, middle) if excess(middle) > 0 else (middle, high)
        return (low + high) / 2, of_outcomes

    def _around_accuracy(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the accuracy at the confidence of each sample, and twice how far its outcome lies above that, (n,).

        The accuracy is the confidence, moved by the gap of bins of equal mass. That of a cluster's own samples draws
        the residuals together, as that of all other clusters draws them apart: the product of both has no bias.
        """
        top, codes = self.top, self.codes
        n, clusters = len(top), int(codes.max()) + 1
        bins = max(1, min(_BINS, n // 20, int(self.number() / _PER_BIN)))
        place = torch.empty_like(codes)
        place[top.confidence.argsort(stable=True)] = torch.arange(n, device=place.device) * bins // n
        above, cell = top.correct.double() - top.confidence, place * clusters + codes
        count, total = torch.bincount(place, minlength=bins).double(), sums_by(place, above, bins)
        own, of_own = torch.bincount(cell).double()[cell], sums_by(cell, above, int(cell.max()) + 1)[cell]
        gap, of_others = total / count, (total[place] - of_own) / (count[place] - own).clamp(min=1)
        least = 0.5 / (n / bins + 1)
        accuracy = (top.confidence + gap[place]).clamp(least, 1 - least)
        return accuracy, above - gap[place], above - of_others

    def normals(self, codes: Tensor, times: int, rng: np.random.Generator) -> Tensor:
        """Draw the normal numbers behind the outcomes of samples, (times, n), from the clusters that these are in."""
        codes = codes.unique(return_inverse=True)[1]
        common = torch.from_numpy(rng.standard_normal((times, int(codes.max()) + 1), dtype=np.float32)).to(codes.device)
        own = torch.from_numpy(rng.standard_normal((times, len(codes)), dtype=np.float32)).to(codes.device)
        latent = self.latent_correlation
        return own.mul_(math.sqrt(1 - latent)).add_(common.mul_(math.sqrt(latent))[:, codes])

    def draw_right(self, place: Tensor, size: int, times: int, rng: np.random.Generator) -> Tensor:
        """Draw the weight of right samples at each place, (times, size), were the confidences calibrated.

        Args:
            place: Place of each sample, (n,).
            size: Number of places.
            times: Number of draws.
            rng: Source of random numbers.
        """
        n = len(place)
        draws = times if n * times <= _DRAWN else max(_DRAWS_PER_BLOCK, min(times, _DRAWN // n))
        order = some_of_clusters(self.codes, n, rng)
        right = torch.zeros(times, size, dtype=torch.float64, device=place.device)
        for rows in blocks_of_clusters(self.codes, order, 1 if draws == times else _BLOCKS):
            codes, to = self.codes[rows], place[rows]
            quantile, mass = torch.special.ndtri(self.top.confidence[rows].clamp(0, 1)).float(), self.mass[rows]
            step = max(1, _TOGETHER // len(rows))
            drawn = torch.cat(
                [
                    sums_by(to, (self.normals(codes, min(step, draws - start), rng) < quantile) * mass, size)
                    for start in range(0, draws, step)
                ]
            )
            picked = torch.arange(times) if draws == times else torch.from_numpy(rng.integers(draws, size=times))
            right += drawn[picked.to(drawn.device)]
        return right


def sizes_of(clusters: Clusters | None, n: float) -> tuple[float, float]:
    """Return the effective number of clusters, and one more than the degrees of freedom of a variance from them.

    Both are n where samples are independent, as many of them.
    """
    return (n, n) if clusters is None else (clusters.number(), clusters.degrees() + 1)


def clusters_of_labels(samples: Predictions) -> Clusters | None:
    """Return the clusters that labels are drawn by: those of correctness or, if they show more, of class 0 of two.

    Images of one patient have one label. Where predictions differ, some of them are right and the others wrong.
    """
    clusters = Clusters.of(samples.top)
    if clusters is None or samples.n_classes > 2:
        return clusters
    top = TopLabel(samples.probs[:, 0].double(), samples.labels == 0, weights=samples.weights)
    of_class = Clusters(replace(top, clusters=samples.clusters), of_class=True)
    return max(clusters, of_class, key=lambda one: one.latent_correlation)


def squares_at(samples: Predictions | TopLabel, place: Tensor, size: int) -> Tensor:
    """Return the sum of squared weights at each place, (size,), as the noise of the samples there has it."""
    excess, clusters = EXACT.excess_of_heavy(samples), Clusters.of(samples.top)
    if clusters is not None:
        return clusters.squares(place, size) * excess
    return sums_by(place, samples.mass.square(), size) * excess


def effective_number_of(samples: Predictions | TopLabel) -> float | None:
    """Return how many independent samples of equal weight know as much; None where these samples are such."""
    clusters = Clusters.of(samples.top)
    if clusters is None:
        return None if samples.weights is None else samples.effective_size
    return clusters.effective_size()


def some_of_clusters(codes: Tensor, most: int, rng: np.random.Generator | None = None) -> Tensor:
    """Return at most so many samples, cluster by cluster: of many clusters all, of few large ones an equal number."""
    n, clusters = len(codes), int(codes.max()) + 1
    rng = np.random.default_rng(0) if rng is None else rng
    rank = torch.from_numpy(rng.permutation(clusters)).to(codes.device)
    if n <= most:
        return rank[codes].argsort(stable=True)
    order = torch.from_numpy(rng.permutation(n)).to(codes.device)
    order = order[rank[codes[order]].argsort(stable=True)]
    size = torch.bincount(codes)[rank.argsort()]
    in_cluster = torch.arange(n, device=codes.device) - (size.cumsum(0) - size).repeat_interleave(size)
    return order[in_cluster < max(2, most // min(clusters, _MANY))][:most]


def blocks_of_clusters(codes: Tensor, order: Tensor, blocks: int) -> tuple[Tensor, ...]:
    """Split samples that are ordered by cluster into about so many blocks of about one size, none within a cluster."""
    ends = torch.cat([codes[order].diff().nonzero()[:, 0].cpu() + 1, torch.tensor([len(order)])])
    wanted = torch.arange(1, blocks) * len(order) // blocks
    cuts = ends[torch.searchsorted(ends, wanted)].unique()
    return order.tensor_split(cuts[cuts < len(order)])


def projection_of(predictions: Predictions | TopLabel) -> Tensor:
    """Return a number for the outputs of each sample, (n,), which different ones have by chance only."""
    if isinstance(predictions, TopLabel):
        return predictions.log_odds
    generator = torch.Generator().manual_seed(_PROJECTION_SEED)
    weights = torch.rand(1, predictions.n_classes, generator=generator, dtype=torch.float64)
    blocks = row_blocks(len(predictions), _NUMBERS // predictions.n_classes)
    return torch.cat([row_products(predictions.logits[rows].double(), weights) for rows in blocks])


def copies_in(samples: Predictions | TopLabel) -> int:
    """Count the samples that repeat the outputs of another one, and whether it is right, more often than by chance.

    A model with few different outputs, such as a tree, gives different samples the same ones. As many of these then
    differ in whether they are right as samples of their confidence do; of copies none does.

    Example:
        >>> samples = TopLabel([0.55, 0.6, 0.65, 0.7, 0.75] * 4, [True, False, True, True, False] * 4)
        >>> copies_in(samples), copies_in(TopLabel([0.6] * 20, [True] * 12 + [False] * 8))
        (0, 0)
        >>> copies_in(TopLabel([0.55, 0.6, 0.65, 0.7, 0.75] * 40, [True, False, True, True, False] * 40))
        195
    """
    if samples.n_clusters is not None:
        return 0
    keys, order = projection_of(samples).sort()
    of_same = torch.cat([torch.zeros_like(order[:1]), (keys.diff() != 0).cumsum(0)])
    place, right = bin_index(samples.top.confidence, 15)[order], samples.top.correct.double()[order]
    accuracy = torch.bincount(place, right) / torch.bincount(place).clamp(min=1)
    sizes, hits = torch.bincount(of_same), torch.bincount(of_same, right)
    others = sizes - 1
    share = torch.bincount(of_same, accuracy[place]) / sizes
    expected, seen = float((2 * others * share * (1 - share)).sum()), float((2 * hits * (sizes - hits) / sizes).sum())
    is_alike = (hits == 0) | (hits == sizes)
    return int(others[is_alike].sum()) if expected >= _DIFFERENCES and seen <= expected / _DIFFERENCES else 0
