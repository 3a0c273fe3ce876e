import math

import pytest
import torch
from made_samples import batch

from calibrant.errors import InputError
from calibrant.losses.calibration_error import SBECELoss
from calibrant.metrics import ECE
from calibrant.predictions import Predictions


def by_loops(logits, labels, *, n_bins, temperature, power):
    top = logits.softmax(1).max(1)
    rows = list(zip(top.values.tolist(), (top.indices == labels).tolist(), strict=True))
    members = []
    for c, _ in rows:
        near = [math.exp(-((c - (b + 0.5) / n_bins) ** 2) / temperature) for b in range(n_bins)]
        members.append([one / sum(near) for one in near])
    total = 0.0
    for b in range(n_bins):
        size = sum(member[b] for member in members)
        conf = sum(member[b] * c for member, (c, _) in zip(members, rows, strict=True)) / size
        acc = sum(member[b] * a for member, (_, a) in zip(members, rows, strict=True)) / size
        total += size / len(rows) * abs(conf - acc) ** power
    return total ** (1 / power)


@pytest.mark.parametrize("temperature", [0.01, 0.1])
@pytest.mark.parametrize(("norm", "power"), [("l1", 1), ("l2", 2)])
def test_it_is_the_gap_of_each_soft_bin(norm, power, temperature):
    logits, labels = batch()
    expected = by_loops(logits, labels, n_bins=9, temperature=temperature, power=power)
    penalty = SBECELoss(n_bins=9, temperature=temperature, norm=norm).penalty(logits, labels)
    assert penalty.item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_hard_bins_give_the_hard_errors(seed):
    logits, labels = batch(400, seed=seed)
    predictions = Predictions.from_logits(logits, labels)
    bins = ECE().state(predictions)
    mean_gap = (bins.confidence - bins.correct) / bins.count.clamp(min=1)
    l2 = (bins.count / bins.count.sum() * mean_gap.square()).sum().sqrt()
    hard = {norm: SBECELoss(norm=norm, temperature=1e-9).penalty(logits, labels).item() for norm in ("l1", "l2")}
    assert hard["l2"] == pytest.approx(l2.item(), abs=1e-9)
    assert hard["l1"] == pytest.approx(ECE()(predictions), abs=1e-9)


def test_soft_bins_let_gaps_of_opposite_sign_cancel():
    logits, labels = batch(400, truth=1.0)
    soft, hard = (SBECELoss(temperature=t).penalty(logits, labels) for t in (0.01, 1e-5))
    assert soft < 0.7 * hard


def test_empty_bins_of_float32_add_nothing():
    logits = torch.tensor([[9.0, 0.0], [0.0, 9.0]], requires_grad=True)
    penalty = SBECELoss(temperature=1e-4).penalty(logits, torch.tensor([0, 0]))
    penalty.backward()
    confidence = 1 / (1 + math.exp(-9))
    assert penalty.item() == pytest.approx(confidence - 0.5, abs=1e-6)
    assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_bins": 0}, "n_bins must be at least 1"),
        ({"temperature": 0.0}, "temperature must be above 0"),
        ({"norm": "l3"}, "norm must be one of l1, l2"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        SBECELoss(**options)
