"""Columns of scores by list, range, pattern and prefix; one column of two classes; labels by name and by number."""

import gzip
import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from calibrant.errors import FileError, InputError, UnknownNameError
from calibrant.files import choose, load
from calibrant.predictions import TopLabel

PROBS = np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8], [0.2, 0.5, 0.3]])


def table(names, **others):
    return {**dict(zip(names, PROBS.T, strict=True)), **others}


def refused(*parts, error=InputError):
    return pytest.raises(error, match="(?s)" + ".*".join(map(re.escape, parts)))


@pytest.mark.parametrize("scores", ["cat,dog,eel", "cat, dog, eel", ["cat", "dog", "eel"], ("cat", "dog", "eel")])
def test_a_list_names_the_columns_and_the_classes(scores):
    loaded = load(table(["dog", "cat", "eel"], label=["dog", "eel", "cat"]), kind="probs", scores=scores)
    assert loaded.class_names == ("cat", "dog", "eel")
    assert loaded.labels.tolist() == [1, 2, 0]
    np.testing.assert_allclose(loaded.probs, PROBS[:, [1, 0, 2]])


@pytest.mark.parametrize("names", [["cat", "dog", "eel"], ["a:1", "b:2", "c, or d"]])
def test_a_range_names_the_columns_between_its_ends_but_those_that_are_something_else(names):
    source = {"id": [1, 2, 3], names[0]: PROBS[:, 0], "label": names, names[1]: PROBS[:, 1], names[2]: PROBS[:, 2]}
    loaded = load(source, kind="probs", scores=f"{names[0]}:{names[2]}")
    assert loaded.class_names == tuple(names)
    assert loaded.labels.tolist() == [0, 1, 2]
    np.testing.assert_allclose(loaded.probs, PROBS)
    for wrong in (f"{names[2]}:{names[0]}", f"{names[0]}:cow"):
        with refused("scores=", "found", error=UnknownNameError):
            load(source, kind="probs", scores=wrong)


@pytest.mark.parametrize(
    "labels", [["product_c", "product_a", "product_b"], ["c", "a", "b"], [2, 0, 1], ["2", "0", "1"]]
)
@pytest.mark.parametrize(
    "scores", ["product_*", "product", "product_", "product_a,product_b,product_c", "product_[abc]"]
)
def test_labels_are_found_by_the_columns_name_its_varying_part_or_number(scores, labels):
    source = table(["product_a", "product_b", "product_c"], label=labels)
    loaded = load(source, kind="probs", scores=scores)
    assert loaded.labels.tolist() == [2, 0, 1]
    if scores in {"product_*", "product", "product_"}:
        assert loaded.class_names == ("a", "b", "c")


@pytest.mark.parametrize("labels", [[3, 1, 2], ["3", "1", "2"], [3.0, 1.0, 2.0], ["3.0", "1.0", "2.0"]])
@pytest.mark.parametrize("scores", [None, "prob_*", "prob_1,prob_2,prob_3"])
def test_classes_numbered_from_one_are_found_by_their_numbers(scores, labels):
    loaded = load(table(["prob_2", "prob_1", "prob_3"], labels=labels), scores=scores)
    assert loaded.class_names == ("1", "2", "3")
    assert loaded.labels.tolist() == [2, 0, 1]
    np.testing.assert_allclose(loaded.probs, PROBS[:, [1, 0, 2]])


def test_a_list_may_leave_numbers_out_and_labels_follow_the_names():
    source = table(["5", "7", "3"], label=[7, 3, 5], id=[1, 2, 3])
    for scores in ("5,7,3", ["5", "7", "3"]):
        loaded = load(source, kind="probs", scores=scores)
        assert loaded.class_names == ("5", "7", "3")
        assert loaded.labels.tolist() == [1, 2, 0]
    with refused("must be numbered without a gap; 4 is missing"):
        load(source, kind="probs", scores="[0-9]*")


@pytest.mark.parametrize("names", [["probs_0", "probs_1", "probs_2"], ["logprob_A", "logprob_B", "logprob_C"]])
def test_plural_and_log_probabilities_are_known_by_name(names):
    source = table(names, label=[0, 1, 2])
    if names[0].startswith("log"):
        source = {name: np.log(values) if name != "label" else values for name, values in source.items()}
    np.testing.assert_allclose(load(source).probs, PROBS)


