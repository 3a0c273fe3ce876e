"""Two ways to draw the data again.

The bootstrap asks how a number would have varied with other rows from the same source. Consistency resampling asks what
it would have been had the model been calibrated: the answers are drawn anew from the model's own probabilities.
Both work on states: ranked answers for what concerns the top label, sums over groups of rows for the rest.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from calibrant.evidence.groups import GroupDraws
from calibrant.metrics.ranking import Ranked
from calibrant.predictions import Predictions

__all__ = ["bootstrap_ranked", "calibrated_labels", "calibrated_ranked"]

# Resamples worked on at a time, so that their states stay in cache.
_CHUNK = 250


def bootstrap_ranked(ranked: Ranked, place: Tensor, correct: Tensor, draws: GroupDraws) -> Iterator[Ranked]:
    """Ranked answers drawn again with replacement, some resamples at a time.

    Args:
        ranked: The answers, m entries.
        place: The entry of every sample, (n,).
        correct: Whether each was right, (n,), bool.
        draws: Groups of the samples, and how often each group is drawn.
    """
    m, groups = len(ranked.confidence), draws.weights.shape[1]
    cell = (draws.group.to(place.device) * 2 + ~correct) * m + place
    counts = torch.bincount(cell, minlength=2 * groups * m).double().view(groups, 2 * m)
    for chunk in draws.weights.to(place.device).split(_CHUNK):
        right, wrong = (chunk @ counts).chunk(2, dim=1)
        yield Ranked(ranked.log_odds, ranked.confidence, right, wrong)


def calibrated_ranked(ranked: Ranked, resamples: int, seed: int) -> Iterator[Ranked]:
    """The same confidences with correctness drawn from them, some resamples at a time."""
    rng = np.random.default_rng([seed, 2])
    total, confidence = ranked.total.long().tolist(), ranked.confidence.double().clamp(0, 1).tolist()
    # Entry by entry: what numpy prepares for a binomial serves all draws of it.
    drawn = np.stack([rng.binomial(n, p, size=resamples) for n, p in zip(total, confidence, strict=True)], axis=1)
    for right in torch.from_numpy(drawn).to(ranked.right.device, torch.float64).split(_CHUNK):
        yield Ranked(ranked.log_odds, ranked.confidence, right, ranked.total - right)


def calibrated_labels(block: Predictions, resamples: int, rng: np.random.Generator) -> Tensor:
    """Labels drawn from the predicted probabilities, (resamples, n)."""
    cumulative = block.probs.double().cumsum(dim=1)
    # Scaled by the last entry, which rounding leaves a hair off one: no draw can fall past the last class.
    drawn = torch.from_numpy(rng.random((len(block), resamples))).to(cumulative.device) * cumulative[:, -1:]
    return torch.searchsorted(cumulative, drawn, right=True).clamp_(max=block.n_classes - 1).T
