"""A summary says what should be known about δ: how sure its gain is, where the search ended, and how large it is."""

import dataclasses
import math

import pytest
import torch
from made_networks import tanh_network as network
from torch import nn

from calibrant.clamping import ClampingOutcome, ClampingSummary, NeuralClamping, StochasticSolver
from calibrant.clamping.fitting import FitRun
from calibrant.clamping.neural_clamping import _size_note
from calibrant.errors import Caveat, FitError, SeparableError
from calibrant.inference import LabelledInputs

D, K = 6, 4
WEAKEST = "the weakest of the strengths tried is the best one"


@torch.no_grad()
def data(n=200, shift=0.5):
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(n, D, generator=generator, dtype=torch.float64)
    return inputs, torch.multinomial((2 * network()(inputs + shift)).softmax(1), 1, generator=generator)[:, 0]


def summary(strength, *, folds=2, shift=0.5):
    return NeuralClamping(strength=strength, folds=folds).fit(network(), data(shift=shift)).summary


def notes(strength, *, folds=2, shift=0.5):
    return summary(strength, folds=folds, shift=shift).all_notes


def test_of_several_strengths_the_best_ones_gain_is_called_optimistic():
    message = "the best of 2 strengths on the same folds, so optimistic: evaluate it on other samples"
    assert message in notes((1.0, 0.1))[0]
    assert "optimistic" not in notes((0.1,))[0]


def test_where_the_weakest_strength_wins_weaker_ones_are_advised():
    first, second, *_ = notes((1.0, 0.1))
    assert first.startswith("δ helps: at λ = 0.1 per sample")
    assert second == f"{WEAKEST}, so a weaker one may be better still. Try strengths below 0.1 as well."


def test_one_strength_another_winner_and_no_delta_have_no_such_note():
    along_the_path = notes("path", folds=3)
    assert along_the_path[0].startswith("δ helps")
    without = notes((1.0, 0.1), shift=0.0)
    assert without[0].startswith("δ does not help here")
    for message in (notes((0.1,)), along_the_path, without):
        assert not any(WEAKEST in note for note in message)


@pytest.mark.parametrize(
    ("strength", "shift", "outcome", "caveats"),
    [
        ((1.0, 0.1), 0.5, ClampingOutcome.helps, (Caveat.weakest_strength,)),
        ((0.1,), 0.5, ClampingOutcome.helps, ()),
        ((1.0, 0.1), 0.0, ClampingOutcome.no_help, ()),
        (0.1, 0.5, ClampingOutcome.not_cross_validated, ()),
    ],
)
def test_a_summary_has_its_outcome_and_caveats_as_fields(strength, shift, outcome, caveats):
    result = summary(strength, shift=shift)
    assert (result.outcome, result.caveats) == (outcome, caveats)
    assert ClampingSummary.from_dict(result.as_dict()) == result


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (SeparableError("all right"), "is T = 0: every prediction is right there."),
        (FitError("rows of equal logits"), None),
    ],
)
def test_a_temperature_that_cannot_be_found_is_put_down_to_its_own_reason(monkeypatch, error, text):
    def failing(*_):
        raise error

    monkeypatch.setattr(FitRun, "best_head", failing)
    method = dataclasses.replace(NeuralClamping.paper_protocol(), solver=StochasticSolver(epochs=1, batch_size=64))
    if text is None:
        with pytest.raises(FitError, match="rows of equal logits"):
            method.fit(network(), data())
    else:
        assert method.fit(network(), data()).summary.notes[0].endswith(text)


ROWS = LabelledInputs.of((torch.rand(700, 1, 4, 4, generator=torch.manual_seed(0)) + 1, torch.arange(700) % 3))


@pytest.mark.parametrize("size", [0.0, 0.05, 0.3])
def test_of_a_delta_of_ordinary_size_nothing_is_noted(size):
    assert _size_note(torch.full((1, 4, 4), size), ROWS) is None


def test_a_delta_that_carries_most_pixels_out_of_the_range_is_reported():
    note = _size_note(torch.full((1, 4, 4), 0.7), ROWS)
    share, message = note.split("% of the numbers ")
    assert float(share) == pytest.approx(70, abs=2)
    assert message.startswith("in x + δ lie outside the inputs' range, 1 to 2: ")
    assert note.endswith("Give a larger strength.")


def test_a_delta_larger_than_an_input_is_reported_with_both_norms():
    spike = torch.zeros(1, 4, 4)
    spike[0, 0, 0] = 9.0
    note = _size_note(spike, ROWS)
    assert note.startswith("‖δ‖ = 9 is more than the norm of a typical input, 6.")
    both = _size_note(torch.full((1, 4, 4), -3.0), ROWS)
    assert "‖δ‖ = 12 is more than" in both
    assert ", and 100% of the numbers" in both


def test_a_fit_that_ends_there_has_it_among_its_notes():
    model = nn.Linear(2, 2, dtype=torch.float64)
    model.weight.data, model.bias.data = torch.eye(2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    inputs = 0.1 * torch.randn(300, 2, generator=torch.manual_seed(0), dtype=torch.float64)
    labels = torch.multinomial(model(inputs + torch.tensor([1.0, 0.0])).softmax(1), 1, generator=torch.manual_seed(1))
    clamped = NeuralClamping(strength=1e-5).fit(model.eval(), (inputs, labels[:, 0]))
    assert any("is more than the norm of a typical input" in note for note in clamped.summary.notes)
    assert clamped.summary.caveats == (Caveat.delta_too_large,)
    assert math.isfinite(clamped.summary.strength)
