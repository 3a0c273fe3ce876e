"""Laws that every calibrator keeps.

One exported by ``calibrant.calibrators`` is found and tested here by itself, and so is the one that the page "Adding a
calibrator" teaches.
"""

import copy
import dataclasses
import functools
import inspect
import itertools
import math
import re
import warnings
from typing import get_args

import numpy as np
import pytest
import torch
from extreme_data import EXTREMES
from map_examples import program_of
from markdown_blocks import classes_taught_by
from torch import nn

from calibrant import calibrators as calibrators_module
from calibrant.calibrators import Calibrator, Chain, TemperatureScaling
from calibrant.calibrators.base import CalibratorFamily
from calibrant.errors import CalibrantWarning, FitError, InputError
from calibrant.paper import Paper
from calibrant.predictions import Predictions
from calibrant.testing import check_calibrator, hard_logits, overconfident

EXPORTED = [getattr(calibrators_module, name) for name in calibrators_module.__all__]
CLASSES = sorted(
    (
        each
        for each in EXPORTED
        if inspect.isclass(each) and issubclass(each, Calibrator) and not inspect.isabstract(each)
    ),
    key=lambda cls: cls.name,
)
TAUGHT = [cls() for cls in classes_taught_by("adding-a-calibrator.md", Calibrator)]
ALL = [*(cls() for cls in CLASSES if cls is not Chain), Chain((TemperatureScaling(), TemperatureScaling())), *TAUGHT]

# Methods that deal samples out at random, so that their order matters.
DEPEND_ON_ROW_ORDER = {
    "auto": "folds are dealt by position",
    "dirichlet_odir": "folds are dealt by position",
    "ms_odir": "folds are dealt by position",
    "scaling_binning": "its three parts are dealt by position",
    "scaling_binning_marginal": "its three parts are dealt by position",
}
# Methods that fit many maps to give one.
SLOW = {"auto", "dirichlet_odir", "ms_odir"}
# Methods that treat classes differently by their number.
DEPEND_ON_CLASS_ORDER = {"order_preserving": "its network has its own random weights for every class"}

# Methods that multiply by a matrix: BLAS chooses its order of additions by the shape, so that the last digits of a
# sample depend on how many stand beside it.
MULTIPLY_BY_A_MATRIX = {"auto", "dirichlet_odir", "matrix", "ms_odir", "order_invariant", "order_preserving", "sms"}

# Methods that say nothing of a class without calibration samples, because they know no class by itself.
TREAT_CLASSES_ALIKE = {
    "uncalibrated": "learns nothing",
    "temperature": "one number for all classes",
    "ets": "four numbers for all classes",
    "chain": "of two temperatures, here",
    "diagonal": "one function for all classes",
    "order_invariant": "sees sorted logits, not which class is which",
    "irm": "one rising function for all classes",
    "imax": "one histogram of all classes, unless classwise",
    "histogram": "of the top label only",
    "isotonic": "of the top label only",
    "bbq": "of the top label only",
    "scaling_binning": "of the top label only",
    "spline": "of the top label only",
    "uniform_mixing": "one number for all classes",
}


def each_of(some):
    return pytest.mark.parametrize("calibrator", some, ids=lambda calibrator: calibrator.name)


each_calibrator = each_of(ALL)
each_size = pytest.mark.parametrize("k", [2, 5])


@functools.cache
def fitted(calibrator, k, n=400, dtype=torch.float64):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrantWarning)
        return calibrator.fit(overconfident(n, k, dtype=dtype))


@functools.cache
def first_of_their_program():
    """Names and numbers of classes: of methods whose maps differ in their numbers alone the first stands for all."""
    firsts = {}
    for k, calibrator in itertools.product((5, 2), ALL):
        firsts.setdefault(program_of(fitted(calibrator, k)), (calibrator.name, k))
    return set(firsts.values())


def hard_rows(k, dtype=torch.float64):
    return hard_logits(k).to(dtype)


def assert_probabilities(logits):
    assert torch.isfinite(logits).all()
    probs = logits.double().softmax(dim=-1)
    assert torch.allclose(probs.sum(dim=-1), torch.ones((), dtype=torch.float64))


