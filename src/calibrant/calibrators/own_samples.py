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

# Samples of the first look, and of a second one where the first shows something worse: those that hold so many numbers,
# but no fewer and no more than these. Of very many samples a share is looked at from the start: little beside any fit.
_FIRST, _SECOND = (1 << 14, 100, 500), (1 << 16, 500, 10_000)
_SHARE = 256
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

    Of many samples a few hundred are looked at first, and some thousands only if a score is worse on those. So the
    comparison costs little beside the fit.

    Args:
        predictions: The samples that the map was fitted on.
        apply: The map: logits (m, k), and the places of these samples among all, to logits.
    """
    n, k = len(predictions), predictions.n_classes
    few, many = (min(most, max(fewest, numbers // k)) for numbers, fewest, most in (_FIRST, _SECOND))
    few = min(many, max(few, n // _SHARE))
    drawn = torch.randint(n, (many,), generator=torch.Generator().manual_seed(0)).to(predictions.logits.device)
    scores = _scores(predictions, slice(None) if n <= few else drawn[:few], apply)
    nll, brier, accuracy = (scores[1] - scores[0]).mean(axis=1)
    if few < min(n, many) and (nll > 0 or brier > 0 or accuracy < 0):
        if n <= many:
            scores = _scores(predictions, slice(None), apply)
        else:
            scores = np.concatenate([scores, _scores(predictions, drawn[few:], apply)], axis=2)
    return _compared(scores)


def _scores(
    predictions: Predictions, places: slice | Tensor, apply: Callable[[Tensor, slice | Tensor], Tensor]
) -> NDArray[np.float64]:
    """Log-loss, Brier score and correctness of some samples, without the map and with it, (2, 3, m)."""
    given, labels = predictions.logits[places], predictions.labels[places]
    logits = torch.stack([working(given), working(apply(given, places))])
    correct = [argmax_rows(each) == labels for each in logits]  # the first class wins a tie
    gaps = logits.sub_(logits.amax(dim=2, keepdim=True))
    label_gap = gaps.gather(2, labels.expand(2, -1)[:, :, None])[:, :, 0].double().cpu().numpy()
    powers = gaps.exp_()
    total = powers.sum(dim=2).double().cpu().numpy()
    squares = powers.square_().sum(dim=2).double().cpu().numpy()
    scores = np.empty((2, 3, total.shape[1]))
    np.subtract(np.log(total), label_gap, out=scores[:, 0])
    if predictions.given_as_probs:
        scores[:, 0].clip(max=-math.log(LABEL_FLOOR), out=scores[:, 0])
    scores[:, 1] = squares / total**2 - 2 * np.exp(label_gap) / total + 1
    scores[:, 2] = torch.stack(correct).cpu().numpy()
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
