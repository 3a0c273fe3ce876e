import math

import made_samples
import pytest
import torch

from calibrant.errors import InputError
from calibrant.losses.calibration_error import DECELoss, soft_accuracy
from calibrant.metrics import ece
from calibrant.predictions import Predictions


def batch(n=40, k=4, **how):
    return made_samples.batch(n, k, **how)


def sigmoid(x):
    return 1 / (1 + math.exp(-x)) if x > 0 else math.exp(x) / (1 + math.exp(x))


def by_loops(logits, labels, *, n_bins, t_b, t_a):
    """As the paper's code: all ranks of all classes, bins with 1e-6 added, means of each bin."""
    size, confidences, accuracies = [0.0] * n_bins, [0.0] * n_bins, [0.0] * n_bins
    edges = [b / n_bins for b in range(n_bins)]
    for p, y in zip(logits.softmax(1).tolist(), labels.tolist(), strict=True):
        ranks = [0.5 + sum(sigmoid(t_a * (other - one)) for other in p) for one in p]
        accuracy, confidence = max(0.0, 2 - ranks[y]), max(p)
        heights = [((b + 1) * confidence - sum(edges[: b + 1])) / t_b for b in range(n_bins)]
        top = max(heights)
        total = sum(math.exp(h - top) for h in heights)
        for b in range(n_bins):
            member = (math.exp(heights[b] - top) / total + 1e-6) / (1 + (n_bins + 1) * 1e-6)
            size[b] += member
            confidences[b] += member * confidence
            accuracies[b] += member * accuracy
    n = len(labels)
    return sum(size[b] / n * abs(accuracies[b] / size[b] - confidences[b] / size[b]) for b in range(n_bins))


@pytest.mark.parametrize(("n_bins", "t_b", "t_a"), [(15, 0.01, 100.0), (7, 0.1, 20.0), (1, 0.01, 100.0)])
def test_it_is_what_the_papers_loops_give(n_bins, t_b, t_a):
    logits, labels = batch()
    expected = by_loops(logits, labels, n_bins=n_bins, t_b=t_b, t_a=t_a)
    value = DECELoss(n_bins=n_bins, bin_temperature=t_b, accuracy_temperature=t_a).penalty(logits, labels)
    assert value.item() == pytest.approx(expected, abs=2e-5)


@pytest.mark.parametrize("seed", range(3))
def test_hard_bins_and_hard_accuracy_give_the_calibration_error(seed):
    logits, labels = batch(400, 6, seed=seed)
    value = DECELoss(bin_temperature=1e-7, accuracy_temperature=1e7).penalty(logits, labels)
    assert value.item() == pytest.approx(ece(Predictions.from_logits(logits, labels)), abs=1e-9)


@pytest.mark.parametrize(("k", "scale"), [(3, 4.0), (10, 8.0), (100, 6.0)])
def test_on_overconfident_samples_it_is_close_to_the_calibration_error(k, scale):
    for seed in range(5):
        logits, labels = batch(3000, k, scale=scale, truth=2.0, seed=seed)
        error = ece(Predictions.from_logits(logits, labels))
        assert DECELoss().penalty(logits, labels).item() == pytest.approx(error, abs=2.5e-3)


@pytest.mark.parametrize(("k", "scale"), [(3, 4.0), (10, 8.0), (100, 6.0)])
def test_on_calibrated_samples_it_is_a_sixth_smaller_on_average(k, scale):
    shares = []
    for seed in range(20):
        logits, labels = batch(512, k, scale=scale, truth=1.0, seed=seed)
        shares.append(DECELoss().penalty(logits, labels).item() / ece(Predictions.from_logits(logits, labels)))
    assert 0.75 < sum(shares) / 20 < 0.92


def test_soft_accuracy_is_one_minus_the_rank_behind_the_first():
    probs = torch.tensor([[0.4, 0.38, 0.22], [0.2, 0.5, 0.3]], dtype=torch.float64)
    expected = [1.5 - sum(sigmoid(100 * (other - 0.4)) for other in (0.4, 0.38, 0.22)), 0.0]
    assert soft_accuracy(probs, torch.tensor([0, 0])).tolist() == pytest.approx(expected, abs=1e-12)


def test_soft_accuracy_is_hard_where_the_lead_is_clear_and_half_at_a_tie():
    logits, labels = batch(200)
    probs = logits.softmax(1)
    hard = (logits.argmax(1) == labels).double()
    assert torch.allclose(soft_accuracy(probs, labels, temperature=1e8), hard)
    tied = torch.full((1, 2), 0.5)
    assert soft_accuracy(tied, torch.tensor([1])).item() == 0.5


def test_accuracy_has_a_slope_towards_the_true_class():
    logits = torch.tensor([[0.0, 0.05]], requires_grad=True)
    soft_accuracy(logits.softmax(1), torch.tensor([0])).sum().backward()
    towards, away = logits.grad[0].tolist()
    assert towards > 1
    assert away == pytest.approx(-towards, rel=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_bins": 0}, "n_bins must be at least 1"),
        ({"bin_temperature": 0.0}, "bin_temperature must be above 0"),
        ({"accuracy_temperature": -1.0}, "accuracy_temperature must be above 0"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        DECELoss(**options)
