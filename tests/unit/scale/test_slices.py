"""Slices of streamed samples: the numbers of those in memory, however the samples are divided."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.scale.test_state import predictions_of

from calibrant import evaluate_slices
from calibrant.errors import InputError
from calibrant.labels import Words, encode
from calibrant.plots.reliability import slice_figures
from calibrant.predictions import TopLabel
from calibrant.report.interactive import evaluation_charts
from calibrant.scale import state as state_module
from calibrant.scale.evaluation import evaluate_state, evaluate_state_slices
from calibrant.scale.slices import SliceSums
from calibrant.scale.state import Design, EvaluationState, sample_keys
from calibrant.slices import GapToRest, samples_of

N = 1200
REGION = np.random.default_rng(0).choice(["north", "south", "east"], N, p=[0.6, 0.35, 0.05])
REGION[:4] = "few"
SHIFT = np.arange(N) % 2


def columns_of(rows: slice) -> dict[str, Words]:
    return {"region": encode(REGION[rows]), "shift": encode(SHIFT[rows].astype(str))}


def gathered(samples, cuts=(), *, seed: int = 0) -> EvaluationState:
    """Gather samples in parts, the last of them first."""
    design = Design.of(samples, seed=seed, by=("region", "shift"))
    edges, total = [0, *sorted(cuts), len(samples)], EvaluationState(design)
    for start, stop in [*pairwise(edges)][::-1]:
        if stop > start:
            part = EvaluationState(design)
            part.add(samples[start:stop], sample_keys(seed, "a", start, stop - start), columns_of(slice(start, stop)))
            total.merge(EvaluationState.from_bytes(part.to_bytes()))
    return total


def given_as(kind: str):
    samples = predictions_of(N, 2 if kind == "two classes" else 3, weighted=kind == "weights")
    return samples.top if kind == "top-label" else samples


@pytest.mark.parametrize("kind", ["logits", "weights", "top-label", "two classes"])
def test_streamed_slices_have_the_numbers_of_those_in_memory(kind):
    samples = given_as(kind)
    memory = evaluate_slices(samples, by={"region": REGION, "shift": SHIFT}, resamples=200)
    state = gathered(samples, [300, 301, 900])
    streamed = evaluate_state_slices(state, ["region", "shift"], resamples=200)
    theirs = {(one.column, one.value): one for one in streamed}
    assert {(one.column, one.value) for one in memory} == theirs.keys()
    assert [one.value for one in streamed][-1] == "few"
    for one in memory:
        other = theirs[one.column, one.value]
        assert (other.n, other.weight) == (one.n, pytest.approx(one.weight))
        for name, estimate in one.metrics.items():
            slack = 2e-3 if name == "auroc" else 1e-12  # ranks are in bounded memory
            assert other.metrics[name].value == pytest.approx(estimate.value, abs=slack, nan_ok=True)
        if one.n > 100:
            assert other.metrics["ece"].floor == pytest.approx(one.metrics["ece"].floor, rel=0.1)
            assert other.metrics["accuracy"].low == pytest.approx(one.metrics["accuracy"].low, abs=1e-12)
            assert other.to_rest.value == pytest.approx(one.to_rest.value, abs=1e-12)
            assert other.to_rest.p == pytest.approx(one.to_rest.p, rel=1e-9)
    held = state.sample.columns(state.design.by, [value for _, value in state.slices["slices"].rows])
    for one, rows in zip(streamed, samples_of(streamed, held), strict=True):
        assert int(rows.sum()) == one.n  # the sample has all samples of so few


@pytest.mark.parametrize("n_bins", [10, 15])
@pytest.mark.parametrize("weighted", [False, True])
def test_thresholds_of_slices_accept_what_they_say_also_where_confidences_are_rounded(weighted, n_bins):
    generator = np.random.default_rng(4)
    confidence = np.round(generator.beta(5, 1, N), 1 if weighted else 2)
    weights = generator.integers(0, 3, N) if weighted else None
    samples = TopLabel(confidence, generator.random(N) < confidence, weights=weights)
    by, rates = {"region": REGION}, [0.1, 0.2]
    memory = evaluate_slices(samples, by=by, resamples=100, error_rates=rates)
    state = EvaluationState(Design.of(samples, by=("region",), n_bins=n_bins))
    state.add(samples, sample_keys(0, "a", 0, N), {"region": encode(REGION)})
    streamed = evaluate_state_slices(state, ["region"], resamples=100, error_rates=rates)
    found = {one.value: one.operating_points for one in streamed}
    chosen = 0
    for one, rows in zip(memory, samples_of(memory, by), strict=True):
        for point, other in zip(one.operating_points, found[one.value], strict=True):
            assert (other.threshold is None) == (point.threshold is None)
            if point.threshold is None:
                continue
            chosen += 1
            assert other.coverage == pytest.approx(point.coverage)
            for threshold in (point.threshold, other.threshold):
                part = samples[rows & (samples.confidence >= threshold)]
                mass = torch.ones(len(part)) if part.weights is None else part.weights
                whole = int(rows.sum()) if weights is None else weights[rows.numpy()].sum()
                assert float(mass.sum()) / whole == pytest.approx(point.coverage)
                assert float((mass * ~part.correct).sum() / mass.sum()) == pytest.approx(point.error)
    assert chosen >= 6
    assert all(not one.operating_points for one in evaluate_slices(samples, by=by, resamples=100))


SAMPLES, GROUP = predictions_of(N, 3), torch.from_numpy(np.random.default_rng(1).integers(0, 256, N))


def sums_of(rows: slice) -> SliceSums:
    sums = SliceSums(15, 256, of_all_classes=True, weighted=False)
    sums.add(SAMPLES[rows], GROUP[rows], columns_of(rows))
    return sums


@settings(max_examples=10, deadline=None)
@given(cuts=st.lists(st.integers(1, N - 1), max_size=5, unique=True), order=st.randoms(use_true_random=False))
def test_slices_divided_in_any_way_add_up_to_the_whole(cuts, order):
    parts = [sums_of(slice(*edges)) for edges in pairwise([0, *sorted(cuts), N])]
    order.shuffle(parts)
    total, whole = parts[0], sums_of(slice(0, N))
    for part in parts[1:]:
        total.merge(part)
    rows = torch.tensor([total.rows[one] for one in whole.rows])
    for name, numbers in whole.sums.items():
        torch.testing.assert_close(total.sums[name][:, rows], numbers, rtol=1e-12, atol=1e-10)


def test_slices_of_two_classes_are_of_all_samples_also_where_few_are_kept(monkeypatch):
    monkeypatch.setattr(state_module, "_SAMPLE", 100)
    samples = predictions_of(N, 2)
    memory = {one.value: one for one in evaluate_slices(samples, by={"region": REGION}, resamples=100)}
    state = gathered(samples, [500])
    slices = evaluate_state_slices(state, ["region"], resamples=100)
    for one in slices:
        expected = memory[one.value]
        for name in ("predicted", "observed", "ece"):
            value = getattr(expected.risk, name).value
            assert getattr(one.risk, name).value == pytest.approx(value, abs=1e-9), (one.value, name)
        assert one.to_rest.value == pytest.approx(expected.to_rest.value, nan_ok=True)
    assert [one.value for one in slices] == list(memory)
    # The kept samples hold none of the four of a value; its diagram is left out.
    kept = state.sample
    held = kept.columns(("region", "shift"), [value for _, value in state.slices["slices"].rows])["region"]
    by = {"region": [held.distinct[code] for code in held.codes.tolist()]}
    assert "few" not in by["region"]
    assert len(slice_figures(kept.predictions, slices, by)["by_region"].axes) > 1
    charts = evaluation_charts(evaluate_state(state, resamples=50), kept.predictions, slices=slices, by=by)
    assert [one["cells"] is None for one in charts["slices"]] == [one.value == "few" for one in slices]


def test_intervals_of_slices_are_as_wide_as_those_in_memory():
    ratios = []
    for seed in range(6):
        samples = predictions_of(N, 3, seed=seed)
        memory = evaluate_slices(samples, by={"shift": SHIFT}, resamples=200, seed=seed)
        streamed = evaluate_state_slices(gathered(samples, seed=seed), ["shift"], resamples=200)
        for one, other in zip(*(sorted(found, key=lambda s: s.value) for found in (memory, streamed)), strict=True):
            widths = ([e.high - e.low for e in part.metrics.values()] for part in (other, one))
            ratios.append(np.divide(*widths))
    assert np.allclose(np.mean(ratios, axis=0), 1, atol=0.1)


def test_many_slices_have_fewer_groups(monkeypatch):
    samples = given_as("logits")
    whole = gathered(samples)
    monkeypatch.setattr("calibrant.scale.slices._MOST_NUMBERS", 64 * 6 * 15 * 6)
    fewer = gathered(samples, [20, 600])  # of which the last has fewer slices, and more groups, than all
    assert fewer.slices["slices"].groups == 64
    first, second = (evaluate_state_slices(state, ["region"], resamples=200) for state in (whole, fewer))
    for one, other in zip(first, second, strict=True):
        assert other.metrics["nll"].value == pytest.approx(one.metrics["nll"].value, abs=1e-12)


def test_a_column_with_too_many_values_and_an_unknown_one_are_refused():
    samples = given_as("logits")
    state = EvaluationState(Design.of(samples, by=("id",)))
    with pytest.raises(InputError, match="at most 500 different values"):
        state.add(samples, sample_keys(0, "a", 0, N), {"id": encode(np.arange(N).astype(str))})
    with pytest.raises(InputError, match="these are by 'region', 'shift'"):
        evaluate_state_slices(gathered(samples), ["planet"])


def test_samples_of_no_weight_are_in_no_slice():
    top = TopLabel([0.6] * 40, [True, False, False, True] * 10, weights=torch.tensor([0.0, 1.0] * 20))
    state = EvaluationState(Design.of(top, by=("g",)))
    state.add(top, sample_keys(0, "a", 0, 40), {"g": encode(np.array(["a", "b"] * 20))})
    (only,) = evaluate_state_slices(state, ["g"], resamples=50)
    assert (only.value, only.n, repr(only.to_rest)) == ("b", 20, repr(GapToRest()))
    assert [one.n for one in evaluate_slices(top, by={"g": ["a", "b"] * 20}, resamples=50)] == [20]
