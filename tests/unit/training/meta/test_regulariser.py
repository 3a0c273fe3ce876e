"""The gradient of a loss's own parameters, one step ahead: right, and seen by nothing else."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  # torch's own name for it

from calibrant.errors import CalibrantWarning, InputError
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
    regulariser.settle(rows[0])
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
def test_learning_lowers_what_held_out_rows_will_say(make, rows):
    regulariser, _ = regulariser_of(make)
    before = None
    for _ in range(100):
        regulariser.learn(*rows, rate=1.0)
        before = before or float(regulariser.look_ahead(*rows, rate=1.0).detach())
    assert float(regulariser.look_ahead(*rows, rate=1.0).detach()) < before


def test_nothing_of_the_network_sees_the_held_out_rows():
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
    # And the gradient that then trains the network is that of the training rows alone.
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
    regulariser.settle(features)
    regulariser.loss(features, head(features), labels).backward()
    assert all(each.grad is None for each in regulariser.meta_loss.parameters())
    assert head.weight.grad is not None


def test_gamma_is_1_on_average_over_the_first_batch_unless_somebody_settled_it(rows):
    regulariser, _ = regulariser_of(lambda: MetaFocalLoss(learning_rate=1e-12))
    regulariser.learn(*rows, rate=0.1)
    assert regulariser.meta_loss.told(rows[0])["gamma_mean"] == pytest.approx(1, abs=1e-6)
    other, _ = regulariser_of(lambda: MetaFocalLoss(learning_rate=1e-12))
    other.settle(10 * rows[2])
    other.learn(*rows, rate=0.1)
    assert other.meta_loss.told(rows[0])["gamma_mean"] != pytest.approx(1, abs=1e-3)


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

    def test_a_network_without_features_is_told_how_to_be_wrapped(self):
        with pytest.raises(InputError, match="Wrap it"):
            features_in_evaluation(nn.Linear(4, K), torch.zeros(2, 4))

    def test_one_held_out_row_cannot_judge(self, rows):
        regulariser, _ = regulariser_of(MetaFocalLoss)
        with pytest.raises(InputError, match="two rows or more"):
            regulariser.learn(rows[0], rows[1], rows[2][:1], rows[3][:1], rate=0.1)

    def test_held_out_rows_of_one_class_are_warned_of_once(self, rows):
        regulariser, _ = regulariser_of(MetaFocalLoss)
        alike = torch.zeros_like(rows[3])
        with pytest.warns(CalibrantWarning, match="all of class 0"):
            regulariser.learn(*rows[:3], alike, rate=0.1)
        regulariser.learn(*rows[:3], alike, rate=0.1)

    @pytest.mark.parametrize("which", [0, 2])
    def test_features_that_are_no_numbers_are_refused(self, which, rows):
        regulariser, _ = regulariser_of(MetaFocalLoss)
        broken = list(rows)
        broken[which] = torch.full_like(rows[which], math.nan)
        with pytest.raises(InputError, match="must be finite"):
            regulariser.learn(*broken, rate=0.1)
