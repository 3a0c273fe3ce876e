"""dirichletcal: Dirichlet calibration by its authors, with the penalty as their paper prints it."""

import logging

import numpy as np
from data import Dataset, Floats
from dirichletcal.calib.fulldirichlet import FullDirichletCalibrator
from dirichletcal.calib.multinomial import MultinomialRegression
from fit_question import FitQuestion
from question import Tolerance

PEER = "dirichletcal"
NOT_COMPARED: dict[str, str] = {}

# Its defaults leave out the factors 1/(k (k - 1)) and 1/k of the paper (reg_norm) and penalise the matrix less its last
# row instead of the matrix (ref_row), so that the result depends on which class comes last.
_AS_IN_THE_PAPER = {"reg_norm": True, "ref_row": False, "optimizer": "newton"}
_WORDS = "reg_norm=True, ref_row=False, optimizer='newton'"
_NEWTON = Tolerance(1e-6, "same objective; the peer's Newton method stops at a gradient of 1e-8 or a gain of 1e-12")


def _dirichlet(calibration: Dataset, judged: Dataset) -> Floats:
    logging.disable(logging.ERROR)
    fitted = FullDirichletCalibrator(reg_lambda=0.5, reg_mu=0.2, **_AS_IN_THE_PAPER)
    fitted.fit(calibration.probs, calibration.labels)
    return np.asarray(fitted.predict_proba(judged.probs))


def _matrix(calibration: Dataset, judged: Dataset) -> Floats:
    logging.disable(logging.ERROR)
    fitted = MultinomialRegression(method="Full", reg_lambda=0.5, reg_mu=0.2, **_AS_IN_THE_PAPER)
    fitted.fit(calibration.logits, calibration.labels)
    return np.asarray(fitted.predict_proba(judged.logits))


FITS = (
    FitQuestion(
        "dirichlet_odir",
        f"FullDirichletCalibrator(reg_lambda=0.5, reg_mu=0.2, {_WORDS}).fit(probs, labels)",
        _dirichlet,
        datasets=("binary", "calibrated"),
        tolerance=_NEWTON,
        options={"strength": 0.5, "bias_strength": 0.2},
    ),
    FitQuestion(
        "ms_odir",
        f"MultinomialRegression('Full', reg_lambda=0.5, reg_mu=0.2, {_WORDS}).fit(logits, labels)",
        _matrix,
        datasets=("binary", "calibrated"),
        tolerance=_NEWTON,
        options={"strength": 0.5, "bias_strength": 0.2},
    ),
)
