"""Names say what numbers are; what they cannot say is asked for, never guessed."""

import re

import numpy as np
import pytest
import torch

from calibrant.errors import FileError, InputError, UnknownNameError
from calibrant.files import load
from calibrant.files.choose import LoadOptions
from calibrant.files.load import load_detailed
from calibrant.predictions import Predictions, TopLabel

LOGITS = np.array([[2.0, 0.0, -1.0], [0.5, 1.5, 0.0]])
PROBS = np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])
LABELS = np.array([0, 2])


def says(text):
    return ".*".join(re.escape(part.strip()) for part in text.split("..."))


@pytest.mark.parametrize("name", ["labels", "label", "targets", "ground_truth"])
def test_labels_have_four_names(name):
    assert load({"logits": LOGITS, name: LABELS}).labels.tolist() == [0, 2]


@pytest.mark.parametrize("name", ["probs", "prob", "probabilities"])
def test_probabilities_have_three_names(name):
    assert np.allclose(load({name: PROBS, "labels": LABELS}).probs, PROBS)


@pytest.mark.parametrize("name", ["logits", "logit"])
def test_logits_have_two_names(name, tmp_path):
    assert torch.equal(load({name: LOGITS, "labels": LABELS}).logits, torch.as_tensor(LOGITS))
    (tmp_path / "binary.csv").write_text(f"{name},label\n1.5,1\n-2,0\n")
    assert load(tmp_path / "binary.csv").logits.tolist() == [[0.0, 1.5], [0.0, -2.0]]


def test_the_probability_of_one_class_is_refused_with_the_option_that_reads_it(tmp_path):
    (tmp_path / "binary.csv").write_text("prob,label\n0.5,1\n0.25,0\n")
    with pytest.raises(FileError, match="pass positive='prob'"):
        load(tmp_path / "binary.csv")


def test_netcal_files_are_understood():
    assert np.allclose(load({"predictions": PROBS, "ground_truth": LABELS}).probs, PROBS)


def test_predictions_beside_labels_may_be_anything_and_are_not_taken():
    with pytest.raises(InputError, match=says("must have arrays 'logits'...found 'predictions' (2 x 3), 'labels' (2)")):
        load({"predictions": PROBS, "labels": LABELS})


def test_logits_win_over_probabilities_by_default():
    both = {"probs": PROBS, "logits": LOGITS, "labels": LABELS}
    assert torch.equal(load(both).logits, torch.as_tensor(LOGITS))
    assert np.allclose(load(both, kind="probs").probs, PROBS)
    assert np.allclose(load(both, scores="probs").probs, PROBS)


def test_values_are_never_looked_at_to_find_out_what_they_are():
    assert torch.equal(load({"logits": PROBS, "labels": LABELS}).logits, torch.as_tensor(PROBS))
    with pytest.raises(InputError, match=r"probs must lie in 0\.\.1"):
        load({"probs": LOGITS, "labels": LABELS})


@pytest.mark.parametrize("logits", [[1.5, -2.0], [[1.5], [-2.0]]])
def test_one_logit_a_row_means_two_classes(logits):
    loaded = load({"logits": logits, "labels": [1, 0], "class_names": ["no", "yes"]})
    assert loaded.logits.tolist() == [[0.0, 1.5], [0.0, -2.0]]
    assert loaded.class_names == ("no", "yes")


def test_confidence_and_correct_make_a_top_label():
    loaded = load({"confidence": [0.9, 0.6], "correct": [1, 0]})
    assert isinstance(loaded, TopLabel)
    renamed = load({"c": [0.9, 0.6], "ok": [True, False]}, kind="top-label", confidence="c", correct="ok")
    assert torch.equal(renamed.confidence, loaded.confidence)
    assert isinstance(load({"conf": [0.9], "correct": [True]}, confidence="conf"), TopLabel)


def test_a_complete_kind_goes_before_an_incomplete_one():
    loaded = load({"logits": LOGITS, "confidence": [0.9, 0.6], "correct": [True, False]})
    assert isinstance(loaded, TopLabel)


def test_given_names_are_used():
    source = {"a": LOGITS, "b": PROBS, "y": LABELS}
    assert torch.equal(load(source, kind="logits", scores="a", labels="y").logits, torch.as_tensor(LOGITS))
    assert np.allclose(load(source, kind="probs", scores="b", labels="y").probs, PROBS)


