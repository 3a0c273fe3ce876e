"""States of an evaluation add up, however the samples are divided, and give the numbers of samples in memory."""

import math
import weakref
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import final

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrant import Predictions, catalogue, evaluate
from calibrant.errors import FileError, InputError
from calibrant.evidence.logistic import NoLine
from calibrant.metrics import Metric
from calibrant.metrics.states import EXACT
from calibrant.predictions import TopLabel
from calibrant.scale import EvaluationState, evaluate_state
from calibrant.scale import state as state_module
from calibrant.scale.state import FORMAT, GROUPS, Design, Sample, sample_keys
from calibrant.scale.trend import measure_trend

_RANKED = {"augrc", "aupr_error", "aupr_success", "aurc", "auroc", "e_aurc", "fpr95", "mmce"}  # in bounded memory


def predictions_of(n: int, k: int, *, seed: int = 0, weighted: bool = False, kind: str = "logits") -> Predictions:
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(n, k, generator=generator, dtype=torch.float64)
    noise = -(-torch.rand(n, k, generator=generator, dtype=torch.float64).log()).log()
    labels = (logits / 2 + noise).argmax(1)
    weights = torch.randint(0, 4, (n,), generator=generator).double() if weighted else None
    if kind == "probs":
        probs = logits.softmax(1)
        probs = torch.where(probs < 1e-4, 0.0, probs)
        return Predictions.from_probs(probs / probs.sum(1, keepdim=True), labels, weights=weights)
    return Predictions.from_logits(logits, labels, weights=weights)


def state_of(samples: Predictions | TopLabel, cuts: list[int], *, seed: int = 0) -> EvaluationState:
    """Gather the state of the samples, divided at the cuts into states that are added up."""
    design, total = Design.of(samples, seed=seed), None
    edges = [0, *sorted(cuts), len(samples)]
    for start, stop in pairwise(edges):
        if stop > start:
            part = EvaluationState(design)
            part.add(samples[start:stop], sample_keys(seed, "a", start, stop - start))
            if total is None:
                total = part
            else:
                total.merge(EvaluationState.from_bytes(part.to_bytes()))
    assert total is not None
    return total


def _samples(kind: str) -> Predictions | TopLabel:
    if kind == "top-label":
        top = predictions_of(3000, 4).top
        return TopLabel(top.confidence, top.correct)
    return predictions_of(3000, 4, weighted=kind == "weights", kind="probs" if kind == "probs" else "logits")


@pytest.mark.filterwarnings("ignore::calibrant.errors.CalibrantWarning")
@pytest.mark.parametrize("kind", ["logits", "probs", "weights", "top-label"])
def test_it_gives_the_numbers_of_samples_in_memory(kind):
    samples = _samples(kind)
    memory, streamed = evaluate(samples, resamples=200), evaluate_state(state_of(samples, [700]), resamples=200)
    assert (streamed.n, streamed.classes, streamed.zeros) == (memory.n, memory.classes, memory.zeros)
    for name, estimate in memory.metrics.items():
        value = streamed.metrics[name].value
        assert value == pytest.approx(estimate.value, abs=2e-3 if name in _RANKED else 1e-12), name
        assert (streamed.metrics[name].p is None) == (estimate.p is None)
    assert streamed.streamed is not None
    error = abs(streamed.metrics["auroc"].value - memory.metrics["auroc"].value)
    assert error <= streamed.streamed.auroc_error + 1e-12
    assert streamed.murphy == pytest.approx(memory.murphy, abs=1e-12)
    assert streamed.refinement_terms.ece == pytest.approx(memory.refinement_terms.ece, abs=1e-12)
    assert [one.low for one in streamed.worst_bins] == [one.low for one in memory.worst_bins]
    assert [one.label for one in streamed.worst_classes] == [one.label for one in memory.worst_classes]
    assert streamed.corp["top_brier"].score == pytest.approx(memory.corp["top_brier"].score, abs=1e-4)
    assert streamed.effective_n == (None if memory.effective_n is None else pytest.approx(memory.effective_n))


@settings(max_examples=8, deadline=None)
@given(st.lists(st.integers(0, 1200), max_size=5), st.sampled_from(["logits", "weights", "top-label"]))
def test_samples_may_be_divided_in_any_way(cuts, kind):
    samples = _samples(kind)[:1200]
    whole, divided = state_of(samples, []), state_of(samples, cuts)
    assert whole.n == divided.n
    for name, numbers in whole.sums.items():
        torch.testing.assert_close(divided.sums[name], numbers, rtol=1e-12, atol=1e-12)
    first, second = whole.sample.predictions, divided.sample.predictions
    torch.testing.assert_close(first.top.confidence, second.top.confidence, rtol=0, atol=0)


