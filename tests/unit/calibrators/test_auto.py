"""Choosing among methods, the uncalibrated model among them: by samples they were not fitted on, not the test set."""

import math
import warnings
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from scipy import stats

from calibrant import catalogue
from calibrant.calibrators import (
    Calibrator,
    Chain,
    PlattScaling,
    StructuredMatrixScaling,
    StructuredVectorScaling,
    TemperatureScaling,
    Uncalibrated,
)
from calibrant.calibrators.auto import Auto
from calibrant.calibrators.base import Fitted, assign_folds
from calibrant.calibrators.selection import CandidateResult, CrossValidatedDifference, Ranking, rank
from calibrant.comparison import compare
from calibrant.errors import CalibrantWarning, FitError, InputError
from calibrant.maps import Affine, LogMixture, Scale, Steps, TopLabelMap
from calibrant.metrics import nll
from calibrant.paper import Paper
from calibrant.predictions import OF_CORRECTNESS, Predictions


def rows(n, k=4, *, scale=1.0, shift=None, seed=0):
    """Labels drawn from the softmax of the logits (plus a shift); the logits then blown up by the scale."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, k, generator=generator, dtype=torch.float64)
    truth = logits if shift is None else logits + torch.tensor(shift)
    labels = truth.softmax(1).multinomial(1, generator=generator)[:, 0]
    return Predictions.from_logits(scale * logits, labels)


class Toy(Calibrator):
    """What a method must say of itself."""

    title: ClassVar[str] = "For tests"
    family: ClassVar[str] = "scaling"
    paper: ClassVar[Paper] = Paper("Nobody", 2000, "Nothing", "arXiv:0000.00000")
    preserves_accuracy: ClassVar[bool] = False
    preserves_ranking: ClassVar[bool] = False


@dataclass(frozen=True)
class Picky(Toy):
    """Refuses more samples than it can take."""

    name: ClassVar[str] = "picky"
    most: int = 0

    def _fit(self, predictions):
        if len(predictions) > self.most:
            raise FitError(f"picky takes {self.most} rows.")
        return TemperatureScaling()._fit(predictions)


@dataclass(frozen=True)
class Constant(Toy):
    """The same confidence for every sample, the accuracy: no calibration error, and nothing else either."""

    name: ClassVar[str] = "constant"

    def _fit(self, predictions):
        odds = torch.logit(predictions.correct.double().mean())
        curve = Steps(edges=torch.tensor([[torch.inf]]), values=odds.expand(1, 2))
        return Fitted(TopLabelMap(curve, n_classes=predictions.n_classes))


@dataclass(frozen=True)
class Overfit(Toy):
    """A bias for every class from the samples' own counts, doubled: worse than uncalibrated on calibrated samples."""

    name: ClassVar[str] = "overfit"

    def _fit(self, predictions):
        k = predictions.n_classes
        counts = torch.bincount(predictions.labels, minlength=k).double() + 1
        return Fitted(Affine(torch.ones(()), 2 * (counts / counts.mean()).log(), n_classes=k))


@dataclass(frozen=True)
class Fixed(Toy):
    """A temperature that is given."""

    name: ClassVar[str] = "fixed"
    temperature: float = 1.0

    def _fit(self, predictions):
        temperature = torch.tensor(self.temperature, dtype=torch.float64)
        return Fitted(Scale(temperature, n_classes=predictions.n_classes))


@dataclass(frozen=True)
class Warns(Toy):
    name: ClassVar[str] = "warns"

    def _fit(self, predictions):
        warnings.warn("be careful", CalibrantWarning, stacklevel=2)
        return Fitted(Scale(torch.tensor(2.0), n_classes=predictions.n_classes))


def test_the_deal_is_even_and_by_chance():
    fold = assign_folds(203, 5, seed=3)
    sizes = torch.bincount(fold)
    assert sizes.max() - sizes.min() <= 1
    assert torch.equal(fold, assign_folds(203, 5, seed=3))
    assert not torch.equal(fold, assign_folds(203, 5, seed=4))


