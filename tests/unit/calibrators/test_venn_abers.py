import warnings

import numpy as np
import pytest
import torch
from sklearn.isotonic import IsotonicRegression

from calibrant.calibrators import VennAbers, venn_abers_interval
from calibrant.errors import InputError
from calibrant.predictions import Predictions


def two_classes(n=60, *, seed=0, levels=None, dtype=torch.float64):
    """Samples of an overconfident model; with levels, many of them tie."""
    rng = np.random.default_rng(seed)
    log_odds = rng.normal(0, 2, n) if levels is None else rng.integers(-levels, levels + 1, n) / 2
    labels = rng.random(n) < 1 / (1 + np.exp(-log_odds / 2))
    return Predictions.from_binary_logits(torch.tensor(log_odds, dtype=dtype), torch.tensor(labels).long())


def pair_by_definition(known, labels, score):
    """Two isotonic fits of scikit-learn, with the sample added as a miss and as a hit."""
    return tuple(
        IsotonicRegression(y_min=0, y_max=1).fit(np.append(known, score), np.append(labels, label)).predict([score])[0]
        for label in (0, 1)
    )


def log_odds_of(rows):
    return (rows.logits[:, 1] - rows.logits[:, 0]).double().numpy()


@pytest.mark.filterwarnings("ignore:.*worse than no calibration")
@pytest.mark.parametrize("levels", [None, 4])
def test_it_merges_two_isotonic_fits_for_every_sample(levels):
    cal, new = two_classes(levels=levels), two_classes(80, seed=1, levels=levels)
    result = VennAbers().fit(cal).transform(new).probs[:, 1].numpy()
    lower, upper = venn_abers_interval(cal, new)
    for row, score in enumerate(log_odds_of(new)):
        p0, p1 = pair_by_definition(log_odds_of(cal), cal.labels.numpy(), score)
        assert (float(lower[row]), float(upper[row])) == pytest.approx((p0, p1), abs=1e-9)
        assert result[row] == pytest.approx(p1 / (1 - p0 + p1), abs=1e-9)


@pytest.mark.filterwarnings("ignore:.*worse than no calibration")
@pytest.mark.parametrize("levels", [None, 6])
def test_it_agrees_with_the_package_of_that_name(levels):
    with np.errstate():  # the package changes numpy's for everybody
        venn_abers = pytest.importorskip("venn_abers")
    cal, new = two_classes(500, levels=levels), two_classes(300, seed=1, levels=levels)
    theirs = venn_abers.VennAbers()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        theirs.fit(cal.probs.numpy(), cal.labels.numpy())
        merged, pair = theirs.predict_proba(new.probs.numpy())
    lower, upper = venn_abers_interval(cal, new)
    assert np.allclose(pair, torch.cat([lower, upper], dim=1).numpy(), atol=1e-9)
    assert np.allclose(merged, VennAbers().fit(cal).transform(new).probs.numpy(), atol=1e-9)


def test_a_calibration_score_met_again_in_float32_is_recognised():
    cal = two_classes(200, dtype=torch.float32)
    again = Predictions.from_binary_logits(cal.logits[:, 1] * (1 + 2e-7), cal.labels)
    exact, rounded = (VennAbers().fit(cal).transform(each).probs for each in (cal, again))
    assert torch.equal(exact, rounded)
    nearby = Predictions.from_binary_logits(cal.logits[:, 1] + 1e-4, cal.labels)
    assert (VennAbers().fit(cal).transform(nearby).probs[:, 1] >= exact[:, 1]).all()
    assert not torch.equal(VennAbers().fit(cal).transform(nearby).probs, exact)


def test_two_classes_keep_the_order_of_their_samples():
    cal, new = two_classes(300), two_classes(2000, seed=1)
    probs = VennAbers().fit(cal).transform(new).probs[:, 1]
    assert (probs[new.logits[:, 1].argsort()].diff() >= 0).all()


def test_of_many_classes_each_is_fitted_against_the_rest():
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(110, 4, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    cal, new = (
        Predictions.from_logits(2 * logits[:80], labels[:80]),
        Predictions.from_logits(2 * logits[80:], labels[80:]),
    )
    merged = np.empty((30, 4))
    for j in range(4):
        known, asked = (torch.logit(each.probs[:, j]).numpy() for each in (cal, new))
        pairs = [pair_by_definition(known, (cal.labels == j).numpy(), score) for score in asked]
        merged[:, j] = [p1 / (1 - p0 + p1) for p0, p1 in pairs]
        interval = torch.cat([column[:, j, None] for column in venn_abers_interval(cal, new)], dim=1)
        assert np.allclose(interval.numpy(), pairs, atol=1e-9)
    expected = merged / merged.sum(axis=1, keepdims=True)
    result = VennAbers().fit(cal).transform(new).probs.numpy()
    # Log-odds of many classes are kept to 0.01, so each is off by 0.005 at the most, and their sum likewise.
    assert np.abs(np.log(result / expected)).max() < 0.0101


def test_it_claims_at_most_what_the_rule_of_succession_allows():
    rows = two_classes(50)
    right = Predictions.from_logits(rows.logits, rows.predicted)
    extreme = Predictions.from_binary_logits(torch.tensor([-1e3, 1e3]), torch.tensor([0, 1]))
    result = VennAbers().fit(right).transform(extreme)
    of_each = np.bincount(right.labels.numpy())
    assert result.confidence.numpy() == pytest.approx((of_each + 1) / (of_each + 2), abs=1e-6)


def test_a_wide_interval_says_that_samples_are_few():
    new = two_classes(100, seed=3)
    few, many = (venn_abers_interval(two_classes(n), new) for n in (20, 2000))
    assert float((few.upper - few.lower).mean()) > 4 * float((many.upper - many.lower).mean())


def test_the_interval_of_other_classes_is_refused():
    with pytest.raises(InputError, match="same classes"):
        venn_abers_interval(two_classes(), Predictions.from_logits(torch.zeros(3, 3), torch.tensor([0, 1, 2])))
