"""The stochastic presets are what a plain loop of backward() and SGD does, step by step."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from calibrant.clamping import NeuralClamping, Objective, RandomStart, StochasticSolver
from calibrant.clamping.inputs import InputPreparation
from calibrant.clamping.passes import Passes
from calibrant.clamping.solver import StochasticState, descend_stochastically
from calibrant.errors import CalibrantWarning, FitError, InputError, SeparableError
from calibrant.inference import LabelledInputs

D, K, N = 6, 4, 1100


def network(dtype=torch.float64):
    torch.manual_seed(0)
    made = nn.Sequential(nn.Linear(D, 16), nn.ReLU(), nn.Linear(16, K)).to(dtype).eval()
    made[2].weight.data.mul_(5)
    return made.requires_grad_(False)


def data(dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(N, D, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(network()(inputs + 0.3).softmax(1), 1, generator=generator)[:, 0]
    return inputs.to(dtype), labels


def focal(logits, labels, gamma, clip=None):
    p = logits.softmax(dim=1)[range(len(labels)), labels]
    if clip is not None:
        p = p.clamp(clip, 1 - clip)
    return -((1 - p) ** gamma) * p.log()


def with_epochs(method, epochs):
    return dataclasses.replace(method, solver=dataclasses.replace(method.solver, epochs=epochs))


def plain_loop(method, loss_of, *, lr, momentum=0.0, batch, epochs, dtype=torch.float64):
    """δ and T by hand; only the first δ and the order are the method's own."""
    model, (inputs, labels) = network(dtype), data(dtype)
    samples = LabelledInputs.of((inputs, labels))
    delta = method.start.delta(model, samples, space=None, seed=method.seed).requires_grad_()
    temperature = torch.ones((), dtype=dtype, requires_grad=True)
    learned, speeds = (delta, temperature), [0.0, 0.0]
    for epoch in range(epochs):
        order = torch.randperm(N, generator=InputPreparation(seed=method.seed).generator(epoch))
        for places in order.split(batch):
            loss = loss_of(model(inputs[places] + delta) / temperature, labels[places], delta)
            loss.backward()
            for place, leaf in enumerate(learned):
                speeds[place] = momentum * speeds[place] + leaf.grad
                leaf.data -= lr * speeds[place]
                leaf.grad = None
    return delta.detach(), float(temperature.detach())


@pytest.mark.parametrize("gamma", [0.0, 1.0])
@pytest.mark.parametrize("rule", ["tenth-of-loss", "tenth-as-term", 0.02])
def test_paper_is_equation_9_by_plain_sgd_with_sums(gamma, rule):
    start = RandomStart(0.5 if rule == "tenth-as-term" else 0.01)
    method = with_epochs(NeuralClamping.paper_protocol(gamma=gamma, strength=rule, start=start, seed=4), 2)
    model, (inputs, labels) = network(), data()
    first = start.delta(model, LabelledInputs.of((inputs, labels)), space=None, seed=4)
    initial = focal(model(inputs + first), labels, gamma).sum()
    lam = {"tenth-of-loss": 0.1 * initial, "tenth-as-term": 0.1 * initial / first.square().sum(), 0.02: N * 0.02}[rule]

    def loss_of(logits, some, delta):
        # Each batch bears its share of the penalty, so that an epoch bears it once.
        return focal(logits, some, gamma).sum() + len(some) / N * lam * delta.square().sum()

    delta, temperature = plain_loop(method, loss_of, lr=0.001, batch=512, epochs=2)
    clamped = method.fit(model, (inputs, labels))
    assert torch.allclose(clamped.delta, delta, rtol=0, atol=1e-6)
    assert clamped.temperature == pytest.approx(temperature, abs=1e-6)
    assert float(delta.norm()) > 1e-3
    assert N * clamped.summary.strength == pytest.approx(float(lam), rel=1e-6)


@pytest.mark.parametrize("gamma", [0.0, 1.0])
def test_toolkit_is_the_mean_loss_with_the_norm_and_momentum_and_clipped_probabilities(gamma):
    method = with_epochs(NeuralClamping.toolkit(gamma=gamma, seed=2), 3)

    def loss_of(logits, some, delta):
        return focal(logits, some, gamma, clip=1e-7).mean() + 0.01 * delta.norm()

    delta, temperature = plain_loop(method, loss_of, lr=0.01, momentum=0.9, batch=1000, epochs=3)
    clamped = method.fit(network(), data())
    assert torch.allclose(clamped.delta, delta, rtol=0, atol=1e-6)
    assert clamped.temperature == pytest.approx(temperature, abs=1e-6)
    assert float(delta.abs().max()) > 2e-3


