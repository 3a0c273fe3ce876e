"""Neural Clamping recovers a known truth, keeps its limits, and returns δ = 0 where δ does not help."""

import copy
import dataclasses
import json
import math
import warnings

import numpy as np
import pytest
import torch
from made_networks import tanh_network as network
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

from calibrant.calibrators import (
    EnsembleTemperatureScaling,
    StructuredVectorScaling,
    TemperatureScaling,
    Uncalibrated,
    VectorScaling,
)
from calibrant.clamping import (
    GAMMA_POOL,
    ExactSolver,
    InputSpace,
    LowFrequencies,
    NeuralClamping,
    PerChannel,
    RandomStart,
    StochasticSolver,
    ZeroStart,
    load_clamped,
    save_clamped,
)
from calibrant.datasets import load_digits
from calibrant.errors import CalibrantWarning, InputError
from calibrant.inference import LabelledInputs
from calibrant.metrics import ece
from calibrant.models import DigitsCNN
from calibrant.predictions import Predictions

D, K = 6, 4
TIGHT = ExactSolver(tolerance=1e-8, max_passes=300)
BRIEF = {ExactSolver: {"max_passes": 30}, StochasticSolver: {"epochs": 1}}
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")


@torch.no_grad()
def data(n=600, *, shift=0.5, temperature=0.5, seed=1, model=None, shape=(D,)):
    """Labels drawn from softmax(f(x + shift) / T)."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(n, *shape, generator=generator, dtype=torch.float64)
    probs = ((model or network())(inputs + shift) / temperature).softmax(1)
    return inputs, torch.multinomial(probs, 1, generator=generator)[:, 0]


@torch.no_grad()
def nll(clamped, samples):
    return float(F.cross_entropy(clamped(samples[0]), samples[1]))


@torch.no_grad()
def scaled(samples, model=None):
    """Temperature scaling of the same network on the same samples."""
    return TemperatureScaling().fit(Predictions.from_logits((model or network())(samples[0]), samples[1]))


class TestLimits:
    def test_without_delta_and_head_it_is_the_network_itself(self):
        samples = data()
        clamped = NeuralClamping(head=Uncalibrated(), strength=math.inf).fit(network(), samples)
        assert torch.equal(clamped(samples[0]), network()(samples[0]))

    def test_infinite_strength_is_temperature_scaling(self):
        samples = data()
        clamped = NeuralClamping(strength=math.inf).fit(network(), samples)
        assert clamped.temperature == pytest.approx(float(scaled(samples).temperature), rel=1e-6)
        assert not clamped.delta.any()
        assert torch.equal(clamped(samples[0]), clamped.head(network()(samples[0])))
        assert math.isinf(clamped.summary.strength)
        assert clamped.summary.certificate is None

    def test_so_it_is_for_the_focal_loss(self):
        samples = data()
        clamped = NeuralClamping(strength=math.inf, gamma=1.0).fit(network(), samples)
        with torch.no_grad():
            logits = network()(samples[0])
        known = TemperatureScaling(criterion="focal", gamma=1.0).fit(Predictions.from_logits(logits, samples[1]))
        assert clamped.temperature == pytest.approx(float(known.temperature), rel=1e-6)

    def test_as_the_strength_grows_delta_vanishes_and_the_temperature_becomes_that_of_scaling(self):
        samples = data()
        fits = [NeuralClamping(strength=strength).fit(network(), samples) for strength in (1.0, 1e3, 1e8)]
        norms = [float(clamped.delta.norm()) for clamped in fits]
        gaps = [abs(clamped.temperature - float(scaled(samples).temperature)) for clamped in fits]
        assert norms == sorted(norms, reverse=True)
        assert gaps == sorted(gaps, reverse=True)
        assert norms[-1] < 1e-8
        assert gaps[-1] < 1e-6

    def test_as_gamma_goes_to_zero_the_focal_variant_becomes_that_of_the_cross_entropy(self):
        samples = data()
        plain, focal, hardly = (
            NeuralClamping(strength=0.2, gamma=gamma, solver=TIGHT).fit(network(), samples)
            for gamma in (0.0, 1.0, 1e-7)
        )
        assert abs(focal.temperature - plain.temperature) > 0.05
        assert hardly.temperature == pytest.approx(plain.temperature, rel=1e-5)
        assert torch.allclose(hardly.delta, plain.delta, atol=1e-4)


class TestKnownTruth:
    def test_a_shift_of_the_inputs_and_a_temperature_are_recovered(self):
        samples, others = data(1500), data(4000, seed=2)
        clamped = NeuralClamping(folds=3).fit(network(), samples)
        assert 0 < clamped.summary.strength < math.inf
        assert clamped.temperature == pytest.approx(0.5, rel=0.15)
        assert float(F.cosine_similarity(clamped.delta, torch.full((D,), 0.5).double(), dim=0)) > 0.85
        with torch.no_grad():
            alone = float(F.cross_entropy(scaled(samples)(network()(others[0])), others[1]))
            best = float(F.cross_entropy(network()(others[0] + 0.5) / 0.5, others[1]))
        assert nll(clamped, others) < alone - 0.8 * (alone - best)
        assert clamped.summary.outcome_note.startswith("δ helps: at λ = ")

    def test_of_a_linear_network_the_shift_of_the_logits_is_recovered(self):
        torch.manual_seed(3)
        linear = nn.Linear(D, K).double().eval()
        samples = data(4000, model=linear, shift=torch.linspace(-1.5, 1.5, D).double())
        clamped = NeuralClamping(strength=(0.1, 0.003), folds=2).fit(linear, samples)
        assert clamped.temperature == pytest.approx(0.5, rel=0.15)
        result, known = (
            linear.weight.detach() @ item for item in (clamped.delta, torch.linspace(-1.5, 1.5, D).double())
        )
        # A shift that all logits share is of no consequence.
        assert torch.allclose(result - result.mean(), known - known.mean(), atol=0.15)

    def test_where_the_truth_is_a_temperature_alone_the_result_is_delta_zero_and_warns(self):
        torch.manual_seed(3)
        linear = nn.Linear(D, K).double().eval()
        linear.weight.data.mul_(3)
        answers = []
        # With five folds, one of the seeds 0 to 99 finds a δ by chance; of another network's 60, three did.
        for seed in range(10):
            samples = data(400, shift=0.0, temperature=2.0, seed=seed, model=linear)
            clamped = NeuralClamping(folds=3).fit(linear, samples)
            answers.append(math.isinf(clamped.summary.strength))
            if answers[-1]:
                assert not clamped.delta.any()
                assert clamped.summary.outcome_note.startswith("δ does not help here: of ")
                assert clamped.summary.outcome_note.endswith("The result is δ = 0, the head alone.")
                assert clamped.temperature == pytest.approx(float(scaled(samples, linear).temperature), rel=1e-6)
                assert clamped.summary.trials
        assert sum(answers) >= 9

    def test_a_shift_of_whole_channels_is_found_with_few_numbers(self):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(2, 6, 3), nn.Tanh(), nn.Flatten(), nn.Linear(24, K)).double().eval()
        model[3].weight.data.mul_(4)
        shift = torch.tensor([0.6, -0.4], dtype=torch.float64).reshape(2, 1, 1)
        samples = data(1500, model=model, shape=(2, 4, 4), shift=shift, temperature=0.5)
        for freedom in (PerChannel(), LowFrequencies(1)):
            clamped = NeuralClamping(delta_shape=freedom, strength=1e-4).fit(model, samples)
            assert torch.allclose(clamped.delta, shift.expand(2, 4, 4), atol=0.1)
            assert clamped.delta.flatten(1).std(dim=1).max() < 1e-12


class Items(Dataset):
    def __init__(self, inputs, labels):
        self.inputs, self.labels = inputs, labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, row):
        return self.inputs[row], int(self.labels[row])


def test_the_result_is_the_same_for_any_kind_of_data_and_any_batch_size():
    samples = data(200)
    forms = [
        (samples, None),
        (samples, 7),
        (samples, 200),
        ((samples[0].numpy(), samples[1].tolist()), 64),
        (TensorDataset(*samples), None),
        (Items(*samples), 50),
        (DataLoader(Items(*samples), batch_size=32, shuffle=True), None),
        (DataLoader(TensorDataset(*samples), batch_size=13, shuffle=True, drop_last=True), None),
    ]
    fits = [NeuralClamping(strength=0.5, batch_size=size).fit(network(), form) for form, size in forms]
    for clamped in fits[1:]:
        assert clamped.temperature == pytest.approx(fits[0].temperature, rel=1e-5)
        assert torch.allclose(clamped.delta, fits[0].delta, atol=1e-5)


class LowPrecision(nn.Module):
    """A network that chooses its precision itself."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, inputs):
        with torch.autocast("cpu", torch.bfloat16):
            return self.model(inputs)


