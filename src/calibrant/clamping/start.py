"""Starts of δ: zero, random, or the δ of largest first-order gain of entropy within the inputs' range (Theorem 3.2)."""

import math
from abc import ABC, abstractmethod
from dataclasses import Field, asdict, dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, final

import numpy as np
import torch
from torch import Tensor, nn

from calibrant.checks import Positive, check_options, check_positive, check_real_number, check_seed
from calibrant.clamping.inputs import InputSpace, check_gradient
from calibrant.errors import InputError, Row, warn
from calibrant.inference import LabelledInputs, device_of, extract_logits, frozen

__all__ = ["DataDrivenStart", "Eta", "RandomStart", "Start", "ZeroStart", "entropy_gradient", "unlabelled_samples"]

Eta: TypeAlias = Literal["theorem", "quantile", "epsilon"]
# An input this near to an end of the range, relative to the range's largest number, is at the end. Smaller than the
# tolerance of ``check_inside``, so that steps of 16-bit images still count.
_AT_END = 1e-6
# Quantiles are taken from at most so many samples, fewer of large inputs: so many numbers in all.
_SAMPLED, _SAMPLED_NUMBERS = 2000, 1 << 27
_SORTED_NUMBERS = 1 << 24  # at once


def unlabelled_samples(data: object) -> LabelledInputs:
    """Return data as samples whose labels must not be used: inputs alone, (n, ...), get zeros."""
    if isinstance(data, Tensor | np.ndarray):
        return LabelledInputs.of((data, torch.zeros(data.shape[:1], dtype=torch.int64)))
    return LabelledInputs.of(data)


class Start(ABC):
    """Method of choosing the first δ; concrete ones are frozen dataclasses."""

    name: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __post_init__(self) -> None:
        check_options(self)

    @final
    def delta(self, model: nn.Module, data: object, *, space: InputSpace | None = None, seed: int = 0) -> Tensor:
        """Return the first δ, of an input's shape, on the network's device, in float32, or float64 as the inputs.

        Args:
            model: Network from inputs to logits; it is restored afterwards.
            data: Inputs alone, (n, ...), as labels play no part; or as ``NeuralClamping.fit`` takes them.
            space: Range of the network's inputs; None if unknown.
            seed: Random seed; draws are made on the CPU, and so are the same on every device.
        """
        samples = unlabelled_samples(data)
        delta = self._delta(model, samples, space, check_seed(seed))
        return delta.to(device_of(model), torch.promote_types(samples.input_dtype, torch.float32))

    @abstractmethod
    def _delta(self, model: nn.Module, samples: LabelledInputs, space: InputSpace | None, seed: int) -> Tensor:
        """Return δ on any device and in any type."""

    @final
    def settings(self) -> dict[str, Any]:
        return {"name": self.name, **asdict(self)}


@final
@dataclass(frozen=True)
class ZeroStart(Start):
    """Start at δ = 0, as temperature scaling does."""

    name: ClassVar[str] = "zero"

    def _delta(self, _model: nn.Module, samples: LabelledInputs, _space: InputSpace | None, _seed: int) -> Tensor:
        return torch.zeros(samples.input_shape)


