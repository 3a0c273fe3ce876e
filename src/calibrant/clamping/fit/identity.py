"""What decides the result of a fit, so that one that was stopped is gone on with only where it is the same."""

import hashlib
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from calibrant.inference import CalibrationSamples, network_digest

if TYPE_CHECKING:
    from calibrant.clamping.neural_clamping import NeuralClamping

__all__ = ["fit_identity", "rows_digest"]


def fit_identity(method: "NeuralClamping", model: nn.Module, rows: CalibrationSamples) -> dict[str, Any]:
    """The options, and fingerprints of the network and of all rows, which takes a pass over their inputs.

    Without the batch size: after running out of memory one goes on with smaller ones.
    """
    settings = {name: value for name, value in method.settings().items() if name != "batch_size"}
    return {"settings": settings, "network": network_digest(model), "rows": rows_digest(rows)}


def rows_digest(rows: CalibrationSamples) -> str:
    """A fingerprint of all inputs and labels, in their order."""
    digest = hashlib.sha256(f"{len(rows)} {rows.input_shape} {rows.input_dtype}".encode())
    for values in chain([rows.labels], (inputs for inputs, _ in rows.batches(device="cpu"))):
        digest.update(values.contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]
