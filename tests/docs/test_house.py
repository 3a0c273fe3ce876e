"""The code keeps its size and shape: no number may move away from its goal (see benchmarks/house.py)."""

import pytest
from benchmarks.house import BOUNDS, COMMAND_BOUNDS, files_entered, measure


@pytest.fixture(scope="module")
def measured():
    return measure()


@pytest.mark.parametrize("name", BOUNDS)
def test_the_code_does_not_grow_past_its_bounds(name, measured):
    bound = BOUNDS[name]
    assert bound.holds(measured[name]), f"{bound.title}: {measured[name]:g}, {bound.side} {bound.now:g}"


def test_a_command_enters_few_files():
    for name, entered in files_entered().items():
        assert COMMAND_BOUNDS[name].holds(len(entered)), f"calibrant {name} enters {len(entered)} files: {entered}"
