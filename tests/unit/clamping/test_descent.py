"""The descent ends at the joint optimum of δ and head that another minimiser finds, and says how near it is."""

import copy

import numpy as np
import pytest
import torch
from made_networks import tanh_network
from scipy.optimize import minimize
from torch import nn
from torch.nn import functional as F

from calibrant.calibrators import (
    MatrixScaling,
    StructuredMatrixScaling,
    StructuredVectorScaling,
    TemperatureScaling,
    Uncalibrated,
    VectorScaling,
)
from calibrant.clamping import ExactSolver, HeadFit, Objective, PerChannel, PerEntry
from calibrant.clamping.passes import Passes
from calibrant.clamping.solver import Descent
from calibrant.errors import InputError
from calibrant.inference import LabelledInputs
from calibrant.predictions import Predictions

D, K, N = 6, 4, 300
TIGHT = ExactSolver(tolerance=1e-7, max_passes=300)


def network():
    return tanh_network().requires_grad_(False)


def data(n=N):
    """Labels of a network that was fed other inputs, and was surer."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(n, D, generator=generator, dtype=torch.float64)
    return inputs, torch.multinomial((network()(inputs + 0.5) / 0.5).softmax(1), 1, generator=generator)[:, 0]


def descent(head=None, gamma=0.0, *, start=None, delta_shape=None, known=None, samples=None):
    nothing = torch.zeros(D, dtype=torch.float64) if start is None else start
    basis = (delta_shape or PerEntry()).basis(nothing)
    passes = Passes(network(), LabelledInputs.of(data() if samples is None else samples))
    return Descent(passes, basis, HeadFit(head or TemperatureScaling(), gamma), nothing, known=known)


def value(delta, head, objective):
    """The objective, written anew."""
    inputs, labels = data()
    losses = F.cross_entropy(head(network()(inputs + delta)), labels, reduction="none")
    losses = (1 - (-losses).exp()) ** objective.gamma * losses if objective.gamma else losses
    norm = delta.norm()
    return losses.mean() + objective.strength * (norm if objective.penalty == "norm" else norm**2)


def joint_optimum(kind, objective):
    """Over δ and the head's numbers at once, by L-BFGS-B of SciPy."""
    model, (inputs, labels) = network(), data()
    starts = {
        "temperature": [1.0],
        "vector": [1.0] * K + [0.0] * K,
        "matrix": [*np.eye(K).ravel(), *[0.0] * K],
        "none": [],
    }

    def both(values):
        leaf = torch.tensor(values, requires_grad=True)
        delta, rest = leaf[:D], leaf[D:]
        logits = model(inputs + delta)
        if kind == "temperature":
            logits = logits * rest
        elif kind == "vector":
            logits = logits * rest[:K] + rest[K:]
        elif kind == "matrix":
            logits = logits @ rest[: K * K].reshape(K, K).T + rest[K * K :]
        losses = F.cross_entropy(logits, labels, reduction="none")
        if objective.gamma:
            losses = (-torch.expm1(-losses)) ** objective.gamma * losses
        size = delta.square().sum()
        whole = losses.mean() + objective.strength * (size if objective.penalty == "squared" else (size + 1e-30).sqrt())
        (gradient,) = torch.autograd.grad(whole, leaf)
        return whole.item(), gradient.numpy()

    begun = np.r_[np.full(D, 0.05), starts[kind]]
    result = minimize(both, begun, jac=True, method="L-BFGS-B", options={"maxiter": 5000, "ftol": 1e-16, "gtol": 1e-9})
    return result.fun, torch.from_numpy(result.x[:D])


@pytest.mark.parametrize(
    ("kind", "head"), [("none", Uncalibrated()), ("temperature", TemperatureScaling()), ("matrix", MatrixScaling())]
)
@pytest.mark.parametrize("strength", [0.03])
def test_it_ends_at_the_joint_optimum_of_delta_and_head(kind, head, strength):
    objective = Objective(strength=strength)
    lowest, known = joint_optimum(kind, objective)
    running = descent(head)
    minimum = running.minimise(objective, TIGHT)
    assert minimum.end == "near"
    assert minimum.certificate.objective == pytest.approx(lowest, abs=2e-6)
    assert torch.allclose(running.delta, known, atol=5e-3)
    assert float(value(running.delta, running.point.head, objective)) == pytest.approx(
        minimum.certificate.objective, abs=1e-6
    )