def test_scores_may_be_a_prefix_in_the_order_of_their_numbers():
    columns = {f"p_{place}": PROBS[:, place] for place in (2, 0, 1)}
    assert np.allclose(load({**columns, "label": LABELS}, kind="probs", scores="p_").probs, PROBS)


def test_numbers_with_leading_zeros_are_numbers():
    columns = {f"logit_{place:02}": np.full(2, float(place)) for place in range(12)}
    assert load({**columns, "label": LABELS}).logits[0].tolist() == list(range(12))


def test_words_in_names_are_class_names_and_labels_may_be_those():
    columns = {"prob_cat": PROBS[:, 0], "prob_dog": PROBS[:, 1], "prob_eel": PROBS[:, 2]}
    loaded = load({**columns, "label": ["cat", "eel"]})
    assert loaded.class_names == ("cat", "dog", "eel")
    assert loaded.labels.tolist() == [0, 2]
    assert load({**columns, "label": [0, 2]}).labels.tolist() == [0, 2]


@pytest.mark.parametrize(
    ("source", "options", "error", "message"),
    [
        ({}, {}, InputError, "the source must have arrays 'logits'...'probs'...'confidence'...found nothing"),
        (
            {"softmax_out": PROBS, "y": LABELS},
            {"kind": "probs"},
            InputError,
            "must have arrays 'probs'...found 'softmax_out' (2 x 3), 'y' (2)...scores='softmax_out' and labels='y'.",
        ),
        ({"out": PROBS, "labels": LABELS}, {}, InputError, "pass kind='logits' (or kind='probs') and scores='out'."),
        ({"logits": LOGITS, "Labels": LABELS}, {}, InputError, "found 'logits'...'Labels'...Pass labels='Labels'."),
        ({"p_0": LABELS, "p_1": LABELS, "labels": LABELS}, {"kind": "probs"}, InputError, "pass scores='p_'."),
        ({"conf": [0.5], "correct": [1]}, {"kind": "top-label"}, InputError, "pass confidence='conf'."),
        ({"logits": LOGITS, "labels": LABELS}, {"kind": "probs"}, InputError, "must have arrays 'probs'"),
        ({"logits": LOGITS}, {}, InputError, "must have labels...found 'logits'...Pass labels=NAME, or add them"),
        ({"labels": LABELS}, {}, InputError, "or 'confidence' with 'correct'; found 'labels' (2)...scores=NAME."),
        (
            {"confidence": [0.5], "is_correct": [1]},
            {},
            InputError,
            "must have arrays 'confidence' with 'correct'; found...pass correct='is_correct'.",
        ),
        ({"logits": LOGITS}, {"labels": "y"}, UnknownNameError, "labels='y' must be among the arrays of the source"),
        ({"a": LOGITS, "labels": LABELS}, {"scores": "a"}, InputError, "needs kind='logits' or kind='probs'"),
        (
            {"a": LOGITS, "labels": LABELS},
            {"kind": "probs", "scores": "b"},
            UnknownNameError,
            "scores='b' must be...found 'a' (2 x 3), 'labels' (2)",
        ),
        ({"confidence": [1.0]}, {"correct": "ok"}, UnknownNameError, "correct='ok' must be...found 'confidence'"),
        ({}, {"kind": "scores"}, UnknownNameError, "kind must be 'logits', 'probs' or 'top-label'; got 'scores'"),
        ({}, {"confidence": "a", "labels": "b"}, InputError, "got both"),
        ({}, {"confidence": "a", "kind": "probs"}, InputError, "got both"),
        ({}, {"scores": "a", "kind": "top-label"}, InputError, "got both"),
        (
            {"logits": LOGITS, "labels": LABELS, "targets": LABELS},
            {},
            InputError,
            "must have one array of labels; found 'labels', 'targets'. Pass labels='labels' or the other.",
        ),
        ({"probs": PROBS, "probabilities": PROBS, "labels": LABELS}, {}, InputError, "found 'probs', 'probabilities'"),
        (
            {"logits": LOGITS, "logit_0": LABELS, "logit_1": LABELS, "labels": LABELS},
            {},
            InputError,
            "must have one set of logits; found 'logits', and 'logit_0' and 'logit_1'...scores='logit_*'",
        ),
        (
            {"logit_0": LABELS, "logit_1": LABELS, "logit_3": LABELS, "labels": LABELS},
            {},
            InputError,
            "without a gap; logit_2 is missing",
        ),
        (
            {"prob_1": LABELS, "prob_2": LABELS, "labels": [1, 0]},
            {},
            InputError,
            "the numbers in the names of the scores, 'prob_1' to 'prob_2'; got 0 at row 1",
        ),
        ({"prob_0": LABELS, "prob_1": LABELS, "prob_max": LABELS}, {}, InputError, "found 'prob_0' and 'prob_max'"),
        (
            {"prob_0": LABELS, "prob_00": LABELS, "labels": LABELS},
            {},
            InputError,
            "must have one array prob_0; found 2",
        ),
        ({"logits": LOGITS, "labels": ["cat", "dog"]}, {}, InputError, "got 'cat' at row 0...class_names=NAMES"),
        (
            {"logits": LOGITS, "labels": ["a", "z"], "class_names": ["a", "b", "c"]},
            {},
            InputError,
            "must hold class names ('a', 'b', 'c') or class numbers; got 'z' at row 1",
        ),
        (
            {"logits": LOGITS, "labels": ["a", "b"], "class_names": ["a", "a", "b"]},
            {},
            InputError,
            "two classes have the same name",
        ),
        (
            {"logits": LOGITS, "labels": LABELS, "class_names": ["a"]},
            {},
            InputError,
            "must name all 3 classes; got 1 names",
        ),
        ({"logits": LOGITS, "labels": LABELS, "class_names": [1, 2, 3]}, {}, InputError, "must be a list of text"),
        ({"logits": [["a", "b"]], "labels": [0]}, {}, InputError, "logits must be"),
        ({"logits": ["1.5", "x"], "labels": [0, 1]}, {}, InputError, "must hold numbers; got the text 'x' at row 1"),
        ({"logits": [[1.0, 2.0], [1.0]], "labels": [0, 1]}, {}, InputError, "lists of equal length"),
        ({"logit_0": [1.0], "logit_1": [1.0, 2.0], "label": [0]}, {}, InputError, "one number a row"),
        ({"logits": LOGITS, "labels": np.array([], dtype=str)}, {}, InputError, "'labels' must have at least one row"),
        ({"logits": LOGITS, "labels": np.array([b"\xff", b"a"])}, {}, InputError, "'labels' must be...can't decode"),
        ({"logits": LOGITS, "labels": [0.0, 1.5]}, {}, InputError, "labels must be whole numbers; got 1.5 at row 1"),
        ({"logits": np.array([[None, 1]]), "labels": [0]}, {}, InputError, "logits must be"),
        ({"logits": torch.eye(2).to_sparse(), "labels": [0, 1]}, {}, InputError, "must be a plain tensor"),
        (
            {"prob_a": [1.0], "prob_b": [0.0], "label": [0], "class_names": ["b", "a"]},
            {},
            InputError,
            "must agree; got 'a', 'b', ...and 'b', 'a'",
        ),
        ([1, 2], {}, InputError, "the source must be the path of a file...got list"),
        (Predictions.from_logits(LOGITS, LABELS), {}, InputError, "got Predictions"),
    ],
)
def test_bad_input_is_explained(source, options, error, message):
    with pytest.raises(error, match=says(message)) as caught:
        load(source, **options)
    assert type(caught.value) is error
    assert not isinstance(caught.value, FileError)


