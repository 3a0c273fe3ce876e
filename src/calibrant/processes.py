"""Several processes that work on the same network, as ``torchrun`` starts them: one on each GPU, or on some cores.

All of them run the same program on the same data, and each computes its part of every batch or pass. What they exchange
(logits, gradients) is then the same in all, and so is every decision that follows from it. The first process writes,
prints and evaluates.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, final

from calibrant.errors import CalibrantError, InputError, one_line

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

T = TypeVar("T")
_BAD_INPUT = 2  # exit code


@final
@dataclass(frozen=True)
class ProcessGroup:
    """The processes that share a piece of work, and the rank of this one."""

    count: int = 1
    rank: int = 0

    @classmethod
    def current(cls) -> "ProcessGroup":
        """Return the processes of ``torch.distributed`` if it is initialised, else this one alone.

        Example:
            >>> ProcessGroup.current()
            ProcessGroup(count=1, rank=0)
        """
        from torch import distributed

        is_joined = distributed.is_available() and distributed.is_initialized()
        return cls(distributed.get_world_size(), distributed.get_rank()) if is_joined else SINGLE_PROCESS

    @property
    def is_first(self) -> bool:
        """Whether this process writes the files and shows the progress."""
        return self.rank == 0

    def share_of(self, n: int) -> slice:
        """Return the part of n samples that this process computes; of fewer samples than processes some get none."""
        return slice(n * self.rank // self.count, n * (self.rank + 1) // self.count)

    def part_of(self, batch_size: int) -> slice:
        """Return the part of a batch that this process computes; an InputError if it cannot be divided evenly."""
        if batch_size % self.count:
            raise InputError(f"batch_size must be a multiple of the {self.count} processes; got {batch_size}.")
        return self.share_of(batch_size)

    def wrapped(self, model: "nn.Module", device: "torch.device") -> "nn.Module":
        """Return the network to call in training; its gradients are the mean over all processes."""
        if self.count == 1:
            return model
        from torch.nn import SyncBatchNorm
        from torch.nn.parallel import DistributedDataParallel

        if device.type != "cuda":
            return DistributedDataParallel(model)
        return DistributedDataParallel(SyncBatchNorm.convert_sync_batchnorm(model), device_ids=[device.index])

    def gathered(self, values: "Tensor") -> "Tensor":
        """Return the values of all processes, in the order of the whole batch; gradients flow to this process's own."""
        if self.count == 1:
            return values
        import torch
        from torch import distributed

        parts = [torch.empty_like(values) for _ in range(self.count)]
        distributed.all_gather(parts, values.detach())
        if values.requires_grad:
            # Each process has the loss of the whole batch and propagates the gradient of its own part. The gradient of
            # the weights is the sum over all processes, of which the wrapped network takes the mean.
            values.register_hook(lambda gradient: gradient * self.count)
        parts[self.rank] = values
        return torch.cat(parts)

    def copy_of_first(self, tensor: "Tensor") -> "Tensor":
        """Return a copy of a tensor's values in the first process."""
        copied = tensor.detach().clone()
        if self.count > 1:
            from torch import distributed

            distributed.broadcast(copied, src=0)
        return copied

    def sum_(self, *tensors: "Tensor") -> None:
        """Replace each tensor by its sum over all processes, the same bits in all of them."""
        if self.count > 1:
            from torch import distributed

            for tensor in tensors:
                distributed.all_reduce(tensor)

    def from_first(self, function: Callable[[], T]) -> T:
        """Return what a function returns in the first process, where alone it is called; its error is raised in all."""
        if self.count == 1:
            return function()
        sent: Any = None
        with self.agreed():
            sent = function() if self.is_first else None
        value: T = self._gathered_objects(sent)[0]
        return value

    def check_same(self, value: str, what: str) -> None:
        """Check that a text, such as a digest of the data, is the same in all processes."""
        values = self._gathered_objects(value) if self.count > 1 else [value]
        if other := next((rank for rank, theirs in enumerate(values) if theirs != values[0]), None):
            raise InputError(
                f"all processes must be given the same {what}; process {other + 1} has other ones than the first. Give "
                "all of it to each: it takes its own part."
            )

    @contextmanager
    def agreed(self) -> Iterator[None]:
        """Raise an error of any process in all of them at the end of the block, in which they exchange nothing."""
        if self.count == 1:
            yield
            return
        own: Exception | None = None
        try:
            yield
        except Exception as error:  # noqa: BLE001  # it is raised below
            own = error
        sent = own
        if own is not None and not isinstance(own, CalibrantError):
            sent = CalibrantError(f"process {self.rank + 1} of {self.count} stopped: {one_line(own)}.")
        first = next((error for error in self._gathered_objects(sent) if error is not None), None)
        if first is not None:
            raise own or first

    def _gathered_objects(self, value: T) -> list[T]:
        from torch import distributed

        values: list[Any] = [None] * self.count
        distributed.all_gather_object(values, value)
        return values


SINGLE_PROCESS = ProcessGroup()


@contextmanager
def join_processes() -> Iterator[ProcessGroup]:
    """Join the processes that ``torchrun`` has started, if there are any: by gloo, and on GPUs by nccl.

    Only the first process that fails shows its error; the others exit.

    Example:
        >>> with join_processes() as processes:
        ...     processes.share_of(100)
        slice(0, 100, None)
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield SINGLE_PROCESS
        return
    import torch
    from torch import distributed
    from torch.distributed.rendezvous import rendezvous

    if distributed.is_initialized():
        yield ProcessGroup.current()
        return
    store, rank, count = next(rendezvous("env://"))
    has_gpus = torch.cuda.is_available() and distributed.is_nccl_available()
    distributed.init_process_group(
        "cpu:gloo,cuda:nccl" if has_gpus else "gloo", store=store, rank=rank, world_size=count
    )
    try:
        yield ProcessGroup(count, rank)
    except Exception as error:
        try:
            is_shown = store.add("calibrant/failed", 1) == 1
        except RuntimeError:  # the process that kept the store has failed before
            is_shown = False
        if not is_shown:
            raise SystemExit(_BAD_INPUT) from error
        raise
    finally:
        distributed.destroy_process_group()
