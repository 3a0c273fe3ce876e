"""The one pass over the logits, against a plain softmax in float64."""

import sys
import types

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrant.errors import CalibrantWarning
from calibrant.numerics.softmax import Layout, SoftmaxRows, Wanted

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
CLASSES = [2, 3, 10, 33, 100]
EVERYTHING = Wanted(entropy=True, squares=True, above=0.05)


class Naive:
    """The same quantities from the whole table of probabilities, in float64."""

    def __init__(self, logits, labels):
        z = logits.double()
        self.top = z.argmax(dim=1)
        self.log_probs = z.log_softmax(dim=1)
        self.probs = self.log_probs.exp()
        rows = torch.arange(len(z))
        gaps = z - z[rows, self.top][:, None]
        self.label_gap = gaps[rows, labels]
        self.log_odds = -gaps.scatter(1, self.top[:, None], -torch.inf).logsumexp(dim=1)
        self.confidence = self.probs[rows, self.top]
        self.label_probability = self.probs[rows, labels]
        self.nll = -self.log_probs[rows, labels]
        self.entropy = -(self.probs * self.log_probs).nan_to_num(0).sum(dim=1)
        one_hot = torch.nn.functional.one_hot(labels, z.shape[1])
        self.brier = (self.probs - one_hot).square().sum(dim=1)
        others = self.probs.scatter(1, self.top[:, None], 0)
        self.other_sums = others.sum(dim=0)
        self.others_above = others[others > 0.05].sort().values


@pytest.fixture(params=["cpu", "gpu"])
def either_pass(request, monkeypatch):
    """The pass of a CPU, and that of a GPU on a CPU's memory."""
    if request.param == "gpu":
        monkeypatch.setattr(Layout, "of", classmethod(lambda cls, logits: cls(*logits.shape, transposed=False)))
        monkeypatch.setattr(SoftmaxRows, "_pass", lambda self, *block: self._pass_on_gpu(*block[:3]))


def logits_of(kind, n, k, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, k, generator=generator, dtype=torch.float64)
    match kind:
        case "plain":
            logits = logits * 3
        case "confident":
            logits = logits * 40
        case "huge":
            logits = torch.where(logits > 1, 1e4, torch.where(logits < -1, -1e4, logits))
        case "tied":
            logits = logits.round()
        case "shifted":  # far from zero, where a float32 exponential would overflow
            logits = logits * 3 + 1e3
    return logits.to(dtype), torch.randint(0, k, (n,), generator=generator)


@pytest.mark.usefixtures("either_pass")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", CLASSES)
@pytest.mark.parametrize("kind", ["plain", "confident", "huge", "tied", "shifted"])
def test_every_number_of_a_sample_agrees_with_a_plain_softmax(kind, k, dtype):
    logits, labels = logits_of(kind, 200, k, dtype)
    rows, naive = SoftmaxRows(logits, labels, EVERYTHING), Naive(logits, labels)
    tight = dtype == torch.float64
    tolerance = {"rtol": 1e-12, "atol": 1e-13} if tight else {"rtol": 3e-6, "atol": 5e-7}

    def same(got, expected):
        assert torch.allclose(got.double(), expected, **tolerance)

    assert torch.equal(rows.top, naive.top)
    same(rows.confidence, naive.confidence)
    same(rows.log_odds, naive.log_odds)
    same(rows.label_gap, naive.label_gap)
    same(rows.label_probability, naive.label_probability)
    same(rows.nll(), naive.nll)
    same(rows.entropy(), naive.entropy)
    same(rows.brier(), naive.brier)
    assert torch.allclose(rows.other_sums, naive.other_sums, rtol=1e-5, atol=1e-5 if not tight else 1e-12)


