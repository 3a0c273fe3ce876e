"""Intervals, floors and p-values of the nine metrics at 10,000 x 100; and a whole evaluation."""

from benchmarks.nine_metrics import EXACT
from benchmarks.peers import Rows
from benchmarks.timing import in_turns
from calibrant import Predictions, evaluate
from calibrant.evidence import estimate

__all__ = ["report"]


def report() -> str:
    """The section of the results."""
    rows = Rows.make(10_000, 100)
    predictions = Predictions(rows.logits, rows.labels)
    tasks = {
        "unit": lambda: rows.logits.log_softmax(dim=1),
        "nine": lambda: estimate(predictions, EXACT),
        "all": lambda: evaluate(predictions),
    }
    times = in_turns(tasks, rounds=3)
    rows_of_table = (
        ("intervals, floors and p-values of the nine metrics", times["nine"]),
        ("`evaluate`: all 27 metrics with evidence", times["all"]),
    )
    lines = [
        "## Evidence at 10,000 x 100 (1,000 resamples)",
        "",
        "Processor seconds of this run; they count only beside each other.",
        "",
        "| what | seconds | passes of `log_softmax` |",
        "|---|---|---|",
        *(f"| {what} | {seconds:.2f} | {seconds / times['unit']:.0f} |" for what, seconds in rows_of_table),
    ]
    return "\n".join(lines) + "\n"
