"""uncertainty-calibration: the code of Kumar et al., for the top label."""

import calibration as peer
import numpy as np
from data import Dataset, Floats
from fit_question import LIFTED, FitQuestion, lifted
from question import EXACT, Tolerance

PEER = "uncertainty-calibration"
NOT_COMPARED = {"scaling_binning_marginal": "the peer's probabilities do not sum to one"}

_OTHER_TARGETS = Tolerance(
    2e-3, "the peer's Platt curve is fitted to 0 and 1, ours to Platt's targets, and the peer's stops early"
)


def _histogram(calibration: Dataset, judged: Dataset) -> Floats:
    fitted = peer.HistogramTopCalibrator(len(calibration.labels), num_bins=20)
    fitted.train_calibration(calibration.probs, calibration.labels)
    return lifted(fitted.calibrate(judged.probs), len(calibration.labels), judged.n_classes)


def _scaling_binning(calibration: Dataset, judged: Dataset) -> Floats:
    fitted = peer.PlattBinnerTopCalibrator(len(calibration.labels), num_bins=20)
    fitted.train_calibration(calibration.probs, calibration.labels)
    return np.asarray(fitted.calibrate(judged.probs))


FITS = (
    FitQuestion(
        "histogram",
        "HistogramTopCalibrator(n, num_bins=20).train_calibration(probs, labels)",
        _histogram,
        datasets=("overconfident", "calibrated", "binary"),
        tolerance=EXACT,
        options={"n_bins": 20, "bins": "equal_mass"},
        judged_on="calibration",
        conversion=LIFTED,
    ),
    FitQuestion(
        "scaling_binning",
        "PlattBinnerTopCalibrator(n, num_bins=20).train_calibration(probs, labels)",
        _scaling_binning,
        datasets=("overconfident", "calibrated", "binary"),
        tolerance=_OTHER_TARGETS,
        options={"n_bins": 20, "split": "shared"},
        judged_on="calibration",
    ),
)
