"""Experiment trackers: write an evaluation to MLflow, Weights & Biases, TensorBoard or a Lightning logger.

None of them is imported or required: a tracker is recognised by the methods that it has.
"""

import math
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from calibrant.errors import InputError
from calibrant.evaluation import Evaluation, evaluate
from calibrant.predictions import Predictions
from calibrant.report import evaluation_page, to_markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["log_evaluation"]


def log_evaluation(
    evaluation: Evaluation,
    *,
    to: Any,
    step: int | None = None,
    prefix: str = "calibration/",
    figures: "Mapping[str, Figure] | None" = None,
) -> dict[str, float]:
    """Log every metric with its interval, the report, and figures to an experiment tracker.

    A metric is three scalars: ``ece``, ``ece_low`` and ``ece_high``, so that a chart over steps shows what is noise.
    Of two classes, calibration errors are of the probability of the positive one, as in the report, and
    ``risk_auroc`` is added. Numbers that are undefined are left out. The report is text, in Markdown, where the tracker
    takes text.

    Args:
        evaluation: What :func:`calibrant.evaluate` returned.
        to: The module ``mlflow`` with an active run; a run of Weights & Biases, or the module ``wandb``; a
            ``SummaryWriter`` of TensorBoard; or a logger of Lightning, which gets figures if one of the last two is
            behind it.
        step: Number of the training step or epoch.
        prefix: Beginning of every name.
        figures: Figures by name, such as those of ``calibrant.plots.figures(predictions)``.

    Returns:
        The scalars that were logged, by name.

    Raises:
        InputError: If ``to`` has the methods of none of these trackers.

    Example:
        >>> from calibrant import evaluate
        >>> class Run:  # like that of Weights & Biases
        ...     def log(self, data, step=None):
        ...         print(step, round(data["calibration/ece"], 3))
        >>> evaluation = evaluate(confidence=[0.9] * 80, correct=[True] * 50 + [False] * 30, resamples=200)
        >>> scalars = log_evaluation(evaluation, to=Run(), step=3)
        3 0.275
    """
    report, pictures = to_markdown(evaluation_page(evaluation)), dict(figures or {})
    scalars = {
        f"{prefix}{name}{suffix}": number
        for name, estimate in evaluation.estimates.items()
        for suffix, number in (("", estimate.value), ("_low", estimate.low), ("_high", estimate.high))
        if math.isfinite(number)
    }
    if _has(to, "add_scalar", "add_text", "add_figure"):  # TensorBoard
        for name, number in scalars.items():
            to.add_scalar(name, number, global_step=step)
        to.add_text(f"{prefix}report", report, global_step=step)
        _log_figures(pictures, to, step, prefix)
    elif _has(to, "log_metrics", "log_text", "log_figure"):  # MLflow
        to.log_metrics(scalars, step=step)
        folder = prefix if step is None else f"{prefix}{step}/"
        to.log_text(report, f"{folder}report.md")
        for name, figure in pictures.items():
            to.log_figure(figure, f"{folder}{name}.png")
    elif _has(to, "log_metrics"):  # Lightning
        to.log_metrics(scalars, step=step)
        _log_figures(pictures, getattr(to, "experiment", None), step, prefix)
    elif _has(to, "log"):  # Weights & Biases
        to.log({**scalars, **_images(prefix, pictures)}, step=step)
    else:
        raise InputError(
            "to must be the module mlflow, a run of Weights & Biases, a SummaryWriter of TensorBoard, or a logger of "
            f"Lightning; got {type(to).__name__}."
        )
    return scalars


def log_with_diagram(predictions: Predictions, *, to: Any, step: int) -> None:
    """Evaluate predictions and log the result with their reliability diagram."""
    from calibrant.plots import plot_reliability

    figure = cast("Figure", plot_reliability(predictions).figure)
    log_evaluation(evaluate(predictions), to=to, step=step, figures={"reliability": figure})


def _log_figures(figures: "Mapping[str, Figure]", tracker: Any, step: int | None, prefix: str) -> None:
    """Log figures to TensorBoard or to Weights & Biases; others take none by these methods."""
    if _has(tracker, "add_figure"):
        for name, figure in figures.items():
            tracker.add_figure(f"{prefix}{name}", figure, global_step=step, close=False)
    elif figures and _has(tracker, "log"):
        tracker.log(_images(prefix, figures), step=step)


def _has(tracker: Any, *methods: str) -> bool:
    return all(callable(getattr(tracker, method, None)) for method in methods)


def _images(prefix: str, figures: "Mapping[str, Figure]") -> dict[str, Any]:
    """Return figures as images of Weights & Biases, which would convert plain ones to interactive charts."""
    wandb = sys.modules.get("wandb")
    image = getattr(wandb, "Image", None) or (lambda figure: figure)
    return {f"{prefix}{name}": image(figure) for name, figure in figures.items()}
