"""Log-loss and Brier score split into what one temperature removes and what it leaves.

The split needs a recalibration, and one fitted on the rows it is judged on would flatter itself: it is cross-fitted.
"""

import math
from typing import NamedTuple, Unpack

import torch
from torch import Tensor

from calibrant.checks import check_at_least
from calibrant.metrics.statistics import full_predictions
from calibrant.numerics.inverse_temperature import find_root, temperature_derivatives
from calibrant.numerics.softmax import SoftmaxRows, Wanted
from calibrant.numerics.uniform_share import floored
from calibrant.predictions import LABEL_FLOOR, Arrays, Predictions, as_predictions

__all__ = ["Split", "calibration_refinement"]

# Temperatures beyond these are no temperatures but broken models.
_COLDEST, _HOTTEST = 1e-3, 1e3
# Numbers worked on at a time.
_BLOCK = 1 << 18


class Split(NamedTuple):
    """A proper score in two parts, with the 95 % interval of the calibration part."""

    total: float
    calibration: float
    calibration_low: float
    calibration_high: float
    refinement: float


def calibration_refinement(
    *predictions: Predictions, folds: int = 5, seed: int = 0, **arrays: Unpack[Arrays]
) -> dict[str, Split]:
    """Split log-loss (``nll``) and ``brier`` into calibration and refinement by a cross-fitted temperature.

    Refinement is the score that remains after the temperature was fitted on the other folds: what one temperature
    cannot lower, though a richer recalibration or a better model may. Calibration is what it removed, a lower bound
    of what recalibration can; it is negative where a temperature does not help, or was fitted on too few samples. Given
    probabilities with zeros among them are compared with what the calibrator of a temperature makes of them: it mixes
    in a share of the uniform distribution first (:attr:`Predictions.uniform_share`).

    Args:
        predictions: At least two rows a fold.
        folds: Parts that the rows are dealt into.
        seed: Random seed of the fold assignment.

    Reference:
        Berta et al. (2025), Rethinking Early Stopping: Refine, Then Calibrate, arXiv:2501.19195.
    """
    samples = full_predictions(as_predictions(predictions, "calibration_refinement", arrays))
    check_at_least(folds, 2, "folds")
    check_at_least(len(samples), 2 * folds, "rows for the cross-fitted split")
    order = torch.randperm(len(samples), generator=torch.Generator().manual_seed(seed))
    fold = (order % folds).to(samples.logits.device)
    recalibrated = _with_floor(samples)
    beta = _beta_by_fold(recalibrated, fold, folds)
    before = _scores(samples, torch.ones_like(beta), fold)
    if samples.given_as_probs:  # as the log-loss of given probabilities counts them
        before["nll"].clamp_(max=-math.log(LABEL_FLOOR))
    after = _scores(recalibrated, beta, fold)
    return {name: _split(before[name], after[name]) for name in before}


def _with_floor(predictions: Predictions) -> Predictions:
    """The samples as a calibrator sees them. One number is chosen from all of them, which no fold could tell."""
    share = predictions.uniform_share
    if not share:
        return predictions
    number = predictions.logits.new_tensor(share)
    blocks = [floored(block.logits, number) for block in predictions.blocks()]
    return predictions.with_logits(torch.cat(blocks), normalised=True)


def _split(before: Tensor, after: Tensor) -> Split:
    gain = before - after
    largest = float(gain.abs().max()) or 1.0  # divided by, so that no square overflows
    mean, error = float(gain.mean()), float((gain / largest).std()) * largest / math.sqrt(len(gain))
    return Split(float(before.mean()), mean, mean - 1.96 * error, mean + 1.96 * error, float(after.mean()))


def _beta_by_fold(predictions: Predictions, fold: Tensor, folds: int) -> Tensor:
    """Inverse temperature that minimises the log-loss of all rows but those of each fold, (folds,)."""
    asked, slopes = 1.0, torch.zeros(2, folds, dtype=torch.float64, device=fold.device)

    def slope_and_curvature(beta: float) -> tuple[float, float]:
        nonlocal asked, slopes
        asked, slopes = beta, _slopes(predictions, beta, fold, folds)
        slope, curvature = slopes.sum(dim=1).tolist()
        return slope, curvature

    find_root(slope_and_curvature, start=1.0, low=1 / _HOTTEST, high=1 / _COLDEST, tolerance=1e-4)
    # One Newton step from there without the fold's rows: the sums are additive, so leaving a fold out costs nothing.
    others = slopes.sum(dim=1, keepdim=True) - slopes
    step = others[0] / others[1].clamp(min=1e-300)
    return (asked - step).clamp(1 / _HOTTEST, 1 / _COLDEST)


def _slopes(predictions: Predictions, beta: float, fold: Tensor, folds: int) -> Tensor:
    """First and second derivative of the log-loss in the inverse temperature, summed by fold, (2, folds)."""
    sums = torch.zeros(2, folds, dtype=torch.float64, device=fold.device)
    for block in temperature_derivatives(predictions.logits, predictions.labels, beta):
        sums.index_add_(1, fold[block.rows], torch.stack([block.slope, block.curvature]).double())
    return sums


def _scores(predictions: Predictions, beta: Tensor, fold: Tensor) -> dict[str, Tensor]:
    """Log-loss and Brier score of every row at its fold's inverse temperature."""
    scores: dict[str, list[Tensor]] = {"nll": [], "brier": []}
    # The log-losses of all rows must add up to a number.
    start, farthest = 0, -torch.finfo(torch.float64).max / (4 * len(predictions))
    for block in predictions.blocks(max(1, _BLOCK // predictions.n_classes)):
        scale = beta[fold[start : start + len(block)]]
        logits = block.logits.double()
        gaps = (logits - logits.amax(dim=1, keepdim=True)).mul_(scale[:, None]).clamp_(min=farthest)
        soft = SoftmaxRows(gaps, block.labels, Wanted(squares=True))
        scores["nll"].append(soft.nll())
        scores["brier"].append(soft.brier())
        start += len(block)
    return {name: torch.cat(parts) for name, parts in scores.items()}
