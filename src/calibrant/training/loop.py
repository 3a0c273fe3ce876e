"""Training of a small network on data that fits in memory."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

__all__ = ["predict", "train"]


def train(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    epochs: int,
    batch_size: int = 32,
    learning_rate: float = 0.05,
    seed: int = 0,
    progress: Callable[[], None] = lambda: None,
) -> None:
    """Minimise the cross-entropy by momentum SGD with a cosine schedule; the model is changed in place.

    Args:
        model: Maps images to logits.
        images: Shape (n, ...).
        labels: Shape (n,).
        epochs: Passes over the data.
        batch_size: Images a step.
        learning_rate: At the start.
        seed: Of the order of the images.
        progress: Called after every epoch.
    """
    order = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
    loss = nn.CrossEntropyLoss()
    model.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(images), generator=order).split(batch_size):
            optimiser.zero_grad()
            loss(model(images[rows]), labels[rows]).backward()
            optimiser.step()
        schedule.step()
        progress()


def predict(model: nn.Module, images: Tensor, *, batch_size: int = 1024) -> Tensor:
    """Logits of all images, with the model in evaluation mode, which is then put back as it was."""
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            return torch.cat([model(batch) for batch in images.split(batch_size)])
    finally:
        model.train(was_training)
