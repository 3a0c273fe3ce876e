"""torch-uncertainty: selective classification, equal-mass bins, smECE and temperature scaling."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from cases import CERTAIN_AND_WRONG, TIED, WITH_A_MASKED_LOGIT, best_temperature, masked_logit
from data import DATASETS, Dataset
from numpy.typing import NDArray
from question import (
    COARSE_MESH,
    EVEN_BINS,
    HALF_WEIGHT_AT_ONE,
    ROUNDED_TO_FLOAT32,
    Question,
    WrongAnswer,
    said,
    tensors,
)
from torch.utils.data import DataLoader, TensorDataset
from torch_uncertainty_files import metric_file, temperature_scaler_file

PEER = "torch-uncertainty"


def _of_probs(file: str, name: str, **settings: object) -> Callable[[Dataset], float]:
    def ask(data: Dataset) -> float:
        metric = getattr(metric_file(file), name)(**settings)
        metric.update(*tensors(data))
        return metric.compute().item()

    return ask


def _fpr95(data: Dataset) -> float:
    metric = metric_file("fpr").FPR95(pos_label=1)
    metric.update(torch.from_numpy(data.confidence), torch.from_numpy(data.correct.astype(np.int64)))
    return metric.compute().item()


def _ace(data: Dataset) -> float:
    settings = {"task": "multiclass", "num_bins": EVEN_BINS, "num_classes": data.n_classes}
    return _of_probs("calibration", "AdaptiveCalibrationError", **settings)(data)


def _first_is_wrong(data: Dataset) -> float:
    return float(not data.correct[data.confidence.argmax()])


def _mean_risk(data: Dataset, trapezoid: float) -> float:
    n, error = len(data.labels), 1 - data.correct.mean()
    return (trapezoid * (n - 1) + (_first_is_wrong(data) + error) / 2) / n


def _from_coverage_zero(data: Dataset, trapezoid: float) -> float:
    n = len(data.labels)
    return trapezoid * (1 - 1 / n) + _first_is_wrong(data) / (2 * n**2)


_ROW_ORDER = {"ties": "the peer takes tied rows in the order they come"}
QUESTIONS = (
    Question(
        "aurc",
        "AURC().update(probs, labels)",
        _of_probs("risk_coverage", "AURC"),
        tolerance=ROUNDED_TO_FLOAT32,
        left_out=_ROW_ORDER,
        convert=_mean_risk,
        conversion="peer: trapezoids over coverage 1/n..1, rescaled; ours: mean of the n risks "
        "= (peer (n - 1) + (first + last risk)/2)/n",
    ),
    Question(
        "augrc",
        "AUGRC().update(probs, labels)",
        _of_probs("risk_coverage", "AUGRC"),
        tolerance=ROUNDED_TO_FLOAT32,
        left_out=_ROW_ORDER,
        convert=_from_coverage_zero,
        conversion="peer: trapezoids over coverage 1/n..1, rescaled; ours: trapezoids over 0..1 "
        "= peer (1 - 1/n) + first risk/(2 n^2)",
    ),
    Question("fpr95", "FPR95(pos_label=1).update(confidence, correct)", _fpr95, tolerance=ROUNDED_TO_FLOAT32),
    Question(
        "ace",
        f"AdaptiveCalibrationError('multiclass', num_bins={EVEN_BINS}, num_classes=k).update(probs, labels)",
        _ace,
        tolerance=ROUNDED_TO_FLOAT32,
        options={"n_bins": EVEN_BINS},
        left_out=_ROW_ORDER,
    ),
    Question(
        "smece",
        "SmoothCalibrationError(kernel_type='reflected').update(probs.float(), labels)",
        lambda data: _smece(data, "reflected"),
        tolerance=COARSE_MESH,
        left_out=HALF_WEIGHT_AT_ONE,
    ),
)


def wrong_answers() -> Iterator[WrongAnswer]:
    """The cases, with what the installed version says."""
    yield from _wrong_smece()
    yield from _wrong_with_ties()
    yield from _wrong_temperature()


def _as_two_classes(rows: dict[str, Any]) -> Dataset:
    """Confidence and correctness as probabilities of the answer given, class 0, and of the other."""
    confidence = np.array(rows["confidence"])
    return Dataset(1 - np.array(rows["correct"]), given_probs=np.stack([confidence, 1 - confidence], axis=1))


def _smece(data: Dataset, kernel: str) -> float:
    in_float32 = Dataset(data.labels, given_probs=data.probs.astype(np.float32))
    return _of_probs("calibration", "SmoothCalibrationError", kernel_type=kernel)(in_float32)


def _wrong_smece() -> Iterator[WrongAnswer]:
    yield WrongAnswer(
        call="SmoothCalibrationError(kernel_type='reflected').update(probs, labels)",
        answer=said(lambda: _smece(_as_two_classes(CERTAIN_AND_WRONG["rows"]), "reflected")),
        **CERTAIN_AND_WRONG,
    )
    data = DATASETS["calibrated"]()
    yield WrongAnswer(
        case="smECE with the logit kernel is another number",
        call="SmoothCalibrationError() against SmoothCalibrationError(kernel_type='reflected'), data set calibrated",
        right=_smece(data, "reflected"),
        derivation="not an error: two kernels of one paper under one name; the reflected one is the paper's smECE",
        answer=_smece(data, "logit"),
    )


def _wrong_with_ties() -> Iterator[WrongAnswer]:
    data = _as_two_classes(TIED["rows"])
    settings = {"task": "multiclass", "num_bins": 10, "num_classes": 2}
    yield WrongAnswer(
        case="equal-mass bins split ties by row order",
        call="AdaptiveCalibrationError('multiclass', num_bins=10, num_classes=2).update(probs, labels)",
        answer=said(lambda: _of_probs("calibration", "AdaptiveCalibrationError", **settings)(data)),
        options={"n_bins": 10},
        **TIED,
    )
    yield WrongAnswer(
        case="risk and coverage of ties follow the row order",
        call="AURC().update(probs, labels)",
        right=0.5,
        derivation="the rows cannot be told apart: whichever are accepted, half of them are wrong in expectation",
        answer=said(lambda: _of_probs("risk_coverage", "AURC")(data)),
        metric="aurc",
        rows=TIED["rows"],
    )


def _temperature(logits: NDArray[np.float64], labels: NDArray[np.int64], lr: float = 0.1) -> float:
    scaler = temperature_scaler_file().TemperatureScaler(lr=lr)
    rows = TensorDataset(torch.from_numpy(logits).float(), torch.from_numpy(labels))
    logging.disable(logging.ERROR)  # it logs that it was given no model, and that a temperature is negative
    scaler.fit(DataLoader(rows, batch_size=len(labels)), progress=False)
    logging.disable(logging.NOTSET)
    return 1 / scaler.inv_temp.item()


def _wrong_temperature() -> Iterator[WrongAnswer]:
    data = DATASETS["overconfident"]()
    yield WrongAnswer(
        case="LBFGS with a learning rate of 0.01 stops early",
        call="TemperatureScaler(lr=0.01).fit(...), data set overconfident",
        answer=said(lambda: _temperature(data.logits, data.labels, lr=0.01)),
        **best_temperature(data.logits, data.labels),
    )
    yield WrongAnswer(
        case="one logit of -inf",
        call=f"TemperatureScaler().fit(...), {WITH_A_MASKED_LOGIT}",
        answer=said(lambda: _temperature(*masked_logit())),
        **best_temperature(*masked_logit()),
    )
    yield WrongAnswer(
        case="labels that are always the least likely class",
        call="TemperatureScaler().fit(logits, logits.argmin(1)), data set overconfident",
        right=None,
        derivation="a negative temperature reverses the ranking of the classes; the fit must refuse or stop at a bound",
        answer=said(lambda: _temperature(data.logits, data.logits.argmin(axis=1))),
    )
