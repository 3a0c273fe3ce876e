"""p-values of paired differences, and sets that are each resampled once."""

import numpy as np
import pytest
import torch
from scipy import stats

from calibrant.errors import InputError
from calibrant.evidence import Contest, compare
from calibrant.evidence.interval import paired_p
from calibrant.metrics import ECE, NLL, Accuracy
from calibrant.predictions import Predictions


def draws(mean, n=500, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(mean, 1.0, n))


def test_draws_on_both_sides_are_counted():
    drawn = draws(1.0)
    rarer = int((drawn <= 0).sum())
    assert paired_p(drawn, 256) == pytest.approx(2 * (rarer + 1) / 501)


@pytest.mark.parametrize("mean", [3.0, -4.0, 6.0])
def test_beyond_the_draws_the_tail_of_student_s_t_tells(mean):
    drawn = draws(mean)
    expected = 2 * stats.t.sf(abs(float(drawn.mean())) / float(drawn.std()), 255)
    assert paired_p(drawn, 256) == pytest.approx(expected)


def test_a_difference_without_spread_is_not_taken_for_certain():
    assert paired_p(torch.full((500,), 0.3), 256) == pytest.approx(2 / 501)
    assert paired_p(torch.zeros(500), 256) == 1
    assert paired_p(draws(6.0), 1) == pytest.approx(2 / 501)  # one group cannot tell a spread


def test_few_rows_give_a_heavier_tail():
    assert paired_p(draws(5.0), 10) > 100 * paired_p(draws(5.0), 256)


def test_a_contest_gives_what_compare_gives():
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(300, 4, generator=generator), torch.randint(4, (300,), generator=generator)
    sets = [Predictions.from_logits(scale * logits, labels) for scale in (3.0, 1.0, 0.5)]
    metrics = [NLL(), ECE(), Accuracy()]
    contest = Contest(sets[0], metrics, resamples=100, seed=2)
    values = [contest.values(each) for each in sets]
    for first, second in ((0, 1), (1, 2), (0, 2)):
        expected = compare(sets[first], sets[second], metrics, resamples=100, seed=2)
        assert contest.differences(values[first], values[second]) == expected
    with pytest.raises(InputError, match="same labels"):
        contest.values(Predictions.from_logits(logits, (labels + 1) % 4))
