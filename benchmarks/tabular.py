"""How good the methods are behind scikit-learn's models and two networks, beside scikit-learn's own calibration.

``python -m benchmarks tabular`` measures what ``tabular.jsonl`` lacks for this kind of processor, writes
``docs/tabular-study.md`` from all records and adds a section to RESULTS.md. ``python -m benchmarks.tabular JOBS`` only
measures, in so many processes. A record is one split of one data set behind one model; it is written as soon as it is
done. The DenseNet's file is looked for at the path in ``CALIBRANT_DENSENET``; without it that network is left out.
"""

import json
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.tabular_page import section, write_page
from calibrant import catalogue
from calibrant.calibrators import Auto, Calibrator
from calibrant.datasets import load_resnet110
from calibrant.errors import CalibrantError, CalibrantWarning
from calibrant.numerics.softmax import Wanted
from calibrant.predictions import Predictions

__all__ = ["RECORDS", "measure", "report"]

RECORDS = Path(__file__).with_name("tabular.jsonl")
SPLITS = range(5)
# A fifth trains: a model that is seldom wrong leaves nothing to calibrate, and little to measure by.
TRAINING = 0.2
DATA = ("digits", "wine", "breast cancer", "synthetic")
MODELS = ("forest", "naive Bayes", "k-NN", "boosting", "logistic", "MLP")
DENSENET, RESNET = "DenseNet-BC-100", "ResNet-110"
NETWORKS = {DENSENET: SPLITS, RESNET: range(1)}  # the ResNet comes with parts of its own
# They want features, or steps that nobody named.
NOT_BY_THEMSELVES = {"chain", "density_ratio", "bin_mean_shift", "auto"}
ON_NETWORKS = ("uncalibrated", "temperature", "svs", "sms", "order_invariant", "dirichlet_odir")
THEIRS = ("temperature", "sigmoid", "isotonic")


class Case(NamedTuple):
    """One split of one data set behind one model; of a network, the model is empty."""

    data: str
    model: str
    split: int


def cases() -> list[Case]:
    """All of them, the slowest first, so that several processes end together."""
    tabular = [Case(data, model, split) for data in reversed(DATA) for model in MODELS for split in SPLITS]
    return [*(Case(network, "", split) for network, splits in NETWORKS.items() for split in splits), *tabular]


def measure(case: Case) -> dict[str, Any] | None:
    """The record of one case; None where its data is not at hand."""
    torch.set_num_threads(1)
    parts = _network_parts(case) if case.data in NETWORKS else _tabular_parts(case)
    if parts is None:
        return None
    training, calibration, test, theirs = parts
    names = ON_NETWORKS if case.data in NETWORKS else tuple(set(catalogue.calibrators) - NOT_BY_THEMSELVES)
    outcomes = {name: _try(catalogue.parse_calibrator(name), calibration, test) for name in sorted(names)}
    auto = _try(catalogue.parse_calibrator("auto"), calibration, test)
    return {
        **case._asdict(),
        "machine": platform.machine(),
        "training": training,
        "calibration": len(calibration),
        "test": len(test),
        "classes": test.n_classes,
        "auto": auto,
        "methods": outcomes,
        "scikit-learn": theirs,
    }


def _try(method: Calibrator, calibration: Predictions, test: Predictions) -> dict[str, Any]:
    """Scores of the test samples, what the fit warned of and how long it took; or why it failed."""
    start = time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            if isinstance(method, Auto):
                _, taken, fitted = method.choose(calibration)
                picked = {"pick": taken.name}
            else:
                picked, fitted = {}, method.fit(calibration)
        except CalibrantError as error:
            return {"failure": str(error)}
        seconds = time.process_time() - start
        mapped = fitted.transform(test)
    rows = mapped.softmax_rows(Wanted(squares=True))
    return {
        **picked,
        "nll": round(float(rows.nll().double().mean()), 6),
        "brier": round(float(rows.brier().double().mean()), 6),
        "accuracy": round(float(mapped.correct.double().mean()), 6),
        "seconds": round(seconds, 3),
        "warned": [str(each.message)[:120] for each in caught if issubclass(each.category, CalibrantWarning)],
    }


