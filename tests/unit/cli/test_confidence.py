"""``calibrant confidence``: what it writes and shows, and what it refuses."""

import json
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import save_model
from torch import nn

from calibrant.confidence import TrustScore, compare_confidences, load_confidence
from calibrant.files import load
from calibrant.metrics import auroc

NETS = """
from torch import nn


def build():
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
"""
QUICK = ("--epochs", 40, "--units", 32, "--learning-rate", 0.01, "--resamples", 100, "--device", "cpu")


def misled(n, seed):
    """Inputs, and labels that a network by the first number alone gets wrong where the second is high."""
    inputs = torch.randn(n, 4, generator=torch.Generator().manual_seed(seed))
    return inputs, ((inputs[:, 0] > 0) ^ (inputs[:, 1] > 0.8)).long()


@pytest.fixture
def network():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(4))
        model[0].bias.zero_()
        model[1].weight.copy_(torch.tensor([[0.0, 0, 0, 0], [6, 0, 0, 0]]))
        model[1].bias.zero_()
    return model.eval()


@pytest.fixture
def run(calibrant, network, tmp_path, monkeypatch):
    (tmp_path / "misled_nets.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.delitem(sys.modules, "misled_nets", raising=False)
    save_model(network, "weights.safetensors")
    for name, samples in {"data": misled(600, 0), "test": misled(500, 1)}.items():
        np.savez(f"{name}.npz", inputs=samples[0], labels=samples[1])

    def command(*arguments):
        model = ("--model", "misled_nets:build", "--weights", "weights.safetensors")
        return calibrant("confidence", *model, "--test", "test.npz", "-o", "out", *arguments, COLUMNS="80")

    return command


def test_confidences_are_fitted_compared_saved_and_applied_again(run, network, tmp_path):
    code, out, err = run("--layer", "1", "--data", "data.npz", *QUICK, "--figures", "figures")
    assert code == 0, err
    assert max(map(len, out.splitlines())) <= 80
    assert "confidnet separates correct from wrong predictions better" in " ".join(out.split())
    assert err.count("ConfidNet: head, epoch") == 5
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == [
        "confidnet_and_softmax.png",
        "trust_score_and_softmax.png",
    ]
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["best"] == "confidnet"
    for name in ("softmax", "confidnet", "trust_score"):
        top = load(tmp_path / "out" / f"{name}.npz")
        # Confidences next to 1 are equal in a file, where they are not as log-odds.
        assert report["metrics"][name]["auroc"]["value"] == pytest.approx(auroc(top), abs=1e-3)
    loaded = load_confidence(tmp_path / "out" / "confidnet.safetensors", network)
    assert auroc(loaded.top_label(misled(500, 1))) == pytest.approx(report["metrics"]["confidnet"]["auroc"]["value"])

    again = ("--fitted", "out/confidnet.safetensors", "-o", "again", "--resamples", 100, "--device", "cpu")
    code, _, err = run(*again)
    assert code == 0, err
    same = json.loads((tmp_path / "again" / "report.json").read_text())["metrics"]["confidnet"]
    assert same == report["metrics"]["confidnet"]


def test_differences_are_corrected_for_the_number_of_confidences(network):
    samples = misled(300, 2)
    trust = TrustScore().fit_network(network, misled(300, 3), layer="1")
    alone, _ = compare_confidences(network, {"a": trust}, samples, resamples=100)
    both, tops = compare_confidences(network, {"a": trust, "b": trust}, samples, resamples=100)
    one, two = alone.differences["a"]["auroc"], both.differences["a"]["auroc"]
    assert (one.value, one.p) == (two.value, two.p)
    assert two.corrected_p == pytest.approx(min(1, 2 * one.p))
    assert both.n_wrong == int((~tops["softmax"].correct).sum())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--layer", "1"), "--data must name samples to fit on, or --fitted"),
        (("--data", "data.npz"), "Name its last layer"),
        (("--data", "data.npz", "--layer", "fc"), "it has 0, 1"),
        (("--data", "data.npz", "--layer", "1", "--method", "trust"), "Did you mean trust_score?"),
        (("--data", "none.npz", "--layer", "1"), "must be an existing file"),
        (("--fitted", "weights.safetensors"), "weights.safetensors"),
        (("--data", "data.npz", "--layer", "1", "--alpha", "2"), "alpha must be below 1"),
    ],
)
def test_bad_input_is_refused_and_leaves_nothing(run, tmp_path, arguments, words):
    code, out, err = run(*arguments, "--device", "cpu", "--epochs", 1)
    assert (code, out) == (2, "")
    assert words in " ".join(err.split())
    assert not (tmp_path / "out").exists()
