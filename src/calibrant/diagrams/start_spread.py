"""The numbers behind the picture of how much a fit depends on where δ starts."""

from dataclasses import dataclass
from typing import final

from torch import Tensor

__all__ = ["StartSpread"]


@final
@dataclass(frozen=True, eq=False)
class StartSpread:
    """Every number once for each start and seed, (starts, seeds) in float64."""

    starts: tuple[str, ...]
    seeds: tuple[int, ...]
    values: dict[str, Tensor]  # by metric, of the test rows
    temperature: Tensor
    norm: Tensor  # of δ
    n: int

    def spread(self, metric: str) -> Tensor:
        """Standard deviation over the seeds, (starts,); NaN of a single seed."""
        values = self.values[metric]
        return values.std(dim=1) if len(self.seeds) > 1 else values.new_full((len(self.starts),), float("nan"))
