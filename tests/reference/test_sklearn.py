"""Ours beside scikit-learn, live, with the settings under which both agree, and where scikit-learn is wrong."""

import numpy as np
import pytest
import sklearn.metrics
from sklearn.calibration import calibration_curve

from calibrant.errors import CalibrantWarning
from calibrant.metrics import accuracy, aupr_error, aupr_success, auroc, brier, ece, fpr95, mce, nll, top_brier
from calibrant.predictions import Predictions, TopLabel

SHAPES = [(50, 2), (400, 3), (1_000, 10), (300, 100)]
SEEDS = [0, 1]


class Sample:
    """Random logits with labels drawn from a flatter softmax, and everything scikit-learn wants of them."""

    def __init__(self, n, k, seed):
        generator = np.random.default_rng([n, k, seed])
        self.logits = 3 * generator.standard_normal((n, k))
        # The argmax of logits plus Gumbel noise is a draw from their softmax.
        self.labels = (self.logits / 1.5 + generator.gumbel(size=(n, k))).argmax(axis=1)
        exponentials = np.exp(self.logits - self.logits.max(axis=1, keepdims=True))
        self.probs = exponentials / exponentials.sum(axis=1, keepdims=True)
        self.confidence = self.probs.max(axis=1)
        self.correct = self.probs.argmax(axis=1) == self.labels
        self.classes = range(k)
        self.ours = Predictions.from_logits(self.logits, self.labels)


@pytest.fixture(
    params=[(*shape, seed) for shape in SHAPES for seed in SEEDS], ids=lambda p: f"{p[0]}x{p[1]}-seed{p[2]}"
)
def sample(request):
    return Sample(*request.param)


def test_accuracy_is_accuracy_score(sample):
    assert accuracy(sample.ours) == sklearn.metrics.accuracy_score(sample.labels, sample.probs.argmax(axis=1))


def test_nll_is_log_loss_of_float64_with_all_classes_named(sample):
    theirs = sklearn.metrics.log_loss(sample.labels, sample.probs, labels=sample.classes)
    assert nll(sample.ours) == pytest.approx(theirs, rel=1e-12)


def test_brier_is_brier_score_loss_not_halved(sample):
    theirs = sklearn.metrics.brier_score_loss(sample.labels, sample.probs, labels=sample.classes, scale_by_half=False)
    assert brier(sample.ours) == pytest.approx(theirs, rel=1e-12)


def test_top_brier_is_brier_score_loss_of_correctness(sample):
    theirs = sklearn.metrics.brier_score_loss(sample.correct, sample.confidence)
    assert top_brier(sample.ours) == pytest.approx(theirs, rel=1e-12)


def test_auroc_is_roc_auc_score_of_correctness(sample):
    theirs = sklearn.metrics.roc_auc_score(sample.correct, sample.confidence)
    assert auroc(sample.ours) == pytest.approx(theirs, rel=1e-12)


def test_aupr_success_is_average_precision_score_of_correctness(sample):
    theirs = sklearn.metrics.average_precision_score(sample.correct, sample.confidence)
    assert aupr_success(sample.ours) == pytest.approx(theirs, rel=1e-12)


def test_aupr_error_is_average_precision_score_of_mistakes_by_low_confidence(sample):
    theirs = sklearn.metrics.average_precision_score(~sample.correct, -sample.confidence)
    assert aupr_error(sample.ours) == pytest.approx(theirs, rel=1e-12)


def test_fpr95_is_the_first_point_of_roc_curve_with_enough_true_positives(sample):
    false_positive, true_positive, _ = sklearn.metrics.roc_curve(
        sample.correct, sample.confidence, drop_intermediate=False
    )
    assert fpr95(sample.ours) == pytest.approx(false_positive[np.argmax(true_positive >= 0.95)], rel=1e-12)


def test_ece_and_mce_follow_from_calibration_curve_with_uniform_bins(sample):
    share_right, mean_confidence = calibration_curve(sample.correct, sample.confidence, n_bins=15, strategy="uniform")
    # calibration_curve leaves out empty bins and does not give their sizes.
    bins = np.searchsorted(np.linspace(0, 1, 16)[1:-1], sample.confidence)
    sizes = np.bincount(bins)
    gaps = np.abs(share_right - mean_confidence)
    assert ece(sample.ours, n_bins=15) == pytest.approx(gaps @ sizes[sizes > 0] / sizes.sum(), rel=1e-10)
    assert mce(sample.ours, n_bins=15) == pytest.approx(gaps.max(), rel=1e-10)


@pytest.mark.parametrize("metric", [nll, brier, top_brier, auroc, aupr_success, aupr_error, fpr95, ece])
def test_float32_logits_give_the_number_of_float64_ones(metric):
    sample = Sample(2_000, 10, 0)
    in_float32 = Predictions.from_logits(sample.logits.astype(np.float32), sample.labels)
    assert metric(in_float32) == pytest.approx(metric(sample.ours), rel=1e-5)


@pytest.mark.parametrize("metric", [auroc, aupr_success, aupr_error, fpr95])
def test_confidences_that_tie_count_as_scikit_learn_counts_them(metric):
    generator = np.random.default_rng(5)
    confidence = generator.integers(5, 11, 500) / 10
    correct = generator.random(500) < confidence
    false_positive, true_positive, _ = sklearn.metrics.roc_curve(correct, confidence, drop_intermediate=False)
    theirs = {
        auroc: sklearn.metrics.roc_auc_score(correct, confidence),
        aupr_success: sklearn.metrics.average_precision_score(correct, confidence),
        aupr_error: sklearn.metrics.average_precision_score(~correct, -confidence),
        fpr95: false_positive[np.argmax(true_positive >= 0.95)],
    }
    assert metric(TopLabel(confidence, correct)) == pytest.approx(theirs[metric], rel=1e-12)


