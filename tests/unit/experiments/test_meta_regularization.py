"""The meta-regularisation study: the small grid end to end, and what its records are turned into."""

import json
import math
from pathlib import Path

import pytest
import torch
from experiments.__main__ import STUDIES, main
from experiments.evaluation import reliability_bins
from experiments.meta_regularization.figures import LOOKS, merged
from experiments.meta_regularization.results import PUBLISHED, numbers_of
from experiments.meta_regularization.study import BINS
from experiments.published import read_published

from calibrant.predictions import Predictions


@pytest.mark.usefixtures("here")
def test_the_quick_grid_runs_from_the_command_line_to_a_page(tmp_path, capfd):
    records = str(tmp_path / "records.jsonl")
    run = ["run", "meta-regularization", "--quick", "--records", records, "--only", "seed=0", "--together", "2"]
    assert main(run) == 0
    assert main(["check", "meta-regularization", "--quick", "--records", records]) == 0
    assert main(["table", "meta-regularization", "--quick", "--records", records, "--out", str(tmp_path)]) == 0
    page = (tmp_path / "meta-regularization-study.md").read_text(encoding="utf-8")
    assert "| FLγ-SECE | 1 | best error: " in page
    assert "- FLγ-SECE, seed 0, calibration: 2: " in page
    assert "- FLγ-SECE, seed 0, test: 2: " in page
    assert {each.name for each in (tmp_path / "images").iterdir()} == {
        f"meta-regularization-{figure}-digits.png" for figure in ("epochs", "bins", "reliability")
    }
    record = json.loads(Path(records).read_text(encoding="utf-8").splitlines()[0])["numbers"]
    for rule, places in {"ece": 0, "mce": 1}.items():
        assert record["bins"]["15"][places] == pytest.approx(record["rules"]["best"]["rows"]["none"][rule][0], rel=1e-5)
    assert "2 cells done" in capfd.readouterr().out


def test_the_records_say_what_published_toml_says_they_say(capsys):
    assert main(["check", "meta-regularization"]) == 0, capsys.readouterr().out


@pytest.mark.usefixtures("here")
def test_data_that_are_not_there_end_the_run_with_a_message(tmp_path, capsys):
    assert main(["run", "meta-regularization", "--records", str(tmp_path / "records.jsonl"), "--device", "cpu"]) == 2
    assert "--data must name" in capsys.readouterr().err


def test_a_condition_without_a_value_is_refused(tmp_path, capsys):
    records = str(tmp_path / "records.jsonl")
    assert main(["run", "meta-regularization", "--quick", "--records", records, "--only", "seed"]) == 2
    assert "NAME=VALUE" in capsys.readouterr().err


def test_the_papers_own_length_is_declared():
    cells = STUDIES["meta-regularization"].cells(quick=False)
    assert {(cell.settings["epochs"], cell.settings["batch_size"]) for cell in cells} >= {(350, 128)}
    assert len({cell.key for cell in cells}) == len(cells)


def test_every_number_of_table_3_and_figure_5_is_one_that_the_grid_will_have():
    cells = [cell.settings for cell in STUDIES["meta-regularization"].cells(quick=False)]
    records = [trained(cell["method"], cell["seed"], 0.7, 0.1, data=cell["data"]) for cell in cells]
    for record in records:
        record["numbers"]["bins"] = {str(n_bins): [0.02, 0.2] for n_bins in BINS}
    found = numbers_of(records)
    assert all(each.id in found for each in read_published(PUBLISHED))
    assert {cell["method"] for cell in cells} <= set(LOOKS)


