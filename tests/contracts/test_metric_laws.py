"""Laws that every metric keeps.

One exported by ``calibrant.metrics`` is found and tested here by itself, and so is the one that the page "Adding a
metric" teaches.
"""

import dataclasses
import inspect
import itertools
import math
import re
from functools import reduce
from operator import add
from typing import ClassVar, get_args

import numpy as np
import pytest
import torch
from extreme_data import EXTREMES
from hypothesis import given
from hypothesis import strategies as st
from markdown_blocks import classes_taught_by, taught_by
from strategies import SMOOTH_KINDS, cuts, predictions, top_labels

from calibrant import metrics as metrics_module
from calibrant.errors import InputError
from calibrant.evaluation import evaluate
from calibrant.metrics import Metric, RankedCells, RankedSamples, Tally
from calibrant.metrics.base import Family
from calibrant.metrics.states import Binned, LabelStatistic, PackedSamples, Ranked, Sums, TopStatistic, merge
from calibrant.paper import Paper
from calibrant.predictions import Predictions, TopLabel

EXPORTED = [getattr(metrics_module, name) for name in metrics_module.__all__]
CLASSES = sorted(
    (each for each in EXPORTED if inspect.isclass(each) and issubclass(each, Metric) and each is not Metric),
    key=lambda cls: cls.name,
)
PAGE = "adding-a-metric.md"
TAUGHT = classes_taught_by(PAGE, Metric)
EXACT = [cls() for cls in [*CLASSES, *TAUGHT]]
# Metrics of ranks also come with a state of bounded memory, which keeps the same laws.
BOUNDED = [
    type(metric)(ranks=RankedCells())
    for metric in EXACT
    if "ranks" in {field.name for field in dataclasses.fields(metric)}
]
ALL = EXACT + BOUNDED
TOP = [metric for metric in ALL if isinstance(metric.statistic, TopStatistic)]
FULL = [metric for metric in ALL if not isinstance(metric.statistic, TopStatistic)]

# Sums taken in another order differ in the last digits; the root of a small difference has half as many.
# The column sums behind sce are added up in float32 inside a block of float32 logits.
ABSOLUTE = {"mmce": 1e-7, "ece_l2_debiased": 1e-7, "smece": 1e-7, "sce": 1e-7}
# The same for logits rounded to float32. A kernel of width .01 multiplies an error of confidence by a hundred.
ABSOLUTE_FLOAT32 = {"mmce": 1e-3, "ece_l2_debiased": 1e-3, "sece": 1e-4, "sece_printed": 1e-3, "skce": 1e-5}

# Metrics that know how many samples there are, so that giving each sample twice changes them, and why.
DEPEND_ON_N = {
    "ace": "bins are cut at whole rows: n/15 of them, rounded",
    "aurc": "a finite sum over 'the j most confident', which more rows bring closer to its integral",
    "e_aurc": "as aurc",
    "ece_l1_debiased": "subtracts the noise of a bin's accuracy, which falls with its rows",
    "ece_l2_debiased": "subtracts the noise of a bin's accuracy, which falls with its rows",
    "kde_ece": "its width falls as n to the power -1/5",
    "sece_printed": "the printed equation sums over neighbours without dividing by them",
    "skce": "a U-statistic leaves out pairs of a row with itself, but not of a row with its double",
}
# Metrics that depend on the order of the classes, and why.
DEPEND_ON_CLASS_ORDER = {"skce": "every class has its own random frequencies, so a relabelling draws another kernel"}
# Calibration errors that may leave 0..1, and why.
SIGNED = {"skce": "unbiased, so below zero half of the time on calibrated data"}


def identify(metric):
    return metric.name + ("-cells" if getattr(metric, "ranks", RankedSamples()) == RankedCells() else "")


def each(metrics):
    return pytest.mark.parametrize("metric", metrics, ids=identify)


class Shared:
    """Examples that are drawn for the first metric and given again to the others."""

    def __init__(self, data):
        self.data, self.drawn, self.place = data, [], 0

    def draw(self, strategy):
        if self.place == len(self.drawn):
            self.drawn.append(self.data.draw(strategy))
        self.place += 1
        return self.drawn[self.place - 1]


