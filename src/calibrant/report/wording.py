"""The numbers in words: how far the confidence can be trusted, and what to do about it."""

import math
from dataclasses import dataclass
from typing import final

from calibrant.evidence import Estimate
from calibrant.report.evaluation import Evaluation
from calibrant.shown_text import terminal_text

__all__ = ["Verdict", "verdict"]

_LEVEL = 0.05
_SIZES = ((0.01, "very slightly"), (0.03, "slightly"), (0.07, "clearly"), (0.15, "strongly"))
_SEPARATION = (
    (0.6, "hardly separates right from wrong"),
    (0.7, "separates right from wrong poorly"),
    (0.8, "separates right from wrong fairly well"),
    (0.9, "separates right from wrong well"),
)


@final
@dataclass(frozen=True)
class Verdict:
    """One headline, the findings behind it, and what to do next."""

    headline: str
    findings: list[str]
    next_steps: list[str]


def verdict(evaluation: Evaluation) -> Verdict:
    """Put an evaluation into words."""
    error = evaluation.metrics["ece"]
    beyond = _beyond_noise(evaluation)
    return Verdict(
        headline=_headline(evaluation, beyond=beyond),
        findings=[
            _noise(error, evaluation.n, beyond=beyond),
            *_bins(evaluation),
            *_classes(evaluation),
            _separation(evaluation.metrics["auroc"], evaluation.metrics["accuracy"].value),
            *_split(evaluation),
        ],
        next_steps=_next_steps(evaluation, beyond=beyond),
    )


def _beyond_noise(evaluation: Evaluation) -> bool:
    """Whether the binned or the bin-free error is more than a calibrated model would show."""
    # Two tests, so each at half the level.
    return any((evaluation.metrics[name].p or 0.0) <= _LEVEL / 2 for name in ("ece", "smece"))


def _headline(evaluation: Evaluation, *, beyond: bool) -> str:
    accuracy, confidence = evaluation.metrics["accuracy"].value, evaluation.metrics["confidence"].value
    claim = f"it is {_percent(confidence)} sure on average and right {_percent(accuracy)} of the time"
    if not beyond:
        return f"No miscalibration beyond noise: {claim}."
    error = evaluation.metrics["ece"].value
    size = next((word for bound, word in _SIZES if error < bound), "severely")
    if abs(evaluation.gap) < error / 2:
        return f"{size.capitalize()} miscalibrated, too sure in some places and not sure enough in others: {claim}."
    return f"{size.capitalize()} {'over' if evaluation.gap > 0 else 'under'}confident: {claim}."


def _noise(error: Estimate, n: int, *, beyond: bool) -> str:
    interval = "" if math.isnan(error.low) else f" (95 % interval {error.low:.3f} to {error.high:.3f})"
    found = f"ECE {error.value:.3f}{interval}; a calibrated model with these confidences would score {error.floor:.3f}"
    if beyond:
        return f"{found} on {n:,} rows, so this is beyond noise (p {_p(error.p)})."
    return f"{found} on {n:,} rows, so noise explains it (p {_p(error.p)})."


def _bins(evaluation: Evaluation) -> list[str]:
    return [
        f"Answers given with {_percent(worst.low)} to {_percent(worst.high)} confidence ({_percent(worst.share)} of "
        f"rows) claim {_percent(worst.confidence)} and are right {_percent(worst.accuracy)} of the time."
        for worst in evaluation.worst_bins[:1]
    ]


def _classes(evaluation: Evaluation) -> list[str]:
    if not evaluation.worst_classes:
        return []
    named = [
        f"{f'“{terminal_text(worst.name)}”' if worst.name else f'class {worst.label}'} "
        f"(claims {_percent(worst.confidence)}, right {_percent(worst.accuracy)}, {worst.count} answers)"
        for worst in evaluation.worst_classes[:3]
    ]
    return [f"Worst when it predicts {', '.join(named)}."]


def _separation(auroc: Estimate, accuracy: float) -> str:
    if math.isnan(auroc.value):
        every = "right" if accuracy == 1 else "wrong"
        return f"Every answer is {every}: how well confidence separates right from wrong cannot be told."
    words = next((text for bound, text in _SEPARATION if auroc.value < bound), "separates right from wrong very well")
    interval = "" if math.isnan(auroc.low) else f"{auroc.low:.3f} to {auroc.high:.3f}; "
    return f"Confidence {words}: AUROC {auroc.value:.3f} ({interval}guessing is 0.5)."


def _split(evaluation: Evaluation) -> list[str]:
    if "nll" not in evaluation.splits:
        return []
    split = evaluation.splits["nll"]
    if split.calibration_low <= 0:
        return [f"Of the log-loss {split.total:.3f}, a temperature would remove nothing beyond noise."]
    removed = f"{split.calibration:.3f} ({_percent(split.calibration / split.total)})"
    kept = f"{split.refinement:.3f} is refinement, which only a better model lowers"
    return [f"Of the log-loss {split.total:.3f}, a temperature would remove {removed}; {kept}."]


def _next_steps(evaluation: Evaluation, *, beyond: bool) -> list[str]:
    steps = []
    error, split = evaluation.metrics["ece"], evaluation.splits.get("nll")
    if beyond and split is not None and split.calibration_low > 0:
        steps.append("Fit a temperature on rows that are not used for testing, and evaluate again.")
    elif beyond and split is not None:
        steps.append("One temperature does not mend this: look at the classes and bins above, and fit a richer map.")
    elif beyond:
        steps.append("Recalibrate the confidence on rows that are not used for testing, and evaluate again.")
    elif error.floor is not None and error.floor > 0.02:
        steps.append(
            f"With {evaluation.n:,} rows an ECE below about {error.floor:.3f} cannot be told from noise: "
            "evaluate on more rows before relying on it."
        )
    else:
        steps.append("Leave the confidence as it is; recalibrating could only add noise.")
    auroc = evaluation.metrics["auroc"].value
    if auroc < 0.65:
        steps.append("Do not use confidence alone to decide which answers to trust: it ranks them too poorly.")
    return steps


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _p(p: float | None) -> str:
    return "unknown" if p is None else "< .002" if p < 0.002 else f"= {p:.3f}"
