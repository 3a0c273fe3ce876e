"""Methods side by side: the numbers are those of the metrics, tests are paired and corrected, words follow them."""

import gc
import json
import math
import sys
import warnings
import weakref
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import ClassVar

import numpy as np
import pytest
import torch
from made_records import reviewed
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score

from calibrant.calibrators import (
    BetaCalibration,
    Calibrator,
    PlattScaling,
    QuadraticScaling,
    TemperatureScaling,
    Uncalibrated,
    VennAbers,
)
from calibrant.calibrators.auto import Auto
from calibrant.calibrators.base import Fitted
from calibrant.comparison import Comparison, MethodResult, compare, comparison_metrics, samples_in_both, z_between
from calibrant.diagrams import comparison_diagram
from calibrant.errors import CalibrantWarning, FitError, InputError
from calibrant.evidence import Difference, PairedBootstrap, apply_holm, estimate, holm
from calibrant.maps import Affine, Scale
from calibrant.metrics import ECE, NLL, Metric, ece
from calibrant.metrics.states import Binned
from calibrant.paper import Paper
from calibrant.predictions import Predictions
from calibrant.report import comparison_page, comparison_verdict, to_markdown
from calibrant.report.comparison import method_notes, separation_words
from calibrant.report.terminal import to_terminal


