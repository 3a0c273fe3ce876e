"""What may come in, what is refused and with which words, and what is derived from it."""

import copy
import dataclasses
import math
import pickle
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from strategies import predictions, top_labels

from calibrant import compare, difference, metrics, save_map
from calibrant.calibrators import TemperatureScaling
from calibrant.diagrams import reliability
from calibrant.errors import CalibrantError, CalibrantWarning, InputError
from calibrant.evaluation import evaluate
from calibrant.losses import FocalLoss
from calibrant.metrics import ECE, ece, nll
from calibrant.plots import plot_classwise, plot_risk_coverage
from calibrant.predictions import Predictions, TopLabel
from calibrant.testing import overconfident

LOGITS = np.array([[2.0, 0.0, -1.0], [0.5, 1.5, 0.0], [0.0, 0.0, 3.0]])
PROBS = np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8], [0.25, 0.5, 0.25]])
LABELS = np.array([0, 2, 1])
many = settings(max_examples=60)


def changed(array, row, column, value):
    array = array.copy()
    array[row, column] = value
    return array


def refused(*parts):
    """An InputError, which is a ValueError, whose message holds all the parts in this order."""
    return pytest.raises(InputError, match="(?s)" + ".*".join(parts))


class TestBadLogits:
    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
    @pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
    def test_a_number_that_is_not_finite_is_named_with_its_row_and_class(self, value, dtype):
        logits = torch.from_numpy(changed(LOGITS, 1, 2, value)).to(dtype)
        with refused("logits must be finite; got", "row 1 .counting from 0., class 2", "Remove the row"):
            Predictions.from_logits(logits, LABELS)

    def test_a_class_that_is_ruled_out_belongs_among_probabilities(self):
        logits = changed(LOGITS, 1, 0, -math.inf)
        with refused("got -inf at row 1 .counting from 0., class 0", "give probabilities"):
            Predictions.from_logits(logits, LABELS)
        assert Predictions.from_probs(torch.from_numpy(logits).softmax(1), LABELS).zero_cells.cells == 1

    def test_complex_numbers_are_refused(self):
        with refused("logits must be real numbers; got", "complex"):
            Predictions.from_logits(LOGITS + 0j, LABELS)

    def test_true_and_false_are_no_logits(self):
        with refused("logits must be real numbers; got", "bool"):
            Predictions.from_logits(LOGITS > 0, LABELS)

    @pytest.mark.parametrize("shape", [(3,), (3, 1)])
    def test_one_class_is_refused_with_what_to_do_for_two_class_models(self, shape):
        with refused(r"logits must have shape \(n, k\) of two or more classes; got", "use from_binary_logits"):
            Predictions.from_logits(np.zeros(shape), LABELS)

    @pytest.mark.parametrize("shape", [(), (3, 2, 2)])
    def test_other_shapes_are_refused(self, shape):
        with refused(r"logits must have shape \(n, k\)"):
            Predictions.from_logits(np.zeros(shape), LABELS)

    def test_no_samples_are_refused(self):
        with refused("at least one row; got none"):
            Predictions.from_logits(np.zeros((0, 3)), np.zeros(0, dtype=int))

    @pytest.mark.parametrize("rubbish", [None, "logits", [["a", "b"]], [[1.0, 2.0], [3.0]], object()])
    def test_what_is_no_array_is_refused(self, rubbish):
        with refused("logits must be a tensor, an array or nested lists of numbers; got"):
            Predictions.from_logits(rubbish, [0])


class TestBadProbabilities:
    def test_a_negative_one_is_named_with_its_row(self):
        with refused("probs must lie in 0..1; got -0.1 at row 1", "If these are logits, pass them as logits"):
            Predictions.from_probs(changed(changed(PROBS, 1, 0, -0.1), 1, 1, 0.3), LABELS)

    def test_one_above_one_is_named_with_its_row(self):
        with refused("probs must lie in 0..1; got 1.5 at row 2"):
            Predictions.from_probs(changed(PROBS, 2, 0, 1.5), LABELS)

    def test_logits_given_as_probabilities_are_refused_and_not_guessed(self):
        with refused("probs must lie in 0..1", "If these are logits, pass them as logits"):
            Predictions.from_probs(LOGITS, LABELS)

    def test_given_as_logits_they_are_a_warning(self):
        with pytest.warns(CalibrantWarning, match="sum to one, as probabilities do"):
            Predictions.from_logits(np.tile(PROBS, (4, 1)), np.tile(LABELS, 4))
        for others in (1.01 * PROBS, np.eye(3), np.zeros((3, 3)), PROBS - 1 / 3):
            Predictions.from_logits(np.tile(others, (4, 1)), np.tile(LABELS, 4))  # a warning would be an error

    def test_a_sample_that_does_not_sum_to_one_is_named(self):
        with refused("each row of probs must sum to one", "got 1.2 at row 2", "pass normalise=True", "one at a time"):
            Predictions.from_probs(changed(PROBS, 2, 1, 0.7), LABELS)

    def test_rounding_of_half_precision_is_forgiven(self):
        probs = torch.randn(20, 1000, generator=torch.Generator().manual_seed(0)).softmax(1).half()
        assert len(Predictions.from_probs(probs, torch.zeros(20, dtype=torch.long))) == 20

    def test_numbers_that_are_not_finite_are_named(self):
        with refused("probs must be finite; got nan at row 0 .counting from 0., class 1"):
            Predictions.from_probs(changed(PROBS, 0, 1, math.nan), LABELS)

    def test_complex_numbers_are_refused(self):
        with refused("probs", "real"):
            Predictions.from_probs(PROBS + 0j, LABELS)

    def test_one_column_is_refused_with_what_to_do(self):
        with refused("at least two classes", "use from_binary_probs"):
            Predictions.from_probs(PROBS[:, 0], LABELS)

    def test_no_samples_are_refused(self):
        with refused("at least one row; got none"):
            Predictions.from_probs(np.zeros((0, 3)), np.zeros(0, dtype=int))


