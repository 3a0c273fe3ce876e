"""The numbers behind the picture of an ablation."""

from dataclasses import dataclass
from typing import final

from calibrant.diagrams.leaderboard import Dot

__all__ = ["AblationDiagram", "AblationPanel"]


@final
@dataclass(frozen=True)
class AblationPanel:
    """One metric: a dot for each row, in their order."""

    metric: str
    lower_is_better: bool | None  # None: neither
    dots: tuple[Dot, ...]


@final
@dataclass(frozen=True)
class AblationDiagram:
    """Rows in the order of the table, and a panel for each metric."""

    names: tuple[str, ...]
    temperatures: tuple[float | None, ...]  # None where the head is no temperature
    rival: str  # the row that the others are compared with
    panels: tuple[AblationPanel, ...]
    norm: float  # of δ
    n: int
