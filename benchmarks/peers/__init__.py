"""The rivals: what each peer can compute, by name of peer and of task.

Runs in ``.venv-reference`` (see ``tests/reference/requirements.txt``). A task is named ``<metric> from <input>``, with
the metric's name in our catalogue and the input ``logits``, ``probs`` or ``top`` (confidence and correctness); it
takes :class:`Rows` and returns the number. A fit is named likewise, by the calibrator's name; it takes rows and returns
the function that gives other rows' probabilities. Peers that do not import are in :data:`UNAVAILABLE` with the reason,
and a warning says so: a benchmark without a rival must not look like a benchmark won.
"""

import importlib
import warnings
from collections.abc import Callable
from typing import TypeVar

from .rows import Fitted, Rows

__all__ = ["FITS", "PEERS", "UNAVAILABLE", "Fitted", "Rows", "rival_fits", "rivals"]

_FILES = {
    "netcal": "netcal",
    "torchmetrics": "torchmetrics",
    "scikit-learn": "scikit_learn",
    "uncertainty-calibration": "uncertainty_calibration",
    "relplot": "relplot",
    "probmetrics": "probmetrics",
    "pycalib": "pycalib",
    "torch-uncertainty": "torch_uncertainty",
    "dirichletcal": "dirichletcal",
}
_Answer = TypeVar("_Answer")

PEERS: dict[str, dict[str, Callable[[Rows], float]]] = {}
"""Peer -> task -> function."""

FITS: dict[str, dict[str, Callable[[Rows], Fitted]]] = {}
"""Peer -> calibrator -> function."""

UNAVAILABLE: dict[str, str] = {}
"""Peer -> why it does not import."""

for _peer, _file in _FILES.items():
    try:
        _module = importlib.import_module(f".{_file}", __name__)
        PEERS[_peer], FITS[_peer] = getattr(_module, "TASKS", {}), getattr(_module, "FITS", {})
    except ImportError as error:
        UNAVAILABLE[_peer] = f"{type(error).__name__}: {error}"
        warnings.warn(f"{_peer} is not compared: {UNAVAILABLE[_peer]}", stacklevel=2)


def rivals(metric: str) -> dict[str, Callable[[Rows], float]]:
    """Every peer's way to this metric: ``peer (from input)`` -> function."""
    return _by_peer(PEERS, metric)


def rival_fits(calibrator: str) -> dict[str, Callable[[Rows], Fitted]]:
    """Every peer's way to fit this calibrator: ``peer (from input)`` -> function."""
    return _by_peer(FITS, calibrator)


def _by_peer(known: dict[str, dict[str, _Answer]], wanted: str) -> dict[str, _Answer]:
    return {
        f"{peer} (from {task.removeprefix(wanted + ' from ')})": run
        for peer, tasks in known.items()
        for task, run in tasks.items()
        if task.startswith(wanted + " from ")
    }
