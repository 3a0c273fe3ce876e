import pytest
import torch

from calibrant.calibrators import BiasCorrectedTemperature, TemperatureScaling
from calibrant.errors import CalibrantWarning, FitError
from calibrant.predictions import Predictions


def rows_of(n=4000, k=4, *, shift=0.0, temperature=2.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(n, k, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    return Predictions.from_logits(temperature * logits + shift * torch.arange(k), labels)


def test_the_shifts_and_the_temperature_that_were_put_in_are_found():
    fitted = BiasCorrectedTemperature().fit(rows_of(100_000, shift=0.6))
    assert float(fitted.weight) == pytest.approx(0.5, rel=0.02)
    assert fitted.bias.tolist() == pytest.approx([0.45, 0.15, -0.15, -0.45], abs=0.04)


def test_the_mean_probability_of_every_class_is_its_share():
    rows = rows_of(shift=0.6)
    probs = BiasCorrectedTemperature().fit(rows).transform(rows).probs
    shares = torch.bincount(rows.labels, minlength=4) / len(rows)
    assert torch.allclose(probs.mean(0), shares.double(), atol=1e-7)


def test_symmetric_samples_need_no_shift_and_get_the_temperature():
    rows = rows_of(1000, 3)
    # Every sample and label in all orders of the classes: no class can be distinguished from another.
    turns = [torch.arange(3).roll(turn) for turn in range(3)]
    logits = torch.cat([rows.logits[:, turn] for turn in turns])
    labels = torch.cat([turn.argsort()[rows.labels] for turn in turns])
    same = Predictions.from_logits(logits, labels)
    fitted, temperature = BiasCorrectedTemperature().fit(same), TemperatureScaling().fit(same).temperature
    assert fitted.bias.abs().max() < 1e-7
    assert float(fitted.weight) == pytest.approx(float(1 / temperature), rel=1e-5)


def test_a_class_without_samples_is_named():
    rows = rows_of()
    seen = Predictions.from_logits(rows.logits, rows.labels, class_names=["ant", "bee", "cow", "dog"])
    with pytest.raises(FitError, match=r"samples of every class.* of class cow\."):
        BiasCorrectedTemperature().fit(seen[seen.labels != 2])


def test_labels_that_contradict_the_logits_are_reported():
    rows = rows_of()
    turned = Predictions.from_logits(-rows.logits, rows.labels)
    with pytest.warns(CalibrantWarning, match="below zero"):
        fitted = BiasCorrectedTemperature().fit(turned)
    assert float(fitted.weight) == pytest.approx(-0.5, rel=0.1)


def test_predictions_that_are_all_right_have_no_optimum():
    rows = rows_of()
    with pytest.raises(FitError, match="some wrong predictions"):
        BiasCorrectedTemperature().fit(Predictions.from_logits(rows.logits, rows.predicted))