@pytest.mark.parametrize("options", [{}, {"head": VectorScaling()}, {"solver": StochasticSolver(epochs=2)}])
def test_inside_autocast_the_network_alone_runs_in_low_precision(options):
    model = network(dtype=torch.float32)
    samples = tuple(part.float() if part.is_floating_point() else part for part in data(300))
    clamping = NeuralClamping(strength=0.1, **options)
    with torch.autocast("cpu", torch.bfloat16):
        inside = clamping.fit(model, samples)
    outside = clamping.fit(LowPrecision(model).eval(), samples)
    assert inside.delta.dtype == torch.float32
    assert torch.equal(inside.delta, outside.delta)
    assert not torch.equal(inside.delta, clamping.fit(model, samples).delta)
    for mine, theirs in zip(inside.head.state_dict().values(), outside.head.state_dict().values(), strict=True):
        assert torch.equal(mine, theirs)


def test_so_it_is_where_the_strength_is_cross_validated():
    samples = data(200)
    forms = [samples, DataLoader(Items(*samples), batch_size=32, shuffle=True)]
    fits = [NeuralClamping(strength=(1.0, 0.3), folds=2).fit(network(), form) for form in forms]
    assert fits[0].summary.strength == fits[1].summary.strength
    assert torch.allclose(fits[0].delta, fits[1].delta, atol=1e-5)
    for one, other in zip(fits[0].summary.trials, fits[1].summary.trials, strict=True):
        assert dataclasses.astuple(one) == pytest.approx(dataclasses.astuple(other), rel=1e-5)


