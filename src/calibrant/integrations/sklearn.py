"""scikit-learn: a classifier that calibrates another, a calibrator of arrays, and scorers for cross-validation.

Needs scikit-learn (``pip install 'calibrant[sklearn]'``)::

    model = CalibratedClassifier(RandomForestClassifier(), method="auto").fit(X, y)
    model.predict_proba(X_new)
"""

from contextlib import nullcontext
from typing import Any, Literal, NamedTuple, Self, TypeAlias, final, get_args

import numpy as np
from numpy.typing import NDArray

from calibrant import catalogue
from calibrant.calibrators import Calibrator
from calibrant.checks import check_known
from calibrant.errors import InputError, Row, warn, without_our_warnings
from calibrant.integrations import needed
from calibrant.maps import Map
from calibrant.metrics import Metric
from calibrant.predictions import Predictions

with needed("scikit-learn", "sklearn"):
    from sklearn import get_config
    from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, TransformerMixin, clone
    from sklearn.frozen import FrozenEstimator
    from sklearn.model_selection import check_cv
    from sklearn.utils import Bunch, _safe_indexing, get_tags, indexable
    from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.parallel import Parallel, delayed
    from sklearn.utils.validation import (
        _check_sample_weight,
        _num_samples,
        check_is_fitted,
        column_or_1d,
        has_fit_parameter,
    )

__all__ = ["CalibratedClassifier", "ProbabilityCalibrator", "scorer"]

ResponseMethod: TypeAlias = Literal["auto", "decision_function", "predict_proba"]
Labels: TypeAlias = NDArray[Any]


class CalibratedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier whose probabilities are those of another, calibrated; in the manner of CalibratedClassifierCV.

    The map is fitted on predictions for samples that the estimator was not trained on. With ``ensemble=False`` these
    are the predictions for every fold of a model trained on the other folds, pooled; the estimator is then trained on
    all samples. The result is one estimator and one map, which has seen as many samples as there are. With
    ``ensemble=True`` the model of every fold is kept with a map of its own, fitted on that fold alone, and their
    probabilities are averaged: several models to store and to run, often a little more accurate. The class that is
    predicted is the one with the largest calibrated probability.

    Args:
        estimator: A classifier with ``decision_function`` or ``predict_proba``.
        method: An expression of the catalogue (``temperature``, ``ets``, ``temperature+isotonic``), or a calibrator.
        cv: Number of stratified folds, a splitter, or an iterable of splits; ``"prefit"`` if the estimator is fitted
            on other samples already, and all samples are for the map. A ``FrozenEstimator`` is prefit as well.
        ensemble: Whether to keep one model and one map for each fold.
        response_method: The scores to calibrate. ``"auto"`` is ``decision_function`` if the estimator has one, as in
            CalibratedClassifierCV: these are the logits before any rounding to 0 or 1, and the only scores of a
            support vector machine. Otherwise ``predict_proba``, whose zeros get a floor from the samples.
        n_jobs: Number of folds fitted at once, as in joblib.

    Attributes:
        classes_: Labels of the classes, (k,).
        estimators_: The fitted estimators: one, or one for each fold.
        maps_: The fitted maps, one for each estimator. ``save_map`` writes one to a file, which needs no scikit-learn.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.naive_bayes import GaussianNB
        >>> X, y = load_iris(return_X_y=True)
        >>> model = CalibratedClassifier(GaussianNB(), method="temperature").fit(X, y)
        >>> model.predict_proba(X[:2]).shape, model.maps_[0].summary.rows
        ((2, 3), 150)
    """

    # fit takes it among its other parameters, so scikit-learn does not see it in the signature.
    __metadata_request__fit = {"sample_weight": None}  # noqa: RUF012  # scikit-learn's convention

    def __init__(
        self,
        estimator: Any,
        *,
        method: str | Calibrator = "auto",
        cv: Any = 5,
        ensemble: bool = False,
        response_method: ResponseMethod = "auto",
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.cv = cv
        self.ensemble = ensemble
        self.response_method = response_method
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any, **fit_params: Any) -> Self:
        """Fit the estimator and its map.

        Args:
            X: Features, (n, d): whatever the estimator takes.
            y: Labels, (n,).
            fit_params: Passed to the estimator's ``fit``, with the training samples of each fold if they are one value
                a sample; with metadata routing, to whatever requested them, the splitter too. ``groups`` are those of
                the splitter, with routing or without. ``sample_weight`` weighs the calibration samples as well, and
                those alone, with a warning, if the estimator takes no weights. To the map only their ratios matter.
        """
        calibrator = _calibrator(self.method)
        check_known(self.response_method, get_args(ResponseMethod), "response_method")
        X, y = indexable(X, y)
        y = _one_class_each(y)
        weights = fit_params.get("sample_weight")
        if weights is not None:
            weights = _check_sample_weight(weights, X, dtype=np.float64, ensure_non_negative=True)
            _classes(y[weights > 0], "labels with a positive sample_weight")
        is_routed = get_config()["enable_metadata_routing"]
        params = process_routing(self, "fit", **fit_params) if is_routed else self._to_estimator(fit_params)
        if self._is_prefit:
            check_is_fitted(self.estimator)
            self.classes_ = np.asarray(self.estimator.classes_)
            fits = [_Held(self.estimator, _scores(self.estimator, X, self.response_method), np.arange(len(y)))]
        else:
            self.classes_ = _classes(y)
            fits = self._cross_validated(X, y, params)
        positions = _positions(y, self.classes_)
        if self._is_prefit or self.ensemble:
            self.estimators_ = [fit.estimator for fit in fits]
            parts = [None if weights is None else weights[fit.test] for fit in fits]
            self.maps_ = [
                _fitted(calibrator, fit.scores, positions[fit.test], self.classes_, own)
                for fit, own in zip(fits, parts, strict=True)
            ]
        else:
            tested = np.concatenate([fit.test for fit in fits])
            if not np.array_equal(np.sort(tested), np.arange(len(y))):
                raise InputError(
                    "the test samples of the splits must be every sample once, because their predictions are pooled; "
                    f"got {len(tested)} for {len(y)} samples. Use another splitter, or ensemble=True."
                )
            values = np.concatenate([fit.scores.values for fit in fits])[tested.argsort()]
            pooled = _Scores(values, are_probs=fits[0].scores.are_probs)
            self.maps_ = [_fitted(calibrator, pooled, positions, self.classes_, weights)]
            self.estimators_ = [clone(self.estimator).fit(X, y, **params.estimator.fit)]
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimators_[0], name):
                setattr(self, name, getattr(self.estimators_[0], name))
        return self

    def _cross_validated(self, X: Any, y: Labels, params: Bunch) -> "list[_Held]":
        """Train on the other folds and predict each; the classes must be the same in all of them."""
        splits = list(check_cv(self.cv, y, classifier=True).split(X, y, **params.splitter.split))
        arguments = (X, y, params.estimator.fit, self.response_method)
        tasks = (delayed(_train_and_predict)(clone(self.estimator), split, *arguments) for split in splits)
        fits: list[_Held] = Parallel(n_jobs=self.n_jobs)(tasks)
        for fit in fits:
            if not np.array_equal(fit.estimator.classes_, self.classes_):
                missing = np.setdiff1d(self.classes_, fit.estimator.classes_).tolist()
                raise InputError(
                    f"every fold must be trained on every class; got no training samples of class {missing[0]!r} in "
                    f"one of {len(fits)} folds, and {int((y == missing[0]).sum())} in all. Use fewer folds, stratified "
                    "ones, or gather samples of it."
                )
        return fits

    def _to_estimator(self, fit_params: dict[str, Any]) -> Bunch:
        """Return where parameters of ``fit`` go without metadata routing: groups to the splitter, or the estimator."""
        given = {name: value for name, value in fit_params.items() if name not in ("sample_weight", "groups")}
        if fit_params.get("sample_weight") is not None:
            if has_fit_parameter(self.estimator, "sample_weight"):
                given["sample_weight"] = fit_params["sample_weight"]
            elif not self._is_prefit:
                name = type(self.estimator).__name__
                warn(f"{name} does not take sample_weight, so it is trained on all samples alike; the map is weighted.")
        groups = {name: value for name, value in fit_params.items() if name == "groups"}
        return Bunch(estimator=Bunch(fit=given), splitter=Bunch(split=groups))

    @property
    def _is_prefit(self) -> bool:
        return isinstance(self.estimator, FrozenEstimator) or (isinstance(self.cv, str) and self.cv == "prefit")

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return calibrated probabilities, (n, k), in the order of ``classes_``."""
        check_is_fitted(self, "maps_")
        probs = [
            _calibrated(fitted, _scores(estimator, X, self.response_method))
            for estimator, fitted in zip(self.estimators_, self.maps_, strict=True)
        ]
        return sum(probs[1:], probs[0]) / len(probs)

    def predict(self, X: Any) -> Labels:
        """Return the class with the largest calibrated probability, (n,)."""
        largest = self.predict_proba(X).argmax(axis=1)
        return self.classes_[largest]

    def get_metadata_routing(self) -> MetadataRouter:
        """Return what is passed on from ``fit``: to the estimator's ``fit`` and to the splitter's ``split``."""
        from_fit = MethodMapping().add(caller="fit", callee="fit")
        to_split = MethodMapping().add(caller="fit", callee="split")
        router = MetadataRouter(owner=self).add_self_request(self)
        router.add(estimator=self.estimator, method_mapping=from_fit)
        splitter = None if isinstance(self.cv, str) else self.cv
        return router.add(splitter=splitter, method_mapping=to_split)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self.estimator).input_tags
        return tags


