"""Networks that a study trains: those of one data set side by side on one device, each evaluated when it is trained."""

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, final

import torch
from torch import Tensor, nn

from calibrant import catalogue
from calibrant.datasets import Dataset, split_dataset
from calibrant.errors import FileError, FitError, InputError, SeparableError
from calibrant.models import build_model
from calibrant.training import RECIPES, EpochRecord, RuntimeOptions, Session, TrainingData
from calibrant.training.data import DeviceData
from calibrant.training.folder import DAMAGED, read_tensors, write_tensors
from experiments.runner import Cell, Place, Report, RunCells, Settings

__all__ = ["Network", "Training", "holdout", "network_of", "train_side_by_side"]

_QUEUED_STEPS = 24  # that a network may have queued on the device: enough to keep it busy, too few to fill its queue


class Loaded(NamedTuple):
    """A data set, divided, and its parts on the device."""

    dataset: Dataset
    data: TrainingData
    parts: DeviceData


@final
@dataclass(frozen=True, eq=False)
class Network:
    """A cell's network with its training and its data.

    Args:
        cell: Its settings.
        session: Its training.
        loaded: What it is trained on.
        kept: What the study keeps of its epochs.
    """

    cell: Settings
    session: Session
    loaded: Loaded
    kept: dict[str, Any] = field(default_factory=dict)

    @property
    def logits(self) -> dict[str, Tensor]:
        """Logits of the held-out parts by their names."""
        return {name: part.cpu() for name, part in self.session.held_out_logits.items()}

    @property
    def labels(self) -> dict[str, Tensor]:
        """Labels of the same."""
        return {name: part.labels.cpu() for name, part in self.loaded.parts.held_out.items()}


Divide: TypeAlias = Callable[[Dataset, Settings, Path], TrainingData]


def holdout(dataset: Dataset, _cell: Settings, _folder: Path) -> TrainingData:
    """Return the data with a tenth of the training samples held out."""
    return TrainingData.of(dataset, split_dataset(dataset, "holdout", seed=0))


def _keep_nothing(_network: Network, _record: EpochRecord) -> None:
    pass


