"""Histogram binning: hand-worked bins, a plain numpy reference, and the law that its own samples become calibrated."""

import math

import numpy as np
import pytest
import torch
from made_samples import overconfident

from calibrant.calibrators import ClasswiseHistogramBinning, HistogramBinning, IMax
from calibrant.errors import CalibrantWarning, InputError
from calibrant.maps import ClassBins, OneVsRest, Steps, TwoClassMap
from calibrant.numerics.binning import bin_index
from calibrant.predictions import Predictions

BOTH = pytest.mark.parametrize("bins", ["equal_width", "equal_mass"])


def with_confidences(confidence, correct):
    """Three-class predictions of class 0 with the given confidences."""
    confidence = torch.as_tensor(confidence, dtype=torch.float64)
    probs = torch.stack([confidence, (1 - confidence) * 0.75, (1 - confidence) * 0.25], dim=1)
    return Predictions.from_probs(probs, torch.where(torch.as_tensor(correct), 0, 1))


class TestTopLabel:
    def test_a_hand_worked_example_of_equal_widths(self):
        rows = with_confidences([0.55, 0.6, 0.9, 0.95, 0.97, 0.99], [True, False, True, True, True, False])
        after = HistogramBinning(n_bins=5, bins="equal_width").fit(rows).transform(rows)
        assert after.confidence.tolist() == pytest.approx([0.5, 0.5, 0.75, 0.75, 0.75, 0.75])

    def test_a_hand_worked_example_of_equal_masses(self):
        rows = with_confidences([0.55, 0.6, 0.9, 0.95, 0.97, 0.99], [True, False, False, True, True, False])
        after = HistogramBinning(n_bins=2, bins="equal_mass").fit(rows).transform(rows)
        assert after.confidence.tolist() == pytest.approx([1 / 3 + 1e-4, 1 / 3, 1 / 3, 2 / 3, 2 / 3, 2 / 3], abs=2e-4)

    def test_a_confidence_on_an_edge_belongs_to_the_bin_below(self):
        rows = with_confidences([0.6, 0.61], [False, True])
        fitted = HistogramBinning(n_bins=5, bins="equal_width").fit(rows)
        low, high = fitted.transform(rows).confidence.tolist()
        assert low < 0.5 < high

    def test_an_empty_bin_keeps_its_midpoint(self):
        rows = with_confidences([0.95] * 8, [True] * 6 + [False] * 2)
        fitted = HistogramBinning(n_bins=5, bins="equal_width").fit(rows)
        after = fitted.transform(with_confidences([0.65, 0.45], [True, True]))
        assert after.confidence.tolist() == pytest.approx([0.7, 0.5])

    @BOTH
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("k", [2, 10])
    def test_its_own_samples_have_no_calibration_error_over_its_own_bins(self, k, dtype, bins):
        rows = overconfident(3000, k, dtype=dtype)
        after = HistogramBinning(bins=bins).fit(rows).transform(rows)
        levels, cell = after.confidence.unique(return_inverse=True)
        assert len(levels) <= 15
        share = torch.bincount(cell, weights=after.correct.double()) / torch.bincount(cell)
        # One in n + 2 is the floor; below 1/k a confidence cannot go.
        assert torch.allclose(share.clamp(1 / k, 1), levels, atol=2 / len(rows) + 1e-4)

    def test_its_bins_of_equal_width_are_those_of_the_metric(self):
        rows = overconfident(2000, 4)
        fitted = HistogramBinning(bins="equal_width").fit(rows)
        after, cell = fitted.transform(rows), bin_index(rows.confidence.clone(), 15)
        for each in cell.unique():
            inside = cell == each
            expected = float(rows.correct[inside].double().mean())
            assert after.confidence[inside].tolist() == pytest.approx(
                [max(expected, 0.25)] * int(inside.sum()), abs=1e-3
            )

    def test_bins_of_equal_mass_hold_equal_numbers(self):
        rows = overconfident(1501, 5)
        fitted = HistogramBinning(n_bins=15).fit(rows)
        cells = torch.searchsorted(fitted.curve.edges[0], rows.top.log_odds)
        assert torch.bincount(cells).tolist() == pytest.approx([100] * 15, abs=1)

    def test_ties_are_not_divided_and_repeated_edges_merge(self):
        rows = with_confidences([0.6] * 70 + [0.9] * 30, [True, False] * 50)
        fitted = HistogramBinning(n_bins=10).fit(rows)
        assert fitted.curve.values.shape == (1, 2)
        assert fitted.transform(rows).confidence.tolist() == pytest.approx([0.5] * 100)

    def test_equal_confidences_of_different_samples_share_a_bin(self):
        probs = torch.tensor(
            [[0.7, 0.3, 0.0], [0.7, 0.2, 0.1], [0.7, 0.15, 0.15], [0.8, 0.1, 0.1]], dtype=torch.float32
        )
        rows = Predictions.from_probs(probs.repeat(50, 1), torch.tensor([0, 1, 0, 0] * 50))
        assert HistogramBinning(n_bins=15).fit(rows).curve.values.shape == (1, 2)

    def test_nothing_is_surer_than_the_floor_allows(self):
        rows = with_confidences(np.linspace(0.5, 0.99, 48), [True] * 48)
        after = HistogramBinning(n_bins=4).fit(rows).transform(rows)
        assert after.confidence.tolist() == pytest.approx([0.98] * 48)

    def test_confidences_that_round_to_one_are_still_distinguished(self):
        logits = torch.zeros(100, 3)
        logits[:, 0] = torch.linspace(20, 60, 100)
        assert (logits.softmax(1)[:, 0] == 1).all()
        labels = (torch.arange(100) < 50).long()
        rows = Predictions.from_logits(logits, labels)
        after = HistogramBinning(n_bins=2).fit(rows).transform(rows)
        assert after.confidence[0] < 0.4
        assert after.confidence[-1] > 0.98

    @pytest.mark.parametrize("wrong", [{"n_bins": 0}, {"bins": "equal"}])
    def test_other_options_are_refused(self, wrong):
        with pytest.raises(InputError, match="must be"):
            HistogramBinning(**wrong)