class TestNormalise:
    @pytest.mark.parametrize("scale", [1.0, 100.0])
    def test_rounded_probabilities_and_percentages_are_divided_by_their_sums(self, scale):
        given = np.array([[0.33, 0.33, 0.33], [0.1, 0.1, 0.81]]) * scale
        found = Predictions.from_probs(given, [0, 2], normalise=True)
        np.testing.assert_allclose(found.probs, given / given.sum(1, keepdims=True), rtol=1e-12)
        with refused("pass normalise=True"):
            Predictions.from_probs(given, [0, 2])

    def test_sums_that_rounding_does_not_explain_are_reported(self):
        with pytest.warns(CalibrantWarning, match=r"summed to 0.5 up to 1 .* scores of a class missing"):
            Predictions.from_probs([[0.25, 0.25], [0.5, 0.5]], [0, 1], normalise=True)

    @pytest.mark.parametrize(("row", "what"), [([-0.1, 1.1], "at least 0"), ([0.0, 0.0], "not all 0 in a row")])
    def test_what_has_no_share_is_refused(self, row, what):
        with refused(f"probs must be {what} to be normalised; row 1 .counting from 0. is not"):
            Predictions.from_probs([[0.5, 0.5], row], [0, 1], normalise=True)


class TestOneProbability:
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_it_is_that_of_class_one(self, dtype):
        p = np.array([0.9, 0.25, 0.5], dtype=dtype)
        both = Predictions.from_probs(np.stack([1 - p, p], 1), [1, 0, 1])
        for column in (p, p[:, None]):
            found = Predictions.from_binary_probs(column, [1, 0, 1])
            torch.testing.assert_close(found.logits, both.logits, rtol=4 * float(np.finfo(dtype).eps), atol=0)
            assert found.given_as_probs
            assert found.normalised

    def test_the_other_class_keeps_its_digits_where_one_minus_p_would_lose_them(self):
        p = np.array([1e-20, 1e-25, 1 - 2**-53])
        found = Predictions.from_binary_probs(p, [0, 0, 1]).logits
        assert found[:, 0].tolist() == [-1e-20, -1e-25, math.log(2**-53)]
        assert found[:, 1].tolist() == [math.log(1e-20), math.log(1e-25), -(2**-53)]

    def test_zero_and_one_are_floored_and_counted(self):
        with pytest.warns(CalibrantWarning, match="1 of 2 true classes were given probability 0"):
            found = Predictions.from_binary_probs([0.0, 1.0], [1, 1])
        assert found.zero_cells is not None
        assert (found.zero_cells.cells, found.zero_cells.labels) == (2, 1)

    def test_other_shapes_and_numbers_are_refused(self):
        with refused(r"binary probs must have shape \(n,\) or \(n, 1\); got \(2, 2\)"):
            Predictions.from_binary_probs([[0.5, 0.5], [0.5, 0.5]], [0, 1])
        with refused("probs must lie in 0..1; got 1.5 at row 1"):
            Predictions.from_binary_probs([0.5, 1.5], [0, 1])


def test_log_probabilities_as_logits_of_one_class_are_a_warning():
    labels = [0, 1] * 10
    with pytest.warns(CalibrantWarning, match="log-probabilities"):
        Predictions.from_binary_logits([-0.1, -2.0] * 10, labels)
    Predictions.from_binary_logits([-0.1, 2.0] * 10, labels)
    Predictions.from_binary_logits([-3.0, -2.0] * 10, [0] * 19 + [1])  # a rare class


