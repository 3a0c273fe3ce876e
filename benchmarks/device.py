"""Where the questions about training run: on the GPU if there is one, else on one thread of the processor."""

import platform
import time
from dataclasses import dataclass

import torch

__all__ = ["Place"]


@dataclass(frozen=True)
class Place:
    """A device, what it is called, and the clock that tells how long it was busy."""

    device: torch.device

    @classmethod
    def best(cls) -> "Place":
        """The GPU if there is one."""
        return cls(torch.device("cuda" if torch.cuda.is_available() else "cpu"))

    @property
    def is_gpu(self) -> bool:
        """Whether steps can be recorded."""
        return self.device.type == "cuda"

    @property
    def title(self) -> str:
        """For headings: sections of different devices stand side by side."""
        return torch.cuda.get_device_name(self.device) if self.is_gpu else f"one thread of {platform.machine()}"

    @property
    def about(self) -> str:
        """How this section was timed."""
        clock = "wall time, until the GPU is done" if self.is_gpu else "processor time"
        return f"All in turns with torch {torch.__version__}; least {clock}, of several rounds."

    def clock(self) -> float:
        """Seconds: of the wall once the GPU has done all it was told, or of the processor."""
        if not self.is_gpu:
            return time.process_time()
        torch.cuda.synchronize(self.device)
        return time.perf_counter()
