"""The checks that ``calibrant.testing`` offers to plugins pass on our own classes, and fail on broken ones."""

from typing import ClassVar

import pytest
import torch

from calibrant import catalogue
from calibrant.calibrators import TemperatureScaling
from calibrant.losses import CrossEntropyLoss, RowLoss
from calibrant.maps import Scale
from calibrant.metrics import ECE
from calibrant.metrics.states import Binned
from calibrant.testing import check_calibrator, check_loss, check_metric

# Losses whose weights or bins are constants to the gradient, jump, or remember samples: no finite differences.
NOT_SMOOTH = {"flsd", "avuc", "crl", "sb_ece", "dece", "sece", "mmce", "soft_avuc", "dca", "mdca", "mbls"}


@pytest.mark.parametrize("name", catalogue.metrics)
def test_our_metrics_keep_the_laws(name):
    check_metric(catalogue.metrics[name])


@pytest.mark.parametrize("name", [name for name in catalogue.losses if name not in NOT_SMOOTH])
def test_our_losses_keep_the_laws(name):
    check_loss(catalogue.losses[name])


def test_a_calibrator_that_breaks_a_promise_is_caught(monkeypatch):
    monkeypatch.setattr(TemperatureScaling, "preserves_accuracy", True)
    backwards = TemperatureScaling(value=2.0)
    monkeypatch.setattr(Scale, "forward", lambda self, logits: -logits)  # noqa: ARG005
    with pytest.raises(AssertionError, match="preserves_accuracy"):
        check_calibrator(backwards)


def test_a_metric_whose_states_do_not_add_up_is_caught(monkeypatch):
    whole = Binned.__call__
    monkeypatch.setattr(Binned, "__call__", lambda self, rows: whole(self, rows[: max(150, len(rows) // 2)]))
    with pytest.raises(AssertionError, match="merged states"):
        check_metric(ECE())


class _WrongGradient(RowLoss):
    name: ClassVar[str] = "wrong_gradient"
    title: ClassVar[str] = "A loss with a constant weight"
    paper = CrossEntropyLoss.paper

    def rows(self, logits, labels):
        probs = logits.softmax(1).gather(1, labels[:, None])[:, 0]
        return -probs.detach() * torch.log(probs)


def test_a_loss_with_a_wrong_gradient_is_caught():
    with pytest.raises(AssertionError, match="finite differences"):
        check_loss(_WrongGradient())
