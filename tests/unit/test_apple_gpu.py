"""What is on an Apple GPU, which has no float64, gives the numbers of the same on the CPU."""

import numpy as np
import pytest
import torch
from apple_gpu import AppleGPU, move
from torch import nn

from calibrant import Predictions, TemperatureScaling, catalogue, ece, evaluate, evaluate_slices
from calibrant.clamping import NeuralClamping
from calibrant.confidence import ConfidNet, TrustScore
from calibrant.errors import InputError
from calibrant.losses import FocalLoss
from calibrant.metrics import ECE, NLL, Tally
from calibrant.models import build_model
from calibrant.testing import overconfident
from calibrant.training.record import evaluate_held_out

SAMPLES = overconfident(400, 4)


@pytest.fixture(autouse=True)
def _gpu():
    with AppleGPU():
        yield


@pytest.fixture
def there():
    return SAMPLES.logits.float().to("mps"), SAMPLES.labels.to("mps")


def test_the_device_has_no_float64_and_no_numpy(there):
    with pytest.raises(TypeError, match="float64"):
        there[0].double()
    with pytest.raises(TypeError, match="numpy"):
        np.asarray(there[0])
    with pytest.raises(RuntimeError, match="same device"):
        there[0] + SAMPLES.logits


def test_metrics_and_evaluations_are_those_of_the_cpu(there):
    here = SAMPLES.logits.float(), SAMPLES.labels
    for scores, labels in (there, (there[0], SAMPLES.labels), (there[0], SAMPLES.labels.numpy())):
        assert ece(logits=scores, labels=labels) == ece(logits=here[0], labels=here[1])
    assert ece(probs=there[0].softmax(1), labels=there[1]) == pytest.approx(ece(logits=here[0], labels=here[1]))
    weights, clusters = torch.rand(400), torch.arange(400) // 4
    made, expected = (
        Predictions.from_logits(*given).with_weights(weights.to(device)).with_clusters(clusters.to(device))
        for given, device in ((there, "mps"), (here, "cpu"))
    )
    assert evaluate(made, resamples=20).metrics == evaluate(expected, resamples=20).metrics
    half = torch.arange(400) % 2
    slices = evaluate_slices(made, by={"half": half.to("mps")}, resamples=20)
    assert slices == evaluate_slices(expected, by={"half": half}, resamples=20)
    assert Tally([ECE(), NLL()]).add(made).values() == Tally([ECE(), NLL()]).add(expected).values()
    assert evaluate_held_out(*there) == evaluate_held_out(*here)


@pytest.mark.parametrize("method", ["temperature", "platt", "isotonic_ovr", "svs", "ets", "spline", "order_invariant"])
def test_a_map_moves_there_in_float32_and_calibrates_there(there, method):
    fitted = catalogue.parse_calibrator(method).fit(Predictions.from_logits(*there))
    expected = fitted(there[0].cpu())
    assert next(fitted.buffers()).dtype == torch.float64
    fitted.to("mps")
    calibrated = fitted(there[0])
    assert calibrated.device.type == fitted.predict_proba(logits=there[0]).device.type == "mps"
    torch.testing.assert_close(calibrated.cpu(), expected, rtol=1e-4, atol=1e-4)


def test_losses_train_there(there):
    loss = FocalLoss(class_weights=(1.0, 2.0, 1.0, 1.0)).to("mps")
    scores = there[0].clone().requires_grad_()
    loss(scores, there[1]).backward()
    here = scores.detach().cpu().requires_grad_()
    FocalLoss(class_weights=(1.0, 2.0, 1.0, 1.0))(here, SAMPLES.labels).backward()
    assert scores.grad.device.type == "mps"
    torch.testing.assert_close(scores.grad.cpu(), here.grad)


def test_methods_of_features_and_networks_work_there_or_say_what_to_do(there):
    features = torch.randn(400, 6)
    TrustScore().fit(features.to("mps"), there[1])
    head = ConfidNet(epochs=1).fit_features(Predictions.from_logits(*there), features.to("mps"))
    expected = head.confidence(features)
    torch.testing.assert_close(move(head).confidence(features.to("mps")), expected)
    torch.testing.assert_close(head.top_label(Predictions.from_logits(*there), features).confidence, expected)
    network = move(build_model("digits_cnn", n_classes=4, in_channels=1, image_size=8)).eval()
    inputs = torch.randn(400, 1, 8, 8)
    for fit in (NeuralClamping().fit, ConfidNet(epochs=1).fit, TrustScore().fit_network):
        with pytest.raises(InputError, match=r"device with float64 .* an Apple GPU has none. Move it: model.cpu\(\)"):
            fit(network, (inputs.to("mps"), there[1]))
    deployed = nn.Sequential(network, TemperatureScaling().fit(SAMPLES).to("mps"))
    assert deployed(inputs.to("mps")).device.type == "mps"
