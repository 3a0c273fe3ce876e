"""Passes give the logits at x + δ and the exact gradient of eq. 9, whatever the batches and the network do."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from calibrant.calibrators import IsotonicOneVsRest, VectorScaling
from calibrant.clamping import InputSpace, LowFrequencies, Objective, PerChannel, PerEntry
from calibrant.clamping.inputs import InputPreparation
from calibrant.clamping.passes import Passes
from calibrant.errors import InputError
from calibrant.inference import LabelledInputs, device_of, frozen
from calibrant.maps import Affine, Scale
from calibrant.predictions import Predictions

N, K, SHAPE = 17, 4, (2, 3, 4)


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def network():
    torch.manual_seed(0)
    made = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(36, K)).double()
    return made.eval().requires_grad_(False)


def data(n=N):
    return torch.rand(n, *SHAPE, generator=torch.Generator().manual_seed(1), dtype=torch.float64), torch.arange(n) % K


def samples(n=N, **options):
    return LabelledInputs.of(data(n), **options)


def temperature(value=0.7):
    return Scale(torch.tensor(value, dtype=torch.float64), n_classes=K)


def affine():
    return Affine(torch.eye(K).double() + 0.1 * drawn(K, K, seed=3), 0.3 * drawn(K, seed=4), n_classes=K)


def equation_9(delta, head, *, gamma, lam, penalty="squared", clip=0.0, clips=False):
    """Written anew: the sum over samples of the focal loss, and λ times the (squared) norm."""
    inputs, labels = data()
    moved = inputs + delta
    logits = network()(moved.clamp(0, 1) if clips else moved)
    probs = head(logits).softmax(dim=1)[range(N), labels]
    if clip:
        probs = probs.clamp(clip, 1 - clip)
    size = (delta**2).sum()
    return (-((1 - probs) ** gamma) * probs.log()).sum() + lam * (size if penalty == "squared" else size.sqrt())


@pytest.mark.parametrize(
    ("gamma", "penalty", "freedom", "clip", "clips", "head"),
    [
        (0.0, "squared", PerEntry(), 0.0, False, temperature()),
        (0.5, "squared", PerEntry(), 0.0, False, temperature()),
        (1.0, "squared", PerEntry(), 0.0, False, temperature()),
        (1.0, "norm", PerEntry(), 0.1, False, temperature()),
        (0.5, "norm", LowFrequencies(2), 0.0, False, temperature()),
        (0.0, "squared", PerChannel(), 0.0, False, temperature()),
        (1.0, "squared", PerEntry(), 0.0, True, temperature()),
        (0.5, "norm", PerChannel(), 0.1, True, temperature()),
        (0.0, "squared", LowFrequencies(3), 0.0, False, affine()),
    ],
)
def test_the_gradient_is_that_of_equation_9_by_finite_differences(gamma, penalty, freedom, clip, clips, head):
    strength, model = 0.3, network()
    basis = freedom.basis(torch.zeros(SHAPE))
    coefficients = 0.4 * drawn(*basis.shape, seed=2)
    objective = Objective(gamma, strength, penalty, clip)
    passes = Passes(model, samples(), preparation=InputPreparation(InputSpace(clips=clips)), batch_size=6)
    slope = passes.logits_and_gradient(basis.to_delta(coefficients), head, objective)
    result = N * (basis.transpose(slope.gradient) + objective.penalty_gradient(coefficients))

    def value(at):
        return float(
            equation_9(basis.to_delta(at), head, gamma=gamma, lam=N * strength, penalty=penalty, clip=clip, clips=clips)
        )

    step, known = 1e-6, torch.empty_like(coefficients)
    for place in range(coefficients.numel()):
        moved = torch.zeros(coefficients.numel(), dtype=torch.float64)
        moved[place] = step
        moved = moved.reshape(coefficients.shape)
        known.view(-1)[place] = (value(coefficients + moved) - value(coefficients - moved)) / (2 * step)
    assert torch.allclose(result, known, atol=1e-6 * float(known.abs().max()))
    losses = objective.sample_losses(head(slope.logits), torch.arange(N) % K)
    mean = float(losses.mean()) + objective.penalty_of(coefficients)
    assert N * mean == pytest.approx(value(coefficients), rel=1e-10)


@pytest.mark.parametrize("batch_size", [1, 5, 16, 17, 400, None])
def test_neither_logits_nor_gradient_depend_on_the_batch_size(batch_size):
    model, (inputs, labels), delta = network(), data(), 0.3 * drawn(*SHAPE)
    passes = Passes(model, samples(), batch_size=batch_size)
    slope = passes.logits_and_gradient(delta, temperature(), Objective(1.0))
    assert torch.equal(passes.labels, labels)
    for logits in (passes.logits(delta), passes.full_precision_logits(delta), slope.logits):
        assert torch.allclose(logits, model(inputs + delta), rtol=1e-12)
    whole = Passes(model, samples(), batch_size=N).logits_and_gradient(delta, temperature(), Objective(1.0)).gradient
    assert torch.allclose(slope.gradient, whole, rtol=1e-12)


def test_chosen_samples_come_in_the_order_asked_for():
    model, (inputs, labels), delta = network(), data(), 0.3 * drawn(*SHAPE)
    chosen = torch.tensor([11, 2, 3, 16])
    passes = Passes(model, samples(), chosen, batch_size=3)
    assert len(passes) == 4
    assert torch.equal(passes.labels, labels[chosen])
    assert torch.allclose(passes.logits(delta), model(inputs[chosen] + delta), rtol=1e-12)
    few = Passes(model, LabelledInputs.of((inputs[chosen], labels[chosen])))
    gradients = [item.logits_and_gradient(delta, temperature(), Objective()).gradient for item in (passes, few)]
    assert torch.allclose(*gradients, rtol=1e-10)


def test_a_half_or_single_network_gives_logits_in_single():
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        inputs, labels = data()
        passes = Passes(network().to(dtype), LabelledInputs.of((inputs.to(dtype), labels)))
        slope = passes.logits_and_gradient(torch.zeros(SHAPE), temperature(), Objective())
        assert slope.logits.dtype == torch.float32
        assert slope.gradient.dtype == torch.float64
        precise = Passes(network(), samples()).logits_and_gradient(
            torch.zeros(SHAPE).double(), temperature(), Objective()
        )
        assert torch.allclose(slope.gradient, precise.gradient, atol=0.05 * float(precise.gradient.abs().max()))


class WritesIntoItsInput(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = network()

    def forward(self, inputs):
        inputs.sub_(0.5).mul_(2)
        return self.inner(inputs.relu_())


@pytest.mark.parametrize("inner", [WritesIntoItsInput, lambda: nn.Sequential(nn.ReLU(inplace=True), network())])
def test_a_network_that_writes_into_its_input_leaves_the_data_alone(inner):
    model, (inputs, labels), delta = inner().eval(), data(), 0.3 * drawn(*SHAPE)
    before = inputs.clone()
    passes = Passes(model, LabelledInputs.of((inputs, labels)), batch_size=6)
    known = model(inputs + delta)
    slope = passes.logits_and_gradient(delta, temperature(), Objective(1.0))
    for logits in (passes.logits(delta), slope.logits):
        assert torch.allclose(logits, known, rtol=1e-12)
    assert torch.equal(inputs, before)
    assert slope.gradient.abs().sum() > 0


def test_no_weight_gets_a_gradient():
    model = network().requires_grad_(True)
    with frozen(model):
        Passes(model, samples()).logits_and_gradient(torch.zeros(SHAPE).double(), temperature(), Objective())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_delta_and_head_are_left_alone():
    delta, head = drawn(*SHAPE), affine()
    before = delta.clone(), {name: tensor.clone() for name, tensor in head.state_dict().items()}
    Passes(network(), samples()).logits_and_gradient(delta, head, Objective())
    assert torch.equal(delta, before[0])
    assert not delta.requires_grad
    assert all(torch.equal(tensor, before[1][name]) for name, tensor in head.state_dict().items())


class TestViews:
    PREPARATION = InputPreparation(InputSpace(), "crop-flip", views=3, seed=5)

    def images(self):
        return torch.rand(N, 2, 8, 8, generator=torch.Generator().manual_seed(1)), torch.arange(N) % K

    def model(self):
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(128, K)).eval().requires_grad_(False)

    @pytest.mark.parametrize("batch_size", [4, 100])
    def test_a_pass_with_a_gradient_sees_every_view_of_every_sample(self, batch_size):
        (inputs, labels), delta = self.images(), 0.1 * torch.randn(2, 8, 8, generator=torch.Generator().manual_seed(2))
        passes = Passes(
            self.model(), LabelledInputs.of((inputs, labels)), preparation=self.PREPARATION, batch_size=batch_size
        )
        slope = passes.logits_and_gradient(delta, temperature(), Objective())
        views = [self.PREPARATION.augmented(inputs, self.PREPARATION.generator(view)) for view in range(3)]
        assert torch.equal(passes.view_labels, labels.repeat(3))
        assert torch.allclose(slope.logits, self.model()(torch.cat(views) + delta), atol=1e-5)
        leaf = delta.clone().requires_grad_()
        F.cross_entropy(self.model()(torch.cat(views) + leaf) / 0.7, labels.repeat(3)).backward()
        assert torch.allclose(slope.gradient.float(), leaf.grad, atol=1e-6)

    def test_logits_are_never_those_of_augmented_samples(self):
        inputs, labels = self.images()
        passes = Passes(self.model(), LabelledInputs.of((inputs, labels)), preparation=self.PREPARATION)
        assert torch.allclose(passes.logits(torch.zeros(2, 8, 8)), self.model()(inputs), atol=1e-5)


def test_a_caller_who_has_gradients_off_gets_the_same():
    passes, delta = Passes(network(), samples()), 0.3 * drawn(*SHAPE)
    known = passes.logits_and_gradient(delta, temperature(), Objective()).gradient
    with torch.no_grad():
        assert torch.equal(passes.logits_and_gradient(delta, temperature(), Objective()).gradient, known)


def test_a_network_that_lets_no_gradient_through_is_refused_with_what_to_do():
    class Detached(nn.Module):
        def forward(self, inputs):
            return inputs.flatten(1)[:, :K].detach()

    with pytest.raises(InputError, match=r"must carry a gradient to its inputs.*detach from its forward"):
        Passes(Detached(), samples()).logits_and_gradient(torch.zeros(SHAPE).double(), temperature(), Objective())


def test_a_head_of_steps_is_refused_with_what_to_do():
    logits, labels = network()(data(200)[0]), data(200)[1]
    head = IsotonicOneVsRest().fit(Predictions.from_logits(logits, labels))
    with pytest.raises(InputError, match=r"the head must change smoothly.*Take a temperature"):
        Passes(network(), samples()).logits_and_gradient(torch.zeros(SHAPE).double(), head, Objective())


def test_any_smooth_head_will_do():
    logits, labels = network()(data(200)[0]), data(200)[1]
    head = VectorScaling().fit(Predictions.from_logits(logits, labels))
    gradient = Passes(network(), samples()).logits_and_gradient(torch.zeros(SHAPE).double(), head, Objective()).gradient
    assert gradient.abs().sum() > 0


def test_the_device_is_the_networks_and_must_be_one():
    assert device_of(nn.Identity()) == torch.device("cpu")
    assert device_of(nn.Linear(2, 2, device="meta")) == torch.device("meta")
    with pytest.raises(InputError, match="must be on one device; it is on cpu, meta"):
        device_of(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, device="meta")))
