"""Weights of samples: what is accepted, and that every copy of the samples keeps them."""

import numpy as np
import pytest
import torch

from calibrant.errors import InputError
from calibrant.metrics import calibration_refinement, murphy, piece, refinement_terms, top_brier
from calibrant.predictions import Predictions, TopLabel
from calibrant.testing import overconfident

LOGITS, LABELS, WEIGHTS = np.array([[2.0, 0.0], [0.0, 1.0], [3.0, 0.0]]), [0, 1, 1], [1.0, 2.5, 0.0]
PROBS = np.array([[0.9, 0.1], [0.4, 0.6], [0.7, 0.3]])


def made(weights=WEIGHTS):
    return Predictions.from_logits(LOGITS, LABELS, weights=weights)


@pytest.mark.parametrize(
    "samples",
    [
        Predictions(LOGITS, LABELS, weights=WEIGHTS),
        made(),
        Predictions.from_probs(PROBS, LABELS, weights=np.array(WEIGHTS, dtype=np.float32)),
        Predictions.from_binary_logits(LOGITS[:, 1], LABELS, weights=torch.tensor(WEIGHTS)),
        TopLabel([0.9, 0.8, 0.7], [True, True, False], weights=WEIGHTS),
        made().top,
        made().mixed_with_uniform(0.1),
        made().with_logits(torch.zeros(3, 2, dtype=torch.float64)),
        next(made().blocks()),
    ],
)
def test_weights_are_kept_in_float64(samples):
    assert samples.weights.dtype == torch.float64
    assert samples.weights.tolist() == WEIGHTS


def test_rows_keep_their_weights():
    for samples in (made(), made().top):
        assert samples[1:].weights.tolist() == [2.5, 0.0]
        assert samples[torch.tensor([2, 0])].weights.tolist() == [0.0, 1.0]
        assert [block.weights.tolist() for block in samples.blocks(2)] == [[1.0, 2.5], [0.0]]


def test_samples_without_weights_are_joined_with_weight_one():
    assert (made() + made(None)).weights.tolist() == [*WEIGHTS, 1, 1, 1]
    assert (made(None) + made()).weights.tolist() == [1, 1, 1, *WEIGHTS]
    assert (made(None) + made(None)).weights is None


def test_the_accuracy_is_by_weight():
    assert made().top.accuracy == 1.0  # the wrong one counts nothing
    assert made([1, 1, 2]).top.accuracy == 0.5


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, -2.0, 1.0], "got -2 at row 1"),
        ([1.0, 1.0, float("nan")], "got nan at row 2"),
        ([float("inf"), 1.0, 1.0], "got inf at row 0"),
        ([1.0, 1e-200, 1.0], "got 1e-200 at row 1"),
        ([0, 0, 0], "must not all be 0"),
        ([1.0, 1.0], r"shape \(3,\).* got \(2,\)"),
        ([[1.0], [1.0], [1.0]], r"got \(3, 1\)"),
        (1.0, r"got \(\)"),
        (["a", "b", "c"], "weights must be a tensor"),
        ([True, False, True], "weights must be real numbers"),
    ],
)
def test_bad_weights_are_refused_with_their_row(weights, message):
    for build in (lambda: made(weights), lambda: TopLabel([0.9, 0.8, 0.7], [True, True, False], weights=weights)):
        with pytest.raises(InputError, match=message):
            build()


@pytest.fixture
def weighted_and_repeated():
    samples = overconfident(300, 4)
    weights = torch.randint(0, 4, (300,), generator=torch.Generator().manual_seed(3))
    weighted = Predictions.from_logits(samples.logits, samples.labels, weights=weights)
    return weighted, samples[torch.arange(300).repeat_interleave(weights)]


@pytest.mark.parametrize("function", [murphy, refinement_terms])
def test_decompositions_of_whole_weights_equal_repetition(function, weighted_and_repeated):
    weighted, repeated = weighted_and_repeated
    assert function(weighted) == pytest.approx(function(repeated), rel=1e-12, abs=1e-15)


def test_the_decomposition_of_the_brier_score_is_exact_with_weights(weighted_and_repeated):
    weighted, _ = weighted_and_repeated
    assert murphy(weighted).brier == pytest.approx(top_brier(weighted), rel=1e-12)


def test_the_temperature_split_depends_on_ratios_only_and_its_total_equals_repetition(weighted_and_repeated):
    weighted, repeated = weighted_and_repeated
    scaled = Predictions.from_logits(weighted.logits, weighted.labels, weights=1e6 * weighted.weights)
    split, of_scaled, of_repeated = (calibration_refinement(each) for each in (weighted, scaled, repeated))
    for name, parts in split.items():
        assert parts == pytest.approx(of_scaled[name], rel=1e-6, abs=1e-9)
        assert parts.total == pytest.approx(of_repeated[name].total, rel=1e-12)
        assert parts.calibration == pytest.approx(of_repeated[name].calibration, rel=0.1)
        # Repeated samples look like more evidence than they are.
        assert parts.calibration_high - parts.calibration_low > np.diff(of_repeated[name][2:4])[0]


def test_weights_of_one_leave_the_temperature_split(weighted_and_repeated):
    _, samples = weighted_and_repeated
    ones = Predictions.from_logits(samples.logits, samples.labels, weights=np.ones(len(samples)))
    for name, parts in calibration_refinement(ones).items():
        assert parts == pytest.approx(calibration_refinement(samples)[name], rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("bins", ["equal_mass", "equal_width"])
def test_proximity_bins_are_cut_by_weight(bins):
    rng = np.random.default_rng(0)
    confidence, correct, near = rng.random(500), rng.random(500) < 0.5, rng.random(500)
    weights = rng.integers(0, 4, 500)

    def error(rows, weights):
        return piece(TopLabel(confidence[rows], correct[rows], weights=weights), near[rows], bins=bins)

    rows, repeated = np.arange(500), np.repeat(np.arange(500), weights)
    assert error(rows, np.ones(500)) == error(rows, None)
    assert error(rows, 1e3 * weights) == pytest.approx(error(rows, weights), rel=1e-9)
    assert error(rows, weights) == pytest.approx(error(repeated, None), rel=0.05)  # cuts at whole samples differ