def test_so_it_is_where_images_are_augmented():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, K)).double().eval()
    samples = data(100, model=model, shape=(1, 8, 8))
    method = NeuralClamping(strength=0.1, augmentation="crop-flip", views=2)
    first, second = (dataclasses.replace(method, batch_size=size).fit(model, samples) for size in (9, 100))
    assert torch.allclose(first.delta, second.delta, atol=1e-5)
    # The head is fitted to the images as they are.
    with torch.no_grad():
        known = TemperatureScaling().fit(Predictions.from_logits(model(samples[0] + first.delta), samples[1]))
    assert first.temperature == pytest.approx(float(known.temperature), rel=1e-6)


class TestHeads:
    @pytest.mark.parametrize("head", [VectorScaling(), StructuredVectorScaling(), EnsembleTemperatureScaling()])
    def test_delta_lowers_the_loss_of_the_calibration_samples_behind_any_head(self, head):
        samples = data(300)
        clamped = NeuralClamping(head=head, strength=0.02).fit(network(), samples)
        alone = NeuralClamping(head=head, strength=math.inf).fit(network(), samples)
        with torch.no_grad():
            known = head.fit(Predictions.from_logits(network()(samples[0]), samples[1]))(network()(samples[0]))
        assert torch.allclose(alone(samples[0]), known)
        assert nll(clamped, samples) < nll(alone, samples) - 0.002
        assert float(clamped.delta.norm()) > 0.1
        with pytest.raises(InputError, match="the head must be a temperature"):
            _ = clamped.temperature

    def test_a_head_is_cross_validated_too(self):
        clamped = NeuralClamping(head=VectorScaling(), strength=(0.03,), folds=2).fit(network(), data(300))
        (trial,) = clamped.summary.trials
        assert trial.strength == 0.03
        assert clamped.summary.settings["head"]["method"] == "vector"

    def test_a_focal_loss_is_for_temperatures_only(self):
        with pytest.raises(InputError, match="gamma must be 0 with the head vector"):
            NeuralClamping(head=VectorScaling(), gamma=1.0)


