"""Affine maps: a temperature, a linear function of the logits, and a mixture of maps."""

from collections.abc import Sequence
from typing import ClassVar, cast, final

import torch
from torch import Tensor, nn

from calibrant.checks import check_bool
from calibrant.maps.base import Map, Setting, require

__all__ = ["Affine", "LogMixture", "Mixture", "Scale"]


@final
class Scale(Map):
    """Logits divided by one number; above 1 it softens, below 1 it sharpens, and infinity gives equal probabilities.

    Args:
        temperature: Above 0, a single number.
        n_classes: Length of a row of logits.
    """

    kind: ClassVar[str] = "scale"
    may_be_infinite: ClassVar[tuple[str, ...]] = ("temperature",)
    temperature: Tensor

    def __init__(self, temperature: Tensor, *, n_classes: int) -> None:
        super().__init__(n_classes, keeps_predicted=True)
        self.keep(temperature=temperature)

    def check_numbers(self) -> None:
        require(self.temperature.numel() == 1, "temperature must be a single number", self.temperature)
        require(self.temperature > 0, "temperature must be above 0", self.temperature)

    def calibrated(self, logits: Tensor) -> Tensor:
        return logits / self.temperature.to(logits)


@final
class Affine(Map):
    """``W x + b``, where x is the logits or their log-probabilities.

    Args:
        weight: One number, a diagonal (k,) or a matrix (k, k) whose row j makes the j-th logit.
        bias: Shape (k,).
        n_classes: Length of a row of logits.
        of_log_probs: Whether x is the log-probabilities. They differ from the logits by a number a row, which matters
            to a matrix or a diagonal, and makes the result independent of it.
    """

    kind: ClassVar[str] = "affine"
    weight: Tensor
    bias: Tensor

    def __init__(self, weight: Tensor, bias: Tensor, *, n_classes: int, of_log_probs: bool = False) -> None:
        super().__init__(n_classes)
        self.of_log_probs = of_log_probs
        self.keep(weight=weight, bias=bias)

    def settings(self) -> dict[str, Setting]:
        return {"of_log_probs": self.of_log_probs}

    def check_numbers(self) -> None:
        check_bool(self.of_log_probs, "of_log_probs")
        k = self.n_classes
        shapes = ((), (k,), (k, k))
        require(self.weight.shape in shapes, f"weight must have one of the shapes {shapes} of {k} classes", self.weight)
        require(self.bias.shape == (k,), f"bias must have a number for each of {k} classes", self.bias)

    def calibrated(self, logits: Tensor) -> Tensor:
        # Far beyond all that matters, and so that sums of products with the weights are numbers.
        most = torch.finfo(logits.dtype).max ** 0.75
        inputs = (logits.log_softmax(dim=-1) if self.of_log_probs else logits).clamp(-most, most)
        weight, bias = self.weight.to(logits), self.bias.to(logits)
        return (inputs @ weight.T if weight.ndim == 2 else inputs * weight) + bias


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
