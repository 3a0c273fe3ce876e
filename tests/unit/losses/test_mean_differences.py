import pytest
import torch
from made_samples import batch

from calibrant.errors import InputError
from calibrant.losses.confidence_accuracy import DCALoss, MDCALoss
from calibrant.metrics import ece
from calibrant.predictions import Predictions


def test_mdca_compares_each_class_with_its_frequency():
    logits, labels = batch()
    probs = logits.softmax(1).tolist()
    gaps = [abs(sum(p[k] for p in probs) / 60 - labels.tolist().count(k) / 60) for k in range(4)]
    assert MDCALoss().penalty(logits, labels).item() == pytest.approx(sum(gaps) / 4, rel=1e-12)


def test_mdca_of_one_hot_labels_is_that_of_whole_numbers():
    logits, labels = batch()
    one_hot = torch.nn.functional.one_hot(labels, 4).double()
    assert MDCALoss()(logits, one_hot).item() == pytest.approx(MDCALoss()(logits, labels).item(), rel=1e-12)


def test_mdca_takes_mixed_labels():
    logits, labels = batch()
    one_hot = torch.nn.functional.one_hot(labels, 4).double()
    mixed = 0.7 * one_hot + 0.3 * one_hot.flip(0)
    expected = (logits.softmax(1).mean(0) - mixed.mean(0)).abs().mean()
    assert MDCALoss().penalty(logits, mixed).item() == pytest.approx(expected.item(), rel=1e-12)


def test_a_class_that_no_sample_has_counts_as_never():
    logits = torch.zeros(2, 4)
    assert MDCALoss().penalty(logits, torch.tensor([0, 0])).item() == pytest.approx((0.75 + 3 * 0.25) / 4)


def test_dca_is_the_calibration_error_with_one_bin():
    logits, labels = batch()
    expected = ece(Predictions.from_logits(logits, labels), n_bins=1)
    assert DCALoss().penalty(logits, labels).item() == pytest.approx(expected, rel=1e-6)


def test_dca_refuses_soft_labels():
    logits, labels = batch()
    with pytest.raises(InputError, match="dca must have whole-numbered labels"):
        DCALoss()(logits, torch.nn.functional.one_hot(labels, 4).double())
