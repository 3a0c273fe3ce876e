"""How things are timed: side by side, in turns, by processor time, on one thread."""

import time
from collections.abc import Callable, Mapping

__all__ = ["in_turns"]


def in_turns(tasks: Mapping[str, Callable[[], object]], *, rounds: int = 5) -> dict[str, float]:
    """Least processor seconds of each task over some rounds in which all of them run one after another.

    A machine under load slows all of them alike, so only ratios of one call mean anything.
    """
    best = dict.fromkeys(tasks, float("inf"))
    for _ in range(rounds):
        for name, task in tasks.items():
            start = time.process_time()
            task()
            best[name] = min(best[name], time.process_time() - start)
    return best