def awkward():
    """Calibration samples that make fits fail elsewhere, by what is wrong with them."""
    rows = overconfident(300, 5, seed=4)
    absent = rows.labels != 3
    generator = torch.Generator().manual_seed(2)
    hot = torch.nn.functional.one_hot(torch.randint(0, 5, (300,), generator=generator), 5).double()
    few_levels = torch.tensor([[0.6, 0.1, 0.1, 0.1, 0.1], [0.2, 0.2, 0.2, 0.2, 0.2], [0.1, 0.1, 0.1, 0.1, 0.6]])
    return {
        "ten rows": rows[:10],
        "one row": rows[:1],
        "a class without rows": rows[absent],
        "every prediction right": Predictions.from_logits(rows.logits, rows.predicted),
        "every prediction wrong": Predictions.from_logits(rows.logits, (rows.predicted + 1) % 5),
        "labels at random": Predictions.from_logits(rows.logits, torch.randint(0, 5, (300,), generator=generator)),
        "one class only": Predictions.from_logits(rows.logits, torch.zeros(300, dtype=torch.int64)),
        "equal logits": Predictions.from_logits(torch.zeros(300, 5), rows.labels),
        "saturated logits": Predictions.from_logits(1e4 * rows.logits, rows.labels),
        "three levels": Predictions.from_probs(few_levels.repeat(100, 1), rows.labels),
        "one-hot probabilities": _one_hot(hot, rows.labels),
    }


def _one_hot(probs, labels):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrantWarning)
        return Predictions.from_probs(probs, labels)


AWKWARD = awkward()


@functools.cache
def fit_or_reason(calibrator, rows):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrantWarning)
        try:
            return calibrator.fit(rows), None
        except (FitError, InputError) as error:
            return None, str(error)


class TestFacts:
    def test_there_are_calibrators(self):
        assert len(ALL) > 3
        assert TAUGHT

    @each_calibrator
    def test_each_says_what_it_is(self, calibrator):
        assert re.fullmatch(r"[a-z][a-z0-9_]*", calibrator.name)
        assert calibrator.title
        assert calibrator.family in get_args(CalibratorFamily)
        assert isinstance(calibrator.paper, Paper)
        assert isinstance(calibrator.preserves_accuracy, bool)
        assert isinstance(calibrator.preserves_ranking, bool)

    @each_calibrator
    def test_each_documents_its_formula_and_the_samples_it_needs(self, calibrator):
        text = inspect.cleandoc(type(calibrator).__doc__)
        assert re.search(r"^Formula: \S", text, flags=re.MULTILINE)
        assert re.search(r"^Samples: \S", text, flags=re.MULTILINE)

    @each_calibrator
    def test_each_is_a_frozen_record_of_its_options(self, calibrator):
        assert dataclasses.is_dataclass(calibrator)
        assert type(calibrator).__dataclass_params__.frozen
        assert calibrator == dataclasses.replace(calibrator)
        assert getattr(type(calibrator), "__final__", False), "classes are abstract or final"

    @each_calibrator
    def test_options_are_checked_and_numbers_of_numpy_become_those_of_python(self, calibrator):
        kinds = {int: np.int64, float: np.float32}
        for option in dataclasses.fields(calibrator):
            value = getattr(calibrator, option.name)
            if type(value) in kinds:
                again = dataclasses.replace(calibrator, **{option.name: kinds[type(value)](value)})
                assert type(getattr(again, option.name)) is type(value)
                with pytest.raises(InputError, match=f"{option.name} must be"):
                    dataclasses.replace(calibrator, **{option.name: "many"})

    def test_names_are_unique(self):
        assert len({calibrator.name for calibrator in ALL}) == len(ALL)


@each_calibrator
def test_the_laws_for_plugins_hold(calibrator):
    check_calibrator(calibrator, n=150)


