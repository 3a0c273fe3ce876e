"""Candidates against a baseline on the same samples, with the noise of samples and of seeds, and the verdict."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy import stats

from calibrant.diagnosis import differences_from, verdict
from calibrant.diagnosis.over_seeds import Noise, interval_of, noise_of_seeds
from calibrant.evidence import PairedBootstrap
from calibrant.evidence import difference as paired
from calibrant.metrics import AUROC, ECE, Accuracy
from calibrant.predictions import TopLabel

DRAWS = {"resamples": 200, "seed": 3}


def test_one_run_of_each_is_the_paired_bootstrap(evaluated_tops, hands):
    first, second = hands.answers(), hands.answers(overconfidence=0.4, separation=0.8, seed=1)
    evaluated = evaluated_tops(ce=[first], ls=[second])
    found = differences_from(evaluated, "ce", **DRAWS)
    assert found.means["ls"]["uncalibrated"] == paired(first, second, [ECE(), AUROC(), Accuracy()], **DRAWS)
    assert found.by_seed["ls"]["uncalibrated"] == {
        name: {0: each} for name, each in found.means["ls"]["uncalibrated"].items()
    }


def test_several_runs_add_the_noise_of_seeds_to_that_of_shared_samples(evaluated_tops, hands):
    baseline = [hands.answers(seed=seed, separation=0.9) for seed in range(3)]
    candidate = [hands.answers(seed=10 + seed, separation=0.7) for seed in range(3)]
    evaluated = evaluated_tops(ce=baseline, ls=candidate)
    compared = differences_from(evaluated, "ce", **DRAWS)
    found, by_seed = (each["ls"]["uncalibrated"]["auroc"] for each in compared)
    contest = PairedBootstrap(baseline[0], [AUROC()], **DRAWS)
    first, second = ([contest.values(top)["auroc"] for top in tops] for tops in (baseline, candidate))
    change = (torch.stack([run.values for run in second]) - torch.stack([run.values for run in first])).mean(0)[1:]
    values = [[run.value for run in runs] for runs in (first, second)]
    noises = [Noise(float(change.var()), 599), noise_of_seeds(*values)]
    expected = interval_of(float(np.mean(values[1]) - np.mean(values[0])), noises)
    assert (found.low, found.high, found.p) == pytest.approx(expected)
    assert found.covers_seeds
    assert set(by_seed) == {0, 1, 2}
    assert found.value == pytest.approx(np.mean([each.value for each in by_seed.values()]))


def test_the_interval_of_an_ece_is_that_of_the_errors_without_noise(evaluated_tops, hands):
    baseline = [hands.answers(seed=seed) for seed in range(2)]
    candidate = [hands.answers(seed=seed, overconfidence=1.5) for seed in range(2)]
    # Two runs that are the same: only the samples are noisy.
    found = differences_from(evaluated_tops(ce=baseline, ls=candidate), "ce", **DRAWS).means["ls"]["uncalibrated"][
        "ece"
    ]
    contest = PairedBootstrap(baseline[0], [ECE()], **DRAWS)
    (theirs, their_draws), (ours, our_draws) = (
        contest.values(tops[0])["ece"].without_noise for tops in (baseline, candidate)
    )
    # The baseline is calibrated: its error is mostly noise.
    assert theirs < 0.8 * found.baseline
    assert 0.9 * found.candidate < ours < found.candidate
    reach = float((our_draws - their_draws).std()) * stats.t.ppf(0.975, 599)
    assert (found.low, found.high) == pytest.approx((ours - theirs - reach, ours - theirs + reach))
    assert found.value < ours - theirs
    assert found.side == "worse"


def test_sides_say_what_is_better_for_each_metric(evaluated_tops, hands):
    plain, bold = (
        hands.answers(n=3000, separation=0.9),
        hands.answers(n=3000, overconfidence=1.0, separation=0.6, seed=1),
    )
    there = differences_from(evaluated_tops(ce=[plain], ls=[bold]), "ce", **DRAWS).means["ls"]["uncalibrated"]
    back = differences_from(evaluated_tops(ce=[plain], ls=[bold]), "ls", **DRAWS).means["ce"]["uncalibrated"]
    assert (there["ece"].side, there["auroc"].side, there["accuracy"].side) == ("worse", "worse", "alike")
    assert (back["ece"].side, back["auroc"].side) == ("better", "better")
    assert back["ece"].value == -there["ece"].value


def test_p_values_are_corrected_for_the_number_of_candidates(evaluated_tops, hands):
    tops = {f"loss {place}": [hands.answers(seed=place, separation=0.93)] for place in range(4)}
    found = differences_from(evaluated_tops(ce=[hands.answers()], **tops), "ce", **DRAWS).means
    plain = sorted(found[name]["uncalibrated"]["auroc"].p for name in tops)
    corrected = sorted(found[name]["uncalibrated"]["auroc"].corrected_p for name in tops)
    assert corrected[0] == pytest.approx(min(1, 4 * plain[0]))
    assert all(more >= less for more, less in zip(corrected, plain, strict=True))


def test_the_same_answers_do_not_differ(evaluated_tops, hands):
    runs = [hands.answers(seed=seed, separation=0.9) for seed in range(2)]
    for tops in (runs[:1], runs):
        found = differences_from(evaluated_tops(ce=tops, other=tops), "ce", **DRAWS).means["other"]["uncalibrated"]
        assert all(against.side == "alike" and against.value == 0 for against in found.values())


def test_different_numbers_of_runs_are_compared_by_their_means(evaluated_tops, hands):
    baseline = [hands.answers(seed=seed, separation=0.9) for seed in range(3)]
    found = differences_from(evaluated_tops(ce=baseline, ls=[hands.answers(seed=9, separation=0.8)]), "ce", **DRAWS)
    against = found.means["ls"]["uncalibrated"]["auroc"]
    assert against.covers_seeds
    assert set(found.by_seed["ls"]["uncalibrated"]["auroc"]) == {0}
    assert against.baseline == pytest.approx(np.mean([AUROC()(top) for top in baseline]))


def test_a_map_that_could_not_be_fitted_has_no_numbers_and_is_alike(evaluated_tops, hands):
    top = hands.answers()
    evaluated = evaluated_tops(ce=[top], ls=[top], scaled={"ce": [top], "ls": [None]})
    compared = differences_from(evaluated, "ce", **DRAWS)
    found = compared.means["ls"]["temperature"]["ece"]
    assert math.isnan(found.candidate)
    assert not math.isnan(found.baseline)
    assert math.isnan(found.corrected_p)
    assert (found.side, compared.by_seed["ls"]["temperature"]["ece"]) == ("alike", {})


def test_without_wrong_answers_there_is_no_auroc_but_the_rest_stands(evaluated_tops, hands):
    perfect = TopLabel(torch.full((600,), 0.9), torch.ones(600, dtype=torch.bool))
    found = differences_from(evaluated_tops(ce=[hands.answers()], ls=[perfect]), "ce", **DRAWS).means["ls"][
        "uncalibrated"
    ]
    assert math.isnan(found["auroc"].value)
    assert found["auroc"].side == "alike"
    assert found["accuracy"].side == "better"


def test_a_candidate_alone_is_compared_with_nobody(evaluated_tops, hands):
    assert differences_from(evaluated_tops(ce=[hands.answers()]), "ce", **DRAWS) == ({}, {})


def test_the_verdict_weighs_what_calibration_cannot_remove(evaluated_tops, hands):
    # Overconfident, separating well and calibrated by a temperature; against less overconfident, with noise that stays.
    def runs(seeds, **options):
        return [hands.answers(n=2000, seed=seed, **options) for seed in seeds]

    plain, calibrated = runs((0, 1, 2), overconfidence=0.8, separation=0.98), runs((0, 1, 2), separation=0.98)
    noisy = runs((3, 4, 5), overconfidence=0.35, separation=0.5)
    evaluated = evaluated_tops(ce=plain, ls=noisy, scaled={"ce": calibrated, "ls": noisy})
    differences = differences_from(evaluated, "ce", resamples=200).means["ls"]
    found = verdict(evaluated.find("ls"), evaluated.find("ce"), differences, n_compared=1)
    assert (found.raw_ece.side, found.ece_after_temperature.side, found.auroc.side) == ("better", "worse", "worse")
    assert (found.overall, found.accuracy.side) == ("worse", "alike")  # its lower raw ECE does not count
    assert (found.runs, found.baseline_runs, found.n_compared) == (3, 3, 1)
    turned = {**differences, "temperature": {"ece": dataclasses.replace(found.ece_after_temperature, side="better")}}
    assert verdict(evaluated.find("ls"), evaluated.find("ce"), turned, n_compared=1).overall == "mixed"
    alone = evaluated_tops(ce=plain[:1], ls=plain[:1])
    same = differences_from(alone, "ce", resamples=50).means["ls"]
    assert verdict(*reversed(alone.candidates), same, n_compared=1).overall == "alike"
