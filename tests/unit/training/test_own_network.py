"""Networks of one's own, of kinds that those of calibrant.models are not."""

from functools import partial

import pytest
import torch
from torch import nn

from calibrant import catalogue
from calibrant.errors import InputError
from calibrant.files import load
from calibrant.training import Recipe, Run, RuntimeOptions, load_network, train_runs

CPU = torch.device("cpu")


class Tied(nn.Module):
    """Two layers with the same weights, and a state that is no tensor."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 10)
        self.second.weight = self.first.weight

    def forward(self, images):
        return self.last(self.second(self.first(images.flatten(1)).relu()).relu())

    def get_extra_state(self):
        return {"version": 1}

    def set_extra_state(self, state):
        assert state == {"version": 1}


class Auxiliary(nn.Module):
    """Two tensors in training mode, as of an Inception network, and one in evaluation mode."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(64, 10)

    def forward(self, images):
        logits = self.last(images.flatten(1))
        return (logits, logits) if self.training else logits


def train(folder, factory, digits, **options):
    recipe = {"epochs": 2, "batch_size": 32, "learning_rate": 0.05} | options.pop("recipe", {})
    run = Run(folder, "nets:factory", catalogue.losses.parse("ce"), Recipe(**recipe), factory)
    runtime = RuntimeOptions(checkpoint_seconds=0)
    train_runs([run], digits, split="half-test", device=CPU, runtime=runtime, **options)
    return folder


@pytest.mark.parametrize("factory", [Tied, Auxiliary])
def test_it_is_trained_resumed_and_loaded(factory, digits, tmp_path, stop_after, stopped):
    whole = train(tmp_path / "whole", factory, digits)
    with pytest.raises(stopped):
        train(tmp_path / "two", factory, digits, after_epoch=stop_after(1))
    resumed = train(tmp_path / "two", factory, digits)
    assert (whole / "weights.safetensors").read_bytes() == (resumed / "weights.safetensors").read_bytes()
    network, test = load_network(whole, factory()), load(whole / "test.npz")
    with torch.no_grad():
        logits = network(digits.test.inputs)
    nearest = (test.logits.float()[:, None] - logits).abs().amax(dim=2).amin(dim=1)  # half of the samples
    assert float(nearest.max()) < 1e-4


def test_an_error_of_its_training_is_an_input_error(digits, tmp_path):
    layers = nn.Flatten, partial(nn.Linear, 64, 16), partial(nn.BatchNorm1d, 16), partial(nn.Linear, 16, 10)
    with pytest.raises(InputError, match=r"for 1 it raised ValueError: Expected more than 1 value per channel"):
        train(tmp_path, lambda: nn.Sequential(*(make() for make in layers)), digits, recipe={"batch_size": 1})


def test_lazy_layers_must_run_before_they_take_weights(digits, tmp_path):
    def lazy():
        return nn.Sequential(nn.Flatten(), nn.LazyLinear(10))

    folder = train(tmp_path, lazy, digits)
    with pytest.raises(InputError, match="lazy layers must run on a batch once"):
        load_network(folder, lazy())
    model = lazy()
    model(torch.zeros(1, 1, 8, 8))
    assert load_network(folder, model)(digits.test.inputs).shape == (200, 10)


def test_runs_cannot_share_one_network(digits, tmp_path):
    one, loss = Auxiliary(), catalogue.losses.parse("ce")
    recipes = {seed: Recipe(batch_size=32, seed=seed) for seed in (0, 1)}
    runs = [Run(tmp_path / str(seed), "nets:one", loss, recipe, lambda: one) for seed, recipe in recipes.items()]
    with pytest.raises(InputError, match="must make a new network for every run"):
        train_runs(runs, digits, split="half-test", device=CPU)
    assert not list(tmp_path.iterdir())
