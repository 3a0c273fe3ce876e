"""The exception tree, and the one wording of the checks."""

import ast
import json
import pickle
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from calibrant import compare, difference, errors, evaluate, evaluate_slices, load_map, piece, save
from calibrant.calibrators import DensityRatioCalibration, TemperatureScaling, venn_abers_interval
from calibrant.checks import (
    as_tensor,
    check_at_least,
    check_finite,
    check_known,
    check_labels,
    check_positive,
    check_real_number,
    check_same_length,
    check_seed,
    check_unit_interval,
)
from calibrant.confidence import ConfidenceHead, ConfidNet, TrustScore, compare_confidences
from calibrant.diagrams import bins_sweep
from calibrant.errors import (
    Argument,
    CalibrantError,
    CalibrantWarning,
    Caveat,
    FileError,
    FitError,
    InputError,
    UnknownNameError,
    caught_warnings,
    one_line,
    without_our_warnings,
)
from calibrant.evidence import estimate
from calibrant.integrations.logging import log_evaluation
from calibrant.integrations.torchmetrics import CalibrantMetric
from calibrant.metrics import ECE
from calibrant.plots import plot_comparison
from calibrant.predictions import Predictions
from calibrant.report import comparison_page, evaluation_page, show, to_html, write
from calibrant.testing import overconfident


class TestTheTree:
    @pytest.mark.parametrize("error", [InputError, FileError, UnknownNameError, FitError])
    def test_one_except_catches_every_error(self, error):
        assert issubclass(error, CalibrantError)

    @pytest.mark.parametrize("error", [InputError, FileError, UnknownNameError])
    def test_errors_about_input_are_value_errors(self, error):
        assert issubclass(error, InputError)
        assert issubclass(error, ValueError)

    def test_an_error_of_a_fit_is_a_runtime_error(self):
        assert issubclass(FitError, RuntimeError)
        assert not issubclass(FitError, ValueError)

    def test_a_warning_is_no_error(self):
        assert issubclass(CalibrantWarning, UserWarning)
        assert not issubclass(CalibrantWarning, CalibrantError)

    def test_every_name_stands_in_the_drawing(self):
        own = [name for name, kind in vars(errors).items() if getattr(kind, "__module__", "") == errors.__name__]
        assert all(name in errors.__doc__ for name in own if name[0].isupper())

    def test_an_error_has_the_argument_it_is_about(self):
        assert InputError("labels must be whole numbers.").argument is None
        assert InputError("labels must be whole numbers.", argument="labels").argument == "labels"
        error = FileError("a.csv: ", Argument("scores", "p"), " or ", Argument("labels", "NAME", is_literal=False))
        assert str(error) == "a.csv: scores='p' or labels=NAME"
        assert error.argument == "scores"
        assert error.message(lambda argument: argument.name.upper()) == "a.csv: SCORES or LABELS"
        assert str(pickle.loads(pickle.dumps(error))) == str(error)  # noqa: S301  # from a worker process

    def test_a_warning_has_its_caveat(self):
        with pytest.warns(CalibrantWarning, match="rose") as caught:
            warnings.warn(CalibrantWarning("the objective rose", caveat=Caveat.objective_rose), stacklevel=1)
        assert caught[0].message.caveat is Caveat.objective_rose


def _message_matches(tree):
    """What a module looks for in the text of an error, a note or a message."""

    def is_message(node):
        is_text = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str"
        names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        return bool(names & {"note", "caution"}) or (is_text and bool(names & {"error", "warning"}))

    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            if is_message(node.comparators[0]) and isinstance(node.left, ast.Constant):
                yield node.left.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in {"startswith", "endswith", "partition", "split"} and is_message(node.func.value):
                yield ast.unparse(node.args[0]) if node.args else ""
            elif isinstance(node.func.value, ast.Name) and node.func.value.id == "re":
                yield from (ast.unparse(node.args[0]) for part in node.args[1:] if is_message(part))


