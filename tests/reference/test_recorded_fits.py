"""Our fits against those of peers, as recorded by ``record.py`` (``make reference``).

A peer was fitted on the first half of a data set and asked about the second (or, where two step functions need only
agree at the calibration scores, about the first again); a few of its probabilities and the Brier score of all of
them are recorded, with the setting in which its definition is ours and what was converted.
"""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from calibrant import catalogue
from calibrant.calibrators import ClasswiseHistogramBinning, TemperatureScaling
from calibrant.errors import CalibrantWarning, InputError
from calibrant.metrics import brier, nll, top_brier
from calibrant.predictions import Predictions

RECORDED = json.loads(Path(__file__).with_name("recorded.json").read_text())
CALIBRATORS = catalogue.calibrators


def _named(record):
    return pytest.param(record, id="-".join([record["peer"], record["method"], record["dataset"]]))


def _wrong(peer, case):
    """What the peer answered in a case it gets wrong."""
    (record,) = (each for each in RECORDED["wrong"] if (each["peer"], each["case"]) == (peer, case))
    return record


@pytest.fixture
def halves(reference_data):
    """Calibration and held-out samples of a data set, from its logits or from its probabilities."""

    def make(name, given="logits"):
        data = reference_data(name)
        if given == "probs" or data.logits is None:
            rows = Predictions.from_probs(data.probs, data.labels)
        else:
            rows = Predictions.from_logits(data.logits, data.labels)
        return rows[: len(rows) // 2], rows[len(rows) // 2 :]

    return make


@pytest.mark.parametrize("record", [_named(record) for record in RECORDED["fits"]])
def test_the_fit_gives_the_peers_probabilities(record, halves):
    calibration, held_out = halves(record["dataset"], record["given"])
    judged = held_out if record["judged_on"] == "held out" else calibration
    method = dataclasses.replace(CALIBRATORS[record["method"]], **record["options"])
    given = method.fit(calibration).transform(judged)
    theirs, within = np.array(record["probs"]), record["tolerance"]
    ours = given.probs if theirs.ndim == 2 else given.confidence
    assert ours[: len(theirs)].numpy() == pytest.approx(theirs, rel=0, abs=within), record
    score = brier if theirs.ndim == 2 else top_brier
    assert score(given) == pytest.approx(record["brier"], rel=0, abs=2 * within), record


# Where peers are wrong: the recorded wrong answer is shown to be wrong by test_recorded.py, ours to be right here.


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_temperature_of_float32_probabilities_is_not_left_at_one(dtype, reference_data):
    record, data = _wrong("netcal", "temperature scaling of float32 probabilities"), reference_data("overconfident")
    assert record["answer"] == 1
    rows = Predictions.from_probs(data.probs.astype(dtype), data.labels)
    assert float(TemperatureScaling().fit(rows).temperature) == pytest.approx(record["right"], rel=1e-5)


@pytest.mark.parametrize(
    ("peer", "case"),
    [
        ("torch-uncertainty", "LBFGS with a learning rate of 0.01 stops early"),
        ("probmetrics", "LBFGS with a learning rate of 0.01 stops early"),
    ],
)
def test_temperature_does_not_stop_before_the_optimum(peer, case, reference_data):
    record, data = _wrong(peer, case), reference_data("overconfident")
    assert record["answer"] < 0.95 * record["right"]
    fitted = TemperatureScaling().fit(Predictions.from_logits(data.logits, data.labels))
    assert float(fitted.temperature) == pytest.approx(record["right"], rel=1e-5)


@pytest.mark.parametrize("peer", ["torch-uncertainty", "probmetrics"])
def test_a_logit_of_minus_infinity_is_refused_by_name_of_its_row(peer, reference_data):
    assert _wrong(peer, "one logit of -inf")["answer"] in (pytest.approx(0, abs=1e-6), "nan")
    data = reference_data("overconfident")
    logits = data.logits.copy()
    logits[3, 0] = -np.inf
    with pytest.raises(InputError, match="row 3"):
        Predictions.from_logits(logits, data.labels)


def test_mostly_wrong_predictions_do_not_give_a_negative_temperature(reference_data):
    record = _wrong("torch-uncertainty", "labels that are always the least likely class")
    assert record["answer"] < 0
    logits = reference_data("overconfident").logits
    with pytest.warns(CalibrantWarning, match="no better than guessing"):
        fitted = TemperatureScaling().fit(Predictions.from_logits(logits, logits.argmin(axis=1)))
    assert float(fitted.temperature) > 0


def test_a_confidence_on_an_edge_is_read_from_the_bin_it_was_counted_in():
    record = _wrong("netcal", "histogram binning counts a confidence on an edge in one bin and reads it from another")
    assert record["answer"] == pytest.approx(0.45)
    rows = Predictions.from_probs(np.full((10, 2), 0.5), [1] * 8 + [0] * 2)
    given = ClasswiseHistogramBinning(n_bins=10).fit(rows).transform(rows)
    assert given.probs[:, 1].numpy() == pytest.approx(record["right"], abs=1e-12)


@pytest.mark.parametrize(
    ("peer", "case", "method"),
    [
        ("scikit-learn", "isotonic one-vs-rest gives the true class probability 0", "isotonic_ovr"),
        ("netcal", "isotonic one-vs-rest gives the true class probability 0", "isotonic_ovr"),
        ("netcal", "histogram binning one-vs-rest gives the true class probability 0", "histogram_classwise"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*worse than no calibration on samples held out")
def test_no_true_class_gets_probability_zero(peer, case, method, halves):
    assert _wrong(peer, case)["answer"] > 0
    calibration, held_out = halves("overconfident")
    given = CALIBRATORS[method].fit(calibration[:500]).transform(held_out)
    # The smallest probability before the division by the sum, which is at most the number of classes.
    floor = 1 / (502 * 9 * 10)
    assert given.probs.min() >= floor
    assert nll(given) < 3
