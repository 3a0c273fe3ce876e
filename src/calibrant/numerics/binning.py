"""Numbers in 0..1: bins of equal width, smoothing, and the binned calibration error at each temperature."""

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from calibrant.numerics.softmax import working_dtype

ON_THE_EDGE = 2.0**-22
_BATCH = 1 << 16  # numbers on a GPU up to which bincount, which waits for the device, costs more than it saves
_FEW = 1024  # columns up to which a matrix product sums by bin faster than one sum per bin


def bin_index(values: Tensor, n_bins: int) -> Tensor:
    """Return the bin of each number in 0..1, as int32 (which counts twice as fast as int64).

    Example:
        >>> bin_index(torch.tensor([0.0, 0.1, 0.2, 0.21, 1.0]), 10).tolist()
        [0, 0, 1, 2, 9]
    """
    return (values - ON_THE_EDGE).mul_(n_bins).ceil_().sub_(1).clamp_(0, n_bins - 1).int()


def inner_edges(n_bins: int, device: torch.device | None = None) -> Tensor:
    """Return upper ends of all bins but the last, (n_bins - 1,), float64, consistent with :func:`bin_index`."""
    return torch.arange(1, n_bins, dtype=torch.float64, device=device) / n_bins + ON_THE_EDGE


def sums_by(index: Tensor, values: Tensor, size: int) -> Tensor:
    """Sum the last dimension of ``values`` (..., m) by ``index`` (m,), or (t, m) line by line: (..., size), float64."""
    if size == 1:
        return values.sum(-1, keepdim=True, dtype=torch.float64)
    if index.ndim == 2:
        places = index + size * torch.arange(len(index), dtype=index.dtype, device=index.device)[:, None]
        return sums_by(places.flatten(), values.flatten(), size * len(index)).view(len(index), size)
    is_batch = index.device.type != "cpu" and len(index) <= _BATCH
    if values.ndim == 1 and not is_batch and not (values.is_cuda and torch.are_deterministic_algorithms_enabled()):
        return torch.bincount(index, weights=values, minlength=size).double()
    sums = values.new_zeros((*values.shape[:-1], size), dtype=torch.float64)
    return sums.index_add_(-1, index, values.double())