class ProbabilityCalibrator(ClassifierMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Calibrate probabilities, or logits, that a model has given already.

    ``transform`` returns what ``predict_proba`` returns, so that it can end a pipeline or be set to give data frames.

    Args:
        method: An expression of the catalogue (``temperature``, ``ets``, ``temperature+isotonic``), or a calibrator.
        logits: Whether the scores are logits, not probabilities.
        classes: Labels of the columns; None: the columns of a data frame, if all labels of the fit are among them, else
            the sorted labels of the fit, which must then be as many as the columns.

    Attributes:
        classes_: Labels of the columns, (k,).
        map_: The fitted map.

    Example:
        >>> probs = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.4, 0.6]] * 5)
        >>> labels = np.array(["ham", "ham", "spam", "ham"] * 5)
        >>> calibrator = ProbabilityCalibrator(method="temperature").fit(probs, labels)
        >>> calibrator.predict_proba(probs[:1]).round(2).tolist(), calibrator.predict(probs[:1]).tolist()
        ([[0.98, 0.02]], ['ham'])
    """

    def __init__(self, method: str | Calibrator = "auto", *, logits: bool = False, classes: Any = None) -> None:
        self.method = method
        self.logits = logits
        self.classes = classes

    def fit(self, P: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the map on scores, (n, k) or (n,) for the second of two classes, of samples with labels, (n,)."""
        calibrator = _calibrator(self.method)
        y, scores = _one_class_each(y), self._scores(P)
        columns = scores.values.shape[1] if scores.values.ndim == 2 else 2
        named = np.array(list(getattr(P, "columns", ())), dtype=object)
        is_named = self.classes is None and len(named) > 1 and np.isin(_classes(y), named).all()
        self.classes_ = (
            named.astype(y.dtype) if is_named else np.asarray(_classes(y) if self.classes is None else self.classes)
        )
        if len(self.classes_) != columns:
            shown = ", ".join(map(repr, self.classes_[:5].tolist()))
            raise InputError(
                f"there must be as many classes as columns; got {columns} columns and {len(self.classes_)} classes "
                f"({shown}, …). Name those of the columns: ProbabilityCalibrator(classes=[…])."
            )
        weights = None if sample_weight is None else _check_sample_weight(sample_weight, P, dtype=np.float64)
        self.map_ = _fitted(calibrator, scores, _positions(y, self.classes_), self.classes_, weights)
        self.n_features_in_, self._columns = columns if scores.values.ndim == 2 else 1, named.tolist()
        return self

    def predict_proba(self, P: Any) -> NDArray[np.float64]:
        """Return calibrated probabilities, (n, k)."""
        check_is_fitted(self, "map_")
        names, known = list(getattr(P, "columns", ())), getattr(self, "_columns", [])
        if names and known and names != known:
            raise InputError(f"columns must be those of the fit, {known[:5]}; got {names[:5]}. Put them in its order.")
        return _calibrated(self.map_, self._scores(P))

    def transform(self, P: Any) -> NDArray[np.float64]:
        """Return calibrated probabilities, (n, k), or the container that ``set_output`` chose."""
        return self.predict_proba(P)

    def predict(self, P: Any) -> Labels:
        """Return the class with the largest calibrated probability, (n,)."""
        largest = self.predict_proba(P).argmax(axis=1)
        return self.classes_[largest]

    def get_feature_names_out(self, input_features: Any = None) -> Labels:  # noqa: ARG002  # scikit-learn's signature
        """Return the names of the columns of ``transform``: ``prob_`` and the label of the class."""
        check_is_fitted(self, "map_")
        return np.asarray([f"prob_{label}" for label in self.classes_], dtype=object)

    def _scores(self, P: Any) -> "_Scores":
        return _Scores(np.asarray(P), are_probs=not self.logits)