def test_bare_numbers_are_chosen_by_a_pattern_and_other_columns_are_not():
    source = {**table(["0", "1", "2"]), "id": [4, 5, 6], "label": [0, 2, 1]}
    loaded = load(source, kind="probs", scores="[0-9]*")
    assert loaded.class_names is None
    np.testing.assert_allclose(loaded.probs, PROBS)


def test_columns_with_another_purpose_are_not_scores():
    source = table(["p_a", "p_b", "p_c"], p_true=["a", "b", "c"], p_weight=[1, 2, 3], p_fold=["x", "x", "y"])
    options = {"labels": "p_true", "weights": "p_weight", "where": {"p_fold": "x"}}
    loaded = load(source, kind="probs", scores="p_", **options)
    assert loaded.labels.tolist() == [0, 1]
    assert loaded.weights.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"scores": "cat,dgo", "kind": "probs"}, ("there is no 'dgo' (the nearest is 'dog')",)),
        ({"scores": "x_*", "kind": "probs"}, ("scores='x_*' must be", "a pattern", "found 'cat'")),
        ({"scores": "cat,cat", "kind": "probs"}, ("every array once; got 'cat'",)),
        ({"scores": "cat,dog,eel"}, ("needs kind='logits' or kind='probs'",)),
        ({"scores": "cat,dog,eel", "kind": "probs"}, ("got 'ell' at row 2 (counting from 0); the nearest is 'eel'",)),
        ({"positive": "cat", "scores": "dog"}, ("positive names one column of scores; got scores='dog' too",)),
        ({"positive": "cta"}, ("positive='cta' must be among",)),
        ({"positive": "cat"}, ("must be 0/1 or true/false", "got 'cat', 'dog', 'ell'", "positive_class='ell'")),
        ({"positive": "cat", "positive_class": "cat"}, ("must have two classes", "got 3: 'cat', 'dog', 'ell'")),
        ({"positive": "cat", "positive_class": "cot"}, ("must be a label in 'label'", "the nearest is 'cat'")),
        ({"positive": "cat", "normalise": True, "positive_class": "cat"}, ("normalise is for probabilities of all",)),
    ],
)
def test_bad_options_are_explained(options, parts):
    with refused(*parts):
        load(table(["cat", "dog", "eel"], label=["cat", "dog", "ell"]), **options)


@pytest.mark.parametrize(
    ("labels", "positive_class", "names", "numbers"),
    [
        ([1, 0, 1], None, None, [1, 0, 1]),
        ([True, False, True], None, None, [1, 0, 1]),
        (["True", "False", "True"], None, None, [1, 0, 1]),
        ([1.0, 0.0, 1.0], None, None, [1, 0, 1]),
        ([1, -1, 1], "1", ("-1", "1"), [1, 0, 1]),
        (["bad", "good", "bad"], "bad", ("good", "bad"), [1, 0, 1]),
        (["bad", "bad", "bad"], "bad", ("not bad", "bad"), [1, 1, 1]),
        ([0, 1, 0], "0", ("1", "0"), [1, 0, 1]),
    ],
)
def test_one_column_of_two_classes(labels, positive_class, names, numbers):
    source = {"p": [0.9, 0.2, 0.6], "z": [1.0, -2.0, 0.5], "label": labels}
    loaded = load(source, positive="p", positive_class=positive_class)
    assert loaded.labels.tolist() == numbers
    assert loaded.class_names == names
    np.testing.assert_allclose(loaded.probs[:, 1], [0.9, 0.2, 0.6])
    logits = load(source, kind="logits", positive="z", positive_class=positive_class)
    assert logits.logits[:, 1].tolist() == [1.0, -2.0, 0.5]
    assert logits.labels.tolist() == numbers


