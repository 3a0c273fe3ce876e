"""What a loss costs in a training step, beyond torch's cross-entropy."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.bounds import Bound
from benchmarks.device import Place
from benchmarks.timing import in_turns
from benchmarks.training import random_images
from calibrant import catalogue
from calibrant.losses import NeedsSamples
from calibrant.models import build_model
from calibrant.training import Recipe, RuntimeOptions, Session
from calibrant.training.data import DeviceData
from calibrant.training.session import CapturedStep

__all__ = ["report"]

ROWS, CLASSES, NETWORK = 512, 100, "resnet32"
# Percent of a step that a loss may add.
MOST, MOST_OF = 5.0, {"mmce": 20.0, "sece": 20.0, "dece": 20.0}
UNIT, AGAIN = "F.cross_entropy", "F.cross_entropy again"  # torch's twice: how far equal things differ here
REPEATS = 20  # of a loss alone, for each look at the clock
STEPS = 20  # the same of a whole step, on a GPU
RECIPE = Recipe(epochs=1, batch_size=ROWS, learning_rate=1e-3, schedule="constant")


def report() -> str:
    """The section of the results."""
    place = Place.best()
    alone = _alone(place)
    step, added = _added_on_gpu(place) if place.is_gpu else _added_on_processor(place, alone)
    way = (
        "whole steps of each loss in turns, compiled and recorded as CUDA graphs; a loss alone is recorded too"
        if place.is_gpu
        else "the loss's time alone less torch's; differences of whole steps would be noise"
    )
    about = (
        f"Forward and backward, at {ROWS} x {CLASSES}, of the loss alone; and what it adds to a step of {NETWORK} at "
        f"batch {ROWS}, 32 x 32 images, which takes {1000 * step:,.1f} ms with `{UNIT}`: {way}. Losses "
        f"have their default options. `{UNIT}` runs twice, to tell the noise. {place.about}"
    )
    lines = [
        f"## Losses in a training step, on {place.title}",
        "",
        about,
        "",
        f"| loss | alone, ms | in times `{UNIT}` | adds to the step, % | at most | |",
        "|---|---|---|---|---|---|",
    ]
    for name, percent in added.items():
        bound = Bound(name, percent, at_most=MOST_OF.get(name, MOST))
        verdict = " | |" if name in {UNIT, AGAIN} else f" {bound.at_most:g} | {'met' if bound.kept else '**missed**'} |"
        lines.append(
            f"| {name} | {1000 * alone[name]:.3f} | {alone[name] / alone[UNIT]:.1f} | {percent:.2g} |{verdict}"
        )
    return "\n".join(lines) + "\n"


def _candidates() -> dict[str, nn.Module]:
    return {UNIT: nn.CrossEntropyLoss(), AGAIN: nn.CrossEntropyLoss(), **catalogue.losses}


def _alone(place: Place) -> dict[str, float]:
    """Seconds of one forward and backward pass of each loss."""
    logits, labels = _rows()
    logits, labels = logits.to(place.device).requires_grad_(), labels.to(place.device)
    tasks = {name: _gradient(loss, logits, labels, place) for name, loss in _candidates().items()}
    return {name: seconds / REPEATS for name, seconds in in_turns(tasks, rounds=7, clock=place.clock).items()}


def _gradient(loss: nn.Module, logits: Tensor, labels: Tensor, place: Place) -> Callable[[], None]:
    loss = loss.to(place.device).train()
    for module in loss.modules():
        if isinstance(module, NeedsSamples):
            module.remember(ROWS)
            module.look_at(torch.arange(ROWS, device=place.device))

    def differentiate() -> None:
        for _ in range(REPEATS):
            torch.autograd.grad(loss(logits, labels), logits)

    return CapturedStep(differentiate, list(loss.buffers()), lambda: None) if place.is_gpu else differentiate


def _added_on_processor(place: Place, alone: Mapping[str, float]) -> tuple[float, dict[str, float]]:
    """Seconds of a step with torch's loss, and what each of ours adds to it, in percent: by their times alone."""
    session = _session(nn.CrossEntropyLoss(), random_images(ROWS, CLASSES).on(place.device))
    step = in_turns({UNIT: session.advance}, rounds=2, clock=place.clock, before=lambda _: session.begin_epoch())[UNIT]
    return step, {name: 100 * (alone[name] - alone[UNIT]) / step for name in alone}


def _added_on_gpu(place: Place) -> tuple[float, dict[str, float]]:
    """The same, by whole steps."""
    data = random_images(STEPS * ROWS, CLASSES).on(place.device)
    sessions = {name: _session(loss, data) for name, loss in _candidates().items()}
    tasks = {name: (lambda session=session: _advance(session)) for name, session in sessions.items()}
    times = in_turns(tasks, rounds=9, clock=place.clock, before=lambda name: sessions[name].begin_epoch())
    return times[UNIT] / STEPS, {name: 100 * (times[name] / times[UNIT] - 1) for name in times}


def _session(loss: Any, data: DeviceData) -> Session:
    """Train with one of our losses or torch's own."""
    return Session(build_model(NETWORK, n_classes=CLASSES), loss, data, RECIPE, RuntimeOptions(traced=False))


def _advance(session: Session) -> None:
    for _ in range(session.steps_an_epoch):
        session.advance()


def _rows() -> tuple[Tensor, Tensor]:
    """Logits of which most, and not all, are right."""
    chance = torch.Generator().manual_seed(0)
    labels = torch.randint(CLASSES, (ROWS,), generator=chance)
    logits = 2 * torch.randn(ROWS, CLASSES, generator=chance)
    return logits.scatter_add(1, labels[:, None], torch.full((ROWS, 1), 6.0)), labels
