"""p-values of errors and paired differences, sets that are each resampled once, and the rule for better and worse."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from calibrant import catalogue
from calibrant.errors import InputError
from calibrant.evidence import Difference, PairedBootstrap, difference, estimate, smallest_effect
from calibrant.evidence.intervals import p_value, paired_p, without_noise
from calibrant.metrics import ACE, AURC, AUROC, ECE, MCE, NLL, OE, Accuracy
from calibrant.metrics.states import TopStatistic
from calibrant.predictions import Predictions, TopLabel
from calibrant.testing import overconfident


def draws(mean, n=500, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(mean, 1.0, n))


def test_draws_on_both_sides_are_counted():
    drawn = draws(1.0)
    rarer = int((drawn <= 0).sum())
    assert paired_p(drawn, 1e9) == pytest.approx(2 * (rarer + 1) / 501)


@pytest.mark.parametrize("mean", [3.0, -4.0, 6.0])
def test_beyond_the_draws_the_tail_of_student_s_t_tells(mean):
    drawn = draws(mean)
    expected = 2 * stats.t.sf(abs(float(drawn.mean())) / float(drawn.std()) * math.sqrt(255 / 256), 255)
    assert paired_p(drawn, 256) == pytest.approx(expected)


def ranked_pair(wrong, n=1000):
    generator = torch.Generator().manual_seed(wrong)
    correct = torch.arange(n) >= wrong
    log_odds = 1.5 * correct + torch.randn(2, n, generator=generator, dtype=torch.float64)
    return [TopLabel(one.sigmoid(), correct) for one in log_odds]


def test_ranks_of_few_wrong_samples_are_known_as_if_there_were_no_others():
    sets = ranked_pair(wrong=20)
    bootstrap = PairedBootstrap(sets[0], [AUROC(), Accuracy()])
    first, second = (bootstrap.values(one)["auroc"] for one in sets)
    assert first.few == pytest.approx(20)
    found = bootstrap.difference(AUROC(), first, second)
    drawn = second.values[1:] - first.values[1:]
    middle, factor = drawn.mean(), math.sqrt(20 / 19) * stats.t.ppf(0.975, 19) / stats.norm.ppf(0.975)
    expected = torch.quantile(middle + factor * (drawn - middle), drawn.new_tensor([0.025, 0.975]))
    assert (found.low, found.high) == pytest.approx(tuple(expected.tolist()))
    assert bootstrap.values(sets[0])["accuracy"].few == math.inf


def test_the_ranks_of_one_wrong_sample_say_nothing_about_noise():
    found = difference(*ranked_pair(wrong=1), [AUROC()])["auroc"]
    assert math.isfinite(found.value)
    assert math.isnan(found.low)
    assert math.isnan(found.p)


@pytest.mark.parametrize(("n", "chance"), [(20, 0.8), (50, 0.99), (300, 0.95)])
def test_beyond_the_draws_of_calibrated_samples_the_p_value_falls_and_is_not_too_small(n, chance):
    gap = np.abs(np.random.default_rng(0).binomial(n, chance, size=(200, 1000)) / n - chance)
    rare = int(stats.binom.ppf(1e-5, n, chance))  # so many right, or fewer, are that improbable
    observed = [p_value(chance - rare / n, torch.from_numpy(draws)) for draws in gap]
    assert np.mean(observed) >= stats.binom.cdf(rare, n, chance)
    assert p_value(chance, torch.from_numpy(gap[0])) < 1e-6  # none of them right


def test_a_difference_without_spread_is_not_taken_for_certain():
    assert paired_p(torch.full((500,), 0.3), 256) == pytest.approx(2 / 501)
    assert paired_p(torch.zeros(500), 256) == 1
    assert paired_p(draws(6.0), 1) == pytest.approx(2 / 501)  # one group cannot tell a spread


def test_few_samples_give_a_heavier_tail():
    assert paired_p(draws(5.0), 10) > 100 * paired_p(draws(5.0), 256)


def test_sets_resampled_once_differ_as_each_pair_does():
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(300, 4, generator=generator), torch.randint(4, (300,), generator=generator)
    sets = [Predictions.from_logits(scale * logits, labels) for scale in (3.0, 1.0, 0.5)]
    metrics = [NLL(), ECE(), Accuracy()]
    bootstrap = PairedBootstrap(sets[0], metrics, resamples=100, seed=2)
    values = [bootstrap.values(each) for each in sets]
    for first, second in ((0, 1), (1, 2), (0, 2)):
        expected = difference(sets[first], sets[second], metrics, resamples=100, seed=2)
        assert bootstrap.differences(values[first], values[second]) == expected
    with pytest.raises(InputError, match="same labels"):
        bootstrap.values(Predictions.from_logits(logits, (labels + 1) % 4))


@pytest.mark.parametrize(
    ("metric", "baseline", "value", "side"),
    [
        (AUROC(), 0.9, 0.0004, "alike"),
        (AUROC(), 0.9, 0.006, "better"),
        (AUROC(), 0.9, -0.006, "worse"),
        (NLL(), 0.3, -0.002, "alike"),
        (NLL(), 0.3, -0.004, "better"),
        (NLL(), 3.0, -0.004, "alike"),
        (ECE(), 0.05, 0.0009, "alike"),
        (ECE(), 0.05, 0.0011, "worse"),
        (Accuracy(), 0.9, 0.0011, "better"),
    ],
)
def test_a_difference_too_small_to_matter_is_alike_however_sure_it_is(metric, baseline, value, side):
    found = Difference(baseline, baseline + value, value, 0.9 * value, 1.1 * value, 1e-9)
    assert found.with_correction(metric, 1e-9).is_significant
    assert found.with_correction(metric, 1e-9).side == side


@pytest.mark.parametrize(("low", "high", "p"), [(-0.2, -0.1, 0.06), (-0.2, 0.01, 0.01), (-0.1, -0.1, math.nan)])
def test_a_difference_within_noise_is_alike_however_large_it_is(low, high, p):
    found = Difference(0.5, 0.4, -0.1, low, high, p).with_correction(NLL(), p)
    assert not found.is_significant
    assert found.side == "alike"


def test_one_sample_leaves_the_noise_unknown():
    sure, unsure = (Predictions.from_logits(torch.tensor([[scale, 0.0]]), [0]) for scale in (3.0, 1.0))
    found = difference(unsure, sure, [NLL()], resamples=50)["nll"]
    assert found.value < 0
    assert math.isnan(found.p)
    assert found.side == "alike"


def test_every_metric_has_a_smallest_effect():
    assert all(0 < smallest_effect(metric, 0.5) <= 0.005 for metric in catalogue.metrics.values())


@pytest.mark.parametrize("n", [600, 9000])
@pytest.mark.parametrize("classes", [2, 5])
def test_differences_are_between_the_values_that_the_estimates_list(n, classes):
    """Many of these probabilities are tied, and their log-odds differ in the last bit alone."""
    generator = torch.Generator().manual_seed(n)
    probs = (2 * torch.randn(n, classes, generator=generator)).softmax(1).mul(20).round().add(0.5)
    labels = torch.randint(classes, (n,), generator=generator)
    samples = Predictions.from_probs(probs / probs.sum(1, keepdim=True), labels)
    metrics = [ECE(), ACE(), AUROC(), AURC(), Accuracy()]
    listed = {name: one.value for name, one in estimate(samples, metrics, resamples=100).items()}
    bootstrap = PairedBootstrap(samples, metrics, resamples=100)
    for estimates in (None, estimate(samples, metrics, resamples=100)):
        values = {name: one.value for name, one in bootstrap.values(samples, estimates).items()}
        tolerance = 1e-15 if estimates else 1e-7  # alone, an error reads confidences that are not rounded
        assert values == pytest.approx(listed, abs=tolerance)


def test_draws_of_many_samples_in_levels_agree_with_draws_of_all(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(9_000, 4, generator=generator)
    labels = (logits / 1.5).softmax(1).multinomial(1, generator=generator).squeeze()
    weights = torch.rand(len(labels), generator=generator)
    top = [metric for metric in catalogue.metrics.values() if isinstance(metric.statistic, TopStatistic)]
    metrics = [metric for metric in top if metric.statistic.takes_weights and metric != MCE()]  # it has no interval
    for own in (None, weights):
        pair = [Predictions.from_logits(values, labels, weights=own) for values in (logits, logits / 1.4 + 0.1)]
        in_levels = difference(*pair, metrics, resamples=20)
        with monkeypatch.context() as patch:
            patch.setattr("calibrant.evidence.differences._LEVELS", 1 << 40)
            exact = difference(*pair, metrics, resamples=20)
        for name, found in in_levels.items():
            width = exact[name].high - exact[name].low
            assert found.value == pytest.approx(exact[name].value, rel=1e-12), name
            assert abs(found.low - exact[name].low) <= 0.05 * width + 1e-12, name
            assert abs(found.high - exact[name].high) <= 0.05 * width + 1e-12, name


@pytest.mark.parametrize("n", [1, 2, 9])
def test_fewer_than_ten_samples_have_neither_interval_nor_p_value(n):
    logits = torch.randn(n, 3, generator=torch.Generator().manual_seed(n))
    labels = torch.zeros(n, dtype=torch.int64)
    for found in difference(Predictions(logits, labels), Predictions(3 * logits, labels), [NLL(), ECE()]).values():
        assert math.isnan(found.low)
        assert math.isnan(found.high)
        assert math.isnan(found.p)
        assert found.side == "alike"


def test_a_few_heavy_samples_count_as_few():
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(500, 3, generator=generator), torch.randint(3, (500,), generator=generator)
    weights = torch.ones(500, dtype=torch.float64)
    weights[:3] = 1e4
    pair = [Predictions(scale * logits, labels, weights=weights) for scale in (1.0, 3.0)]
    assert math.isnan(difference(*pair, [NLL()])["nll"].p)


def test_samples_that_all_change_alike_leave_the_noise_unknown():
    # Every sample has the same two log-losses: a gate on this difference has no interval to decide by.
    labels = torch.zeros(40, dtype=torch.int64)
    pair = [Predictions(torch.tensor([[scale, 0.0]]).repeat(40, 1), labels) for scale in (1.0, 2.0)]
    found = difference(*pair, [NLL()])["nll"]
    assert math.isnan(found.low)
    assert math.isnan(found.p)


@pytest.mark.parametrize("mean", [0.0, 0.5, 1.0, 2.0])
def test_noise_of_an_error_that_counts_one_side_is_taken_out_as_the_positive_part_of_a_normal_number(mean):
    def positive_part(mean, spread):
        return mean * stats.norm.cdf(mean / spread) + spread * stats.norm.pdf(mean / spread)

    # Resamples have the noise twice.
    resampled = torch.full((3,), positive_part(mean, 2**0.5), dtype=torch.float64)
    value, without = without_noise(positive_part(mean, 1), resampled, positive_part(0, 1), one_sided=True)
    assert value == pytest.approx(mean, abs=1e-6)
    assert without.tolist() == pytest.approx([mean] * 3, abs=0.02)


def test_the_largest_gap_has_no_interval_of_a_difference_and_the_overconfidence_error_a_wide_one():
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(500, 10, generator=generator, dtype=torch.float64)
    labels = torch.multinomial((logits / 1.5).softmax(1), 1, generator=generator)[:, 0]
    pair = [Predictions(logits / temperature, labels) for temperature in (1.0, 1.5)]
    bootstrap = PairedBootstrap(pair[0], [MCE(), OE()])
    baseline, candidate = map(bootstrap.values, pair)
    found = bootstrap.differences(baseline, candidate)
    assert found["mce"].value == pytest.approx(MCE()(pair[1]) - MCE()(pair[0]))
    assert math.isnan(found["mce"].low)
    assert found["mce"].side == "alike"
    drawn = candidate["oe"].without_noise[1] - baseline["oe"].without_noise[1]
    assert found["oe"].low < float(drawn.quantile(0.025))
    assert found["oe"].side == "better"


def test_what_weights_differ_by_in_rounding_is_no_difference():
    samples = overconfident(400, 3).with_weights(np.random.default_rng(0).lognormal(0, 0.5, 400))
    softer = samples.with_logits(
        0.8 * samples.logits
    )  # the same predictions, whose weights are summed in another order
    found = difference(samples, softer, [Accuracy()])["accuracy"]
    assert (found.value, found.low, found.high, found.p) == (0.0, 0.0, 0.0, 1.0)