@pytest.mark.parametrize("names", [("no", "yes"), ("False", "True"), ("0", "1")])
@pytest.mark.parametrize("is_swapped", [False, True])
def test_true_and_false_are_the_classes_of_these_names_whatever_the_order_of_the_columns(tmp_path, names, is_swapped):
    scores = [[0.7, 0.2, 0.4], [0.3, 0.8, 0.6]]
    columns = {f"prob_{name}": column for name, column in zip(names, scores, strict=True)}
    columns = dict(reversed(columns.items())) if is_swapped else columns
    table = {**columns, "label": np.array([False, True, False])}
    pq.write_table(pa.table(table), tmp_path / "bools.parquet")
    rows = "\n".join(",".join(map(str, row)) for row in zip(*table.values(), strict=True))
    (tmp_path / "bools.csv").write_text(f"{','.join(table)}\n{rows}\n")
    for source in (table, tmp_path / "bools.parquet", tmp_path / "bools.csv"):
        assert load(source).correct.tolist() == [True, True, False]


def test_true_and_false_are_no_classes_of_other_names():
    table = {"prob_ham": [0.7, 0.2], "prob_spam": [0.3, 0.8], "label": np.array([False, True])}
    with refused("class names ('ham', 'spam')", "the class that is true: positive=COLUMN"):
        load(table)
    assert load(table, kind="probs", positive="prob_spam").correct.all()


def test_records_of_netcal_may_be_of_two_classes_and_have_columns_of_labels():
    loaded = load({"predictions": np.array([0.9, 0.2]), "ground_truth": np.array([[1], [0]])})
    np.testing.assert_allclose(loaded.probs[:, 1], [0.9, 0.2])
    assert loaded.labels.tolist() == [1, 0]


def test_class_names_may_be_given():
    loaded = load({"logits": PROBS, "labels": ["B", "A", "C"]}, class_names=["A", "B", "C"])
    assert loaded.class_names == ("A", "B", "C")
    assert loaded.labels.tolist() == [1, 0, 2]


def test_samples_are_chosen_by_the_value_of_a_column():
    source = {"logits": PROBS, "labels": [0, 1, 2], "fold": [1, 2, 2], "part": ["cal", "test", "dev"]}
    for two in ("2", 2, 2.0, [2], np.int64(2)):
        assert load(source, where={"fold": two}).labels.tolist() == [1, 2]
    assert load({**source, "is_late": [False, True, True]}, where={"is_late": True}).labels.tolist() == [1, 2]
    assert load(source, where={"part": ["cal", "dev"]}).labels.tolist() == [0, 2]
    assert load(source, where={"part": ["cal", "dev"], "fold": "2"}).labels.tolist() == [2]
    with refused("'part' must hold 'val' in some rows; it holds 'cal' (1), 'dev' (1), 'test' (1)"):
        load(source, where={"part": "val"})
    with refused("must have the array 'splits'", error=UnknownNameError):
        load(source, where={"splits": "val"})


@pytest.mark.parametrize(("separator", "mark"), [(";", ";"), ("|", "|"), ("tab", "\t"), ("\\t", "\t"), ("\t", "\t")])
def test_separators(tmp_path, separator, mark):
    path = tmp_path / "p.csv"
    path.write_text("prob_0,prob_1,label\n0.75,0.25,1\n".replace(",", mark))
    assert load(path, separator=separator).labels.tolist() == [1]
    with refused("must have its columns separated by commas", "Pass separator=", error=FileError):
        load(path)
    path.rename(tmp_path / "p.tsv")
    if mark == "\t":
        assert load(tmp_path / "p.tsv").labels.tolist() == [1]
    else:
        with refused("separated by tabs", error=FileError):
            load(tmp_path / "p.tsv")


