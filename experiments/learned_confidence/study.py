"""The grid of Table 4 of "On the Dark Side of Calibration": networks, and a learned confidence behind each.

As in the appendix A.2, ConfidNet learns from the augmented images that its network was trained on, and a tenth of the
training images, which neither saw, chooses its epoch. Beside it are a temperature, and a head that learns from that
tenth.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, final

import torch
from torch import Tensor, nn

from calibrant.calibrators import TemperatureScaling
from calibrant.confidence import ConfidenceHead, ConfidNet
from calibrant.datasets import CIFAR10, CIFAR100, Dataset, DatasetReader, DigitsReader, split_dataset
from calibrant.errors import FitError, InputError, SeparableError
from calibrant.metrics import AUROC, ECE, AUPRError, Metric
from calibrant.predictions import Predictions, TopLabel
from calibrant.training import EpochRecord, Session, TrainingData
from calibrant.training.data import PADDING, DeviceData, StoredSamples
from calibrant.training.record import features_of, logits_of
from experiments.evaluation import differences_of, network_of, rounded, session_of, with_intervals
from experiments.learned_confidence.results import numbers_of, page_of
from experiments.numbers import Number
from experiments.records import Record
from experiments.runner import Cell, Place, Report, RunCells, Scalar, Settings, Study
from experiments.side_by_side import train_side_by_side

__all__ = ["LearnedConfidenceStudy", "random_moves"]

SEEDS = range(3)
NETWORK: dict[str, Scalar] = {"loss": "ce", "recipe": "dark-side-by-5", "network": "vgg16_bn"}
# The paper takes ConfidNet's own settings, 500 epochs of the head; it names no others.
LENGTH: dict[str, Scalar] = {"epochs": 100, "evaluate_every": 25, "head_epochs": 100, "fine_tune_epochs": 10}
READERS: dict[str, type[DatasetReader]] = {"cifar100": CIFAR100, "cifar10": CIFAR10, "digits": DigitsReader}
MEASURED: tuple[Metric, ...] = (ECE(), AUROC(), AUPRError())


@final
class LearnedConfidenceStudy(Study):
    """Table 4 of the paper."""

    name: ClassVar[str] = "learned-confidence"
    title: ClassVar[str] = "On the Dark Side of Calibration, Singh et al. 2021: Table 4"
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
    for seed in SEEDS:
        for data in ("cifar100", "cifar10"):
            yield {"method": "Baseline", **NETWORK, "seed": seed, "data": data, **LENGTH}


def _quick_grid() -> Iterator[dict[str, Scalar]]:
    small: dict[str, Scalar] = {"network": "digits_cnn", "data": "digits", "batch_size": 64}
    length: dict[str, Scalar] = {"epochs": 2, "evaluate_every": 2, "head_epochs": 3, "fine_tune_epochs": 1}
    yield {"method": "Baseline", **NETWORK, "seed": 0, **small, **length}


class _Loaded(NamedTuple):
    dataset: Dataset
    data: TrainingData
    parts: DeviceData


@final
class _Trainer:
    """Trains one network per cell, all given cells of one data set together, and then the heads in turn."""

    def __init__(self, folder: Path, device: torch.device) -> None:
        self._folder, self._device = folder, device
        self._loaded: dict[str, _Loaded] = {}

    def run(self, cells: Sequence[Settings], report: Report) -> None:
        """Report the test samples' numbers of the softmax, a temperature and two heads, and their differences."""
        for data in dict.fromkeys(str(cell["data"]) for cell in cells):
            places = [place for place, cell in enumerate(cells) if cell["data"] == data]
            try:
                loaded = self._load(data)
            except InputError as error:
                for place in places:
                    report(place, error)
                continue
            for place, network in self._trained({place: cells[place] for place in places}, loaded, report):
                try:
                    report(place, _evaluated(network, cells[place], loaded))
                except (FitError, SeparableError) as error:
                    report(place, error)

    def _load(self, name: str) -> _Loaded:
        if name not in self._loaded:
            dataset = READERS[name]().read(self._folder)
            data = TrainingData.of(dataset, split_dataset(dataset, "holdout", seed=0))
            self._loaded[name] = _Loaded(dataset, data, data.on(self._device))
        return self._loaded[name]

    def _trained(
        self, cells: Mapping[int, Settings], loaded: _Loaded, report: Report
    ) -> Iterator[tuple[int, nn.Module]]:
        """Train the networks, and return each that did not fail, as it was built: no part of it is compiled."""
        sessions = {
            session_of(
                cell, loaded.dataset, loaded.parts,
                recipe=str(cell["recipe"]), evaluate_every=int(cell["evaluate_every"]),
            ): place
            for place, cell in cells.items()
        }  # fmt: skip

        def after_epoch(session: Session, record: EpochRecord) -> None:
            if record.held_out:  # of a training of minutes
                test = record.held_out["test"]
                print(f"seed {cells[sessions[session]]['seed']} epoch {record.epoch} {test}", flush=True)

        failed: set[Session] = set()

        def after_failure(session: Session, error: FitError) -> None:
            failed.add(session)
            report(sessions[session], error)

        train_side_by_side(list(sessions), after_epoch=after_epoch, after_failure=after_failure)
        for session, place in sessions.items():
            if session not in failed:
                network = network_of(cells[place], loaded.dataset)
                network.load_state_dict(session.model.state_dict())
                yield place, network.to(self._device).eval()


