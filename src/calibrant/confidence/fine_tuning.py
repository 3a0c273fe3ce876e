"""A copy of the classifier's encoder, which may change to suit the confidence while the classifier stays."""

import copy
from collections.abc import Iterator

from torch import Tensor, nn

from calibrant.confidence.confidence_head import ConfidenceHead
from calibrant.confidence.network_features import features_of
from calibrant.confidence.training_stage import Answers
from calibrant.errors import InputError, in_a_line
from calibrant.inference import SampleSource, device_of, to_device

__all__ = ["answers_of_inputs", "check_numbered", "encoder_copy"]


def check_numbered(rows: SampleSource) -> None:
    """Rows that are read several times, in another order each time, are known by their numbers.

    Raises:
        InputError: If they come as they come, from a loader.
    """
    if rows.n_samples is None:
        raise InputError(
            "fine-tuning reads the rows several times, and needs them by number; got a DataLoader. Pass its data set, "
            "or (inputs, labels)."
        )


def encoder_copy(model: nn.Module, *, trained: bool) -> nn.Module:
    """A copy of the network without its last layer, in evaluation mode, so that batch statistics and dropout rest.

    Args:
        model: With ``features`` and ``head``; it is left alone.
        trained: Whether the copy's weights take gradients.

    Raises:
        InputError: If it cannot be copied.
    """
    try:
        # What torch.compile made holds the network itself under this name.
        encoder = copy.deepcopy(getattr(model, "_orig_mod", model))
    except Exception as error:
        raise InputError(
            f"a network that is fine-tuned must let itself be copied; copying raised {in_a_line(error)}. Give "
            "fine_tune_epochs=0, or a network without what cannot be copied."
        ) from error
    encoder.head = nn.Identity()
    for module in encoder.modules():
        module.training = False
    for weights in encoder.parameters():
        weights.requires_grad_(trained and weights.is_floating_point())
    return encoder


def answers_of_inputs(encoder: nn.Module, head: ConfidenceHead, rows: SampleSource, *, batch_size: int) -> Answers:
    """Log-odds of rows by their numbers, whose inputs go through the encoder each time."""

    def answers(chosen: Tensor) -> Iterator[Tensor]:
        device = device_of(head)
        for inputs, _, _ in rows.read(chosen.cpu(), batch_size):
            yield head(features_of(encoder, to_device(inputs, device)))

    return answers
