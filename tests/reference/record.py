"""Ask every peer and write down what it says: ``make reference``.

Runs in the environment of ``requirements.txt``, not in that of the tests. Writes ``recorded.json`` beside this file:
``right`` holds the numbers that ours must equal, ``fits`` the probabilities after a fit that ours must equal, ``wrong``
the numbers that ours must not, ``left_out`` what is not compared and why, ``data`` a digest of the labels by which the
tests see that they made the same data.
"""

import hashlib
import json
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import fitted
from data import DATASETS
from peers import PEERS

RECORDED = Path(__file__).with_name("recorded.json")


def data_digests() -> dict[str, dict[str, object]]:
    """What identifies each data set."""
    made = {name: make() for name, make in DATASETS.items()}
    return {
        name: {"shape": data.probs.shape, "labels_sha256": hashlib.sha256(data.labels.tobytes()).hexdigest()}
        for name, data in made.items()
    }


def right_answers() -> Iterator[dict[str, Any]]:
    """Every peer's answer to every question on every data set it is asked about."""
    for peer in PEERS:
        for question in peer.QUESTIONS:
            for name, make in DATASETS.items():
                if name not in question.left_out:
                    yield {"peer": peer.PEER, "version": version(peer.PEER), **question.record(name, make())}


def fits() -> Iterator[dict[str, Any]]:
    """Every peer's probabilities after every fit on every data set it is asked about."""
    for peer in fitted.PEERS:
        for question in peer.FITS:
            for name in question.datasets:
                yield {"peer": peer.PEER, "version": version(peer.PEER), **question.record(name, DATASETS[name]())}


def wrong_answers() -> Iterator[dict[str, Any]]:
    """Every case that a peer gets wrong."""
    for peer in PEERS:
        for wrong in peer.wrong_answers():
            yield {"peer": peer.PEER, "version": version(peer.PEER), **asdict(wrong)}


def left_out() -> Iterator[dict[str, str]]:
    """What is not compared, and why."""
    for peer in PEERS:
        for question in peer.QUESTIONS:
            for name, reason in question.left_out.items():
                yield {"peer": peer.PEER, "metric": question.metric, "dataset": name, "reason": reason}
    for peer in fitted.PEERS:
        for method, reason in peer.NOT_COMPARED.items():
            yield {"peer": peer.PEER, "method": method, "reason": reason}


def one_record_a_line(sections: dict[str, dict[str, object] | list[object]]) -> str:
    """JSON in which a changed answer is a changed line."""
    written = []
    for name, section in sections.items():
        if isinstance(section, dict):
            records = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in section.items()]
            opening, closing = "{", "}"
        else:
            records = [json.dumps(record, allow_nan=False) for record in section]
            opening, closing = "[", "]"
        body = ",\n  ".join(records)
        written.append(f" {json.dumps(name)}: {opening}\n  {body}\n {closing}")
    return "{\n" + ",\n".join(written) + "\n}\n"


def main() -> None:
    """Record everything."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # peers warn about each other's versions
        sections = {
            "data": data_digests(),
            "right": list(right_answers()),
            "fits": list(fits()),
            "wrong": list(wrong_answers()),
            "left_out": list(left_out()),
        }
    RECORDED.write_text(one_record_a_line(sections))
    counts = ", ".join(f"{len(sections[name])} {name.replace('_', ' ')}" for name in ("right", "fits", "wrong"))
    sys.stdout.write(f"{counts} in {RECORDED.name}\n")


if __name__ == "__main__":
    main()
