"""Neural Clamping on trained networks: the paper's tables, and a search for settings in which δ helps.

    python experiments/clamping/study.py pack CIFAR_FOLDER unseen.npz
    python experiments/clamping/study.py clamp PART OUT [--images unseen.npz] [--runs FOLDER] [--blood bloodcells.npz]
    python experiments/clamping/judge.py OUT

``clamp`` wants an accelerator for all but the digits, and goes on where it stopped: one line a fit is added to
OUT/records.jsonl. ``judge.py`` adds the methods that need logits only, and writes docs/clamping-study.md.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from networks import Network, blood_cells, digits, few_blood_cells, pack, unseen
from page import PLANNED
from torch import Tensor

from calibrant.calibrators import StructuredVectorScaling, TemperatureScaling
from calibrant.clamping import ClampedModel, DataDrivenStart, ExactSolver, LowFrequencies, NeuralClamping, PerChannel
from calibrant.errors import FitError
from calibrant.evidence import difference
from calibrant.metrics import ACE, AUROC, ECE, NLL, SCE, Accuracy, Brier, Entropy
from calibrant.predictions import Predictions
from calibrant.training import predict

MEASURED = (Accuracy(), Entropy(), ECE(), ACE(), SCE(), NLL(), Brier(), AUROC())
COMPARED = (Accuracy(), ECE(), NLL(), Brier(), AUROC())
FAST = ExactSolver(precision="tensor-float32")


class Fit(NamedTuple):
    """One method, by its name in the tables."""

    name: str
    make: Callable[[Network], NeuralClamping]


OURS = [
    Fit("nc", lambda on: NeuralClamping(solver=FAST, seed=on.seed)),
    Fit("nc-low-frequencies", lambda on: NeuralClamping(solver=FAST, delta_shape=LowFrequencies(4), seed=on.seed)),
    Fit("nc-focal", lambda on: NeuralClamping(solver=FAST, gamma=1.0, strength="tenth-of-loss", seed=on.seed)),
    Fit("nc-tenth", lambda on: NeuralClamping(solver=FAST, strength="tenth-of-loss", seed=on.seed)),
]
PAPER = [
    Fit("paper-focal", lambda on: NeuralClamping.paper(seed=on.seed)),
    Fit("paper-ce", lambda on: NeuralClamping.paper(gamma=0.0, seed=on.seed)),
    Fit("toolkit", lambda on: NeuralClamping.toolkit(seed=on.seed)),
]
MORE = [
    Fit("nc-channel", lambda on: NeuralClamping(solver=FAST, delta_shape=PerChannel(), seed=on.seed)),
    Fit("nc-augmented", lambda on: NeuralClamping(solver=FAST, augmentation="crop-flip", views=2, seed=on.seed)),
    Fit("nc-svs", lambda on: NeuralClamping(solver=FAST, head=StructuredVectorScaling(), seed=on.seed)),
]
STARTS = [
    Fit(
        "paper-data-driven",
        lambda on: replace(NeuralClamping.paper(seed=on.seed), start=DataDrivenStart(), space=on.space),
    )
]


FITS = {fit.name: fit for fit in OURS + PAPER + MORE + STARTS}


def parts(given: argparse.Namespace) -> dict[str, Iterator[Network]]:
    """What can be run, by name; each gives networks with their rows. The fits to be made stand in ``PLANNED``."""
    seeds = {name: planned for name, (planned, _) in PLANNED.items()}
    return {
        "resnet110": unseen(given, "resnet110", seeds["resnet110"]),
        "resnet32": unseen(given, "resnet32", seeds["resnet32"]),
        "resnet32-10k": unseen(given, "resnet32", seeds["resnet32-10k"], rows=10_000),
        "resnet32-pattern": unseen(given, "resnet32", seeds["resnet32-pattern"], pattern=25.0),
        "blood": blood_cells(given, seeds["blood"]),
        "digits-few": digits(seeds["digits-few"], training_rows=100, calibration_rows=1000),
        "digits-many": digits(seeds["digits-many"], training_rows=1000, calibration_rows=400),
        "blood-few": few_blood_cells(given, seeds["blood-few"]),
    }


def clamp(given: argparse.Namespace) -> None:
    """Make the fits of a part that are not in the records yet."""
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / "records.jsonl"
    done = {_key(record) for record in _read(path)}
    fits = [FITS[name] for name in PLANNED[given.part][1]]
    for network in parts(given)[given.part]:
        plain: tuple[Predictions, Predictions] | None = None
        for fit in fits:
            record = {"part": given.part, "network": network.name, "seed": network.seed, "method": fit.name}
            if _key(record) in done:
                continue
            plain = plain or _plain(network, given.out / f"{given.part}-{network.seed}.npz")
            record |= _fitted(network, fit.make(network), *plain)
            with path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(record) + "\n")
            told = {name: round(record[name], 4) for name in ("T", "norm", "seconds") if record.get(name) is not None}
            print(
                given.part, network.name, network.seed, fit.name, told, record.get("to_ts", {}).get("nll"), flush=True
            )


def _plain(network: Network, file: Path) -> tuple[Predictions, Predictions]:
    """The test rows as they come out and after a temperature; logits are kept for the methods that want no more."""
    logits = {part: predict(network.model, rows, batch_size=2000) for part, rows in network.inputs.items()}
    held = {f"{part}_logits": values.half().cpu().numpy() for part, values in logits.items()}
    np.savez(file, **held, **{f"{part}_labels": values.cpu().numpy() for part, values in network.labels.items()})
    calibration, test = (
        Predictions.from_logits(logits[part], network.labels[part]) for part in ("calibration", "test")
    )
    return test, TemperatureScaling().fit(calibration).transform(test)


def _fitted(network: Network, method: NeuralClamping, none: Predictions, ts: Predictions) -> dict[str, Any]:
    start = time.perf_counter()
    try:
        clamped = method.fit(network.model, (network.inputs["calibration"], network.labels["calibration"]))
    except FitError as error:
        return {"error": str(error), "seconds": time.perf_counter() - start}
    seconds = time.perf_counter() - start
    after = _predictions(clamped, network.inputs["test"], network.labels["test"])
    summary = clamped.summary
    assert summary is not None
    differences = difference(ts, after, COMPARED, resamples=1000, seed=0)
    return {
        "seconds": round(seconds, 2),
        "T": float(clamped.head.temperature) if hasattr(clamped.head, "temperature") else None,
        "norm": float(clamped.delta.norm()),
        "largest": float(clamped.delta.abs().max()),
        "strength": summary.strength,
        "gamma": summary.gamma,
        "passes": None if summary.certificate is None else summary.certificate.passes,
        "trials": [list(trial.__dict__.values()) for trial in summary.trials],
        "notes": list(summary.notes),
        "rows": summary.n_samples,
        "metrics": _measured(after),
        "none": _measured(none),
        "ts": _measured(ts),
        "to_ts": {
            name: [round(value, 6) for value in (each.value, each.low, each.high, each.p)]
            for name, each in differences.items()
        },
    }


def _predictions(clamped: ClampedModel, inputs: Tensor, labels: Tensor) -> Predictions:
    return Predictions.from_logits(predict(clamped, inputs, batch_size=2000), labels)


def _measured(predictions: Predictions) -> dict[str, float]:
    return {metric.name: round(float(metric(predictions)), 6) for metric in MEASURED}


def _key(record: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(record[name] for name in ("part", "network", "seed", "method"))


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def main() -> None:
    """Read the arguments and do what they say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("pack")
    packing.add_argument("data", type=Path)
    packing.add_argument("out", type=Path)
    clamping = commands.add_parser("clamp")
    clamping.add_argument("part")
    clamping.add_argument("out", type=Path)
    for name in ("images", "runs", "blood"):
        clamping.add_argument(f"--{name}", type=Path)
    given = parser.parse_args()
    if given.command == "pack":
        pack(given.data, given.out)
    else:
        clamp(given)


if __name__ == "__main__":
    sys.exit(main())