class TestLabelsInWords:
    @pytest.mark.parametrize("kind", [list, np.array, lambda words: np.array(words, dtype=object)])
    def test_they_are_looked_up_among_the_class_names(self, kind):
        names = ["cat", "dog", "eel"]
        for make, scores in ((Predictions.from_probs, PROBS), (Predictions.from_logits, LOGITS)):
            assert make(scores, kind(["cat", "eel", "dog"]), class_names=names).labels.tolist() == [0, 2, 1]

    @pytest.mark.parametrize(
        ("columns", "labels", "names"),
        [
            (["eel", "cat", "dog"], ["cat", "eel", "dog"], ("eel", "cat", "dog")),
            (["prob_eel", "prob_cat", "prob_dog"], ["cat", "prob_eel", "dog"], ("eel", "cat", "dog")),
            (["eel", "cat", "dog"], [1, 0, 2], ("eel", "cat", "dog")),
            ([2, 0, 1], [0, 2, 1], ("2", "0", "1")),
            ([1, 2, 3], [2, 1, 3], ("1", "2", "3")),
            ([0, 1, 2], [1, 0, 2], None),
        ],
        ids=["words", "prefix", "numbers beside words", "another order", "from one", "usual"],
    )
    def test_columns_of_a_frame_are_called_as_their_classes(self, columns, labels, names):
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame([[0.2, 0.5, 0.3], [0.6, 0.3, 0.1], [0.1, 0.1, 0.8]], columns=columns)
        for samples in (Predictions.from_probs(frame, labels), Predictions.from_logits(frame, labels)):
            assert samples.labels.tolist() == [1, 0, 2]
            assert samples.class_names == names
        assert metrics.accuracy(probs=frame, labels=labels) == 1
        with pytest.raises(InputError, match="class names"):
            Predictions.from_probs(frame.set_axis([1, 2, 3], axis=1), [0, 1, 2])

    @pytest.mark.parametrize("labels", [["a|b", "a"], [["a", "b"], ["a"]], [[1, 1], [1, 0]]])
    def test_several_labels_of_a_sample_are_named(self, labels):
        with pytest.raises(InputError, match=r"multi-label.*from_binary_probs"):
            Predictions.from_probs([[0.4, 0.6], [0.5, 0.5]], labels, class_names=["a", "b"])

    def test_frames_of_pandas_are_taken(self):
        pandas = pytest.importorskip("pandas")
        words = pandas.Series(["b", "a", "b"])
        for series in (words, words.astype("category"), words.astype("string")):
            assert Predictions.from_logits(LOGITS[:, :2], series, class_names=["a", "b"]).labels.tolist() == [1, 0, 1]

    def test_whole_numbers_in_words_are_class_numbers(self):
        assert Predictions.from_logits(LOGITS, ["0", "2.0", "1"]).labels.tolist() == [0, 2, 1]
        assert Predictions.from_logits(LOGITS, ["3", "1", "2"], class_names=list("123")).labels.tolist() == [2, 0, 1]

    def test_without_names_they_are_refused_with_what_to_do(self):
        with refused("no class names to look words up in; got 'cat' at row 0", "class_names=NAMES"):
            Predictions.from_logits(LOGITS, ["cat", "dog", "eel"])

    def test_an_unknown_one_is_shown_with_the_nearest(self):
        with refused("got 'dgo' at row 1 .counting from 0.; the nearest is 'dog'"):
            Predictions.from_logits(LOGITS, ["cat", "dgo", "eel"], class_names=["cat", "dog", "eel"])

    def test_words_and_numbers_together_are_refused(self):
        with refused("all text or all numbers; got text, and nan at row 1"):
            Predictions.from_logits(LOGITS, np.array(["cat", math.nan, "eel"], dtype=object))


class TestDense:
    def test_pixels_are_samples_in_order(self):
        logits = torch.randn(2, 4, 3, 5, generator=torch.Generator().manual_seed(0))
        labels = torch.randint(0, 4, (2, 3, 5), generator=torch.Generator().manual_seed(1))
        found = Predictions.from_dense(logits, labels)
        assert torch.equal(found.logits.view(2, 3, 5, 4), logits.permute(0, 2, 3, 1))
        assert torch.equal(found.labels, labels.flatten())
        assert float(nll(found)) == pytest.approx(float(torch.nn.functional.cross_entropy(logits, labels)), rel=1e-6)

    def test_ignored_labels_are_left_out(self):
        logits = torch.randn(2, 3, 7, generator=torch.Generator().manual_seed(0))
        labels = torch.tensor([[0, 1, 2, -100, 1, 0, -100], [-100] * 7])
        found = Predictions.from_dense(logits, labels, ignore_index=-100)
        assert len(found) == 5
        assert float(nll(found)) == pytest.approx(float(torch.nn.functional.cross_entropy(logits, labels)), rel=1e-6)

    def test_tokens_have_their_classes_last(self):
        logits = np.arange(24.0).reshape(2, 3, 4)
        found = Predictions.from_dense(logits, np.zeros((2, 3)), class_axis=-1, class_names=list("abcd"))
        assert torch.equal(found.logits, torch.from_numpy(logits).reshape(6, 4))
        with refused(r"without the classes, \(2, 4\); got \(2, 3\)", "pass class_axis=-1"):
            Predictions.from_dense(logits, np.zeros((2, 3)))

    def test_what_leaves_nothing_is_refused(self):
        with refused("must not all be ignore_index, 255"):
            Predictions.from_dense(np.zeros((1, 2, 3)), np.full((1, 3), 255), ignore_index=255)
        with refused("class_axis must be an axis of the logits"):
            Predictions.from_dense(np.zeros((1, 2, 3)), np.zeros((1, 3)), class_axis=3)
        for stray in (255, -100):
            with pytest.raises(InputError, match=f"leave out, pass ignore_index={stray}"):
                Predictions.from_dense(np.zeros((1, 2, 3)), np.array([[0, 1, stray]]))


