"""Smoothing on nodes by cosine transform, against sums of mirrored kernels."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad

from calibrant.numerics.binning import (
    cosine_transform,
    gaussian_damping,
    integrate,
    integrate_smoothed,
    inverse_cosine_transform,
    triweight_damping,
)

NODES = 257
DAMPINGS = [gaussian_damping, triweight_damping]


def masses(*places):
    """One unit at each place, in 0..1, which must be a node."""
    mass = torch.zeros(NODES, dtype=torch.float64)
    for place in places:
        mass[round(place * (NODES - 1))] += 1
    return mass


def smooth(mass, damping, width):
    widths = torch.full(mass.shape[:-1], width, dtype=torch.float64)
    return inverse_cosine_transform(cosine_transform(mass) * damping(widths, mass.shape[-1]))


def gaussian(x, width):
    return math.exp(-((x / width) ** 2) / 2) / (width * math.sqrt(2 * math.pi))


def triweight(x, width):
    u = x / (3 * width)
    return 35 / 32 * (1 - u**2) ** 3 / (3 * width) if abs(u) < 1 else 0.0


def mirrored(kernel, t, centre, width):
    return sum(kernel(t + shift - sign * centre, width) for shift in (-2, 0, 2) for sign in (1, -1))


@pytest.mark.parametrize(("damping", "kernel"), [(gaussian_damping, gaussian), (triweight_damping, triweight)])
@pytest.mark.parametrize("width", [0.03, 0.1, 0.25])
@pytest.mark.parametrize("place", [0.0, 0.125, 0.5, 1.0])
def test_a_unit_becomes_a_kernel_mirrored_at_both_ends(damping, kernel, width, place):
    density = smooth(masses(place), damping, width).numpy()
    expected = [mirrored(kernel, t, place, width) for t in np.linspace(0, 1, NODES)]
    assert np.allclose(density, expected, atol=1e-3 * max(expected))


@pytest.mark.parametrize("damping", DAMPINGS)
@pytest.mark.parametrize("width", [0.02, 0.3, 2.0])
def test_smoothing_keeps_the_mass(damping, width):
    mass = masses(0.0, 0.25, 0.25, 0.75, 1.0)
    assert float(integrate(smooth(mass, damping, width))) == pytest.approx(5)


@pytest.mark.parametrize("damping", DAMPINGS)
def test_a_very_wide_kernel_spreads_the_mass_evenly(damping):
    density = smooth(masses(0.0, 0.25), damping, 50.0)
    assert torch.allclose(density, torch.full_like(density, 2.0), atol=1e-3)


@pytest.mark.parametrize("damping", DAMPINGS)
def test_states_side_by_side_are_smoothed_one_by_one(damping):
    mass = torch.stack([masses(0.0), masses(0.5), masses(0.25, 1.0)])
    widths = torch.tensor([0.05, 0.1, 0.2], dtype=torch.float64)
    together = inverse_cosine_transform(cosine_transform(mass) * damping(widths, NODES))
    for row, one, width in zip(together, mass, widths.tolist(), strict=True):
        assert torch.allclose(row, smooth(one, damping, width))


def test_the_masses_are_left_as_they_were():
    mass = masses(0.0, 1.0)
    cosine_transform(mass)
    assert torch.equal(mass, masses(0.0, 1.0))


@pytest.mark.parametrize("width", [0.01, 0.05, 0.2, 1.0])
def test_triweight_damping_is_the_transform_of_the_triweight(width):
    damping = triweight_damping(torch.tensor(width, dtype=torch.float64), 40)
    for frequency in (0, 1, 2, 5, 17, 39):
        transform, _ = quad(
            lambda x: triweight(x, width), -3 * width, 3 * width, weight="cos", wvar=math.pi * frequency
        )
        assert float(damping[frequency]) == pytest.approx(transform, abs=1e-7)


def test_triweight_damping_has_no_step_where_the_series_takes_over():
    x = torch.linspace(0.69, 0.71, 2001, dtype=torch.float64)
    values = triweight_damping(x / (3 * math.pi), 2)[:, 1]
    assert float(values.diff().abs().max()) < 2e-6
    assert float(values.diff(n=2).abs().max()) < 1e-8


def test_damping_starts_at_one():
    for damping in DAMPINGS:
        assert float(damping(torch.tensor(0.1, dtype=torch.float64), 5)[0]) == 1


def test_the_trapezoid_rule_is_exact_for_straight_lines():
    t = torch.linspace(0, 1, 11, dtype=torch.float64)
    assert float(integrate(3 * t + 1)) == pytest.approx(2.5)
    assert integrate(torch.stack([t, 1 - t, torch.ones_like(t)])).tolist() == pytest.approx([0.5, 0.5, 1.0])


@pytest.mark.parametrize("nodes", [3, 129, 1025])
@pytest.mark.parametrize("width", [1e-4, 2e-3, 0.03, 0.4, 5.0])
def test_the_smoothed_magnitude_is_that_of_the_smoothed_density(nodes, width):
    mass = torch.randn(4, nodes, generator=torch.Generator().manual_seed(nodes), dtype=torch.float64)
    coefficients = cosine_transform(mass)
    widths = width * torch.tensor([1.0, 1.5, 2.0, 3.0], dtype=torch.float64)
    density = inverse_cosine_transform(coefficients * gaussian_damping(widths, nodes))
    rounding = 1e-13 * float(mass.abs().sum())
    torch.testing.assert_close(
        integrate_smoothed(coefficients, widths), integrate(density.abs()), rtol=0, atol=rounding
    )
