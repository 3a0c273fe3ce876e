"""δ added behind the first layer is δ added to the input, or the shortcut is not taken."""

import copy

import pytest
import torch
from torch import nn

from calibrant.clamping import Objective
from calibrant.clamping.passes import FirstLayer, Passes, find_first_layer
from calibrant.inference import LabelledInputs
from calibrant.maps import Scale
from calibrant.models import DigitsCNN

K = 3


class Standardise(nn.Module):
    """An affine map of every channel, as networks have it that normalise by themselves."""

    def __init__(self, channels):
        super().__init__()
        self.register_buffer("mean", torch.linspace(0.2, 0.6, channels).reshape(-1, 1, 1))
        self.register_buffer("std", torch.linspace(0.1, 0.4, channels).reshape(-1, 1, 1))

    def forward(self, inputs):
        return (inputs - self.mean) / self.std


class Calls(nn.Module):
    """A network of named parts whose way through them is given."""

    def __init__(self, way, **parts):
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)
        self.way = way

    def forward(self, inputs):
        return self.way(self, inputs)


def image_head(channels):
    return nn.Sequential(nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, K))


def drawn(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


VECTOR, IMAGE = (6,), (3, 7, 6)
ALLOWED = {
    "linear": (lambda: nn.Linear(6, K), VECTOR),
    "mlp": (lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, K)), VECTOR),
    "flattened": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(126, 8), nn.GELU(), nn.Linear(8, K)), IMAGE),
    "convolution": (lambda: nn.Sequential(nn.Conv2d(3, 5, 3, padding=1), image_head(5)), IMAGE),
    "strided": (lambda: nn.Sequential(nn.Conv2d(3, 6, 3, stride=2, groups=3, bias=False), image_head(6)), IMAGE),
    "reflected": (lambda: nn.Sequential(nn.Conv2d(3, 5, 3, padding=1, padding_mode="reflect"), image_head(5)), IMAGE),
    "standardised": (lambda: nn.Sequential(Standardise(3), nn.Conv2d(3, 5, 3), image_head(5)), IMAGE),
    "batch-normalised": (lambda: nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 5, 3), image_head(5)), IMAGE),
    "averaged": (lambda: nn.Sequential(nn.AvgPool2d(2), nn.Conv2d(3, 5, 2), image_head(5)), IMAGE),
    "sequence": (lambda: nn.Sequential(nn.Conv1d(2, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(40, K)), (2, 10)),
    "volume": (lambda: nn.Sequential(nn.Conv3d(1, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(16, K)), (1, 3, 3, 3)),
    "dropout": (lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(6, K)), VECTOR),
    "residual behind": (
        lambda: Calls(
            lambda net, x: net.head(net.stem(x) + net.body(net.stem.output)),
            stem=Calls(lambda net, x: setattr(net, "output", net.layer(x)) or net.output, layer=nn.Linear(6, 8)),
            body=nn.Sequential(nn.ReLU(), nn.Linear(8, 8)),
            head=nn.Linear(8, K),
        ),
        VECTOR,
    ),
}
REFUSED = {
    "second way in": (
        lambda: Calls(
            lambda net, x: net.tail(net.layer(x).relu()) + x[:, :K], layer=nn.Linear(6, 8), tail=nn.Linear(8, K)
        ),
        VECTOR,
    ),
    "two first layers": (
        lambda: Calls(lambda net, x: net.a(x) + net.b(x).relu(), a=nn.Linear(6, K), b=nn.Linear(6, K)),
        VECTOR,
    ),
    "relu before": (lambda: nn.Sequential(nn.ReLU(), nn.Linear(6, K)), VECTOR),
    "clamp before": (lambda: nn.Sequential(nn.Hardtanh(-2.0, 2.0), nn.Linear(6, K)), VECTOR),
    "maximum before": (lambda: nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(3, 5, 2), image_head(5)), IMAGE),
    "row normalised before": (lambda: nn.Sequential(nn.LayerNorm(6), nn.Linear(6, K)), VECTOR),
    "used twice": (
        lambda: Calls(lambda net, x: net.tail(net.layer(net.layer(x))), layer=nn.Linear(6, 6), tail=nn.Linear(6, K)),
        VECTOR,
    ),
    "used for two views": (
        lambda: Calls(lambda net, x: net.layer(x) + net.layer(x.flip(1)), layer=nn.Linear(6, K)),
        VECTOR,
    ),
    "gated by the input": (
        lambda: Calls(lambda net, x: net.layer(x) * x.mean(1, keepdim=True), layer=nn.Linear(6, K)),
        VECTOR,
    ),
    "no layer at all": (lambda: Calls(lambda _net, x: x[:, :K] ** 2), VECTOR),
    "layer of other parts": (
        lambda: Calls(lambda _net, x: torch.nn.functional.linear(x, torch.ones(K, 6).to(x))),
        VECTOR,
    ),
    "layer that sees no input": (
        lambda: Calls(lambda net, x: net.layer(torch.ones(1, 6).to(x)) * x[:, :K], layer=nn.Linear(6, K)),
        VECTOR,
    ),
}


def built(make, dtype=torch.float64):
    torch.manual_seed(0)
    model = make().to(dtype).eval().requires_grad_(False)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.uniform_(-1, 1)
            module.running_var.uniform_(0.5, 2)
    return model


