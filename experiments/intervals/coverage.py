"""How often the 95 % intervals of rank metrics, and of calibration slopes, hold the true value, by simulation.

``python -m experiments.intervals.coverage [SIMULATIONS]`` prints one line a setting and metric: how many intervals of
100 hold the true value, and how many lie wholly above and wholly below it. ``slopes`` instead of a number prints how
many intervals of the slope and of calibration in the large hold 1 and 0, where one of two outcomes is rare; ``twins``,
how often one of two models is shown to be better that have the same expected log-loss, one too unsure, one too sure;
``ranks``, how often one of two models with the same AUROC is, where few answers are wrong, or few right.

Log-odds of wrong answers are normal, those of right ones are shifted so that the AUROC is as given, and rounded to
steps where ties are wanted. The last two settings are calibrated models instead: correctness is drawn from confidence.
The truth is the metric of two million samples, whose own error is small beside an interval of a few thousand.
"""

import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from scipy.optimize import brentq

from calibrant.evidence import calibration_line, difference, estimate
from calibrant.metrics import AUGRC, AURC, AUROC, EAURC, FPR95, NLL, AUPRError, AUPRSuccess, Metric
from calibrant.predictions import Predictions, TopLabel

__all__ = [
    "METRICS", "RANKS", "SETTINGS", "SLOPES", "TWINS", "Setting", "coverage", "coverage_of_lines",
    "differences_of_ranks", "differences_of_twins",
]  # fmt: skip

METRICS: tuple[Metric, ...] = (AUROC(), AUPRError(), AUPRSuccess(), FPR95(), AURC(), EAURC(), AUGRC())


@final
@dataclass(frozen=True)
class Setting:
    """A source of answers whose metrics are known."""

    n: int
    errors: float  # share of wrong answers; of a calibrated model, the mean log-odds
    separation: float  # AUROC; of a calibrated model, the standard deviation of the log-odds
    step: float = 0.0  # log-odds are rounded to multiples of it; 0: no ties
    calibrated: bool = False

    def draw(self, n: int, rng: np.random.Generator) -> TopLabel:
        """Answers, n of them."""
        if self.calibrated:
            log_odds = self.errors + self.separation * rng.standard_normal(n)
            correct = rng.random(n) < 1 / (1 + np.exp(-log_odds))
        else:
            correct = rng.random(n) >= self.errors
            shift = math.sqrt(2) * statistics.NormalDist().inv_cdf(self.separation)
            log_odds = rng.standard_normal(n) + shift * correct
        if self.step:
            log_odds = np.round(log_odds / self.step) * self.step
        confidence = torch.sigmoid(torch.from_numpy(log_odds))
        return TopLabel(confidence, torch.from_numpy(correct))

    def __str__(self) -> str:
        ties = f", steps of {self.step:g}" if self.step else ""
        if self.calibrated:
            return f"n {self.n}, calibrated, log-odds {self.errors:g} ± {self.separation:g}{ties}"
        return f"n {self.n}, errors {self.errors:g}, AUROC {self.separation:g}{ties}"


SETTINGS = (
    *(Setting(1000, 0.05, auroc) for auroc in (0.6, 0.85, 0.97)),
    Setting(1000, 0.05, 0.85, step=0.25),
    Setting(1000, 0.05, 0.97, step=0.5),
    *(Setting(200, 0.1, auroc) for auroc in (0.6, 0.85, 0.97)),
    *(Setting(5000, 0.02, auroc) for auroc in (0.6, 0.85, 0.97)),
    *(Setting(n, errors, 0.85) for n, errors in ((200, 0.8), (1000, 0.99))),
    Setting(1000, 4.5, 2.0, calibrated=True),
    Setting(200, 3.0, 1.5, calibrated=True),
)


# Samples, mean log-odds of the outcome, and simulations.
SLOPES = ((2_000, -6.0, 600), (2_000, -5.3, 600), (2_000, -4.6, 600), (20_000, -7.6, 150), (300, 0.0, 400))


def coverage_of_lines(n: int, mean: float, simulations: int) -> tuple[float, float, float]:
    """Mean number of outcomes, and shares of the intervals of slope and calibration in the large that hold 1 and 0."""
    outcomes, held = [], []
    for seed in range(simulations):
        generator = torch.Generator().manual_seed(seed)
        log_odds = mean + torch.randn(n, generator=generator, dtype=torch.float64)
        occurred = torch.rand(n, generator=generator) < log_odds.sigmoid()
        outcomes.append(int(occurred.sum()))
        if (line := calibration_line(Predictions.from_binary_logits(log_odds, occurred.long()))) is not None:
            of_slope, in_the_large = line.slope, line.in_the_large
            held.append((of_slope.low <= 1 <= of_slope.high, in_the_large.low <= 0 <= in_the_large.high))
    slope, in_the_large = np.mean(held, axis=0)
    return statistics.fmean(outcomes), float(slope), float(in_the_large)


# Samples, mean and standard deviation of the log-odds of calibrated probabilities, what the unsure model makes of them.
TWINS = ((100, 3.0, 1.0, 0.6), (250, 4.0, 1.0, 0.6), (1000, 5.0, 1.0, 0.7), (250, 2.0, 2.0, 0.6))


