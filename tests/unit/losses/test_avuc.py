import math

import pytest
import torch
from made_samples import batch

from calibrant.errors import InputError
from calibrant.losses.base import ChangesWithEpoch, CrossEntropyLoss, NeedsSamples
from calibrant.losses.confidence_accuracy import AvUCLoss, SoftAvUCLoss


def rows(logits, labels):
    """Confidence, whether right, and entropy of each sample."""
    for p, y in zip(logits.softmax(1).tolist(), labels.tolist(), strict=True):
        yield max(p), p.index(max(p)) == y, -sum(one * math.log(one) for one in p)


def hard(logits, labels, threshold):
    n = dict.fromkeys(["ac", "au", "ic", "iu"], 0.0)
    for c, right, u in rows(logits, labels):
        if u <= threshold:
            n["ac" if right else "ic"] += (c if right else 1 - c) * (1 - math.tanh(u))
        else:
            n["au" if right else "iu"] += (c if right else 1 - c) * math.tanh(u)
    return math.log(1 + (n["au"] + n["ic"]) / (n["ac"] + n["iu"]))


def soft(logits, labels, *, kappa, temperature):
    n = dict.fromkeys(["ac", "au", "ic", "iu"], 0.0)
    for _, right, u in rows(logits, labels):
        x = u / math.log(logits.shape[1])
        t = 1 / (1 + math.exp(-math.log(x * (1 - kappa) / ((1 - x) * kappa)) / temperature))
        n["ac" if right else "ic"] += (1 - t) * (1 - math.tanh(u))
        n["au" if right else "iu"] += t * math.tanh(u)
    return math.log(1 + (n["au"] + n["ic"]) / (n["ac"] + n["iu"]))


@pytest.mark.parametrize("threshold", [0.3, 0.9])
def test_a_given_threshold_sorts_samples_into_the_four_groups(threshold):
    penalty = AvUCLoss(threshold=threshold, from_epoch=0).penalty(*batch())
    assert penalty.item() == pytest.approx(hard(*batch(), threshold), rel=1e-6)


def test_the_own_threshold_is_the_middle_of_the_mean_entropies():
    each = list(rows(*batch()))
    means = [[u for _, right, u in each if right is kind] for kind in (True, False)]
    middle = sum(sum(kind) / len(kind) for kind in means) / 2
    assert AvUCLoss(from_epoch=0).penalty(*batch()).item() == pytest.approx(hard(*batch(), middle), rel=1e-6)


@pytest.mark.parametrize("right", [True, False])
def test_a_batch_of_one_kind_is_split_at_its_mean_entropy(right):
    logits, _ = batch()
    labels = logits.argmax(1) if right else logits.argmin(1)
    mean = sum(u for _, _, u in rows(logits, labels)) / len(labels)
    assert AvUCLoss(from_epoch=0).penalty(logits, labels).item() == pytest.approx(hard(logits, labels, mean), rel=1e-6)


def test_the_threshold_has_no_slope():
    logits, labels = batch()
    each = list(rows(logits, labels))
    means = [[u for _, right, u in each if right is kind] for kind in (True, False)]
    middle = sum(sum(kind) / len(kind) for kind in means) / 2
    slopes = []
    for loss in (AvUCLoss(from_epoch=0), AvUCLoss(threshold=middle, from_epoch=0)):
        leaf = logits.clone().requires_grad_()
        slopes.append(torch.autograd.grad(loss.penalty(leaf, labels), leaf)[0])
    assert torch.equal(*slopes)


@pytest.mark.parametrize(("kappa", "temperature"), [(0.5, 1.0), (0.2, 0.3), (0.7, 2.5)])
def test_the_soft_one_shares_each_sample_between_the_groups(kappa, temperature):
    expected = soft(*batch(), kappa=kappa, temperature=temperature)
    loss = SoftAvUCLoss(threshold=kappa, temperature=temperature)
    assert loss.penalty(*batch()).item() == pytest.approx(expected, rel=1e-5)


def test_a_sharp_soft_border_is_a_hard_one():
    logits, labels = batch()
    penalty = SoftAvUCLoss(threshold=0.4, temperature=1e-5).penalty(logits, labels)
    # The soft groups leave the confidence out.
    n = [0.0, 0.0]
    for _, right, u in rows(logits, labels):
        certain = u <= 0.4 * math.log(4)
        n[right is certain] += 1 - math.tanh(u) if certain else math.tanh(u)
    assert penalty.item() == pytest.approx(math.log(1 + n[0] / n[1]), rel=1e-5)


@pytest.mark.parametrize("loss", [AvUCLoss(threshold=0.5, from_epoch=0), SoftAvUCLoss(threshold=0.3)])
def test_certain_and_right_beats_uncertain_and_right(loss):
    labels = torch.tensor([0, 1, 2])
    assert loss.penalty(6 * torch.eye(3), labels) < 0.1 < loss.penalty(torch.eye(3), labels)


def test_the_warm_up_leaves_the_base_loss_until_its_epoch():
    logits, labels = batch()
    plain = CrossEntropyLoss()(logits, labels)
    loss = AvUCLoss(from_epoch=2)
    assert torch.equal(loss(logits, labels), plain)
    loss.begin_epoch(1)
    assert torch.equal(loss(logits, labels), plain)
    loss.begin_epoch(2)
    assert torch.equal(loss(logits, labels), AvUCLoss(from_epoch=0)(logits, labels))
    assert loss(logits, labels) > plain


def test_there_is_a_warm_up_unless_it_is_declined():
    logits, labels = batch()
    loss, at_once = AvUCLoss(), AvUCLoss(from_epoch=0)
    assert loss.penalty(logits, labels) == 0 < at_once.penalty(logits, labels)
    loss.begin_epoch(loss.from_epoch - 1)
    assert loss.penalty(logits, labels) == 0
    loss.begin_epoch(loss.from_epoch)
    assert torch.equal(loss.penalty(logits, labels), at_once.penalty(logits, labels))


def test_the_warm_up_is_switched_in_place_and_saved():
    loss = AvUCLoss(from_epoch=2)
    switch = loss.switch
    loss.begin_epoch(5)
    assert loss.switch is switch
    other = AvUCLoss(from_epoch=2)
    other.load_state_dict(loss.state_dict())
    assert float(other.switch) == 1


def test_a_loop_can_tell_what_it_wants():
    assert isinstance(AvUCLoss(), ChangesWithEpoch)
    assert not isinstance(AvUCLoss(), NeedsSamples)
    assert not isinstance(SoftAvUCLoss(), ChangesWithEpoch)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (AvUCLoss, {"threshold": -0.1}, "threshold must be at least 0"),
        (AvUCLoss, {"from_epoch": -1}, "from_epoch must be at least 0"),
        (SoftAvUCLoss, {"threshold": 0.0}, "threshold must be above 0"),
        (SoftAvUCLoss, {"threshold": 1.2}, "below 1; got 1.2. Divide one in nats"),
        (SoftAvUCLoss, {"temperature": 0.0}, "temperature must be above 0"),
    ],
)
def test_options_out_of_range_are_refused(kind, options, message):
    with pytest.raises(InputError, match=message):
        kind(**options)