def slopes(model, inputs, first, delta):
    """The plain way, and the short one."""
    data = LabelledInputs.of((inputs, torch.arange(len(inputs)) % K))
    head, objective = Scale(torch.tensor(0.6, dtype=torch.float64), n_classes=K), Objective(0.5)
    return tuple(
        Passes(model, data, batch_size=4, first_layer=layer).logits_and_gradient(delta, head, objective)
        for layer in (None, first)
    )


@pytest.mark.parametrize("name", ALLOWED)
def test_the_short_way_gives_the_same_logits_and_the_same_gradient(name):
    make, shape = ALLOWED[name]
    model, inputs = built(make), drawn(11, *shape)
    first = find_first_layer(model, inputs)
    assert first is not None
    plain, short = slopes(model, inputs, first, 0.7 * drawn(*shape))
    assert torch.allclose(short.logits, plain.logits, rtol=1e-9, atol=1e-10)
    assert plain.gradient.abs().max() > 1e-5
    assert torch.allclose(short.gradient, plain.gradient, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("name", REFUSED)
def test_a_network_of_which_that_is_not_true_is_refused(name):
    make, shape = REFUSED[name]
    assert find_first_layer(built(make), drawn(11, *shape)) is None


@pytest.mark.parametrize("size", [1e-3, 1.0, 255.0])
def test_single_precision_is_enough_in_any_units(size):
    model, inputs = (
        built(lambda: nn.Sequential(nn.Conv2d(3, 5, 3), image_head(5)), torch.float32),
        drawn(9, *IMAGE).float(),
    )
    model[0].weight.div_(size)
    first = find_first_layer(model, size * inputs)
    assert first is not None
    plain, short = slopes(model, size * inputs, first, size * 0.1 * drawn(*IMAGE).float())
    assert torch.allclose(short.logits, plain.logits, atol=1e-5)
    assert torch.allclose(short.gradient, plain.gradient, atol=1e-4 * float(plain.gradient.abs().max()))


def test_the_digits_network_takes_the_short_way():
    model = built(DigitsCNN, torch.float32)
    assert find_first_layer(model, torch.rand(4, 1, 8, 8)) is not None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_in_half_precision_it_is_taken_or_not_but_works(dtype):
    model, inputs = (
        built(lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, K)), dtype),
        drawn(9, 6).to(dtype),
    )
    first = find_first_layer(model, inputs)
    plain, short = slopes(model, inputs, first, torch.full((6,), 0.1))
    assert torch.allclose(short.gradient, plain.gradient, atol=0.05 * float(plain.gradient.abs().max()))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_the_share_of_a_delta_in_single_precision_is_found_in_any_network(dtype):
    model, inputs, delta = built(lambda: nn.Linear(6, K), dtype), drawn(1, 6).to(dtype), torch.full((6,), 0.5)
    output_shift = FirstLayer(model, model, inputs).output_shift(delta)
    assert torch.allclose(output_shift[0].double(), model.weight.double() @ delta.double(), atol=0.05)


def test_one_sample_and_constant_inputs_are_enough_to_find_it():
    model = built(lambda: nn.Linear(6, K))
    assert find_first_layer(model, torch.zeros(1, 6, dtype=torch.float64)) is not None
    assert find_first_layer(model, torch.ones(5, 6, dtype=torch.float64)) is not None


@pytest.mark.parametrize("name", ["mlp", "relu before", "used twice"])
def test_the_network_keeps_no_hook_and_is_not_changed(name):
    make, shape = (ALLOWED | REFUSED)[name]
    model, inputs = built(make), drawn(5, *shape)
    before, untouched = copy.deepcopy(model.state_dict()), inputs.clone()
    first = find_first_layer(model, inputs)
    slopes(model, inputs, first, drawn(*shape))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert all(torch.equal(tensor, before[key]) for key, tensor in model.state_dict().items())
    assert torch.equal(inputs, untouched)


def test_a_network_that_fails_half_way_keeps_no_hook_either():
    model = built(lambda: nn.Sequential(nn.Linear(6, 8), nn.Linear(8, K)))
    first = find_first_layer(model, drawn(5, 6))
    model[1] = nn.Linear(9, K).double()
    data = LabelledInputs.of((drawn(5, 6), torch.arange(5) % K))
    passes = Passes(model, data, first_layer=first)
    with pytest.raises(RuntimeError):
        passes.logits_and_gradient(torch.zeros(6).double(), Scale(torch.tensor(1.0), n_classes=K), Objective())
    assert not any(module._forward_hooks for module in model.modules())


def test_hooks_that_the_network_has_already_are_kept():
    model = built(lambda: nn.Sequential(nn.Linear(6, K)))
    seen = []
    model[0].register_forward_hook(lambda _module, _inputs, output: seen.append(len(output)))
    find_first_layer(model, drawn(5, 6))
    model(drawn(3, 6))
    assert seen[-1] == 3


def test_a_network_that_goes_another_way_for_large_inputs_has_none():
    class Branching(nn.Module):
        def __init__(self):
            super().__init__()
            self.small, self.large = nn.Linear(4, 3), nn.Linear(4, 3)

        def forward(self, inputs):
            return self.small(inputs) if float(inputs.abs().mean()) < 2 else self.large(inputs)

    assert find_first_layer(Branching(), torch.tensor([[0.0, 1.0, 0.5, 0.2], [1.0, 0.1, 0.9, 0.6]])) is None
