"""Steps that a GPU repeats without being told each kernel again: parts compiled once, then the whole step recorded.

A small network's step is hundreds of kernels of a few microseconds; telling them one by one takes longer than running
them. Recorded steps of several networks also run side by side, each on its own stream.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import final

import torch
from torch import Tensor, nn

__all__ = ["CapturedStep", "compile_blocks"]

_WARMUPS = 3  # steps that let torch choose its algorithms and make its buffers
_VARIANTS = 64  # of one block's code that torch may compile: for each shape, and in training or not


def compile_blocks(model: nn.Module) -> None:
    """Let torch fuse each repeated part of a network; equal parts share one result. Others are left as they are."""
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, _VARIANTS)
    # Says of harmless guesses about shapes that they failed, dozens of times.
    logging.getLogger("torch.utils._sympy.interp").setLevel(logging.ERROR)
    # A person's own network need not have any.
    for block in getattr(model, "blocks", tuple)():
        block.compile(dynamic=False)


@final
class CapturedStep:
    """A step recorded on a stream of its own; calling it repeats the recording on what the buffers then hold.

    Args:
        step: Reads and writes the same memory in every call.
        keep: Everything the step changes: put back after the steps that warm it up.
        rewind: Makes the step start where it started, before each of these.
    """

    def __init__(self, step: Callable[[], None], keep: list[Tensor], rewind: Callable[[], None]) -> None:
        self.stream = torch.cuda.Stream()
        self._graph = torch.cuda.CUDAGraph()
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream), _unchanged(keep):
            for _ in range(_WARMUPS):
                rewind()
                step()
            rewind()
        torch.cuda.synchronize()
        with torch.cuda.graph(self._graph, stream=self.stream):
            step()
        torch.cuda.synchronize()

    def __call__(self) -> None:
        with torch.cuda.stream(self.stream):
            self._graph.replay()


@contextmanager
def _unchanged(tensors: list[Tensor]) -> Iterator[None]:
    """Whatever happens to the tensors inside, they are as before afterwards, in the same memory."""
    before = [tensor.detach().clone() for tensor in tensors]
    yield
    with torch.no_grad():
        for tensor, value in zip(tensors, before, strict=True):
            tensor.copy_(value)
