"""A trend finds changes when they come, and no more of them than chance allows."""

import numpy as np
import pytest
import torch
from tests.unit.scale.test_state import predictions_of, state_of

from calibrant import Predictions, evaluate
from calibrant.errors import FileError, InputError
from calibrant.plots import plot_trend
from calibrant.predictions import TopLabel
from calibrant.report.trend import trend_page
from calibrant.scale.trend import LEVEL, _change, _chosen, measure_trend


def samples_of(n: int, seed: int, *, overconfidence: float = 1.0) -> Predictions:
    """Samples whose logits are too large by a factor."""
    samples = predictions_of(n, 3, seed=seed)
    return Predictions(samples.logits * overconfidence, samples.labels)


def days(overconfidence: list[float]) -> dict[str, object]:
    made = enumerate(overconfidence)
    return {f"day{day}": state_of(samples_of(1500, day, overconfidence=factor), []) for day, factor in made}


def test_a_change_is_found_once_and_when_it_came():
    trend = measure_trend(days([1.0, 1.0, 1.0, 2.0, 2.0]), metrics=["ece", "nll", "accuracy"], resamples=100)
    assert [period.name for period in trend.changed("ece")] == ["day3"]
    assert [period.name for period in trend.changed("nll")] == ["day3"]
    assert trend.changed("accuracy") == []  # the order of the logits is the same
    assert not trend.periods[0].changes
    assert [trend.worse(period) for period in trend.periods] == [[], [], [], ["ece", "nll"], []]
    page = trend_page(trend)
    assert page.tone == "bad"
    assert page.verdict.findings[0].startswith("ece became worse in day3")
    shown = trend.periods[3].changes["ece"]
    assert shown.difference > 0.03
    levels = [period.changes["ece"].level for period in trend.periods[1:]]
    assert levels == pytest.approx([LEVEL / 3 / (j * (j + 1)) for j in (1, 2, 3, 4)])
    charts = page.charts()["trend"]
    assert [[one["change"] and one["change"]["side"] for one in line["values"]] for line in charts["metrics"][:2]] == [
        [None, None, None, "worse", None]
    ] * 2
    means = [np.mean([p.metrics["ece"].value for p in part]) for part in (trend.periods[:3], trend.periods[3:])]
    assert charts["metrics"][0]["levels"] == pytest.approx([means[0]] * 3 + [means[1]] * 2)
    panels = plot_trend(trend, name="days").axes[1:]
    marked = [next(line.get_xdata() for line in ax.lines if line.get_marker() == "D").tolist() for ax in panels]
    assert marked == [[3], [3], []]


@pytest.mark.parametrize("weighted", [False, True])
def test_what_chance_gives_has_mean_zero_and_spread_one(weighted):
    """Also of the ECE, whose bias is larger for the fewer samples of one period than for all those before."""
    z: dict[str, list[float]] = {"ece": [], "nll": []}
    for seed in range(0, 60, 2):
        before = state_of(predictions_of(2000, 3, seed=seed, weighted=weighted), [])
        now = state_of(predictions_of(250, 3, seed=seed + 1, weighted=weighted), [])
        for metric in _chosen(before, list(z)).values():
            z[metric.name].append(_change(metric, before, now, LEVEL, seed=seed).z)
    for name, values in z.items():
        assert abs(np.mean(values)) < 0.6, name  # more than three standard errors
        assert 0.6 < np.std(values) < 1.45, name


def test_states_that_cannot_be_compared_are_refused():
    one = state_of(predictions_of(200, 3), [])
    with pytest.raises(InputError, match="at least two periods; got 1"):
        measure_trend({"a": one})
    with pytest.raises(FileError, match="b must be gathered as a was; it has a number of classes of 4 instead of 3"):
        measure_trend({"a": one, "b": state_of(predictions_of(200, 4), [])})
    with pytest.raises(InputError, match=r"must be one of .*; got 'sce'"):
        measure_trend({"a": one, "b": one}, metrics=["sce"])


def test_top_labels_alone_have_a_trend():
    states = {str(seed): state_of(TopLabel(*_top(seed)), []) for seed in range(2)}
    trend = measure_trend(states, resamples=100)
    assert list(trend.metrics) == ["ece", "accuracy"]


def _top(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    top = predictions_of(500, 3, seed=seed).top
    return top.confidence, top.correct


def two_classes(n: int, seed: int, *, shift: float = 0.0, factor: float = 1.0) -> Predictions:
    """A rare class, about one in eight, whose log-odds are shifted and multiplied."""
    rng = np.random.default_rng(seed)
    log_odds = rng.normal(-3.0, 2.0, n)
    labels = rng.random(n) < 1 / (1 + np.exp(-log_odds))
    given = torch.from_numpy(log_odds * factor + shift)
    return Predictions(torch.stack([torch.zeros(n).double(), given], 1), torch.from_numpy(labels.astype(np.int64)))


def test_two_classes_are_followed_by_the_probability_of_the_positive_one(monkeypatch):
    monkeypatch.setattr("calibrant.scale.state._SAMPLE", 1000)  # so that the cells are read, not the sample
    shifts = [0.0, 0.0, 0.0, 1.5, 1.5]  # more probable than it is, whichever class is predicted
    samples = [two_classes(4000, day, shift=shift) for day, shift in enumerate(shifts)]
    states = {f"day{day}": state_of(one, []) for day, one in enumerate(samples)}
    trend = measure_trend(states, resamples=100)
    assert list(trend.metrics) == ["ece", "risk_auroc", "nll"]
    assert [period.name for period in trend.changed("ece")] == ["day3"]
    assert trend.worse(trend.periods[3]) == ["ece", "nll"]  # a shift keeps the order
    for period, one in zip(trend.periods, samples, strict=True):
        risk = evaluate(one, resamples=100).risk
        assert risk is not None
        assert period.metrics["ece"].value == pytest.approx(risk.ece.value, abs=1e-6)
        assert period.metrics["risk_auroc"].value == pytest.approx(risk.auroc.value, abs=1e-4)
    page = trend_page(trend)
    assert "Of the probability of class 1: ece, risk_auroc." in page.sections[0].legend
    assert page.charts()["trend"]["metrics"][1]["title"] == "AUROC of class 1"
    assert [ax.get_ylabel() for ax in plot_trend(trend).axes[1:]] == ["ECE, %", "Risk AUROC, %", "Log-loss"]


@pytest.mark.parametrize("weighted", [False, True])
def test_chance_moves_the_probability_of_the_positive_class_by_mean_zero_and_spread_one(weighted):
    z: dict[str, list[float]] = {"ece": [], "risk_auroc": []}
    for seed in range(0, 40, 2):
        before, now = (two_classes(n, seed + i, factor=1.5) for i, n in enumerate((900, 300)))
        if weighted:
            before, now = (one.with_weights(torch.rand(len(one), dtype=torch.float64) + 0.5) for one in (before, now))
        first, second = state_of(before, []), state_of(now, [])
        for name, metric in _chosen(first, list(z)).items():
            z[name].append(_change(metric, first, second, LEVEL, seed=seed, of_risk=True).z)
    for name, values in z.items():
        assert abs(np.mean(values)) < 0.6, name
        assert 0.6 < np.std(values) < 1.45, name
