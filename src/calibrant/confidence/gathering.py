"""What ConfidNet learns from, gathered once: features, the true-class probability, and which answers are right."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from calibrant.checks import check_labels
from calibrant.confidence.labelled_batches import labelled_batches
from calibrant.confidence.network_features import check_network, features_of
from calibrant.errors import InputError
from calibrant.inference import SampleSource, device_of, frozen, with_features
from calibrant.numerics.neighbours import as_features
from calibrant.predictions import Predictions

__all__ = ["Gathered", "gathered_from_model", "gathered_from_predictions"]

_TRIED = 8  # rows on which the network is looked at twice


class Gathered(NamedTuple):
    """All that is kept of the rows; logits are not, which may be a thousand a row."""

    features: Tensor
    """(n, d), in the type the network gave."""

    target: Tensor
    """The true-class probability, (n,), float32 or float64."""

    correct: Tensor
    """(n,), bool."""

    softmax_log_odds: Tensor
    """Of the network's own confidence, (n,)."""


def gathered_from_predictions(predictions: Predictions, features: object) -> Gathered:
    """From what is there already: predictions and the features they were made from, on the device of the features.

    Raises:
        InputError: If the features are not a finite row for each prediction.
    """
    rows = as_features(features, rows=len(predictions))
    # Block by block: a row of probabilities is as long as the classes are many.
    target = torch.cat([_target(block) for block in predictions.blocks()])
    known = (target, predictions.correct, predictions.top.log_odds)
    return Gathered(rows, *(each.to(rows.device) for each in known))


def gathered_from_model(model: nn.Module, rows: SampleSource, *, batch_size: int) -> Gathered:
    """From one pass of the network over labelled inputs, in evaluation mode and without gradients.

    Args:
        model: With ``features`` and ``head``; it comes back in the modes it was in.
        rows: Where inputs and labels are read.
        batch_size: Rows at a time.

    Raises:
        InputError: If the network shows no features, or they are not finite; or labels are out of range.
    """
    network = with_features(model)
    parts: list[Gathered] = []
    with frozen(model), torch.no_grad():
        for inputs, labels, positions in labelled_batches(rows, device=device_of(model), batch_size=batch_size):
            try:
                if not parts:
                    check_network(model, inputs[:_TRIED])
                features = as_features(features_of(model, inputs))
                logits = network.head(features)
                predictions = Predictions.from_logits(logits, check_labels(labels, logits.shape[1]))
            except InputError as error:
                first, last = int(positions[0]), int(positions[-1])
                raise InputError(f"rows {first:,} to {last:,} of the data: {error}") from error
            parts.append(gathered_from_predictions(predictions, features))
    return Gathered(*(torch.cat(column) for column in zip(*parts, strict=True)))


def _target(predictions: Predictions) -> Tensor:
    logits = predictions.logits if predictions.logits.dtype == torch.float64 else predictions.logits.float()
    return logits.softmax(dim=1).gather(1, predictions.labels[:, None])[:, 0]
