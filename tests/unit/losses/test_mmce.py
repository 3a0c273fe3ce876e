import math

import made_samples
import pytest
import torch

from calibrant.errors import InputError
from calibrant.losses.calibration_error import MMCELoss
from calibrant.metrics import mmce
from calibrant.predictions import Predictions


def batch(n=60, k=5, *, scale=3.0, **how):
    return made_samples.batch(n, k, scale=scale, **how)


def pairs(logits, labels):
    """Sums over right pairs, wrong pairs and mixed ones, and how many samples are right and wrong."""
    top = logits.softmax(1).max(1)
    rows = list(zip(top.values.tolist(), (top.indices == labels).tolist(), strict=True))
    right, wrong = [c for c, a in rows if a], [c for c, a in rows if not a]
    both_right = sum((1 - c) * (1 - d) * math.exp(-abs(c - d) / 0.4) for c in right for d in right)
    both_wrong = sum(c * d * math.exp(-abs(c - d) / 0.4) for c in wrong for d in wrong)
    mixed = sum((1 - c) * d * math.exp(-abs(c - d) / 0.4) for c in right for d in wrong)
    return both_right, both_wrong, mixed, len(right), len(wrong)


def test_the_papers_normalisation_is_the_papers_three_double_sums():
    both_right, both_wrong, mixed, m, q = pairs(*batch())
    expected = math.sqrt(both_right / m**2 + both_wrong / q**2 - 2 * mixed / (m * q))
    assert MMCELoss().penalty(*batch()).item() == pytest.approx(expected, rel=1e-9)


def test_the_legacy_normalisation_divides_means_over_pairs_once_more():
    both_right, both_wrong, mixed, m, q = pairs(*batch())
    means = both_right / m**2, both_wrong / q**2, mixed / (m * q)
    # As the public code, with its two small constants.
    squared = means[0] / (m * m + 1e-5) + means[1] / (q * q + 1e-5) - 2 * means[2] / (m * q + 1e-5)
    legacy = MMCELoss(normalisation="legacy").penalty(*batch()).item()
    assert legacy == pytest.approx(math.sqrt(squared + 1e-10), rel=1e-4)


def test_unweighted_it_is_the_metric():
    logits, labels = batch()
    penalty = MMCELoss(normalisation="unweighted").penalty(logits, labels).item()
    assert penalty == pytest.approx(mmce(Predictions.from_logits(logits, labels)), rel=1e-6)


def test_legacy_is_smaller_by_orders_that_grow_with_the_batch():
    ratios = []
    for n in (128, 512):
        logits, labels = batch(n, 10, scale=4.0, truth=1.0)
        paper, legacy = (MMCELoss(normalisation=name).penalty(logits, labels) for name in ("paper", "legacy"))
        ratios.append(float(paper / legacy))
    assert 20 < ratios[0] < 100 < ratios[1] < 400


def test_on_calibrated_samples_only_the_unweighted_penalty_is_zero():
    logits, labels = batch(1500, 5, scale=4.0, truth=1.0)
    steps = {}
    for name in ("paper", "unweighted"):
        temperatures = [0.6, 0.8, 1.0, 1.25, 1.6, 2.0]
        values = [MMCELoss(normalisation=name).penalty(logits / t, labels).item() for t in temperatures]
        steps[name] = temperatures[min(range(6), key=values.__getitem__)]
    assert steps["unweighted"] == 1.0
    assert steps["paper"] > 1.0


@pytest.mark.parametrize("right", [True, False])
def test_a_batch_of_one_kind_keeps_its_own_part(right):
    logits, _ = batch()
    labels = logits.argmax(1) if right else logits.argmin(1)
    both_right, both_wrong, _, _, _ = pairs(logits, labels)
    assert MMCELoss().penalty(logits, labels).item() == pytest.approx(math.sqrt(both_right + both_wrong) / 60, rel=1e-9)
    assert MMCELoss(normalisation="legacy").penalty(logits, labels).item() == 0


def test_certain_and_right_is_zero_with_no_slope():
    logits = torch.tensor([[1e4, 0.0], [0.0, 1e4]], requires_grad=True)
    penalty = MMCELoss().penalty(logits, torch.tensor([0, 1]))
    penalty.backward()
    assert penalty.item() == 0
    assert torch.equal(logits.grad, torch.zeros(2, 2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 0.0}, "width must be above 0"),
        ({"normalisation": "papers"}, "Did you mean paper"),
        ({"weight": -1.0}, "weight must be at least 0"),
        ({"reduction": "none"}, "reduction of mmce"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        MMCELoss(**options)
