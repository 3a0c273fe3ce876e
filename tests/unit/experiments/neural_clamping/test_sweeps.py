"""Many fits: each is the one that would be made by hand, and no pass is made that need not be."""

import math

import pytest
import torch
from experiments.neural_clamping.figures import plot_start_spread
from experiments.neural_clamping.sweeps import gamma_sweep, start_spread
from torch import nn

from calibrant.calibrators import TemperatureScaling, VectorScaling
from calibrant.clamping import DataDrivenStart, InputSpace, NeuralClamping, RandomStart, StochasticSolver, ZeroStart
from calibrant.errors import InputError, UnknownNameError
from calibrant.metrics import accuracy, ece, entropy, nll, sce
from calibrant.predictions import Predictions


class Counting(nn.Module):
    """Remembers how many rows came through."""

    def __init__(self, model):
        super().__init__()
        self.model, self.rows = model, 0

    def forward(self, inputs):
        self.rows += len(inputs)
        return self.model(inputs)


@pytest.fixture(scope="module")
def case():
    torch.manual_seed(0)
    model = nn.Linear(5, 3).double().eval()

    def rows(seed):
        chance = torch.Generator().manual_seed(seed)
        inputs = torch.rand(300, 5, generator=chance, dtype=torch.float64)
        with torch.no_grad():
            truth = (model(inputs + 0.4) * 2).softmax(1)
        return inputs, torch.multinomial(truth, 1, generator=chance)[:, 0]

    return model, rows(1), rows(2)


def test_every_gamma_is_the_fit_made_by_hand(case):
    model, calibration, (inputs, labels) = case
    sweep = gamma_sweep(NeuralClamping(strength=0.01), *case, gammas=(1.0, 0.0), resamples=50)
    assert sweep.gamma.tolist() == [0.0, 1.0]
    assert (sweep.n, sweep.n_calibration) == (300, 300)
    for place, gamma in enumerate((0.0, 1.0)):
        clamped = NeuralClamping(strength=0.01, gamma=gamma).fit(model, calibration)
        judged, fitted = (Predictions.from_logits(clamped(x).detach(), y) for x, y in ((inputs, labels), calibration))
        for values, known in (
            (sweep.ece, ece(judged)),
            (sweep.entropy, entropy(judged)),
            (sweep.nll, nll(judged)),
            (sweep.accuracy, accuracy(judged)),
            (sweep.calibration_ece, ece(fitted)),
            (sweep.objective, clamped.summary.certificate.objective),
            (sweep.temperature, clamped.temperature),
            (sweep.norm, float(clamped.delta.norm())),
            (sweep.strength, 0.01),
        ):
            assert float(values[place]) == pytest.approx(known, rel=1e-6)
        assert sweep.ece_low[place] <= sweep.ece[place] <= sweep.ece_high[place] + sweep.ece_floor[place]
    assert sweep.chosen == int(sweep.calibration_ece.argmin())


def test_with_the_head_alone_the_network_runs_once_over_each_set(case, monkeypatch):
    # Without the first look at the network, which takes runs of its own.
    monkeypatch.setattr("calibrant.clamping.evaluation.check_network", lambda *_: None)
    model, calibration, test = case
    counting = Counting(model).eval()
    sweep = gamma_sweep(
        NeuralClamping(strength=math.inf), counting, calibration, test, gammas=(0, 0.5, 1), resamples=20
    )
    assert counting.rows == 300 + 300
    with torch.no_grad():
        fitted = Predictions.from_logits(model(calibration[0]), calibration[1])
    for gamma, temperature in zip((0, 0.5, 1), sweep.temperature.tolist(), strict=True):
        assert temperature == pytest.approx(float(TemperatureScaling("focal", gamma).fit(fitted).temperature), rel=1e-6)
    assert sweep.norm.tolist() == [0, 0, 0]
    assert torch.isinf(sweep.strength).all()
    assert torch.isfinite(sweep.objective).all()


def test_a_cross_validated_strength_is_chosen_once_and_then_the_same_for_all(case):
    told = []
    method = NeuralClamping(strength=(0.3, 0.003), folds=2)
    sweep = gamma_sweep(method, *case, gammas=(0, 1), resamples=20, progress=lambda what, _: told.append(what))
    chosen = method.fit(case[0], case[1]).summary.strength
    assert sweep.strength.tolist() == [chosen, chosen]
    assert any(what.startswith("γ = 1: ") for what in told)


