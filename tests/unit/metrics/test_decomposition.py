"""Murphy's decomposition is exact; equation 9 of the dark-side paper is not, and the table of METHODS §9.1 shows it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import predictions, top_labels

from calibrant.metrics import accuracy, auroc, ece, murphy, refinement_terms, top_brier
from calibrant.predictions import TopLabel

many = settings(max_examples=60)


def beta_sample(mean, *, overconfidence=0.0, n=200_000):
    """Confidences from Beta(8·mean, 8·(1 − mean)) and correctness with a chance that falls short of them."""
    rng = np.random.default_rng(round(mean * 1000))
    chance = rng.beta(8 * mean, 8 * (1 - mean), n)
    return TopLabel(chance + overconfidence * (1 - chance), rng.random(n) < chance)


class TestMurphy:
    def test_by_hand(self):
        parts = murphy(TopLabel([0.9, 0.9, 0.5, 0.5], [True, True, True, False]))
        assert parts.uncertainty == pytest.approx(0.75 * 0.25)
        assert parts.resolution == pytest.approx(0.25**2)
        assert parts.reliability == pytest.approx(0.1**2 / 2)
        assert parts.within_bin == pytest.approx(0)

    @given(rows=st.one_of(predictions(), top_labels()), n_bins=st.integers(1, 40))
    @many
    def test_the_parts_add_up_to_the_brier_score(self, rows, n_bins):
        assert murphy(rows, n_bins=n_bins).brier == pytest.approx(top_brier(rows), abs=1e-9)

    @given(rows=top_labels(kinds=("zero and one", "constant")))
    @many
    def test_confidences_that_do_not_vary_inside_a_bin_need_no_further_term(self, rows):
        assert murphy(rows, n_bins=10).within_bin == pytest.approx(0, abs=1e-12)

    @given(rows=top_labels(), n_bins=st.integers(1, 40))
    @many
    def test_reliability_resolution_and_uncertainty_are_never_negative(self, rows, n_bins):
        parts = murphy(rows, n_bins=n_bins)
        assert min(parts.reliability, parts.resolution) >= 0
        assert parts.uncertainty == pytest.approx(accuracy(rows) * (1 - accuracy(rows)))
        assert parts.refinement >= -1e-12

    @given(rows=top_labels())
    @many
    def test_one_bin_resolves_nothing(self, rows):
        parts = murphy(rows, n_bins=1)
        assert parts.resolution == pytest.approx(0, abs=1e-12)
        assert parts.reliability == pytest.approx((float(rows.confidence.mean()) - rows.accuracy) ** 2, abs=1e-12)


class TestRefinementTerms:
    @given(rows=st.one_of(predictions(), top_labels()))
    @many
    def test_the_terms_are_those_of_the_paper(self, rows):
        terms = refinement_terms(rows)
        right = accuracy(rows)
        assert terms.alpha == pytest.approx(float(rows.top.confidence.mean()))
        assert terms.gamma == pytest.approx((right**2 + (1 - right) ** 2) / 2)
        separation = auroc(rows) if 0 < right < 1 else 0.0
        assert terms.beta == pytest.approx(separation * 2 * right * (1 - right))
        assert terms.equation_9 == pytest.approx(terms.alpha - terms.beta - terms.gamma)
        assert terms.ece == pytest.approx(ece(rows))
        assert terms.confidence_minus_accuracy == pytest.approx(terms.alpha - right)

    @given(rows=st.one_of(predictions(), top_labels()))
    @many
    def test_ece_is_the_gap_of_the_means_where_no_bin_is_underconfident(self, rows):
        terms = refinement_terms(rows)
        assert terms.ece >= abs(terms.confidence_minus_accuracy) - 1e-9
        if terms.overconfident_bins == 1:
            assert terms.ece == pytest.approx(terms.confidence_minus_accuracy, abs=1e-9)

    @pytest.mark.parametrize(
        ("mean", "error", "equation_9"),
        [
            (0.5, 0.0025, -0.095),
            (0.6, 0.0023, 0.007),
            (0.7, 0.0021, 0.114),
            (0.8, 0.0019, 0.226),
            (0.9, 0.0014, 0.348),
            (0.95, 0.0009, 0.417),
            (0.99, 0.0004, 0.481),
        ],
    )
    def test_equation_9_is_not_ece_on_calibrated_samples(self, mean, error, equation_9):
        terms = refinement_terms(beta_sample(mean))
        assert terms.ece == pytest.approx(error, abs=0.0015)
        assert terms.confidence_minus_accuracy == pytest.approx(0, abs=0.003)
        assert terms.equation_9 == pytest.approx(equation_9, abs=0.004)

    @pytest.mark.parametrize(("mean", "gap", "equation_9"), [(0.8, 0.0811, 0.307), (0.9, 0.0411, 0.390)])
    def test_equation_9_is_not_ece_on_overconfident_samples(self, mean, gap, equation_9):
        terms = refinement_terms(beta_sample(mean, overconfidence=0.4))
        assert terms.ece == pytest.approx(gap, abs=0.003)
        assert terms.ece == pytest.approx(terms.confidence_minus_accuracy, abs=1e-9)
        assert terms.equation_9 == pytest.approx(equation_9, abs=0.004)

    def test_equation_8_is_the_accuracy_of_a_detector_averaged_over_how_many_it_lets_pass(self):
        rows = beta_sample(0.9, n=20_000)
        correct = rows.correct.numpy()[np.argsort(-rows.confidence.numpy())]
        n, wrong = len(correct), (~correct).sum()
        # Accepting the j most confident: right ones accepted and wrong ones refused.
        accuracies = (np.cumsum(correct) + wrong - np.cumsum(~correct)) / n
        terms = refinement_terms(rows)
        assert terms.beta + terms.gamma == pytest.approx(accuracies.mean(), abs=1e-4)
        assert terms.beta + terms.gamma == pytest.approx(0.5519, abs=0.003)
