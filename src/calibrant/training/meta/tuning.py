"""A loss that is learned, beside the network it trains: where it begins, how it moves, what is written down of it."""

import warnings
from collections.abc import Iterator, Sequence
from typing import final

import torch
from torch import Tensor, nn

from calibrant.errors import CalibrantWarning
from calibrant.losses import MetaLoss
from calibrant.networks.features import with_features
from calibrant.training.data import DeviceData, StoredExamples
from calibrant.training.meta.forward import MetaForward
from calibrant.training.meta.held_out import features_in_training
from calibrant.training.meta.regulariser import MetaRegulariser
from calibrant.training.precision import Multiplying
from calibrant.training.predict import features_of
from calibrant.training.recipe import Recipe
from calibrant.training.record import EpochRecord

__all__ = ["LossTuning"]


@final
class LossTuning:
    """The learned loss of one network in training.

    Args:
        loss: On the network's device.
        model: In training mode.
        data: With rows to tune on.
        recipe: Of the training.
        first: The training rows that the loss is settled on, (n,).

    Raises:
        InputError: If the network shows no features.
    """

    def __init__(self, loss: MetaLoss, model: nn.Module, data: DeviceData, recipe: Recipe, first: Tensor) -> None:
        assert data.meta is not None, "check_meta sees to it"
        self._loss, self._model = loss, model
        self._regulariser = MetaRegulariser(loss, with_features(model).head, seed=recipe.seed)
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            self._regulariser.settle(features_in_training(model, data.training.inputs.plain(first)))
        self.forward = MetaForward(model, self._regulariser, data.meta, Multiplying(recipe, data.device.type))

    def told(self, held_out: StoredExamples, before: Sequence[EpochRecord]) -> dict[str, float]:
        """What the loss has come to, as seen on rows that had no part in it.

        Args:
            held_out: Those rows.
            before: Earlier epochs.

        Warns:
            CalibrantWarning: If γ is above its limit, for the first time.
        """
        told = self._loss.told(features_of(self._model, held_out))
        if told.get("gamma_clipped") and not any(record.learned.get("gamma_clipped") for record in before):
            warnings.warn(
                f"γ is above its limit for {told['gamma_clipped']:.1%} of held-out rows after epoch {len(before) + 1}, "
                "and is cut off there. Lower the learning_rate of the loss, or raise its limit.",
                CalibrantWarning,
                stacklevel=2,
            )
        return told

    def optimiser_state(self) -> Iterator[tuple[str, Tensor]]:
        """What the loss's own optimiser remembers, by name."""
        for name, each in self._loss.named_parameters():
            for what, tensor in self._regulariser.optimiser.state[each].items():
                yield f"{what}.{name}", tensor
