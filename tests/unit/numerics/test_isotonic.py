"""Isotonic regression: against scikit-learn, and what it makes of ties."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression

from calibrant.numerics import isotonic
from calibrant.numerics.isotonic import isotonic_blocks, pool_falling, tie_blocks

many = settings(max_examples=150)


def at(blocks, scores):
    """The fitted value of each score, found as a map would find it."""
    return blocks.mean[torch.searchsorted(blocks.edges.to(scores), scores)].numpy()


@st.composite
def hits_and_misses(draw, max_rows=80):
    n, levels = draw(st.integers(1, max_rows)), draw(st.sampled_from([2, 5, 30, 100_000]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scores = (rng.integers(0, levels, n) / levels - 0.5) * draw(st.sampled_from([1.0, 30.0, 1e4]))
    scores = torch.from_numpy(scores.astype(draw(st.sampled_from([np.float32, np.float64]))))
    return scores, torch.from_numpy(rng.random(n) < draw(st.sampled_from([0.1, 0.5, 1.0])))


class TestFit:
    @many
    @given(hits_and_misses())
    def test_it_is_scikit_learns_at_the_calibration_scores(self, rows):
        scores, hit = rows
        expected = IsotonicRegression().fit(scores.numpy(), hit.numpy()).predict(scores.numpy())
        assert np.allclose(at(isotonic_blocks(scores, hit), scores), expected, atol=1e-6)

    def test_a_hand_worked_example(self):
        scores = torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0, 3.0])
        hit = torch.tensor([False, True, False, False, True, True])
        blocks = isotonic_blocks(scores, hit)
        assert blocks.mean.tolist() == pytest.approx([0, 1 / 3, 1])
        assert blocks.rows.tolist() == [1, 3, 2]
        assert blocks.low.tolist() == pytest.approx([-2, -1, 2])
        assert blocks.high.tolist() == pytest.approx([-2, 1, 3])
        assert blocks.edges.tolist() == pytest.approx([-1.5, 1.5])

    @many
    @given(hits_and_misses())
    def test_values_rise_and_no_sample_is_lost(self, rows):
        scores, hit = rows
        blocks = isotonic_blocks(scores, hit)
        assert (blocks.mean.diff() > 0).all()
        assert blocks.rows.sum() == len(scores)
        assert blocks.hits.sum() == hit.sum()

    def test_one_sample_is_one_block(self):
        blocks = isotonic_blocks(torch.tensor([3.0]), torch.tensor([True]))
        assert blocks.mean.tolist() == [1]
        assert blocks.edges.tolist() == []

    def test_many_samples_agree_with_scikit_learn_but_for_near_ties(self):
        rng = np.random.default_rng(0)
        scores = 3 * rng.standard_normal(200_000)
        hit = rng.random(200_000) < 1 / (1 + np.exp(2 - scores / 2))
        expected = IsotonicRegression().fit(scores, hit).predict(scores)
        ours = at(isotonic_blocks(torch.from_numpy(scores), torch.from_numpy(hit)), torch.from_numpy(scores))
        assert np.abs(ours - expected).mean() < 1e-4


class TestPooling:
    @many
    @given(st.integers(1, 60), st.integers(0, 2**32 - 1))
    def test_weights_count(self, n, seed):
        rng = np.random.default_rng(seed)
        weight, value = rng.integers(1, 9, n).astype(float), rng.integers(0, 5, n) / 4
        starts = pool_falling(weight, weight * value)
        ours = np.repeat(
            np.add.reduceat(weight * value, starts) / np.add.reduceat(weight, starts), np.diff(np.append(starts, n))
        )
        expected = IsotonicRegression().fit(np.arange(n), value, sample_weight=weight).predict(np.arange(n))
        assert np.allclose(ours, expected)

    def test_a_late_fall_that_undoes_one_block_after_another_takes_no_quadratic_time(self):
        n = 200_000
        value = np.append(np.linspace(0, 1, n), -1e9)
        assert pool_falling(np.ones(n + 1), value).tolist() == [0]


class TestTies:
    @many
    @given(hits_and_misses(), st.randoms(use_true_random=False))
    def test_the_order_of_samples_does_not_matter(self, rows, random):
        scores, hit = rows
        order = list(range(len(scores)))
        random.shuffle(order)
        for first, second in zip(tie_blocks(scores, hit), tie_blocks(scores[order], hit[order]), strict=True):
            assert torch.equal(first, second)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_scores_that_differ_in_their_last_bits_are_ties(self, dtype):
        levels = torch.tensor([-20.0, -1.0, -1e-3, 0.0, 1e-3, 0.7, 5.0], dtype=dtype)
        noise = 1 + 4e-7 * (torch.rand(50, 1, generator=torch.Generator().manual_seed(0), dtype=dtype) - 0.5)
        scores = (levels * noise).flatten()
        ties = tie_blocks(scores, torch.ones_like(scores, dtype=torch.bool))
        assert ties.rows.tolist() == [50.0] * 7

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_dense_scores_are_not_swept_into_one_group(self, dtype):
        scores = torch.linspace(1, 1.01, 20_001, dtype=torch.float64).to(dtype)  # half a tolerance apart
        ties = tie_blocks(scores, torch.zeros_like(scores, dtype=torch.bool))
        assert len(ties.rows) > 5000
        assert (ties.high - ties.low).max() < 3e-6
        assert (ties.low[1:] > ties.high[:-1]).all()

    def test_neighbours_stay_apart_when_the_edges_are_rounded_to_float32(self):
        scores = torch.linspace(1, 1.01, 20_001, dtype=torch.float64).float()
        ties = tie_blocks(scores, torch.zeros_like(scores, dtype=torch.bool))
        cells = torch.searchsorted(ties.edges.float(), scores)
        assert torch.equal(torch.bincount(cells, minlength=len(ties.rows)).double(), ties.rows)

    def test_zeros_of_either_sign_are_one_score(self):
        ties = tie_blocks(torch.tensor([0.0, -0.0, 0.0]), torch.tensor([True, False, True]))
        assert ties.rows.tolist() == [3]
        assert ties.hits.tolist() == [2]


@pytest.mark.parametrize("part", [1, 7, 64, 1000])
@pytest.mark.parametrize("width", [1.0, 1e-4])  # many ties, or so dense that each score is tied to the next
def test_parts_of_the_scores_pool_as_the_whole_does(part: int, width: float, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(part)
    given = (
        rng.normal(size=2000).round(2) if width == 1 else np.r_[rng.random(1500) * width, 3 + rng.random(500) * width]
    )
    scores = torch.from_numpy(given.astype(np.float32))
    hit = torch.from_numpy(rng.random(2000) < 1 / (1 + np.exp(-scores.numpy())))
    whole = isotonic_blocks(scores, hit)
    monkeypatch.setattr(isotonic, "_PART", part)
    monkeypatch.setattr(isotonic, "_NEAR", 3)
    for ours, theirs in zip(isotonic_blocks(scores, hit), whole, strict=True):
        assert torch.equal(ours, theirs)
