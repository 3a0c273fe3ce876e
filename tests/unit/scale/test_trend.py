"""A trend finds changes when they come, and no more of them than chance allows."""

import numpy as np
import pytest
import torch
from tests.unit.scale.test_state import predictions_of, state_of

from calibrant import Predictions
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
        for metric in _chosen(before, list(z)):
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
    assert trend.metrics == ("ece", "accuracy")


def _top(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    top = predictions_of(500, 3, seed=seed).top
    return top.confidence, top.correct
