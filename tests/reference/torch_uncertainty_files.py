"""Single files of torch-uncertainty, loaded without its package.

``import torch_uncertainty`` needs torchvision and lightning, even for a metric that uses neither. Empty stand-ins for
the parent packages let the one file that is wanted be imported as its authors wrote it.
"""

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

__all__ = ["metric_file", "temperature_scaler_file"]

_PACKAGE = "torch_uncertainty"


def metric_file(name: str) -> ModuleType:
    """The module ``torch_uncertainty.metrics.classification.<name>``."""
    return _load(f"{_PACKAGE}.metrics.classification.{name}")


def temperature_scaler_file() -> ModuleType:
    """The module with torch-uncertainty's ``TemperatureScaler``."""
    base = _load(f"{_PACKAGE}.post_processing.abstract")
    sys.modules[f"{_PACKAGE}.post_processing"].PostProcessing = base.PostProcessing
    return _load(f"{_PACKAGE}.post_processing.calibration.temperature_scaler")


def _load(path: str) -> ModuleType:
    spec = importlib.util.find_spec(_PACKAGE) if _PACKAGE not in sys.modules else sys.modules[_PACKAGE].__spec__
    if spec is None or spec.submodule_search_locations is None:
        raise ModuleNotFoundError(f"{_PACKAGE} is not installed")
    root = Path(spec.submodule_search_locations[0])
    parts = path.split(".")
    for depth in range(1, len(parts)):
        parent = ".".join(parts[:depth])
        if parent not in sys.modules:
            stand_in = ModuleType(parent)
            stand_in.__path__ = [str(root.joinpath(*parts[1:depth]))]
            stand_in.__spec__ = spec if depth == 1 else None
            sys.modules[parent] = stand_in
    return importlib.import_module(path)
