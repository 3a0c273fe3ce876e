"""How often intervals of what a calibration method gains hold the true gain, in folds and on two halves, by simulation.

``python -m experiments.intervals.folds [SIMULATIONS]`` prints a line a setting, method and way to compare: the true
mean gain in log-loss over a temperature or over no calibration, the mean and the standard deviation of the estimates,
how many intervals hold this mean and the true gain of their own maps, and how often the method is said to be better.

The labels are drawn from known probabilities, so that the log-loss of a map is known but for the samples that it is
computed on, which are the same for all.
"""

import sys
import warnings
from collections.abc import Iterator, Sequence
from statistics import mean, pstdev
from typing import NamedTuple

import torch
from torch import Tensor

from calibrant.calibrators import Calibrator, IsotonicOneVsRest, VectorScaling
from calibrant.comparison import UNCALIBRATED, MethodResult, compare
from calibrant.errors import CalibrantWarning
from calibrant.evidence import Difference
from calibrant.maps import Map
from calibrant.predictions import Predictions

__all__ = ["SETTINGS", "Gain", "Source", "gains"]


class Source(NamedTuple):
    """Networks that are too sure by a factor, of k classes that are not alike, and comparisons of n samples."""

    n: int
    k: int
    sharpness: float

    def draw(self, n: int, generator: torch.Generator) -> tuple[Predictions, Tensor]:
        """Return n samples, and the true probabilities of their classes, (n, k)."""
        logits = 1.5 * torch.randn(n, self.k, generator=generator, dtype=torch.float64)
        probs = (logits + torch.linspace(-0.3, 0.3, self.k)).softmax(1)
        labels = probs.multinomial(1, generator=generator)[:, 0]
        return Predictions.from_logits((self.sharpness * logits).float(), labels), probs


SETTINGS = (Source(200, 4, 1.0), Source(500, 4, 1.05), Source(300, 3, 2.0), Source(1000, 10, 1.3))
METHODS: tuple[Calibrator, ...] = (VectorScaling(), IsotonicOneVsRest())


class Gain(NamedTuple):
    """A method against a baseline in one comparison: the estimate, and the truth for the maps that were fitted."""

    method: str
    baseline: str
    estimate: Difference
    true: float
    beats: bool


def gains(
    source: Source, methods: Sequence[Calibrator], *, simulations: int, in_folds: bool = True, resamples: int = 100
) -> Iterator[Gain]:
    """Yield what each method changes in log-loss, in every simulation.

    Args:
        source: What samples are drawn from.
        methods: Beside the two baselines.
        simulations: Number of comparisons.
        in_folds: Compare in five folds; else on one half of the samples, with maps fitted on the other.
        resamples: Draws behind each interval.
    """
    generator = torch.Generator().manual_seed(1)
    others, probs = source.draw(20_000, generator)

    def risk(fitted: Map | None) -> float:
        samples = others if fitted is None else fitted.transform(others)
        return -float((probs * samples.logits.double().log_softmax(1)).sum(1).mean())

    def true_risk(method: MethodResult) -> float:
        if method.name == UNCALIBRATED:
            return risk(None)
        return mean(map(risk, method.fold_maps.maps if method.fold_maps else (method.map,)))

    half = source.n // 2
    for seed in range(simulations):
        samples, _ = source.draw(source.n, generator)
        calibration, test = (samples, None) if in_folds else (samples[:half], samples[half:])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrantWarning)
            compared = compare(calibration, test, methods, resamples=resamples, seed=seed)
        risks = {method.name: true_risk(method) for method in compared.fitted}
        for method in compared.fitted:
            for baseline, changes in method.differences.items():
                change = risks[method.name] - risks[baseline]
                yield Gain(method.name, baseline, changes["nll"], change, method.beats(baseline))


def main() -> None:
    """Print the table."""
    simulations = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    for source in SETTINGS:
        for in_folds in (True, False):
            by_pair: dict[tuple[str, str], list[Gain]] = {}
            for gain in gains(source, METHODS, simulations=simulations, in_folds=in_folds):
                by_pair.setdefault((gain.method, gain.baseline), []).append(gain)
            for (method, baseline), pair_gains in by_pair.items():
                if method == UNCALIBRATED:
                    continue
                expected = mean(gain.true for gain in pair_gains)
                held = mean(gain.estimate.low <= expected <= gain.estimate.high for gain in pair_gains)
                own = mean(gain.estimate.low <= gain.true <= gain.estimate.high for gain in pair_gains)
                values = [gain.estimate.value for gain in pair_gains]
                way, better = "in folds" if in_folds else "two halves", mean(gain.beats for gain in pair_gains)
                print(
                    f"{tuple(source)} {way}, {method} - {baseline}: true {expected:+.4f}, estimates "
                    f"{mean(values):+.4f} ± {pstdev(values):.4f}, held by {held:.3f}, that of the own maps by "
                    f"{own:.3f}, said to be better {better:.3f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
