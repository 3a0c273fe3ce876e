"""What records keep of a network for figures: bins, counts, errors by calibration samples, logits by learned epoch."""

import pytest
import torch
from experiments.evaluation import confidence_counts, errors_by_size, logits_by_learned_epoch, reliability_bins
from scipy.stats import spearmanr

from calibrant.calibrators import HistogramBinning, TemperatureScaling
from calibrant.metrics import ECE
from calibrant.predictions import Predictions
from calibrant.training.record import LearningTrace


def samples(n=500, k=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, k, generator=generator)
    return logits, torch.distributions.Categorical(logits=logits / 2).sample()


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def test_the_reliability_in_a_record_adds_up_to_the_ece():
    predictions = Predictions.from_logits(*samples())
    bins = reliability_bins(predictions)
    total = sum(count for count, _, _ in bins)
    error = sum(count / total * abs(confidence - accuracy) for count, confidence, accuracy in bins)
    assert total == 500
    assert error == pytest.approx(float(ECE()(predictions)), abs=1e-5)  # records have six digits


def test_confidences_are_counted_once_each_as_right_or_as_wrong():
    predictions = Predictions.from_logits(*samples())
    counts = confidence_counts(predictions, n_bins=10)
    assert sum(counts["right"]) == int(predictions.correct.sum())
    assert sum(counts["wrong"]) == int((~predictions.correct).sum())
    inside = (predictions.confidence > 0.6) & (predictions.confidence <= 0.7)
    assert counts["right"][6] + counts["wrong"][6] == int(inside.sum())


def test_a_size_takes_the_first_samples_of_each_draw_and_is_left_out_where_there_are_fewer():
    logits, labels = (
        {part: samples(seed=seed)[which] for seed, part in enumerate(("calibration", "test"))} for which in (0, 1)
    )
    methods = {"TS": TemperatureScaling(), "HB": HistogramBinning()}
    found = errors_by_size(logits, labels, methods, (100, 300, 500))
    assert {name: list(sizes) for name, sizes in found.items()} == {"TS": ["100", "300"], "HB": ["100", "300"]}
    order = torch.randperm(500, generator=torch.Generator().manual_seed(2))[:100]
    few = Predictions.from_logits(logits["calibration"][order], labels["calibration"][order])
    test = Predictions.from_logits(logits["test"], labels["test"])
    assert found["TS"]["100"][2] == pytest.approx(float(ECE()(TemperatureScaling().fit(few).transform(test))), rel=1e-5)


def traced(correct, max_logit):
    trace = LearningTrace(len(max_logit))
    for right, last in zip(correct, [False] * (len(correct) - 1) + [True], strict=True):
        logits = torch.stack([max_logit if last else torch.ones(len(max_logit)), torch.zeros(len(max_logit))], dim=1)
        trace.add(logits, (~right).long())
    return trace


def test_largest_logits_are_divided_by_the_epoch_since_which_samples_are_right():
    n, n_epochs = 400, 12
    epoch = torch.randint(1, n_epochs + 2, (n,))  # one more than there are: never
    correct = torch.stack([epoch <= each for each in range(1, n_epochs + 1)])
    logit = 20 - epoch + torch.randn(n)
    found = logits_by_learned_epoch(traced(correct, logit), n_bins=10)
    assert found["edges"] == pytest.approx(
        torch.linspace(float(logit.min()), float(logit.max()), 11).tolist(), rel=1e-4
    )
    assert list(found["parts"])[-1] == "never"
    assert sum(found["parts"]["never"]) == int((epoch > n_epochs).sum())
    assert sum(map(sum, found["parts"].values())) == n
    first, last = (int(end) for end in next(iter(found["parts"])).split(" to "))
    assert sum(found["parts"][f"{first} to {last}"]) == int((epoch <= last).sum())
    assert found["correlation"][0] == pytest.approx(spearmanr(epoch, logit).statistic, rel=1e-5)
    assert found["spread"][0] == pytest.approx(float(logit.std(correction=0)), rel=1e-5)


def test_intervals_of_logits_hold_the_truth_of_independent_samples_as_often_as_they_say():
    n, rounds, rho, inside = 300, 200, -0.6, [0, 0]
    truth = 6 / torch.pi * torch.tensor(rho / 2).asin()  # Spearman's of a normal pair
    for _ in range(rounds):
        hidden = torch.randn(n)
        logit = 20 + rho * hidden + (1 - rho**2) ** 0.5 * torch.randn(n)
        epoch = (hidden * 15 + 50).round().long().clamp(1, 100)
        correct = torch.arange(1, 101)[:, None] >= epoch
        found = logits_by_learned_epoch(traced([*correct], logit))
        for place, (name, value) in enumerate({"correlation": truth, "spread": 1.0}.items()):
            inside[place] += found[name][1] <= value <= found[name][2]
    assert all(0.91 <= each / rounds <= 0.99 for each in inside), inside


def test_a_network_that_never_learned_has_one_part_and_constant_logits_no_correlation():
    found = logits_by_learned_epoch(traced([torch.zeros(8, dtype=torch.bool)], torch.ones(8)))
    assert list(found["parts"]) == ["never"]
    assert found["spread"] == [0, 0, 0]
    assert found["correlation"] == [0, -1, 1]
