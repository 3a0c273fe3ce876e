"""Logits of many rows by a network in evaluation mode, which then comes back as it was."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from calibrant.inference import evaluating, with_features
from calibrant.training.data import StoredExamples

__all__ = ["features_of", "logits_of", "predict"]

_ROWS = 2048  # in a batch


def predict(model: nn.Module, inputs: Tensor, *, batch_size: int = 1024) -> Tensor:
    """Logits of all inputs, (n, k), on the inputs' device.

    Args:
        model: Is put into evaluation mode; then each module is back in its own.
        inputs: As the network takes them, (n, ...).
        batch_size: Rows at a time; memory grows with it.
    """
    with _looking(model):
        return torch.cat([model(batch) for batch in inputs.split(batch_size)])


def logits_of(model: nn.Module, examples: StoredExamples) -> Tensor:
    """Logits of stored rows, unaugmented, in float32 whatever the training multiplies in.

    A logit of 16 in bfloat16 is off by up to 0.03, which is no way to judge a confidence.

    Args:
        model: Is put into evaluation mode; then each module is back in its own.
        examples: On the network's device.
    """
    with _looking(model), _without_tf32():
        rows = torch.arange(len(examples), device=examples.labels.device).split(_ROWS)
        return torch.cat([model(examples.inputs.plain(some)) for some in rows])


def features_of(model: nn.Module, examples: StoredExamples) -> Tensor:
    """What the last layer sees of stored rows, (n, d), unaugmented, in float32 as :func:`logits_of`.

    Args:
        model: With ``features``; is put into evaluation mode; then each module is back in its own.
        examples: On the network's device.

    Raises:
        InputError: If the network has no features.
    """
    network = with_features(model)
    with _looking(model), _without_tf32():
        rows = torch.arange(len(examples), device=examples.labels.device).split(_ROWS)
        return torch.cat([network.features(examples.inputs.plain(some)) for some in rows])


@contextmanager
def _without_tf32() -> Iterator[None]:
    """On a GPU torch multiplies float32 in convolutions with ten bits, unless told not to."""
    flags = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = flags


@contextmanager
def _looking(model: nn.Module) -> Iterator[None]:
    # Not compiled again for evaluation: the time that takes is not won back.
    with evaluating(model), torch.no_grad(), torch.compiler.set_stance("force_eager"):
        yield
