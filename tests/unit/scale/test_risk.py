"""The risk behind a state: that of samples in memory, whether they are all kept or not."""

import math
from dataclasses import fields

import numpy as np
import pytest
import torch

from calibrant import Predictions, TopLabel, evaluate
from calibrant.errors import InputError
from calibrant.evidence import Estimate, decision_curve, evaluate_risk
from calibrant.report import evaluation_page, to_markdown
from calibrant.scale import EvaluationState, evaluate_state, state
from calibrant.scale.risk import decisions_of, estimate_risks, ranked_risks, risk_with_cells, sums_of_risk
from calibrant.scale.state import Design, sample_keys

THRESHOLDS = (0.02, 0.1, 0.3)


def risks(n: int, seed: int = 0, *, weighted: bool = False, digits: int | None = None) -> Predictions:
    """A rare class, whose probability is too high and too extreme."""
    rng = np.random.default_rng(seed)
    log_odds = rng.normal(-2.5, 1.5, n)
    p = 1 / (1 + np.exp(-log_odds))
    p = p if digits is None else p.round(digits)
    labels = rng.random(n) < 1 / (1 + np.exp(-(0.8 * log_odds - 0.4)))
    weights = rng.integers(0, 4, n).astype(float) if weighted else None
    return Predictions.from_binary_probs(p, labels.astype(int), weights=weights)


def state_of(samples: Predictions | TopLabel, parts: int = 3) -> EvaluationState:
    design = Design.of(samples)
    whole = EvaluationState(design)
    for rows in np.array_split(np.arange(len(samples)), parts):
        part = EvaluationState(design)
        part.add(samples[torch.from_numpy(rows)], sample_keys(0, "a", int(rows[0]), len(rows)))
        whole.merge(part)
    return whole


@pytest.fixture
def few_are_kept(monkeypatch):
    monkeypatch.setattr(state, "_SAMPLE", 500)
    monkeypatch.setattr(state, "_FEWEST_SAMPLED", 500)


def assert_near(found: Estimate, expected: Estimate, *, value: float = 1e-9, width: float = 0.15) -> None:
    """The values agree to ``value``, and the ends of the intervals to this share of their width."""
    assert found.value == pytest.approx(expected.value, rel=value, abs=value)
    assert (found.p is None) == (expected.p is None)
    slack = width * (expected.high - expected.low)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=slack)


