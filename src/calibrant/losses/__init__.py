"""Losses to train with: one file each, drop-in for ``nn.CrossEntropyLoss``."""

from calibrant.losses.base import Loss, PenalisedLoss, Reduction, RowLoss, loss_settings
from calibrant.losses.cross_entropy import CrossEntropyLoss

__all__ = ["CrossEntropyLoss", "Loss", "PenalisedLoss", "Reduction", "RowLoss", "loss_settings"]
