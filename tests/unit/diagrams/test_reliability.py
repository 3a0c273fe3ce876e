"""Bars, bands and the curve of reliability diagrams, against brute force and simulated truth."""

import numpy as np
import pytest
import torch
from scipy.stats import binom

from calibrant.diagrams import classwise_reliability, reliability
from calibrant.diagrams.calibration import ReliabilityBins, binomial_range
from calibrant.errors import InputError
from calibrant.evidence import Estimate, estimate
from calibrant.metrics import ECE, ece, sce, smece
from calibrant.metrics.states import Binned
from calibrant.predictions import Predictions, TopLabel

KNOWN = Estimate(0.1, 0.05, 0.15)


def simulated(n, *, overconfidence=0.0, seed=0):
    """Confidences in 0.3..1 that are too high by a fixed share."""
    generator = torch.Generator().manual_seed(seed)
    confidence = 0.3 + 0.7 * torch.rand(n, generator=generator, dtype=torch.float64)
    truth = confidence * (1 - overconfidence)
    return TopLabel(confidence, torch.rand(n, generator=generator, dtype=torch.float64) < truth)


def test_every_bin_is_the_mean_of_its_rows():
    top = simulated(500)
    bins = reliability(top, n_bins=10).bins
    confidence, correct = top.confidence.numpy(), top.correct.numpy()
    for place in range(len(bins.count)):
        inside = (confidence > bins.low[place].item()) & (confidence <= bins.high[place].item())
        assert bins.count[place] == inside.sum()
        assert bins.confidence[place].item() == pytest.approx(confidence[inside].mean())
        assert bins.accuracy[place].item() == pytest.approx(correct[inside].mean())
        assert bins.gap[place].item() == pytest.approx(correct[inside].mean() - confidence[inside].mean())
    assert bins.count.sum() == 500


def test_empty_bins_are_left_out():
    bins = reliability(TopLabel([0.05, 0.95], [True, False]), n_bins=10).bins
    assert bins.low.tolist() == pytest.approx([0.0, 0.9])
    assert bins.high.tolist() == pytest.approx([0.1, 1.0])


def test_the_numbers_of_the_title_are_the_metrics():
    top = simulated(700, overconfidence=0.2)
    diagram = reliability(top)
    assert diagram.ece == ece(top)
    assert diagram.smece == smece(top)
    assert diagram.accuracy == pytest.approx(top.accuracy)
    assert diagram.confidence == pytest.approx(float(top.confidence.mean()))
    assert diagram.n == 700
    gaps = diagram.bins
    assert float((gaps.gap.abs() * gaps.count).sum() / 700) == pytest.approx(diagram.ece)


def test_the_band_is_the_binomial_quantiles():
    generator = np.random.default_rng(0)
    count = generator.integers(1, 100_000, 300)
    chance = np.concatenate([generator.random(296), [0.0, 1.0, 1e-12, 1 - 1e-12]])
    low, high = binomial_range(torch.from_numpy(count), torch.from_numpy(chance))
    assert low.numpy() == pytest.approx(binom.ppf(0.025, count, chance) / count)
    assert high.numpy() == pytest.approx(binom.ppf(0.975, count, chance) / count)


def test_a_calibrated_model_keeps_to_the_band_in_95_of_100_bins():
    drawn = [simulated(400, seed=seed) for seed in range(200)]
    bins = [ReliabilityBins.of(Binned(15)(top), top) for top in drawn]
    assert torch.equal(bins[0].outside, reliability(drawn[0], ece=KNOWN).bins.outside)
    outside = torch.cat([one.outside for one in bins])
    assert 0.015 < outside.double().mean() < 0.05  # discrete, so at most one in twenty


def test_an_overconfident_model_leaves_the_band_below():
    bins = reliability(simulated(5000, overconfidence=0.3)).bins
    assert bins.outside.all()
    assert (bins.gap < 0).all()


@pytest.mark.parametrize("overconfidence", [0.0, 0.4])
def test_the_curve_follows_the_truth(overconfidence):
    curve = reliability(simulated(100_000, overconfidence=overconfidence)).corp
    many = curve.count > 1000
    middle = ((curve.low + curve.high) / 2)[many]
    assert (curve.accuracy[many] - middle * (1 - overconfidence)).abs().max() < 0.04
    assert curve.low[0] >= 0.3


def test_the_interval_of_the_ece_is_that_of_the_evidence_or_the_one_given():
    top = simulated(700, overconfidence=0.2)
    found = estimate(top, [ECE()])["ece"]
    diagram = reliability(top)
    assert (diagram.ece_low, diagram.ece_high) == (found.low, found.high)
    assert found.low < diagram.ece < found.high
    diagram = reliability(top, ece=KNOWN)
    assert (diagram.ece_low, diagram.ece_high) == (KNOWN.low, KNOWN.high)


@pytest.mark.parametrize("right", [True, False])
def test_the_curve_is_flat_if_all_answers_are_alike(right):
    confidence = simulated(300).confidence
    assert reliability(TopLabel(confidence, torch.full((300,), right))).corp.accuracy.tolist() == [float(right)]


def test_three_samples_have_bars_and_a_curve():
    diagram = reliability(TopLabel([0.9, 0.8, 0.55], [True, False, True]))
    assert diagram.corp.accuracy.tolist() == [0.5, 1.0]
    assert diagram.bins.count.tolist() == [1, 1, 1]


def test_classes_come_worst_first_and_match_brute_force():
    generator = torch.Generator().manual_seed(3)
    predictions = Predictions.from_logits(
        torch.randn(400, 5, generator=generator),
        torch.randint(5, (400,), generator=generator),
        class_names=list("abcde"),
    )
    diagram = classwise_reliability(predictions, n_bins=8, most=3)
    errors = [of.error for of in diagram.classes]
    assert errors == sorted(errors, reverse=True)
    assert len(errors) == 3
    assert diagram.sce == sce(predictions, n_bins=8)
    worst = diagram.classes[0]
    assert worst.name == "abcde"[worst.index]
    of_class = TopLabel(predictions.probs[:, worst.index].double(), predictions.labels == worst.index)
    expected = reliability(of_class, n_bins=8)
    assert worst.error == pytest.approx(expected.ece, abs=1e-6)
    assert worst.samples == int(of_class.correct.sum())
    assert worst.bins.accuracy.tolist() == pytest.approx(expected.bins.accuracy.tolist())
    assert worst.bins.band_low.tolist() == pytest.approx(expected.bins.band_low.tolist())


def test_classes_without_names_are_numbered():
    diagram = classwise_reliability(Predictions.from_logits([[1.0, 0.0, 0.0]], [2]))
    assert sorted(of.name for of in diagram.classes) == ["class 0", "class 1", "class 2"]


def test_the_top_label_alone_has_no_classes():
    with pytest.raises(InputError, match="every class"):
        classwise_reliability(TopLabel([0.9], [True]))


def test_classes_of_weighted_samples_are_counted_as_samples():
    logits = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    weights = torch.linspace(0, 1, 60)  # the first counts nothing
    labels = torch.arange(60) % 3
    diagram = classwise_reliability(Predictions.from_logits(logits, labels, weights=weights))
    assert {one.index: one.samples for one in diagram.classes} == {0: 19, 1: 20, 2: 20}
    assert diagram.effective_n == pytest.approx(float(weights.sum() ** 2 / weights.square().sum()), rel=1e-5)