def test_decimal_commas_and_percent_signs_are_named(tmp_path):
    (tmp_path / "p.csv").write_text("prob_0;prob_1;label\n0,75;0,25;1\n")
    with refused("must have its columns separated by commas", "Pass separator='csv2'", error=FileError):
        load(tmp_path / "p.csv")
    with refused(
        "got the text '0,75' at line 2. Write the decimal comma as a point", "separator='csv2'", error=FileError
    ):
        load(tmp_path / "p.csv", separator=";")
    (tmp_path / "p.csv").write_text("logit_0,logit_1,label\n14.1%,85.9%,1\n")
    with refused("got the text '14.1%' at line 2. Write 0.141 for 14.1%", "pass percent=True", error=FileError):
        load(tmp_path / "p.csv")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("prob_0,prob_1,label\n0.2,0.8,1\n".encode("utf-16"), "it is UTF-16"),
        ("prob_0,prob_1,label\n0.2,0.8,1\n".encode("utf-16-le"), "iconv -f UTF-16LE"),
        ("prob_0,größe,label\n0.2,0.8,1\n".encode("utf-16-be"), "iconv -f UTF-16BE"),
        (b"PK\x03\x04 something", "Excel"),
        (gzip.compress(b"prob_0,prob_1,label\n"), "compressed"),
        (b"prob_0,prob_1\n0.2,0.8\n", "without labels only apply and shift work"),
        (b"prob_0,prob_1,y_true\n0.2,0.8,1\n", "Pass labels='y_true'."),
        (b"prob,label\n0.2,cat\n0.3,dog\n", "positive='prob'"),
        (b"score,label\n0.2,0\n0.3,1\n", "positive='score'"),
        (b".2,.8,1\n.3,.7,0\n", "its first row looks like data"),
        (b"prob_0 prob_1 label\n.2 .8 1\n", "pass separator=' '"),
        (
            b",cat,dog,fold,region,label\n0,.2,.8,1,north,dog\n1,.6,.4,2,south,cat\n",
            "scores='cat,dog' and labels='label'.",
        ),
        (b"prob_a,prob_b,label\n.2,.8,a|b\n", "(multi-label)"),
        (b"prob_0,prob_1,label\n.2,.8,0;1\n", "(multi-label)"),
        (b"id,conf,right\n7,.8,yes\n", "pass kind='top-label' and confidence='conf' and correct='right'."),
        (b"confidence,right\n.8,yes\n", "pass correct='right'."),
        (b"confidence,correct\n.8,yes\nhigh,no\n", "'high' at line 3. Write a number there, or remove the row."),
    ],
    ids=[
        "utf-16",
        "utf-16-le",
        "utf-16-be",
        "excel",
        "gzip",
        "no labels",
        "y_true",
        "prob",
        "score",
        "no header",
        "spaces",
        "columns without a name, of whole numbers and of text",
        "names",
        "numbers",
        "conf and right",
        "right",
        "text",
    ],
)
def test_what_a_csv_lacks_is_named_with_what_helps(tmp_path, text, part):
    (tmp_path / "p.csv").write_bytes(text)
    with refused(part, error=FileError):
        load(tmp_path / "p.csv")


def test_decimal_commas_beside_semicolons_are_read(tmp_path):
    text = "id;risk;status;age;w\n1;0,25;alive;70,5;2,0\n2;0,75;dead;61;0,5\n3;0,5;dead;50,25;1,0\n"
    (tmp_path / "p.csv").write_text(text)
    binary = {"kind": "probs", "labels": "status", "positive": "risk", "positive_class": "dead", "weights": "w"}
    found = load(tmp_path / "p.csv", **binary, separator="csv2")
    np.testing.assert_allclose(found.probs[:, 1], [0.25, 0.75, 0.5])
    assert found.labels.tolist() == [0, 1, 1]
    np.testing.assert_allclose(found.weights / found.weights.sum(), np.array([2, 0.5, 1]) / 3.5)


def test_spaces_beside_separators_are_not_part_of_names(tmp_path):
    (tmp_path / "p.csv").write_text("prob_cat, prob_dog , label\n0.2, 0.8, dog\n0.9, 0.1, cat\n")
    loaded = load(tmp_path / "p.csv")
    assert (loaded.class_names, loaded.labels.tolist(), len(loaded)) == (("cat", "dog"), [1, 0], 2)


@pytest.mark.parametrize(("name", "part"), [("p.json", "as .jsonl"), ("p.xlsx", "as CSV"), ("p.pkl", "Convert")])
def test_other_formats_are_refused_with_what_to_write_instead(tmp_path, name, part):
    (tmp_path / name).write_text("{}")
    with refused(part, error=FileError):
        load(tmp_path / name)


