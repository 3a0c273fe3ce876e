"""ECE over the number of bins, and its floor."""

import subprocess
import sys

import pytest
import torch

from calibrant.diagrams import bins_sweep
from calibrant.errors import InputError
from calibrant.metrics import ece, ece_l1_debiased
from calibrant.predictions import TopLabel


def calibrated(n, seed=0):
    generator = torch.Generator().manual_seed(seed)
    confidence = torch.rand(n, generator=generator, dtype=torch.float64)
    return TopLabel(confidence, torch.rand(n, generator=generator, dtype=torch.float64) < confidence)


def test_every_entry_is_the_metric_at_that_number_of_bins():
    top = calibrated(2000)
    sweep = bins_sweep(top, redraws=2)
    assert sweep.n_bins.tolist() == [10, 15, 20, 50, 100, 200, 500, 1000]
    for number, value, debiased in zip(sweep.n_bins.tolist(), sweep.ece, sweep.debiased, strict=True):
        assert value.item() == pytest.approx(ece(top, n_bins=number))
        assert debiased.item() == pytest.approx(ece_l1_debiased(top, n_bins=number))


def test_the_floor_is_the_ece_of_redrawn_answers():
    top = calibrated(500)
    sweep = bins_sweep(top, n_bins=[15, 200], redraws=400)
    generator = torch.Generator().manual_seed(9)
    for place, number in enumerate((15, 200)):
        redrawn = [
            ece(TopLabel(top.confidence, torch.rand(500, generator=generator).double() < top.confidence), n_bins=number)
            for _ in range(400)
        ]
        values = torch.tensor(redrawn, dtype=torch.float64)
        error = float(values.std()) / 20
        assert sweep.floor[place].item() == pytest.approx(float(values.mean()), abs=5 * error)
        assert sweep.floor_low[place].item() == pytest.approx(float(values.quantile(0.025)), abs=8 * error)
        assert sweep.floor_high[place].item() == pytest.approx(float(values.quantile(0.975)), abs=8 * error)


def test_a_calibrated_model_lies_within_its_floor_about_95_times_in_100():
    inside = 0
    for seed in range(100):
        sweep = bins_sweep(calibrated(300, seed), n_bins=[15], redraws=100, seed=seed)
        inside += bool(sweep.floor_low[0] <= sweep.ece[0] <= sweep.floor_high[0])
    assert 86 <= inside <= 100


def test_the_floor_rises_with_the_bins():
    floor = bins_sweep(calibrated(1000)).floor
    assert (floor.diff() > 0).all()


def test_the_same_seed_gives_the_same_floor():
    top = calibrated(100)
    first, again, other = (bins_sweep(top, n_bins=[15], seed=seed).floor for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_numbers_of_bins_without_a_small_common_refinement_are_close_to_exact():
    top = calibrated(5000)
    sweep = bins_sweep(top, n_bins=[97, 101, 103], redraws=2)
    for number, value in zip((97, 101, 103), sweep.ece, strict=True):
        assert value.item() == pytest.approx(ece(top, n_bins=number), rel=0.1)


@pytest.mark.parametrize("n_bins", [[], [0], [10, -1]])
def test_no_bins_is_an_error(n_bins):
    with pytest.raises(InputError, match="n_bins"):
        bins_sweep(TopLabel([0.5], [True]), n_bins=n_bins)


def test_importing_the_folder_does_not_load_matplotlib():
    code = "import sys, calibrant.diagrams; print([m for m in ('matplotlib',) if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