@final
@dataclass(frozen=True)
class RandomStart(Start):
    """Draw every entry of δ uniformly from -scale to scale, as in the paper's experiments.

    The paper does not state its scale; its authors' toolkit takes 0.01, and 0.001 in the demonstration.

    Args:
        scale: Half width of the distribution, in units of the network's inputs.
    """

    name: ClassVar[str] = "random"
    scale: Positive = 0.01

    def _delta(self, _model: nn.Module, samples: LabelledInputs, _space: InputSpace | None, seed: int) -> Tensor:
        drawn = torch.rand(samples.input_shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        return (2 * drawn - 1) * self.scale


@final
@dataclass(frozen=True)
class DataDrivenStart(Start):
    """δ̃ = sign(g) ⊙ η: along the gradient g of the entropy, as far as the range lets all samples go.

    ``theorem`` is the paper's (Theorem 3.2): among all δ that keep every sample inside the range, δ̃ has the largest
    first-order gain of entropy, δ̃ᵀg. Entropy is not calibration, and a first-order gain holds for small δ only: with
    few samples, or pixels that are black in all of them, the range lets δ̃ be large, and the network may hardly
    recognise anything. With many samples every pixel is black somewhere and white somewhere, so δ̃ is 0, with a warning.

    Args:
        eta: How far each entry goes. ``theorem``: until the first sample touches the edge of the range. Not in the
            paper, for data on which its own η is 0: ``quantile``, the same except for the fraction of samples nearest
            to the edge, which leave the range (a space that clips brings them back; without a space, the range is that
            of the samples); ``epsilon``, by that much in any case, but no more than the width of the range.
        quantile: That fraction, above 0 and at most 0.5.
        epsilon: That step, in units of the network's inputs.
    """

    name: ClassVar[str] = "data-driven"
    eta: Eta = "theorem"
    quantile: Annotated[float, check_positive, partial(check_real_number, least=0, most=0.5)] = 0.01
    epsilon: Positive = 0.01

    def _delta(self, model: nn.Module, samples: LabelledInputs, space: InputSpace | None, seed: int) -> Tensor:
        if space is None and self.eta == "theorem":
            raise InputError(
                "space must give the range of the inputs, which Theorem 3.2 needs; got None. "
                "Give an InputSpace, or take DataDrivenStart(eta='quantile') or another start."
            )
        entropy = entropy_gradient(model, samples, quantile=self.quantile if self.eta == "quantile" else 0.0, seed=seed)
        if space is not None:
            space.check_inside(torch.stack((entropy.low, entropy.high)))
        down, up = self._reach(entropy, space)
        # Theorem 3.2's η.
        eta = torch.where(entropy.gradient < 0, down, torch.where(entropy.gradient > 0, up, 0.0))
        if not eta.any():
            reason = "the entropy does not change with the inputs at all. Is the network sure of every sample?"
            if entropy.gradient.any():
                reason = (
                    "every entry is somewhere at the end of the range towards which the entropy rises, as with many "
                    "images. A quantile or epsilon as eta, which are not in the paper, can still give another."
                )
            warn(f"the data-driven start is δ = 0, that of temperature scaling, because {reason}")
        return entropy.gradient.sign() * eta

    def _reach(self, entropy: "EntropyGradient", space: InputSpace | None) -> tuple[Tensor, Tensor]:
        """Return how far each entry may go down and up, in float64."""
        low, high = entropy.low.double(), entropy.high.double()
        alpha, beta = (low, high) if space is None else space.bounds(low)
        if self.eta == "epsilon":
            step = torch.full_like(alpha, self.epsilon)
            step = step if space is None else step.minimum(beta - alpha)
            return step, step
        down, up = entropy.low_quantile.double() - alpha, beta - entropy.high_quantile.double()
        share = max(_AT_END, 2 * torch.finfo(entropy.low.dtype).eps)
        rounding = share * torch.maximum(alpha.abs(), beta.abs())
        return torch.where(down > rounding, down, 0.0), torch.where(up > rounding, up, 0.0)


@final
@dataclass(frozen=True, eq=False)
class EntropyGradient:
    """Entropy of a network's predictions and bounds of its inputs, from one pass; tensors have an input's shape."""

    gradient: Tensor  # g = Σ_i ∇_x H(softmax(f(x_i) / T)) in nats, a sum and no mean, float64
    entropy: float  # mean over the samples, in nats
    low: Tensor  # ℓ, the least value of each entry, in the inputs' type
    high: Tensor  # μ, the largest value of each entry
    low_quantile: Tensor  # the requested quantile of each entry, else ℓ
    high_quantile: Tensor  # the requested upper quantile of each entry, else μ


def entropy_gradient(
    model: nn.Module, data: object, *, temperature: float = 1.0, quantile: float = 0.0, seed: int = 0
) -> EntropyGradient:
    """Return how the entropy of the predictions changes with one δ added to every input, at δ = 0; in one pass.

    It is a derivative at a point: it gives a direction, and the size of a gain only for steps so small that the network
    is linear over them. The network runs in evaluation mode with frozen parameters, and is restored afterwards.

    Args:
        model: Network from inputs to logits.
        data: As :meth:`Start.delta` takes them.
        temperature: T, above 0.
        quantile: Fraction of the samples, at most 0.5, that may lie beyond ``low_quantile`` and beyond
            ``high_quantile``, entry by entry. For many samples it is estimated from 2,000 drawn at random (fewer where
            these hold more than 2^27 numbers): a quantile of 0.01 is then truly one of 0.008 to 0.012 or so.
        seed: Random seed of that draw.
    """
    check_positive(temperature, "temperature")
    check_real_number(quantile, "quantile", least=0, most=0.5)
    samples = unlabelled_samples(data)
    is_drawn = _drawn(samples, seed) if quantile else None
    ends: tuple[Tensor, ...] = ()
    drawn: list[Tensor] = []
    with frozen(model), torch.enable_grad():
        device = device_of(model)
        gradient = torch.zeros(samples.input_shape, dtype=torch.float64, device=device)
        entropies = gradient.new_zeros(len(samples))
        for inputs, positions in samples.batches(device=device):
            low, high = inputs.amin(dim=0), inputs.amax(dim=0)
            ends = (torch.minimum(low, ends[0]), torch.maximum(high, ends[1])) if ends else (low, high)
            if is_drawn is not None:
                drawn.append(inputs[is_drawn[positions.cpu()].to(inputs.device)])
            leaf = inputs.detach().requires_grad_()
            # The network gets a copy, as it may change its input in place. In float32 the entropy of a confident
            # network has few digits left.
            log_probs = (extract_logits(model(leaf.clone())).double() / temperature).log_softmax(dim=1)
            of_batch = -(log_probs.exp() * log_probs).sum(dim=1)
            check_gradient(of_batch.requires_grad)
            (slopes,) = torch.autograd.grad(of_batch.sum(), leaf, allow_unused=True)
            check_gradient(slopes is not None)
            gradient += slopes.sum(dim=0, dtype=torch.float64)
            entropies[positions.to(device)] = of_batch.detach()
    bad = (~entropies.isfinite()).nonzero()
    if bad.numel():
        raise InputError(
            f"the network's logits must be finite; they are not at {Row(int(bad[0]))}, at {len(bad)} of "
            f"{len(entropies)} samples. Check its inputs there, and whether it overflows in half precision.",
            argument="model",
        )
    typical = _quantiles(torch.cat(drawn), quantile) if drawn else ends
    return EntropyGradient(gradient, float(entropies.mean()), *ends, *typical)


def _drawn(samples: LabelledInputs, seed: int) -> Tensor:
    """Draw the samples of the quantiles, (n,) bool, on the CPU and so the same on every device."""
    size = min(len(samples), _SAMPLED, max(1, _SAMPLED_NUMBERS // math.prod(samples.input_shape)))
    is_drawn = torch.zeros(len(samples), dtype=torch.bool)
    is_drawn[torch.randperm(len(samples), generator=torch.Generator().manual_seed(seed))[:size]] = True
    return is_drawn


def _quantiles(inputs: Tensor, quantile: float) -> tuple[Tensor, ...]:
    """Return, entry by entry, two values of the inputs (n, ...) that at most this fraction of them lies beyond."""
    beyond = int(quantile * (len(inputs) - 1))
    blocks = inputs.reshape(len(inputs), -1).split(max(1, _SORTED_NUMBERS // len(inputs)), dim=1)
    ends = [block.sort(dim=0).values[[beyond, -1 - beyond]] for block in blocks]
    return torch.cat(ends, dim=1).reshape(2, *inputs.shape[1:]).unbind()
