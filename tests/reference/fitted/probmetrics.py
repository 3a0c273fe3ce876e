"""probmetrics: scaling methods and Gupta's spline, in float64."""

from collections.abc import Callable

import torch
from data import Dataset, Floats, softmax
from fit_question import FitQuestion, two_columns
from probmetrics.calibrators import (
    Calibrator,
    CDFSplineCalibrator,
    ETSCalibrator,
    MatrixScalingCalibrator,
    SMSCalibrator,
    SVSCalibrator,
    get_calibrator,
)
from probmetrics.distributions import CategoricalLogits
from question import Tolerance

PEER = "probmetrics"
NOT_COMPARED = {
    "order_preserving": "the peer trains another network by Adam for some epochs: no optimum to agree on",
    "sms": "get_calibrator('sms') mixes 1/(n + 1) of equal probabilities into those it scales; of many classes that "
    "changes their logarithms much; only its optimiser is asked, on ours",
    "vector": "the peer keeps its parameters in float32 and divides by them; netcal answers in float64",
    "platt": "the peer's is scikit-learn's, asked live",
    "beta": "the peer's is betacal's, asked live",
    "venn_abers": "the peer's is that of venn-abers, asked live",
}

_BISECTED = Tolerance(1e-7, "same objective; the peer bisects ln T to 3e-8")
_STOPS_EARLY = Tolerance(5e-4, "same objective; the peer's BFGS stops at a gradient of 1e-5")
_NUMERIC_GRADIENT = Tolerance(
    2e-5, "same objective; the peer takes gradients by finite differences, and logarithms of probabilities in float32"
)
_MIXED = Tolerance(
    2e-3, "the peer mixes 1/(n + 1) of equal probabilities into those it scales, and takes their logarithms in float32"
)


def _of_logits(make: Callable[[], Calibrator]) -> Callable[[Dataset, Dataset], Floats]:
    def ask(calibration: Dataset, judged: Dataset) -> Floats:
        fitted = make()
        fitted.fit_torch(CategoricalLogits(torch.from_numpy(calibration.logits)), torch.from_numpy(calibration.labels))
        return fitted.predict_proba_torch(CategoricalLogits(torch.from_numpy(judged.logits))).get_probs().numpy()

    return ask


def _of_probs(make: Callable[[], Calibrator]) -> Callable[[Dataset, Dataset], Floats]:
    return lambda calibration, judged: make().fit(calibration.probs, calibration.labels).predict_proba(judged.probs)


def _at_best_temperature(calibration: Dataset, rows: Dataset) -> torch.Tensor:
    fitted = get_calibrator("temp-scaling")
    fitted.fit_torch(CategoricalLogits(torch.from_numpy(calibration.logits)), torch.from_numpy(calibration.labels))
    return (torch.from_numpy(rows.logits) * fitted.invtemp_).log_softmax(1)


def _svs(calibration: Dataset, judged: Dataset) -> Floats:
    n, k = calibration.logits.shape
    scaled, labels = _at_best_temperature(calibration, calibration), torch.from_numpy(calibration.labels)
    slope, shift = SVSCalibrator()._fit_bfgs(scaled, labels, k, reg_intercept=k / n, reg_diagonal=k / n)
    return softmax(_at_best_temperature(calibration, judged).numpy() * slope + shift)


def _sms(calibration: Dataset, judged: Dataset) -> Floats:
    n, k = calibration.logits.shape
    scaled, labels = _at_best_temperature(calibration, calibration), torch.from_numpy(calibration.labels)
    strengths = {"reg_intercept": k / n, "reg_diagonal": k / n, "reg_off_diagonal": k * (k - 1) / n}
    weights = SMSCalibrator()._fit_bfgs(scaled, labels, k, **strengths)
    return softmax(_at_best_temperature(calibration, judged).numpy() @ weights[:, :-1].T + weights[:, -1])


def _of_top_label(make: Callable[[], Calibrator]) -> Callable[[Dataset, Dataset], Floats]:
    def ask(calibration: Dataset, judged: Dataset) -> Floats:
        fitted = make().fit(two_columns(calibration.confidence), calibration.correct.astype(int))
        return fitted.predict_proba(two_columns(judged.confidence))[:, 1]

    return ask


FITS = (
    FitQuestion(
        "temperature",
        "get_calibrator('temp-scaling').fit_torch(CategoricalLogits(logits), labels)",
        _of_logits(lambda: get_calibrator("temp-scaling")),
        datasets=("overconfident", "calibrated", "binary", "many_classes"),
        tolerance=_BISECTED,
    ),
    FitQuestion(
        "matrix",
        "MatrixScalingCalibrator().fit_torch(CategoricalLogits(logits), labels)",
        _of_logits(MatrixScalingCalibrator),
        datasets=("overconfident", "calibrated", "binary"),
        tolerance=_STOPS_EARLY,
    ),
    FitQuestion(
        "svs",
        "get_calibrator('svs').fit(probs, labels)",
        _of_probs(lambda: get_calibrator("svs")),
        datasets=("overconfident", "calibrated"),
        tolerance=_MIXED,
    ),
    FitQuestion(
        "svs",
        "SVSCalibrator()._fit_bfgs(log-probabilities at the best temperature, labels, k, ...), float64",
        _svs,
        datasets=("overconfident", "calibrated", "binary"),
        tolerance=_STOPS_EARLY,
    ),
    FitQuestion(
        "sms",
        "SMSCalibrator()._fit_bfgs(log-probabilities at the best temperature, labels, k, ...), float64",
        _sms,
        datasets=("overconfident", "calibrated", "binary"),
        tolerance=_STOPS_EARLY,
    ),
    *(
        FitQuestion(
            "ets",
            f"ETSCalibrator(loss='{loss}').fit(probs, labels)",
            _of_probs(lambda loss=loss: ETSCalibrator(loss=loss)),
            datasets=("overconfident", "calibrated", "binary"),
            tolerance=_NUMERIC_GRADIENT,
            options={"criterion": criterion},
            given="probs",
        )
        for loss, criterion in (("mse", "brier"), ("ce", "nll"))
    ),
    FitQuestion(
        "spline",
        "CDFSplineCalibrator('natural', splines=6).fit([1 - confidence, confidence], correct)",
        _of_top_label(lambda: CDFSplineCalibrator("natural", splines=6)),
        datasets=("overconfident", "calibrated"),
        tolerance=Tolerance(1e-3, "the peer puts row i of n at i/(n - 1), ours at i/n, and takes the slope at the row"),
        options={"n_knots": 6},
    ),
)
