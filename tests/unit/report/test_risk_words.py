"""The words and tables of a risk and of decisions, where the golden pages of test_pages.py do not show them."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from made_records import made_comparison, made_evaluation, made_two_classes

from calibrant import evaluate
from calibrant.evaluation import Reason
from calibrant.evidence import Estimate
from calibrant.predictions import Predictions, TopLabel
from calibrant.report import comparison_page, evaluation_page, to_markdown
from calibrant.report.risk import places_of, separates, separation_words
from calibrant.report.terminal import to_terminal
from calibrant.report.verdict import verdict


@pytest.fixture(scope="module")
def rare():
    """10 positives among 300,000 samples, and probabilities that are ten times too high."""
    n = 300_000
    risk = torch.linspace(1e-5, 1e-3, n, dtype=torch.float64).square() * 1000
    labels = torch.zeros(n, dtype=torch.long)
    labels[n // 2 :: n // 20] = 1
    return evaluate(Predictions.from_binary_probs(risk, labels), resamples=50, thresholds=(0.0005,))


def test_numbers_of_a_rare_class_have_two_digits(rare):
    page = evaluation_page(rare)
    text = to_terminal(page, width=80, full=True).plain.partition("What the predictions look like")[0]
    words = " ".join([page.verdict.headline, *page.verdict.findings])
    assert int(rare.metrics["accuracy"].value * rare.n) == rare.n - 10
    assert f"is {100 * rare.risk.predicted.value:.2g} % on average, and 0.0033 % of samples are class 1" in words
    assert re.search(r"ECE 0\.000\d\d \(95 % interval 0\.000\d\d to 0\.000\d\d\); .* would score 0\.0000\d\d on", words)
    assert re.search(r"highest probability, 0\.081 % or more, 0\.090 % are predicted .* 0\.0067 % are \(0\.00", words)
    assert not re.search(r"(?<![\d.])-?0\.0+ (?:%|\(|…)", text), text
    assert max(map(len, text.splitlines())) <= 80


def test_the_decimals_of_net_benefit_are_those_of_its_size():
    one = made_two_classes()
    small = Estimate(0.0000123, -0.0000034, 0.000034)
    none = Estimate(-0.0, 0.0, 0.0)
    point = replace(
        one.decisions[0], net_benefit=small, to_treat_all=none, treated=Estimate(0.00012, 0.0001, 0.00014),
        sensitivity=Estimate(0.0, 0.0, 0.2), precision=Estimate(0.02, 0.0, 0.31),
    )  # fmt: skip
    text = to_markdown(evaluation_page(replace(one, decisions=(point,))))
    assert "+0.0012 (-0.0003 … +0.0034)" in text
    assert "+0.00 (+0.00 … +0.00)" in text
    assert "0.012 (0.010 … 0.014)" in text
    assert "2.0 (0.0 … 31.0)" in text
    assert [places_of(value, 2) for value in (12.0, 0.1, 0.09, 1e-12, 0.0)] == [2, 2, 3, 2, 2]


@pytest.mark.parametrize(
    ("auroc", "words"),
    [
        (0.55, "one hardly separates it"), (0.65, "one separates it poorly"), (0.75, "one separates it fairly well"),
        (0.85, "one separates it well"), (0.95, "one separates it very well"),
        (0.2, "one separates it in the wrong order"),
    ],
)  # fmt: skip
def test_the_adverb_stands_where_english_has_it(auroc, words):
    assert separates(Estimate(auroc, auroc - 0.01, auroc + 0.01), "one", "it") == words


@pytest.mark.parametrize(
    ("auroc", "low", "high", "is_known"),
    [
        (0.851, 0.303, 0.987, False), (0.413, 0.186, 0.685, False), (0.5, math.nan, math.nan, False),
        (0.85, 0.71, 0.99, True), (0.85, 0.69, 0.94, False), (0.55, 0.45, 0.68, True), (0.95, 0.79, 0.99, False),
    ],
)  # fmt: skip
def test_the_adverb_is_left_out_where_the_interval_has_room_for_others(auroc, low, high, is_known):
    words = separates(Estimate(auroc, low, high), "one", "it")
    assert ("cannot say" in words) is not is_known


def test_only_an_interval_below_the_bound_advises_against_choosing_by_confidence():
    made = made_evaluation()
    for low, high, is_advised in ((0.55, 0.64, True), (0.4, 0.66, False), (math.nan, math.nan, False)):
        auroc = Estimate(0.6, low, high)
        steps = verdict(replace(made, metrics=made.metrics | {"auroc": auroc})).next_steps
        assert any("ranks them too poorly" in step for step in steps) is is_advised


def test_a_reversed_probability_is_suspected_to_be_that_of_the_other_class():
    labels = torch.arange(400) % 4 == 0
    risk = torch.where(labels, 0.2, 0.7) + torch.linspace(-0.15, 0.15, 400)
    reversed_one = evaluate(Predictions.from_binary_probs(risk, labels.long()), resamples=50)
    text = separation_words(reversed_one, reversed_one.risk)
    assert "in the wrong order" in text
    assert "--positive-class" in text
    assert "hardly" not in text
    too_few = replace(reversed_one.risk, auroc=Estimate(0.2, float("nan"), float("nan")))
    assert "cannot say how well it separates class 1" in separation_words(reversed_one, too_few)


@pytest.mark.parametrize(
    ("confidence", "correct", "reason"),
    [
        ([1.0, 0.8, 0.6, 0.7] * 10, [True, False, True, True] * 10, "some confidences are 0 or 1."),
        ([0.8] * 40, [True, False] * 20, "all confidences are the same."),
        ([0.8, 0.9] * 20, [True] * 40, "every prediction is right"),
        ([0.8, 0.9] * 20, [False] * 40, "every prediction is wrong"),
        ([0.6, 0.9] * 20, [False, True] * 20, "separates right from wrong predictions"),
    ],
)
def test_confidences_without_a_calibration_slope_have_a_reason(confidence, correct, reason):
    one = evaluate(TopLabel(confidence, correct), resamples=20)
    assert one.line is None
    (line,) = [text for text in verdict(one).findings if "calibration slope" in text]
    assert line.startswith("There is no calibration slope: ")
    assert reason in line


@pytest.mark.parametrize(("slope", "level_alone"), [(1.0, True), (1.6, False)])
def test_after_a_change_of_the_share_of_positives_a_shift_is_advised(slope, level_alone):
    rng = np.random.default_rng(0)
    log_odds = rng.normal(-4, 1.5, 20_000)
    happens = rng.random(20_000) < 1 / (1 + np.exp(-(slope * log_odds + 1.2)))
    samples = Predictions.from_binary_probs(1 / (1 + np.exp(-log_odds)), happens.astype(int))
    step = verdict(evaluate(samples, resamples=100)).next_steps[0]
    assert "platt" in step
    assert ("adding about 1.2 to the log-odds" in step) is level_alone


def test_a_risk_that_no_temperature_helps_is_looked_at_by_tenths():
    rng = np.random.default_rng(0)
    log_odds = rng.uniform(-3, 3, 20_000)
    happens = rng.random(20_000) < 1 / (1 + np.exp(-log_odds - 0.8 * np.sin(6 * log_odds)))
    evaluation = evaluate(
        Predictions.from_binary_probs(1 / (1 + np.exp(-log_odds)), happens.astype(int)), resamples=100
    )
    assert evaluation.advice.reason is Reason.not_by_temperature
    page = evaluation_page(evaluation)
    assert "tenths" in page.verdict.next_steps[0]
    assert any("tenths" in section.title for section in page.sections)


def test_classes_without_a_slope_have_none_to_miss():
    assert not any("slope" in text for text in verdict(replace(made_evaluation(), line=None)).findings)


def test_a_comparison_of_confidences_in_being_right_changes_no_answer():
    made = made_comparison()
    methods = tuple(replace(method, changed=0.315 if method.changed is not None else None) for method in made.methods)
    of_classes = replace(made, methods=methods)
    chosen = of_classes.recommended.name
    assert chosen != "none"
    before, after = (
        " ".join(comparison_page(one).verdict.findings) for one in (of_classes, replace(of_classes, simplest="platt"))
    )
    assert "changes the predicted class of 31.5 % of samples" in before
    assert "changes the predicted class" not in after
    assert "moves the confidence of 31.5 % of samples across 50 %" in after
    assert "on the right side of 50 %" in to_markdown(comparison_page(replace(of_classes, simplest="platt")))
