"""Slices: the numbers are those of their samples, the worst comes first, and noise is not taken for a finding."""

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from scipy.stats import ttest_ind

from calibrant import evaluate, evaluate_slices
from calibrant.errors import CalibrantWarning, InputError
from calibrant.evidence import Estimate, estimate, evaluate_risk, holm
from calibrant.files.choose import LoadOptions
from calibrant.files.load import load_detailed
from calibrant.labels import encode
from calibrant.metrics import ECE, NLL
from calibrant.predictions import Predictions, TopLabel
from calibrant.report.verdict import verdict
from calibrant.slices import PREDICTED, GapToRest, Slice, _gap_to_rest, predicted_classes, samples_of, worst_slices
from calibrant.testing import overconfident


def drawn(n, gaps, seed=0):
    """Return top labels of slices 0, 1, … of n samples each, whose confidence exceeds their accuracy by these gaps."""
    rng = np.random.default_rng(seed)
    confidence = rng.uniform(0.6, 0.95, size=(len(gaps), n))
    correct = rng.random(confidence.shape) < confidence - np.array(gaps)[:, None]
    names = np.repeat([f"slice {i}" for i in range(len(gaps))], n)
    return TopLabel(confidence.ravel(), correct.ravel()), names


def test_numbers_are_those_of_the_samples_in_the_slice():
    samples, region = overconfident(600, 4), np.array(["a", "b", "b"] * 200)
    found = {one.value: one for one in evaluate_slices(samples, by={"region": region}, resamples=200)}
    part = samples[torch.from_numpy(region == "b")]
    alone = estimate(part, [ECE(), NLL()], resamples=200)
    assert (found["a"].n, found["b"].n) == (200, 400)
    assert found["b"].metrics["nll"].value == pytest.approx(alone["nll"].value, abs=1e-12)
    assert found["b"].metrics["ece"].value == pytest.approx(alone["ece"].value, abs=1e-12)
    assert samples_of(list(found.values()), {"region": region})[0].sum() == found["a"].n


def test_slices_of_two_classes_are_those_of_the_probability_of_the_second():
    rng = np.random.default_rng(0)
    p, region = rng.choice([0.38, 0.62], 4000), np.repeat(["a", "b"], 2000)
    labels = (rng.random(4000) < p + 0.1 * (region == "b")).astype(int)
    samples = Predictions.from_binary_probs(p, labels)
    off, other = evaluate_slices(samples, by={"region": region}, resamples=200)
    assert (off.value, off.is_miscalibrated, other.is_miscalibrated) == ("b", True, False)
    assert off.gap == pytest.approx(-0.1, abs=0.03)
    assert off.to_rest.is_significant
    alone = evaluate_risk(samples[torch.from_numpy(region == "b")], resamples=200)
    assert off.risk.ece.value == pytest.approx(alone.ece.value)
    assert off.risk.observed.low == pytest.approx(alone.observed.low)
    assert off.metrics["ece"] == off.risk.ece
    assert worst_slices([off, other])["worst(region).ece"].value == off.risk.ece.value


def test_the_slice_that_is_off_comes_first_and_stands_out():
    top, names = drawn(400, [0.0, 0.25, 0.0], seed=1)
    found = evaluate_slices(top, by={"group": names}, resamples=200)
    assert found[0].value == "slice 1"
    assert [one.is_miscalibrated for one in found] == [True, False, False]
    assert found[0].to_rest.is_significant
    assert found[0].to_rest.low < 0.25 < found[0].to_rest.high
    assert found[0].gap == pytest.approx(0.25, abs=0.06)


def test_a_slice_that_is_closer_to_calibration_than_the_rest_is_not_called_the_worst():
    top, names = drawn(400, [0.2, 0.2, 0.08])
    found = evaluate_slices(top, by={"group": names}, resamples=200)
    best = found[-1]
    assert (best.value, best.is_miscalibrated, best.to_rest.is_significant) == ("slice 2", True, True)
    evaluation = evaluate(top, resamples=200)
    assert not any(text.startswith("Worst") for text in verdict(evaluation, [best]).findings)
    (named,) = [text for text in verdict(evaluation, found[:1]).findings if text.startswith("Worst")]
    assert f"group = {found[0].value}" in named