@final
@dataclass(frozen=True)
class Training:
    """The training of a study's networks: one per cell, with the cell's ``network``, ``loss``, ``recipe`` and ``seed``.

    Args:
        evaluate: Returns a trained network's numbers.
        when: Evaluate each network while others train, or all of them after that.
        divide: Makes training data of a data set, a cell's settings and the folder of the files.
        keep: Called after every epoch that has metrics of held-out samples.
        recipe: For cells that name none.
    """

    evaluate: Callable[[Network], dict[str, Any]]
    when: Literal["at its end", "after all"] = "at its end"
    divide: Divide = holdout
    keep: Callable[[Network, EpochRecord], None] = _keep_nothing
    recipe: str = ""

    def prepare(self, place: Place, cells: Sequence[Cell], *, quick: bool) -> RunCells:
        """Load the data of the cells, and return what trains their networks.

        Raises:
            InputError: If the data are not there.
        """
        torch.backends.cudnn.benchmark = True
        names = dict.fromkeys(str(cell.settings["data"]) for cell in cells)
        if not quick and (place.data is None or not place.data.exists()):
            raise InputError(
                f"--data must name the folder with the files of {', '.join(names)} (docs/reproduce.md lists them, "
                f"--download fetches them); got {place.data}."
            )
        folder, device = place.data or Path(), torch.device("cpu" if quick else place.device)
        datasets = _read_all(names, folder)
        loaded: dict[tuple[object, ...], Loaded] = {}
        for settings in (cell.settings for cell in cells):
            if _samples(settings) not in loaded:
                dataset = datasets[str(settings["data"])]
                data = self.divide(dataset, settings, folder)
                if dataset.are_files:
                    held = sum(map(len, data.held_out.values()))
                    print(f"every one of {held:,} held-out pictures is read once before a cell begins", flush=True)
                loaded[_samples(settings)] = Loaded(dataset, data, data.on(device))
        return partial(self._run, place, loaded)

    def _run(
        self, where: Place, loaded: Mapping[tuple[object, ...], Loaded], cells: Sequence[Settings], report: Report
    ) -> None:
        for samples in dict.fromkeys(map(_samples, cells)):
            own = {place: cell for place, cell in enumerate(cells) if _samples(cell) == samples}
            networks = {
                place: Network(cell, self._session(cell, loaded[samples]), loaded[samples])
                for place, cell in own.items()
            }
            self._train(networks, where, report)

    def _session(self, cell: Settings, loaded: Loaded) -> Session:
        changed = {name: cell[name] for name in ("epochs", "batch_size", "mixup", "seed") if name in cell}
        return Session(
            network_of(cell, loaded.dataset),
            catalogue.parse_any_loss(str(cell["loss"])),
            loaded.parts,
            RECIPES[str(cell.get("recipe", self.recipe))].changed(changed),
            RuntimeOptions(evaluate_every=int(cell["evaluate_every"]), traced=bool(cell.get("traced", False))),
            name=str(cell["method"]),
        )

    def _train(self, networks: Mapping[int, Network], where: Place, report: Report) -> None:
        places = {network.session: place for place, network in networks.items()}
        states = {
            place: Underway(where.networks, Cell(network.cell), where.commit) for place, network in networks.items()
        }
        waiting = dict(networks)
        for place, network in networks.items():
            states[place].resume(network.session, network.kept)

        def evaluate(place: int) -> None:
            before = {"before": states[place].before} if states[place].before else {}
            try:
                report(place, self.evaluate(waiting.pop(place)) | before)
            except (FitError, SeparableError) as error:
                report(place, error)
            states[place].end()

        def after_epoch(session: Session, record: EpochRecord) -> None:
            place = places[session]
            if record.held_out:
                self.keep(networks[place], record)
                cell, test, learned = networks[place].cell, record.held_out["test"], dict(record.learned) or ""
                named = f"{cell['method']} seed {cell['seed']} epoch {record.epoch}"  # of minutes or hours
                numbers = f"test accuracy {test.accuracy:.4f}, log-loss {test.nll:.4f}, ece {test.ece:.4f}"
                print(f"{named}: {record.seconds:.2f} s, {numbers} {learned}".rstrip(), flush=True)
            states[place].write(session, networks[place].kept)
            if session.is_finished and self.when == "at its end":
                evaluate(place)

        def after_failure(session: Session, error: FitError) -> None:
            place = places[session]
            del waiting[place]
            report(place, error)
            states[place].end()

        train_side_by_side(list(places), after_epoch=after_epoch, after_failure=after_failure)
        for place in tuple(waiting):
            evaluate(place)


def _read_all(names: Iterable[str], folder: Path) -> dict[str, Dataset]:
    """Read data sets; an InputError names everything that is missing."""
    datasets, missing = dict[str, Dataset](), list[str]()
    for name in names:
        try:
            datasets[name] = catalogue.datasets.parse(name).read(folder)
        except FileError as error:
            missing.append(str(error))
    if missing:
        others = " ".join(f"--only data={name}" for name in datasets)
        raise InputError(" ".join([*missing, f"Or run the cells of the others: {others}." if others else ""]).strip())
    return datasets


def _samples(cell: Settings) -> tuple[object, ...]:
    """Return what decides which samples a cell is trained on."""
    return cell["data"], cell.get("train_samples")


def network_of(cell: Settings, dataset: Dataset) -> nn.Module:
    """Return a cell's ``network`` as its ``seed`` begins it, with the sizes of a data set."""
    shape, n_words = dataset.training.inputs.shape, dataset.n_words
    sizes = {} if n_words else {"in_channels": shape[1], "image_size": shape[-1]}
    return build_model(
        str(cell["network"]), n_classes=dataset.n_classes, n_words=n_words, seed=int(cell["seed"]), **sizes
    )


