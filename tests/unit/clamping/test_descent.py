"""The descent ends at the joint optimum of δ and head that another minimiser finds, and says how near it is."""

import numpy as np
import pytest
import torch
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
from calibrant.inference import CalibrationSamples
from calibrant.predictions import Predictions

D, K, N = 6, 4, 300
TIGHT = ExactSolver(tolerance=1e-7, max_passes=300)


def network():
    torch.manual_seed(0)
    made = nn.Sequential(nn.Linear(D, 16), nn.Tanh(), nn.Linear(16, K)).double().eval().requires_grad_(False)
    made[2].weight.mul_(8)
    return made


def data(n=N):
    """Labels of a network that was fed other inputs, and was surer."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(n, D, generator=generator, dtype=torch.float64)
    return inputs, torch.multinomial((network()(inputs + 0.5) / 0.5).softmax(1), 1, generator=generator)[:, 0]


def descent(head=None, gamma=0.0, *, start=None, delta_shape=None, known=None, rows=None):
    nothing = torch.zeros(D, dtype=torch.float64) if start is None else start
    basis = (delta_shape or PerEntry()).basis(nothing)
    passes = Passes(network(), CalibrationSamples.of(data() if rows is None else rows))
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
    found = minimize(both, begun, jac=True, method="L-BFGS-B", options={"maxiter": 5000, "ftol": 1e-16, "gtol": 1e-9})
    return found.fun, torch.from_numpy(found.x[:D])


@pytest.mark.parametrize(
    ("kind", "head"), [("none", Uncalibrated()), ("temperature", TemperatureScaling()), ("matrix", MatrixScaling())]
)
@pytest.mark.parametrize("strength", [0.03])
def test_it_ends_at_the_joint_optimum_of_delta_and_head(kind, head, strength):
    objective = Objective(strength=strength)
    lowest, known = joint_optimum(kind, objective)
    going = descent(head)
    ended = going.minimise(objective, TIGHT)
    assert ended.end == "near"
    assert ended.certificate.objective == pytest.approx(lowest, abs=2e-6)
    assert torch.allclose(going.delta, known, atol=5e-3)
    assert float(value(going.delta, going.here.head, objective)) == pytest.approx(ended.certificate.objective, abs=1e-6)


@pytest.mark.parametrize(
    "objective",
    [Objective(1.0, 0.02), Objective(0.5, 0.05), Objective(0.0, 0.03, "norm"), Objective(1.0, 0.01, "norm")],
)
def test_so_it_does_for_the_focal_loss_and_the_norm(objective):
    lowest, known = joint_optimum("temperature", objective)
    going = descent(gamma=objective.gamma)
    ended = going.minimise(objective, TIGHT)
    assert ended.certificate.objective == pytest.approx(lowest, abs=5e-6)
    assert torch.allclose(going.delta, known, atol=1e-2)


@pytest.mark.parametrize("head", [TemperatureScaling(), VectorScaling()])
def test_with_its_default_settings_it_is_near_the_optimum_in_few_passes(head):
    objective = Objective(strength=0.01)
    lowest, _ = joint_optimum(head.name, objective)
    begun = descent(head)
    begun.begin(objective)
    going = descent(head)
    ended = going.minimise(objective, ExactSolver())
    gap, gained = ended.certificate.objective - lowest, float(value(begun.delta, begun.here.head, objective)) - lowest
    assert gap < 0.01 * gained
    assert ended.certificate.passes <= 15


@pytest.mark.parametrize("head", [StructuredVectorScaling(), StructuredMatrixScaling()])
def test_behind_a_head_with_a_penalty_of_its_own_it_ends_at_an_optimum_of_all_that_is_minimised(head):
    objective, going = Objective(strength=0.05), descent(head)
    ended = going.minimise(objective, TIGHT)
    assert ended.end == "near"
    assert ended.certificate.passes < 40
    assert ended.certificate.gradient < 1e-3
    lowest = ended.certificate.objective

    def elsewhere(delta):
        fitted = head.fit(Predictions.from_logits(network()(data()[0] + delta), data()[1]))
        return fitted.summary.certificate.objective + 0.05 * float(delta.square().sum())

    assert elsewhere(going.delta) == pytest.approx(lowest, abs=1e-9)
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        assert elsewhere(going.delta + 0.05 * torch.randn(D, generator=generator, dtype=torch.float64)) > lowest


@pytest.mark.parametrize("gamma", [0.0, 1.0])
@pytest.mark.parametrize("solver", [ExactSolver(), TIGHT, ExactSolver(max_passes=4)], ids=["default", "tight", "short"])
def test_a_certificate_tells_the_gradient_of_what_is_returned(solver, gamma):
    objective, going = Objective(gamma, strength=0.05), descent(gamma=gamma)
    ended = going.minimise(objective, solver)
    leaf = going.delta.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(value(leaf, going.here.head, objective), leaf)
    assert ended.certificate.gradient == pytest.approx(float(gradient.abs().max()), rel=1e-3, abs=1e-7)
    assert ended.certificate.passes >= ended.certificate.steps
    assert ended.certificate.passes <= solver.max_passes


def test_a_tighter_tolerance_is_honoured():
    objective, gradients = Objective(strength=0.05), []
    begun = descent()
    begun.begin(objective)
    for tolerance in (1e-3, 1e-5, 1e-7, 1e-9, 1e-11):
        ended = descent().minimise(objective, ExactSolver(tolerance=tolerance, max_passes=300))
        assert ended.end == "near"
        gained = begun.here.value(objective) - ended.certificate.objective
        assert ended.promised <= tolerance * (gained + 1e-4 * begun.here.value(objective))
        gradients.append(ended.certificate.gradient)
    assert gradients == sorted(gradients, reverse=True)
    assert gradients[-1] < 1e-6


def test_the_stronger_the_penalty_the_smaller_delta_down_to_none():
    norms = []
    for strength in (0.01, 0.1, 1.0, 1e2, 1e4, 1e8):
        going = descent()
        going.minimise(Objective(strength=strength), TIGHT)
        norms.append(float(going.delta.norm()))
    assert norms == sorted(norms, reverse=True)
    assert norms[-1] < 1e-8
    assert float(going.here.head.temperature) == pytest.approx(temperature_scaling(), rel=1e-6)


def temperature_scaling():
    inputs, labels = data()
    return float(TemperatureScaling().fit(Predictions.from_logits(network()(inputs), labels)).temperature)


def test_a_norm_that_outweighs_every_gradient_keeps_delta_at_zero():
    going = descent()
    going.begin(Objective())
    objective = Objective(strength=1.1 * going.steepness, penalty="norm")
    ended = going.minimise(objective, ExactSolver())
    assert ended.end == "stuck"  # at the norm's own kink
    assert float(going.delta.norm()) < 1e-6


def test_going_from_strong_to_weak_ends_where_going_at_once_does():
    along, at_once = descent(), descent()
    for strength in (10.0, 1.0, 0.1):
        along.minimise(Objective(strength=strength), ExactSolver())
    ended = along.minimise(Objective(strength=0.02), TIGHT)
    direct = at_once.minimise(Objective(strength=0.02), TIGHT)
    assert ended.certificate.objective == pytest.approx(direct.certificate.objective, abs=1e-6)
    assert torch.allclose(along.delta, at_once.delta, atol=5e-3)


def test_another_start_ends_at_the_same_place():
    first, second = descent(), descent(start=torch.linspace(-0.5, 0.5, D, dtype=torch.float64))
    objective = Objective(strength=0.1)
    ends = [each.minimise(objective, TIGHT).certificate.objective for each in (first, second)]
    assert ends[0] == pytest.approx(ends[1], abs=1e-6)


def test_a_basis_of_fewer_numbers_keeps_delta_within_it():
    inputs = torch.randn(200, 2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, K)).double().requires_grad_(False)
    labels = torch.multinomial(model(inputs + 0.7).softmax(1), 1, generator=torch.Generator().manual_seed(1))[:, 0]
    nothing = torch.zeros(2, 3, dtype=torch.float64)
    passes = Passes(model, CalibrationSamples.of((inputs, labels)))
    going = Descent(passes, PerChannel().basis(nothing), HeadFit(TemperatureScaling(), 0.0), nothing)
    going.minimise(Objective(strength=0.01), TIGHT)
    assert going.coefficients.shape == (2,)
    assert torch.equal(going.delta, going.delta[:, :1].expand(2, 3))
    assert float(going.delta.norm()) > 0.1


def test_running_out_of_passes_is_told():
    ended = descent().minimise(Objective(strength=1e-3), ExactSolver(tolerance=1e-9, max_passes=4))
    assert ended.end == "out of passes"
    assert ended.certificate.passes <= 4
    assert ended.promised > 0


def test_every_step_goes_down_and_is_told():
    objective, going, values = Objective(strength=0.01), descent(), []
    going.begin(objective)
    going.minimise(
        objective, TIGHT, after_step=lambda: values.append(float(value(going.delta, going.here.head, objective)))
    )
    assert len(values) > 3
    assert values == sorted(values, reverse=True)


def test_what_another_learned_of_the_curvature_saves_passes():
    objective, first = Objective(strength=0.01), descent()
    first.minimise(objective, TIGHT)
    blind, knowing = descent(), descent(known=first.known_curvature())
    taken = [each.minimise(objective, ExactSolver(tolerance=1e-4)).certificate.passes for each in (blind, knowing)]
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
def test_after_a_kill_it_goes_on_to_the_last_bit(after):
    objective, solver = Objective(strength=0.01), ExactSolver(tolerance=1e-5)
    whole, second = descent(), descent()
    ended = whole.minimise(objective, solver)
    first, state = killed(None, after, objective, solver)
    second.restore(state)
    assert torch.equal(second.delta, first.delta)
    went_on = second.minimise(objective, solver)
    assert torch.equal(second.delta, whole.delta)
    assert went_on.certificate.objective == ended.certificate.objective
    assert went_on.certificate.steps == ended.certificate.steps - after
    assert second.passes_taken == whole.passes_taken
    assert second.steepness == whole.steepness


def test_with_another_head_it_looks_again_and_goes_on():
    objective, solver = Objective(strength=0.01), ExactSolver(tolerance=1e-5)
    whole, second = descent(VectorScaling()), descent(VectorScaling())
    ended = whole.minimise(objective, solver)
    _, state = killed(VectorScaling(), 3, objective, solver)
    second.restore(state)
    went_on = second.minimise(objective, solver)
    assert went_on.certificate.passes < ended.certificate.passes
    assert torch.allclose(second.delta, whole.delta, atol=1e-6)


def test_at_its_end_it_stays_there_when_it_is_taken_up_again():
    objective, solver = Objective(strength=0.01), ExactSolver(tolerance=1e-4)
    first = descent()
    first.minimise(objective, solver)
    again = descent()
    again.restore(first.state())
    ended = again.minimise(objective, solver)
    assert ended.certificate.steps == 0
    assert torch.equal(again.delta, first.delta)


@pytest.mark.parametrize("head", [Uncalibrated(), TemperatureScaling()])
def test_no_step_goes_where_logits_are_no_longer_finite(head):
    class Explodes(nn.Module):
        def forward(self, inputs):
            return inputs[:, :K] + torch.where(inputs[:, :K] > 1.5, torch.inf, 0.0)

    inputs = 2 * torch.rand(200, D, generator=torch.Generator().manual_seed(0)).double() - 1
    labels = torch.where(torch.arange(200) % 3 == 0, torch.arange(200) % K, 0)
    passes = Passes(Explodes(), CalibrationSamples.of((inputs, labels)))
    nothing = torch.zeros(D, dtype=torch.float64)
    going = Descent(passes, PerEntry().basis(nothing), HeadFit(head, 0.0), nothing)
    ended = going.minimise(Objective(strength=1e-3), ExactSolver())
    assert Explodes()(inputs + going.delta).isfinite().all()
    assert ended.certificate.steps > 0
    assert float(going.delta.max()) > 0.1


def test_logits_that_are_not_finite_to_begin_with_are_refused():
    inputs, labels = data()
    broken = nn.Sequential(network(), nn.Threshold(-1e9, 0.0))
    broken[0][2].bias[1] = torch.inf
    nothing = torch.zeros(D, dtype=torch.float64)
    going = Descent(
        Passes(broken, CalibrationSamples.of((inputs, labels))),
        PerEntry().basis(nothing),
        HeadFit(TemperatureScaling(), 0.0),
        nothing,
    )
    with pytest.raises(InputError, match="logits must be finite; got NaN or infinity for row 0"):
        going.begin(Objective())


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"tolerance": 0.0}, "tolerance must be above 0"),
        ({"tolerance": float("nan")}, "tolerance must be above 0"),
        ({"max_passes": 1}, "max_passes must be at least 2"),
        ({"max_passes": 2.5}, "max_passes must be a whole number"),
        ({"precision": "half"}, "precision must be one of"),
    ],
)
def test_options_out_of_range_are_refused(options, told):
    with pytest.raises(InputError, match=told):
        ExactSolver(**options)
