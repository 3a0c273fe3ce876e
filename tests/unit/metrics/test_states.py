"""States: what is kept of the samples, and what happens to ranks, ties and right answers on the way."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import predictions, top_labels

from calibrant.errors import InputError
from calibrant.metrics import AUROC, ECE, NLL, SCE, TLECE, RankedCells
from calibrant.metrics.states import Average, Bins, Cells, PackedSamples, Ranked, merge
from calibrant.predictions import Predictions, TopLabel

many = settings(max_examples=60)


def sample_of(rows):
    return PackedSamples.gather(rows.top.log_odds, rows.top.correct)


class TestSums:
    def test_states_of_different_options_do_not_add_up(self):
        rows = TopLabel([0.9], [True])
        with pytest.raises(InputError, match="same metric with the same options"):
            ECE(10).state(rows) + ECE(15).state(rows)

    def test_states_of_different_classes_do_not_add_up(self):
        two, three = (Predictions.from_logits(torch.zeros(2, k), [0, 1]) for k in (2, 3))
        with pytest.raises(InputError, match="same metric with the same options"):
            SCE().state(two) + SCE().state(three)

    def test_adding_leaves_the_parts_as_they_were(self):
        first, second = ECE().state(TopLabel([0.9], [True])), ECE().state(TopLabel([0.3], [False]))
        before = first.count.clone()
        whole = first + second
        assert torch.equal(first.count, before)
        assert float(whole.count.sum()) == 2

    @pytest.mark.parametrize("metric", [SCE(), TLECE()])
    def test_bins_that_no_group_fills_are_left_out_of_weighted_sums(self, metric):
        generator = torch.Generator().manual_seed(0)
        samples = Predictions(3 * torch.randn(40, 200, generator=generator), torch.arange(40))
        stacked = metric.statistic.by_group(samples, torch.arange(40) % 8)
        assert max(filled.shape[1] for _, filled in stacked._filled) < 400  # of 200 x 15 bins
        weights = torch.randint(4, (5, 8), generator=generator).double()
        for part, field in zip(stacked.reweighted(weights).tensors(), stacked.tensors(), strict=True):
            torch.testing.assert_close(part, torch.tensordot(weights, field, dims=1))

    def test_one_state_merges_to_itself(self):
        state = NLL().state(Predictions.from_logits([[1.0, 2.0]], [0]))
        assert isinstance(state, Average)
        assert merge([state]) is state

    def test_sums_are_kept_in_float64(self):
        # torchmetrics adds up in float32: twenty million samples give .046 for .170.
        rows = Predictions.from_logits(torch.zeros(5, 3), [0, 1, 2, 0, 1])
        for metric in (ECE(), NLL(), SCE()):
            assert all(tensor.dtype == torch.float64 for tensor in metric.state(rows).tensors())

    def test_many_batches_keep_every_sample(self):
        # 2^24 + 1 samples cannot be counted in float32.
        state = Bins(*(torch.full((1,), 2.0**24, dtype=torch.float64) for _ in range(4)))
        one = ECE(1).state(TopLabel([1.0], [True]))
        assert float((state + one).count) == 2**24 + 1


class TestSample:
    @given(rows=st.one_of(predictions(), top_labels()))
    @many
    def test_ranked_answers_are_distinct_rising_and_complete(self, rows):
        ranked = sample_of(rows).ranked
        top = rows.top
        assert torch.all(ranked.log_odds.diff() > 0)
        assert torch.all(ranked.confidence.diff() >= 0)
        assert float(ranked.n) == len(rows)
        assert float(ranked.n_right) == float(top.correct.sum())
        assert torch.all(ranked.right >= 0)
        assert torch.all(ranked.wrong >= 0)
        assert torch.all(ranked.total > 0)
        spread = ranked.total * ranked.confidence
        assert float(spread.sum()) == pytest.approx(float(top.confidence.sum()), rel=1e-6, abs=1e-9)

    @given(rows=top_labels())
    @many
    def test_right_and_wrong_answers_are_counted_at_each_confidence(self, rows):
        ranked = sample_of(rows).ranked
        confidence, correct = rows.confidence.numpy(), rows.correct.numpy()
        values = np.unique(confidence)
        if len(values) != len(ranked.confidence):
            # Neighbours in the last bit share an entry: the bit is used for right or wrong.
            assert np.diff(values).min() < 1e-15
            return
        assert np.allclose(ranked.confidence.numpy(), values, atol=1e-12)
        assert ranked.right.tolist() == [correct[confidence == value].sum() for value in values]
        assert ranked.wrong.tolist() == [(~correct[confidence == value]).sum() for value in values]

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("right", [True, False])
    def test_a_log_odds_keeps_whether_the_answer_was_right(self, dtype, right):
        for value in (0.0, -0.0, 1.0, -1.0, 1e-300, 3e38, -3e38, float("inf"), -float("inf"), 7e-46):
            log_odds = torch.tensor([value], dtype=dtype)
            ranked = PackedSamples.gather(log_odds, torch.tensor([right])).ranked
            assert float(ranked.right) == right
            assert float(ranked.wrong) == (not right)
            assert (
                float(ranked.log_odds) == pytest.approx(float(log_odds.clamp(-1e38, 1e38)), rel=1e-6)
                or abs(value) > 1e38
            )

    def test_zero_and_minus_zero_tie(self):
        ranked = PackedSamples.gather(torch.tensor([0.0, -0.0, -0.0]), torch.tensor([True, False, True])).ranked
        assert (ranked.right.tolist(), ranked.wrong.tolist()) == ([2.0], [1.0])

    @pytest.mark.parametrize("other", [torch.float64, "top label"])
    def test_samples_of_different_precision_keep_their_right_answers(self, other):
        single = Predictions.from_logits(torch.tensor([[2.0, 0.0], [1.0, 0.0]]), [0, 1])
        logits = torch.tensor([[3.0, 0.0], [0.5, 0.0]], dtype=torch.float64)
        double = Predictions.from_logits(logits, [0, 1])
        second = double.top if other == "top label" else double
        ranked = (sample_of(single) + sample_of(second)).ranked
        assert float(ranked.n) == 4
        assert float(ranked.n_right) == 2
        assert float(AUROC().value(ranked)) == 1


class TestCoarsened:
    def test_few_entries_are_left_as_they_are(self):
        ranked = sample_of(TopLabel([0.9, 0.5], [True, False])).ranked
        coarse = ranked.merged(ranked.cells(2))
        assert coarse.confidence.tolist() == ranked.confidence.tolist()
        assert (coarse.right.tolist(), coarse.wrong.tolist()) == ([0, 1], [1, 0])

    @given(rows=st.one_of(predictions(), top_labels()), cells=st.integers(1, 20))
    @many
    def test_joining_keeps_the_counts_and_the_mean_confidence(self, rows, cells):
        ranked = sample_of(rows).ranked
        coarse = ranked.merged(ranked.cells(cells))
        assert coarse.confidence.shape[0] <= max(cells, 1)
        assert float(coarse.n) == float(ranked.n)
        assert float(coarse.n_right) == float(ranked.n_right)
        assert float((coarse.total * coarse.confidence).sum()) == pytest.approx(
            float((ranked.total * ranked.confidence).sum())
        )
        assert torch.all(coarse.confidence.diff() >= -1e-12)

    def test_cells_hold_about_equally_many_samples(self):
        rng = np.random.default_rng(0)
        rows = TopLabel(rng.beta(8, 1, 1000), rng.random(1000) < 0.9)
        ranked = sample_of(rows).ranked
        coarse = ranked.merged(ranked.cells(10))
        assert coarse.total.tolist() == [100.0] * 10


class TestCells:
    @given(rows=st.one_of(predictions(), top_labels()), cells=st.sampled_from([2, 64, 8192]))
    @many
    def test_counts_and_confidence_are_kept(self, rows, cells):
        state = RankedCells(cells)(rows)
        assert isinstance(state, Cells)
        assert state.total.shape == (cells,)
        assert float(state.total.sum()) == len(rows)
        assert float(state.right.sum()) == float(rows.top.correct.sum())
        assert float(state.confidence.sum()) == pytest.approx(float(rows.top.confidence.sum()))
        assert float(state.ranked.n) == len(rows)

    def test_the_error_is_nothing_where_no_cell_holds_both_right_and_wrong_answers(self):
        rows = TopLabel([0.9, 0.8, 0.3, 0.2], [True, False, True, False])
        assert float(RankedCells()(rows).auroc_error) == 0


class TestRanked:
    def test_running_sums(self):
        ranked = Ranked(
            torch.tensor([-1.0, 0.0, 2.0]),
            torch.tensor([0.2, 0.5, 0.9]),
            torch.tensor([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]]),
            torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]),
        )
        assert ranked.ranked is ranked
        assert ranked.total.tolist() == [[1, 1, 2], [1, 3, 0]]
        assert ranked.cumulative_total.tolist() == [[1, 2, 4], [1, 4, 4]]
        assert ranked.cumulative_right.tolist() == [[1, 1, 3], [0, 3, 3]]
        assert ranked.n.tolist() == [4, 4]
        assert ranked.n_right.tolist() == [3, 3]
