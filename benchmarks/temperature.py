"""One temperature for all logits: against cross-entropy passes over the same array, and against the peers."""

from collections.abc import Callable
from functools import partial

import torch
from scipy.optimize import brentq
from torch import Tensor

from benchmarks.bounds import Bound
from benchmarks.peers import Rows, rivals
from benchmarks.timing import in_turns
from calibrant import Predictions
from calibrant.calibrators import TemperatureScaling
from calibrant.maps import Scale

__all__ = ["report"]

# Rows, classes, the most cross-entropy passes a fit may take (if bounded), whether to wait for the peers.
SIZES = ((25_000, 1000, 4, True), (1_000_000, 10, 2, False), (5_000, 100, None, False))
TIMES_FASTER = 20
CLOSE = 1e-5


def report() -> str:
    """The section of the results."""
    about = (
        "One `cross_entropy` forward pass over the same array is the unit. The error is that of T, relative, against "
        "the root of the slope of the log-loss in float64. Peers get logits; scikit-learn without its wrapper class."
    )
    lines = [
        "## Temperature scaling, from float32 logits",
        "",
        about,
        "",
        "| rows x classes | ours | error of T | peers: passes (times ours), error of T |",
        "|---|---|---|---|",
    ]
    bounds: list[Bound] = []
    for n, k, most, beside_peers in SIZES:
        lines.append(_measure(Rows.make(n, k), most, bounds, beside_peers=beside_peers))
    return "\n".join([*lines, "", *map(str, bounds)]) + "\n"


def _measure(rows: Rows, most: float | None, bounds: list[Bound], *, beside_peers: bool) -> str:
    predictions = Predictions(rows.logits, rows.labels)
    size = f"{len(predictions):,} x {rows.n_classes}"
    best = _optimum(rows.logits, rows.labels)
    times = in_turns(
        {
            "unit": lambda: torch.nn.functional.cross_entropy(rows.logits, rows.labels),
            "ours": lambda: TemperatureScaling().fit(predictions[:]),
        },
        rounds=9,
    )
    fitted = TemperatureScaling().fit(predictions)
    assert isinstance(fitted, Scale)
    ours = float(fitted.temperature)
    error = abs(ours / best - 1)
    if most is not None:
        bounds.append(Bound(f"passes at {size}", times["ours"] / times["unit"], at_most=most))
    bounds.append(Bound(f"error of T at {size}", error, at_most=CLOSE))
    words = []
    for name, run in rivals("temperature").items() if beside_peers else ():
        tasks: dict[str, Callable[[], object]] = {"ours": lambda: TemperatureScaling().fit(predictions[:])}
        tasks["peer"] = partial(run, rows)
        theirs = in_turns(tasks, rounds=2)
        slower = theirs["peer"] / theirs["ours"]
        words.append(f"{name} {theirs['peer'] / times['unit']:.0f} ({slower:.0f}), {abs(run(rows) / best - 1):.0e}")
        bounds.append(Bound(f"times faster than {name} at {size}", slower, at_least=TIMES_FASTER))
    return f"| {size} | **{times['ours'] / times['unit']:.2f}** | {error:.0e} | {'; '.join(words) or '-'} |"


def _optimum(logits: Tensor, labels: Tensor) -> float:
    """The temperature at which the expected logit is the label's on average, in float64."""
    exact = logits.double()
    of_labels = exact.gather(1, labels[:, None]).mean()

    def slope(inverse: float) -> float:
        expected = sum(((inverse * part).softmax(1) * part).sum() for part in exact.split(100_000)) / len(exact)
        return float(expected - of_labels)

    return 1 / brentq(slope, 0.05, 20, xtol=1e-13, rtol=1e-13)