def test_the_order_of_shards_does_not_matter():
    samples = predictions_of(2000, 3)
    design = Design.of(samples)
    parts = []
    for name, rows in (("a", slice(0, 800)), ("b", slice(800, 2000))):
        part = EvaluationState(design)
        part.add(samples[rows], sample_keys(0, name, 0, len(samples[rows])))
        parts.append(part)
    forward, backward = EvaluationState(design), EvaluationState(design)
    for part in parts:
        forward.merge(part)
    for part in reversed(parts):
        backward.merge(part)
    assert torch.equal(forward.sample.predictions.top.log_odds, backward.sample.predictions.top.log_odds)
    for name in forward.sums:
        torch.testing.assert_close(forward.sums[name], backward.sums[name], rtol=1e-13, atol=1e-13)


def test_keys_are_random_and_depend_on_seed_and_shard():
    keys = sample_keys(0, "a", 0, 100_000)
    assert len(np.unique(keys)) == len(keys)
    groups = np.bincount((keys >> np.uint64(56)).astype(int), minlength=GROUPS)
    expected = len(keys) / GROUPS
    assert ((groups - expected) ** 2 / expected).sum() < 255 + 5 * math.sqrt(2 * 255)  # chi-squared
    assert abs(np.corrcoef(keys[1:].astype(float), keys[:-1].astype(float))[0, 1]) < 0.02
    for other in (sample_keys(1, "a", 0, 1000), sample_keys(0, "b", 0, 1000)):
        assert not (other == keys[:1000]).any()


def test_the_sample_is_that_of_the_lowest_keys():
    samples, keys = predictions_of(5000, 3), sample_keys(0, "a", 0, 5000)
    kept = Sample(500)
    for start in range(0, 5000, 333):
        rows = slice(start, min(start + 333, 5000))
        kept.add(samples[rows], keys[rows])
    order = np.argsort(keys & np.uint64((1 << 56) - 1))[:500]
    assert torch.equal(kept.predictions.logits, samples.logits[torch.from_numpy(order)])


def test_the_sample_lets_go_of_the_batches_that_it_was_drawn_from():
    sample, batches = Sample(1000), []
    for number in range(3):
        batch = predictions_of(300, 3, seed=number)
        batch.softmax_rows()
        sample.add(batch, sample_keys(0, "a", 300 * number, 300))
        batches.append(weakref.ref(batch))
    del batch
    assert not any(batch() for batch in batches)
    assert len(sample.predictions) == 900


@pytest.mark.parametrize("kind", ["logits", "weights", "top-label"])
def test_a_state_is_saved_and_loaded(tmp_path, kind):
    state = state_of(_samples(kind), [100])
    path = tmp_path / "a.state"
    state.save(path, notes={"shards": [{"name": "a"}]})
    loaded, notes = EvaluationState.load(path)
    assert notes == {"shards": [{"name": "a"}]}
    assert evaluate_state(loaded, resamples=100) == evaluate_state(state, resamples=100)


@pytest.mark.parametrize("kind", ["logits", "weights", "top-label"])
def test_a_state_of_few_samples_is_few_bytes_for_another_process(kind):
    state = state_of(_samples(kind)[:400], [])
    data = state.to_bytes()
    assert len(data) < 600_000  # where most sums are 0; there are a million
    again = EvaluationState.from_bytes(data)
    assert again._tensors().keys() == state._tensors().keys()
    assert all(torch.equal(numbers, again._tensors()[name]) for name, numbers in state._tensors().items())


def test_levels_of_another_length_are_refused(tmp_path):
    path = tmp_path / "a.state"
    state_of(predictions_of(200, 3), []).save(path)
    document, whole = FORMAT.read(path)
    FORMAT.write(path, document, whole | {"level.confidence": whole["level.confidence"][:-1]})
    with pytest.raises(FileError, match="whole state"):
        EvaluationState.load(path)


def test_a_state_without_samples_is_refused_where_it_is_evaluated_or_followed():
    samples = predictions_of(200, 3)
    empty = EvaluationState(Design.of(samples))
    with pytest.raises(InputError, match="it holds none"):
        evaluate_state(empty)
    with pytest.raises(InputError, match="today holds none"):
        measure_trend({"yesterday": state_of(samples, []), "today": empty})


def test_states_of_other_samples_do_not_add_up(tmp_path):
    state = state_of(predictions_of(200, 3), [])
    for other, words in (
        (state_of(predictions_of(200, 4), []), "a number of classes of 4 instead of 3"),
        (state_of(predictions_of(200, 3), [], seed=1), "seed 1 instead of 0"),
        (state_of(predictions_of(200, 3, weighted=True), []), "weights: yes instead of no"),
    ):
        with pytest.raises(InputError, match=words):
            state.merge(other)
    state.save(tmp_path / "a.state")
    damaged = bytearray((tmp_path / "a.state").read_bytes())
    damaged[-5] ^= 1
    (tmp_path / "b.state").write_bytes(damaged)
    with pytest.raises(FileError, match="digest"):
        EvaluationState.load(tmp_path / "b.state")


