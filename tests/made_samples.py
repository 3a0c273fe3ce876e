"""Samples drawn at random whose best temperature is known."""

import torch

from calibrant.predictions import Predictions

__all__ = ["batch", "overconfident"]


def batch(n=60, k=4, *, scale=2.0, truth=1.5, seed=0):
    """Logits and labels whose best temperature is ``truth``."""
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(n, k, generator=generator, dtype=torch.float64)
    labels = torch.multinomial((logits / truth).softmax(1), 1, generator=generator)[:, 0]
    return logits, labels


def overconfident(n, k, *, seed=0, dtype=torch.float64, sharpness=2.0):
    """Predictions whose best temperature is ``sharpness``."""
    logits, labels = batch(n, k, truth=1.0, seed=seed)
    return Predictions.from_logits((sharpness * logits).to(dtype), labels)