def test_the_error_for_unknown_columns_names_the_options_that_could_read_them(tmp_path):
    (tmp_path / "p.csv").write_text("y_pred_proba,target\n0.5,1\n")
    with refused(
        "pass", "labels='target'", "one column has the scores of two classes: positive='y_pred_proba'", error=FileError
    ):
        load(tmp_path / "p.csv")
    (tmp_path / "p.csv").write_text("0,1,target\n0.5,0.5,1\n")
    with refused("scores='[0-9]*' and labels='target'", error=FileError):
        load(tmp_path / "p.csv")
    (tmp_path / "p.csv").write_text("cat,dog,owl,label\n.2,.5,.3,dog\n")
    with refused("scores='cat,dog,owl'", error=FileError):
        load(tmp_path / "p.csv")
    names = ["cat_1", "owl", *(f"cat_{number}" for number in (2, 3, 5, 8, 13, 21, 34))]
    (tmp_path / "p.csv").write_text(f"id,{','.join(names)},label\n")
    with refused("scores=FIRST:LAST", error=FileError):  # not those that are numbered: they have gaps
        load(tmp_path / "p.csv")


@pytest.mark.parametrize("option", ["kind", "normalise", "separator", "class_names", "where", "positive_class"])
def test_options_of_another_type_are_refused(tmp_path, option):
    path = tmp_path / "p.csv"
    path.write_text("p,label\n0.9,2\n0.2,1\n")
    with refused(f"{option} must be", "got float"):
        load(path, positive="p", **{option: 3.5})
    assert load(path, positive="p", positive_class=2).class_names == ("1", "2")


@pytest.mark.parametrize("separator", ["", ";;", "a", ".", '"', "é"])
def test_a_separator_is_one_character_that_no_number_has(tmp_path, separator):
    (tmp_path / "p.csv").write_text("prob_0,prob_1,label\n0.75,0.25,1\n")
    with refused("must be one character"):
        load(tmp_path / "p.csv", separator=separator)


def test_only_separated_values_have_a_separator(tmp_path):
    np.savez(tmp_path / "p.npz", probs=PROBS, labels=[0, 1, 2])
    with refused("separator is for .csv and .tsv"):
        load(tmp_path / "p.npz", separator=";")


