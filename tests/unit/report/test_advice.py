"""The next step: missing evidence is not read as evidence, and what is too small is not recommended."""

import re

import numpy as np
import pytest
import torch

from calibrant import Predictions, TopLabel, compare, evaluate
from calibrant.calibrators import TemperatureScaling, Uncalibrated
from calibrant.errors import CalibrantWarning
from calibrant.evaluation import Advice, NextStep, Reason, advise, is_beyond_noise
from calibrant.evidence import Estimate, estimate
from calibrant.metrics import ECE, ScoreSplit, SmECE
from calibrant.report import evaluation_page, to_markdown, verdict
from calibrant.report.verdict import _noise, _removed
from calibrant.testing import assert_calibrated


def draw(n, k=4, *, temperature=1.0, scale=2.0, seed=0):
    """Logits, and labels from the softmax at the given temperature: 1 is calibrated, above 1 overconfident."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, k)) * scale
    return Predictions(
        torch.from_numpy(logits), torch.from_numpy((logits / temperature + rng.gumbel(size=(n, k))).argmax(1))
    )


def naive_bayes(n=4000, seed=0):
    """Mostly right and sure of it; where it is not, ten times surer than it should be, as with repeated features."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, 3)) * 2.5
    labels = (logits + rng.gumbel(size=(n, 3))).argmax(1)
    doubled = rng.random(n) < 0.12
    logits[doubled] *= 12
    return Predictions(torch.from_numpy(logits), torch.from_numpy(labels))


def judged(predictions):
    return evaluate(predictions, resamples=200)


def split(total, gain, half):
    return ScoreSplit(total, gain, gain - half, gain + half, total - gain)


def decide(*, nll=None, brier=None, ece=0.05, p=0.001, n=1000, floor=0.01):
    metrics = {name: Estimate(ece, 0.0, 2 * ece, floor, p) for name in ("ece", "smece")}
    splits = {name: given for name, given in (("nll", nll), ("brier", brier)) if given is not None}
    return advise(n, metrics, splits)


def test_calibrated_predictions_of_few_samples_call_for_more():
    found = judged(draw(171))
    assert found.advice.step is NextStep.more_samples
    assert found.advice.samples > 171
    assert f"about {found.advice.samples:,}" in verdict(found).next_steps[0]


@pytest.mark.parametrize(
    ("low", "p", "words"),
    [
        (0.0, 0.034, "so noise may explain it (p = 0.034; because two errors are tested, the bound is 0.025)."),
        (0.0, 0.3, "so noise explains it (p = 0.300)."),
        (0.01, 0.01, "so this is beyond noise (p = 0.010)."),
        (0.0, 0.01, "so this is beyond noise (p = 0.010), although the interval, which is conservative, reaches down"),
    ],
)
def test_noise_is_said_to_explain_an_error_only_where_the_tests_agree(low, p, words):
    metrics = {"ece": Estimate(0.09, low, 0.14, 0.04, p), "smece": Estimate(0.05, 0.0, 0.1, 0.05, 0.4)}
    assert words in _noise(metrics, "100 samples", "confidences")


def test_overconfident_predictions_of_few_samples_are_not_advised_a_richer_map():
    found = judged(draw(171, 2, temperature=2.0, scale=3.0, seed=3))
    assert found.splits["nll"].calibration_low < 0 < found.splits["nll"].calibration  # half of it, but not beyond noise
    assert found.advice.reason in {Reason.gain_open, Reason.temperature_helps}


@pytest.mark.parametrize("seed", range(4))
def test_the_advice_does_not_contradict_a_comparison_on_the_same_samples(seed):
    calibration, test = (
        draw(170, 2, temperature=2.5, scale=4, seed=seed),
        draw(171, 2, temperature=2.5, scale=4, seed=9 + seed),
    )
    board = compare(calibration, test, [Uncalibrated(), TemperatureScaling()], resamples=200)
    advice = judged(test).advice
    if board.find("temperature").nll < board.find("uncalibrated").nll:
        assert advice.step in {NextStep.fit_temperature, NextStep.more_samples}


def test_a_temperature_that_lowers_the_log_loss_and_raises_the_brier_score_is_not_recommended():
    found = judged(naive_bayes())
    assert found.splits["nll"].calibration_low > 0
    assert found.splits["brier"].calibration_high < 0
    assert found.advice == Advice(NextStep.compare_methods, Reason.scores_disagree)
    words = verdict(found)
    assert any("raise the Brier score" in finding for finding in words.findings)
    assert "compare" in words.next_steps[0]


