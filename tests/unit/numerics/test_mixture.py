"""Proportions of most likelihood: beside an own EM, and certified."""

import numpy as np
import pytest
import torch

from calibrant.errors import FitError
from calibrant.numerics.mixture import fit_mixture


def em(posteriors: np.ndarray, prior: np.ndarray, steps: int = 20_000) -> np.ndarray:
    """Saerens et al. (2002), equation 2.9, as it stands there, from posteriors under the prior."""
    shares = prior.copy()
    for _ in range(steps):
        adjusted = posteriors * (shares / prior)
        adjusted /= adjusted.sum(axis=1, keepdims=True)
        before, shares = shares, adjusted.mean(axis=0)
        if np.abs(shares - before).max() < 1e-13:
            break
    return shares


def made(n: int, k: int, seed: int, *, sure: float = 3.0) -> tuple[np.ndarray, np.ndarray]:
    """Posteriors of samples whose classes are more unequal than the prior, and that prior."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(k, size=n, p=rng.dirichlet(np.full(k, 0.5)))
    logits = rng.normal(size=(n, k)) + sure * np.eye(k)[labels]
    posteriors = np.exp(sure * (logits - logits.max(axis=1, keepdims=True)))
    return posteriors / posteriors.sum(axis=1, keepdims=True), rng.dirichlet(np.full(k, 5.0))


def even(n: int) -> torch.Tensor:
    return torch.full((n,), 1 / n, dtype=torch.float64)


@pytest.mark.parametrize(("n", "k", "sure"), [(500, 2, 1.0), (800, 5, 1.5), (400, 20, 3.0)])
def test_they_are_those_of_saerens_em(n, k, sure):
    posteriors, prior = made(n, k, seed=k, sure=sure)
    fit = fit_mixture(torch.from_numpy(posteriors / prior), even(n))
    assert fit.shares.sum() == pytest.approx(1, abs=1e-12)
    assert fit.shares.numpy() == pytest.approx(em(posteriors, prior), abs=2e-5)  # where EM is slow, near 0


@pytest.mark.parametrize(("n", "k"), [(50, 2), (30, 40), (300, 100), (300, 1000), (60_000, 4)])
@pytest.mark.parametrize("sure", [0.01, 2.0, 50.0])
def test_the_certificate_holds(n, k, sure):
    """No direction to a single class is better; with one for every class that is the maximum of a concave function."""
    ratios, mass = torch.from_numpy(made(n, k, seed=1, sure=sure)[0]), even(n)
    fit = fit_mixture(ratios, mass)
    gradient = (mass / (ratios @ fit.shares)) @ ratios
    assert float(gradient.max()) <= 1 + 1e-8
    assert float((fit.shares * (1 - gradient)).abs().max()) <= 1e-8
    assert (fit.shares >= 0).all()
    assert fit.certificate.gradient == pytest.approx(max(float(gradient.max()) - 1, 0), abs=1e-9)


def test_probabilities_of_zero_and_tiny_classes_do_no_harm():
    rows = [[1.0, 0.0, 1e-30], [0.0, 1.0, 1e-200], [1.0, 1e-12, 0.0], [0.0, 0.0, 1e-300]]
    ratios = torch.tensor(rows * 5, dtype=torch.float64)
    fit = fit_mixture(ratios, even(20))
    assert fit.shares.tolist() == pytest.approx([0.5, 0.25, 0.25], abs=1e-6)


def test_classes_that_no_sample_tells_apart_share_what_is_theirs():
    ratios = torch.tensor([[1.0, 1.0, 0.1], [0.1, 0.1, 1.0]], dtype=torch.float64)
    fit = fit_mixture(ratios, torch.tensor([0.7, 0.3], dtype=torch.float64))
    alone = fit_mixture(ratios[:, 1:], torch.tensor([0.7, 0.3], dtype=torch.float64))
    assert fit.shares[:2].sum() == pytest.approx(float(alone.shares[0]), abs=1e-7)
    assert fit.certificate.gradient <= 1e-9


def test_weights_are_repetitions_and_factors_of_rows_change_nothing():
    posteriors, prior = made(40, 3, seed=3, sure=1.0)
    ratios, times = torch.from_numpy(posteriors / prior), torch.arange(40) % 3 + 1
    weighted = fit_mixture(ratios * torch.logspace(-5, 5, 40).double()[:, None], times.double() / times.sum())
    repeated = fit_mixture(ratios.repeat_interleave(times, 0), even(int(times.sum())))
    assert weighted.shares.tolist() == pytest.approx(repeated.shares.tolist(), abs=1e-8)


def test_scores_that_are_no_numbers_are_refused():
    with pytest.raises(FitError, match="likelihood"):
        fit_mixture(torch.full((5, 2), torch.nan, dtype=torch.float64), even(5))
