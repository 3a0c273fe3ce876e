"""The strength is chosen on held-out samples, and δ = 0 stays unless another δ is better by more than chance."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import nn
from torch.nn import functional as F

from calibrant.calibrators import TemperatureScaling
from calibrant.calibrators.base import assign_folds
from calibrant.clamping import ExactSolver, Objective, PerEntry, ZeroStart
from calibrant.clamping.fitting import FitRun, Journal, StrengthCrossValidation
from calibrant.clamping.inputs import InputPreparation
from calibrant.clamping.passes import Passes
from calibrant.errors import FitError, SeparableError
from calibrant.inference import LabelledInputs

D, K, N = 6, 4, 300
TIGHT = ExactSolver(tolerance=1e-8)


def network(unit=1.0):
    torch.manual_seed(0)
    made = nn.Sequential(nn.Linear(D, 16), nn.Tanh(), nn.Linear(16, K)).double().eval().requires_grad_(False)
    made[0].weight.div_(unit)
    made[2].weight.mul_(8)
    return made


def data(shift=0.5, n=N):
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(n, D, generator=generator, dtype=torch.float64)
    return inputs, torch.multinomial((network()(inputs + shift) / 0.5).softmax(1), 1, generator=generator)[:, 0]


def follower(
    rows=None, model=None, *, solver=None, folds=3, journal=None, progress=lambda _what, _passes: None, gamma=0.0
):
    nothing = torch.zeros(D, dtype=torch.float64)
    samples = LabelledInputs.of(data() if rows is None else rows)
    run = FitRun(
        Passes(model or network(), samples, preparation=InputPreparation(seed=7)),
        PerEntry().basis(nothing),
        TemperatureScaling(),
        nothing,
        solver or ExactSolver(),
        ZeroStart(),
        Objective(),
        {},
        journal or Journal(None, {}),
        progress,
    )
    return StrengthCrossValidation(run, gamma, folds=folds)


@pytest.fixture(scope="module")
def helpful():
    """What is chosen where a δ really helps."""
    return follower().choose()


def fitted_elsewhere(inputs, labels, strength):
    """δ and the inverse temperature by SciPy; for a strength of infinity the latter alone."""
    model = network()

    def value(numbers):
        leaf = torch.tensor(numbers, requires_grad=True)
        delta = leaf[:-1] if math.isfinite(strength) else 0 * leaf[:-1]
        whole = F.cross_entropy(model(inputs + delta) * leaf[-1], labels)
        if math.isfinite(strength):
            whole = whole + strength * delta.square().sum()
        (gradient,) = torch.autograd.grad(whole, leaf)
        return whole.item(), gradient.numpy()

    result = minimize(
        value, np.r_[np.zeros(D), 1.0], jac=True, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-9}
    )
    return torch.from_numpy(result.x[:-1]), float(result.x[-1])


def test_a_trial_is_what_cross_validation_by_hand_gives():
    strength, (inputs, labels) = 0.03, data()
    fold = assign_folds(len(labels), 3, seed=7)
    changes, norms = [], []
    for element in range(3):
        train, held_out = fold != element, fold == element
        losses = []
        for candidate in (strength, math.inf):
            delta, beta = fitted_elsewhere(inputs[train], labels[train], candidate)
            logits = beta * network()(inputs[held_out] + delta)
            losses.append(F.cross_entropy(logits, labels[held_out], reduction="none"))
            norms += [float(delta.norm())] if math.isfinite(candidate) else []
        changes.append(losses[0] - losses[1])
    change = torch.cat(changes)
    (trial,) = follower(solver=TIGHT).choose((strength,)).trials
    assert trial.strength == strength
    assert trial.change == pytest.approx(float(change.mean()), abs=2e-4)
    assert trial.standard_error == pytest.approx(float(change.std()) / N**0.5, rel=1e-2)
    assert trial.norm == pytest.approx(sum(norms) / 3, rel=1e-2)


def test_a_delta_that_really_helps_is_found_from_strong_to_weak(helpful):
    chosen = helpful
    strengths = [trial.strength for trial in chosen.trials]
    assert strengths == sorted(strengths, reverse=True)
    assert len(strengths) <= 13
    norms = [trial.norm for trial in chosen.trials]
    assert norms == sorted(norms)
    (best,) = [trial for trial in chosen.trials if trial.strength == chosen.strength]
    assert best.change + 2 * best.standard_error < 0
    assert best.change == pytest.approx(min(trial.change for trial in chosen.trials), abs=best.standard_error)
    # The start for the last fit is where the folds ended, so about as large.
    assert float(chosen.start.norm()) == pytest.approx(best.norm, rel=0.2)
    assert len(chosen.known) > 0


def test_the_first_strength_hardly_lets_delta_move(helpful):
    assert helpful.trials[0].norm < 0.05
    assert abs(helpful.trials[0].change) < 1e-3


def test_where_no_delta_helps_infinity_is_chosen_after_a_few_tries():
    chosen = follower(data(shift=0.0)).choose()
    assert math.isinf(chosen.strength)
    assert torch.equal(chosen.start, torch.zeros(D, dtype=torch.float64))
    assert 2 <= len(chosen.trials) < 13


def test_the_path_is_the_same_in_any_unit_of_the_inputs(helpful):
    unit, (inputs, labels) = 65535.0, data()
    scaled = follower((unit * inputs, labels), network(unit)).choose()
    assert len(scaled.trials) == len(helpful.trials)
    for one, other in zip(helpful.trials, scaled.trials, strict=True):
        assert other.strength * unit**2 == pytest.approx(one.strength, rel=1e-6)
        assert other.change == pytest.approx(one.change, abs=1e-4)
        assert other.norm / unit == pytest.approx(one.norm, rel=1e-2)


def test_candidates_may_be_given_in_any_order():
    chosen = follower().choose((0.01, 1.0, 0.1))
    assert [trial.strength for trial in chosen.trials] == [1.0, 0.1, 0.01]


def test_held_out_samples_are_evaluated_by_log_loss_whatever_the_objective():
    plain, focal = (follower(gamma=gamma, folds=2).choose((0.1,)).trials[0] for gamma in (0.0, 1.0))
    # Also the baseline is the head that the focal loss gives; both are evaluated alike.
    assert focal.change != plain.change
    assert focal.change < 0


def test_what_is_done_is_reported_with_a_growing_count_of_passes():
    message = []
    follower(progress=lambda what, passes: message.append((what, passes))).choose((1.0, 0.1))
    counts = [passes for _, passes in message]
    assert counts == sorted(counts)
    assert counts[-1] > 3
    text = [what for what, _ in message]
    assert text[:4] == ["cross-validation: δ = 0"] * 4
    assert set(text[4:]) == {"cross-validation: λ = 1", "cross-validation: λ = 0.1"}


def test_the_folds_share_one_forward_run_at_no_delta_and_begin_as_each_would_alone():
    model, ran = network(), []
    model.register_forward_pre_hook(lambda _module, inputs: ran.append((len(inputs[0]), torch.is_grad_enabled())))
    begun = follower(model=model)
    without, behind = (sum(rows for rows, has_gradient in ran if has_gradient == wanted) for wanted in (False, True))
    assert (without, behind) == (N, 2 * N)  # before: a run over all other samples for every fold, and over its own
    inputs, labels = data()
    for place, fold in enumerate(begun._folds):
        chosen = torch.nonzero(assign_folds(len(labels), 3, seed=7) != place).flatten()
        run = begun._run
        alone = run.descent(replace(run.passes, chosen=chosen), 0.0, run.zero_delta)
        alone.begin(Objective())
        assert torch.equal(alone.point.head.temperature, fold.descent.point.head.temperature)
        assert alone.initial_gradient_norm == fold.descent.initial_gradient_norm
        known = F.cross_entropy(fold.descent.point.head(network()(inputs)), labels, reduction="none")
        assert torch.allclose(fold.baseline, known[assign_folds(len(labels), 3, seed=7) == place])


class KilledError(Exception):
    pass


def test_strengths_that_are_done_are_not_done_again_after_a_kill(tmp_path):
    strengths = (1.0, 0.3, 0.1, 0.03)
    whole = follower().choose(strengths)

    def killing(what, _passes):
        if what == "cross-validation: λ = 0.1":
            raise KilledError

    with pytest.raises(KilledError):
        follower(journal=Journal(tmp_path, {}), progress=killing).choose(strengths)
    message = []
    again = follower(journal=Journal(tmp_path, {}), progress=lambda what, _passes: message.append(what)).choose(
        strengths
    )
    assert again.trials == whole.trials
    assert again.strength == whole.strength
    assert torch.equal(again.start, whole.start)
    assert "cross-validation: λ = 0.3" not in message
    assert "cross-validation: λ = 0.1" in message


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (SeparableError("no temperature is cold enough"), "δ makes (almost) every prediction right in its folds"),
        (FitError("the gradient must fall below 1e-8"), "to the end: the gradient must fall below 1e-8"),
    ],
)
def test_the_path_ends_where_a_head_has_no_optimum_and_says_for_which_reason(monkeypatch, error, text):
    running = follower()
    tried = running._trial

    def failing(number, strength):
        if number == 3:
            raise error
        return tried(number, strength)

    monkeypatch.setattr(running, "_trial", failing)
    chosen = running.choose()
    assert len(chosen.trials) == 3
    (note,) = chosen.notes
    assert text in note
    assert ("every prediction right" in note) == isinstance(error, SeparableError)
