"""A map on the very samples it was fitted on, before and after: no fit makes things worse in silence.

On its own samples a map should look better than it is. One that is worse there, by a proper score or by more than a
point of accuracy, was fitted to something else than probabilities, or the search for it failed.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibrant.numerics.fast import argmax_rows
from calibrant.numerics.precision import working
from calibrant.predictions import LABEL_FLOOR, Predictions

__all__ = ["Compared", "compare_on_own_samples"]

# Samples, and numbers, that a first look takes: little beside the fastest fit.
_FEW_SAMPLES, _FEW_NUMBERS = 500, 1 << 15
_NUMBERS = 1 << 20  # at once
_SURE = 2.0  # standard errors of the paired difference
_ROUNDING = 1e-5  # relative rise of a score that is not worth a word
_WORSE = 1e-3  # relative rise of a score that is worth a warning
_POINT = 0.01
_TITLES = {"nll": "log-loss", "brier": "Brier score", "accuracy": "accuracy"}


class Compared(NamedTuple):
    """Scores before and after, and what to say about them.

    Args:
        samples: How many they are means over.
        before: ``nll``, ``brier`` and ``accuracy`` without the map.
        after: The same with it.
        note: What became worse, or None.
        is_serious: Whether that is beyond noise, so that it should be a warning.
    """

    samples: int
    before: dict[str, float]
    after: dict[str, float]
    note: str | None
    is_serious: bool


@torch.no_grad()
def compare_on_own_samples(predictions: Predictions, apply: Callable[[Tensor, slice | Tensor], Tensor]) -> Compared:
    """Compare log-loss, Brier score and accuracy with and without a map.

    Of many samples at most 500 are looked at first, and all of them only if those leave it open whether something has
    become worse. So the comparison costs little beside the fit.

    Args:
        predictions: The samples that the map was fitted on.
        apply: The map: logits (m, k), and the places of these samples among all, to logits.
    """
    n, few = len(predictions), min(_FEW_SAMPLES, max(100, _FEW_NUMBERS // predictions.n_classes))
    if n > few:
        places = torch.randint(n, (few,), generator=torch.Generator().manual_seed(0)).to(predictions.logits.device)
        scores = _scores(predictions, places, apply)
        change = scores[1] - scores[0]
        bound = change.mean(axis=1) + _SURE * _spread(change) / math.sqrt(few) * (1, 1, -1)
        if bound[0] < 0 and bound[1] < 0 and bound[2] > -_POINT:
            return _compared(scores)
    step = max(1, _NUMBERS // predictions.n_classes)
    parts = [_scores(predictions, slice(start, start + step), apply) for start in range(0, n, step)]
    return _compared(np.concatenate(parts, axis=2))


def _scores(
    predictions: Predictions, places: slice | Tensor, apply: Callable[[Tensor, slice | Tensor], Tensor]
) -> NDArray[np.float64]:
    """Log-loss, Brier score and correctness of some samples, without the map and with it, (2, 3, m)."""
    given, labels = predictions.logits[places], predictions.labels[places]
    logits = torch.stack([working(given), working(apply(given, places))])
    gaps = logits - logits.amax(dim=2, keepdim=True)
    powers = gaps.exp()
    total = powers.sum(dim=2)
    label_gap = gaps.gather(2, labels.expand(2, -1)[:, :, None])[:, :, 0]
    nll = total.log() - label_gap
    if predictions.given_as_probs:
        nll.clamp_(max=-math.log(LABEL_FLOOR))
    brier = powers.square_().sum(dim=2) / total.square() - 2 * label_gap.exp() / total + 1
    correct = torch.stack([argmax_rows(each) == labels for each in logits])  # the first class wins a tie
    scores: NDArray[np.float64] = torch.stack([nll, brier, correct.to(nll)], dim=1).double().cpu().numpy()
    return scores


def _spread(change: NDArray[np.float64]) -> NDArray[np.float64]:
    """Standard deviation of each line, (3, m) -> (3,), of numbers whose squares may overflow."""
    largest = np.abs(change).max(axis=1, keepdims=True).clip(min=np.finfo(np.float64).tiny)
    spread: NDArray[np.float64] = (change / largest).std(axis=1) * largest[:, 0]
    return spread


def _compared(scores: NDArray[np.float64]) -> Compared:
    change, n = scores[1] - scores[0], scores.shape[2]
    was, now = (dict(zip(_TITLES, each.mean(axis=1).tolist(), strict=True)) for each in scores)
    # One sample has no spread, and whatever it says is noise.
    noise = dict(zip(_TITLES, _spread(change) / math.sqrt(n) if n > 1 else np.full(3, np.inf), strict=True))
    rises = {key: now[key] - was[key] for key in ("nll", "brier")}
    worse = [key for key, rise in rises.items() if rise > _ROUNDING * max(was[key], _POINT)]
    serious = any(rise > max(_WORSE * was[key], _SURE * noise[key]) for key, rise in rises.items())
    if now["accuracy"] < was["accuracy"] - _POINT:
        worse.append("accuracy")
        serious = True
    note = None
    if worse:
        numbers = ", ".join(f"{_TITLES[key]} {was[key]:.4g} to {now[key]:.4g}" for key in worse)
        note = f"the map is worse than no calibration on the samples it was fitted on: {numbers}."
        if serious:
            note += " Compare it with other methods on other samples before you use it."
    return Compared(n, was, now, note, serious)