def law(metrics):
    """Try a law on all of the metrics; those that take the same rows share examples, which take longest to draw."""
    kinds = {"top": [one for one in metrics if one in TOP], "full": [one for one in metrics if one in FULL]}
    groups = {kind: group for kind, group in kinds.items() if group}

    def decorate(check):
        def test(self, kind, data):
            shared = Shared(data)
            for metric in groups[kind]:
                shared.place = 0
                try:
                    check(self, metric, shared)
                except BaseException as error:
                    error.add_note(f"of {identify(metric)}")
                    raise

        test.__name__ = check.__name__  # Hypothesis chooses examples by it
        return pytest.mark.parametrize("kind", groups)(given(data=st.data())(test))

    return decorate


def assert_same(metric, got, expected, *, relative=1e-9, absolute=None):
    absolute = ABSOLUTE.get(metric.name, 1e-9) if absolute is None else absolute
    assert float(got) == pytest.approx(float(expected), rel=relative, abs=absolute, nan_ok=True), metric.name


def concrete(cls):
    """The classes below this one that are not abstract."""
    below = cls.__subclasses__()
    assert not (below and not inspect.isabstract(cls)), "classes are abstract or final"
    return {found for sub in below for found in concrete(sub)} if below else {cls}


def rows_for(metric):
    """What the metric takes: predictions, and top-label records if the top label is all it reads."""
    return st.one_of(predictions(), top_labels()) if isinstance(metric.statistic, TopStatistic) else predictions()


def joined(first, second):
    if isinstance(first, Predictions):
        return first + second
    return TopLabel(torch.cat([first.confidence, second.confidence]), torch.cat([first.correct, second.correct]))


class TestTheCatalogue:
    def test_every_metric_class_is_exported_and_final(self):
        everywhere = {cls for cls in concrete(Metric) if cls.__module__.startswith("calibrant.metrics.")}
        assert everywhere == set(CLASSES)
        assert TAUGHT
        assert all(getattr(cls, "__final__", False) for cls in [*CLASSES, *TAUGHT])

    def test_names_and_titles_are_unique(self):
        assert len({metric.name for metric in EXACT}) == len({metric.title for metric in EXACT}) == len(EXACT)

    @each(EXACT)
    def test_a_metric_says_what_it_is(self, metric):
        assert re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", metric.name)
        assert metric.title
        assert metric.title[0].isupper()
        assert metric.family in get_args(Family)
        assert metric.lower_is_better in {True, False, None}

    @each(EXACT)
    def test_a_metric_cites_its_paper(self, metric):
        paper = metric.paper
        assert isinstance(paper, Paper)
        assert 1900 <= paper.year <= 2026
        assert paper.authors
        assert paper.title
        assert paper.url.startswith("https://")
        assert re.match(r"@\w+\{", paper.bibtex)

    @each(EXACT)
    def test_the_docstring_tells_formula_estimator_bias_and_cost(self, metric):
        sections = re.findall(r"^ *(Formula|Estimator|Bias|Cost): *\S", type(metric).__doc__, flags=re.MULTILINE)
        assert sections == ["Formula", "Estimator", "Bias", "Cost"]

    @each(EXACT)
    def test_a_metric_is_an_immutable_and_hashable_record(self, metric):
        assert dataclasses.is_dataclass(metric)
        assert metric == type(metric)()
        assert hash(metric) == hash(type(metric)())
        assert metric.statistic == type(metric)().statistic
        with pytest.raises(dataclasses.FrozenInstanceError):
            metric.name = "other"

    def test_the_tables_of_exceptions_name_existing_metrics(self):
        names = {cls.name for cls in CLASSES}
        assert (
            set(DEPEND_ON_N) | set(DEPEND_ON_CLASS_ORDER) | set(SIGNED) | set(ABSOLUTE) | set(ABSOLUTE_FLOAT32) <= names
        )


def function_of(metric):
    return getattr(taught_by(PAGE) if type(metric) in TAUGHT else metrics_module, metric.name)


