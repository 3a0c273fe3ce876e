"""Zeros among given probabilities, and the share of the uniform distribution that they need before a fit.

Forests, nearest neighbours, naive Bayes and underflowed softmaxes give probabilities of exactly 0. Such a zero says
"rarer than the model resolves". It meets three floors:

- Reading: smaller probabilities are read as 1e-30 (``PROB_FLOOR`` of predictions), in every type alike.
- Scoring: the log-loss counts a label's probability as 1e-15 at least (``LABEL_FLOOR``), and reports say where it did.
- Fitting: the logarithm of either would let a few entries decide every fit. Calibrators, and the split of a score into
  calibration and refinement, first mix in the uniform distribution, ``(1 - a) p + a / k``; so does the fitted map.

How much to mix in depends on the model: more than half for nearest neighbours, 1e-24 for naive Bayes. (Near 1 the
logarithm is all but linear in p: the shares lead from methods on log p to methods on p.) So the share is chosen from
the calibration samples, by the cross-validated log-loss of a temperature: one number, which the other methods start
from.

Mixing and not clipping: it rises strictly in every probability, so that the predicted class and the order of samples by
confidence stay, and the best share does as well as the best clip on forests, naive Bayes and nearest neighbours alike.
"""

import math

import torch
from torch import Tensor

from calibrant.numerics.softmax import logaddexp

# Logarithms to base 10 of the shares that are tried. The first stands for no share, since given probabilities have a
# floor of their own there.
_EXPONENTS = (-30.0, -27, -24, -21, -18, -15, -12, -9, -7, -6, -5, -4, -3, -2.5, -2, -1.5, -1, -0.5, -0.25, -0.1, -0.03)
_NONE = -28.5  # below it no share is mixed in
_FOLDS = 5
_UNSEEN = 0.5  # samples that are added, labelled with the runner-up
_FINEST = -12.0  # the smallest expected share, even of a model that gives smaller probabilities
_DECADE = 0.3  # nats that a factor of ten from the expected share costs
_NUMBERS, _FEWEST, _MOST = 120_000, 1_000, 10_000  # numbers to choose on, within these limits on samples
_STEPS, _FINE = 30, 1e-2  # Newton steps, and the relative step that ends them
_MIN_BETA, _MAX_BETA = 1e-4, 1e4  # inverse temperatures
_FOLD_RANGE = 4.0  # factor by which the inverse temperature of a fold may differ from that of all samples


def mixed(log_probs: Tensor, share: Tensor) -> Tensor:
    """Return logarithms of ``(1 - share) p + share / k``, (..., k) -> (..., k).

    Example:
        >>> mixed(torch.tensor([1.0, 0.0]).log(), torch.tensor(0.2)).exp()
        tensor([0.9000, 0.1000])
    """
    # The arguments are finite or minus infinity, never both the latter, so that the result is finite.
    return logaddexp(log_probs + torch.log1p(-share), share.log() - math.log(log_probs.shape[-1]))


def floored(logits: Tensor, share: Tensor, *, normalised: bool = False) -> Tensor:
    """Return log-probabilities with a share of the uniform distribution mixed in, (..., k) -> (..., k).

    The predicted class stays: where rounding would let another class draw level with it, that one is put behind. With
    ``normalised`` the logits are log-probabilities, and equal ones stay equal.
    """
    raised = mixed(logits if normalised else logits.log_softmax(dim=-1), share)
    # Two classes can only draw level at a probability of a half or less, so this is the next number below.
    behind = raised.amax(dim=-1, keepdim=True) * (1 + torch.finfo(raised.dtype).eps)
    is_top = logits == logits.amax(dim=-1, keepdim=True)
    return torch.where(is_top, raised, raised.minimum(behind))


