"""Vector scaling: a slope and a shift for every class."""

from dataclasses import dataclass
from typing import ClassVar, final

from calibrant.calibrators.base import Calibrator, CalibratorFamily, Fitted
from calibrant.calibrators.scaling.affine import check_every_class_seen, coldness_of, warn_of_few_rows
from calibrant.maps import Affine
from calibrant.numerics.softmax_regression import fit_affine
from calibrant.paper import Paper
from calibrant.predictions import Predictions

__all__ = ["VectorScaling"]


@final
@dataclass(frozen=True)
class VectorScaling(Calibrator):
    """Scale and shift the logit of each class by numbers of its own, so that the log-loss is smallest.

    It mends classes that are over- or underrated, and classes that are more sure of themselves than others. The 2k
    numbers follow noise: with fewer than a hundred rows a class it is often worse than temperature scaling on new rows,
    and structured vector scaling (svs), the same with a penalty, is nearly always better. Logits are taken as they are:
    a number added to all logits of a row, which no probability shows, changes its result.

    Formula: q = softmax(w ⊙ z + b), Σ_j b_j = 0
    Rows: about 100 of each class; a class without rows has no optimum.

    Raises:
        FitError: If a class has no rows, or the rows can be told apart without error.

    Example:
        >>> import torch
        >>> logits = torch.randn(3000, 3, generator=torch.manual_seed(0), dtype=torch.float64)
        >>> labels = torch.multinomial(logits.softmax(1), 1, generator=torch.manual_seed(1))[:, 0]
        >>> steep = logits * torch.tensor([1.0, 2.0, 4.0])
        >>> fitted = VectorScaling().fit(Predictions.from_logits(steep, labels))
        >>> [round(number, 1) for number in fitted.weight.tolist()]
        [1.0, 0.5, 0.3]
    """

    name: ClassVar[str] = "vector"
    title: ClassVar[str] = "Vector scaling"
    family: ClassVar[CalibratorFamily] = "scaling"
    paper: ClassVar[Paper] = Paper(
        "Guo et al.", 2017, "On Calibration of Modern Neural Networks", "arXiv:1706.04599", "Section 4.2"
    )
    # Each class has its own slope and shift.
    preserves_accuracy: ClassVar[bool] = False
    preserves_ranking: ClassVar[bool] = False

    def learn(self, predictions: Predictions) -> Fitted:
        k = predictions.n_classes
        check_every_class_seen(predictions, self.title)
        warn_of_few_rows(predictions, 2 * k, self.title)
        coldness = coldness_of(predictions, self.title).coldness
        # Differs from the paper: an exact optimum, where its code takes steps of gradient descent.
        fit = fit_affine(predictions.logits, predictions.labels, shape="diagonal", start=(coldness, 0.0))
        return Fitted(Affine(fit.weight, fit.bias, n_classes=k), fit.certificate)
