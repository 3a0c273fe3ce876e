"""One fit taken apart: every row is the model it says it is, evaluated as the library evaluates any other."""

import json
import math

import pytest
import torch
from experiments.neural_clamping.ablation import ABLATION_METRICS, ablation, ablation_of
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from calibrant.calibrators import TemperatureScaling, VectorScaling
from calibrant.clamping import ClampedModel, InputSpace, NeuralClamping
from calibrant.errors import InputError, UnknownNameError
from calibrant.evidence import difference, estimate
from calibrant.maps import Scale
from calibrant.metrics import ECE, NLL, Accuracy
from calibrant.predictions import Predictions

NAMES = ["none", "TS", "TS (focal)", "δ* only", "T* only", "joint", "TS on δ*"]
FEW = (NLL(), ECE(), Accuracy())


class Counting(nn.Module):
    """Remembers how many rows came through."""

    def __init__(self, model):
        super().__init__()
        self.model, self.rows = model, 0

    def forward(self, inputs):
        self.rows += len(inputs)
        return self.model(inputs)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4)).double().eval()


def rows(model, n, seed, shift=0.6, temperature=0.4):
    """Labels as the network would have them if inputs were shifted, and logits sharper."""
    chance = torch.Generator().manual_seed(seed)
    inputs = torch.randn(n, 6, generator=chance, dtype=torch.float64)
    with torch.no_grad():
        truth = (model(inputs + shift) / temperature).softmax(1)
    return inputs, torch.multinomial(truth, 1, generator=chance)[:, 0]


@pytest.fixture(scope="module")
def case():
    model = network()
    return model, rows(model, 600, 1), rows(model, 500, 2)


@pytest.fixture(scope="module")
def found(case):
    return ablation(NeuralClamping(strength=0.01, gamma=0.5), *case, metrics=FEW, resamples=100)


def test_every_row_is_the_model_it_says_it_is(case, found):
    model, calibration, (inputs, labels) = case
    clamped = found.clamped
    with torch.no_grad():
        plain, moved = model(inputs), model(inputs + clamped.delta)
        fitted, fitted_moved = (Predictions(model(calibration[0] + d), calibration[1]) for d in (0, clamped.delta))
        joint = clamped(inputs)
    by_hand = {
        "none": plain,
        "TS": plain / TemperatureScaling().fit(fitted).temperature,
        "TS (focal)": plain / TemperatureScaling("focal", 0.5).fit(fitted).temperature,
        "δ* only": moved,
        "T* only": plain / clamped.temperature,
        "joint": joint,
        "TS on δ*": moved / TemperatureScaling().fit(fitted_moved).temperature,
    }
    assert [row.name for row in found.rows] == list(by_hand) == NAMES
    for row in found.rows:
        known = Predictions.from_logits(by_hand[row.name], labels)
        assert torch.allclose(found.predictions(row.name).logits, known.logits, rtol=1e-9)
        judged = estimate(known, FEW, resamples=100)
        for name in row.metrics:
            assert row.metrics[name].value == pytest.approx(judged[name].value, rel=1e-9)
            assert row.metrics[name].low == pytest.approx(judged[name].low, abs=1e-6)


def test_where_inputs_are_shifted_delta_is_distinguished_from_a_temperature_that_moved(found):
    shifted = found.comparison("TS on δ*", "TS").differences["nll"]
    assert shifted.high < 0
    assert shifted.p < 0.01
    # At γ = 0.5 the temperature is too high; refitted by log-loss it is not, and δ is the same.
    assert found.row("TS on δ*").temperature < found.row("joint").temperature
    assert found.row("TS on δ*").metrics["nll"].value < found.row("joint").metrics["nll"].value


def test_where_inputs_are_not_shifted_delta_brings_nothing(case):
    model, *_ = case
    calibration, test = rows(model, 600, 3, shift=0.0), rows(model, 500, 4, shift=0.0)
    found = ablation(NeuralClamping(strength=0.01), model, calibration, test, metrics=FEW, resamples=100)
    assert found.comparison("TS on δ*", "TS").differences["nll"].p > 0.05
    assert found.comparison("none", "TS").differences["nll"].p < 0.01