def choose_share(log_probs: Tensor, labels: Tensor, weights: Tensor | None = None) -> float:
    """Return the share of the uniform distribution that samples (n, k) with labels (n,) call for; 0 for none.

    It is the median of the shares, weighted by the likelihood of the samples (the cross-validated log-loss of a
    temperature, in nats) and by a prior. With few samples the single lowest loss is luck; the median is not. Two
    additions count where the samples say little:

    - Half a sample more, labelled with its runner-up, as Jeffreys' prior adds half a failure: that none of n samples
      was so does not rule it out. Without it a forest on 284 samples of two classes would get no share at all.
    - The smallest probability p that the model gives beside its zeros is its resolution: .2 for five nearest
      neighbours, .01 for a hundred trees, next to nothing for naive Bayes. The zeros of a sample stand for p / 2 at the
      least, and shares are expected near k p (or 1e-12, if that is larger); a factor of ten from it costs .3 nats.

    With fewer than ten samples, or none predicted wrong, it is 1 / (n + 1), the rule of succession. At most 10,000
    samples are used, drawn with a fixed seed. Where samples have weights, (n,), their sum stands for n.
    """
    n, k = log_probs.shape
    size = n if weights is None else float(weights.sum())
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    order = order[: min(_MOST, max(_FEWEST, _NUMBERS // k))].to(labels.device)
    columns = log_probs[order].double().T.contiguous()  # (k, m): sums over few classes are then sums of long lines
    chosen = labels[order]
    if bool((columns.argmax(dim=0) == chosen).all()) or len(chosen) < 2 * _FOLDS:
        return 1 / (size + 1)
    weight = torch.ones_like(columns[0]) if weights is None else weights[order]
    smallest = float(columns.where(columns > _NONE * math.log(10), 0).amin()) / math.log(10)
    expected = min(max(smallest + math.log10(k), _FINEST), _EXPONENTS[-1])
    tried = [exponent for exponent in _EXPONENTS if exponent >= smallest - math.log10(2)]
    start, losses = columns.new_ones(1), []
    for exponent in tried:
        is_none = exponent == _EXPONENTS[0]
        shared = columns if is_none else mixed(columns.T, columns.new_tensor(10.0**exponent)).T.contiguous()
        loss, start = _cross_validated(shared, chosen, weight, start, size)
        losses.append(size * loss)
    exponents = torch.tensor(tried, dtype=torch.float64)
    log_weights = -torch.tensor(losses, dtype=torch.float64) - _DECADE * (exponents - expected).abs()
    ends = torch.cat([exponents[:1], (exponents[1:] + exponents[:-1]) / 2, exponents[-1:]])  # every share has its part
    up_to = ((log_weights - log_weights.max()).exp() * ends.diff()).cumsum(0)
    median = tried[int(torch.searchsorted(up_to, up_to[-1] / 2))]
    return 10.0**median if median > _NONE else 0.0


def _cross_validated(
    columns: Tensor, labels: Tensor, weights: Tensor, start: Tensor, size: float
) -> tuple[float, Tensor]:
    """Return the log-loss of samples (k, m) and the unseen one at the other folds' optima, and the optimum of all."""
    gaps = columns - columns.amax(dim=0)
    label_gap = gaps.gather(0, labels[None])[0]
    fold = torch.arange(len(labels), device=labels.device) % _FOLDS  # the samples are in random order
    others = (fold != torch.arange(_FOLDS, device=labels.device)[:, None]) * weights  # (folds, m)
    of_all = _inverse_temperatures(gaps, label_gap, weights[None], start, (_MIN_BETA, _MAX_BETA))
    # A fold without the only mistake would have none, and a temperature of 0.
    near = float(of_all) / _FOLD_RANGE, float(of_all) * _FOLD_RANGE
    beta = _inverse_temperatures(gaps, label_gap, others, of_all.expand(_FOLDS), near)
    scaled = gaps * beta[fold]
    log_total = scaled.exp().sum(dim=0).log()
    held_out = log_total - label_gap * beta[fold]
    unseen = log_total - scaled.topk(2, dim=0).values[1]
    mean = (held_out + unseen * (_UNSEEN / size)) @ weights / weights.sum()
    return float(mean), of_all


def _inverse_temperatures(
    gaps: Tensor, label_gap: Tensor, weights: Tensor, start: Tensor, bounds: tuple[float, float]
) -> Tensor:
    """Fit the inverse temperature of lowest log-loss for each row of weights (c, m), by bracketed Newton steps."""
    beta = start.clamp(*bounds)
    low, high = torch.full_like(start, bounds[0]), torch.full_like(start, bounds[1])
    for _ in range(_STEPS):
        powers = (gaps * beta[:, None, None]).exp_()  # (c, k, m)
        total = powers.sum(dim=1)
        mean = powers.mul_(gaps).sum(dim=1) / total
        variance = powers.mul_(gaps).sum(dim=1) / total - mean.square()
        slope = ((mean - label_gap) * weights).sum(dim=1)
        curvature = (variance * weights).sum(dim=1).clamp(min=torch.finfo(torch.float64).tiny)
        low, high = torch.where(slope < 0, beta, low), torch.where(slope > 0, beta, high)
        step = beta - slope / curvature
        before, beta = beta, torch.where((step > low) & (step < high), step, (low * high).sqrt())
        if bool(((beta - before).abs() <= _FINE * before).all()):
            break
    return beta