def test_in_single_precision_the_loop_is_the_same():
    method = with_epochs(NeuralClamping.toolkit(), 2)
    delta, temperature = plain_loop(
        method,
        lambda logits, some, delta: focal(logits, some, 1.0, clip=1e-7).mean() + 0.01 * delta.norm(),
        lr=0.01,
        momentum=0.9,
        batch=1000,
        epochs=2,
        dtype=torch.float32,
    )
    clamped = method.fit(network(torch.float32), data(torch.float32))
    assert torch.allclose(clamped.delta, delta, atol=1e-6)
    assert clamped.temperature == pytest.approx(temperature, abs=1e-6)


def test_the_presets_are_those_of_the_paper_and_the_toolkit():
    paper, toolkit = NeuralClamping.paper_protocol(), NeuralClamping.toolkit()
    assert paper.solver == StochasticSolver(0.001, 0.0, 512, 100, "sum")
    assert (paper.gamma, paper.penalty, paper.clip, paper.strength) == (1.0, "squared", 0.0, "tenth-of-loss")
    assert toolkit.solver == StochasticSolver(0.01, 0.9, 1000, 100, "mean")
    assert (toolkit.penalty, toolkit.clip, toolkit.strength) == ("norm", 1e-7, 0.01)
    assert toolkit.start == RandomStart(0.001)


def test_the_temperature_reached_is_reported_beside_the_best_at_this_delta():
    clamped = with_epochs(NeuralClamping.paper_protocol(), 2).fit(network(), data())
    (note,) = clamped.summary.notes
    assert note.startswith(f"T = {clamped.temperature:.4f} after 2 epochs; the objective's optimum at this δ is T = ")


def test_where_every_sample_is_correct_it_stops_where_the_epochs_end_and_warns():
    inputs, _ = data()
    ahead, behind = network()(inputs).topk(2).values.T
    inputs = inputs[ahead - behind > 3]
    clamped = with_epochs(NeuralClamping.paper_protocol(), 2).fit(network(), (inputs, network()(inputs).argmax(1)))
    assert 0 < clamped.temperature < 1
    assert "T = 0: every prediction is right" in clamped.summary.notes[0]


def begin(dtype=torch.float64):
    one, nothing = torch.ones((), dtype=dtype), torch.zeros(D, dtype=dtype)
    return StochasticState(nothing, one, torch.zeros(D, dtype=dtype), torch.zeros((), dtype=dtype), 0)


def go(state, epochs, *, momentum=0.9, states=None, **options):
    solver = StochasticSolver(momentum=momentum, batch_size=300, epochs=epochs, **options)
    after = (lambda _state: None) if states is None else states.append
    passes = Passes(network(), LabelledInputs.of(data()), preparation=InputPreparation(seed=1))
    return descend_stochastically(passes, Objective(1.0, 0.01), solver, state, after_epoch=after)


def test_taken_up_after_an_epoch_it_ends_bit_for_bit_where_it_would_have():
    whole = go(begin(), 4)
    half = go(begin(), 2)
    kept = StochasticState(*(item.clone() for item in half[:4]), half.epochs)
    resumed = go(kept, 4)
    for one, other in zip(whole[:4], resumed[:4], strict=True):
        assert torch.equal(one, other)
    assert resumed.epochs == 4


def test_what_was_reported_after_an_epoch_can_be_kept_uncopied():
    states = []
    go(begin(), 2, states=states)
    assert [state.epochs for state in states] == [1, 2]
    first = go(begin(), 1)
    assert torch.equal(states[0].delta, first.delta)
    assert torch.equal(states[0].temperature, first.temperature)


def test_at_its_last_epoch_there_is_nothing_left_to_do():
    done = go(begin(), 1)
    assert go(done, 1) is done


def test_a_rate_that_drives_the_temperature_below_zero_is_an_error_that_says_what_to_do():
    inputs, _ = data()
    labels = network()(inputs).argmax(1)
    labels[0] = (labels[0] + 1) % K  # so that there is an optimum
    samples = LabelledInputs.of((inputs, labels))
    with pytest.raises(FitError, match=r"T must stay above 0 and δ finite.*at rate 1 .*T = -.*use the exact solver"):
        descend_stochastically(Passes(network(), samples), Objective(), StochasticSolver(learning_rate=1.0), begin())


