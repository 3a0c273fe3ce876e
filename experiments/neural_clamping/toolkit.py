"""What the authors' toolkit offers beside its demonstration: AdamW, dropout of δ, Cutout, and a start of its own.

``NeuralClamping.toolkit()`` has the settings of the demonstration. These options are in the toolkit's code and not in
the paper; they are here to be compared, not for use.
"""

import time
from dataclasses import asdict, dataclass
from typing import Literal, final

import torch
from torch import Tensor, nn

from calibrant.calibrators import TemperatureScaling
from calibrant.checks import check_at_least, check_known, check_real_number, check_seed
from calibrant.clamping import (
    ClampedModel,
    ClampingSummary,
    NetworkPredictions,
    NeuralClamping,
    Objective,
    StochasticSolver,
)
from calibrant.clamping.inputs import Augmentation, InputPreparation
from calibrant.errors import InputError
from calibrant.inference import LabelledInputs, device_of, extract_logits, frozen
from calibrant.predictions import Predictions

__all__ = ["ToolkitOptions", "cut_out", "gradient_start", "toolkit_clamping"]


@final
@dataclass(frozen=True)
class ToolkitOptions:
    """Options of the toolkit; the defaults are those of its demonstration, without augmentation.

    Args:
        optimiser: ``sgd`` with momentum 0.9, or ``adamw`` with torch's defaults, whose weight decay pulls δ and also T
            towards 0.
        dropout: Share of the entries of δ that a step leaves out; the others grow so that their sum stays the same.
        augmentation: As in :class:`NeuralClamping`; the toolkit's loaders have ``crop-flip``.
        cutout: Side of a square that is set to 0 in each image, at a random place, after the augmentation; the toolkit
            has 4 for CIFAR-100, 6 for CIFAR-10 and 32 for ImageNet.
        starts_at_gradient: Whether δ starts at :func:`gradient_start`.

    Raises:
        InputError: If an option is out of range.
    """

    optimiser: Literal["sgd", "adamw"] = "sgd"
    dropout: float = 0.0
    augmentation: Augmentation = "none"
    cutout: int = 0
    starts_at_gradient: bool = False

    def __post_init__(self) -> None:
        check_known(self.optimiser, ("sgd", "adamw"), "optimiser")
        check_real_number(self.dropout, "dropout", least=0, most=0.99)
        check_at_least(self.cutout, 0, "cutout")


