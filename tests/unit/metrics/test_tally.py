"""Many metrics from one pass: what is gathered once, and how misuse is reported."""

import pytest
import torch

from calibrant.errors import InputError
from calibrant.metrics import ACE, AUROC, ECE, KS, NLL, SCE, Brier, Entropy, RankedCells, Tally
from calibrant.numerics import softmax
from calibrant.predictions import Predictions, TopLabel


def sample(n=40, k=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, k, generator=generator) * 2
    return Predictions.from_logits(logits, torch.randint(0, k, (n,), generator=generator))


def test_all_metrics_share_one_pass_over_the_logits(monkeypatch):
    passes = []
    original = softmax.SoftmaxRows.__init__

    def counted(self, *args, **kwargs):
        passes.append(1)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(softmax.SoftmaxRows, "__init__", counted)
    Tally([ECE(), AUROC(), NLL(), Brier(), Entropy(), SCE()]).add(sample()).values()
    assert len(passes) == 1


def test_adding_samples_after_reading_the_values_counts_them_in():
    metrics = [ECE(), AUROC(), NLL()]
    first, second = sample(seed=1), sample(seed=2)
    tally = Tally(metrics).add(first)
    assert tally.values()["nll"] == pytest.approx(NLL()(first))
    tally = tally.add(second)
    values = tally.values()
    for metric in metrics:
        assert values[metric.name] == pytest.approx(metric(first + second), rel=1e-6)


def test_one_metric_with_two_settings_keeps_both_values():
    rows = sample()
    tally = Tally([ECE(10), ECE(15)]).add(rows)
    assert float(ECE(10).value(tally.state(ECE(10)))) == pytest.approx(ECE(10)(rows))
    assert float(ECE(15).value(tally.state(ECE(15)))) == pytest.approx(ECE(15)(rows))
    # One name cannot hold two numbers: refusing is right, two names are right, losing one silently is not.
    try:
        values = tally.values()
    except InputError:
        return
    assert len(values) == 2


def test_the_memory_of_bounded_states_does_not_grow():
    tally = Tally([ECE(), NLL(), SCE(), AUROC(ranks=RankedCells())])
    for seed in range(5):
        tally = tally.add(sample(seed=seed))
        assert all(len(parts) == 1 for parts in tally._parts.values())


def test_exact_ranks_serve_all_metrics_of_the_top_label():
    tally = Tally([ECE(), ACE(), KS(), AUROC()]).add(sample())
    assert len(tally._parts) == 1


def test_a_metric_of_all_classes_refuses_top_labels():
    with pytest.raises(InputError, match="needs the probability of every class"):
        Tally([ECE(), NLL()]).add(TopLabel([0.9], [True]))


def test_a_tally_without_samples_says_that_it_has_none():
    with pytest.raises(InputError, match="sample"):
        Tally([ECE()]).values()