class TestThePlainFunction:
    @each(EXACT)
    def test_it_has_the_metrics_name_and_says_which_class_it_is(self, metric):
        assert metric.name in metrics_module.__all__ or type(metric) in TAUGHT
        function = function_of(metric)
        assert function.__name__ == metric.name
        assert f":class:`{type(metric).__name__}`" in function.__doc__

    @each(EXACT)
    def test_its_options_are_keywords_with_the_classes_defaults(self, metric):
        data, *options, arrays = inspect.signature(function_of(metric)).parameters.values()
        assert (data.name, data.kind) == ("predictions", inspect.Parameter.VAR_POSITIONAL)
        assert (arrays.name, arrays.kind) == ("arrays", inspect.Parameter.VAR_KEYWORD)
        fields = {field.name: field.default for field in dataclasses.fields(metric)}
        for option in options:
            assert option.kind is inspect.Parameter.KEYWORD_ONLY
            assert option.default == fields[option.name]

    @law(EXACT)
    def test_it_agrees_with_the_class(self, metric, data):
        rows = data.draw(rows_for(metric))
        function = function_of(metric)
        assert function(rows) == pytest.approx(metric(rows), abs=0, nan_ok=True)
        if "n_bins" in inspect.signature(function).parameters:
            other = dataclasses.replace(metric, n_bins=7)
            assert function(rows, n_bins=7) == pytest.approx(other(rows), abs=0, nan_ok=True)


def with_option(name):
    return [metric for metric in EXACT if name in {field.name for field in dataclasses.fields(metric)}]


class TestTheOptions:
    ROWS = Predictions.from_logits(torch.tensor([[2.0, 0.0, 1.0], [0.0, 0.5, 1.0], [1.0, 3.0, 0.0]]), [0, 1, 1])

    @each(with_option("n_bins"))
    @pytest.mark.parametrize("n_bins", [1, 2, 15, 100, 1000])
    def test_any_number_of_bins_will_do(self, metric, n_bins):
        assert math.isfinite(dataclasses.replace(metric, n_bins=n_bins)(self.ROWS))

    @each(with_option("n_bins"))
    @pytest.mark.parametrize("n_bins", [0, -3])
    def test_no_bins_are_refused(self, metric, n_bins):
        with pytest.raises(InputError, match=f"n_bins must be at least 1; got {n_bins}"):
            dataclasses.replace(metric, n_bins=n_bins)(self.ROWS)

    @each(with_option("width"))
    @pytest.mark.parametrize("width", [0.0, -0.1, math.nan])
    def test_a_kernel_without_width_is_refused(self, metric, width):
        with pytest.raises(InputError, match="width"):
            dataclasses.replace(metric, width=width)(self.ROWS)


class TestTheValue:
    @law(ALL)
    def test_it_is_a_finite_number_or_nan_where_the_docstring_says_so(self, metric, data):
        rows = data.draw(rows_for(metric))
        value = metric(rows)
        assert isinstance(value, float)
        if math.isnan(value):
            assert rows.top.accuracy in {0.0, 1.0}
            assert "NaN" in type(metric).__doc__, "a value of NaN must be announced in the docstring"
        else:
            assert math.isfinite(value)

    @law([metric for metric in ALL if metric.family == "calibration" and metric.name not in SIGNED])
    def test_a_calibration_error_lies_between_zero_and_one(self, metric, data):
        value = metric(data.draw(rows_for(metric)))
        assert -1e-9 <= value <= 1 + 1e-9

    @law([metric for metric in ALL if metric.family == "refinement"])
    def test_a_measure_of_refinement_lies_between_zero_and_one(self, metric, data):
        value = metric(data.draw(rows_for(metric)))
        assert math.isnan(value) or -1e-9 <= value <= 1 + 1e-9

    @law(ALL)
    def test_it_is_read_off_the_state_in_float64(self, metric, data):
        value = metric.value(metric.state(data.draw(rows_for(metric))))
        assert value.dtype == torch.float64
        assert value.shape == ()

    @law(ALL)
    def test_the_samples_are_left_as_they_were(self, metric, data):
        rows = data.draw(predictions())
        logits, labels = rows.logits.clone(), rows.labels.clone()
        confidence, log_odds = rows.top.confidence.clone(), rows.top.log_odds.clone()
        first = metric(rows)
        assert_same(metric, metric(rows), first, relative=0, absolute=0)
        assert torch.equal(rows.logits, logits)
        assert torch.equal(rows.labels, labels)
        assert torch.equal(rows.top.confidence, confidence)
        assert torch.equal(rows.top.log_odds, log_odds)

    @each([metric for metric in FULL if metric in EXACT])
    def test_a_metric_of_all_classes_refuses_top_labels_and_says_why(self, metric):
        with pytest.raises(InputError, match=r"needs the probability of every class.*ask for a top-label metric"):
            metric(TopLabel([0.9, 0.4], [True, False]))

    @law(TOP)
    def test_a_metric_of_the_top_label_takes_either_record(self, metric, data):
        rows = data.draw(predictions())
        assert_same(metric, metric(rows.top), metric(rows), relative=0, absolute=0)


