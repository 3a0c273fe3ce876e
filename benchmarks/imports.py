"""What ``import calibrant`` costs beyond ``import torch``."""

import subprocess
import sys

__all__ = ["report"]

_CODE = """
import time
start = time.process_time(); import torch; middle = time.process_time()
from calibrant import Predictions, ece, evaluate, load
print(middle - start, time.process_time() - middle)
"""
_PEERS = {"netcal": "netcal.metrics", "torchmetrics": "torchmetrics", "probmetrics": "probmetrics.metrics"}


def report() -> str:
    """The section of the results."""
    torch_seconds, ours = min((_ours() for _ in range(5)), key=sum)
    lines = ["## Import, in processor seconds beyond `import torch`", "", "| package | seconds |", "|---|---|"]
    lines.append(f"| calibrant | {ours:.2f} |")
    lines += [f"| {name} | {_beyond_torch(module):.2f} |" for name, module in _PEERS.items()]
    lines.append(f"| (torch itself | {torch_seconds:.2f}) |")
    return "\n".join(lines) + "\n"


def _ours() -> tuple[float, float]:
    first, second = _run(_CODE).split()
    return float(first), float(second)


def _beyond_torch(module: str) -> float:
    code = f"import time, torch; s = time.process_time(); import {module}; print(time.process_time() - s)"
    return min(float(_run(code).split()[-1]) for _ in range(2))


def _run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True
    ).stdout
