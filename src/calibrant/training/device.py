"""Execution of training steps: autocast, compiled blocks and CUDA graphs."""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import final

import torch
from torch import Tensor, nn

from calibrant.training.recipe import Recipe


def autocast(recipe: Recipe, device_type: str) -> AbstractContextManager[object]:
    """Return a context for one forward run of a network, in the precision of the recipe."""
    is_low = recipe.multiplies_in(device_type) == "bfloat16"
    # bfloat16 copies of the weights are not cached: a captured graph would never update them.
    return torch.autocast(device_type, torch.bfloat16, enabled=is_low, cache_enabled=False)


_WARMUPS = 3  # steps in which torch chooses its algorithms and allocates its buffers
_VARIANTS = 64  # compiled versions of one block that torch may keep: for each shape, in training or not


def compile_blocks(model: nn.Module) -> None:
    """Compile each block of a network, if it has any; equal blocks share the compiled code."""
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, _VARIANTS)
    # Logs dozens of harmless failed guesses about shapes.
    logging.getLogger("torch.utils._sympy.interp").setLevel(logging.ERROR)
    for block in getattr(model, "blocks", tuple)():
        block.compile(dynamic=False)


@final
class CapturedStep:
    """A step captured as a CUDA graph on a stream of its own; calling it replays the graph on the current buffers.

    The step reads and writes the same memory in every call, and is rewound before each warm-up step; the tensors to
    ``keep``, all that it changes, are restored after them.
    """

    def __init__(self, step: Callable[[], None], keep: list[Tensor], rewind: Callable[[], None]) -> None:
        self.stream = torch.cuda.Stream()
        self._graph = torch.cuda.CUDAGraph()
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            before = [tensor.detach().clone() for tensor in keep]
            for _ in range(_WARMUPS):
                rewind()
                step()
            rewind()
            with torch.no_grad():
                for tensor, value in zip(keep, before, strict=True):
                    tensor.copy_(value)
        torch.cuda.synchronize()
        with torch.cuda.graph(self._graph, stream=self.stream):
            step()
        torch.cuda.synchronize()

    def __call__(self) -> None:
        with torch.cuda.stream(self.stream):
            self._graph.replay()


@contextmanager
def deterministic_algorithms() -> Iterator[None]:
    """Restrict torch to algorithms that give the same numbers in every run on the same kind of device.

    Torch warns of an operation that has no such algorithm. Networks must not be compiled
    (``RuntimeOptions(compiled=False)``): compiled code is chosen by timing. All settings are restored afterwards.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it, products on a GPU may differ
    cudnn = torch.backends.cudnn
    algorithms = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    choice = cudnn.benchmark, cudnn.deterministic
    torch.use_deterministic_algorithms(True, warn_only=True)
    cudnn.benchmark, cudnn.deterministic = False, True
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(algorithms[0], warn_only=algorithms[1])
        cudnn.benchmark, cudnn.deterministic = choice