class TestExtremeNumbers:
    """Numbers from the smallest to the largest of each type: a value, or an error of this library's own."""

    @staticmethod
    def predictions_of(extreme):
        try:
            return extreme.predictions()
        except InputError:
            return None

    def test_only_differences_that_no_float_can_hold_are_refused(self):
        refused = {name for name, extreme in EXTREMES.items() if self.predictions_of(extreme) is None}
        assert all("largest" in name or "every size" in name for name in refused)
        assert not any("float16" in name.split() for name in refused)
        assert "float32 k=2 all at a quarter of the largest" not in refused

    @each(ALL)
    def test_every_metric_has_a_value(self, metric):
        for name, extreme in EXTREMES.items():
            rows = self.predictions_of(extreme)
            if rows is None:
                continue
            value = metric(rows)
            assert math.isfinite(value) or (math.isnan(value) and rows.top.accuracy in {0.0, 1.0}), name

    # Halves are worked out in float32: of the two classes that are tried in that, they have nothing new.
    @pytest.mark.parametrize("extreme", [each for name, each in EXTREMES.items() if "float16 k=2" not in name], ids=str)
    def test_everything_about_them_is_evaluated(self, extreme):
        rows = self.predictions_of(extreme)
        if rows is None:
            return
        found = evaluate(rows, resamples=20)
        assert found.metrics["nll"].value == pytest.approx(metrics_module.nll(rows), rel=1e-5)
        for split in found.splits.values():
            assert all(math.isfinite(part) for part in split)


class TestEdgeCases:
    """Samples at the edge of what is allowed give finite numbers, or NaN if all predictions are right or all wrong."""

    LOGITS = np.array([[2.0, 0.0, -1.0], [0.5, 1.5, 0.0], [0.0, 0.0, 3.0]])
    CASES = (
        Predictions.from_logits([[2.0, 0.0, 1.0]], [0]),
        Predictions.from_logits([[2.0, 0.0, 1.0]], [1]),
        Predictions.from_logits(LOGITS, LOGITS.argmax(1)),
        Predictions.from_logits(LOGITS, (LOGITS.argmax(1) + 1) % 3),
        Predictions.from_logits(np.zeros((6, 3)), [0, 1, 2, 0, 1, 2]),
        Predictions.from_logits(np.array([[1e4, -1e4, 0.0], [-1e4, 1e4, 1e4]]), [0, 2]),
        Predictions.from_logits(torch.tensor([[1e4, -1e4, 0.0], [-1e4, -1e4, 1e4]]), [0, 0]),
        Predictions.from_logits(torch.tensor([[65504.0, -65504.0]] * 2).half(), [0, 1]),
        Predictions.from_probs([[1.0, 0.0], [0.0, 1.0]], [0, 1]),
        Predictions.from_logits(np.eye(4), [0, 0, 1, 1]),
    )
    TOP_CASES = (
        TopLabel([0.0, 1.0, 0.0, 1.0], [True, True, False, False]),
        TopLabel([1.0, 1.0], [True, True]),
        TopLabel([1.0, 1.0], [False, False]),
        TopLabel([0.0], [True]),
    )
    NEED_BOTH = frozenset({"auroc", "aupr_success", "aupr_error", "fpr95"})

    @each(ALL)
    def test_every_metric_has_a_value(self, metric):
        for rows in (*self.CASES, *(self.TOP_CASES if metric in TOP else ())):
            value = metric(rows)
            if metric.name in self.NEED_BOTH and rows.top.accuracy in {0.0, 1.0}:
                assert math.isnan(value) or 0 <= value <= 1
            else:
                assert math.isfinite(value)