class TestBadLabels:
    def test_one_beyond_the_last_class_is_named_with_its_row(self):
        with refused(r"labels must lie in 0\.\.2, as there are 3 classes; got 7 at row 1") as caught:
            Predictions.from_logits(LOGITS, [0, 7, 1])
        assert "subtract" not in str(caught.value)

    def test_one_below_zero_is_named_with_its_row(self):
        with refused("got -1 at row 2"):
            Predictions.from_logits(LOGITS, [0, 2, -1])

    def test_labels_that_start_at_one_are_recognised(self):
        with refused(r"labels must lie in 0\.\.2", "got 3 at row 1", "subtract 1"):
            Predictions.from_logits(LOGITS, LABELS + 1)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_labels_of_a_floating_type_must_be_whole(self, dtype):
        assert Predictions.from_logits(LOGITS, LABELS.astype(dtype)).labels.tolist() == LABELS.tolist()
        for stray in (1.5, np.nan, np.inf):
            with refused("labels must be whole numbers", f"got {stray} at row 0"):
                Predictions.from_logits(LOGITS, np.where(np.arange(len(LABELS)) == 0, stray, LABELS).astype(dtype))

    def test_complex_labels_are_refused_with_what_to_do(self):
        with refused("labels must be whole numbers of an integer type; got", r"labels\.astype\(int\)"):
            Predictions.from_logits(LOGITS, LABELS.astype(np.complex128))

    def test_one_hot_labels_are_refused_with_what_to_do(self):
        with refused("labels must be one number a row", r"got shape \(3, 3\)", r"one-hot, pass labels\.argmax\(1\)"):
            Predictions.from_logits(LOGITS, np.eye(3, dtype=int)[LABELS])

    def test_another_number_of_samples_is_refused_with_both_numbers(self):
        with refused("logits and labels must have the same number of rows; got 3 and 2"):
            Predictions.from_logits(LOGITS, [0, 1])

    def test_a_single_number_for_all_samples_is_refused(self):
        with refused("labels"):
            Predictions.from_logits(LOGITS[:1], 0)

    @pytest.mark.parametrize("rubbish", [None, [None, 0, 1], [[None], [0], [1]]])
    def test_what_is_no_number_is_refused(self, rubbish):
        with refused("labels must be a tensor, an array or nested lists of numbers"):
            Predictions.from_logits(LOGITS, rubbish)

    @pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.int64, np.bool_])
    def test_every_integer_type_is_taken(self, dtype):
        assert Predictions.from_logits(LOGITS, np.array([0, 1, 1], dtype=dtype)).labels.dtype == torch.int64


class TestBadClassNames:
    @pytest.mark.parametrize("names", [["cat"], ["cat", "dog", "cow", "hen"], []])
    def test_another_number_of_names_is_refused(self, names):
        with refused("class_names must name all 3 classes", f"got {len(names)} names"):
            Predictions.from_logits(LOGITS, LABELS, class_names=names)


class TestBadBinaryLogits:
    def test_two_columns_are_refused(self):
        with refused(r"binary logits must have shape \(n,\) or \(n, 1\); got \(3, 2\)"):
            Predictions.from_binary_logits(np.zeros((3, 2)), [0, 1, 0])

    def test_complex_numbers_are_refused(self):
        with refused("real numbers"):
            Predictions.from_binary_logits(np.array([1 + 1j, 2.0]), [0, 1])

    def test_true_and_false_are_no_logits(self):
        with refused("real numbers"):
            Predictions.from_binary_logits([True, False], [0, 1])

    def test_a_third_class_is_refused(self):
        with refused(r"labels must lie in 0\.\.1", "got 2 at row 1"):
            Predictions.from_binary_logits([0.3, -0.2], [0, 2])


