"""Summary of a fit of Neural Clamping: what was tried, what was chosen, and how well the optimum is known."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Self, final

from calibrant.checks import check_at_least
from calibrant.errors import CalibrantWarning, Caveat, InputError
from calibrant.numerics.certificate import Certificate

__all__ = ["ClampingOutcome", "ClampingSummary", "StrengthTrial", "caveats_of"]


class ClampingOutcome(StrEnum):
    """What a fit found out about δ on samples that δ had not seen."""

    helps = "helps"
    no_help = "no_help"
    untried = "untried"  # cross-validation was not possible, so δ is 0
    not_asked = "not_asked"  # the strength was given, or chosen on the samples of the fit


@final
@dataclass(frozen=True)
class StrengthTrial:
    """One strength λ of the penalty on δ, judged on rows that its δ has not seen.

    Args:
        strength: λ, per mean loss; infinity is temperature scaling.
        change: In cross-validated log-loss against λ = ∞; below 0 is better.
        standard_error: Of the change.
        norm: ‖δ‖.
    """

    strength: float
    change: float
    standard_error: float
    norm: float


@final
@dataclass(frozen=True)
class ClampingSummary:
    """How a clamped model came about.

    Args:
        settings: The method's options, as plain values and lists.
        n_samples: Number of samples it was fitted on.
        seconds: Taken by the fit.
        certificate: Of the optimum over δ; None where there was nothing to minimise.
        strength: The λ chosen; infinity if δ did not help.
        gamma: Of the focal loss; 0 is the log-loss.
        trials: Every λ tried.
        notes: What should be known about the answer, in sentences. Where strengths were cross-validated, the first
            states the outcome.
        caveats: The kinds of those notes that change how the answer is to be read.
    """

    settings: dict[str, Any]
    n_samples: int
    seconds: float
    certificate: Certificate | None
    strength: float
    gamma: float
    trials: tuple[StrengthTrial, ...] = ()
    notes: tuple[str, ...] = ()
    caveats: tuple[Caveat, ...] = ()

    @property
    def outcome(self) -> ClampingOutcome:
        """Whether δ helps, as far as the calibration samples show it."""
        given = self.settings.get("strength")
        cross_validated = given == "path" or isinstance(given, list)
        if not cross_validated or self.settings.get("choose_by", "cross-validated-nll") != "cross-validated-nll":
            return ClampingOutcome.not_asked
        if not self.trials:
            return ClampingOutcome.untried
        return ClampingOutcome.no_help if math.isinf(self.strength) else ClampingOutcome.helps

    def as_dict(self) -> dict[str, Any]:
        """Plain values; infinities stay numbers.

        Example:
            >>> summary = ClampingSummary({}, 100, 1.5, None, strength=3.0, gamma=0.0)
            >>> ClampingSummary.from_dict(summary.as_dict()) == summary
            True
        """
        certificate = None if self.certificate is None else self.certificate._asdict()
        trials = [asdict(trial) for trial in self.trials]
        lists = {"trials": trials, "notes": list(self.notes), "caveats": [str(caveat) for caveat in self.caveats]}
        return vars(self) | {"certificate": certificate} | lists

    @classmethod
    def from_dict(cls, described: Mapping[str, Any]) -> Self:
        """The reverse of :meth:`as_dict`.

        Raises:
            InputError: If a number is none, or below 0.
        """
        certificate = described["certificate"]
        known = {str(caveat): caveat for caveat in Caveat}  # earlier versions wrote none, later ones may write others
        trials = tuple(StrengthTrial(**trial) for trial in described["trials"])
        described = {"n_samples": described.get("rows"), **described}  # the name in files of version 2 and before
        for name in ("n_samples", "seconds", "strength", "gamma"):
            _check_from_zero(described[name], name)
        for trial in trials:
            for name in ("strength", "standard_error", "norm"):
                _check_from_zero(getattr(trial, name), name)
        return cls(
            settings=dict(described["settings"]),
            n_samples=check_at_least(described["n_samples"], 0, "n_samples"),
            seconds=float(described["seconds"]),
            certificate=None if certificate is None else Certificate(**certificate),
            strength=float(described["strength"]),
            gamma=float(described["gamma"]),
            trials=trials,
            notes=tuple(map(str, described["notes"])),
            caveats=tuple(known[name] for name in described.get("caveats", ()) if name in known),
        )


def caveats_of(warned: Sequence[CalibrantWarning]) -> tuple[Caveat, ...]:
    """The kinds of the warnings that have one, each once."""
    return tuple(dict.fromkeys(warning.caveat for warning in warned if warning.caveat is not None))


def _check_from_zero(value: object, name: str) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or value < 0:
        raise InputError(f"{name} must be a number from 0; got {value!r}.")