class TestRules:
    @pytest.mark.parametrize("penalty", ["squared", "norm"])
    def test_both_readings_of_the_papers_rule(self, penalty):
        samples, model = data(100), network()
        start = RandomStart(0.3)
        first = start.delta(model, LabelledInputs.of(samples), seed=5)
        with torch.no_grad():
            p = model(samples[0] + first).softmax(1)[range(len(samples[1])), samples[1]]
        initial = float((-(1 - p) * p.log()).mean())  # γ = 1, T = 1
        of_loss, as_term = (
            NeuralClamping(gamma=1.0, strength=rule, start=start, penalty=penalty, seed=5).fit(model, samples)
            for rule in ("tenth-of-loss", "tenth-as-term")
        )
        assert of_loss.summary.strength == pytest.approx(0.1 * initial, rel=1e-9)
        term = float(first.norm()) ** (2 if penalty == "squared" else 1)
        assert as_term.summary.strength * term == pytest.approx(0.1 * initial, rel=1e-9)

    def test_gamma_is_chosen_from_the_pool_by_calibration_error_as_in_the_paper(self):
        assert list(GAMMA_POOL) == pytest.approx([0.05 * step for step in range(21)])
        samples, pool = data(200), (0.0, 0.5, 2.0)
        clamped = NeuralClamping(gamma=pool, strength=0.5, choose_by="calibration-ece").fit(network(), samples)
        errors = {}
        for gamma in pool:
            one = NeuralClamping(gamma=gamma, strength=0.5).fit(network(), samples)
            with torch.no_grad():
                errors[gamma] = float(ece(Predictions.from_logits(one(samples[0]), samples[1])))
        best = min(errors, key=errors.get)
        assert clamped.summary.gamma == best
        assert f"chosen of 3 fits by calibration error on the calibration samples, {errors[best]:.4f}." in (
            clamped.summary.notes
        )

    def test_the_paper_may_choose_both_gamma_and_strength(self):
        method = NeuralClamping.paper_protocol(gamma=(0.0, 1.0), strength=(0.1, 0.01))
        method = dataclasses.replace(method, solver=StochasticSolver(epochs=2))
        clamped = method.fit(network(), data())
        assert clamped.summary.gamma in {0.0, 1.0}
        assert clamped.summary.strength in {0.1, 0.01}
        assert "chosen of 4 fits" in clamped.summary.notes[-1]

    def test_several_gammas_can_be_chosen_from_for_the_head_alone(self):
        samples = data()
        both = NeuralClamping(gamma=(0.0, 1.0), strength=math.inf, choose_by="calibration-ece").fit(network(), samples)
        item = [NeuralClamping(gamma=gamma, strength=math.inf).fit(network(), samples) for gamma in (0.0, 1.0)]
        assert both.temperature == item[int(both.summary.gamma)].temperature
        assert "chosen of 2 fits" in both.summary.notes[-1]

    def test_candidates_are_cross_validated_by_default(self):
        clamped = NeuralClamping(strength=(3.0, 0.3, 0.03), folds=2).fit(network(), data())
        assert clamped.summary.strength == 0.03
        assert [trial.strength for trial in clamped.summary.trials] == [3.0, 0.3, 0.03]