@pytest.mark.filterwarnings("ignore:.*worse than no calibration")
def test_learning_the_noise_of_the_class_counts_is_not_rewarded():
    """Dealt class by class, the held-out samples would have the very counts that were learned."""
    found, true = [], []
    for seed in range(12):
        predictions, fresh = rows(300, 50, seed=seed), rows(3000, 50, seed=1000 + seed)
        gaps = rank(predictions, [Overfit()], seed=seed).results
        found.append(next(each for each in gaps if each.name == "overfit").to_uncalibrated.value)
        mapped = Overfit().fit(predictions).transform(fresh)
        true.append(float((fresh.log_probs - mapped.log_probs).gather(1, fresh.labels[:, None]).mean()))
    assert np.mean(true) > 0.1
    assert np.mean(found) > 0.8 * np.mean(true)


def test_the_scores_are_those_of_a_plain_loop_over_the_folds():
    predictions = rows(207, scale=2.0)
    fold = assign_folds(len(predictions), 4, seed=1)
    for score in ("nll", "brier"):
        expected = torch.zeros(len(predictions), dtype=torch.float64)
        for number in range(4):
            fitted = TemperatureScaling().fit(predictions[fold != number])
            probs = (predictions.logits / fitted.temperature).softmax(1)
            truth = torch.nn.functional.one_hot(predictions.labels, 4)
            loss = -(probs.log() * truth).sum(1) if score == "nll" else (probs - truth).square().sum(1)
            expected[fold == number] = loss[fold == number]
        found = rank(predictions, [TemperatureScaling()], score=score, folds=4, seed=1)
        temperature = next(each for each in found.results if each.name == "temperature")
        assert temperature.score == pytest.approx(float(expected.mean()), rel=1e-9)


def test_a_gap_is_the_paired_interval():
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=500), rng.normal(size=500)
    gap = CrossValidatedDifference.between(torch.tensor(first), torch.tensor(second))
    low, high = stats.norm.interval(0.95, loc=(first - second).mean(), scale=stats.sem(first - second))
    assert (gap.low, gap.high) == pytest.approx((low, high))
    assert gap.standard_error == pytest.approx(stats.sem(first - second))


def test_the_calibration_error_is_that_of_the_metric():
    from calibrant.metrics import ece

    predictions = rows(400, scale=1.7)
    found = rank(predictions, [Uncalibrated()])
    assert found.best.ece == pytest.approx(ece(predictions), rel=1e-6)


def test_uncalibrated_is_always_among_the_candidates():
    assert {each.name for each in rank(rows(100), [TemperatureScaling()]).results} == {"uncalibrated", "temperature"}
    assert len(rank(rows(100), [TemperatureScaling(), Uncalibrated()]).results) == 2


def test_nothing_is_chosen_on_calibrated_samples_and_a_temperature_on_overconfident_ones():
    candidates = (TemperatureScaling(), Overfit())
    calibrated = [Auto(candidates).rank(rows(400, seed=seed)).chosen.name for seed in range(25)]
    overconfident = [Auto(candidates).rank(rows(400, scale=2.5, seed=seed)).chosen.name for seed in range(25)]
    assert calibrated.count("uncalibrated") >= 20
    assert overconfident.count("temperature") == 25


def test_the_winner_is_fitted_on_all_samples():
    predictions = rows(500, scale=3.0)
    chosen = Auto((TemperatureScaling(),)).fit(predictions)
    assert isinstance(chosen, Scale)
    assert torch.equal(chosen.temperature, TemperatureScaling().fit(predictions).temperature)
    assert chosen.summary.method == "auto"
    assert chosen.summary.certificate is not None


def test_the_summary_tells_who_won_and_by_how_much():
    notes = Auto((TemperatureScaling(), Picky())).fit(rows(500, scale=3.0)).summary.notes
    assert notes[0].startswith("chosen by 5-fold cross-validated nll: temperature (")
    assert "against no calibration" in notes[0]
    assert notes[1].startswith("ranking: temperature ")
    assert notes[2] == "picky was left out: picky takes 0 rows."


def test_a_candidate_that_cannot_be_fitted_is_dropped_with_its_reason():
    found = rank(rows(100, scale=3.0), [Picky(), TemperatureScaling()])
    last = found.results[-1]
    assert (last.name, last.failure) == ("picky", "picky takes 0 rows.")
    assert np.isnan(last.score)
    assert found.chosen.name == "temperature"


