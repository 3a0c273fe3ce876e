"""A leaderboard as JSON, under a versioned schema."""

from typing import Any

from calibrant.comparison import Comparison, MethodResult
from calibrant.report.comparison.terms import terms_to_plain
from calibrant.report.comparison.wording import leaderboard_verdict
from calibrant.report.document import plain_estimate, without_nan

__all__ = ["LEADERBOARD_SCHEMA", "entry_to_plain", "leaderboard_to_document"]

LEADERBOARD_SCHEMA = "calibrant.leaderboard/1"


def leaderboard_to_document(
    board: Comparison, *, calibration: str | None = None, test: str | None = None
) -> dict[str, Any]:
    """The leaderboard as plain data, in its order: numbers that do not exist (NaN) are None.

    ``methods[i]`` has ``name`` and ``title``, then ``failure`` with the reason why it was not fitted, or None and:
    ``metrics.<name>`` as in an evaluation; ``differences.<baseline>.<metric>`` with ``baseline`` and ``candidate`` (the
    two numbers), ``value`` (candidate minus baseline), ``low``, ``high``, ``p``, ``corrected_p`` and ``side``
    ("better", "worse", "alike"); ``to_best``, the same for nll against the best; ``changed``, ``seconds``;
    ``own_samples``, the scores ``before`` and ``after`` of the samples of the fit, means over ``n`` of them; ``notes``.

    Args:
        board: The numbers.
        calibration: Where the rows to fit on came from.
        test: Where the rows to judge by came from.
    """
    document: dict[str, Any] = {
        "schema": LEADERBOARD_SCHEMA,
        **terms_to_plain(board, calibration=calibration, test=test),
        "verdict": vars(leaderboard_verdict(board)),
        "recommended": board.recommended.name,
        "methods": [entry_to_plain(entry) | _to_best(entry) for entry in board.methods],
    }
    plain: dict[str, Any] = without_nan(document)
    return plain


def entry_to_plain(entry: MethodResult) -> dict[str, Any]:
    """One method: its numbers and their differences to its rivals', or why there are none."""
    found: dict[str, Any] = {"name": entry.name, "title": entry.title, "failure": entry.failure}
    if entry.failure is None:
        found |= {
            "metrics": {name: plain_estimate(estimate) for name, estimate in entry.metrics.items()},
            "differences": {
                rival: {name: vars(change) for name, change in changes.items()}
                for rival, changes in entry.differences.items()
            },
            "changed": entry.changed,
            "seconds": entry.seconds,
        }
        summary = None if entry.map is None else entry.map.summary
        if summary is not None and summary.compared:
            found["own_samples"] = {"n": summary.compared, "before": summary.before, "after": summary.after}
    return found | {"notes": list(entry.notes)}


def _to_best(entry: MethodResult) -> dict[str, Any]:
    if entry.failure is not None:
        return {}
    return {"to_best": None if entry.to_best is None else vars(entry.to_best)}
