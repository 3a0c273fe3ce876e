"""Known truth by simulation: do cross-validated differences cover it, and is a useless method seen through?"""

from statistics import mean

import pytest
import torch
from experiments.intervals.folds import Source, gains

from calibrant.calibrators import VectorScaling

SIMULATIONS = 40


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_no_method_helps_a_calibrated_model():
    found = list(gains(Source(200, 4, 1.0), [VectorScaling()], simulations=SIMULATIONS))
    assert sum(gain.beats for gain in found if gain.baseline == "uncalibrated") <= 0.1 * SIMULATIONS


def test_the_gain_of_a_temperature_is_covered():
    found = [gain for gain in gains(Source(300, 4, 1.6), [], simulations=SIMULATIONS) if gain.method == "temperature"]
    expected = mean(gain.true for gain in found)
    assert mean(gain.estimate.value for gain in found) == pytest.approx(expected, abs=0.02)
    # 95 % are expected; with 34 or fewer of 40 the true share would be below with a chance of 1 in 70.
    assert sum(gain.estimate.low <= expected <= gain.estimate.high for gain in found) >= 35
