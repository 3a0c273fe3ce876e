"""Candidates against a reference on the same rows, with the noise of rows and of seeds."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from calibrant.diagnosis import compared_with
from calibrant.diagnosis.over_seeds import Noise, interval_of, noise_of_seeds
from calibrant.evidence import PairedBootstrap
from calibrant.evidence import difference as paired
from calibrant.metrics import AUROC, ECE, Accuracy
from calibrant.predictions import TopLabel

DRAWS = {"resamples": 200, "seed": 3}


def test_one_run_of_each_is_the_paired_bootstrap(judged_tops, hands):
    first, second = hands.answers(), hands.answers(overconfidence=0.4, separation=0.8, seed=1)
    judged = judged_tops(ce=[first], ls=[second])
    found = compared_with(judged, "ce", **DRAWS)["ls"]["none"]
    expected = paired(first, second, [ECE(), AUROC(), Accuracy()], **DRAWS)
    for metric, difference in expected.items():
        against = found[metric]
        assert (against.reference, against.value) == pytest.approx((difference.baseline, difference.candidate))
        assert (against.difference, against.low, against.high) == pytest.approx(
            (difference.value, difference.low, difference.high), nan_ok=True
        )
        assert against.p == against.corrected_p == pytest.approx(difference.p)
        assert not against.covers_seeds
        assert against.by_seed[0] == difference


def test_several_runs_add_the_noise_of_seeds_to_that_of_shared_rows(judged_tops, hands):
    reference = [hands.answers(seed=seed, separation=0.9) for seed in range(3)]
    candidate = [hands.answers(seed=10 + seed, separation=0.7) for seed in range(3)]
    judged = judged_tops(ce=reference, ls=candidate)
    found = compared_with(judged, "ce", **DRAWS)["ls"]["none"]["auroc"]
    contest = PairedBootstrap(reference[0], [AUROC()], **DRAWS)
    drawn = [torch.stack([contest.values(top)["auroc"] for top in tops]) for tops in (reference, candidate)]
    change = (drawn[1] - drawn[0]).mean(0)
    noises = [Noise(float(change[1:].var()), 599), noise_of_seeds(*(each[:, 0].tolist() for each in drawn))]
    expected = interval_of(float(change[0]), noises)
    assert (found.low, found.high, found.p) == pytest.approx(expected)
    assert found.covers_seeds
    assert set(found.by_seed) == {0, 1, 2}
    assert found.difference == pytest.approx(np.mean([each.value for each in found.by_seed.values()]))


def test_the_interval_of_an_ece_is_corrected_for_what_resampling_inflates(judged_tops, hands):
    reference = [hands.answers(seed=seed) for seed in range(2)]
    candidate = [hands.answers(seed=seed, overconfidence=1.5) for seed in range(2)]
    # Two runs that are the same: only the rows are noisy.
    found = compared_with(judged_tops(ce=reference, ls=candidate), "ce", **DRAWS)["ls"]["none"]["ece"]
    contest = PairedBootstrap(reference[0], [ECE()], **DRAWS)
    change = contest.values(candidate[0])["ece"] - contest.values(reference[0])["ece"]
    bias = float(change[1:].mean() - change[0])
    assert bias < 0  # the reference is calibrated, where noise inflates most
    reach = float(change[1:].std()) * stats.t.ppf(0.975, 599)
    assert (found.low, found.high) == pytest.approx((float(change[0]) - reach, float(change[0]) - bias + reach))
    assert found.side == "worse"


def test_sides_say_what_is_better_for_each_metric(judged_tops, hands):
    plain, bold = (
        hands.answers(n=3000, separation=0.9),
        hands.answers(n=3000, overconfidence=1.0, separation=0.6, seed=1),
    )
    there = compared_with(judged_tops(ce=[plain], ls=[bold]), "ce", **DRAWS)["ls"]["none"]
    back = compared_with(judged_tops(ce=[plain], ls=[bold]), "ls", **DRAWS)["ce"]["none"]
    assert (there["ece"].side, there["auroc"].side, there["accuracy"].side) == ("worse", "worse", "alike")
    assert (back["ece"].side, back["auroc"].side) == ("better", "better")
    assert back["ece"].difference == -there["ece"].difference


def test_p_values_are_corrected_for_the_number_of_candidates(judged_tops, hands):
    tops = {f"loss {place}": [hands.answers(seed=place, separation=0.93)] for place in range(4)}
    found = compared_with(judged_tops(ce=[hands.answers()], **tops), "ce", **DRAWS)
    plain = sorted(found[name]["none"]["auroc"].p for name in tops)
    corrected = sorted(found[name]["none"]["auroc"].corrected_p for name in tops)
    assert corrected[0] == pytest.approx(min(1, 4 * plain[0]))
    assert all(more >= less for more, less in zip(corrected, plain, strict=True))


def test_the_same_answers_do_not_differ(judged_tops, hands):
    runs = [hands.answers(seed=seed, separation=0.9) for seed in range(2)]
    for tops in (runs[:1], runs):
        found = compared_with(judged_tops(ce=tops, other=tops), "ce", **DRAWS)["other"]["none"]
        assert all(against.side == "alike" and against.difference == 0 for against in found.values())


def test_different_numbers_of_runs_are_compared_by_their_means(judged_tops, hands):
    reference = [hands.answers(seed=seed, separation=0.9) for seed in range(3)]
    found = compared_with(judged_tops(ce=reference, ls=[hands.answers(seed=9, separation=0.8)]), "ce", **DRAWS)
    against = found["ls"]["none"]["auroc"]
    assert against.covers_seeds
    assert set(against.by_seed) == {0}
    assert against.reference == pytest.approx(np.mean([AUROC()(top) for top in reference]))


def test_a_map_that_could_not_be_fitted_has_no_numbers_and_is_alike(judged_tops, hands):
    top = hands.answers()
    judged = judged_tops(ce=[top], ls=[top], scaled={"ce": [top], "ls": [None]})
    found = compared_with(judged, "ce", **DRAWS)["ls"]["temperature"]["ece"]
    assert math.isnan(found.value)
    assert not math.isnan(found.reference)
    assert math.isnan(found.corrected_p)
    assert (found.side, found.by_seed) == ("alike", {})


def test_without_wrong_answers_there_is_no_auroc_but_the_rest_stands(judged_tops, hands):
    perfect = TopLabel(torch.full((600,), 0.9), torch.ones(600, dtype=torch.bool))
    found = compared_with(judged_tops(ce=[hands.answers()], ls=[perfect]), "ce", **DRAWS)["ls"]["none"]
    assert math.isnan(found["auroc"].value)
    assert found["auroc"].side == "alike"
    assert found["accuracy"].side == "better"


def test_a_candidate_alone_is_compared_with_nobody(judged_tops, hands):
    assert compared_with(judged_tops(ce=[hands.answers()]), "ce", **DRAWS) == {}
