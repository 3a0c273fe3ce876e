"""The deployed model: a network that is left as it is, δ before it and a calibration map behind it."""

import math
from collections.abc import Callable
from typing import Self, final

import torch
from torch import Tensor, nn

from calibrant.clamping.clamped.summary import ClampingSummary
from calibrant.clamping.network.input_preparation import moved
from calibrant.clamping.network.input_space import InputSpace
from calibrant.errors import InputError
from calibrant.inference import is_training, logits_in
from calibrant.maps import Map, Scale
from calibrant.numerics.precision import working

__all__ = ["ClampedModel"]

_BLUNT = 4  # bytes a number; fewer are too few digits to keep δ in


@final
class ClampedModel(nn.Module):
    """Inputs in, calibrated logits out: ``head(model(x + δ))``, where the head of Neural Clamping is a division by T.

    The same δ is added to every input, in the units that the network is fed. Unlike a map of logits alone it can change
    predictions, and so the accuracy. With δ = 0, also if it becomes 0 later, it is ``nn.Sequential(model, head)`` to
    the last bit: nothing is changed by the sum, and nothing clipped.

    The network is the very module given, not copied, and stays in its mode; the clamped model takes that mode.
    ``train()`` and ``eval()`` then do what they do to any module, and in training mode dropout and batch statistics
    make the answers another model's. δ and the head lie in buffers, in the ``state_dict`` beside the network; casts to
    fewer digits than float32, such as ``bfloat16()``, leave them alone, and δ takes the inputs' type where it is added.
    :func:`torch.compile` and :func:`torch.export.export` see straight code, which asks no tensor for its value.

    Args:
        model: Any network that takes one tensor, (n, ...), and gives logits; see
            :func:`~calibrant.inference.logits_in`.
        delta: δ, of the shape of one input, without a batch axis; finite.
        head: A fitted map of the network's logits.
        space: What the inputs are; if it says so, x + δ is brought back to its range.
        summary: How it came about.

    Raises:
        InputError: If any of that does not hold.

    Example:
        >>> network = nn.Linear(2, 3).eval()
        >>> clamped = ClampedModel(network, torch.tensor([0.1, 0.0]), Scale(torch.tensor(2.0), n_classes=3))
        >>> inputs = torch.randn(5, 2)
        >>> torch.equal(clamped(inputs), network(inputs + torch.tensor([0.1, 0.0])) / 2)
        True
        >>> clamped.temperature
        2.0

    Reference:
        Neural Clamping, section 3.1.
    """

    delta: Tensor
    lowest: Tensor | None
    highest: Tensor | None

    def __init__(
        self,
        model: nn.Module,
        delta: Tensor,
        head: Map,
        *,
        space: InputSpace | None = None,
        summary: ClampingSummary | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(model, nn.Module):
            raise InputError(f"model must be a torch.nn.Module; got {type(model).__name__}.")
        if not isinstance(head, Map):
            raise InputError(f"head must be a fitted map of logits (calibrant.maps); got {type(head).__name__}.")
        self.model, self.head = model, head.train(is_training(model))
        self._space, self.summary = space, summary
        self.register_buffer("delta", _checked(delta))
        # Looked at without clipping too, so that a normalisation of other channels is found now.
        low, high = (None, None) if space is None else space.bounds(self.delta)
        clips = space is not None and space.clips
        self.register_buffer("lowest", low if clips else None, persistent=False)
        self.register_buffer("highest", high if clips else None, persistent=False)
        self.training = is_training(model)

    @property
    def space(self) -> InputSpace | None:
        """What the inputs are; the ends of their range are worked out once, so it cannot be set."""
        return self._space

    @property
    def temperature(self) -> float:
        """T, where the head is a division by it.

        Raises:
            InputError: If the head is another map.
        """
        if not isinstance(self.head, Scale):
            raise InputError(
                f"only a head that divides by a temperature (Scale) has one; this one is {type(self.head).__name__}. "
                "Look at its own buffers."
            )
        return float(self.head.temperature)

    def perturbed(self, inputs: Tensor) -> Tensor:
        """What the network is fed: x + δ, and back in the range where the space says so; (n, ...) -> the same.

        Raises:
            InputError: If the inputs are of another shape than δ, or not of floating point.
        """
        if not isinstance(inputs, Tensor) or not inputs.is_floating_point():
            got = inputs.dtype if isinstance(inputs, Tensor) else type(inputs).__name__
            raise InputError(
                f"inputs must be a tensor of floating point, as the network takes them; got {got}. To whole numbers, "
                "such as those of words, δ cannot be added."
            )
        if inputs.shape[1:] != self.delta.shape:
            raise InputError(
                f"inputs must have the shape (n, {', '.join(map(str, self.delta.shape))}) of the δ that is added to "
                f"each; got {tuple(inputs.shape)}."
            )
        if self.lowest is None or self.highest is None:
            return moved(inputs, self.delta)
        still = ~self.delta.any()
        ends = self.lowest.masked_fill(still, -math.inf), self.highest.masked_fill(still, math.inf)
        return moved(inputs, self.delta, ends)

    def forward(self, inputs: Tensor) -> Tensor:
        """Calibrated logits, (n, ...) -> (n, k), in the type of the network's."""
        logits: Tensor = self.head(logits_in(self.model(self.perturbed(inputs))))
        return logits

    def probs(self, inputs: Tensor) -> Tensor:
        """Calibrated probabilities, (n, ...) -> (n, k), in float32 or float64 whatever the network's type."""
        logits: Tensor = self.head(working(logits_in(self.model(self.perturbed(inputs)))))
        return logits.softmax(dim=1)

    def train(self, mode: bool = True) -> Self:
        """As of any module; of an exported network, which has no other mode than that of its export, the flag alone."""
        self.training = mode
        for part in self.children():
            try:
                part.train(mode)
            except NotImplementedError:  # what torch.export left says so
                for module in part.modules():
                    module.training = mode
        return self

    def extra_repr(self) -> str:
        """Shown inside the brackets of the module's name."""
        return f"delta={tuple(self.delta.shape)}, norm={float(self.delta.norm()):.4g}"

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """What torch does to every tensor for ``to``, ``half``, ``cuda`` and the like; δ keeps its digits."""
        before = dict(self.named_buffers(recurse=False))
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, values in before.items():
            after = self.get_buffer(name)
            if after.element_size() < _BLUNT:
                setattr(self, name, values.to(after.device))
        return self


def _checked(delta: Tensor) -> Tensor:
    """A copy of δ in float32 or float64."""
    if not isinstance(delta, Tensor) or not delta.is_floating_point():
        got = delta.dtype if isinstance(delta, Tensor) else type(delta).__name__
        raise InputError(f"delta must be a tensor of floating point; got {got}.")
    if not delta.isfinite().all():
        raise InputError("delta must be finite; got NaN or infinity in it. The fit that made it went astray.")
    return working(delta.detach()).clone(memory_format=torch.contiguous_format)
