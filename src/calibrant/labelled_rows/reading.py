"""One pass over labelled rows: labels that are class numbers, and inputs where a network is."""

from collections.abc import Iterator

import torch
from torch import Tensor

from calibrant.checks import check_class_numbers
from calibrant.errors import InputError
from calibrant.labelled_rows.row_source import ReadBatch, RowSource

__all__ = ["moved", "read_checked"]


def read_checked(source: RowSource, batch_size: int | None) -> Iterator[ReadBatch]:
    """All rows once, a batch at a time, the labels as int64; of inputs nothing is asked.

    Args:
        source: Where they are read.
        batch_size: As of its ``read``.

    Raises:
        InputError: If there are no rows, or labels are not whole numbers from 0.
    """
    came = False
    for inputs, labels, positions in source.read(None, batch_size) if source.n_rows != 0 else ():
        came = True
        yield inputs, _class_numbers(labels, positions), positions
    if not came:
        raise InputError("data must have at least one row; got none.")


def moved(inputs: Tensor, device: torch.device) -> Tensor:
    """Inputs on the device, fit to take part in gradients; those that lie there already are not copied."""
    if inputs.is_inference() and not torch.is_inference_mode_enabled():
        inputs = inputs.clone()  # those made under inference_mode take no part in gradients
    if device.type != "cuda":  # only to there is it safe to go on before the copy has arrived
        return inputs.to(device)
    # From pinned memory the copy runs beside the kernels of the batch before.
    return (inputs.pin_memory() if inputs.device.type == "cpu" else inputs).to(device, non_blocking=True)


def _class_numbers(labels: Tensor, positions: Tensor) -> Tensor:
    labels = check_class_numbers(labels)
    below = (labels < 0).nonzero()
    if len(below):
        raise InputError(
            f"labels must be at least 0; got {int(labels[below[0]])} at row {int(positions[below[0]])}. "
            "Remove rows without a label."
        )
    return labels