def toolkit_clamping(
    model: nn.Module,
    data: object,
    options: ToolkitOptions = ToolkitOptions(),  # noqa: B008  # frozen
    *,
    gamma: float = 1.0,
    epochs: int = 100,
    seed: int = 0,
) -> ClampedModel:
    """Fit δ and T as the toolkit does; without options it is ``NeuralClamping.toolkit()``.

    Args:
        model: Network from inputs to logits; it is restored afterwards.
        data: A pair of inputs and labels, a Dataset or a DataLoader.
        options: The toolkit's.
        gamma: γ of the focal loss.
        epochs: Passes over the samples.
        seed: Random seed of the start, the order, the augmentation and the dropout.

    Example:
        >>> network = nn.Linear(4, 3).eval()
        >>> inputs = torch.randn(200, 4, generator=torch.manual_seed(0))
        >>> labels = torch.randint(3, (200,), generator=torch.manual_seed(1))
        >>> clamped = toolkit_clamping(network, (inputs, labels), ToolkitOptions(optimiser="adamw"), epochs=2)
        >>> round(clamped.temperature, 2)
        1.02
    """
    began, method = time.perf_counter(), NeuralClamping.toolkit(gamma=gamma, seed=check_seed(seed))
    solver, objective = method.solver, Objective(strength=0.01, gamma=gamma, penalty=method.penalty, clip=method.clip)
    assert isinstance(solver, StochasticSolver)
    samples, device = LabelledInputs.of(data), device_of(model)
    preparation = InputPreparation(augmentation=options.augmentation, seed=seed)
    with frozen(model), torch.enable_grad():
        delta = method.start.delta(model, samples, space=None, seed=seed)
        if options.starts_at_gradient:
            delta = gradient_start(model, samples, delta)
        delta = delta.to(device).clone().requires_grad_()
        temperature = torch.ones((), dtype=delta.dtype, device=device, requires_grad=True)
        learned = [delta, temperature]
        optimiser: torch.optim.Optimizer = torch.optim.AdamW(learned, lr=solver.learning_rate)
        if options.optimiser == "sgd":
            optimiser = torch.optim.SGD(learned, lr=solver.learning_rate, momentum=solver.momentum)
        for epoch in range(epochs):
            generator = preparation.generator(epoch)
            order = torch.randperm(len(samples), generator=generator)
            for inputs, places in samples.batches(order, device=device, batch_size=solver.batch_size):
                images = cut_out(preparation.augmented(inputs, generator), options.cutout, generator)
                left = _thinned(delta, options.dropout, generator)
                logits = extract_logits(model(images + left.to(images)))
                losses = objective.sample_losses(logits.to(delta) / temperature, samples.labels[places].to(device))
                optimiser.zero_grad()
                (losses.mean() + objective.strength * delta.norm()).backward()
                optimiser.step()
    fitted, at_delta = (
        TemperatureScaling(value=float(temperature.detach())),
        NetworkPredictions(model, samples).at(delta.detach()),
    )
    summary = ClampingSummary(
        settings={"method": "toolkit", "options": asdict(options), "epochs": epochs, "gamma": gamma, "seed": seed},
        n_samples=len(samples),
        seconds=time.perf_counter() - began,
        certificate=None,  # nothing was minimised to its optimum
        strength=objective.strength,
        gamma=gamma,
        notes=(f"T = {float(temperature.detach()):.4f} after {epochs} epochs, as in the toolkit.",),
        head_is_optimal=False,
    )
    head = fitted.fit(Predictions.from_logits(at_delta.logits, at_delta.labels))
    return ClampedModel(model, delta.detach(), head, summary=summary)


def gradient_start(model: nn.Module, data: object, delta: Tensor) -> Tensor:
    """Return the mean over the samples of the gradient of the sum of all logits in the input, at x + δ.

    The toolkit takes it for δ itself. It is not Theorem 3.2's start, which goes along the sign of the entropy's
    gradient: adding a number to all logits changes no probability, and this gradient is that of their sum.

    Args:
        model: Network from inputs to logits.
        data: Inputs and labels.
        delta: Of one input's shape.
    """
    samples, device = LabelledInputs.of(data), device_of(model)
    total = torch.zeros_like(delta, device=device)
    for inputs, _ in samples.batches(device=device):
        moved = (inputs + delta.to(inputs)).requires_grad_()
        (gradient,) = torch.autograd.grad(extract_logits(model(moved)).sum(), moved)
        total += gradient.sum(dim=0).to(total)
    return total / len(samples)


def cut_out(images: Tensor, side: int, generator: torch.Generator) -> Tensor:
    """Set a square of each image (n, c, h, w) to 0, around a random pixel; at the edge less of it is inside.

    Args:
        images: Normalised, so that 0 is their mean; anything else is refused unless ``side`` is 0.
        side: Of the square.
        generator: Of the places.

    Raises:
        InputError: If a square is to be cut out of what are no images.
    """
    if side == 0:
        return images
    if images.ndim != 4:
        raise InputError(f"a square can be cut out of images, (n, c, h, w), alone; got shape {tuple(images.shape)}.")
    inside = []
    for length in images.shape[-2:]:
        middle = torch.randint(length, (len(images), 1), generator=generator)
        place = torch.arange(length)
        inside.append((place >= middle - side // 2) & (place < middle + side // 2))
    rows, columns = inside
    return images.masked_fill((rows[:, None, :, None] & columns[:, None, None, :]).to(images.device), 0.0)


def _thinned(delta: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Return δ with a share of its entries left out and the others enlarged in proportion."""
    if share == 0:
        return delta
    kept = (torch.rand(delta.shape, generator=generator) >= share).to(delta)
    return delta * kept / (1 - share)
