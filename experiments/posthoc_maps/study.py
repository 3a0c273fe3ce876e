"""Tables 1 to 3 of Neural Clamping: every method behind every network, as the paper fits it and at its optimum.

Maps of the logits, maps that need features, and Neural Clamping itself by the paper's protocol and by the library's
solver; beside them are maps that the paper does not have. Of ResNet-110 the predictions come with the package, and
Neural Clamping has a study of its own.
"""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, get_args

import torch

from calibrant import catalogue
from calibrant.calibrators import DensityRatioCalibration
from calibrant.clamping import NeuralClamping, StochasticSolver
from calibrant.errors import CalibrantWarning, FitError
from calibrant.evidence import difference, estimate
from calibrant.metrics import ACE, AUROC, ECE, NLL, SCE, Accuracy, Brier, Entropy, Metric
from calibrant.predictions import Predictions
from experiments.posthoc_maps.descent import Kind, Reduction, descend, descend_odir
from experiments.posthoc_maps.networks import PUBLISHED, Bench, bench_of, check_files
from experiments.posthoc_maps.results import BASELINES, numbers_of, page_of
from experiments.runner import Cell, Place, RunCells, Scalar, Settings, Study, Table, one_by_one

__all__ = ["POSTHOC_MAPS_STUDY"]

DESCENDED = {"TS": "temperature", "VS": "vector", "MS": "matrix"}
ODIR = ("MS-ODIR", "Dir-ODIR")
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
SPLINE = {"spline": "spline"}  # joined the others later
CLAMPED = {"NC (CE)": 0.0, "NC (FL)": 1.0}  # γ
# Baselines with which Neural Clamping is compared in pairs, beside TS at its optimum, and by what.
COMPARED = (
    *((name, "optimum") for name in BASELINES),
    *((name, "descent, mean") for name in BASELINES if name != "TS (grid)"),
)
QUICK_COMPARED = (("TS (grid)", "optimum"), ("Dir-ODIR", "optimum"))
COMPARED_BY: tuple[Metric, ...] = (ECE(), ACE())
QUICK = ("TS", "SVS")
EPOCHS, QUICK_EPOCHS = 1_000, 5
CLAMPING_EPOCHS, QUICK_CLAMPING_EPOCHS = 100, 2
SEEDS, NETWORK_SEEDS = range(5), range(3)
MEASURED: tuple[Metric, ...] = (Accuracy(), Entropy(), ECE(), ACE(), SCE(), NLL(), Brier(), AUROC())
RESAMPLES, QUICK_RESAMPLES = 500, 50
# The paper has no recipes. Of BloodMNIST's the length is chosen by the calibration images: see the page.
BLOOD: dict[str, Scalar] = {
    "network": "resnet50_imagenet",
    "data": "bloodmnist",
    "recipe": "default",
    "train_epochs": 3,
    "batch_size": 64,
    "learning_rate": 0.02,
    "milestone": 2,
    "augmentation": "none",
}
# The same network trained longer on few images is overconfident, as the paper's is. Every pilot is evaluated on the
# calibration images alone, which choose: see results.chosen_pilot. With warm-up and a lower rate, as some seeds come
# apart without.
PILOT_SAMPLES, PILOT_EPOCHS, PILOT_SEEDS = (1_500, 2_000, 3_000, 4_000), (20, 40), (7, 8)
CHOSEN = (1_500, 20)
CIFAR100: dict[str, Scalar] = {"data": "cifar100", "recipe": "default", "train_epochs": 100, "network_seed": 0}
DIGITS: dict[str, Scalar] = {
    "network": "digits_cnn",
    "data": "digits",
    "recipe": "default",
    "train_epochs": 3,
    "batch_size": 64,
    "network_seed": 0,
}


