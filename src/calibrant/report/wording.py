"""The numbers in words: how far the confidence can be trusted, and what to do about it."""

import math
from dataclasses import dataclass
from typing import final

from calibrant.evidence import Estimate
from calibrant.metrics import Split
from calibrant.predictions import LABEL_FLOOR, PROB_FLOOR
from calibrant.report.advice import WORTHWHILE, Advice, Reason, is_beyond_noise
from calibrant.report.evaluation import Evaluation
from calibrant.shown_text import terminal_text

__all__ = ["Verdict", "verdict"]

_SIZES = ((0.01, "very slightly"), (0.03, "slightly"), (0.07, "clearly"), (0.15, "strongly"))
_SEPARATION = (
    (0.6, "hardly separates right from wrong"),
    (0.7, "separates right from wrong poorly"),
    (0.8, "separates right from wrong fairly well"),
    (0.9, "separates right from wrong well"),
)


_STEPS = {
    Reason.temperature_helps: "Fit a temperature on samples that are not used for testing, and evaluate again.",
    Reason.scores_disagree: (
        "A temperature lowers one proper score and raises the other: compare methods (`calibrant compare`) on samples "
        "that are not used for testing before fitting one."
    ),
    Reason.not_by_temperature: (
        "One temperature has nothing worth having to remove: look at the classes and bins above, and compare methods "
        "(`calibrant compare`)."
    ),
    Reason.top_label_only: "Recalibrate the confidence on samples that are not used for testing, and evaluate again.",
    Reason.too_small: "Leave the confidence as it is: what is off is too small to matter.",
    Reason.calibrated: "Leave the confidence as it is; recalibrating could only add noise.",
}


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
    beyond = is_beyond_noise(evaluation.metrics)
    return Verdict(
        headline=_headline(evaluation, beyond=beyond),
        findings=[
            _noise(error, evaluation.n, beyond=beyond),
            *_bins(evaluation),
            *_classes(evaluation),
            _separation(evaluation.metrics["auroc"], evaluation.metrics["accuracy"].value),
            *_split(evaluation),
            *_zeros(evaluation),
        ],
        next_steps=_next_steps(evaluation),
    )


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
    """What one temperature does to the proper scores, as far as the samples show it."""
    named = (("log-loss", "nll"), ("Brier score", "brier"))
    told = [_removed(words, evaluation.splits[name]) for words, name in named if name in evaluation.splits]
    if not told:
        return []
    log_loss, brier = told
    # The log-loss always; the Brier score where it shows something else.
    is_alike = _side(evaluation.splits["nll"]) == _side(evaluation.splits["brier"])
    return [log_loss] if is_alike else [log_loss, brier]


def _side(split: Split) -> int:
    """1 where a temperature lowers the score beyond noise, -1 where it raises it, 0 where the samples leave it open."""
    return int(split.calibration_low > 0) - int(split.calibration_high < 0)


def _removed(score: str, split: Split) -> str:
    share = f"{_percent(abs(split.calibration) / split.total)}"
    interval = f"{split.calibration_low:.3f} to {split.calibration_high:.3f}"
    whole = f"Of the {score} {split.total:.3f}, one temperature would"
    if _side(split) > 0:
        kept = f"{split.refinement:.3f} is what one temperature cannot lower"
        return f"{whole} remove {split.calibration:.3f} ({share}; 95 % interval {interval}); {kept}."
    if _side(split) < 0:
        raised = f"{-split.calibration:.3f} ({share})"
        return f"One temperature would raise the {score} {split.total:.3f} by {raised}, beyond noise."
    if split.calibration_high < WORTHWHILE * split.total:
        return f"{whole} remove less than {WORTHWHILE:.0%} (95 % interval {interval})."
    if round(split.calibration, 3) <= 0:
        change = f"raise it by {-split.calibration:.3f}" if round(split.calibration, 3) < 0 else "leave it as it is"
        told = f"The {score} is {split.total:.3f}: one temperature would {change}, as far as these samples can tell"
        return f"{told} (95 % interval of what it removes {interval})."
    return f"{whole} remove {split.calibration:.3f} as far as these samples can tell (95 % interval {interval})."


def _next_steps(evaluation: Evaluation) -> list[str]:
    steps = [_step(evaluation)]
    if evaluation.metrics["auroc"].value < 0.65:
        steps.append("Do not use confidence alone to decide which answers to trust: it ranks them too poorly.")
    return steps


def _step(evaluation: Evaluation) -> str:
    advice = evaluation.advice
    if advice.reason is Reason.gain_open:
        return _more_samples(evaluation, advice)
    if advice.reason is Reason.floor_high:
        floor = evaluation.metrics["ece"].floor
        hidden = f"With {evaluation.n:,} samples an ECE below about {floor:.3f} cannot be told from noise"
        return f"{hidden}: evaluate on about {advice.samples:,} before relying on it."
    return _STEPS[advice.reason]


def _more_samples(evaluation: Evaluation, advice: Advice) -> str:
    """More samples, and what those at hand suggest."""
    step = f"{evaluation.n:,} samples cannot tell whether a temperature helps: evaluate on about {advice.samples:,}."
    gains = [split.calibration / split.total for split in evaluation.splits.values()]
    if min(gains) >= 0 and max(gains) >= WORTHWHILE:
        step += " What they suggest is a temperature; `calibrant compare` with calibration samples tests that directly."
    elif is_beyond_noise(evaluation.metrics):
        step += " What they suggest is another method than a temperature: see `calibrant compare`."
    return step


def _zeros(evaluation: Evaluation) -> list[str]:
    """How many probabilities are 0, and what that means for the log-loss."""
    zeros = evaluation.zeros
    if zeros is None or not (zeros.cells or zeros.floored_labels):
        return []
    share = _percent(zeros.cells / zeros.of_cells)
    line = f"{share} of the probabilities are 0 or below {PROB_FLOOR:g} ({zeros.cells:,} of {zeros.of_cells:,})"
    if not zeros.floored_labels:
        return [f"{line}, none of them a true class's."]
    labels = "1 true class" if zeros.floored_labels == 1 else f"{zeros.floored_labels:,} true classes"
    return [f"{line}: the log-loss counts {labels} as {LABEL_FLOOR:g}, and depends on that choice."]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _p(p: float | None) -> str:
    return "unknown" if p is None else "< .002" if p < 0.002 else f"= {p:.3f}"
