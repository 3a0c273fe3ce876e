"""The grid of Tables 2 and 3 of "On the Dark Side of Calibration"; how a network of it is trained and evaluated.

Five ways to train three networks on two data sets, temperatures after each, and images from elsewhere for those of
CIFAR-10. A tenth of the training samples fits the maps, which the paper does not need: its temperature is given.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, final

import torch
from torch import Tensor

from calibrant.calibrators import Calibrator, StructuredVectorScaling, TemperatureScaling
from calibrant.datasets import CIFAR10, CIFAR100, Dataset, DatasetReader, DigitsReader, read_shifted, split_dataset
from calibrant.errors import FitError, InputError
from calibrant.metrics import AUROC, ECE, NLL, Accuracy, Brier, Metric
from calibrant.training import EpochRecord, Session, TrainingData
from calibrant.training.data import DeviceData
from experiments.evaluation import calibrated_rows, rounded, session_of
from experiments.numbers import Number
from experiments.records import Record
from experiments.refinement.results import numbers_of, page_of
from experiments.runner import Cell, Place, Report, RunCells, Scalar, Settings, Study
from experiments.side_by_side import train_side_by_side

__all__ = ["RefinementStudy"]

SEEDS = range(3)
# By the paper's names, with its coefficients; its rate falls to a tenth for two of them, and to a fifth for the others.
WAYS: dict[str, dict[str, Scalar]] = {
    "Baseline": {"loss": "ce", "recipe": "dark-side-by-5"},
    "LS": {"loss": "label_smoothing(smoothing=0.05)", "recipe": "dark-side"},
    "FL": {"loss": "focal(gamma=3)", "recipe": "dark-side"},
    "ERL": {"loss": "entropy(weight=0.1)", "recipe": "dark-side-by-5"},
    "MX": {"loss": "ce", "recipe": "dark-side-by-5", "mixup": 0.2},
}
NETWORKS = ("vgg16_bn", "resnet50", "densenet121")
EPOCHS = 100  # the paper has 300
READERS: dict[str, type[DatasetReader]] = {"cifar100": CIFAR100, "cifar10": CIFAR10, "digits": DigitsReader}
# Table 3, by the publishers' names of the files; and a sample of CINIC-10's images from ImageNet.
SHIFTED = {"cifar10.1": "cifar10.1_v6_data.npy", "cifar10.2": "cifar102_test.npz", "cinic10": "cinic10_sample.npz"}
MEASURED: tuple[Metric, ...] = (Accuracy(), NLL(), Brier(), ECE(), AUROC())
# The first is the paper's.
MAPS: dict[str, Calibrator] = {
    "TS (1.5)": TemperatureScaling(value=1.5),
    "TS": TemperatureScaling(),
    "SVS": StructuredVectorScaling(),
}


@final
class RefinementStudy(Study):
    """Tables 2 and 3 of the paper, CIFAR-10 and CIFAR-100."""

    name: ClassVar[str] = "refinement"
    title: ClassVar[str] = "On the Dark Side of Calibration, Singh et al. 2021: Tables 2 and 3"
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
    for network in NETWORKS:
        for data in ("cifar100", "cifar10"):
            for seed in SEEDS:
                for method, way in WAYS.items():
                    yield {
                        "method": method,
                        **way,
                        "seed": seed,
                        "data": data,
                        "network": network,
                        "epochs": EPOCHS,
                        "evaluate_every": 25,
                    }


def _quick_grid() -> Iterator[dict[str, Scalar]]:
    common: dict[str, Scalar] = {"data": "digits", "network": "digits_cnn", "epochs": 3, "batch_size": 64}
    for method in ("Baseline", "MX"):
        yield {"method": method, **WAYS[method], "seed": 0, **common, "evaluate_every": 3}


class _Loaded(NamedTuple):
    dataset: Dataset
    parts: DeviceData


@final
class _Trainer:
    """Trains one network per cell, all given cells of one data set together."""

    def __init__(self, folder: Path, device: torch.device) -> None:
        self._folder, self._device = folder, device
        self._loaded: dict[str, _Loaded] = {}

    def run(self, cells: Sequence[Settings], report: Report) -> None:
        """Report each cell's numbers: of the test samples and of every shifted set, uncalibrated and after each map."""
        for data in dict.fromkeys(str(cell["data"]) for cell in cells):
            places = [place for place, cell in enumerate(cells) if cell["data"] == data]
            try:
                dataset, parts = self._load(data)
            except InputError as error:
                for place in places:
                    report(place, error)
                continue
            sessions = {
                session_of(
                    cells[place], dataset, parts,
                    recipe=str(cells[place]["recipe"]), evaluate_every=int(cells[place]["evaluate_every"]),
                ): place
                for place in places
            }  # fmt: skip
            self._train(sessions, parts, cells, report)

    def _load(self, data: str) -> _Loaded:
        if data not in self._loaded:
            dataset = READERS[data]().read(self._folder)
            whole = TrainingData.of(dataset, split_dataset(dataset, "holdout", seed=0))
            shifted = {
                name: read_shifted(self._folder / file, n_classes=dataset.n_classes)
                for name, file in SHIFTED.items()
                if data == "cifar10" and (self._folder / file).exists()
            }
            self._loaded[data] = _Loaded(
                dataset, replace(whole, held_out={**whole.held_out, **shifted}).on(self._device)
            )
        return self._loaded[data]

    @staticmethod
    def _train(sessions: Mapping[Session, int], parts: DeviceData, cells: Sequence[Settings], report: Report) -> None:
        labels = {name: part.labels.cpu() for name, part in parts.held_out.items()}

        def after_epoch(session: Session, record: EpochRecord) -> None:
            place = sessions[session]
            if record.held_out:  # of a training of minutes or hours
                test = record.held_out["test"]
                print(f"{cells[place]['method']} epoch {record.epoch} {record.seconds:.2f} s {test}", flush=True)
            if session.is_finished:
                logits = {name: each.cpu() for name, each in session.held_out_logits.items()}
                try:
                    report(place, {"training_accuracy": rounded(record.accuracy)} | _evaluated(logits, labels))
                except FitError as error:
                    report(place, error)

        def after_failure(session: Session, error: FitError) -> None:
            report(sessions[session], error)

        train_side_by_side(list(sessions), after_epoch=after_epoch, after_failure=after_failure)


def _evaluated(logits: Mapping[str, Tensor], labels: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return the rows of each set of test samples, by maps that are fitted on the calibration samples."""
    found = {
        name: calibrated_rows(
            {"calibration": logits["calibration"], "test": logits[name]},
            {"calibration": labels["calibration"], "test": labels[name]},
            MAPS,
            MEASURED,
        )
        for name in logits
        if name != "calibration"
    }
    parts = {kind: {name: each[kind] for name, each in found.items()} for kind in ("rows", "differences")}
    return {"T": found["test"]["T"]} | parts
