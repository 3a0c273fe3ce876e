"""probmetrics: proper scores and their refinement part."""

from collections.abc import Callable, Iterator

import numpy as np
import probmetrics.metrics
import torch
from cases import WITH_A_MASKED_LOGIT, best_temperature, masked_logit
from data import DATASETS, Dataset
from probmetrics.calibrators import get_calibrator
from probmetrics.distributions import CategoricalLogits
from probmetrics.splitters import AllSplitter
from question import ROUNDED_TO_FLOAT32, Question, Tolerance, WrongAnswer, said, tensors

PEER = "probmetrics"


def _probmetrics(name: str) -> Callable[[Dataset], float]:
    return lambda data: probmetrics.metrics.Metric.from_name(name).compute_from_labels_probs(*reversed(tensors(data)))


def _probmetrics_ks(data: Dataset) -> float:
    top = torch.from_numpy(np.stack([1 - data.confidence, data.confidence], axis=1))
    metric = probmetrics.metrics.KolmogorovSmirnovCalibrationMetric()
    return metric.compute_from_labels_probs(torch.from_numpy(data.correct.astype(np.int64)), top)


def _nll_at_best_temperature(data: Dataset) -> float:
    split = probmetrics.metrics.MetricsWithCalibration(
        probmetrics.metrics.LogLoss(), get_calibrator("temp-scaling"), val_splitter=AllSplitter(), cal_name="ts"
    )
    parts = split.compute_all_from_labels_probs(*reversed(tensors(data)))
    (refinement,) = (value for name, value in parts.items() if name.startswith("refinement"))
    return refinement


QUESTIONS = (
    Question("nll", "Metric.from_name('logloss')", _probmetrics("logloss")),
    Question("brier", "Metric.from_name('brier')", _probmetrics("brier")),
    Question(
        "ks",
        "KolmogorovSmirnovCalibrationMetric() on the columns 1 - confidence, confidence with correct as label",
        _probmetrics_ks,
        tolerance=ROUNDED_TO_FLOAT32,
        left_out={"ties": "the peer takes tied rows in the order they come"},
    ),
    Question(
        "nll at the best temperature",
        "MetricsWithCalibration(LogLoss(), get_calibrator('temp-scaling'), AllSplitter()): refinement",
        _nll_at_best_temperature,
        tolerance=Tolerance(1e-9, "both at the minimum, where a small difference in temperature moves nothing"),
        left_out={"ties": "zero probabilities have no logits; the two sides floor them differently"},
    ),
)


def wrong_answers() -> Iterator[WrongAnswer]:
    """The cases, with what the installed version says."""
    logits, labels = masked_logit()

    def temperature() -> float:
        calibrator = get_calibrator("temp-scaling")
        calibrator.fit_torch(CategoricalLogits(torch.from_numpy(logits)), torch.from_numpy(labels))
        return 1 / float(calibrator.invtemp_)

    yield WrongAnswer(
        case="one logit of -inf",
        call=f"get_calibrator('temp-scaling').fit_torch(...), {WITH_A_MASKED_LOGIT}",
        answer=said(temperature),
        **best_temperature(logits, labels),
    )
    data = DATASETS["overconfident"]()

    def as_first_published() -> float:
        calibrator = get_calibrator("guo-ts")
        calibrator.fit_torch(CategoricalLogits(torch.from_numpy(data.logits)), torch.from_numpy(data.labels))
        return calibrator.temp_.item()

    yield WrongAnswer(
        case="LBFGS with a learning rate of 0.01 stops early",
        call="get_calibrator('guo-ts').fit_torch(...), data set overconfident",
        answer=said(as_first_published),
        **best_temperature(data.logits, data.labels),
    )
