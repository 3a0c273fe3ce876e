"""The features of a confidence are the inputs of a layer that is named, in any network."""

import copy

import pytest
import torch
from torch import nn

from calibrant.confidence import ConfidNet, TrustScore, load_confidence, save_confidence
from calibrant.errors import InputError
from calibrant.inference import features_of, logits_and_features

QUICK = ConfidNet(layers=2, units=8, epochs=3, learning_rate=0.01, batch_size=64)


class Plain(nn.Module):
    """A network without ``features`` and ``head``, with layers after the one that is named."""

    def __init__(self):
        super().__init__()
        self.body, self.shared = nn.Linear(4, 6), nn.Linear(6, 6)
        self.unused = nn.Linear(6, 2)
        self.both, self.fc = nn.Bilinear(6, 6, 6), nn.Linear(6, 2)

    def forward(self, inputs):
        hidden = self.shared(self.shared(self.body(inputs)).relu())
        return {"logits": 2 * self.fc(input=hidden + self.both(hidden, hidden))}


@pytest.fixture
def plain():
    torch.manual_seed(0)
    return Plain().eval()


def test_a_named_last_layer_equals_features_and_head(network, samples, other_samples):
    by_head, by_layer = QUICK.fit(network, samples), QUICK.fit(network, samples, layer="head")
    assert torch.equal(by_head.confidence(other_samples[0]), by_layer.confidence(other_samples[0]))
    assert torch.equal(by_head(other_samples[0])[0], by_layer(other_samples[0])[0])


def test_a_trust_score_behind_a_network_equals_that_of_its_features(network, samples, other_samples):
    whole = TrustScore(alpha=0.1).fit_network(network, samples, layer="head", batch_size=97)
    with torch.no_grad():
        logits, features = logits_and_features(network, other_samples[0])
        alone = TrustScore(alpha=0.1).fit(features_of(network, samples[0]), samples[1], n_classes=2)
    assert torch.equal(whole(other_samples[0])[1], alone(features, logits.argmax(dim=1)))


def test_layers_after_the_named_one_stay_in_the_network(plain, samples):
    logits, features = logits_and_features(plain, samples[0], "fc")
    assert torch.equal(logits, plain(samples[0])["logits"])
    assert torch.equal(logits, 2 * plain.fc(features))
    assert torch.equal(features, features_of(plain, samples[0], "fc"))
    assert not plain.fc._forward_pre_hooks


@pytest.mark.parametrize("layer", ["fc", "body"])
@pytest.mark.parametrize("tuned", [0, 1])
def test_what_was_fitted_by_a_layer_is_saved_with_its_name(plain, samples, tmp_path, layer, tuned):
    method = ConfidNet(layers=2, units=8, epochs=2, choose_by="mse", fine_tune_epochs=tuned, batch_size=64)
    before = copy.deepcopy(plain.state_dict())
    for fitted in (method.fit(plain, samples, layer=layer), TrustScore().fit_network(plain, samples, layer=layer)):
        save_confidence(fitted, tmp_path / "one.safetensors")
        loaded = load_confidence(tmp_path / "one.safetensors", plain)
        assert loaded.layer == layer
        assert torch.equal(loaded.confidence(samples[0]), fitted.confidence(samples[0]))
        assert torch.equal(loaded.top_label(samples).log_odds, fitted.top_label(samples).log_odds)
    assert all(torch.equal(values, before[name]) for name, values in plain.state_dict().items())


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        ("fcc", "nearest are fc"),
        ("nowhere.else", "it has body, shared, unused, both, fc"),
        ("shared", "called 2 times"),
        ("unused", "called 0 times"),
        ("both", "takes 2 inputs"),
        (None, "Name its last layer, as in layer='fc'"),
    ],
)
@pytest.mark.parametrize("fit", [QUICK.fit, TrustScore().fit_network], ids=["confidnet", "trust score"])
def test_a_layer_that_gives_no_features_is_refused(plain, samples, fit, layer, words):
    with pytest.raises(InputError, match=words):
        fit(plain, samples, layer=layer)


def test_a_layer_of_images_is_refused_with_a_later_one_as_advice():
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2)).eval()
    samples = torch.randn(40, 1, 4, 4), torch.arange(40) % 2
    with pytest.raises(InputError, match=r"inputs of layer '1' .* got shape \(8, 2, 2, 2\). Name a later layer"):
        QUICK.fit(network, samples, layer="1")
    assert not any(module._forward_pre_hooks for module in network.modules())
