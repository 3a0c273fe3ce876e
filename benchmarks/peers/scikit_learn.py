"""scikit-learn: proper scores, the ROC curve and temperature scaling."""

from sklearn.calibration import _TemperatureScaling
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

from .rows import Rows


def brier_from_probs(rows: Rows) -> float:
    """Summed over classes."""
    return brier_score_loss(rows.labels_array, rows.probs_array, labels=range(rows.n_classes), scale_by_half=False)


def nll_from_probs(rows: Rows) -> float:
    """Clipped at 1.2e-7, because the probabilities are float32."""
    return log_loss(rows.labels_array, rows.probs_array, labels=range(rows.n_classes))


def auroc_from_top(rows: Rows) -> float:
    """Area under the ROC curve of correctness by confidence."""
    return roc_auc_score(rows.correct, rows.confidence)


def temperature_from_logits(rows: Rows) -> float:
    """What CalibratedClassifierCV(method="temperature") fits, without its wrapper."""
    return 1 / float(_TemperatureScaling().fit(rows.logits.numpy(), rows.labels_array).beta_)


TASKS = {
    "brier from probs": brier_from_probs,
    "nll from probs": nll_from_probs,
    "auroc from top": auroc_from_top,
    "temperature from logits": temperature_from_logits,
}
