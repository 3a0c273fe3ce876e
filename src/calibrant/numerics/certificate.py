"""How well an optimum is known: what every fit leaves behind, so that none can fail in silence."""

from typing import NamedTuple

__all__ = ["Certificate"]


class Certificate(NamedTuple):
    """Where a minimiser stopped.

    Args:
        objective: The value reached, as a mean over the rows, penalties included.
        gradient: Largest absolute entry of its gradient there, or what it may be at most after a last step that was
            not checked by another look; 0 at an exact optimum.
        steps: Iterations taken.
        passes: How often all rows were read; a subsample counts for its share.
    """

    objective: float
    gradient: float
    steps: int
    passes: float