@pytest.mark.parametrize(
    "objective",
    [Objective(1.0, 0.02), Objective(0.5, 0.05), Objective(0.0, 0.03, "norm"), Objective(1.0, 0.01, "norm")],
)
def test_so_it_does_for_the_focal_loss_and_the_norm(objective):
    lowest, known = joint_optimum("temperature", objective)
    running = descent(gamma=objective.gamma)
    minimum = running.minimise(objective, TIGHT)
    assert minimum.certificate.objective == pytest.approx(lowest, abs=5e-6)
    assert torch.allclose(running.delta, known, atol=1e-2)


@pytest.mark.parametrize("head", [TemperatureScaling(), VectorScaling()])
def test_with_its_default_settings_it_is_near_the_optimum_in_few_passes(head):
    objective = Objective(strength=0.01)
    lowest, _ = joint_optimum(head.name, objective)
    begun = descent(head)
    begun.begin(objective)
    running = descent(head)
    minimum = running.minimise(objective, ExactSolver())
    gap, gained = (
        minimum.certificate.objective - lowest,
        float(value(begun.delta, begun.point.head, objective)) - lowest,
    )
    assert gap < 0.01 * gained
    assert minimum.certificate.passes <= 15


@pytest.mark.parametrize("head", [StructuredVectorScaling(), StructuredMatrixScaling()])
def test_behind_a_head_with_a_penalty_of_its_own_it_ends_at_an_optimum_of_all_that_is_minimised(head):
    objective, running = Objective(strength=0.05), descent(head)
    minimum = running.minimise(objective, TIGHT)
    assert minimum.end == "near"
    assert minimum.certificate.passes < 40
    assert minimum.certificate.gradient < 1e-3
    lowest = minimum.certificate.objective

    def elsewhere(delta):
        fitted = head.fit(Predictions.from_logits(network()(data()[0] + delta), data()[1]))
        return fitted.summary.certificate.objective + 0.05 * float(delta.square().sum())

    assert elsewhere(running.delta) == pytest.approx(lowest, abs=1e-9)
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        assert elsewhere(running.delta + 0.05 * torch.randn(D, generator=generator, dtype=torch.float64)) > lowest


@pytest.mark.parametrize("gamma", [0.0, 1.0])
@pytest.mark.parametrize("solver", [ExactSolver(), TIGHT, ExactSolver(max_passes=4)], ids=["default", "tight", "short"])
def test_a_certificate_gives_the_gradient_of_what_is_returned(solver, gamma):
    objective, running = Objective(gamma, strength=0.05), descent(gamma=gamma)
    minimum = running.minimise(objective, solver)
    leaf = running.delta.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(value(leaf, running.point.head, objective), leaf)
    assert minimum.certificate.gradient == pytest.approx(float(gradient.abs().max()), rel=1e-3, abs=1e-7)
    assert minimum.certificate.passes >= minimum.certificate.steps
    assert minimum.certificate.passes <= solver.max_passes


def test_a_tighter_tolerance_is_honoured():
    objective, gradients = Objective(strength=0.05), []
    begun = descent()
    begun.begin(objective)
    for tolerance in (1e-3, 1e-5, 1e-7, 1e-9, 1e-11):
        minimum = descent().minimise(objective, ExactSolver(tolerance=tolerance, max_passes=300))
        assert minimum.end == "near"
        gained = begun.point.value(objective) - minimum.certificate.objective
        assert minimum.predicted_decrease <= tolerance * (gained + 1e-4 * begun.point.value(objective))
        gradients.append(minimum.certificate.gradient)
    assert gradients == sorted(gradients, reverse=True)
    assert gradients[-1] < 1e-6