def test_very_many_slices_can_still_be_shown_to_be_off():
    top, names = drawn(50, [0.0] * 10 + [0.5] * 60)
    found = {one.value: one.is_miscalibrated for one in evaluate_slices(top, by={"group": names}, resamples=100)}
    assert [found[f"slice {i}"] for i in range(70)] == [False] * 10 + [True] * 60


def test_equal_slices_are_seldom_told_apart():
    # All slices are overconfident alike: none differs from the rest, whatever its own error.
    alarms = 0
    for seed in range(400):
        top, names = drawn(60, [0.1] * 5, seed)
        p = {name: _gap_to_rest(top, torch.from_numpy(names == name)).p for name in np.unique(names)}
        alarms += min(holm(p).values()) <= 0.05
    assert alarms <= 33  # 5 % of 400 is 20, with a standard deviation of 4.4


def test_the_gap_to_the_rest_is_that_of_welchs_test():
    top, names = drawn(300, [0.0, 0.1])
    first = next(one for one in evaluate_slices(top, by={"g": names}, resamples=10) if one.value == "slice 1")
    gap = (top.confidence - top.correct.double()).numpy()
    theirs = ttest_ind(gap[names == "slice 1"], gap[names == "slice 0"], equal_var=False)
    # At least the variance of calibrated predictions is assumed, so ours may be a little wider.
    assert first.to_rest.value == pytest.approx(gap[names == "slice 1"].mean() - gap[names == "slice 0"].mean())
    assert first.to_rest.p == pytest.approx(theirs.pvalue, rel=0.2)


def test_weights_count_in_the_gap_to_the_rest():
    top, names = drawn(200, [0.0, 0.1])
    doubled = TopLabel(torch.cat([top.confidence] * 2), torch.cat([top.correct] * 2))
    inside = torch.from_numpy(names == "slice 1")
    weighted = _gap_to_rest(TopLabel(top.confidence, top.correct, weights=torch.full((400,), 2.0)), inside)
    assert replace(weighted, corrected_p=0) == replace(_gap_to_rest(top, inside), corrected_p=0)  # NaN before Holm
    assert _gap_to_rest(doubled, torch.cat([inside] * 2)).high < weighted.high


def test_the_only_slice_is_evaluated_and_has_no_rest():
    (only,) = evaluate_slices(drawn(200, [0.2])[0], by={"region": ["north"] * 200}, resamples=100)
    assert only.is_miscalibrated
    assert math.isnan(only.to_rest.value)
    assert not only.to_rest.is_significant


def test_few_samples_are_listed_last_and_not_tested():
    top = TopLabel([0.9] * 102, [True] * 80 + [False] * 22)
    found = evaluate_slices(top, by={"g": ["big"] * 100 + ["tiny"] * 2}, resamples=50)
    assert [one.value for one in found] == ["big", "tiny"]
    assert math.isnan(found[1].corrected_p)
    assert math.isnan(found[1].to_rest.p)
    assert not found[1].is_miscalibrated


@pytest.mark.parametrize(
    "values",
    [
        [1.0, None, 2.0, float("nan")],
        torch.tensor([1.0, float("nan"), 2.0, float("nan")]),
        np.array([1.0, np.nan, 2.0, np.nan]),
        pd.Series([1.0, None, 2.0, None]),
        pd.Series(["1", None, "2", None]),
        "polars",
        ["1", None, "2", None],
    ],
)
def test_columns_of_any_kind_are_read_and_missing_values_are_a_slice(values):
    if isinstance(values, str):
        values = pytest.importorskip(values).Series(["1", None, "2", None])
    top = TopLabel([0.9, 0.8, 0.7, 0.6], [True, True, False, False])
    found = evaluate_slices(top, by={"g": values}, resamples=10)
    assert {one.value: one.n for one in found} == {"1": 1, "2": 1, "(missing)": 2}


def test_a_value_called_missing_is_not_one_that_is_missing():
    top, values = TopLabel([0.9, 0.8, 0.7], [True, True, False]), ["missing", "", None]
    for column in (values, encode(np.array(["missing", "", ""]))):
        found = evaluate_slices(top, by={"g": column}, resamples=10)
        assert {one.value: one.n for one in found} == {"missing": 1, "(missing)": 2}


