"""Binned calibration error as a function of the temperature: on a grid, and its lowest value."""

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from calibrant.numerics.binning import bin_index, sums_by

__all__ = ["LowestError", "errors_at_temperatures", "excess_in_bins", "lowest_error", "top_confidences"]

# Numbers in a block: few enough to stay in a processor's cache for all temperatures, or many enough to fill a GPU.
_BLOCK, _BLOCK_ON_GPU = 1 << 18, 1 << 26


def errors_at_temperatures(logits: Tensor, labels: Tensor, temperatures: Tensor, *, n_bins: int) -> Tensor:
    """Mean gap between confidence and accuracy over equal-width bins, at each temperature.

    Args:
        logits: Shape (n, k).
        labels: Shape (n,).
        temperatures: Above 0, (t,).
        n_bins: Number of bins of confidence.

    Returns:
        Shape (t,), float64.
    """
    excess = torch.zeros(len(temperatures), n_bins, dtype=torch.float64, device=logits.device)
    for block, of_rows in zip(*(part.split(_rows_in_a_block(logits)) for part in (logits, labels)), strict=True):
        correct = (block.argmax(dim=1) == of_rows).float()
        excess += excess_in_bins(top_confidences(block, temperatures), correct, n_bins=n_bins)
    return excess.abs().sum(dim=1) / len(logits)


def top_confidences(logits: Tensor, temperatures: Tensor) -> Tensor:
    """Probability of the top class at each temperature, (t, n), in the logits' precision and no lower than float32.

    Args:
        logits: Shape (n, k).
        temperatures: Above 0, (t,).
    """
    dtype = torch.float64 if logits.dtype == torch.float64 else torch.float32
    scales = (math.log2(math.e) / temperatures.double()).tolist()
    found = torch.empty(len(scales), len(logits), dtype=dtype, device=logits.device)
    size = _rows_in_a_block(logits)
    for block, out in zip(logits.split(size), found.split(size, dim=1), strict=True):
        gaps = block.to(dtype)
        gaps = gaps - gaps.amax(dim=1, keepdim=True)
        powers = torch.empty_like(gaps)
        for place, scale in enumerate(scales):
            torch.exp2(torch.mul(gaps, scale, out=powers), out=powers)
            out[place] = powers.sum(dim=1).reciprocal_()
    return found


def excess_in_bins(confidences: Tensor, correct: Tensor, *, n_bins: int) -> Tensor:
    """Sum of confidence minus that of right answers in each bin, (t, n_bins) in float64.

    Args:
        confidences: Shape (t, n).
        correct: 1 where the answer is right, else 0, (n,).
        n_bins: Number of bins of confidence.
    """
    sums = [sums_by(bin_index(each, n_bins), each - correct, n_bins) for each in confidences]
    return torch.stack(sums)


