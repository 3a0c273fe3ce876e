"""What was found about a clamped network on rows that nothing was fitted on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final

from calibrant.clamping import ClampingSummary
from calibrant.comparison import TEMPERATURE, UNCALIBRATED, Caution, MethodResult
from calibrant.metrics import ACE, AUROC, ECE, NLL, Accuracy, Brier, Metric
from calibrant.predictions import Predictions
from calibrant.report.clamping.effect import DeltaEffect

__all__ = ["CLAMPED", "ClampingJudgement", "clamping_metrics"]

CLAMPED = "clamped"


@final
@dataclass(frozen=True)
class ClampingJudgement:
    """Doing nothing, temperature scaling, the head alone where it is another, and the clamped network, in this order.

    Those that could not be fitted are left out. ``against`` of the clamped one has all others, but not the head alone
    where δ is 0, because it is the same.

    ``parts`` are there to tell δ from T, not to be used: the head of the clamped network without its δ (``T* only``,
    ``head* only``) and, where that T is not the best for the log-loss at this δ, the T that is (``TS on δ*``).
    """

    entries: tuple[MethodResult, ...]
    parts: tuple[MethodResult, ...]  # none where δ is 0
    effect: DeltaEffect | None  # None where δ is 0, or a head had no optimum
    summary: ClampingSummary
    head: str  # the entry that has this kind of head, without δ and by log-loss
    temperature: float | None  # where the head is one
    norm: float  # ‖δ‖
    largest: float  # of |δ|
    n_calibration: int
    n_test: int
    n_classes: int
    n_bins: int
    seed: int
    resamples: int
    cautions: tuple[Caution, ...] = ()
    failures: tuple[MethodResult, ...] = ()  # what could not be fitted
    predictions: Mapping[str, Predictions] = field(default_factory=dict, repr=False, compare=False)  # of the test rows

    @property
    def clamped(self) -> MethodResult:
        """The clamped network."""
        return self.entries[-1]

    @property
    def moves(self) -> bool:
        """Whether δ is anything but 0."""
        return self.norm > 0

    @property
    def rival(self) -> str:
        """The best without δ: temperature scaling or the head alone, whichever has the lower log-loss here."""
        beside = [entry for entry in self.entries[:-1] if entry.name in {TEMPERATURE, self.head}]
        return min(beside, key=lambda entry: entry.nll).name if beside else UNCALIBRATED

    def find(self, name: str) -> MethodResult | None:
        """The entry or part of that name, if it has numbers."""
        return next((entry for entry in (*self.entries, *self.parts) if entry.name == name), None)


def clamping_metrics(n_bins: int = 15) -> tuple[Metric, ...]:
    """What is judged."""
    return Accuracy(), NLL(), ECE(n_bins), ACE(n_bins), Brier(), AUROC()
