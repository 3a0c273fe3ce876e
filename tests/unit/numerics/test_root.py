"""Roots: found, certified, kept inside their bracket, or refused with a reason."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from calibrant.errors import FitError
from calibrant.numerics.inverse_temperature import find_root, root_of_decreasing


class TestFindRoot:
    def test_it_finds_a_root_and_certifies_it(self):
        root = find_root(lambda x: (x * x - 2, 2 * x), start=1.0, low=0.1, high=10.0)
        assert root.value == pytest.approx(math.sqrt(2), abs=1e-9)
        assert abs(root.residual) < 1e-8
        assert root.calls < 10

    @given(place=st.floats(0.02, 50), start=st.floats(0.02, 50), power=st.sampled_from([1, 3, 5]))
    @settings(max_examples=60)
    def test_it_finds_the_root_of_any_rising_power_from_any_start(self, place, start, power):
        def function(x):
            return x**power - place**power, power * x ** (power - 1)

        assert find_root(function, start=start, low=0.01, high=100.0).value == pytest.approx(place, rel=1e-6)

    @given(place=st.floats(0.02, 50), start=st.floats(0.02, 50))
    @settings(max_examples=60)
    def test_it_finds_the_root_where_newtons_method_alone_would_run_away(self, place, start):
        def function(x):
            return math.atan(20 * (x - place)), 20 / (1 + (20 * (x - place)) ** 2)

        assert find_root(function, start=start, low=0.01, high=100.0).value == pytest.approx(place, rel=1e-6)

    def test_a_slope_of_zero_gives_way_to_bisection(self):
        root = find_root(lambda x: (-1.0 if x < 3 else 1.0, 0.0), start=1.0, low=0.1, high=10.0)
        assert root.value == pytest.approx(3, rel=1e-9)

    def test_a_function_that_is_never_positive_ends_at_the_upper_bound(self):
        assert find_root(lambda _: (-1.0, 0.0), start=1.0, low=0.1, high=10.0).value == pytest.approx(10, rel=1e-6)

    def test_a_function_that_is_never_negative_ends_at_the_lower_bound(self):
        assert find_root(lambda _: (1.0, 0.0), start=1.0, low=0.1, high=10.0).value == pytest.approx(0.1, rel=1e-6)

    def test_steps_that_hardly_shrink_the_bracket_give_way_to_bisection(self):
        # The slope of the log-loss of separable samples: every Newton step adds one, and the bound is far away.
        root = find_root(lambda x: (-math.exp(-x), math.exp(-x)), start=1.0, low=1e-3, high=1e3)
        # exp(-x) is zero in float64 from 746 on, so any place from there to the bound is a root.
        assert 700 < root.value <= 1e3
        assert abs(root.residual) < 1e-300

    def test_an_exact_zero_is_taken_at_once(self):
        root = find_root(lambda x: (x - 1, 1.0), start=1.0, low=0.1, high=10.0)
        assert (root.value, root.residual, root.calls) == (1.0, 0.0, 1)

    def test_it_says_so_if_it_was_not_given_enough_calls(self):
        with pytest.raises(FitError, match="no root found in 2 evaluations; the bracket is still"):
            find_root(lambda x: (x**3 - 30, 3 * x * x), start=1.0, low=0.1, high=10.0, max_calls=2)


class TestFallingRoot:
    @given(places=st.lists(st.floats(0.01, 0.99), min_size=1, max_size=8))
    @settings(max_examples=60)
    def test_it_finds_the_roots_of_many_functions_at_once(self, places):
        target = torch.tensor(places, dtype=torch.float64)

        def function(x):
            return torch.exp(-3 * x) - torch.exp(-3 * target)

        roots = root_of_decreasing(function, torch.zeros_like(target), torch.ones_like(target))
        assert torch.allclose(roots, target, atol=1e-8)

    def test_each_root_is_that_of_its_function_alone(self):
        factors = torch.tensor([[0.2, 1.0], [3.0, 9.0]], dtype=torch.float64)
        roots = root_of_decreasing(
            lambda x: factors * (1 - x) ** 2 - x, torch.zeros_like(factors), torch.ones_like(factors)
        )
        for place in [(0, 0), (0, 1), (1, 0), (1, 1)]:
            alone = brentq(lambda x, f=float(factors[place]): f * (1 - x) ** 2 - x, 0, 1, xtol=1e-14)
            assert float(roots[place]) == pytest.approx(alone, abs=1e-8)

    def test_a_function_that_is_negative_from_the_start_has_its_root_put_there(self):
        low = torch.tensor([0.1, 0.1], dtype=torch.float64)
        roots = root_of_decreasing(lambda x: torch.tensor([-1.0, 0.5]) - x, low, torch.ones_like(low))
        assert roots.tolist() == pytest.approx([0.1, 0.5])

    def test_bends_are_found_too(self):
        # A kink such as |·| makes in an integral.
        roots = root_of_decreasing(
            lambda x: torch.maximum(1 - 8 * x, 0.1 - 0.11 * x) - x,
            torch.zeros(1, dtype=torch.float64),
            torch.ones(1, dtype=torch.float64),
        )
        assert float(roots) == pytest.approx(1 / 9, abs=1e-6)
