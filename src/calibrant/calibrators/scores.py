"""The numbers that methods with a curve are fitted on: log-odds, reckoned exactly as the map will reckon them."""

import torch
from torch import Tensor

from calibrant.maps import Curve, Map, OneVsRest, TwoClassMap
from calibrant.maps.log_odds import class_log_odds, predicted_log_odds
from calibrant.numerics.precision import working
from calibrant.predictions import Predictions

__all__ = ["class_by_class", "class_map", "top_label"]


def top_label(predictions: Predictions) -> tuple[Tensor, Tensor]:
    """Log-odds of the predicted class and whether it is the label, (n,) each."""
    parts = [predicted_log_odds(working(block.logits)) for block in predictions.blocks()]
    predicted, log_odds = (torch.cat(column).squeeze(1) for column in zip(*parts, strict=True))
    return log_odds, predicted == predictions.labels


def class_by_class(predictions: Predictions) -> tuple[Tensor, range]:
    """Log-odds of every class against the rest, one class a line, (c, n), and which classes these are.

    Two classes are one problem, that of class 1, since the other is its mirror image.
    """
    if predictions.n_classes == 2:
        logits = working(predictions.logits)
        return (logits[:, 1] - logits[:, 0])[None], range(1, 2)
    log_odds = torch.cat([class_log_odds(working(block.logits)).T for block in predictions.blocks()], dim=1)
    return log_odds.contiguous(), range(predictions.n_classes)


def class_map(curve: Curve, n_classes: int) -> Map:
    """The map that applies a curve fitted on :func:`class_by_class`."""
    if n_classes == 2:
        return TwoClassMap(curve)
    return OneVsRest(curve, n_classes=n_classes)
