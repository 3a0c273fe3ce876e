"""A step is the one that is written by hand with torch's own optimiser and loss, on the same samples."""

from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from calibrant.errors import CalibrantWarning
from calibrant.models import build_model
from calibrant.training import RuntimeOptions
from calibrant.training.data import plan_epoch
from calibrant.training.recipe import learning_rates
from calibrant.training.session import _compiles, compile_blocks

# Two orders of adding up float32 numbers; a wrong term would be seen in the third digit.
CLOSE = {"rtol": 1e-4, "atol": 2e-6}
OPTIONS = [
    {"momentum": 0.0, "nesterov": False, "weight_decay": 0.0},
    {"momentum": 0.9, "nesterov": False, "weight_decay": 0.0},
    {"momentum": 0.9, "nesterov": True, "weight_decay": 0.0},
    {"momentum": 0.9, "nesterov": True, "weight_decay": 1e-2},
    {"momentum": 0.5, "nesterov": False, "weight_decay": 1e-2, "clip": 0.1},
    {"momentum": 0.9, "nesterov": True, "schedule": "constant", "warmup": 1},
]


def by_hand(session, network, epochs, *, mixed=False):
    """The same epochs on a copy of the network, as anybody would write them."""
    recipe, stored = session.recipe, session.data.training
    optimiser = torch.optim.SGD(
        network.parameters(), lr=1.0, momentum=recipe.momentum, nesterov=recipe.nesterov,
        weight_decay=recipe.weight_decay,
    )  # fmt: skip
    norms, losses, right = [], [], 0
    for epoch in range(epochs):
        plan = plan_epoch(len(stored), recipe.batch_size, seed=recipe.seed, epoch=epoch, mixup=recipe.mixup)
        rates = learning_rates(recipe, epoch, len(plan.samples))
        for rows, partners, share, rate in zip(plan.samples, plan.partners, plan.shares, rates, strict=True):
            inputs, labels = stored.inputs.plain(rows), stored.labels[rows]
            if mixed:
                logits = network(share * inputs + (1 - share) * inputs[partners])
                one, other = (F.cross_entropy(logits, each) for each in (labels, labels[partners]))
                loss = share * one + (1 - share) * other
            else:
                logits = network(inputs)
                loss = F.cross_entropy(logits, labels)
            optimiser.zero_grad()
            loss.backward()
            if recipe.clip is not None:
                norms.append(float(nn.utils.clip_grad_norm_(network.parameters(), recipe.clip)))
            optimiser.param_groups[0]["lr"] = float(rate)
            optimiser.step()
            losses.append(float(loss.detach()))
            right += int((logits.argmax(dim=1) == labels).sum())
    return norms, losses, right


def trained(session, epochs):
    for _ in range(epochs):
        session.begin_epoch()
        for _ in range(session.steps_an_epoch):
            session.advance()
        record = session.end_epoch()
    return record


def assert_same_weights(one, other):
    for mine, theirs in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, **CLOSE)


@pytest.mark.parametrize("options", OPTIONS)
def test_two_epochs_are_those_of_torchs_own_optimiser(session_of, options):
    session = session_of(**options)
    network, start = deepcopy(session.model), deepcopy(session.model)
    norms, _, _ = by_hand(session, network, 2)
    trained(session, 2)
    assert_same_weights(session.model, network)
    moved = [(a - b).abs().max() for a, b in zip(start.parameters(), network.parameters(), strict=True)]
    assert min(moved) > 100 * CLOSE["atol"]  # there was something to see
    if session.recipe.clip is not None:
        assert max(norms) > session.recipe.clip


@pytest.mark.parametrize("mixup", [0.2, 1.0])
def test_mixup_is_the_blend_of_inputs_and_of_losses(session_of, mixup):
    session = session_of(mixup=mixup)
    network, unmixed = deepcopy(session.model), deepcopy(session.model)
    by_hand(session, network, 1, mixed=True)
    by_hand(session, unmixed, 1)
    trained(session, 1)
    assert_same_weights(session.model, network)
    with pytest.raises(AssertionError):
        assert_same_weights(session.model, unmixed)


