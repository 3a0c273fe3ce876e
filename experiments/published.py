"""What a paper reports, held against a study's own numbers.

``published.toml`` lists numbers, with the tolerance within which another network may differ and the reason for it, and
claims, as the sign of a difference. Each says what was found when it was last looked at; ``check`` fails where the
records now say otherwise.
"""

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, final, get_args

from calibrant.errors import InputError
from experiments.numbers import Number

__all__ = ["Claim", "Finding", "Published", "Verdict", "findings", "read_published"]

Verdict: TypeAlias = Literal["agrees", "differs", "holds", "refuted", "open", "missing"]
_SIGNS = {"below": -1, "above": 1}


@final
@dataclass(frozen=True)
class Published:
    """A number of the paper.

    Args:
        id: Of the study's own number.
        what: Where it stands, such as ``Table 4, Neural Clamping, ECE in percent``.
        value: As printed.
        tolerance: Within which ours agrees with it, absolute.
        reason: For the tolerance, and for a disagreement.
        found: The verdict of the records at hand.
    """

    id: str
    what: str
    value: float
    tolerance: float
    reason: str
    found: Verdict

    def verdict(self, number: Number | None) -> Verdict:
        """Agree where our number is within the tolerance, differ where our whole interval is outside; else open."""
        if number is None:
            return "missing"
        if abs(number.value - self.value) <= self.tolerance:
            return "agrees"
        low, high = _ends(number)
        return "open" if low <= self.value + self.tolerance and high >= self.value - self.tolerance else "differs"


@final
@dataclass(frozen=True)
class Claim:
    """A claim of the paper about a difference.

    Args:
        id: Of the study's own difference.
        what: The claim in words.
        sign: On which side of 0 the difference must lie.
        reason: Why it is tested in this way, or what explains the outcome.
        found: The verdict of the records at hand.
    """

    id: str
    what: str
    sign: Literal["below", "above"]
    reason: str
    found: Verdict

    def verdict(self, number: Number | None) -> Verdict:
        """Hold where the whole interval is on the claimed side, refuted where it is on the other; else open.

        A number without an interval decides nothing.
        """
        if number is None:
            return "missing"
        if not math.isfinite(number.low):
            return "open"
        ends = [_SIGNS[self.sign] * end for end in _ends(number)]
        if min(ends) > 0:
            return "holds"
        return "refuted" if max(ends) < 0 else "open"


@final
@dataclass(frozen=True)
class Finding:
    """A published number or claim with ours."""

    published: Published | Claim
    number: Number | None
    verdict: Verdict

    @property
    def is_as_recorded(self) -> bool:
        """Whether the records still say what ``published.toml`` says of them."""
        return self.verdict == self.published.found

    def __str__(self) -> str:
        ours = "no records" if self.number is None else f"{self.number.value:.4g}"
        if self.number is not None and math.isfinite(self.number.low):
            ours += f" ({self.number.low:.4g} … {self.number.high:.4g}; {self.number.about})"
        theirs = ""
        if isinstance(self.published, Published):
            theirs = f"paper {self.published.value:g} ± {self.published.tolerance:g}, "
        off = "" if self.is_as_recorded else f"; published.toml says {self.published.found}"
        return f"{self.verdict:8} {self.published.id}: {theirs}ours {ours}. {self.published.what}{off}"


def read_published(path: Path) -> list[Published | Claim]:
    """Read a paper's numbers and claims.

    Args:
        path: Of ``published.toml``.

    Raises:
        InputError: If an entry lacks a field, has an unknown one, or repeats an id.
    """
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    entries: list[Published | Claim] = []
    try:
        entries += [Published(**entry) for entry in document.pop("number", [])]
        entries += [Claim(**entry) for entry in document.pop("claim", [])]
    except TypeError as error:
        raise InputError(f"{path}: an entry must have the fields of its kind and no others; {error}.") from None
    if document:
        raise InputError(f"{path}: entries must be under [[number]] or [[claim]]; got {', '.join(document)}.")
    ids = [entry.id for entry in entries]
    for entry in entries:
        if ids.count(entry.id) > 1:
            raise InputError(f"{path}: every id must be there once; {entry.id} is there {ids.count(entry.id)} times.")
        if entry.found not in get_args(Verdict) or (isinstance(entry, Claim) and entry.sign not in _SIGNS):
            raise InputError(f"{path}: {entry.id} must have a known verdict and sign; got {entry}.")
    return entries


def findings(published: Sequence[Published | Claim], numbers: Mapping[str, Number]) -> list[Finding]:
    """Return every entry with our number and the verdict."""
    return [Finding(entry, numbers.get(entry.id), entry.verdict(numbers.get(entry.id))) for entry in published]


def _ends(number: Number) -> tuple[float, float]:
    return (number.low, number.high) if math.isfinite(number.low) else (number.value, number.value)