class TestBadTopLabels:
    @pytest.mark.parametrize(("value", "told"), [(1.5, "1.5"), (-0.25, "-0.25"), (90.0, "90")])
    def test_a_confidence_outside_zero_and_one_is_named_with_its_row(self, value, told):
        with refused(f"confidence must lie in 0..1; got {told} at row 1"):
            TopLabel([0.5, value], [True, False])

    def test_log_probabilities_are_no_confidences(self):
        with refused("got -0.5 at row 0", "exponential"):
            TopLabel([-0.5, -0.1], [True, False])

    @pytest.mark.parametrize("value", [math.nan, math.inf])
    def test_a_confidence_that_is_not_finite_is_named_with_its_row(self, value):
        with refused("confidence must be finite; got", "row 1"):
            TopLabel([0.5, value], [True, False])

    @pytest.mark.parametrize("value", [2, -1, 0.5, math.nan])
    def test_a_correctness_that_is_neither_is_named_with_its_row(self, value):
        with refused("correct must be true/false or 0/1; got", "at row 1"):
            TopLabel([0.5, 0.6], [1, value])

    def test_another_number_of_samples_is_refused_with_both_numbers(self):
        with refused("confidence and correct must have the same number of rows; got 2 and 3"):
            TopLabel([0.5, 0.6], [1, 0, 1])

    def test_no_samples_are_refused(self):
        with refused("at least one row; got none"):
            TopLabel([], [])

    @pytest.mark.parametrize(("confidence", "correct"), [(0.5, True), ([[0.5, 0.6]], [[True, False]])])
    def test_other_shapes_are_refused(self, confidence, correct):
        with refused(r"must have shape \(n,\); got"):
            TopLabel(confidence, correct)

    def test_complex_confidences_are_refused(self):
        with refused("confidence", "real"):
            TopLabel(np.array([0.5 + 0.1j]), [True])

    def test_log_odds_of_another_length_are_refused(self):
        with refused("confidence and log_odds must have the same number of rows; got 2 and 1"):
            TopLabel([0.5, 0.6], [True, False], [0.0])

    @pytest.mark.parametrize("log_odds", [[0.0, math.nan], [[0.0], [1.0]]])
    def test_log_odds_that_cannot_be_ranked_are_refused(self, log_odds):
        with refused("log_odds"):
            TopLabel([0.5, 0.6], [True, False], log_odds)


class TestWhatIsTaken:
    def test_lists_arrays_and_tensors_mean_the_same(self):
        ways = [LOGITS.tolist(), LOGITS, torch.from_numpy(LOGITS), np.asfortranarray(LOGITS)]
        for logits in ways:
            made = Predictions.from_logits(logits, LABELS.tolist())
            assert torch.equal(made.logits, torch.from_numpy(LOGITS))
            assert made.logits.dtype == torch.float64

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
    def test_logits_keep_their_type(self, dtype):
        made = Predictions.from_logits(torch.from_numpy(LOGITS).to(dtype), LABELS)
        assert made.logits.dtype == dtype
        assert made.confidence.dtype == torch.float64
        assert made.probs.dtype == made.log_probs.dtype == dtype

    def test_whole_numbers_are_logits_too(self):
        assert Predictions.from_logits([[2, 0], [0, 1]], [0, 1]).logits.dtype == torch.float64

    def test_an_array_that_may_not_be_written_is_read(self):
        logits = LOGITS.copy()
        logits.flags.writeable = False
        assert len(Predictions.from_logits(logits, LABELS)) == 3

    def test_an_array_seen_backwards_is_read(self):
        made = Predictions.from_logits(LOGITS[::-1], LABELS[::-1])
        assert torch.equal(made.logits, torch.from_numpy(LOGITS[::-1].copy()))

    def test_logits_that_require_gradients_are_detached(self):
        logits = torch.from_numpy(LOGITS).requires_grad_()
        assert not Predictions.from_logits(logits, LABELS).logits.requires_grad

    def test_one_logit_a_row_is_the_log_odds_of_class_one(self):
        for logits in ([-1.0, 3.0], [[-1.0], [3.0]]):
            made = Predictions.from_binary_logits(logits, [0, 1], class_names=["no", "yes"])
            assert made.predicted.tolist() == [0, 1]
            assert made.probs[:, 1].tolist() == pytest.approx([1 / (1 + math.e), 1 / (1 + math.exp(-3))])
            assert made.class_names == ("no", "yes")

    @given(rows=predictions())
    @many
    def test_probabilities_come_back_as_given(self, rows):
        again = Predictions.from_probs(rows.logits.double().softmax(1).clamp(min=1e-300), rows.labels)
        assert torch.allclose(again.probs, rows.logits.double().softmax(1), atol=1e-12)
        assert torch.equal(again.predicted, rows.logits.double().softmax(1).argmax(1))

    def test_equal_confidences_stay_equal(self):
        # A forest of ten trees: the other classes share what is left in different ways.
        probs = [[0.7, 0.3, 0.0, 0.0], [0.7, 0.1, 0.1, 0.1], [0.1, 0.7, 0.0, 0.2], [0.0, 0.2, 0.1, 0.7]]
        for dtype in (np.float32, np.float64):
            made = Predictions.from_probs(np.array(probs, dtype=dtype), [0, 0, 1, 3])
            assert len(made.confidence.unique()) == 1
            assert len(made.top.log_odds.unique()) == 1
            assert made.confidence.tolist() == pytest.approx([0.7] * 4, rel=1e-6)

    @pytest.mark.parametrize("n", [2, 3, 5, 9, 17, 33, 65])
    def test_equal_confidences_of_top_labels_stay_equal_wherever_they_stand(self, n):
        # A vectorised function may round the last few samples of an array differently from the others.
        for confidence in np.random.default_rng(0).random(300):
            assert len(TopLabel(np.full(n, confidence), np.ones(n, dtype=bool)).log_odds.unique()) == 1

    def test_samples_of_one_confidence_separate_nothing(self):
        confidence = 0.42767836722924435
        assert metrics.auroc(TopLabel([confidence] * 9, [True] * 8 + [False])) == 0.5

    def test_a_zero_probability_of_the_true_class_warns_with_the_number_of_samples(self):
        with pytest.warns(CalibrantWarning, match="1 of 2 true classes were given probability 0"):
            Predictions.from_probs([[1.0, 0.0], [0.0, 1.0]], [0, 0])

    def test_a_zero_probability_of_another_class_does_not(self):
        Predictions.from_probs([[1.0, 0.0], [0.0, 1.0]], [0, 1])

    def test_correctness_may_be_numbers(self):
        assert TopLabel([0.5, 0.6], [1, 0]).correct.tolist() == [True, False]
        assert TopLabel([0.5, 0.6], [1.0, 0.0]).correct.dtype == torch.bool

    def test_given_log_odds_rank_confidences_that_rounded_to_one(self):
        rows = TopLabel([1.0, 1.0], [True, False], [40.0, 30.0])
        assert metrics.auroc(rows) == 1
        assert metrics.auroc(TopLabel([1.0, 1.0], [True, False])) == 0.5


