"""Neural Clamping: what a pass costs, how soon the objective of the authors' toolkit is reached, and in what memory.

Where the environment's ``CIFAR100_UNSEEN`` names the archive that experiments/neural_clamping packs, a GPU also
calibrates the ResNet-110 of experiments/training on its first 5,000 images.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from benchmarks.bounds import Bound
from benchmarks.device import Place
from benchmarks.timing import in_turns
from calibrant.calibrators import TemperatureScaling
from calibrant.clamping import ExactSolver, HeadFit, NeuralClamping, Objective, PerEntry
from calibrant.clamping.passes import Passes, Precision
from calibrant.clamping.solver import Descent
from calibrant.datasets import load_digits
from calibrant.inference import LabelledInputs, check_network, frozen
from calibrant.maps import Scale
from calibrant.models import DigitsCNN, build_model

__all__ = ["report"]

# In times a loop with frozen parameters; in times the toolkit's loop; seconds on a GPU; in times the memory at a
# quarter of the rows.
MOST_A_PASS, MOST_TIME, MOST_SECONDS, MOST_MEMORY = 1.1, 0.1, 10.0, 1.2
SIDE, TRAINED_ON, CALIBRATED_ON, NOISE = 32, 100, 1000, 0.01
PASSES = 3  # in each look at the clock
FEW, MANY, BATCH = 2000, 8000, 500
TOO_SHORT = 0.02  # seconds of a loop on a GPU that is all waiting
# The demo of the authors' toolkit: mean focal loss of clipped probabilities, and the norm of δ, not squared.
DEMO = Objective(gamma=1.0, strength=0.01, penalty="norm", clip=1e-7)
RATE, MOMENTUM, DEMO_BATCH, DEMO_STEPS, EPOCHS, SCALE = 0.01, 0.9, 1000, 5, 100, 0.001
WEIGHTS = Path(__file__).parents[1] / "experiments/training/resnet110-ce.safetensors"
CIFAR_MEAN, CIFAR_STD, CIFAR_ROWS = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762), 5000


@dataclass(frozen=True, eq=False)
class _Case:
    """A network in evaluation mode, and the rows to calibrate it on, where it is."""

    name: str
    model: nn.Module
    inputs: Tensor
    labels: Tensor
    batch: int


class _Reached(Exception):  # noqa: N818  # not an error
    """The objective is low enough."""


def report() -> str:
    """The section of the results."""
    place = Place.best()
    bounds: list[Bound] = []
    passes = [_pass(case, place, bounds) for case in _networks(place)]
    trained = [_digits(place), *_resnet110(place)]
    # With fewer images than the demo's 5,000, batches that give as many steps as those, too: five an epoch.
    reached = [
        line
        for case in trained
        for batch in sorted({DEMO_BATCH, len(case.labels) // DEMO_STEPS}, reverse=True)
        for line in _reached(case, batch, place, bounds)
    ]
    few, many = (_peak_in_a_process_of_its_own(n) for n in (FEW, MANY))
    bounds.append(Bound(f"memory with {MANY:,} rows, in times that with {FEW:,}", many / few, at_most=MOST_MEMORY))
    about_passes = (
        "A pass of ours (logits of all rows, and the gradient of their loss in δ), and a step of the exact solver with "
        "all that it does besides (the temperature fitted anew, the next direction), in times a plain loop over the "
        "same batches: `cross_entropy(network(x + delta), y).backward()` with frozen parameters; and that loop with "
        "parameters that take gradients, as in the authors' toolkit. A loop of a few milliseconds measures how long "
        f"Python takes to tell a GPU its kernels, and is held to no bound. {place.about}"
    )
    about_reached = (
        f"The loop of the toolkit's demo, {EPOCHS} epochs in batches of {DEMO_BATCH:,}, rate {RATE:g}, momentum "
        f"{MOMENTUM:g}, parameters not frozen, without its augmentation; then the exact solver from δ = 0 until the "
        "same objective is at or below what the loop ended with, evaluated on all calibration rows. One run of each. "
        f"The small network learned {TRAINED_ON} digits, enlarged to {SIDE} x {SIDE}; a thousand images are one batch, "
        f"so the loop gets a second run in smaller ones, with {DEMO_STEPS} steps an epoch as the demo has on 5,000."
    )
    about_memory = (
        "Peak of a fit above what the process held before it, with a data set that makes its rows as they are read, "
        f"in batches of {BATCH}, in a process of its own: {few:.0f} MB with {FEW:,} rows, {many:.0f} MB with {MANY:,}."
    )
    lines = [
        f"## Neural Clamping, on {place.title}",
        "",
        about_passes,
        "",
        "| network | images | batch | plain loop, ms | a pass | a step | parameters not frozen |",
        "|---|---|---|---|---|---|---|",
        *passes,
        "",
        about_reached,
        "",
        "| network | images | way | seconds | passes | objective | T | norm of δ | loop, in times this |",
        "|---|---|---|---|---|---|---|---|---|",
        *reached,
        "",
        about_memory,
        "",
        *map(str, bounds),
    ]
    return "\n".join(lines) + "\n"


def _networks(place: Place) -> list[_Case]:
    """Networks, and noise with labels that are mostly what they say."""
    models: dict[str, tuple[nn.Module, int, int, int]] = {
        "DigitsCNN": (DigitsCNN(image_size=SIDE), 1, 1000, 250),
        "resnet20": (build_model("resnet20", n_classes=10), 3, *((5000, 1000) if place.is_gpu else (128, 64))),
    }
    if place.is_gpu:  # trained, as a hundred random layers blow logits up to 1e9, for which there is no temperature
        models["resnet110"] = (_trained_resnet110(), 3, 5000, 1000)
    cases = []
    for name, (model, channels, n, batch) in models.items():
        chance = torch.Generator().manual_seed(0)
        inputs = torch.randn(n, channels, SIDE, SIDE, generator=chance)
        model.eval().requires_grad_(requires_grad=False).to(place.device)
        inputs = inputs.to(place.device)
        with torch.no_grad():
            said = torch.cat([model(part) for part in inputs.split(batch)]).argmax(dim=1)
        guessed = torch.randint(10, (n,), generator=chance).to(place.device)
        is_guessed = (torch.rand(n, generator=chance) < 0.3).to(place.device)
        cases.append(_Case(name, model, inputs, torch.where(is_guessed, guessed, said), batch))
    return cases


def _pass(case: _Case, place: Place, bounds: list[Bound]) -> str:
    passes = _passes(case)
    zero = torch.zeros(passes.samples.input_shape, device=passes.device)
    head = HeadFit(TemperatureScaling(), DEMO.gamma).fit(passes.full_precision_logits(zero), passes.labels)
    descents: dict[str, Descent] = {}

    def before(name: str) -> None:
        case.model.requires_grad_(name == "not frozen")
        if name == "step":
            descents[name] = _descent(passes)
            descents[name].begin(DEMO)

    def ours() -> None:
        for _ in range(PASSES):
            passes.logits_and_gradient(zero, head, DEMO)

    def step() -> None:
        minimum = descents["step"].minimise(DEMO, ExactSolver(tolerance=1e-12, max_passes=PASSES))
        if minimum.certificate.passes != PASSES:
            raise ArithmeticError(f"{PASSES} passes were to be timed, and {minimum.certificate.passes} were made.")

    tasks: dict[str, Callable[[], None]] = {
        "frozen": lambda: _plain_passes(case),
        "ours": ours,
        "step": step,
        "not frozen": lambda: _plain_passes(case),
    }
    times = in_turns(tasks, rounds=4, clock=place.clock, before=before)
    case.model.requires_grad_(requires_grad=False)
    ratios = {name: times[name] / times["frozen"] for name in tasks}
    if times["frozen"] / PASSES > TOO_SHORT:
        bounds.append(Bound(f"a pass over {case.name}, in times the plain loop", ratios["ours"], at_most=MOST_A_PASS))
    return (
        f"| {case.name} | {len(case.labels):,} | {case.batch:,} | {1000 * times['frozen'] / PASSES:,.0f} | "
        f"**{ratios['ours']:.2f}** | {ratios['step']:.2f} | {ratios['not frozen']:.2f} |"
    )


def _plain_passes(case: _Case) -> None:
    """Gradients to δ as one writes them by hand; those of parameters too, if they take any."""
    delta = torch.zeros_like(case.inputs[0], requires_grad=True)
    for _ in range(PASSES):
        for inputs, labels in zip(case.inputs.split(case.batch), case.labels.split(case.batch), strict=True):
            F.cross_entropy(case.model(inputs + delta), labels, reduction="sum").backward()
    case.model.zero_grad()


def _passes(case: _Case, precision: Precision = "float32") -> Passes:
    """The passes of ``NeuralClamping.fit`` over a network's samples; the network must be frozen."""
    samples = LabelledInputs.of((case.inputs, case.labels), batch_size=case.batch)
    check_network(case.model, samples)
    return Passes(case.model, samples, batch_size=case.batch, precision=precision)


