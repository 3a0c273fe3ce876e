"""The gradient of a loss's own parameters, one step ahead: right, and seen by nothing else."""

import copy
import io
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from calibrant.errors import CalibrantWarning, FitError, InputError
from calibrant.losses import CrossEntropyLoss, MetaFocalLoss, MetaL2Loss, MetaSmoothingLoss
from calibrant.training import MetaRegulariser, features_in_evaluation, predict

D, K, N = 5, 3, 40
LOSSES = [
    lambda: MetaFocalLoss(temperature=1.0, cross_entropy=0.0),
    lambda: MetaFocalLoss(objective="dece", temperature=1.0, cross_entropy=0.0),
    lambda: MetaFocalLoss(objective="ce", temperature=1.0),
    lambda: MetaFocalLoss(objective="sece", temperature=1.0),
    lambda: MetaL2Loss(start=0.01, unit="weight"),
    lambda: MetaSmoothingLoss(objective="sece"),
]


class Small(nn.Module):
    """All that a network may have that changes in training."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, D), nn.BatchNorm1d(D), nn.ReLU(), nn.Dropout(0.5))
        self.head = nn.Linear(D, K)

    def features(self, inputs):
        return self.body(inputs)

    def forward(self, inputs):
        return self.head(self.features(inputs))


@pytest.fixture
def rows():
    chance = torch.Generator().manual_seed(1)
    features = torch.randn(2 * N, D, generator=chance, dtype=torch.float64)
    labels = torch.randint(K, (2 * N,), generator=chance)
    return features[:N], labels[:N], features[N:], labels[N:]


def regulariser_of(make, *, bias=True):
    torch.manual_seed(0)
    head = nn.Linear(D, K, bias=bias, dtype=torch.float64)
    return MetaRegulariser(make(), head), head


def by_hand(regulariser, head, rows, rate):
    """The same by another road: the layer really takes the step, in a copy."""
    features, labels, others, others_labels = rows
    stepped = copy.deepcopy(head)
    loss = regulariser.meta_loss(features, stepped(features), labels, stepped.weight)
    gradients = torch.autograd.grad(loss, list(stepped.parameters()))
    with torch.no_grad():
        for part, gradient in zip(stepped.parameters(), gradients, strict=True):
            part.sub_(rate * gradient)
        return float(regulariser.meta_loss.held_out(stepped(others), others_labels))


@pytest.mark.parametrize("make", LOSSES)
@pytest.mark.parametrize("bias", [True, False])
def test_the_gradient_is_that_of_finite_differences_through_one_step(make, bias, rows):
    regulariser, head = regulariser_of(make, bias=bias)
    regulariser.initialise(rows[0])
    phi = list(regulariser.meta_loss.parameters())
    value = regulariser.look_ahead(*rows, rate=0.7)
    assert float(value.detach()) == pytest.approx(by_hand(regulariser, head, rows, 0.7), rel=1e-12)
    gradients = torch.autograd.grad(value, phi)
    assert max(float(gradient.abs().max()) for gradient in gradients) > 1e-6
    chance, step = torch.Generator().manual_seed(2), 1e-5
    for each, gradient in zip(phi, gradients, strict=True):
        for place in torch.randint(each.numel(), (4,), generator=chance).tolist():
            ends = []
            for sign in (1, -1):
                with torch.no_grad():
                    each.view(-1)[place] += sign * step
                ends.append(by_hand(regulariser, head, rows, 0.7))
                with torch.no_grad():
                    each.view(-1)[place] -= sign * step
            slope = (ends[0] - ends[1]) / (2 * step)
            assert float(gradient.flatten()[place]) == pytest.approx(slope, rel=1e-4, abs=1e-8)


@pytest.mark.parametrize("make", LOSSES)
def test_learning_lowers_the_objective_on_held_out_samples(make, rows):
    regulariser, _ = regulariser_of(make)
    before = None
    for _ in range(100):
        regulariser.learn(*rows, rate=1.0)
        before = before or float(regulariser.look_ahead(*rows, rate=1.0).detach())
    assert float(regulariser.look_ahead(*rows, rate=1.0).detach()) < before


def test_nothing_of_the_network_sees_the_held_out_samples():
    torch.manual_seed(0)
    model = Small().train()
    inputs, labels = torch.randn(N, 4), torch.randint(K, (N,))
    held_out, held_out_labels = 100 * torch.randn(N, 4) + 50, torch.randint(K, (N,))
    regulariser = MetaRegulariser(MetaFocalLoss(), model.head)
    features = model.features(inputs)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    seen = features_in_evaluation(model, held_out)
    regulariser.learn(features, labels, seen, held_out_labels, rate=0.1)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(weight.grad is None for weight in model.parameters())
    assert all(module.training for module in model.modules())
    # And the gradient that then trains the network is that of the training samples alone.
    regulariser.loss(features, model.head(features), labels).backward(retain_graph=True)
    gamma = regulariser.meta_loss.gamma_net(features).detach()
    mine = [weight.grad.clone() for weight in model.parameters()]
    model.zero_grad()
    losses = F.cross_entropy(model.head(features), labels, reduction="none")
    expected = torch.autograd.grad(((1 - (-losses).exp()) ** gamma * losses).mean(), list(model.parameters()))
    for one, other in zip(mine, expected, strict=True):
        assert torch.allclose(one, other, atol=1e-6)


def test_parts_of_a_network_that_somebody_froze_stay_frozen():
    model = Small().train()
    model.body[1].eval()
    for look in (features_in_evaluation, predict):
        look(model, torch.randn(3, 4))
        frozen = [module for module in model.modules() if not module.training]
        assert frozen == [model.body[1]]
    model.eval()
    features_in_evaluation(model, torch.randn(3, 4))
    assert not any(module.training for module in model.modules())


def test_training_moves_only_the_network_and_learning_only_the_loss(rows):
    regulariser, head = regulariser_of(MetaFocalLoss)
    features, labels = rows[:2]
    regulariser.initialise(features)
    regulariser.loss(features, head(features), labels).backward()
    assert all(each.grad is None for each in regulariser.meta_loss.parameters())
    assert head.weight.grad is not None


def test_gamma_is_1_on_average_over_the_first_batch_unless_somebody_initialised_it(rows):
    regulariser, _ = regulariser_of(lambda: MetaFocalLoss(learning_rate=1e-12))
    regulariser.learn(*rows, rate=0.1)
    assert regulariser.describe(rows[0])["gamma_mean"] == pytest.approx(1, abs=1e-6)
    other, _ = regulariser_of(lambda: MetaFocalLoss(learning_rate=1e-12))
    other.initialise(10 * rows[2])
    other.learn(*rows, rate=0.1)
    assert other.describe(rows[0])["gamma_mean"] != pytest.approx(1, abs=1e-3)


def test_gamma_is_1_on_average_in_a_warm_up_that_does_not_learn_too(rows):
    regulariser, head = regulariser_of(MetaFocalLoss)
    regulariser.loss(rows[0], head(rows[0]), rows[1])
    assert regulariser.describe(rows[0])["gamma_mean"] == pytest.approx(1, abs=1e-6)
    before = [each.detach().clone() for each in regulariser.meta_loss.parameters()]
    regulariser.loss(rows[2], head(rows[2]), rows[3])
    assert all(map(torch.equal, before, regulariser.meta_loss.parameters()))


def in_own_loop(model, regulariser, optimiser, steps):
    """Train as a person would; each step draws its samples by its number."""
    for step in steps:
        chance = torch.Generator().manual_seed(step)
        inputs, held_out = torch.randn(2, N, 4, generator=chance)
        labels, held_out_labels = (inputs.sum(1) > 0).long(), (held_out.sum(1) > 0).long()
        features = model.features(inputs)
        seen = features_in_evaluation(model, held_out)
        regulariser.learn(features, labels, seen, held_out_labels, rate=0.1)
        optimiser.zero_grad()
        regulariser.loss(features, model.head(features), labels).backward()
        optimiser.step()


@pytest.mark.parametrize("make", [lambda: MetaFocalLoss(learning_rate=0.01), MetaL2Loss, MetaSmoothingLoss])
@pytest.mark.parametrize("steps_before", [0, 5])
def test_an_own_loop_that_was_stopped_resumes_to_the_last_bit(make, steps_before):
    def begun():
        torch.manual_seed(0)
        model = Small()
        model.body[3] = nn.Identity()  # what is drawn in a step is no business of the loss
        return model, MetaRegulariser(make(), model.head), torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    straight, first, second = begun(), begun(), begun()
    in_own_loop(*straight, range(12))
    in_own_loop(*first, range(steps_before))
    file = io.BytesIO()
    torch.save([part.state_dict() for part in first], file)
    in_own_loop(*first, range(7))  # which moves the tensors that were saved
    file.seek(0)
    for part, state in zip(second, torch.load(file), strict=True):
        part.load_state_dict(state)
    in_own_loop(*second, range(steps_before, 12))
    for one, other in zip(straight[:2], second[:2], strict=True):
        ends = one.state_dict(), other.state_dict()
        assert ends[0].keys() == ends[1].keys()
        assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


def test_the_parameters_alone_can_be_loaded_and_are_not_begun_anew(rows):
    first, _ = regulariser_of(lambda: MetaFocalLoss(learning_rate=0.01))
    for _ in range(30):
        first.learn(*rows, rate=0.1)
    gamma = first.describe(rows[0])["gamma_mean"]
    assert gamma != pytest.approx(1, abs=0.1)
    second, _ = regulariser_of(lambda: MetaFocalLoss(learning_rate=1e-12))
    second.meta_loss.load_state_dict(first.meta_loss.state_dict())
    second.learn(*rows, rate=0.1)
    assert second.describe(rows[0])["gamma_mean"] == pytest.approx(gamma, abs=1e-6)


def test_a_state_is_loaded_into_the_same_memory(rows):
    regulariser, _ = regulariser_of(MetaFocalLoss)
    places = {name: tensor.data_ptr() for name, tensor in regulariser.state_dict().items() if "_extra" not in name}
    regulariser.learn(*rows, rate=0.1)
    regulariser.load_state_dict(copy.deepcopy(regulariser.state_dict()))
    after = regulariser.state_dict()
    assert all(after[name].data_ptr() == place for name, place in places.items())


def test_a_loss_in_a_second_regulariser_begins_anew(rows):
    loss = MetaFocalLoss(learning_rate=1e-12)
    for scale in (1, 3):
        regulariser = MetaRegulariser(loss, nn.Linear(D, K, dtype=torch.float64))
        regulariser.learn(scale * rows[0], rows[1], rows[2], rows[3], rate=0.1)
        assert regulariser.describe(scale * rows[0])["gamma_mean"] == pytest.approx(1, abs=1e-6)


class TestWarnings:
    def test_a_gamma_above_its_limit_is_warned_of_once_with_what_to_do(self, rows):
        regulariser, _ = regulariser_of(lambda: MetaFocalLoss(learning_rate=10.0))
        regulariser.learn(*rows, rate=0.1)
        with pytest.warns(CalibrantWarning, match="limit.*learning_rate, or give it more cross_entropy") as told:
            regulariser.learn(*rows, rate=0.1)
        assert told[0].filename == __file__
        regulariser.learn(*rows, rate=0.1)
        assert regulariser.describe(rows[0])["gamma_clipped"] == 1

    def test_describe_warns_of_a_gamma_above_its_limit_too(self, rows):
        head = nn.Linear(D, K, dtype=torch.float64)
        regulariser = MetaRegulariser(MetaFocalLoss(objective="ce", limit=0.5), head, name="this run")
        regulariser.initialise(rows[0])
        with pytest.warns(CalibrantWarning, match=r"^this run: γ is above its limit .* learning_rate\.$"):
            regulariser.describe(rows[0])
        regulariser.describe(rows[0])

    def test_a_gradient_that_is_dropped_is_warned_of_once(self, rows):
        regulariser, _ = regulariser_of(MetaFocalLoss)
        regulariser.initialise(rows[0])
        before = [each.detach().clone() for each in regulariser.meta_loss.parameters()]
        with pytest.warns(CalibrantWarning, match="gradient of the meta-learned loss is not finite"):
            regulariser.learn(*rows, rate=torch.tensor(math.nan))
        regulariser.learn(*rows, rate=torch.tensor(math.nan))
        assert all(map(torch.equal, before, regulariser.meta_loss.parameters()))


def test_a_layer_in_half_precision_is_looked_ahead_of_in_full(rows):
    torch.manual_seed(0)
    head = nn.Linear(D, K, dtype=torch.bfloat16)
    regulariser = MetaRegulariser(MetaFocalLoss(), head)
    features, labels, others, others_labels = rows
    regulariser.learn(features.bfloat16(), labels, others.bfloat16(), others_labels, rate=0.1)
    assert regulariser.look_ahead(features, labels, others, others_labels, rate=0.1).dtype == torch.float32


class TestRefusals:
    def test_a_plain_loss_is_none_that_is_learned(self):
        with pytest.raises(InputError, match="MetaFocalLoss"):
            MetaRegulariser(CrossEntropyLoss(), nn.Linear(D, K))

    def test_a_head_of_several_layers_is_none(self):
        with pytest.raises(InputError, match=r"nn\.Linear.*features"):
            MetaRegulariser(MetaFocalLoss(), nn.Sequential(nn.Linear(D, K)))

    def test_a_network_without_features_is_refused_with_how_to_wrap_it(self):
        with pytest.raises(InputError, match="Wrap it"):
            features_in_evaluation(nn.Linear(4, K), torch.zeros(2, 4))

    def test_one_held_out_sample_is_too_few(self, rows):
        regulariser, _ = regulariser_of(MetaFocalLoss)
        with pytest.raises(InputError, match="two samples or more"):
            regulariser.learn(rows[0], rows[1], rows[2][:1], rows[3][:1], rate=0.1)

    def test_held_out_samples_of_one_class_are_warned_of_once(self, rows):
        regulariser, _ = regulariser_of(MetaFocalLoss)
        alike = torch.zeros_like(rows[3])
        with pytest.warns(CalibrantWarning, match="has class 0 only"):
            regulariser.learn(*rows[:3], alike, rate=0.1)
        regulariser.learn(*rows[:3], alike, rate=0.1)

    @pytest.mark.parametrize("rate", [math.nan, math.inf, -0.1, True, None])
    def test_a_rate_that_is_none(self, rate, rows):
        regulariser, _ = regulariser_of(MetaFocalLoss)
        with pytest.raises(InputError, match="rate must be at least 0"):
            regulariser.learn(*rows, rate=rate)

    def test_a_rate_of_0_as_a_warm_up_begins_with_is_none_of_them(self, rows):
        regulariser, _ = regulariser_of(MetaFocalLoss)
        regulariser.learn(*rows, rate=0.0)

    @pytest.mark.parametrize("make", LOSSES)
    @pytest.mark.parametrize(("which", "name"), [(0, "^features"), (2, "^held_out_features")])
    def test_features_of_another_size_are_refused_before_anything_moves(self, make, which, name, rows):
        regulariser, head = regulariser_of(make)
        for wrong, message in (
            (torch.zeros(N, D + 2, dtype=torch.float64), f"{name} must have .*{D} columns; got {D + 2}"),
            (rows[which][:, :, None, None], rf"{name} must have shape \(n, d\).*Pool or flatten"),
        ):
            given = [*rows[:which], wrong, *rows[which + 1 :]]
            for look in (regulariser.learn, regulariser.look_ahead):
                with pytest.raises(InputError, match=message):
                    look(*given, rate=0.1)
            if which == 0:
                with pytest.raises(InputError, match=message):
                    regulariser.loss(wrong, head(rows[0]), rows[1])
                for look in (regulariser.describe, regulariser.initialise):
                    with pytest.raises(InputError, match=message):
                        look(wrong)
        assert not regulariser.meta_loss.is_initialised

    @pytest.mark.parametrize("make", LOSSES)
    def test_features_of_other_samples_than_the_logits(self, make, rows):
        regulariser, head = regulariser_of(make)
        with pytest.raises(InputError, match=f"got 5 and {N}"):
            regulariser.loss(rows[0][:5], head(rows[0]), rows[1])

    def test_a_state_of_another_loss_or_head(self):
        regulariser, _ = regulariser_of(MetaFocalLoss)
        others = [
            MetaRegulariser(MetaFocalLoss(), nn.Linear(D + 1, K)).state_dict(),
            regulariser_of(MetaL2Loss)[0].state_dict(),
            regulariser.meta_loss.state_dict(),
            regulariser.optimiser.state_dict(),
        ]
        for state in others:
            with pytest.raises(InputError, match="of this loss and head"):
                regulariser.load_state_dict(state)

    @pytest.mark.parametrize("which", [0, 2])
    def test_features_that_are_no_numbers_are_refused(self, which, rows):
        regulariser, _ = regulariser_of(MetaFocalLoss)
        broken = list(rows)
        broken[which] = torch.full_like(rows[which], math.nan)
        with pytest.raises(FitError, match="must be finite"):
            regulariser.learn(*broken, rate=0.1)


def test_a_rate_that_follows_the_networks_is_multiplied_by_its_share(rows):
    features, labels, others, others_labels = rows
    constant, _ = regulariser_of(lambda: MetaFocalLoss(learning_rate=0.01))
    moved = {}
    for share in (1.0, 0.1, 0.0):
        following, _ = regulariser_of(lambda: MetaFocalLoss(learning_rate=0.01, schedule="network"))
        following.initialise(features)
        before = [each.detach().clone() for each in following.meta_loss.parameters()]
        following.learn(features, labels, others, others_labels, rate=0.1, share=share)
        after = following.meta_loss.parameters()
        moved[share] = torch.cat([(one - other).detach().flatten() for one, other in zip(after, before, strict=True)])
    constant.initialise(features)
    before = [each.detach().clone() for each in constant.meta_loss.parameters()]
    constant.learn(features, labels, others, others_labels, rate=0.1, share=0.1)  # which it does not look at
    whole = torch.cat(
        [(one - other).detach().flatten() for one, other in zip(constant.meta_loss.parameters(), before, strict=True)]
    )
    # The rate itself is in float32.
    torch.testing.assert_close(moved[1.0], whole, rtol=1e-6, atol=1e-12)
    torch.testing.assert_close(moved[0.1], 0.1 * whole, rtol=1e-6, atol=1e-12)
    assert not moved[0.0].any()
