"""Two ways to draw the data again.

The bootstrap asks how a number would have varied with other rows from the same source. Consistency resampling asks what
it would have been had the model been calibrated: the answers are drawn anew from the model's own probabilities.
Both work on states: ranked answers for what concerns the top label, sums over groups of rows for the rest.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from calibrant.metrics.ranking import Ranked
from calibrant.predictions import Predictions

__all__ = ["bootstrap_ranked", "calibrated_labels", "calibrated_ranked"]

# Resamples worked on at a time, so that their states stay in cache.
_CHUNK = 50


def bootstrap_ranked(ranked: Ranked, resamples: int, seed: int) -> Iterator[Ranked]:
    """Ranked answers drawn again with replacement, some resamples at a time."""
    rng = np.random.default_rng([seed, 1])
    device = ranked.right.device
    counts = torch.cat([ranked.right, ranked.wrong]).double().cpu().numpy()
    n, shares = round(counts.sum()), counts / counts.sum()
    for size in _chunks(resamples):
        drawn = torch.from_numpy(rng.multinomial(n, shares, size=size)).to(device, torch.float64)
        right, wrong = drawn.chunk(2, dim=1)
        yield Ranked(ranked.log_odds, ranked.confidence, right, wrong)


def calibrated_ranked(ranked: Ranked, resamples: int, seed: int) -> Iterator[Ranked]:
    """The same confidences with correctness drawn from them, some resamples at a time."""
    rng = np.random.default_rng([seed, 2])
    total = ranked.total.long().cpu().numpy()
    confidence = ranked.confidence.double().clamp(0, 1).cpu().numpy()
    for size in _chunks(resamples):
        drawn = rng.binomial(total, confidence, size=(size, len(total)))
        right = torch.from_numpy(drawn).to(ranked.right.device, torch.float64)
        yield Ranked(ranked.log_odds, ranked.confidence, right, ranked.total - right)


def calibrated_labels(block: Predictions, resamples: int, rng: np.random.Generator) -> Tensor:
    """Labels drawn from the predicted probabilities, (resamples, n)."""
    cumulative = block.probs.double().cumsum(dim=1)
    # Scaled by the last entry, which rounding leaves a hair off one: no draw can fall past the last class.
    drawn = torch.from_numpy(rng.random((len(block), resamples))).to(cumulative.device) * cumulative[:, -1:]
    return torch.searchsorted(cumulative, drawn, right=True).clamp_(max=block.n_classes - 1).T


def _chunks(total: int) -> Iterator[int]:
    for start in range(0, total, _CHUNK):
        yield min(_CHUNK, total - start)
