"""The grid of the meta-regularisation study, and how one of its networks is trained and evaluated.

ResNet-18 on data divided 8:1:1, as in the paper: a tenth tunes the learned losses, another selects the epoch and fits
the temperature.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from calibrant.calibrators import Calibrator, TemperatureScaling
from calibrant.datasets import Dataset, split_dataset
from calibrant.losses import MetaLoss
from calibrant.metrics import ACE, AUROC, ECE, MCE, NLL, SCE, Accuracy, Metric
from calibrant.predictions import Predictions
from calibrant.training import EpochRecord, Session, TrainingData
from calibrant.training.recipe import Selection
from calibrant.training.record import features_of
from calibrant.training.session import selected_epoch
from experiments.evaluation import calibrated_rows, reliability_bins, rounded
from experiments.meta_regularization.results import DATA, numbers_of, page_of
from experiments.runner import Scalar, Settings, Study, Table
from experiments.trained import Network, Training

__all__ = ["META_REGULARIZATION_STUDY"]

# By the paper's names. It does not say how fast γ-Net learns; the rate follows the network's unless the name says not.
WAYS: dict[str, dict[str, Scalar]] = {
    "Focal": {"loss": "focal(gamma=1)"},
    "FLγ-SECE": {"loss": "meta_focal(objective=sece,schedule=network)"},
    "CE": {"loss": "ce"},
    "FLγ-DECE": {"loss": "meta_focal(objective=dece,schedule=network)"},
    "LS (0.05)": {"loss": "label_smoothing(smoothing=0.05)"},
    "MMCE": {"loss": "mmce"},
    "FLγ-SECE, constant rate": {"loss": "meta_focal(objective=sece)"},
    "FLγ": {"loss": "meta_focal(objective=ce,schedule=network)"},
    "FLSD": {"loss": "flsd"},
    "LS (0.1)": {"loss": "label_smoothing(smoothing=0.1)"},
    "Mixup (1.0)": {"loss": "ce", "mixup": 1.0},
    "CE-DECE": {"loss": "meta_l2(objective=dece)"},
    "CE-SECE": {"loss": "meta_l2(objective=sece)"},
}
# Table 3 copies the numbers of other papers; these are their losses in the recipe of this one, with the weights of
# their authors' code where there is such, and else of the library.
RECENT: dict[str, dict[str, Scalar]] = {
    "MbLS": {"loss": "mbls"},
    "MbLS, no margin": {"loss": "mbls(margin=0)"},
    "Focal + MDCA": {"loss": "mdca(base=focal(gamma=1))"},
    "Focal + SB-ECE": {"loss": "sb_ece(base=focal(gamma=1))"},
    "Focal + SB-AvUC": {"loss": "soft_avuc(base=focal(gamma=1))"},
}
FIRST = tuple(WAYS)[:8]  # with what Table 2 and the claims of Table 1 need
SEEDS = range(3)
RULES: tuple[Selection, ...] = ("last", "best", "best-nll")
MEASURED: tuple[Metric, ...] = (Accuracy(), NLL(), ECE(), MCE(), ACE(), SCE(), AUROC())
BINS = (10, 15, 20, 50, 100, 200, 500, 1000)  # Fig. 5, and 15
DRAWN_BINS = (15, 100)  # Fig. 2 and 4: those with 20 and 50 bins follow from 100
METHODS: dict[str, Calibrator] = {
    "TS": TemperatureScaling(),
    "TS (grid)": TemperatureScaling("ece-meta-regularization"),
}


def _grid() -> Iterator[dict[str, Scalar]]:
    common: dict[str, Scalar] = {"network": "resnet18", "epochs": 350, "batch_size": 128, "evaluate_every": 10}
    ways, later = WAYS | RECENT, [method for method in WAYS if method not in FIRST]
    for data, methods in (
        ("cifar100", FIRST),
        ("cifar10", FIRST),
        ("cifar100", later),
        ("cifar10", later),
        ("tiny_imagenet", tuple(WAYS)),
        ("cifar100", tuple(RECENT)),
        ("cifar10", tuple(RECENT)),
    ):
        for seed in SEEDS:
            for method in methods:
                yield {"method": method, **ways[method], "seed": seed, "data": data, **common}


def _quick_grid() -> Iterator[dict[str, Scalar]]:
    common: dict[str, Scalar] = {"network": "digits_cnn", "epochs": 6, "batch_size": 64, "evaluate_every": 2}
    for method in ("CE", "FLγ-SECE"):
        yield {"method": method, **WAYS[method], "seed": 0, "data": "digits", **common}


def _divided(dataset: Dataset, _cell: Settings, _folder: Path) -> TrainingData:
    return TrainingData.of(dataset, split_dataset(dataset, "8:1:1", seed=0))


def _keep(network: Network, record: EpochRecord) -> None:
    """Keep the logits of the epoch that each rule selects so far, and how a learned loss lies on the test samples."""
    session = network.session
    for rule in RULES:
        if selected_epoch(session.records, rule) == record.epoch and (rule != "last" or session.is_finished):
            network.kept.setdefault("rules", {})[rule] = (record.epoch, network.logits)
    network.kept.setdefault("epochs", []).append(_in_short(record) | _gammas(session))


def _evaluated(network: Network) -> dict[str, Any]:
    rules = {
        rule: {"epoch": epoch} | calibrated_rows(logits, network.labels, METHODS, MEASURED)
        for rule, (epoch, logits) in network.kept["rules"].items()
    }
    test = Predictions.from_logits(network.kept["rules"]["best"][1]["test"], network.labels["test"])
    errors = {str(n_bins): [rounded(float(metric(test))) for metric in (ECE(n_bins), MCE(n_bins))] for n_bins in BINS}
    diagrams = {str(n_bins): reliability_bins(test, n_bins) for n_bins in DRAWN_BINS}
    return {"rules": rules, "epochs": network.kept["epochs"], "bins": errors, "diagrams": diagrams}


def _gammas(session: Session) -> dict[str, float]:
    """Return how a learned loss lies on the test samples; nothing for other losses."""
    if not isinstance(session.loss, MetaLoss):
        return {}
    results = session.loss.describe(features_of(session.model, session.data.held_out["test"]))
    return {f"test_{name}": rounded(value) for name, value in results.items()}


def _in_short(record: EpochRecord) -> dict[str, Any]:
    described = {
        f"{part}_{name}": getattr(held, name)
        for part, held in record.held_out.items()
        for name in ("accuracy", "nll", "ece")
    }
    numbers = {"loss": record.loss, "training_accuracy": record.accuracy, "rate": record.learning_rate} | described
    return {"epoch": record.epoch} | {name: rounded(value) for name, value in (numbers | dict(record.learned)).items()}


def _tables() -> Iterator[Table]:
    for data, title in DATA.items():
        if data != "digits":
            yield Table(f"Tables 1 and 2, {title}", (f"data={data}", *(f"method={method}" for method in WAYS)))
    for data in ("cifar100", "cifar10"):
        yield Table(f"Table 3, {DATA[data]}", (f"data={data}", *(f"method={method}" for method in RECENT)))


META_REGULARIZATION_STUDY = Study(
    name="meta-regularization",
    title="Meta-Regularization, Wang & Golebiowski 2024",
    folder=Path(__file__).parent,
    grid=_grid,
    quick_grid=_quick_grid,
    prepare=Training(_evaluated, divide=_divided, keep=_keep, recipe="meta-regularization").prepare,
    numbers=numbers_of,
    page=page_of,
    tables=tuple(_tables()),
)
