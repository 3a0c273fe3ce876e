"""How often the intervals of a shift hold the truth, and how often its tests reject, by simulation.

``python -m experiments.intervals.shift [SIMULATIONS] [FILE]`` prints a line a setting. Without a file, samples are
drawn from a Gaussian of each class, and the model is overconfident and biased. With a file of real predictions, both
the reference and the new samples are drawn from it with replacement, the new ones by class: their proportions are
known, and no temperature calibrates the model exactly.
"""

import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import mean
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from calibrant import Predictions, Shift, load, measure_shift
from calibrant.errors import CalibrantError, CalibrantWarning

__all__ = ["Case", "Gaussians", "cases"]

Array: TypeAlias = NDArray[np.float64]
Draw: TypeAlias = Callable[[int, Array, np.random.Generator], Predictions]


class Gaussians(NamedTuple):
    """Classes with a Gaussian each in a few dimensions, and a model whose logits are twice as large as they should be.

    Args:
        shares: Class proportions of the reference, which the model knows.
        centres: Middle of each class, (k, dimensions).
    """

    shares: Array
    centres: Array

    @classmethod
    def made(cls, k: int, apart: float, *, unequal: float = 0.0, dimensions: int = 5, seed: int = 0) -> "Gaussians":
        """Return k classes, of which the j-th is as frequent as (j + 1) to the power of -unequal."""
        shares = np.arange(1, k + 1, dtype=float) ** -unequal
        return cls(shares / shares.sum(), np.random.default_rng(seed).normal(size=(k, dimensions)) * apart)

    def draw(self, n: int, shares: Array, rng: np.random.Generator, *, noise: float = 1.0) -> Predictions:
        """Return n samples of classes in these proportions, with so much noise in their inputs."""
        labels = rng.choice(len(shares), size=n, p=shares)
        inputs = self.centres[labels] + noise * rng.normal(size=(n, self.centres.shape[1]))
        logits = np.log(self.shares) + inputs @ self.centres.T - 0.5 * (self.centres**2).sum(axis=1)
        return Predictions.from_logits(2 * logits + 0.5 * np.cos(np.arange(len(shares))), labels)


def draw_from(samples: Predictions, n: int, shares: Array, rng: np.random.Generator) -> Predictions:
    """Return n samples of a file, drawn with replacement, of classes in these proportions."""
    counts = np.bincount(samples.labels.numpy(), minlength=samples.n_classes)
    of_class = np.split(samples.labels.numpy().argsort(kind="stable"), counts.cumsum()[:-1])
    labels = rng.choice(len(shares), size=n, p=shares)
    return samples[torch.tensor([of_class[label][rng.integers(counts[label])] for label in labels])]


class Case(NamedTuple):
    """One simulation: the shift, and what is true of the new samples."""

    shift: Shift
    shares: Array
    accuracy: float

    @property
    def held(self) -> float:
        """Share of the classes whose interval holds the true proportion."""
        pairs = zip(self.shift.classes, self.shares, strict=True)
        return float(np.mean([one.new.low <= share <= one.new.high for one, share in pairs]))


def cases(
    draw: Draw, old: Array, sizes: tuple[int, int], *, simulations: int, spread: float, draw_new: Draw | None = None
) -> Iterator[Case]:
    """Yield simulations; those that no calibration can be fitted to are left out.

    Args:
        draw: Draws samples, given their number and class proportions.
        old: Class proportions of the reference.
        sizes: Number of reference samples and of new ones.
        simulations: Number of simulations.
        spread: Standard deviation of the logarithms of the ratios of proportions; 0 changes none.
        draw_new: Draws the new samples, if not as those of the reference.
    """
    rng = np.random.default_rng(1)
    for seed in range(simulations):
        shares = old * np.exp(spread * rng.normal(size=len(old)))
        shares /= shares.sum()
        reference, new = draw(sizes[0], old, rng), (draw_new or draw)(sizes[1], shares, rng)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrantWarning)
            try:
                shift = measure_shift(reference, logits=new.logits, seed=seed)
            except CalibrantError:
                continue
        truth = (draw_new or draw)(20_000, shares, rng)
        yield Case(shift, shares, truth.top.accuracy)


def main() -> None:
    """Print the table."""
    simulations = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    settings: list[tuple[str, Draw, Array, tuple[int, int], float, Draw | None]] = []
    if len(sys.argv) > 2:
        samples = load(Path(sys.argv[2]))
        counts = np.bincount(samples.labels.numpy(), minlength=samples.n_classes)
        from_file = partial(draw_from, samples)
        settings += [("file", from_file, counts / counts.sum(), (5000, 3000), spread, None) for spread in (0.0, 1.0)]
    else:
        for k, apart, unequal, sizes in (
            (2, 1.0, 0.0, (200, 100)),
            (5, 1.7, 0.5, (600, 300)),
            (10, 1.3, 1.0, (2000, 2000)),
            (20, 1.5, 1.0, (1000, 300)),
        ):
            made = Gaussians.made(k, apart, unequal=unequal)
            title, with_noise = f"{k} classes", partial(made.draw, noise=1.5)
            settings += [(title, made.draw, made.shares, sizes, spread, None) for spread in (0.0, 1.0)]
            settings.append((f"{title}, noisy", made.draw, made.shares, sizes, 1.0, with_noise))
    for name, draw, old, sizes, spread, noisy in settings:
        made_cases = list(cases(draw, old, sizes, simulations=simulations, spread=spread, draw_new=noisy))
        given = [(one.shift.expected["given"].accuracy, one.accuracy) for one in made_cases]
        print(
            f"{name}, {sizes[0]:,} and {sizes[1]:,} samples, spread {spread:g}: changed "
            f"{mean(one.shift.is_changed for one in made_cases):.3f}, more than proportions "
            f"{mean(not one.shift.is_label_shift for one in made_cases):.3f}, proportions held "
            f"{mean(one.held for one in made_cases):.3f}, accuracy held "
            f"{mean(float(one.low <= true <= one.high) for one, true in given):.3f}, off by "
            f"{mean(one.value - true for one, true in given):+.4f} ({len(made_cases)} simulations)",
            flush=True,
        )


if __name__ == "__main__":
    main()
