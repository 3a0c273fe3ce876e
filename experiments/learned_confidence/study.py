"""The grid of Table 4 of "On the Dark Side of Calibration": networks, and a learned confidence behind each.

As in the appendix A.2, ConfidNet learns from the augmented images that its network was trained on, and a tenth of the
training images, which neither saw, chooses its epoch. Beside it are a temperature, and a head that learns from that
tenth.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from calibrant.calibrators import TemperatureScaling
from calibrant.confidence import ConfidenceHead, ConfidNet
from calibrant.metrics import AUROC, ECE, AUPRError, Metric
from calibrant.predictions import Predictions, TopLabel
from calibrant.training import TrainingData
from calibrant.training.data import StoredSamples
from calibrant.training.record import features_of, logits_of
from calibrant.training.stores import PADDING
from experiments.evaluation import differences_of, rounded, with_intervals
from experiments.learned_confidence.results import numbers_of, page_of
from experiments.runner import Scalar, Study, Table
from experiments.trained import Network, Training, network_of

__all__ = ["LEARNED_CONFIDENCE_STUDY", "random_moves"]

SEEDS = range(3)
NETWORK: dict[str, Scalar] = {"loss": "ce", "recipe": "dark-side-by-5", "network": "vgg16_bn"}
# The paper takes ConfidNet's own settings, 500 epochs of the head; it names no others.
LENGTH: dict[str, Scalar] = {"epochs": 100, "evaluate_every": 25, "head_epochs": 100, "fine_tune_epochs": 10}
MEASURED: tuple[Metric, ...] = (ECE(), AUROC(), AUPRError())


def _grid() -> Iterator[dict[str, Scalar]]:
    for seed in SEEDS:
        for data in ("cifar100", "cifar10"):
            yield {"method": "Baseline", **NETWORK, "seed": seed, "data": data, **LENGTH}


def _quick_grid() -> Iterator[dict[str, Scalar]]:
    small: dict[str, Scalar] = {"network": "digits_cnn", "data": "digits", "batch_size": 64}
    length: dict[str, Scalar] = {"epochs": 2, "evaluate_every": 2, "head_epochs": 3, "fine_tune_epochs": 1}
    yield {"method": "Baseline", **NETWORK, "seed": 0, **small, **length}


def _evaluated(trained: Network) -> dict[str, Any]:
    cell, (dataset, data, parts) = trained.cell, trained.loaded
    network = network_of(cell, dataset)  # as it was built: no part of it is compiled
    network.load_state_dict(trained.session.model.state_dict())
    network.to(parts.training.labels.device).eval()
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
        augment=random_moves(data, seed=seed),
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
        pixels: Tensor = framed.permute(0, 2, 3, 1)[tuple(axis.to(images.device) for axis in at)]
        return pixels.permute(0, 3, 1, 2)

    return moved


LEARNED_CONFIDENCE_STUDY = Study(
    name="learned-confidence",
    title="On the Dark Side of Calibration, Singh et al. 2021: Table 4",
    folder=Path(__file__).parent,
    grid=_grid,
    quick_grid=_quick_grid,
    prepare=Training(_evaluated, when="after all").prepare,
    numbers=numbers_of,
    page=page_of,
    tables=(Table("Table 4, CIFAR-10", ("data=cifar10",)), Table("Table 4, CIFAR-100", ("data=cifar100",))),
)
