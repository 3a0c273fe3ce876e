"""A promised number, and whether it was kept in this run."""

from dataclasses import dataclass

__all__ = ["Bound"]


@dataclass(frozen=True)
class Bound:
    """What was measured, and the most or the least it may be."""

    what: str
    measured: float
    at_most: float | None = None
    at_least: float | None = None

    @property
    def kept(self) -> bool:
        """Whether the measured number is within."""
        low = -float("inf") if self.at_least is None else self.at_least
        high = float("inf") if self.at_most is None else self.at_most
        return low <= self.measured <= high

    def __str__(self) -> str:
        promise = f"at most {self.at_most:g}" if self.at_least is None else f"at least {self.at_least:g}"
        return f"- {self.what}: {promise}, measured {self.measured:.3g}: {'met' if self.kept else '**missed**'}."