def longer(samples: int, epochs: int) -> dict[str, Scalar]:
    """Return the settings of the ResNet-50 that is trained for so long on so many images; its rate falls at two thirds.

    Example:
        >>> longer(2_000, 20)["milestone"]
        13
    """
    longer = {"train_samples": samples, "train_epochs": epochs, "milestone": 2 * epochs // 3}
    return BLOOD | longer | {"learning_rate": 0.01, "warmup": 2}


def _networks() -> Iterator[dict[str, Scalar]]:
    """Yield the settings of every network but ResNet-110."""
    for division in ("other", "official"):
        for training in (longer(*CHOSEN), BLOOD):
            for seed in NETWORK_SEEDS:
                yield {**training, "division": division, "network_seed": seed}
    for network in ("wrn40_10", "densenet121"):
        yield {"network": network, **CIFAR100}
    for network, published in PUBLISHED.items():
        yield {"network": network, "weights": published.file}


def _grid() -> Iterator[dict[str, Scalar]]:
    yield from _bundled(EPOCHS, OPTIMA)
    yield from _odir(EPOCHS, {"network": "resnet110"})
    yield {"method": "spline", "fit": "optimum", "network": "resnet110"}
    yield {"method": "density ratio", "fit": "features", "network": "resnet110", "data": "cifar100"}
    for seed, epochs, samples in product(PILOT_SEEDS, PILOT_EPOCHS, PILOT_SAMPLES):
        yield {"method": "none", "fit": "pilot", **longer(samples, epochs), "division": "other", "network_seed": seed}
    for network in _networks():
        yield from _bundled(EPOCHS, {**OPTIMA, **SPLINE}, network)
        yield from _odir(EPOCHS, network)
        yield from _with_images(CLAMPING_EPOCHS, SEEDS, network)


def _quick_grid() -> Iterator[dict[str, Scalar]]:
    yield from _bundled(QUICK_EPOCHS, QUICK)
    yield {"method": "none", "fit": "none", **DIGITS}
    yield from _odir(QUICK_EPOCHS, DIGITS)
    for name in ("TS", *(name for name, _ in QUICK_COMPARED), *SPLINE):
        yield {"method": name, "fit": "optimum", **DIGITS}
    yield from _with_images(QUICK_CLAMPING_EPOCHS, SEEDS[:2], DIGITS)


def _bundled(
    epochs: int, optima: Iterable[str], network: Mapping[str, Scalar] | None = None
) -> Iterator[dict[str, Scalar]]:
    """Yield the cells of a network that need its predictions alone; by default of ResNet-110."""
    own = network or {"network": "resnet110"}
    yield {"method": "none", "fit": "none", **own}
    for reduction in get_args(Reduction):
        for name in DESCENDED:
            yield {"method": name, "fit": f"descent, {reduction}", "epochs": epochs, **own}
    for name in optima:
        yield {"method": name, "fit": "optimum", **own}


def _odir(epochs: int, network: Mapping[str, Scalar]) -> Iterator[dict[str, Scalar]]:
    for reduction in get_args(Reduction):
        for name in ODIR:
            yield {"method": name, "fit": f"descent, {reduction}", "epochs": epochs, **network}


def _with_images(epochs: int, seeds: Iterable[int], network: Mapping[str, Scalar]) -> Iterator[dict[str, Scalar]]:
    """Yield the cells that need the network itself."""
    yield {"method": "density ratio", "fit": "features", **network}
    for seed in seeds:
        for name in CLAMPED:
            yield {"method": name, "fit": "paper", "epochs": epochs, "seed": seed, **network}
    yield {"method": "NC", "fit": "library", **network}


def _prepare(place: Place, cells: Sequence[Cell], *, quick: bool) -> RunCells:
    check_files(place, cells)
    torch.backends.cudnn.benchmark = True
    device = "cpu" if quick else place.device
    return one_by_one(_Runner(replace(place, device=device), quick=quick).run)


class _Runner:
    """Runs cells, and keeps the network of the last one."""

    def __init__(self, place: Place, *, quick: bool) -> None:
        self._place, self._quick = place, quick
        self._resamples = QUICK_RESAMPLES if quick else RESAMPLES
        self._kept: tuple[dict[str, Scalar], Bench] | None = None

    def run(self, cell: Settings) -> dict[str, Any]:
        """Return a cell's numbers."""
        bench = self._bench(cell)
        if cell["fit"] == "pilot":
            return {"metrics": self._estimated(bench.predictions["calibration"])}
        more: dict[str, Any] = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrantWarning)
            try:
                if cell["method"] in {*CLAMPED, "NC"}:
                    after, more = self._clamped(cell, bench)
                else:
                    after = _mapped(cell, bench)
            except FitError as error:
                return {"refused": str(error)}
            return {
                "metrics": self._estimated(after),
                "to_temperature": self._difference(bench, ("TS", "optimum"), after, MEASURED),
                **more,
            }

    def _bench(self, cell: Settings) -> Bench:
        own = {name: value for name, value in cell.items() if name not in {"method", "fit", "epochs", "seed"}}
        if self._kept is None or self._kept[0] != own:
            self._kept = None  # before another is loaded
            self._kept = own, bench_of(self._place, own, quick=self._quick)
        return self._kept[1]

    def _estimated(self, predictions: Predictions) -> dict[str, list[float]]:
        return _values(estimate(predictions, MEASURED, resamples=self._resamples, seed=0))

    def _difference(
        self, bench: Bench, baseline: tuple[str, str], after: Predictions, metrics: Sequence[Metric]
    ) -> dict[str, list[float]]:
        method, fit = baseline
        label = f"{method}.{fit}"
        if label not in bench.fitted:
            bench.fitted[label] = _mapped({"method": method, "fit": fit, "epochs": EPOCHS}, bench)
        return _values(difference(bench.fitted[label], after, metrics, resamples=self._resamples, seed=0))

    def _differences(self, bench: Bench, after: Predictions) -> dict[str, dict[str, list[float]]]:
        """Return the differences to all baselines that can be fitted, by their names in the tables."""
        differences = {}
        for baseline in QUICK_COMPARED if self._quick else COMPARED:
            with suppress(FitError):
                differences[".".join(baseline)] = self._difference(bench, baseline, after, COMPARED_BY)
        return differences

    def _clamped(self, cell: Settings, bench: Bench) -> tuple[Predictions, dict[str, Any]]:
        assert bench.model is not None
        method, folder = NeuralClamping(), None
        if cell["fit"] == "paper":
            method = NeuralClamping.paper_protocol(
                gamma=CLAMPED[str(cell["method"])], space=bench.space, seed=int(cell["seed"])
            )
            method = replace(method, solver=StochasticSolver(epochs=int(cell["epochs"])))
        if bench.folder is not None:
            folder = bench.folder / f"{cell['method']}-{cell['fit']}-{cell.get('epochs', 0)}-{cell.get('seed', 0)}"
        fitted = method.fit(bench.for_gradients, bench.images["calibration"], folder=folder)
        assert fitted.summary is not None
        after = bench.clamped(fitted)
        return after, {
            "T": _rounded(fitted.temperature),
            "norm": _rounded(float(fitted.delta.double().norm())),
            "seconds": _rounded(fitted.summary.seconds),
            "notes": list(fitted.summary.all_notes),
            "differences": self._differences(bench, after),
        }


