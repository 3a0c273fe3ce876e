"""γ-Net: a γ of the focal loss for every row, read off its features."""

from typing import final

import torch
from torch import Tensor, nn

from calibrant.checks import check_at_least, check_positive
from calibrant.errors import InputError

__all__ = ["GammaNet"]


@final
class GammaNet(nn.Module):
    """A γ for each row from its features, by attention over as many prototypes as there are classes.

    Formula: γ = |x̃ w| / τ, x̃ = softmax(x A) Aᵀ

    The same A gives keys and values. τ only sets the scale of w, and with it how fast γ moves at a given learning rate.
    Nothing in the formula keeps γ small, so it is clipped; a γ at the limit has no slope and stays there until others
    move it.

    Args:
        n_features: d.
        n_classes: k, how many prototypes there are.
        temperature: τ.
        limit: The largest γ.
        seed: Of the first parameters.

    Example:
        >>> net = GammaNet(8, 3)
        >>> net.initialise(torch.randn(32, 8))
        >>> tuple(net(torch.randn(5, 8)).shape)
        (5,)
    """

    def __init__(
        self, n_features: int, n_classes: int, *, temperature: float = 0.01, limit: float = 20.0, seed: int = 0
    ) -> None:
        super().__init__()
        check_at_least(n_features, 1, "n_features")
        check_at_least(n_classes, 2, "n_classes")
        check_positive(temperature, "temperature")
        check_positive(limit, "limit")
        self.temperature, self.limit = temperature, limit
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
        attention = (features @ self.prototypes).softmax(dim=1)
        return (attention @ (self.prototypes.T @ self.weight)).abs() / self.temperature

    @torch.no_grad()
    def initialise(self, features: Tensor) -> None:
        """Scale w so that γ is 1 on average over these rows, (n, d): the focal loss of γ = 1, to begin with.

        Raises:
            InputError: If the features are not finite, or give no γ at all.
        """
        # Differs from the paper, which says that γ begins at 1; by its formula and the usual first parameters it begins
        # anywhere between 0.06 and 2.6.
        mean = float(self.unclipped(features).mean())
        if not 0 < mean < float("inf"):
            raise InputError(f"features must be finite for γ-Net to start from; its mean γ on them is {mean}.")
        self.weight.div_(mean)
