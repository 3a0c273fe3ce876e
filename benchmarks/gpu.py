"""Metrics on a GPU: nine of them against one ``log_softmax`` over the same array, and a whole evaluation."""

from collections.abc import Callable
from functools import partial

import torch

from benchmarks.bounds import Bound
from benchmarks.device import Place
from benchmarks.timing import in_turns
from calibrant import Predictions, evaluate
from calibrant.metrics import ACE, AURC, AUROC, ECE, MCE, NLL, SCE, Brier, Entropy, Tally

__all__ = ["report"]

METRICS = (ECE(), ACE(), MCE(), SCE(), Brier(), NLL(), Entropy(), AUROC(), AURC())
# Samples, classes, and the most passes of log_softmax; and samples and classes of the evaluation, and its seconds.
ON_A_GPU = (((1_000_000, 1000, 6), (10_000_000, 10, 40)), (200_000, 100, 0.7))
ON_A_CPU = (((2_000, 1000, None), (20_000, 10, None)), (2_000, 100, None))


def report() -> str:
    """The section of the results."""
    place = Place.best()
    sizes, (n, k, most_seconds) = ON_A_GPU if place.is_gpu else ON_A_CPU
    lines = [
        f"## Nine metrics and an evaluation, on {place.title}",
        "",
        f"From float32 logits on the device; a pass is one `log_softmax` of them. {place.about}",
        "",
        "| rows x classes | a pass | nine metrics | passes |",
        "|---|---|---|---|",
    ]
    bounds = []
    for rows, classes, most in sizes:
        logits, labels = _overconfident(rows, classes, place.device)
        tasks: dict[str, Callable[[], object]] = {
            "pass": partial(torch.log_softmax, logits, 1),
            "nine": partial(_nine, logits, labels),
        }
        times = in_turns(tasks, rounds=7, clock=place.clock)
        passes = times["nine"] / times["pass"]
        milliseconds = [f"{1e3 * times[name]:.2f} ms" for name in tasks]
        lines.append(f"| {rows:,} x {classes} | {' | '.join(milliseconds)} | {passes:.1f} |")
        if most is not None:
            bounds.append(Bound(f"passes for nine metrics of {rows:,} x {classes}", passes, at_most=most))
    predictions = Predictions(*_overconfident(n, k, place.device))
    work = {"evaluate": lambda: evaluate(Predictions(predictions.logits, predictions.labels))}
    seconds = in_turns(work, rounds=5, clock=place.clock)["evaluate"]
    lines += ["", f"`evaluate`, with intervals, of {n:,} x {k}: {seconds:.2f} s."]
    if most_seconds is not None:
        bounds.append(Bound(f"seconds of evaluate at {n:,} x {k}", seconds, at_most=most_seconds))
    return "\n".join([*lines, "", *map(str, bounds)]) + "\n"


def _nine(logits: torch.Tensor, labels: torch.Tensor) -> dict[str, float]:
    return Tally(METRICS).add(Predictions(logits, labels)).values()


def _overconfident(n: int, k: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw logits, and labels from their softmax at temperature 1.5."""
    generator = torch.Generator(device).manual_seed(0)
    logits = torch.empty(n, k, device=device).normal_(generator=generator).mul_(2)
    labels = torch.empty(n, dtype=torch.int64, device=device)
    for some, drawn in zip(logits.split(1 << 17), labels.split(1 << 17), strict=True):
        drawn.copy_((some / 1.5 - torch.empty_like(some).exponential_(generator=generator).log_()).argmax(1))
    return logits, labels
