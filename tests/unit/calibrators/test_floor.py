"""The floor: how sure a map may be after so many samples."""

import math

import pytest
import torch

from calibrant.calibrators.base import floored_log_odds, log_odds_bounds


@pytest.mark.parametrize("n", [1, 10, 1000])
@pytest.mark.parametrize("k", [2, 10, 1000])
def test_the_bounds_are_those_of_the_rule_of_succession(n, k):
    least, most = 1 / ((n + 2) * (k - 1)), 1 - 1 / (n + 2)
    low, high = log_odds_bounds(n, k)
    assert low == pytest.approx(math.log(least / (1 - least)))
    assert high == pytest.approx(math.log(most / (1 - most)))


def test_zero_and_one_get_finite_log_odds_and_the_middle_is_left_alone():
    probs = torch.tensor([0.0, 1e-9, 0.3, 1.0])
    log_odds = floored_log_odds(probs, n=98)
    assert log_odds.dtype == torch.float64
    assert torch.allclose(log_odds.sigmoid(), torch.tensor([0.01, 0.01, 0.3, 0.99]).double())


def test_cells_at_the_floor_share_the_very_same_number():
    log_odds = floored_log_odds(torch.tensor([0.0, 1e-12, 1e-6]), n=50, n_classes=7)
    assert len(log_odds.unique()) == 1