def test_no_code_matches_the_wording_of_our_own_messages():
    # Messages of NumPy and torch, which have no kinds.
    others = {"allow_pickle", "operand", "DefaultCPUAllocator"}
    folder = Path(errors.__file__).parent
    found = {
        (str(path.relative_to(folder)), text)
        for path in folder.rglob("*.py")
        for text in _message_matches(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert {(path, text) for path, text in found if text not in others} == set()
    assert {text for _, text in found} == others  # the search finds what there is


def test_the_search_for_matched_wording_finds_each_kind():
    for line in (
        '"rose" in str(error)',
        'str(error).startswith(unless or "x")',
        'note.startswith("δ")',
        'any("δ" in note for note in notes)',
        're.sub("a", "b", str(error))',
        'caution.partition(":")[0]',
    ):
        assert list(_message_matches(ast.parse(line))), line


class TestAsTensor:
    def test_a_tensor_is_taken_without_its_gradient_and_without_a_copy(self):
        values = torch.ones(3, requires_grad=True)
        taken = as_tensor(values, "values")
        assert not taken.requires_grad
        assert taken.data_ptr() == values.data_ptr()

    def test_an_array_is_taken_without_a_copy(self):
        values = np.ones(3)
        assert as_tensor(values, "values").data_ptr() == values.ctypes.data

    def test_lists_of_floats_are_float64(self):
        assert as_tensor([0.1, 0.2], "values").dtype == torch.float64

    def test_an_array_that_may_not_be_written_is_copied(self):
        values = np.broadcast_to(np.float32(0.5), (3,))
        assert as_tensor(values, "values").tolist() == [0.5] * 3

    @pytest.mark.parametrize("rubbish", [None, "text", [[1.0], [2.0, 3.0]], {"a": 1}, [object()]])
    def test_rubbish_is_refused_by_name_and_type(self, rubbish):
        with pytest.raises(InputError, match=f"values must be a tensor.*got {type(rubbish).__name__}"):
            as_tensor(rubbish, "values")


class TestCheckFinite:
    @pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
    def test_the_first_place_is_named(self, bad):
        values = torch.zeros(5, 4)
        values[3, 1] = values[4, 0] = bad
        with pytest.raises(
            InputError,
            match=rf"scores must be finite; got {bad} at row 3 \(counting from 0\), class 1\. Remove the row",
        ):
            check_finite(values, "scores")

    def test_a_column_names_the_row_alone(self):
        with pytest.raises(InputError, match=r"got nan at row 1 \(counting from 0\)\. "):
            check_finite(torch.tensor([0.0, float("nan")]), "scores")

    def test_the_largest_numbers_are_finite(self):
        check_finite(torch.tensor([3e38, -3e38]), "scores")
        check_finite(torch.empty(0), "scores")


class TestCheckUnitInterval:
    def test_the_ends_belong_to_it(self):
        check_unit_interval(torch.tensor([0.0, 1.0]), "probs", "Divide by 100.")

    @pytest.mark.parametrize("bad", [-1e-6, 1.0001, 7.0])
    def test_what_lies_outside_is_named_with_its_row(self, bad):
        with pytest.raises(
            InputError, match=r"probs must lie in 0\.\.1; got .* at row 2 \(counting from 0\)\. Divide by 100\."
        ):
            check_unit_interval(torch.tensor([0.0, 1.0, bad, bad]), "probs", "Divide by 100.")


class TestCheckLabels:
    def test_any_integer_type_becomes_int64(self):
        for dtype in (torch.uint8, torch.int32, torch.bool):
            assert check_labels(torch.tensor([0, 1], dtype=dtype), 2).dtype == torch.int64

    def test_the_hint_about_labels_from_one_comes_only_where_it_fits(self):
        with pytest.raises(InputError, match="subtract 1"):
            check_labels(torch.tensor([1, 2, 3]), 3)
        with pytest.raises(InputError) as caught:
            check_labels(torch.tensor([0, 2, 3]), 3)
        assert "subtract" not in str(caught.value)


def test_lengths_that_differ_are_both_named():
    with pytest.raises(InputError, match="logits and labels must have the same number of rows; got 3 and 4"):
        check_same_length(torch.zeros(3, 2), "logits", torch.zeros(4), "labels")
    check_same_length(torch.zeros(3, 2), "logits", torch.zeros(3), "labels")


def test_a_count_that_is_too_small_is_refused_with_the_least():
    with pytest.raises(InputError, match="n_bins must be at least 1; got 0"):
        check_at_least(0, 1, "n_bins")
    check_at_least(1, 1, "n_bins")


@pytest.mark.parametrize("value", [2.5, 2.0, True, "2", None])
def test_a_count_that_is_not_a_whole_number_is_refused(value):
    with pytest.raises(InputError, match="n_bins must be a whole number; got"):
        check_at_least(value, 1, "n_bins")


def test_a_count_may_come_from_numpy():
    check_at_least(np.int64(3), 1, "n_bins")


@pytest.mark.parametrize("value", [0, -1.0, float("inf"), float("nan"), True, "1", None])
def test_a_size_that_is_not_a_positive_number_is_refused(value):
    with pytest.raises(InputError, match="width must be above 0 and finite; got"):
        check_positive(value, "width")


def test_a_name_that_is_no_text_is_refused_too():
    with pytest.raises(UnknownNameError, match="score must be one of nll, brier; got 5"):
        check_known(5, ("nll", "brier"), "score")
    with pytest.raises(UnknownNameError, match="must be one of a, b"):
        check_known(np.array(["a", "b"]), ["a", "b"], "name")


@pytest.mark.parametrize(
    ("tensor", "told"),
    [
        (torch.rand(3, device="meta"), "x must hold numbers; got a tensor on the meta device"),
        (torch.eye(3).to_sparse(), r"x must be a plain tensor; got a sparse one\. Pad it, or pass to_dense"),
    ],
)
def test_a_tensor_without_numbers_or_with_gaps_is_refused(tensor, told):
    with pytest.raises(InputError, match=told):
        as_tensor(tensor, "x")


@pytest.mark.parametrize("array", [np.arange(6.0).astype(">f4"), np.arange(6.0)[::-1], np.arange(6, dtype=">i2")])
def test_an_array_in_any_byte_order_and_direction_is_read(array):
    locked = array.copy()
    locked.flags.writeable = False
    for given in (array, locked, array[::2]):
        assert as_tensor(given, "x").tolist() == given.tolist()


def test_masked_numbers_are_refused():
    masked = np.ma.masked_array([1.0, 2.0, 3.0], mask=[False, True, False])
    with pytest.raises(InputError, match="some are masked"):
        as_tensor(masked, "x")
    assert as_tensor(np.ma.masked_array([1.0, 2.0]), "x").tolist() == [1.0, 2.0]


@pytest.mark.parametrize("value", [np.float32(0.5), np.float64(0.5), 0.5])
def test_a_number_comes_back_as_one_that_a_file_can_hold(value):
    for number in (check_real_number(value, "x", least=0), check_positive(value, "x")):
        assert type(number) is float
        assert json.dumps(number) == "0.5"
    assert type(check_at_least(np.int64(3), 1, "n")) is int
    assert type(check_real_number(1, "x", least=0)) is int


@pytest.mark.parametrize("value", [10**400, float("inf"), float("nan"), True, None, "1", 1j, np.array(1.0)])
def test_what_is_no_finite_number_is_refused(value):
    with pytest.raises(InputError, match="x must be at least 0 and finite"):
        check_real_number(value, "x", least=0)
    with pytest.raises(InputError, match="x must be above 0 and finite"):
        check_positive(value, "x")


def test_a_seed_is_one_that_torch_takes():
    for seed in (0, 2**63 - 1, np.uint64(2**63 - 1)):
        assert torch.Generator().manual_seed(check_seed(seed)).initial_seed() == seed
    for seed, told in ((-1, "at least 0"), (2**63, "at most 9223372036854775807"), (0.0, "a whole number")):
        with pytest.raises(InputError, match=f"seed must be {told}"):
            check_seed(seed)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (KeyError("k"), "KeyError: 'k'"),
        (OSError("no disk.\nat all"), "OSError: no disk"),
        (NotImplementedError(), "NotImplementedError"),
        (
            ValueError("Caught ValueError in DataLoader worker process 0.\nOriginal\nValueError: odd.\n"),
            "ValueError: odd",
        ),
    ],
)
def test_an_error_of_others_is_quoted_in_a_line(error, told):
    assert one_line(error) == told