def train_side_by_side(
    sessions: Sequence[Session],
    *,
    after_epoch: Callable[[Session, EpochRecord], None],
    after_failure: Callable[[Session, FitError], None],
) -> None:
    """Train all networks to their last epoch, in a thread each; while one is evaluated the others train.

    The results are those of :func:`calibrant.training.train_together` for networks whose recorded step draws no random
    numbers, such as networks without dropout. Only steps run in parallel; what precedes and follows an epoch does not.

    Args:
        sessions: On one device.
        after_epoch: Called after each epoch of each network, never by two threads at once.
        after_failure: Called when the loss or the logits of a network are no longer finite; the others go on.
    """
    one_at_a_time = threading.Lock()

    def train(session: Session) -> None:
        while True:
            for step in range(session.steps_an_epoch):
                session.advance()
                if (step + 1) % _QUEUED_STEPS == 0:
                    session.wait()
            session.wait()
            with one_at_a_time:
                try:
                    record = session.end_epoch()
                except FitError as error:
                    after_failure(session, error)
                    return
                after_epoch(session, record)
                if session.is_finished:
                    return
                session.begin_epoch()

    unfinished = [session for session in sessions if not session.is_finished]
    if not unfinished:
        return
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        for session in unfinished:  # not in its thread: nothing else may run while a step is recorded
            session.begin_epoch()
        with ThreadPoolExecutor(len(unfinished)) as pool:
            for future in [pool.submit(train, session) for session in unfinished]:
                future.result()


# What a cell's training needs to resume, written every minute until the cell has a record.

_SECONDS = 60.0  # between two states
_KEPT = "kept."  # begins the names of tensors that the study keeps of its epochs


@final
class Underway:
    """The state of one cell's training by a commit, in a file of a folder; without a folder nothing is written."""

    def __init__(self, folder: Path | None, cell: Cell, commit: str) -> None:
        name = f"under-way-{sha256(cell.key.encode()).hexdigest()[:16]}.safetensors"
        self._path, self._cell, self._commit = None if folder is None else folder / name, cell, commit
        self._began = self._written = time.monotonic()
        self.before: list[dict[str, Any]] = []  # earlier runs: their commit, last epoch and seconds

    def resume(self, session: Session, kept: dict[str, Any]) -> None:
        """Restore the last state, if there is one, and what the study had ``kept`` of its epochs.

        Raises:
            FileError: If it is damaged, or one of another training.
        """
        if self._path is None or not self._path.exists():
            return
        try:
            document, tensors = read_tensors(self._path)
            if (document["cell"], document["recipe"]) != self._settings(session):
                raise FileError("its settings are others")
            logits = {name: tensors.pop(name) for name in tuple(tensors) if name.startswith(_KEPT)}
            session.restore(tensors, [EpochRecord.from_dict(record) for record in document["records"]])
            kept.update(_joined(document["kept"], logits))
            self.before = [*document["before"], document["run"]]
        except DAMAGED as error:
            raise FileError(
                f"{self._path} must be the state of this cell's training ({self._cell}); it is damaged or another's "
                f"({error}). Delete it to begin the cell again."
            ) from error

    def write(self, session: Session, kept: Mapping[str, Any]) -> None:
        """Write the state if the last one is a minute old."""
        now = time.monotonic()
        if self._path is None or session.is_finished or now - self._written < _SECONDS:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        logits: dict[str, Tensor] = {}
        cell, recipe = self._settings(session)
        document = {
            "cell": cell,
            "recipe": recipe,
            "records": [record.as_dict() for record in session.records],
            "kept": _parted(kept, logits, _KEPT),
            "before": self.before,
            "run": {"commit": self._commit, "epoch": session.epoch, "seconds": round(now - self._began, 3)},
        }
        write_tensors(session.state() | logits, self._path, document)
        self._written = now

    def end(self) -> None:
        """Remove the state of a network whose cell has an answer."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _settings(self, session: Session) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what decides the result, as JSON has it."""
        recipe: dict[str, Any] = json.loads(json.dumps(asdict(session.recipe)))
        return dict(self._cell.settings), recipe


def _parted(value: Any, tensors: dict[str, Tensor], name: str) -> Any:
    """Return plain data with the names of the tensors in it, which are put into ``tensors``."""
    if isinstance(value, Tensor):
        tensors[name] = value.cpu().contiguous().clone()  # two names may have one tensor, which a file cannot
        return {"tensor": name}
    if isinstance(value, Mapping):
        return {key: _parted(inner, tensors, f"{name}{key}.") for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_parted(inner, tensors, f"{name}{place}.") for place, inner in enumerate(value)]
    return value


def _joined(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Return what :func:`_parted` took apart; tuples are lists."""
    if isinstance(value, dict):
        if value.keys() == {"tensor"}:
            return tensors[value["tensor"]]
        return {key: _joined(inner, tensors) for key, inner in value.items()}
    return [_joined(inner, tensors) for inner in value] if isinstance(value, list) else value
