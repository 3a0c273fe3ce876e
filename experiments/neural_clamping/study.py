"""The grid of the Neural Clamping study, and how one of its cells is run.

The network is our own ResNet-110 on CIFAR-100 (``experiments/training``), calibrated and evaluated as in the paper: the
5,000 images held out of its training calibrate, the 10,000 of the test part evaluate, and runs differ in their seed.
"""

import copy
import math
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from calibrant.calibrators import TemperatureScaling
from calibrant.clamping import (
    GAMMA_POOL,
    ClampedModel,
    DataDrivenStart,
    InputSpace,
    NetworkPredictions,
    NeuralClamping,
    RandomStart,
)
from calibrant.datasets import CIFAR100, PixelScale, Samples, load_digits, split_dataset
from calibrant.errors import CalibrantWarning, FitError, InputError
from calibrant.evidence import Difference, Estimate, difference, estimate
from calibrant.losses import CrossEntropyLoss
from calibrant.metrics import ACE, AUROC, ECE, NLL, SCE, Accuracy, Brier, Entropy, Metric, ece, nll
from calibrant.models import DigitsCNN, build_model
from calibrant.predictions import Predictions
from calibrant.training import Recipe, Session, TrainingData, train_together
from calibrant.training.stores import Standardise
from experiments.evaluation import reliability_bins
from experiments.neural_clamping.ablation import Ablation, ablation_of
from experiments.neural_clamping.graphed import Graphed
from experiments.neural_clamping.results import numbers_of, page_of
from experiments.neural_clamping.theory import efficient_clamping
from experiments.runner import Cell, Place, RunCells, Scalar, Study, Table, one_by_one

__all__ = ["NEURAL_CLAMPING_STUDY", "pack", "resnet110_on_cifar100"]

WEIGHTS = Path(__file__).parents[1] / "training" / "resnet110-ce.safetensors"
CIFAR_SCALE = PixelScale((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))
CALIBRATION = 5_000
SEEDS = range(5)
BINS = (5, 10, 15, 20, 25, 30, 50, 100)
MEASURED: tuple[Metric, ...] = (Accuracy(), Entropy(), ECE(), ACE(), SCE(), NLL(), Brier(), AUROC())
RESAMPLES, QUICK_RESAMPLES = 500, 50
STARTS = {"random": RandomStart(), "data-driven": DataDrivenStart()}
# The last two are not the paper's: where its η is 0, they still give a δ̃.
EFFICIENT = {
    "theorem": DataDrivenStart(),
    "epsilon": DataDrivenStart(eta="epsilon"),
    "quantile": DataDrivenStart(eta="quantile"),
}


class Network(NamedTuple):
    """A network that takes standardised pixels, with images that it was not trained on."""

    model: nn.Module
    space: InputSpace
    calibration: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


def _prepare(place: Place, _cells: Sequence[Cell], *, quick: bool) -> RunCells:
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = False  # but where a pass asks for it
    network = _digits() if quick else resnet110_on_cifar100(place)
    return one_by_one(_Bench(network, QUICK_RESAMPLES if quick else RESAMPLES).run)


def _grid() -> Iterator[dict[str, Scalar]]:
    network: dict[str, Scalar] = {"network": "resnet110", "data": "cifar100"}
    yield {"method": "baselines", **network}
    for images in (CALIBRATION, 1_000, 100):
        for eta in EFFICIENT:
            yield {"method": "efficient", "eta": eta, "images": images, **network}

    def clamped(start: str, gamma: float, seed: int) -> dict[str, Scalar]:
        return {"method": "clamping", "start": start, "gamma": gamma, "seed": seed, **network}

    for start in STARTS:
        yield from (clamped(start, 1.0, seed) for seed in SEEDS)
    sweep = sorted(set(GAMMA_POOL) - {1.0})
    yield from (clamped("random", gamma, 0) for gamma in sweep)
    yield from (clamped("random", 0.0, seed) for seed in SEEDS[1:])
    for seed in SEEDS[1:]:
        yield from (clamped("random", gamma, seed) for gamma in sweep[1:])


def _quick_grid() -> Iterator[dict[str, Scalar]]:
    network: dict[str, Scalar] = {"network": "digits-cnn", "data": "digits"}
    yield {"method": "baselines", **network}
    for eta in EFFICIENT:
        yield {"method": "efficient", "eta": eta, "images": 200, **network}
    for start, gamma, seed in (
        ("random", 1.0, 0),
        ("random", 1.0, 1),
        ("data-driven", 1.0, 0),
        ("data-driven", 1.0, 1),
        ("random", 0.0, 0),
    ):
        yield {"method": "clamping", "start": start, "gamma": gamma, "seed": seed, **network}


