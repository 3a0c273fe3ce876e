"""Scores are written as they were given, with what stood beside them."""

from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from calibrant.files import load
from calibrant.files.choose import LoadOptions
from calibrant.files.save import WRITERS, Scores, load_scores, save_score_batches
from calibrant.predictions import PROB_FLOOR, Predictions

LOGITS = np.array([[2.0, 0.0, -1.0], [0.5, 1.5, 0.0]])


def save_scores(scores, path):
    """Save the scores of a whole file; return the columns that its format cannot hold."""
    left = save_score_batches(iter([scores]), path).left
    return tuple(name for name in left if name not in scores.left)


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize("shape", [(2,), (2, 1)])
def test_one_logit_a_row_stays_one(tmp_path, suffix, shape):
    logits = np.array([1.5, -2.0]).reshape(shape)
    np.savez(tmp_path / "in.npz", logits=logits, labels=[1, 0])
    given = load_scores(tmp_path / "in.npz")
    halved = given.predictions.with_logits(given.predictions.logits / 2 + 3)
    save_scores(replace(given, predictions=halved), tmp_path / f"out{suffix}")
    again = load_scores(tmp_path / f"out{suffix}")
    assert again.single == (given.single if suffix in {".npz", ".pt", ".pth", ".safetensors"} else ())
    assert again.predictions.logits.tolist() == [[0.0, 0.75], [0.0, -1.0]]
    assert again.predictions.labels.tolist() == [1, 0]


def test_two_logits_a_row_stay_two(tmp_path):
    np.savez(tmp_path / "in.npz", logits=LOGITS[:, :2])
    given = load_scores(tmp_path / "in.npz")
    assert given.single is None
    save_scores(given, tmp_path / "out.npz")
    assert np.load(tmp_path / "out.npz")["logits"].tolist() == LOGITS[:, :2].tolist()


def test_class_names_of_one_logit_stand_in_two_columns_of_a_csv_file(tmp_path):
    np.savez(tmp_path / "in.npz", logits=[1.5, -2.0], labels=[1, 0], class_names=["no", "yes"])
    save_scores(load_scores(tmp_path / "in.npz"), tmp_path / "out.csv")
    again = load(tmp_path / "out.csv")
    assert again.class_names == ("no", "yes")
    assert again.logits.tolist() == [[0.0, 1.5], [0.0, -2.0]]


def list_of(column):
    return column.tolist() if isinstance(column, torch.Tensor) else column.to_pylist()


def archive(path):
    np.savez(
        path,
        logits=LOGITS,
        labels=[0, 1],
        class_names=["a", "b", "c"],
        features=np.ones((2, 5), dtype=np.float32),
        ids=["x7", "007"],
        weight=np.array([0.25, 2.0], dtype=np.float32),
        kept=[True, False],
        probs=np.full((2, 3), 1 / 3),  # would stand uncalibrated beside the calibrated logits
        temperature=np.array(1.5),
        classes=np.arange(3),
    )
    return path


@pytest.mark.parametrize(
    ("suffix", "lost"),
    [
        (".npz", set()),
        (".pt", {"ids"}),
        (".safetensors", {"ids"}),
        (".parquet", set()),
        (".arrow", set()),
        (".csv", {"features"}),
    ],
)
def test_what_has_an_entry_a_row_goes_along_where_the_format_can_hold_it(tmp_path, suffix, lost):
    given = load_scores(archive(tmp_path / "in.npz"))
    assert set(given.others) == {"features", "ids", "weight", "kept"}
    assert given.left == ("probs", "temperature", "classes")
    assert set(save_scores(given, tmp_path / f"out{suffix}")) == lost
    again = load(tmp_path / f"out{suffix}")
    assert torch.equal(again.logits, given.predictions.logits)
    assert again.labels.tolist() == [0, 1]
    assert again.class_names == ("a", "b", "c")
    if not suffix.startswith(".csv"):
        others = load_scores(tmp_path / f"out{suffix}").others
        assert set(others) == set(given.others) - lost
        assert list_of(others["weight"]) == [0.25, 2.0]
        assert list_of(others["kept"]) == [True, False]


def test_text_and_numbers_beside_the_scores_come_back_the_same(tmp_path):
    given = load_scores(archive(tmp_path / "in.npz"))
    save_scores(given, tmp_path / "out.npz")
    written = np.load(tmp_path / "out.npz")
    assert written["ids"].tolist() == ["x7", "007"]
    assert np.array_equal(written["features"], np.ones((2, 5), dtype=np.float32))
    save_scores(given, tmp_path / "out.parquet")
    assert pq.read_table(tmp_path / "out.parquet").column("ids").to_pylist() == ["x7", "007"]
    save_scores(given, tmp_path / "out.csv")
    header, first, _ = (tmp_path / "out.csv").read_text().replace('"', "").splitlines()
    assert header == "logit_a,logit_b,logit_c,label,ids,weight,kept"
    assert first == "2,0,-1,a,x7,0.25,true"


