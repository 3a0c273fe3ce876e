"""The study of overconfidence: the small grid end to end, and what its records are turned into."""

import math

import pytest
import torch
from experiments.__main__ import STUDIES, main
from experiments.overconfidence.figures import figure_numbers
from experiments.overconfidence.results import PUBLISHED, groups_of, loss_curve, numbers_of, page_of
from experiments.published import read_published


@pytest.mark.usefixtures("here")
def test_the_quick_grid_runs_from_the_command_line_to_a_page(tmp_path, capfd):
    records = str(tmp_path / "records.jsonl")
    assert main(["run", "overconfidence", "--quick", "--records", records, "--together", "3"]) == 0
    assert main(["check", "overconfidence", "--quick", "--records", records]) == 0
    assert main(["table", "overconfidence", "--quick", "--records", records, "--out", str(tmp_path)]) == 0
    page = (tmp_path / "overconfidence-study.md").read_text(encoding="utf-8")
    assert "| L1 (0.01) | 1 | " in page
    assert {path.name for path in (tmp_path / "images").iterdir()} == {
        "overconfidence.png",
        "overconfidence-epochs.png",
        "overconfidence-learned-digits.png",
        "overconfidence-losses.png",
        "overconfidence-reliability-digits.png",
        "overconfidence-sizes.png",
    }
    assert "## Logits by the epoch of learning" in page
    assert "3 cells done" in capfd.readouterr().out


def test_the_records_say_what_published_toml_says_they_say(capsys):
    assert main(["check", "overconfidence"]) == 0, capsys.readouterr().out


@pytest.mark.usefixtures("here")
def test_a_data_set_that_is_not_there_ends_the_run_before_a_cell_begins(tmp_path, capsys):
    records = tmp_path / "records.jsonl"
    run = ["run", "overconfidence", "--records", str(records), "--data", str(tmp_path), "--device", "cpu"]
    assert main([*run, "--only", "data=svhn"]) == 2
    assert "svhn needs train_32x32.mat" in capsys.readouterr().err
    assert records.read_bytes() == b""


def test_the_grid_has_the_papers_coefficients_and_five_seeds():
    cells = [cell.settings for cell in STUDIES["overconfidence"].cells(quick=False)]
    table = [
        cell
        for cell in cells
        if cell["data"] == "cifar10"
        and "train_samples" not in cell
        and cell["method"] in ("CE", "LS (0.05)", "L1 (0.05)", "Focal (3)")
    ]
    assert len(table) == 20
    assert {cell["loss"] for cell in cells if cell["method"] == "L1 (0.01)"} == {"logit_norm(weight=0.01,p=1)"}


def test_every_claim_about_figures_2_3_and_5_is_one_that_networks_of_the_grid_will_have():
    cells = [cell.settings for cell in STUDIES["overconfidence"].cells(quick=False) if cell.settings["seed"] == 4]
    found = figure_numbers(
        groups_of([pictured(cell["method"], data=cell["data"], seed=cell["seed"]) for cell in cells])
    )
    marks = (".gap below half", " samples.ece", ".learned.spread", ".learned.correlation")
    claims = [each.id for each in read_published(PUBLISHED) if each.id.endswith(marks)]
    assert len(claims) == 45
    assert found.keys() >= set(claims)


def pictured(method, seed=4, sizes=(0.03, 0.05), correlation=-0.5, **settings):
    record = trained(method, seed, 0.02, **settings)
    rows, low, high = record["numbers"]["rows"], [100, 0.3, 0.2], [300, 0.9, 0.8]
    rows |= dict.fromkeys(("TS", "HB", "HB (equal mass)"), rows["none"])
    record["numbers"] |= {
        "diagrams": {"none": [low, high], "TS (grid)": [high]},
        "sizes": {name: {"500": list(sizes)} for name in ("TS (grid)", "TS", "HB", "HB (equal mass)")},
        "learned": {"spread": [2.0, 1.9, 2.1], "correlation": [correlation, correlation - 0.03, correlation + 0.03]},
    }
    return record


def test_the_gap_where_confidence_is_low_has_a_binomial_interval():
    numbers = figure_numbers(groups_of([pictured("CE")]))
    gap, half = numbers["cifar100.CE.none.gap below half"], 196 * (0.2 * 0.8 / 100) ** 0.5
    assert gap[:3] == pytest.approx((10, 10 - half, 10 + half))
    assert numbers["cifar100.CE.TS (grid).gap below half"][:3] == (0, -100, 100)  # no bin below one half


def test_draws_of_calibration_samples_are_compared_one_by_one():
    numbers = figure_numbers(groups_of([pictured("CE"), pictured("LS (0.09)", sizes=(0.05, 0.08))]))
    number = numbers["cifar100.LS (0.09) - CE.TS (grid).500 samples.ece"]
    draws = 12.706 * 0.5**0.5 / 2**0.5  # percent: deviation √.5 of 2 and 3, two of them
    assert number.value == pytest.approx(2.5)
    assert number.low == pytest.approx(2.5 - math.hypot(draws, 0.3, 0.4))
    assert number.about == "1 seed, 2 draws and the test samples"
    assert numbers["cifar100.CE.HB - TS (grid).500 samples.ece"].value == 0


