import math

import made_samples
import pytest
import torch

from calibrant.errors import InputError
from calibrant.losses.calibration_error import SECELoss, soft_accuracy
from calibrant.metrics import ece, sece
from calibrant.predictions import Predictions


def batch(n=50, k=4, **how):
    return made_samples.batch(n, k, **how)


def answers(logits, labels):
    top = logits.softmax(1).max(1)
    return top.values, (top.indices == labels).double()


def by_loops(confidence, accuracy, h):
    gaps = []
    for c in confidence:
        kernel = [math.exp(-((c - d) ** 2) / (2 * h * h)) for d in confidence]
        smooth = sum(w * a for w, a in zip(kernel, accuracy, strict=True)) / sum(kernel)
        gaps.append(abs(smooth - c))
    return sum(gaps) / len(gaps)


@pytest.mark.parametrize("h", [0.01, 0.1])
@pytest.mark.parametrize("kind", ["soft", "hard"])
def test_it_is_the_double_sum(kind, h):
    logits, labels = batch()
    confidence, accuracy = answers(logits, labels)
    if kind == "soft":
        accuracy = soft_accuracy(logits.softmax(1), labels)
    expected = by_loops(confidence.tolist(), accuracy.tolist(), h)
    value = SECELoss(bandwidth=h, accuracy=kind).penalty(logits, labels)
    assert value.item() == pytest.approx(expected, rel=1e-10)


def test_a_narrow_kernel_leaves_each_sample_to_itself():
    logits, labels = batch()
    confidence, correct = answers(logits, labels)
    value = SECELoss(bandwidth=1e-9, accuracy="hard").penalty(logits, labels)
    assert value.item() == pytest.approx((correct - confidence).abs().mean().item(), rel=1e-12)


def test_a_wide_kernel_compares_each_sample_with_the_accuracy_of_all():
    logits, labels = batch()
    confidence, correct = answers(logits, labels)
    value = SECELoss(bandwidth=1e6, accuracy="hard").penalty(logits, labels)
    assert value.item() == pytest.approx((correct.mean() - confidence).abs().mean().item(), rel=1e-9)


def test_with_hard_accuracy_it_is_the_metric():
    logits, labels = batch(500)
    value = SECELoss(accuracy="hard", bandwidth=0.03).penalty(logits, labels).item()
    # The metric moves samples to the nearest of 1025 nodes.
    assert value == pytest.approx(sece(Predictions.from_logits(logits, labels), width=0.03), abs=1e-3)


def test_it_is_biased_upwards_on_calibrated_samples_as_the_docstring_says():
    values, binned = [], []
    for seed in range(40):
        generator = torch.Generator().manual_seed(seed)
        confidence = 0.5 + 0.5 * torch.rand(128, generator=generator, dtype=torch.float64)
        right = torch.rand(128, generator=generator, dtype=torch.float64) < confidence
        logits = torch.stack([confidence.logit(), torch.zeros(128, dtype=torch.float64)], 1)
        values.append(SECELoss(accuracy="hard").penalty(logits, (~right).long()))
        binned.append(ece(Predictions.from_logits(logits, (~right).long())))
    assert torch.stack(values).mean().item() == pytest.approx(0.104, abs=0.008)
    assert torch.stack(values).mean() > 1.1 * sum(binned) / 40


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bandwidth": 0.0}, "bandwidth must be above 0"),
        ({"accuracy": "softer"}, "Did you mean soft"),
        ({"accuracy_temperature": float("inf")}, "accuracy_temperature must be above 0 and finite"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        SECELoss(**options)
