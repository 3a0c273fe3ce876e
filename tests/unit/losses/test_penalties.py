"""What holds for every penalty on a batch."""

import pytest
import torch
from torch.nn import functional as F

from calibrant.losses.base import CrossEntropyLoss, loss_settings
from calibrant.losses.calibration_error import DECELoss, MMCELoss, SBECELoss, SECELoss
from calibrant.losses.confidence_accuracy import AvUCLoss, DCALoss, MDCALoss, SoftAvUCLoss
from calibrant.losses.ranking import CorrectnessRankingLoss

PENALISED = {
    "mmce": MMCELoss,
    "mmce legacy": lambda **options: MMCELoss(normalisation="legacy", **options),
    "mmce unweighted": lambda **options: MMCELoss(normalisation="unweighted", **options),
    "dece": DECELoss,
    "sece": SECELoss,
    "sece hard": lambda **options: SECELoss(accuracy="hard", **options),
    "sb_ece": SBECELoss,
    "sb_ece l1": lambda **options: SBECELoss(norm="l1", **options),
    "avuc": lambda **options: AvUCLoss(from_epoch=0, **options),
    "avuc threshold": lambda **options: AvUCLoss(threshold=0.5, from_epoch=0, **options),
    "soft_avuc": SoftAvUCLoss,
    "soft_avuc sharp": lambda **options: SoftAvUCLoss(threshold=0.1, temperature=0.05, **options),
    "soft_avuc flat": lambda **options: SoftAvUCLoss(temperature=5.0, **options),
    "mdca": MDCALoss,
    "dca": DCALoss,
    "crl": CorrectnessRankingLoss,
    "crl entropy": lambda **options: CorrectnessRankingLoss(score="entropy", normalisation="min-max", **options),
    "crl margin": lambda **options: CorrectnessRankingLoss(score="margin", **options),
}
every_penalty = pytest.mark.parametrize("make", PENALISED.values(), ids=PENALISED)


def ready(loss, rows, device="cpu"):
    """A loss that knows its samples, with a history that ranks them."""
    if isinstance(loss, CorrectnessRankingLoss):
        loss.remember(64)
        loss.times_right = torch.arange(64, device=device) % 4
        loss.begin_epoch(3)
        loss.look_at(torch.arange(rows, device=device))
    return loss


def batch(n=24, k=5, *, scale=2.0, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(n, k, generator=generator, dtype=torch.float64)
    labels = torch.multinomial((logits / 1.5).softmax(1), 1, generator=generator)[:, 0]
    return logits.to(dtype), labels


def awkward():
    logits, _ = batch(8)
    any_labels = torch.arange(8) % 5
    signs = 1e4 * logits.sign()
    return {
        "one row, right": (logits[:1], logits[:1].argmax(1)),
        "one row, wrong": (logits[:1], logits[:1].argmin(1)),
        "all right": (logits, logits.argmax(1)),
        "all wrong": (logits, logits.argmin(1)),
        "one class": (logits, torch.zeros(8, dtype=torch.int64)),
        "certain and right": (1e4 * logits, logits.argmax(1)),
        "certain and wrong": (1e4 * logits, logits.argmin(1)),
        "certain and tied": (signs, any_labels),
        "all tied": (0 * logits, any_labels),
        "same rows": (logits[:1].repeat(8, 1), any_labels),
        "of every kind": (torch.cat([1e4 * logits, logits, 0 * logits]), torch.arange(24) % 5),
        "two classes": (logits[:, :2], any_labels % 2),
    }


@every_penalty
@pytest.mark.parametrize("case", awkward())
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_value_and_slope_are_finite_on_awkward_batches(make, case, dtype):
    logits, labels = awkward()[case]
    leaf = logits.to(dtype).requires_grad_()
    penalty = ready(make(), len(labels)).penalty(leaf, labels)
    (slope,) = torch.autograd.grad(penalty, leaf)
    assert penalty.dtype == dtype
    assert 0 <= penalty.item() < 30
    # No penalty is steep enough to throw a network off.
    assert slope.abs().max() < 20


@every_penalty
def test_slopes_are_those_of_finite_differences(make):
    logits, labels = batch(12)
    loss = ready(make(), 12).eval()
    assert torch.autograd.gradcheck(lambda z: loss.penalty(z, labels), logits.requires_grad_(), eps=1e-7, atol=1e-4)


@every_penalty
def test_without_weight_it_is_the_base_loss(make):
    logits, labels = batch(dtype=torch.float32)
    assert torch.equal(ready(make(weight=0.0), 24)(logits, labels), CrossEntropyLoss()(logits, labels))


@every_penalty
def test_the_loss_is_the_base_plus_the_weighted_penalty(make):
    logits, labels = batch()
    loss = ready(make(weight=0.3), 24).eval()
    expected = F.cross_entropy(logits, labels) + 0.3 * loss.penalty(logits, labels)
    assert loss(logits, labels).item() == pytest.approx(expected.item(), rel=1e-12)
    summed = ready(make(weight=0.3, reduction="sum"), 24).eval()
    assert summed(logits, labels).item() == pytest.approx(24 * expected.item(), rel=1e-12)


@every_penalty
def test_the_order_of_the_classes_does_not_matter(make):
    logits, labels = batch()
    order = torch.tensor([3, 1, 4, 0, 2])
    loss = ready(make(), 24).eval()
    renamed = loss.penalty(logits[:, order], order.argsort()[labels])
    assert renamed.item() == pytest.approx(loss.penalty(logits, labels).item(), rel=1e-9)


@every_penalty
def test_ignored_rows_do_not_count(make):
    logits, labels = batch()
    holes = torch.arange(24) % 3 == 0
    loss = ready(make(ignore_index=-1), 16).eval()
    full = ready(make(), 16).eval()
    assert torch.equal(loss(logits, labels.masked_fill(holes, -1)), full(logits[~holes], labels[~holes]))


@every_penalty
def test_nothing_waits_for_the_numbers(make):
    # Tensors without numbers: a look at one, or a shape that depends on one, would raise.
    logits = torch.empty(16, 5, device="meta", requires_grad=True)
    labels = torch.empty(16, dtype=torch.int64, device="meta")
    loss = ready(make().to("meta"), 16, device="meta")
    loss(logits, labels).backward()
    assert logits.grad.shape == (16, 5)


@every_penalty
def test_it_compiles_to_one_graph(make):
    logits, labels = batch(16, dtype=torch.float32)
    loss = ready(make(), 16)
    torch.compiler.reset()
    compiled = torch.compile(loss, fullgraph=True, backend="eager")
    assert compiled(logits, labels).item() == pytest.approx(ready(make(), 16)(logits, labels).item(), rel=1e-5)


@every_penalty
def test_half_precision_is_worked_in_float32(make):
    logits, labels = batch()
    loss = ready(make(), 24).eval()
    rounded = logits.bfloat16()
    assert torch.equal(loss(rounded, labels), loss(rounded.float(), labels))


@every_penalty
def test_its_settings_make_it_again(make):
    settings = loss_settings(make(weight=0.7))
    again = type(make())(**{name: value for name, value in settings.items() if name not in {"loss", "base"}})
    assert loss_settings(again) == settings
    assert settings["weight"] == 0.7
