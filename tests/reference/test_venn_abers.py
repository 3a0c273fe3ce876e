"""Our Venn-Abers beside the package venn-abers, live: the pair of probabilities, the merged one, and many classes."""

import importlib
import warnings

import numpy as np
import pytest

from calibrant.calibrators import VennAbers, venn_abers_interval
from calibrant.errors import CalibrantWarning
from calibrant.predictions import Predictions

with np.errstate():  # the package silences numpy's errors for everybody when it is imported
    Peer = pytest.importorskip("venn_abers").VennAbers
    predict_proba_prefitted_va = importlib.import_module("venn_abers.venn_abers").predict_proba_prefitted_va


def sample(n, k, seed, *, digits=None):
    """Probabilities and labels drawn from a flatter version; rounded to some digits, many of them tie."""
    generator = np.random.default_rng([n, k, seed])
    logits = 2.5 * generator.standard_normal((n, k))
    labels = (logits / 1.7 + generator.gumbel(size=(n, k))).argmax(axis=1)
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    if digits is not None:
        probs[:, 1] = np.round(probs[:, 1], digits).clip(0.01, 0.99)
        probs[:, 0] = 1 - probs[:, 1]
    return probs, labels


@pytest.fixture
def quiet():
    """The peer divides 0 by 0 and takes minima of nothing, and means it."""
    with np.errstate(divide="ignore", invalid="ignore"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="All-NaN slice encountered")
        yield


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("n", [10, 100, 1_000])
@pytest.mark.parametrize("digits", [None, 2])
def test_two_classes_get_the_pair_and_the_probability_of_the_peer(n, digits):
    (probs, labels), (asked, asked_labels) = sample(n, 2, 0, digits=digits), sample(500, 2, 1, digits=digits)
    merged, pair = Peer().fit(probs, labels).predict_proba(asked)
    calibration, judged = Predictions.from_probs(probs, labels), Predictions.from_probs(asked, asked_labels)
    ours = venn_abers_interval(calibration, judged)
    assert ours.lower[:, 0].numpy() == pytest.approx(pair[:, 0], abs=1e-12)
    assert ours.upper[:, 0].numpy() == pytest.approx(pair[:, 1], abs=1e-12)
    assert VennAbers().fit(calibration).transform(judged).probs.numpy() == pytest.approx(merged, abs=1e-9)


@pytest.mark.usefixtures("quiet")
def test_many_classes_are_those_of_the_peer_one_against_the_rest_to_the_kept_resolution():
    # No two scores of these are within a millionth of each other, where ours takes them as tied.
    (probs, labels), (asked, asked_labels) = sample(1_000, 6, 0), sample(200, 6, 1)
    theirs, pairs = predict_proba_prefitted_va(probs, labels, asked, va_tpe="one_vs_rest")
    calibration, judged = Predictions.from_probs(probs, labels), Predictions.from_probs(asked, asked_labels)
    ours = VennAbers().fit(calibration).transform(judged).probs.numpy()
    lower, upper = venn_abers_interval(calibration, judged)
    assert lower.numpy() == pytest.approx(np.stack([pair[:, 0] for pair in pairs], axis=1), abs=1e-12)
    assert upper.numpy() == pytest.approx(np.stack([pair[:, 1] for pair in pairs], axis=1), abs=1e-12)
    # Log-odds of each class are kept to within 0.005, so that the map stays small: a quarter of that in the
    # probability of a class, and as much again by the division by their sum.
    assert ours == pytest.approx(theirs, abs=0.0025)


@pytest.mark.usefixtures("quiet")
def test_a_class_without_calibration_samples_keeps_its_column():
    probs, labels = sample(400, 4, 2)
    seen = labels != 3
    theirs, _ = predict_proba_prefitted_va(probs[seen], labels[seen], probs, va_tpe="one_vs_rest")
    with pytest.warns(CalibrantWarning, match="no calibration samples of class 3"):
        ours = VennAbers().fit(Predictions.from_probs(probs[seen], labels[seen]))
    given = ours.transform(Predictions.from_probs(probs, labels)).probs
    assert given.shape == (400, 4)
    assert given.min() > 0
    assert theirs.shape == (400, 3)  # the peer drops it
