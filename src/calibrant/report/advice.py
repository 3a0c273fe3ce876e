"""What to do next, decided from the numbers of an evaluation; :mod:`calibrant.report.wording` says it.

Three things are kept apart: an effect that is shown, one that is shown to be too small to matter, and one that the
samples leave open. What is open is never read as absent: the advice is then more samples.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import final

from calibrant.evidence import Estimate
from calibrant.metrics import Split

__all__ = ["WORTHWHILE", "Advice", "NextStep", "Reason", "advise", "is_beyond_noise"]

# Two tests say whether the confidence is off, so each is held to half of the usual 5 %.
_LEVEL = 0.025
# A change of a proper score by less than this share of it is not worth a step of its own.
WORTHWHILE = 0.01
# A calibration error below this matters to nobody, however sure it is.
_SMALL_ERROR = 0.01
# A noise floor above this hides errors that would matter.
_HIGH_FLOOR = 0.02
# Samples needed to show an effect in four of five cases, by those that just show it: ((1.96 + 0.84) / 1.96)².
_POWER = 2.04


class NextStep(StrEnum):
    """What to do next."""

    fit_temperature = "fit_temperature"
    compare_methods = "compare_methods"
    recalibrate = "recalibrate"  # where only the top label is known, so that no method can be named
    more_samples = "more_samples"
    leave = "leave"


class Reason(StrEnum):
    """Why."""

    temperature_helps = "temperature_helps"  # beyond noise, and by enough to matter
    scores_disagree = "scores_disagree"  # a temperature raises a proper score beyond noise, and lowers another
    not_by_temperature = "not_by_temperature"  # miscalibrated, and no useful gain by a temperature is left possible
    top_label_only = "top_label_only"  # miscalibrated; nothing is known about what would help
    gain_open = "gain_open"  # the interval of the gain holds both none and one that would matter
    floor_high = "floor_high"  # an error that would matter could hide below the noise floor
    too_small = "too_small"  # miscalibrated beyond noise, but by too little to matter
    calibrated = "calibrated"  # no sign of miscalibration, and samples enough to have seen one that matters


@final
@dataclass(frozen=True)
class Advice:
    """A next step, why, and where more samples are the step, about how many would decide."""

    step: NextStep
    reason: Reason
    samples: int | None = None


def is_beyond_noise(metrics: Mapping[str, Estimate]) -> bool:
    """Whether the binned or the bin-free error is more than a calibrated model would show."""
    return any((metrics[name].p or 0.0) <= _LEVEL for name in ("ece", "smece"))


def advise(n: int, metrics: Mapping[str, Estimate], splits: Mapping[str, Split]) -> Advice:
    """The next step.

    Args:
        n: Samples.
        metrics: The estimates of an evaluation, ``ece`` and ``smece`` among them.
        splits: What one cross-fitted temperature removes from the proper scores; empty where that is not known.
    """
    error, beyond = metrics["ece"], is_beyond_noise(metrics)
    matters = beyond and error.value >= _SMALL_ERROR
    if not splits:
        return _without_splits(n, error, beyond=beyond, matters=matters)
    shown = [split for split in splits.values() if split.calibration_low > 0]
    harmed = [split for split in splits.values() if split.calibration_high < 0]
    if harmed and any(split.calibration > 0 for split in splits.values()):
        return Advice(NextStep.compare_methods, Reason.scores_disagree)
    if any(split.calibration >= WORTHWHILE * split.total for split in shown):
        return Advice(NextStep.fit_temperature, Reason.temperature_helps)
    undecided = [split for split in splits.values() if split.calibration_high >= WORTHWHILE * split.total]
    if undecided and not shown:
        # The score that needs fewest decides: each of them is evidence.
        return Advice(NextStep.more_samples, Reason.gain_open, min(_needed(n, split) for split in undecided))
    if matters:
        return Advice(NextStep.compare_methods, Reason.not_by_temperature)
    return Advice(NextStep.leave, Reason.too_small if beyond or shown else Reason.calibrated)


def _without_splits(n: int, error: Estimate, *, beyond: bool, matters: bool) -> Advice:
    if matters:
        return Advice(NextStep.recalibrate, Reason.top_label_only)
    if beyond:
        return Advice(NextStep.leave, Reason.too_small)
    if error.floor is not None and error.floor > _HIGH_FLOOR:  # it falls with the root of the samples
        return Advice(NextStep.more_samples, Reason.floor_high, _rounded(n * (error.floor / _HIGH_FLOOR) ** 2))
    return Advice(NextStep.leave, Reason.calibrated)


def _needed(n: int, split: Split) -> int:
    """Samples with which a gain as large as estimated is shown, or, if that is too small, a useful one is excluded."""
    useful = WORTHWHILE * split.total
    half = (split.calibration_high - split.calibration_low) / 2
    distance = split.calibration if split.calibration >= useful else max(useful, useful - split.calibration)
    return _rounded(max(2 * n, _POWER * n * (half / distance) ** 2))


def _rounded(samples: float) -> int:
    """Up to one digit: more would pretend to know."""
    scale = 10.0 ** math.floor(math.log10(max(samples, 1.0)))
    return int(math.ceil(samples / scale - 1e-9) * scale)