def test_whole_numbers_of_a_floating_type_are_labels(tmp_path):
    assert load({"logits": LOGITS, "labels": [0.0, 2.0]}).labels.tolist() == [0, 2]
    (tmp_path / "p.csv").write_text("logit_0,logit_1,label\n1,2,1.0\n2,1,0.0\n")
    assert load(tmp_path / "p.csv").labels.tolist() == [1, 0]


def test_other_columns_are_read_by_name(tmp_path):
    (tmp_path / "p.csv").write_text(
        "prob_0,prob_1,label,region,weight,day\n0.5,0.5,1,nan,2,2024-01-01\n1,0,0,b,0.5,x\n"
    )
    names = ("region", "weight", "day")
    loaded = load_detailed(tmp_path / "p.csv", LoadOptions(extra=names))
    assert loaded.extra["region"].distinct == ("nan", "b")
    assert loaded.extra["weight"].tolist() == [2.0, 0.5]
    assert loaded.extra["day"].distinct == ("2024-01-01", "x")
    with pytest.raises(UnknownNameError, match="must have the column 'area'; found"):
        load_detailed(tmp_path / "p.csv", LoadOptions(extra=("area",)))
    with pytest.raises(InputError, match="'w' must have one entry per sample"):
        load_detailed({"logits": LOGITS, "labels": LABELS, "w": [1.0]}, LoadOptions(extra=("w",)))