def test_warnings_of_threads_are_kept_apart_and_nothing_stays_changed():
    filters, show = list(warnings.filters), warnings.showwarning
    together = threading.Barrier(8)

    def collect(number):
        told = []
        for turn in range(50):
            with caught_warnings() as outer:
                if turn == 0:
                    together.wait()
                warnings.warn(f"{number} {turn}", CalibrantWarning, stacklevel=1)
                with without_our_warnings():
                    warnings.warn("unheard", CalibrantWarning, stacklevel=1)
            told += [str(each.message) for each in outer]
        return told

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(collect, range(8)))
    assert found == [[f"{number} {turn}" for turn in range(50)] for number in range(8)]
    assert list(warnings.filters) == filters
    assert warnings.showwarning is show


def test_a_thread_that_collects_nothing_is_warned_as_before():
    def warn():
        warnings.warn("heard", CalibrantWarning, stacklevel=1)

    with ThreadPoolExecutor(1) as pool:
        with caught_warnings() as caught, pytest.raises(CalibrantWarning, match="heard"):  # warnings are errors here
            pool.submit(warn).result()
        with pytest.warns(CalibrantWarning, match="heard"), caught_warnings() as more:
            pool.submit(warn).result()
    assert caught == more == []


def test_fits_in_many_threads_keep_their_own_notes():
    chance = torch.Generator().manual_seed(0)
    logits = torch.randn(400, 3, generator=chance)
    guessing = Predictions.from_logits(logits, (logits.argmin(dim=1)))  # worse than guessing, which is warned of
    before = list(warnings.filters)

    def fit(_):
        with caught_warnings():
            return TemperatureScaling().fit(guessing).summary.notes

    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(fit, range(32)))
    assert len(found) == 1
    assert any("no better than guessing" in note for note in found.pop())
    assert list(warnings.filters) == before


