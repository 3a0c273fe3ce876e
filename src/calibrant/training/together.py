"""Several networks trained side by side on one device: other losses, other seeds, other sizes.

A small network leaves most of a GPU idle. Their steps are queued in turn, each network on a stream of its own, and the
device runs as many at once as fit. On a CPU they simply take turns.
"""

from collections.abc import Callable, Sequence

import torch

from calibrant.training.record import EpochRecord
from calibrant.training.session import Session

__all__ = ["train_together"]


def train_together(
    sessions: Sequence[Session], *, after_epoch: Callable[[Session, EpochRecord], None] = lambda _session, _record: None
) -> None:
    """Train all networks to their last epoch, an epoch of each in turn. Torch's random state is left as it was.

    Args:
        sessions: Some may be finished, or further than others.
        after_epoch: Called after each epoch of each network.

    Raises:
        FitError: If the loss or the logits of one are no longer finite.
    """
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        while unfinished := [session for session in sessions if not session.is_finished]:
            for session in unfinished:
                session.begin_epoch()
            for at in range(max(session.steps_an_epoch for session in unfinished)):
                for session in unfinished:
                    if at < session.steps_an_epoch:
                        session.advance()
            for session in unfinished:
                after_epoch(session, session.end_epoch())
