"""A judgement as JSON, under a versioned schema."""

from importlib.metadata import version
from typing import Any

from calibrant.report.clamping.judgement import ClampingJudgement
from calibrant.report.clamping.wording import clamping_verdict
from calibrant.report.document import plain_estimate, without_nan

__all__ = ["CLAMPING_SCHEMA", "clamping_to_document"]

CLAMPING_SCHEMA = "calibrant.clamping/1"


def clamping_to_document(
    found: ClampingJudgement, *, network: str | None = None, calibration: str | None = None, test: str | None = None
) -> dict[str, Any]:
    """The judgement as plain data: numbers that do not exist (NaN, infinity) are None.

    ``methods[i]`` has ``name``, ``title``, ``metrics.<name>`` as in an evaluation, ``against.<rival>.<metric>`` as in a
    leaderboard, ``changed``, ``seconds`` and ``notes``. ``fit`` is the summary of the clamped model; a ``strength`` of
    None is an infinite one, δ = 0.

    Args:
        found: The numbers.
        network: Where the network came from.
        calibration: Where the rows to fit on came from.
        test: Where the rows to judge by came from.
    """
    words = clamping_verdict(found)
    document: dict[str, Any] = {
        "schema": CLAMPING_SCHEMA,
        "calibrant": version("calibrant"),
        "network": network,
        "calibration": {"source": calibration, "n": found.calibration_rows},
        "test": {"source": test, "n": found.test_rows},
        "classes": found.classes,
        "bins": found.n_bins,
        "seed": found.seed,
        "resamples": found.resamples,
        "verdict": {"headline": words.headline, "findings": words.findings, "next_steps": words.next_steps},
        "delta": {"norm": found.norm, "largest": found.largest},
        "temperature": found.temperature,
        "head": found.head,
        "methods": [
            {
                "name": entry.name,
                "title": entry.title,
                "metrics": {name: plain_estimate(estimate) for name, estimate in entry.metrics.items()},
                "against": {
                    rival: {name: vars(change) for name, change in changes.items()}
                    for rival, changes in entry.against.items()
                },
                "changed": entry.changed,
                "seconds": entry.seconds,
                "notes": list(entry.notes),
            }
            for entry in found.entries
        ],
        "fit": found.summary.as_dict(),
    }
    plain: dict[str, Any] = without_nan(document)
    return plain