class TestWhatIsDerived:
    @given(rows=predictions())
    @many
    def test_the_top_label_agrees_with_softmax(self, rows):
        probs = rows.logits.double().softmax(1)
        assert torch.equal(rows.predicted, rows.logits.argmax(1))
        assert torch.equal(rows.correct, rows.predicted == rows.labels)
        assert torch.allclose(rows.confidence, probs.amax(1), atol=1e-6)
        assert torch.allclose(rows.probs.double(), probs, atol=1e-6)
        assert torch.allclose(rows.log_probs.double(), rows.logits.double().log_softmax(1), rtol=1e-5, atol=1e-5)
        assert rows.top.accuracy == pytest.approx(float(rows.correct.double().mean()))

    def test_the_first_of_tied_classes_is_predicted(self):
        assert Predictions.from_logits([[1.0, 1.0, 0.0], [0.0, 2.0, 2.0]], [0, 1]).predicted.tolist() == [0, 1]

    def test_the_number_of_classes_comes_from_the_logits(self):
        assert Predictions.from_logits(np.zeros((2, 7)), [0, 1]).n_classes == 7

    @given(rows=predictions(min_rows=2))
    @many
    def test_parts_put_together_are_the_whole(self, rows):
        half = len(rows) // 2
        again = rows[:half] + rows[half:]
        assert torch.equal(again.logits, rows.logits)
        assert torch.equal(again.labels, rows.labels)
        assert [len(block) for block in rows.blocks(7)] == [7] * (len(rows) // 7) + [len(rows) % 7] * (
            len(rows) % 7 > 0
        )
        assert torch.equal(torch.cat([block.logits for block in rows.blocks(7)]), rows.logits)

    @pytest.mark.parametrize("k", [5, 40])
    def test_samples_may_be_chosen_by_slices_masks_and_places(self, k):
        generator = torch.Generator().manual_seed(0)
        rows = Predictions.from_logits(torch.randn(30, k, generator=generator), torch.arange(30) % k)
        for chosen in (slice(None, None, 3), torch.arange(0, 30, 3), torch.arange(30) % 3 == 0):
            part = rows[chosen]
            assert torch.equal(part.logits, rows.logits[::3])
            assert metrics.ece(part) == pytest.approx(
                metrics.ece(Predictions.from_logits(rows.logits[::3], rows.labels[::3]))
            )
            assert metrics.nll(part) == pytest.approx(
                float(torch.nn.functional.cross_entropy(rows.logits[::3].double(), rows.labels[::3])), rel=1e-6
            )

    @pytest.mark.parametrize("place", [1, np.int64(1), torch.tensor(1)])
    def test_a_single_number_chooses_no_samples_but_is_answered_with_the_slice(self, place):
        for rows in (Predictions.from_logits(LOGITS, LABELS), TopLabel([0.5, 0.5], [True, False])):
            with refused("by a slice, a mask or positions", r"\[1:2\]"):
                rows[place]

    def test_choosing_no_samples_is_refused_as_giving_none_is(self):
        for rows in (Predictions.from_logits(LOGITS, LABELS), TopLabel([0.5], [True])):
            with refused("at least one row"):
                metrics.ece(rows[:0])

    def test_class_names_follow_the_samples(self):
        rows = Predictions.from_logits(LOGITS, LABELS, class_names=["cat", "dog", "cow"])
        assert rows.class_names == rows[1:].class_names == (rows + rows).class_names == ("cat", "dog", "cow")

    def test_predictions_over_different_classes_do_not_add_up(self):
        with refused("both must have the same classes; got 3 and 2"):
            Predictions.from_logits(LOGITS, LABELS) + Predictions.from_logits(LOGITS[:, :2], [0, 1, 1])

    def test_predictions_over_classes_of_other_names_do_not_add_up(self):
        first = Predictions.from_logits(LOGITS, LABELS, class_names=["cat", "dog", "cow"])
        second = Predictions.from_logits(LOGITS, LABELS, class_names=["dog", "cat", "cow"])
        with refused("classes"):
            first + second

    def test_a_short_description_tells_size_and_type(self):
        assert repr(Predictions.from_logits(LOGITS, LABELS)) == "Predictions(n=3, classes=3, torch.float64, cpu)"
        assert repr(TopLabel([0.5, 0.9], [True, False])) == "TopLabel(n=2, cpu)"