def test_what_logits_tell_of_learning_is_compared_with_the_cross_entropy():
    numbers = figure_numbers(groups_of([pictured("CE"), pictured("LS (0.09)", correlation=-0.2)]))
    number = numbers["cifar100.LS (0.09) - CE.learned.correlation"]
    assert number[:3] == pytest.approx((0.3, 0.3 - math.hypot(0.03, 0.03), 0.3 + math.hypot(0.03, 0.03)))
    assert number.about == "1 seed, training samples"


def test_curves_of_losses_are_their_formulas():
    p = torch.linspace(0.05, 0.95, 19, dtype=torch.float64)
    torch.testing.assert_close(loss_curve("ce", p), -p.log())
    torch.testing.assert_close(loss_curve("focal(gamma=3)", p), -((1 - p) ** 3) * p.log())
    torch.testing.assert_close(loss_curve("inverse_focal(gamma=2)", p), -((1 + p) ** 2) * p.log())


def trained(method, seed, ece, calibration_ece=0.1, accuracy=0.7, nll=1.0, **settings):
    row = {
        "accuracy": [accuracy, accuracy - 0.01, accuracy + 0.01],
        "nll": [nll, nll - 0.1, nll + 0.1],
        "ece": [ece, ece - 0.003, ece + 0.004],
        "auroc": [0.8] * 3,
    }
    numbers = {"T": {"TS": 1.5, "TS (grid)": 1.4}, "rows": dict.fromkeys(("none", "TS (grid)"), row)}
    where = {"device": "cpu", "torch": "2", "commit": "0" * 40}
    return {
        "cell": {"data": "cifar100", "method": method, "seed": seed} | settings,
        "numbers": numbers | {"calibration_ece": calibration_ece, "epochs": []},
        **where,
    }


def test_a_difference_to_the_cross_entropy_is_taken_over_the_seeds_that_both_have():
    records = [trained("CE", 0, 0.2), trained("CE", 1, 0.3), trained("L1 (0.01)", 1, 0.1)]
    number = numbers_of(records)["cifar100.L1 (0.01) - CE.none.ece"]
    assert number[:3] == pytest.approx((-20, -20.5, -19.5))
    assert number.about == "1 seed, test samples"


def test_the_page_marks_what_the_t_test_finds_and_names_the_best_coefficients():
    errors = {"CE": (0.20, 0.21, 0.19), "LS (0.09)": (0.02, 0.03, 0.01)}
    records = [trained(method, seed, ece) for method, eces in errors.items() for seed, ece in enumerate(eces)]
    page = page_of([*records, trained("LS (0.01)", 0, 0.05, calibration_ece=0.04)], images=None)
    row = next(line for line in page.splitlines() if line.startswith("| LS (0.09) "))
    assert "▼" in row
    assert chosen(page)["LS (0.01), LS (0.09)"] == ["LS (0.09)", "LS (0.09)", "LS (0.01)", "LS (0.01)"]


def test_the_best_coefficient_is_named_for_each_number_of_training_samples():
    records = [
        trained(method, 0, ece, train_samples=size)
        for size, eces in ((5000, (0.2, 0.1)), (15000, (0.05, 0.1)))
        for method, ece in zip(("Focal (1)", "Focal (5)"), eces, strict=True)
    ]
    page = page_of(records, images=None)
    few, many = page.split("## CIFAR-100, 15,000 training samples")
    assert "## CIFAR-100, 5,000 training samples" in few
    assert chosen(few)["Focal (1), Focal (5)"][0] == "Focal (5)"
    assert chosen(many)["Focal (1), Focal (5)"][0] == "Focal (1)"
    assert "overconfidence-pools.png" not in page  # Fig. 1a to c has all training samples


def test_the_best_coefficient_is_followed_over_the_numbers_of_training_samples(tmp_path):
    errors = {5000: {"LS (0.01)": 0.2, "LS (0.05)": 0.1, "LS (0.09)": 0.05}}
    errors[15000] = {"LS (0.01)": 0.1, "LS (0.05)": 0.05, "LS (0.09)": 0.051}  # the last two are alike
    records = [
        trained(method, 0, ece, data="cifar10", train_samples=size)
        for size, eces in errors.items()
        for method, ece in eces.items()
    ]
    number = numbers_of(records)["cifar10.LS best, 15,000 - 5,000 training samples.coefficient"]
    assert number[:3] == pytest.approx((-0.04, -0.04, 0.0))
    page = page_of(records, images=tmp_path)
    assert "| Label smoothing, ε | 15,000 | 0.05 (0.05 … 0.09) | 5.00 (4.70 … 5.40) | 70.00 (69.00 … 71.00) |" in page
    assert (tmp_path / "overconfidence-training-sizes.png").stat().st_size > 10_000
    assert "Fig. 1d" not in page_of(records[:3], images=None)