@final
class _MetricScorer:
    """A scorer of one metric, made by :func:`scorer`."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.sign = -1.0 if metric.lower_is_better else 1.0

    def __call__(self, estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
        if not hasattr(estimator, "predict_proba"):
            raise InputError(
                f"the scorer of {self.metric.name} needs predict_proba; {type(estimator).__name__} has none. "
                "Wrap it: CalibratedClassifier(estimator)."
            )
        labels = _positions(_one_class_each(y), np.asarray(estimator.classes_))
        with nullcontext() if self.metric.name == "nll" else without_our_warnings():  # of labels with probability 0
            samples = Predictions.from_probs(np.asarray(estimator.predict_proba(X)), labels, weights=sample_weight)
            return self.sign * self.metric(samples)

    def __repr__(self) -> str:
        return f"scorer({self.metric.name!r})"


def scorer(metric: str | Metric) -> _MetricScorer:
    """Return a scorer for ``cross_val_score``, ``GridSearchCV`` and others; larger is better.

    So a metric of which less is better, such as ``ece``, is negated, as scikit-learn's ``neg_log_loss`` is. The scores
    are those of ``predict_proba``; a class that is missing in a fold's test samples does no harm. Calibration errors of
    two classes are of the predicted class, unlike those of reports.

    Args:
        metric: Name of a metric, with options if need be (``ece(n_bins=20)``), or a metric.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.model_selection import cross_val_score
        >>> from sklearn.naive_bayes import GaussianNB
        >>> X, y = load_iris(return_X_y=True)
        >>> cross_val_score(GaussianNB(), X, y, scoring=scorer("nll")).round(2).tolist()
        [-0.22, -0.12, -0.21, -0.11, -0.01]
    """
    parsed = catalogue.metrics.parse(metric)
    if parsed.lower_is_better is None:
        raise InputError(f"a scorer's metric must be better when larger or when smaller; {parsed.name} is neither.")
    return _MetricScorer(parsed)


class _Scores(NamedTuple):
    """Scores of a model, (n, k), or (n,) of the second of two classes."""

    values: NDArray[Any]
    are_probs: bool

    @property
    def of_all_classes(self) -> NDArray[Any]:
        """The scores, (n, k)."""
        if self.values.ndim == 2:
            return self.values
        return np.stack([1 - self.values if self.are_probs else np.zeros_like(self.values), self.values], axis=1)


class _Held(NamedTuple):
    """A trained estimator, and its scores for the samples at these positions, on which it was not trained."""

    estimator: Any
    scores: _Scores
    test: NDArray[np.int64]


def _train_and_predict(
    estimator: Any, split: Any, X: Any, y: Labels, fit_params: dict[str, Any], response_method: ResponseMethod
) -> _Held:
    """Train on some samples, with the parameters of ``fit`` that have a value for each, and predict the others."""
    train, test = (np.flatnonzero(part) if np.asarray(part).dtype == bool else np.asarray(part) for part in split)
    given = {}
    for name, value in fit_params.items():
        is_sized = hasattr(value, "__len__") and not isinstance(value, str | dict)
        given[name] = _safe_indexing(value, train) if is_sized and _num_samples(value) == _num_samples(X) else value
    estimator.fit(_safe_indexing(X, train), _safe_indexing(y, train), **given)
    return _Held(estimator, _scores(estimator, _safe_indexing(X, test), response_method), test)


def _scores(estimator: Any, X: Any, response_method: ResponseMethod) -> _Scores:
    """Return the scores of a fitted estimator; an InputError if it has none, or not one for each class."""
    name = response_method
    if name == "auto":
        name = "decision_function" if hasattr(estimator, "decision_function") else "predict_proba"
    if not hasattr(estimator, name):
        wanted = "decision_function or predict_proba" if response_method == "auto" else name
        raise InputError(f"the estimator must have {wanted}; {type(estimator).__name__} has not.")
    values, k = np.asarray(getattr(estimator, name)(X)), len(estimator.classes_)
    if values.shape[1:] not in ([(), (2,)] if k == 2 else [(k,)]):
        raise InputError(
            f"{name} must give one score for each of {k} classes; got the shape {values.shape}. For a support vector "
            "machine, decision_function_shape='ovr'."
        )
    return _Scores(values, are_probs=name == "predict_proba")


def _fitted(
    calibrator: Calibrator,
    scores: _Scores,
    positions: NDArray[np.int64],
    classes: Labels,
    weights: NDArray[np.float64] | None,
) -> Map:
    make = Predictions.from_probs if scores.are_probs else Predictions.from_logits
    names = [str(label) for label in classes]
    with without_our_warnings():  # of labels with probability 0: no log-loss is reported here
        samples = make(scores.of_all_classes, positions, class_names=names, weights=weights)
    return calibrator.fit(samples)


def _calibrated(fitted: Map, scores: _Scores) -> NDArray[np.float64]:
    """Return calibrated probabilities, (n, k)."""
    given = {"probs" if scores.are_probs else "logits": scores.of_all_classes}
    return np.asarray(fitted.predict_proba(**given), dtype=np.float64)


def _calibrator(method: str | Calibrator) -> Calibrator:
    if isinstance(method, Calibrator):
        return method
    if not isinstance(method, str):
        raise InputError(f"method must be an expression such as 'temperature', or a calibrator; got {method!r}.")
    return catalogue.parse_calibrator(method)


def _classes(y: Labels, what: str = "labels") -> Labels:
    classes = np.unique(y)
    if len(classes) < 2:
        got = "no samples" if len(classes) == 0 else f"one class, {classes.tolist()[0]!r}"
        raise InputError(f"the {what} must be of two classes or more; got {got}.")
    return classes


def _one_class_each(y: Any) -> Labels:
    """Return labels, (n,); an InputError if samples can have several."""
    check_classification_targets(y)
    if np.ndim(y) > 1 and np.shape(y)[1] > 1:
        raise InputError(
            f"labels must be one class a sample, shape (n,); got shape {np.shape(y)}. If they are one-hot, pass "
            "y.argmax(axis=1). If a sample can have several (multi-label), treat one column at a time, as "
            "MultiOutputClassifier(CalibratedClassifier(…)) does."
        )
    return np.asarray(column_or_1d(y, warn=True))


def _positions(y: Labels, classes: Labels) -> NDArray[np.int64]:
    """Return the position of every label among the classes; an InputError if a label is not one of them."""
    order = np.argsort(classes, kind="stable")
    places = np.searchsorted(classes, y, sorter=order).clip(max=len(classes) - 1)
    positions = order[places]
    unknown = np.flatnonzero(classes[positions] != y)
    if len(unknown):
        shown = ", ".join(map(repr, classes[:5].tolist())) + (", …" if len(classes) > 5 else "")
        raise InputError(f"labels must be one of {shown}; got {y.tolist()[unknown[0]]!r} at {Row(unknown[0])}.")
    return positions.astype(np.int64)
