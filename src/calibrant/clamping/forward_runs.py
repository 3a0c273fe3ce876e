"""A network's answers for rows that are moved by δ, to be judged: one forward run for each δ."""

import copy
from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn

from calibrant.clamping.clamped.clamped_model import ClampedModel
from calibrant.clamping.learning.passes import Passes
from calibrant.clamping.network.input_preparation import InputPreparation
from calibrant.clamping.network.input_space import InputSpace
from calibrant.clamping.network.probe import check_network
from calibrant.errors import InputError
from calibrant.inference import CalibrationSamples, frozen
from calibrant.predictions import Predictions

__all__ = ["ForwardRuns"]


@final
class ForwardRuns:
    """Runs a network over the same rows for one δ after another.

    Logits come to the CPU, in full precision, and a head is put behind them there: however many heads are judged at one
    δ, the network runs once. Those of δ = 0 are kept. A few rows are tried at the beginning, so that a test set that
    does not fit the network is found before a long fit and not after it.

    Args:
        model: From inputs to logits; comes back as it was.
        data: As ``NeuralClamping.fit`` takes them.
        space: What the inputs are; if it says so, x + δ is clipped, but not where δ is 0.
        batch_size: Rows at a time; None leaves it to the data.
        class_names: One a class, for the predictions.

    Raises:
        InputError: If the network does not take the inputs or gives no logits for the labels, or inputs lie outside the
            space.

    Example:
        >>> runs = ForwardRuns(nn.Linear(2, 3), (torch.rand(5, 2), [0, 1, 2, 1, 0]))
        >>> runs.at(torch.zeros(2)).logits.shape
        torch.Size([5, 3])
    """

    def __init__(
        self,
        model: nn.Module,
        data: object,
        *,
        space: InputSpace | None = None,
        batch_size: int | None = None,
        class_names: Sequence[str] | None = None,
    ) -> None:
        self.samples = CalibrationSamples.of(data, batch_size=batch_size)
        self._model, self._space, self._class_names = model, space, class_names
        self._still: Predictions | None = None
        with frozen(model):
            check_network(model, self.samples, space)

    def __len__(self) -> int:
        return len(self.samples)

    def at(self, delta: Tensor) -> Predictions:
        """The network's own logits at x + δ, before any head, with the labels.

        Raises:
            InputError: If δ is not of the inputs' shape, or a logit is not finite.
        """
        if tuple(delta.shape) != self.samples.input_shape:
            raise InputError(
                f"inputs must have the shape of δ, {tuple(delta.shape)}; got {self.samples.input_shape}. Prepare both "
                "sets of rows in the same way."
            )
        if bool(delta.any()):
            return self._run(delta, self._space)
        if self._still is None:
            self._still = self._run(delta, None)  # as a clamped model whose δ is 0, which clips nothing
        return self._still

    def at_zero(self) -> Predictions:
        """The network's own logits.

        Raises:
            InputError: If one is not finite.
        """
        return self.at(torch.zeros(self.samples.input_shape))

    def behind(self, clamped: ClampedModel) -> Predictions:
        """The calibrated logits of a clamped model around this network.

        Raises:
            InputError: As :meth:`at`.
        """
        return copy.deepcopy(clamped.head).cpu().transform(self.at(clamped.delta))

    def _run(self, delta: Tensor, space: InputSpace | None) -> Predictions:
        with frozen(self._model), torch.no_grad():
            passes = Passes(self._model, self.samples, preparation=InputPreparation(space))
            logits = passes.precise_logits(delta.to(passes.device)).cpu()
        return Predictions.from_logits(logits, self.samples.labels, class_names=self._class_names)