def _tabular_parts(case: Case) -> tuple[int, Predictions, Predictions, dict[str, float]]:
    """Training samples, calibration and test samples of the model, and the log-loss of scikit-learn's calibrations."""
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.frozen import FrozenEstimator
    from sklearn.metrics import log_loss
    from sklearn.model_selection import train_test_split

    inputs, labels = _data(case.data)
    seed = case.split
    train, rest, train_labels, rest_labels = train_test_split(
        inputs, labels, train_size=TRAINING, random_state=seed, stratify=labels
    )
    held, new, held_labels, new_labels = train_test_split(
        rest, rest_labels, train_size=0.5, random_state=seed, stratify=rest_labels
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the MLP's iterations end before its tolerance
        model = _model(case.model, seed).fit(train, train_labels)
        theirs = {}
        for method in THEIRS:
            calibrated = CalibratedClassifierCV(FrozenEstimator(model), method=method).fit(held, held_labels)
            loss = log_loss(new_labels, calibrated.predict_proba(new), labels=model.classes_)
            theirs[method] = round(float(loss), 6)
        parts = [
            Predictions.from_probs(model.predict_proba(samples), truth)
            for samples, truth in ((held, held_labels), (new, new_labels))
        ]
    return len(train), parts[0], parts[1], theirs


def _data(name: str) -> tuple[Any, Any]:
    from sklearn import datasets

    made: dict[str, Callable[[], tuple[Any, Any]]] = {
        "digits": lambda: datasets.load_digits(return_X_y=True),
        "wine": lambda: datasets.load_wine(return_X_y=True),
        "breast cancer": lambda: datasets.load_breast_cancer(return_X_y=True),
        "synthetic": lambda: datasets.make_classification(
            10_000, 20, n_informative=15, n_classes=20, n_clusters_per_class=1, flip_y=0.02, random_state=0
        ),
    }
    return made[name]()


def _model(name: str, seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    made: dict[str, Callable[[], Any]] = {
        "forest": lambda: RandomForestClassifier(random_state=seed),
        "naive Bayes": GaussianNB,
        "k-NN": lambda: make_pipeline(StandardScaler(), KNeighborsClassifier()),
        "boosting": lambda: HistGradientBoostingClassifier(min_samples_leaf=5, random_state=seed),
        "logistic": lambda: make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
        "MLP": lambda: make_pipeline(StandardScaler(), MLPClassifier(max_iter=300, random_state=seed)),
    }
    return made[name]()


def _network_parts(case: Case) -> tuple[int, Predictions, Predictions, dict[str, float]] | None:
    """The ResNet's own two parts; of the DenseNet's 10,000 test samples, two halves dealt at random."""
    if case.data == RESNET:
        calibration, test = load_resnet110()
        return 0, calibration, test, {}
    file = Path(os.environ.get("CALIBRANT_DENSENET", "densenet-bc-100-cifar-100-probs.npz"))
    if not file.exists():
        return None
    with np.load(file, allow_pickle=False) as stored:
        rows = Predictions.from_probs(stored["predictions"], stored["ground_truth"])
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(case.split))
    half = len(rows) // 2
    return 0, rows[order[:half]], rows[order[half:]], {}


def known() -> list[dict[str, Any]]:
    """The records there are, of all machines."""
    if not RECORDS.exists():
        return []
    return [json.loads(line) for line in RECORDS.read_text(encoding="utf-8").splitlines()]


def measure_missing(jobs: int = 1) -> None:
    """Measure and record what this kind of processor has no records of."""
    machine = platform.machine()
    done = {(each["data"], each["model"], each["split"]) for each in known() if each["machine"] == machine}
    missing = [case for case in cases() if case not in done]
    failed = []
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        waiting = {pool.submit(measure, case): case for case in missing}
        for future in as_completed(waiting):
            if future.exception() is not None:  # the others are not lost for it
                failed.append(f"{waiting[future]}: {future.exception()!r}")
                continue
            record = future.result()
            if record is not None:
                with RECORDS.open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps(record, ensure_ascii=False) + "\n")
            print(*waiting[future], flush=True)
    if failed:
        raise RuntimeError("\n".join(failed))


def report() -> str:
    """Measure what is missing, write the page, and return the section of the results."""
    measure_missing()
    records = known()
    write_page(records)
    return section(records)


if __name__ == "__main__":
    measure_missing(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    write_page(known())
