"""The grid of the meta-regularisation study, and how one of its networks is trained and evaluated.

ResNet-18 on CIFAR-100 divided 8:1:1, as in the paper: a tenth tunes the learned losses, another selects the epoch and
fits the temperature.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, final

import torch
from torch import Tensor

from calibrant.calibrators import Calibrator, TemperatureScaling
from calibrant.datasets import CIFAR100, Dataset, DigitsReader, split_dataset
from calibrant.errors import FitError, InputError
from calibrant.losses import MetaLoss
from calibrant.metrics import ACE, AUROC, ECE, MCE, NLL, SCE, Accuracy, Metric
from calibrant.training import EpochRecord, Session, TrainingData
from calibrant.training.recipe import Selection
from calibrant.training.record import features_of
from calibrant.training.session import selected_epoch
from experiments.evaluation import calibrated_rows, rounded, session_of
from experiments.meta_regularization.results import numbers_of, page_of
from experiments.numbers import Number
from experiments.records import Record
from experiments.runner import Cell, Place, Report, RunCells, Scalar, Settings, Study
from experiments.side_by_side import train_side_by_side

__all__ = ["MetaRegularizationStudy"]

# By the paper's names. It does not say how fast γ-Net learns; the rate follows the network's unless the name says not.
LOSSES = {
    "Focal": "focal(gamma=1)",
    "FLγ-SECE": "meta_focal(objective=sece,schedule=network)",
    "CE": "ce",
    "FLγ-DECE": "meta_focal(objective=dece,schedule=network)",
    "LS (0.05)": "label_smoothing(smoothing=0.05)",
    "MMCE": "mmce",
    "FLγ-SECE, constant rate": "meta_focal(objective=sece)",
    "FLγ": "meta_focal(objective=ce,schedule=network)",
}
LENGTH: dict[str, Scalar] = {"length": "paper", "epochs": 350, "batch_size": 128}
SEEDS = range(3)
RULES: tuple[Selection, ...] = ("last", "best", "best-nll")
MEASURED: tuple[Metric, ...] = (Accuracy(), NLL(), ECE(), MCE(), ACE(), SCE(), AUROC())
METHODS: dict[str, Calibrator] = {
    "TS": TemperatureScaling(),
    "TS (grid)": TemperatureScaling("ece-meta-regularization"),
}


@final
class MetaRegularizationStudy(Study):
    """Table 1 of the paper, CIFAR-100."""

    name: ClassVar[str] = "meta-regularization"
    title: ClassVar[str] = "Meta-Regularization, Wang & Golebiowski 2024"
    folder: ClassVar[Path] = Path(__file__).parent

    def cells(self, *, quick: bool) -> Sequence[Cell]:
        return [Cell(settings) for settings in (_quick_grid() if quick else _grid())]

    def prepare(self, place: Place, *, quick: bool) -> RunCells:
        torch.backends.cudnn.benchmark = True
        if quick:
            dataset = DigitsReader().read()
        elif place.data is None or not place.data.exists():
            raise InputError(f"--data must name the folder of CIFAR-100; got {place.data}.")
        else:
            dataset = CIFAR100().read(place.data)
        return _Trainer(dataset, torch.device("cpu" if quick else place.device)).run

    def numbers(self, records: Sequence[Record]) -> dict[str, Number]:
        return numbers_of(records)

    def page(self, records: Sequence[Record], *, images: Path | None) -> str:
        return page_of(records, images=images)


def _grid() -> Iterator[dict[str, Scalar]]:
    common: dict[str, Scalar] = {"network": "resnet18", "data": "cifar100", "judge_every": 10}
    for seed in SEEDS:
        for name, loss in LOSSES.items():
            yield {"method": name, "loss": loss, "seed": seed, **LENGTH, **common}


def _quick_grid() -> Iterator[dict[str, Scalar]]:
    common: dict[str, Scalar] = {"network": "digits_cnn", "data": "digits", "judge_every": 2}
    for name in ("CE", "FLγ-SECE"):
        length: dict[str, Scalar] = {"length": "quick", "epochs": 6, "batch_size": 64}
        yield {"method": name, "loss": LOSSES[name], "seed": 0, **length, **common}


class _Snapshot(NamedTuple):
    epoch: int
    logits: dict[str, Tensor]  # by held-out part


@final
class _Trainer:
    """Trains one network per cell on one data set, all given cells together."""

    def __init__(self, dataset: Dataset, device: torch.device) -> None:
        self._dataset = dataset
        self._data = TrainingData.of(dataset, split_dataset(dataset, "8:1:1", seed=0)).on(device)

    def run(self, cells: Sequence[Settings], report: Report) -> None:
        """Report each cell's numbers: of every selection rule, uncalibrated and after a temperature; and its epochs."""
        sessions = {
            session_of(
                cell, self._dataset, self._data, recipe="meta-regularization", evaluate_every=int(cell["judge_every"])
            ): place
            for place, cell in enumerate(cells)
        }
        kept: dict[Session, dict[str, _Snapshot]] = {session: {} for session in sessions}
        gammas: dict[Session, list[dict[str, float]]] = {session: [] for session in sessions}  # of test samples
        labels = {name: part.labels.cpu() for name, part in self._data.held_out.items()}

        def after_epoch(session: Session, record: EpochRecord) -> None:
            if not record.held_out:
                return
            chosen = [
                rule
                for rule in RULES
                if selected_epoch(session.records, rule) == record.epoch and (rule != "last" or session.is_finished)
            ]
            if chosen:
                logits = {name: each.cpu() for name, each in session.held_out_logits.items()}
                kept[session] |= dict.fromkeys(chosen, _Snapshot(record.epoch, logits))
            gammas[session].append(_gammas(session))
            # Of a training of minutes or hours.
            name, test = cells[sessions[session]]["method"], record.held_out["test"]
            print(f"{name} epoch {record.epoch} {record.seconds:.2f} s {test} {dict(record.learned)}", flush=True)
            if session.is_finished:
                rules = {rule: _evaluated(snapshot, labels) for rule, snapshot in kept[session].items()}
                judged = [record for record in session.records if record.held_out]
                epochs = [_in_short(record) | gamma for record, gamma in zip(judged, gammas[session], strict=True)]
                report(sessions[session], {"rules": rules, "epochs": epochs})

        def after_failure(session: Session, error: FitError) -> None:
            report(sessions[session], error)

        train_side_by_side(list(sessions), after_epoch=after_epoch, after_failure=after_failure)


def _evaluated(snapshot: _Snapshot, labels: Mapping[str, Tensor]) -> dict[str, Any]:
    return {"epoch": snapshot.epoch} | calibrated_rows(snapshot.logits, labels, METHODS, MEASURED)


def _gammas(session: Session) -> dict[str, float]:
    """Return how a learned loss lies on the test samples; nothing for other losses."""
    if not isinstance(session.loss, MetaLoss):
        return {}
    found = session.loss.describe(features_of(session.model, session.data.held_out["test"]))
    return {f"test_{name}": rounded(value) for name, value in found.items()}


def _in_short(record: EpochRecord) -> dict[str, Any]:
    told = {
        f"{part}_{name}": getattr(held, name)
        for part, held in record.held_out.items()
        for name in ("accuracy", "nll", "ece")
    }
    numbers = {"loss": record.loss, "training_accuracy": record.accuracy, "rate": record.learning_rate} | told
    return {"epoch": record.epoch} | {name: rounded(value) for name, value in (numbers | dict(record.learned)).items()}