def _rows_in_a_block(logits: Tensor) -> int:
    return max(1, (_BLOCK if logits.device.type == "cpu" else _BLOCK_ON_GPU) // logits.shape[1])


# Times the smallest and the largest gap between the top logit and another. Beyond, no confidence changes any more.
_COLDEST, _HOTTEST = 1 / 64, 1e6
_LEAST_GAP = 1e-30  # what is smaller overflows where it divides
_POINTS, _MOST_ROUNDS = 16, 12
_WORTH_A_ROUND = 0.7  # what it leaves of the temperatures there were, or it is the last
_KNOT, _MOST_KNOTS = 0.003, 128  # factors apart, between which confidences are straight up to some 1e-6
_STEPS = 512  # from knot to knot
_BEST, _BESIDE = 5, 3  # places between knots that are worked out in full, and steps to either side


class LowestError(NamedTuple):
    """The error, and the temperature that has it."""

    error: float
    temperature: float


def lowest_error(logits: Tensor, labels: Tensor, *, also: Iterable[float] = (), n_bins: int) -> LowestError:
    """Search all temperatures for the lowest mean gap between confidence and accuracy over equal-width bins.

    Whatever the scale of the logits, a temperature is left out only where it cannot have a lower one. The others are
    tried in steps of 1e-5 of a temperature, coarser where the lowest error is large (beyond some 0.1). What may be
    missed are rows that pass between two bins within a step, of 2 / n each.

    Args:
        logits: Shape (n, k), finite.
        labels: Shape (n,).
        also: Temperatures to try beside 1, so that theirs are not lower by rounding.
        n_bins: Number of bins of confidence.

    Example:
        >>> found = lowest_error(torch.tensor([[0.0, 3.0], [0.0, 3.0], [0.0, 3.0]]), torch.tensor([1, 1, 0]), n_bins=15)
        >>> f"{found.error:.4f} at {found.temperature:.2f}"  # where the three have a confidence of two thirds
        '0.0000 at 4.33'
    """
    correct = (logits.argmax(dim=1) == labels).float()
    accuracy, best = float(correct.double().mean()), LowestError(math.inf, math.nan)

    def confidences_at(temperatures: Tensor) -> Tensor:
        nonlocal best
        confidences = top_confidences(logits, temperatures)
        errors = excess_in_bins(confidences, correct, n_bins=n_bins).abs().sum(dim=1) / len(logits)
        lowest = int(errors.argmin())
        if errors[lowest] < best.error:
            best = LowestError(float(errors[lowest]), float(temperatures[lowest]))
        return confidences

    confidences_at(torch.tensor([1.0, *also], dtype=torch.float64))
    low, high = _ends(logits)
    for _ in range(_MOST_ROUNDS):
        tried, width = _by_factors(low, high, _POINTS), math.log(high / low)
        mean = confidences_at(tried).mean(dim=1, dtype=torch.float64)
        within = ((mean[:-1] > accuracy - best.error) & (mean[1:] < accuracy + best.error)).nonzero()[:, 0].tolist()
        if not within:
            return best
        low, high = float(tried[within[0]]), float(tried[within[-1] + 1])
        if math.log(high / low) > _WORTH_A_ROUND * width:
            break
    knots = _by_factors(low, high, min(_MOST_KNOTS, 2 + int(math.log(high / low) / _KNOT)))
    errors = torch.stack([_errors_between(*ends, correct, n_bins=n_bins) for ends in pairwise(confidences_at(knots))])
    lowest = errors.min(dim=1)
    chosen = lowest.values.topk(min(_BEST, len(errors)), largest=False).indices
    place = (chosen + lowest.indices[chosen] / (_STEPS - 1)).cpu().double()[:, None]
    place = place + torch.arange(-_BESIDE, _BESIDE + 1) / (_STEPS - 1)
    confidences_at(torch.exp(knots[0].log() + place.flatten() * (knots[1] / knots[0]).log()))
    return best


def _ends(logits: Tensor) -> tuple[float, float]:
    """The least and the largest temperature that differ from their neighbours in any confidence."""
    gaps = logits.amax(dim=1, keepdim=True) - logits
    largest = float(gaps.max())
    smallest = min(largest, float(gaps.masked_fill_(gaps == 0, math.inf).min()))
    return max(smallest, _LEAST_GAP) * _COLDEST, max(largest, _LEAST_GAP) * _HOTTEST


def _by_factors(low: float, high: float, points: int) -> Tensor:
    return torch.linspace(math.log(low), math.log(high), points, dtype=torch.float64).exp()


def _errors_between(before: Tensor, after: Tensor, correct: Tensor, *, n_bins: int) -> Tensor:
    """Errors times rows at steps from one temperature to another, over which each confidence falls on a straight line.

    Rows that stay in their bin are summed up once, since their sum falls on a straight line too.
    """
    steps = torch.linspace(0, 1, _STEPS, dtype=before.dtype, device=before.device)[:, None]
    index = bin_index(before, n_bins)
    moves = index != bin_index(after, n_bins)
    first, last = (sums_by(index[~moves], (end - correct)[~moves], n_bins) for end in (before, after))
    moving = torch.lerp(before[moves], after[moves], steps)
    places = bin_index(moving, n_bins) + n_bins * torch.arange(_STEPS, device=before.device, dtype=torch.int32)[:, None]
    excess = sums_by(places.flatten(), (moving - correct[moves]).flatten(), n_bins * _STEPS).view(_STEPS, n_bins)
    return (excess + torch.lerp(first, last, steps.double())).abs().sum(dim=1)