class TestStarts:
    def test_the_exact_solver_ends_at_the_same_place_from_any_start(self):
        samples = data(300)
        fits = [
            NeuralClamping(strength=0.1, start=start, solver=TIGHT, seed=seed).fit(network(), samples)
            for start, seed in ((ZeroStart(), 0), (RandomStart(0.5), 0), (RandomStart(0.5), 1))
        ]
        for clamped in fits[1:]:
            assert torch.allclose(clamped.delta, fits[0].delta, atol=2e-3)
            assert clamped.temperature == pytest.approx(fits[0].temperature, rel=1e-3)

    def test_the_seed_decides_the_stochastic_start(self):
        method = dataclasses.replace(NeuralClamping.toolkit(), solver=StochasticSolver(epochs=1))
        first, again, other = (
            dataclasses.replace(method, seed=seed).fit(network(), data(100)).delta for seed in (0, 0, 1)
        )
        assert torch.equal(first, again)
        assert not torch.equal(first, other)


class TestSpace:
    def test_a_delta_learned_with_clipping_is_used_with_clipping(self):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, K)).double().eval()
        model[3].weight.data.mul_(6)
        space = InputSpace(clips=True)
        generator = torch.Generator().manual_seed(0)
        inputs = torch.rand(500, 3, 2, 2, generator=generator, dtype=torch.float64)
        with torch.no_grad():
            probs = model((inputs + 0.4).clamp(0, 1)).mul(2).softmax(1)
        labels = torch.multinomial(probs, 1, generator=generator)[:, 0]
        clamped = NeuralClamping(strength=1e-3, space=space).fit(model, (inputs, labels))
        with torch.no_grad():
            logits = model((inputs + clamped.delta).clamp(0, 1)) / clamped.temperature
        assert torch.allclose(clamped(inputs), logits, atol=1e-9)
        value = float(F.cross_entropy(logits, labels)) + 1e-3 * float(clamped.delta.square().sum())
        assert clamped.summary.certificate.objective == pytest.approx(value, abs=1e-6)


