"""Predictions at x + δ are the clamped model's own, and those without δ are computed once."""

import pytest
import torch
from torch import nn

from calibrant.clamping import ClampedModel, InputSpace, NetworkPredictions
from calibrant.errors import InputError
from calibrant.maps import Scale

INPUTS = torch.rand(20, 4, generator=torch.manual_seed(0), dtype=torch.float64)
LABELS = torch.arange(20) % 3
SPACE = InputSpace(clips=True)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double().eval()


@pytest.mark.parametrize("size", [0.0, 0.4])
@pytest.mark.parametrize("batch_size", [None, 7])
def test_behind_a_clamped_model_they_are_its_own(size, batch_size):
    head = Scale(torch.tensor(0.5, dtype=torch.float64), n_classes=3)
    clamped = ClampedModel(network(), torch.full((4,), size, dtype=torch.float64), head, space=SPACE)
    runs = NetworkPredictions(clamped.model, (INPUTS, LABELS), space=SPACE, batch_size=batch_size)
    with torch.no_grad():
        assert torch.allclose(runs.predictions_of(clamped).logits, clamped(INPUTS), atol=1e-12)
        assert torch.allclose(runs.at_zero().logits, network()(INPUTS), atol=1e-12)


def test_without_delta_the_network_runs_once_and_classes_keep_their_names():
    model, ran = network(), []
    runs = NetworkPredictions(model, (INPUTS, LABELS), class_names=["ant", "bee", "cat"])
    model.register_forward_pre_hook(lambda _module, inputs: ran.append(len(inputs[0])))
    assert runs.at_zero() is runs.at(torch.zeros(4))
    assert sum(ran) == len(runs)
    assert runs.at_zero().class_names == ("ant", "bee", "cat")


def test_a_delta_of_another_shape_is_refused():
    with pytest.raises(InputError, match=r"must have the shape of δ, \(5,\); got \(4,\)"):
        NetworkPredictions(network(), (INPUTS, LABELS)).at(torch.zeros(5))
