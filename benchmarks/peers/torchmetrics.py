"""torchmetrics: functional forms, without argument validation (its own advice for speed)."""

import torch
from torchmetrics.functional.classification import binary_auroc, multiclass_calibration_error

from .rows import Rows


def ece_from_probs(rows: Rows) -> float:
    """Fifteen bins of equal width."""
    return float(
        multiclass_calibration_error(
            rows.probs, rows.labels, num_classes=rows.n_classes, n_bins=15, validate_args=False
        )
    )


def ece_from_logits(rows: Rows) -> float:
    """The same; the peer guesses that they are logits and takes the softmax itself."""
    return float(
        multiclass_calibration_error(
            rows.logits, rows.labels, num_classes=rows.n_classes, n_bins=15, validate_args=False
        )
    )


def auroc_from_top(rows: Rows) -> float:
    """Area under the ROC curve of correctness by confidence."""
    confidence, correct = torch.from_numpy(rows.confidence), torch.from_numpy(rows.correct).long()
    return float(binary_auroc(confidence, correct, validate_args=False))


TASKS = {"ece from probs": ece_from_probs, "ece from logits": ece_from_logits, "auroc from top": auroc_from_top}