def test_arrays_torch_cannot_share_are_copied():
    read_only = LOGITS.copy()
    read_only.flags.writeable = False
    for logits in (read_only, LOGITS.astype(">f8"), LOGITS[::-1][::-1], np.asfortranarray(LOGITS)):
        assert torch.equal(load({"logits": logits, "labels": LABELS}).logits, torch.as_tensor(LOGITS))


def test_tensors_stay_as_they_are():
    logits = torch.randn(4, 3, requires_grad=True)
    loaded = load({"logits": logits, "labels": torch.zeros(4, dtype=torch.uint8)})
    assert loaded.logits.data_ptr() == logits.data_ptr()
    assert not loaded.logits.requires_grad


def test_the_list_of_what_was_found_is_short():
    with pytest.raises(InputError, match="and 992 more") as caught:
        load({f"x{place}y": [1.0] for place in range(1000)})
    assert len(str(caught.value)) < 600


def test_numbered_columns_do_not_hide_the_others(tmp_path):
    names = [*(f"p_{place}" for place in range(10)), "y", "W"]
    (tmp_path / "p.csv").write_text(",".join(names) + "\n" + ",".join("0" * len(names)) + "\n")
    with pytest.raises(InputError, match=r"found 'p_0' to 'p_9', 'y', 'W'; the nearest is 'W'"):
        load(tmp_path / "p.csv", kind="logits", scores="p_", labels="y", weights="w")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"weights": 3}, "'3'; found"),
        ({"weights": [1.0, 2.0]}, "weights must be the name of a column; got list"),
        ({"scores": 3}, "kind='logits'"),
        ({"scores": ["a", 2], "kind": "probs"}, "there is no 'a'"),
        ({"where": {3: 1}}, "'3'; found"),
    ],
)
def test_what_is_no_name_is_refused_in_words(given, said):
    with pytest.raises(InputError, match=said):
        load({"probs": [[0.2, 0.8], [0.6, 0.4]], "labels": [1, 0]}, **given)


def test_columns_of_a_frame_are_named_by_its_numbers():
    frame = pytest.importorskip("pandas").DataFrame([[0.2, 0.8, 1], [0.6, 0.4, 0], [0.7, 0.3, 0]])
    assert load(frame, kind="probs", scores=[0, 1], labels=2, where={2: 0}).correct.tolist() == [True, True]
    assert load(frame, positive=1, labels=2).labels.tolist() == [1, 0, 0]


FOREST = "cat,dog,a fox,weight,animal\n0.5,0.25,0.25,3.5,cat\n0.1,0.2,0.7,7.25,a fox\n0.2,0.6,0.2,1,cat\n"


@pytest.mark.parametrize(
    ("old", "new", "options"),
    [
        ("cat", "cat", "kind='probs' and scores='cat,dog,a fox' and labels='animal'."),  # no sample is a dog
        ("0.5,0.25", "-2.5,0.25", "kind='logits' and"),
        ("cat", 40 * "cat ", f"scores='{(40 * 'cat ').strip()}:a fox'"),
    ],
)
def test_columns_that_the_labels_name_are_suggested(old, new, options, tmp_path):
    (tmp_path / "forest.csv").write_text(FOREST.replace(old, new.strip()))
    with pytest.raises(FileError, match=re.escape(options)):
        load(tmp_path / "forest.csv")


def test_nothing_is_suggested_where_a_label_names_no_column(tmp_path):
    (tmp_path / "forest.csv").write_text(FOREST + "0.1,0.2,0.7,2,owl\n")
    with pytest.raises(FileError, match="Rename the intended one"):
        load(tmp_path / "forest.csv")


def test_percentages_of_classes_that_the_labels_name_are_suggested(tmp_path):
    (tmp_path / "forest.csv").write_text("cat;dog;animal\n94,1 %;5,9 %;cat\n20 %;80 %;dog\n")
    with pytest.raises(FileError, match="kind='probs' and scores='cat,dog' and labels='animal'"):
        load(tmp_path / "forest.csv", separator="csv2")


