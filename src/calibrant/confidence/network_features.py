"""Features, true-class probabilities and correctness of labelled samples, from a frozen network."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from calibrant.checks import check_labels
from calibrant.errors import CalibrantError, InputError, in_a_line
from calibrant.inference import (
    HOW_TO_WRAP,
    SampleSource,
    StreamedSamples,
    check_batch_size,
    device_of,
    frozen,
    open_samples,
    read_checked,
    to_device,
    with_features,
)
from calibrant.numerics.neighbours import as_features
from calibrant.predictions import Predictions

__all__ = [
    "Gathered",
    "check_network",
    "features_of",
    "gathered_from_model",
    "gathered_from_predictions",
    "labelled_batches",
    "running_on",
    "sample_source",
]


def sample_source(data: object) -> SampleSource:
    """Open ``(inputs, labels)`` or a map-style ``Dataset``, read by number, or a ``DataLoader``, read in its order.

    Raises:
        InputError: If the data are something else.
    """
    return StreamedSamples(data) if isinstance(data, DataLoader) else open_samples(data)


def labelled_batches(
    source: SampleSource, *, device: torch.device, batch_size: int
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Read the samples once: inputs (m, ...) and labels (m,) on the device, and positions (m,) on the CPU.

    Args:
        source: Samples to read.
        device: Device of inputs and labels.
        batch_size: Samples at a time; a loader has its own.

    Raises:
        InputError: If there are no samples, or one cannot be read or has no class number.

    Example:
        >>> source = sample_source((torch.zeros(5, 3), [0, 1, 1, 0, 2]))
        >>> [labels.tolist() for _, labels, _ in labelled_batches(source, device=torch.device("cpu"), batch_size=3)]
        [[0, 1, 1], [0, 2]]
    """
    size = check_batch_size(batch_size)
    for inputs, labels, positions in read_checked(source, None if source.n_samples is None else size):
        yield to_device(inputs, device), labels.to(device), positions


@contextmanager
def running_on(inputs: Tensor) -> Iterator[None]:
    """Turn errors of a network that runs on these inputs within the block into one that gives their shape.

    Raises:
        InputError: If the network fails.
    """
    try:
        yield
    except (CalibrantError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # a network may raise anything
        raise InputError(
            f"the network must take inputs of shape (n, {', '.join(map(str, inputs.shape[1:]))}) and type "
            f"{inputs.dtype}; it raised {in_a_line(error)}. Prepare the inputs as in training, or wrap it."
        ) from error


def features_of(model: nn.Module, inputs: Tensor) -> Tensor:
    """Return the activations before the last layer, (n, d).

    Raises:
        InputError: If the network gives something else.
    """
    features: object = with_features(model).features(inputs)
    if not isinstance(features, Tensor) or features.ndim != 2 or not features.is_floating_point():
        got = f"shape {tuple(features.shape)}" if isinstance(features, Tensor) else type(features).__name__
        raise InputError(f"features must be real numbers of shape (n, d), a row an input; got {got}. {HOW_TO_WRAP}")
    if len(features) != len(inputs):
        raise InputError(
            f"features must have a row for each of {len(inputs)} inputs; got {len(features)}. {HOW_TO_WRAP}"
        )
    return features


def check_network(model: nn.Module, inputs: Tensor) -> None:
    """Check on some inputs that the logits of a network are ``head(features(x))``.

    Raises:
        InputError: If they are not, the network cannot take the inputs, or the features are not finite.
    """
    with running_on(inputs):
        features = as_features(features_of(model, inputs))
        through, whole = with_features(model).head(features), model(inputs)
    if not isinstance(whole, Tensor) or whole.ndim != 2 or whole.shape[1] < 2:
        got = f"shape {tuple(whole.shape)}" if isinstance(whole, Tensor) else type(whole).__name__
        raise InputError(f"a network must return logits of shape (n, k), at least two classes; got {got}.")
    near = torch.finfo(whole.dtype).eps ** 0.5 * (1 + float(whole.abs().max()))
    if through.shape != whole.shape or not (through - whole).abs().max() <= near:
        raise InputError(f"the logits must be head(features(x)); {type(model).__name__} gives others. {HOW_TO_WRAP}")


_TRIED = 8  # samples on which the network is checked


class Gathered(NamedTuple):
    """Numbers kept per sample; logits are not kept, as there may be a thousand classes."""

    features: Tensor
    """Features, (n, d), in the dtype of the network."""

    target: Tensor
    """True-class probability, (n,), float32 or float64."""

    correct: Tensor
    """Whether each prediction is correct, (n,), bool."""

    softmax_log_odds: Tensor
    """Log-odds of the network's own confidence, (n,)."""


def gathered_from_predictions(predictions: Predictions, features: object) -> Gathered:
    """Gather the numbers from predictions and their features, on the device of the features.

    Raises:
        InputError: If the features are not finite, or not as many as the predictions.
    """
    checked = as_features(features, rows=len(predictions))
    # Block by block: probabilities of all classes at once may not fit into memory.
    target = torch.cat([_target(block) for block in predictions.blocks()])
    known = (target, predictions.correct, predictions.top.log_odds)
    return Gathered(checked, *(part.to(checked.device) for part in known))


def gathered_from_model(model: nn.Module, source: SampleSource, *, batch_size: int) -> Gathered:
    """Gather the numbers by one pass of the network over labelled inputs, in evaluation mode and without gradients.

    Args:
        model: Network with ``features`` and ``head``; its modes are restored.
        source: Labelled samples.
        batch_size: Samples at a time.

    Raises:
        InputError: If the network exposes no features, they are not finite, or labels are out of range.
    """
    network = with_features(model)
    parts: list[Gathered] = []
    with frozen(model), torch.no_grad():
        for inputs, labels, positions in labelled_batches(source, device=device_of(model), batch_size=batch_size):
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
