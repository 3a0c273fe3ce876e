"""Evidence from samples in clusters: copies of a sample know as much as one, and correlated samples less than many."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy.special import expit, ndtri

from calibrant import compare, evaluate
from calibrant.calibrators import DirichletODIR, TemperatureScaling
from calibrant.calibrators.base import fold_positions
from calibrant.calibrators.selection import CrossValidatedDifference, rank
from calibrant.diagrams import classwise_reliability, reliability, risk_coverage
from calibrant.errors import FitError, InputError
from calibrant.evaluation import worst_bins, worst_classes
from calibrant.evidence import calibration_line, corp, difference, estimate
from calibrant.evidence.clusters import Clusters, blocks_of_clusters, clusters_of_labels, some_of_clusters
from calibrant.evidence.estimates import draw_groups, draw_labels
from calibrant.evidence.thresholds import ranked_trials
from calibrant.metrics import AURC, AUROC, ECE, FPR95, NLL, SCE, SKCE, Accuracy, Brier, SmECE, calibration_refinement
from calibrant.metrics.states import EXACT
from calibrant.predictions import Predictions, TopLabel
from calibrant.slices import evaluate_slices
from calibrant.testing import overconfident

COPIES = 4
ONCE = overconfident(500, 4)
FOUR_TIMES = ONCE[torch.arange(500).repeat_interleave(COPIES)]
COPIED = FOUR_TIMES.with_clusters(np.repeat(np.arange(500), COPIES))


def correlated(clusters, size, latent, rng):
    """Calibrated confidences whose outcomes are correlated within clusters; confidences are alike there, too."""
    codes = np.repeat(np.arange(clusters), size)
    base = math.sqrt(0.8) * rng.normal(size=clusters)[codes] + math.sqrt(0.2) * rng.normal(size=len(codes))
    confidence = expit(1.5 + 1.2 * base)
    common, own = rng.normal(size=clusters)[codes], rng.normal(size=len(codes))
    correct = math.sqrt(latent) * common + math.sqrt(1 - latent) * own < ndtri(confidence)
    return TopLabel(confidence, correct, clusters=codes)


def width(estimate):
    return estimate.high - estimate.low


# What clusters are given as


@pytest.mark.parametrize("given", [[7, 7, 9, 9], ["a", "a", "b", "b"], np.array([1.0, 1.0, 2.5, 2.5])])
def test_numbers_and_words_name_clusters(given):
    top = TopLabel([0.9, 0.8, 0.7, 0.6], [1, 1, 0, 1], clusters=given)
    assert top.clusters.tolist() == [0, 0, 1, 1]
    assert top.n_clusters == 2
    assert top[1:3].clusters.tolist() == [0, 1]
    assert top.independent_size == 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([1, None, 2, 2], "every sample; got none at row 1"),
        ([1.0, 1.0, math.nan, 2.0], "every sample; got none at row 2"),
        (["a", "", "b", "b"], "every sample; got none at row 1"),
        ([1, 2], r"shape \(4,\); got shape \(2,\)"),
        ([[1, 2], [1, 2]], r"shape \(4,\); got shape \(2, 2\)"),
        (["a"] * 4, "two or more"),
    ],
)
def test_bad_clusters_are_refused(given, message):
    with pytest.raises(InputError, match=message):
        TopLabel([0.9, 0.8, 0.7, 0.6], [1, 1, 0, 1]).with_clusters(given)


def test_predictions_keep_their_clusters():
    samples = Predictions.from_logits(torch.zeros(4, 2), [0, 1, 0, 1]).with_clusters([1, 1, 2, 2])
    kept = [samples[1:], samples.with_weights([1, 1, 1, 2])[1:], samples.with_logits(samples.logits + 1)[1:]]
    assert all(one.clusters.tolist() == [0, 1, 1] == one.top.clusters.tolist() for one in kept)
    assert samples.with_clusters(None).clusters is None
    with pytest.raises(InputError, match="joined before"):
        samples + samples


def test_arrays_by_keyword_have_clusters():
    arrays = {"confidence": [0.9] * 40, "correct": [True] * 30 + [False] * 10}
    assert evaluate(**arrays, clusters=np.arange(40) // 2, resamples=100).clusters == 20
    assert evaluate(**arrays, resamples=100).clusters is None


# Evidence


def test_clusters_of_one_sample_change_nothing():
    alone = evaluate(ONCE.with_clusters(np.arange(500)), resamples=100)
    assert repr(alone) == repr(evaluate(ONCE, resamples=100))


def test_neither_the_order_of_samples_nor_of_equal_ones_matters():
    order = torch.randperm(len(COPIED), generator=torch.Generator().manual_seed(0))
    assert repr(evaluate(COPIED[order], resamples=100)) == repr(evaluate(COPIED, resamples=100))


def test_copies_know_as_much_as_one():
    metrics = [Accuracy(), AUROC(), AURC(), FPR95(), NLL(), Brier(), ECE(), SmECE(), SCE(), SKCE()]
    once, copied, counted = (estimate(samples, metrics, resamples=1000) for samples in (ONCE, COPIED, FOUR_TIMES))
    for name, expected in once.items():
        if name != "skce":  # which leaves the pair of a sample with itself out, but not with its copy
            assert copied[name].value == pytest.approx(expected.value, rel=1e-6 if name != "aurc" else 2e-3)
            assert width(copied[name]) == pytest.approx(width(expected), rel=0.15), name
            assert width(counted[name]) < 0.7 * width(expected), name
        if expected.floor is not None and name != "skce":
            assert copied[name].floor == pytest.approx(expected.floor, rel=0.12), name
            assert counted[name].floor < 0.75 * expected.floor, name


def test_copies_split_scores_and_differ_as_one():
    splits = [calibration_refinement(samples)["nll"] for samples in (ONCE, COPIED)]
    widths = [one.calibration_high - one.calibration_low for one in splits]
    assert widths[1] == pytest.approx(widths[0], rel=0.1)
    sharper = [samples.with_logits(1.5 * samples.logits) for samples in (ONCE, COPIED)]
    changes = [difference(*pair, [NLL(), ECE()]) for pair in zip((ONCE, COPIED), sharper, strict=True)]
    for name in ("nll", "ece"):
        assert changes[1][name].value == pytest.approx(changes[0][name].value, rel=1e-6)
        assert width(changes[1][name]) == pytest.approx(width(changes[0][name]), rel=0.2)


def test_copies_have_the_curve_and_the_tests_of_one():
    once, copied = corp(ONCE), corp(COPIED)
    assert copied.brier.miscalibration == pytest.approx(once.brier.miscalibration)
    assert copied.brier.floor == pytest.approx(once.brier.floor, rel=0.2)
    bins = [[(one.low, one.accuracy) for one in worst_bins(samples)] for samples in (ONCE, COPIED)]
    assert bins[1] == bins[0] != []
    assert [one.label for one in worst_classes(COPIED)] == [one.label for one in worst_classes(ONCE)]
    assert reliability(COPIED).bins.band_low.tolist() == pytest.approx(reliability(ONCE).bins.band_low.tolist())
    bands = [risk_coverage(samples) for samples in (ONCE, COPIED)]
    assert float(bands[1].risk_high[-1]) == pytest.approx(float(bands[0].risk_high[-1]), abs=1e-3)
    of_classes = [classwise_reliability(samples).classes[0].bins.band_low for samples in (ONCE, COPIED)]
    torch.testing.assert_close(of_classes[1], of_classes[0], atol=0.02, rtol=0)


def test_copies_have_the_line_of_one():
    once = TopLabel(ONCE.confidence, ONCE.correct)
    four_times = TopLabel(FOUR_TIMES.confidence, FOUR_TIMES.correct)
    line, of_copies = calibration_line(once), calibration_line(four_times.with_clusters(COPIED.clusters))
    for name in ("slope", "in_the_large"):
        expected, found = getattr(line, name), getattr(of_copies, name)
        assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-6)


def test_copies_accept_as_one():
    points = [evaluate(samples, resamples=100, error_rates=[0.4]).operating_points for samples in (ONCE, COPIED)]
    for once, copied in zip(*points, strict=True):
        assert copied.threshold == once.threshold
        assert copied.accepted == pytest.approx(once.accepted)
        assert (copied.error_low, copied.error_high) == pytest.approx((once.error_low, once.error_high))


def test_trials_count_the_clusters_of_accepted_samples():
    top = TopLabel([0.9, 0.8, 0.7, 0.6, 0.5], [1, 0, 0, 0, 1], clusters=["a", "b", "a", "b", "a"])
    trials = ranked_trials(top)
    assert trials.squared_weights.flip(0).cumsum(0).tolist() == [1, 2, 5, 8, 13]  # 1, 1+1, 4+1, 4+4, 9+4
    squared_wrong = trials.squared_weights - trials.squared_right
    assert squared_wrong.flip(0).cumsum(0).tolist() == [0, 1, 2, 5, 5]


def test_the_interval_of_the_accuracy_follows_the_variance_of_clusters():
    top = correlated(400, 5, 0.6, np.random.default_rng(0))
    found = estimate(top, [Accuracy()])["accuracy"]
    means = top.correct.double().view(400, 5).mean(1)
    assert width(found) == pytest.approx(2 * 1.966 * float(means.std()) / math.sqrt(400), rel=0.02)


def test_the_interval_of_the_auroc_is_that_of_obuchowski():
    top = correlated(300, 4, 0.7, np.random.default_rng(1))
    found = estimate(top, [AUROC()])["auroc"]
    scores, right, codes = top.confidence.numpy(), top.correct.numpy(), top.clusters.numpy()
    above = (scores[right][:, None] > scores[~right]) + 0.5 * (scores[right][:, None] == scores[~right])
    area, kinds = above.mean(), (above.mean(1), above.mean(0))
    sums = [
        np.bincount(codes[rows], part - area, minlength=300) / len(part)
        for rows, part in zip((right, ~right), kinds, strict=True)
    ]
    error = math.sqrt(300 / 299 * ((sums[0] + sums[1]) ** 2).sum())
    assert width(found) == pytest.approx(2 * 1.968 * error, rel=0.05)
    independent = estimate(top.with_clusters(None), [AUROC()])["auroc"]
    assert width(found) > 1.2 * width(independent)


@pytest.mark.parametrize("latent", [0.0, 0.4, 0.8])
@pytest.mark.parametrize("sharpness", [1.0, 1.7])
def test_the_correlation_is_found_also_of_confidences_that_are_wrong(latent, sharpness):
    top = correlated(3000, 4, latent, np.random.default_rng(2))
    claimed = (top.log_odds * sharpness).sigmoid()
    found = Clusters.of(TopLabel(claimed, top.correct, clusters=top.clusters)).latent_correlation
    assert found == pytest.approx(latent, abs=0.07)


def test_draws_of_a_calibrated_model_keep_confidences_and_correlation():
    top = correlated(60, 5, 0.6, np.random.default_rng(3))
    clusters = Clusters.of(top)
    drawn = clusters.draw_right(torch.arange(300), 300, 4000, np.random.default_rng(0))
    assert set(drawn.unique().tolist()) == {0.0, 1.0}
    torch.testing.assert_close(drawn.mean(0), top.confidence, atol=0.035, rtol=0)
    residual = (drawn - top.confidence).view(4000, 60, 5)
    together = (residual.sum(2).square().sum() - residual.square().sum()) / (20 * 60 * 4000)
    seen = (top.correct.double() - top.confidence).view(60, 5)
    expected = (seen.sum(1).square().sum() - seen.square().sum()) / (20 * 60)
    assert float(together) == pytest.approx(float(expected), abs=0.03)


def test_many_samples_are_drawn_in_blocks(monkeypatch):
    top = correlated(400, 5, 0.6, np.random.default_rng(4))
    place = torch.arange(2000) // 100
    one_by_one = Clusters(top).draw_right(place, 20, 600, np.random.default_rng(0))
    monkeypatch.setattr("calibrant.evidence.clusters._DRAWN", 1)
    in_blocks = Clusters(top).draw_right(place, 20, 600, np.random.default_rng(0))
    torch.testing.assert_close(in_blocks.mean(0), one_by_one.mean(0), atol=2.5, rtol=0)
    torch.testing.assert_close(in_blocks.sum(1).std(), one_by_one.sum(1).std(), atol=0, rtol=0.2)


def test_labels_of_a_cluster_are_right_together():
    top = correlated(300, 4, 0.9, np.random.default_rng(5))
    wrong = (1 - top.confidence)[:, None] * torch.tensor([0.7, 0.3])
    probs = torch.cat([top.confidence[:, None], wrong], 1)
    samples = Predictions.from_probs(probs, torch.where(top.correct, 0, 1)).with_clusters(top.clusters)
    labels = draw_labels(samples, 400, np.random.default_rng(0), Clusters.of(samples.top))
    shares = torch.stack([(labels == label).double().mean(0) for label in range(3)], 1)
    torch.testing.assert_close(shares, samples.probs.double(), atol=0.12, rtol=0)
    right = (labels == samples.predicted).double() - samples.confidence
    sums = right.view(400, 300, 4).sum(2).square().sum()
    assert float(sums / right.square().sum()) > 2


def test_groups_are_made_of_whole_clusters():
    draws = draw_groups(COPIED, 10, np.random.default_rng(0))
    assert (draws.group.view(500, COPIES) == draws.group.view(500, COPIES)[:, :1]).all()
    assert draws.weights.shape == (10, 256)
    assert draw_groups(COPIED[:40], 10, np.random.default_rng(0)).weights.shape == (10, 10)


def test_part_of_the_samples_have_the_evidence_of_their_own_clusters():
    part = COPIED[1600:1760]  # of 40 clusters, the numbers of which begin at 400
    metrics = [Accuracy(), AUROC(), AURC(), FPR95(), ECE(), NLL()]
    assert estimate(part, metrics, resamples=100) == estimate(part.with_clusters(part.clusters), metrics, resamples=100)


def test_a_cluster_is_in_one_fold():
    for others, held_out in fold_positions(COPIED.labels, 5, 0, COPIED.clusters):
        assert not set(COPIED.clusters[others].tolist()) & set(COPIED.clusters[held_out].tolist())
        assert len(held_out) == 400


def test_too_few_clusters_have_no_interval():
    top = correlated(8, 50, 0.5, np.random.default_rng(6))
    found = estimate(top, [ECE(), AUROC(), Accuracy()])
    assert math.isnan(found["ece"].high)
    assert math.isnan(found["auroc"].low)
    assert width(found["accuracy"]) > 0.1


def test_slices_and_comparisons_count_clusters():
    top = correlated(60, 10, 0.9, np.random.default_rng(7))
    by = {"half": np.where(top.clusters.numpy() < 30, "a", "b")}
    alone, in_clusters = (evaluate_slices(one, by=by, resamples=100)[0] for one in (top.with_clusters(None), top))
    assert in_clusters.to_rest.high - in_clusters.to_rest.low > 1.5 * (alone.to_rest.high - alone.to_rest.low)
    test = COPIED[1000:]
    compared = compare(FOUR_TIMES[:1000], test, [TemperatureScaling()], resamples=100)
    without = compare(FOUR_TIMES[:1000], test.with_clusters(None), [TemperatureScaling()], resamples=100)
    assert compared.clusters_test == 250
    assert compared.effective_n_test == pytest.approx(250, rel=0.02)
    pairs = [one.find("temperature").differences["uncalibrated"]["nll"] for one in (compared, without)]
    assert width(pairs[0]) > 1.6 * width(pairs[1])


def test_pairs_need_the_same_clusters():
    with pytest.raises(InputError, match="same clusters"):
        difference(COPIED, FOUR_TIMES, [NLL()])


def test_weights_and_clusters_go_together():
    weights = np.random.default_rng(8).lognormal(0, 0.5, 500)
    once = estimate(ONCE.with_weights(weights), [Accuracy(), ECE(), AUROC()])
    copied = estimate(COPIED.with_weights(np.repeat(weights, COPIES)), [Accuracy(), ECE(), AUROC()])
    for name, expected in once.items():
        assert copied[name].value == pytest.approx(expected.value, rel=1e-6)
        assert width(copied[name]) == pytest.approx(width(expected), rel=0.2), name
    assert EXACT(COPIED).ranked.squared_weights is None


# Few clusters, large ones and uneven ones


def test_the_correlation_of_few_clusters_has_no_bias():
    found = [Clusters(correlated(20, 20, 0.6, np.random.default_rng(seed))).latent_correlation for seed in range(100)]
    assert np.mean(found) == pytest.approx(0.6, abs=0.07)


def test_the_correlation_of_large_clusters_is_that_of_all_of_them():
    assert 0.3 < Clusters(correlated(40, 25_000, 0.6, np.random.default_rng(0))).latent_correlation < 0.85


def test_some_samples_are_of_many_clusters_cluster_by_cluster():
    codes = torch.arange(60).repeat_interleave(1000)[torch.randperm(60_000, generator=torch.Generator().manual_seed(0))]
    rows = some_of_clusters(codes, 20_000)
    assert torch.bincount(codes[rows]).tolist() == [333] * 60
    assert codes[rows].unique_consecutive().numel() == 60
    assert some_of_clusters(torch.arange(3).repeat(4), 20).sort().values.tolist() == list(range(12))
    assert len(some_of_clusters(torch.arange(20_000).repeat(2), 20_000)) == 20_000


@pytest.mark.parametrize("sizes", [[1] * 40, [100, 1, 1, 1], [7, 90, 2, 40, 40, 3], [5, 5]])
def test_no_block_ends_within_a_cluster(sizes):
    codes = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    order = some_of_clusters(codes, len(codes), np.random.default_rng(0))
    blocks = blocks_of_clusters(codes, order, 8)
    assert torch.equal(torch.cat(blocks), order)
    assert sum(codes[block].unique().numel() for block in blocks) == len(sizes)


def test_each_of_fewer_than_ten_clusters_counts_as_one_sample():
    top = correlated(8, 50, 0.0, np.random.default_rng(0))
    assert evaluate(top, resamples=100).effective_n == pytest.approx(8)
    assert estimate(top, [ECE()], resamples=100)["ece"].floor > 0.1


def test_uneven_clusters_have_few_degrees_of_freedom():
    even = correlated(60, 5, 0.6, np.random.default_rng(0))
    assert Clusters(even).degrees() == pytest.approx(59)
    sizes = np.r_[np.full(5, 60), np.ones(55, dtype=int)]
    codes = np.repeat(np.arange(60), sizes)
    rng = np.random.default_rng(1)
    latent = math.sqrt(0.6) * rng.normal(size=60)[codes] + math.sqrt(0.4) * rng.normal(size=len(codes))
    uneven = Clusters(TopLabel(np.full(len(codes), 0.8), latent < ndtri(0.8), clusters=codes))
    assert uneven.degrees() < 6
    assert uneven.degrees(uneven.codes >= 5) == pytest.approx(54)


def test_labels_of_two_classes_are_drawn_as_alike_as_they_are():
    rng = np.random.default_rng(2)
    codes = np.repeat(np.arange(200), 5)
    p = expit(1.5 * rng.normal(size=1000))  # of class 1, other in every sample of a patient
    disease = math.sqrt(0.8) * rng.normal(size=200)[codes] + math.sqrt(0.2) * rng.normal(size=1000) < ndtri(p)
    samples = Predictions.from_binary_probs(p, disease.astype(int)).with_clusters(codes)
    clusters = clusters_of_labels(samples)
    labels = draw_labels(samples, 200, np.random.default_rng(0), clusters)
    assert Clusters.of(samples.top).latent_correlation < 0.3
    residual = torch.cat([labels, samples.labels[None]]) - samples.probs[:, 1]
    together = residual.view(201, 200, 5).sum(2).square().sum(1) - residual.square().sum(1)
    assert float(together[:200].mean()) == pytest.approx(float(together[200]), rel=0.25)
    torch.testing.assert_close(labels.double().mean(0), samples.probs[:, 1].double(), atol=0.16, rtol=0)


@pytest.mark.parametrize(
    "given", [["a", "NA", "b", "b"], np.array(["2024-01-01", "NaT", "2024-01-02", "2024-01-02"], "M8[D]")]
)
def test_words_and_dates_for_nothing_are_no_cluster(given):
    with pytest.raises(InputError, match="every sample; got none at row 1"):
        TopLabel([0.9, 0.8, 0.7, 0.6], [1, 1, 0, 1]).with_clusters(given)


# Methods chosen by cross-validation


def test_copies_are_ranked_as_one():
    first, second = torch.rand(2, 300, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    once = CrossValidatedDifference.between(first, second)
    copies = [column.repeat_interleave(4) for column in (first, second)]
    clusters = torch.arange(300).repeat_interleave(4)
    copied = CrossValidatedDifference.between(*copies, clusters=clusters)
    assert dataclasses.astuple(copied) == pytest.approx(dataclasses.astuple(once))
    assert CrossValidatedDifference.between(*copies).standard_error < 0.6 * once.standard_error


def test_the_folds_of_dirichlet_calibration_keep_clusters_together(monkeypatch):
    given = []

    def noted(labels, folds, seed, clusters=None):
        given.append(clusters)
        return fold_positions(labels, folds, seed, clusters)

    monkeypatch.setattr("calibrant.calibrators.odir.fold_positions", noted)
    DirichletODIR().fit(COPIED)
    assert torch.equal(given[0], COPIED.clusters)


def test_a_method_is_chosen_in_no_more_folds_than_clusters():
    two = COPIED.with_clusters(np.arange(2000) // 1000)
    assert rank(two, [TemperatureScaling()]).folds == 2
    with pytest.raises(FitError, match="two clusters or more"):
        rank(two[:1000], [TemperatureScaling()])
