"""How things are timed: side by side, in turns, by processor time, on one thread."""

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

__all__ = ["in_turns"]


Name = TypeVar("Name")


def in_turns(
    tasks: Mapping[Name, Callable[[], object]],
    *,
    rounds: int = 5,
    clock: Callable[[], float] = time.process_time,
    before: Callable[[Name], object] = lambda _name: None,
) -> dict[Name, float]:
    """Least processor seconds of each task over some rounds in which all of them run one after another.

    A machine under load slows all of them alike, so only ratios of one call mean anything.

    Args:
        tasks: By name.
        rounds: How often each is run.
        clock: Another one where the work is not the processor's.
        before: Called with a task's name each time before it is run, and not timed.
    """
    best = dict.fromkeys(tasks, float("inf"))
    for _ in range(rounds):
        for name, task in tasks.items():
            before(name)
            start = clock()
            task()
            best[name] = min(best[name], clock() - start)
    return best
