"""The hypothetical classifiers of the dark-side paper, and its study end to end."""

import numpy as np
import pytest
import torch
from experiments.__main__ import main
from experiments.dark_side.hypothetical import Hypothetical, hypothetical
from experiments.dark_side.learned import _features, _head
from scipy.stats import beta

from calibrant.datasets import load_resnet110
from calibrant.metrics import AUROC, ECE
from calibrant.predictions import Predictions


def test_at_d_of_one_a_classifier_is_calibrated():
    assert Hypothetical(1.0, 1.7).calibration_error == pytest.approx(0, abs=1e-12)
    uniform = Hypothetical(1.0, 1.0)  # whose AUROC is 1/2 + E|c - c'|
    assert uniform.auroc == pytest.approx(5 / 6, abs=1e-6)


@pytest.mark.parametrize(("d", "q"), [(0.5, 0.8), (3.0, 2.0)])
def test_the_probability_of_being_right_is_that_of_bayes(d, q):
    classifier = Hypothetical(d, q)
    at = np.linspace(0.0005, 0.9995, 1000)
    right, wrong = beta.pdf(at, q + d, q), beta.pdf(at, q, q + d)
    expected = (np.abs(right / (right + wrong) - at) * (right + wrong) / 2).mean()
    assert classifier.calibration_error == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(("auroc", "error", "side"), [(0.774, 0.06, "overconfident"), (0.9946, 0.18, "underconfident")])
def test_a_classifier_has_the_numbers_that_it_was_built_for(auroc, error, side):
    classifier = hypothetical(auroc, error, side)
    assert (classifier.d < 1) == (side == "overconfident")
    answers = classifier.draw(50_000, seed=1)
    assert answers.accuracy == 0.5
    assert float(ECE()(answers)) == pytest.approx(error, abs=0.005)
    assert float(AUROC()(answers)) == pytest.approx(auroc, abs=0.005)


def test_features_come_back_from_the_logits_that_they_gave():
    weight, bias = _head()
    features = torch.rand(50, 64, generator=torch.manual_seed(0))
    logits = features.double() @ weight.T + bias
    rows = Predictions.from_logits(logits, torch.zeros(50, dtype=torch.int64))
    assert torch.allclose(_features(rows), features, atol=1e-5)
    _, test = load_resnet110()  # as stored, rounded
    again = _features(test).double() @ weight.T + bias
    assert float((again - test.logits).abs().max()) < 0.01
    assert float((_features(test) < -0.005).double().mean()) == 0  # behind a ReLU


def test_the_quick_grid_runs_from_the_command_line_to_a_page(tmp_path, capfd):
    records = str(tmp_path / "records.jsonl")
    assert main(["run", "dark-side", "--quick", "--records", records]) == 0
    assert main(["check", "dark-side", "--quick", "--records", records]) == 0
    assert main(["table", "dark-side", "--quick", "--records", records, "--out", str(tmp_path)]) == 0
    page = (tmp_path / "dark-side-study.md").read_text(encoding="utf-8")
    assert "| temperature |" in page
    assert "| log-probabilities | 300 |" in page
    assert (tmp_path / "images" / "dark-side-hypothetical.png").exists()
    assert "7 cells done" in capfd.readouterr().out


def test_the_records_say_what_published_toml_says_they_say(capsys):
    assert main(["check", "dark-side"]) == 0, capsys.readouterr().out
