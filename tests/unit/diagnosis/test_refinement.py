"""Refinement before and after each map."""

import math

import pytest
import torch
from scipy.stats import ttest_ind

from calibrant.diagnosis import MAPS, differences_from, read_runs, refinement
from calibrant.diagnosis.summaries import NOT_AN_IDENTITY
from calibrant.diagrams import confidence_density
from calibrant.metrics import accuracy, aurc, auroc, calibration_refinement, murphy, nll, refinement_terms
from calibrant.predictions import TopLabel


@pytest.fixture
def both(made, evaluated_of):
    plain = [made("ce", seed, scale=3.0, noise=0.1) for seed in range(2)]
    noisy = [made("label_smoothing", seed, scale=1.5, noise=0.8) for seed in range(2)]
    return evaluated_of(*plain, *noisy, maps=MAPS[:2])


def test_every_row_holds_the_numbers_of_its_map(both):
    baseline, candidate = both.candidates
    against = differences_from(both, "ce", resamples=100).means[candidate.name]
    found = refinement(candidate, baseline, against)
    assert [row.map for row in found.rows] == ["uncalibrated", "temperature", "histogram"]
    for run, place in zip(candidate.candidate.runs, range(2), strict=True):
        rows = {"uncalibrated": run.test} | {
            each.name: each.fit(run.calibration).transform(run.test) for each in MAPS[:2]
        }
        for row in found.rows:
            mapped = rows[row.map]
            for metric in (accuracy, auroc, aurc, nll):
                assert row.metrics[metric.__name__].values[place] == pytest.approx(metric(mapped), abs=1e-9)
            assert row.murphy["reliability"].values[place] == pytest.approx(murphy(mapped).reliability, abs=1e-9)
            assert row.murphy["refinement"].values[place] == pytest.approx(murphy(mapped).refinement, abs=1e-9)
            assert row.terms["equation_9"].values[place] == pytest.approx(refinement_terms(mapped).equation_9, abs=1e-6)
    assert found.rows[0].auroc_difference == against["uncalibrated"]["auroc"]
    ours, theirs = (each.over_runs("uncalibrated", "auroc").values for each in (candidate, baseline))
    assert found.rows[0].t_tests["auroc"].p == pytest.approx(ttest_ind(ours, theirs, equal_var=False).pvalue)
    assert found.note == NOT_AN_IDENTITY


def test_a_map_that_changes_answers_has_its_own_accuracy(made, evaluated_of):
    candidate = evaluated_of(made(noise=0.8), maps=MAPS).candidates[0]
    (run,) = candidate.candidate.runs
    found = {row.map: row.metrics["accuracy"].mean for row in refinement(candidate, candidate, {}).rows}
    assert found["uncalibrated"] == found["temperature"] == accuracy(run.test)
    assert found["svs"] == accuracy(MAPS[2].fit(run.calibration).transform(run.test)) != found["uncalibrated"]


def test_the_parts_add_up_to_the_score(both):
    row = refinement(both.candidates[0], both.candidates[0], {}).rows[0]
    parts = row.murphy
    total = parts["reliability"].mean + parts["refinement"].mean + parts["within_bin"].mean
    assert row.metrics["top_brier"].mean == pytest.approx(total)


def test_proper_scores_are_split_by_a_cross_fitted_temperature(both):
    candidate = both.candidates[0]
    found = refinement(candidate, candidate, {})
    expected = [calibration_refinement(run.test)["nll"] for run in candidate.candidate.runs]
    assert found.splits["nll"].calibration.values == pytest.approx([each.calibration for each in expected])
    assert found.splits["nll"].total.mean == pytest.approx(found.rows[0].metrics["nll"].mean, abs=1e-6)
    for split in found.splits.values():
        assert split.total.mean == pytest.approx(split.calibration.mean + split.refinement.mean)
        assert split.calibration.mean > 0  # overconfident by three: a temperature removes most of it


def test_the_exact_identity_is_marked_where_it_holds_and_equation_9_is_off_there(evaluated_tops):
    # One bin, overconfident: ECE is mean confidence minus accuracy.
    bold = TopLabel(torch.full((100,), 0.95), torch.arange(100) < 80)
    modest = TopLabel(torch.full((100,), 0.65), torch.arange(100) < 80)
    (candidate,) = evaluated_tops(ce=[bold, modest]).candidates
    row = refinement(candidate, candidate, {}).rows[0]
    assert row.identity_holds == (True, False)
    ece, difference, equation = (row.terms[name].values for name in ("ece", "confidence_minus_accuracy", "equation_9"))
    assert ece[0] == pytest.approx(difference[0])
    assert ece[1] == pytest.approx(-difference[1])
    assert abs(equation[0] - ece[0]) > 0.2


def test_densities_are_averaged_over_runs(evaluated_tops, hands):
    tops = [hands.answers(seed=seed, separation=0.8) for seed in range(2)]
    (candidate,) = evaluated_tops(ce=tops).candidates
    density = refinement(candidate, candidate, {}).rows[0].density
    mean = torch.stack([confidence_density(top).right for top in tops]).mean(0)
    torch.testing.assert_close(torch.tensor(density.right, dtype=mean.dtype), mean)
    step = density.confidence[1] - density.confidence[0]
    assert sum(density.wrong) * step == pytest.approx(1, abs=0.05)
    assert density.median_right.mean > density.median_wrong.mean


def test_a_run_without_wrong_answers_does_not_flatten_the_others_density(evaluated_tops, hands):
    perfect = TopLabel(torch.full((600,), 0.9), torch.ones(600, dtype=torch.bool))
    (candidate,) = evaluated_tops(ce=[hands.answers(), perfect]).candidates
    density = refinement(candidate, candidate, {}).rows[0].density
    alone = confidence_density(hands.answers()).wrong
    torch.testing.assert_close(torch.tensor(density.wrong, dtype=alone.dtype), alone)
    assert math.isnan(density.median_wrong.values[1])


def test_a_map_that_failed_has_a_row_without_numbers(evaluated_tops, hands):
    (candidate,) = evaluated_tops(ce=[hands.answers()], scaled={"ce": [None]}).candidates
    row = refinement(candidate, candidate, {}).rows[1]
    assert math.isnan(row.metrics["auroc"].mean)
    assert row.density is None
    assert row.identity_holds == ()


def test_the_predictions_of_a_run_are_let_go(both):
    runs = read_runs([run.path for run in both.candidates[0].candidate.runs])
    assert all("logits" not in vars(outcome) for run in both.candidates[0].runs for outcome in run.outcomes.values())
    assert len(runs) == 2
