import pytest
import torch

from calibrant.calibrators.ensembles import minimise_on_simplex


def quadratic(centre, matrix):
    def function(shares):
        away = shares - centre
        return float(away @ matrix @ away), 2 * matrix @ away, 2 * matrix

    return function


def test_a_lowest_point_inside_is_found():
    centre = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    shares, _ = minimise_on_simplex(quadratic(centre, torch.eye(3, dtype=torch.float64)), 3)
    assert torch.allclose(shares, centre, atol=1e-9)


@pytest.mark.parametrize("corner", range(3))
def test_a_lowest_point_outside_ends_on_the_nearest_corner_exactly(corner):
    centre = torch.nn.functional.one_hot(torch.tensor(corner), 3).double() * 5 - 1
    shares, _ = minimise_on_simplex(quadratic(centre, torch.eye(3, dtype=torch.float64)), 3)
    assert shares.tolist() == [float(place == corner) for place in range(3)]


def test_components_that_are_alike_do_no_harm():
    ones = torch.ones(3, 3, dtype=torch.float64)
    shares, certificate = minimise_on_simplex(quadratic(torch.zeros(3, dtype=torch.float64), ones), 3)
    assert float(shares.sum()) == pytest.approx(1)
    assert certificate.gradient <= 1e-9


def test_the_gap_bounds_what_is_left_to_gain():
    logs = torch.randn(500, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def log_loss(shares):
        mixed = logs.exp() @ shares
        ratios = logs.exp() / mixed[:, None]
        return -float(mixed.log().mean()), -ratios.mean(0), ratios.T @ ratios / len(ratios)

    _, certificate = minimise_on_simplex(log_loss, 3)
    tried = torch.distributions.Dirichlet(torch.ones(3, dtype=torch.float64)).sample((2000,))
    assert certificate.objective <= min(log_loss(shares)[0] for shares in tried) + 1e-9
