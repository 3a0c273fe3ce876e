"""Features of held-out rows in the middle of training, as if nobody had looked."""

import torch
from torch import Tensor, nn

from calibrant.inference import evaluating, with_features

__all__ = ["features_in_evaluation", "features_in_training"]


def features_in_evaluation(model: nn.Module, inputs: Tensor) -> Tensor:
    """Features (n, d) without a gradient, in evaluation mode: running statistics neither move nor see these rows.

    Args:
        model: With ``features`` and ``head``; each of its modules comes back in the mode it was in.
        inputs: As the network takes them.

    Raises:
        InputError: If the network has no features.
    """
    network = with_features(model)
    with evaluating(model), torch.no_grad():
        return network.features(inputs)


@torch.no_grad()
def features_in_training(model: nn.Module, inputs: Tensor) -> Tensor:
    """Features (n, d) as the next training step would see them, with the batch's own statistics; none are kept.

    Before the first step a network's running statistics are anything but its batches', and a deep one in evaluation
    mode gives features of any size.

    Args:
        model: In training mode; comes back as it was.
        inputs: As the network takes them.
    """
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    try:
        return with_features(model).features(inputs)
    finally:
        for name, buffer in model.named_buffers():
            buffer.copy_(before[name])
