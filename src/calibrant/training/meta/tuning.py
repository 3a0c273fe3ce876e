"""A loss that is learned, beside the network it trains: where it begins, how it moves, what is written down of it."""

from collections.abc import Iterator
from typing import final

import torch
from torch import Tensor, nn

from calibrant.inference import with_features
from calibrant.losses import MetaLoss
from calibrant.training.data import DeviceData, StoredExamples
from calibrant.training.meta.forward import MetaForward
from calibrant.training.meta.held_out import features_in_training
from calibrant.training.meta.regulariser import MetaRegulariser
from calibrant.training.precision import Multiplying
from calibrant.training.predict import features_of
from calibrant.training.recipe import Recipe

__all__ = ["LossTuning"]


@final
class LossTuning:
    """The learned loss of one network in training.

    Args:
        loss: On the network's device.
        model: In training mode.
        data: With rows to tune on.
        recipe: Of the training.
        first: The training rows that the loss is initialised on, (n,).
        name: What warnings call it.

    Raises:
        InputError: If the network shows no features.
    """

    def __init__(
        self, loss: MetaLoss, model: nn.Module, data: DeviceData, recipe: Recipe, first: Tensor, *, name: str | None
    ) -> None:
        assert data.meta is not None, "check_meta sees to it"
        self._model = model
        self._regulariser = MetaRegulariser(loss, with_features(model).head, seed=recipe.seed, name=name)
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            self._regulariser.initialise(features_in_training(model, data.training.inputs.plain(first)))
        self.forward = MetaForward(
            model, self._regulariser, data.meta, Multiplying(recipe, data.device.type), recipe.learning_rate
        )

    def describe(self, held_out: StoredExamples) -> dict[str, float]:
        """What the loss has come to, as seen on rows that had no part in it.

        Warns:
            CalibrantWarning: As :meth:`MetaRegulariser.describe`.
        """
        return self._regulariser.describe(features_of(self._model, held_out))

    def optimiser_state(self) -> Iterator[tuple[str, Tensor]]:
        """What the loss's own optimiser remembers, by name."""
        return self._regulariser.optimiser_state()
