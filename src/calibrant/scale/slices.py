"""Sums over the samples of every value of some columns, gathered in the same pass as those of all samples.

A slice has what its line of a report needs: bins of confidence by group of samples, whose redrawing is the bootstrap;
the counts at some 4,000 levels of confidence, for the noise floor and the ranks; and a few sums by group. That is
350 kB, twice that of two classes, and less where there are many slices, which then have fewer groups.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from typing import Any, Self, final

import torch
from torch import Tensor

from calibrant.evidence.estimates import Estimate, Levels, draw_correctness, estimate_groups, estimate_ranked
from calibrant.labels import Words
from calibrant.metrics import states
from calibrant.metrics.base import RankMetric
from calibrant.numerics.binning import bin_index
from calibrant.predictions import Predictions, TopLabel
from calibrant.scale.risk import ranked_at_means
from calibrant.slices import GapSums, GapToRest, check_few_values, gap_terms, gap_to_rest, slice_metrics

_CELLS = states.RankedCells(4096)
_MOST_NUMBERS, _FEWEST_GROUPS = 1 << 23, 16  # in the bins by group; more slices have fewer groups


@final
class SliceSums:
    """Sums over the samples of each slice, a row of every field, in the order in which slices were seen."""

    def __init__(self, n_bins: int, groups: int, *, of_all_classes: bool, weighted: bool) -> None:
        self._n_bins, self.groups, self.weighted = n_bins, groups, weighted
        self.rows: dict[tuple[str, str], int] = {}  # by column and value
        self.metrics = [
            replace(metric, ranks=_CELLS) if isinstance(metric, RankMetric) else metric
            for metric in slice_metrics(n_bins, of_all_classes=of_all_classes)
        ]
        self.averaged = [metric.statistic for metric in self.metrics if isinstance(metric.statistic, states.Averaged)]
        self.sums = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in self._shapes().items()}

    def _shapes(self) -> dict[str, tuple[int, ...]]:  # field, slice, ...
        return {
            "gap": (len(GapSums._fields), len(self.rows)),
            "level": (5 if self.weighted else 3, len(self.rows), _CELLS.cells + self._n_bins),
            "average": (len(self.averaged), len(self.rows), self.groups),
            "moments": (len(fields(states.BinMoments)), len(self.rows), self.groups, self._n_bins),
        }

    def add(self, samples: Predictions | TopLabel, group: Tensor, columns: Mapping[str, Words]) -> Tensor:
        """Add samples, given the group of each and the columns to slice by; return the row of each, (n, columns)."""
        top, weights = samples.top, samples.mass
        soft = [one.per_sample(states.full_predictions(samples).softmax_rows(one.wanted)) for one in self.averaged]
        confidence, correct, squares = top.confidence.double(), top.correct.double(), weights.square()
        right, summed = weights * correct, weights * confidence
        numbers = {
            "gap": [torch.ones_like(weights), *gap_terms(confidence, correct, weights)],
            "level": [weights, right, summed, squares, squares * correct][: len(self.sums["level"])],
            "average": [values * weights for values in soft],
            "moments": [weights, summed, right, squares, summed * confidence, summed * correct],  # as in BinMoments
        }
        bins = bin_index(top.confidence, self._n_bins).long()
        level = _CELLS.cell_of(top.log_odds) + bins  # both rise: an edge of the bins cuts no level
        rows = torch.stack([self._rows_of(name, words) for name, words in columns.items()], dim=1)
        for row in rows.unbind(1):
            in_group = row * self.groups + group % self.groups
            places = (row, row * (_CELLS.cells + self._n_bins) + level, in_group, in_group * self._n_bins + bins)
            for (name, terms), place in zip(numbers.items(), places, strict=True):
                for sums, values in zip(self.sums[name], terms, strict=True):
                    sums.view(-1).index_add_(0, place, values)
        return rows

    def _rows_of(self, column: str, words: Words) -> Tensor:
        """Return the row of each sample's slice."""
        seen = torch.bincount(words.codes, minlength=len(words.distinct)).tolist()
        self._open([(column, word) for word, count in zip(words.distinct, seen, strict=True) if count])
        return torch.tensor([self.rows.get((column, word), -1) for word in words.distinct])[words.codes]

    def _open(self, slices: Collection[tuple[str, str]]) -> None:
        """Make a row for each slice that has none, and join groups until those of all slices are few enough."""
        for one in slices:
            self.rows.setdefault(one, len(self.rows))
        new, groups = len(self.rows) - self.sums["gap"].shape[1], self.groups
        if not new:
            return
        for column, number in Counter(column for column, _ in self.rows).items():
            check_few_values(column, number)
        size = len(self.rows) * self._n_bins * len(fields(states.BinMoments))
        while groups > _FEWEST_GROUPS and groups * size > _MOST_NUMBERS:
            groups //= 2
        self._join_groups(groups)
        for name, numbers in self.sums.items():
            more = numbers.new_zeros(len(numbers), new, *numbers.shape[2:])
            self.sums[name] = torch.cat([numbers, more], dim=1)

    def _join_groups(self, groups: int) -> None:
        for name in ("average", "moments") if groups < self.groups else ():
            self.sums[name] = self.sums[name].unflatten(2, (-1, groups)).sum(2)
        self.groups = groups

    def merge(self, other: Self) -> Tensor:
        """Add the samples of other slices; return the row here of each of its rows."""
        self._open(other.rows)
        other._join_groups(self.groups)  # here are at least these slices, and so at most as many groups
        rows = torch.tensor([self.rows[one] for one in other.rows], dtype=torch.int64)
        for name, numbers in other.sums.items():
            self.sums[name].index_add_(1, rows, numbers)
        return rows

    def rows_of(self, column: str) -> list[int]:
        """Return the rows of the slices by a column."""
        return [row for (own, _), row in self.rows.items() if own == column]

    def to_rest(self, row: int) -> GapToRest:
        """Compare the mean gap of a slice with that of all other samples."""
        column = next(own for (own, _), place in self.rows.items() if place == row)
        others = [place for place in self.rows_of(column) if place != row]
        gaps = (self.sums["gap"][:, row], self.sums["gap"][:, others].sum(1))
        return gap_to_rest(*(GapSums(*numbers.tolist()) for numbers in gaps))

    def ranked_cells(self, row: int) -> dict[str, Any]:
        """Return the samples of one slice ranked by cells, and the edges of these, which are no edges of bins.

        Rounded confidences lie on edges of bins, and a threshold there would leave open on which side.
        """
        level, cells = self.sums["level"][:, row], _CELLS.cells
        lowest = states.Cells(*torch.ones(4, cells)).edges[0]
        first = torch.arange(cells) + bin_index(lowest, self._n_bins)  # level of every cell
        cell = torch.searchsorted(first, torch.arange(level.shape[1]), right=True) - 1
        total, right, confidence, *squares = level.new_zeros(len(level), cells).index_add_(1, cell, level)
        edges, seen = states.Cells(total, right, confidence, total).edges, total > 0
        mean = (confidence / total)[seen]
        weights = dict(zip(("squared_weights", "squared_right"), (part[seen] for part in squares), strict=False))
        return {"ranked": states.Ranked(mean, mean, right[seen], (total - right)[seen], **weights), "edges": edges}

    def document(self) -> dict[str, Any]:
        """Return what :meth:`restore` needs to know besides the sums."""
        return {"slices": list(self.rows), "groups": self.groups}

    def restore(self, document: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Take over other slices."""
        self.rows = {(column, value): row for row, (column, value) in enumerate(document["slices"])}
        self.groups = int(document["groups"])
        self.sums = {name: tensors[name] for name in self.sums}
        for name, shape in self._shapes().items():
            if self.sums[name].shape != shape:
                raise ValueError(f"slices.{name}")


def estimate_slice(sums: SliceSums, row: int, draws: Tensor, *, seed: int) -> dict[str, Estimate]:
    """Estimate the metrics of one slice, given how often each group is drawn, (resamples, groups)."""
    moments = states.BinMoments(*sums.sums["moments"][:, row])
    one, n_bins = moments.in_one_bin(), moments.count.shape[-1]
    averages = sums.sums["average"][:, row]
    groups: dict[states.Statistic, states.Sums] = {
        states.Binned(n_bins): moments.bins, states.Binned(1): one.bins, states.BinnedMoments(1): one,
        **{of: states.Average(one.count[..., 0], total) for of, total in zip(sums.averaged, averages, strict=True)},
    }  # fmt: skip
    level = sums.sums["level"][:, row]
    total, right, confidence, *squares = level[:, level[0] > 0]
    ranked = ranked_at_means((confidence / total).clamp(0, 1), right, total - right, *squares)
    values = {
        metric.name: float(
            metric.value(ranked if isinstance(metric, RankMetric) else groups[metric.statistic].unstacked())
        )
        for metric in sums.metrics
    }
    by_formula = [m for m in sums.metrics if isinstance(m, RankMetric) or m.interval_method == "wilson"]
    resampled = [metric for metric in sums.metrics if metric not in by_formula]
    resamples = len(draws)
    no_draws = Levels(ranked, iter(()))
    estimates = estimate_ranked(by_formula, values, ranked, lambda _: no_draws, resamples=resamples, seed=seed)
    null: dict[str, list[Tensor]] = {}
    for calibrated in draw_correctness(ranked, resamples, seed):
        for metric in resampled:
            if isinstance(metric.statistic, states.TopStatistic) and metric.family == "calibration":
                null.setdefault(metric.name, []).append(metric.value(metric.statistic.of_ranked(calibrated)))
    drawn = {name: torch.cat(parts) for name, parts in null.items()}
    estimates |= estimate_groups(resampled, values, groups.__getitem__, draws, n=float(ranked.effective_n), null=drawn)
    return {metric.name: estimates[metric.name] for metric in sums.metrics}
