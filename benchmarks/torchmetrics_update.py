"""One update of the calibration error in TorchMetrics' interface, against one softmax of the batch."""

import torch

from benchmarks.bounds import Bound
from benchmarks.timing import in_turns
from calibrant.integrations.torchmetrics import CalibrantMetric, metric_collection

__all__ = ["report"]

SIZE = (512, 1000)
MOST = 1.5
_ROUNDS = 100


def report() -> str:
    """The section of the results."""
    from torchmetrics.classification import MulticlassCalibrationError

    torch.manual_seed(0)
    n, k = SIZE
    logits, labels = 3 * torch.randn(n, k), torch.randint(0, k, (n,))
    ours, theirs = CalibrantMetric("ece"), MulticlassCalibrationError(k, n_bins=15)
    five = metric_collection("ece", "nll", "brier", "smece", "auroc")
    tasks = {
        "softmax": lambda: logits.softmax(dim=1),
        "ece": lambda: ours.update(logits, labels),
        "torchmetrics": lambda: theirs.update(logits, labels),
        "five": lambda: five.update(logits, labels),
    }
    times = in_turns(tasks, rounds=_ROUNDS)
    passes = {name: seconds / times["softmax"] for name, seconds in times.items()}
    return (
        f"## An update of a TorchMetrics metric, {n} x {k}\n\nOne softmax of the batch is the unit.\n\n"
        '| `CalibrantMetric("ece")` | `MulticlassCalibrationError` | ece, nll, brier, smece and auroc together |\n'
        f"|---|---|---|\n| **{passes['ece']:.2f}** | {passes['torchmetrics']:.2f} | {passes['five']:.2f} |\n\n"
        f"{Bound('softmaxes of the batch that an update of ece costs', passes['ece'], at_most=MOST)}\n"
    )
