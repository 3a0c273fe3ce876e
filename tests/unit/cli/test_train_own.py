"""``calibrant train`` with a network and data of one's own."""

import json
import sys

import numpy as np
import pytest
import torch

from calibrant.datasets import load_digits
from calibrant.files import load
from calibrant.training import load_network

NETS = """
import torch
from torch import nn

ready = nn.Linear(64, 10)


def build(width=16, classes=10):
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, classes))


def images():
    return nn.Sequential(nn.LazyConv2d(4, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10))


def softmaxed():
    return nn.Sequential(build(), nn.Softmax(dim=1))


def frozen():
    return build().requires_grad_(False)


class Pair(nn.Module):
    def forward(self, inputs):
        return inputs, inputs
"""
SHORT = ("--epochs", 2, "--batch-size", 100, "--learning-rate", 0.05, "--device", "cpu")


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits")
    images, labels = load_digits()
    parts = {"train": slice(1000), "val": slice(1000, 1300), "test": slice(1300, None)}
    for name, rows in parts.items():
        np.savez(folder / f"{name}.npz", inputs=images[rows].flatten(1).numpy(), labels=labels[rows].numpy())
        pixels = (images[rows, 0] * 16).byte().numpy()
        np.savez(folder / f"{name}-images.npz", inputs=pixels, labels=labels[rows].numpy())
    return folder


@pytest.fixture
def train(calibrant, digits, tmp_path, monkeypatch):
    """The command on these files, in a folder with the module of networks."""
    (tmp_path / "own_nets.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.delitem(sys.modules, "own_nets", raising=False)

    def run(model, *arguments, kind=""):
        files = (("--data", "train"), ("--test", "test"))
        given = [text for name, part in files for text in (name, digits / f"{part}{kind}.npz")]
        return calibrant("train", "--model", model, *given, *SHORT, *arguments)

    return run


def test_an_own_network_trains_on_own_vectors_and_is_diagnosed(train, calibrant, digits, tmp_path):
    several = ("--loss", "ce", "--loss", "focal(gamma=2,class_weights=[1,1,1,1,1,1,1,1,1,2])", "-o", "runs")
    schedule = ("--schedule", "steps", "--milestones", 1, "--decay", 0.1, "--momentum", 0.8, "--select", "best")
    code, out, err = train("own_nets:build(width=24)", *several, *schedule)
    assert code == 0, err
    folders = sorted((tmp_path / "runs").iterdir())
    assert folders[0].name == "own_nets-build-width24-ce-seed0"
    settings = json.loads((folders[0] / "settings.json").read_text())["settings"]
    assert settings["model"] == "own_nets:build(width=24)"
    assert (settings["dataset"], settings["split"], settings["input_shape"]) == ("train.npz", "holdout", [64])
    import own_nets

    network = load_network(folders[0], own_nets.build(width=24))
    inputs = torch.from_numpy(np.load(digits / "test.npz")["inputs"])
    with torch.no_grad():
        assert torch.allclose(network(inputs), load(folders[0] / "test.npz").logits, atol=1e-5)
    code, out, err = calibrant("diagnose", "runs", "--resamples", 100)
    assert code == 0, err
    assert "focal" in out


def test_two_classes_say_that_the_error_is_of_the_predicted_class(calibrant, tmp_path, monkeypatch):
    images, labels = load_digits()
    (tmp_path / "own_nets.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "own_nets", raising=False)
    for name, rows in {"train": slice(1000), "test": slice(1000, None)}.items():
        np.savez(f"{name}.npz", inputs=images[rows].flatten(1).numpy(), labels=(labels[rows] > 4).long().numpy())
    given = ("--model", "own_nets:build(classes=2)", "--data", "train.npz", "--test", "test.npz", *SHORT, "-o", "run")
    code, out, err = calibrant("train", *given)
    assert code == 0, err
    assert "The ECE is that of the predicted class.\n" in out
    assert "The ECE is that of the predicted class." in calibrant("diagnose", "run", "--full")[1].replace("\n", " ")
    assert json.loads(calibrant("diagnose", "run", "--json", "-")[1])["classes"] == 2


def test_the_same_command_gives_the_same_weights_and_another_network_is_refused(train, tmp_path):

    assert train("own_nets:build", "-o", "whole")[0] == 0
    (tmp_path / "whole" / "weights.safetensors").rename(tmp_path / "kept")
    assert train("own_nets:build", "-o", "whole")[0] == 0
    assert (tmp_path / "whole" / "weights.safetensors").read_bytes() == (tmp_path / "kept").read_bytes()
    code, _, err = train("own_nets:build(width=8)", "-o", "whole")
    assert code == 2
    assert "must hold a run of the same settings" in err


def test_own_images_with_own_calibration_samples(train, calibrant, digits):
    arguments = ("--validation", digits / "val-images.npz", "--augmentation", "crop", "-o", "run")
    code, _, err = train("own_nets:images", *arguments, kind="-images")
    assert code == 0, err
    assert len(load("run/calibration.npz")) == 300
    np.savez("few.npz", **{key: values[:100] for key, values in np.load(digits / "val-images.npz").items()})
    clamp = ("clamp", "--data", "few.npz", "--test", "few.npz", "--strength", "inf", "--resamples", 100)
    code, _, err = calibrant(*clamp, "--model", "run", "-o", "clamped")
    assert code == 2
    assert "--model own_nets:images --weights run" in err.replace("\n", " ")


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("own_nets:buld", "Did you mean build?"),
        ("no_nets:build", "neither in the folder"),
        ("own_nets.py", "--model must be one of"),
        ("own_nets:ready", "is itself a network"),
        ("own_nets:build(width=missing)", "must have plain arguments"),
        ("own_nets:build(wide=3)", "when called; it raised TypeError"),
        ("own_nets:build(classes=3)", "a tensor of shape (n, 10) for 10 classes; for 2 inputs it gave shape (2, 3)"),
        ("own_nets:Pair", "it gave a tuple"),
        ("own_nets:softmaxed", "Leave out its last softmax"),
        ("own_nets:frozen", "none of its parameters takes gradients"),
        ("own_nets:images", "must take inputs of shape (n, 64)"),
        ("resnet20", "Give a network of your own"),
    ],
)
def test_a_network_that_cannot_be_trained_is_refused_and_leaves_no_folder(train, tmp_path, model, words):
    code, _, err = train(model, "-o", "run")
    assert code == 2
    assert words in " ".join(err.split())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--data", "folder"), "--dataset must name a data set, or --data a file of your own"),
        (("--data", "train.npz"), "--test must name your own test samples"),
        (("--dataset", "digits", "--test", "test.npz"), "must be left out with --dataset"),
        (("--data", "train.npz", "--test", "test.npz", "--layout", "last"), "--layout must be one of auto"),
        (("--data", "train.npz", "--test", "test.npz", "--download"), "without --download"),
    ],
)
def test_files_that_are_missing_or_too_many_are_refused(calibrant, tmp_path, arguments, words):
    code, _, err = calibrant("train", *arguments, "--device", "cpu", "-o", tmp_path / "run")
    assert code == 2
    assert words in " ".join(err.split())
