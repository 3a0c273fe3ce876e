"""Nine metrics from float32 logits at once: against one ``log_softmax`` over the same array, and against the peers."""

import resource
import subprocess
import sys

import torch

from benchmarks.peers import Rows, rivals
from benchmarks.timing import in_turns
from calibrant import Predictions, Tally
from calibrant.metrics import ACE, AURC, AUROC, ECE, MCE, NLL, SCE, Brier, Entropy

__all__ = ["NINE", "report"]

NINE = (ECE(), ACE(), MCE(), SCE(), Brier(), NLL(), Entropy(), AUROC(), AURC())
SIZES = ((50_000, 1000), (1_000_000, 10))


def report() -> str:
    """The section of the results."""
    about = (
        "One `log_softmax` over the same array is the unit. Memory is the peak above the input. The peers are the fastest "
        "for each metric that one of them offers (most from probabilities, whose softmax is not charged)."
    )
    lines = [
        "## ece, ace, mce, sce, brier, nll, entropy, auroc and aurc together, from float32 logits",
        "",
        about,
        "",
        "| rows x classes | ours | memory | sum of the fastest peers | ours is faster by | those peers |",
        "|---|---|---|---|---|---|",
    ]
    lines += [_line(n, k) for n, k in SIZES]
    return "\n".join(lines) + "\n"


def _line(n: int, k: int) -> str:
    rows = Rows.make(n, k).prepare()
    predictions = Predictions(rows.logits, rows.labels)
    tasks = {"unit": lambda: rows.logits.log_softmax(dim=1), "ours": lambda: Tally(NINE).add(predictions).values()}
    ours = in_turns(tasks, rounds=7)
    peers = _fastest_peers(rows)
    total = sum(seconds for _, seconds in peers.values())
    unit, mine = ours["unit"], ours["ours"]
    named = ", ".join(f"{metric}: {peer} {seconds / unit:.1f}" for metric, (peer, seconds) in peers.items())
    return (
        f"| {n:,} x {k} | **{mine / unit:.2f} passes** | {_memory(n, k)} MB | {total / unit:.1f} passes | "
        f"{total / mine:.0f} times | {named} |"
    )


def _fastest_peers(rows: Rows) -> dict[str, tuple[str, float]]:
    """For every metric that some peer offers, the fastest peer; those that take long are timed once."""
    fastest = {}
    for metric in NINE:
        tasks = {name: (lambda run=run: run(rows)) for name, run in rivals(metric.name).items()}
        if tasks:
            times = in_turns(tasks, rounds=1 if metric.name == "sce" else 2)
            name = min(times, key=times.__getitem__)
            fastest[metric.name] = (name, times[name])
    return fastest


def _memory(n: int, k: int) -> int:
    """Peak memory above the input in a process of its own, in MB."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.nine_metrics", str(n), str(k)], capture_output=True, text=True, check=True
    )
    return round(float(done.stdout))


def _measure_memory(n: int, k: int) -> float:
    torch.set_num_threads(1)
    logits = torch.empty(n, k).normal_()
    labels = torch.arange(n) % k
    small = Predictions(logits[:100], labels[:100])
    Tally(NINE).add(small).values()  # loads what is loaded once
    predictions = Predictions(logits, labels)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    Tally(NINE).add(predictions).values()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


if __name__ == "__main__":
    print(_measure_memory(int(sys.argv[1]), int(sys.argv[2])))
