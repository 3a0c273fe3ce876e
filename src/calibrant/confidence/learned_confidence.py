"""A classifier with the confidence that was learned from its features, as one module."""

from typing import final

import torch
from torch import Tensor, nn

from calibrant.confidence.confidence_head import ConfidenceHead
from calibrant.confidence.labelled_batches import labelled_batches, rows_as_given
from calibrant.confidence.network_features import features_of, running_on
from calibrant.errors import InputError
from calibrant.inference import device_of, frozen, with_features
from calibrant.numerics.fast import sigmoid
from calibrant.predictions import Predictions
from calibrant.top_label import TopLabel

__all__ = ["LearnedConfidence"]


@final
class LearnedConfidence(nn.Module):
    """Inputs in, the classifier's own logits and the log-odds that its answer is right out.

    The classifier is the very module given, not copied, and stays in its mode. In training mode dropout and batch
    statistics make the answers another model's: call ``eval()`` before use. :meth:`top_label` does so by itself.

    Args:
        model: The classifier, with ``features`` and ``head``.
        head: From features to log-odds.
        encoder: A fine-tuned copy whose features the head looks at; None: the classifier's.

    Raises:
        InputError: If the classifier shows no features.

    Example:
        >>> from calibrant.models import build_model
        >>> classifier = build_model("digits_cnn", n_classes=10, in_channels=1, image_size=8).eval()
        >>> learned = LearnedConfidence(classifier, ConfidenceHead(110, units=8))
        >>> logits, log_odds = learned(torch.zeros(5, 1, 8, 8))
        >>> tuple(logits.shape), tuple(log_odds.shape)
        ((5, 10), (5,))
    """

    def __init__(self, model: nn.Module, head: ConfidenceHead, *, encoder: nn.Module | None = None) -> None:
        super().__init__()
        with_features(model)
        if not isinstance(head, ConfidenceHead):
            raise InputError(f"head must be a ConfidenceHead, as ConfidNet fits it; got {type(head).__name__}.")
        if encoder is not None:
            with_features(encoder)
        self.model, self.head, self.encoder = model, head, encoder
        self.training = model.training

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Logits, (n, k), and log-odds, (n,)."""
        if self.encoder is not None:
            return self.model(inputs), self.head(features_of(self.encoder, inputs))
        features = features_of(self.model, inputs)
        return with_features(self.model).head(features), self.head(features)

    @torch.no_grad()
    def confidence(self, inputs: Tensor) -> Tensor:
        """Between 0 and 1, (n, ...) -> (n,), float64."""
        with running_on(inputs):
            return sigmoid(self(inputs)[1].double())

    def top_label(self, data: object, *, batch_size: int = 512) -> TopLabel:
        """The classifier's answers to labelled inputs, with the learned confidence, in evaluation mode.

        Args:
            data: ``(inputs, labels)``, a ``Dataset`` or a ``DataLoader``.
            batch_size: Rows at a time; a loader has its own.

        Raises:
            InputError: If the data are not labelled inputs of this classifier.
        """
        log_odds, correct = [], []
        rows, device = rows_as_given(data), device_of(self.model)
        with frozen(self), torch.no_grad():
            for inputs, labels, _ in labelled_batches(rows, device=device, batch_size=batch_size):
                with running_on(inputs):
                    logits, sure = self(inputs)
                log_odds.append(sure.double())
                correct.append(Predictions.from_logits(logits, labels).correct)
        joined = torch.cat(log_odds)
        return TopLabel(sigmoid(joined), torch.cat(correct), joined)
