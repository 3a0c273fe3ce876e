"""How a clamped model came about: what was tried, what was chosen, and how well the optimum is known."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self, final

from calibrant.checks import check_at_least
from calibrant.errors import InputError
from calibrant.numerics.certificate import Certificate

__all__ = ["ClampingSummary", "StrengthTrial"]


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
        rows: How many it was fitted on.
        seconds: Taken by the fit.
        certificate: Of the optimum over δ; None where there was nothing to minimise.
        strength: The λ chosen; infinity if δ did not help.
        gamma: Of the focal loss; 0 is the log-loss.
        trials: Every λ tried.
        notes: What should be known about the answer, in sentences.
    """

    settings: dict[str, Any]
    rows: int
    seconds: float
    certificate: Certificate | None
    strength: float
    gamma: float
    trials: tuple[StrengthTrial, ...] = ()
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain values; infinities stay numbers.

        Example:
            >>> summary = ClampingSummary({}, 100, 1.5, None, strength=3.0, gamma=0.0)
            >>> ClampingSummary.from_dict(summary.as_dict()) == summary
            True
        """
        certificate = None if self.certificate is None else self.certificate._asdict()
        trials = [asdict(trial) for trial in self.trials]
        return vars(self) | {"certificate": certificate, "trials": trials, "notes": list(self.notes)}

    @classmethod
    def from_dict(cls, described: Mapping[str, Any]) -> Self:
        """The reverse of :meth:`as_dict`.

        Raises:
            InputError: If a number is none, or below 0.
        """
        certificate = described["certificate"]
        trials = tuple(StrengthTrial(**trial) for trial in described["trials"])
        for name in ("rows", "seconds", "strength", "gamma"):
            _check_from_zero(described[name], name)
        for trial in trials:
            for name in ("strength", "standard_error", "norm"):
                _check_from_zero(getattr(trial, name), name)
        return cls(
            settings=dict(described["settings"]),
            rows=check_at_least(described["rows"], 0, "rows"),
            seconds=float(described["seconds"]),
            certificate=None if certificate is None else Certificate(**certificate),
            strength=float(described["strength"]),
            gamma=float(described["gamma"]),
            trials=trials,
            notes=tuple(map(str, described["notes"])),
        )


def _check_from_zero(value: object, name: str) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or value < 0:
        raise InputError(f"{name} must be a number from 0; got {value!r}.")
