"""The head is the calibrator's own map, fitted faster where the last one is known."""

import pytest
import torch

from calibrant.calibrators import (
    EnsembleTemperatureScaling,
    MatrixScalingODIR,
    PlattScaling,
    StructuredVectorScaling,
    TemperatureScaling,
    Uncalibrated,
    VectorScaling,
)
from calibrant.clamping import HeadFit
from calibrant.clamping.objective import own_penalty
from calibrant.errors import CalibrantWarning, FitError, InputError, SeparableError
from calibrant.maps import Affine, Identity, Scale
from calibrant.predictions import Predictions


def samples(n=800, k=4, *, temperature=2.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, k, generator=generator, dtype=torch.float64)
    labels = torch.multinomial((logits / temperature).softmax(1), 1, generator=generator)[:, 0]
    return logits, labels


def scale(temperature, k=4):
    return Scale(torch.tensor(temperature, dtype=torch.float64), n_classes=k)


@pytest.mark.parametrize("last", [None, 1.9, 2.5, 1e-3, 1e4])
@pytest.mark.parametrize("gamma", [0.0, 1.0])
def test_the_temperature_is_the_calibrators_wherever_the_last_one_was(gamma, last):
    logits, labels = samples()
    criterion = "focal" if gamma else "nll"
    known = TemperatureScaling(criterion=criterion, gamma=gamma).fit(Predictions.from_logits(logits, labels))
    result = HeadFit(TemperatureScaling(), gamma).fit(logits, labels, last=None if last is None else scale(last))
    assert float(result.temperature) == pytest.approx(float(known.temperature), rel=1e-5)


@pytest.mark.parametrize("calibrator", [VectorScaling(), EnsembleTemperatureScaling(), Uncalibrated()])
def test_another_head_is_what_its_own_fit_gives(calibrator):
    logits, labels = samples()
    known = calibrator.fit(Predictions.from_logits(logits, labels))
    result = HeadFit(calibrator, 0.0).fit(logits, labels, last=known)
    assert type(result) is type(known)
    assert torch.equal(result(logits), known(logits))


def test_a_last_head_of_another_kind_is_no_hindrance():
    logits, labels = samples()
    eye = torch.eye(4, dtype=torch.float64)
    affine = Affine(eye, torch.zeros(4, dtype=torch.float64), n_classes=4)
    for last in (affine, Identity(n_classes=4), scale(float("inf"))):
        assert isinstance(HeadFit(TemperatureScaling(), 0.0).fit(logits, labels, last=last), Scale)


@pytest.mark.parametrize("last", [None, 1.0])
@pytest.mark.parametrize("gamma", [0.0, 1.0])
def test_where_every_sample_is_correct_there_is_no_temperature_and_the_message_says_why(gamma, last):
    logits, _ = samples()
    with pytest.raises(FitError, match=r"at x \+ δ: temperature must have a smallest loss.*some wrong predictions"):
        HeadFit(TemperatureScaling(), gamma).fit(logits, logits.argmax(1), last=None if last is None else scale(last))


@pytest.mark.parametrize("calibrator", [TemperatureScaling(), VectorScaling(), StructuredVectorScaling()])
def test_where_delta_made_every_sample_right_a_larger_strength_is_advised(calibrator):
    logits, _ = samples()
    advice = "penalise δ, which caused this, with a larger strength"
    for is_moved in (False, True):
        with pytest.raises(SeparableError) as caught:
            HeadFit(calibrator, 0.0).fit(logits, logits.argmax(1), with_delta=is_moved)
        assert (advice in str(caught.value)) == is_moved


def test_another_failure_of_a_head_is_not_called_that():
    logits, labels = samples()
    with pytest.raises(FitError, match="must see samples of every class") as caught:
        HeadFit(VectorScaling(), 0.0).fit(logits, labels.clamp(max=2), with_delta=True)
    assert not isinstance(caught.value, SeparableError)
    assert "larger strength" not in str(caught.value)


def test_a_head_without_a_penalty_has_none_and_one_with_it_has_more():
    logits, labels = samples()
    penalties = [
        own_penalty(HeadFit(calibrator, 0.0).fit(logits, labels), logits, labels)
        for calibrator in (Uncalibrated(), VectorScaling(), StructuredVectorScaling())
    ]
    assert penalties[:2] == pytest.approx([0.0, 0.0], abs=1e-9)
    assert penalties[2] > 1e-5


@pytest.mark.parametrize(
    ("calibrator", "message"),
    [
        (PlattScaling(), "must minimise the log-loss of all classes at once.*platt minimises something else"),
        (EnsembleTemperatureScaling("brier"), "ets minimises something else"),
        (MatrixScalingODIR(), "ms_odir must be given its strength and bias_strength"),
    ],
)
def test_a_head_that_minimises_something_else_is_refused(calibrator, message):
    with pytest.raises(InputError, match=message):
        HeadFit(calibrator, 0.0)


def test_labels_worse_than_guessing_drive_the_temperature_to_the_edge_with_a_warning():
    logits, _ = samples()
    with pytest.warns(CalibrantWarning, match="no better than guessing"):
        result = HeadFit(TemperatureScaling(), 0.0).fit(logits, logits.argmin(1), last=scale(2.0))
    assert float(result.temperature) > 100


@pytest.mark.parametrize("criterion", ["focal", "ece-neural-clamping"])
def test_a_temperature_with_a_criterion_of_its_own_is_refused(criterion):
    with pytest.raises(InputError, match=f"minimises Neural Clamping's own objective; got criterion '{criterion}'"):
        HeadFit(TemperatureScaling(criterion=criterion), 0.0)


def test_only_a_temperature_can_follow_the_focal_loss():
    with pytest.raises(InputError, match=r"gamma must be 0 with the head vector.*got 0\.5"):
        HeadFit(VectorScaling(), 0.5)
