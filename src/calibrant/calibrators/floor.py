"""Floors under probabilities: of what a map without a formula may claim, and of what a method is given.

A cell of a histogram in which every row was right has an accuracy of one, and one mistake there would later cost an
infinite log-loss. Laplace's rule of succession says how far n rows can take us: after n successes in n trials the next
fails with probability 1/(n + 2). No map learned from n rows claims more than that.

For the predicted class, or of two classes: 1/(n + 2) <= p <= 1 - 1/(n + 2).
For each of k classes against the rest: 1/((n + 2)(k - 1)) <= p <= 1 - 1/(n + 2), before division by their sum: beside a
class that is as sure as it may be, the k - 1 others together have what it leaves, at the least.

Probabilities that were given, with zeros among them, have a share of the uniform distribution mixed in before any
method sees them, :attr:`Predictions.uniform_share`; the map keeps it as its first step.
"""

import math

import torch
from torch import Tensor

from calibrant.numerics.uniform_share import floored
from calibrant.predictions import PROB_FLOOR, Predictions

__all__ = ["about_floor", "floored_log_odds", "floored_probs", "log_odds_bounds", "prob_bounds", "with_floor"]


def prob_bounds(rows: int, n_classes: int = 2) -> tuple[float, float]:
    """Smallest and largest probability that a map learned from so many rows may give to a class.

    Args:
        rows: All calibration rows, not those of one cell.
        n_classes: Classes that stand against the one, plus it: leave it at 2 for the predicted class, whatever k is.

    Example:
        >>> prob_bounds(8)
        (0.1, 0.9)
        >>> prob_bounds(8, n_classes=11)
        (0.01, 0.9)
    """
    least = 1 / (rows + 2)
    return least / (n_classes - 1), 1 - least


def log_odds_bounds(rows: int, n_classes: int = 2) -> tuple[float, float]:
    """The same bounds as log-odds; -ln(n + 1) and ln(n + 1) for two classes."""
    return -math.log((rows + 2) * (n_classes - 1) - 1), math.log(rows + 1)


def floored_probs(probs: Tensor, rows: int, n_classes: int = 2) -> Tensor:
    """Probabilities kept within :func:`prob_bounds`, any shape."""
    least, most = prob_bounds(rows, n_classes)
    return probs.clamp(least, most)


def floored_log_odds(probs: Tensor, rows: int, n_classes: int = 2) -> Tensor:
    """Log-odds of probabilities kept within :func:`prob_bounds`, any shape; always finite.

    Example:
        >>> floored_log_odds(torch.tensor([0.0, 0.5, 1.0]), rows=2).exp()
        tensor([0.3333, 1.0000, 3.0000], dtype=torch.float64)
    """
    # Clamped as log-odds, so that every floored cell has the very same number.
    least, most = log_odds_bounds(rows, n_classes)
    return torch.logit(probs.double()).clamp(least, most)


def with_floor(predictions: Predictions, share: float) -> Predictions:
    """The samples as a map with this uniform share sees them; their confidences keep their order and their ties."""
    number = predictions.logits.new_tensor(share)
    mixed = torch.cat([floored(block.logits, number) for block in predictions.blocks()])
    return predictions.with_logits(mixed, normalised=True)


def about_floor(predictions: Predictions, share: float) -> str:
    """What was mixed in and why, in one sentence."""
    zeros = predictions.zero_cells
    assert zeros is not None, "only given probabilities have a floor"
    mixed = f"a share of {share:.2g} of equal probabilities is mixed in first, in the fit and in the map"
    if not predictions.uniform_share:
        return f"{mixed} (chosen by the method's own cross-validated log-loss)"
    percent = f"{100 * zeros.cells / zeros.of_cells:.1f} %"
    many = f"{percent} of the given probabilities are 0 or below {PROB_FLOOR:g}" if zeros.cells else "some are tiny"
    return f"{many}: {mixed} (chosen by cross-validated log-loss)"
