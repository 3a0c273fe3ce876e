"""Maps that keep the order of classes: a network written out in numpy, a curve drawn by numpy, and what order means."""

import numpy as np
import pytest
import torch

from calibrant.maps import MonotoneMap, OrderPreservingMap

SEES = pytest.mark.parametrize("sees", ["given", "sorted"])


def network(k, *, hidden=5, sees="given", seed=0, size=1.0):
    """A map with weights drawn at random, large enough to stretch gaps very differently."""
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: size * torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    return OrderPreservingMap(
        beta=torch.tensor(0.7),
        centre=draw(k),
        hidden_weight=draw(hidden, k),
        hidden_bias=draw(hidden),
        out_weight=draw(k - 1, hidden),
        out_bias=draw(()),
        n_classes=k,
        sees=sees,
    )


def curve(k, pieces=4):
    """A rising function that is steep for large log-probabilities and flat for small ones."""
    knots = torch.linspace(-6, -0.5, pieces - 1)
    return MonotoneMap(torch.tensor(0.7), knots, torch.linspace(0.05, 2, pieces), n_classes=k)


def all_maps(k):
    return [network(k), network(k, sees="sorted"), curve(k)]


def some_logits(k=6, n=300, scale=4.0, seed=1):
    return scale * torch.randn(n, k, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@SEES
def test_the_network_is_the_formula_of_the_paper(sees):
    k, fitted = 5, network(5, sees=sees)
    weight = {name: value.numpy() for name, value in fitted.named_buffers()}
    for row in some_logits(k, n=20).numpy():
        order = np.argsort(-row, kind="stable")
        scaled = 0.7 * (row[order] if sees == "sorted" else row)
        seen = scaled - np.log(np.exp(scaled).sum())
        hidden = np.tanh(weight["hidden_weight"] @ (seen - weight["centre"]) + weight["hidden_bias"])
        multiplier = np.log1p(np.exp(weight["out_weight"] @ hidden + weight["out_bias"]))
        # From the smallest upwards, as printed there: each logit is the one below it plus a gap times its multiplier.
        out = np.zeros(k)
        for place in range(k - 2, -1, -1):
            gap = row[order[place]] - row[order[place + 1]]
            out[order[place]] = out[order[place + 1]] + 0.7 * gap * multiplier[place]
        result = fitted(torch.from_numpy(row)).numpy()
        np.testing.assert_allclose(result - result.max(), out - out.max(), atol=1e-12)


def test_the_curve_is_a_line_through_its_knots():
    k, fitted = 4, curve(4)
    logits = some_logits(k)
    log_probs = (0.7 * logits).log_softmax(1).numpy()
    knots, slopes = fitted.knots.numpy(), fitted.slopes.numpy()
    # Drawn far enough to both sides that the end slopes are seen.
    x = np.concatenate([[-60.0], knots, [1.0]])
    y = np.concatenate([[0.0], np.cumsum(slopes * np.diff(x))])
    expected = np.interp(log_probs, x, y)
    result = fitted(logits).numpy()
    np.testing.assert_allclose(result, expected - expected.max(1, keepdims=True), atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("k", [2, 7, 100])
def test_no_two_logits_of_a_row_change_places(k, dtype):
    logits = some_logits(k).to(dtype)
    order = logits.argsort(dim=1, descending=True)
    for fitted in all_maps(k):
        assert (fitted(logits).gather(1, order).diff(dim=1) <= 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e4])
def test_the_prediction_stays_even_if_it_leads_by_one_bit(scale, dtype):
    second = (scale * (1 + torch.rand(200, 1, generator=torch.manual_seed(0)))).to(dtype)
    top = torch.nextafter(second, torch.full_like(second, torch.inf))
    # Behind the second, so that an argmax which finds them equal would choose wrongly.
    logits = torch.cat([second, top, torch.zeros_like(top), second], dim=1)
    for fitted in all_maps(4):
        result = fitted(logits)
        assert result.dtype == dtype
        assert (result.argmax(dim=1) == 1).all()


def test_equal_logits_stay_equal():
    logits = torch.randint(-2, 3, (300, 6), generator=torch.manual_seed(0)).float()
    tied = logits[:, :, None] == logits[:, None, :]
    for fitted in all_maps(6):
        result = fitted(logits)
        assert torch.equal(result[:, :, None] == result[:, None, :], tied)


def test_the_names_of_the_classes_play_no_part_in_a_sorted_network():
    logits, turned = some_logits(6), torch.tensor([3, 0, 5, 1, 4, 2])
    fitted = network(6, sees="sorted")
    assert torch.equal(fitted(logits)[:, turned], fitted(logits[:, turned]))
    fitted = network(6, sees="given")
    assert not torch.allclose(fitted(logits)[:, turned], fitted(logits[:, turned]))


def test_a_constant_added_to_a_row_changes_nothing():
    logits = some_logits(6)
    for fitted in all_maps(6):
        assert torch.allclose(fitted(logits), fitted(logits + torch.arange(300)[:, None]), atol=1e-9)


def test_weights_of_any_size_give_finite_logits():
    logits = torch.tensor([[1e4, 0.0, -1e4, 3.0], [103.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    for fitted in [network(4, size=100.0), network(4, sees="sorted", size=100.0), curve(4)]:
        assert torch.isfinite(fitted(logits).log_softmax(1)).all()
        assert (fitted(logits).argmax(1) == logits.argmax(1)).all()


def test_any_number_of_batch_dimensions_will_do():
    logits = some_logits(6, n=24)
    for fitted in all_maps(6):
        expected = fitted(logits)
        assert torch.equal(fitted(logits.view(2, 3, 4, 6)).view(24, 6), expected)
        assert torch.allclose(fitted(logits[0]), expected[0])


def test_a_map_is_built_again_from_its_buffers_and_settings():
    logits = some_logits(6)
    for fitted in all_maps(6):
        again = type(fitted)(**dict(fitted.named_buffers()), **fitted.settings(), n_classes=fitted.n_classes)
        assert torch.equal(again(logits), fitted(logits))


def test_gradients_reach_the_logits():
    for fitted in all_maps(6):
        logits = some_logits(6, n=20).requires_grad_()
        fitted(logits).log_softmax(1)[:, 0].sum().backward()
        assert torch.isfinite(logits.grad).all()
        assert (logits.grad != 0).any()


def test_exported_maps_give_the_same_for_any_number_of_samples():
    rows = torch.export.Dim("rows", min=2)
    for fitted in all_maps(6):
        program = torch.export.export(fitted, (some_logits(6).float(),), dynamic_shapes={"logits": {0: rows}})
        other = some_logits(6, n=17, seed=2).float()
        assert torch.allclose(program.module()(other), fitted(other), atol=1e-6)
