"""Known truth by simulation: do cross-validated differences cover it, and is a useless method seen through?"""

from statistics import mean

import pytest
import torch

from calibrant import compare, nll
from calibrant.calibrators import VectorScaling
from calibrant.testing import overconfident

SIMULATIONS = 40


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def compared(n, sharpness, calibrators=()):
    for seed in range(SIMULATIONS):
        samples = overconfident(n, 4, seed=seed, sharpness=sharpness)
        yield compare(samples, None, list(calibrators), resamples=100, seed=seed)


def test_no_method_helps_a_calibrated_model():
    claims = 0
    for found in compared(200, 1.0, [VectorScaling()]):
        claims += sum(method.beats("uncalibrated") for method in found.fitted)
    assert claims <= 0.1 * SIMULATIONS


def test_the_gain_of_a_temperature_is_covered():
    others, changes, true = overconfident(20_000, 4, seed=99, sharpness=1.6), [], []
    for found in compared(300, 1.6):
        method = found.find("temperature")
        changes.append(method.differences["uncalibrated"]["nll"])
        true.append(mean(nll(fitted.transform(others)) for fitted in method.fold_maps.maps) - nll(others))
    gain = mean(true)
    assert mean(change.value for change in changes) == pytest.approx(gain, abs=0.02)
    # 95 % are expected; with 34 or fewer of 40 the true share would be below with a chance of 1 in 70.
    assert sum(change.low <= gain <= change.high for change in changes) >= 35