class TestMaps:
    @each_size
    @each_calibrator
    def test_it_takes_one_sample_a_batch_and_batches_of_batches(self, calibrator, k):
        made, logits = fitted(calibrator, k), hard_rows(k)[:12]
        batch = made(logits)
        one_by_one = torch.stack([made(row) for row in logits])
        assert torch.allclose(one_by_one, batch, rtol=1e-9, atol=1e-9)
        assert torch.allclose(made(logits.view(3, 4, k)), batch.view(3, 4, k), rtol=1e-9, atol=1e-9)

    @each_calibrator
    def test_float32_logits_give_nearly_what_float64_ones_do(self, calibrator):
        made, logits = fitted(calibrator, 5), hard_rows(5)[:200]
        exact, rounded = made(logits).softmax(1), made(logits.float()).double().softmax(1)
        # A sample within rounding of the edge of a step may fall on its other side.
        off = ((exact - rounded).abs().amax(dim=1) > 1e-4).double().mean()
        assert off <= 0.01

    @each_calibrator
    def test_other_class_counts_are_refused(self, calibrator):
        with pytest.raises(InputError, match="fitted for 5 classes; got logits of 4"):
            fitted(calibrator, 5)(torch.zeros(3, 4))

    @each_size
    @each_calibrator
    def test_its_state_says_all_that_was_learned(self, calibrator, k):
        made, logits = fitted(calibrator, k), hard_rows(k)
        other = copy.deepcopy(made)
        for buffer in other.buffers():
            buffer.zero_()
        other.load_state_dict(made.state_dict())
        assert torch.equal(other(logits), made(logits))
        assert not list(made.parameters()), "what was fitted is not trained further by accident"

    @pytest.mark.parametrize("cast", [nn.Module.bfloat16, nn.Module.half])
    @each_calibrator
    def test_casting_the_whole_model_to_half_precision_leaves_what_was_learned(self, calibrator, cast):
        made, logits = fitted(calibrator, 5), hard_rows(5)
        model = cast(nn.Sequential(nn.Linear(5, 5), copy.deepcopy(made)))
        assert model[0].weight.element_size() == 2
        assert torch.equal(model[1](logits), made(logits))

    @each_calibrator
    def test_whole_numbers_give_what_the_same_floats_do(self, calibrator):
        made, logits = fitted(calibrator, 5), hard_rows(5)[:50].round().long()
        assert torch.equal(made(logits), made(logits.float()))

    @each_size
    @each_calibrator
    def test_it_takes_logits_in_any_layout_in_memory(self, calibrator, k):
        made, logits = fitted(calibrator, k), hard_rows(k, torch.float32)
        by_class = logits.T.contiguous().T
        assert torch.allclose(made(by_class), made(logits), rtol=1e-5, atol=1e-5)

    @each_calibrator
    def test_autocast_takes_no_digits(self, calibrator):
        made, logits = fitted(calibrator, 5), hard_rows(5, torch.float32)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            result = made(logits)
        assert torch.equal(result, made(logits))

    @each_calibrator
    def test_it_runs_in_single_precision(self, calibrator):
        made, logits = copy.deepcopy(fitted(calibrator, 5)).float(), hard_rows(5, torch.float32)
        assert all(buffer.dtype != torch.float64 for buffer in made.buffers())
        assert_probabilities(made(logits))

    @each_size
    @each_calibrator
    def test_it_can_be_exported_for_any_number_of_samples(self, calibrator, k):
        if (calibrator.name, k) not in first_of_their_program():
            return
        made, logits = fitted(calibrator, k), hard_rows(k, torch.float32)
        program = torch.export.export(made, (logits,), dynamic_shapes=({0: torch.export.Dim("rows", min=2)},))
        assert torch.allclose(program.module()(logits[:7]), made(logits[:7]), rtol=1e-5, atol=1e-5)

    @each_calibrator
    def test_it_can_be_captured_as_one_graph(self, calibrator):
        if (calibrator.name, 5) not in first_of_their_program():
            return
        torch.compiler.reset()
        made, logits = fitted(calibrator, 5), hard_rows(5, torch.float32)
        captured = torch.compile(made, backend="eager", fullgraph=True)
        assert torch.allclose(captured(logits), made(logits), rtol=1e-5, atol=1e-5)

    @pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning", "ignore::torch.jit.TracerWarning")
    # Under vmap torch says of its own operations that they are slower.
    @pytest.mark.filterwarnings("ignore:There is a performance:UserWarning", "ignore:torch.searchsorted:UserWarning")
    @each_calibrator
    def test_it_runs_under_vmap_and_a_trace_of_some_samples_serves_others(self, calibrator):
        made, logits = fitted(calibrator, 5), hard_rows(5, torch.float32)
        confident, others = logits[:1].abs() * torch.tensor([100.0, 1, 1, 1, 1]), made(logits)
        traced = torch.jit.trace(made, (confident,), check_trace=False)
        for result in (torch.func.vmap(made)(logits), traced(logits)):
            assert torch.allclose(result, others, rtol=1e-5, atol=1e-5)

    @each_calibrator
    def test_a_fit_under_inference_mode_gives_a_map_that_gradients_pass(self, calibrator):
        rows = overconfident(400, 5)
        with torch.inference_mode(), warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrantWarning)
            made = calibrator.fit(Predictions.from_logits(rows.logits.clone(), rows.labels))
        logits = hard_rows(5).requires_grad_()
        assert torch.allclose(made(logits), fitted(calibrator, 5)(logits), rtol=1e-9, atol=1e-9)
        made.load_state_dict(fitted(calibrator, 5).state_dict())


