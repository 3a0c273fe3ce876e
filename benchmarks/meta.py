"""What a loss that is learned costs: an epoch with it, in times one with the focal loss."""

from dataclasses import replace

from benchmarks.bounds import Bound
from benchmarks.device import Place
from benchmarks.timing import in_turns
from benchmarks.training import one_epoch_each, random_images
from calibrant.losses import FocalLoss, Loss, MetaFocalLoss, MetaL2Loss, MetaLoss, MetaSmoothingLoss
from calibrant.models import build_model
from calibrant.training import Recipe, Session

__all__ = ["report"]

MOST = 1.6  # in times the focal loss, for gamma-Net with SECE on a GPU
CLASSES = 100


def report() -> str:
    """The section of the results."""
    place = Place.best()
    network, n, batch = ("resnet18", 40_000, 512) if place.is_gpu else ("resnet20", 512, 128)
    data = random_images(n, CLASSES)
    stored = replace(data, meta=random_images(batch, CLASSES).training).on(place.device)
    recipe = Recipe(epochs=1, batch_size=batch, learning_rate=0.01, schedule="constant")
    losses: dict[str, Loss | MetaLoss] = {
        "focal": FocalLoss(gamma=1.0),
        "meta_focal, SECE": MetaFocalLoss(objective="sece"),
        "meta_focal, DECE": MetaFocalLoss(objective="dece"),
        "meta_focal, CE": MetaFocalLoss(objective="ce"),
        "meta_l2, SECE": MetaL2Loss(objective="sece"),
        "meta_smoothing, SECE": MetaSmoothingLoss(objective="sece"),
    }
    tasks = {
        name: one_epoch_each([Session(build_model(network, n_classes=CLASSES), loss, stored, recipe)])
        for name, loss in losses.items()
    }
    in_turns(tasks, rounds=1, clock=place.clock)  # compiled and recorded
    times = in_turns(tasks, rounds=3, clock=place.clock)
    rows = [f"| {name} | {seconds:.2f} | {seconds / times['focal']:.2f} |" for name, seconds in times.items()]
    ratio = times["meta_focal, SECE"] / times["focal"]
    bound = Bound("an epoch with meta_focal and SECE, in times one with the focal loss", ratio, at_most=MOST)
    about = (
        f"An epoch of {network} on {n:,} random images, 3 x 32 x 32, in batches of {batch}, with as many held-out rows "
        "a step: a forward run of those, and the gradient of the loss's own parameters through the last layer's next "
        f"step, beside what every step costs. {place.about}"
    )
    lines = [
        f"## Losses that are learned, on {place.title}",
        "",
        about,
        "",
        "| loss | seconds an epoch | in times focal |",
        "|---|---|---|",
        *rows,
        "",
        *([str(bound)] if place.is_gpu else []),
    ]
    return "\n".join(lines).rstrip() + "\n"
