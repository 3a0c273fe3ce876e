"""A small network with saturated logits, as the tests of Neural Clamping have it."""

import torch
from torch import nn

__all__ = ["tanh_network"]


def tanh_network(*, dtype=torch.float64):
    """Six inputs, four classes; too sure of them."""
    torch.manual_seed(0)
    made = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4)).to(dtype).eval()
    made[2].weight.data.mul_(8)
    return made
