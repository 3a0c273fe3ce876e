"""A network's weights: what their fingerprint sees, and which others may take their place."""

import pytest
import torch
from torch import nn

from calibrant.errors import InputError
from calibrant.inference import load_weights, network_digest, network_state


def some_network(seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(80, 3))


def compiled(module):
    return torch.compile(module, backend="eager")


def test_the_digest_is_that_of_earlier_versions():
    layer = nn.Linear(1, 2)
    load_weights(layer, {"weight": torch.ones(2, 1), "bias": torch.zeros(2)}, casts=False)
    assert network_digest(layer).startswith("sha256:e3343ed185572")


def test_the_digest_sees_names_types_shapes_and_bits_and_nothing_else():
    network = some_network()
    known = network_digest(network)
    assert known == network_digest(some_network())
    assert known == network_digest(some_network().train().requires_grad_(False))
    assert known == network_digest(some_network().to(memory_format=torch.channels_last))
    assert known == network_digest(compiled(network))
    layers = list(some_network())
    layers[0] = compiled(layers[0])
    assert known == network_digest(nn.Sequential(*layers))
    renamed = nn.Sequential(some_network())
    turned = some_network()
    turned[3].weight = nn.Parameter(turned[3].weight.reshape(80, 3))
    others = [renamed, turned, some_network().double(), some_network(seed=1)]
    assert len({known, *map(network_digest, others)}) == 5
    empty = nn.Linear(2, 3).requires_grad_(False)
    empty.load_state_dict({name: torch.zeros_like(values) for name, values in empty.state_dict().items()})
    assert network_digest(empty.half()) != network_digest(empty.bfloat16())  # the same bits
    assert network_digest(nn.Flatten()).startswith("sha256:")


@pytest.mark.parametrize("wrapped", [some_network, lambda: compiled(some_network())], ids=["plain", "compiled"])
def test_weights_go_in_whichever_of_the_two_was_compiled(wrapped):
    other = some_network(seed=1)
    for weights in (network_state(other), compiled(other).state_dict()):
        network = wrapped()
        load_weights(network, weights, casts=False)
        assert network_digest(network) == network_digest(other)


def test_of_weights_that_share_memory_one_is_enough():
    network = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    network[1].weight = network[0].weight
    weights = {"0.weight": torch.eye(3), "0.bias": torch.ones(3), "1.bias": torch.zeros(3)}
    load_weights(network, weights, casts=False)
    assert torch.equal(network[1].weight, torch.eye(3))


def test_another_type_is_cast_only_where_that_is_asked_for():
    network, halves = nn.Linear(2, 3), {"weight": torch.ones(3, 2).half(), "bias": torch.ones(3)}
    with pytest.raises(InputError, match=r"network; 1 of another type \(weight\)\."):
        load_weights(network, halves, casts=False)
    load_weights(network, halves, casts=True)
    assert network.weight.dtype == torch.float32
    assert torch.equal(network.weight, torch.ones(3, 2))


def test_weights_of_another_network_are_refused_with_what_is_odd_and_nothing_is_changed():
    network = nn.Linear(2, 3)
    before = network_digest(network)
    odd = {"weight": torch.ones(3, 3), **{name: torch.ones(1) for name in "abcd"}}
    with pytest.raises(
        InputError, match=r"1 missing \(bias\), 4 unknown \(a, b, c, \.\.\.\), 1 of another shape \(weight\)"
    ):
        load_weights(network, odd, casts=True)
    assert network_digest(network) == before


def test_what_a_state_holds_beside_tensors_is_no_hindrance():
    class Odd(nn.Linear):
        def get_extra_state(self):
            return {"anything": 1}

        def set_extra_state(self, _state):
            raise AssertionError

    network = Odd(2, 3)
    assert set(network_state(network)) == {"weight", "bias"}
    load_weights(network, {"weight": torch.ones(3, 2), "bias": torch.ones(3)}, casts=False)
    assert torch.equal(network.bias, torch.ones(3))