# Where scikit-learn is wrong. If one of these fails at "peer", the peer has fixed it: move the case to agreement.


def test_log_loss_of_float32_is_not_clipped_at_the_type_s_precision():
    probs, labels = np.array([[1.0, 1e-10], [0.1, 0.9]], dtype=np.float32), [1, 1]
    truth = -(np.log(1e-10) + np.log(0.9)) / 2
    peer = sklearn.metrics.log_loss(labels, probs, labels=[0, 1])
    assert nll(Predictions.from_probs(probs, labels)) == pytest.approx(truth, rel=1e-6)
    assert abs(peer - truth) > 3


def test_brier_score_means_the_same_for_two_classes_and_for_three():
    two, three = np.array([[0.7, 0.3], [0.4, 0.6]]), np.array([[0.7, 0.3, 0.0], [0.4, 0.6, 0.0]])
    labels, truth = [0, 1], (2 * 0.3**2 + 2 * 0.4**2) / 2
    assert brier(Predictions.from_probs(two, labels)) == pytest.approx(truth, rel=1e-12)
    assert brier(Predictions.from_probs(three, labels)) == pytest.approx(truth, rel=1e-12)
    peer = [sklearn.metrics.brier_score_loss(labels, probs, labels=range(probs.shape[1])) for probs in (two, three)]
    assert peer == pytest.approx([truth / 2, truth])


def test_probability_zero_of_what_happened_is_not_counted_in_silence():
    probs, labels = np.array([[1.0, 0.0], [0.5, 0.5]]), [1, 0]
    with pytest.warns(CalibrantWarning, match="probability 0"):
        ours = nll(Predictions.from_probs(probs, labels))
    # The truth is infinite; ours stands for it with 1e-15 and says so, the peer's with 2.2e-16.
    assert ours == pytest.approx(-np.log([1e-15, 0.5]).mean())
    assert sklearn.metrics.log_loss(labels, probs, labels=[0, 1]) == pytest.approx(
        -np.log([2.2e-16, 0.5]).mean(), rel=1e-3
    )


def test_isotonic_one_vs_rest_gives_the_true_class_probability_zero():
    calibration, test = Sample(500, 10, 3), Sample(1_000, 10, 4)
    columns = [
        sklearn.isotonic.IsotonicRegression(out_of_bounds="clip")
        .fit(calibration.probs[:, k], calibration.labels == k)
        .predict(test.probs[:, k])
        for k in calibration.classes
    ]
    probs = np.stack(columns, axis=1) / np.sum(columns, axis=0)[:, None]
    impossible = int((probs[np.arange(1_000), test.labels] == 0).sum())
    assert impossible > 0
    with pytest.warns(CalibrantWarning, match=f"{impossible} of 1,000 true classes"):
        ours = nll(Predictions.from_probs(probs, test.labels))
    # The log-loss is infinite, but the peer's looks like a slightly worse model's. So does ours, but for the warning.
    assert ours == pytest.approx(-np.log(probs[np.arange(1_000), test.labels].clip(min=1e-15)).mean())
    assert sklearn.metrics.log_loss(test.labels, probs) < 10


def test_ranking_survives_confidences_that_round_to_one():
    generator = np.random.default_rng(6)
    gap = generator.uniform(20, 40, 1_000).astype(np.float32)
    right = generator.random(1_000) < (gap - 20) / 20
    logits = np.stack([gap, np.zeros_like(gap)], axis=1)
    confidence = 1 / (1 + np.exp(-gap))
    truth = sklearn.metrics.roc_auc_score(right, gap)
    assert auroc(Predictions.from_logits(logits, 1 - right.astype(int))) == pytest.approx(truth, rel=1e-12)
    assert sklearn.metrics.roc_auc_score(right, confidence) == 0.5


def test_weights_are_sample_weight(sample):
    weights = np.random.default_rng(0).lognormal(0, 1, len(sample.labels))
    weights[::7] = 0
    ours = Predictions.from_logits(sample.logits, sample.labels, weights=weights)
    of_labels, of_correct = (sample.labels, sample.probs), (sample.correct, sample.confidence)
    theirs = {
        accuracy: sklearn.metrics.accuracy_score(sample.labels, sample.probs.argmax(axis=1), sample_weight=weights),
        nll: sklearn.metrics.log_loss(*of_labels, labels=sample.classes, sample_weight=weights),
        brier: sklearn.metrics.brier_score_loss(
            *of_labels, labels=sample.classes, scale_by_half=False, sample_weight=weights
        ),
        top_brier: sklearn.metrics.brier_score_loss(*of_correct, sample_weight=weights),
        auroc: sklearn.metrics.roc_auc_score(*of_correct, sample_weight=weights),
        aupr_success: sklearn.metrics.average_precision_score(*of_correct, sample_weight=weights),
        aupr_error: sklearn.metrics.average_precision_score(~sample.correct, -sample.confidence, sample_weight=weights),
    }
    assert {metric: metric(ours) for metric in theirs} == pytest.approx(theirs, rel=1e-12)