@final
class _Bench:
    """One network with everything that its cells share."""

    def __init__(self, network: Network, resamples: int) -> None:
        self._network, self._resamples = network, resamples
        self._fast = Graphed(network.model) if network.calibration[0].is_cuda else network.model
        self._calibration = NetworkPredictions(network.model, network.calibration, space=network.space)
        self._test = NetworkPredictions(network.model, network.test, space=network.space)

    def run(self, cell: Mapping[str, Scalar]) -> dict[str, Any]:
        """Return a cell's numbers."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrantWarning)  # what matters of them is in the summary's notes
            if cell["method"] == "baselines":
                return self._baselines()
            if cell["method"] == "efficient":
                return self._efficient(str(cell["eta"]), int(cell["images"]))
            return self._clamped(str(cell["start"]), float(cell["gamma"]), int(cell["seed"]))

    def _baselines(self) -> dict[str, Any]:
        methods = {
            "TS": TemperatureScaling(),
            "TS (focal)": TemperatureScaling("focal", 1.0),
            "TS (grid)": TemperatureScaling("ece-neural-clamping"),
        }
        _synchronise()
        began = time.perf_counter()
        calibration = self._calibration.at_zero()
        forward = time.perf_counter() - began
        test = self._test.at_zero()
        results: dict[str, Any] = {"rows": {"none": self._row(test, 1.0)}, "seconds": {}, "differences": {}}
        after = {}
        for name, method in methods.items():
            began = time.perf_counter()
            fitted: Any = method.fit(calibration)
            results["seconds"][name] = _rounded(time.perf_counter() - began + forward)
            after[name] = fitted.transform(test)
            results["rows"][name] = self._row(after[name], float(fitted.temperature))
        for name in ("TS (focal)", "TS (grid)"):
            results["differences"][f"{name} - TS"] = _differences(
                difference(after["TS"], after[name], MEASURED, resamples=self._resamples, seed=0)
            )
        results["images"] = {"calibration": len(self._calibration), "test": len(self._test)}
        return results

    def _efficient(self, eta: str, images: int) -> dict[str, Any]:
        network = self._network
        few = tuple(part[:images] for part in network.calibration)
        _synchronise()
        began = time.perf_counter()
        clamped = efficient_clamping(network.model, few, space=network.space, start=EFFICIENT[eta])
        _synchronise()
        seconds = time.perf_counter() - began
        ts = TemperatureScaling().fit(_first(self._calibration.at_zero(), images)).transform(self._test.at_zero())
        after = self._test.predictions_of(clamped)
        return {
            "norm": _rounded(float(clamped.delta.double().norm())),
            "moved": _rounded(float((clamped.delta != 0).double().mean())),
            "seconds": _rounded(seconds),
            "rows": {"efficient": self._row(after, clamped.temperature), "TS": self._row(ts, None)},
            "differences": {
                "efficient - TS": _differences(difference(ts, after, MEASURED, resamples=self._resamples, seed=0))
            },
        }

    def _clamped(self, start: str, gamma: float, seed: int) -> dict[str, Any]:
        network = self._network
        method = NeuralClamping.paper_protocol(gamma=gamma, start=STARTS[start], space=network.space, seed=seed)
        _synchronise()
        began = time.perf_counter()
        try:
            fitted = method.fit(self._fast, network.calibration)
        except FitError as error:
            return {"no_fit": str(error)}
        _synchronise()
        seconds = time.perf_counter() - began
        assert fitted.summary is not None
        assert fitted.summary.certificate is not None
        clamped = ClampedModel(network.model, fitted.delta, fitted.head, space=network.space, summary=fitted.summary)
        parts = ablation_of(
            clamped, self._calibration.samples, self._test.samples, metrics=MEASURED, resamples=self._resamples, seed=0
        )
        on_calibration = self._calibration.predictions_of(clamped)
        return {
            "seconds": _rounded(seconds),
            "T": _rounded(clamped.temperature),
            "norm": _rounded(float(clamped.delta.double().norm())),
            "largest": _rounded(float(clamped.delta.abs().max())),
            "strength": _rounded(fitted.summary.strength),
            "objective": _rounded(fitted.summary.certificate.objective),
            "captured_gradient_off": _rounded(self._fast.off) if isinstance(self._fast, Graphed) else None,
            "calibration": {"ece": _rounded(ece(on_calibration)), "nll": _rounded(nll(on_calibration))},
            "notes": list(fitted.summary.all_notes),
            "rows": self._parts(parts),
            "differences": {
                f"{comparison.row} - {comparison.baseline}": _differences(comparison.differences)
                for comparison in parts.comparisons
                if comparison.is_planned
            },
        }

    def _parts(self, parts: Ablation) -> dict[str, Any]:
        """Return the rows that depend on the fit; the others are the baselines' own."""
        return {
            row.name: self._row(parts.predictions(row.name), row.temperature, row.metrics)
            for row in parts.rows
            if row.with_delta or row.name == "T* only"
        }

    def _row(
        self, predictions: Predictions, temperature: float | None, known: Mapping[str, Estimate] | None = None
    ) -> dict[str, Any]:
        """Return one model's numbers: with intervals, at other numbers of bins, and its reliability diagram."""
        estimates = known or estimate(predictions, MEASURED, resamples=self._resamples, seed=0)
        return {
            "T": None if temperature is None else _rounded(temperature),
            "metrics": {
                name: [_rounded(estimate.value), _rounded(estimate.low), _rounded(estimate.high)]
                for name, estimate in estimates.items()
            },
            "bins": {
                str(bins): [
                    _rounded(float(metric(predictions)))
                    for metric in (ECE(n_bins=bins), ACE(n_bins=bins), SCE(n_bins=bins))
                ]
                for bins in BINS
            },
            "ece_floor": None if estimates["ece"].floor is None else _rounded(estimates["ece"].floor),
            "reliability": reliability_bins(predictions),
        }