def test_the_stronger_the_penalty_the_smaller_delta_down_to_none():
    norms = []
    for strength in (0.01, 0.1, 1.0, 1e2, 1e4, 1e8):
        running = descent()
        running.minimise(Objective(strength=strength), TIGHT)
        norms.append(float(running.delta.norm()))
    assert norms == sorted(norms, reverse=True)
    assert norms[-1] < 1e-8
    assert float(running.point.head.temperature) == pytest.approx(temperature_scaling(), rel=1e-6)


def temperature_scaling():
    inputs, labels = data()
    return float(TemperatureScaling().fit(Predictions.from_logits(network()(inputs), labels)).temperature)


def test_a_norm_that_outweighs_every_gradient_keeps_delta_at_zero():
    running = descent()
    running.begin(Objective())
    objective = Objective(strength=1.1 * running.initial_gradient_norm, penalty="norm")
    minimum = running.minimise(objective, ExactSolver())
    assert minimum.end == "stuck"  # at the norm's own kink
    assert float(running.delta.norm()) < 1e-6


def test_going_from_strong_to_weak_ends_where_going_at_once_does():
    along, at_once = descent(), descent()
    for strength in (10.0, 1.0, 0.1):
        along.minimise(Objective(strength=strength), ExactSolver())
    minimum = along.minimise(Objective(strength=0.02), TIGHT)
    direct = at_once.minimise(Objective(strength=0.02), TIGHT)
    assert minimum.certificate.objective == pytest.approx(direct.certificate.objective, abs=1e-6)
    assert torch.allclose(along.delta, at_once.delta, atol=5e-3)


def test_another_start_ends_at_the_same_place():
    first, second = descent(), descent(start=torch.linspace(-0.5, 0.5, D, dtype=torch.float64))
    objective = Objective(strength=0.1)
    ends = [element.minimise(objective, TIGHT).certificate.objective for element in (first, second)]
    assert ends[0] == pytest.approx(ends[1], abs=1e-6)


def test_a_basis_of_fewer_numbers_keeps_delta_within_it():
    inputs = torch.randn(200, 2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, K)).double().requires_grad_(False)
    labels = torch.multinomial(model(inputs + 0.7).softmax(1), 1, generator=torch.Generator().manual_seed(1))[:, 0]
    nothing = torch.zeros(2, 3, dtype=torch.float64)
    passes = Passes(model, LabelledInputs.of((inputs, labels)))
    running = Descent(passes, PerChannel().basis(nothing), HeadFit(TemperatureScaling(), 0.0), nothing)
    running.minimise(Objective(strength=0.01), TIGHT)
    assert running.coefficients.shape == (2,)
    assert torch.equal(running.delta, running.delta[:, :1].expand(2, 3))
    assert float(running.delta.norm()) > 0.1


def test_running_out_of_passes_is_reported():
    minimum = descent().minimise(Objective(strength=1e-3), ExactSolver(tolerance=1e-9, max_passes=4))
    assert minimum.end == "out of passes"
    assert minimum.certificate.passes <= 4
    assert minimum.predicted_decrease > 0


def test_every_step_goes_down_and_is_reported():
    objective, running, values = Objective(strength=0.01), descent(), []
    running.begin(objective)
    running.minimise(
        objective, TIGHT, after_step=lambda: values.append(float(value(running.delta, running.point.head, objective)))
    )
    assert len(values) > 3
    assert values == sorted(values, reverse=True)


def test_what_another_learned_of_the_curvature_saves_passes():
    objective, first = Objective(strength=0.01), descent()
    first.minimise(objective, TIGHT)
    blind, knowing = descent(), descent(known=copy.deepcopy(first.memory))
    taken = [
        element.minimise(objective, ExactSolver(tolerance=1e-4)).certificate.passes for element in (blind, knowing)
    ]
    assert taken[1] < taken[0]


class KilledError(Exception):
    pass


