import numpy as np
import pytest
import torch

from calibrant.numerics.newton import CurvatureMemory


def quadratic(size, *, seed=0):
    """Its curvature matrix, with eigenvalues from 1 to 50."""
    generator = torch.Generator().manual_seed(seed)
    axes, _ = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64))
    return axes @ torch.diag(torch.linspace(1, 50, size, dtype=torch.float64)) @ axes.T


def taught(curvature, steps, *, ridge=0.0, memory_size=10):
    memory = CurvatureMemory(memory_size)
    for step in steps:
        memory.learn(step, curvature @ step + ridge * step)
    return memory


def drawn(n, size, seed=1):
    return torch.randn(n, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def written_out(curvature, steps, gradient):
    """The same direction by the update of the inverse as textbooks print it, with full matrices."""
    size = len(gradient)
    changes = [curvature @ step for step in steps]
    inverse = float(steps[-1] @ changes[-1]) / float(changes[-1] @ changes[-1]) * torch.eye(size, dtype=torch.float64)
    for step, change in zip(steps, changes, strict=True):
        rho = 1 / float(change @ step)
        left = torch.eye(size, dtype=torch.float64) - rho * torch.outer(step, change)
        inverse = left @ inverse @ left.T + rho * torch.outer(step, step)
    return -inverse @ gradient


@pytest.mark.parametrize("ridge", [0.0, 3.0])
def test_the_direction_is_that_of_the_full_matrices(ridge):
    curvature, steps, gradient = quadratic(6), drawn(4, 6), drawn(1, 6, seed=2)[0]
    known = written_out(curvature + ridge * torch.eye(6, dtype=torch.float64), list(steps), gradient)
    assert torch.allclose(taught(curvature, steps).direction(gradient, ridge=ridge), known, rtol=1e-9)


def test_the_last_step_is_fitted_exactly():
    curvature, steps = quadratic(6), drawn(4, 6)
    direction = taught(curvature, steps).direction(curvature @ steps[-1], ridge=0.0)
    assert torch.allclose(direction, -steps[-1], rtol=1e-9)


def test_what_was_learned_under_one_penalty_holds_under_another():
    curvature, steps, gradient = quadratic(6), drawn(6, 6), drawn(1, 6, seed=2)[0]
    apart = taught(curvature, steps).direction(gradient, ridge=7.0)
    together = taught(curvature, steps, ridge=7.0).direction(gradient, ridge=0.0)
    assert torch.allclose(apart, together, rtol=1e-9)


def test_it_minimises_a_quadratic_in_few_steps():
    curvature = quadratic(20)
    lowest = drawn(1, 20, seed=2)[0]
    here, memory = torch.zeros(20, dtype=torch.float64), CurvatureMemory(20)
    for _ in range(40):
        gradient = curvature @ (here - lowest)
        direction = memory.direction(gradient, ridge=0.0)
        direction = -gradient if direction is None else direction
        length = -float(gradient @ direction) / float(direction @ curvature @ direction)
        memory.learn(length * direction, length * (curvature @ direction))
        here = here + length * direction
        if float((here - lowest).norm()) < 1e-9:
            break
    assert float((here - lowest).norm()) < 1e-8


@pytest.mark.parametrize("seed", range(5))
def test_it_always_leads_down(seed):
    curvature, gradient = quadratic(8), drawn(1, 8, seed=seed + 10)[0]
    direction = taught(curvature, drawn(5, 8, seed=seed)).direction(gradient, ridge=0.1)
    assert float(gradient @ direction) < 0


def test_steps_along_which_the_gradient_does_not_rise_are_left_out():
    memory = CurvatureMemory()
    memory.learn(torch.tensor([1.0, 0.0]), torch.tensor([-3.0, 0.0]))
    assert memory.direction(torch.tensor([1.0, 1.0]), ridge=0.0) is None
    # Under a penalty that outweighs it, the same step counts.
    assert memory.direction(torch.tensor([4.0, 0.0]), ridge=5.0).tolist() == pytest.approx([-2.0, 0.0])
    memory.learn(torch.tensor([0.0, 1.0]), torch.tensor([0.0, 2.0]))
    assert memory.direction(torch.tensor([0.0, 4.0]), ridge=0.0).tolist() == pytest.approx([0.0, -2.0])


def test_a_new_memory_knows_no_direction():
    assert len(CurvatureMemory()) == 0
    assert CurvatureMemory().direction(torch.ones(3), ridge=1.0) is None


def test_only_the_last_steps_are_remembered():
    curvature, steps, gradient = quadratic(6), drawn(7, 6), drawn(1, 6, seed=2)[0]
    memory = taught(curvature, steps, memory_size=3)
    assert len(memory) == 3
    assert torch.equal(
        memory.direction(gradient, ridge=0.0), taught(curvature, steps[4:]).direction(gradient, ridge=0.0)
    )


def test_the_gradient_given_is_not_changed():
    gradient = drawn(1, 6, seed=2)[0]
    before = gradient.clone()
    taught(quadratic(6), drawn(4, 6)).direction(gradient, ridge=1.0)
    assert torch.equal(gradient, before)


def test_another_takes_over_all_that_is_known():
    memory, other = taught(quadratic(6), drawn(4, 6)), CurvatureMemory()
    other.restore(memory.state())
    gradient = drawn(1, 6, seed=2)[0]
    assert torch.equal(other.direction(gradient, ridge=1.0), memory.direction(gradient, ridge=1.0))
    other.learn(*drawn(2, 6, seed=3))
    assert len(memory) == 4
    other.restore(CurvatureMemory().state())
    assert len(other) == 0


def test_lengths_far_apart_are_no_trouble():
    curvature, steps, gradient = quadratic(6), drawn(4, 6), drawn(1, 6, seed=2)[0]
    plain = taught(curvature, steps).direction(gradient, ridge=0.0)
    for unit in np.logspace(-6, 6, 3):
        # In other units of the parameters the same step comes out, in those units.
        other = taught(curvature / unit**2, unit * steps).direction(gradient / unit, ridge=0.0)
        assert torch.allclose(other / unit, plain, rtol=1e-8)
