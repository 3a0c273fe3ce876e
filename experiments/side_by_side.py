"""Train several networks on one GPU, each at its own pace."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch

from calibrant.errors import FitError
from calibrant.training import EpochRecord, Session

__all__ = ["train_side_by_side"]

_QUEUED_STEPS = 24  # that a network may have queued on the device: enough to keep it busy, too few to fill its queue


def train_side_by_side(
    sessions: Sequence[Session],
    *,
    after_epoch: Callable[[Session, EpochRecord], None],
    after_failure: Callable[[Session, FitError], None],
) -> None:
    """Train all networks to their last epoch, in a thread each; while one is evaluated the others train.

    The results are those of :func:`calibrant.training.train_together` for networks whose recorded step draws no random
    numbers, such as networks without dropout. Only steps run in parallel; what precedes and follows an epoch does not.

    Args:
        sessions: On one device.
        after_epoch: Called after each epoch of each network, never by two threads at once.
        after_failure: Called when the loss or the logits of a network are no longer finite; the others go on.
    """
    one_at_a_time = threading.Lock()

    def train(session: Session) -> None:
        while True:
            for step in range(session.steps_an_epoch):
                session.advance()
                if (step + 1) % _QUEUED_STEPS == 0:
                    session.wait()
            session.wait()
            with one_at_a_time:
                try:
                    record = session.end_epoch()
                except FitError as error:
                    after_failure(session, error)
                    return
                after_epoch(session, record)
                if session.is_finished:
                    return
                session.begin_epoch()

    unfinished = [session for session in sessions if not session.is_finished]
    if not unfinished:
        return
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        for session in unfinished:  # not in its thread: nothing else may run while a step is recorded
            session.begin_epoch()
        with ThreadPoolExecutor(len(unfinished)) as pool:
            for future in [pool.submit(train, session) for session in unfinished]:
                future.result()
