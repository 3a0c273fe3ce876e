"""PyCalib: confidence and classwise errors."""

from collections.abc import Iterator

import numpy as np
import pycalib.metrics
from question import Question, WrongAnswer, said

PEER = "pycalib"

QUESTIONS = (
    Question(
        "ece",
        "conf_ECE(labels, probs, bins=15)",
        lambda data: pycalib.metrics.conf_ECE(data.labels, data.probs, bins=15),
        options={"n_bins": 15},
        left_out={"ties": "the peer drops confidences of exactly 0.4 and 0.8 (see wrong answers)"},
    ),
    Question(
        "sce",
        "classwise_ECE(one_hot(labels), probs, bins=15)",
        lambda data: pycalib.metrics.classwise_ECE(np.eye(data.n_classes)[data.labels], data.probs, bins=15),
        options={"n_bins": 15},
    ),
)


def wrong_answers() -> Iterator[WrongAnswer]:
    """The cases, with what the installed version says."""
    yield WrongAnswer(
        case="a confidence on a bin edge is dropped",
        call="conf_ECE(labels, probs, bins=15)",
        right=0.8,
        derivation="one wrong answer of confidence 0.8",
        answer=said(lambda: pycalib.metrics.conf_ECE(np.array([1]), np.array([[0.8, 0.2]]), bins=15)),
        metric="ece",
        options={"n_bins": 15},
        rows={"probs": [[0.8, 0.2]], "labels": [1]},
    )
    probs, labels = [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]], [0, 1, 1]
    yield WrongAnswer(
        case="Brier score divided by the number of classes",
        call="brier_score(one_hot(labels), probs)",
        right=(0.14 + 0.06 + 0.74) / 3,
        derivation="(0.09+0.04+0.01 + 0.01+0.04+0.01 + 0.09+0.49+0.16)/3: the score is a sum over classes",
        answer=said(lambda: pycalib.metrics.brier_score(np.eye(3)[labels], np.array(probs))),
        metric="brier",
        rows={"probs": probs, "labels": labels},
    )