def _mapped(cell: Settings, bench: Bench) -> Predictions:
    calibration, test = (bench.predictions[part] for part in ("calibration", "test"))
    method, fit = str(cell["method"]), str(cell["fit"])
    if fit == "none":
        return test
    if fit == "features":
        by_features = DensityRatioCalibration().fit(calibration, bench.features["calibration"])
        return by_features.transform(test, bench.features["test"])
    if fit == "optimum":
        return catalogue.parse_calibrator({**OPTIMA, **SPLINE}[method]).fit(calibration).transform(test)
    reduction: Reduction = fit.removeprefix("descent, ")  # type: ignore[assignment]
    epochs = int(cell["epochs"])
    if method in ODIR:
        if method == "Dir-ODIR":
            calibration, test = (part.with_logits(part.log_probs) for part in (calibration, test))
        return descend_odir(calibration, reduction, epochs=epochs).transform(test)
    kind: Kind = DESCENDED[method]  # type: ignore[assignment]
    return descend(calibration, kind, reduction, epochs=epochs).transform(test)


def _values(estimates: Any) -> dict[str, list[float]]:
    return {
        name: [_rounded(value) for value in (estimate.value, estimate.low, estimate.high)]
        for name, estimate in estimates.items()
    }


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


_FEW, _SEEDS = f"train_samples={CHOSEN[0]}", tuple(f"network_seed={seed}" for seed in NETWORK_SEEDS)
POSTHOC_MAPS_STUDY = Study(
    name="posthoc-maps",
    title="Neural Clamping, Tang et al. 2024: Tables 1 to 3",
    folder=Path(__file__).parent,
    grid=_grid,
    quick_grid=_quick_grid,
    prepare=_prepare,
    numbers=numbers_of,
    page=page_of,
    tables=(
        Table("Table 1, ResNet-50 on BloodMNIST, overconfident", ("division=official", _FEW)),
        Table("Table 1, ResNet-50 on BloodMNIST, stopped early", ("division=official", "train_samples=None")),
        Table("The same images in another division, overconfident", ("division=other", _FEW, *_SEEDS)),
        Table("The same images in another division, stopped early", ("division=other", "train_samples=None")),
        Table("Pilots of the overconfident training", ("fit=pilot",)),
        Table("Table 2, ResNet-110, but for Neural Clamping", ("network=resnet110",)),
        Table("Table 2, Wide-ResNet-40-10", ("network=wrn40_10",)),
        Table("Section 3.3, DenseNet-121 on CIFAR-100", ("network=densenet121",)),
        Table("Table 3, ResNet-101", ("network=resnet101_imagenet",)),
        Table("Table 3, ViT-S/16", ("network=vit_s16",)),
        Table("Table 3, MLP-Mixer B/16", ("network=mixer_b16",)),
    ),
    fetched=("weights=None", "division=None", "division=official"),
)
