"""netcal: scaling and binning, right in float64."""

from collections.abc import Callable
from typing import Any

import numpy as np
from data import Dataset, Floats
from fit_question import FLOORED, FitQuestion, one_vs_rest
from netcal.binning import HistogramBinning, IsotonicRegression
from netcal.scaling import BetaCalibration, LogisticCalibration, TemperatureScaling
from question import EXACT, Tolerance

PEER = "netcal"
NOT_COMPARED = {
    "bbq": "the peer weighs binnings of equal width by BIC and keeps the best few; the paper, and ours, all binnings "
    "of equal mass by their likelihood",
    "beta": "of more than two classes the peer takes a softmax of all curves, ours each class against the rest",
    "histogram": "the peer fits bins of equal mass but cannot apply them",
}

_NUMERIC_GRADIENT = Tolerance(1e-4, "same objective; the peer's L-BFGS-B takes its gradient by finite differences")


def _scaling(kind: Callable[[], Any]) -> Callable[[Dataset, Dataset], Floats]:
    def ask(calibration: Dataset, judged: Dataset) -> Floats:
        fitted = kind()
        fitted.fit(calibration.probs, calibration.labels, tensorboard=False)
        probs = fitted.transform(judged.probs)
        return probs if probs.ndim == 2 else np.stack([1 - probs, probs], axis=1)

    return ask


def _binning(kind: Callable[[], Any]) -> Callable[[Floats, Floats, Floats], Floats]:
    return lambda probs, hits, judged: kind().fit(probs, hits).transform(judged)


FITS = (
    FitQuestion(
        "temperature",
        "TemperatureScaling().fit(probs, labels), float64",
        _scaling(TemperatureScaling),
        datasets=("overconfident", "calibrated"),
        tolerance=_NUMERIC_GRADIENT,
        given="probs",
    ),
    FitQuestion(
        "platt",
        "LogisticCalibration().fit(probs, labels), two classes, float64",
        _scaling(LogisticCalibration),
        datasets=("binary",),
        tolerance=_NUMERIC_GRADIENT,
        options={"targets": "plain"},
        given="probs",
    ),
    FitQuestion(
        "vector",
        "LogisticCalibration().fit(probs, labels), more classes, float64: vector scaling of log-probabilities",
        _scaling(LogisticCalibration),
        datasets=("overconfident", "calibrated"),
        tolerance=_NUMERIC_GRADIENT,
        given="probs",
    ),
    FitQuestion(
        "beta",
        "BetaCalibration().fit(probs, labels), two classes, float64",
        _scaling(BetaCalibration),
        datasets=("binary",),
        tolerance=_NUMERIC_GRADIENT,
        given="probs",
    ),
    FitQuestion(
        "histogram_classwise",
        "HistogramBinning(bins=15).fit(p_j, y == j) for each class j, float64",
        one_vs_rest(_binning(lambda: HistogramBinning(bins=15)), floor=True),
        datasets=("overconfident", "calibrated", "binary"),
        tolerance=EXACT,
        options={"n_bins": 15, "bins": "equal_width"},
        given="probs",
        conversion=FLOORED,
    ),
    FitQuestion(
        "isotonic_ovr",
        "IsotonicRegression().fit(p_j, y == j) for each class j, float64",
        one_vs_rest(_binning(IsotonicRegression), floor=True),
        datasets=("overconfident", "calibrated", "binary", "ties"),
        tolerance=EXACT,
        given="probs",
        judged_on="calibration",
        conversion=FLOORED,
    ),
)