class TestClasswise:
    def reference(self, fit, test, n_bins=15):
        """Bins of each class by a loop over samples."""
        probs, labels, n, k = fit.probs.numpy(), fit.labels.numpy(), *fit.logits.shape
        table = np.empty((k, n_bins))
        for j in range(k):
            cell = np.clip(np.ceil(probs[:, j] * n_bins) - 1, 0, n_bins - 1).astype(int)
            for b in range(n_bins):
                inside = cell == b
                table[j, b] = (labels[inside] == j).mean() if inside.any() else (b + 0.5) / n_bins
        table = table.clip(1 / ((n + 2) * (k - 1)), 1 - 1 / (n + 2))
        cells = np.clip(np.ceil(test.probs.numpy() * n_bins) - 1, 0, n_bins - 1).astype(int)
        raw = table[np.arange(k), cells]
        return raw / raw.sum(1, keepdims=True)

    @pytest.mark.filterwarnings("ignore:.*worse than no calibration on samples held out")
    @pytest.mark.parametrize("k", [3, 8])
    def test_it_is_one_histogram_a_class_divided_by_their_sum(self, k):
        fit, test = overconfident(800, k), overconfident(200, k, seed=1)
        made = ClasswiseHistogramBinning().fit(fit)
        assert isinstance(made, ClassBins)
        assert np.allclose(made.transform(test).probs.numpy(), self.reference(fit, test))

    @pytest.mark.filterwarnings("ignore:.*worse than no calibration on samples held out")
    def test_steps_over_the_same_edges_give_the_same(self):
        fit, test = overconfident(800, 4), overconfident(200, 4, seed=1)
        made = ClasswiseHistogramBinning().fit(fit)
        edges = torch.logit(torch.arange(1, 15, dtype=torch.float64) / 15).repeat(4, 1)
        same = OneVsRest(Steps(edges, made.values), n_classes=4)
        assert torch.allclose(made.transform(test).logits, same.transform(test).logits)

    @BOTH
    def test_before_division_its_own_samples_have_no_calibration_error_in_any_class(self, bins):
        rows = overconfident(3000, 5, dtype=torch.float32)
        made = ClasswiseHistogramBinning(bins=bins).fit(rows)
        for j in range(5):
            if bins == "equal_width":
                cell, values = bin_index(rows.probs[:, j].clone(), 15).long(), made.values[j]
            else:
                odds = rows.log_probs[:, j].double() - torch.log1p(-rows.probs[:, j].double())
                cell, values = torch.searchsorted(made.curve.edges[j], odds), made.curve.values[j]
            rows_in = torch.bincount(cell, minlength=len(values))
            share = torch.bincount(cell, weights=(rows.labels == j).double(), minlength=len(values)) / rows_in
            assert torch.allclose(share[rows_in > 0], values.sigmoid()[rows_in > 0], atol=0.01)

    @BOTH
    def test_two_classes_are_one_histogram(self, bins):
        rows = overconfident(1000, 2)
        made = ClasswiseHistogramBinning(bins=bins).fit(rows)
        assert isinstance(made, TwoClassMap)
        after = made.transform(rows).probs[:, 1]
        levels, cell = after.unique(return_inverse=True)
        share = torch.bincount(cell, weights=rows.labels.double()) / torch.bincount(cell)
        assert torch.allclose(share, levels, atol=2 / 1000)

    def test_a_class_without_samples_is_reported_and_gets_the_smallest_probability(self):
        rows = overconfident(400, 5)
        rows = rows[rows.labels != 3]
        with pytest.warns(CalibrantWarning, match="no calibration samples of class 3"):
            made = ClasswiseHistogramBinning().fit(rows)
        assert made.summary.notes
        used = torch.bincount(bin_index(rows.probs[:, 3].clone(), 15), minlength=15) > 0
        assert torch.allclose(made.values[3][used].sigmoid(), torch.tensor(1 / ((len(rows) + 2) * 4)).double())
        assert torch.isfinite(made.transform(rows).logits).all()

    @BOTH
    def test_no_other_sample_has_an_infinite_log_loss(self, bins):
        made = ClasswiseHistogramBinning(bins=bins).fit(overconfident(500, 6, sharpness=8.0))
        nll = made.transform(overconfident(2000, 6, seed=1, sharpness=8.0)).softmax_rows().nll()
        assert float(nll.max()) < math.log(502 * 5) + math.log(6)


@pytest.mark.parametrize("method", [ClasswiseHistogramBinning(), IMax(n_bins=100)])
def test_bins_that_cost_accuracy_on_samples_held_out_say_so(method):
    """On the samples of the fit they lose none: every bin knows its own."""
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(150, 6, generator=generator, dtype=torch.float64)
    labels = logits.softmax(1).multinomial(1, generator=generator)[:, 0]
    few = Predictions.from_logits(logits, labels)
    with pytest.warns(CalibrantWarning, match="worse than no calibration on samples held out in 5 folds: accuracy 0"):
        fitted = method.fit(few)
    assert fitted.summary.after["accuracy"] > fitted.summary.before["accuracy"] - 0.01
    assert any("held out in 5 folds" in note for note in fitted.summary.notes)
