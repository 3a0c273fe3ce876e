"""Peak memory of one piece of work, in a process that has only read its input; of an evaluation and a comparison."""

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from calibrant import Predictions

if TYPE_CHECKING:
    from benchmarks.peers.rows import Rows  # loads the peers, whose memory would be measured too

__all__ = ["peak_in_a_process_of_its_own", "peak_of", "print_peak", "report"]

SIZES = ((100_000, 10), (1_000_000, 10), (2_000_000, 10), (50_000, 1000))
COMPARED = ((1_000_000, 10), (50_000, 1000))  # calibration samples, and as many test samples
_RESAMPLES = 20  # of a comparison: they take time, but are computed a few at a time


def report() -> str:
    """The section of the results."""
    from benchmarks.peers.rows import Rows

    lines = [
        "## Memory of `evaluate`, from float32 logits",
        "",
        "Peak above the samples, in a process of its own, of all metrics with their evidence.",
        "",
        "| rows x classes | samples | above them | bytes a sample |",
        "|---|---|---|---|",
    ]
    for n, k in SIZES:
        peak = peak_in_a_process_of_its_own("benchmarks.memory", Rows.make(n, k), "evaluate")
        data = n * (4 * k + 8) / 2**20
        lines.append(f"| {n:,} x {k} | {data:.0f} MB | **{peak:.0f} MB** | {peak * 2**20 / n:,.0f} |")
    lines += [
        "",
        "## Memory of `compare`, from float32 logits",
        "",
        "Peak above the samples, of the default methods; as many samples to test as to fit.",
        "",
        "| rows x classes | samples | above them |",
        "|---|---|---|",
    ]
    for n, k in COMPARED:
        peak = peak_in_a_process_of_its_own("benchmarks.memory", Rows.make(2 * n, k), "compare")
        lines.append(f"| 2 x {n:,} x {k} | {2 * n * (4 * k + 8) / 2**20:.0f} MB | **{peak:.0f} MB** |")
    return "\n".join(lines) + "\n"


def peak_in_a_process_of_its_own(module: str, rows: "Rows", argument: str) -> float:
    """Peak above the input, in MB, of ``python -m module``, which must end in :func:`print_peak`."""
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder, "logits.npy"), rows.logits.numpy())
        np.save(Path(folder, "labels.npy"), rows.labels.numpy())
        command = [sys.executable, "-W", "ignore", "-m", module, folder, argument]
        return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def peak_of(module: str, *arguments: str) -> tuple[float, float]:
    """Peak in MB of ``python -m module arguments``, and the number that it prints."""
    command = f"import runpy, sys; sys.argv = {['', *arguments]!r}; runpy.run_module({module!r}, run_name='__main__')"
    command += "; from benchmarks.memory import _peak; print(_peak())"
    ended = subprocess.run([sys.executable, "-W", "ignore", "-c", command], capture_output=True, text=True, check=True)
    number, peak = ended.stdout.split()[-2:]
    return float(peak), float(number)


def print_peak(work: Callable[[Predictions, str], object]) -> None:
    """Do the work on the rows of the folder that the command line names, and print its peak."""
    torch.set_num_threads(1)
    folder, argument = Path(sys.argv[1]), sys.argv[2]
    predictions = Predictions(np.load(folder / "logits.npy"), np.load(folder / "labels.npy"))
    work(predictions[:100], argument)  # loads what is loaded once
    before = _peak()
    work(predictions, argument)
    print(_peak() - before)


def _peak() -> float:
    """Most memory this process has had, in MB; what ``resource`` tells would start at the parent's peak."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def _work(predictions: Predictions, name: str) -> None:
    from calibrant import compare, evaluate

    if name == "compare":
        half = len(predictions) // 2
        compare(predictions[:half], predictions[half:], resamples=_RESAMPLES)
    else:
        evaluate(predictions)


if __name__ == "__main__":
    print_peak(_work)