class TestSummary:
    def test_it_gives_how_the_model_came_about(self):
        samples = data(300)
        method = NeuralClamping(strength=0.05, delta_shape=PerChannel(), space=InputSpace(low=-9.0, high=9.0))
        summary = method.fit(network(), samples).summary
        assert (summary.n_samples, summary.strength, summary.gamma, summary.trials) == (300, 0.05, 0.0, ())
        assert 0 < summary.seconds < 60
        assert summary.settings == method.settings()
        assert json.loads(json.dumps(summary.settings)) == json.loads(json.dumps(method.settings()))
        value = nll(method.fit(network(), samples), samples)
        assert value < summary.certificate.objective < value + 0.2

    def test_a_fit_that_runs_out_of_passes_warns(self):
        method = NeuralClamping(strength=1e-4, solver=ExactSolver(tolerance=1e-9, max_passes=3))
        with pytest.warns(CalibrantWarning, match=r"not quite at its optimum after 3 passes.*max_passes"):
            clamped = method.fit(network(), data(300))
        assert "not quite at its optimum" in clamped.summary.notes[-1]

    def test_the_head_that_is_kept_gives_how_it_was_fitted(self):
        head = NeuralClamping(strength=0.05).fit(network(), data(300)).head
        assert head.summary.method == "temperature"
        assert head.summary.rows == 300


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gamma": -1.0}, "gamma must be at least 0"),
        ({"gamma": ()}, "gamma must be a number, or a tuple of several"),
        ({"gamma": [0.0, 1.0]}, "gamma must be a number, or a tuple of several"),
        ({"gamma": None}, "gamma must be a number, or a tuple of several"),
        ({"gamma": np.array([0.0, 1.0])}, "gamma must be a number, or a tuple of several"),
        ({"strength": -0.1}, "strength must be at least 0"),
        ({"strength": float("nan")}, "strength must be at least 0"),
        ({"strength": ()}, "strength must be a number, or a tuple of several"),
        ({"strength": (1.0, -1.0)}, "strength must be at least 0"),
        ({"strength": (1.0, "path")}, "strength must be at least 0"),
        ({"strength": True}, "strength must be at least 0"),
        ({"strength": 10**400}, "strength must be at least 0"),
        ({"strength": -math.inf}, "strength must be at least 0"),
        ({"strength": [1.0]}, "strength must be a number, or a tuple of several"),
        ({"strength": None}, "strength must be a number, or a tuple of several"),
        ({"strength": 1j}, "strength must be a number, or a tuple of several"),
        ({"strength": np.array(0.1)}, "strength must be a number, or a tuple of several"),
        ({"strength": torch.tensor([0.1, 0.2])}, "strength must be a number, or a tuple of several"),
        ({"penalty": "norm"}, "strengths for the squared penalty only"),
        ({"start": RandomStart()}, "start must be ZeroStart"),
        ({"head": "temperature"}, "head must be of type Calibrator"),
        ({"solver": StochasticSolver}, "solver must be of type ExactSolver or"),
        ({"space": "pixels"}, "space must be of type InputSpace or None"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"seed": 2**63}, "seed must be at most 9223372036854775807; got 9223372036854775808"),
        ({"seed": 1.0}, "seed must be a whole number"),
        ({"seed": None}, "seed must be a whole number"),
        ({"batch_size": 8.0}, "batch_size must be a whole number"),
        ({"views": "4"}, "views must be a whole number"),
        ({"clip": math.nan}, "clip must be between 0 and 0.001"),
        ({"penalty": np.array(["squared", "norm"])}, "penalty must be one of"),
        ({"choose_by": None}, "choose_by must be one of"),
        ({"delta_shape": PerChannel}, "delta_shape must be of type PerEntry or"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"strength": "tenth"}, "strength must be one of path, tenth-of-loss"),
        ({"choose_by": "ece"}, "choose_by must be one of"),
        ({"penalty": "l1"}, "penalty must be one of"),
        ({"augmentation": "flip"}, "augmentation must be one of"),
        ({"clip": 0.7}, "clip must be between 0 and 0.001"),
        ({"folds": 1}, "folds must be at least 2"),
        ({"views": 0}, "views must be at least 1"),
        ({"gamma": (0.0, 1.0)}, "several gammas can only be chosen from by choose_by='calibration-ece'"),
        ({"choose_by": "calibration-ece"}, "strength='path' is chosen by held-out log-loss"),
        ({"strength": "tenth-as-term"}, "divides by the size of the first δ"),
        ({"strength": "tenth-as-term", "solver": StochasticSolver()}, "divides by the size of the first δ"),
        ({"solver": StochasticSolver()}, "the stochastic solver cannot be cross-validated"),
        ({"solver": StochasticSolver(), "strength": (1.0, 2.0)}, "the stochastic solver cannot be cross-validated"),
        ({"solver": StochasticSolver(), "strength": 1.0, "head": VectorScaling()}, "others need the exact solver"),
        ({"solver": StochasticSolver(), "strength": 1.0, "delta_shape": PerChannel()}, "others need the exact solver"),
        ({"head": TemperatureScaling(criterion="focal")}, "a temperature head minimises"),
    ],
)
def test_options_that_are_out_of_range_or_do_not_go_together_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        NeuralClamping(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"strength": np.float32(0.5)},
        {"strength": np.int64(1)},
        {"strength": np.float32("inf")},
        {"strength": (np.float32(0.5), 0.25)},
        {"gamma": np.float32(1.0)},
        {"gamma": (np.float32(1.0), 0.5), "choose_by": "calibration-ece"},
        {"clip": np.float32(2**-24)},
        {"folds": np.int32(3), "views": np.int8(2), "seed": np.uint64(7), "batch_size": np.int64(50)},
        {"solver": ExactSolver(tolerance=np.float32(2**-10), max_passes=np.int64(9))},
        {"start": RandomStart(np.float32(0.5)), "solver": StochasticSolver(epochs=np.int64(2))},
    ],
)
def test_options_may_be_numbers_of_numpy_and_are_remembered_as_plain_ones(options, tmp_path):
    method = NeuralClamping(**({"strength": 0.5} | options))
    assert json.loads(json.dumps(method.settings()), parse_constant=float) == method.settings()
    with warnings.catch_warnings():  # of so few passes
        warnings.simplefilter("ignore", CalibrantWarning)
        clamped = method.fit(network(), data(100), folder=tmp_path / "journal")
    save_clamped(clamped, tmp_path / "clamped.safetensors")
    assert load_clamped(tmp_path / "clamped.safetensors", network()).summary == clamped.summary


