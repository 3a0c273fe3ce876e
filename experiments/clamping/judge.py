"""The methods that need logits only, on the rows that the study's clamped networks were judged on.

    python experiments/clamping/judge.py FOLDER

FOLDER is what ``study.py clamp`` left: records, and the logits of each network and draw. Adds to records.jsonl beside
this file, and writes docs/clamping-study.md.
"""

import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from page import write_page

from calibrant import catalogue
from calibrant.errors import CalibrantWarning, FitError
from calibrant.evidence import difference
from calibrant.metrics import ACE, AUROC, ECE, NLL, SCE, Accuracy, Brier, Entropy
from calibrant.predictions import Predictions

RECORDS = Path(__file__).parent / "records.jsonl"
MEASURED = (Accuracy(), Entropy(), ECE(), ACE(), SCE(), NLL(), Brier(), AUROC())
COMPARED = (Accuracy(), ECE(), NLL(), Brier(), AUROC())
METHODS = {
    "ts-grid": "temperature(criterion=ece-neural-clamping)",
    "vs": "vector",
    "ms": "matrix",
    "ms-odir": "ms_odir",
    "dir-odir": "dirichlet_odir",
    "svs": "svs",
    "sms": "sms",
}


def main(folder: Path) -> None:
    """Judge every network and draw of the folder that has not been judged yet."""
    records = {_key(each): each for each in _read(RECORDS)}
    records |= {_key(each): each for each in _read(folder / "records.jsonl")}
    for part, network, seed in sorted({key[:3] for key in records}):
        file = folder / f"{part}-{seed}.npz"
        missing = [name for name in METHODS if (part, network, seed, name) not in records]
        if not file.exists() or not missing or part not in {"resnet110", "blood"}:
            continue
        calibration, test = _logits(file)
        ts = catalogue.parse_calibrator("temperature").fit(calibration).transform(test)
        for name in missing:
            record = {"part": part, "network": network, "seed": seed, "method": name}
            record |= _judged(name, calibration, test, ts)
            records[_key(record)] = record
            print(part, network, seed, name, round(record["seconds"], 1), record.get("error", ""), flush=True)
            RECORDS.write_text("".join(json.dumps(each) + "\n" for each in records.values()), encoding="utf-8")
    RECORDS.write_text("".join(json.dumps(each) + "\n" for each in records.values()), encoding="utf-8")
    write_page(list(records.values()))


def _judged(name: str, calibration: Predictions, test: Predictions, ts: Predictions) -> dict[str, Any]:
    start = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrantWarning)
            after = catalogue.parse_calibrator(METHODS[name]).fit(calibration).transform(test)
    except FitError as error:
        return {"seconds": time.perf_counter() - start, "error": str(error)}
    seconds = time.perf_counter() - start
    differences = difference(ts, after, COMPARED, resamples=1000, seed=0)
    return {
        "seconds": round(seconds, 2),
        "metrics": {metric.name: round(float(metric(after)), 6) for metric in MEASURED},
        "to_ts": {
            name: [round(value, 6) for value in (each.value, each.low, each.high, each.p)]
            for name, each in differences.items()
        },
    }


def _logits(file: Path) -> tuple[Predictions, Predictions]:
    with np.load(file) as archive:
        calibration, test = (
            Predictions.from_logits(torch.from_numpy(archive[f"{part}_logits"]).float(), archive[f"{part}_labels"])
            for part in ("calibration", "test")
        )
    return calibration, test


def _key(record: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(record[name] for name in ("part", "network", "seed", "method"))


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


if __name__ == "__main__":
    main(Path(sys.argv[1]))