@pytest.mark.parametrize(
    ("by", "message"),
    [
        ({}, "at least one column"),
        ({"g": ["a"]}, "one entry per sample, 600"),
        ({"id": range(600)}, "at most 500 different values.*days or weeks of a time"),
    ],
)
def test_bad_columns_are_refused(by, message):
    with pytest.raises(InputError, match=message):
        evaluate_slices(overconfident(600, 3), by=by)


def test_missing_words_of_a_table_are_a_slice(tmp_path):
    columns = {"confidence": [0.9] * 40, "correct": [True] * 40, "region": ["north", None] * 20}
    for table in (pa.table(columns), pa.table({**columns, "region": pa.array(columns["region"]).dictionary_encode()})):
        pq.write_table(table, tmp_path / "p.parquet")
        loaded = load_detailed(tmp_path / "p.parquet", LoadOptions(extra=("region",)))
        slices = evaluate_slices(loaded.predictions, by={"region": loaded.extra["region"]}, resamples=100)
        assert {one.value: one.n for one in slices} == {"north": 20, "(missing)": 20}
    pq.write_table(pa.table({**columns, "confidence": [0.9, None] * 20}), tmp_path / "p.parquet")
    with pytest.raises(InputError, match="must have a value in every row"):
        load_detailed(tmp_path / "p.parquet", LoadOptions())


def test_predicted_classes_are_a_column():
    samples = Predictions.from_probs([[0.9, 0.1], [0.2, 0.8]], [0, 1], class_names=["cat", "dog"])
    assert predicted_classes(samples) == ["cat", "dog"]
    assert predicted_classes(overconfident(3, 2)) == [str(int(label)) for label in overconfident(3, 2).predicted]


def test_the_worst_of_several_slices_has_an_interval_that_covers_all_of_them():
    top, names = drawn(300, [0.0, 0.2, 0.1])
    found = evaluate_slices(top, by={"g": names}, resamples=200)
    worst = worst_slices(found)
    ece, auroc = worst["worst(g).ece"], worst["worst(g).auroc"]
    assert ece.value == max(one.metrics["ece"].value for one in found)
    assert auroc.value == min(one.metrics["auroc"].value for one in found)
    assert ece.high > max(one.metrics["ece"].high for one in found)  # widened for three slices
    assert auroc.low < min(one.metrics["auroc"].low for one in found)


def worst_of(*estimates):
    slices = [Slice("g", str(i), 100, {"ece": one}, math.nan, GapToRest()) for i, one in enumerate(estimates)]
    return worst_slices(slices)["worst(g).ece"]


def test_the_interval_of_the_worst_slice_is_wider_also_where_it_lies_below_the_value():
    below = Estimate(0.05, 0.01, 0.04)  # noise biases the value upwards
    found = worst_of(below, below)
    assert found.low < 0.01
    assert found.high > 0.04


def test_a_slice_without_an_interval_leaves_that_of_the_worst_unknown_in_any_order():
    known, unknown = Estimate(0.1, 0.05, 0.15), Estimate(0.2, math.nan, math.nan)
    for pair in ((known, unknown), (unknown, known)):
        found = worst_of(*pair)
        assert found.value == 0.2
        assert math.isnan(found.low)
        assert math.isnan(found.high)


def test_a_slice_of_one_heavy_sample_is_not_compared_with_the_rest():
    inside = torch.arange(200) < 50
    weights = torch.where(torch.arange(200) == 0, 1e6, 1.0)
    top = TopLabel([0.95] * 200, [False] * 50 + [True] * 150, weights=weights)
    assert math.isnan(_gap_to_rest(top, inside).p)


@pytest.mark.parametrize("n", [10, 30])
def test_a_small_slice_that_is_all_right_does_not_differ_from_an_overconfident_rest(n):
    # Slice and rest are drawn alike; three in four slices of ten have no error.
    rng, inside = np.random.default_rng(n), torch.arange(500) < n
    found = [_gap_to_rest(TopLabel([0.9999] * 500, rng.random(500) < 0.97), inside).p <= 0.05 for _ in range(200)]
    assert np.mean(found) < 0.05 + 3 * (0.05 * 0.95 / 200) ** 0.5