def test_comparisons_are_paired_and_the_three_planned_come_first(found):
    planned = [(each.row, each.baseline) for each in found.comparisons if each.is_planned]
    assert planned == [("joint", "TS"), ("TS on δ*", "TS"), ("joint", "T* only")]
    assert [each.is_planned for each in found.comparisons] == [True] * 3 + [False] * 4
    for each in found.comparisons:
        known = difference(found.predictions(each.baseline), found.predictions(each.row), FEW, resamples=100)
        for name, change in each.differences.items():
            assert change.value == pytest.approx(known[name].value, abs=1e-12)
            assert change.p == pytest.approx(known[name].p, abs=1e-9)


@pytest.fixture
def _unchecked(monkeypatch):
    """Without the first look at the network, which takes runs of its own."""
    monkeypatch.setattr("calibrant.clamping.evaluation.check_network", lambda *_: None)


@pytest.mark.usefixtures("_unchecked")
def test_the_network_runs_twice_over_each_set_whatever_is_evaluated(case):
    model, calibration, test = case
    counting = Counting(model)
    head = Scale(torch.tensor(2.0, dtype=torch.float64), n_classes=4)
    clamped = ClampedModel(counting, torch.full((6,), 0.1, dtype=torch.float64), head)
    ablation_of(clamped, calibration, test, metrics=FEW, resamples=10)
    assert counting.rows == 2 * 600 + 2 * 500


@pytest.mark.usefixtures("_unchecked")
def test_without_delta_rows_agree_to_the_last_digit_and_the_network_runs_once(case):
    model, calibration, test = case
    counting = Counting(model).eval()
    clamped = NeuralClamping(strength=math.inf).fit(counting, calibration)
    counting.rows = 0
    found = ablation_of(clamped, calibration, test, metrics=FEW, resamples=50)
    assert counting.rows == 600 + 500
    assert found.norm == 0
    for same in (("none", "δ* only"), ("TS", "T* only", "joint", "TS on δ*")):
        assert len({json.dumps(found.row(name).metrics["nll"].value) for name in same}) == 1
    for name in ("joint", "TS on δ*", "T* only"):
        differences = found.comparison(name, "TS").differences
        assert all(each.value == 0 and each.p == 1 for each in differences.values())


def test_a_head_that_is_no_temperature_has_rows_without_one(case):
    method = NeuralClamping(head=VectorScaling(), strength=0.01)
    found = ablation(method, *case, metrics=FEW, resamples=50)
    assert [row.name for row in found.rows] == ["none", "head", "δ* only", "head* only", "joint"]
    assert [row.temperature for row in found.rows] == [1.0, None, 1.0, None, None]
    assert [(each.row, each.baseline) for each in found.comparisons[:2]] == [("joint", "head"), ("joint", "head* only")]
    joint = found.clamped(case[2][0]).detach()
    assert torch.allclose(found.predictions("joint").logits, joint, rtol=1e-9)


def test_without_delta_any_head_is_its_own_equal(case):
    model, calibration, test = case
    clamped = NeuralClamping(head=VectorScaling(), strength=math.inf).fit(model, calibration)
    found = ablation_of(clamped, calibration, test, head=VectorScaling(), metrics=FEW, resamples=50)
    assert found.comparison("joint", "head").differences["nll"].value == 0


def test_the_method_of_the_head_must_be_the_right_one(found, case):
    with pytest.raises(InputError, match=r"head must be the method.*got vector"):
        ablation_of(found.clamped, *case[1:], head=VectorScaling())


