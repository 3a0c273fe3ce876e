"""One file a peer: its name, the questions it answers as we do, and the cases it gets wrong."""

from types import ModuleType

from . import (
    netcal,
    probmetrics,
    pycalib,
    relplot,
    scikit_learn,
    torch_uncertainty,
    torchmetrics,
    uncertainty_calibration,
)

__all__ = ["PEERS"]

PEERS: tuple[ModuleType, ...] = (
    scikit_learn,
    torchmetrics,
    netcal,
    uncertainty_calibration,
    relplot,
    probmetrics,
    torch_uncertainty,
    pycalib,
)
