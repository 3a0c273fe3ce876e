"""The direction of miscalibration, with its interval."""

import math

import numpy as np
import pytest
import torch

from calibrant.diagnosis import directions
from calibrant.predictions import TopLabel


def only(evaluated, map_name="uncalibrated"):
    return next(each for each in directions(evaluated.candidates[0]) if each.map == map_name)


def test_it_is_mean_confidence_minus_accuracy_with_the_interval_of_a_mean(evaluated_tops, hands):
    top = hands.answers(overconfidence=0.5)
    found = only(evaluated_tops(ce=[top]))
    gaps = (top.confidence - top.correct.double()).numpy()
    assert found.gap.mean == pytest.approx(gaps.mean())
    half = 1.9639 * gaps.std(ddof=1) / math.sqrt(len(gaps))
    assert (found.low, found.high) == pytest.approx((gaps.mean() - half, gaps.mean() + half), abs=1e-5)
    assert not found.covers_seeds


@pytest.mark.parametrize(("shift", "side"), [(1.0, "overconfident"), (-1.0, "underconfident"), (0.0, "neither")])
def test_the_side_is_known_only_where_the_interval_excludes_zero(evaluated_tops, hands, shift, side):
    assert only(evaluated_tops(ce=[hands.answers(overconfidence=shift)])).side == side


def test_over_several_runs_the_shared_samples_are_averaged_first_and_seeds_add_their_noise(evaluated_tops, hands):
    same = hands.answers(overconfidence=0.5)
    alone, twice = only(evaluated_tops(ce=[same])), only(evaluated_tops(ce=[same, same]))
    # The same samples twice are no more evidence than once.
    assert (twice.low, twice.high) == pytest.approx((alone.low, alone.high))
    apart = only(evaluated_tops(ce=[hands.answers(overconfidence=shift) for shift in (0.2, 0.8)]))
    assert apart.covers_seeds
    assert apart.high - apart.low > 3 * (alone.high - alone.low)
    assert apart.gap.values[0] < apart.gap.values[1]


def test_the_interval_covers_the_truth(evaluated_tops, hands):
    # Overconfident by a known shift of the log-odds; the truth is had from very many samples.
    truth = only(evaluated_tops(ce=[hands.answers(400_000, overconfidence=0.3, rows=99)])).gap.mean
    hits = [
        found.low <= truth <= found.high
        for rows in range(200)
        for found in [only(evaluated_tops(ce=[hands.answers(300, overconfidence=0.3, rows=rows)]))]
    ]
    assert 0.91 <= np.mean(hits) <= 0.985


def test_every_map_has_a_direction_and_one_that_failed_has_none(evaluated_tops, hands):
    top = hands.answers(overconfidence=1.0)
    evaluated = evaluated_tops(ce=[top], scaled={"ce": [None]})
    assert [each.map for each in directions(evaluated.candidates[0])] == ["uncalibrated", "temperature"]
    failed = only(evaluated, "temperature")
    assert math.isnan(failed.gap.mean)
    assert failed.side == "neither"


def test_one_sample_has_no_direction(evaluated_tops):
    found = only(evaluated_tops(ce=[TopLabel(torch.tensor([0.9]), torch.tensor([False]))]))
    assert found.gap.mean == pytest.approx(0.9)
    assert found.side == "neither"


def test_a_few_samples_that_are_all_right_show_no_underconfidence(evaluated_tops):
    def of(confidence, n):
        return only(evaluated_tops(ce=[TopLabel(torch.linspace(confidence - 0.005, confidence, n), [True] * n)]))

    assert of(0.99, 20).side == "neither"  # four in five calibrated models are all right on as many
    assert of(0.99, 2000).side == "underconfident"
