"""γ-Net: a γ of the focal loss for every row, read off its features."""

import math
from typing import Literal, TypeAlias, final, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calibrant.checks import check_at_least, check_known, check_positive
from calibrant.errors import InputError

__all__ = ["GammaNet", "GammaSign", "check_sign"]

GammaSign: TypeAlias = Literal["absolute", "relu", "softplus", "sigmoid", "min-max"]
_FIRST_SPREAD = 0.1  # of the score where γ does not grow in proportion to it


@final
class GammaNet(nn.Module):
    """A γ for each row from its features, by attention over as many prototypes as there are classes.

    Formula: γ = |s|, s = x̃ w / τ, x̃ = softmax(x A) Aᵀ

    The same A gives keys and values. τ only sets the scale of w, and with it how fast γ moves at a given learning rate.
    Nothing in the formula keeps γ small, so it is clipped; a γ at the limit has no slope and stays there until others
    move it.

    Args:
        n_features: d.
        n_classes: k, how many prototypes there are.
        temperature: τ.
        limit: The largest γ.
        sign: How γ is kept from being negative. ``absolute`` is the paper's eq. 4. It names the others and prints no
            formula; here they are such that s = 0 gives γ = 1: ``softplus`` log(1 + (e - 1) eˢ); ``sigmoid``
            limit / (1 + (limit - 1) e⁻ˢ), for a limit above 1; ``min-max`` 2 (s - min s) / (max s - min s) over the
            batch, with 1 in its middle. ``relu`` is max(s, 0).
        seed: Of the first parameters.

    Raises:
        InputError: If a number is out of range, or ``sign`` is unknown or does not go with the limit.

    Example:
        >>> net = GammaNet(8, 3)
        >>> net.initialise(torch.randn(32, 8))
        >>> tuple(net(torch.randn(5, 8)).shape)
        (5,)
    """

    def __init__(
        self,
        n_features: int,
        n_classes: int,
        *,
        temperature: float = 0.01,
        limit: float = 20.0,
        sign: GammaSign = "absolute",
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_at_least(n_features, 1, "n_features")
        check_at_least(n_classes, 2, "n_classes")
        check_positive(temperature, "temperature")
        check_positive(limit, "limit")
        check_sign(sign, limit)
        self.temperature, self.limit, self.sign = temperature, limit, sign
        chance = torch.Generator().manual_seed(seed)
        # The paper does not say how they begin. Of this size a feature vector of unit entries gives scores around 1.
        spread = n_features**-0.5
        self.prototypes = nn.Parameter(spread * torch.randn(n_features, n_classes, generator=chance))
        self.weight = nn.Parameter(temperature * torch.randn(n_features, generator=chance))

    def forward(self, features: Tensor) -> Tensor:
        """γ of each row, (n,), from features (n, d)."""
        return self.unclipped(features).clamp(max=self.limit)

    def unclipped(self, features: Tensor) -> Tensor:
        """γ as the formula has it, (n,)."""
        score = self._score(features)
        if self.sign == "absolute":
            return score.abs()
        if self.sign == "relu":
            return score.relu()
        if self.sign == "softplus":
            return F.softplus(score + math.log(math.e - 1))
        if self.sign == "sigmoid":
            return self.limit * (score - math.log(self.limit - 1)).sigmoid()
        low, high = score.amin(), score.amax()
        # One row, or rows that are all alike, are in the middle.
        return torch.where(high > low, 2 * (score - low) / (high - low).clamp(min=torch.finfo(score.dtype).tiny), 1.0)

    def _score(self, features: Tensor) -> Tensor:
        attention = (features @ self.prototypes).softmax(dim=1)
        return (attention @ (self.prototypes.T @ self.weight)) / self.temperature

    @torch.no_grad()
    def initialise(self, features: Tensor) -> None:
        """Scale w so that γ is 1 on average over these rows, (n, d): the focal loss of γ = 1, to begin with.

        With ``softplus`` and ``sigmoid`` it is close to 1 for each of them; with ``min-max`` nothing is to be scaled.

        Raises:
            InputError: If the features are not finite, or give no γ at all.
        """
        # Differs from the paper, which says that γ begins at 1; by its formula and the usual first parameters it begins
        # anywhere between 0.06 and 2.6.
        if self.sign == "relu" and not bool((self._score(features) > 0).any()):
            self.weight.neg_()
        grows = self.sign in {"absolute", "relu"}
        size = float((self.unclipped(features) if grows else self._score(features).square()).mean())
        size = size if grows else math.sqrt(size) / _FIRST_SPREAD
        if not 0 < size < float("inf"):
            raise InputError(f"features must be finite for γ-Net to start from; its mean γ on them is {size}.")
        self.weight.div_(size)


def check_sign(sign: GammaSign, limit: float) -> None:
    """Refuse a way to keep γ from being negative that is unknown, or does not go with the limit.

    Raises:
        InputError: If so.
    """
    check_known(sign, get_args(GammaSign), "sign")
    if sign == "sigmoid" and limit <= 1:
        raise InputError(f"limit must be above 1 with sign='sigmoid', for γ to begin at 1; got {limit}.")
