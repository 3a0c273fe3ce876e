"""The post-hoc maps of Neural Clamping's Table 2: the paper's descent, and the quick grid end to end."""

import pytest
import torch
from experiments.__main__ import main
from experiments.posthoc_maps.descent import descend
from torch.nn import functional as F

from calibrant.calibrators import TemperatureScaling
from calibrant.errors import FitError
from calibrant.predictions import Predictions


@pytest.fixture(scope="module")
def samples():
    logits = 2 * torch.randn(400, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.multinomial((logits / 2).softmax(1), 1, generator=torch.Generator().manual_seed(1))[:, 0]
    return Predictions.from_logits(logits, labels)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("kind", ["temperature", "vector", "matrix"])
def test_three_steps_are_those_of_torchs_plain_sgd(samples, kind, reduction):
    start = {"temperature": torch.ones(()), "vector": torch.ones(4), "matrix": torch.eye(4)}[kind]
    scale, bias = start.double().requires_grad_(), torch.zeros(4).double().requires_grad_()
    parameters = [scale] if kind == "temperature" else [scale, bias]
    optimiser = torch.optim.SGD(parameters, lr=1e-3)
    mapped = {
        "temperature": lambda: samples.logits / scale,
        "vector": lambda: samples.logits * scale + bias,
        "matrix": lambda: samples.logits @ scale.T + bias,
    }[kind]
    for _ in range(3):
        optimiser.zero_grad()
        F.cross_entropy(mapped(), samples.labels, reduction=reduction).backward()
        optimiser.step()
    found = descend(samples, kind, reduction, epochs=3).transform(samples)
    assert torch.allclose(found.logits, mapped().detach(), rtol=1e-12, atol=1e-12)


def test_a_thousand_steps_of_the_sum_reach_the_optimum_and_of_the_mean_do_not(samples):
    optimum = float(TemperatureScaling().fit(samples).temperature)
    reached = [1 / float(descend(samples, "temperature", each).weight[0, 0]) for each in ("sum", "mean")]
    assert reached[0] == pytest.approx(optimum, rel=1e-6)
    assert 1 < reached[1] < 1 + 0.5 * (optimum - 1)


def test_a_descent_that_comes_apart_is_refused(samples):
    with pytest.raises(FitError, match="must stay finite"):
        descend(samples, "vector", "sum", rate=1e307, epochs=3)


@pytest.mark.usefixtures("here")
def test_the_quick_grid_runs_from_the_command_line_to_a_page(tmp_path, capfd):
    records = str(tmp_path / "records.jsonl")
    assert main(["run", "posthoc-maps", "--quick", "--records", records]) == 0
    assert main(["check", "posthoc-maps", "--quick", "--records", records]) == 0
    assert main(["table", "posthoc-maps", "--quick", "--records", records, "--out", str(tmp_path)]) == 0
    page = (tmp_path / "posthoc-maps-study.md").read_text(encoding="utf-8")
    assert "| MS | descent, sum |" in page
    assert "9 cells done" in capfd.readouterr().out


def test_the_records_say_what_published_toml_says_they_say(capsys):
    assert main(["check", "posthoc-maps"]) == 0, capsys.readouterr().out
