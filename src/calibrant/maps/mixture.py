"""Weighted means of what several maps give: of their probabilities, or of their log-probabilities."""

from collections.abc import Sequence
from typing import ClassVar, cast, final

import torch
from torch import Tensor, nn

from calibrant.checks import check_bool
from calibrant.maps.base import Map, Setting
from calibrant.maps.learned import require

__all__ = ["LogMixture", "Mixture"]


# By how much the predicted class is put ahead of the next: more than float32 rounds away.
_AHEAD = 1e-5


@final
class Mixture(Map):
    """Mean of probabilities, as log-probabilities.

    Args:
        weights: One a map, not negative, summing to one, (m,).
        maps: The maps, all for the same classes.
        n_classes: Length of a row of logits.
        keeps_predicted: Whether the predicted class is kept ahead of all others, where a mean of maps that all keep it
            would end in a tie: because of rounding, or because all weight is on equal probabilities.
    """

    kind: ClassVar[str] = "mixture"
    weights: Tensor

    def __init__(self, weights: Tensor, maps: Sequence[Map], *, n_classes: int, keeps_predicted: bool = False) -> None:
        super().__init__(n_classes, gives_log_probs=True, keeps_predicted=keeps_predicted)
        self.maps = nn.ModuleList(maps)
        self.keep(weights=weights)

    def settings(self) -> dict[str, Setting]:
        return {"keeps_predicted": self.keeps_predicted}

    def check_numbers(self) -> None:
        check_bool(self.keeps_predicted, "keeps_predicted")
        _check_weights(self.weights, len(self.maps))

    def calibrated(self, logits: Tensor) -> Tensor:
        limits = torch.finfo(logits.dtype)
        maps = cast("Sequence[Map]", self.maps)
        parts = [part.calibrated(logits).clamp(limits.min, limits.max).log_softmax(dim=-1) for part in maps]
        log_weights = self.weights.log().to(logits)
        mean = torch.stack([part + weight for part, weight in zip(parts, log_weights, strict=True)]).logsumexp(dim=0)
        return _put_ahead(mean, logits.argmax(dim=-1, keepdim=True)) if self.keeps_predicted else mean


@final
class LogMixture(Map):
    """Mean of log-probabilities, divided by their sum: the geometric mean of what the maps give.

    Unlike a mean of probabilities it is no flatter than the maps are where they agree.

    Args:
        weights: One a map, not negative, summing to one, (m,).
        maps: The maps, all for the same classes.
        n_classes: Length of a row of logits.
    """

    kind: ClassVar[str] = "log_mixture"
    weights: Tensor

    def __init__(self, weights: Tensor, maps: Sequence[Map], *, n_classes: int) -> None:
        # Where all maps have the class ahead, so has their mean.
        super().__init__(n_classes, gives_log_probs=True, keeps_predicted=all(part.keeps_predicted for part in maps))
        self.maps = nn.ModuleList(maps)
        self.keep(weights=weights)

    def check_numbers(self) -> None:
        _check_weights(self.weights, len(self.maps))

    def calibrated(self, logits: Tensor) -> Tensor:
        least = torch.finfo(logits.dtype).min / 4  # so that no sum of them overflows
        parts = [part(logits).log_softmax(dim=-1).clamp(min=least) for part in self.maps]
        # One product after the other: a matrix product would round by the number of samples.
        mean = torch.stack([part * weight for part, weight in zip(parts, self.weights.to(logits), strict=True)]).sum(0)
        return mean.log_softmax(dim=-1)


def _check_weights(weights: Tensor, m: int) -> None:
    require(m > 0 and weights.shape == (m,), f"weights must be one for each of {m} maps, at least one", weights)
    near = (weights.sum() - 1).abs() <= m * torch.finfo(torch.float32).eps  # a map may be kept in float32
    require((weights >= 0).all() & near, "weights must not be negative, and sum to one", weights)


def _put_ahead(log_probs: Tensor, top: Tensor) -> Tensor:
    """The same with the predicted class ahead of the next by a little at least; rows where it is stay untouched."""
    own, next_best = log_probs.gather(-1, top), log_probs.scatter(-1, top, -torch.inf).amax(dim=-1, keepdim=True)
    lift = (next_best + _AHEAD - own).clamp(min=0)
    lifted = log_probs.scatter(-1, top, own + lift)
    return lifted - torch.log1p(own.exp() * torch.expm1(lift))  # divided by their sum
