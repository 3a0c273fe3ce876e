"""One file a peer: the calibrators it fits as we do, and the setting in which it does."""

from types import ModuleType

from . import dirichletcal, netcal, probmetrics, uncertainty_calibration

__all__ = ["PEERS"]

PEERS: tuple[ModuleType, ...] = (netcal, probmetrics, uncertainty_calibration, dirichletcal)
