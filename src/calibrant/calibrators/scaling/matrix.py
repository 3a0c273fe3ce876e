"""Matrix scaling: every class's logit from all of them."""

from dataclasses import dataclass
from typing import ClassVar, final

from calibrant.calibrators.base import Calibrator, CalibratorFamily, Fitted
from calibrant.calibrators.scaling.affine import check_every_class_seen, coldness_of, warn_of_few_rows
from calibrant.maps import Affine
from calibrant.numerics.softmax_regression import fit_affine
from calibrant.paper import Paper
from calibrant.predictions import Predictions

__all__ = ["MatrixScaling"]


@final
@dataclass(frozen=True)
class MatrixScaling(Calibrator):
    """A linear function of the logits, with a full matrix and no penalty, so that the log-loss is smallest.

    It can undo any confusion between classes, and with ten classes and thousands of rows it does. Its k (k + 1) numbers
    make it the first to overfit: with a hundred classes and 5,000 rows it tells the calibration rows apart almost
    without error, which has no optimum and is refused here. (Papers that report it there stop gradient descent early;
    the result is then that of the stopping.) Structured matrix scaling (sms) and ms_odir are the same with a penalty.

    Formula: q = softmax(W z + b); the off-diagonal of each column of W sums to 0, as does b
    Rows: about 20 (k + 1) of each class; a class without rows has no optimum.

    Raises:
        FitError: If a class has no rows, or the rows can be told apart without error.

    Example:
        >>> import torch
        >>> logits = torch.randn(5000, 3, generator=torch.manual_seed(0), dtype=torch.float64)
        >>> labels = torch.multinomial(logits.softmax(1), 1, generator=torch.manual_seed(1))[:, 0]
        >>> swapped = logits[:, [1, 0, 2]]
        >>> fitted = MatrixScaling().fit(Predictions.from_logits(swapped, labels))
        >>> round(float((fitted(swapped).argmax(1) == logits.argmax(1)).float().mean()), 1)
        1.0
    """

    name: ClassVar[str] = "matrix"
    title: ClassVar[str] = "Matrix scaling"
    family: ClassVar[CalibratorFamily] = "scaling"
    paper: ClassVar[Paper] = Paper(
        "Guo et al.", 2017, "On Calibration of Modern Neural Networks", "arXiv:1706.04599", "Section 4.2"
    )
    # Classes are mixed.
    preserves_accuracy: ClassVar[bool] = False
    preserves_ranking: ClassVar[bool] = False

    def learn(self, predictions: Predictions) -> Fitted:
        k = predictions.n_classes
        check_every_class_seen(predictions, self.title)
        warn_of_few_rows(predictions, k * (k + 1), self.title)
        coldness = coldness_of(predictions, self.title).coldness
        # Differs from the paper: an exact optimum, where its code takes steps of gradient descent.
        fit = fit_affine(predictions.logits, predictions.labels, shape="matrix", start=(coldness, 0.0))
        return Fitted(Affine(fit.weight, fit.bias, n_classes=k), fit.certificate)
