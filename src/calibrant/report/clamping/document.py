"""A judgement as JSON, under a versioned schema."""

from importlib.metadata import version
from pathlib import PurePath
from typing import Any

from calibrant.clamping import ClampingEvaluation
from calibrant.report.clamping.wording import clamping_verdict
from calibrant.report.comparison import held_out_fields
from calibrant.report.comparison import method_fields as entry_to_plain
from calibrant.report.json import to_plain

__all__ = ["CLAMPING_SCHEMA", "clamping_to_document"]

CLAMPING_SCHEMA = "calibrant.clamping/1"


def clamping_to_document(
    found: ClampingEvaluation, *, network: str | None = None, calibration: str | None = None, test: str | None = None
) -> dict[str, Any]:
    """The judgement as plain data: numbers that do not exist (NaN, infinity) are None.

    ``methods[i]`` has ``name``, ``title``, ``failure``, ``metrics.<name>`` as in an evaluation,
    ``differences.<baseline>.<metric>`` as in a comparison, ``changed``, ``seconds`` and ``notes``; so have the
    ``parts``, which separate δ from T, and the ``failures``, which have no numbers. ``delta.effect`` names the two of
    these that differ in δ alone, ``with`` and ``without`` it, and has their ``changes``; it is None where δ is 0 or a
    head had no optimum.
    ``fit`` is the summary of the clamped model; a ``strength`` of None is an infinite one, δ = 0.

    Args:
        found: The numbers.
        network: Where the network came from.
        calibration: Where the rows to fit on came from.
        test: Where the rows to judge by came from.
    """
    document: dict[str, Any] = {
        "schema": CLAMPING_SCHEMA,
        "calibrant": version("calibrant"),
        **held_out_fields(
            found,
            calibration=None if calibration is None else PurePath(calibration),
            test=None if test is None else PurePath(test),
        ),
        "network": network,
        "verdict": vars(clamping_verdict(found)),
        "delta": {"norm": found.norm, "largest": found.largest, "effect": _effect(found)},
        "temperature": found.temperature,
        "head": found.head,
        "methods": [entry_to_plain(entry) for entry in found.methods],
        "parts": [entry_to_plain(entry) for entry in found.parts],
        "failures": [entry_to_plain(entry) for entry in found.failures],
        "fit": found.summary.as_dict(),
    }
    plain: dict[str, Any] = to_plain(document)
    return plain


def _effect(found: ClampingEvaluation) -> dict[str, Any] | None:
    if found.effect is None:
        return None
    return {"with": found.with_delta, "without": found.without_delta, "changes": found.effect}