def killed(head, after, objective, solver):
    """A descent that ended after some steps, and its state there as a file would keep it."""
    first, states = descent(head), []

    def after_step():
        states.append({name: tensor.clone() for name, tensor in first.state().items()})
        if len(states) == after:
            raise KilledError

    with pytest.raises(KilledError):
        first.minimise(objective, solver, after_step=after_step)
    return first, states[-1]


@pytest.mark.parametrize("after", [1, 3, 9])
def test_after_a_kill_it_resumes_to_the_last_bit(after):
    objective, solver = Objective(strength=0.01), ExactSolver(tolerance=1e-5)
    whole, second = descent(), descent()
    minimum = whole.minimise(objective, solver)
    first, state = killed(None, after, objective, solver)
    second.restore(state)
    assert torch.equal(second.delta, first.delta)
    resumed = second.minimise(objective, solver)
    assert torch.equal(second.delta, whole.delta)
    assert resumed.certificate.objective == minimum.certificate.objective
    assert resumed.certificate.steps == minimum.certificate.steps - after
    assert second.passes_taken == whole.passes_taken
    assert second.initial_gradient_norm == whole.initial_gradient_norm


def test_with_another_head_it_evaluates_again_and_continues():
    objective, solver = Objective(strength=0.01), ExactSolver(tolerance=1e-5)
    whole, second = descent(VectorScaling()), descent(VectorScaling())
    minimum = whole.minimise(objective, solver)
    _, state = killed(VectorScaling(), 3, objective, solver)
    second.restore(state)
    resumed = second.minimise(objective, solver)
    assert resumed.certificate.passes < minimum.certificate.passes
    assert torch.allclose(second.delta, whole.delta, atol=1e-6)


def test_at_its_end_it_stays_there_when_it_is_taken_up_again():
    objective, solver = Objective(strength=0.01), ExactSolver(tolerance=1e-4)
    first = descent()
    first.minimise(objective, solver)
    again = descent()
    again.restore(first.state())
    minimum = again.minimise(objective, solver)
    assert minimum.certificate.steps == 0
    assert torch.equal(again.delta, first.delta)


@pytest.mark.parametrize("head", [Uncalibrated(), TemperatureScaling()])
def test_no_step_goes_where_logits_are_no_longer_finite(head):
    class Explodes(nn.Module):
        def forward(self, inputs):
            return inputs[:, :K] + torch.where(inputs[:, :K] > 1.5, torch.inf, 0.0)

    inputs = 2 * torch.rand(200, D, generator=torch.Generator().manual_seed(0)).double() - 1
    labels = torch.where(torch.arange(200) % 3 == 0, torch.arange(200) % K, 0)
    passes = Passes(Explodes(), LabelledInputs.of((inputs, labels)))
    nothing = torch.zeros(D, dtype=torch.float64)
    running = Descent(passes, PerEntry().basis(nothing), HeadFit(head, 0.0), nothing)
    minimum = running.minimise(Objective(strength=1e-3), ExactSolver())
    assert Explodes()(inputs + running.delta).isfinite().all()
    assert minimum.certificate.steps > 0
    assert float(running.delta.max()) > 0.1


def test_logits_that_are_not_finite_to_begin_with_are_refused():
    inputs, labels = data()
    broken = nn.Sequential(network(), nn.Threshold(-1e9, 0.0))
    broken[0][2].bias[1] = torch.inf
    nothing = torch.zeros(D, dtype=torch.float64)
    running = Descent(
        Passes(broken, LabelledInputs.of((inputs, labels))),
        PerEntry().basis(nothing),
        HeadFit(TemperatureScaling(), 0.0),
        nothing,
    )
    with pytest.raises(InputError, match="logits must be finite; got NaN or infinity for row 0"):
        running.begin(Objective())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tolerance": 0.0}, "tolerance must be above 0"),
        ({"tolerance": float("nan")}, "tolerance must be above 0"),
        ({"max_passes": 1}, "max_passes must be at least 2"),
        ({"max_passes": 2.5}, "max_passes must be a whole number"),
        ({"precision": "half"}, "precision must be one of"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        ExactSolver(**options)
