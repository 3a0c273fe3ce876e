"""The entropy of a network's answers, its slope in one δ for all inputs, and the inputs' bounds: for Theorem 3.2."""

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from calibrant.checks import check_positive, check_real_number
from calibrant.clamping.theory.unlabelled import samples_of
from calibrant.errors import InputError
from calibrant.inference import CalibrationSamples, device_of, frozen, logits_in

__all__ = ["EntropyGradient", "entropy_gradient"]

# What quantiles are taken from: at most so many rows, and of large inputs fewer, so many numbers in all.
_SAMPLED_ROWS, _SAMPLED_NUMBERS = 2000, 1 << 27
# Numbers sorted at once.
_SORTED_NUMBERS = 1 << 24


@final
@dataclass(frozen=True, eq=False)
class EntropyGradient:
    """What one pass tells of the entropy and of the inputs.

    Args:
        gradient: g = Σ_i ∇_x H(softmax(f(x_i) / T)) in nats, a sum and no mean, of an input's shape, float64.
        entropy: The mean over the rows, in nats.
        low: ℓ, the least value of each entry, of an input's shape and type.
        high: μ, the largest.
        typical_low: The quantile of each entry that was asked for, else ℓ.
        typical_high: The same from above, else μ.
    """

    gradient: Tensor
    entropy: float
    low: Tensor
    high: Tensor
    typical_low: Tensor
    typical_high: Tensor


def entropy_gradient(
    model: nn.Module, data: object, *, temperature: float = 1.0, quantile: float = 0.0, seed: int = 0
) -> EntropyGradient:
    """How the entropy of the answers changes with one δ added to every input, from δ = 0 on; in one pass.

    It is a slope at a point: it tells which way to go, but how much is gained only for steps so small that the network
    is straight over them. The network runs in evaluation mode with frozen parameters, and comes back as it was.

    Args:
        model: From inputs to logits.
        data: What it is run on, a batch at a time: inputs alone, (n, ...), for labels play no part; or as
            ``NeuralClamping.fit`` takes them.
        temperature: T, above 0.
        quantile: Share of the rows, at most 0.5, that may lie beyond ``typical_low`` and beyond ``typical_high``, entry
            by entry. Of many rows 2,000 drawn at random decide (fewer where these hold more than 2^27 numbers): a
            quantile of 0.01 is then truly one of 0.008 to 0.012 or so.
        seed: Of that draw.

    Raises:
        InputError: If the data are not what they must be, an option is out of range, or the logits are not finite or
            cannot be differentiated.

    Example:
        >>> found = entropy_gradient(nn.Linear(1, 3), torch.tensor([[2.0], [4.0]]))
        >>> tuple(found.gradient.shape), found.low.item(), found.high.item()
        ((1,), 2.0, 4.0)

    Reference:
        Neural Clamping, Theorem 3.2.
    """
    check_positive(temperature, "temperature")
    check_real_number(quantile, "quantile", least=0, most=0.5)
    rows = samples_of(data)
    bounds = _Bounds(_drawn(rows, seed) if quantile else None)
    with frozen(model), torch.enable_grad():
        device = device_of(model)
        gradient = torch.zeros(rows.input_shape, dtype=torch.float64, device=device)
        entropies = gradient.new_zeros(len(rows))
        for inputs, positions in rows.batches(device=device):
            bounds.widen(inputs, positions)
            leaf = inputs.detach().requires_grad_()
            # The network gets a copy, as it may change its input in place.
            each = _entropies(model(leaf.clone()), temperature)
            if not each.requires_grad:
                raise InputError(
                    "the network's logits must follow from its input by differentiable operations, for δ to have a "
                    "gradient; here they do not. Look for no_grad, detach or rounding in its forward.",
                    argument="model",
                )
            (slopes,) = torch.autograd.grad(each.sum(), leaf)
            gradient += slopes.sum(dim=0, dtype=torch.float64)
            entropies[positions.to(device)] = each.detach()
    return EntropyGradient(gradient, _mean(entropies), *bounds.extremes, *bounds.typical(quantile))


def _entropies(output: object, temperature: float) -> Tensor:
    """Of each row, (m,), in float64: where a network is sure, float32 has few digits of it left."""
    log_probs = (logits_in(output).double() / temperature).log_softmax(dim=1)
    return -(log_probs.exp() * log_probs).sum(dim=1)


def _mean(entropies: Tensor) -> float:
    """The mean; a row whose logits are not finite has no entropy."""
    bad = (~entropies.isfinite()).nonzero()
    if bad.numel():
        raise InputError(
            f"the network's logits must be finite; they are not at row {int(bad[0])} ({len(bad)} rows of "
            f"{len(entropies)}). Check its inputs there, and whether it overflows in half precision.",
            argument="model",
        )
    return float(entropies.mean())


def _drawn(rows: CalibrationSamples, seed: int) -> Tensor:
    """Which rows decide the quantiles, (n,) bool, drawn on the CPU and so alike on every device."""
    size = min(len(rows), _SAMPLED_ROWS, max(1, _SAMPLED_NUMBERS // math.prod(rows.input_shape)))
    drawn = torch.zeros(len(rows), dtype=torch.bool)
    drawn[torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:size]] = True
    return drawn


@final
class _Bounds:
    """The least and the largest value of each entry so far, and the rows drawn for quantiles."""

    def __init__(self, drawn: Tensor | None) -> None:
        self.extremes: tuple[Tensor, ...] = ()
        self._drawn = drawn
        self._sample: list[Tensor] = []

    def widen(self, inputs: Tensor, positions: Tensor) -> None:
        low, high = inputs.amin(dim=0), inputs.amax(dim=0)
        if self.extremes:
            low, high = torch.minimum(low, self.extremes[0]), torch.maximum(high, self.extremes[1])
        self.extremes = low, high
        if self._drawn is not None:
            self._sample.append(inputs[self._drawn[positions.cpu()].to(inputs.device)])

    def typical(self, quantile: float) -> tuple[Tensor, ...]:
        """Values of the sample that at most this share of it lies beyond."""
        if not self._sample:
            return self.extremes
        sample = torch.cat(self._sample)
        beyond = int(quantile * (len(sample) - 1))
        blocks = sample.reshape(len(sample), -1).split(max(1, _SORTED_NUMBERS // len(sample)), dim=1)
        ends = [block.sort(dim=0).values[[beyond, -1 - beyond]] for block in blocks]
        return torch.cat(ends, dim=1).reshape(2, *sample.shape[1:]).unbind()
