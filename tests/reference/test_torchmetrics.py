"""Ours beside torchmetrics, live, with the settings under which both agree, and where torchmetrics is wrong."""

import pytest
import torch
from torchmetrics.functional.classification import (
    binary_auroc,
    binary_average_precision,
    binary_calibration_error,
    multiclass_accuracy,
    multiclass_calibration_error,
)

from calibrant.errors import InputError
from calibrant.metrics import accuracy, aupr_success, auroc, ece, mce
from calibrant.predictions import Predictions, TopLabel

SHAPES = [(50, 2), (400, 3), (1_000, 10), (300, 100)]
SEEDS = [0, 1]
# torchmetrics casts confidences to float32 whatever it is given.
AS_FLOAT32 = {"rel": 1e-5, "abs": 1e-6}


class Sample:
    """Random logits with labels drawn from a flatter softmax; no confidence reaches 1."""

    def __init__(self, n, k, seed):
        generator = torch.Generator().manual_seed(1_000 * n + 10 * k + seed)
        self.logits = 3 * torch.randn(n, k, generator=generator, dtype=torch.float64)
        self.probs = self.logits.softmax(dim=1)
        self.labels = torch.multinomial((self.logits / 1.5).softmax(dim=1), 1, generator=generator).flatten()
        self.confidence, predicted = self.probs.max(dim=1)
        self.correct = predicted == self.labels
        self.n_classes = k
        self.ours = Predictions.from_logits(self.logits, self.labels)


@pytest.fixture(
    params=[(*shape, seed) for shape in SHAPES for seed in SEEDS], ids=lambda p: f"{p[0]}x{p[1]}-seed{p[2]}"
)
def sample(request):
    return Sample(*request.param)


def test_accuracy_is_micro_averaged_multiclass_accuracy(sample):
    theirs = multiclass_accuracy(sample.probs, sample.labels, num_classes=sample.n_classes, average="micro")
    assert accuracy(sample.ours) == pytest.approx(float(theirs), **AS_FLOAT32)


@pytest.mark.parametrize("n_bins", [10, 15])
def test_ece_is_multiclass_calibration_error_l1_where_no_confidence_is_one(sample, n_bins):
    theirs = multiclass_calibration_error(
        sample.probs, sample.labels, num_classes=sample.n_classes, n_bins=n_bins, norm="l1"
    )
    assert ece(sample.ours, n_bins=n_bins) == pytest.approx(float(theirs), **AS_FLOAT32)


@pytest.mark.parametrize("n_bins", [10, 15])
def test_mce_is_multiclass_calibration_error_max_where_no_confidence_is_one(sample, n_bins):
    theirs = multiclass_calibration_error(
        sample.probs, sample.labels, num_classes=sample.n_classes, n_bins=n_bins, norm="max"
    )
    assert mce(sample.ours, n_bins=n_bins) == pytest.approx(float(theirs), **AS_FLOAT32)


def test_ece_of_confidence_and_correctness_is_binary_calibration_error(sample):
    theirs = binary_calibration_error(sample.confidence, sample.correct.long(), n_bins=15, norm="l1")
    ours = ece(TopLabel(sample.confidence, sample.correct), n_bins=15)
    assert ours == pytest.approx(float(theirs), **AS_FLOAT32)


def test_auroc_is_binary_auroc_of_correctness(sample):
    theirs = binary_auroc(sample.confidence, sample.correct.long())
    assert auroc(sample.ours) == pytest.approx(float(theirs), **AS_FLOAT32)


def test_aupr_success_is_binary_average_precision_of_correctness(sample):
    theirs = binary_average_precision(sample.confidence, sample.correct.long())
    assert aupr_success(sample.ours) == pytest.approx(float(theirs), **AS_FLOAT32)


# Where torchmetrics is wrong. If one of these fails at "peer", the peer has fixed it: move the case to agreement.


def test_confidence_of_one_falls_in_the_last_bin_and_not_in_one_of_its_own():
    # Both samples lie in the last bin: |mean confidence 0.975 - accuracy 0.5|.
    truth = 0.475
    top = TopLabel(torch.tensor([1.0, 0.95], dtype=torch.float64), [False, True])
    assert ece(top, n_bins=15) == pytest.approx(truth, rel=1e-12)
    peer = multiclass_calibration_error(
        torch.tensor([[1.0, 0.0], [0.95, 0.05]]), torch.tensor([1, 0]), num_classes=2, n_bins=15
    )
    assert float(peer) == pytest.approx(0.525)


def test_four_million_samples_are_summed_without_losing_digits():
    # 53/64 is exact in float32: what the peer loses, it loses by adding up.
    confidence = torch.full((3_999_999,), 53 / 64)
    correct = torch.tensor([0, 1, 1]).repeat(1_333_333)
    truth = 53 / 64 - 2 / 3
    assert ece(TopLabel(confidence, correct), n_bins=15) == pytest.approx(truth, rel=1e-9)
    peer = binary_calibration_error(confidence, correct, n_bins=15)
    assert abs(float(peer) - truth) > 0.01


def test_a_probability_above_one_is_refused_and_nothing_is_guessed():
    probs = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [1.0000001, 0.0]])
    labels = torch.tensor([0, 0, 1, 0])
    with pytest.raises(InputError, match="row 3"):
        Predictions.from_probs(probs, labels)
    # (0.1 + 0.2 + 0.7 + 0.0)/4, once the number is what it was meant to be.
    truth = 0.25
    assert ece(Predictions.from_probs(probs.clamp(max=1), labels)) == pytest.approx(truth, rel=1e-6)
    peer = multiclass_calibration_error(probs, labels, num_classes=2, n_bins=15)
    assert float(peer) == pytest.approx(0.383, abs=1e-3)


def test_logits_that_look_like_probabilities_are_still_logits():
    logits, labels = torch.tensor([[0.9, 0.1], [0.2, 0.8]], dtype=torch.float64), torch.tensor([0, 1])
    truth = float(1 - logits.softmax(dim=1).max(dim=1).values.mean())
    assert ece(Predictions.from_logits(logits, labels)) == pytest.approx(truth, rel=1e-9)
    peer = multiclass_calibration_error(logits, labels, num_classes=2, n_bins=15)
    assert float(peer) == pytest.approx(0.15)