@functools.cache
def fits_that_tempt(k, dtype):
    """Calibration samples after which rounding can change a prediction, by why."""
    rows = overconfident(300, k, dtype=dtype)
    offset = 1e6 if torch.finfo(dtype).eps < 1e-6 else 1e3
    # Two classes share all of the mass, and the predicted one is right in exactly half of the samples.
    level = torch.tensor([[0.0, 0.1] + [-30.0] * (k - 2)] * 14 + [[0.0, 3.0] + [-30.0] * (k - 2)] * 20, dtype=dtype)
    return {
        "plain": rows,
        "a large number added to all logits": Predictions.from_logits(rows.logits + offset, rows.labels),
        "even odds": Predictions.from_logits(level, [1, 0] * 7 + [1] * 19 + [0]),
    }


@functools.cache
def rows_that_tie(k, dtype):
    """Samples whose largest logit is hardly ahead, or is hardly a number."""
    generator, limits = torch.Generator().manual_seed(6), torch.finfo(dtype)
    offset = 1e6 if limits.eps < 1e-6 else 1e3
    plain = torch.randn(100, k, generator=generator, dtype=torch.float64)
    near = torch.full((50, k), 1.7, dtype=dtype)
    near[torch.arange(50), torch.randint(0, k, (50,), generator=generator)] += 2 * limits.eps
    level = torch.full((40, k), -30.0, dtype=dtype)
    level[:, 0], level[:, 1] = 0, torch.linspace(0, 0.2, 40, dtype=dtype)
    huge, tiny = plain.clamp(-1, 1).to(dtype) * limits.max, plain.to(dtype) * limits.smallest_normal
    close = [(plain + offset).to(dtype), (0.01 * plain).to(dtype)]
    return torch.cat([hard_rows(k).clamp(-6e4, 6e4).to(dtype), *close, near, level, huge, tiny])