def test_a_clipped_input_is_clipped_in_every_row_with_delta_and_in_no_other(case):
    model, calibration, test = case
    space = InputSpace(low=-6.0, high=6.0, clips=True)
    head = Scale(torch.tensor(2.0, dtype=torch.float64), n_classes=4)
    clamped = ClampedModel(model, torch.full((6,), 5.0, dtype=torch.float64), head, space=space)
    found = ablation_of(clamped, calibration, test, metrics=(NLL(),), resamples=10)
    with torch.no_grad():
        assert torch.allclose(found.predictions("joint").logits, clamped(test[0]))
        assert torch.allclose(found.predictions("none").logits, model(test[0]))


def test_loaders_and_tensors_give_the_same(case, found):
    loaders = [DataLoader(TensorDataset(*each), batch_size=64, shuffle=True) for each in case[1:]]
    again = ablation_of(found.clamped, *loaders, metrics=FEW, resamples=100)
    for row, other in zip(found.rows, again.rows, strict=True):
        assert row.metrics["nll"].value == pytest.approx(other.metrics["nll"].value, rel=1e-9)


def test_the_network_comes_back_as_it_was(case):
    model, calibration, test = case
    model[0].train()
    head = Scale(torch.tensor(2.0, dtype=torch.float64), n_classes=4)
    clamped = ClampedModel(model, torch.full((6,), 0.1, dtype=torch.float64), head)
    model[0].train()
    ablation_of(clamped, calibration, test, metrics=(NLL(),), resamples=10)
    assert model[0].training
    assert all(each.requires_grad for each in model.parameters())
    model.eval()


def test_a_test_set_that_does_not_fit_is_refused_before_the_fit(case):
    model, calibration, (inputs, labels) = case
    passes = []
    for test, words in (
        ((inputs[:, :5], labels), r"must take inputs of shape \(n, 5\)"),
        ((inputs, labels + 3), "labels must lie in 0..3"),
    ):
        with pytest.raises(InputError, match=words):
            ablation(NeuralClamping(strength=0.1), model, calibration, test, progress=lambda *told: passes.append(told))
    assert not passes


def test_rows_of_another_shape_than_delta_are_refused():
    anything = nn.Flatten()
    clamped = ClampedModel(anything, torch.ones(3), Scale(torch.tensor(2.0), n_classes=4))
    rows = torch.randn(5, 4), torch.arange(5) % 4
    with pytest.raises(InputError, match=r"shape of δ, \(3,\); got \(4,\)"):
        ablation_of(clamped, rows, rows)


def test_no_metrics_or_resamples_are_refused(case, found):
    with pytest.raises(InputError, match="at least one metric"):
        ablation_of(found.clamped, *case[1:], metrics=())
    with pytest.raises(InputError, match="resamples must be at least 2"):
        ablation_of(found.clamped, *case[1:], resamples=1)


def test_the_table_is_plain_data(found):
    table = json.loads(json.dumps(found.table()))
    assert [line["row"] for line in table] == NAMES
    assert [line["delta"] for line in table] == [False, False, False, True, False, True, True]
    assert {"nll", "nll_low", "nll_high", "ece", "accuracy", "temperature"} <= set(table[0])
    assert table[0]["temperature"] == 1.0


def test_the_diagram_marks_what_differs_from_temperature_scaling(found):
    diagram = found.diagram()
    assert diagram.names == tuple(NAMES)
    assert diagram.baseline == "TS"
    sides = dict(zip(NAMES, (dot.side for dot in diagram.panels[0].dots), strict=True))
    assert sides["TS"] == "alike"
    assert sides["none"] == "worse"
    assert sides["TS on δ*"] == "better"
    assert [panel.metric for panel in diagram.panels] == ["nll", "ece", "accuracy"]
    with pytest.raises(UnknownNameError, match="brier"):
        found.diagram(("brier",))


def test_an_unknown_row_is_named(found):
    with pytest.raises(UnknownNameError, match="'both'"):
        found.row("both")


def test_by_default_the_columns_of_the_paper_and_the_log_loss_are_measured():
    names = [metric.name for metric in ABLATION_METRICS]
    assert names == ["accuracy", "entropy", "ece", "ace", "sce", "nll", "auroc"]
