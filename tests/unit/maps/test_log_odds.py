import math

import pytest
import torch

from calibrant.maps import Scale
from calibrant.maps.base import keep_argmax
from calibrant.maps.curves import class_log_odds, top_log_odds, with_top_log_odds


def some_logits(k=6, n=300, scale=4.0):
    return scale * torch.randn(n, k, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_log_odds_of_every_class_are_those_of_its_probability():
    logits = some_logits()
    probs = logits.softmax(1)
    assert torch.allclose(class_log_odds(logits), probs.log() - (1 - probs).log(), atol=1e-9)


def test_log_odds_stay_apart_where_float32_confidences_are_one():
    logits = torch.tensor([[100.0, 0.0, 0.0], [120.0, 0.0, 0.0]])
    assert (logits.softmax(1)[:, 0] == 1).all()
    assert top_log_odds(logits).log_odds[:, 0].tolist() == pytest.approx([100 - math.log(2), 120 - math.log(2)])
    assert class_log_odds(logits)[:, 0].tolist() == pytest.approx([100 - math.log(2), 120 - math.log(2)])


def test_the_predicted_class_gets_the_confidence_asked_for():
    logits = some_logits()
    top = top_log_odds(logits)
    for confidence in (0.2, 0.5, 0.9, 1 - 1e-9):
        wanted = torch.full((len(logits), 1), math.log(confidence / (1 - confidence)), dtype=torch.float64)
        result = with_top_log_odds(top, wanted)
        assert torch.allclose(result.logsumexp(1), torch.zeros(len(logits), dtype=torch.float64), atol=1e-12)
        assert torch.allclose(result.gather(1, top.predicted).exp(), torch.tensor(confidence, dtype=torch.float64))
        assert torch.equal(result.argmax(1), logits.argmax(1))


def test_the_other_classes_share_the_rest_as_before_where_they_can():
    logits = torch.tensor([[3.0, 1.0, 0.0, -1.0]], dtype=torch.float64)
    result = with_top_log_odds(top_log_odds(logits), torch.tensor([[0.0]], dtype=torch.float64))
    assert torch.allclose(result[0, 1:] - result[0, 1], logits[0, 1:] - logits[0, 1])


def test_a_second_class_that_would_overtake_is_held_back_and_the_order_of_the_others_kept():
    logits = torch.tensor([[3.0, 2.9, 0.0, -1.0]], dtype=torch.float64)
    result = with_top_log_odds(top_log_odds(logits), torch.tensor([[math.log(0.3 / 0.7)]], dtype=torch.float64))
    assert float(result[0, 0].exp()) == pytest.approx(0.3)
    assert result[0].argsort(descending=True).tolist() == [0, 1, 2, 3]


def test_below_a_fair_share_the_confidence_is_lifted_to_it():
    logits = some_logits(k=5)
    top = top_log_odds(logits)
    result = with_top_log_odds(top, torch.full((len(logits), 1), -30.0, dtype=torch.float64))
    assert torch.equal(result.argmax(1), logits.argmax(1))
    assert torch.allclose(result.gather(1, top.predicted).exp(), torch.tensor(0.2, dtype=torch.float64), atol=1e-4)


@pytest.mark.parametrize("k", [2, 3, 50])
def test_float32_rounding_does_not_change_the_prediction(k):
    logits = some_logits(k, scale=0.1).float()
    top = top_log_odds(logits)
    for log_odds in (-30.0, -1.0, 0.0, 1e-5):
        result = with_top_log_odds(top, torch.full((len(logits), 1), log_odds))
        assert torch.equal(result.argmax(1), logits.argmax(1))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_predicted_class_is_put_ahead_by_the_least_the_type_can_hold(dtype):
    limits = torch.finfo(dtype)
    logits = torch.tensor([[0.0, 1.0, 0.5]], dtype=dtype)
    for level in (-50.0, -1.0, -limits.eps, 0.0, 0.3, 7.0, limits.max):
        tied = torch.full((1, 3), level, dtype=dtype)
        result = keep_argmax(tied, logits)
        assert result.argmax(1).item() == 1
        assert torch.isfinite(result).all()
        moved = (result.double() - tied.double()).abs().max()
        assert moved <= 2 * limits.eps * max(1.0, abs(level))


def test_samples_in_which_the_predicted_class_leads_are_left_alone():
    logits = some_logits(n=50)
    logits[:10, 3] = logits[:10].amax(dim=1)  # ties, of which the first counts
    assert torch.equal(keep_argmax(logits / 3, logits), logits / 3)


def test_a_large_number_added_to_all_logits_costs_no_digits():
    logits = (some_logits(scale=2.0) * 16).round() / 16
    moved = (logits + 1e6).float()
    assert torch.equal(moved.double() - 1e6, logits)
    for function in (class_log_odds, lambda rows: top_log_odds(rows).log_odds):
        assert torch.equal(function(moved), function(logits.float()))


def test_gradients_are_finite():
    logits = some_logits(n=20).requires_grad_()
    top = top_log_odds(logits)
    (with_top_log_odds(top, top.log_odds / 2).sum() + class_log_odds(logits).sum()).backward()
    assert torch.isfinite(logits.grad).all()


def test_a_map_that_keeps_the_class_runs_under_vmap():
    logits = torch.randn(20, 5, generator=torch.Generator().manual_seed(0))
    fitted = Scale(torch.tensor(1.7), n_classes=5)
    expected = logits / 1.7
    assert torch.equal(torch.func.vmap(fitted)(logits), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_tie_that_rounding_made_is_broken_where_it_is_and_nothing_else_is_touched(dtype):
    logits = torch.tensor([[1.0, 2.0, 0.0], [3.0, 1.0, 2.0]], dtype=dtype)
    values = torch.tensor([[2.0, 2.0, 0.0], [3.0, 1.0, 2.0]], dtype=dtype)
    ahead = keep_argmax(values, logits)
    assert ahead.argmax(1).tolist() == [1, 0]
    assert torch.equal(ahead[1], values[1])
    assert keep_argmax(logits.clone(), logits).equal(logits)


@pytest.mark.parametrize("temperature", [0.3, 1.7, 2.0, 1e30, math.inf])
@pytest.mark.parametrize("k", [2, 3, 10, 17, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_temperature_keeps_the_first_of_neighbouring_numbers_first(dtype, k, temperature):
    limits = torch.finfo(dtype)
    generator = torch.Generator().manual_seed(0)
    last = torch.rand(3000, generator=generator, dtype=torch.float64).to(dtype) + 1
    sizes = torch.tensor([1.0, 1e6, limits.max / 4, limits.tiny], dtype=dtype).repeat(750)
    logits = torch.full((3000, k), -1.0, dtype=dtype) * sizes[:, None]
    logits[:, -1] = last * sizes
    logits[:, 0] = torch.nextafter(logits[:, -1], logits.new_tensor(-math.inf))
    for rows in (logits, logits[::4], logits[1::4], -logits.flip(1)):
        result = Scale(torch.tensor(temperature), n_classes=k)(rows)
        assert torch.isfinite(result).all()
        assert torch.equal(result.argmax(1), rows.argmax(1))
