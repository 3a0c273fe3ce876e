import numpy as np
import pytest
import torch
from made_samples import overconfident
from sklearn.linear_model import LogisticRegression

from calibrant.calibrators import ScalingBinning, ScalingBinningMarginal
from calibrant.errors import CalibrantWarning, FitError, InputError, UnknownNameError
from calibrant.metrics import accuracy
from calibrant.predictions import Predictions


def rows(n=600, k=3, **how):
    return overconfident(n, k, **how)


def platt_of_scikit_learn(scores, hit):
    """Probabilities of the curve at any scores; Platt's targets as samples that are partly hits and partly misses."""
    target = np.where(hit, (hit.sum() + 1) / (hit.sum() + 2), 1 / ((~hit).sum() + 2))
    model = LogisticRegression(C=np.inf, tol=1e-12, max_iter=1000)
    twice, weight = np.concatenate([scores, scores]), np.concatenate([target, 1 - target])
    model.fit(twice[:, None], np.repeat([1, 0], len(scores)), sample_weight=weight)
    return lambda at: model.predict_proba(at[:, None])[:, 1]


def means_by_definition(scores, hit, asked, n_bins):
    """The curve, its equal-mass bins and its means, all from all samples; without ties, bins of one size."""
    curve = platt_of_scikit_learn(scores, hit)
    rising = np.sort(scores)
    bins = rising.reshape(n_bins, -1)
    edges = (bins[:-1, -1] + bins[1:, 0]) / 2
    return np.array([curve(each).mean() for each in bins])[np.searchsorted(edges, asked)]


def test_answers_are_means_of_a_platt_curve_over_bins_of_equal_mass():
    cal, new = rows(), rows(200, seed=1)
    result = ScalingBinning(n_bins=10, split="shared").fit(cal).transform(new).confidence.numpy()
    expected = means_by_definition(cal.top.log_odds.numpy(), cal.correct.numpy(), new.top.log_odds.numpy(), 10)
    plain = expected > 0.5  # below, the other classes may have to make way
    assert np.allclose(result[plain], expected[plain], atol=1e-4)


@pytest.mark.filterwarnings("ignore:.*worse than no calibration")
def test_class_by_class_every_class_has_its_own_curve_and_bins():
    cal, new = rows(), rows(100, seed=1)
    result = ScalingBinningMarginal(n_bins=10, split="shared").fit(cal).transform(new).probs.numpy()
    known, asked = (torch.logit(each.probs).numpy() for each in (cal, new))
    columns = [means_by_definition(known[:, j], (cal.labels == j).numpy(), asked[:, j], 10) for j in range(3)]
    expected = np.stack(columns, axis=1)
    assert np.allclose(result, expected / expected.sum(axis=1, keepdims=True), atol=1e-4)


def test_of_two_classes_it_is_the_probability_of_class_1():
    cal, new = rows(k=2), rows(100, k=2, seed=1)
    result = ScalingBinningMarginal(n_bins=10, split="shared").fit(cal).transform(new).probs[:, 1].numpy()
    known, asked = ((each.logits[:, 1] - each.logits[:, 0]).numpy() for each in (cal, new))
    assert np.allclose(result, means_by_definition(known, cal.labels.numpy() == 1, asked, 10), atol=1e-4)


@pytest.mark.parametrize("method", [ScalingBinning, ScalingBinningMarginal])
def test_only_a_third_of_the_labels_is_looked_at(method):
    cal = rows(300)
    fitted = method(seed=5).fit(cal)
    changed = []
    for row in range(0, 300, 10):
        labels = cal.labels.clone()
        labels[row] = (labels[row] + 1) % 3
        other = method(seed=5).fit(Predictions.from_logits(cal.logits, labels))
        changed.append(not torch.equal(other.curve.values, fitted.curve.values))
    # A wrong answer may stay wrong, and then nothing changes for the predicted class.
    assert 3 <= sum(changed) <= 16


def test_there_are_no_more_answers_than_bins():
    cal = rows(3000)
    probs = ScalingBinning(n_bins=7).fit(cal).transform(cal).confidence
    assert len(probs.unique()) <= 7


def test_it_is_calibrated_on_new_samples():
    new = rows(20_000, seed=1)
    result = ScalingBinning().fit(rows(6000)).transform(new)
    for answer in result.confidence.unique():
        alike = result.confidence == answer
        assert float(result.correct[alike].double().mean()) == pytest.approx(float(answer), abs=0.06)


def test_a_seed_deals_the_samples_anew():
    cal = rows()
    first, again, other = (ScalingBinning(seed=seed).fit(cal).curve.values for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.filterwarnings("ignore:.*worse than no calibration")
@pytest.mark.parametrize("method", [ScalingBinning, ScalingBinningMarginal])
def test_samples_without_a_mistake_and_very_few_samples_are_no_trouble(method):
    for cal in (rows(10), rows(300)):
        right = Predictions.from_logits(cal.logits, cal.predicted)
        result = method().fit(right).transform(rows(500, seed=1))
        assert torch.isfinite(result.log_probs).all()
        assert float(result.confidence.max()) <= 1 - 1 / (len(cal) + 2) + 1e-9


@pytest.mark.filterwarnings("ignore:.*worse than no calibration")
def test_many_classes_get_bins_enough_to_keep_the_predictions():
    cal, new = rows(4000, k=40, sharpness=2.0), rows(2000, k=40, seed=1)
    few, enough = (
        method.fit(cal).transform(new) for method in (ScalingBinningMarginal(n_bins=5), ScalingBinningMarginal())
    )
    assert float(accuracy(few)) < float(accuracy(new)) - 0.1
    assert float(accuracy(enough)) > float(accuracy(new)) - 0.03


def test_a_class_without_samples_is_reported_and_never_impossible():
    cal = rows()
    with pytest.warns(CalibrantWarning, match="no calibration samples of class 1"):
        fitted = ScalingBinningMarginal().fit(cal[cal.labels != 1])
    assert torch.isfinite(fitted.transform(cal).log_probs).all()


@pytest.mark.filterwarnings("ignore::calibrant.errors.CalibrantWarning")
def test_two_samples_cannot_be_split_in_three():
    for method in (ScalingBinning, ScalingBinningMarginal):
        with pytest.raises(FitError, match="three-way split must have at least three samples; got 2"):
            method().fit(rows(2))


def test_bad_options_are_refused():
    for method in (ScalingBinning, ScalingBinningMarginal):
        with pytest.raises(InputError, match="n_bins"):
            method(n_bins=0)
        with pytest.raises(UnknownNameError, match="split"):
            method(split="thirds")
