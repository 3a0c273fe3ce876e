"""The Neural Clamping study: the small grid end to end, and what its records are turned into."""

import json
import math

import pytest
import torch
from experiments.__main__ import STUDIES, main
from experiments.neural_clamping.graphed import Folded, folded
from experiments.neural_clamping.results import numbers_of
from torch import nn

from calibrant.models import build_model


@pytest.mark.usefixtures("here")
def test_the_quick_grid_runs_from_the_command_line_to_a_page(tmp_path, capsys):
    records = str(tmp_path / "records.jsonl")
    assert main(["check", "neural-clamping", "--quick", "--records", records]) == 1  # nothing has run
    assert main(["run", "neural-clamping", "--quick", "--records", records]) == 0
    assert main(["check", "neural-clamping", "--quick", "--records", records]) == 0
    assert main(["table", "neural-clamping", "--quick", "--records", records, "--out", str(tmp_path)]) == 0
    page = (tmp_path / "neural-clamping-study.md").read_text(encoding="utf-8")
    for heading in ("Table 4", "Fig. 2", "Fig. 3", "Appendix D", "Appendix E", "Appendix F"):
        assert heading in page
    assert {path.name for path in (tmp_path / "images").iterdir()} == {
        f"neural-clamping-{name}.png" for name in ("gamma", "starts", "bins", "reliability")
    }
    capsys.readouterr()
    assert main(["list", "neural-clamping", "--quick", "--records", records]) == 0
    assert "missing" not in capsys.readouterr().out


def test_the_records_say_what_published_toml_says_they_say(capsys):
    assert main(["check", "neural-clamping"]) == 0, capsys.readouterr().out


@pytest.mark.usefixtures("here")
def test_data_that_are_not_there_end_the_run_with_a_message(tmp_path, capsys):
    assert main(["run", "neural-clamping", "--records", str(tmp_path / "records.jsonl"), "--device", "cpu"]) == 2
    assert "--data must name" in capsys.readouterr().err


def test_every_cell_of_the_grid_is_declared_once():
    for quick in (False, True):
        keys = [cell.key for cell in STUDIES["neural-clamping"].cells(quick=quick)]
        assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    ("name", "normalisations"),
    [("resnet20", 0), ("resnet18", 0), ("resnet50_imagenet", 0), ("densenet121", 120), ("vgg16_bn", 0)],
)
def test_a_folded_network_has_the_networks_logits_and_no_normalisation_behind_a_convolution(name, normalisations):
    torch.manual_seed(0)
    network = build_model(name, n_classes=10).double()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
            module.weight.data.uniform_(0.5, 2)
            module.bias.data.normal_()
    network.eval()
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    other = folded(network)
    left = sum(isinstance(module, nn.BatchNorm2d) for module in other.modules())
    assert left == normalisations
    torch.testing.assert_close(other(images), network(images))


def test_a_network_is_folded_where_a_gradient_is_wanted_alone():
    network = build_model("resnet20", n_classes=10).double().eval()
    fast, images = Folded(network), torch.randn(2, 3, 32, 32, dtype=torch.float64)
    assert torch.equal(fast(images), network(images))
    assert [name for name, _ in fast.named_parameters()] == [f"model.{name}" for name, _ in network.named_parameters()]
    leaves = [images.clone().requires_grad_() for _ in range(2)]
    gradients = [
        torch.autograd.grad(each(leaf).logsumexp(1).sum(), leaf)[0]
        for each, leaf in zip((fast, network), leaves, strict=True)
    ]
    torch.testing.assert_close(*gradients)


def fit(seed, gamma, value, *, start="random", calibration=0.01):
    row = {
        name: [value, value - 0.01, value + 0.02]
        for name in ("accuracy", "entropy", "ece", "ace", "sce", "nll", "auroc")
    }
    cell = {
        "method": "clamping",
        "start": start,
        "gamma": gamma,
        "seed": seed,
        "network": "resnet110",
        "data": "cifar100",
    }
    differences = {"joint - TS": {name: [*each, 0.5] for name, each in row.items()}}
    numbers = {"rows": {"joint": {"metrics": row}}, "differences": differences, "T": 2.0, "norm": 0.4}
    return {"cell": cell, "numbers": numbers | {"calibration": {"ece": calibration, "nll": 1.0}}}


def test_an_interval_has_the_error_of_the_seeds_and_that_of_the_test_images():
    number = numbers_of([fit(0, 1.0, 0.10), fit(1, 1.0, 0.12)])["table4.joint.ece"]
    seeds = 12.706 * math.sqrt(0.0002) / math.sqrt(2)  # Student's t with one degree of freedom
    assert number.value == pytest.approx(11)
    assert number.low == pytest.approx(11 - 100 * math.hypot(0.01, seeds))
    assert number.high == pytest.approx(11 + 100 * math.hypot(0.02, seeds))


def test_gamma_is_chosen_by_calibration_error_once_its_whole_pool_was_fitted():
    pool = [fit(0, step / 20, step / 100, calibration=abs(step - 7) / 100) for step in range(21)]
    assert "chosen.joint.ece" not in numbers_of(pool[:-1])
    assert numbers_of(pool)["chosen.joint.ece"].value == pytest.approx(7)


def test_a_fit_without_an_answer_is_left_out():
    failed = json.loads(json.dumps(fit(1, 1.0, 0.5)))
    failed["numbers"] = {"no_fit": "it diverged"}
    assert numbers_of([fit(0, 1.0, 0.1), failed])["table4.joint.ece"].value == pytest.approx(10)
