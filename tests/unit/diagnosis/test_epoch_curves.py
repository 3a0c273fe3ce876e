"""Numbers over the epochs, from the runs' records."""

import math
from dataclasses import replace

import pytest

from calibrant.diagnosis import epoch_curves, grouped, read_runs


@pytest.fixture
def candidate(made, hands):
    """One candidate whose runs have these optimal errors, epoch by epoch; None where nobody looked."""

    def make(*runs, **fields):
        paths = [
            made(
                seed=seed,
                records=[
                    hands.epoch(epoch, **({} if value is None else {"test": hands.looked(optimal_ece=value, **fields)}))
                    for epoch, value in enumerate(values, start=1)
                ],
            )
            for seed, values in enumerate(runs)
        ]
        return grouped(read_runs(paths))[0]

    return make


def test_each_epoch_has_the_mean_and_the_range_of_the_runs(candidate):
    found = epoch_curves(candidate([0.04, 0.02, 0.05], [0.06, 0.01, 0.03]))
    assert (found.epochs, found.runs, found.part) == ((1, 2, 3), 2, "test")
    band = found.numbers["optimal_ece"]
    assert band.mean == pytest.approx((0.05, 0.015, 0.04))
    assert (band.lowest, band.highest) == ((0.04, 0.01, 0.03), (0.06, 0.02, 0.05))
    assert (found.lowest_epoch, found.rise) == (2, pytest.approx(0.025))


def test_only_epochs_at_which_all_runs_looked_count(candidate):
    found = epoch_curves(candidate([0.04, None, 0.05], [0.06, 0.01, 0.03]))
    assert found.epochs == (1, 3)
    assert epoch_curves(candidate([None, None])) is None


def test_a_temperature_that_does_not_exist_is_nan(candidate):
    found = epoch_curves(candidate([0.04, 0.02], temperature=None))
    assert all(map(math.isnan, found.numbers["temperature"].mean))


def test_a_part_that_nobody_looked_at_has_no_curves(candidate):
    assert epoch_curves(candidate([0.1]), "calibration") is None


def test_trained_runs_have_curves_of_both_parts(trained):
    (found,) = grouped(read_runs([trained["ce-0"], trained["ce-1"]]))
    test, calibration = epoch_curves(found), epoch_curves(found, "calibration")
    assert test.epochs == calibration.epochs == (1, 2)
    last = [run.records[-1].held_out["test"].accuracy for run in found.runs]
    assert test.numbers["accuracy"].mean[-1] == pytest.approx(sum(last) / 2)
    assert test.numbers["accuracy"].mean != calibration.numbers["accuracy"].mean


def test_what_a_loss_has_learned_is_there_as_far_as_all_runs_tell_it(made, hands):
    told = ([{"gamma_mean": 1.0, "gamma_std": 0.5}, {"gamma_mean": 1.4, "gamma_std": 0.6}],
            [{"gamma_mean": 2.0, "gamma_std": 0.1}, {"gamma_mean": 1.6}])  # fmt: skip
    paths = [
        made(seed=seed, records=[replace(hands.epoch(place + 1, test=hands.looked()), learned=each)
                                 for place, each in enumerate(of_run)])
        for seed, of_run in enumerate(told)
    ]  # fmt: skip
    found = epoch_curves(grouped(read_runs(paths))[0])
    assert list(found.learned) == ["gamma_mean"]
    assert found.learned["gamma_mean"].mean == pytest.approx((1.5, 1.5))
    assert found.learned["gamma_mean"].highest == (2.0, 1.6)


def test_a_loss_that_is_not_learned_tells_nothing(candidate):
    assert epoch_curves(candidate([0.04])).learned == {}


def test_a_run_without_the_records_of_some_epochs_has_no_curves(made, hands):
    records = [hands.epoch(epoch, test=hands.looked(optimal_ece=0.01 * epoch)) for epoch in range(1, 5)]
    paths = [made(seed=seed, records=records[:kept], epochs=4) for seed, kept in enumerate((4, 3, 0))]
    runs = read_runs(paths)
    assert [run.is_recorded for run in runs] == [True, False, False]
    found = epoch_curves(grouped(runs)[0])
    assert (found.runs, found.epochs) == (1, (1, 2, 3, 4))
    assert epoch_curves(grouped(runs[1:])[0]) is None
