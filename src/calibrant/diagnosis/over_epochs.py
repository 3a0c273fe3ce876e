"""Numbers over the epochs of training, from the records that the runs wrote."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np

from calibrant.diagnosis.candidate import Candidate
from calibrant.diagnosis.record import Record
from calibrant.training.record import EpochRecord, HeldOutRecord

__all__ = ["Band", "EpochCurves", "epoch_curves"]

_NUMBERS = ("optimal_ece", "ece", "temperature", "accuracy", "nll", "max_logit")


@final
@dataclass(frozen=True)
class Band(Record):
    """A number epoch by epoch: its mean over runs, and the range from the lowest run to the highest."""

    mean: tuple[float, ...]
    lowest: tuple[float, ...]
    highest: tuple[float, ...]


@final
@dataclass(frozen=True)
class EpochCurves(Record):
    """One candidate on one held-out part, after each epoch in which all its runs looked.

    ``optimal_ece`` and ``temperature`` are an oracle's: searched on the very rows of that part. ``rise`` is by how much
    the mean optimal ECE of the end lies above its lowest; the lowest of many noisy numbers is too low, so a small rise
    is nothing. ``learned`` is of a loss that is learned, in the same epochs: of γ-Net, the mean and the standard
    deviation of γ over the rows set apart to calibrate, and the share of these at its limit.
    """

    candidate: str
    part: str
    runs: int
    epochs: tuple[int, ...]
    numbers: Mapping[str, Band]  # optimal_ece, ece, temperature, accuracy, nll, max_logit
    lowest_epoch: int  # where the mean optimal ECE is lowest
    rise: float
    learned: Mapping[str, Band] = field(default_factory=dict)  # gamma_mean, gamma_std, gamma_clipped; or another loss's


def epoch_curves(candidate: Candidate, part: str = "test") -> EpochCurves | None:
    """The curves of a candidate; None where its runs have no epoch in common at which that part was looked at.

    A run that lacks the records of some epochs is left out: its curve would end before its training did.

    Args:
        candidate: From :func:`~calibrant.diagnosis.candidate.grouped`.
        part: ``test`` or ``calibration``.

    Reference:
        Wang, Feng & Zhang (2021), Rethinking Calibration of Deep Neural Networks: Do Not Be Afraid of Overconfidence,
        Figure 4.
    """
    records = [run.records for run in candidate.runs if run.is_recorded]
    runs = [_looks(each, part) for each in records]
    epochs = sorted(set(runs[0]).intersection(*runs[1:])) if runs else []
    if not epochs:
        return None
    numbers = {
        name: _band(np.array([[_number(run[epoch], name) for epoch in epochs] for run in runs])) for name in _NUMBERS
    }
    optimal = numbers["optimal_ece"].mean
    lowest = int(np.argmin(optimal))
    return EpochCurves(
        candidate=candidate.name,
        part=part,
        runs=len(runs),
        epochs=tuple(epochs),
        numbers=numbers,
        lowest_epoch=epochs[lowest],
        rise=optimal[-1] - optimal[lowest],
        learned=_learned(records, epochs),
    )


def _learned(records: Sequence[Sequence[EpochRecord]], epochs: list[int]) -> dict[str, Band]:
    """What all runs tell of a loss that is learned; nothing of others."""
    runs = [{record.epoch: record.learned for record in of_run} for of_run in records]
    names = [name for name in runs[0][epochs[0]] if all(name in run[epoch] for run in runs for epoch in epochs)]
    return {name: _band(np.array([[run[epoch][name] for epoch in epochs] for run in runs])) for name in names}


def _looks(records: tuple[EpochRecord, ...], part: str) -> dict[int, HeldOutRecord]:
    return {record.epoch: record.held_out[part] for record in records if part in record.held_out}


def _number(record: HeldOutRecord, name: str) -> float:
    value = getattr(record, name)
    return math.nan if value is None else float(value)


def _band(values: np.ndarray) -> Band:
    """Over the runs, (runs, epochs); an epoch in which one has no number has none."""
    return Band(*(tuple(each.tolist()) for each in (values.mean(0), values.min(0), values.max(0))))
