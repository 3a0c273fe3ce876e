"""The same sample has the same bits: at any place of an array of any length, on any number of threads.

Ties rest on it, and with them every number that is made of ranks. Vectorised loops end an array by other instructions
than they begin it with, so the lengths are those around whole vectors, blocks and the shares of threads.
"""

import os
import platform
import subprocess
import sys
from contextlib import contextmanager

import pytest
import torch

from calibrant.metrics import AUROC, RankedCells
from calibrant.numerics.softmax import SoftmaxRows, Wanted, logaddexp, sigmoid
from calibrant.numerics.uniform_share import mixed
from calibrant.predictions import Predictions, TopLabel

INNER = "CALIBRANT_CAPABILITY" in os.environ  # a run on another of the processor's instruction sets
# Lengths around whole vectors of 4 to 64 numbers; on the processor's own instructions all remainders of 64.
LENGTHS = [*range(1, 18), 31, 32, 33, 47, 63, 64, 65, 70, 1001] if INNER else [*range(1, 71), 1001]
CLASSES = [2, 3, 10, 100, 1000]
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
EVERYTHING = Wanted(entropy=True, squares=True, above=1 / 15)


@contextmanager
def threads(number):
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def sample(k, dtype, seed=0):
    """One ordinary sample of logits, (1, k)."""
    return torch.randn(1, k, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).mul(2).to(dtype)


def columns(rows):
    """All that the pass says of each sample."""
    return {
        "top": rows.top,
        "log-odds": rows.log_odds,
        "confidence": rows.confidence,
        "label probability": rows.label_probability,
        "log-loss": rows.nll(),
        "entropy": rows.entropy(),
        "brier": rows.brier(),
    }


def assert_one_value(values, what):
    assert not (values != values[0]).any(), what


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("k", CLASSES)
@pytest.mark.parametrize("normalised", [False, True], ids=["logits", "log-probabilities"])
def test_equal_samples_are_equal_in_arrays_of_every_length(k, dtype, normalised):
    # Two samples, so that the luck of one rounding does not hide the law.
    for seed in (0, 1):
        row = sample(k, dtype, seed)
        if normalised:
            row = row.double().log_softmax(dim=1).to(dtype)
        alone = columns(SoftmaxRows(row, torch.zeros(1, dtype=torch.long), EVERYTHING, normalised=normalised))
        for n in LENGTHS:
            rows = SoftmaxRows(row.repeat(n, 1), torch.zeros(n, dtype=torch.long), EVERYTHING, normalised=normalised)
            for name, column in columns(rows).items():
                assert not (column != alone[name]).any(), f"{name} of {n} samples"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("k", CLASSES)
def test_equal_samples_are_ranked_neither_above_nor_below_each_other(k, dtype):
    row = sample(k, dtype)
    for n in LENGTHS[1:]:
        predictions = Predictions.from_logits(row.repeat(n, 1), (torch.arange(n) % 2 + row.argmax()) % k)
        assert_one_value(predictions.top.log_odds, "log-odds")
        assert_one_value(predictions.confidence, "confidence")
        for metric in (AUROC(), AUROC(ranks=RankedCells())):
            assert metric(predictions) == 0.5, metric


@pytest.mark.parametrize("confidence", [0.1, 0.5, 0.7, 0.999, 1 - 1e-12])
def test_equal_confidences_have_equal_log_odds(confidence):
    for n in LENGTHS[1:]:
        rows = TopLabel([confidence] * n, [place % 2 == 0 for place in range(n)])
        assert_one_value(rows.log_odds, n)
        assert AUROC()(rows) == 0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("function", [sigmoid, lambda x: logaddexp(x, 2 * x), lambda x: mixed(x, x.new_tensor(0.1))])
def test_functions_of_one_number_are_rounded_alike_everywhere(function, dtype):
    for value in (-3.7, -0.513, -1e-3):
        alone = function(torch.tensor([[value]], dtype=dtype))
        for n in (*LENGTHS, 70_001):
            assert_one_value(torch.cat([function(torch.full((n, 1), value, dtype=dtype)), alone]), n)