def _differences(differences: Mapping[str, Difference]) -> dict[str, list[float | None]]:
    return {
        name: [_rounded(value) for value in (difference.value, difference.low, difference.high, difference.p)]
        for name, difference in differences.items()
    }


def _rounded(value: float) -> float | None:
    """Six digits, as many as a record needs; None where there is no number."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


def _first(predictions: Predictions, n: int) -> Predictions:
    return Predictions.from_logits(predictions.logits[:n], predictions.labels[:n])


def _synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def pack(folder: Path, out: Path) -> None:
    """Write the images that the network was not trained on, which is all that the study reads of CIFAR-100.

    Args:
        folder: With the publisher's files.
        out: An npz file.
    """
    split = split_dataset(CIFAR100().read(folder), "holdout", seed=0)
    images = torch.cat([split.calibration.tensor, split.test.tensor])
    labels = torch.cat([split.calibration.labels, split.test.labels])
    np.savez(out, images=images.numpy(), labels=labels.numpy())


def resnet110_on_cifar100(place: Place) -> Network:
    """Return the network of ``experiments/training`` with the images that it was not trained on."""
    if place.data is None or not place.data.exists():
        raise InputError(
            f"--data must name the folder of CIFAR-100, or the npz file that pack() makes of it; got {place.data}."
        )
    if place.data.is_dir():
        split = split_dataset(CIFAR100().read(place.data), "holdout", seed=0)
        images = torch.cat([split.calibration.tensor, split.test.tensor])
        labels = torch.cat([split.calibration.labels, split.test.labels])
    else:
        with np.load(place.data) as archive:
            images, labels = torch.from_numpy(archive["images"]), torch.from_numpy(archive["labels"])
    model = build_model("resnet110", n_classes=100)
    model.load_state_dict(
        {name: values.float() if values.is_floating_point() else values for name, values in load_file(WEIGHTS).items()}
    )
    return _network(model, CIFAR_SCALE, images.float(), labels.long(), CALIBRATION, place.device)


def _digits() -> Network:
    """A small network on 8 x 8 digits, trained here in seconds until it knows its 200 images by heart."""
    known = load_digits()
    order = torch.randperm(len(known.labels), generator=torch.Generator().manual_seed(0))
    few, rest = order[:200], order[200:800]
    data = TrainingData(Samples(known.images[few], known.labels[few]), {}, tuple("0123456789"))
    torch.manual_seed(0)
    model = DigitsCNN()
    recipe = Recipe(epochs=40, batch_size=32, learning_rate=0.05, weight_decay=0.0, seed=0)
    train_together([Session(model, CrossEntropyLoss(), data.on(torch.device("cpu")), recipe)])
    scale = PixelScale((0.0,), (1.0,), peak=1)
    return _network(model, scale, known.images[rest].float(), known.labels[rest], 200, "cpu")


def _network(
    model: nn.Module, scale: PixelScale, images: Tensor, labels: Tensor, n_calibration: int, device: str
) -> Network:
    inputs = Standardise(scale)(images).to(device)
    labels = labels.to(device)
    return Network(
        copy.deepcopy(model).to(device, memory_format=torch.contiguous_format).eval(),  # type: ignore[call-overload]
        InputSpace(mean=scale.mean, std=scale.std),
        (inputs[:n_calibration], labels[:n_calibration]),
        (inputs[n_calibration:], labels[n_calibration:]),
    )


# Table 4, Fig. 2, Fig. 3 and appendices D to F of the paper.
NEURAL_CLAMPING_STUDY = Study(
    name="neural-clamping",
    title="Neural Clamping, Tang et al. 2024",
    folder=Path(__file__).parent,
    grid=_grid,
    quick_grid=_quick_grid,
    prepare=_prepare,
    numbers=numbers_of,
    page=page_of,
    tables=(
        Table(
            "Table 4; appendices D and E",
            ("method=baselines", "method=clamping", "gamma=1.0", "gamma=None", "start=random", "start=None"),
        ),
        Table("Fig. 2, γ", ("method=clamping", "start=random")),
        Table("Fig. 3, starts", ("method=clamping", "gamma=1.0")),
        Table("Appendix F, efficient variant", ("method=baselines", "method=efficient")),
    ),
)