def test_a_candidate_that_fails_on_all_samples_gives_way_to_the_next():
    with pytest.warns(CalibrantWarning, match="on every fold but not on all samples"):
        fitted = Auto((Picky(most=80), TemperatureScaling())).fit(rows(100, scale=3.0))
    assert isinstance(fitted, Scale)
    assert any("picky(most=80) could be fitted" in note for note in fitted.summary.notes)


def test_the_simpler_is_taken_within_one_standard_error():
    def result(name, index, score, error):
        gap = CrossValidatedDifference(score - 1.0, score - 1.0 - 1.96 * error, score - 1.0 + 1.96 * error, noise=error)
        return CandidateResult(name, Uncalibrated(), index, score, gap, gap, to_default=gap, ece=0.01, folds=5)

    best = result("complex", 2, 1.0, 0.0)
    near, far = result("near", 1, 1.0009, 0.001), result("simplest", 0, 1.002, 0.001)
    assert Ranking("nll", 5, 100, (best, near, far)).chosen is near
    assert Ranking("nll", 5, 100, (best, far)).chosen is best


class TestTheDefaultCandidate:
    """It is kept unless another leads it by three standard errors."""

    def _chosen(self, **leads):
        """Leads over the default one in standard errors, by name; ``simple`` is given before it, the others after."""

        def result(name, index, lead):
            gap = CrossValidatedDifference(-lead, -lead - 1.96, -lead + 1.96)
            return CandidateResult(name, Uncalibrated(), index, 10 - lead, gap, gap, to_default=gap, folds=5)

        indices = {"simple": 0, "default": 1, "alternative": 2, "another": 3}
        results = [result(name, indices[name], lead) for name, lead in {"default": 0.0, **leads}.items()]
        ranked = tuple(sorted(results, key=lambda each: each.score))
        return Ranking("nll", 5, 100, ranked, default_index=1).chosen.name

    def test_any_other_needs_a_lead_of_three_standard_errors(self):
        assert self._chosen(alternative=2.9, simple=2.9) == "default"
        assert self._chosen(alternative=3.1, simple=-5.0) == "alternative"
        assert self._chosen(alternative=2.9, simple=3.1) == "simple"

    def test_of_several_the_lowest_score_is_taken(self):
        assert self._chosen(alternative=3.5, another=4.0, simple=2.5) == "another"

    def test_is_averaged_with_its_partner_where_the_samples_cannot_decide(self):
        predictions = rows(300, scale=2.0)
        first, second = Fixed(temperature=2.0), Fixed(temperature=2.2)
        found = rank(predictions, (first, second), default=first, partners=(second,))
        scores = {each.name: each.score for each in found.results}
        taken = found.chosen
        assert taken.name == "fixed(temperature=2.0) & fixed(temperature=2.2)"
        first_weight, second_weight = taken.calibrator.weights
        names = ("fixed(temperature=2.0)", "fixed(temperature=2.2)")
        unseen = [next(each for each in found.results if each.name == name).to_default.value for name in names]
        assert math.log(first_weight / second_weight) == pytest.approx(300 * (unseen[1] - unseen[0]) / 4)
        beta = first_weight / 2.0 + second_weight / 2.2
        expected = Predictions.from_logits(beta * predictions.logits, predictions.labels)
        assert scores[taken.name] == pytest.approx(nll(expected), rel=1e-9)
        assert torch.allclose(taken.calibrator.fit(predictions)(predictions.logits), expected.log_probs)

    def test_gives_way_to_a_partner_that_the_samples_prefer_by_far(self):
        predictions = rows(1000, scale=3.0)
        first, second = Fixed(temperature=1.0), Fixed(temperature=3.0)
        found = rank(predictions, (first, second), default=first, partners=(second,))
        assert found.chosen.name == "fixed(temperature=3.0)"
        assert len(found.results) == 3
        assert (
            rank(predictions, (second, first), default=second, partners=(first,)).chosen.name
            == "fixed(temperature=3.0)"
        )

    def test_a_partner_that_cannot_be_fitted_is_no_partner(self):
        predictions = rows(300, scale=2.0)
        found = rank(predictions, (TemperatureScaling(), Picky()), default=TemperatureScaling(), partners=(Picky(),))
        assert found.chosen.name == "temperature"

    def test_alternatives_that_do_not_lead_after_a_fold_are_not_tried_in_the_others(self):
        predictions = rows(500, scale=3.0)
        found = rank(predictions, (TemperatureScaling(), Overfit()), default=TemperatureScaling())
        tried = {each.name: each.folds for each in found.results}
        assert tried == {"uncalibrated": 5, "temperature": 5, "overfit": 1}
        overfit = next(each for each in found.results if each.name == "overfit")
        assert overfit.score == pytest.approx(found.best.score + overfit.to_best.value, rel=0.01)
        assert found.chosen.name == "temperature"

    def test_a_map_that_bends_is_found_among_the_usual_candidates(self):
        """One label in three is drawn at random: what no matrix of log-probabilities can say."""
        generator = torch.Generator().manual_seed(0)
        logits = 6 * torch.randn(6000, 3, generator=generator, dtype=torch.float64)
        truth = 2 / 3 * (logits / 2).softmax(1) + 1 / 9
        labels = truth.multinomial(1, generator=generator)[:, 0]
        predictions = Predictions.from_logits(logits, labels)
        found = Auto().rank(predictions[:3000])
        assert found.chosen.index > next(each.index for each in found.results if each.name == "sms")
        taken, default = (
            found_method.fit(predictions[:3000]).transform(predictions[3000:]).softmax_rows().nll().mean()
            for found_method in (found.chosen.calibrator, StructuredMatrixScaling())
        )
        assert taken < 0.97 * default


