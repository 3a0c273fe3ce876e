"""A forward run with a loss that is learned: first its parameters move, then the network's loss is theirs."""

from typing import final

from torch import Tensor, nn

from calibrant.inference import with_features
from calibrant.training.data import StoredExamples
from calibrant.training.meta.held_out import features_in_evaluation
from calibrant.training.meta.regulariser import MetaRegulariser
from calibrant.training.precision import Multiplying

__all__ = ["MetaForward"]


@final
class MetaForward:
    """Logits and loss of a training batch.

    Args:
        model: With ``features`` and ``head``.
        regulariser: Of its head.
        held_out: The rows that judge, on the network's device.
        multiplying: In what precision the network runs.
        highest_rate: Of the network.
    """

    def __init__(
        self,
        model: nn.Module,
        regulariser: MetaRegulariser,
        held_out: StoredExamples,
        multiplying: Multiplying,
        highest_rate: float,
    ) -> None:
        self._highest_rate = highest_rate
        self._model, self._network = model, with_features(model)
        self._regulariser, self._held_out, self._multiplying = regulariser, held_out, multiplying

    def __call__(self, inputs: Tensor, labels: Tensor, judges: Tensor, rate: Tensor) -> tuple[Tensor, Tensor]:
        """Move the loss's parameters, then say the network's logits and loss.

        Args:
            inputs: Of the training batch.
            labels: Shape (n,).
            judges: Which held-out rows judge, (m,).
            rate: Of the step that follows.
        """
        with self._multiplying():
            features = self._network.features(inputs)
            logits = self._network.head(features).float()
            seen = features_in_evaluation(self._model, self._held_out.inputs.plain(judges))
        held_out_labels = self._held_out.labels.index_select(0, judges)
        share = rate / self._highest_rate
        self._regulariser.learn(features, labels, seen, held_out_labels, rate=rate, share=share)
        return logits, self._regulariser.loss(features, logits, labels)
