"""``python -m benchmarks.peers [n] [k]``: run every task once, to see that it runs and what it says."""

import sys
import time

from . import FITS, PEERS, UNAVAILABLE, Rows


def main(n: int = 5_000, k: int = 20) -> None:
    """Print task, answer and seconds."""
    rows = Rows.make(n, k).prepare()
    for peer, tasks in PEERS.items():
        for task, run in tasks.items():
            start = time.process_time()
            answer = run(rows)
            print(f"{peer:24} {task:28} {answer:.6f} {time.process_time() - start:8.3f} s")
    for peer, fits in FITS.items():
        for fit, train in fits.items():
            start = time.process_time()
            fitted = train(rows)
            seconds = time.process_time() - start
            print(f"{peer:24} {fit:28} {float(fitted(rows).max(axis=1).mean()):.6f} {seconds:8.3f} s")
    for peer, reason in UNAVAILABLE.items():
        print(f"{peer:24} not available: {reason}")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