class TestImmutability:
    @pytest.mark.parametrize("name", ["logits", "labels", "class_names", "normalised"])
    def test_predictions_cannot_be_changed(self, name):
        rows = Predictions.from_logits(LOGITS, LABELS)
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(rows, name, None)
        with pytest.raises(dataclasses.FrozenInstanceError):
            delattr(rows, name)

    @pytest.mark.parametrize("name", ["confidence", "correct", "log_odds"])
    def test_top_labels_cannot_be_changed(self, name):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(TopLabel([0.5], [True]), name, None)

    def test_what_is_derived_is_worked_out_once(self):
        rows = Predictions.from_logits(LOGITS, LABELS)
        assert rows.probs is rows.probs
        assert rows.log_probs is rows.log_probs
        assert rows.top is rows.top
        assert rows.softmax_rows() is rows.softmax_rows()

    def test_two_records_are_equal_only_if_they_are_the_same(self):
        # Comparing tensors entry by entry has no one answer; identity has.
        rows = Predictions.from_logits(LOGITS, LABELS)
        assert rows == rows  # noqa: PLR0124
        assert rows != Predictions.from_logits(LOGITS, LABELS)
        assert hash(rows) == hash(rows)


@given(rows=top_labels())
@many
def test_everything_the_library_raises_on_purpose_has_one_base(rows):
    for function in (metrics.nll, metrics.sce):
        with pytest.raises(CalibrantError):
            function(rows)


class TestWhatContradictsItself:
    def test_log_odds_of_another_confidence_are_refused(self):
        with refused("log_odds must belong to the confidence; got -3 for 0.8 at row 1"):
            TopLabel([0.9, 0.8], [True, False], [2.2, -3.0])

    def test_one_string_is_no_sequence_of_class_names(self):
        with refused("class_names must be a sequence of names; got the one name 'cat'"):
            Predictions.from_logits(LOGITS, LABELS, class_names="cat")


class TestArraysByKeyword:
    """Functions take a record, or arrays by keyword; positional arrays get the right call."""

    PROBS = np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.3, 0.7]])
    LABELS = np.array([0, 1, 1, 1])

    def test_a_metric_takes_probabilities_logits_or_confidences(self):
        record = Predictions.from_probs(self.PROBS, self.LABELS)
        assert ece(probs=self.PROBS, labels=self.LABELS) == ece(record)
        assert nll(logits=np.log(self.PROBS), labels=self.LABELS) == pytest.approx(nll(record))
        correct = self.PROBS.argmax(1) == self.LABELS
        assert ece(confidence=self.PROBS.max(1), correct=correct, n_bins=10) == pytest.approx(ece(record, n_bins=10))
        assert ECE()(probs=self.PROBS, labels=self.LABELS) == ece(record)

    def test_labels_may_be_words_with_the_names_of_the_classes(self):
        words, names = np.array(["cat", "dog"])[self.LABELS], ["cat", "dog"]
        assert ece(probs=self.PROBS, labels=words, class_names=names) == ece(probs=self.PROBS, labels=self.LABELS)
        assert nll(logits=self.PROBS, labels=words, class_names=names) == nll(logits=self.PROBS, labels=self.LABELS)
        with pytest.raises(InputError, match=r"\(confidence=c, correct=r\); got .*class_names"):
            ece(confidence=[0.5], correct=[True], class_names=names)

    def test_calibrators_and_evaluations_take_them_too(self):
        rng = np.random.default_rng(0)
        logits = 2 * rng.normal(size=(200, 3))
        labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(1)
        record = Predictions.from_logits(logits, labels)
        fitted = TemperatureScaling().fit(logits=logits, labels=labels)
        assert fitted.temperature == TemperatureScaling().fit(record).temperature
        probs = fitted.predict_proba(logits=logits)
        assert isinstance(probs, np.ndarray)
        np.testing.assert_allclose(probs, fitted.transform(record).probs.numpy())
        tensor = fitted.predict_proba(probs=record.probs)
        assert isinstance(tensor, torch.Tensor)
        np.testing.assert_allclose(tensor.numpy(), probs, rtol=1e-12)
        given = evaluate(logits=logits, labels=labels, resamples=100)
        assert given.metrics["ece"] == evaluate(record, resamples=100).metrics["ece"]

    @pytest.mark.parametrize(
        "call",
        [
            ece,
            lambda probs, labels: ece(probs),  # noqa: ARG005
            lambda probs, labels: ece(labels=labels),  # noqa: ARG005
            lambda probs, labels: ece(probs=probs, logits=probs, labels=labels),
            lambda probs, labels: ece(TopLabel([0.5], [True]), labels=labels),  # noqa: ARG005
            lambda probs, labels: evaluate(probs),  # noqa: ARG005
        ],
    )
    def test_anything_else_is_an_error_that_shows_the_call(self, call):
        with pytest.raises(InputError, match=r"\(probs=p, labels=y\)"):
            call(self.PROBS, self.LABELS)


