"""Dirichlet calibration with ODIR: against its authors' program, at the same objective."""

import numpy as np
import torch
from torch import Tensor

from benchmarks.bounds import Bound
from benchmarks.peers import Rows, dirichletcal
from benchmarks.timing import in_turns
from calibrant import Predictions, catalogue
from calibrant.maps import Affine

__all__ = ["report"]

TIMES_FASTER = 20
METHOD = f"dirichlet_odir(strength={dirichletcal.REG_LAMBDA},bias_strength={dirichletcal.REG_MU})"


def report() -> str:
    """The section of the results."""
    rows, judged = Rows.like_a_network(5_000, 100).prepare(), Rows.like_a_network(20_000, 100, seed=1)
    predictions, method = Predictions(rows.logits, rows.labels), catalogue.parse_calibrator(METHOD)
    made = []
    ours = in_turns({"ours": lambda: method.fit(predictions[:])}, rounds=3)["ours"]
    theirs = in_turns({"theirs": lambda: made.append(dirichletcal.fit(rows))}, rounds=1)["theirs"]
    fitted = method.fit(predictions)
    assert isinstance(fitted, Affine)
    their_weights = torch.from_numpy(np.array(made[0].weights, dtype=np.float64))
    our_weights = torch.cat([fitted.weight, fitted.bias[:, None]], dim=1)
    about = (
        f"Same objective: mean log-loss + {dirichletcal.REG_LAMBDA:g}/(k (k - 1)) times the squared off-diagonal + "
        f"{dirichletcal.REG_MU:g}/k times the squared intercept, of log-probabilities. Rows like those of a network; "
        "the peer is run once."
    )
    lines = [
        "## Dirichlet calibration with ODIR at 5,000 x 100",
        "",
        about,
        "",
        "| | time, in times ours | objective | log-loss on 20,000 other rows |",
        "|---|---|---|---|",
    ]
    objectives = []
    for name, times, weights in (("ours", 1, our_weights), ("dirichletcal", theirs / ours, their_weights)):
        objectives.append(_objective(weights, rows))
        lines.append(f"| {name} | {times:.0f} | {objectives[-1]:.8f} | {_log_loss(weights, judged):.5f} |")
    bounds = (
        Bound("times faster than dirichletcal", theirs / ours, at_least=TIMES_FASTER),
        Bound("objective above that of dirichletcal", objectives[0] - objectives[1], at_most=1e-7),
    )
    return "\n".join([*lines, "", *map(str, bounds)]) + "\n"


def _log_loss(weights: Tensor, rows: Rows) -> float:
    """Of weights (k, k + 1), intercept last, in float64."""
    logits = rows.logits.double().log_softmax(1) @ weights[:, :-1].T + weights[:, -1]
    return float(torch.nn.functional.cross_entropy(logits, rows.labels))


def _objective(weights: Tensor, rows: Rows) -> float:
    k, square = len(weights), weights[:, :-1].square()
    off_diagonal = float(square.sum() - square.diagonal().sum()) / (k * (k - 1))
    intercept = float(weights[:, -1].square().sum()) / k
    penalty = dirichletcal.REG_LAMBDA * off_diagonal + dirichletcal.REG_MU * intercept
    return _log_loss(weights, rows) + penalty
