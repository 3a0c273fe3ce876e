"""scikit-learn: proper scores, ROC and precision-recall curves."""

from collections.abc import Iterator

import numpy as np
import sklearn.metrics
from cases import IMPOSSIBLE, share_impossible
from data import DATASETS, Dataset
from question import Question, WrongAnswer, said
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

PEER = "scikit-learn"


def _sklearn_fpr95(data: Dataset) -> float:
    false_positive, true_positive, _ = sklearn.metrics.roc_curve(data.correct, data.confidence, drop_intermediate=False)
    return float(false_positive[np.argmax(true_positive >= 0.95)])


QUESTIONS = (
    Question(
        "accuracy",
        "accuracy_score(labels, probs.argmax(1))",
        lambda data: sklearn.metrics.accuracy_score(data.labels, data.probs.argmax(axis=1)),
    ),
    Question(
        "nll",
        "log_loss(labels, probs, labels=range(k)), float64",
        lambda data: sklearn.metrics.log_loss(data.labels, data.probs, labels=range(data.n_classes)),
    ),
    Question(
        "brier",
        "brier_score_loss(labels, probs, labels=range(k), scale_by_half=False)",
        lambda data: sklearn.metrics.brier_score_loss(
            data.labels, data.probs, labels=range(data.n_classes), scale_by_half=False
        ),
    ),
    Question(
        "top_brier",
        "brier_score_loss(correct, confidence)",
        lambda data: sklearn.metrics.brier_score_loss(data.correct, data.confidence),
    ),
    Question(
        "auroc",
        "roc_auc_score(correct, confidence)",
        lambda data: sklearn.metrics.roc_auc_score(data.correct, data.confidence),
    ),
    Question(
        "aupr_success",
        "average_precision_score(correct, confidence)",
        lambda data: sklearn.metrics.average_precision_score(data.correct, data.confidence),
    ),
    Question(
        "aupr_error",
        "average_precision_score(~correct, -confidence)",
        lambda data: sklearn.metrics.average_precision_score(~data.correct, -data.confidence),
    ),
    Question(
        "fpr95", "roc_curve(correct, confidence, drop_intermediate=False): fpr at the first tpr >= 0.95", _sklearn_fpr95
    ),
)


def wrong_answers() -> Iterator[WrongAnswer]:
    """The cases, with what the installed version says."""
    tiny = [[1.0, 1e-10], [0.1, 0.9]]
    yield WrongAnswer(
        case="log-loss of float32 probabilities",
        call="log_loss(labels, probs.astype(float32), labels=[0, 1])",
        right=-(np.log(1e-10) + np.log(0.9)) / 2,
        derivation="-(ln 1e-10 + ln 0.9)/2; float32 holds 1e-10, but the peer clips at 1.2e-7",
        answer=said(lambda: sklearn.metrics.log_loss([1, 1], np.array(tiny, dtype=np.float32), labels=[0, 1])),
        metric="nll",
        rows={"probs": tiny, "labels": [1, 1]},
    )
    probs, labels = [[0.7, 0.3], [0.4, 0.6]], [0, 1]
    yield WrongAnswer(
        case="Brier score of two classes is halved, of three is not",
        call="brier_score_loss(labels, probs, labels=[0, 1])",
        right=0.25,
        derivation="(2 x 0.3^2 + 2 x 0.4^2)/2, the sum over classes that the peer itself takes for three",
        answer=said(lambda: sklearn.metrics.brier_score_loss(labels, np.array(probs), labels=[0, 1])),
        metric="brier",
        rows={"probs": probs, "labels": labels},
    )
    yield WrongAnswer(
        case="isotonic one-vs-rest gives the true class probability 0",
        call="CalibratedClassifierCV(FrozenEstimator(logistic regression), method='isotonic'): share of held-out rows",
        answer=said(_share_impossible_after_isotonic),
        **IMPOSSIBLE,
    )


def _share_impossible_after_isotonic() -> float:
    data = DATASETS["overconfident"]()
    train, hold, judge = slice(0, 500), slice(500, 1_000), slice(1_000, 2_000)
    model = LogisticRegression().fit(data.logits[train], data.labels[train])
    fitted = CalibratedClassifierCV(FrozenEstimator(model), method="isotonic")
    probs = fitted.fit(data.logits[hold], data.labels[hold]).predict_proba(data.logits[judge])
    return share_impossible(probs, data.labels[judge])
