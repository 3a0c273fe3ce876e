"""Densities and risk-coverage curves against brute force."""

import itertools

import numpy as np
import pytest
import torch

from calibrant.diagrams import confidence_density, risk_coverage
from calibrant.metrics import aurc, auroc, e_aurc
from calibrant.predictions import TopLabel


def answers(n, seed=0):
    generator = torch.Generator().manual_seed(seed)
    confidence = torch.rand(n, generator=generator, dtype=torch.float64)
    return TopLabel(confidence, torch.rand(n, generator=generator, dtype=torch.float64) < confidence)


def test_both_densities_have_area_one():
    density = confidence_density(answers(300))
    for of in (density.right, density.wrong):
        assert float(torch.trapezoid(of, density.confidence)) == pytest.approx(1, abs=1e-3)


def test_a_density_is_the_sum_of_reflected_kernels():
    top = answers(40)
    density = confidence_density(top)
    t, width = density.confidence.numpy()[:, None], density.width
    places = np.concatenate([sign * top.confidence.numpy() + 2 * turn for sign in (1, -1) for turn in (-1, 0, 1)])
    chosen = np.tile(top.correct.numpy(), 6)
    kernels = np.exp(-(((t - places[chosen]) / width) ** 2) / 2) / (width * np.sqrt(2 * np.pi))
    assert density.right.numpy() == pytest.approx(kernels.sum(1) / top.correct.sum().item(), abs=1e-4)


def test_counts_medians_and_auroc_are_those_of_the_samples():
    top = answers(301)
    density = confidence_density(top)
    assert (density.n_right, density.n_wrong) == (int(top.correct.sum()), int((~top.correct).sum()))
    assert density.median_right == float(top.confidence[top.correct].median())
    assert density.median_wrong == float(top.confidence[~top.correct].median())
    assert density.auroc == auroc(top)


def test_a_density_of_no_answers_is_zero():
    density = confidence_density(TopLabel([0.8, 0.9], [True, True]))
    assert (density.wrong == 0).all()
    assert np.isnan(density.median_wrong)
    assert np.isnan(density.auroc)


def test_risk_is_the_error_rate_of_the_most_confident():
    top = answers(200)
    curve = risk_coverage(top)
    wrong = (~top.correct[top.confidence.argsort(descending=True)]).double()
    assert curve.risk.tolist() == pytest.approx((wrong.cumsum(0) / torch.arange(1, 201)).tolist())
    assert curve.coverage.tolist() == pytest.approx((torch.arange(1, 201) / 200).tolist())
    assert curve.threshold.tolist() == pytest.approx(top.confidence.sort(descending=True).values.tolist())
    assert (curve.aurc, curve.e_aurc) == (aurc(top), e_aurc(top))
    assert float(curve.risk.mean()) == pytest.approx(curve.aurc)
    assert float((curve.risk - curve.optimal).mean()) == pytest.approx(curve.e_aurc)


def test_ties_count_as_the_mean_over_all_their_orders():
    confidence, correct = [0.9, 0.7, 0.7, 0.7, 0.2], [False, True, False, True, True]
    curve = risk_coverage(TopLabel(confidence, correct))
    wrong = np.array([
        [not correct[row] for row in (0, *order, 4)] for order in itertools.permutations((1, 2, 3))
    ])  # fmt: skip
    expected = (wrong.cumsum(1) / np.arange(1, 6)).mean(0)
    assert curve.risk.tolist() == pytest.approx(expected.tolist())


def test_no_ranking_beats_the_optimal_curve():
    curve = risk_coverage(answers(500))
    assert (curve.risk >= curve.optimal - 1e-12).all()
    assert curve.risk[-1].item() == pytest.approx(curve.optimal[-1].item())


def test_many_samples_are_thinned_and_the_last_point_is_full_coverage():
    top = answers(12_345)
    curve = risk_coverage(top)
    assert len(curve.coverage) == 1000
    assert curve.coverage[-1] == 1
    assert (curve.coverage.diff() > 0).all()
    assert curve.risk[-1].item() == pytest.approx(1 - top.accuracy)
    assert curve.aurc == aurc(top)


def test_the_band_holds_the_true_risk_in_95_of_100_curves():
    inside = []
    for seed in range(300):
        curve = risk_coverage(answers(500, seed))
        # Confidences are uniform and true, so those above t are wrong at a rate of (1 - t) / 2.
        truth = (1 - curve.threshold[249]) / 2
        inside.append(bool(curve.risk_low[249] <= truth <= curve.risk_high[249]))
    assert 0.92 < np.mean(inside) < 0.99


def test_the_widest_coverage_at_a_risk_is_the_last_one_that_keeps_to_it():
    curve = risk_coverage(answers(300))
    place = curve.widest_at(0.2)
    assert curve.risk[place] <= 0.2
    assert (curve.risk[place + 1 :] > 0.2).all()
    assert risk_coverage(TopLabel([0.9], [False])).widest_at(0.5) is None


def test_one_sample_is_one_point():
    curve = risk_coverage(TopLabel([1.0], [True]))
    assert (curve.coverage.tolist(), curve.risk.tolist()) == ([1.0], [0.0])
