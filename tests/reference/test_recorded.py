"""Our numbers against those that peers gave, as recorded by ``record.py`` (``make reference``).

Each test's name says which peer, which metric and which data; the record says in which setting both agree, how far
apart they may be, and why they may be apart at all.
"""

import hashlib
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

import calibrant.metrics
from calibrant.errors import InputError
from calibrant.predictions import Predictions, TopLabel

RECORDED = json.loads(Path(__file__).with_name("recorded.json").read_text())
TOP_LABEL_METRICS = {
    "accuracy", "ece", "mce", "ace", "top_brier", "smece", "ks", "mmce", "ece_l2_debiased", "ece_l1_debiased",
    "auroc", "aupr_success", "aupr_error", "fpr95", "aurc", "augrc",
}  # fmt: skip
AT_BEST_TEMPERATURE = "nll at the best temperature"


def _named(records, *keys):
    return [pytest.param(record, id="-".join(record[key] for key in keys).replace(" ", "_")) for record in records]


def _of_ours(record, rows):
    return getattr(calibrant.metrics, record["metric"])(rows, **record["options"])


@pytest.mark.parametrize("name", RECORDED["data"])
def test_data_are_those_the_peers_saw(name, reference_data):
    data, recorded = reference_data(name), RECORDED["data"][name]
    assert list(data.probs.shape) == recorded["shape"]
    assert hashlib.sha256(data.labels.tobytes()).hexdigest() == recorded["labels_sha256"]


@pytest.mark.parametrize("name", RECORDED["data"])
def test_no_confidence_lies_where_conventions_about_bin_edges_differ(name, reference_data):
    # Ours counts what lies within 1e-6 above an edge as on the edge; peers are strict, and some bins are [lo, hi).
    scaled = reference_data(name).confidence * 15
    distance = np.abs(scaled - scaled.round()) / 15
    alone_in_its_bin = name == "ties"  # multiples of 0.1: on whichever side of an edge, no other value joins them
    assert alone_in_its_bin or distance.min() > 1e-6


@pytest.mark.parametrize(
    "record", _named((r for r in RECORDED["right"] if r["metric"] != AT_BEST_TEMPERATURE), "peer", "metric", "dataset")
)
def test_predictions_give_the_peers_number(record, reference_predictions):
    ours = _of_ours(record, reference_predictions(record["dataset"]))
    assert ours == pytest.approx(record["value"], rel=0, abs=record["tolerance"]), record


@pytest.mark.parametrize(
    "record", _named((r for r in RECORDED["right"] if r["metric"] in TOP_LABEL_METRICS), "peer", "metric", "dataset")
)
def test_confidence_and_correctness_give_the_peers_number(record, reference_top):
    ours = _of_ours(record, reference_top(record["dataset"]))
    assert ours == pytest.approx(record["value"], rel=0, abs=record["tolerance"]), record


@pytest.mark.parametrize(
    "record", _named((r for r in RECORDED["right"] if r["metric"] == AT_BEST_TEMPERATURE), "peer", "metric", "dataset")
)
def test_our_log_loss_is_lowest_where_the_peers_refinement_is(record, reference_data):
    data = reference_data(record["dataset"])

    def loss(inverse_temperature):
        return calibrant.metrics.nll(Predictions.from_logits(data.logits * inverse_temperature, data.labels))

    low, high = 0.1, 2.0
    for _ in range(40):  # golden section: the log-loss is convex in the inverse temperature
        left, right = (high - (high - low) / 1.618033988749895, low + (high - low) / 1.618033988749895)
        low, high = (low, right) if loss(left) < loss(right) else (left, high)
    assert loss((low + high) / 2) == pytest.approx(record["value"], rel=0, abs=record["tolerance"])


def _rows(record):
    rows = record["rows"]
    if "probs" in rows:
        return Predictions.from_probs(np.array(rows["probs"]), rows["labels"])
    times = rows.get("times", 1)
    correct = torch.tensor(rows["correct"]).repeat(times)
    return TopLabel(torch.tensor(rows["confidence"], dtype=torch.float64).repeat(times), correct)


WRONG_METRICS = [r for r in RECORDED["wrong"] if r["metric"] is not None]


@pytest.mark.parametrize("record", _named((r for r in WRONG_METRICS if r["right"] is not None), "peer", "case"))
def test_ours_is_right_where_the_peer_is_wrong(record):
    ours = _of_ours(record, _rows(record))
    assert ours == pytest.approx(record["right"], rel=0, abs=1e-6), record["derivation"]


@pytest.mark.parametrize("record", _named((r for r in WRONG_METRICS if r["right"] is None), "peer", "case"))
def test_ours_refuses_what_the_peer_guesses(record):
    with pytest.raises(InputError):
        _rows(record)


@pytest.mark.parametrize("record", _named(RECORDED["wrong"], "peer", "case"))
def test_the_recorded_wrong_answer_is_wrong(record):
    said, right = record["answer"], record["right"]
    refused_or_guessed = isinstance(said, str) or right is None
    assert refused_or_guessed or not math.isclose(said, right, rel_tol=0, abs_tol=1e-3), "the peer has mended this"
