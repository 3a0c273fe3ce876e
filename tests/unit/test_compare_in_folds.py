"""Calibration methods compared by cross-validation, where there is one set of samples."""

import json
from dataclasses import dataclass

import pytest
import torch

from calibrant import Predictions, TemperatureScaling, VectorScaling, compare, difference
from calibrant.calibrators import Calibrator, IsotonicOneVsRest
from calibrant.errors import CalibrantWarning, FitError, InputError
from calibrant.metrics import NLL
from calibrant.report import comparison_page, to_html
from calibrant.testing import overconfident

DRAWS = {"resamples": 100, "seed": 2}


@pytest.fixture(scope="module")
def samples():
    return overconfident(600, 3, seed=4)


@pytest.fixture(scope="module")
def compared(samples):
    return compare(samples, None, [VectorScaling()], folds=4, **DRAWS)


def test_every_sample_is_evaluated_by_a_map_that_was_fitted_on_the_others_of_other_folds(samples, compared):
    fold_maps = compared.find("temperature").fold_maps
    assert torch.cat(fold_maps.inside).sort().values.tolist() == list(range(600))
    assert {len(inside) for inside in fold_maps.inside} == {150}
    calibrated = fold_maps.transform(samples)
    for inside in fold_maps.inside:
        outside = torch.ones(600, dtype=torch.bool)
        outside[inside] = False
        expected = TemperatureScaling().fit(samples[outside]).transform(samples[inside])
        torch.testing.assert_close(calibrated.logits[inside], expected.logits)


def test_numbers_are_those_of_the_samples_calibrated_out_of_fold(samples, compared):
    for method in compared.fitted:
        calibrated = method.evaluated.transform(samples)
        assert method.nll == pytest.approx(float(NLL()(calibrated)), rel=1e-6)
        expected = difference(samples, calibrated, [NLL()], **DRAWS)["nll"]
        change = method.differences.get("uncalibrated", {}).get("nll")
        if change is not None:
            assert (change.value, change.low, change.high) == pytest.approx(
                (expected.value, expected.low, expected.high), rel=1e-6
            )


def test_zeros_of_the_uncalibrated_model_have_the_floor_that_they_have_everywhere(samples):
    probs = samples.probs.clone()
    probs[torch.arange(9), samples.labels[:9]] = 0
    probs /= probs.sum(dim=1, keepdim=True)
    with pytest.warns(CalibrantWarning, match="probability 0"):
        zeros = Predictions.from_probs(probs, samples.labels)
    before = compare(zeros, None, [], **DRAWS).uncalibrated.nll
    by_hand = -probs[torch.arange(600), samples.labels].double().clamp(min=1e-15).log().mean()
    assert before == pytest.approx(float(by_hand), rel=1e-6)


def test_the_map_to_keep_is_fitted_on_all_samples(samples, compared):
    kept = compared.find("temperature").map
    assert float(kept.temperature) == pytest.approx(float(TemperatureScaling().fit(samples).temperature))
    assert (compared.folds, compared.n_calibration, compared.n_test) == (4, 450, 600)


def test_a_method_that_learns_noise_is_seen_through(samples):
    noise = Predictions.from_logits(
        torch.randn(300, 3, generator=torch.Generator().manual_seed(0)), samples.labels[:300]
    )
    with pytest.warns(CalibrantWarning, match="guessing"):
        found = compare(noise, None, [IsotonicOneVsRest()], **DRAWS)
    on_own = found.find("isotonic_ovr").map.transform(noise)
    assert float(NLL()(on_own)) < float(NLL()(noise.with_logits(torch.zeros(300, 3))))
    assert found.find("isotonic_ovr").nll > 1.09  # log 3 is the best there is


def test_no_cluster_is_in_two_folds(samples):
    clusters = torch.arange(600) // 6
    found = compare(samples.with_clusters(clusters), None, [], **DRAWS)
    sets = [set(clusters[inside].tolist()) for inside in found.find("temperature").fold_maps.inside]
    assert len(sets) == 5
    assert sum(map(len, sets)) == len(set.union(*sets)) == 100


def test_samples_without_weight_keep_their_places_and_change_nothing(samples):
    weights = torch.rand(600, generator=torch.Generator().manual_seed(1))
    weights[::3] = 0
    weighted = samples.with_weights(weights)
    found = compare(weighted, None, [], **DRAWS).find("temperature")
    calibrated = found.evaluated.transform(weighted)
    assert len(calibrated) == 600
    assert bool(calibrated.logits.isfinite().all())
    assert float(NLL()(calibrated)) == pytest.approx(found.nll, rel=1e-6)
    for fitted, inside in zip(found.fold_maps.maps, found.fold_maps.inside, strict=True):
        outside = torch.ones(600, dtype=torch.bool)
        outside[inside] = False
        expected = TemperatureScaling().fit(weighted[outside])
        assert float(fitted.temperature) == pytest.approx(float(expected.temperature), rel=1e-6)


@dataclass(frozen=True)
class NeedsClassTwo(
    Calibrator, name="needs_class_two", title="Fails without class 2", family="scaling", paper=TemperatureScaling.paper
):
    """A method that one fold cannot fit."""

    def _fit(self, predictions):
        if not bool((predictions.labels == 2).any()):
            raise FitError("class 2 must have samples; it has none.")
        return TemperatureScaling()._fit(predictions)


def test_a_method_that_fails_in_a_fold_is_listed_with_the_reason(samples):
    labels = samples.labels % 2
    labels[7] = 2
    found = compare(Predictions.from_logits(samples.logits, labels), None, [NeedsClassTwo()], **DRAWS)
    (method,) = [each for each in found.methods if each.name == "needs_class_two"]
    assert "of 5: class 2 must have samples" in method.failure
    assert (method.map, method.fold_maps) == (None, None)


def test_copies_in_several_folds_are_a_caution(samples):
    copies = samples[torch.arange(600) // 2]
    with pytest.warns(CalibrantWarning, match="copies"):
        found = compare(copies, None, [], **DRAWS)
    assert len(found.cautions) == 1


@pytest.mark.parametrize(
    ("others", "folds", "named"),
    [(None, 1, "at least 2"), (None, 601, "at most the 600 samples"), (True, 5, "None where there are test samples")],
)
def test_impossible_folds_are_refused(samples, others, folds, named):
    with pytest.raises(InputError, match=named):
        compare(samples, samples if others else None, [], folds=folds)


def test_the_report_speaks_of_all_samples(compared):
    page = comparison_page(compared)
    assert "600 samples in 4 folds" in page.facts
    assert json.loads(json.dumps(page.data()))["folds"] == 4
    assert not [line for line in (*page.verdict.findings, *page.verdict.next_steps) if "test samples" in line]
    assert "600 samples in 4 folds" in to_html(page)
