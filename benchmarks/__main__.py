"""``python -m benchmarks [QUESTION ...]``: run all, or those named, once and write their sections of RESULTS.md.

Wants ``make benchmarks``' environment. Those about training, clamping, learned losses and ``gpu`` want only torch, and
run on a GPU if there is one. ``torchmetrics_update`` wants torchmetrics, ``engines`` Dask and Ray, ``tabular`` and
``sklearn_wrapper`` scikit-learn; ``tabular``, unless it has records already, an hour.
"""

import importlib
import sys

import torch

from benchmarks.page import PAGE, write

WITH_PEERS = (
    "imports", "smooth_error", "intervals", "nine_metrics", "temperature", "structured_scaling", "dirichlet", "binning",
)  # fmt: skip
WITHOUT_PEERS = (
    "memory", "scale", "engines", "gpu", "losses", "training", "clamping", "meta", "tabular", "sklearn_wrapper",
    "torchmetrics_update",
)  # fmt: skip
QUESTIONS = (*WITH_PEERS, *WITHOUT_PEERS)


def main(*asked: str) -> None:
    """Write the page."""
    unknown = set(asked) - set(QUESTIONS)
    if unknown:
        sys.exit(f"no such question: {', '.join(sorted(unknown))}; there are {', '.join(QUESTIONS)}")
    torch.set_num_threads(1)
    chosen = asked or QUESTIONS
    notes = _limit_peers() if set(chosen) & set(WITH_PEERS) else None
    for name in chosen:
        print(f"{name} …", flush=True)
        section = importlib.import_module(f"benchmarks.{name}").report()
        print(section, flush=True)
        write([section], None if name in WITHOUT_PEERS else notes)
    print(f"written to {PAGE.name}")


def _limit_peers() -> list[str]:
    """One thread for the libraries that peers use; which of them are missing, and why."""
    from threadpoolctl import threadpool_limits

    from benchmarks.peers import UNAVAILABLE

    threadpool_limits(1)
    return [f"Not compared: {peer} ({reason})." for peer, reason in UNAVAILABLE.items()]


if __name__ == "__main__":
    main(*sys.argv[1:])