@pytest.mark.parametrize("rate", [0.003, 1.0])
def test_where_all_samples_are_correct_the_rate_is_not_blamed(rate):
    inputs, _ = data()
    samples = LabelledInputs.of((inputs, network()(inputs).argmax(1)))
    with pytest.raises(SeparableError, match=r"some predictions must be wrong.*until T = 0, at any rate"):
        descend_stochastically(Passes(network(), samples), Objective(), StochasticSolver(learning_rate=rate), begin())


class Overflowing(nn.Module):
    """Has no finite logits near one input."""

    def __init__(self, odd):
        super().__init__()
        self.network, self.odd = network(), odd

    def forward(self, inputs):
        is_odd = (inputs - self.odd).abs().amax(dim=1, keepdim=True) < 0.1
        return self.network(inputs).masked_fill(is_odd, torch.nan)


def test_a_sample_without_logits_is_named_and_the_rate_is_not_blamed():
    inputs, labels = data()
    model, samples = Overflowing(inputs[17]), LabelledInputs.of((inputs, labels))
    with pytest.raises(InputError, match=r"logits must be finite; got NaN or infinity for row 17 \("):
        descend_stochastically(Passes(model, samples), Objective(), StochasticSolver(), begin())


def test_a_penalty_that_the_rate_cannot_bear_is_reported():
    samples, solver = LabelledInputs.of(data()), StochasticSolver(epochs=400)
    state = begin()._replace(delta=torch.ones(D, dtype=torch.float64))
    with pytest.raises(FitError, match=r"at rate 0\.001 and λ = 50 per sample they are not .*Lower the rate or λ"):
        descend_stochastically(Passes(network(), samples), Objective(strength=50.0), solver, state)


def test_a_network_that_lets_no_gradient_through_is_refused():
    class Detached(nn.Module):
        def forward(self, inputs):
            return network()(inputs.detach())

    with pytest.raises(InputError, match=r"must carry a gradient to its inputs"):
        descend_stochastically(Passes(Detached(), LabelledInputs.of(data())), Objective(), StochasticSolver(), begin())


class Stream(IterableDataset):
    def __iter__(self):
        return iter(list(zip(*data(), strict=True)))


def test_samples_that_cannot_be_shuffled_are_reported():
    method = with_epochs(NeuralClamping.toolkit(), 1)
    with pytest.warns(CalibrantWarning, match=r"a new order in each epoch, 1000 at a time.*Give tensors, or"):
        streamed = method.fit(network(), DataLoader(Stream(), batch_size=100))
    whole = method.fit(network(), DataLoader(list(zip(*data(), strict=True)), batch_size=100))  # asked for by number
    assert torch.equal(whole.delta, method.fit(network(), data()).delta)
    assert not torch.allclose(streamed.delta, whole.delta, atol=1e-4)
    assert any("a new order" in note for note in streamed.summary.notes)


def test_options_may_be_numbers_of_numpy():
    solver = StochasticSolver(np.float32(0.5), np.float64(0.25), np.int64(7), np.uint8(2))
    assert solver == StochasticSolver(0.5, 0.25, 7, 2)
    assert json.loads(json.dumps(dataclasses.asdict(solver)))["batch_size"] == 7


@pytest.mark.parametrize("rule", ["tenth-as-term", 50.0])
def test_a_descent_that_went_up_is_reported(rule):
    # The second reading of the paper's rule divides by the tiny first δ: a λ that its rate cannot bear.
    with pytest.warns(CalibrantWarning, match=r"the objective rose from .* to .*, so the rate 0\.001 is too high"):
        clamped = with_epochs(NeuralClamping.paper_protocol(strength=rule), 3).fit(network(), data())
    assert any("the objective rose" in note for note in clamped.summary.notes)


def test_a_caller_who_has_gradients_off_gets_the_same():
    known = go(begin(), 1)
    with torch.no_grad():
        assert torch.equal(go(begin(), 1).delta, known.delta)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_rate": 0.0}, "learning_rate must be above 0"),
        ({"momentum": -0.1}, "momentum must be between 0 and 0.999"),
        ({"momentum": 1.5}, "momentum must be between 0 and 0.999"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"epochs": 1.5}, "epochs must be a whole number"),
        ({"reduction": "max"}, "reduction must be one of sum, mean"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        StochasticSolver(**options)
