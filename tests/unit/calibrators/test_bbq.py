from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.special import betaln

from calibrant.calibrators import BayesianBinning
from calibrant.errors import InputError, UnknownNameError
from calibrant.predictions import Predictions


def rows(n=400, k=3, *, seed=0, sharpness=2.0):
    generator = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(n, k, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    return Predictions.from_logits(sharpness * logits, labels)


def averaged_by_definition(cal, confidence, *, k, factor, prior_rows, prior_for):
    """Every binning by itself, in probabilities; for confidences without ties."""
    order = np.argsort(cal.confidence.numpy())
    known, right = cal.confidence.numpy()[order], cal.correct.numpy()[order].astype(float)
    n = len(known)
    # Cuts lie halfway between log-odds.
    log_odds = np.log(known / (1 - known))
    halfway = 1 / (1 + np.exp(-(log_odds[1:] + log_odds[:-1]) / 2))
    scores, predictions = [], []
    most = min(n, int(np.ceil(factor * n ** (1 / 3))))
    for n_bins in range(max(1, int(n ** (1 / 3) / factor)), most + 1):
        bounds = [round(b * n / n_bins - 1e-9) for b in range(n_bins + 1)]
        edges = np.array([1 / k, *(halfway[bound - 1] for bound in bounds[1:-1]), 1])
        weight = prior_rows / n_bins if prior_for == "binning" else prior_rows
        prior = weight * ((edges[1:] + edges[:-1]) / 2).clip(1 / (n + 2), 1 - 1 / (n + 2))
        count = np.diff(bounds).astype(float)
        hits = np.array([right[low:high].sum() for low, high in pairwise(bounds)])
        scores.append((betaln(hits + prior, count - hits + weight - prior) - betaln(prior, weight - prior)).sum())
        mean = (hits + prior) / (count + weight)
        predictions.append(mean[np.searchsorted(edges[1:-1], confidence)])
    posterior = np.exp(np.array(scores) - max(scores))
    return posterior / posterior.sum() @ np.array(predictions)


@pytest.mark.parametrize("prior_for", ["bin", "binning"])
@pytest.mark.parametrize("n", [20, 400])
def test_it_is_the_average_over_all_binnings_by_their_likelihood(n, prior_for):
    cal, new = rows(n), rows(200, seed=1)
    calibrator = BayesianBinning(range_factor=4.0, prior_rows=3.0, prior_for=prior_for)
    expected = averaged_by_definition(
        cal, new.confidence.numpy(), k=3, factor=4.0, prior_rows=3.0, prior_for=prior_for
    ).clip(1 / (n + 2), 1 - 1 / (n + 2))
    result = calibrator.fit(cal).transform(new)
    plain = expected > 0.5  # below, the other classes may have to make way
    assert plain.sum() > 50
    assert np.allclose(result.confidence.numpy()[plain], expected[plain], atol=1e-9)


def test_plenty_of_samples_bring_out_the_true_accuracy():
    new = rows(2000, seed=1)
    result = BayesianBinning().fit(rows(50_000)).transform(new)
    truth = Predictions.from_logits(new.logits / 2, new.labels)
    # The confidence tells only part of a sample, so that samples of one confidence differ in truth, but not on average.
    assert abs(float((result.confidence - truth.confidence).mean())) < 0.01
    assert float((result.confidence - truth.confidence).abs().mean()) < 0.05


def test_no_more_bins_are_used_than_the_samples_call_for():
    generator = torch.Generator().manual_seed(0)
    gap = 6 * torch.rand(3000, generator=generator, dtype=torch.float64)
    wrong = (torch.rand(3000, generator=generator) < 0.3).long()
    flat = Predictions.from_logits(torch.stack([gap, torch.zeros_like(gap)], 1), wrong)
    probs = BayesianBinning().fit(flat).transform(flat).confidence
    assert float((probs - 0.7).abs().max()) < 0.05


def test_samples_of_one_confidence_get_one_probability():
    logits = torch.tensor([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]], dtype=torch.float64).repeat(40, 1)
    right = torch.rand(120, generator=torch.Generator().manual_seed(0)) < 0.8
    cal = Predictions.from_logits(logits, (~right).long())
    result = BayesianBinning(prior_rows=0.01).fit(cal).transform(cal)
    assert len(result.confidence.unique()) <= 3
    assert float(result.confidence.mean()) == pytest.approx(float(right.double().mean()), abs=1e-3)


def test_without_a_mistake_it_claims_no_more_than_the_rule_of_succession():
    cal = rows(50)
    right = Predictions.from_logits(cal.logits, cal.predicted)
    result = BayesianBinning(prior_rows=1e-3).fit(right).transform(right)
    assert float(result.confidence.max()) <= 51 / 52 + 1e-12


def test_bad_options_are_refused():
    with pytest.raises(InputError, match="range_factor"):
        BayesianBinning(range_factor=0)
    with pytest.raises(InputError, match="prior_rows"):
        BayesianBinning(prior_rows=-1)
    with pytest.raises(UnknownNameError, match="prior_for"):
        BayesianBinning(prior_for="bins")
