"""What decides the result of a fit, so that one that was stopped is gone on with only where it is the same."""

import hashlib
from typing import TYPE_CHECKING, Any

from torch import nn

from calibrant.clamping.clamped.clamped_file import network_digest
from calibrant.clamping.rows.calibration_rows import CalibrationRows

if TYPE_CHECKING:
    from calibrant.clamping.neural_clamping import NeuralClamping

__all__ = ["fit_identity"]


def fit_identity(method: "NeuralClamping", model: nn.Module, rows: CalibrationRows) -> dict[str, Any]:
    """The options, and fingerprints of the network and of all rows, which takes a pass over their inputs.

    Without the batch size: after running out of memory one goes on with smaller ones.
    """
    digest = hashlib.sha256(rows.labels.numpy().tobytes())
    for inputs, _ in rows.batches(device="cpu"):
        digest.update(inputs.contiguous().float().numpy().tobytes())
    settings = {name: value for name, value in method.settings().items() if name != "batch_size"}
    return {"settings": settings, "network": network_digest(model), "rows": digest.hexdigest()}
