"""Samples of the same confidence keep one: no map that changes only the confidence may tell them apart by rounding.

The votes of a forest are full of such samples. The sum of the other classes' votes differs in its last digit from one
to the next, and between processors; ranks, noise floors and steps must not depend on it.
"""

import inspect
import warnings

import pytest
import torch

from calibrant import calibrators as calibrators_module
from calibrant import load
from calibrant.calibrators import BinMeanShift, Calibrator, Chain, DensityRatioCalibration
from calibrant.errors import CalibrantWarning
from calibrant.files.save import Scores, save_score_batches
from calibrant.maps import TopLabelMap
from calibrant.predictions import Predictions

CLASSES = [value for value in vars(calibrators_module).values() if inspect.isclass(value)]
FITTED_ON = torch.eye(3).repeat(40, 1) * 2 + torch.arange(3) / 10


def gives_top_label_map(calibrator):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrantWarning)
        fitted = calibrator.fit_without_scores(Predictions(FITTED_ON, torch.arange(120) % 3 * (torch.arange(120) > 9)))
    return isinstance(fitted, TopLabelMap)


QUICK = {"binning", "curve"}
METHODS = [
    cls()
    for cls in CLASSES
    if issubclass(cls, Calibrator)
    and not inspect.isabstract(cls)
    and cls.family in QUICK
    and gives_top_label_map(cls())
]
each_method = pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
each_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


def votes(n, k, *, seed, dtype=torch.float64, trees=100):
    """Shares of the votes of a forest, which is underconfident where nine in ten trees agree, else overconfident."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, k, generator=generator) * (2 if k < 50 else 4)
    cast = logits.softmax(1).multinomial(trees, replacement=True, generator=generator)
    counts = torch.zeros(n, k, dtype=dtype).scatter_add_(1, cast, torch.ones(n, trees, dtype=dtype))
    counts[: n // 10] = trees * torch.eye(k, dtype=dtype)[torch.arange(n // 10) % k]  # unanimous, for every class
    labels = (logits / 1.5).softmax(1).multinomial(1, generator=generator)[:, 0]
    labels = torch.where(counts.amax(1) > 0.9 * trees, counts.argmax(1), labels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrantWarning)
        return Predictions.from_probs(counts / trees, labels)


def fit(method, samples, *features):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrantWarning)
        return method.fit(samples, *features)


def assert_ties_stay(before, after, levels=1):
    """Assert that equal confidences stay equal to the last bit, in every number that ranks and bins are made of."""
    _, level = before.logits.amax(1).unique(return_inverse=True)
    assert level.max() >= levels
    for numbers in (before.confidence, before.top.log_odds, after.confidence, after.top.log_odds):
        assert len(torch.stack([level.double(), numbers.double()], 1).unique(dim=0)) == level.max() + 1


def test_there_are_such_methods():
    assert {"isotonic", "histogram", "spline", "bbq", "scaling_binning"} <= {method.name for method in METHODS}


@each_dtype
@pytest.mark.parametrize("k", [3, 10, 100])
@each_method
def test_ties_stay_ties(method, k, dtype):
    test = votes(500, k, seed=1, dtype=dtype)
    fitted = fit(method, votes(500, k, seed=0, dtype=dtype))
    assert_ties_stay(test, fitted.transform(test), levels=20)
    assert_ties_stay(test[:90], fitted.transform(test[:90]), levels=0)  # unanimous


@each_method
def test_ties_stay_ties_where_probabilities_were_printed_with_three_digits(method):
    exact = votes(500, 3, seed=1, trees=7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrantWarning)
        rounded = Predictions.from_probs((exact.logits.exp() * 1000).round() / 1000, exact.labels)
    assert_ties_stay(rounded, fit(method, rounded[:250]).transform(rounded))


@each_dtype
def test_ties_stay_ties_close_to_one(dtype):
    test = votes(6_000, 10, seed=1, dtype=dtype)
    fitted = fit(calibrators_module.IsotonicRegression(), test)  # its last step is 1 - 1/6002
    calibrated = fitted.transform(test)
    assert calibrated.confidence.max() > 1 - 2**-12
    assert_ties_stay(test, calibrated)


@each_method
def test_ties_stay_ties_in_a_chain_of_such_methods(method):
    test = votes(500, 10, seed=1)
    fitted = fit(Chain((calibrators_module.IsotonicRegression(), method)), votes(500, 10, seed=0))
    assert_ties_stay(test, fitted.transform(test))


@pytest.mark.parametrize("method", [BinMeanShift(neighbours=3), DensityRatioCalibration(neighbours=3)], ids=str)
def test_ties_stay_ties_with_features_where_those_are_equal(method):
    test, features = votes(500, 10, seed=1), torch.randn(500, 2, generator=torch.Generator().manual_seed(0))
    fitted = fit(method, votes(500, 10, seed=0), features)
    assert_ties_stay(test, fitted.transform(test, features[:1].expand(500, 2)))


@pytest.mark.parametrize(("n", "dtype"), [(500, torch.float32), (500, torch.float64), (6_000, torch.float64)])
@each_method
def test_ties_stay_ties_in_a_file(method, n, dtype, tmp_path):
    test = votes(n, 10, seed=1, dtype=dtype)
    calibrated = fit(method, test).transform(test)
    save_score_batches(iter([Scores(calibrated, "probs", labelled=True)]), tmp_path / "calibrated.csv")
    loaded = load(tmp_path / "calibrated.csv", kind="probs")
    assert_ties_stay(test, loaded)
    assert torch.allclose(loaded.confidence, calibrated.confidence, rtol=0, atol=4 * torch.finfo(dtype).eps)
