"""Our beta calibration beside betacal, the authors' program, live: where both agree, and where betacal is wrong.

betacal stops its logistic regression early (tolerance 1e-4), hence the tolerance: its own log-loss on the samples it
was fitted on is never below ours.
"""

import numpy as np
import pytest

from calibrant.calibrators import BetaCalibration
from calibrant.predictions import Predictions

Betacal = pytest.importorskip("betacal").BetaCalibration
STOPS_EARLY = 2e-4


def rows_with_a_bent_truth(seed, bend=0.05, n=1_500):
    """Probabilities of class 1 and labels whose log-odds are a parabola of theirs."""
    generator = np.random.default_rng(seed)
    log_odds = 2 * generator.standard_normal(n) + 0.3
    truth = 1 / (1 + np.exp(-(0.7 * log_odds + 0.2 + bend * log_odds**2)))
    return 1 / (1 + np.exp(-log_odds)), (generator.random(n) < truth).astype(int)


def both(parameters, probs, labels):
    """Calibrated probabilities of class 1: ours and the peer's."""
    rows = Predictions.from_probs(np.stack([1 - probs, probs], axis=1), labels)
    ours = BetaCalibration(parameters).fit(rows).transform(rows).probs[:, 1].numpy()
    return ours, Betacal(parameters).fit(probs, labels).predict(probs)


def log_loss(probs, labels):
    return -np.log(np.where(labels == 1, probs, 1 - probs)).mean()


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("parameters", "bend"), [("abm", 0.05), ("am", 0.05), ("ab", -0.02)])
def test_beta_is_that_of_betacal_where_no_slope_is_negative(parameters, bend, seed):
    probs, labels = rows_with_a_bent_truth(seed, bend)
    ours, theirs = both(parameters, probs, labels)
    assert ours == pytest.approx(theirs, abs=STOPS_EARLY)
    assert log_loss(ours, labels) <= log_loss(theirs, labels) + 1e-9


@pytest.mark.filterwarnings("ignore:.*worse than no calibration")
@pytest.mark.parametrize("bend", [0.3, -0.3])
def test_a_negative_slope_is_left_out_as_betacal_leaves_it_out(bend):
    probs, labels = rows_with_a_bent_truth(5, bend)
    ours, theirs = both("abm", probs, labels)
    fitted = Betacal("abm").fit(probs, labels).calibrator_.map_
    assert 0 in fitted[:2]
    assert ours == pytest.approx(theirs, abs=STOPS_EARLY)


def test_ab_never_turns_the_order_round_though_betacal_does():
    probs, labels = rows_with_a_bent_truth(0, 0.3)
    ours, theirs = both("ab", probs, labels)
    order = probs.argsort()
    assert np.diff(ours[order]).min() >= 0
    assert np.diff(theirs[order]).min() < -1e-4