class TestAdditivity:
    @law(ALL)
    def test_the_states_of_two_parts_add_up_to_the_state_of_the_whole(self, metric, data):
        whole = data.draw(rows_for(metric))
        ends = data.draw(cuts(len(whole)))
        parts = [whole[low:high] for low, high in itertools.pairwise(ends)]
        states = [metric.state(part) for part in parts]
        assert_same(metric, metric.value(reduce(add, states)), metric(whole))
        assert_same(metric, metric.value(merge(states)), metric(whole))

    @law(ALL)
    def test_it_holds_for_samples_joined_by_plus(self, metric, data):
        rows = data.draw(predictions(min_rows=2))
        half = len(rows) // 2
        first, second = rows[:half], rows[half:]
        assert_same(metric, metric.value(metric.state(first) + metric.state(second)), metric(first + second))

    @law(ALL)
    def test_it_holds_for_parts_of_different_precision(self, metric, data):
        # No repeated samples: a float32 sample and its float64 double differ in their last digits, and so do not tie.
        rows = data.draw(predictions(min_rows=2, kinds=("spread", "confident"), dtypes=(torch.float32,)))
        half = len(rows) // 2
        second = Predictions.from_logits(rows[half:].logits.double(), rows[half:].labels)
        together = metric.value(metric.state(rows[:half]) + metric.state(second))
        assert_same(metric, together, metric(rows), relative=1e-5, absolute=ABSOLUTE_FLOAT32.get(metric.name, 1e-5))

    @law(ALL)
    def test_a_tally_of_batches_gives_the_value_of_the_whole(self, metric, data):
        whole = data.draw(rows_for(metric))
        ends = data.draw(cuts(len(whole)))
        tally = Tally([metric])
        for low, high in itertools.pairwise(ends):
            tally = tally.add(whole[low:high])
        assert_same(metric, tally.values()[metric.name], metric(whole))

    @pytest.mark.parametrize("together", [EXACT, BOUNDED + FULL], ids=["exact ranks", "bounded ranks"])
    @given(data=st.data())
    def test_a_tally_of_all_metrics_gives_each_what_it_gives_alone(self, together, data):
        whole = data.draw(predictions())
        ends = data.draw(cuts(len(whole)))
        tally = Tally(together)
        for low, high in itertools.pairwise(ends):
            tally = tally.add(whole[low:high])
        values = tally.values()
        # Beside exact ranks the confidence is read off the log-odds, which costs its last digits.
        loose = whole.logits.dtype == torch.float32
        for metric in together:
            absolute = ABSOLUTE_FLOAT32.get(metric.name, 1e-6) if loose else None
            assert_same(metric, values[metric.name], metric(whole), relative=1e-5 if loose else 1e-9, absolute=absolute)

    @given(rows=top_labels(), data=st.data())
    def test_a_tally_takes_top_labels(self, rows, data):
        ends = data.draw(cuts(len(rows)))
        together = [metric for metric in TOP if metric in EXACT]
        tally = Tally(together)
        for low, high in itertools.pairwise(ends):
            tally = tally.add(rows[low:high])
        values = tally.values()
        for metric in together:
            assert_same(metric, values[metric.name], metric(rows))


