"""δ's share of the first layer, computed once for all rows where the network allows it.

A convolution or linear layer gives W(x + δ) = Wx + Wδ. So δ can be added behind the layer: the backward run then ends
there for every row, and goes through the layer once for all of them. Whether a network allows it (nothing bent before
its first layer, no second way in for x) is found out by trying.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import final

import torch
from torch import Tensor, nn

from calibrant.errors import InputError
from calibrant.inference import logits_in

__all__ = ["FirstLayer", "find_first_layer"]

_LINEAR = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
# How far logits may differ, relative to their spread, for two ways to be called the same.
_SAME = 1e-4
_ROWS = 2  # to try it on
# Of the perturbations tried, in standard deviations of the inputs: networks that clip do so far out.
_SIZES = (0.1, 3.0, 30.0)


class _SeenEnough(Exception):  # noqa: N818  # not an error
    """The layer's output is there; the rest of the network, which may be deep, need not run."""

    def __init__(self, output: Tensor) -> None:
        super().__init__()
        self.output = output


@final
class FirstLayer:
    """The layer, and an input to look at δ's share through."""

    def __init__(self, model: nn.Module, layer: nn.Module, probe: Tensor) -> None:
        self._model, self._layer, self._probe = model, layer, probe

    def share(self, delta: Tensor) -> Tensor:
        """By how much δ moves the layer's output, (1, ...); carries δ's gradient."""
        moved = self._output(self._probe + delta.to(self._probe))
        with torch.no_grad():
            still = self._output(self._probe)
        return moved - still

    @contextmanager
    def adding(self, share: Tensor) -> Iterator[None]:
        """Add the share to whatever comes out of the layer."""
        handle = self._layer.register_forward_hook(lambda _layer, _inputs, output: output + share.to(output))
        try:
            yield
        finally:
            handle.remove()

    def _output(self, inputs: Tensor) -> Tensor:
        def stop(_layer: nn.Module, _inputs: object, output: Tensor) -> None:
            raise _SeenEnough(output)

        handle = self._layer.register_forward_hook(stop)
        try:
            # A copy, for networks that write into what they are given.
            self._model(inputs.clone())
        except _SeenEnough as seen:
            return seen.output
        finally:
            handle.remove()
        raise InputError(
            "the network must run through the same layers for any δ; at this one it left out its first. Give a larger "
            "strength, so that δ stays smaller.",
            argument="model",
        )


def find_first_layer(model: nn.Module, inputs: Tensor) -> FirstLayer | None:
    """The network's first layer, if adding δ behind it is the same as adding δ to the input; else None.

    Args:
        model: Frozen, in evaluation mode.
        inputs: A few rows.
    """
    called: list[nn.Module] = []
    handles = [
        module.register_forward_pre_hook(lambda module, _inputs: called.append(module))
        for module in model.modules()
        if isinstance(module, _LINEAR)
    ]
    try:
        with torch.no_grad():
            model(inputs[:1].clone())
    finally:
        for handle in handles:
            handle.remove()
    if not called or called.count(called[0]) > 1:
        return None
    first = FirstLayer(model, called[0], inputs[:1])
    try:
        return first if _is_the_same(first, model, inputs[:_ROWS]) else None
    except InputError:  # a network that goes different ways
        return None


@torch.no_grad()
def _is_the_same(first: FirstLayer, model: nn.Module, inputs: Tensor) -> bool:
    generator = torch.Generator().manual_seed(0)
    scale = float(inputs.float().std()) or 1.0
    for size in _SIZES:
        delta = (size * scale * torch.randn(inputs.shape[1:], generator=generator)).to(inputs)
        outright = logits_in(model(inputs + delta)).float()
        with first.adding(first.share(delta)):
            behind = logits_in(model(inputs.clone())).float()
        spread = float(outright.max() - outright.min())
        if not float((outright - behind).abs().max()) <= _SAME * spread:  # also where it is not a number
            return False
    return True
