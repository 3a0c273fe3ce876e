"""The data sets on which Calibrant and its peers are compared.

Pure numpy from a fixed seed, so that the environment that records the peers' answers and the one that runs the tests
make the same arrays to the last bit. Each returns its numbers and labels and says whether the numbers are logits.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["DATASETS", "Dataset", "Floats", "softmax"]

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Dataset:
    """Float64 scores (n, k) with their labels (n,), and what the scores are."""

    labels: Labels
    logits: Floats | None = None
    given_probs: Floats | None = None

    @property
    def probs(self) -> Floats:
        """Probabilities, (n, k): the given ones, or the softmax of the logits."""
        return softmax(self.logits) if self.given_probs is None else self.given_probs

    @property
    def confidence(self) -> Floats:
        """The largest probability of each sample, (n,)."""
        return self.probs.max(axis=1)

    @property
    def correct(self) -> NDArray[np.bool_]:
        """Whether the most probable class (the first on a tie) is the label, (n,)."""
        return self.probs.argmax(axis=1) == self.labels

    @property
    def n_classes(self) -> int:
        """The number of columns."""
        return self.probs.shape[1]


def softmax(logits: Floats) -> Floats:
    """Probabilities of the logits, sample by sample."""
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def _draw(generator: np.random.Generator, probs: Floats) -> Labels:
    """One label a sample from that sample's probabilities."""
    below = generator.random((len(probs), 1)) > probs.cumsum(axis=1)
    return np.minimum(below.sum(axis=1), probs.shape[1] - 1).astype(np.int64)


def overconfident() -> Dataset:
    """2,000 x 10 logits that are 1.8 times too large, as a trained network's are."""
    generator = np.random.default_rng(20_240_911)
    logits = 3.0 * generator.standard_normal((2_000, 10))
    return Dataset(_draw(generator, softmax(logits / 1.8)), logits=logits)


def calibrated() -> Dataset:
    """2,000 x 5 logits whose labels follow their softmax: whatever error is measured is noise."""
    generator = np.random.default_rng(20_240_902)
    logits = 2.0 * generator.standard_normal((2_000, 5))
    return Dataset(_draw(generator, softmax(logits)), logits=logits)


def binary() -> Dataset:
    """2,000 x 2 logits, 1.5 times too large and leaning to class 1."""
    generator = np.random.default_rng(20_240_903)
    logits = 2.0 * generator.standard_normal((2_000, 2)) + np.array([0.0, 0.5])
    return Dataset(_draw(generator, softmax(logits / 1.5)), logits=logits)


def ties() -> Dataset:
    """1,000 x 4 probabilities of a forest of ten trees: multiples of 0.1, so nearly all confidences tie.

    Every label had at least one vote, so that no log-loss is infinite; some confidences are exactly 1.
    """
    generator = np.random.default_rng(20_240_904)
    leaning = softmax(2.5 * generator.standard_normal((1_000, 4)))
    votes = generator.multinomial(10, leaning)
    # Square roots of votes are flatter than votes: the forest is overconfident.
    roots = np.sqrt(votes)
    labels = _draw(generator, roots / roots.sum(axis=1, keepdims=True))
    return Dataset(labels, given_probs=votes / 10)


def many_classes() -> Dataset:
    """3,000 x 100 logits, 1.3 times too large, most probabilities close to zero."""
    generator = np.random.default_rng(20_240_915)
    logits = 3.0 * generator.standard_normal((3_000, 100))
    return Dataset(_draw(generator, softmax(logits / 1.3)), logits=logits)


DATASETS: dict[str, Callable[[], Dataset]] = {
    made.__name__: made for made in (overconfident, calibrated, binary, ties, many_classes)
}
"""Every data set by name."""
