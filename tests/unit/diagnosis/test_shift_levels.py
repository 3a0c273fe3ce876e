"""Means over corruptions by severity, on numbers that are known."""

import math

import pytest

from calibrant.diagnosis import Direction, ShiftRow, spread, two_sample
from calibrant.diagnosis.shift import shift_levels


def row(candidate, shift, severity, accuracies, *, source="corruption"):
    found, nothing = spread(accuracies), spread([0.0] * len(accuracies))
    direction = Direction(candidate, "uncalibrated", nothing, 0.0, 0.0, "neither", covers_seeds=True)
    return ShiftRow(
        candidate,
        "uncalibrated",
        shift,
        source,
        severity,
        100,
        {"accuracy": found},
        {"accuracy": nothing},
        direction,
        {},
        {},
    )


def clean(candidate, accuracies):
    return row(candidate, "clean", None, accuracies, source="clean")


ROWS = [
    clean("ce", [0.9, 0.8]),
    clean("focal", [0.7, 0.9]),
    row("ce", "fog", 2, [0.5, 0.3]),
    row("ce", "fog", 1, [0.6, 0.4]),
    row("ce", "snow", 1, [0.8, 0.2]),
    row("focal", "fog", 1, [0.2, 0.2]),
    row("focal", "snow", 1, [0.4, 0.0]),
    row("focal", "fog", 2, [0.1, 0.1]),
]


def test_the_mean_is_taken_over_corruptions_for_each_run_and_then_over_runs():
    levels = shift_levels(ROWS, "ce")
    assert [(each.candidate, each.severity) for each in levels] == [
        ("ce", 0), ("ce", 1), ("ce", 2), ("focal", 0), ("focal", 1), ("focal", 2),
    ]  # fmt: skip
    first = levels[1]
    assert first.metrics["accuracy"].values == pytest.approx((0.7, 0.3))
    assert first.metrics["accuracy"].mean == pytest.approx(0.5)
    assert first.change["accuracy"].values == pytest.approx((-0.2, -0.5))
    assert first.shifts == ("fog", "snow")
    assert levels[2].shifts == ("fog",)


def test_the_clean_samples_come_first_as_severity_nought():
    level = shift_levels(ROWS, "ce")[0]
    assert level.metrics["accuracy"].values == (0.9, 0.8)
    assert level.change["accuracy"].values == (0.0, 0.0)
    assert level.shifts == ("clean",)


def test_candidates_are_held_against_the_reference_over_runs():
    levels = shift_levels(ROWS, "ce")
    expected = two_sample([0.7, 0.3], [0.3, 0.1])
    assert levels[4].t_tests["accuracy"].difference == pytest.approx(expected.difference)
    assert levels[4].t_tests["accuracy"].p == pytest.approx(expected.p)
    assert all(each.t_tests == {} for each in levels[:3])


def test_corruptions_of_the_library_and_of_files_are_not_mixed():
    rows = [*ROWS[:1], ROWS[3], row("ce", "fog", 1, [0.1, 0.1], source="file")]
    levels = shift_levels(rows, "ce")
    assert [(each.source, each.severity, each.metrics["accuracy"].mean) for each in levels] == [
        ("corruption", 0, pytest.approx(0.85)),
        ("corruption", 1, pytest.approx(0.5)),
        ("file", 0, pytest.approx(0.85)),
        ("file", 1, pytest.approx(0.1)),
    ]


def test_a_natural_shift_is_in_no_level():
    natural = row("ce", "other", None, [0.0, 0.0], source="file")
    assert shift_levels([*ROWS, natural], "ce")[1].shifts == ("fog", "snow")
    assert shift_levels([ROWS[0], natural], "ce") == ()


def test_a_file_that_is_called_clean_is_not_taken_for_the_clean_samples():
    called = row("ce", "clean", None, [0.0, 0.0], source="file")
    level = shift_levels([*ROWS, called], "ce")[0]
    assert level.metrics["accuracy"].values == (0.9, 0.8)


def test_a_number_that_one_corruption_does_not_give_is_missing():
    rows = [ROWS[0], ROWS[3], row("ce", "snow", 1, [math.nan, 0.2])]
    values = shift_levels(rows, "ce")[1].metrics["accuracy"].values
    assert math.isnan(values[0])
    assert values[1] == pytest.approx(0.3)