@pytest.mark.parametrize("seed", [2**45, 2**63 - 1])
def test_a_seed_may_be_as_large_as_torch_takes(seed):
    for method in (NeuralClamping(strength=0.5, seed=seed), NeuralClamping.toolkit(seed=seed)):
        brief = dataclasses.replace(method, solver=dataclasses.replace(method.solver, **BRIEF[type(method.solver)]))
        assert torch.equal(brief.fit(network(), data(100)).delta, brief.fit(network(), data(100)).delta)


class TestStrangeArguments:
    @pytest.mark.parametrize(
        ("model", "message"),
        [
            (lambda inputs: inputs, "model must be an nn.Module; got function. Wrap a function in a module"),
            (nn.Linear, "model must be an nn.Module; got type"),
            (None, "model must be an nn.Module; got NoneType"),
            (nn.Bilinear(D, D, K).double(), "it raised TypeError: .*missing 1 required positional argument"),
            (nn.Linear(D, K, device="meta"), "on the meta device"),
        ],
    )
    def test_what_is_no_network_of_one_input_is_refused(self, model, message):
        with pytest.raises(InputError, match=message):
            NeuralClamping(strength=1.0).fit(model.eval() if isinstance(model, nn.Module) else model, data(50))

    def test_a_folder_that_is_no_path_and_a_progress_that_is_no_function_are_refused(self):
        with pytest.raises(InputError, match="folder must be a path, or None for no journal; got 3"):
            NeuralClamping().fit(network(), data(50), folder=3)
        with pytest.raises(InputError, match="progress must be a function of a text and a number; got True"):
            NeuralClamping().fit(network(), data(50), progress=True)

    @pytest.mark.parametrize(
        "method", [NeuralClamping(strength=0.5), NeuralClamping.toolkit(), NeuralClamping(folds=2)]
    )
    def test_a_fit_under_inference_mode_is_the_same_fit(self, method):
        solver = BRIEF[type(method.solver)] if isinstance(method.solver, StochasticSolver) else {}
        brief = dataclasses.replace(method, solver=dataclasses.replace(method.solver, **solver))
        model, samples = network(), data(200)
        known = brief.fit(model, samples)
        with torch.inference_mode():
            copies = tuple(item.clone() for item in samples)
            inside = brief.fit(model, copies)
        assert torch.equal(inside.delta, known.delta)
        assert torch.equal(brief.fit(model, copies).delta, known.delta)
        assert model[0].weight.requires_grad

    def test_an_exported_network_is_fitted_as_the_network_itself(self):
        model, samples = network(), data(200)
        batch = torch.export.Dim("n", max=64)
        exported = torch.export.export(model, (samples[0][:2],), dynamic_shapes=({0: batch},)).module()
        method = NeuralClamping(strength=0.5, batch_size=64)
        clamped = method.fit(exported, samples)  # a warning of its mode would be an error
        assert not clamped.training
        assert torch.allclose(clamped.delta, method.fit(model, samples).delta, atol=1e-9)
        with pytest.raises(InputError, match=r"must take a batch of 200 samples; .*Give a smaller batch_size"):
            NeuralClamping(strength=0.5).fit(exported, samples)
        with pytest.raises(InputError, match=r"must take a batch of 200 samples"):
            dataclasses.replace(NeuralClamping.toolkit(), batch_size=64).fit(exported, samples)


