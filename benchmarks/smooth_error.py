"""smECE of a million confidences, against the reference implementation."""

from collections.abc import Callable
from functools import partial

import torch

from benchmarks.peers import Rows, rivals
from benchmarks.timing import in_turns
from calibrant import TopLabel, smece

__all__ = ["report"]


def report() -> str:
    """The section of the results."""
    lines = ["## smece of confidences and correctness", "", "| rows | ours | peers, in times ours |", "|---|---|---|"]
    for n in (10_000, 1_000_000):
        rows = Rows.make(n, 10).prepare()
        top = TopLabel(torch.from_numpy(rows.confidence), torch.from_numpy(rows.correct))
        tasks: dict[str, Callable[[], object]] = {"ours": partial(smece, top)}
        tasks |= {name: partial(run, rows) for name, run in rivals("smece").items()}
        times = in_turns(tasks)
        ours = times.pop("ours")
        peers = ", ".join(f"{name} {seconds / ours:.1f}" for name, seconds in times.items())
        lines.append(f"| {n:,} | 1 | {peers} |")
    return "\n".join(lines) + "\n"
