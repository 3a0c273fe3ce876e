"""ECE after each map against the number of calibration samples."""

import math

import numpy as np
import pytest
import torch

from calibrant.calibrators import (
    HistogramBinning,
    IsotonicRegression,
    MatrixScaling,
    StructuredVectorScaling,
    TemperatureScaling,
)
from calibrant.diagnosis import MAPS, read_runs, validation_sizes
from calibrant.diagnosis.curves import _ece_after
from calibrant.errors import InputError
from calibrant.metrics import ece
from calibrant.predictions import Predictions


def test_each_point_is_what_fitting_on_those_samples_gives(made, evaluated_of):
    path = made(n=300, noise=0.3)
    evaluated = evaluated_of(path, maps=MAPS[:2])
    (found,) = validation_sizes(evaluated, sizes=[50, 120], draws=2, seed=5)
    assert [point.rows for point in found.points] == [50, 120, 300]
    (run,) = read_runs([path])
    expected = []
    for draw in range(2):
        order = torch.from_numpy(np.random.default_rng([5, draw]).permutation(300))
        expected.append(ece(TemperatureScaling().fit(run.calibration[order[:120]]).transform(run.test)))
    assert found.points[1].ece["temperature"].values == pytest.approx(expected, abs=1e-6)
    assert found.points[-1].ece["histogram"].values == evaluated.candidates[0].over_runs("histogram", "ece").values
    assert found.raw_ece.values == evaluated.candidates[0].over_runs("uncalibrated", "ece").values


def test_runs_and_draws_are_pooled(made, evaluated_of):
    evaluated = evaluated_of(*(made(seed=seed, noise=0.3) for seed in range(3)))
    (found,) = validation_sizes(evaluated, sizes=[100], draws=4)
    point = found.points[0].ece["temperature"]
    assert len(point.values) == 12
    assert point.lowest == min(point.values)
    assert point.highest == max(point.values)


def test_more_samples_bring_a_histogram_nearer(made, evaluated_of):
    evaluated = evaluated_of(made(n=3000, noise=0.3), maps=MAPS[:2])
    (found,) = validation_sizes(evaluated, sizes=[30, 1000], draws=3)
    few, many = (point.ece["histogram"].mean for point in found.points[:2])
    assert few > 2 * many


def test_the_same_seed_draws_the_same_samples(made, evaluated_of):
    evaluated = evaluated_of(made(noise=0.3))
    one, same, other = (validation_sizes(evaluated, sizes=[40], draws=1, seed=seed)[0] for seed in (1, 1, 2))
    one, same, other = (found.points[0].ece["temperature"].values for found in (one, same, other))
    assert one == same != other


def test_sizes_are_round_unless_given_and_those_too_large_are_left_out(made, evaluated_of):
    evaluated = evaluated_of(made())
    (found,) = validation_sizes(evaluated, draws=1)
    assert [point.rows for point in found.points] == [20, 50, 100, 200, 400]
    (found,) = validation_sizes(evaluated, sizes=[100, 400, 5000], draws=1)
    assert [point.rows for point in found.points] == [100, 400]


def test_fits_that_fail_are_counted(hands, tmp_path, evaluated_of):
    # All but a few rows are right, so that small parts have no best matrix.
    logits, labels = 9 * torch.eye(4).repeat(50, 1), torch.arange(4).repeat(50)
    labels[:4] = (labels[:4] + 1) % 4
    calibration = Predictions.from_logits(logits, labels)
    path = hands.write(tmp_path / "run", hands.settings(), calibration, hands.rows(100, "test"))
    (found,) = validation_sizes(evaluated_of(path, maps=(*MAPS[:1], MatrixScaling())), sizes=[10], draws=8)
    failed = found.points[0].failed["matrix"]
    assert failed > 0
    assert sum(map(math.isnan, found.points[0].ece["matrix"].values)) == failed
    assert found.points[0].failed["temperature"] == 0


def test_the_short_cut_of_each_map_gives_what_the_map_gives(hands):
    calibration, test = (hands.rows(500, part, k=5, noise=0.5) for part in ("calibration", "test"))
    for method in (TemperatureScaling(), HistogramBinning(n_bins=40), IsotonicRegression(), StructuredVectorScaling()):
        fitted = method.fit(calibration)
        assert _ece_after(fitted, test, 15) == pytest.approx(ece(fitted.transform(test)), abs=2e-5), method.name


@pytest.mark.parametrize("options", [{"draws": 0}, {"sizes": [1]}])
def test_sizes_and_draws_must_be_enough(made, evaluated_of, options):
    evaluated = evaluated_of(made())
    with pytest.raises(InputError, match="must be at least"):
        validation_sizes(evaluated, **options)