def test_a_pair_of_arrays(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        np.save(tmp_path / folder / "out.npy", PROBS)
        np.save(tmp_path / folder / "y.npy", [0, 1, 2] if folder == "a" else [2, 1, 0])
        loaded = load(tmp_path / folder / "out.npy", kind="probs", labels="y.npy")
        assert loaded.labels.tolist() == ([0, 1, 2] if folder == "a" else [2, 1, 0])
    elsewhere = load(tmp_path / "a/out.npy", kind="probs", labels=str(tmp_path / "b/y.npy"))
    assert elsewhere.labels.tolist() == [2, 1, 0]
    np.save(tmp_path / "val_logits.npy", PROBS)
    assert load(tmp_path / "val_logits.npy", labels="a/y.npy").logits.tolist() == PROBS.tolist()
    with refused("out.npy needs kind='probs' or kind='logits', because its name", error=FileError):
        load(tmp_path / "a/out.npy", labels="y.npy")
    holds = "must come with its labels; it holds one array, "
    with refused(f"{holds}'val_logits' (3 x 3). Pass labels='labels.npy'.", error=FileError):
        load(tmp_path / "val_logits.npy")
    with refused(f"{holds}'out' (3 x 3). Pass labels='labels.npy' and kind='probs' or kind='logits'.", error=FileError):
        load(tmp_path / "a/out.npy")
    with refused("must be an existing file", error=FileError):
        load(tmp_path / "val_logits.npy", labels="no.npy")


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_json_lines_of_arrays_objects_and_columns(tmp_path):
    labels = ["B", "C", "A"]
    forms = [
        ([{"probs": row.tolist(), "label": label} for row, label in zip(PROBS, labels, strict=True)], {}),
        (
            [{"probs": dict(zip("ABC", row, strict=True)), "label": y} for row, y in zip(PROBS, labels, strict=True)],
            {"kind": "probs", "scores": "probs.*"},
        ),
        (
            [
                {"logprobs": dict(zip("ABC", np.log(row), strict=True)), "label": y}
                for row, y in zip(PROBS, labels, strict=True)
            ],
            {},
        ),
        ([{"prob_A": a, "prob_B": b, "prob_C": c, "label": y} for (a, b, c), y in zip(PROBS, labels, strict=True)], {}),
    ]
    for rows, options in forms:
        loaded = load(lines(tmp_path / "p.jsonl", rows), class_names=["A", "B", "C"], **options)
        assert loaded.labels.tolist() == [1, 2, 0]
        np.testing.assert_allclose(loaded.probs, PROBS)


def test_json_lines_of_confidence_and_correctness(tmp_path):
    rows = [{"question": "q", "confidence": 0.9, "correct": "yes"}, {"question": "r", "confidence": 1, "correct": "no"}]
    loaded = load(lines(tmp_path / "p.jsonl", rows))
    assert isinstance(loaded, TopLabel)
    assert loaded.correct.tolist() == [True, False]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"probs": [0.5, 0.5], "label": 1}\n{"probs": [0.5], "label": 0}\n', "line 2 has 1.*write the 'confidence'"),
        (
            '{"logprobs": {"A": -1, "B": -2}, "label": "A"}\n{"logprobs": {"A": -1}, "label": "A"}\n',
            "'logprobs.B' must have a value in every row; .*line 2",
        ),
        (
            '{"logprobs": {"A": -1, "B": -2}, "label": "A"}\n' + '{"logprobs": {"A": -1}, "label": "A"}\n' * 2,
            "'logprobs.B' must have a value .*one of 2 such rows.*classes of their own, .*write the 'confidence'",
        ),
        (
            '{"probs": [0.5, 0.5], "label": 1}\n{"probs": [0.5, 0.5]}\n',
            "'label' must have a value in every row; .*line 2",
        ),
        ('{"probs": [0.5, 0.5], "label": 1}\n{"probs": 3, "label": 1}\n', "changed from array to number in row 1"),
        ('{"probs": [0.5, 0.5], "label": ["a", "b"]}\n', "lists of text.*multi-label"),
        ('{"choices": [{"logprobs": {"content": []}}], "label": "A"}\n', "chat server.*docs/files.md"),
        ('{"logprobs": {"content": [{"token": "A"}]}, "label": "A"}\n', "chat server"),
        ('{"logprobs": [{"token": "A", "logprob": -1}], "label": "A"}\n', "chat server"),
        ('{"probs": [0.5, 0.5], "label": ', "one JSON object in every line; line 1 holds none"),
        ("[0.5, 0.5, 1]\n", "file of JSON lines"),
        (
            '{"confidence": 0.5, "correct": "maybe"}\n',
            "'correct' must be true/false, .* got 'maybe' at line 1, among 'maybe'. Name .*positive_class=WORD",
        ),
    ],
)
def test_bad_json_lines_are_explained(tmp_path, text, message):
    (tmp_path / "p.jsonl").write_text(text)
    with pytest.raises(FileError, match=message):
        load(tmp_path / "p.jsonl")


def test_folders_of_hugging_face_datasets(tmp_path):
    folder = tmp_path / "test"
    folder.mkdir()
    files = [f"data-{part:05}-of-00002.arrow" for part in range(2)]
    for part, file in enumerate(files):
        rows = slice(2 * part, 2 * part + 2)
        columns = pa.table({"text": ["a", "b", "c"][rows], "logits": PROBS[rows].tolist(), "label": [2, 0, 1][rows]})
        with pa.OSFile(str(folder / file), "wb") as sink, pa.ipc.new_stream(sink, columns.schema) as writer:
            writer.write_table(columns)
    names = {"label": {"names": ["neg", "neutral", "pos"], "_type": "ClassLabel"}, "text": {"dtype": "string"}}
    (folder / "dataset_info.json").write_text(json.dumps({"features": names}))
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": file} for file in files]}))
    loaded = load(folder)
    assert loaded.logits.tolist() == PROBS.tolist()
    assert loaded.labels.tolist() == [2, 0, 1]
    assert loaded.class_names == ("neg", "neutral", "pos")
    (tmp_path / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "test"]}))
    with refused("must be one split", "/test.", error=FileError):
        load(tmp_path)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "../../secret.arrow"}]}))
    assert len(load(folder)) == 3
    (folder / "state.json").write_text("[]")
    with refused("must hold a JSON object", error=FileError):
        load(folder)