class TestPromises:
    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
    @pytest.mark.parametrize("k", [2, 3, 10])
    @each_of([calibrator for calibrator in ALL if calibrator.preserves_accuracy])
    def test_predictions_stay_where_that_is_promised(self, calibrator, k, dtype):
        for case, rows in fits_that_tempt(k, dtype).items():
            made = fit_or_reason(calibrator, rows)[0]
            assert made.keeps_predicted
            for logits in (rows.logits, rows_that_tie(k, dtype)):
                result = made(logits)
                assert torch.isfinite(result).all(), case
                assert torch.equal(result.argmax(1), logits.argmax(1)), case

    @each_of([calibrator for calibrator in ALL if calibrator.preserves_accuracy])
    def test_predictions_stay_after_a_fit_on_awkward_samples_too(self, calibrator):
        for case, rows in AWKWARD.items():
            made, _ = fit_or_reason(calibrator, rows)
            for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16) if made is not None else ():
                logits = rows_that_tie(5, dtype)
                assert torch.equal(made(logits).argmax(1), logits.argmax(1)), (case, dtype)

    @each_of([calibrator for calibrator in ALL if calibrator.preserves_accuracy])
    def test_predictions_stay_in_an_exported_program_too(self, calibrator):
        made, logits = fitted(calibrator, 5), rows_that_tie(5, torch.float16)
        program = torch.export.export(made, (logits,), dynamic_shapes=({0: torch.export.Dim("rows", min=2)},))
        assert torch.equal(program.module()(logits).argmax(1), logits.argmax(1))

    @each_size
    @each_calibrator
    def test_equal_samples_are_mapped_alike_wherever_they_stand(self, calibrator, k):
        for dtype in (torch.float32, torch.float64):
            for row in hard_rows(k, dtype)[[0, 1, 199, 210, 270, 321, 330]]:
                alone = fitted(calibrator, k)(row[None])
                size = float(row.abs().max()) + float(alone.abs().max())
                rounding = 8 * k * size * torch.finfo(dtype).eps if calibrator.name in MULTIPLY_BY_A_MATRIX else 0
                for n in (2, 3, 5, 8, 13, 16, 31, 33, 70):
                    among_equals = fitted(calibrator, k)(row.repeat(n, 1))
                    assert (among_equals - alone).abs().max() <= rounding, n

    @each_size
    @each_of([calibrator for calibrator in ALL if calibrator.preserves_ranking])
    def test_confidences_keep_their_order_where_that_is_promised(self, calibrator, k):
        logits = hard_rows(k)
        before = Predictions.from_logits(logits, torch.zeros(len(logits), dtype=torch.int64))
        after = fitted(calibrator, k).transform(before)
        in_order = after.confidence[before.top.log_odds.argsort()]
        assert (in_order[1:] - in_order[:-1]).min() > -1e-9

    @each_size
    @each_of([calibrator for calibrator in ALL if calibrator.name != "uncalibrated"])
    def test_overconfident_predictions_get_a_better_log_loss_on_new_samples(self, calibrator, k):
        new = overconfident(4000, k, seed=9, sharpness=3.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrantWarning)
            made = calibrator.fit(overconfident(2000, k, seed=8, sharpness=3.0))
        after = made.transform(new)
        assert after.softmax_rows().nll().mean() < new.softmax_rows().nll().mean()

    @each_of([calibrator for calibrator in ALL if calibrator.name not in DEPEND_ON_ROW_ORDER])
    def test_the_order_of_the_samples_does_not_matter(self, calibrator):
        rows = overconfident(400, 5)
        shuffled = rows[torch.randperm(400, generator=torch.Generator().manual_seed(3))]
        logits = hard_rows(5)[:200]
        assert torch.allclose(
            calibrator.fit(shuffled)(logits).softmax(1), fitted(calibrator, 5)(logits).softmax(1), atol=1e-5
        )

    @each_of([calibrator for calibrator in ALL if calibrator.name not in DEPEND_ON_CLASS_ORDER])
    def test_the_numbers_of_the_classes_do_not_matter(self, calibrator):
        rows, order = overconfident(400, 5), torch.tensor([3, 0, 4, 1, 2])
        renamed = Predictions.from_logits(rows.logits[:, order], order.argsort()[rows.labels])
        logits = hard_rows(5)[:200]
        expected = fitted(calibrator, 5)(logits)[:, order].softmax(1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrantWarning)
            assert torch.allclose(calibrator.fit(renamed)(logits[:, order]).softmax(1), expected, atol=1e-4)

    @each_calibrator
    def test_it_tells_how_it_came_about(self, calibrator):
        summary = fitted(calibrator, 5).summary
        assert summary.method == calibrator.name
        assert summary.settings == calibrator.settings()
        assert summary.rows == 400
        assert summary.seconds > 0
        if summary.certificate is not None:
            assert math.isfinite(summary.certificate.objective)
            assert 0 <= summary.certificate.gradient < 1e-3


class TestAwkwardRows:
    @pytest.mark.parametrize("case", AWKWARD)
    @each_calibrator
    def test_a_fit_ends_well_or_says_why_not(self, calibrator, case):
        rows = AWKWARD[case]
        made, reason = fit_or_reason(calibrator, rows)
        if made is None:
            assert len(reason) > 40, "the message says what must hold, what was got, what to do"
            return
        assert_probabilities(made(hard_rows(5)))
        after = made.transform(rows)
        assert torch.isfinite(after.softmax_rows().nll()).all()

    @pytest.mark.filterwarnings("ignore:.*worse than no calibration on samples held out")
    @each_of([calibrator for calibrator in ALL if calibrator.name not in TREAT_CLASSES_ALIKE])
    def test_methods_that_learn_of_each_class_name_the_one_without_samples(self, calibrator):
        rows = AWKWARD["a class without rows"]
        refused = fit_or_reason(calibrator, rows)[0] is None
        told = pytest.raises(FitError, match="class 3") if refused else pytest.warns(CalibrantWarning, match="class 3")
        with told:
            calibrator.fit(rows)

    @pytest.mark.filterwarnings("ignore:.*worse than no calibration on samples held out")
    @each_of([calibrator for calibrator in ALL if calibrator.name in TREAT_CLASSES_ALIKE])
    def test_methods_that_treat_all_classes_alike_do_not_mind_a_class_without_samples(self, calibrator):
        made = calibrator.fit(AWKWARD["a class without rows"])
        hot = made(6 * torch.eye(5, dtype=torch.float64)).softmax(1).diagonal()
        assert torch.allclose(hot, hot[0].expand(5), atol=1e-6)