@pytest.mark.filterwarnings("ignore::calibrant.errors.CalibrantWarning")
class TestFewSamples:
    """No calibration, temperature, structured and Platt scaling are averaged, by their scores."""

    def test_the_summary_names_the_mean_and_its_weights(self):
        fitted = Auto().fit(rows(150, 3, scale=1.2))
        assert isinstance(fitted, LogMixture)
        notes = " ".join(fitted.summary.notes)
        assert "uncalibrated & temperature & sms & platt" in notes
        assert "averaged, with weights" in notes

    def test_little_is_lost_where_a_temperature_is_the_truth(self):
        """As behind boosted trees that were trained for long: whatever else is learned is noise."""
        lost = []
        for seed in range(8):
            few, new = rows(200, 8, scale=3.0, seed=seed), rows(3000, 8, scale=3.0, seed=100 + seed)
            auto, temperature = (nll(method.fit(few).transform(new)) for method in (Auto(), TemperatureScaling()))
            lost.append(auto / temperature - 1)
        assert np.mean(lost) < 0.008  # the mean of sms and platt alone: 0.021

    def test_little_is_lost_where_no_calibration_is_needed(self):
        lost = []
        for seed in range(8):
            few, new = rows(100, 10, seed=seed), rows(3000, 10, seed=100 + seed)
            lost.append(nll(Auto().fit(few).transform(new)) / nll(new) - 1)
        assert np.mean(lost) < 0.008  # the mean of svs and platt alone: 0.015

    def test_the_gain_over_a_temperature_is_kept_where_classes_are_misjudged(self):
        """As behind a forest: votes of fifty trees, some of them none, and classes that are over- and underrated."""
        votes = torch.Generator().manual_seed(0)

        def forest(n, seed):
            given = rows(n, 4, scale=0.5, shift=[1.5, 0.0, 0.0, -1.5], seed=seed)
            drawn = given.probs.multinomial(50, replacement=True, generator=votes)
            shares = torch.nn.functional.one_hot(drawn, 4).double().mean(1)
            return Predictions.from_probs(shares, given.labels)

        few, new = forest(200, 0), forest(3000, 1)
        methods = Auto(), StructuredMatrixScaling(), TemperatureScaling()
        auto, matrix, temperature = (nll(method.fit(few).transform(new)) for method in methods)
        assert auto < 0.85 * temperature
        assert auto < 1.01 * matrix

    def test_no_calibration_has_no_part_in_the_mean_where_probabilities_are_zero(self):
        few = rows(150, 3)
        probs = few.probs * (few.probs > 0.01)
        kept = probs.gather(1, few.labels[:, None])[:, 0] > 0  # so that no sample shows the harm
        zeroed = Predictions.from_probs(probs[kept] / probs[kept].sum(1, keepdim=True), few.labels[kept])
        assert "uncalibrated" in Auto().rank(few).chosen.name
        assert "uncalibrated" not in Auto().rank(zeroed).chosen.name

    def test_the_floor_of_a_part_is_noted(self):
        made = torch.Generator().manual_seed(1)
        logits = 3 * torch.randn(60, 10, generator=made, dtype=torch.float64)
        labels = logits.softmax(1).multinomial(1, generator=made).squeeze()
        fitted = Auto().fit(Predictions.from_probs((2 * logits).softmax(1), labels))
        shares = [float(part.uniform_share) for part in fitted.modules() if getattr(part, "uniform_share", None)]
        assert shares
        assert f"(weight {max(shares):.2g})" in " ".join(fitted.summary.notes)  # of a part of the mean: it was 0