def rows(n, k=4, *, scale=1.0, shift=0.0, seed=0, class_names=None):
    """Labels drawn from the softmax of the logits, class 0 favoured by the shift; the logits then blown up."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, k, generator=generator, dtype=torch.float64)
    truth = logits + shift * torch.eye(k, dtype=torch.float64)[0]
    labels = truth.softmax(1).multinomial(1, generator=generator)[:, 0]
    return Predictions.from_logits(scale * logits, labels, class_names=class_names)


class Toy(Calibrator):
    """What a method must say of itself."""

    title: ClassVar[str] = "For tests"
    family: ClassVar[str] = "scaling"
    paper: ClassVar[Paper] = Paper("Nobody", 2000, "Nothing", "arXiv:0000.00000")
    preserves_accuracy: ClassVar[bool] = False
    preserves_ranking: ClassVar[bool] = False


@dataclass(frozen=True)
class Bias(Toy):
    """A number added to class 0, and a temperature."""

    name: ClassVar[str] = "bias"
    by: float = 0.0
    temperature: float = 1.0

    def _fit(self, predictions):
        k = predictions.n_classes
        return Fitted(Affine(torch.tensor(1 / self.temperature), self.by * torch.eye(k)[0], n_classes=k))


@dataclass(frozen=True)
class Fails(Toy):
    name: ClassVar[str] = "fails"

    def _fit(self, predictions):  # noqa: ARG002
        raise FitError("it must not be asked to.")


@dataclass(frozen=True)
class Warns(Toy):
    name: ClassVar[str] = "warns"

    def _fit(self, predictions):
        warnings.warn("be careful", CalibrantWarning, stacklevel=2)
        return Fitted(Scale(torch.tensor(2.0), n_classes=predictions.n_classes))


CHANGE = Difference(0.5, 0.4, -0.1, -0.2, -0.05, 0.001, 0.002, "better")
CALIBRATION, TEST = rows(400, scale=2.0, seed=1), rows(600, scale=2.0, seed=2)


@pytest.fixture(scope="module")
def board():
    methods = [Bias(by=0.1), Fails(), Warns(), TemperatureScaling(), Bias(by=3.0)]
    return compare(CALIBRATION, TEST, methods, resamples=200)


def test_the_numbers_are_those_of_scikit_learn(board):
    probs = (TEST.logits / TemperatureScaling().fit(CALIBRATION).temperature).softmax(1).numpy()
    labels, right = TEST.labels.numpy(), probs.argmax(1) == TEST.labels.numpy()
    found = {name: each.value for name, each in board.find("temperature").metrics.items()}
    assert found["nll"] == pytest.approx(log_loss(labels, probs), rel=1e-6)
    assert found["accuracy"] == pytest.approx(accuracy_score(labels, probs.argmax(1)))
    assert found["auroc"] == pytest.approx(roc_auc_score(right, probs.max(1)), rel=1e-9)
    assert found["brier"] == pytest.approx(((probs - np.eye(4)[labels]) ** 2).sum(1).mean(), rel=1e-6)


def test_intervals_and_differences_are_those_of_the_evidence(board):
    metrics = comparison_metrics()
    mapped = Bias(by=0.1).fit(CALIBRATION).transform(TEST)
    entry = board.find("bias(by=0.1)")
    assert entry.metrics == estimate(mapped, metrics, resamples=200)
    bootstrap = PairedBootstrap(TEST, metrics, resamples=200)
    resampled = [bootstrap.values(samples, estimate(samples, metrics, resamples=200)) for samples in (TEST, mapped)]
    expected = bootstrap.differences(*resampled)
    for name, change in entry.differences["uncalibrated"].items():
        assert replace(change, corrected_p=change.p, side="alike") == replace(expected[name], side="alike")
        assert change.corrected_p >= change.p


def test_a_metric_of_ones_own_takes_part_in_the_direction_that_it_has():
    @dataclass(frozen=True)
    class Certain(Metric, name="certain", title="Certain", family="refinement", lower_is_better=False):
        statistic = Binned(1)

        def value(self, state):
            return state.confidence[..., 0] / state.count[..., 0]

    own = compare(CALIBRATION, TEST, [Bias(by=0.1)], metrics=[Certain(), ECE(30)], resamples=200)
    scaled, raw = own.find("temperature"), own.find("uncalibrated")
    assert raw.metrics["certain"].value == pytest.approx(float(TEST.confidence.mean()))
    assert scaled.metrics["ece"].value == pytest.approx(ece(scaled.map.transform(TEST), n_bins=30))
    change = scaled.differences["uncalibrated"]["certain"]
    assert change.side == ("better" if change.value > 0 else "worse")
    assert "certain_low" in own.to_frame().columns
    assert "| certain" in own.to_markdown()
    with pytest.raises(InputError, match="metrics must be metrics"):
        compare(CALIBRATION, TEST, [], metrics=["ece"])


def test_methods_stand_in_order_of_log_loss_and_failures_last(board):
    losses = [entry.nll for entry in board.fitted]
    assert losses == sorted(losses)
    assert board.methods[-1].name == "fails"
    assert board.methods[-1].failure == "it must not be asked to."
    assert board.best.to_best is None
    assert all(entry.to_best.value > 0 for entry in board.fitted[1:])


def test_both_baselines_take_part_and_nobody_takes_part_twice(board):
    names = [entry.name for entry in board.methods]
    assert sorted(names) == ["bias(by=0.1)", "bias(by=3.0)", "fails", "temperature", "uncalibrated", "warns"]
    assert "uncalibrated" not in board.find("uncalibrated").differences
    assert set(board.find("warns").differences) == {"uncalibrated", "temperature"}
    assert [entry.name for entry in compare(CALIBRATION, TEST, [], resamples=100).methods] == [
        "temperature",
        "uncalibrated",
    ]


def test_what_several_methods_say_stands_once_behind_their_names():
    entries = [
        MethodResult("a", "A", notes=("zeros were floored", "of a alone")),
        MethodResult("b", "B", notes=("zeros were floored",)),
        MethodResult("c", "C", notes=("zeros were floored",), failure="it could not be"),
    ]
    assert method_notes(entries) == [
        "c could not be fitted: it could not be",
        "a, b: zeros were floored",
        "a: of a alone",
    ]


def test_warnings_become_notes(board):
    assert board.find("warns").notes == ("be careful",)
    assert board.find("temperature").notes == ()


@pytest.mark.filterwarnings("ignore:.*worse than no calibration")
def test_what_a_method_does_to_the_predictions_is_shown(board):
    assert board.find("temperature").changed == 0
    moved = (Bias(by=3.0).fit(CALIBRATION).transform(TEST).predicted != TEST.predicted).double().mean()
    assert board.find("bias(by=3.0)").changed == float(moved) > 0


@pytest.fixture
def no_temperature(monkeypatch):
    """Temperature scaling that cannot be fitted."""
    monkeypatch.setattr(TemperatureScaling, "_fit", Fails._fit)


@pytest.mark.usefixtures("no_temperature")
def test_without_a_temperature_the_baseline_is_the_uncalibrated_model():
    found = compare(CALIBRATION, TEST, [Bias(by=0.5)], resamples=100)
    assert found.find("temperature") is None
    assert found.methods[-1].name == "temperature"
    assert set(found.find("bias(by=0.5)").differences) == {"uncalibrated"}
    assert "− uncalibrated" in text_of(found)
    assert comparison_diagram(found).baseline == "uncalibrated"


def test_progress_counts_the_methods():
    seen = []
    compare(CALIBRATION, TEST, [Fails()], resamples=100, progress=lambda *told: seen.append(told))
    assert seen[0] == ("fitting uncalibrated", 0, 3)
    assert ("fitting fails", 2, 3) in seen
    assert seen[-1] == ("comparing", 3, 3)


def test_mapped_predictions_are_not_kept(monkeypatch):
    module = sys.modules["calibrant.comparison"]
    alive = []

    def watched(*arguments):
        gc.collect()
        assert sum(reference() is not None for reference in alive) <= 1  # the one before, until it is replaced
        trial = real(*arguments)
        alive.append(weakref.ref(trial.transformed))
        return trial

    real = module.try_fit
    monkeypatch.setattr(module, "try_fit", watched)
    found = compare(CALIBRATION, TEST, [Bias(by=b) for b in (0.1, 0.2, 0.3, 0.4)], resamples=100)
    gc.collect()
    assert len(alive) == 6
    assert not any(reference() for reference in alive)
    assert found.best.map is not None


def test_the_choice_of_auto_does_not_depend_on_the_test_rows():
    auto = Auto((TemperatureScaling(), Bias(by=1.0)))
    other = Predictions.from_logits(9 * TEST.logits, TEST.labels)
    maps = [compare(CALIBRATION, test, [auto], resamples=100).methods for test in (TEST, other)]
    first, second = (next(e for e in entries if e.name.startswith("auto")) for entries in maps)
    assert first.notes == second.notes
    assert torch.equal(first.map.temperature, second.map.temperature)


# What to use.


def changed(board, *methods):
    """The board with these methods beside both baselines."""
    rest = [method for method in board.methods if method.name in {"uncalibrated", "temperature"}]
    return replace(board, methods=(*methods, *rest))


def entry(board, name, *, nll=None, brier=None, nll_side="better", brier_side="better"):
    """A method that is better than both baselines in every metric, but for the sides given against a temperature."""
    metrics = dict(board.best.metrics)
    for metric, value in (("nll", nll), ("brier", brier)):
        if value is not None:
            metrics[metric] = replace(metrics[metric], value=value)
    better = {metric: replace(CHANGE, side="better") for metric in metrics}
    against = better | {"nll": replace(CHANGE, side=nll_side), "brier": replace(CHANGE, side=brier_side)}
    differences = {"uncalibrated": better, "temperature": against}
    to_best = CHANGE if name == "sure" else None
    return MethodResult(name, name, metrics=metrics, differences=differences, to_best=to_best, changed=0.0, seconds=0.1)


def lucky(board):
    """A method that would be clearly better were it alone, and uncalibrated as the only other one."""
    method, doubt = entry(board, "lucky", nll=0.1), replace(CHANGE, p=0.006, corrected_p=0.063, side="alike")
    differences = {"uncalibrated": dict.fromkeys(method.metrics, doubt)}
    return replace(board, methods=(replace(method, differences=differences), board.uncalibrated))


def ranked_by_ece(board, nll):
    """A temperature, beside a method of a lower ECE and this log-loss."""

    def with_values(method, nll, ece, **more):
        values = {name: replace(method.metrics[name], value=value) for name, value in (("nll", nll), ("ece", ece))}
        return replace(method, metrics={**method.metrics, **values}, **more)

    methods = (
        with_values(board.find("temperature"), 0.5, 0.2),
        with_values(board.find("bias(by=0.1)"), nll, 0.1, differences={}),
        with_values(board.find("uncalibrated"), 0.9, 0.3),
    )
    return replace(board, methods=tuple(sorted(methods, key=lambda method: method.nll)))


def confidently_wrong():
    """Sure and right but for one in a hundred, terribly wrong: a high temperature saves the log-loss only."""
    odds = torch.full((2000,), 6.0, dtype=torch.float64) + 0.1 * torch.randn(2000, generator=torch.manual_seed(0))
    odds[::100] = -60.0
    samples = Predictions.from_binary_logits(odds, torch.ones(2000, dtype=torch.int64))
    return compare(samples[:1000], samples[1000:], [], resamples=200)


def of_other_accuracy(*, perfect):
    """Test samples of another accuracy than the calibration samples, of which no method can be learned if perfect."""
    if perfect:
        logits = torch.randn(400, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        sets = Predictions.from_logits(logits, logits.argmax(1)), TEST
    else:
        other = rows(600, scale=2.0, seed=8)
        sets = CALIBRATION, Predictions.from_logits(other.logits, (other.labels + (torch.arange(600) % 3 == 0)) % 4)
    with pytest.warns(CalibrantWarning, match="may not be drawn alike"):
        return compare(*sets, [Bias(by=3.0)] if perfect else [], resamples=100)


def test_the_verdict_of_each_case_reads_as_was_reviewed(board, golden):
    shifted = [rows(800, scale=2.0, shift=2.0, seed=seed) for seed in (5, 6)]
    near = [Bias(temperature=2.0), Bias(by=0.01, temperature=2.0)]
    few = {n: compare(rows(500, scale=1.5, seed=3), rows(n, scale=1.5, seed=5), [Bias(by=0.5)], resamples=200)
           for n in (1, 2, 10)}  # fmt: skip
    cases = {
        "calibrated already": (compare(rows(500, seed=3), rows(500, seed=4), [Bias(by=1.0)], resamples=200), None),
        "calibrated already, many samples": (compare(rows(2000, seed=3), rows(2000, seed=4), [], resamples=200), None),
        "one temperature is enough": (compare(CALIBRATION, TEST, near, resamples=200), "temperature"),
        "the best beats both baselines": (
            compare(*shifted, [Bias(by=2.0, temperature=2.0)], resamples=200),
            "bias(by=2.0,temperature=2.0)",
        ),
        "the best is not clearly better than a temperature": (
            changed(board, entry(board, "lucky", nll=0.1, nll_side="alike"), entry(board, "sure", nll=0.2)),
            "sure",
        ),
        "the Brier score disagrees": (confidently_wrong(), "temperature"),
        "the Brier score would choose another": (
            changed(board, entry(board, "first", brier=0.2, brier_side="alike"), entry(board, "other", brier=0.1)),
            "first",
        ),
        "the Brier score agrees": (
            changed(board, entry(board, "first", brier=0.2), entry(board, "other", brier=0.1)),
            "first",
        ),
        "ECE prefers a higher log-loss": (ranked_by_ece(board, 0.7), "temperature"),
        "ECE prefers a lower log-loss": (ranked_by_ece(board, 0.3), "temperature"),
        "ECE prefers the same log-loss": (ranked_by_ece(board, 0.5), "temperature"),
        **{f"{n} test samples": (found, None) for n, found in few.items()},
        "the best of many, which would be clear alone": (lucky(board), "uncalibrated"),
        "test samples of a lower accuracy": (of_other_accuracy(perfect=False), None),
        "calibration samples without errors": (of_other_accuracy(perfect=True), None),
    }
    for name, (found, chosen) in cases.items():
        if chosen is not None:
            assert found.recommended.name == chosen, name
        assert "nan" not in text_of(found)
    golden("comparison-verdicts.txt", reviewed({name: found for name, (found, _) in cases.items()}, comparison_verdict))


@pytest.mark.usefixtures("no_temperature")
def test_where_no_method_can_be_fitted_there_is_nothing_to_compare():
    assert comparison_verdict(compare(CALIBRATION, TEST, [], resamples=100)).headline.startswith("Nothing to compare")


def test_what_auto_took_stands_before_auto():
    found = compare(CALIBRATION, TEST, [Auto((Bias(temperature=2.1),)), Bias(temperature=2.1)], resamples=100)
    names = [each.name for each in found.methods]
    assert names.index("bias(temperature=2.1)") < names.index("auto(candidates=[bias(temperature=2.1)])")


def test_of_equals_the_simplest_is_named():
    rng = np.random.default_rng(0)

    def too_high(n):
        log_odds = 1.5 * rng.normal(size=n)
        return Predictions.from_binary_logits(log_odds, rng.random(n) < 1 / (1 + np.exp(1.5 - 0.8 * log_odds)))

    methods = [VennAbers(), QuadraticScaling(), BetaCalibration(), PlattScaling()]
    found = [compare(too_high(2000), too_high(2000), methods, resamples=200) for _ in range(3)]
    assert [one.recommended.name for one in found] == ["platt"] * 3
    assert any(one.best.name != "platt" for one in found)
    one = next(one for one in found if one.best.name != "platt")
    assert one.recommended.fitted_numbers < one.best.fitted_numbers
    words = comparison_verdict(one)
    assert words.headline.endswith("and none of 4 others is clearly better.")
    assert any("not clearly better than platt, which is simpler." in text for text in words.findings)


def test_many_equal_methods_do_not_make_a_winner():
    wrong = 0
    for seed in range(4):
        calibration, test = rows(300, scale=2.0, seed=100 + seed), rows(400, scale=2.0, seed=200 + seed)
        generator = np.random.default_rng(seed)
        # As good as the true temperature but for small random biases.
        methods = [Bias(by=float(by), temperature=2.0) for by in generator.normal(0, 0.1, 6)]
        wrong += compare(calibration, test, methods, resamples=100).recommended.name != "temperature"
    assert wrong <= 1


def test_holm_is_computed_by_hand():
    corrected = holm({"a": 0.01, "b": 0.02, "c": 0.03, "d": 0.5, "e": math.nan})
    assert corrected["a"] == pytest.approx(0.04)
    assert corrected["b"] == pytest.approx(0.06)
    assert corrected["c"] == pytest.approx(0.06)
    assert corrected["d"] == pytest.approx(0.5)
    assert math.isnan(corrected["e"])


def test_trying_more_methods_does_not_change_the_verdict_on_a_temperature():
    # A gain that one test finds and twenty corrected ones would not.
    calibration, test = rows(400, scale=1.5, seed=65), rows(120, scale=1.5, seed=15)
    more = [Bias(by=0.01 * i, temperature=1.2) for i in range(1, 20)]
    alone, among = (compare(calibration, test, methods, resamples=300) for methods in ([], more))
    for rival, name in (("uncalibrated", "temperature"), ("temperature", "uncalibrated")):
        assert alone.find(name).differences[rival] == among.find(name).differences[rival]
    change = among.find("temperature").differences["uncalibrated"]["nll"]
    assert 0.05 / 21 < change.p == change.corrected_p <= 0.05
    assert among.recommended.name == alone.recommended.name == "temperature"


def test_the_planned_comparison_is_neither_corrected_nor_counted():
    found = {name: Difference(0.5, 0.4, -0.1, -0.2, -0.01, p) for name, p in (("a", 0.04), ("b", 0.02), ("c", 0.03))}
    change = apply_holm(NLL(), found, planned="a")
    assert {name: (each.corrected_p, each.side) for name, each in change.items()} == {
        "a": (0.04, "better"), "b": (0.04, "better"), "c": (0.04, "better"),
    }  # fmt: skip
    assert {each.corrected_p for each in apply_holm(NLL(), found).values()} == {0.06}


# Why nothing is recommended.


def test_one_row_marks_nobody():
    found = compare(CALIBRATION, TEST[:1], [Bias(by=3.0)], resamples=100)
    assert {change.side for entry in found.fitted for by in entry.differences.values() for change in by.values()} == {
        "alike"
    }
    assert "The test samples are too few, or too much alike" in " ".join(comparison_verdict(found).findings)


# What must hold of the two sets.


def test_accuracies_of_sets_drawn_alike_lie_less_than_four_standard_errors_apart():
    rng = np.random.default_rng(0)
    for share in (0.5, 0.9, 0.99, 0.999):
        for n, m in ((1000, 1), (1000, 5), (30, 30), (5000, 500)):
            drawn = zip(rng.binomial(n, share, 2000).tolist(), rng.binomial(m, share, 2000).tolist(), strict=True)
            assert sum(z_between(a, n, b, m) > 4 for a, b in drawn) <= 1


def test_the_separation_of_other_predictions_is_said_to_be_theirs():
    samples = rows(3000, 2, shift=3.0)
    found = compare(samples[:1500], samples[1500:], [Uncalibrated(), PlattScaling()], resamples=100)
    method = found.find("platt")
    assert method.changed > 0.01
    assert "against the uncalibrated model, whose predictions differ." in separation_words(method)[0]
    temperature = compare(samples[:1500], samples[1500:], [Uncalibrated(), TemperatureScaling()], resamples=100)
    assert "differ" not in separation_words(temperature.find("temperature"))[0]


def test_other_classes_are_refused():
    with pytest.raises(InputError, match="same classes; got 4 and 5"):
        compare(CALIBRATION, rows(50, 5), [])
    with pytest.raises(InputError, match="class 2 is 'c' in one and 'x' in the other"):
        compare(rows(50, class_names=list("abcd")), rows(50, class_names=list("abxd")), [])
    compare(rows(50, class_names=list("abcd")), rows(50, seed=1), [], resamples=100)  # names on one side only


def test_predictions_of_two_models_for_the_same_samples_are_warned_of():
    model = rows(400)
    other = Predictions.from_logits(model.logits + 0.3 * rows(400, seed=1).logits, model.labels)
    with pytest.warns(CalibrantWarning, match="the same labels in the same order: .* its baseline"):
        found = compare(model, other, [], resamples=100)
    assert len(found.cautions) == 1
    order = model.labels.argsort(stable=True)
    compare(model[order], other[order], [], resamples=100)  # many files are sorted by label
    compare(model[:8], other[:8], [], resamples=100)  # eight labels may be the same by chance


def test_samples_in_both_sets_are_warned_of():
    with pytest.warns(CalibrantWarning, match="400 of 400 test samples are also calibration samples"):
        compare(CALIBRATION, CALIBRATION, [], resamples=100)
    with pytest.warns(CalibrantWarning, match="100 of 400 test samples"):
        compare(CALIBRATION, CALIBRATION[:100] + TEST[:300], [], resamples=100)


def test_a_model_with_few_different_answers_is_not_suspected():
    rng = np.random.default_rng(0)
    first, second = (
        Predictions.from_logits(rng.integers(0, 3, (500, 2)).astype(float), rng.integers(0, 2, 500)) for _ in range(2)
    )
    assert samples_in_both(first, second) == 0


def test_a_forest_s_equal_votes_are_not_taken_for_equal_samples():
    rng = np.random.default_rng(0)

    def forest(n, trees):
        share = (rng.binomial(trees, rng.beta(0.6, 0.6, n)) + 1) / (trees + 2)
        return Predictions.from_probs(np.stack([1 - share, share], 1), rng.integers(0, 2, n))

    suspected = [samples_in_both(forest(200, trees), forest(150, trees)) > 0 for trees in (10, 30, 100, 300) * 50]
    assert sum(suspected) <= 2
    for trees in (30, 100, 300):
        samples = forest(200, trees)
        assert samples_in_both(samples, samples) > 0.01 * len(samples)


# What it looks like.


def text_of(board, width=120):
    return to_terminal(comparison_page(board), width=width, full=True).plain


def test_a_handful_of_rows_and_right_answers_only_are_survived():
    logits = 3 * torch.eye(3, dtype=torch.float64).repeat(4, 1)
    right = Predictions.from_logits(logits + 0.01 * torch.arange(12)[:, None] * torch.eye(3)[0], logits.argmax(1))
    found = compare(rows(30, 3), right, [], resamples=100)
    assert math.isnan(found.best.metrics["auroc"].value)
    for text in (text_of(found), to_markdown(comparison_page(found))):
        assert "nan" not in text
    json.dumps(comparison_page(found).data(), allow_nan=False)


def test_an_entry_beats_only_what_it_was_compared_with():
    entry = MethodResult("a", "A", differences={"uncalibrated": {"nll": CHANGE}})
    assert entry.beats("uncalibrated")
    assert not entry.beats("temperature")
    nothing = MethodResult("uncalibrated", "Nothing")
    settings = {"n_calibration": 1, "n_test": 1, "n_classes": 2, "n_bins": 15, "seed": 0, "resamples": 100}
    assert Comparison((entry, nothing), **settings).recommended is entry
    assert Uncalibrated.name == "uncalibrated"


def some(predictions, kept):
    return predictions[kept.nonzero()[:, 0]]


def test_an_answer_from_a_handful_of_calibration_samples_is_open():
    test, many = rows(2000, scale=2.5, seed=3), rows(400, scale=2.5, seed=4)
    calibrated = rows(2000, seed=3)
    for n, needed, shown in ((12, 200, "open"), (100, None, "good")):
        made = compare(many[:n], test, [], resamples=100)
        page = comparison_page(made, calibration=PurePath("c.npz"), test=PurePath("t.npz"))
        assert (made.calibration_needed, page.tone) == (needed, shown)
        assert any("Gather about 200 calibration samples" in step for step in page.verdict.next_steps) is bool(needed)
        assert bool(page.commands) is not bool(needed)
    for n, needed in ((12, 200), (150, 200), (250, None)):
        nothing = compare(rows(n, seed=5), calibrated, [], resamples=100)
        assert nothing.recommended.name == "uncalibrated"
        assert nothing.calibration_needed == needed
        words = comparison_verdict(nothing)
        assert any("could only add noise" in step for step in words.next_steps) is not bool(needed)
        assert ("Too few calibration samples" in words.headline) is bool(needed)


def test_calibration_samples_count_by_their_weights():
    calibration, test = rows(400, seed=5), rows(1000, seed=3)
    made = compare(calibration.with_weights([1000.0] * 20 + [0.01] * 380), test, [], resamples=100)
    assert made.effective_n_calibration == pytest.approx(20, rel=0.01)
    assert made.calibration_needed == 200


def test_a_class_that_only_one_of_the_two_sets_has_is_a_caution():
    first = rows(400, seed=6, class_names=("ant", "bee", "cat", "dog"))
    second = rows(400, seed=7, class_names=("ant", "bee", "cat", "dog"))
    without = some(first, first.labels != 2)
    for sets, lacking in (((without, second), "calibration"), ((second, without), "test")):
        with pytest.warns(CalibrantWarning, match=f"no {lacking} sample is of class cat"):
            made = compare(*sets, [], resamples=100)
        assert comparison_page(made).tone == "open"


def test_a_rare_class_that_one_set_lacks_by_chance_is_none():
    first, second = rows(300, k=60, seed=8), rows(10, k=60, seed=9)
    assert not compare(first, second, [], resamples=100).cautions
    assert not compare(second, first, [], resamples=100).cautions