def _evaluated(network: nn.Module, cell: Settings, loaded: _Loaded) -> dict[str, Any]:
    parts = loaded.parts
    calibration, test = parts.held_out["calibration"], parts.held_out["test"]
    known, answers = (_predictions(network, part) for part in (calibration, test))
    seed, head_epochs = int(cell["seed"]), int(cell["head_epochs"])
    temperature = TemperatureScaling().fit(known)
    rows: dict[str, TopLabel] = {"Baseline": answers.top, "TS": temperature.transform(answers).top}

    inputs = torch.cat([_plain(part) for part in (parts.training, calibration)])
    labels = torch.cat([parts.training.labels, calibration.labels])
    method = ConfidNet(epochs=head_epochs, fine_tune_epochs=int(cell["fine_tune_epochs"]), seed=seed)
    learned = method.fit(
        network,
        (inputs, labels),
        augment=random_moves(loaded.data, seed=seed),
        validation=torch.arange(len(parts.training), len(labels)),
        progress=lambda text, _done: print(f"seed {seed} {text}", flush=True),
    )
    del inputs
    head = learned.head
    assert isinstance(head, ConfidenceHead)
    rows["CFN"] = head.top_label(answers, features_of(learned.encoder or network, test))
    small = ConfidNet(epochs=head_epochs, seed=seed).fit_features(known, features_of(network, calibration))
    rows["CFN (held-out samples)"] = small.top_label(answers, features_of(network, test))
    assert head.choice is not None
    assert small.choice is not None
    return {
        "accuracy": rounded(float(answers.correct.float().mean())),
        "wrong": {"training": _wrong(network, parts.training), "calibration": int((~known.correct).sum())},
        "T": rounded(float(temperature.temperature)),
        "epoch": {"CFN": head.choice.epoch, "CFN (held-out samples)": small.choice.epoch},
        "fine_tuned": head.choice.fine_tuned,
        "rows": {name: with_intervals(row, MEASURED) for name, row in rows.items()},
        "differences": {
            name: differences_of(rows["Baseline"], row, MEASURED) for name, row in rows.items() if name != "Baseline"
        },
    }


def _predictions(network: nn.Module, samples: StoredSamples) -> Predictions:
    return Predictions.from_logits(logits_of(network, samples).cpu(), samples.labels.cpu())


def _wrong(network: nn.Module, samples: StoredSamples) -> int:
    return int((logits_of(network, samples).argmax(dim=1) != samples.labels).sum())


def _plain(samples: StoredSamples) -> Tensor:
    """Return all inputs as the network takes them, unaugmented."""
    numbers = torch.arange(len(samples), device=samples.labels.device)
    return torch.cat([samples.inputs.plain(some) for some in numbers.split(1024)])


def random_moves(data: TrainingData, *, seed: int) -> Callable[[Tensor], Tensor] | None:
    """Return what moves images, (n, c, h, w), as they are in training: shifts with a black border, and mirrors.

    Args:
        data: Its augmentation says what is done, nothing for ``none``; its pixel scale, what is black.
        seed: Random seed.
    """
    if data.augmentation == "none" or data.pixel_scale is None:
        return None
    black = -(torch.tensor(data.pixel_scale.mean) / torch.tensor(data.pixel_scale.std))[:, None, None]
    generator = torch.Generator().manual_seed(seed)

    def moved(images: Tensor) -> Tensor:
        n, _, height, width = images.shape
        shifts = torch.randint(2 * PADDING + 1, (2, n, 1), generator=generator)
        down, right = shifts[0] + torch.arange(height), shifts[1] + torch.arange(width)
        if data.augmentation == "crop-flip":
            right = torch.where(torch.rand(n, 1, generator=generator) < 0.5, right.flip(1), right)
        framed = black.to(images).expand(n, -1, height + 2 * PADDING, width + 2 * PADDING).clone()
        framed[:, :, PADDING:-PADDING, PADDING:-PADDING] = images
        at = (torch.arange(n)[:, None, None], down[:, :, None], right[:, None, :])
        pixels: Tensor = framed.permute(0, 2, 3, 1)[tuple(each.to(images.device) for each in at)]
        return pixels.permute(0, 3, 1, 2)

    return moved
