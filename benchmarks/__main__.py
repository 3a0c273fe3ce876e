"""``python -m benchmarks [QUESTION ...]``: run all, or those named, once and write their sections of RESULTS.md.

Wants ``make benchmarks``' environment.
"""

import importlib
import sys

import torch
from threadpoolctl import threadpool_limits

from benchmarks.page import PAGE, write
from benchmarks.peers import UNAVAILABLE

QUESTIONS = (
    "imports",
    "smooth_error",
    "intervals",
    "nine_metrics",
    "temperature",
    "structured_scaling",
    "dirichlet",
    "binning",
)


def main(*asked: str) -> None:
    """Write the page."""
    unknown = set(asked) - set(QUESTIONS)
    if unknown:
        sys.exit(f"no such question: {', '.join(sorted(unknown))}; there are {', '.join(QUESTIONS)}")
    torch.set_num_threads(1)
    threadpool_limits(1)
    notes = [f"Not compared: {peer} ({reason})." for peer, reason in UNAVAILABLE.items()]
    for name in asked or QUESTIONS:
        print(f"{name} …", flush=True)
        section = importlib.import_module(f"benchmarks.{name}").report()
        print(section, flush=True)
        write([section], notes)
    print(f"written to {PAGE.name}")


if __name__ == "__main__":
    main(*sys.argv[1:])