def _descent(passes: Passes) -> Descent:
    zero = torch.zeros(passes.samples.input_shape, device=passes.device)
    return Descent(passes, PerEntry().basis(zero), HeadFit(TemperatureScaling(), DEMO.gamma), zero)


def _digits(place: Place) -> _Case:
    """A small network that has learned a hundred digits, and a thousand others."""
    digits = load_digits()
    images = F.interpolate(digits.images.float(), size=SIDE, mode="bilinear")
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    few, others = order[:TRAINED_ON], order[TRAINED_ON : TRAINED_ON + CALIBRATED_ON]
    torch.manual_seed(0)
    model = DigitsCNN(image_size=SIDE)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(100):
        for rows in few[torch.randperm(TRAINED_ON)].split(32):
            optimiser.zero_grad()
            F.cross_entropy(model(images[rows]), digits.labels[rows]).backward()
            optimiser.step()
    inputs, labels = images[others].to(place.device), digits.labels[others].to(place.device)
    return _Case("DigitsCNN", model.eval().to(place.device), inputs, labels, batch=1000)


def _resnet110(place: Place) -> list[_Case]:
    """The trained network and images it has not seen, where there is a GPU and they are given."""
    path = os.environ.get("CIFAR100_UNSEEN")
    if path is None or not place.is_gpu:
        return []
    with np.load(path) as archive:
        images, labels = (torch.from_numpy(archive[name][:CIFAR_ROWS]) for name in ("images", "labels"))
    mean, std = (torch.tensor(values)[:, None, None] for values in (CIFAR_MEAN, CIFAR_STD))
    inputs = (images.float() / 255 - mean) / std
    model = _trained_resnet110().eval().to(place.device)
    return [_Case("resnet110", model, inputs.to(place.device), labels.long().to(place.device), batch=1000)]