@pytest.mark.usefixtures("either_pass")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("k", CLASSES)
def test_the_listed_entries_are_those_above_the_threshold(k, dtype):
    logits, labels = logits_of("plain", 300, k, dtype)
    rows, naive = SoftmaxRows(logits, labels, EVERYTHING), Naive(logits, labels)
    places, classes, probabilities = rows.other_entries()
    assert places.shape == classes.shape == probabilities.shape == naive.others_above.shape
    assert torch.allclose(probabilities.double(), naive.probs[places, classes], rtol=1e-5)
    assert torch.allclose(probabilities.double().sort().values, naive.others_above, rtol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", CLASSES)
def test_the_first_of_tied_classes_is_the_top_one(k, dtype):
    logits = torch.zeros(4, k, dtype=dtype)
    logits[1, k - 1] = 1
    logits[2, 1:] = 1
    logits[3, 0] = -1
    rows = SoftmaxRows(logits, torch.zeros(4, dtype=torch.long), Wanted())
    assert rows.top.tolist() == [0, k - 1, 1, 1]


@pytest.mark.parametrize("k", CLASSES)
def test_an_even_sample_gives_every_class_its_share(k):
    rows = SoftmaxRows(torch.full((1, k), -7.0), torch.zeros(1, dtype=torch.long), EVERYTHING)
    assert float(rows.confidence) == pytest.approx(1 / k)
    assert float(rows.entropy()) == pytest.approx(np.log(k), rel=1e-6)


@pytest.mark.usefixtures("either_pass")
@pytest.mark.parametrize("k", CLASSES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_log_odds_reach_beyond_the_smallest_exponential(k, dtype):
    # exp(-1000) is 0 in either type; its logarithm is not lost.
    gaps = torch.tensor([5.0, 17.0, 60.0, 90.0, 110.0, 700.0, 800.0, 1e4], dtype=dtype)
    logits = torch.zeros(len(gaps), k, dtype=dtype)
    logits[:, k // 2] = gaps
    rows = SoftmaxRows(logits, torch.zeros(len(gaps), dtype=torch.long), Wanted())
    expected = gaps.double() - np.log(k - 1)
    assert torch.allclose(rows.log_odds.double(), expected, rtol=1e-6 if dtype == torch.float32 else 1e-14)


@pytest.mark.parametrize(("k", "n"), [(2, 600_000), (100, 12_000)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_blocks_do_not_show(k, n, dtype):
    # More numbers than a block holds: the samples around the seam, and the sums over all blocks, are the same.
    logits, labels = logits_of("plain", n, k, dtype)
    whole = SoftmaxRows(logits, labels, EVERYTHING)
    seam = slice((1 << 20) // k - 50, (1 << 20) // k + 50)
    alone = SoftmaxRows(logits[seam], labels[seam], EVERYTHING)
    assert torch.equal(whole.top[seam], alone.top)
    assert torch.equal(whole.log_odds[seam], alone.log_odds)
    assert torch.equal(whole.nll()[seam], alone.nll())
    assert torch.equal(whole.entropy()[seam], alone.entropy())
    assert torch.equal(whole.brier()[seam], alone.brier())
    # The column sums of a block are taken in float32: ten thousand rows leave five or six digits.
    assert float((whole.other_sums.sum() + whole.confidence.double().sum()) / n) == pytest.approx(1, rel=1e-5)


@given(n=st.integers(1, 70), k=st.integers(2, 40), seed=st.integers(0, 100))
@settings(max_examples=60)
def test_equal_samples_give_equal_numbers_wherever_they_stand(n, k, seed):
    # Ties must stay ties: a sum that rounds differently at the end of a block would split them.
    logits, _ = logits_of("plain", 1, k, torch.float32, seed)
    rows = SoftmaxRows(logits.repeat(n, 1), torch.zeros(n, dtype=torch.long), Wanted())
    assert len(rows.log_odds.unique()) == 1


def test_samples_taken_at_strides_are_read_right():
    for k in (5, 40):
        logits, labels = logits_of("plain", 60, k, torch.float64)
        strided = SoftmaxRows(logits[::3], labels[::3], EVERYTHING)
        plain = SoftmaxRows(logits[::3].clone(), labels[::3], EVERYTHING)
        assert torch.equal(strided.log_odds, plain.log_odds)
        assert torch.equal(strided.nll(), plain.nll())


def test_a_pass_under_inference_mode_leaves_nothing_that_later_ones_cannot_use(monkeypatch):
    monkeypatch.setattr("calibrant.numerics.softmax._kept", types.SimpleNamespace())
    logits, labels = logits_of("plain", 100, 5, torch.float32)
    with torch.inference_mode():
        within = SoftmaxRows(logits, labels, Wanted()).nll().tolist()
    assert SoftmaxRows(logits, labels, Wanted()).nll().tolist() == within


class TestNormalised:
    """Logits that are logarithms of given probabilities."""

    @pytest.mark.usefixtures("either_pass")
    @pytest.mark.parametrize("k", [2, 3, 10, 40])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_a_given_confidence_is_kept_and_ties_stay_ties(self, k, dtype):
        generator = torch.Generator().manual_seed(0)
        top = torch.tensor([0.3, 0.7, 0.9, 0.99], dtype=dtype).repeat_interleave(25)
        rest = torch.rand(100, k - 1, generator=generator, dtype=torch.float64)
        rest = (rest / rest.sum(1, keepdim=True) * (1 - top.double())[:, None]).to(dtype)
        probs = torch.cat([top[:, None], rest], dim=1)
        keep = probs.argmax(1) == 0
        rows = SoftmaxRows(probs[keep].log(), torch.zeros(int(keep.sum()), dtype=torch.long), Wanted(), normalised=True)
        assert torch.allclose(rows.confidence, top[keep], rtol=4 * torch.finfo(dtype).eps)
        assert len(rows.log_odds.unique()) == len(top[keep].unique())

    def test_confidences_that_round_to_one_are_still_distinguished(self):
        small = torch.tensor([1e-9, 1e-12, 1e-20])
        logits = torch.stack([torch.ones(3), small], dim=1).log()
        rows = SoftmaxRows(logits, torch.zeros(3, dtype=torch.long), Wanted(), normalised=True)
        assert torch.allclose(rows.log_odds, -small.log(), rtol=1e-5)


class TestWanted:
    def test_the_union_serves_both(self):
        first, second = Wanted(entropy=True, above=0.1), Wanted(squares=True, above=0.5)
        both = first | second
        assert both == Wanted(entropy=True, squares=True, above=0.1)
        assert both.covers(first)
        assert both.covers(second)
        assert not first.covers(second)

    def test_nothing_is_served_by_anything(self):
        assert Wanted(entropy=True).covers(Wanted())
        assert Wanted().covers(Wanted())


def broken_kernel(error):
    """A kernel whose sums are there, and whose list is not."""

    def fail(*_):
        raise error

    kernel = types.ModuleType("softmax_kernel")
    kernel.sum_rows = lambda logits, *_: (torch.ones(logits.shape[1], dtype=torch.float64), None)
    kernel.list_above = fail
    return kernel


def test_a_kernel_that_fails_says_so_and_leaves_the_sums_to_arrays(monkeypatch):
    logits, labels, columns = torch.randn(20, 3), torch.zeros(20, dtype=torch.long), torch.zeros(5, 20)
    rows = SoftmaxRows(logits, labels, Wanted(above=0.1))
    sums, listed = rows.other_sums.clone(), len(rows.other_entries()[0])
    monkeypatch.setattr(SoftmaxRows, "_can_compile", True)
    monkeypatch.setitem(sys.modules, "calibrant.numerics.softmax_kernel", broken_kernel(torch.cuda.OutOfMemoryError()))
    with pytest.raises(torch.cuda.OutOfMemoryError):
        rows._passed_by_kernel(logits, labels, columns)
    assert SoftmaxRows._can_compile  # a smaller batch may fit
    monkeypatch.setitem(sys.modules, "calibrant.numerics.softmax_kernel", broken_kernel(RuntimeError("no cc")))
    with pytest.warns(CalibrantWarning, match=r"C compiler\? RuntimeError: no cc"):
        assert not rows._passed_by_kernel(logits, labels, columns)
    assert not rows._passed_by_kernel(logits, labels, columns)  # without another word
    assert torch.equal(rows.other_sums, sums)
    assert len(rows.other_entries()[0]) == listed
