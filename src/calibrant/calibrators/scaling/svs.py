"""Structured vector scaling: vector scaling held back by a penalty."""

from dataclasses import dataclass
from typing import ClassVar, final

from calibrant.calibrators.base import Calibrator, CalibratorFamily, Fitted
from calibrant.calibrators.scaling.structured import check_strengths, fit_structured
from calibrant.numerics.softmax_regression import Ridge
from calibrant.paper import Paper
from calibrant.predictions import Predictions

__all__ = ["StructuredVectorScaling"]


@final
@dataclass(frozen=True)
class StructuredVectorScaling(Calibrator):
    """Temperature scaling, then a slope and a shift for every class, pulled towards no change.

    The pull weakens as rows are gathered: with few it is temperature scaling, with many vector scaling, and in between
    it is better than both. Of all methods it is the safest improvement on a temperature, up to a thousand classes.
    It sees only each class's own log-probability; classes taken for one another want structured matrix scaling (sms).
    With the same few rows for each class and a balance of classes that will change, the shifts carry the old one over.

    Formula: q = softmax(w ⊙ x + b), x = log_softmax(z / T); w, b minimise NLL + λ_d k/n Σ(w_j − 1)² + λ_b k/n Σ b_j²
    Rows: about 200, as for a temperature; every row beyond adds something. A class without rows is driven out, with a
        warning: use temperature or ets.

    Args:
        diagonal_strength: λ_d.
        bias_strength: λ_b.

    Example:
        >>> import torch
        >>> logits = torch.randn(2000, 5, generator=torch.manual_seed(0), dtype=torch.float64)
        >>> labels = torch.multinomial(logits.softmax(1), 1, generator=torch.manual_seed(1))[:, 0]
        >>> fitted = StructuredVectorScaling().fit(Predictions.from_logits(3 * logits, labels))
        >>> fitted.summary.certificate.gradient < 1e-8
        True
    """

    name: ClassVar[str] = "svs"
    title: ClassVar[str] = "Structured vector scaling"
    family: ClassVar[CalibratorFamily] = "scaling"
    paper: ClassVar[Paper] = Paper(
        "Berta et al.", 2025, "Structured Matrix Scaling for Multi-Class Calibration", "arXiv:2511.03685"
    )
    # Each class has its own slope and shift.
    preserves_accuracy: ClassVar[bool] = False
    preserves_ranking: ClassVar[bool] = False

    diagonal_strength: float = 1.0
    bias_strength: float = 1.0

    def __post_init__(self) -> None:
        check_strengths(diagonal_strength=self.diagonal_strength, bias_strength=self.bias_strength)

    def learn(self, predictions: Predictions) -> Fitted:
        share = predictions.n_classes / len(predictions)
        ridge = Ridge(diagonal=self.diagonal_strength * share, bias=self.bias_strength * share)
        return fit_structured(predictions, self.title, shape="diagonal", ridge=ridge)