@pytest.fixture(scope="module")
def digits():
    """A network trained on too few digits, the samples to calibrate it on, and others to evaluate on."""
    loaded = load_digits()
    order = torch.randperm(len(loaded.images), generator=torch.Generator().manual_seed(0))
    images, labels = loaded.images.float()[order], loaded.labels[order]
    torch.manual_seed(0)
    model = DigitsCNN()
    speeds = [torch.zeros_like(weight) for weight in model.parameters()]
    for _ in range(60):
        F.cross_entropy(model(images[:100]), labels[:100]).backward()
        for weight, speed in zip(model.parameters(), speeds, strict=True):
            speed.mul_(0.9).add_(weight.grad)
            weight.data.sub_(0.05 * speed)
            weight.grad = None
    return model.eval(), (images[100:500], labels[100:500]), (images[500:], labels[500:])


class TestDigits:
    def test_delta_helps_a_network_trained_on_few_digits(self, digits):
        model, samples, others = digits
        clamped = NeuralClamping(strength=(0.1,), folds=2).fit(model, samples)
        alone = NeuralClamping(strength=math.inf).fit(model, samples)
        assert math.isfinite(clamped.summary.strength)
        assert nll(clamped, others) < nll(alone, others) - 0.01
        right = [float((item(others[0]).argmax(1) == others[1]).float().mean()) for item in (clamped, alone)]
        assert right[0] >= right[1]

    def test_the_presets_run_on_it(self, digits):
        model, samples, _ = digits
        for method in (NeuralClamping.paper_protocol(), NeuralClamping.toolkit(augmentation="crop")):
            clamped = dataclasses.replace(
                method, solver=dataclasses.replace(method.solver, epochs=1), space=InputSpace()
            ).fit(model, samples)
            assert clamped.delta.shape == (1, 8, 8)
            assert clamped.temperature > 0

    def test_another_precision_changes_nothing_on_a_cpu(self, digits):
        model, samples, _ = digits
        fits = [
            NeuralClamping(strength=30.0, solver=ExactSolver(precision=item)).fit(model, samples)
            for item in ("float32", "bfloat16", "tensor-float32")
        ]
        assert torch.equal(fits[0].delta, fits[1].delta)
        assert torch.equal(fits[0].delta, fits[2].delta)

    @needs_cuda
    @pytest.mark.parametrize("method", [NeuralClamping(strength=(0.1, 0.03), folds=2), NeuralClamping.toolkit()])
    @pytest.mark.parametrize("rows_are_there", [False, True])
    def test_a_fit_on_an_accelerator_gives_the_same(self, digits, method, rows_are_there):
        model, (inputs, labels), (others, _) = digits
        # In float64, which no accelerator rounds by itself.
        model, inputs, others = copy.deepcopy(model).double(), inputs.double(), others.double()
        here = method.fit(model, (inputs, labels))
        samples = (inputs.cuda(), labels.cuda()) if rows_are_there else (inputs, labels)
        there = method.fit(copy.deepcopy(model).cuda(), samples)
        assert there.delta.is_cuda
        assert there.temperature == pytest.approx(here.temperature, rel=1e-4)
        assert torch.allclose(there.delta.cpu(), here.delta, atol=1e-4)
        assert torch.allclose(there(others.cuda()).cpu(), here(others), atol=1e-3)
