"""What a loader makes of some rows: inputs and labels, or a sentence that says why not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from torch import Tensor
from torch.utils.data import default_collate

from calibrant.checks import as_tensor
from calibrant.errors import InputError

__all__ = ["collated", "pair_in"]


@final
@dataclass(frozen=True)
class _Refusal:
    """Why rows cannot be a batch. An error raised by a worker would be buried in its traceback, and hold up the end."""

    message: str


def collated(items: list[Any]) -> Any:
    """Rows (input, label) as one batch, or why they cannot be one, which ``pair_in`` then raises."""
    try:
        return default_collate(items)
    except (RuntimeError, TypeError, KeyError) as error:
        # What torch says of ragged rows depends on whether a worker collates, so the shapes are told.
        inputs = [item[0] for item in items if isinstance(item, Sequence) and item]
        shapes = list(dict.fromkeys(tuple(one.shape) for one in inputs if isinstance(one, Tensor)))
        got = f"shapes {shapes[0]} and {shapes[1]}" if len(shapes) > 1 else str(error).rstrip(".")
        return _Refusal(
            f"the rows of a data set must be pairs (input, label), the inputs tensors of one shape; got {got}. "
            "Give it a transform that makes such tensors, or a loader with a collate_fn."
        )


def pair_in(batch: object) -> tuple[Tensor, Tensor]:
    """Inputs (m, ...), and labels of m rows on the CPU.

    Raises:
        InputError: If that is not what the batch is.
    """
    if isinstance(batch, _Refusal):
        raise InputError(batch.message)
    if isinstance(batch, Sequence) and len(batch) == 2 and isinstance(batch[0], Tensor | np.ndarray):
        inputs, labels = as_tensor(batch[0], "inputs"), as_tensor(batch[1], "labels").cpu()
        if inputs.ndim and inputs.shape[:1] == labels.shape[:1]:
            return inputs, labels
        got = f"shapes {tuple(inputs.shape)} and {tuple(labels.shape)}"
    elif isinstance(batch, Mapping):
        got = f"a {type(batch).__name__} of {', '.join(map(str, batch))}"
    else:
        inside = f" of {', '.join(type(one).__name__ for one in batch)}" if isinstance(batch, tuple | list) else ""
        got = f"a {type(batch).__name__}{inside}"
    raise InputError(
        f"a batch must be a pair (inputs, labels) of as many rows each, shapes (m, ...) and (m,); got {got}. "
        "Give the loader a collate_fn that returns the pair."
    )