def test_the_paper_s_protocol_can_be_swept(case):
    method = NeuralClamping(
        solver=StochasticSolver(epochs=3), strength=(0.1, 1.0), choose_by="calibration-ece", start=RandomStart()
    )
    sweep = gamma_sweep(method, *case, gammas=(0, 1), resamples=20)
    assert set(sweep.strength.tolist()) <= {0.1, 1.0}
    assert (sweep.norm > 0).all()


def test_a_sweep_without_gammas_or_temperature_is_refused(case):
    with pytest.raises(InputError, match="at least one γ"):
        gamma_sweep(NeuralClamping(strength=1.0), *case, gammas=())
    with pytest.raises(InputError, match="only a temperature"):
        gamma_sweep(NeuralClamping(strength=1.0, head=VectorScaling()), *case)
    with pytest.raises(InputError, match="gamma must be at least 0"):
        gamma_sweep(NeuralClamping(strength=1.0), *case, gammas=(-1,))


def test_from_any_small_start_the_exact_solver_has_one_answer(case):
    starts = {"random": RandomStart(scale=0.02), "zero": ZeroStart()}
    spread = start_spread(NeuralClamping(strength=0.1), *case, seeds=range(3), starts=starts)
    assert spread.starts == ("random", "zero")
    assert spread.seeds == (0, 1, 2)
    assert float(spread.values["nll"].max() - spread.values["nll"].min()) < 2e-3
    assert float(spread.temperature.max() / spread.temperature.min()) < 1.05
    assert spread.spread("nll")[0] > 0
    assert spread.spread("nll")[1] == 0


def test_every_start_is_the_fit_made_by_hand(case):
    model, calibration, (inputs, labels) = case
    start = RandomStart(scale=0.2)
    method = NeuralClamping(solver=StochasticSolver(epochs=3), strength=0.1)
    spread = start_spread(method, *case, seeds=(3, 4), starts={"wide": start})
    for place, seed in enumerate((3, 4)):
        by_hand = NeuralClamping(solver=StochasticSolver(epochs=3), strength=0.1, start=start, seed=seed)
        judged = Predictions.from_logits(by_hand.fit(model, calibration)(inputs).detach(), labels)
        for name, known in (("ece", ece(judged)), ("sce", sce(judged)), ("entropy", entropy(judged))):
            assert float(spread.values[name][0, place]) == pytest.approx(known, rel=1e-6)
    assert spread.spread("nll")[0] > 0


def test_a_start_that_draws_nothing_is_fitted_once_by_the_exact_solver(case):
    told = []
    starts = {"random": RandomStart(), "data-driven": DataDrivenStart(eta="epsilon")}
    method = NeuralClamping(strength=0.1, space=InputSpace())
    spread = start_spread(method, *case, seeds=(0, 1), starts=starts, progress=lambda what, _: told.append(what))
    begun = {what.split(":")[0] for what in told}
    assert begun == {"random start, seed 0", "random start, seed 1", "data-driven start, seed 0"}
    assert spread.spread("ece")[1] == 0


def test_a_stochastic_solver_draws_whatever_the_start_is(case):
    method = NeuralClamping(solver=StochasticSolver(epochs=2, batch_size=50), strength=0.1)
    spread = start_spread(method, *case, seeds=(0, 1), starts={"zero": ZeroStart()})
    assert spread.spread("nll")[0] > 0


def test_the_paper_s_starts_need_a_space(case):
    with pytest.raises(InputError, match="space must give the range"):
        start_spread(NeuralClamping(strength=0.1), *case, seeds=(0,))


def test_a_spread_of_nothing_is_refused(case):
    with pytest.raises(InputError, match="at least one each; got 0 and 5"):
        start_spread(NeuralClamping(strength=0.1), *case, starts={})
    with pytest.raises(InputError, match="at least one each; got 2 and 0"):
        start_spread(NeuralClamping(strength=0.1), *case, seeds=())


def test_one_seed_has_no_spread_and_an_unknown_metric_is_named(case):
    spread = start_spread(NeuralClamping(strength=0.1), *case, seeds=(0,), starts={"zero": ZeroStart()})
    assert spread.spread("ece").isnan().all()
    with pytest.raises(UnknownNameError, match="'mce'"):
        plot_start_spread(spread, metrics=("mce",))