def differences_of_twins(
    n: int, mean: float, spread: float, unsure: float, simulations: int
) -> tuple[float, float, float]:
    """Shares of pairs of which the sure model, the unsure one, is shown to be better, and of intervals without 0."""
    rng = np.random.default_rng(n)
    population = mean + spread * rng.standard_normal(400_000)
    chance = 1 / (1 + np.exp(-population))

    def log_loss(scale: float) -> float:
        right, wrong = np.logaddexp(0, -scale * population), np.logaddexp(0, scale * population)
        return float((chance * right + (1 - chance) * wrong).mean())

    sure = brentq(lambda scale: log_loss(scale) - log_loss(unsure), 1.0, 10.0)
    shown = np.zeros(3)
    for seed in range(simulations):
        log_odds = mean + spread * rng.standard_normal(n)
        labels = torch.from_numpy(rng.random(n) < 1 / (1 + np.exp(-log_odds))).long()
        baseline, candidate = (
            Predictions.from_binary_logits(torch.from_numpy(scale * log_odds), labels) for scale in (unsure, sure)
        )
        change = difference(baseline, candidate, [NLL()], seed=seed)["nll"]
        better = change.is_significant * math.copysign(1, change.value)
        shown += (better < 0, better > 0, not change.low <= 0 <= change.high)
    of_sure, of_unsure, outside = (shown / simulations).tolist()
    return of_sure, of_unsure, outside


# Samples, wrong answers among them, AUROC, and correlation of the log-odds of the two models.
RANKS = (
    (200, 10, 0.85, 0.5),
    (1000, 20, 0.85, 0.5),
    (1000, 20, 0.97, 0.9),
    (1000, 5, 0.85, 0.5),
    (1000, 980, 0.85, 0.5),
)


def differences_of_ranks(
    n: int, wrong: int, auroc: float, correlation: float, metrics: Sequence[Metric], simulations: int
) -> dict[str, float]:
    """Shares of pairs of equally good models of which one is shown to be better, by metric."""
    rng = np.random.default_rng([n, wrong, round(1000 * auroc)])
    correct = np.arange(n) >= wrong
    shift = math.sqrt(2) * statistics.NormalDist().inv_cdf(auroc) * correct
    shown = dict.fromkeys((metric.name for metric in metrics), 0)
    for seed in range(simulations):
        common, *own = rng.standard_normal((3, n))
        pair = (shift + math.sqrt(correlation) * common + math.sqrt(1 - correlation) * noise for noise in own)
        baseline, candidate = (TopLabel(torch.from_numpy(one).sigmoid(), torch.from_numpy(correct)) for one in pair)
        changes = difference(baseline, candidate, metrics, resamples=300, seed=seed)
        for name in shown:
            shown[name] += changes[name].is_significant
    return {name: count / simulations for name, count in shown.items()}


def coverage(setting: Setting, simulations: int, *, seed: int = 0) -> dict[str, tuple[float, float, float]]:
    """Shares of the intervals that hold the true value, lie above it, and lie below it, by metric."""
    rng = np.random.default_rng([seed, setting.n, round(1000 * setting.separation)])
    population = setting.draw(2_000_000, rng)
    truth = {metric.name: metric(population) for metric in METRICS}
    above, below, made = (dict.fromkeys(truth, 0) for _ in range(3))
    for _ in range(simulations):
        estimates = estimate(setting.draw(setting.n, rng), METRICS, resamples=2)
        for name, value in truth.items():
            made[name] += not math.isnan(estimates[name].low)
            above[name] += estimates[name].low > value
            below[name] += estimates[name].high < value
    return {
        name: (1 - (above[name] + below[name]) / made[name], above[name] / made[name], below[name] / made[name])
        for name in truth
    }


def main() -> None:
    """Print the table."""
    if sys.argv[1:] == ["slopes"]:
        for n, mean, simulations in SLOPES:
            outcomes, slope, in_the_large = coverage_of_lines(n, mean, simulations)
            print(f"n {n}, outcomes {outcomes:.1f}: slope {slope:.3f}, in the large {in_the_large:.3f}", flush=True)
        return
    if sys.argv[1:] == ["twins"]:
        for twins in TWINS:
            sure, unsure, outside = differences_of_twins(*twins, simulations=600)
            print(f"{twins}: sure better {sure:.3f}, unsure better {unsure:.3f}, 0 outside {outside:.3f}", flush=True)
        return
    if sys.argv[1:] == ["ranks"]:
        for ranks in RANKS:
            shown = differences_of_ranks(*ranks, (AUROC(), AUPRError(), AURC(), AUGRC()), simulations=600)
            print(f"{ranks}: {', '.join(f'{name} {share:.3f}' for name, share in shown.items())}", flush=True)
        return
    simulations = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    print(f"| setting | {' | '.join(metric.name for metric in METRICS)} |")
    print("|---|" + "---:|" * len(METRICS))
    for setting in SETTINGS:
        shares = coverage(setting, simulations)
        cells = (f"{held:.3f} ({above:.3f}, {below:.3f})" for held, above, below in shares.values())
        print(f"| {setting} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