@pytest.mark.parametrize(
    ("rows", "given", "options"),
    [
        (
            "id,p_fraud,is_fraud\n7,0.2,0\n8,0.9,1\n9,0.1,0\n",
            {},
            "positive='p_fraud', kind='probs' and labels='is_fraud'.",
        ),
        (
            "pd,default,weight\n0.2,bad,3.5\n0.9,good,1\n",
            {},
            "labels='default', and the label whose scores they are: positive_class=NAME.",
        ),
        ("p,won,weight\n0.2,No,3.5\n0.9,Yes,1\n", {}, "positive='p', kind='probs' and labels='won'."),
        (
            "pd,default,sex\n0.2,bad,f\n0.9,good,m\n",
            {"labels": "default"},
            "labels='default', and the label whose scores they are: positive_class=NAME.",
        ),
        ("margin,y\n-1.5,0\n0.7,1\n", {}, "positive='margin', kind='logits' and labels='y'."),
        ("id,p_fraud,is_fraud\n7,0.2,0\n8,0.9,1\n9,0.1,0\n", {"positive": "p_fraud"}, "Pass labels='is_fraud'."),
        ("prob_a b,prob_é,city,name\n0.2,0.8,é,Ann\n0.6,0.4,é,Bob\n", {}, "Pass labels='city'."),
        ("prob_1,prob_2,prob_3,stars\n0.2,0.7,0.1,2\n0.6,0.3,0.1,3\n", {}, "Pass labels='stars'."),
    ],
)
def test_columns_are_suggested_by_their_values_where_only_one_is_like_them(rows, given, options, tmp_path):
    (tmp_path / "p.csv").write_text(rows)
    with pytest.raises(FileError, match=re.escape(options)):
        load(tmp_path / "p.csv", **given)


@pytest.mark.parametrize(
    "rows", ["p,sex,y\n0.2,f,0\n0.9,m,1\n", "p,q,y\n0.2,0.3,0\n0.9,0.8,1\n", "amount,y\n12.5,0\n3.25,1\n"]
)
def test_no_columns_are_suggested_where_several_or_none_are_like_them(rows, tmp_path):
    (tmp_path / "p.csv").write_text(rows)
    with pytest.raises(FileError, match="Rename the intended one"):
        load(tmp_path / "p.csv")


def test_a_label_for_every_class_is_said_to_be_read_one_class_at_a_time(tmp_path):
    (tmp_path / "p.csv").write_text("prob_cat,prob_dog,label_cat,label_dog\n0.9,0.8,1,1\n0.2,0.3,0,1\n")
    with pytest.raises(FileError, match=r"several labels \(multi-label\), evaluate one at a time.*positive=NAME"):
        load(tmp_path / "p.csv")
    assert load(tmp_path / "p.csv", positive="prob_cat", labels="label_cat").labels.tolist() == [1, 0]


def test_the_scores_of_one_of_two_models_in_a_file_are_suggested(tmp_path):
    names = [f"{model}_prob_{name}" for model in ("old", "new") for name in ("cat", "dog")]
    (tmp_path / "p.csv").write_text(f"{','.join(names)},label\n0.2,0.8,0.3,0.7,dog\n")
    with pytest.raises(FileError, match=re.escape("pass scores='old_prob_*' (or scores='new_prob_*').")):
        load(tmp_path / "p.csv")
    loaded = load(tmp_path / "p.csv", scores="new_prob_*")
    assert loaded.class_names == ("cat", "dog")
    assert loaded.probs.tolist() == [[pytest.approx(0.3), pytest.approx(0.7)]]


def test_names_with_commas_are_listed_with_commas(tmp_path):
    (tmp_path / "shoes.csv").write_text('"Boots, ankle",Sandal,"a,b,c",label\n0.5,0.25,0.25,Sandal\n')
    for scores in ("Boots, ankle,Sandal,a,b,c", ["Boots, ankle", "Sandal", "a,b,c"], "Boots, ankle:a,b,c"):
        loaded = load(tmp_path / "shoes.csv", kind="probs", scores=scores)
        assert loaded.class_names == ("Boots, ankle", "Sandal", "a,b,c")
        assert loaded.labels.tolist() == [1]
    with pytest.raises(UnknownNameError, match="there is no 'Boots'"):
        load(tmp_path / "shoes.csv", kind="probs", scores="Boots,Sandal")