def test_other_folders_are_refused(tmp_path):
    with refused("must be a file; it is a folder", error=FileError):
        load(tmp_path)


def test_class_names_of_hugging_face_in_the_metadata_of_a_table():
    info = {"info": {"features": {"label": {"names": ["a", "b", "c"], "_type": "ClassLabel"}}}}
    frame = pa.table({"probs": PROBS.tolist(), "label": [0, 1, 2], "targets_2": [0, 0, 0]})
    frame = frame.replace_schema_metadata({"huggingface": json.dumps(info)})
    assert load(frame).class_names == ("a", "b", "c")
    assert load(frame, labels="targets_2").class_names is None


def test_rounded_probabilities_are_normalised():
    source = {"probs": np.round(100 * PROBS + 0.4), "labels": torch.tensor([0, 1, 2])}
    assert load(source, normalise=True).probs.sum(1).tolist() == pytest.approx([1, 1, 1])
    with refused("pass normalise=True"):
        load(source)


@pytest.mark.parametrize("names", [["prob_0", "prob_1"], ["prob_cat", "prob_dog"]])
def test_an_empty_label_of_a_csv_is_said_to_be_missing(tmp_path, names):
    (tmp_path / "p.csv").write_text(f"{','.join(names)},label\n0.5,0.5,{names[1][5:]}\n0.5,0.5,\n")
    with pytest.raises(
        FileError, match=r"'label' must have a value in every row; got none .null, NaN or an empty field. at line 3"
    ):
        load(tmp_path / "p.csv")


@pytest.mark.parametrize("row", [0, 1, 2])
def test_a_cell_of_a_csv_may_be_longer_than_blocks_that_are_parsed(tmp_path, row):
    texts = ["short"] * 3
    texts[row] = "a line of a document, again and again\n" * 80_000  # 3 MB
    rows = [
        f'{p[0]:.6f},{p[1]:.6f},{p[2]:.6f},{place},"{text}"'
        for place, (p, text) in enumerate(zip(PROBS, texts, strict=True))
    ]
    (tmp_path / "p.csv").write_text("prob_0,prob_1,prob_2,label,text\n" + "\n".join(rows) + "\n")
    loaded = load(tmp_path / "p.csv", normalise=True)
    np.testing.assert_allclose(loaded.probs, PROBS, atol=1e-5)
    assert loaded.labels.tolist() == [0, 1, 2]


def test_scores_and_labels_that_look_swapped_are_named(tmp_path):
    rows = "".join(f"{p},{int(p > 0.5)}\n" for p in (0.2, 0.9, 0.4, 0.7))
    (tmp_path / "p.csv").write_text(f"p_fraud,is_fraud\n{rows}")
    with refused("look swapped", "positive='p_fraud' and labels='is_fraud'", error=FileError):
        load(tmp_path / "p.csv", positive="is_fraud", labels="p_fraud")
    with refused("'labels' must hold one label a row; it has 3", "look swapped"):
        load({"probs": np.array([0, 2]), "labels": np.array([[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]])})


def test_probabilities_are_called_so_where_the_labels_are_fewer():
    with refused("probs and labels must have the same number of rows; got 3 and 2"):
        load({"probs": np.full((3, 4), 0.25), "labels": np.array([0, 1])})
    with refused("probs and labels must have the same number of rows; got 3 and 2"):
        load({"p": np.full(3, 0.25), "labels": np.array([0, 1])}, positive="p")


def test_a_large_table_is_not_read_for_a_suggestion(tmp_path, monkeypatch):
    (tmp_path / "p.csv").write_text(",cat,dog,label\n0,.2,.8,dog\n1,.6,.4,cat\n")
    with refused("pass kind='probs' and scores='cat,dog'", error=FileError):
        load(tmp_path / "p.csv")
    monkeypatch.setattr(choose, "_LARGEST", 30)
    with refused("must have columns 'logits'", error=FileError):
        load(tmp_path / "p.csv")
