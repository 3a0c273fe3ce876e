import math

import pytest
import torch

from calibrant.errors import InputError
from calibrant.losses.base import ChangesWithEpoch, CrossEntropyLoss, NeedsSamples
from calibrant.losses.confidence_accuracy import CorrectnessRankingLoss


def told(n_samples=6, **options):
    loss = CorrectnessRankingLoss(**options)
    loss.remember(n_samples)
    return loss


def logits_of(confidence):
    """Two classes, the first with these probabilities."""
    first = torch.tensor(confidence, dtype=torch.float64)
    return torch.stack([first.logit(), torch.zeros_like(first)], 1)


def by_loops(often, score):
    n = len(often)
    total = 0.0
    for i in range(n):
        j = (i + 1) % n
        sign = (often[i] > often[j]) - (often[i] < often[j])
        total += max(0.0, -sign * (score[i] - score[j]) + abs(often[i] - often[j]))
    return total / n


def test_two_epochs_by_hand():
    loss = told(4)
    samples = torch.tensor([2, 0, 3])
    logits, labels = logits_of([0.9, 0.8, 0.6]), torch.tensor([0, 1, 0])
    plain = CrossEntropyLoss()(logits, labels)

    loss.begin_epoch(0)
    loss.look_at(samples)
    assert torch.equal(loss(logits, labels), plain)
    assert loss.times_right.tolist() == [0, 0, 1, 1]

    loss.begin_epoch(1)
    # Sample 2 was right, 0 wrong, 3 right: .9 leads .8 by .1 and not by 1; .6 trails .8 by .2 and should lead by 1.
    expected = ((1 - 0.1) + (1 + 0.2) + 0) / 3
    assert (loss(logits, labels) - plain).item() == pytest.approx(expected, rel=1e-9)
    assert loss.times_right.tolist() == [0, 0, 2, 2]

    loss.begin_epoch(2)
    loss.look_at(torch.tensor([1, 2]))
    # Never right against always right.
    assert loss.penalty(logits[:2], labels[:2]).item() == pytest.approx(((1 + 0.1) + (1 + 0.1)) / 2, rel=1e-9)


@pytest.mark.parametrize("score", ["confidence", "entropy", "margin"])
@pytest.mark.parametrize("normalisation", ["share", "min-max"])
def test_every_score_and_normalisation_against_loops(score, normalisation):
    loss = told(10, score=score, normalisation=normalisation)
    loss.times_right.copy_(torch.tensor([3, 5, 7, 7, 2, 4, 6, 2, 3, 7]))
    loss.begin_epoch(7)
    samples = torch.tensor([9, 0, 4, 3, 2, 6])
    loss.look_at(samples)
    logits = torch.randn(6, 5, generator=torch.manual_seed(0), dtype=torch.float64)
    probs = [sorted(p, reverse=True) for p in logits.softmax(1).tolist()]
    scores = {
        "confidence": [p[0] for p in probs],
        "entropy": [sum(one * math.log(one) for one in p) / math.log(5) for p in probs],
        "margin": [p[0] - p[1] for p in probs],
    }[score]
    counts = [[3, 5, 7, 7, 2, 4, 6, 2, 3, 7][i] for i in samples.tolist()]
    often = [c / 7 if normalisation == "share" else (c - 2) / (7 - 2) for c in counts]
    penalty = loss.penalty(logits, torch.zeros(6, dtype=torch.int64))
    assert penalty.item() == pytest.approx(by_loops(often, scores), rel=1e-6)


@pytest.mark.parametrize("normalisation", ["share", "min-max"])
def test_a_loop_that_never_tells_the_epoch_has_no_share_above_1(normalisation):
    loss = told(3, normalisation=normalisation)
    loss.look_at(torch.tensor([2, 0, 1]))
    logits, labels = logits_of([0.9, 0.8, 0.7]), torch.tensor([0, 1, 0])
    for _ in range(6):
        loss(logits, labels)
    assert loss.times_right.tolist() == [0, 6, 6]
    assert loss.penalty(logits, labels).item() == pytest.approx(by_loops([1, 0, 1], [0.9, 0.8, 0.7]), rel=1e-9)


def test_samples_counted_earlier_in_an_epoch_do_not_change_the_shares_of_others():
    loss = told(4)
    loss.times_right.copy_(torch.tensor([3, 1, 2, 0]))  # the first was seen in this epoch already
    loss.begin_epoch(2)
    loss.look_at(torch.tensor([1, 2, 3]))
    penalty = loss.penalty(logits_of([0.9, 0.8, 0.7]), torch.tensor([0, 0, 0]))
    assert penalty.item() == pytest.approx(by_loops([0.5, 1, 0], [0.9, 0.8, 0.7]), rel=1e-9)