@pytest.mark.filterwarnings("ignore::calibrant.errors.CalibrantWarning")
@pytest.mark.usefixtures("few_are_kept")
@pytest.mark.parametrize("digits", [None, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_it_is_that_of_all_samples_in_memory(weighted, digits):
    samples = risks(40_000, weighted=weighted, digits=digits)
    memory = evaluate(samples, thresholds=THRESHOLDS)
    streamed = evaluate_state(state_of(samples), thresholds=THRESHOLDS)
    assert streamed.streamed.sample <= 500
    assert memory.risk is not None
    assert streamed.risk is not None
    for name in ("predicted", "observed", "difference", "ratio", "ece"):
        assert_near(getattr(streamed.risk, name), getattr(memory.risk, name))
    assert_near(streamed.risk.smece, memory.risk.smece, value=1e-4)
    assert_near(streamed.risk.auroc, memory.risk.auroc, value=1e-4)
    assert {*streamed.corp} == {*memory.corp} == {"risk_brier", "risk_nll"}
    for name, split in memory.corp.items():
        assert streamed.corp[name][:4] == pytest.approx(split[:4], abs=1e-4)
    assert_near(streamed.risk.tenths[-1].observed, memory.risk.tenths[-1].observed, value=0.02)
    assert len(streamed.risk.tenths) == len(memory.risk.tenths)
    if digits:  # exact probabilities of 0 have no line
        assert memory.line is streamed.line is None
    else:
        for found, expected in zip(streamed.line, memory.line, strict=True):
            assert_near(found, expected, value=1e-3)
    at = np.interp([0.05, 0.2, 0.5], memory.risk.curve.risk, memory.risk.curve.observed)
    found = np.interp([0.05, 0.2, 0.5], streamed.risk.curve.risk, streamed.risk.curve.observed)
    assert found == pytest.approx(at, abs=2e-3)
    for found, expected in zip(streamed.decisions, memory.decisions, strict=True):
        assert found.threshold == expected.threshold
        for field in fields(expected):
            if isinstance(one := getattr(expected, field.name), Estimate):
                exact = digits is not None or field.name == "treat_all"
                assert_near(getattr(found, field.name), one, value=1e-9 if exact else 2e-3, width=0.3)


def test_few_samples_are_evaluated_as_in_memory():
    samples = risks(3_000)
    memory, streamed = evaluate(samples, thresholds=[0.1]), evaluate_state(state_of(samples), thresholds=[0.1])
    assert streamed.line.slope.low == pytest.approx(memory.line.slope.low, rel=1e-9)
    assert [one.low for one in streamed.risk.tenths] == [one.low for one in memory.risk.tenths]
    assert streamed.decisions[0].net_benefit.value == memory.decisions[0].net_benefit.value
    assert streamed.advice == memory.advice


@pytest.mark.usefixtures("few_are_kept")
def test_confidences_have_a_line_and_decisions():
    top = risks(20_000).top
    samples = TopLabel(top.confidence, top.correct)
    memory, streamed = evaluate(samples, thresholds=[0.8]), evaluate_state(state_of(samples), thresholds=[0.8])
    assert_near(streamed.line.slope, memory.line.slope, value=1e-3)
    assert_near(streamed.decisions[0].net_benefit, memory.decisions[0].net_benefit, value=2e-3)


def test_more_classes_have_none():
    samples = Predictions.from_logits(torch.randn(50, 3), torch.arange(50) % 3)
    assert evaluate_state(state_of(samples), resamples=20).risk is None
    with pytest.raises(InputError, match="one of two classes; got 3"):
        evaluate_state(state_of(samples), resamples=20, thresholds=[0.1])


def test_intervals_cover_the_truth(monkeypatch):
    def of_means(ranked, metrics, **options):
        means = [metric for metric in metrics if metric.name in {"confidence", "accuracy"}]
        return dict.fromkeys(metric.name for metric in metrics) | estimate_risks(ranked, means, **options)

    of_difference, of_benefit = [], []
    # The truth is that of very many samples; an interval of 2,000 is much wider.
    true = evaluate_risk(risks(400_000, seed=99), resamples=10).difference.value
    gain = decision_curve(risks(400_000, seed=99), [0.1], resamples=10)[0].to_treat_all.value
    # What differences do not ask for takes most of the time of a risk.
    monkeypatch.setattr("calibrant.scale.risk.estimate_risks", of_means)
    monkeypatch.setattr("calibrant.scale.risk.in_memory.curve_of", lambda _outcomes: None)
    for seed in range(200):
        ranked = ranked_risks(sums_of_risk(risks(2_000, seed=seed), 15), 15)
        difference = risk_with_cells(ranked, (), n_bins=15, resamples=10, seed=0)[0].difference
        benefit = decisions_of(ranked, [0.1], dtype=torch.float64)[0].to_treat_all
        of_difference.append(difference.low <= true <= difference.high)
        of_benefit.append(benefit.low <= gain <= benefit.high)
    spread = 3 * math.sqrt(0.05 * 0.95 / 200)
    assert min(np.mean(of_difference), np.mean(of_benefit)) > 0.95 - spread


def test_acting_on_all_is_not_better_than_itself():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        p = rng.choice([0.3, 0.5, 0.7], 500)
        weights = torch.from_numpy(rng.random(500))
        samples = Predictions.from_binary_probs(p, (rng.random(500) < p).astype(int), weights=weights)
        for one in decisions_of(ranked_risks(sums_of_risk(samples, 15), 15), [0.1, 0.2], dtype=torch.float64):
            assert one.to_treat_all.value == 0
            assert not one.is_useful


def test_risks_of_zero_have_no_ratio():
    samples = Predictions.from_logits(torch.tensor([[0.0, -1000.0]] * 20), torch.zeros(20).long())
    found, _ = risk_with_cells(ranked_risks(sums_of_risk(samples, 15), 15), (), n_bins=15, resamples=20, seed=0)
    assert math.isnan(found.ratio.value)
    assert found.curve is None


@pytest.mark.usefixtures("few_are_kept")
def test_a_state_that_is_written_keeps_it(tmp_path):
    samples = risks(2_000)
    gathered = state_of(samples)
    gathered.save(tmp_path / "a.state")
    again = EvaluationState.load(tmp_path / "a.state")[0]
    assert evaluate_state(again, resamples=50).risk == evaluate_state(gathered, resamples=50).risk
    text = to_markdown(evaluation_page(evaluate_state(again, resamples=50, thresholds=[0.1])))
    assert "Calibration slope" in text
    assert "Decisions" in text
