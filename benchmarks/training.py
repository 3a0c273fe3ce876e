"""An epoch of training: :class:`~calibrant.training.Session` beside a plain loop, and several networks at once."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.device import Place
from benchmarks.timing import in_turns
from calibrant.datasets.dataset import PixelScale, Samples
from calibrant.losses import CrossEntropyLoss
from calibrant.models import build_model
from calibrant.training import Recipe, RuntimeOptions, Session, TrainingData, train_together

__all__ = ["one_epoch_each", "random_images", "report"]

CLASSES, PADDING = 10, 4
SCALE = PixelScale((0.5, 0.5, 0.5), (0.25, 0.25, 0.25))


@dataclass(frozen=True)
class _Size:
    """What is trained, and how often."""

    networks: tuple[str, ...]
    images: int
    batch: int
    at_once: tuple[int, ...]
    rounds: int

    @property
    def recipe(self) -> Recipe:
        return Recipe(epochs=1, batch_size=self.batch, learning_rate=0.01, schedule="constant")


ON_GPU = _Size(("resnet32", "resnet18"), 45_000, 512, (1, 2, 4), rounds=3)
# A processor takes turns, so several at once would only be more of the same.
ON_PROCESSOR = _Size(("resnet20",), 512, 128, (1,), rounds=2)


def report() -> str:
    """The section of the results."""
    place = Place.best()
    size = ON_GPU if place.is_gpu else ON_PROCESSOR
    precision = "bfloat16 where autocast takes it" if place.is_gpu else "float32"
    about = (
        f"{size.images:,} random images, 3 x 32 x 32, in batches of {size.batch}, cropped and mirrored where they are "
        f"trained on; {precision}, channels last, momentum SGD. The plain loop is what one writes by hand: no loader, "
        "no compiling, `torch.optim.SGD`. Neither looks at other rows after the epoch. Warm-up is by how many seconds "
        "the first epoch took longer; on a GPU a session compiles and records in it, each network once. "
        f"{place.about}"
    )
    lines = [
        f"## An epoch of training, on {place.title}",
        "",
        about,
        "",
        "| network | loop | networks at once | seconds an epoch and network | plain loop, in times this | warm-up |",
        "|---|---|---|---|---|---|",
    ]
    for network in size.networks:
        lines += _measure(network, size, place)
    return "\n".join(lines) + "\n"


def random_images(n: int, n_classes: int) -> TrainingData:
    """Images as CIFAR's are stored, of noise; labels that have nothing to do with them."""
    chance = torch.Generator().manual_seed(0)
    images = torch.randint(256, (n, 3, 32, 32), dtype=torch.uint8, generator=chance)
    labels = torch.randint(n_classes, (n,), generator=chance)
    return TrainingData(Samples(images, labels), {}, tuple(map(str, range(n_classes))), SCALE, "crop-flip")


def _measure(network: str, size: _Size, place: Place) -> list[str]:
    data = random_images(size.images, CLASSES)
    stored = data.on(place.device)
    models = [build_model(network, n_classes=CLASSES, seed=seed) for seed in range(max(size.at_once))]
    sessions = [
        Session(model, CrossEntropyLoss(), stored, size.recipe, RuntimeOptions(traced=False)) for model in models
    ]
    counts = {"plain": 1} | {f"session {count}": count for count in size.at_once}
    tasks = {"plain": _plain_loop(network, data.training, size.recipe, place)}
    tasks |= {f"session {count}": one_epoch_each(sessions[:count]) for count in size.at_once}
    first = in_turns(tasks, rounds=1, clock=place.clock)
    times = in_turns(tasks, rounds=size.rounds, clock=place.clock)
    lines = []
    for name, count in counts.items():
        seconds = times[name] / count
        lines.append(
            f"| {network} | {name.split()[0]} | {count} | {seconds:.2f} | {times['plain'] / seconds:.2f} | "
            f"{max(first[name] - times[name], 0):.1f} |"
        )
    return lines


def one_epoch_each(sessions: list[Session]) -> Callable[[], None]:
    """One epoch of each, however many they have had."""

    def train() -> None:
        for session in sessions:
            session.epoch = 0  # of one: not finished
        train_together(sessions)

    return train


def _plain_loop(network: str, rows: Samples, recipe: Recipe, place: Place) -> Callable[[], None]:
    """An epoch as one writes it by hand, with the images on the device."""
    device = place.device
    model = build_model(network, n_classes=CLASSES).to(device).train()
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimiser = torch.optim.SGD(
        model.parameters(), recipe.learning_rate, momentum=recipe.momentum, weight_decay=recipe.weight_decay
    )
    images = F.pad(rows.tensor, (PADDING,) * 4).to(device)
    labels = rows.labels.to(device)
    mean, std = (torch.tensor(values, device=device)[:, None, None] for values in (SCALE.mean, SCALE.std))

    def train() -> None:
        order = torch.randperm(len(labels), device=device)
        losses = torch.zeros((), device=device)
        for at in range(0, len(order) - recipe.batch_size + 1, recipe.batch_size):
            batch = order[at : at + recipe.batch_size]
            inputs = (_moved(images, batch).float() / SCALE.peak - mean) / std
            with torch.autocast(device.type, torch.bfloat16, enabled=place.is_gpu):
                logits = model(inputs)
                loss = F.cross_entropy(logits, labels[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses += loss.detach()
        if not torch.isfinite(losses):
            raise ArithmeticError("the plain loop must stay finite; its loss is not.")

    return train


def _moved(padded: Tensor, batch: Tensor) -> Tensor:
    """Crops of padded images (n, c, h + 8, w + 8), half of them mirrored, (b, c, h, w) with the channels last."""
    n, side = len(batch), padded.shape[-1] - 2 * PADDING
    along = torch.arange(side, device=padded.device)
    mirrored = torch.rand(n, 1, device=padded.device) < 0.5
    down, right = (torch.randint(2 * PADDING + 1, (n, 1), device=padded.device) for _ in range(2))
    rows, columns = along + down, torch.where(mirrored, side - 1 - along, along) + right
    return padded[batch[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
