"""Several networks trained side by side on one device: other losses, other seeds, other sizes.

A small network leaves most of a GPU idle. Their steps are queued in turn, each network on a stream of its own, and the
device runs as many at once as fit. On a CPU they simply take turns.
"""

from collections.abc import Callable, Sequence

import torch

from calibrant.errors import FitError
from calibrant.training.record import EpochRecord
from calibrant.training.session import Session

__all__ = ["train_together"]


def train_together(
    sessions: Sequence[Session],
    *,
    after_epoch: Callable[[Session, EpochRecord], None] = lambda _session, _record: None,
    after_failure: Callable[[Session, FitError], None] | None = None,
) -> None:
    """Train all networks to their last epoch, an epoch of each in turn. Torch's random state is left as it was.

    A network whose loss or logits are no longer finite is given up, and the others go on.

    Args:
        sessions: Some may be finished, or further than others.
        after_epoch: Called after each epoch of each network.
        after_failure: Called when a network is given up. None raises the first such error once the others are done.

    Raises:
        FitError: If a network was given up, and nobody was to be told of it.
    """
    failed: dict[Session, FitError] = {}
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        while unfinished := [session for session in sessions if not (session.is_finished or session in failed)]:
            _take_an_epochs_steps(unfinished)
            for session in unfinished:
                try:
                    record = session.end_epoch()
                except FitError as error:
                    failed[session] = error
                    if after_failure is not None:
                        after_failure(session, error)
                else:
                    after_epoch(session, record)
    if failed and after_failure is None:
        raise next(iter(failed.values()))


def _take_an_epochs_steps(sessions: Sequence[Session]) -> None:
    for session in sessions:
        session.begin_epoch()
    for at in range(max(session.steps_an_epoch for session in sessions)):
        for session in sessions:
            if at < session.steps_an_epoch:
                session.advance()