def test_bins_of_a_hundred_become_those_of_fewer():
    logits = 3 * torch.randn(2000, 5, generator=torch.manual_seed(0))
    predictions = Predictions.from_logits(logits, torch.randint(5, (2000,), generator=torch.manual_seed(1)))
    for n_bins in (20, 50):
        coarse = merged(reliability_bins(predictions, 100), 100 // n_bins)
        for ours, expected in zip(coarse, reliability_bins(predictions, n_bins), strict=True):
            assert ours == pytest.approx(expected, rel=1e-4)


def test_errors_by_number_of_bins_are_compared_seed_by_seed():
    records = [trained(method, seed, 0.7, 0.1) for method in ("CE", "FLγ-SECE") for seed in (0, 1)]
    for record, error in zip(records, (0.05, 0.07, 0.02, 0.03), strict=True):
        record["numbers"]["bins"] = {"10": [error, 10 * error]}
    number = numbers_of(records)["cifar100.FLγ-SECE - CE.10 bins.mce"]
    half = 12.706 * 50**0.5 / 2**0.5  # percent: deviation √50 of -30 and -40, two of them
    assert number[:3] == pytest.approx((-35, -35 - half, -35 + half))


def trained(method, seed, accuracy, ece, data="cifar100"):
    metrics = {name: [0.5, 0.4, 0.7] for name in ("nll", "mce", "ace", "sce", "auroc")}
    metrics |= {"accuracy": [accuracy, accuracy - 0.01, accuracy + 0.02], "ece": [ece, ece - 0.003, ece + 0.004]}
    rows = dict.fromkeys(("none", "TS", "TS (grid)"), metrics)
    rules = {rule: {"epoch": 10, "T": {}, "rows": rows} for rule in ("last", "best", "best-nll")}
    return {"cell": {"method": method, "data": data, "seed": seed}, "numbers": {"rules": rules, "epochs": []}}


def test_accuracy_becomes_error_with_its_interval_turned_around():
    number = numbers_of([trained("CE", 0, 0.75, 0.08)])["cifar100.CE.best.none.error"]
    assert number[:3] == pytest.approx((25, 23, 26))


def test_several_seeds_widen_the_interval_of_the_test_images():
    number = numbers_of([trained("CE", 0, 0.75, 0.08), trained("CE", 1, 0.75, 0.10)])["cifar100.CE.best.none.ece"]
    seeds = 12.706 * math.sqrt(2) / math.sqrt(2)  # percent: deviation √2 of 8 and 10, two of them
    assert number.value == pytest.approx(9)
    assert number.high == pytest.approx(9 + math.hypot(0.4, seeds))
    assert number.low == 0  # which no ECE is below


def test_an_interval_of_two_seeds_ends_at_what_the_metric_can_be():
    seeds = [trained("FLγ", 0, 0.75, 0.03), trained("FLγ", 1, 0.75, 0.38), trained("Focal", 0, 0.7, 0.03)]
    numbers = numbers_of([*seeds, trained("Focal", 1, 0.75, 0.02)])
    assert numbers["cifar100.FLγ.best.none.ece"][1:3] == (0, 100)
    assert numbers["cifar100.FLγ - Focal.best.ece"][1:3] == (-100, 100)


def test_a_difference_has_the_error_of_both_networks():
    records = [trained("Focal", 0, 0.75, 0.05), trained("FLγ-SECE", 0, 0.74, 0.02)]
    number = numbers_of(records)["cifar100.FLγ-SECE - Focal.best.ece"]
    assert number[:3] == pytest.approx((-3, -3 - math.hypot(0.3, 0.4), -3 + math.hypot(0.4, 0.3)))


def test_a_difference_is_taken_seed_by_seed_over_the_seeds_that_both_have():
    focal = [trained("Focal", seed, 0.75, ece) for seed, ece in ((0, 0.03), (1, 0.09), (2, 0.50))]
    meta = [trained("FLγ-SECE", seed, 0.75, ece) for seed, ece in ((1, 0.07), (0, 0.02))]
    number = numbers_of([*focal, *meta])["cifar100.FLγ-SECE - Focal.best.ece"]
    seeds = 12.706 * math.sqrt(0.5) / math.sqrt(2)  # percent: deviation √.5 of -1 and -2, two of them
    assert number.value == pytest.approx(-1.5)
    assert number.high == pytest.approx(-1.5 + math.hypot(0.4, 0.3, seeds))
    assert number.about == "2 seeds and the test samples"