def test_logaddexp_and_sigmoid_are_those_of_torch():
    first, second = torch.linspace(-800, 800, 801, dtype=torch.float64), torch.linspace(30, -50, 801).double()
    # Not by torch.testing: importing it takes most of a second of each run on another instruction set.
    assert torch.allclose(logaddexp(first, second), torch.logaddexp(first, second), rtol=1e-15, atol=1e-15)
    assert torch.allclose(sigmoid(first), first.sigmoid(), rtol=1e-14, atol=0)
    assert logaddexp(torch.tensor(-torch.inf), torch.tensor(-3.0)) == -3.0
    assert sigmoid(torch.tensor([-torch.inf, torch.inf])).tolist() == [0.0, 1.0]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("spread", [3.0, 300.0])
@pytest.mark.parametrize("k", CLASSES)
def test_a_sample_is_read_alike_alone_in_a_slice_and_in_another_order(k, spread, dtype):
    # At a spread of 300 the exponentials underflow, and the log-odds are worked out by another path.
    generator = torch.Generator().manual_seed(0)
    n = 301
    logits = torch.randn(n, k, generator=generator, dtype=torch.float64).mul(spread).to(dtype)
    labels = torch.randint(0, k, (n,), generator=generator)
    whole = columns(SoftmaxRows(logits, labels, EVERYTHING))
    order = torch.randperm(n, generator=generator)
    shuffled = columns(SoftmaxRows(logits[order], labels[order], EVERYTHING))
    for name, column in whole.items():
        assert torch.equal(shuffled[name], column[order]), name
    for low, high in [(0, 1), (7, 8), (n - 1, n), (3, 20), (100, n)]:
        part = columns(SoftmaxRows(logits[low:high], labels[low:high], EVERYTHING))
        for name, column in whole.items():
            assert torch.equal(part[name], column[low:high]), (name, low, high)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("k", [2, 10, 40])
def test_the_number_of_threads_and_the_seams_of_blocks_do_not_show(k, dtype):
    n = 2 * (1 << 21) // k // 2 + 77_777 // k  # more than one block, and no multiple of a vector
    row = sample(k, dtype)
    logits, labels = row.repeat(n, 1), torch.zeros(n, dtype=torch.long)
    alone = columns(SoftmaxRows(row, labels[:1], EVERYTHING))
    for number in (1, 2, 3):
        with threads(number):
            rows = columns(SoftmaxRows(logits, labels, EVERYTHING))
        for name, column in rows.items():
            assert_one_value(torch.cat([column, alone[name]]), f"{name} on {number} threads")


@pytest.mark.parametrize("number", [1, 2])
def test_one_long_sample_is_summed_alike_on_any_number_of_threads(number):
    # torch.sum divides a single sample of this many numbers among its threads.
    row = sample(70_001, torch.float32)
    with threads(1):
        pair = SoftmaxRows(row.repeat(2, 1), torch.zeros(2, dtype=torch.long), EVERYTHING)
    with threads(number):
        alone = SoftmaxRows(row, torch.zeros(1, dtype=torch.long), EVERYTHING)
    assert_one_value(torch.cat([pair.log_odds, alone.log_odds]), "log-odds")
    assert_one_value(torch.cat([pair.entropy(), alone.entropy()]), "entropy")


@pytest.mark.skipif(platform.machine().lower() not in {"x86_64", "amd64"}, reason="torch picks among these on x86-64")
@pytest.mark.skipif(INNER, reason="this is the inner run")
@pytest.mark.parametrize("capability", ["default", "avx2", "avx512"])
def test_every_instruction_set_of_the_processor_keeps_these_laws(capability):
    order = ["default", "avx2", "avx512"]
    if order.index(capability) >= order.index(torch.backends.cpu.get_cpu_capability().lower()):
        pytest.skip("the processor's best, on which the other tests run, or one that it lacks")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", __file__],
        check=False,
        env={**os.environ, "ATEN_CPU_CAPABILITY": capability, "CALIBRANT_CAPABILITY": capability},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stdout[-4000:]