def test_a_confidence_in_being_right_needs_neither_other_labels_nor_a_temperature():
    confidence = torch.linspace(0.6, 0.95, 600, dtype=torch.float64)
    right = torch.arange(600) % 5 < 2  # 40 % of them
    probs = torch.stack([1 - confidence, confidence], dim=1)
    answers = Predictions.from_probs(probs, right.long(), class_names=("wrong", "right"))
    assert judged(answers).advice == Advice(NextStep.recalibrate, Reason.gain_unknown)
    others = Predictions.from_probs(probs, right.long(), class_names=("cat", "dog"))
    assert judged(others).advice.step is NextStep.check_labels


@pytest.mark.parametrize("scale", [0.1, 3.0])
def test_predictions_no_better_than_guessing_call_for_a_look_at_the_labels(scale):
    samples = draw(600, 10, scale=scale, temperature=1.0)
    shifted = Predictions(samples.logits, (samples.labels + 1) % 10)
    found = judged(shifted)
    assert found.advice == Advice(NextStep.check_labels, Reason.like_guessing)
    assert "labels belong to these samples" in verdict(found).next_steps[0]
    with pytest.warns(CalibrantWarning, match="no better than guessing"):
        caution = compare(shifted[:300], shifted[300:], [], resamples=100).cautions[0]
    assert "order of the scores" in caution.consequence
    assert judged(draw(600, 10, scale=3.0)).advice.step is not NextStep.check_labels
    assert judged(shifted[:20]).advice.step is not NextStep.check_labels  # a few may be wrong by chance


def test_many_calibrated_samples_are_left_as_they_are():
    found = judged(draw(20_000, 3))
    assert found.advice == Advice(NextStep.leave, Reason.calibrated)


def test_a_strong_overconfidence_shown_by_many_samples_calls_for_a_temperature():
    assert judged(draw(3000, temperature=2.0)).advice == Advice(NextStep.fit_temperature, Reason.temperature_helps)


def test_a_gain_of_half_a_percent_is_not_recommended_however_sure_it_is():
    sure = split(1.0, 0.005, 0.001)
    assert decide(nll=sure, brier=sure, ece=0.008).step is NextStep.leave
    assert decide(nll=sure, brier=sure, ece=0.05) == Advice(NextStep.compare_methods, Reason.not_by_temperature)


def test_a_richer_map_is_suggested_only_where_a_useful_gain_by_a_temperature_is_excluded():
    excluded, open_ = split(1.0, 0.0, 0.005), split(1.0, 0.0, 0.05)
    assert decide(nll=excluded, brier=excluded).reason is Reason.not_by_temperature
    assert decide(nll=open_, brier=open_).reason is Reason.gain_open
    assert decide(nll=excluded, brier=open_).reason is Reason.gain_open
    assert decide(nll=excluded, brier=excluded, p=0.4) == Advice(NextStep.leave, Reason.calibrated)


def test_a_gain_that_is_open_does_not_outweigh_a_harm_that_is_shown():
    open_, harmed = split(4.5, 4.1, 8.0), split(0.08, -0.19, 0.1)
    assert decide(nll=open_, brier=harmed) == Advice(NextStep.compare_methods, Reason.scores_disagree)
    assert decide(nll=split(0.1, -0.01, 0.008), brier=harmed).reason is Reason.not_by_temperature


def test_either_proper_score_is_evidence():
    open_, shown = split(0.34, 0.18, 0.2), split(0.1, 0.03, 0.02)
    assert decide(nll=open_, brier=shown).reason is Reason.temperature_helps


def test_the_samples_asked_for_grow_with_the_doubt_and_fall_with_the_gain():
    asked = [decide(nll=split(1.0, gain, half)).samples for gain, half in ((0.1, 0.12), (0.1, 0.4), (0.02, 0.4))]
    assert 1000 < asked[0] < asked[1] < asked[2]
    # A gain of .1 with an interval of .1 ± .4 is just shown by 16 times as many samples, and mostly by twice that.
    assert asked[1] == 40_000


def test_of_top_labels_alone_no_method_is_named():
    top = TopLabel([0.9] * 400, [True] * 200 + [False] * 200)
    assert judged(top).advice == Advice(NextStep.recalibrate, Reason.gain_unknown)
    few = judged(TopLabel(torch.linspace(0.6, 0.9, 60), torch.arange(60) % 4 > 0))
    assert few.advice.reason is Reason.floor_high
    assert few.advice.samples > 60


def test_the_advice_stands_in_the_document_and_its_words_in_the_page():
    found = judged(draw(171))
    page = evaluation_page(found)
    document = page.data()
    assert document["advice"] == {"step": "more_samples", "reason": "gain_open", "samples": found.advice.samples}
    assert verdict(found).next_steps[0] in to_markdown(page)