def _trained_resnet110() -> nn.Module:
    model = build_model("resnet110", n_classes=100)
    weights = load_file(WEIGHTS)
    model.load_state_dict({name: each.float() if each.is_floating_point() else each for name, each in weights.items()})
    return model


def _reached(case: _Case, batch: int, place: Place, bounds: list[Bound]) -> list[str]:
    """Seconds until the toolkit's objective, by the toolkit's loop and by ours."""
    start = place.clock()
    delta, temperature = _toolkit(case, batch)
    theirs = place.clock() - start
    target = _objective(case, delta, temperature)
    head = f"| {case.name} | {len(case.labels):,} |"
    told = f"{target:.4f} | {temperature:.2f} | {float(delta.norm()):.2f} | 1 |"
    lines = [f"{head} loop, batch {batch:,} | {theirs:.1f} | {EPOCHS} | {told}"]
    precisions: tuple[Precision, ...] = ("float32", "bfloat16") if place.is_gpu else ("float32",)
    for precision in precisions:
        start = place.clock()
        with frozen(case.model):
            descent = _descended(case, precision, target)
        ours = place.clock() - start
        assert isinstance(descent.point.head, Scale)
        temperature = float(descent.point.head.temperature)
        value = _objective(case, descent.delta, temperature)
        cells = f"{value:.4f} | {temperature:.2f} | {float(descent.delta.norm()):.2f} | **{theirs / ours:.1f}** |"
        lines.append(f"{head} ours, {precision} | {ours:.1f} | {descent.passes_taken:g} | {cells}")
        if precision == "float32":
            what = f"time to the objective of the toolkit's loop (batch {batch:,}) over {case.name}"
            seconds = Bound(f"{what}, in seconds", ours, at_most=MOST_SECONDS)
            ratio = Bound(f"{what}, in times the loop's", ours / theirs, at_most=MOST_TIME)
            bounds.append(seconds if place.is_gpu else ratio)
            bounds.append(Bound("objective there, above the loop's", value - target, at_most=1e-6))
    return lines