def test_a_coefficient_whose_first_seed_lacks_the_calibration_ece_is_chosen_by_its_others():
    earlier = trained("LS (0.09)", 0, 0.02)
    del earlier["numbers"]["calibration_ece"]
    page = page_of([trained("LS (0.01)", 0, 0.05), earlier, trained("LS (0.09)", 1, 0.02, 0.01)], images=None)
    assert chosen(page)["LS (0.01), LS (0.09)"][-1] == "LS (0.09)"


def test_rows_are_the_cross_entropy_and_then_each_family_by_its_coefficient():
    methods = ["CE", "LS (0.01)", "LS (0.09)", "L1 (0.005)", "L1 (0.1)", "Focal (5)", "Focal (5), weight detached"]
    methods += ["Focal (9)", "Inverse focal (2)"]
    page = page_of([trained(method, 0, 0.1) for method in reversed(methods)], images=None)
    first = [line.split(" | ")[0].strip("| ") for line in page.splitlines() if line.startswith("| ")]
    assert [name for name in first if name in methods] == methods


def test_the_page_says_that_the_lowest_ece_is_that_of_a_network_that_failed():
    records = [
        trained("CE", 0, 0.2),
        trained("L1 (0.001)", 0, 0.15, nll=1.2),
        trained("L1 (0.01)", 0, 0.1, accuracy=0.6, nll=1.3),
        trained("L1 (0.1)", 0, 0.01, accuracy=0.02, nll=4.5),
    ]
    page = " ".join(page_of(records, images=None).split())
    assert "**L1 (0.1) has the lowest ECE of its pool, 1.00 %, and an accuracy of 2.0 %" in page
    assert "(L1 (0.1)) the lowest ECE is that of L1 (0.01), with an accuracy of 60.0 %." in page
    assert "The lowest log-loss of the whole pool is that of L1 (0.001), with 70.0 %." in page
    assert "has the lowest ECE of its pool" not in page_of(records[:3], images=None)


def test_pools_are_compared_by_the_best_coefficient_that_learned():
    eces = {"LS (0.01)": 0.15, "LS (0.05)": 0.05, "LS (0.09)": 0.08}
    records = [trained("CE", 0, 0.2), trained("CE", 1, 0.2)]
    records += [trained(method, 0, ece) for method, ece in eces.items()]
    records.append(trained("LS (0.2)", 0, 0.01, accuracy=0.1))
    numbers = numbers_of(records)
    best = numbers["cifar100.LS best - CE.none.ece"]
    assert best.value == pytest.approx(-15)
    assert best.about == "1 seed against 2, test samples"
    assert numbers["cifar100.LS next - best.none.ece"].value == pytest.approx(10)
    assert numbers["cifar100.LS largest - smallest.none.ece"].value == pytest.approx(-7)
    assert numbers["cifar100.LS (0.2) - half of CE.none.accuracy"].value == pytest.approx(-25)


def test_optimal_ece_over_epochs_is_compared_over_the_seeds_that_have_it():
    curves = {("CE", 0): (0.02, 0.01), ("CE", 1): (0.02, 0.01), ("LS (0.09)", 0): (0.02, 0.03)}
    records = [trained("LS (0.09)", 1, 0.1)]
    for (method, seed), values in curves.items():
        record = trained(method, seed, 0.1)
        record["numbers"]["epochs"] = [
            {"epoch": epoch, "optimal_ece": value} for epoch, value in zip((100, 200), values, strict=True)
        ]
        records.append(record)
    numbers = numbers_of(records)
    assert numbers["cifar100.LS (0.09).rise.optimal_ece"].value == pytest.approx(1)
    assert numbers["cifar100.LS (0.09) - CE.last.optimal_ece"].value == pytest.approx(2)
    assert numbers["cifar100.CE.rise.optimal_ece"].about == "2 seeds"


def test_curves_over_epochs_are_those_of_networks_that_all_samples_trained():
    records = [trained(method, 0, 0.1) for method in ("CE", "LS (0.01)", "LS (0.05)")]
    for record in records:
        record["numbers"]["epochs"] = [{"epoch": 200, "optimal_ece": 0.01}]
    smaller = [{**record, "cell": record["cell"] | {"train_samples": 5000}} for record in records]
    assert "overconfidence-epochs.png" in page_of(records, images=None)
    assert "overconfidence-epochs.png" not in page_of(smaller, images=None)


def test_the_figure_of_the_coefficients_is_drawn_where_there_are_pools(tmp_path):
    records = [trained(method, 0, 0.1) for method in ("CE", "LS (0.01)", "LS (0.09)", "Focal (1)")]
    for record in records:
        rows = record["numbers"]["rows"]
        rows["TS"] = rows["none"]
    page = page_of(records, images=tmp_path)
    assert "images/overconfidence-pools.png" in page
    assert (tmp_path / "overconfidence-pools.png").stat().st_size > 10_000
    assert "overconfidence-pools.png" not in page_of(records[:2], images=None)


def chosen(page):
    """Return what each rule chooses, by the pool."""
    lines = iter(page.splitlines())
    next(line for line in lines if line.startswith("| pool "))
    rows = (line.strip("| ").split(" | ") for line in lines if line.startswith("| "))
    return {pool: methods for pool, *methods in rows}