def test_what_a_temperature_leaves_is_no_reason_for_a_better_model():
    words = verdict(judged(draw(3000, temperature=2.0)))
    assert any("what one temperature cannot lower" in finding for finding in words.findings)


def test_of_few_classes_that_are_all_miscalibrated_only_the_worst_is_named():
    findings = verdict(judged(draw(3000, 3, temperature=2.0))).findings
    (words,) = [finding for finding in findings if "whichever class it predicts" in finding]
    assert words.startswith("It is overconfident")
    assert words.count("class ") == 2


@pytest.mark.parametrize(
    ("gain", "said"),
    [
        (-0.0002, "one temperature would not change it, but these samples are inconclusive"),
        (-0.004, "one temperature would raise it by 0.004, but these samples are inconclusive"),
        (0.02, "one temperature would remove 0.020, but these samples are inconclusive"),
    ],
)
def test_a_change_that_is_nothing_when_rounded_is_not_called_a_rise(gain, said):
    assert said in _removed("log-loss", split(0.518, gain, 0.05))


def test_few_predictions_of_all_classes_name_no_method_either():
    confident = torch.tensor([[4.0, 0.0]]).repeat(40, 1)
    assert judged(Predictions.from_logits(confident, torch.arange(40) % 3 // 2)).advice.reason is Reason.gain_unknown


def test_an_error_without_a_p_value_is_no_evidence():
    unknown, shown = Estimate(0.1, 0.05, 0.15), Estimate(0.1, 0.05, 0.15, floor=0.01, p=0.001)
    assert not is_beyond_noise({"ece": unknown, "smece": unknown})
    assert is_beyond_noise({"ece": unknown, "smece": shown})


def test_an_error_that_noise_explains_is_not_said_to_be_beyond_noise_where_the_smooth_one_is():
    confidence = np.repeat([0.99, 0.94], 2500)  # too sure and not sure enough, in one of fifteen bins
    right = np.arange(5000) % 2500 >= np.repeat([80, 95], 2500)
    found = evaluate(TopLabel(confidence, right), resamples=200)
    assert found.metrics["ece"].p > 0.05 > found.metrics["smece"].p
    first = verdict(found).findings[0]
    assert "so noise explains it (p = " in first
    assert "smECE" in first


def test_what_a_temperature_hardly_removes_has_an_interval_in_percent():
    said = _removed("log-loss", split(0.0867, 0.00001, 0.0004))
    assert said.endswith("remove less than 1 % (95 % interval -0.4 % to 0.5 %).")


@pytest.mark.parametrize("n", [1, 9, 20, 50])
def test_a_few_confident_samples_that_are_all_right_do_not_show_calibration(n):
    # A model that is wrong on one in ten samples would often look like this.
    found = judged(TopLabel([0.999] * n, [True] * n))
    assert found.advice.step is NextStep.more_samples
    assert found.advice.samples > n


def test_one_heavy_sample_does_not_decide_about_a_temperature():
    samples = draw(200, temperature=2.0)
    weights = torch.ones(200, dtype=torch.float64)
    weights[0] = 1e6
    found = judged(samples.with_weights(weights))
    assert not found.splits
    assert found.advice.step is not NextStep.leave


def shifted(n, bias, *, seed=0):
    """Two classes, of which the second is predicted too often: its log-odds are too high by ``bias``."""
    rng = np.random.default_rng(seed)
    logits = 1.5 * rng.normal(size=n)
    labels = rng.random(n) < 1 / (1 + np.exp(bias - logits))
    return Predictions.from_binary_logits(logits, labels, class_names=["no", "yes"])


def test_a_small_log_loss_has_digits_enough_to_see_what_a_temperature_removes():
    said = _removed("log-loss", split(0.0175, 0.0001, 0.00005))
    assert said.startswith("Of the log-loss 0.0175, one temperature would remove 0.0001 (0.6 %; 95 % interval 0.0001")


def test_the_brier_score_of_two_classes_is_said_to_be_twice_that_of_one():
    samples = shifted(500, 0.5)
    of_one = float(((samples.probs[:, 1] - samples.labels) ** 2).mean())
    assert judged(samples).metrics["brier"].value == pytest.approx(2 * of_one)
    assert "Brier score: summed over both classes, twice that of one" in to_markdown(evaluation_page(judged(samples)))


@pytest.mark.parametrize("share", [0.2, 1.0])
def test_samples_that_are_in_the_file_several_times_are_reported(share):
    samples = draw(1000)
    assert not judged(samples).copies
    copied = samples[torch.arange(1000 + int(1000 * share)) % 1000]
    found = judged(copied)
    assert found.copies == 1000 * share
    words = verdict(found)
    assert words.findings[0].startswith(f"{found.copies:,} of {found.n:,} samples repeat another one's outputs")
    assert "--clusters" in words.next_steps[0]
    clusters = torch.arange(len(copied)) % 1000
    assert not judged(copied.with_clusters(clusters)).copies


def test_equal_outputs_of_a_model_with_few_different_ones_are_no_copies():
    rng = np.random.default_rng(0)
    confidence = rng.choice([0.55, 0.7, 0.85, 0.95], 3000)
    for right in (rng.random(3000) < confidence, rng.random(3000) < 0.6, np.sort(rng.random(3000) < 0.9)):
        assert not judged(TopLabel(confidence, right)).copies


def test_two_classes_whose_errors_cancel_are_seen_by_the_probability_of_one():
    found = judged(shifted(3000, 0.5))
    of_top = estimate(shifted(3000, 0.5), [ECE(), SmECE()], resamples=200)
    assert not is_beyond_noise(of_top)  # the ECE of the predicted class averages over both classes
    assert is_beyond_noise(found.metrics)
    assert found.advice == Advice(NextStep.compare_methods, Reason.classes_differ)
    words = verdict(found)
    assert words.headline.startswith("Strongly too high: the probability of “yes” is")
    assert "the level of the probability is off, not its spread" in words.next_steps[0]
    assert "platt corrects it, as adding about -0.47 to the log-odds would" in words.next_steps[0]


def test_a_rare_class_makes_small_errors_matter():
    found = judged(rare(5000))
    assert found.risk.ece.value < 0.07
    assert verdict(found).headline.startswith("Severely too high")
    assert found.scale == pytest.approx(2 * found.risk.observed.value)


@pytest.mark.parametrize(("slope", "words"), [(2.0, "too extreme"), (0.5, "too moderate"), (1.0, "No miscalibration")])
def test_the_headline_of_two_classes_says_how_far_apart_their_probabilities_are(slope, words):
    rng = np.random.default_rng(0)
    log_odds = 1.5 * rng.normal(size=5000)
    found = judged(Predictions.from_binary_logits(slope * log_odds, rng.random(5000) < 1 / (1 + np.exp(-log_odds))))
    assert words in verdict(found).headline


def test_thresholds_are_useful_or_not_in_words():
    samples = shifted(3000, 2.0)
    words = " ".join(verdict(evaluate(samples, resamples=200, thresholds=[0.1, 0.6])).findings)
    assert "from a probability of “yes” of 10 % is better than acting on all" in words
    assert "from a probability of “yes” of 60 % is not clearly better" in words


def test_classes_whose_errors_cancel_in_the_calibration_error_are_seen():
    two = shifted(3000, 0.5)
    logits = torch.cat([two.logits, torch.full((3000, 1), -30.0, dtype=two.logits.dtype)], 1)
    predictions = Predictions.from_logits(logits, two.labels, class_names=["no", "yes", "never"])
    found = judged(predictions)
    assert not is_beyond_noise(found.metrics)  # the ECE averages over both classes
    assert found.is_off_by_class
    assert found.advice == Advice(NextStep.compare_methods, Reason.classes_differ)
    words = verdict(found)
    assert "miscalibrated by class: too sure of “yes”" in words.headline
    predicted = predictions.predicted.bool()
    for label, name in ((~predicted, "no"), (predicted, "yes")):
        right = float(predictions.correct[label].double().mean())
        claims = float(predictions.confidence[label].mean())
        assert f"“{name}” (claims {100 * claims:.1f} %, right {100 * right:.1f} %)" in words.headline
    gaps = [float((predictions.confidence - predictions.correct.double())[predicted == side].sum()) for side in (0, 1)]
    assert found.cancelled == pytest.approx(min(-gaps[0], gaps[1]) / 3000)
    with pytest.raises(AssertionError, match="tl_ece"):
        assert_calibrated(predictions, resamples=200)


def test_where_one_class_is_far_too_sure_and_another_not_sure_enough_a_temperature_is_not_advised():
    found = judged(shifted(3000, 2.0))
    assert found.splits["nll"].calibration_low > 0
    assert found.advice.reason is Reason.classes_differ


@pytest.mark.parametrize("seed", range(3))
def test_samples_without_an_error_by_class_have_none_that_cancels(seed):
    for predictions in (draw(2000, 2, seed=seed), draw(2000, 5, temperature=2.0, seed=seed)):
        assert judged(predictions).cancelled < 0.01


def test_confidences_that_are_off_are_advised_the_command_that_calibrates_them():
    found = judged(TopLabel([0.9] * 400, [True] * 240 + [False] * 160))
    assert found.advice.reason is Reason.gain_unknown
    assert "--probs --positive confidence --labels correct" in verdict(found).next_steps[0]


def rare(n, *, seed=0):
    """A rare class whose log-odds are too high by 2: predicted so seldom that hardly any error cancels in the ECE."""
    rng = np.random.default_rng(seed)
    logits = -3.0 + rng.normal(size=n)
    return Predictions.from_binary_logits(logits, rng.random(n) < 1 / (1 + np.exp(2 - logits)))


def test_where_the_log_odds_of_a_rare_class_are_shifted_no_temperature_is_advised():
    found = judged(rare(5000))
    assert found.cancelled < 0.01
    assert found.splits["nll"].calibration_low > 0.01 * found.splits["nll"].total  # a temperature would help a little
    assert found.is_shifted
    assert found.advice == Advice(NextStep.compare_methods, Reason.classes_differ)


@pytest.mark.parametrize("seed", range(3))
def test_two_classes_that_are_too_sure_alike_are_not_shifted(seed):
    found = judged(draw(3000, 2, temperature=2.0, seed=seed))
    assert not found.is_shifted
    assert found.advice == Advice(NextStep.fit_temperature, Reason.temperature_helps)


@pytest.mark.parametrize(("names", "shown"), [(["alive", "dead"], "“dead”"), (None, "class 1")])
def test_the_calibration_slope_names_the_class_that_it_is_of(names, shown):
    generator = torch.Generator().manual_seed(0)
    risk = torch.rand(400, generator=generator)
    died = (torch.rand(400, generator=generator) < risk).long()
    findings = verdict(judged(Predictions.from_binary_probs(risk, died, class_names=names))).findings
    assert any(f"On the scale of log-odds of {shown}: calibration slope" in one for one in findings)


def test_samples_in_clusters_are_to_be_more_clusters():
    codes = np.arange(300) // 5
    words = str(evaluation_page(evaluate(draw(300).with_clusters(codes), resamples=100, error_rates=[0.2])))
    assert "in clusters of the same size" in words
    assert "for independent clusters drawn alike" in words
    assert "clusters" not in str(evaluation_page(evaluate(draw(300), resamples=100, error_rates=[0.2])))


@pytest.mark.parametrize("names", [None, ("fine", "fraud")])
def test_a_positive_class_that_never_occurs_is_the_next_step(names):
    p = torch.linspace(0.05, 0.91, 500)
    words = verdict(judged(Predictions.from_binary_probs(p, torch.zeros(500).long(), class_names=names)))
    shown = "“fraud”" if names else "class 1"
    assert words.next_steps == [f"No sample is {shown}: check the labels and --positive-class."]
    assert words.findings[0] == f"No sample is {shown}, though the probabilities expect 240."


def test_classes_that_never_occur_are_named_a_few_of_them():
    for k, named in ((3, "class 1 or class 2"), (9, "class 6, class 7, class 4, class 5, class 3 or 3 other classes")):
        logits = torch.zeros(900, k, dtype=torch.float64)
        if k > 3:
            logits[:, 3:8] = torch.tensor([0.8, 1.0, 0.9, 1.2, 1.1], dtype=torch.float64)
        found = judged(Predictions(logits, torch.zeros(900).long()))
        assert found.advice == Advice(NextStep.check_labels, Reason.classes_absent)
        assert [step.split(":")[0] for step in verdict(found).next_steps] == [f"No sample is {named}"]
        assert evaluation_page(found).tone == "open"


def test_a_rare_class_that_never_occurs_is_no_surprise():
    found = judged(Predictions.from_probs([[0.985, 0.015]] * 600, [0] * 600))
    assert not found.absent_classes
    assert not any("No sample is class 1," in text and "expect" in text for text in verdict(found).findings)


def test_no_sample_is_expected_of_a_class_by_samples_that_count_little():
    weights = [1.0] * 12 + [1e-6] * 588
    found = judged(Predictions.from_probs([[0.7, 0.3]] * 600, [0] * 600, weights=weights))
    assert not found.absent_classes


def test_a_log_loss_of_sure_and_right_predictions_is_0():
    labels = torch.arange(50) % 3
    sure = Predictions.from_probs(torch.nn.functional.one_hot(labels, 3).double(), labels)
    assert not re.search(r"\d\.\d\de-[12345]", to_markdown(evaluation_page(judged(sure))))
