"""Proximity-informed calibration error: worked by hand, against loops, and beside the errors it can never be below."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from calibrant.errors import InputError
from calibrant.metrics import ace, ece, piece
from calibrant.predictions import Predictions, TopLabel


def some_rows(n=1000, seed=0):
    rng = np.random.default_rng(seed)
    confidence, proximity = rng.random(n), rng.random(n)
    return TopLabel(confidence, rng.random(n) < np.clip(confidence + proximity - 0.5, 0, 1)), proximity


def by_loops(rows, proximity, n_bins, proximity_bins):
    """Sort, cut, sort, cut: what Appendix C of the paper says."""
    confidence, correct = rows.confidence.numpy(), rows.correct.double().numpy()
    total = 0.0
    for group in np.array_split(np.argsort(confidence), n_bins):
        for part in np.array_split(group[np.argsort(proximity[group])], proximity_bins):
            if len(part):
                total += abs(confidence[part].mean() - correct[part].mean()) * len(part)
    return total / len(confidence)


def test_the_example_of_the_paper():
    # Example 4.1: two groups of equal mass, true probabilities .5 and .9, confidence .7 for all.
    rows = TopLabel([0.7] * 200, [True, False] * 50 + ([True] * 9 + [False]) * 10)
    proximity = [0.2] * 100 + [0.8] * 100
    assert ece(rows) == pytest.approx(0, abs=1e-9)
    assert piece(rows, proximity) == pytest.approx(0.2)
    assert piece(rows, proximity, bins="equal_width") == pytest.approx(0.2)


@pytest.mark.parametrize(("n_bins", "proximity_bins"), [(15, 10), (4, 3), (1, 1), (10, 5)])
def test_it_is_what_sorting_and_cutting_twice_gives(n_bins, proximity_bins):
    n = n_bins * proximity_bins * 7  # so that parts are of one size wherever the remainder goes
    rows, proximity = some_rows(n)
    value = piece(rows, proximity, n_bins=n_bins, proximity_bins=proximity_bins)
    assert value == pytest.approx(by_loops(rows, proximity, n_bins, proximity_bins), abs=1e-12)


def test_bins_of_equal_width_are_divided_by_proximity():
    rows, proximity = some_rows(600)
    expected = 0.0
    for index in range(5):
        inside = np.flatnonzero((rows.confidence.numpy() > index / 5) & (rows.confidence.numpy() <= (index + 1) / 5))
        order = inside[np.argsort(proximity[inside])]
        edges = len(order) * np.arange(4) // 3
        gap = rows.confidence.numpy() - rows.correct.double().numpy()
        expected += sum(abs(gap[order[low:high]].sum()) for low, high in pairwise(edges)) / 600
    assert piece(rows, proximity, n_bins=5, proximity_bins=3, bins="equal_width") == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_it_is_never_below_the_error_over_confidence_alone(seed):
    rows, proximity = some_rows(777, seed)
    assert piece(rows, proximity) >= ace(rows) - 1e-12
    assert piece(rows, proximity, bins="equal_width") >= ece(rows) - 1e-12


def test_one_part_and_equal_proximities_leave_the_error_over_confidence():
    rows, proximity = some_rows(777)
    assert piece(rows, proximity, proximity_bins=1) == pytest.approx(ace(rows), abs=1e-12)
    assert piece(rows, np.full(777, 0.3)) == pytest.approx(ace(rows), abs=1e-12)
    assert piece(rows, np.full(777, 0.3), bins="equal_width") == pytest.approx(ece(rows), abs=1e-12)


@pytest.mark.parametrize("bins", ["equal_mass", "equal_width"])
def test_the_order_of_the_samples_plays_no_part_even_with_ties(bins):
    rng = np.random.default_rng(0)
    rows = TopLabel(rng.integers(5, 11, 300) / 10, rng.random(300) < 0.7)
    proximity = rng.integers(0, 4, 300) / 4
    value = piece(rows, proximity, bins=bins)
    for _ in range(5):
        turned = torch.from_numpy(rng.permutation(300))
        assert piece(rows[turned], proximity[turned.numpy()], bins=bins) == pytest.approx(value, abs=1e-9)


def test_more_parts_than_samples_are_samples_by_themselves():
    rows, proximity = some_rows(7)
    expected = float((rows.confidence - rows.correct.double()).abs().mean())
    assert piece(rows, proximity, n_bins=1, proximity_bins=50) == pytest.approx(expected)
    assert piece(rows, proximity, n_bins=50, proximity_bins=3) == pytest.approx(expected)


def test_predictions_will_do_as_well_as_top_labels():
    logits = torch.randn(100, 4, generator=torch.manual_seed(0))
    predictions = Predictions.from_logits(logits, torch.arange(100) % 4)
    proximity = torch.rand(100, generator=torch.manual_seed(1))
    assert piece(predictions, proximity) == piece(predictions.top, proximity)


def test_what_does_not_belong_to_the_samples_is_refused():
    rows, proximity = some_rows(20)
    for wrong, message in (
        (proximity[:19], r"must have shape \(20,\)"),
        (proximity[:, None], r"got shape \(20, 1\)"),
        (np.where(proximity > 0.5, np.nan, proximity), "finite"),
    ):
        with pytest.raises(InputError, match=message):
            piece(rows, wrong)
    for option in ("n_bins", "proximity_bins"):
        with pytest.raises(InputError, match=f"{option} must be at least 1"):
            piece(rows, proximity, **{option: 0})
    with pytest.raises(InputError, match="bins must be one of equal_mass, equal_width"):
        piece(rows, proximity, bins="equal")
