"""Isotonic regression: the never-falling steps that fit best, of the top label, each class, or all classes as one.

The steps end midway between neighbouring calibration scores, and are level below the first and above the last. At the
calibration scores this is the same function as scikit-learn's, which draws straight lines between the steps.
"""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from calibrant.calibrators.base import Calibrator, CalibratorFamily, Fitted, floored_log_odds
from calibrant.calibrators.binning.histogram import steps_of
from calibrant.calibrators.samples import class_by_class, class_map, top_label, warn_of_absent
from calibrant.maps import PooledMap, TopLabelMap
from calibrant.numerics.isotonic import isotonic_blocks
from calibrant.paper import Paper
from calibrant.predictions import Predictions

__all__ = ["IsotonicOneVsRest", "IsotonicPooled", "IsotonicRegression"]

_ZADROZNY = Paper(
    "Zadrozny & Elkan",
    2002,
    "Transforming classifier scores into accurate multiclass probability estimates",
    "doi:10.1145/775047.775151",
)


@final
@dataclass(frozen=True)
class IsotonicRegression(Calibrator):
    """The never-falling function of the confidence that is nearest to who was right.

    Like histogram binning with bins that choose themselves, and never puts a less sure prediction above a surer one.
    It beats temperature scaling where the error is no matter of scale and rows are many. With few rows it follows the
    noise: the lowest and highest steps rest on a handful of rows. It makes ties, which blunts rankings. The prediction
    stays; the other classes share the rest as before.

    Formula: min Σ (q(p_i) − correct_i)² over q that never fall; q within 1/(n + 2) of 0 and 1
    Rows: about 1000. With fewer prefer Platt or temperature scaling; ten rows work, and are mostly floor.
    """

    name: ClassVar[str] = "isotonic"
    title: ClassVar[str] = "Isotonic regression"
    family: ClassVar[CalibratorFamily] = "binning"
    paper: ClassVar[Paper] = _ZADROZNY
    preserves_accuracy: ClassVar[bool] = True
    preserves_ranking: ClassVar[bool] = True

    def learn(self, predictions: Predictions) -> Fitted:
        line = _isotonic(*top_label(predictions), len(predictions), 2)
        return Fitted(TopLabelMap(steps_of([line]), n_classes=predictions.n_classes))


@final
@dataclass(frozen=True)
class IsotonicOneVsRest(Calibrator):
    """Isotonic regression of every class against the rest, divided by their sum.

    The way most libraries extend isotonic regression to many classes. It needs rows of every class, and with many
    classes it is ruinous: at 1000 classes the log-loss can grow tenfold. Use temperature or vector scaling there, or
    the pooled version, which has one function for all classes. Two classes are one regression, of class 1.

    Formula: q_j ∝ the never-falling function of p_j nearest to 1[y = j], at least 1/((n + 2)(k − 1)) before division
    Rows: about 1000 of each class. A class without rows gets the smallest probability everywhere, with a warning.
    """

    name: ClassVar[str] = "isotonic_ovr"
    title: ClassVar[str] = "Isotonic regression, one against the rest"
    family: ClassVar[CalibratorFamily] = "binning"
    paper: ClassVar[Paper] = _ZADROZNY
    preserves_accuracy: ClassVar[bool] = False
    preserves_ranking: ClassVar[bool] = False

    def learn(self, predictions: Predictions) -> Fitted:
        warn_of_absent(predictions, self.title)
        n, k = len(predictions), predictions.n_classes
        scores, classes = class_by_class(predictions)
        lines = [
            _isotonic(line, predictions.labels == label, n, k) for line, label in zip(scores, classes, strict=True)
        ]
        return Fitted(class_map(steps_of(lines), k))


@final
@dataclass(frozen=True)
class IsotonicPooled(Calibrator):
    """One isotonic regression of all classes' probabilities together, divided by their sum (IRM).

    All n·k pairs of a probability and whether it was the label's fit one function, so it needs k times fewer rows than
    one for each class, and the predicted class stays. It cannot correct a class by itself, and it makes ties among the
    classes of a row.

    Formula: q_j ∝ f(p_j), f the never-falling function nearest to all pairs (p_ij, 1[y_i = j])
    Rows: about 500, whatever the number of classes. With fewer the steps near 1 rest on a handful of rows.
    """

    name: ClassVar[str] = "irm"
    title: ClassVar[str] = "Isotonic regression, classes pooled"
    family: ClassVar[CalibratorFamily] = "binning"
    paper: ClassVar[Paper] = Paper(
        "Zhang et al.",
        2020,
        "Mix-n-Match: Ensemble and Compositional Methods for Uncertainty Calibration in Deep Learning",
        "arXiv:2003.07329",
    )
    preserves_accuracy: ClassVar[bool] = True
    # Dividing by the sum brings the other classes in.
    preserves_ranking: ClassVar[bool] = False

    def learn(self, predictions: Predictions) -> Fitted:
        # Differs from the paper: it makes f strictly rising by a tiny slope, which float32 rounds away; here ties stay,
        # and the map puts the predicted class ahead of those tied with it.
        n, k = len(predictions), predictions.n_classes
        scores, classes = class_by_class(predictions)
        hit = predictions.labels == torch.tensor(classes, device=scores.device)[:, None]
        if k == 2:
            # The pairs of class 0 are those of class 1 seen in a mirror.
            scores, hit = torch.cat([scores, -scores]), torch.cat([hit, ~hit])
        line = _isotonic(scores.flatten(), hit.flatten(), n, k)
        return Fitted(PooledMap(steps_of([line]), n_classes=k))


def _isotonic(scores: Tensor, hit: Tensor, rows: int, n_classes: int) -> tuple[Tensor, Tensor]:
    """Edges between the steps, (b - 1,), and their log-odds, (b,)."""
    blocks = isotonic_blocks(scores, hit)
    return blocks.edges, floored_log_odds(blocks.mean, rows, n_classes)
