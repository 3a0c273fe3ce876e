"""The clamped model: what it computes, where it is exactly something simpler, and what it leaves alone."""

import copy
from collections import OrderedDict

import pytest
import torch
from map_examples import EXAMPLES
from torch import nn

from calibrant.clamping import ClampedModel, InputSpace
from calibrant.errors import InputError
from calibrant.maps import Affine, Identity, Map, Scale

HEADS = {kind: head for kind, head in EXAMPLES.items() if isinstance(head, Map) and head.n_classes == 3}
WAYS = ("tensor", "tuple", "dict", "output")


class Output(OrderedDict):
    """As Hugging Face's outputs: a mapping whose entries are attributes, too."""

    def __getattr__(self, name):
        return self[name]


class Returning(nn.Module):
    """A network whose logits come in a wrapping."""

    def __init__(self, network, way):
        super().__init__()
        self.network, self.way = network, way

    def forward(self, inputs):
        logits = self.network(inputs)
        if self.way == "tuple":
            return logits, inputs
        if self.way == "dict":
            return {"hidden": inputs, "logits": logits}
        return Output(hidden=inputs, logits=logits) if self.way == "output" else logits


def some_network():
    """Convolution, batch statistics and dropout, on images of 2 x 4 x 5."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(80, 3)
        )
        network(torch.randn(50, 2, 4, 5))  # batch statistics other than those at the start
    return network.eval()


def some_inputs(n=6, seed=1):
    return torch.randn(n, 2, 4, 5, generator=torch.Generator().manual_seed(seed))


def some_delta(scale=0.3):
    return scale * torch.randn(2, 4, 5, generator=torch.Generator().manual_seed(2))


def scale(temperature=1.7):
    return Scale(torch.tensor(temperature), n_classes=3)


def same_bits(one, other):
    """Unlike torch.equal, which takes -0 for 0."""
    return torch.equal(one.view(torch.int32), other.view(torch.int32))


def test_it_is_the_network_at_x_plus_delta_divided_by_the_temperature():
    network, delta, inputs = some_network(), some_delta(), some_inputs()
    clamped = ClampedModel(network, delta, scale())
    expected = torch.stack([network((x + delta)[None])[0] for x in inputs]) / 1.7
    torch.testing.assert_close(clamped(inputs), expected)
    torch.testing.assert_close(clamped.probs(inputs), expected.softmax(1))
    assert clamped.temperature == pytest.approx(1.7)


def test_no_delta_and_temperature_one_is_the_network():
    network, inputs = some_network(), some_inputs()
    assert torch.equal(ClampedModel(network, torch.zeros(2, 4, 5), scale(1.0))(inputs), network(inputs))


@pytest.mark.parametrize("space", [None, InputSpace(clips=True)])
def test_no_delta_is_the_head_behind_the_network_to_the_bit(space):
    network, inputs = some_network(), some_inputs()
    inputs[0, 0, 0, :2] = torch.tensor([-0.0, 7.0])  # neither made +0 nor brought into the range
    clamped = ClampedModel(network, torch.zeros(2, 4, 5), scale(), space=space)
    assert same_bits(clamped.perturbed(inputs), inputs)
    assert same_bits(clamped(inputs), nn.Sequential(network, scale())(inputs))


@pytest.mark.parametrize("kind", HEADS)
def test_every_map_can_be_the_head(kind):
    network, delta, inputs = some_network(), some_delta(), some_inputs()
    clamped = ClampedModel(network, delta, HEADS[kind])
    assert torch.equal(clamped(inputs), HEADS[kind](network(inputs + delta)))


@pytest.mark.parametrize("way", WAYS)
def test_logits_are_found_in_what_the_network_returns(way):
    network, delta, inputs = some_network(), some_delta(), some_inputs()
    clamped = ClampedModel(Returning(network, way), delta, scale())
    assert torch.equal(clamped(inputs), ClampedModel(network, delta, scale())(inputs))


def test_a_bound_in_pixels_means_pixels():
    space = InputSpace(low=0, high=255, mean=(100.0, 50.0), std=(60.0, 30.0), clips=True)
    mean, std = (torch.tensor(values)[:, None, None] for values in (space.mean, space.std))
    pixels = torch.randint(0, 256, (6, 2, 4, 5), generator=torch.Generator().manual_seed(3)).float()
    push = torch.full((2, 4, 5), 40.0)  # in pixels
    push[:, 0] = -40.0
    clamped = ClampedModel(some_network(), push / std, scale(), space=space)
    fed = clamped.perturbed((pixels - mean) / std)
    torch.testing.assert_close(space.pixels(fed), (pixels + push).clamp(0, 255), atol=1e-3, rtol=0)
    low, high = space.bounds(push)
    assert ((fed >= low) & (fed <= high)).all()
    unclipped = ClampedModel(some_network(), push / std, scale(), space=InputSpace(0, 255, (100.0, 50.0), (60.0, 30.0)))
    assert space.pixels(unclipped.perturbed((pixels - mean) / std)).max() > 290


@pytest.mark.parametrize(("way", "clips"), [("tuple", False), ("output", True)])
def test_a_compiled_one_gives_the_same_in_one_graph(way, clips):
    torch._dynamo.reset()
    clamped = ClampedModel(Returning(some_network(), way), some_delta(), scale(), space=InputSpace(clips=clips))
    compiled = torch.compile(clamped, backend="eager", fullgraph=True)
    for n in (6, 3):
        assert torch.equal(compiled(some_inputs(n)), clamped(some_inputs(n)))


@pytest.mark.parametrize(
    ("way", "kind", "moved"), [("tensor", "scale", False), ("output", "affine", True), ("tuple", "mixture", True)]
)
def test_an_exported_one_gives_the_same_for_any_batch(way, kind, moved):
    delta = some_delta() if moved else torch.zeros(2, 4, 5)
    clamped = ClampedModel(Returning(some_network(), way), delta, HEADS[kind], space=InputSpace(clips=True))
    batch = {0: torch.export.Dim("batch", min=1, max=1024)}
    exported = torch.export.export(clamped, (some_inputs(),), dynamic_shapes={"inputs": batch}).module()
    for n in (1, 6, 17):
        torch.testing.assert_close(exported(some_inputs(n)), clamped(some_inputs(n)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_in_half_precision_only_the_network_is_cast(dtype):
    network, delta, inputs = some_network(), some_delta(), some_inputs().to(dtype)
    clamped = ClampedModel(network, delta, scale(), space=InputSpace(low=-1, clips=True)).to(dtype)
    assert {name for name, values in clamped.state_dict().items() if values.dtype == dtype} == {
        f"model.{name}" for name, values in network.state_dict().items() if values.is_floating_point()
    }
    assert torch.equal(clamped.delta, delta)
    assert clamped.lowest.dtype == torch.float32
    assert clamped(inputs).dtype == dtype
    expected = network((inputs + delta.to(dtype)).clamp(-1, 1)).float() / 1.7
    assert torch.equal(clamped(inputs), expected.to(dtype))
    # Probabilities are not rounded to three digits on the way.
    torch.testing.assert_close(clamped.probs(inputs), expected.softmax(1))
    assert clamped.probs(inputs).dtype == torch.float32


def test_double_precision_stays_so_and_delta_follows_casts_to_more_digits():
    clamped = ClampedModel(some_network(), some_delta(), scale()).double()
    assert clamped.delta.dtype == clamped(some_inputs().double()).dtype == torch.float64
    assert clamped.float().delta.dtype == torch.float32


def test_the_network_is_the_module_given_and_keeps_its_weights_and_gradients():
    network = some_network().train()
    network[0].bias.requires_grad_(False)
    before = {name: (values.clone(), values.requires_grad) for name, values in network.named_parameters()}
    clamped = ClampedModel(network, some_delta(), scale())
    assert clamped.model is network
    for name, values in clamped.model.named_parameters():
        assert torch.equal(values, before[name][0])
        assert values.requires_grad == before[name][1]


def test_it_comes_in_the_networks_mode_and_trains_like_any_module():
    for mode in (True, False):
        clamped = ClampedModel(some_network().train(mode), some_delta(), scale())
        assert all(module.training == mode for module in clamped.modules())
    assert torch.equal(clamped(some_inputs()), clamped(some_inputs()))  # no dropout
    assert all(module.training for module in clamped.train().modules())
    assert not any(module.training for module in clamped.eval().modules())


def test_delta_is_a_copy_in_a_buffer_without_gradients():
    delta = some_delta().requires_grad_()
    clamped = ClampedModel(some_network(), delta, scale())
    with torch.no_grad():
        delta.zero_()
    assert clamped.delta.norm() > 0
    assert not clamped.delta.requires_grad
    inputs = some_inputs().requires_grad_()
    clamped(inputs).sum().backward()
    assert inputs.grad.norm() > 0


def test_the_state_holds_delta_head_and_network_and_loads_into_another():
    first = ClampedModel(some_network(), some_delta(), scale(), space=InputSpace(clips=True))
    state = first.state_dict()
    assert set(state) == {"delta", "head.temperature", *(f"model.{name}" for name in first.model.state_dict())}
    first.load_state_dict(state)
    other = ClampedModel(some_network(), torch.zeros(2, 4, 5), scale(1.0), space=InputSpace(clips=True))
    nn.ModuleDict({"a": other}).load_state_dict({f"a.{name}": values for name, values in state.items()})
    assert torch.equal(other(some_inputs()), first(some_inputs()))


def set_anew(clamped, delta):
    clamped.delta = delta


WAYS_TO_CHANGE = {
    "assigned": set_anew,
    "copied": lambda clamped, delta: clamped.delta.copy_(delta),
    "in data": lambda clamped, delta: setattr(clamped.delta, "data", delta),
    "loaded": lambda clamped, delta: clamped.load_state_dict(clamped.state_dict() | {"delta": delta}),
    "loaded by assignment": lambda clamped, delta: clamped.load_state_dict(
        clamped.state_dict() | {"delta": delta}, assign=True
    ),
}


@pytest.mark.parametrize("change", WAYS_TO_CHANGE.values(), ids=WAYS_TO_CHANGE)
@pytest.mark.parametrize("clips", [False, True])
@pytest.mark.parametrize("called", ["plain", "compiled"])
def test_a_delta_that_is_changed_counts_however_it_is_changed(change, clips, called):
    torch._dynamo.reset()
    inputs = some_inputs()
    inputs[0, 0, 0, :2] = torch.tensor([-0.0, 7.0])
    space = InputSpace(low=-1.0, clips=clips)
    clamped = ClampedModel(some_network(), torch.zeros(2, 4, 5), scale(), space=space)
    fed = clamped.perturbed
    if called == "compiled":
        fed = torch.compile(fed, backend="eager", fullgraph=True)
    assert same_bits(fed(inputs), inputs)
    change(clamped, some_delta())
    moved = inputs + some_delta()
    assert torch.equal(fed(inputs), moved.clamp(-1, 1) if clips else moved)
    change(clamped, torch.zeros(2, 4, 5))
    assert same_bits(fed(inputs), inputs)


def test_a_space_that_is_set_later_is_refused():
    clamped = ClampedModel(some_network(), some_delta(), scale())
    with pytest.raises(AttributeError, match="space"):
        clamped.space = InputSpace(clips=True)


def test_a_deep_copy_is_one_of_its_own():
    clamped = ClampedModel(some_network(), some_delta(), scale())
    copied = copy.deepcopy(clamped)
    assert torch.equal(copied(some_inputs()), clamped(some_inputs()))
    copied.delta.zero_()
    assert torch.equal(clamped.delta, some_delta())
    assert torch.equal(copied(some_inputs()), some_network()(some_inputs()) / 1.7)


def test_fast_memory_layouts_stay():
    inputs = some_inputs().contiguous(memory_format=torch.channels_last)
    fed = ClampedModel(some_network(), some_delta(), scale(), space=InputSpace(clips=True)).perturbed(inputs)
    assert fed.is_contiguous(memory_format=torch.channels_last)


def test_networks_on_vectors_and_series_work_too():
    for network, shape in ((nn.Linear(4, 3), (4,)), (nn.Sequential(nn.Flatten(), nn.Linear(14, 3)), (2, 7))):
        delta, inputs = torch.ones(shape), torch.zeros(5, *shape)
        assert torch.equal(ClampedModel(network, delta, Identity(n_classes=3))(inputs), network(inputs + 1))


def test_its_text_gives_the_size_of_delta():
    text = repr(ClampedModel(nn.Linear(4, 3), torch.tensor([3.0, 0, 4.0, 0]), scale()))
    assert "delta=(4,), norm=5" in text
    assert "temperature=1.7" in text


def test_only_a_temperature_head_has_a_temperature():
    clamped = ClampedModel(nn.Linear(4, 3), torch.zeros(4), Affine(torch.ones(3), torch.zeros(3), n_classes=3))
    with pytest.raises(InputError, match="it is Affine"):
        clamped.temperature  # noqa: B018


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": len}, r"torch\.nn\.Module; got builtin"),
        ({"head": nn.Identity()}, "fitted map.*got Identity"),
        ({"head": EXAMPLES["proximity"]}, "fitted map.*got ProximityMap"),
        ({"delta": [0.0, 1.0]}, "tensor of floating point; got list"),
        ({"delta": torch.zeros(2, 4, 5, dtype=torch.int64)}, r"got torch\.int64"),
        ({"delta": torch.full((2, 4, 5), torch.nan)}, "delta must be finite"),
        ({"space": InputSpace(mean=(0.5, 0.5, 0.5))}, "normalisation, 3, at dim 0; got 2"),
    ],
)
def test_parts_that_do_not_fit_are_refused(options, message):
    parts = {"model": some_network(), "delta": some_delta(), "head": scale(), "space": None} | options
    with pytest.raises(InputError, match=message):
        ClampedModel(parts["model"], parts["delta"], parts["head"], space=parts["space"])


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (torch.zeros(3, 2, 5, 4), r"shape \(n, 2, 4, 5\) .* got \(3, 2, 5, 4\)"),
        (torch.zeros(2, 4, 5), r"got \(2, 4, 5\)"),  # the batch axis is missing
        (torch.zeros(3, 1, 4, 5), r"got \(3, 1, 4, 5\)"),  # and nothing is stretched to fit
        (torch.zeros(3, 2, 4, 5, dtype=torch.int64), r"got torch\.int64.*tokens"),
        (torch.zeros(3, 2, 4, 5).numpy(), "got ndarray"),
    ],
)
@pytest.mark.parametrize("moved", [False, True])
def test_inputs_that_delta_cannot_be_added_to_are_refused(inputs, message, moved):
    clamped = ClampedModel(some_network(), moved * some_delta(), scale())
    with pytest.raises(InputError, match=message):
        clamped(inputs)


def test_a_head_for_other_classes_is_reported_when_it_is_used():
    with pytest.raises(InputError, match="fitted for 4 classes"):
        ClampedModel(some_network(), some_delta(), Identity(n_classes=4))(some_inputs())