SAMPLES = overconfident(60, 3)


@pytest.mark.parametrize(
    "evaluated",
    [
        lambda **options: evaluate(SAMPLES, **options),
        lambda **options: compare(SAMPLES[:30], SAMPLES[30:], TemperatureScaling(), **options),
        lambda **options: evaluate_slices(SAMPLES, by={"half": [0, 1] * 30}, **options)[0],
    ],
    ids=["evaluate", "compare", "evaluate_slices"],
)
def test_bins_resamples_and_seeds_may_be_numpys_and_are_checked_by_name(evaluated):
    numbers = {"n_bins": 7, "resamples": 20, "seed": 3}
    numpys = evaluated(**{name: np.int64(number) for name, number in numbers.items()})
    assert repr(numpys) == repr(evaluated(**numbers))
    for name, wrong in (("n_bins", 0), ("resamples", 1), ("resamples", 20.0), ("seed", -1), ("seed", "zero")):
        with pytest.raises(InputError, match=f"{name} must be"):
            evaluated(**{**numbers, name: wrong})


@pytest.mark.parametrize("wrong", [0.05, "0.05", [0.05, "0.1"], [None], [1.0], [0.0]])
def test_error_rates_are_a_list_of_shares(wrong):
    with pytest.raises(InputError, match="error_rates must"):
        evaluate(SAMPLES, resamples=20, error_rates=wrong)


def test_error_rates_may_be_an_array():
    rates = np.array([0.2, 0.5])
    given = [evaluate(SAMPLES, resamples=20, error_rates=one).operating_points for one in (rates, rates.tolist())]
    assert given[0] == given[1]
    assert [point.error_rate for point in given[0]] == [0.2, 0.2, 0.5, 0.5]


