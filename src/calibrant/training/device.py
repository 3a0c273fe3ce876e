"""Execution of training steps: several processes, precision of products, compiled parts and CUDA graphs."""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from calibrant.errors import InputError
from calibrant.training.recipe import Recipe

__all__ = ["ALONE", "CapturedStep", "Multiplying", "Peers", "compile_blocks", "joined_peers"]


@final
@dataclass(frozen=True)
class Peers:
    """How many processes there are, and which one this is."""

    count: int = 1
    rank: int = 0

    @property
    def is_first(self) -> bool:
        """Whether this process writes the files and shows the progress."""
        return self.rank == 0

    def wrapped(self, model: nn.Module, device: torch.device) -> nn.Module:
        """The network as it is called in training: its gradients are the mean over all processes."""
        if self.count == 1:
            return model
        if device.type == "cuda":
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
            return DistributedDataParallel(model, device_ids=[device.index])
        return DistributedDataParallel(model)

    def part_of(self, batch_size: int) -> slice:
        """This process's part of a batch.

        Raises:
            InputError: If a batch cannot be shared evenly.
        """
        if batch_size % self.count:
            raise InputError(f"batch_size must be a multiple of the {self.count} processes; got {batch_size}.")
        size = batch_size // self.count
        return slice(self.rank * size, (self.rank + 1) * size)

    def gathered(self, rows: Tensor) -> Tensor:
        """Everyone's rows, in the order of the whole batch; gradients find their way back."""
        if self.count == 1:
            return rows
        parts = [torch.empty_like(rows) for _ in range(self.count)]
        distributed.all_gather(parts, rows.detach())
        if rows.requires_grad:
            # Each has the loss of the whole batch and passes on what its own rows do to it. The weights' gradient is
            # the sum of that over all processes, of which the wrapped network takes the mean.
            rows.register_hook(lambda gradient: gradient * self.count)
        parts[self.rank] = rows
        return torch.cat(parts)


ALONE = Peers()


@contextmanager
def joined_peers(device: torch.device) -> Iterator[Peers]:
    """Join the processes that ``torchrun`` has started, or stay alone."""
    if "WORLD_SIZE" not in os.environ or int(os.environ["WORLD_SIZE"]) == 1:
        yield ALONE
        return
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield Peers(distributed.get_world_size(), distributed.get_rank())
    finally:
        distributed.destroy_process_group()


@final
class Multiplying:
    """A context for a network's forward runs, entered anew for each.

    Args:
        recipe: Says the precision.
        device_type: Where the network is.
    """

    def __init__(self, recipe: Recipe, device_type: str) -> None:
        self.is_low = recipe.multiplies_in(device_type) == "bfloat16"
        self._device_type = device_type

    def __call__(self) -> AbstractContextManager[object]:
        # bfloat16 copies of the weights are not kept: a captured graph would never renew them.
        return torch.autocast(self._device_type, torch.bfloat16, enabled=self.is_low, cache_enabled=False)


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
