"""The baselines of Neural Clamping's Table 2 behind our own ResNet-110, whose predictions come with the package.

Each map is fitted as the paper does, by descent of a fixed length, and to its optimum; beside them are maps that the
paper does not have.
"""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_args

from calibrant import catalogue
from calibrant.datasets import load_resnet110
from calibrant.errors import CalibrantWarning, SeparableError
from calibrant.evidence import difference, estimate
from calibrant.metrics import ACE, AUROC, ECE, NLL, SCE, Accuracy, Brier, Entropy, Metric
from calibrant.predictions import Predictions
from experiments.posthoc_maps.descent import Kind, Reduction, descend
from experiments.posthoc_maps.results import numbers_of, page_of
from experiments.runner import Cell, Place, RunCells, Scalar, Settings, Study, Table, one_by_one

__all__ = ["POSTHOC_MAPS_STUDY"]

DESCENDED = {"TS": "temperature", "VS": "vector", "MS": "matrix"}
OPTIMA = {
    "TS": "temperature",
    "TS (grid)": "temperature(criterion=ece-neural-clamping)",
    "VS": "vector",
    "MS": "matrix",
    "MS-ODIR": "ms_odir(search=neural-clamping)",
    "Dir-ODIR": "dirichlet_odir(search=neural-clamping)",
    "SVS": "svs",
    "SMS": "sms",
    "order-invariant": "order_invariant",
    "auto": "auto",
}
QUICK = ("TS", "SVS")
EPOCHS, QUICK_EPOCHS = 1_000, 5
MEASURED: tuple[Metric, ...] = (Accuracy(), Entropy(), ECE(), ACE(), SCE(), NLL(), Brier(), AUROC())
RESAMPLES, QUICK_RESAMPLES = 500, 50
QUICK_SAMPLES = 1_000


def _prepare(_place: Place, _cells: Sequence[Cell], *, quick: bool) -> RunCells:
    calibration, test = (samples[: QUICK_SAMPLES if quick else None] for samples in load_resnet110())
    temperature = catalogue.parse_calibrator("temperature").fit(calibration).transform(test)
    resamples = QUICK_RESAMPLES if quick else RESAMPLES

    def run(cell: Settings) -> dict[str, Any]:
        try:
            after = _mapped(cell, calibration, test)
        except SeparableError as error:
            return {"refused": str(error)}
        return {
            "metrics": _values(estimate(after, MEASURED, resamples=resamples, seed=0)),
            "to_temperature": _values(difference(temperature, after, MEASURED, resamples=resamples, seed=0)),
        }

    return one_by_one(run)


def _grid(epochs: int = EPOCHS, optima: Iterable[str] = OPTIMA) -> Iterator[dict[str, Scalar]]:
    yield {"method": "none", "fit": "none", "network": "resnet110"}
    for reduction in get_args(Reduction):
        for name in DESCENDED:
            yield {"method": name, "fit": f"descent, {reduction}", "epochs": epochs, "network": "resnet110"}
    for name in optima:
        yield {"method": name, "fit": "optimum", "network": "resnet110"}


def _mapped(cell: Settings, calibration: Predictions, test: Predictions) -> Predictions:
    method, fit = str(cell["method"]), str(cell["fit"])
    if fit == "none":
        return test
    if fit != "optimum":
        kind: Kind = DESCENDED[method]  # type: ignore[assignment]
        reduction: Reduction = fit.removeprefix("descent, ")  # type: ignore[assignment]
        return descend(calibration, kind, reduction, epochs=int(cell["epochs"])).transform(test)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrantWarning)
        return catalogue.parse_calibrator(OPTIMA[method]).fit(calibration).transform(test)


def _values(found: Any) -> dict[str, list[float]]:
    return {
        name: [float(f"{value:.6g}") for value in (each.value, each.low, each.high)] for name, each in found.items()
    }


# But for Neural Clamping itself.
POSTHOC_MAPS_STUDY = Study(
    name="posthoc-maps",
    title="Neural Clamping, Tang et al. 2024: its baselines",
    folder=Path(__file__).parent,
    grid=_grid,
    quick_grid=partial(_grid, QUICK_EPOCHS, QUICK),
    prepare=_prepare,
    numbers=numbers_of,
    page=page_of,
    tables=(Table("Table 2, ResNet-110: the baselines"),),
)