def test_a_choice_that_the_folds_speak_against_is_warned_of():
    made = torch.Generator().manual_seed(5)
    logits = 3 * torch.randn(510, 12, generator=made, dtype=torch.float64)
    labels = logits.softmax(1).multinomial(1, generator=made).squeeze()  # calibrated: any map adds noise
    with pytest.warns(CalibrantWarning, match=r"worse than no calibration in cross-validation, nll \+0\.03"):
        Auto().fit(Predictions(logits, labels))


def test_auto_and_compare_agree_on_whether_a_temperature_is_enough():
    alike, better = rows(1000, 3, scale=2.0), rows(4000, 3, scale=2.0, shift=[2.0, 0.0, -2.0])
    for predictions, enough in ((alike, True), (better, False)):
        half = len(predictions) // 2
        found = compare(predictions[:half], predictions[half:], [Auto()], resamples=200)
        assert any("temperature scaling would do about as well" in note for note in found.find("auto").notes) == enough
        assert (found.recommended.name == "temperature") == enough


@pytest.mark.filterwarnings("ignore:the map is worse than no calibration:calibrant.errors.CalibrantWarning")
@pytest.mark.parametrize("n", [120, 3000])
def test_auto_and_compare_take_the_same_method_for_confidences_in_being_right(n):
    rng = np.random.default_rng(0)
    log_odds = rng.normal(1.5, 1.5, size=2 * n)  # too sure, and right less often than any temperature can say
    right = rng.random(2 * n) < 1 / (1 + np.exp(0.3 - 0.7 * log_odds))
    samples = Predictions.from_binary_logits(2 * log_odds, right, class_names=OF_CORRECTNESS)
    calibration, test = samples[:n], samples[n:]
    fitted = Auto().fit(calibration)
    assert "nll: platt (" in fitted.summary.notes[0]
    assert not any("temperature" in note for note in fitted.summary.notes)
    assert torch.equal(fitted(test.logits), PlattScaling().fit(calibration)(test.logits))
    assert compare(calibration, test, resamples=200).recommended.name == "platt"


def test_a_candidate_s_own_outlier_is_no_excuse():
    """A loss of 30 among 500: its standard error is as large as the harm, its noise is not."""
    rng = np.random.default_rng(0)
    best = torch.tensor(rng.exponential(0.2, size=500))
    rare = best + torch.tensor(rng.normal(0, 0.01, size=500))
    rare[7] += 30
    gap = CrossValidatedDifference.between(rare, best)
    assert gap.value < 1.01 * gap.standard_error
    assert gap.value > 20 * gap.noise
    even = CrossValidatedDifference.between(best + torch.tensor(rng.normal(0, 0.1, size=500)), best)
    assert even.noise == pytest.approx(even.standard_error, rel=0.15)