class TestCommand:
    @pytest.fixture
    def table(self, tmp_path):
        samples = overconfident(400, 3)
        frame = pd.DataFrame(samples.probs.numpy(), columns=["prob_0", "prob_1", "prob_2"])
        frame["labels"] = samples.labels.numpy()
        frame["region"] = ["north", "<b>south</b>"] * 200
        frame["id"] = range(400)
        path = tmp_path / "table.csv"
        frame.to_csv(path, index=False)
        return path

    @staticmethod
    def run(capsys, monkeypatch, *arguments):
        from calibrant.cli.main import run

        monkeypatch.setattr("sys.argv", ["calibrant", "evaluate", *map(str, arguments), "--resamples", "100"])
        with pytest.raises(SystemExit) as stopped:
            run()
        return stopped.value.code or 0, *capsys.readouterr()

    def test_slices_are_in_every_report(self, table, tmp_path, capsys, monkeypatch):
        page, document = tmp_path / "page.html", tmp_path / "page.json"
        reports = ["--html", page, "--json", document, "--figures", tmp_path / "figures"]
        gate = ["--fail-if", "worst(region).ece>0.5"]
        code, out, _ = self.run(capsys, monkeypatch, table, "--by", "region", "--classes", *reports, *gate)
        assert code == 0
        assert "By region" in out
        assert "By predicted class" in out
        assert "worst(region).ece > 0.5: does not hold" in out.replace("\n", " ")
        assert "<b>south</b>" not in page.read_text(encoding="utf-8")
        slices = json.loads(document.read_text(encoding="utf-8"))["slices"]
        assert {one["value"] for one in slices} == {"north", "<b>south</b>", "0", "1", "2"}
        drawn = {path.stem for path in (tmp_path / "figures").iterdir()}
        assert {"by_region", "by_predicted_class"} <= drawn

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--by", "regoin"], "regoin"),
            (["--by", "id", "--fail-if", "worst(region).ece>0.1"], "add --by region"),
            (["--by", "region", "--fail-if", "worst(region).sce>0.1"], "metric of slices"),
        ],
    )
    def test_bad_options_are_refused(self, table, capsys, monkeypatch, arguments, message):
        code, _, err = self.run(capsys, monkeypatch, table, *arguments)
        assert code == 2
        assert message in err.replace("\n", " ")


def test_a_slice_that_weighs_nothing_is_left_out():
    samples, half = overconfident(100, 3), np.arange(100) < 50
    found = evaluate_slices(samples.with_weights(half.astype(float)), by={"g": half.tolist()}, resamples=20)
    assert [(one.value, one.n, one.weight) for one in found] == [("True", 50, 1.0)]
    assert evaluate_slices(samples, by={"g": half.tolist()}, resamples=20)[0].weight is None
    assert found[0].metrics["nll"].value == pytest.approx(NLL()(samples[:50]))


def test_the_interval_of_the_worst_of_many_calibrated_slices_reaches_zero():
    """Widened intervals alone began above 0 in four of these six tables."""
    rng, above = np.random.default_rng(0), 0
    for seed in range(6):
        confidence = rng.beta(6, 1, 6000)
        top = TopLabel(confidence, rng.random(6000) < confidence)
        slices = evaluate_slices(top, by={"g": np.arange(6000) % 60}, resamples=100, seed=seed)
        above += worst_slices(slices)["worst(g).ece"].low > 0
    assert above <= 1


@pytest.mark.parametrize(
    "by", [pd.Series(["a", "b"] * 50, name="region"), pd.DataFrame({"region": ["a", "b"] * 50}), {}]
)
def test_columns_to_slice_by_have_names(by):
    with pytest.raises(InputError, match="region"):
        evaluate_slices(TopLabel([0.8] * 100, [True] * 100), by=by)


def test_slices_that_the_label_decides_are_warned_of():
    labels = torch.arange(90) % 3
    samples = Predictions.from_logits(torch.eye(3)[labels.where(torch.arange(90) < 45, labels.roll(1))], labels)
    animals, shuffled = ["cat" if label else "dog" for label in labels.tolist()], ["a", "b"] * 45
    with pytest.warns(CalibrantWarning, match="'animal' depends on the label alone"):
        evaluate_slices(samples, by={"animal": animals}, resamples=10)
    with pytest.warns(CalibrantWarning, match="'hit' depends on the label alone"):
        evaluate_slices(samples.top, by={"hit": samples.top.correct}, resamples=10)
    perfect = Predictions.from_logits(torch.eye(3)[labels], labels)
    evaluate_slices(perfect, by={PREDICTED: predicted_classes(perfect), "half": shuffled}, resamples=10)
