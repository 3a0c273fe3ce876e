"""Hypothesis strategies for predictions and top-label records.

Hypothesis draws the shape, the kind of logits, the kind of labels and a seed, and numpy fills the array: drawing every
logit by itself would cost more than all the metrics. Failures still shrink to few samples and few classes.
"""

import numpy as np
import torch
from hypothesis import strategies as st

from calibrant.predictions import Predictions, TopLabel

__all__ = ["KINDS", "SMOOTH_KINDS", "TOP_KINDS", "cuts", "predictions", "top_labels"]

# How the logits of an example look.
KINDS = ("spread", "repeated", "confident", "quantised", "saturated")
# Those whose samples tie only where all logits are repeated: no two classes of a sample share the largest logit, and
# no two samples hold the same logits in another order (their sums differ in the last bit, so that they almost tie).
SMOOTH_KINDS = ("spread", "repeated", "confident")
# How the confidences of a top-label record look.
TOP_KINDS = ("spread", "tenths", "fifteenths", "near one", "zero and one", "constant")

_TRUTHS = ("calibrated", "calibrated", "any", "all right", "all wrong")
_SEEDS = st.integers(0, 2**32 - 1)


@st.composite
def predictions(draw, *, kinds=KINDS, min_rows=1, max_rows=60, dtypes=(torch.float32, torch.float64), truths=_TRUTHS):
    """Predictions of 2 to 12 classes: plain, tied, confident and saturated logits of either precision."""
    n, k = draw(st.integers(min_rows, max_rows)), draw(st.integers(2, 12))
    kind, truth, dtype = draw(st.sampled_from(kinds)), draw(st.sampled_from(truths)), draw(st.sampled_from(dtypes))
    rng = np.random.default_rng(draw(_SEEDS))
    logits = torch.from_numpy(_logits(rng, kind, n, k)).to(dtype)
    return Predictions.from_logits(logits, torch.from_numpy(_labels(rng, truth, logits.double().numpy())))


@st.composite
def top_labels(draw, *, kinds=TOP_KINDS, min_rows=1, max_rows=60, truths=_TRUTHS):
    """Top-label records, with ties, bin edges, zeros and ones."""
    n = draw(st.integers(min_rows, max_rows))
    kind, truth = draw(st.sampled_from(kinds)), draw(st.sampled_from(truths))
    rng = np.random.default_rng(draw(_SEEDS))
    confidence = _confidence(rng, kind, n)
    chance = {"calibrated": confidence, "any": 0.5, "all right": 1.0, "all wrong": 0.0}[truth]
    return TopLabel(confidence, rng.random(n) < chance)


@st.composite
def cuts(draw, n):
    """Places at which n samples are cut into one to five pieces, none of them empty: 0, …, n."""
    inner = draw(st.lists(st.integers(1, n - 1), max_size=4, unique=True)) if n > 1 else []
    return [0, *sorted(inner), n]


def _logits(rng, kind, n, k):
    match kind:
        case "spread":
            return rng.normal(0, 3, (n, k))
        case "repeated":
            return rng.normal(0, 3, (max(1, n // 4), k))[rng.integers(0, max(1, n // 4), n)]
        case "confident":  # most float32 confidences are exactly 1
            return rng.normal(0, 30, (n, k))
        case "quantised":  # classes of a sample tie, also for the largest
            return rng.integers(-2, 3, (n, k)).astype(float)
        case "saturated":
            return rng.choice([-1e4, -1e4, 0.0, 1.0, 1e4], (n, k))


def _labels(rng, truth, logits):
    k, predicted = logits.shape[1], logits.argmax(axis=1)
    match truth:
        case "calibrated":
            probs = np.exp(logits - logits.max(axis=1, keepdims=True)).cumsum(axis=1)
            return (rng.random((len(logits), 1)) * probs[:, -1:] >= probs).sum(axis=1)
        case "any":
            return rng.integers(0, k, len(logits))
        case "all right":
            return predicted
        case "all wrong":
            return (predicted + rng.integers(1, k, len(logits))) % k


def _confidence(rng, kind, n):
    match kind:
        case "spread":
            return rng.random(n)
        case "tenths":
            return rng.integers(0, 11, n) / 10
        case "fifteenths":
            return rng.integers(0, 16, n) / 15
        case "near one":
            return 1 - 10.0 ** -rng.uniform(0.5, 16, n)
        case "zero and one":
            return rng.choice([0.0, 0.5, 1.0], n)
        case "constant":
            return np.full(n, rng.random())
