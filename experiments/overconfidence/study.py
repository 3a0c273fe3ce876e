"""The grid of the study of overconfidence, and how one of its networks is trained and evaluated.

Cross-entropy, label smoothing, the L1 norm of the logits and focal loss with the coefficients of the paper's Table 1,
its pools of coefficients (Fig. 1), and inverse focal loss (Fig. 6). A tenth of the training samples fits the maps.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, final

import torch
from torch import Tensor

from calibrant.calibrators import Calibrator, HistogramBinning, StructuredVectorScaling, TemperatureScaling
from calibrant.datasets import CIFAR10, CIFAR100, SVHN, Dataset, DatasetReader, DigitsReader, Newsgroups, split_dataset
from calibrant.errors import FitError, InputError
from calibrant.metrics import AUROC, ECE, NLL, Accuracy, Metric
from calibrant.predictions import Predictions
from calibrant.training import EpochRecord, Session, TrainingData
from calibrant.training.data import DeviceData
from experiments.evaluation import calibrated_rows, rounded, session_of
from experiments.numbers import Number
from experiments.overconfidence.results import numbers_of, page_of
from experiments.records import Record
from experiments.runner import Cell, Place, Report, RunCells, Scalar, Settings, Study
from experiments.side_by_side import train_side_by_side

__all__ = ["OverconfidenceStudy"]

SEEDS = range(5)
# The paper's coefficients of label smoothing, the L1 norm and focal loss, by data set.
COEFFICIENTS = {
    "cifar100": (0.09, 0.01, 5),
    "newsgroups": (0.09, 0.01, 5),
    "cifar10": (0.05, 0.05, 3),
    "svhn": (0.01, 0.01, 1),
}
POOLS = {"LS": (0.01, 0.03, 0.05, 0.07, 0.09), "L1": (0.001, 0.005, 0.01, 0.05, 0.1), "Focal": (1, 3, 5, 7, 9)}
# Fig. 1d, on CIFAR-10: coarser pools than the paper's, over numbers of training samples that it does not name.
SIZES = (5_000, 15_000, 30_000)
SIZED_POOLS = {
    "LS": (0.01, 0.05, 0.09, 0.13, 0.17, 0.21, 0.25),
    "L1": (0.01, 0.03, 0.05, 0.07, 0.1),
    "Focal": POOLS["Focal"],
}
LOSSES = {"LS": "label_smoothing(smoothing={})", "L1": "logit_norm(weight={},p=1)", "Focal": "focal(gamma={})"}
OTHERS = {
    "Inverse focal (2)": "inverse_focal(gamma=2)",
    "Focal (5), weight detached": "focal(gamma=5,detach_weight=true)",
}
READERS: dict[str, type[DatasetReader]] = {
    "cifar100": CIFAR100,
    "cifar10": CIFAR10,
    "svhn": SVHN,
    "newsgroups": Newsgroups,
    "digits": DigitsReader,
}
MEASURED: tuple[Metric, ...] = (Accuracy(), NLL(), ECE(), AUROC())
# The first of each pair is the paper's.
METHODS: dict[str, Calibrator] = {
    "TS (grid)": TemperatureScaling("ece-overconfidence"),
    "TS": TemperatureScaling(),
    "HB": HistogramBinning(bins="equal_width"),
    "HB (equal mass)": HistogramBinning(),
    "SVS": StructuredVectorScaling(),
}


@final
class OverconfidenceStudy(Study):
    """Tables 1 and 2 of the paper."""

    name: ClassVar[str] = "overconfidence"
    title: ClassVar[str] = "Do Not Be Afraid of Overconfidence, Wang et al. 2021"
    folder: ClassVar[Path] = Path(__file__).parent

    def cells(self, *, quick: bool) -> Sequence[Cell]:
        return [Cell(settings) for settings in (_quick_grid() if quick else _grid())]

    def prepare(self, place: Place, *, quick: bool) -> RunCells:
        torch.backends.cudnn.benchmark = True
        if not quick and (place.data is None or not place.data.exists()):
            raise InputError(f"--data must name the folder of the publishers' files; got {place.data}.")
        return _Trainer(place.data or Path(), torch.device("cpu" if quick else place.device)).run

    def numbers(self, records: Sequence[Record]) -> dict[str, Number]:
        return numbers_of(records)

    def page(self, records: Sequence[Record], *, images: Path | None) -> str:
        return page_of(records, images=images)


def _grid() -> Iterator[dict[str, Scalar]]:
    for data, coefficients in COEFFICIENTS.items():
        is_text = data == "newsgroups"
        common: dict[str, Scalar] = {
            "data": data,
            "network": "text_cnn" if is_text else "resnet32",
            "recipe": "overconfidence-newsgroups" if is_text else "overconfidence",
            "evaluate_every": 10,
        }
        chosen = {
            f"{name} ({value})": loss.format(value)
            for (name, loss), value in zip(LOSSES.items(), coefficients, strict=True)
        }
        losses = {"CE": "ce"} | chosen | (OTHERS if data == "cifar100" else {})
        for seed in SEEDS:
            for method, loss in losses.items():
                yield _cell(method, loss, seed) | common
        for method, loss in _pool(POOLS).items():
            if method not in losses:
                yield _cell(method, loss, 0) | common
        for size in SIZES if data == "cifar10" else ():
            for method, loss in _pool(SIZED_POOLS).items():
                yield _cell(method, loss, 0) | common | {"train_samples": size}


def _cell(method: str, loss: str, seed: int) -> dict[str, Scalar]:
    return {"method": method, "loss": loss, "seed": seed}


def _pool(pools: Mapping[str, Sequence[float]]) -> dict[str, str]:
    return {f"{name} ({value})": LOSSES[name].format(value) for name, values in pools.items() for value in values}


def _quick_grid() -> Iterator[dict[str, Scalar]]:
    common: dict[str, Scalar] = {"data": "digits", "network": "digits_cnn", "recipe": "overconfidence"}
    common |= {"evaluate_every": 2, "epochs": 4, "batch_size": 64}
    for method, loss in ({"CE": "ce"} | _pool({"LS": (0.09,), "L1": (0.01,)})).items():
        yield _cell(method, loss, 0) | common


class _Loaded(NamedTuple):
    dataset: Dataset
    parts: DeviceData


@final
class _Trainer:
    """Trains one network per cell, all given cells of one data set together."""

    def __init__(self, folder: Path, device: torch.device) -> None:
        self._folder, self._device = folder, device
        self._loaded: dict[tuple[str, int | None], _Loaded] = {}

    def run(self, cells: Sequence[Settings], report: Report) -> None:
        """Report each cell's numbers, uncalibrated and after every map, and its epochs."""
        for samples in dict.fromkeys(_samples(cell) for cell in cells):
            places = [place for place, cell in enumerate(cells) if _samples(cell) == samples]
            try:
                loaded = self._load(*samples)
            except InputError as error:
                for place in places:
                    report(place, error)
            else:
                self._train({_session(cells[place], loaded): place for place in places}, loaded.parts, cells, report)

    def _load(self, data: str, n: int | None) -> _Loaded:
        if (data, n) not in self._loaded:
            reader = READERS[data]()
            dataset = reader.read(self._folder)
            split = split_dataset(dataset, "holdout", seed=0)
            if n is not None:
                drawn = torch.randperm(len(split.training), generator=torch.Generator().manual_seed(0))[:n]
                split = replace(split, training=split.training[drawn.sort().values])
            self._loaded[data, n] = _Loaded(dataset, TrainingData.of(dataset, split).on(self._device))
        return self._loaded[data, n]

    def _train(
        self, sessions: Mapping[Session, int], parts: DeviceData, cells: Sequence[Settings], report: Report
    ) -> None:
        labels = {name: part.labels.cpu() for name, part in parts.held_out.items()}

        def after_epoch(session: Session, record: EpochRecord) -> None:
            place = sessions[session]
            if record.held_out:  # of a training of minutes or hours
                test = record.held_out["test"]
                print(f"{cells[place]['method']} epoch {record.epoch} {record.seconds:.2f} s {test}", flush=True)
            if session.is_finished:
                logits = {name: each.cpu() for name, each in session.held_out_logits.items()}
                epochs = [_in_short(each) for each in session.records if each.held_out]
                try:
                    report(place, _evaluated(logits, labels) | {"epochs": epochs})
                except FitError as error:
                    report(place, error)

        def after_failure(session: Session, error: FitError) -> None:
            report(sessions[session], error)

        train_side_by_side(list(sessions), after_epoch=after_epoch, after_failure=after_failure)


def _samples(cell: Settings) -> tuple[str, int | None]:
    """Return the data set, and the number of training samples where it is not all of them."""
    return str(cell["data"]), int(cell["train_samples"]) if "train_samples" in cell else None


def _session(cell: Settings, loaded: _Loaded) -> Session:
    every = int(cell["evaluate_every"])
    return session_of(cell, loaded.dataset, loaded.parts, recipe=str(cell["recipe"]), evaluate_every=every)


def _evaluated(logits: Mapping[str, Tensor], labels: Mapping[str, Tensor]) -> dict[str, Any]:
    calibration = Predictions.from_logits(logits["calibration"], labels["calibration"])
    return {"calibration_ece": rounded(ECE()(calibration))} | calibrated_rows(logits, labels, METHODS, MEASURED)


def _in_short(record: EpochRecord) -> dict[str, float]:
    test = record.held_out["test"]
    numbers = {"loss": record.loss, "accuracy": test.accuracy, "ece": test.ece, "optimal_ece": test.optimal_ece}
    return {"epoch": record.epoch} | {name: rounded(value) for name, value in numbers.items()}
