"""Samples sharded in any way are the whole: every metric, and every calibrator that is fitted by passes over shards."""

import random
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.scale.test_state import predictions_of

from calibrant import catalogue, save
from calibrant.errors import without_our_warnings
from calibrant.files.choose import LoadOptions
from calibrant.metrics.base import RankMetric
from calibrant.metrics.smooth import KernelFeatures
from calibrant.predictions import Predictions
from calibrant.scale import EvaluationState, Plan, find_shards, fit_streamed, gather, state
from calibrant.scale.compare import streams

N = 420
SAMPLES = predictions_of(N, 3)
STREAMED = [name for name, one in catalogue.calibrators.items() if one.family != "baseline" and streams(one)]

divisions = st.tuples(
    st.lists(st.integers(1, N - 1), max_size=2, unique=True),  # where files end
    st.sampled_from((".parquet", ".npz", ".csv", ".arrow", ".safetensors", ".jsonl")),
    st.integers(N // 3, N),  # rows of a batch
    st.integers(0, 2**32),  # the order of the files
)
law = settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))


def sharded(folder: str, division: tuple) -> tuple[list, Plan]:
    """Write the samples into files, named in any order; return them, and how to read them."""
    cuts, suffix, rows, seed = division
    edges = [*pairwise([0, *sorted(cuts), N])]
    names = random.Random(seed).sample(range(len(edges)), len(edges))  # noqa: S311  # an order, not a secret
    for (start, stop), name in zip(edges, names, strict=True):
        save(SAMPLES[start:stop], Path(folder, f"{name}{suffix}"))
    shards = find_shards([folder])
    return shards, replace(Plan.of(shards[0], LoadOptions()), rows=rows)


def values_of(gathered: EvaluationState) -> dict[str, float]:
    states = gathered.states()
    summed = [metric for metric in gathered.metrics if not isinstance(metric.statistic, KernelFeatures)]
    return {metric.name: float(metric.value(states[metric.statistic])) for metric in summed}


@law
@given(divisions)
def test_every_streamed_metric_is_that_of_the_whole(division):
    with TemporaryDirectory() as folder:
        result = gather(*sharded(folder, division)).state
    whole = EvaluationState(result.design)
    whole.add(SAMPLES, state.sample_keys(0, "a", 0, N))
    assert result.n == N
    assert values_of(result) == pytest.approx(values_of(whole), abs=1e-12)
    for metric in whole.metrics:
        if isinstance(metric.statistic, KernelFeatures):
            drawn = result.sample.predictions
            assert isinstance(drawn, Predictions)
            assert metric(drawn) == pytest.approx(metric(SAMPLES), abs=1e-12)
        elif not isinstance(metric, RankMetric):  # those are in bounded memory
            assert values_of(result)[metric.name] == pytest.approx(metric(SAMPLES), abs=1e-12)


@cache
def calibrated_by_one_file(name: str) -> torch.Tensor:
    with TemporaryDirectory() as folder, without_our_warnings():
        fitted = fit_streamed(catalogue.calibrators[name], *sharded(folder, ((), ".npz", N, 0)))
    return fitted.map.transform(SAMPLES).probs


@pytest.mark.parametrize("name", STREAMED)
@settings(law, max_examples=2)
@given(divisions)
def test_every_streamed_calibrator_is_that_of_the_whole(name, division):
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        patch.setattr(state, "_SAMPLE", 150)  # the fit begins on other samples in every division
        patch.setattr(state, "_FEWEST_SAMPLED", 150)
        whole = calibrated_by_one_file(name)
        with without_our_warnings():  # about maps of so few samples
            divided = fit_streamed(catalogue.calibrators[name], *sharded(folder, division))
    torch.testing.assert_close(divided.map.transform(SAMPLES).probs, whole, rtol=0, atol=1e-6)