def _toolkit(case: _Case, batch: int) -> tuple[Tensor, float]:
    """δ and T as the toolkit's demo learns them: in evaluation mode, but with parameters that take gradients."""
    case.model.requires_grad_()
    torch.manual_seed(0)
    delta = ((2 * torch.rand(case.inputs.shape[1:]) - 1) * SCALE).to(case.inputs.device).requires_grad_()
    temperature = torch.ones((), device=delta.device, requires_grad=True)
    optimiser = torch.optim.SGD([delta, temperature], lr=RATE, momentum=MOMENTUM)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(case.labels), device=delta.device).split(batch):
            probs = (case.model(case.inputs[rows] + delta) / temperature).softmax(dim=1)
            right = probs.clamp(DEMO.clip, 1 - DEMO.clip).gather(1, case.labels[rows][:, None])
            loss = -((1 - right) ** DEMO.gamma * right.log()).mean() + DEMO.strength * delta.norm()
            optimiser.zero_grad()
            case.model.zero_grad()
            loss.backward()
            optimiser.step()
    case.model.requires_grad_(requires_grad=False)
    return delta.detach(), float(temperature.detach())


def _descended(case: _Case, precision: Precision, target: float) -> Descent:
    """The exact solver, as far as the target."""
    descent = _descent(_passes(case, precision))

    def look() -> None:
        if descent.point.value(DEMO) <= target:
            raise _Reached

    try:
        descent.minimise(DEMO, ExactSolver(precision=precision), after_step=look)
    except _Reached:
        return descent
    raise ArithmeticError(f"{target} was to be reached; the minimum is {descent.point.value(DEMO)}.")


@torch.no_grad()
def _objective(case: _Case, delta: Tensor, temperature: float) -> float:
    """What both minimise, of all rows, added up in float64."""
    logits = torch.cat([case.model(inputs + delta) for inputs in case.inputs.split(case.batch)]).double()
    losses = DEMO.sample_losses(logits / temperature, case.labels)
    return float(losses.mean()) + DEMO.penalty_of(delta.flatten())


class _Noisy(Dataset[tuple[Tensor, int]]):
    """As many rows as wanted of a few images, each with noise of its own, made as they are read."""

    def __init__(self, case: _Case, n: int) -> None:
        self._inputs, self._labels, self._n = case.inputs.cpu(), case.labels.tolist(), n

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        place = row % len(self._labels)
        noise = torch.randn(self._inputs.shape[1:], generator=torch.Generator().manual_seed(row))
        return self._inputs[place] + NOISE * noise, self._labels[place]


def _peak_in_a_process_of_its_own(n: int) -> float:
    """Peak of a fit with so many rows, in MB."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.clamping", str(n)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def _print_peak(n: int) -> None:
    torch.set_num_threads(1)
    place = Place.best()
    case = _digits(place)
    rows = _Noisy(case, n)
    before = _memory("VmRSS", place)
    NeuralClamping(strength=1e-3, batch_size=BATCH, solver=ExactSolver(max_passes=3)).fit(case.model, rows)
    print(_memory("VmHWM", place) - before)


def _memory(kind: str, place: Place) -> float:
    """Held now (VmRSS) or at most so far (VmHWM), in MB: of the process, or on the GPU."""
    if place.is_gpu:
        held = torch.cuda.memory_allocated if kind == "VmRSS" else torch.cuda.max_memory_allocated
        return held(place.device) / 2**20
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split(f"{kind}:")[1].split()[0]) / 1024


if __name__ == "__main__":
    _print_peak(int(sys.argv[1]))
