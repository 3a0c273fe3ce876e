"""A device without float64, as Apple's GPUs are, on any machine: its tensors say they are on it, and the CPU computes.

As there, float64 cannot be had, NumPy reads no tensor, and an operation takes tensors of one device.
"""

from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

__all__ = ["AppleGPU", "move"]

_GPU = torch.device("mps", 0)
_ATEN = torch.ops.aten
_TAKE_BOTH = {_ATEN.copy_.default, _ATEN.index.Tensor, _ATEN.index_put.default, _ATEN.index_put_.default}


class _OnGPU(Tensor):
    """A tensor that says it is on the GPU; ``inner`` is the one on the CPU."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> Self:
        if inner.dtype == torch.float64:
            raise TypeError("Cannot convert a MPS Tensor to float64 dtype as the MPS framework has none.")
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, strides=inner.stride(), dtype=inner.dtype)
        made.inner = inner
        return made

    device = property(lambda _: _GPU)  # type: ignore[assignment]

    def numpy(self, *_: Any, **__: Any) -> Any:
        raise TypeError("can't convert mps:0 device type tensor to numpy. Use Tensor.cpu() to copy it first.")

    __array__ = numpy

    def __repr__(self, **_: Any) -> str:
        return f"{self.inner!r} on the GPU"

    def tolist(self) -> Any:
        return self.inner.tolist()

    @classmethod
    def __torch_dispatch__(cls, function: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if function not in _TAKE_BOTH and any(leaf.ndim and not isinstance(leaf, cls) for leaf in given):
            raise RuntimeError(f"Expected all tensors to be on the same device, but found mps:0 and cpu! ({function})")
        made = function(*tree_map(_inner, args), **tree_map(_inner, kwargs))
        if function._schema.is_mutable:
            return kwargs.get("out", args[0])
        return tree_map(lambda leaf: cls(leaf) if isinstance(leaf, Tensor) else leaf, made)


def _inner(leaf: Any) -> Any:
    return leaf.inner if isinstance(leaf, _OnGPU) else leaf


class _Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, there: bool) -> Tensor:
        ctx.there = there
        return _OnGPU(values.detach().clone()) if there else values.detach().inner.clone()

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None]:
        return slope.inner if ctx.there else _OnGPU(slope), None


class AppleGPU(TorchFunctionMode):
    """Within the block, the device ``mps`` is there."""

    def __torch_function__(self, function: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if function in (Tensor.to, Tensor.cpu):
            return _moved(args[0], "cpu" if function is Tensor.cpu else None, *args[1:], **kwargs)
        if torch.device(kwargs.get("device") or "cpu").type != "mps":
            return function(*args, **kwargs)
        return _OnGPU(function(*tree_map(_inner, args), **{**kwargs, "device": "cpu"}))


def _moved(values: Tensor, *given: Any, device: Any = None, dtype: Any = None, **_: Any) -> Tensor:
    for one in given:
        if isinstance(one, Tensor):
            device, dtype = one.device, one.dtype
        elif isinstance(one, torch.dtype):
            dtype = one
        elif isinstance(one, str | torch.device):
            device = one
    goes = None if device is None else torch.device(device).type == "mps"
    if goes is False and isinstance(values, _OnGPU):
        values = _Copy.apply(values, False)  # type: ignore[no-untyped-call]
    if dtype is not None and dtype != values.dtype:
        values = values.type(dtype)
    if goes and not isinstance(values, _OnGPU):
        values = _Copy.apply(values, True) if values.is_floating_point() else _OnGPU(values)  # type: ignore[no-untyped-call]
    return values


def move(module: nn.Module) -> nn.Module:
    """Move a module to the GPU, as ``to`` would, which replaces the numbers of a parameter and not the parameter."""
    for part in module.modules():
        for name, values in part._parameters.items():
            part._parameters[name] = None if values is None else nn.Parameter(values.detach().to("mps"))
        for name, values in part._buffers.items():
            part._buffers[name] = None if values is None else values.to("mps")
    return module