def test_a_column_with_gaps_goes_along_into_tables_and_is_left_by_archives(tmp_path):
    import pyarrow as pa

    columns = {"logit_0": [1.0, 2.0], "logit_1": [0.0, 3.0], "id": [3, 4], "gap": [None, 1.0], "more": [5, 6]}
    pq.write_table(pa.table(columns), tmp_path / "in.parquet")
    given = load_scores(tmp_path / "in.parquet")
    for suffix in (".parquet", ".arrow"):
        assert save_scores(given, tmp_path / f"out{suffix}") == ()
        others = load_scores(tmp_path / f"out{suffix}").others
        assert {name: column.to_pylist() for name, column in others.items()} == {
            name: columns[name] for name in ("id", "gap", "more")
        }
    assert save_scores(given, tmp_path / "out.csv") == ()
    assert (tmp_path / "out.csv").read_text() == "logit_0,logit_1,id,gap,more\n1,0,3,,5\n2,3,4,1,6\n"
    for suffix in (".npz", ".safetensors", ".pt"):
        assert save_scores(given, tmp_path / f"out{suffix}") == ("gap",)
        others = load_scores(tmp_path / f"out{suffix}").others
        assert {name: column.tolist() for name, column in others.items()} == {"id": [3, 4], "more": [5, 6]}


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".tsv", ".jsonl", ".parquet", ".arrow"])
def test_a_table_keeps_names_order_and_text(tmp_path, suffix):
    (tmp_path / "in.csv").write_text(
        "id,probs_cat,y,probs_dog,weight,logits_0\n007,0.75,dog,0.25,1.50,3\n008,0.5,cat,0.5,nan,4\n"
    )
    options = LoadOptions(kind="probs", scores="probs_*", labels="y")
    given = load_scores(tmp_path / "in.csv", options)
    assert given.left == ("logits_0",)  # would stand uncalibrated beside the calibrated probabilities
    halved = given.predictions.with_logits(given.predictions.logits / 2, normalised=False)
    assert save_scores(replace(given, predictions=halved), tmp_path / f"out{suffix}") == ()
    again = load_scores(tmp_path / f"out{suffix}", options)
    assert again.layout is not None
    assert again.layout.content.names == ("id", "probs_cat", "y", "probs_dog", "weight")
    torch.testing.assert_close(again.predictions.probs, halved.probs)
    assert again.predictions.labels.tolist() == [1, 0]
    if suffix == ".csv":
        lines = (tmp_path / "out.csv").read_text().replace('"', "").splitlines()
        assert lines[1].startswith("007,0.63")
        assert lines[1].endswith(",1.50")


@pytest.mark.parametrize("suffix", [".npz", ".pt", ".safetensors"])
def test_an_archive_keeps_the_names_of_its_arrays(tmp_path, suffix):
    np.savez(tmp_path / "in.npz", out=LOGITS, y=[0.0, 1.0], more=[5, 6])
    options = LoadOptions(kind="logits", scores="out", labels="y")
    given = load_scores(tmp_path / "in.npz", options)
    save_scores(given, tmp_path / f"out{suffix}")
    again = load_scores(tmp_path / f"out{suffix}", options)
    assert torch.equal(again.predictions.logits, given.predictions.logits)
    assert again.others["more"].tolist() == [5, 6]


def test_one_probability_stays_one(tmp_path):
    (tmp_path / "in.csv").write_text("p,y\n0.9,bad\n0.2,good\n1.0,bad\n")
    options = LoadOptions(labels="y", positive="p", positive_class="bad")
    given = load_scores(tmp_path / "in.csv", options)
    save_scores(given, tmp_path / "out.csv")
    again = load_scores(tmp_path / "out.csv", options)
    assert again.predictions.class_names == ("good", "bad")
    torch.testing.assert_close(again.predictions.probs, given.predictions.probs)
    assert again.predictions.zero_cells is not None
    assert again.predictions.zero_cells.cells == 0
    save_scores(given, tmp_path / "out.npz")
    torch.testing.assert_close(load(tmp_path / "out.npz").probs, given.predictions.probs)


def test_lists_of_scores_stay_lists_where_a_table_holds_them(tmp_path):
    import pyarrow as pa

    pq.write_table(pa.table({"logits": LOGITS.tolist(), "label": [0, 1]}), tmp_path / "in.parquet")
    given = load_scores(tmp_path / "in.parquet")
    for suffix, names in ((".parquet", ["logits", "label"]), (".csv", ["logit_0", "logit_1", "logit_2", "label"])):
        save_scores(given, tmp_path / f"out{suffix}")
        again = load_scores(tmp_path / f"out{suffix}")
        assert again.layout is not None
        assert list(again.layout.content.names) == names
        assert torch.equal(again.predictions.logits, given.predictions.logits)


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_probability_is_written_as_zero(tmp_path, suffix, dtype):
    rows = Predictions.from_logits(torch.tensor([[0.0, -2000.0], [-2000.0, 0.0]], dtype=dtype), [0, 1])
    assert (rows.probs == 0).any()
    save_scores(Scores(rows, "probs", labelled=True), tmp_path / f"out{suffix}")
    written = load_scores(tmp_path / f"out{suffix}").predictions
    torch.testing.assert_close(
        written.logits.double().min().exp(), torch.tensor(PROB_FLOOR).double(), rtol=1e-5, atol=0
    )
    assert written.zero_cells is not None
    assert written.zero_cells.labels == 0
    assert torch.equal(written.logits.max(1).values, torch.zeros(2, dtype=written.logits.dtype))
