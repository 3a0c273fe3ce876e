"""The learning rate of each step."""

import torch
from torch import Tensor

from calibrant.training.recipe import Recipe

__all__ = ["learning_rates"]


def learning_rates(recipe: Recipe, epoch: int, steps: int) -> Tensor:
    """The rate at each step of an epoch, (steps,), float32.

    Args:
        recipe: Gives rate, schedule and warm-up.
        epoch: Counted from 0.
        steps: In each epoch.

    Example:
        >>> rates = learning_rates(Recipe(epochs=2, learning_rate=1.0), 1, 4)
        >>> [round(rate, 2) for rate in rates.tolist()]
        [0.5, 0.31, 0.15, 0.04]
    """
    at = epoch + torch.arange(steps, dtype=torch.float64) / steps  # in epochs
    if recipe.schedule == "cosine":
        past_warmup = (at - recipe.warmup).clamp(min=0) / max(recipe.epochs - recipe.warmup, 1)
        share = 0.5 * (1 + torch.cos(torch.pi * past_warmup))
    elif recipe.schedule == "steps":
        share = torch.full_like(at, recipe.decay ** sum(epoch >= milestone for milestone in recipe.milestones))
    else:
        share = torch.ones_like(at)
    if recipe.warmup:
        # The first step is not at 0, which would do nothing.
        share = share * ((at + 1 / steps) / recipe.warmup).clamp(max=1)
    return (recipe.learning_rate * share).float()