class TestInvariance:
    @law(ALL)
    def test_the_order_of_the_samples_does_not_matter(self, metric, data):
        rows = data.draw(rows_for(metric))
        seed = data.draw(st.integers(0, 1000))
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
        assert_same(metric, metric(rows[order]), metric(rows))

    @law([metric for metric in ALL if metric.name not in DEPEND_ON_N])
    def test_giving_every_sample_twice_does_not_matter(self, metric, data):
        rows = data.draw(rows_for(metric))
        assert_same(metric, metric(joined(rows, rows)), metric(rows))

    @each([metric for metric in EXACT if metric.name in DEPEND_ON_N])
    def test_metrics_excused_from_the_law_of_doubled_samples_need_the_excuse(self, metric):
        rng = np.random.default_rng(0)
        rows = Predictions.from_logits(rng.normal(0, 2, (20, 3)), rng.integers(0, 3, 20))
        assert metric(rows + rows) != pytest.approx(metric(rows), rel=1e-3), DEPEND_ON_N[metric.name]

    def test_ace_keeps_the_law_of_doubled_samples_where_the_bins_divide_the_samples(self):
        rng = np.random.default_rng(0)
        rows = TopLabel(rng.random(45), rng.random(45) < 0.5)
        assert metrics_module.ace(joined(rows, rows)) == pytest.approx(metrics_module.ace(rows))

    @law(ALL)
    def test_logits_in_float32_and_float64_agree(self, metric, data):
        single = data.draw(predictions(kinds=SMOOTH_KINDS, dtypes=(torch.float32,)))
        double = Predictions.from_logits(single.logits.double(), single.labels)
        absolute = ABSOLUTE_FLOAT32.get(metric.name, 2e-6)
        assert_same(metric, metric(single), metric(double), relative=1e-5, absolute=absolute)

    @law([metric for metric in ALL if metric.name not in DEPEND_ON_CLASS_ORDER])
    def test_relabelling_the_classes_does_not_matter(self, metric, data):
        # Ties for the largest logit are left out: the first class wins them, so they do depend on the order.
        rows = data.draw(predictions(kinds=SMOOTH_KINDS))
        seed = data.draw(st.integers(0, 1000))
        old_class = torch.randperm(rows.n_classes, generator=torch.Generator().manual_seed(seed))
        relabelled = Predictions.from_logits(rows.logits[:, old_class], old_class.argsort()[rows.labels])
        loose = rows.logits.dtype == torch.float32
        absolute = ABSOLUTE_FLOAT32.get(metric.name, 1e-6) if loose else None
        assert_same(metric, metric(relabelled), metric(rows), relative=1e-5 if loose else 1e-9, absolute=absolute)

    @each([metric for metric in EXACT if metric.name in DEPEND_ON_CLASS_ORDER])
    def test_metrics_excused_from_the_law_of_relabelling_need_the_excuse(self, metric):
        rng = np.random.default_rng(0)
        logits, labels = rng.normal(0, 2, (200, 3)), rng.integers(0, 3, 200)
        mirrored = Predictions.from_logits(logits[:, ::-1].copy(), 2 - labels)
        assert metric(mirrored) != pytest.approx(metric(Predictions.from_logits(logits, labels)), rel=1e-6)

    @law(ALL)
    def test_adding_a_constant_to_a_row_of_logits_does_not_matter(self, metric, data):
        rows = data.draw(predictions(kinds=SMOOTH_KINDS, dtypes=(torch.float64,)))
        shifts = torch.arange(len(rows), dtype=torch.float64)[:, None] % 7 - 3
        shifted = Predictions.from_logits(rows.logits + shifts, rows.labels)
        absolute = {"sece": 1e-7, "sece_printed": 1e-7, "smece": 1e-7}.get(metric.name, 1e-7)
        # Rounding may split samples that tie: the ranking of repeated samples is left to the law of relabelling.
        if len(rows.top.log_odds.unique()) == len(rows):
            assert_same(metric, metric(shifted), metric(rows), relative=1e-7, absolute=absolute)

    @law([metric for metric in TOP if getattr(metric, "ranks", None) == RankedSamples()])
    def test_numbers_made_of_ranks_have_the_same_bits_in_any_order(self, metric, data):
        rows = data.draw(rows_for(metric))
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(data.draw(st.integers(0, 1000))))
        assert_same(metric, metric(rows[order]), metric(rows), relative=0, absolute=0)

    @given(rows=st.one_of(predictions(max_rows=120), top_labels(max_rows=120)), seed=st.integers(0, 1000))
    def test_any_permutation_gives_the_same_report(self, rows, seed):
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
        first, second = (evaluate(each, resamples=20) for each in (rows, rows[order]))
        assert repr(first) == repr(second)  # to the last digit; NaN is equal to itself in words


def with_weights(rows, weights):
    if isinstance(rows, TopLabel):
        return TopLabel(rows.confidence, rows.correct, rows.log_odds, weights)
    return Predictions.from_logits(rows.logits, rows.labels, weights=weights)