def test_what_is_kept_is_made_once_and_serves_slices_but_no_other_choice_of_samples():
    predictions = Predictions.from_logits(torch.randn(30, 3, dtype=torch.float64), torch.arange(30) % 3)
    made = []

    def squares(rows):
        made.append(len(rows))
        return rows.logits.square()

    for _ in range(2):
        predictions.cached("squares", lambda: squares(predictions))
    for part in predictions.blocks(8):
        kept = part.cached("squares", lambda: pytest.fail("made anew"))
        assert torch.equal(kept, part.logits.square())
    assert made == [30]
    shuffled = predictions[torch.arange(29, -1, -1)]
    assert torch.equal(shuffled.cached("squares", lambda: squares(shuffled)), shuffled.logits.square())
    assert made == [30, 30]


def test_what_people_type_first_is_answered_with_what_to_type():
    samples = overconfident(60, 3)
    probs, labels = samples.probs.numpy(), samples.labels.numpy()
    fitted = TemperatureScaling().fit(samples)
    for call, words in (
        (lambda: fitted(probs), "predict_proba"),
        (lambda: fitted.transform(probs), "predict_proba"),
        (lambda: fitted.predict_proba(probs), "probs=p"),
        (lambda: compare(probs, labels), "from_probs"),
        (lambda: compare(samples[:30], samples[30:], ["ets"]), r"parse_calibrator\('ets'\)"),
        (lambda: ece(samples, bins=10), "'bins' is none.*help"),
        (lambda: reliability(probs), "from_probs"),
        (lambda: plot_risk_coverage(probs), r"plot_risk_coverage\(probs=p, labels=y\)"),
        (lambda: plot_classwise(probs, labels), r"plot_classwise\(probs=p, labels=y\)"),
        (lambda: FocalLoss(2.0), r"Write FocalLoss\(gamma=2.0\)"),
        (lambda: samples[0], r"\[0:1\]"),
        (lambda: samples.top[-1], r"\[-1:\]"),
        (lambda: Predictions.from_probs(probs.T, labels), "transpose"),
        (lambda: Predictions.from_logits(probs.T, labels), "transpose"),
        (lambda: save_map("map.safetensors", fitted), "map comes first"),
        (lambda: difference(samples, samples, ["ece"]), "ECE"),
    ):
        with pytest.raises(InputError, match=words):
            call()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # predictions without labels say nothing about labels of probability 0
        assert fitted.predict_proba(probs=[[0.0, 1.0, 0.0]]).shape == (1, 3)


def test_logits_of_a_table_stay_by_columns_until_rows_are_asked_for():
    columns = torch.randn(5, 400, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(400) % 5
    given, rows = Predictions(columns.T, labels), Predictions(columns.T.contiguous(), labels)
    assert given.stored.data_ptr() == columns.data_ptr()
    assert given[10:90].stored.data_ptr() == columns[:, 10:].data_ptr()
    for part, same in ((given, rows), (given[10:90], rows[10:90]), (given[labels == 2], rows[labels == 2])):
        assert torch.equal(part.confidence, same.confidence)
        assert torch.equal(part.log_probs, same.log_probs)
        assert part.span == same.span
        assert part.logits.is_contiguous()
        assert part.stored is part.logits
    held = pickle.dumps(Predictions(columns.T, labels))
    for copied in (copy.deepcopy(Predictions(columns.T, labels)), pickle.loads(held)):  # noqa: S301
        assert repr(copied) == repr(rows)
        assert torch.equal(copied.logits, rows.logits)
    with pytest.raises(AttributeError, match="no attribute 'logit'"):
        given.logit  # noqa: B018


def test_logits_of_one_class_that_are_probabilities_are_noticed():
    p = torch.linspace(0.02, 0.98, 50)
    with pytest.warns(CalibrantWarning, match="as probabilities do"):
        Predictions.from_binary_logits(p, (p > 0.5).long())
    Predictions.from_binary_logits(p - 0.5, (p > 0.5).long())
    Predictions.from_binary_logits((p > 0.5).double(), (p > 0.5).long())  # decisions
