"""A frozen network that runs faster on a GPU: normalisations folded, channels last, launches captured in a graph."""

import copy
import warnings
from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from calibrant.models.convolutional import BasicBlock, BottleneckBlock, ProjectedShortcut
from calibrant.models.layers import ConvUnit, ImageNetStem

__all__ = ["Folded", "Graphed", "folded"]

_ALIKE = (
    0.2  # of its norm: rounding alone moves it by .003, as units close to 0 switch; a wrong one is off by 1 or more
)

# Blocks in which every normalisation is behind the convolution of its name.
_NORMALISES_BEHIND = (BasicBlock, BottleneckBlock, ConvUnit, ImageNetStem, ProjectedShortcut)


@final
class Graphed(nn.Module):
    """The network, with its passes that need a gradient in the inputs captured as CUDA graphs, one per batch size.

    All other passes go to the network itself. A graph multiplies in TF32, which is torch's default for convolutions and
    so most likely what the paper's runs used. Its gradient is compared with the network's own when it is made; where
    they differ by more than that explains, or nothing can be captured, the network itself is used.

    Args:
        model: On a GPU, in evaluation mode.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self._folded = [folded(model)]  # in a list, so that its parameters are not this module's
        self._graphs: dict[torch.Size, Callable[[Tensor], Tensor]] = {}
        self.eval()
        self.off = 0.0  # the largest relative distance of a captured gradient from the network's own

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits."""
        if not inputs.requires_grad or len(inputs) < 64:
            return self.model(inputs)
        graph = self._graphs.get(inputs.shape)
        if graph is None:
            graph = self._graphs[inputs.shape] = self._captured(inputs)
        # A graph answers in its own memory, which the next call overwrites.
        return graph(inputs).clone()

    def _captured(self, inputs: Tensor) -> Callable[[Tensor], Tensor]:
        network = self._folded[0]
        sample = inputs.detach().clone().requires_grad_()
        flags = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
        try:
            captured: Any = torch.cuda.make_graphed_callables(
                lambda images: network(images.contiguous(memory_format=torch.channels_last)), (sample,)
            )
            graph: Callable[[Tensor], Tensor] = captured
        except RuntimeError as error:
            warnings.warn(f"the network could not be captured and runs as it is: {error}", stacklevel=2)
            return self.model
        finally:
            torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = flags
        gradients = []
        for call in (self.model, graph):
            leaf = inputs.detach().clone().requires_grad_()
            (gradient,) = torch.autograd.grad(call(leaf).logsumexp(dim=1).sum(), leaf)
            gradients.append(gradient.clone())
        off = float((gradients[1] - gradients[0]).norm() / gradients[0].norm())
        if not off < _ALIKE:
            warnings.warn(
                f"the captured network's gradient is off by {off:.2g}; the network runs as it is", stacklevel=2
            )
            return self.model
        self.off = max(self.off, off)
        return graph


@final
class Folded(nn.Module):
    """The network, with :func:`folded` in its place for passes that need a gradient in the inputs: for a CPU.

    Args:
        model: In evaluation mode.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        # As above. In the usual order, which is the faster one here.
        self._folded = [folded(model).to(memory_format=torch.contiguous_format)]  # type: ignore[call-overload]
        self.eval()

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits."""
        if not inputs.requires_grad:
            return self.model(inputs)
        return self._folded[0](inputs)


def folded(model: nn.Module) -> nn.Module:
    """Return a copy whose convolutions contain the normalisations behind them, in channels-last order.

    Normalisations that come before a convolution, as in WideResNet and DenseNet, stay where they are.

    Args:
        model: In evaluation mode.
    """
    network = copy.deepcopy(model).eval()
    for module in network.modules():
        for name, norm in list(module.named_children()):
            if isinstance(norm, nn.BatchNorm2d) and isinstance(module, _NORMALISES_BEHIND):
                before = "0" if isinstance(module, ProjectedShortcut) else name.replace("norm", "conv")
                setattr(module, before, fuse_conv_bn_eval(getattr(module, before), norm))
                setattr(module, name, nn.Identity())
    # Torch's annotations know this keyword only with other arguments.
    return network.requires_grad_(False).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
