"""Known truth by simulation: do intervals of a shift hold it, and do its tests keep their level, and see changes?

The labelled reference, the new samples and the model are drawn anew each time; the model is overconfident and biased.
"""

import numpy as np
import pytest
import torch

from calibrant import Predictions, measure_shift

OLD, NEW = np.array([0.35, 0.3, 0.2, 0.1, 0.05]), np.array([0.1, 0.3, 0.1, 0.2, 0.3])
SIMULATIONS, MEANS = 100, np.random.default_rng(5).normal(size=(5, 3)) * 1.7


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def drawn(n: int, shares: np.ndarray, rng: np.random.Generator, *, noise: float = 1.0) -> Predictions:
    """Samples from a Gaussian of each class, and logits twice as large as the posterior's, with a bias."""
    labels = rng.choice(5, size=n, p=shares)
    inputs = MEANS[labels] + noise * rng.normal(size=(n, 3))
    logits = np.log(OLD) + inputs @ MEANS.T - 0.5 * (MEANS**2).sum(axis=1)
    return Predictions.from_logits(2 * logits + [0.5, 0, -0.5, 0, 0], labels)


@pytest.fixture(scope="module")
def measured():
    rng = np.random.default_rng(0)
    kinds = {"same": (OLD, 1.0), "shifted": (NEW, 1.0), "noisy": (NEW, 1.5)}
    made = {kind: [] for kind in kinds}
    for seed in range(SIMULATIONS):
        reference = drawn(600, OLD, rng)
        for kind, (shares, noise) in kinds.items():
            shift = measure_shift(reference, drawn(300, shares, rng, noise=noise), resamples=200, seed=seed)
            made[kind].append((shift, shares))
    truth = drawn(100_000, NEW, rng)
    return made, truth


def test_tests_reject_what_is_true_in_about_one_case_of_twenty(measured):
    """Of 100 cases, more than 11 rejected would have a chance of 1 in 200."""
    of_same, of_shifted = measured[0]["same"], measured[0]["shifted"]
    assert sum(shift.is_changed for shift, _ in of_same) <= 11
    assert sum(any(one.is_changed for one in shift.classes) for shift, _ in of_same) <= 11
    assert sum(not shift.is_label_shift for shift, _ in of_same) <= 11
    assert sum(not shift.is_label_shift for shift, _ in of_shifted) <= 11


def test_tests_see_other_proportions_and_other_samples(measured):
    assert sum(shift.is_changed for shift, _ in measured[0]["shifted"]) >= 95
    assert sum(not shift.is_label_shift for shift, _ in measured[0]["noisy"]) >= 60


def test_intervals_hold_the_true_proportions(measured):
    """95 % are expected; those of one case depend on each other, so that 500 count as some 400."""
    for kind in ("same", "shifted"):
        held = [
            one.new.low <= share <= one.new.high
            for shift, shares in measured[0][kind]
            for one, share in zip(shift.classes, shares, strict=True)
        ]
        assert np.mean(held) >= 0.92
        errors = [
            [one.new.value - share for one, share in zip(shift.classes, shares, strict=True)]
            for shift, shares in measured[0][kind]
        ]
        assert np.abs(np.mean(errors, axis=0)).max() <= 0.01


def test_intervals_hold_the_accuracy_that_labels_would_show(measured):
    made, truth = measured
    given = [shift.expected["given"].accuracy for shift, _ in made["shifted"]]
    assert sum(one.low <= truth.top.accuracy <= one.high for one in given) >= 88
    for name, of in (("adjusted", "accuracy"), ("adjusted", "nll")):
        gaps = []
        for shift, _ in made["shifted"][:30]:
            adjusted = shift.map.transform(truth)
            nll = torch.nn.functional.cross_entropy(adjusted.logits, adjusted.labels)
            actual = {"accuracy": adjusted.top.accuracy, "nll": float(nll)}[of]
            one = getattr(shift.expected[name], of)
            gaps.append((one.low <= actual <= one.high, one.value - actual))
        assert sum(held for held, _ in gaps) >= 25
        assert abs(np.mean([gap for _, gap in gaps])) <= 0.02
