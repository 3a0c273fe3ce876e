"""Every run evaluated once: the numbers are those of the metrics themselves."""

import math

import pytest
import torch

from calibrant.calibrators import (
    HistogramBinning,
    IsotonicRegression,
    MatrixScaling,
    StructuredVectorScaling,
    TemperatureScaling,
)
from calibrant.diagnosis import MAPS, PAPER_MAPS, evaluate_candidates, grouped, oracle_temperature, read_runs
from calibrant.errors import InputError
from calibrant.metrics import aupr_error, auroc, brier, calibration_refinement, e_aurc, ece, nll, top_brier
from calibrant.predictions import Predictions


def test_the_numbers_are_those_of_the_metrics_before_and_after_each_map(made, evaluated_of):
    path = made(n=500, noise=0.5)
    (run,) = read_runs([path])
    evaluated = evaluated_of(path, maps=MAPS).candidates[0].runs[0]
    rows = {"uncalibrated": run.test} | {
        method.name: method.fit(run.calibration).transform(run.test) for method in MAPS
    }
    assert list(evaluated.outcomes) == ["uncalibrated", "temperature", "histogram", "svs"]
    for name, mapped in rows.items():
        values = evaluated.outcomes[name].values
        for metric in (ece, nll, brier, top_brier, auroc, aupr_error, e_aurc):
            assert values[metric.__name__] == pytest.approx(metric(mapped), abs=1e-9), (name, metric)
        torch.testing.assert_close(evaluated.outcomes[name].top.confidence, mapped.confidence)
    assert evaluated.temperature == pytest.approx(float(TemperatureScaling().fit(run.calibration).temperature))
    assert evaluated.calibration_rows == 500
    assert evaluated.splits == calibration_refinement(run.test)


def test_the_bins_are_the_ones_asked_for(made):
    path = made(noise=0.5)
    (run,) = read_runs([path])
    evaluated = evaluate_candidates(grouped([run]), maps=MAPS[:1], n_bins=5)
    assert evaluated.candidates[0].runs[0].outcomes["uncalibrated"].values["ece"] == pytest.approx(
        ece(run.test, n_bins=5)
    )
    assert (evaluated.n_bins, evaluated.n, evaluated.map_names) == (5, 400, ("uncalibrated", "temperature"))


def test_the_optimal_ece_is_a_bound_on_every_temperature_evaluated(trained, evaluated_of):
    evaluated = evaluated_of(*trained.values())
    for candidate in evaluated.candidates:
        for run in candidate.runs:
            raw, scaled = (run.outcomes[name].values["ece"] for name in ("uncalibrated", "temperature"))
            assert run.oracle.ece <= min(raw, scaled) + 1e-6


def test_the_optimal_ece_is_that_of_the_last_epochs_record_or_lower(trained):
    for path in trained.values():
        (run,) = read_runs([path])
        record = run.records[-1].held_out["test"]
        found = oracle_temperature(run.test)
        assert found.ece <= record.optimal_ece + 1e-6
        assert found.ece == pytest.approx(record.optimal_ece, abs=0.02)


def test_the_oracle_finds_the_temperature_that_made_the_logits_cold(hands):
    test = hands.rows(20_000, "test", scale=2.5)
    found = oracle_temperature(test)
    assert found.temperature == pytest.approx(2.5, rel=0.1)
    assert found.ece == pytest.approx(
        ece(Predictions.from_logits(test.logits / found.temperature, test.labels)), abs=1e-5
    )
    assert oracle_temperature(test, also=[math.nan]) == found


def test_logits_that_are_all_alike_have_an_optimal_ece_too():
    flat = Predictions.from_logits(torch.zeros(20, 4), torch.arange(20) % 4)
    assert oracle_temperature(flat).ece == pytest.approx(0.0, abs=1e-6)


def test_a_map_that_cannot_be_fitted_leaves_its_reason_and_does_not_end_the_diagnosis(hands, tmp_path):
    right = Predictions.from_logits(9 * torch.eye(4).repeat(25, 1), torch.arange(4).repeat(25))
    path = hands.write(tmp_path / "run", hands.settings(), right, hands.rows(100, "test"))
    evaluated = evaluate_candidates(grouped(read_runs([path])), maps=(*MAPS, MatrixScaling()))
    run = evaluated.candidates[0].runs[0]
    assert run.outcomes["matrix"].top is None
    assert "wrong predictions" in run.outcomes["matrix"].failure
    assert run.outcomes["temperature"].failure is None
    assert run.outcomes["histogram"].failure is None
    assert math.isnan(evaluated.candidates[0].over_runs("matrix", "ece").mean)
    assert evaluated.candidates[0].tops("matrix") == {}
    assert not math.isnan(run.oracle.ece)


def test_what_a_fit_warns_of_becomes_a_note(hands, tmp_path):
    calibration = hands.rows(400, "calibration")
    lacking = calibration[calibration.labels != 3]
    path = hands.write(tmp_path / "run", hands.settings(), lacking, hands.rows(100, "test"))
    run = evaluate_candidates(grouped(read_runs([path]))).candidates[0].runs[0]
    (note,) = run.outcomes["svs"].notes
    assert "class" in note
    assert run.outcomes["temperature"].notes == ()


def test_samples_that_are_all_right_have_no_split_of_their_scores(hands, tmp_path):
    right = Predictions.from_logits(9 * torch.eye(4).repeat(25, 1), torch.arange(4).repeat(25))
    path = hands.write(tmp_path / "run", hands.settings(), hands.rows(100, "calibration"), right)
    few = hands.write(tmp_path / "few", hands.settings(), hands.rows(100, "calibration"), hands.rows(8, "test"))
    for each in (path, few):
        run = evaluate_candidates(grouped(read_runs([each])), maps=MAPS[:1]).candidates[0].runs[0]
        assert run.splits == {} or run.splits["nll"].total < 1e-3


@pytest.mark.parametrize(
    ("maps", "said"),
    [
        ((), "got none"),
        ((IsotonicRegression(),), "got isotonic"),
        ((TemperatureScaling(), TemperatureScaling(criterion="focal")), "got temperature, temperature"),
    ],
)
def test_maps_must_be_different_and_hold_a_temperature(made, maps, said):
    candidates = grouped(read_runs([made()]))
    with pytest.raises(InputError, match=f"maps must be different methods, temperature among them; {said}"):
        evaluate_candidates(candidates, maps=maps)


def test_the_papers_own_maps_are_ready(made, evaluated_of):
    assert [method.name for method in PAPER_MAPS] == [method.name for method in MAPS]
    assert HistogramBinning(bins="equal_width") in PAPER_MAPS
    assert StructuredVectorScaling() in PAPER_MAPS
    run = evaluated_of(made(n=200), maps=PAPER_MAPS[:2]).candidates[0].runs[0]
    assert run.temperature == pytest.approx(round(run.temperature, 2))


def test_progress_is_reported_for_every_run(made):
    told = []
    candidates = grouped(read_runs([made(name="a"), made(seed=1, name="b"), made("focal", name="c")]))
    evaluate_candidates(candidates, maps=MAPS[:1], progress=lambda *each: told.append(each))
    assert told == [("a", 0, 3), ("b", 1, 3), ("c", 2, 3)]