# Two classes are tried in the two types that fits work in, and of what float64 holds beyond float32 the far end.
EXTREMES_TO_FIT = [
    name
    for name in EXTREMES
    if not name.startswith(("float16 k=2", "bfloat16 k=2"))
    and not (name.startswith("float64") and name.endswith(("1e+30", "1e+100")))
]


class TestExtremeNumbers:
    @each_calibrator
    def test_a_fit_on_numbers_at_the_ends_of_their_type_gives_finite_results_or_a_reason(self, calibrator):
        # A third of the data sets is tried on each method, and each data set on a third of the methods.
        first, step = (4, 8) if calibrator.name in SLOW else (ALL.index(calibrator) % 3, 3)
        for name in EXTREMES_TO_FIT[first::step]:
            try:
                rows = EXTREMES[name].predictions()
            except InputError:
                continue  # logits that differ by more than their type can hold
            made, reason = fit_or_reason(calibrator, rows)
            if made is None:
                assert len(reason) > 40, name
                continue
            result = made(rows.logits)
            assert torch.isfinite(result).all(), name
            assert torch.isfinite(made.transform(rows).confidence).all(), name
            if calibrator.preserves_accuracy:
                assert torch.equal(result.argmax(1), rows.logits.argmax(1)), name

    @each_calibrator
    def test_a_fit_on_plain_samples_gives_finite_results_for_numbers_at_the_ends_of_their_type(self, calibrator):
        for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
            result = fitted(calibrator, 5)(rows_that_tie(5, dtype))
            assert torch.isfinite(result).all(), dtype


# Methods for which samples that stand twice are not the same as samples of weight 2, though they count as much: they
# deal out samples, or evaluate a curve at as many even ranks as there are samples.
COUNT_ROWS = {**DEPEND_ON_ROW_ORDER, "spline": "smooths at as many even ranks as there are samples"}


class TestWeights:
    """Weights say how many samples each stands for; only their ratios matter."""

    @staticmethod
    def fit(calibrator, samples, **changes):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrantWarning)
            return calibrator.fit(Predictions(samples.logits, samples.labels, **changes))(samples.logits).log_softmax(1)

    @each_size
    @each_calibrator
    def test_only_their_ratios_matter_and_a_weight_of_zero_counts_nothing(self, calibrator, k):
        samples = overconfident(300, k)
        weights = torch.arange(300).double() % 3 + 1
        plain = self.fit(calibrator, samples)
        assert torch.allclose(self.fit(calibrator, samples, weights=torch.full((300,), 0.7)), plain, atol=1e-9)
        weighted = self.fit(calibrator, samples, weights=weights)
        assert torch.allclose(self.fit(calibrator, samples, weights=weights * 7.3), weighted, atol=1e-9)
        more = samples + overconfident(40, k, seed=5)
        padded = self.fit(calibrator, more, weights=torch.cat([weights, weights.new_zeros(40)]))
        assert torch.allclose(padded[:300], weighted, atol=1e-9)

    @each_size
    @each_of([calibrator for calibrator in ALL if calibrator.name not in COUNT_ROWS])
    def test_samples_that_stand_several_times_are_samples_of_that_weight(self, calibrator, k, monkeypatch):
        samples, weights = overconfident(300, k), torch.arange(300) % 3 + 1
        # Without weights the number of samples says how much is known, with them their effective number. Here both are
        # the number of repeated samples, so that floors, penalties and priors are the same.
        counts = functools.cached_property(lambda self: self.weights)
        counts.__set_name__(Predictions, "sample_counts")
        monkeypatch.setattr(Predictions, "sample_counts", counts)
        weighted = self.fit(calibrator, samples, weights=weights)
        repeated = torch.arange(300).repeat_interleave(weights)
        each = self.fit(calibrator, samples[repeated])
        first = torch.cat([torch.zeros(1, dtype=torch.long), weights.cumsum(0)[:-1]])
        assert torch.allclose(each[first], weighted, atol=1e-6)
