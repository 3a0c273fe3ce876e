"""Data sets at the ends of what a float can hold: every metric and every calibrator answers on them or says why not.

What is returned or refused is up to each; what it may not do is leave by a foreign error (IndexError,
ZeroDivisionError, OverflowError, an assertion) or answer with NaN where the docstring promises a number.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch

from calibrant.predictions import Predictions

__all__ = ["EXTREMES", "Extreme"]

_DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}
# Samples: enough for five folds and for fifteen bins, few enough for a law over the whole catalogue.
_ROWS = 120


@dataclass(frozen=True)
class Extreme:
    """One data set, made when it is asked for."""

    name: str
    make: Callable[[], tuple[torch.Tensor, torch.Tensor]]

    def predictions(self) -> Predictions:
        """The data set; an InputError of the constructor is an answer, too."""
        return _predictions(self)

    def __str__(self) -> str:
        return self.name


@cache
def _predictions(extreme: Extreme) -> Predictions:
    """Keep what laws share: its softmax is taken once for all metrics."""
    return Predictions.from_logits(*extreme.make())


def _plain(n: int, k: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Overconfident logits of ordinary size, with right and wrong answers at every confidence, (n, k) and (n,)."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(0, 1.5, (n, k))
    probs = np.exp(truth - truth.max(axis=1, keepdims=True))
    probs /= probs.sum(axis=1, keepdims=True)
    labels = (rng.random((n, 1)) >= probs.cumsum(axis=1)[:, :-1]).sum(axis=1)
    return 2 * truth, labels


def _scaled(dtype: torch.dtype, k: int, factor: float) -> tuple[torch.Tensor, torch.Tensor]:
    """All logits times a factor, in float64 before they are rounded to their type."""
    logits, labels = _plain(_ROWS, k)
    return torch.from_numpy(logits / np.abs(logits).max() * factor).to(dtype), torch.from_numpy(labels)


def _one_row(dtype: torch.dtype, k: int, size: float, *, right: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Ordinary logits, and one sample with one logit of the given size, whose answer is right or wrong."""
    logits, labels = _plain(_ROWS, k)
    logits[7, 1] = size
    labels[7] = 1 if right else 0
    return torch.from_numpy(logits).to(dtype), torch.from_numpy(labels)


def _offset(dtype: torch.dtype, k: int, size: float, *, each: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits far from zero together: one common offset, or one a sample of either sign."""
    logits, labels = _plain(_ROWS, k)
    shift = np.where(np.arange(_ROWS) % 2 == 0, 1.0, -1.0)[:, None] if each else 1.0
    return torch.from_numpy(logits + size * shift).to(dtype), torch.from_numpy(labels)


def _constant(dtype: torch.dtype, k: int, value: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The same number everywhere: no sample prefers a class."""
    _, labels = _plain(_ROWS, k)
    return torch.full((_ROWS, k), value, dtype=torch.float64).to(dtype), torch.from_numpy(labels)


def _mixed(dtype: torch.dtype, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Samples of every size from the smallest to the largest number of the type."""
    info = torch.finfo(dtype)
    logits, labels = _plain(_ROWS, k)
    sizes = np.geomspace(info.smallest_normal, info.max / 4, _ROWS)[:, None]
    return torch.from_numpy(logits / np.abs(logits).max() * sizes).to(dtype), torch.from_numpy(labels)


def _few(dtype: torch.dtype, n: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    logits, labels = _plain(n, k)
    return torch.from_numpy(logits).to(dtype), torch.from_numpy(labels)


def _column(dtype: torch.dtype, k: int, size: float) -> tuple[torch.Tensor, torch.Tensor]:
    """One class far below all others in every sample, and sometimes the true one."""
    logits, labels = _plain(_ROWS, k)
    logits[:, 0] = -size
    return torch.from_numpy(logits).to(dtype), torch.from_numpy(labels)


def _all() -> dict[str, Extreme]:
    sets: list[Extreme] = []

    def put(
        name: str, make: Callable[..., tuple[torch.Tensor, torch.Tensor]], *given: object, **options: object
    ) -> None:
        sets.append(Extreme(name, lambda: make(*given, **options)))

    for name, dtype in _DTYPES.items():
        info = torch.finfo(dtype)
        for k in (2, 3):
            here = f"{name} k={k}"
            put(f"{here} all at a quarter of the largest", _scaled, dtype, k, info.max / 4)
            put(f"{here} all at the largest", _scaled, dtype, k, info.max)
            put(f"{here} all subnormal", _scaled, dtype, k, info.smallest_normal / 4)
            put(f"{here} all at the smallest", _scaled, dtype, k, info.smallest_normal * info.eps)
            put(f"{here} one wrong sample at a quarter of the largest", _one_row, dtype, k, info.max / 4, right=False)
            put(f"{here} one right sample at the largest", _one_row, dtype, k, info.max, right=True)
            put(f"{here} of every size", _mixed, dtype, k)
        put(f"{name} constant", _constant, dtype, 3, 0.5)
        put(f"{name} zeros", _constant, dtype, 3, 0.0)
        put(f"{name} two samples", _few, dtype, 2, 3)
    for name, dtype, sizes in (
        ("float32", torch.float32, (1e10, 1e30)),
        ("float64", torch.float64, (1e10, 1e30, 1e100, 1e300)),
    ):
        for size in sizes:
            put(f"{name} all at {size:g}", _scaled, dtype, 3, size)
            put(f"{name} one wrong sample at {size:g}", _one_row, dtype, 3, size, right=False)
            put(f"{name} one class at -{size:g}", _column, dtype, 3, size)
    for name, dtype, size in (
        ("float32", torch.float32, 1e6),
        ("float64", torch.float64, 1e6),
        ("float64", torch.float64, 1e15),
    ):
        put(f"{name} common offset of {size:g}", _offset, dtype, 3, size, each=False)
        put(f"{name} offsets of {size:g} of either sign", _offset, dtype, 3, size, each=True)
    put("float32 all at 1e-42", _scaled, torch.float32, 3, 1e-42)
    put("float64 all at 1e-310", _scaled, torch.float64, 3, 1e-310)
    put("float32 one sample", _few, torch.float32, 1, 2)
    put("float32 many classes, one wrong sample at 1e10", _one_row, torch.float32, 40, 1e10, right=False)
    put(
        "float32 many classes at a quarter of the largest",
        _scaled,
        torch.float32,
        40,
        torch.finfo(torch.float32).max / 4,
    )
    return {extreme.name: extreme for extreme in sets}


EXTREMES = _all()
"""Every data set by its name."""