def test_samples_that_were_always_right_are_not_ranked():
    loss = told(3, normalisation="min-max")
    loss.times_right.fill_(4)
    loss.begin_epoch(4)
    loss.look_at(torch.arange(3))
    assert loss.penalty(logits_of([0.9, 0.5, 0.7]), torch.tensor([0, 0, 0])).item() == 0


def test_a_resumed_run_continues_exactly():
    logits, labels = logits_of([0.9, 0.8, 0.6, 0.7]), torch.tensor([0, 1, 0, 1])
    loss = told()
    for epoch in range(3):
        loss.begin_epoch(epoch)
        loss.look_at(torch.tensor([5, 1, 2, 3]))
        loss(logits, labels)
    resumed = told()
    resumed.load_state_dict(loss.state_dict())
    resumed.look_at(torch.tensor([5, 1, 2, 3]))
    assert set(loss.state_dict()) == {"times_right", "past_epochs"}
    for _ in range(2):
        assert torch.equal(resumed(logits, labels), loss(logits, labels))
    assert torch.equal(resumed.times_right, loss.times_right)


def test_the_history_grows_in_place_and_in_training_only():
    loss = told()
    history = loss.times_right
    loss.look_at(torch.tensor([0, 1]))
    logits, labels = logits_of([0.9, 0.8]), torch.tensor([0, 0])
    loss.eval()
    loss(logits, labels)
    assert int(history.sum()) == 0
    loss.train()
    loss(logits, labels)
    assert loss.times_right is history
    assert history.tolist() == [1, 1, 0, 0, 0, 0]


def test_a_sample_twice_in_a_batch_counts_twice():
    loss = told()
    loss.look_at(torch.tensor([4, 4, 0]))
    loss(logits_of([0.9, 0.8, 0.7]), torch.tensor([0, 0, 0]))
    assert loss.times_right.tolist() == [1, 0, 0, 0, 2, 0]


def test_samples_may_be_filled_anew_in_the_same_tensor():
    loss, samples = told(), torch.tensor([0, 1])
    loss.look_at(samples)
    loss(logits_of([0.9, 0.8]), torch.tensor([0, 0]))
    samples.copy_(torch.tensor([2, 3]))
    loss(logits_of([0.9, 0.8]), torch.tensor([0, 0]))
    assert loss.times_right.tolist() == [1, 1, 1, 1, 0, 0]


def test_ignored_samples_are_not_announced():
    loss = told(ignore_index=-100)
    loss.look_at(torch.tensor([3, 5]))
    loss(logits_of([0.9, 0.8, 0.7]), torch.tensor([0, -100, 0]))
    assert loss.times_right.tolist() == [0, 0, 0, 1, 0, 1]


def test_counts_stay_exact_in_half_precision():
    loss = told()
    loss.times_right.fill_(2049)
    assert loss.half().times_right.tolist() == [2049] * 6


def test_the_history_is_made_where_the_loss_is():
    loss = CorrectnessRankingLoss().to("meta")
    loss.remember(4)
    assert loss.times_right.device.type == "meta"


def test_a_loop_can_tell_what_it_wants():
    assert isinstance(CorrectnessRankingLoss(), NeedsSamples)
    assert isinstance(CorrectnessRankingLoss(), ChangesWithEpoch)


@pytest.mark.parametrize(
    ("n_samples", "samples", "message"),
    [
        (None, [0, 1], r"Call remember\(n_samples\) once"),
        (3, None, r"Call look_at\(samples\) before each batch"),
        (3, [0], "got 1 for 2 samples"),
        (3, [0, 3], r"samples must lie in 0..2, .*; got 3 at 1"),
        (3, [-1, 0], r"samples must lie in 0..2, .*; got -1 at 0"),
    ],
)
def test_missing_calls_are_asked_for(n_samples, samples, message):
    loss = CorrectnessRankingLoss()
    if n_samples is not None:
        loss.remember(n_samples)
    if samples is not None:
        loss.look_at(torch.tensor(samples))
    with pytest.raises(InputError, match=message):
        loss(logits_of([0.9, 0.8]), torch.tensor([0, 0]))


@pytest.mark.parametrize(
    ("tell", "message"),
    [
        (lambda loss: loss.remember(0), "n_samples must be at least 1"),
        (lambda loss: loss.look_at(torch.tensor([0.5])), r"int64 of shape \(n,\); got torch.float32"),
        (lambda loss: loss.look_at(torch.tensor([[0]])), r"got torch.int64 of shape \(1, 1\)"),
        (lambda loss: loss.begin_epoch(-1), "epoch must be at least 0"),
    ],
)
def test_what_cannot_be_is_refused(tell, message):
    loss = CorrectnessRankingLoss()
    with pytest.raises(InputError, match=message):
        tell(loss)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"score": "margins"}, "Did you mean margin"), ({"normalisation": "max"}, "normalisation must be one of share")],
)
def test_unknown_options_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        CorrectnessRankingLoss(**options)
