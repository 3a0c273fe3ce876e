"""Confidences in files: what is saved comes back, a head only behind its classifier, and bad files are refused."""

import copy
import dataclasses
import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from calibrant import Predictions, save_map
from calibrant.confidence import (
    ConfidenceHead,
    ConfidNet,
    LearnedConfidence,
    NeighbourConfidence,
    TrustScore,
    load_confidence,
    save_confidence,
)
from calibrant.errors import FileError, InputError
from calibrant.files.map_file import contents_metadata
from calibrant.maps import Scale

QUICK = ConfidNet(layers=3, units=8, epochs=3, learning_rate=0.01, batch_size=64)
TUNED = dataclasses.replace(QUICK, choose_by="mse", fine_tune_epochs=2, fine_tune_learning_rate=0.01)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "confidence.safetensors"


@pytest.fixture
def trust(samples):
    return TrustScore(alpha=0.1).fit(*samples)


def contents(path):
    """The document and the tensors of a file, read without our own code."""
    with safe_open(str(path), framework="pt") as file:
        held = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # no mapping
        return json.loads(file.metadata()["calibrant"], parse_constant=pytest.fail), held


def rewrite(path, document, tensors):
    save_file(tensors, path, metadata=contents_metadata(document, tensors))


@pytest.mark.parametrize("method", [QUICK, TUNED], ids=["plain", "fine-tuned"])
def test_a_learned_confidence_comes_back_to_the_last_bit(path, network, samples, method):
    learned = method.fit(network, samples)
    assert (learned.encoder is not None) == (method is TUNED)
    save_confidence(learned, path)
    loaded = load_confidence(path, network.train())
    assert isinstance(loaded, LearnedConfidence)
    assert loaded.model is network
    assert not any(module.training for module in loaded.modules())
    assert not any(item.requires_grad for item in loaded.head.parameters())
    wanted = learned.eval()(samples[0])
    assert all(torch.equal(a, b) for a, b in zip(loaded(samples[0]), wanted, strict=True))
    assert loaded.head.summary == learned.head.summary
    assert loaded.head.choice == learned.head.choice


def test_a_fine_tuned_copy_may_have_a_state_that_is_no_tensor(path, network, samples):
    class Versioned(type(network.body[0])):
        def get_extra_state(self):
            return {"version": 1}

    network.body[0].__class__ = Versioned
    learned = TUNED.fit(network, samples)
    save_confidence(learned, path)
    assert torch.equal(load_confidence(path, network).confidence(samples[0]), learned.confidence(samples[0]))


def test_a_head_comes_back_without_a_classifier(path, network, samples):
    head = QUICK.fit(network, samples).head
    save_confidence(head, path)
    loaded = load_confidence(path)
    assert isinstance(loaded, ConfidenceHead)
    assert torch.equal(loaded(samples[0]), head(samples[0]))


def test_a_trust_score_comes_back_to_the_last_bit(path, trust, other_samples):
    save_confidence(trust, path)
    loaded = load_confidence(path)
    assert isinstance(loaded, NeighbourConfidence)
    assert torch.equal(loaded(*other_samples), trust(*other_samples))
    assert loaded.reference.dtype == torch.float32
    assert loaded.summary == trust.summary


def test_the_classifier_itself_is_not_in_the_file(path, network, samples):
    save_confidence(QUICK.fit(network, samples), path)
    document, held = contents(path)
    assert all(name.startswith("head.") for name in held)
    assert document["format"] == "calibrant.confidence/3"
    assert document["network"].startswith("sha256:")


def test_another_classifier_is_refused(path, network, samples):
    save_confidence(QUICK.fit(network, samples), path)
    other = copy.deepcopy(network)
    with torch.no_grad():
        other.head.bias[0] += 1e-6
    with pytest.raises(InputError, match="was fitted for another classifier"):
        load_confidence(path, other)
    assert load_confidence(path, copy.deepcopy(network)).model is not network


