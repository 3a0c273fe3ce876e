"""When a sample was learned, and what is written down after an epoch: by hand, and by the library's own metrics."""

import json
import math
from dataclasses import replace

import pytest
import torch

from calibrant.calibrators import TemperatureScaling
from calibrant.errors import FitError
from calibrant.metrics import accuracy, ece, nll
from calibrant.models import build_model
from calibrant.numerics.binning import lowest_error
from calibrant.predictions import Predictions
from calibrant.training import EpochRecord, RuntimeOptions, learned_epochs, train_together
from calibrant.training.record import LearningTrace, _contiguous_weights, evaluate_held_out


def predictions(n=800, k=5, sharper=2.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, k, generator=generator)
    labels = logits.softmax(1).multinomial(1, generator=generator).squeeze()
    return sharper * logits, labels


def test_the_learned_epoch_is_the_first_of_an_unbroken_row_to_the_end():
    told = {"1111": 1, "0111": 2, "0011": 3, "0001": 4, "0000": 5, "1110": 5, "1101": 4, "1011": 3}
    correct = torch.tensor([[int(digit) for digit in row] for row in told], dtype=torch.bool).T
    assert learned_epochs(correct).tolist() == list(told.values())


def test_the_learned_epoch_by_brute_force():
    correct = torch.rand(7, 500, generator=torch.Generator().manual_seed(0)) < 0.8
    for row, found in zip(correct.T.tolist(), learned_epochs(correct).tolist(), strict=True):
        assert found == next((epoch + 1 for epoch in range(7) if all(row[epoch:])), 8)


@pytest.mark.parametrize("n", [1, 7, 8, 9, 1001])
def test_a_trace_remembers_every_sample_of_every_epoch_and_comes_back(n):
    generator = torch.Generator().manual_seed(n)
    trace, again = LearningTrace(n), LearningTrace(n)
    assert trace.correct.shape == (0, n)
    labels = torch.randint(3, (n,), generator=generator)
    all_logits = torch.randn(4, n, 3, generator=generator)
    for logits in all_logits:
        trace.add(logits, labels)
    assert torch.equal(trace.correct, all_logits.argmax(dim=2) == labels)
    assert torch.equal(trace.max_logit, all_logits[-1].amax(dim=1))
    again.restore(trace.state())
    again.add(all_logits[0], labels)
    trace.add(all_logits[0], labels)
    assert torch.equal(again.correct, trace.correct)


def test_a_session_traces_its_training_samples_unaugmented_after_each_epoch(session_of):
    session = session_of(epochs=3, runtime=RuntimeOptions(traced=True))
    expected = []

    def look(session, _record):
        stored = session.data.training
        with torch.no_grad():
            session.model.eval()
            expected.append(session.model(stored.inputs.plain(torch.arange(320))).argmax(dim=1) == stored.labels)

    train_together([session], after_epoch=look)
    assert torch.equal(session.trace.correct, torch.stack(expected))
    assert [record.training_accuracy for record in session.records] == [
        pytest.approx(float(each.double().mean())) for each in expected
    ]
    assert len(set(learned_epochs(session.trace.correct).tolist())) > 1


def test_weights_that_an_evaluation_lays_out_anew_are_where_they_were_afterwards():
    network = build_model("resnet20", n_classes=10, in_channels=3, image_size=32).eval()
    network.to(memory_format=torch.channels_last)
    images = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    places = [weight.data_ptr() for weight in network.parameters()]
    before = network(images.contiguous(memory_format=torch.channels_last))
    with _contiguous_weights(network):
        assert all(weight.is_contiguous() for weight in network.parameters())
        assert torch.allclose(network(images), before, atol=1e-5)
    assert places == [weight.data_ptr() for weight in network.parameters()]
    assert next(network.parameters()).is_contiguous(memory_format=torch.channels_last)


def test_the_numbers_are_those_of_the_metrics():
    logits, labels = predictions()
    record, given = evaluate_held_out(logits, labels), Predictions.from_logits(logits, labels)
    assert record.accuracy == float(accuracy(given))
    assert record.nll == float(nll(given))
    assert record.ece == float(ece(given))
    assert record.max_logit == pytest.approx(float(logits.max(dim=1).values.mean()), rel=1e-6)


def test_the_temperature_is_that_of_temperature_scaling_on_the_same_samples():
    logits, labels = predictions(sharper=3.0)
    fitted = TemperatureScaling().fit(Predictions.from_logits(logits, labels))
    record = evaluate_held_out(logits, labels)
    assert record.temperature == pytest.approx(float(fitted.temperature), rel=1e-5)
    assert record.temperature == pytest.approx(3.0, rel=0.15)


@pytest.mark.parametrize("sharper", [0.3, 1.0, 4.0])
def test_the_oracles_error_is_no_higher_than_that_of_any_temperature_near(sharper):
    logits, labels = predictions(sharper=sharper)
    record = evaluate_held_out(logits, labels)
    tried = [record.temperature * 2 ** (step / 50) for step in range(-50, 51)]
    errors = [float(ece(Predictions.from_logits(logits.double() / t, labels))) for t in tried]
    # Up to the rounding of float32 confidences.
    assert record.optimal_ece <= min(errors) + 1e-6
    assert record.optimal_ece == lowest_error(logits, labels, n_bins=15).error


def test_a_network_that_has_died_has_no_temperature_but_a_record():
    labels = torch.arange(90) % 3
    record = evaluate_held_out(torch.full((90, 3), 0.7), labels)
    assert record.temperature is None
    assert record.accuracy == pytest.approx(1 / 3)
    assert record.nll == pytest.approx(math.log(3))
    assert record.ece == pytest.approx(0, abs=1e-6)
    assert record.optimal_ece == pytest.approx(0, abs=1e-6)


def test_samples_that_are_all_right_or_all_wrong_have_a_finite_record():
    for labels in (torch.arange(4), (torch.arange(4) + 1) % 4):
        record = evaluate_held_out(5 * torch.eye(4), labels)
        told = json.dumps(EpochRecord(1, 0.0, 0.1, 0.5, 0.9, {"test": record}).as_dict(), allow_nan=False)
        assert json.loads(told)["held_out"]["test"]["temperature"] > 0


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_are_refused(bad):
    with pytest.raises(FitError, match=r"logits must stay finite; they are not\. Lower the learning rate"):
        evaluate_held_out(torch.tensor([[0.0, bad], [1.0, 0.0]]), torch.tensor([0, 1]))


def test_a_record_comes_back_from_a_file():
    record = EpochRecord(3, 1.5, 0.1, 0.7, 0.8, {"test": evaluate_held_out(*predictions())})
    assert EpochRecord.from_dict(json.loads(json.dumps(record.as_dict()))) == record
    traced = replace(record, training_accuracy=0.9)
    assert EpochRecord.from_dict(json.loads(json.dumps(traced.as_dict()))) == traced
    assert "training_accuracy" not in record.as_dict()
    unseen = EpochRecord(3, 1.5, 0.1, 0.7, 0.8, {})
    assert EpochRecord.from_dict(json.loads(json.dumps(unseen.as_dict()))) == unseen