def counts_by(index: Tensor, flag: Tensor, size: int, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Count each index, and each index with the flag set, (size,) each in float64, in one pass; or add up weights."""
    if size == 1 and weights is None:
        right = flag.count_nonzero().double()[None]
        return torch.full_like(right, len(flag)), right
    place = torch.add(flag.to(index.dtype), index, alpha=2)
    if weights is None and place.device.type != "cpu" and len(place) <= _BATCH:
        weights = torch.ones_like(place, dtype=torch.float64)
    if weights is None:
        counts = torch.bincount(place, minlength=2 * size).double().view(size, 2)
    else:
        counts = sums_by(place, weights, 2 * size).view(size, 2)
    return counts.sum(dim=1), counts[:, 1]


def bin_ends(rising: Tensor, n_bins: int) -> list[int]:
    """Return where each bin ends among rising numbers: bin b holds the positions ends[b] to ends[b + 1]."""
    edges = torch.arange(1, n_bins, dtype=rising.dtype, device=rising.device) / n_bins + ON_THE_EDGE
    inner: list[int] = torch.searchsorted(rising, edges, right=True).tolist()
    return [0, *inner, rising.shape[0]]


def sums_between(ends: list[int], values: Tensor) -> Tensor:
    """Sum the last dimension of ``values`` (..., m) between the ends, giving (..., len(ends) - 1)."""
    if values.ndim > 1 and values.shape[-1] <= _FEW:
        place = torch.arange(values.shape[-1], device=values.device)[:, None]
        edges = torch.tensor(ends, device=values.device)
        return values.double() @ ((place >= edges[:-1]) & (place < edges[1:])).double()
    return torch.stack([values[..., low:high].sum(-1, dtype=torch.float64) for low, high in pairwise(ends)], dim=-1)


_NEGLIGIBLE = 9.2  # beyond this argument exp(-x²/2) is below 2**-60


def cosine_transform(mass: Tensor) -> Tensor:
    """Return cosine coefficients of point masses at the nodes, (..., m) -> (..., m)."""
    # A mass inside 0..1 and its mirror image; the end nodes are their own mirror images and so count twice.
    mirrored = torch.cat([mass, mass[..., 1:-1].flip(-1)], dim=-1)
    mirrored[..., 0] *= 2
    mirrored[..., mass.shape[-1] - 1] *= 2
    return torch.fft.rfft(mirrored).real.contiguous()


def inverse_cosine_transform(coefficients: Tensor) -> Tensor:
    """Return the density at the nodes of masses with these coefficients, (..., m) -> (..., m)."""
    m = coefficients.shape[-1]
    # Point masses become a density on divided by the node spacing; half the mirrored circle is 0..1.
    return torch.fft.irfft(coefficients, n=2 * (m - 1))[..., :m] * (m - 1)


def damped_density(mass: Tensor, damping: Tensor) -> Tensor:
    """Return the density at the nodes of point masses smoothed by a kernel with this Fourier transform, (..., m)."""
    return inverse_cosine_transform(cosine_transform(mass) * damping).clamp(min=0)


def gaussian_sums(mass: Tensor, width: float) -> Tensor:
    """Sum the masses around every node, weighted by a Gaussian of height 1 that is not reflected, (..., m)."""
    m = mass.shape[-1]
    offsets = torch.arange(m, dtype=torch.float64, device=mass.device) / (m - 1)
    kernel = torch.exp(-(offsets / width).square() / 2)
    spectrum = torch.fft.rfft(torch.cat([kernel, kernel[1:-1].flip(-1)]))
    return torch.fft.irfft(torch.fft.rfft(mass, n=2 * (m - 1)) * spectrum, n=2 * (m - 1))[..., :m].clamp(min=0)


def gaussian_damping(width: Tensor, nodes: int) -> Tensor:
    """Return the Fourier transform of a Gaussian of this standard deviation, (...) -> (..., nodes)."""
    frequency = math.pi * torch.arange(nodes, dtype=torch.float64, device=width.device)
    return torch.exp(-(frequency * width[..., None]).square() / 2)


def integrate_smoothed(coefficients: Tensor, width: Tensor) -> Tensor:
    """Integrate the magnitude of a density with these cosine coefficients, smoothed by Gaussians of these widths.

    Equals :func:`integrate` of the magnitude at the nodes, in fewer passes.
    """
    m = coefficients.shape[-1]
    few = min(m, 2 + int(_NEGLIGIBLE / (math.pi * max(float(width.nan_to_num(1.0).min()), 1e-12))))  # NaN: no samples
    decay = torch.arange(few, dtype=torch.float64, device=width.device).mul_(math.pi).square_().div_(-2)
    damped = (width.square()[..., None] * decay).exp_() * coefficients[..., :few]
    # Half the sum over the mirrored circle, which holds the ends once and all else twice: the trapezoid rule.
    return torch.fft.irfft(damped, n=2 * (m - 1)).abs_().sum(dim=-1).div_(2)


def triweight_damping(width: Tensor, nodes: int) -> Tensor:
    """Return the Fourier transform of the triweight kernel of this standard deviation, (...) -> (..., nodes)."""
    reach = 3 * width  # the triweight on -1..1 has standard deviation 1/3
    x = math.pi * torch.arange(nodes, dtype=torch.float64, device=width.device) * reach[..., None]
    # 105/x^7 ((15 - 6x^2) sin x - x (15 - x^2) cos x) with its Taylor series where that cancels.
    square = x * x
    exact = 105 * ((15 - 6 * square) * torch.sin(x) - x * (15 - square) * torch.cos(x)) / (square * square * square * x)
    series = 1 - square * (1 / 18 - square * (1 / 792 - square / 61776))
    return torch.where(x < 0.7, series, exact)


def integrate(values: Tensor) -> Tensor:
    """Integrate over 0..1 by the trapezoid rule, (..., m) -> (...)."""
    return 1 / (values.shape[-1] - 1) * (values.sum(dim=-1) - (values[..., 0] + values[..., -1]) / 2)


# Numbers in a block: few enough to stay in a processor's cache for all temperatures, or many enough to fill a GPU.
_BLOCK, _BLOCK_ON_GPU = 1 << 18, 1 << 26
_FEW_CLASSES = 16  # up to which sums over classes are faster with a class's numbers side by side


def errors_at_temperatures(
    logits: Tensor, labels: Tensor, temperatures: Tensor, *, n_bins: int, weights: Tensor | None = None
) -> Tensor:
    """Return the expected calibration error over equal-width bins at each temperature, (t,), float64."""
    size = len(logits) if weights is None else float(weights.sum())
    excess = torch.zeros(len(temperatures), n_bins, dtype=torch.float64, device=logits.device)
    step = _samples_in_a_block(logits)
    for start in range(0, len(logits), step):
        block, rows = logits[start : start + step], slice(start, start + step)
        correct = (block.argmax(dim=1) == labels[rows]).float()
        counts = None if weights is None else weights[rows]
        excess += excess_in_bins(top_confidences(block, temperatures), correct, n_bins=n_bins, weights=counts)
    return excess.abs().sum(dim=1) / size


def top_confidences(logits: Tensor, temperatures: Tensor) -> Tensor:
    """Return the top class's probability at each temperature, (t, n), in the logits' precision, at least float32."""
    scales = (math.log2(math.e) / temperatures.double()).to(logits.device, working_dtype(logits))[:, None, None]
    confidences = scales.new_empty(len(scales), len(logits))
    size = _samples_in_a_block(logits)
    for block, out in zip(logits.split(size), confidences.split(size, dim=1), strict=True):
        gaps = block.to(scales.dtype) - block.amax(dim=1, keepdim=True)
        gaps, classes = (gaps.T.contiguous(), 1) if gaps.shape[1] <= _FEW_CLASSES else (gaps, 2)
        lines = max(1, size // max(1, len(block)))  # temperatures at once: no more powers than numbers in a block
        for some, part in zip(scales.split(lines), out.split(lines), strict=True):
            torch.sum((gaps * some).exp2_(), dim=classes, out=part).reciprocal_()
    return confidences


def excess_in_bins(confidences: Tensor, correct: Tensor, *, n_bins: int, weights: Tensor | None = None) -> Tensor:
    """Return the sum of confidence (t, n) minus correctness (n,) in each bin, (t, n_bins) in float64."""
    lines, counts = max(1, _BLOCK // max(1, len(correct))), 1 if weights is None else weights
    parts = confidences.split(lines)
    return torch.cat([sums_by(bin_index(part, n_bins), (part - correct) * counts, n_bins) for part in parts])


def _samples_in_a_block(logits: Tensor) -> int:
    return max(1, (_BLOCK if logits.device.type == "cpu" else _BLOCK_ON_GPU) // logits.shape[1])


# Multiples of the smallest and the largest gap below the top logit beyond which no confidence changes.
_COLDEST, _HOTTEST = 1 / 64, 1e6
_LEAST_GAP = 1e-30  # smaller divisors overflow
_POINTS, _MOST_ROUNDS = 16, 12
_WORTH_A_ROUND = 0.7  # a round must narrow the range to this share, or it is the last
_KNOT, _MOST_KNOTS = 0.003, 128  # relative spacing, between which confidences are linear up to some 1e-6
_STEPS = 512  # from knot to knot
_BEST, _BESIDE = 5, 3  # places between knots that are evaluated exactly, and steps to either side


class LowestError(NamedTuple):
    """The lowest error, and its temperature."""

    error: float
    temperature: float


def lowest_error(
    logits: Tensor, labels: Tensor, *, also: Iterable[float] = (), n_bins: int, weights: Tensor | None = None
) -> LowestError:
    """Search all temperatures for the lowest expected calibration error over equal-width bins.

    Whatever the scale of the logits, a temperature is skipped only where it cannot have a lower error. The others are
    tried in relative steps of 1e-5, coarser where the lowest error is large (beyond some 0.1). Only samples that pass
    between two bins within a step can be missed, twice their share of all samples (or weights). The temperatures in
    ``also`` are tried beside 1, so that theirs are not lower by rounding.

    Example:
        >>> best = lowest_error(torch.tensor([[0.0, 3.0], [0.0, 3.0], [0.0, 3.0]]), torch.tensor([1, 1, 0]), n_bins=15)
        >>> f"{best.error:.4f} at {best.temperature:.2f}"  # where the three have a confidence of two thirds
        '0.0000 at 4.33'
    """
    correct, best = (logits.argmax(dim=1) == labels).float(), LowestError(math.inf, math.nan)
    size = len(logits) if weights is None else float(weights.sum())

    def mean_of(lines: Tensor) -> Tensor:
        return lines.mean(dim=-1, dtype=torch.float64) if weights is None else lines.double() @ weights / size

    accuracy = float(mean_of(correct))

    def confidences_at(temperatures: Tensor) -> Tensor:
        nonlocal best
        confidences = top_confidences(logits, temperatures)
        errors = excess_in_bins(confidences, correct, n_bins=n_bins, weights=weights).abs().sum(dim=1) / size
        lowest = int(errors.argmin())
        if errors[lowest] < best.error:
            best = LowestError(float(errors[lowest]), float(temperatures[lowest]))
        return confidences

    confidences_at(torch.tensor([1.0, *also], dtype=torch.float64))
    low, high = _ends(logits)
    for _ in range(_MOST_ROUNDS):
        tried, width = _by_factors(low, high, _POINTS), math.log(high / low)
        mean = mean_of(confidences_at(tried))
        within = ((mean[:-1] > accuracy - best.error) & (mean[1:] < accuracy + best.error)).nonzero()[:, 0].tolist()
        if not within:
            return best
        low, high = float(tried[within[0]]), float(tried[within[-1] + 1])
        if math.log(high / low) > _WORTH_A_ROUND * width:
            break
    knots = _by_factors(low, high, min(_MOST_KNOTS, 2 + int(math.log(high / low) / _KNOT)))
    lines = max(1, _BLOCK // max(n_bins * _STEPS, len(correct)))  # no array between them is larger than a block or line
    ends = confidences_at(knots)
    between = zip(ends[:-1].split(lines), ends[1:].split(lines), strict=True)
    errors = torch.cat([_errors_between(*pair, correct, n_bins=n_bins, weights=weights) for pair in between])
    lowest = errors.min(dim=1)
    chosen = lowest.values.topk(min(_BEST, len(errors)), largest=False).indices
    place = (chosen + lowest.indices[chosen] / (_STEPS - 1)).double()[:, None]
    place = place + torch.arange(-_BESIDE, _BESIDE + 1) / (_STEPS - 1)
    confidences_at(torch.exp(knots[0].log() + place.flatten() * (knots[1] / knots[0]).log()))
    return best


def _ends(logits: Tensor) -> tuple[float, float]:
    """Return the least and the largest temperature at which any confidence still changes."""
    gaps = logits.amax(dim=1, keepdim=True) - logits
    largest = float(gaps.max())
    smallest = min(largest, float(gaps.masked_fill_(gaps == 0, math.inf).min()))
    return max(smallest, _LEAST_GAP) * _COLDEST, max(largest, _LEAST_GAP) * _HOTTEST


def _by_factors(low: float, high: float, points: int) -> Tensor:
    return torch.linspace(math.log(low), math.log(high), points, dtype=torch.float64).exp()


def _errors_between(before: Tensor, after: Tensor, correct: Tensor, *, n_bins: int, weights: Tensor | None) -> Tensor:
    """Return errors, times samples or weights, at steps between temperatures, (t, n) -> (t, steps), on the CPU."""
    # Confidences are taken to be linear. So is the excess of a bin, until a sample leaves it for the bin below.
    index, steps = bin_index(before, n_bins), torch.linspace(0, 1, _STEPS, dtype=torch.float64)
    passed = (index - bin_index(after, n_bins)).clamp_(min=0).flatten()
    which = torch.repeat_interleave(passed)  # once for each edge that a sample passes
    edge = (index.flatten() + passed.cumsum(0) - passed)[which] - torch.arange(len(which), device=which.device)
    way = before.flatten()[which].double() - edge / n_bins - ON_THE_EDGE
    step = (way / (before - after).flatten()[which] * (_STEPS - 1)).ceil_().clamp_(0, _STEPS - 1).long()
    place = (which // len(correct) * n_bins + edge) * _STEPS + step

    def at_each_step(values: Tensor) -> Tensor:
        values = values if weights is None else values * weights
        sums = values.new_zeros(len(index), n_bins, _STEPS, dtype=torch.float64)
        sums[..., 0] = sums_by(index, values, n_bins)
        leaving = values.flatten()[which].double()
        sums.view(-1).index_add_(0, place, -leaving).index_add_(0, place - _STEPS, leaving)
        return sums.cpu().cumsum_(dim=2)  # which a GPU does in any order

    return at_each_step(after - before).mul_(steps).add_(at_each_step(before - correct)).abs_().sum(dim=1)