def test_a_classifier_is_given_where_it_is_needed_and_only_there(path, network, samples, trust):
    save_confidence(QUICK.fit(network, samples), path)
    with pytest.raises(InputError, match=r"give it: load_confidence\(path, model\)"):
        load_confidence(path)
    save_confidence(trust, path)
    with pytest.raises(InputError, match="load it without a classifier"):
        load_confidence(path, network)


def test_something_else_is_not_saved(path):
    with pytest.raises(InputError, match="must be a fitted confidence; got TrustScore"):
        save_confidence(TrustScore(), path)
    with pytest.raises(FileError, match=r"must end in .safetensors"):
        save_confidence(ConfidenceHead(2), path.with_suffix(".pt"))
    assert not path.exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda document, _: document.update(kind="guess"), "it says 'guess'"),
        (lambda document, _: document.update(format="calibrant.confidence/4"), "written by a newer calibrant"),
        (lambda document, _: document.update(format="calibrant.map/1"), "must be a confidence"),
        (lambda document, _: document["sizes"].update(n_features=5), "8 units on 5 features"),
        (lambda document, _: document["sizes"].update(layers="many"), "layers must be a whole number"),
        (lambda document, _: document.pop("fit"), "must be a whole confidence"),
        (lambda _, held: held.pop("head.layers.0.bias"), "weights must be of 3 layers"),
        (lambda _, held: held["head.layers.0.bias"].fill_(torch.nan), "must be real and finite"),
    ],
)
def test_a_file_that_was_tampered_with_is_reported(path, network, samples, change, message):
    save_confidence(QUICK.fit(network, samples).head, path)
    document, held = contents(path)
    change(document, held)
    rewrite(path, document, held)
    with pytest.raises(FileError, match=message):
        load_confidence(path)


def test_samples_of_a_trust_score_that_do_not_fit_are_reported(path, trust):
    save_confidence(trust, path)
    document, held = contents(path)
    rewrite(path, document, {**held, "classes": held["classes"][1:].clone()})
    with pytest.raises(FileError, match="same number of rows"):
        load_confidence(path)


def test_an_encoder_of_another_shape_is_reported(path, network, samples):
    save_confidence(TUNED.fit(network, samples), path)
    document, held = contents(path)
    held.pop("encoder.body.0.weight")
    rewrite(path, document, held)
    with pytest.raises(FileError, match=r"weights must be those of this network; 1 missing \(body\.0\.weight\)"):
        load_confidence(path, network)


def test_files_of_other_things_are_reported(path, tmp_path):
    with pytest.raises(FileError, match="there is none"):
        load_confidence(path)
    path.write_bytes(b"no such thing at all")
    with pytest.raises(FileError, match="not a safetensors file"):
        load_confidence(path)
    save_file({"a": torch.zeros(1)}, path)
    with pytest.raises(FileError, match="safetensors file of something else"):
        load_confidence(path)
    save_map(Scale(torch.tensor(2.0), n_classes=2), tmp_path / "map.safetensors")
    with pytest.raises(FileError, match=r"; it is 'calibrant.map/2'"):
        load_confidence(tmp_path / "map.safetensors")


def test_a_loaded_head_predicts_as_before_in_a_top_label(path, network, samples):
    learned = QUICK.fit(network, samples)
    save_confidence(learned.head, path)
    with torch.no_grad():
        predictions = Predictions.from_logits(network(samples[0]), samples[1])
        features = network.features(samples[0])
    assert torch.allclose(
        load_confidence(path).top_label(predictions, features).log_odds, learned.top_label(samples).log_odds, atol=1e-5
    )


def test_a_compiled_classifier_is_the_same_classifier(path, network, samples):
    compiled = torch.compile(network, backend="eager")
    learned = TUNED.fit(compiled, samples)
    save_confidence(learned, path)
    assert torch.equal(load_confidence(path, network).confidence(samples[0]), learned.confidence(samples[0]))
    assert isinstance(load_confidence(path, compiled), LearnedConfidence)
