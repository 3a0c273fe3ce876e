"""scikit-learn's own checks, agreement with CalibratedClassifierCV, and what is particular to the wrapper."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, ShuffleSplit, cross_val_score, cross_validate
from sklearn.multioutput import MultiOutputClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import check_sample_weight_equivalence_on_dense_data, parametrize_with_checks

import calibrant
from calibrant import catalogue
from calibrant.errors import CalibrantWarning, InputError, UnknownNameError
from calibrant.integrations.sklearn import CalibratedClassifier, ProbabilityCalibrator, scorer

_CHECKED = [
    CalibratedClassifier(LinearDiscriminantAnalysis(), cv=2),
    CalibratedClassifier(LogisticRegression(), method="temperature", ensemble=True, cv=2),
]


@pytest.mark.filterwarnings("ignore")  # the checks fit classes with one sample, weights of 0 and worse
@parametrize_with_checks(_CHECKED)
def test_every_check_of_scikit_learn_passes(estimator, check):
    check(estimator)


NAIVE = GaussianNB(var_smoothing=0.3)  # gives no label probability 0


@pytest.fixture(scope="module")
def digits():
    features, labels = load_digits(return_X_y=True)
    return features[:600] / 16, labels[:600]


@pytest.fixture(scope="module")
def two_digits():
    features, labels = load_digits(return_X_y=True)
    chosen = np.isin(labels, [3, 8])
    return features[chosen] / 16 + np.random.default_rng(0).normal(0, 0.6, (chosen.sum(), 64)), labels[chosen]


@pytest.mark.parametrize("ensemble", [False, True])
def test_temperature_is_that_of_scikit_learn(digits, ensemble):
    features, labels = digits
    estimator = LogisticRegression(C=0.1)
    ours = CalibratedClassifier(estimator, method="temperature", cv=3, ensemble=ensemble).fit(features, labels)
    theirs = CalibratedClassifierCV(estimator, method="temperature", cv=3, ensemble=ensemble).fit(features, labels)
    np.testing.assert_allclose(ours.predict_proba(features), theirs.predict_proba(features), atol=1e-6)


def test_platt_on_decision_values_of_two_classes_is_sigmoid_of_scikit_learn(two_digits):
    features, labels = two_digits
    estimator = LinearSVC(C=0.01)
    ours = CalibratedClassifier(estimator, method="platt", cv=3).fit(features, labels)
    theirs = CalibratedClassifierCV(estimator, method="sigmoid", cv=3, ensemble=False).fit(features, labels)
    np.testing.assert_allclose(ours.predict_proba(features), theirs.predict_proba(features), atol=1e-4)


# The conditions that docs/use_with.md states, on samples of neither the training nor the fit.
@pytest.mark.filterwarnings("ignore::calibrant.errors.CalibrantWarning")  # of few and noisy samples
@pytest.mark.parametrize(
    ("estimator", "ours", "theirs", "is_alike"),
    [
        (LogisticRegression(C=0.1), "temperature", "temperature", True),
        (LogisticRegression(C=0.1), "platt", "sigmoid", True),
        (NAIVE, "temperature", "temperature", True),
        (NAIVE, "platt", "sigmoid", False),
        (RandomForestClassifier(5, random_state=0), "temperature", "temperature", False),  # gives probabilities 0
    ],
)
def test_scikit_learn_is_met_by_decision_values_and_temperatures_of_positive_probabilities(
    two_digits, estimator, ours, theirs, is_alike
):
    features, labels = two_digits[0], (two_digits[1] == 8).astype(int)
    calibrated, expected = (
        model.fit(features[::2], labels[::2]).predict_proba(features[1::2])
        for model in (
            CalibratedClassifier(estimator, method=ours, cv=3),
            CalibratedClassifierCV(estimator, method=theirs, cv=3, ensemble=False),
        )
    )
    largest = np.abs(calibrated - expected).max()
    assert largest < 1e-6 if is_alike else largest > 1e-3


def test_isotonic_on_decision_values_of_two_classes_is_that_of_scikit_learn_at_the_fitted_scores(two_digits):
    features, labels = two_digits
    fitted = LogisticRegression().fit(features[::2], labels[::2])
    held_out, targets = features[1::2], labels[1::2]
    ours = CalibratedClassifier(fitted, method="isotonic_ovr", cv="prefit").fit(held_out, targets)
    theirs = CalibratedClassifierCV(FrozenEstimator(fitted), method="isotonic").fit(held_out, targets)
    expected = theirs.predict_proba(held_out)
    inside = (expected > 0).all(axis=1)  # ours gives no class probability 0
    assert inside.mean() > 0.5
    np.testing.assert_allclose(ours.predict_proba(held_out)[inside], expected[inside], atol=1e-6)
    probs, expected = ours.predict_proba(features[::2]), theirs.predict_proba(features[::2])
    assert (probs > 0).all()
    between = np.abs(probs - expected)[(expected > 0).all(axis=1)]
    assert between.max() > 1e-3  # scikit-learn interpolates
    assert between.mean() < 0.01


def test_any_expression_of_the_catalogue_and_any_calibrator_is_a_method(digits):
    features, labels = digits
    model = clone(NAIVE).fit(features[:300], labels[:300])
    before = -scorer("nll")(model, features[300:], labels[300:])
    for method in ("ets", "temperature+isotonic", "temperature(criterion=focal)", calibrant.TemperatureScaling()):
        calibrated = CalibratedClassifier(NAIVE, method=method, cv=3).fit(features[:300], labels[:300])
        assert -scorer("nll")(calibrated, features[300:], labels[300:]) < before


def test_labels_may_be_words_and_features_a_data_frame_in_a_pipeline(digits, tmp_path):
    features, labels = digits
    frame = pd.DataFrame(features, columns=[f"pixel {i}" for i in range(64)])
    words = np.array([f"digit {label}" for label in labels])
    pipeline = make_pipeline(StandardScaler(), LogisticRegression())
    model = CalibratedClassifier(pipeline, method="temperature", cv=3).fit(frame, words)
    assert model.classes_.tolist() == sorted(set(words))
    assert model.n_features_in_ == 64
    assert model.feature_names_in_.tolist() == list(frame.columns)
    probs = model.predict_proba(frame)
    np.testing.assert_allclose(probs.sum(axis=1), 1)
    assert (model.predict(frame) == words).mean() > 0.9
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(frame), probs)  # noqa: S301
    np.testing.assert_array_equal(clone(model).fit(frame, words).predict_proba(frame), probs)
    calibrant.save_map(model.maps_[0], tmp_path / "map.safetensors")  # one map, which needs no scikit-learn
    outer = make_pipeline(StandardScaler(), CalibratedClassifier(NAIVE, method="temperature")).fit(frame, words)
    assert outer.predict_proba(frame).shape == (600, 10)


def test_a_fitted_estimator_is_not_trained_again(digits):
    features, labels = digits
    fitted = LogisticRegression().fit(features[:300], labels[:300])
    weights = fitted.coef_.copy()
    prefit = CalibratedClassifier(fitted, method="temperature", cv="prefit").fit(features[300:], labels[300:])
    frozen = CalibratedClassifier(FrozenEstimator(fitted), method="temperature").fit(features[300:], labels[300:])
    assert prefit.estimators_[0] is fitted
    np.testing.assert_array_equal(fitted.coef_, weights)
    np.testing.assert_array_equal(prefit.predict_proba(features), frozen.predict_proba(features))
    assert prefit.maps_[0].summary.rows == 300


def test_the_scores_are_decision_values_unless_probabilities_are_asked_for(two_digits):
    features, labels = two_digits
    by_default, by_probs = (
        CalibratedClassifier(LogisticRegression(), method="uncalibrated", cv=2, response_method=response)
        for response in ("auto", "predict_proba")
    )
    by_default.fit(features, labels)
    by_probs.fit(features, labels)
    plain = LogisticRegression().fit(features, labels).predict_proba(features)
    np.testing.assert_allclose(by_default.predict_proba(features), plain, atol=1e-12)
    np.testing.assert_allclose(by_probs.predict_proba(features), plain, atol=1e-12)
    with pytest.raises(InputError, match="predict_proba"):
        CalibratedClassifier(LinearSVC(), response_method="predict_proba").fit(features, labels)


@pytest.mark.parametrize("method", ["temperature", "ets"])
def test_weights_are_repetitions_for_estimator_and_map(method):
    model = CalibratedClassifier(LogisticRegression(), method=method)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fifteen samples
        check_sample_weight_equivalence_on_dense_data("CalibratedClassifier", model)


def test_an_estimator_without_weights_is_said_to_have_none(two_digits):
    features, labels = two_digits
    weights = np.linspace(0.5, 2, len(labels))
    model = CalibratedClassifier(LinearDiscriminantAnalysis(), method="temperature", cv=2)
    with pytest.warns(CalibrantWarning, match="LinearDiscriminantAnalysis does not take sample_weight"):
        model.fit(features, labels, sample_weight=weights)
    plain = clone(model).fit(features, labels)
    assert float(model.maps_[0].temperature) != float(plain.maps_[0].temperature)
    with pytest.raises(InputError, match="one class"):
        clone(model).fit(features, labels, sample_weight=(labels == 3).astype(float))
    probs = plain.predict_proba(features)
    weighted = ProbabilityCalibrator("temperature").fit(probs, labels, sample_weight=weights).map_
    direct = calibrant.TemperatureScaling().fit(probs=probs, labels=(labels == 8).astype(int), weights=weights)
    assert float(weighted.temperature) == float(direct.temperature)
    assert scorer("nll")(plain, features, labels, sample_weight=weights) != scorer("nll")(plain, features, labels)


def test_metadata_reaches_the_estimator_the_map_and_the_splitter(two_digits):
    features, labels = two_digits
    weights, groups = np.linspace(0.5, 2, len(labels)), np.arange(len(labels)) % 7
    with sklearn.config_context(enable_metadata_routing=True):
        estimator = GaussianNB(var_smoothing=0.3).set_fit_request(sample_weight=True)
        routed = CalibratedClassifier(estimator, method="temperature", cv=GroupKFold(7))
        routed.set_fit_request(sample_weight=True).fit(features, labels, sample_weight=weights, groups=groups)
    splits = list(GroupKFold(7).split(features, labels, groups))
    plain = CalibratedClassifier(NAIVE, method="temperature", cv=splits)
    plain.fit(features, labels, sample_weight=weights)
    np.testing.assert_array_equal(routed.predict_proba(features), plain.predict_proba(features))
    grouped = CalibratedClassifier(NAIVE, method="temperature", cv=GroupKFold(7))  # without routing
    grouped.fit(features, labels, sample_weight=weights, groups=groups)
    np.testing.assert_array_equal(grouped.predict_proba(features), plain.predict_proba(features))


def test_wrong_use_says_what_to_do(digits):
    features, labels = digits
    with pytest.raises(UnknownNameError, match="Did you mean temperature"):
        CalibratedClassifier(NAIVE, method="temprature").fit(features, labels)
    with pytest.raises(InputError, match="ensemble=True"):
        CalibratedClassifier(NAIVE, method="temperature", cv=ShuffleSplit(2)).fit(features, labels)
    rare = np.where(np.arange(len(labels)) == 0, 10, labels)
    with pytest.raises(InputError, match="class 10"), pytest.warns(UserWarning, match="least populated"):
        CalibratedClassifier(NAIVE, method="temperature", cv=3).fit(features, rare)
    fitted = clone(NAIVE).fit(features, labels)
    with pytest.raises(InputError, match="labels must be one of"):
        CalibratedClassifier(fitted, cv="prefit").fit(features, rare)


def test_every_metric_with_a_direction_is_a_scorer(digits):
    features, labels = digits
    model = clone(NAIVE).fit(features[:300], labels[:300])
    probs, targets = model.predict_proba(features[300:]), labels[300:]
    for name, metric in catalogue.metrics.items():
        if metric.lower_is_better is None:
            with pytest.raises(InputError, match="neither"):
                scorer(name)
            continue
        sign = -1 if metric.lower_is_better else 1
        assert scorer(name)(model, features[300:], targets) == sign * metric(probs=probs, labels=targets)


def test_scorers_choose_in_cross_validation(digits):
    features, labels = digits
    words = np.array([f"digit {label}" for label in labels])
    assert (cross_val_score(NAIVE, features, words, scoring=scorer("ece(n_bins=10)"), cv=2) < 0).all()
    scores = cross_validate(NAIVE, features, words, scoring={"auroc": scorer("auroc")}, cv=2)
    assert (scores["test_auroc"] > 0.5).all()
    search = GridSearchCV(
        CalibratedClassifier(NAIVE, cv=2), {"method": ["uncalibrated", "temperature"]}, scoring=scorer("nll"), cv=2
    )
    assert search.fit(features, words).best_params_ == {"method": "temperature"}
    with pytest.raises(InputError, match="Wrap it"):
        scorer("ece")(LinearSVC().fit(features, words), features, words)


def test_arrays_of_probabilities_are_calibrated_with_their_own_labels(digits):
    features, labels = digits
    words = np.array([f"digit {label}" for label in labels])
    probs = clone(NAIVE).fit(features[:200], words[:200]).predict_proba(features[200:])
    calibrator = ProbabilityCalibrator("temperature").fit(probs, words[200:])
    direct = calibrant.TemperatureScaling().fit(probs=probs, labels=labels[200:]).predict_proba(probs=probs)
    np.testing.assert_array_equal(calibrator.predict_proba(probs), direct)
    assert calibrator.predict(probs).tolist() == [f"digit {label}" for label in direct.argmax(1)]
    frame = clone(calibrator).set_output(transform="pandas").fit(probs, words[200:]).transform(probs)
    assert list(frame.columns[:2]) == ["prob_digit 0", "prob_digit 1"]
    few = labels[200:] < 9
    with pytest.raises(InputError, match="classes="):
        ProbabilityCalibrator("temperature").fit(probs[few], words[200:][few])
    ProbabilityCalibrator("temperature", classes=sorted(set(words))).fit(probs[few], words[200:][few])


def test_the_columns_of_a_frame_are_classes_if_they_are_called_so():
    probs, labels = [[0.2, 0.8], [0.7, 0.3], [0.1, 0.9], [0.4, 0.6]] * 5, ["ham", "spam", "ham", "spam"] * 5
    frame = pd.DataFrame(probs, columns=["spam", "ham"])
    calibrator = ProbabilityCalibrator("temperature").fit(frame, labels)
    assert calibrator.classes_.tolist() == ["spam", "ham"]
    assert calibrator.predict(frame[:2]).tolist() == ["ham", "spam"]


def test_one_column_is_the_probability_of_the_second_class(two_digits):
    features, labels = two_digits
    model = LogisticRegression().fit(features[::2], labels[::2])
    probs = model.predict_proba(features[1::2])
    one = ProbabilityCalibrator("platt").fit(probs[:, 1], labels[1::2])
    two = ProbabilityCalibrator("platt").fit(probs, labels[1::2])
    np.testing.assert_allclose(one.predict_proba(probs[:, 1]), two.predict_proba(probs), atol=1e-12)
    logits = ProbabilityCalibrator("platt", logits=True).fit(model.decision_function(features[1::2]), labels[1::2])
    np.testing.assert_allclose(
        logits.predict_proba(model.decision_function(features[1::2])), two.predict_proba(probs), atol=1e-6
    )


def test_a_frame_in_another_order_than_that_of_the_fit_is_refused():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"ham": [0.9, 0.8, 0.3, 0.4] * 5, "spam": [0.1, 0.2, 0.7, 0.6] * 5})
    calibrator = ProbabilityCalibrator("temperature").fit(frame, ["ham", "ham", "spam", "ham"] * 5)
    assert (calibrator.predict_proba(frame) == calibrator.predict_proba(frame.to_numpy())).all()
    with pytest.raises(InputError, match="columns must be those of the fit"):
        calibrator.predict_proba(frame[["spam", "ham"]])


def test_several_labels_of_a_sample_are_refused_with_what_to_do():
    features, y = np.random.default_rng(0).random((2, 60, 3))
    y = (features + y > 1).astype(int)
    several = RandomForestClassifier(5, random_state=0).fit(features, y)
    for use in (
        lambda: CalibratedClassifier(RandomForestClassifier(5)).fit(features, y),
        lambda: ProbabilityCalibrator().fit(features, y),
        lambda: scorer("ece")(several, features, y),
    ):
        with pytest.raises(InputError, match="one column at a time"):
            use()
    separate = MultiOutputClassifier(CalibratedClassifier(GaussianNB(), method="uncalibrated")).fit(features, y)
    assert [probs.shape for probs in separate.predict_proba(features)] == [(60, 2)] * 3