def test_in_a_fold_without_an_optimum_a_candidate_leaves_the_predictions_as_they_are():
    """One wrong sample: the fold that holds it out has no temperature, the others have."""
    logits = torch.randn(200, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = logits.argmax(1)
    labels[3] = logits.argmin(1)[3]
    found = rank(Predictions.from_logits(logits, labels), [TemperatureScaling()])
    temperature = next(each for each in found.results if each.name == "temperature")
    assert temperature.failure is None
    assert temperature.folds == 5


def test_half_a_mistake_that_was_not_seen_counts_against_sharp_maps():
    """All but one of 60 are right: by the bare log-loss the sharpest map wins, though the next mistake ruins it."""
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.eye(3, dtype=torch.float64)[torch.randint(3, (60,), generator=generator)]
    logits += 0.1 * torch.randn(60, 3, generator=generator, dtype=torch.float64)
    predictions = Predictions.from_logits(logits, logits.argmax(1))
    sharp, milder = Fixed(0.02), Fixed(0.4)
    found = rank(predictions, (sharp, milder))
    scores = {each.name: each.score for each in found.results}
    assert scores[sharp.expression] < scores[milder.expression]
    assert found.best.calibrator == milder


def test_uncalibrated_is_not_chosen_where_probabilities_are_zero():
    """No sample of these had the label 0 was given to; one to come may, and its log-loss is infinite."""
    generator = torch.Generator().manual_seed(0)
    probs = (3 * torch.randn(400, 3, generator=generator, dtype=torch.float64)).softmax(1)
    labels = probs.multinomial(1, generator=generator)[:, 0]
    smallest = probs.argmin(1, keepdim=True)
    spared = smallest[:, 0] != labels
    zeroed = probs.scatter(1, smallest, torch.where(spared[:, None], 0.0, probs.gather(1, smallest)))
    zeroed = zeroed / zeroed.sum(1, keepdim=True)
    candidates = [Uncalibrated(), TemperatureScaling()]
    assert rank(Predictions.from_probs(probs, labels), candidates).chosen.name == "uncalibrated"
    assert rank(Predictions.from_probs(zeroed, labels), candidates).chosen.name == "temperature"


def test_a_warning_says_where_the_two_proper_scores_disagree():
    """Two classes, sure and right but for a few that are terribly wrong: a high temperature saves the log-loss only."""
    n = 2000
    odds = torch.full((n,), 6.0, dtype=torch.float64)
    odds[:20] = -60.0
    predictions = Predictions.from_binary_logits(odds, torch.ones(n, dtype=torch.int64))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted = Auto((TemperatureScaling(),)).fit(predictions)
    assert any("the two proper scores disagree: temperature" in str(each.message) for each in caught)
    assert any("the two proper scores disagree" in note for note in fitted.summary.notes)


def test_more_samples_than_are_needed_are_not_all_cross_validated():
    predictions = rows(100_500, 2, scale=2.0)
    method = Auto((TemperatureScaling(),))
    assert method.rank(predictions).n == 100_000
    assert method.fit(predictions).summary.rows == 100_500


def test_a_warning_names_both_where_the_calibration_error_would_choose_otherwise():
    predictions = rows(4000, scale=1.5)
    with pytest.warns(CalibrantWarning, match=r"nll takes uncalibrated .* ece would take constant"):
        fitted = Auto((Uncalibrated(), Constant())).fit(predictions)
    assert any("ece would take constant" in note for note in fitted.summary.notes)


def test_no_warning_where_both_agree_or_noise_explains_it():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Auto((TemperatureScaling(),)).fit(rows(1000, scale=2.0))
        Auto((TemperatureScaling(),)).fit(rows(200, seed=5))


def test_warnings_of_the_folds_are_kept_quiet_and_the_winner_s_come_through():
    with pytest.warns(CalibrantWarning, match="be careful") as caught:
        fitted = Auto((Warns(),)).fit(rows(300, scale=2.0))
    assert len(caught) == 1
    assert "be careful" in fitted.summary.notes


def test_ten_samples_are_enough_and_nine_are_not():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = Auto((TemperatureScaling(),)).fit(rows(10))
    assert torch.isfinite(fitted(torch.randn(3, 4))).all()
    with pytest.raises(FitError, match="two samples a fold; got 9 samples for 5 folds"):
        Auto((TemperatureScaling(),)).fit(rows(9))
    with pytest.raises(InputError, match="folds must be at least 2"):
        Auto((TemperatureScaling(),), folds=1).fit(rows(9))


def test_samples_without_a_mistake_are_calibrated_with_half_an_unseen_one():
    logits = torch.randn(200, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    predictions = Predictions.from_logits(logits, logits.argmax(1))
    with pytest.warns(CalibrantWarning, match="half a pseudo-error"):
        fitted = Auto((TemperatureScaling(),)).fit(predictions)
    assert 0 < float(fitted.temperature) < 0.5


def test_the_same_seed_gives_the_same_choice_and_another_another_deal():
    predictions = rows(150, scale=2.0)
    first, again, other = (rank(predictions, [TemperatureScaling()], seed=seed).best.score for seed in (0, 0, 1))
    assert first == again
    assert first != other


@pytest.mark.parametrize(
    "calibrator",
    [
        Uncalibrated(),
        TemperatureScaling(criterion="focal", gamma=2.0),
        Chain((TemperatureScaling(), TemperatureScaling(n_bins=10))),
        Auto(candidates=(Uncalibrated(), TemperatureScaling()), folds=3),
    ],
)
def test_a_label_reads_back_as_the_method(calibrator):
    assert catalogue.parse_calibrator(calibrator.expression) == calibrator


def test_structured_scaling_is_not_chosen_for_the_noise_of_rare_classes():
    """Three samples a class, and a temperature is the truth: the richest must not win, as when dealt by class."""
    names = {Auto().rank(rows(300, 100, scale=2.0, seed=seed)).chosen.name for seed in range(6)}
    assert names <= {"temperature", "svs"}


@pytest.mark.parametrize(("n", "k"), [(12, 2), (60, 3), (400, 10), (300, 50)])
def test_the_usual_candidates_give_a_finite_map_for_any_shape(n, k):
    predictions = rows(n, k, scale=2.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrantWarning)
        mapped = Auto().fit(predictions).transform(predictions)
    assert torch.isfinite(mapped.log_probs).all()


class TestAClassWithoutRows:
    def _without(self, k, missing, **how):
        predictions = rows(2000, k, scale=2.0, **how)
        return predictions[predictions.labels != missing]

    def test_only_methods_that_treat_all_classes_alike_are_tried(self):
        predictions = self._without(4, 2)
        alike = {"uncalibrated", "temperature", "ets", "diagonal", "order_invariant", "irm", "temperature+irm"}
        assert {each.name for each in Auto().rank(predictions).results} == alike

    def test_it_is_warned_of_and_noted(self):
        with pytest.warns(CalibrantWarning, match="no calibration samples of class 2: .* were left out"):
            fitted = Auto().fit(self._without(4, 2))
        assert any("were left out" in note for note in fitted.summary.notes)

    def test_the_class_is_not_driven_out_on_samples_to_come(self):
        with pytest.warns(CalibrantWarning, match="left out"):
            fitted = Auto().fit(self._without(3, 2))
        new = rows(4000, 3, scale=2.0, seed=7)
        assert fitted.transform(new).softmax_rows().nll().mean() < new.softmax_rows().nll().mean()

    def test_of_two_classes_nothing_and_temperatures_are_left(self):
        names = {each.name for each in Auto().rank(self._without(2, 1)).results}
        assert names == {"uncalibrated", "temperature", "ets"}

    def test_candidates_that_were_asked_for_are_tried_and_warn_by_themselves(self):
        with pytest.warns(CalibrantWarning, match="no calibration samples of class 2; all that is learned"):
            fitted = Auto(candidates=(StructuredVectorScaling(),)).fit(self._without(4, 2))
        assert "svs" in fitted.summary.notes[0]


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"score": "x"}, "score must be one of nll, brier; got 'x'"),
            ({"folds": 2.5}, "folds must be a whole number; got 2.5"),
            ({"folds": 1}, "folds must be at least 2; got 1"),
            ({"candidates": ("temperature",)}, "candidates must all be calibrators.*got 'temperature'"),
            ({"candidates": (TemperatureScaling,)}, "candidates must all be calibrators"),
            ({"candidates": TemperatureScaling()}, "candidates must be a tuple of calibrators"),
        ],
    )
    def test_wrong_ones_are_refused_at_once(self, options, message):
        with pytest.raises(InputError, match=message):
            Auto(**options)

    @pytest.mark.parametrize("steps", [(TemperatureScaling(), "isotonic"), "temperature+isotonic", ()])
    def test_a_chain_takes_nothing_but_calibrators(self, steps):
        with pytest.raises(InputError, match=r"steps must|at least one step"):
            Chain(steps)
