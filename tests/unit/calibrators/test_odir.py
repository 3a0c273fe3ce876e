import pytest
import torch
from torch.nn.functional import cross_entropy

from calibrant.calibrators import (
    DirichletODIR,
    MatrixScaling,
    MatrixScalingODIR,
    TemperatureScaling,
    VectorScaling,
    odir,
)
from calibrant.errors import FitError, InputError
from calibrant.metrics import nll
from calibrant.predictions import Predictions

BOTH = (MatrixScalingODIR, DirichletODIR)
each_kind = pytest.mark.parametrize("kind", BOTH, ids=lambda kind: kind.name)


def rows_of(n=1500, k=4, *, mix=0.2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(n, k, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    mixing = 2 * torch.eye(k) + mix * torch.eye(k).roll(1, 0)
    return Predictions.from_logits(logits @ mixing.double() + 0.3 * torch.arange(k), labels)


def inputs_of(kind, rows):
    return rows.log_probs if kind is DirichletODIR else rows.logits


@each_kind
def test_the_gradient_of_the_papers_objective_vanishes(kind):
    rows = rows_of()
    k = rows.n_classes
    fitted = kind(strength=3.0, bias_strength=0.7).fit(rows)
    weight, bias = fitted.weight.clone().requires_grad_(), fitted.bias.clone().requires_grad_()
    off_diagonal = weight.square().sum() - weight.diagonal().square().sum()
    penalty = 3.0 / (k * (k - 1)) * off_diagonal + 0.7 / k * bias.square().sum()
    objective = cross_entropy(inputs_of(kind, rows) @ weight.T + bias, rows.labels) + penalty
    objective.backward()
    assert weight.grad.abs().max() < 1e-7
    assert bias.grad.abs().max() < 1e-7
    assert fitted.summary.certificate.objective == pytest.approx(objective.item(), abs=1e-10)


@each_kind
def test_endless_strengths_leave_a_diagonal_and_no_bias(kind):
    fitted = kind(strength=1e9, bias_strength=1e9).fit(rows_of())
    assert (fitted.weight - fitted.weight.diag().diag()).abs().max() < 1e-8
    assert fitted.bias.abs().max() < 1e-8


def test_vanishing_strengths_leave_matrix_scaling():
    rows = rows_of()
    weak = MatrixScalingODIR(strength=1e-7, bias_strength=1e-7).fit(rows).transform(rows).probs
    assert torch.allclose(weak, MatrixScaling().fit(rows).transform(rows).probs, atol=1e-5)


def test_without_an_off_diagonal_a_vanishing_bias_strength_leaves_vector_scaling():
    rows = rows_of()
    weak = MatrixScalingODIR(strength=1e9, bias_strength=1e-8).fit(rows).transform(rows).probs
    assert torch.allclose(weak, VectorScaling().fit(rows).transform(rows).probs, atol=1e-5)


def test_a_multiple_of_the_identity_is_a_temperature():
    rows = rows_of()
    temperature = TemperatureScaling().fit(rows)
    fitted = DirichletODIR(strength=1.0, bias_strength=1.0).fit(rows)
    fitted.weight.copy_(torch.eye(4) / temperature.temperature)
    fitted.bias.zero_()
    assert torch.allclose(fitted.transform(rows).probs, temperature.transform(rows).probs, atol=1e-12)


def test_dirichlet_calibration_does_not_see_a_number_added_to_a_row():
    rows, method = rows_of(), DirichletODIR(strength=1.0, bias_strength=1.0)
    moved = Predictions.from_logits(rows.logits + torch.linspace(-9, 9, len(rows))[:, None], rows.labels)
    assert torch.allclose(method.fit(rows).transform(rows).probs, method.fit(moved).transform(moved).probs, atol=1e-6)


def test_logits_that_share_a_large_number_are_refused_with_what_to_do():
    rows = rows_of(400)
    moved = Predictions.from_logits(rows.logits.double() + 1e4, rows.labels)
    with pytest.raises(FitError, match=r"share a large number.*log_softmax"):
        MatrixScalingODIR().fit(moved)
    normalised = Predictions.from_logits(moved.logits.log_softmax(1), rows.labels)
    assert MatrixScalingODIR().fit(normalised).summary.certificate.gradient < 1e-8


@each_kind
def test_autocast_does_not_matter_to_a_fit(kind):
    rows, calibrator = rows_of(400), kind(strength=1.0, bias_strength=1.0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        fitted = calibrator.fit(rows)
    assert torch.equal(fitted.weight, calibrator.fit(rows).weight)


@each_kind
def test_a_stronger_penalty_never_fits_its_own_samples_better(kind):
    rows = rows_of(300)
    losses = [nll(kind(strength=s, bias_strength=s).fit(rows).transform(rows)) for s in (1e-2, 1.0, 1e2, 1e4)]
    assert losses == sorted(losses)


@pytest.mark.parametrize("search", ["stepwise", "neural-clamping"])
@each_kind
def test_searched_strengths_beat_a_temperature_where_there_is_something_to_gain(kind, search):
    rows, new = rows_of(600, mix=0.8), rows_of(10_000, mix=0.8, seed=1)
    fitted = kind(search=search).fit(rows)
    assert nll(fitted.transform(new)) < nll(TemperatureScaling().fit(rows).transform(new)) - 0.02
    assert "5-fold cross-validation" in fitted.summary.notes[0]
    assert fitted.summary.certificate.gradient <= 1e-8


def test_stepwise_search_is_nearly_as_good_as_the_best_pair_on_new_samples():
    rows, new = rows_of(600, mix=0.5), rows_of(10_000, mix=0.5, seed=1)
    stepwise = nll(DirichletODIR().fit(rows).transform(new))
    strengths = [(s, t) for s in (1e-3, 1e-2, 1e-1, 1.0) for t in (1e-3, 1e-2, 1e-1, 1.0)]
    best = min(nll(DirichletODIR(strength=s, bias_strength=t).fit(rows).transform(new)) for s, t in strengths)
    assert stepwise < best + 0.003


def test_the_mean_of_the_folds_is_what_kull_predicts_with():
    rows = rows_of(300)
    fitted = DirichletODIR(search="kull", bias_strength=1.0).fit(rows)
    probs = torch.stack([part.transform(rows).probs for part in fitted.maps]).mean(0)
    assert len(fitted.maps) == 5
    assert torch.allclose(fitted.transform(rows).probs, probs, atol=1e-12)


@each_kind
def test_a_strength_that_is_given_is_kept(kind):
    notes = kind(strength=12.5, folds=3).fit(rows_of(400)).summary.notes
    assert "strength 12.5 and" in notes[0]
    assert "3-fold" in notes[0]


@each_kind
def test_a_class_without_samples_is_named(kind):
    rows = rows_of()
    with pytest.raises(FitError, match=r"must see samples of every class.* of class 2\."):
        kind(strength=1.0, bias_strength=1.0).fit(rows[rows.labels != 2])


def test_a_class_of_one_sample_cannot_be_searched():
    rows = rows_of()
    only = torch.cat([(rows.labels != 2).nonzero()[:, 0], (rows.labels == 2).nonzero()[:1, 0]])
    with pytest.raises(FitError, match="at least 2 samples of every class"):
        DirichletODIR().fit(rows[only])


@each_kind
def test_predictions_that_are_all_right_are_refused(kind):
    rows = rows_of()
    with pytest.raises(FitError, match="some wrong predictions"):
        kind(strength=1.0, bias_strength=1.0).fit(Predictions.from_logits(rows.logits, rows.predicted))


def test_options_are_checked():
    with pytest.raises(InputError, match="strength must be above 0"):
        DirichletODIR(strength=0.0)
    with pytest.raises(InputError, match="search"):
        DirichletODIR(search="kul")
    with pytest.raises(InputError, match="folds must be at least 2"):
        DirichletODIR(folds=1)


@each_kind
@pytest.mark.parametrize("seed", range(3))
def test_fits_that_are_only_compared_choose_what_exact_ones_do(kind, seed, monkeypatch):
    rows = rows_of(600, 6, seed=seed)
    quick = kind().fit(rows)
    monkeypatch.setattr(odir, "_COMPARED", 1e-9)
    exact = kind().fit(rows)
    assert quick.summary.notes == exact.summary.notes
    assert torch.allclose(quick.weight, exact.weight, atol=1e-6)
    assert quick.summary.certificate.gradient < 1e-8


def test_kull_takes_the_mean_of_the_folds_that_have_samples():
    rows = rows_of(12)
    fitted = DirichletODIR(search="kull", strength=1.0, folds=30).fit(rows)
    assert len(fitted.maps) == 12
    assert fitted.transform(rows).probs.isfinite().all()
