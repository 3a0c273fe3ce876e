"""Memory that is used again and again, one piece a thread: fresh memory costs as much as the arithmetic done in it."""

import threading

import torch
from torch import Tensor

__all__ = ["workspace"]

_kept = threading.local()


def workspace(parts: int, size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Memory of shape (parts, size) whose content is arbitrary, lent until this thread asks again.

    On a CPU it is kept between calls (24 MB for float32 as this library uses it); a GPU's allocator does that itself.
    """
    if device.type != "cpu":
        return torch.empty(parts, size, dtype=dtype, device=device)
    kept: Tensor | None = getattr(_kept, "memory", None)
    if kept is None or kept.dtype != dtype or kept.numel() < parts * size:
        kept = _kept.memory = torch.empty(parts * size, dtype=dtype)
    return kept[: parts * size].view(parts, size)