@st.composite
def whole_weights(draw, n):
    """Weights from 0 to 3, not all of them 0."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    weights = rng.integers(0, 4, n)
    weights[rng.integers(n)] += 1
    return torch.from_numpy(weights)


class TestWeights:
    """A sample of weight w counts as w samples, and only the ratios of weights matter.

    Both cannot hold for a metric that depends on the number of samples itself: that is then the effective number.
    """

    # The root of a sum that cancels has half the digits; a search for a width ends at 1e-7 of it.
    LOOSE: ClassVar = {"mmce": 1e-7, "ece_l2_debiased": 1e-7, "smece": 1e-7}

    def assert_equal(self, metric, got, expected, rows, tolerance=1e-12):
        if isinstance(rows, Predictions) and rows.logits.dtype == torch.float32:
            tolerance = 1e-6  # sums of float32 numbers are taken in another precision
        absolute = max(tolerance, self.LOOSE.get(metric.name, 0.0))
        assert_same(metric, got, expected, relative=tolerance, absolute=absolute)

    @law([metric for metric in ALL if metric.name not in DEPEND_ON_N])
    def test_whole_weights_equal_repetition(self, metric, data):
        rows = data.draw(rows_for(metric))
        weights = data.draw(whole_weights(len(rows)))
        repeated = rows[torch.arange(len(rows)).repeat_interleave(weights)]
        self.assert_equal(metric, metric(with_weights(rows, weights)), metric(repeated), rows)

    @each([metric for metric in EXACT if metric.name in DEPEND_ON_N and metric.name != "sece_printed"])
    def test_other_metrics_come_close_to_repetition_of_many_samples(self, metric):
        rng = np.random.default_rng(0)
        logits, labels, weights = rng.normal(0, 2, (4000, 3)), rng.integers(0, 3, 4000), rng.integers(0, 3, 4000)
        rows, repeated = (Predictions.from_logits(logits, labels), np.repeat(np.arange(4000), weights))
        value = metric(with_weights(rows, weights))
        assert value == pytest.approx(metric(rows[torch.from_numpy(repeated)]), rel=0.01)

    @law(ALL)
    def test_only_their_ratios_matter_and_weights_of_zero_count_nothing(self, metric, data):
        rows = data.draw(rows_for(metric))
        weights = data.draw(whole_weights(len(rows))).double() ** 1.5
        value = metric(with_weights(rows, weights))
        scaled = metric(with_weights(rows, data.draw(st.sampled_from([0.1, 3.0, 1e-9, 1e12])) * weights))
        self.assert_equal(metric, scaled, value, rows, 1e-9)
        self.assert_equal(metric, value, metric(with_weights(rows, weights)[weights > 0]), rows)
        ones = metric(with_weights(rows, np.ones(len(rows))))
        assert_same(metric, ones, metric(rows), relative=1e-15, absolute=1e-15)

    @law(ALL)
    def test_a_tally_of_batches_gives_the_value_of_the_whole(self, metric, data):
        rows = data.draw(rows_for(metric))
        weights = data.draw(whole_weights(len(rows))).double() ** 1.5
        first, *others = itertools.pairwise(data.draw(cuts(len(rows))))
        weights[slice(*first)] = 1  # a batch without weights has weights of one
        tally = Tally([metric]).add(rows[slice(*first)])
        for low, high in others:
            tally = tally.add(with_weights(rows, weights)[low:high])
        value = metric(with_weights(rows, weights))
        self.assert_equal(metric, tally.values()[metric.name], value, rows, 1e-9)

    @law([metric for metric in FULL if metric in EXACT])
    def test_groups_and_other_labels_are_counted_by_weight(self, metric, data):
        rows = data.draw(predictions(min_rows=3, dtypes=(torch.float64,)))
        rows = with_weights(rows, np.random.default_rng(len(rows)).lognormal(0, 1, len(rows)))
        group = torch.arange(len(rows)) % 3
        for number, value in enumerate(metric.value(metric.statistic.by_group(rows, group))):
            assert_same(metric, value, metric(rows[group == number]))
        if isinstance(metric.statistic, LabelStatistic):
            labels = (rows.labels[None] + torch.arange(2)[:, None]) % rows.n_classes
            for value, row in zip(metric.value(metric.statistic.states_for_labels(rows, labels)), labels, strict=True):
                other = Predictions.from_logits(rows.logits, row, weights=rows.weights)
                assert_same(metric, value, metric(other), absolute=1e-7)

    def test_a_statistic_that_does_not_count_them_refuses_them(self, monkeypatch):
        monkeypatch.setattr(Binned, "takes_weights", False)
        with pytest.raises(InputError, match="must be given samples without weights"):
            metrics_module.ece(TopLabel([0.9, 0.4], [True, False], weights=[1, 2]))


class TestStatesSideBySide:
    """Fields of a state may carry leading dimensions, one state a resample: the bootstrap rests on it."""

    @law(ALL)
    def test_sums_put_side_by_side_are_read_one_by_one(self, metric, data):
        rows = data.draw(predictions(min_rows=3))
        states = [metric.state(rows[start::3]) for start in range(3)]
        if not isinstance(states[0], Sums):
            return  # exact ranks have no sums: they are resampled as ranked answers, below
        values = metric.value(type(states[0]).stack(states))
        assert values.shape == (3,)
        for value, state in zip(values, states, strict=True):
            assert_same(metric, value, metric.value(state))

    @law(ALL)
    def test_weighted_sums_are_those_of_repeated_samples(self, metric, data):
        rows = data.draw(predictions(min_rows=3))
        parts = [rows[start::3] for start in range(3)]
        states = [metric.state(part) for part in parts]
        if not isinstance(states[0], Sums):
            return
        weights = torch.tensor([[1.0, 0.0, 2.0], [1.0, 1.0, 1.0]], dtype=torch.float64)
        values = metric.value(type(states[0]).stack(states).reweighted(weights))
        assert_same(metric, values[0], metric(parts[0] + parts[2] + parts[2]))
        assert_same(metric, values[1], metric(rows))

    @law([metric for metric in FULL if metric in EXACT])
    def test_groups_of_samples_have_the_states_of_their_samples(self, metric, data):
        rows = data.draw(predictions(min_rows=3))
        group = torch.arange(len(rows)) % 3
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
        group = group[order]
        values = metric.value(metric.statistic.by_group(rows, group))
        assert values.shape == (3,)
        absolute = max(1e-7, ABSOLUTE.get(metric.name, 0)) if rows.logits.dtype == torch.float32 else None
        for number, value in enumerate(values):
            assert_same(metric, value, metric(rows[group == number]), absolute=absolute)

    @law([metric for metric in TOP if metric in EXACT])
    def test_ranked_predictions_give_the_value_of_the_samples(self, metric, data):
        rows = data.draw(st.one_of(predictions(dtypes=(torch.float64,)), top_labels())).top
        ranked = PackedSamples.gather(rows.log_odds, rows.correct).ranked
        assert_same(metric, metric.value(metric.statistic.of_ranked(ranked)), metric(rows))

    @law(TOP)
    def test_resampled_ranked_answers_are_read_one_by_one(self, metric, data):
        rows = data.draw(st.one_of(predictions(), top_labels())).top
        ranked = PackedSamples.gather(rows.log_odds, rows.correct).ranked
        rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
        drawn = torch.from_numpy(self.resampled(rng, ranked, (2, 2))).double()
        right, wrong = drawn.chunk(2, dim=-1)
        values = metric.value(metric.statistic.of_ranked(Ranked(ranked.log_odds, ranked.confidence, right, wrong)))
        assert values.shape == (2, 2)
        for place in np.ndindex(2, 2):
            one = Ranked(ranked.log_odds, ranked.confidence, right[place], wrong[place])
            assert_same(metric, values[place], metric.value(metric.statistic.of_ranked(one)))

    @law([metric for metric in TOP if metric in EXACT])
    def test_a_resample_is_worth_its_rows_written_out(self, metric, data):
        rows = data.draw(top_labels())
        ranked = PackedSamples.gather(rows.log_odds, rows.correct).ranked
        rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
        right, wrong = self.resampled(rng, ranked, ()).reshape(2, -1)
        value = metric.value(
            metric.statistic.of_ranked(
                Ranked(ranked.log_odds, ranked.confidence, torch.tensor(right).double(), torch.tensor(wrong).double())
            )
        )
        times = np.concatenate([right, wrong])
        confidence, log_odds = (np.repeat(np.tile(t.numpy(), 2), times) for t in (ranked.confidence, ranked.log_odds))
        written_out = TopLabel(confidence, np.repeat([True, False], [right.sum(), wrong.sum()]), log_odds)
        assert_same(metric, value, metric(written_out))

    @staticmethod
    def resampled(rng, ranked, shape):
        counts = torch.cat([ranked.right, ranked.wrong]).double().numpy()
        return rng.multinomial(round(counts.sum()), counts / counts.sum(), size=shape)

    @law([metric for metric in FULL if isinstance(metric.statistic, LabelStatistic)])
    def test_other_labels_give_the_states_of_samples_with_those_labels(self, metric, data):
        rows = data.draw(predictions())
        rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
        labels = torch.from_numpy(rng.integers(0, rows.n_classes, (3, len(rows))))
        values = metric.value(metric.statistic.states_for_labels(rows, labels))
        assert values.shape == (3,)
        for value, row in zip(values, labels, strict=True):
            assert_same(metric, value, metric(Predictions.from_logits(rows.logits, row)), absolute=1e-7)