def test_many_classes_have_fewer_groups(monkeypatch):
    assert EvaluationState(replace(Design.of(predictions_of(50, 4)), classes=5000)).class_groups < GROUPS
    samples = predictions_of(1000, 4)
    whole = evaluate_state(state_of(samples, []), resamples=200).metrics
    monkeypatch.setattr("calibrant.scale.state._MOST_CLASS_NUMBERS", 64 * 4 * 15)
    state = state_of(samples, [40])
    assert state.class_groups == 64
    fewer = evaluate_state(state, resamples=200).metrics
    assert fewer["sce"].value == pytest.approx(whole["sce"].value, abs=1e-12)
    assert (fewer["nll"].high - fewer["nll"].low) / (whole["nll"].high - whole["nll"].low) == pytest.approx(1, abs=0.35)


def test_the_parts_of_a_score_add_up_to_that_of_all_samples_where_a_sample_was_split(monkeypatch):
    monkeypatch.setattr("calibrant.scale.state.sample_size", lambda _: 500)
    found, exact = (
        evaluate_state(state_of(predictions_of(4000, 4), []), resamples=100),
        evaluate(predictions_of(4000, 4)),
    )
    assert found.streamed is not None
    assert found.streamed.sample == 500
    for name, split in found.splits.items():
        assert split.total == found.metrics[name].value
        assert split.calibration + split.refinement == pytest.approx(split.total)
        assert split.calibration_low < exact.splits[name].calibration < split.calibration_high


@pytest.mark.parametrize("n", [1, 2, 5])
def test_very_few_samples_are_evaluated_as_in_memory_although_some_resamples_have_none(n):
    samples = predictions_of(n, 3)
    streamed, whole = evaluate_state(state_of(samples, []), resamples=200).metrics, evaluate(samples).metrics
    for name in ("smece", "ece", "nll", "accuracy"):
        assert streamed[name].value == pytest.approx(whole[name].value, abs=2e-4)
    assert math.isnan(streamed["smece"].low)
    assert streamed["smece"].p == pytest.approx(whole["smece"].p, abs=0.2)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_file_whose_numbers_have_another_shape_is_refused(tmp_path, weighted, monkeypatch):
    monkeypatch.setattr("calibrant.scale.state._JOINED", 9)  # fewer levels: files of one megabyte, not of twelve
    state, path = state_of(predictions_of(200, 3, weighted=weighted), []), tmp_path / "a.state"
    document, tensors = {**state._document(), "notes": {}}, state._tensors()
    changes = (lambda v: v[..., None], lambda v: v.reshape(-1)[:-1], lambda v: v.transpose(0, -1), torch.Tensor.flatten)
    for name, numbers in tensors.items():
        made = [change(numbers) for change in changes if numbers.ndim]
        for other in (one for one in made if one.shape != numbers.shape):
            FORMAT.write(path, document, {**tensors, name: other.contiguous()})
            with pytest.raises(FileError, match="must be a whole state"):
                EvaluationState.load(path)
    broken = {**tensors, "level.mass": tensors["level.mass"] * float("nan")}
    facts = [{"n": -1}, {"n": 0}, {"design": {**document["design"], "n_bins": 10**9}}]
    for changed, held in [*((fact, tensors) for fact in facts), ({}, broken)]:
        FORMAT.write(path, {**document, **changed}, held)
        with pytest.raises(FileError, match="must be a whole state"):
            EvaluationState.load(path)
    FORMAT.write(path, document, tensors)
    assert EvaluationState.load(path)[0].n == state.n


@final
@dataclass(frozen=True)
class SureAndWrong(Metric, name="sure_and_wrong", title="Sure and wrong", family="refinement"):
    """Share of samples that are wrong with more than 90 % confidence."""

    statistic = EXACT

    def value(self, state):
        return (state.ranked.wrong * (state.ranked.confidence > 0.9)).sum(-1) / state.ranked.n


def test_a_metric_of_exact_ranks_from_another_package_is_streamed_in_cells(monkeypatch):
    known = {**catalogue.metrics, "sure_and_wrong": SureAndWrong()}
    monkeypatch.setattr(catalogue, "metrics", known)
    samples = predictions_of(3000, 4)
    found = evaluate_state(state_of(samples, [1000]), resamples=200).metrics["sure_and_wrong"]
    exact = evaluate(samples, resamples=200).metrics["sure_and_wrong"]
    assert found.value == pytest.approx(exact.value, abs=1e-3)
    assert (found.low, found.high) == pytest.approx((exact.low, exact.high), abs=0.01)


@pytest.mark.parametrize("kept", [state_module._SAMPLE, 300])
def test_streams_tell_absent_classes_and_why_there_is_no_line(monkeypatch, kept):
    monkeypatch.setattr(state_module, "_SAMPLE", kept)
    probs = torch.tensor([[0.5, 0.3, 0.2], [0.2, 0.5, 0.3]], dtype=torch.float64).repeat(300, 1)
    found = evaluate_state(state_of(Predictions.from_probs(probs, [0, 1] * 300), [200]), resamples=20)
    ((label, expected),) = [(one.label, one.expected) for one in found.absent_classes]
    assert (label, round(expected)) == (2, 150)
    same = evaluate_state(state_of(TopLabel([0.8] * 600, [True, False] * 300), [200]), resamples=20)
    assert same.line is None
    assert same.no_line == NoLine.constant
