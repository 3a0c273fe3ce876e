"""The rivals: what each peer can compute, by name of peer and of task.

Runs in ``.venv-reference`` (see ``tests/reference/requirements.txt``). A task is named ``<metric> from <input>``, with
the metric's name in our catalogue and the input ``logits``, ``probs`` or ``top`` (confidence and correctness); it
takes :class:`Rows` and returns the number. Peers that do not import are in :data:`UNAVAILABLE` with the reason, and a
warning says so: a benchmark without a rival must not look like a benchmark won.
"""

import importlib
import warnings
from collections.abc import Callable

from .rows import Rows

__all__ = ["PEERS", "UNAVAILABLE", "Rows", "rivals"]

_FILES = {
    "netcal": "netcal",
    "torchmetrics": "torchmetrics",
    "scikit-learn": "scikit_learn",
    "uncertainty-calibration": "uncertainty_calibration",
    "relplot": "relplot",
    "probmetrics": "probmetrics",
    "pycalib": "pycalib",
    "torch-uncertainty": "torch_uncertainty",
}

PEERS: dict[str, dict[str, Callable[[Rows], float]]] = {}
"""Peer -> task -> function."""

UNAVAILABLE: dict[str, str] = {}
"""Peer -> why it does not import."""

for _peer, _file in _FILES.items():
    try:
        PEERS[_peer] = importlib.import_module(f".{_file}", __name__).TASKS
    except ImportError as error:
        UNAVAILABLE[_peer] = f"{type(error).__name__}: {error}"
        warnings.warn(f"{_peer} is not compared: {UNAVAILABLE[_peer]}", stacklevel=2)


def rivals(metric: str) -> dict[str, Callable[[Rows], float]]:
    """Every peer's way to this metric: ``peer (from input)`` -> function."""
    return {
        f"{peer} (from {task.removeprefix(metric + ' from ')})": run
        for peer, tasks in PEERS.items()
        for task, run in tasks.items()
        if task.startswith(metric + " from ")
    }