def test_a_method_to_compare_is_given_as_a_calibrator_and_not_by_its_name():
    with pytest.raises(InputError, match=r"got 'temperature'.*parse_calibrator\('temperature'\)"):
        compare(SAMPLES[:30], SAMPLES[30:], "temperature")


def test_a_warning_is_about_the_line_of_the_caller_also_through_torch():
    trust = TrustScore().fit(torch.tensor([[0.0], [1.0]]), torch.tensor([0, 1]), n_classes=3)
    inputs = (torch.tensor([[0.5]]), torch.tensor([2]))
    for call in (trust.scores, trust):  # a decorator of torch, and a module
        with pytest.warns(CalibrantWarning, match="without reference samples") as caught:
            call(*inputs)
        assert [Path(warning.filename).name for warning in caught] == [Path(__file__).name]


ROWS = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "call",
    [
        lambda wrong: DensityRatioCalibration().fit(wrong, ROWS),
        lambda wrong: venn_abers_interval(wrong, SAMPLES),
        lambda wrong: venn_abers_interval(SAMPLES, wrong),
        lambda wrong: ConfidNet(epochs=1).fit_features(wrong, ROWS),
        lambda wrong: ConfidenceHead(4).top_label(wrong, ROWS),
        lambda wrong: TrustScore().fit(ROWS, SAMPLES.labels).top_label(wrong, ROWS),
    ],
    ids=["features", "venn_abers", "venn_abers_of", "confidnet", "head", "trust_score"],
)
@pytest.mark.parametrize("wrong", [SAMPLES.logits.numpy(), (SAMPLES.logits, SAMPLES.labels), SAMPLES.top])
def test_what_needs_predictions_of_all_classes_says_so(call, wrong):
    with pytest.raises(InputError, match=r"must be given Predictions; got .*from_logits"):
        call(wrong)


@pytest.mark.parametrize("wrong", [[1], {"head": ConfidenceHead(4)}])
def test_confidences_are_compared_with_their_network(wrong):
    network = torch.nn.Linear(4, 3)
    with pytest.raises(InputError, match=r"LearnedConfidence\(model, head\)"):
        compare_confidences(network, wrong, (ROWS, SAMPLES.labels))


def test_a_head_takes_features_as_arrays_and_lists_too():
    head = ConfidenceHead(4)
    expected = head.confidence(ROWS)
    assert torch.equal(head.confidence(ROWS.numpy()), expected)
    assert torch.allclose(head.confidence(ROWS.tolist()), expected)


@pytest.mark.parametrize(
    "wrong", [None, "text", 15, [1, 2], np.ones((3, 2)), {"a": 1}, torch.ones(2, dtype=torch.complex64)]
)
def test_what_is_of_another_kind_is_named_with_what_makes_one(wrong, tmp_path):
    predictions = Predictions.from_logits(torch.eye(3), [0, 1, 2])
    calls = {
        "comparison must be of type Comparison": (comparison_page, plot_comparison),
        "evaluation must be of type Evaluation": (evaluation_page, lambda given: log_evaluation(given, to=None)),
        "page must be of type Page": (show, to_html, lambda given: write(given, str(tmp_path / "p.html"))),
        "predictions must be of type Predictions": (lambda given: piece(given, [0.1]),),
        "each set must be of type Predictions": (lambda given: difference(predictions, given, [ECE()]),),
        "metrics must be metrics": (lambda given: estimate(predictions, given),),
    }
    if not isinstance(wrong, str):
        calls["path must be of type str"] = (load_map, lambda given: save(predictions, given))
    if not isinstance(wrong, list | str):
        calls["n_bins must be a list of numbers"] = (lambda given: bins_sweep(predictions, n_bins=given),)
    if not isinstance(wrong, torch.Tensor):
        calls["must be of type Tensor"] = (
            ConfidenceHead(2),
            lambda given: CalibrantMetric(ECE()).update(given, torch.tensor([0, 1, 1])),
            lambda given: CalibrantMetric(ECE()).update(torch.rand(3, 2), given),
        )
    for message, functions in calls.items():
        for function in functions:
            with pytest.raises(InputError, match=message):
                function(wrong)