def test_the_record_holds_the_mean_loss_and_the_share_of_right_samples(session_of):
    session = session_of()
    _, losses, right = by_hand(session, deepcopy(session.model), 1)
    record = trained(session, 1)
    assert record.loss == pytest.approx(sum(losses) / len(losses), rel=1e-5)
    assert record.accuracy == pytest.approx(right / 320)
    assert record.learning_rate == pytest.approx(float(learning_rates(session.recipe, 0, 10)[-1]))
    assert (record.epoch, set(record.held_out)) == (1, {"calibration", "test"})


def test_statistics_of_a_normalisation_move_as_by_hand(session_of, changing_network):
    network = changing_network()
    network[4] = nn.Identity()  # no dropout, which would draw differently
    session = session_of(model=network)
    other = deepcopy(session.model)
    by_hand(session, other, 1)
    trained(session, 1)
    torch.testing.assert_close(session.model[1].running_mean, other[1].running_mean, **CLOSE)
    torch.testing.assert_close(session.model[1].running_var, other[1].running_var, **CLOSE)
    assert int(session.model[1].num_batches_tracked) == 10


def test_a_loss_of_the_sum_takes_the_steps_of_the_mean_at_a_rate_as_many_times_larger(session_of):
    summed = session_of("ce(reduction=sum)", learning_rate=0.05 / 32, weight_decay=0.0)
    mean = session_of("ce", learning_rate=0.05, weight_decay=0.0)
    trained(summed, 1)
    trained(mean, 1)
    assert_same_weights(summed.model, mean.model)


def test_the_schedule_of_a_loss_is_given_the_epoch(session_of):
    session = session_of("focal_schedule(gammas=[5,1],starts=[0,1])", epochs=2)
    session.begin_epoch()
    assert float(session.loss.gamma) == 5
    for _ in range(session.steps_an_epoch):
        session.advance()
    session.end_epoch()
    session.begin_epoch()
    assert float(session.loss.gamma) == 1


def test_the_history_of_a_ranking_loss_counts_each_sample_once_an_epoch(session_of):
    session = session_of("crl", epochs=3)
    right = 0
    for _ in range(3):
        right += round(trained(session, 1).accuracy * 320)
    history = session.loss.times_right
    assert int(history.sum()) == right
    assert int(history.min()) >= 0
    assert int(history.max()) <= 3
    assert int(session.loss.past_epochs) == 2


def test_held_out_samples_are_evaluated_every_so_often_and_at_the_end(session_of):
    session = session_of(epochs=5, runtime=RuntimeOptions(evaluate_every=2))
    assert [bool(trained(session, 1).held_out) for _ in range(5)] == [False, True, False, True, True]
    assert session.is_finished


def test_evaluating_held_out_samples_changes_nothing(session_of, changing_network):
    seen, unseen = (
        session_of(model=changing_network(), runtime=RuntimeOptions(evaluate_every=every, traced=every == 1))
        for every in (1, 4)
    )
    trained(seen, 4)
    trained(unseen, 4)
    for name, values in unseen.state().items():
        assert torch.equal(values, seen.state()[name]), name


def test_held_out_samples_are_evaluated_in_full_float32_and_torchs_settings_are_left(session_of, monkeypatch):
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    monkeypatch.setattr(cudnn, "benchmark", True)  # which times algorithms for every size of a last batch
    session, seen = session_of(epochs=1), []
    session.model.register_forward_pre_hook(
        lambda *_: seen.append((cudnn.allow_tf32, matmul.allow_tf32, cudnn.benchmark))
    )
    before = cudnn.allow_tf32, matmul.allow_tf32, True
    session.logits(session.data.held_out["test"])
    assert set(seen) == {(False, False, False)}
    assert (cudnn.allow_tf32, matmul.allow_tf32, cudnn.benchmark) == before


def test_without_a_compiler_the_blocks_stay_as_they_are_and_a_warning_says_why(monkeypatch):
    def fail(_function):
        raise RuntimeError("Failed to find C compiler.")

    monkeypatch.setattr(torch, "compile", fail)
    _compiles.cache_clear()
    network = build_model("resnet20", n_classes=3)
    with pytest.warns(CalibrantWarning, match="torch does not compile, so .* Is there a C compiler"):
        compile_blocks(network)
    compile_blocks(network)  # asked once
    assert all(block._compiled_call_impl is None for block in network.blocks())
    _compiles.cache_clear()
