"""Tables in files and in memory: types, lists, missing values, words, foreign frames."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from calibrant.errors import FileError, InputError
from calibrant.files import load
from calibrant.predictions import TopLabel

PROBS = [[0.75, 0.25], [0.5, 0.5], [0.125, 0.875]]
WIDE = {"prob_0": [0.75, 0.5, 0.125], "prob_1": [0.25, 0.5, 0.875], "label": [0, 1, 1]}


def polars_frame(data):
    return pytest.importorskip("polars").DataFrame(data)


def assert_wide(loaded):
    assert np.allclose(loaded.probs, PROBS, atol=1e-3 if loaded.logits.dtype == torch.float16 else 1e-6)
    assert loaded.labels.tolist() == [0, 1, 1]


@pytest.fixture
def csv(tmp_path):
    def write(text):
        path = tmp_path / "p.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


@pytest.mark.parametrize("frame", [pd.DataFrame, polars_frame, pa.table, pa.RecordBatch.from_pydict])
def test_frames_of_any_library_are_read(frame):
    assert_wide(load(frame(WIDE)))


@pytest.mark.parametrize("frame", [pd.DataFrame, polars_frame, pa.table])
def test_top_labels_of_any_frame_are_read(frame):
    loaded = load(frame({"confidence": [0.5, 0.75], "correct": [True, False], "question": ["a", "b"]}))
    assert isinstance(loaded, TopLabel)
    assert loaded.correct.tolist() == [True, False]


def test_a_batch_that_offers_only_an_arrow_array_is_read():
    class Batch:
        def __arrow_c_array__(self, requested_schema=None):
            return pa.RecordBatch.from_pydict(WIDE).__arrow_c_array__(requested_schema)

    assert_wide(load(Batch()))


def test_a_record_batch_reader_is_read():
    assert_wide(load(pa.table(WIDE).to_reader()))


def test_a_pandas_index_is_not_a_column(tmp_path):
    frame = pd.DataFrame(WIDE).set_index("label")
    frame.to_parquet(tmp_path / "p.parquet")
    with pytest.raises(
        InputError, match=r"found 'prob_0', 'prob_1'\. \(A pandas index is not a column: 'label'; reset_"
    ):
        load(frame)
    with pytest.raises(FileError, match="A pandas index is not a column"):
        load(tmp_path / "p.parquet")
    shuffled = pd.DataFrame(WIDE, index=[2, 0, 1])
    assert_wide(load(shuffled))


def test_an_index_named_like_a_label_does_not_shadow_the_column():
    frame = pd.DataFrame(WIDE, index=pd.Index([7, 8, 9], name="labels"))
    assert_wide(load(frame))


@pytest.mark.parametrize(
    "values",
    [
        pa.array(PROBS, pa.list_(pa.float32())),
        pa.array(PROBS, pa.large_list(pa.float64())),
        pa.array(PROBS, pa.list_(pa.float64(), 2)),
        pa.array([np.array(row, np.float16) for row in PROBS], pa.list_(pa.float16())),
        pa.array([[[0, 0]], *([row] for row in PROBS), [[0, 0]]], pa.list_(pa.list_(pa.float64())))[1:-1].flatten(),
        pa.array([[9.0, 9.0], *PROBS, [9.0, 9.0]], pa.list_(pa.float64(), 2))[1:-1],
        pa.FixedShapeTensorArray.from_numpy_ndarray(np.array(PROBS)),
    ],
)
def test_list_columns_are_matrices(values, tmp_path):
    table = pa.table({"probs": values, "labels": [0, 1, 1]})
    assert_wide(load(table))
    pq.write_table(table, tmp_path / "p.parquet")
    assert_wide(load(tmp_path / "p.parquet"))


def test_polars_lists_arrays_and_categories_are_read():
    pl = pytest.importorskip("polars")
    for kind in (pl.List(pl.Float32), pl.Array(pl.Float64, 2)):
        frame = pl.DataFrame({"probs": pl.Series(PROBS, dtype=kind), "label": [0, 1, 1]})
        assert_wide(load(frame))
    for kind in (pl.String, pl.Categorical, pl.Enum(["yes", "no"])):
        named = {"prob_no": WIDE["prob_0"], "prob_yes": WIDE["prob_1"]}
        assert_wide(load(pl.DataFrame({**named, "label": pl.Series(["no", "yes", "yes"], dtype=kind)})))


@pytest.mark.parametrize("dtype", ["str", "object", "category"])
def test_pandas_text_and_categories_are_words(dtype):
    frame = pd.DataFrame({"prob_no": WIDE["prob_0"], "prob_yes": WIDE["prob_1"]})
    frame["label"] = pd.Series(["no", "yes", "yes"], dtype=dtype)
    assert_wide(load(frame))


def test_chunks_are_joined():
    table = pa.concat_tables([pa.table(WIDE).slice(row, 1) for row in range(3)])
    assert_wide(load(table))
    listed = pa.chunked_array([pa.array([row]) for row in PROBS])
    words = pa.chunked_array([pa.array([word]).dictionary_encode() for word in ("no", "yes", "yes")])
    metadata = {"class_names": '["no", "yes"]'}
    assert_wide(load(pa.table({"probs": listed, "label": words}).replace_schema_metadata(metadata)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_number_types_of_columns_are_kept(dtype):
    columns = {name: torch.tensor(values).to(dtype).numpy() for name, values in WIDE.items() if name != "label"}
    renamed = {name.replace("prob", "logit"): values for name, values in columns.items()}
    assert load(pa.table({**renamed, "label": [0, 1, 1]})).logits.dtype == dtype


def test_columns_of_mixed_types_are_read_as_float64():
    table = pa.table({"logit_0": pa.array([0, 1]), "logit_1": pa.array([0.5, 1.5], pa.float32()), "label": [0, 1]})
    assert load(table).logits.tolist() == [[0.0, 0.5], [1.0, 1.5]]
    decimals = pa.table({"confidence": pa.array([0.5, 0.25]).cast(pa.decimal128(5, 3)), "correct": [1, 0]})
    assert load(decimals).confidence.tolist() == [0.5, 0.25]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({**WIDE, "prob_1": [0.25, None, 0.875]}, "column 'prob_1' must have a value in every row.*at row 1"),
        (
            {**WIDE, "prob_1": [0.25, None, None]},
            r"'prob_1' must have a value.*at row 1 \(counting from 0\), one of 2 such rows\. Fill",
        ),
        ({**WIDE, "label": [0, 1, None]}, "column 'label' must have a value in every row.*at row 2"),
        ({"probs": [[0.5, 0.5], [0.5, None]], "label": [0, 1]}, "column 'probs' must have a value.*at row 1"),
        ({"probs": [[0.5, 0.5], None], "label": [0, 1]}, "column 'probs' must have a value.*at row 1"),
        ({"probs": [[0.5, 0.5], [1.0]], "label": [0, 1]}, r"the first has 2 and row 1 \(counting from 0\) has 1"),
        ({"logits": [[], []], "label": [0, 1]}, "'logits' must hold numbers; its type is null"),
        ({"logits": pa.array([[], []], pa.list_(pa.float32())), "label": [0, 1]}, "logits must have shape"),
        ({**WIDE, "label": [0, 1, 2]}, "labels must lie in 0..1.*got 2 at row 2"),
        ({**WIDE, "prob_0": ["a", "b", "c"]}, "'prob_0' must hold numbers; got the text 'a' at row 0"),
        (
            {**WIDE, "prob_0": pa.array([1, 2, 3], pa.timestamp("s"))},
            "'prob_0' must hold numbers; its type is timestamp",
        ),
        ({"probs": [["a", "b"]], "label": [0]}, "'probs' must hold numbers.*it has lists of text"),
        ({"confidence": [0.5], "correct": ["perhaps"]}, "'correct' must be true/false, .* got 'perhaps'"),
        ({"prob_0": [], "prob_1": [], "label": pa.array([], pa.int64())}, "'prob_0' must have at least one row"),
    ],
)
def test_bad_columns_are_named_in_memory_and_in_files(table, message, tmp_path):
    table = pa.table(table)
    with pytest.raises(InputError, match=message):
        load(table)
    pq.write_table(table, tmp_path / "p.parquet")
    with pytest.raises(FileError, match=rf"p\.parquet: .*({message})"):
        load(tmp_path / "p.parquet")


def test_pandas_nan_is_a_missing_value():
    with pytest.raises(InputError, match=r"column 'confidence' must have a value in every row.*at row 1"):
        load(pd.DataFrame({"confidence": [0.5, np.nan], "correct": [True, False]}))


def test_frames_that_are_no_tables_are_refused():
    for odd in (pa.chunked_array([[1, 2]]), pd.DataFrame({"probs": [1, "a"]})):
        with pytest.raises(InputError, match="the source must be a table"):
            load(odd)


def test_a_column_that_stands_twice_is_refused(csv):
    with pytest.raises(FileError, match=r"must have one column of labels; found 'label', 'label'\. Rename"):
        load(csv("label,prob_0,prob_1,label\n0,1,0,0\n"))
    with pytest.raises(FileError, match="must have one column prob_0; found 2"):
        load(csv("label,prob_0,prob_0\n0,1,0\n"))


def test_broken_class_names_in_metadata_are_refused(tmp_path):
    for text in ("[1, 2]", "no json", '"ab"'):
        table = pa.table(WIDE).replace_schema_metadata({"class_names": text})
        with pytest.raises(InputError, match="must be a JSON list of a name per class"):
            load(table)
        pq.write_table(table, tmp_path / "p.parquet")
        with pytest.raises(FileError, match=r"p\.parquet: the metadata"):
            load(tmp_path / "p.parquet")


def test_arrow_streams_are_read_like_arrow_files(tmp_path):
    table = pa.table({**WIDE, "text": ["x", "y", "z"]})
    with pa.OSFile(str(tmp_path / "p.arrow"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    assert_wide(load(tmp_path / "p.arrow"))


def test_csv_columns_beside_the_point_are_left_alone(csv):
    text = '\ufeffid,prob_0,text,prob_1,label\n9,0.75,"two\nlines, quoted",0.25,0\n8,.5,,5e-1,1\n7,0.125,x,0.875,1\n'
    assert_wide(load(csv(text)))
    assert_wide(load(csv(text.replace("\n", "\r\n"))))


def test_csv_labels_may_be_words_where_columns_name_the_classes(csv):
    assert_wide(load(csv("prob_false,prob_true,label\n0.75,0.25,false\n0.5,0.5,true\n0.125,0.875,true\n")))
    assert_wide(load(csv("prob_false,prob_true,label\n0.75,0.25,0\n0.5,0.5, 1\n0.125,0.875,1\n")))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prob_0,prob_1,label\n0.75,0.25,cat\n", "'label' must hold class numbers.*got 'cat' at line 2"),
        (
            "prob_0,prob_1,label\n0.75,0.25,0\n0.75,0.25,\n",
            "'label' must have a value in every row; got none .null, NaN or an empty field. at line 3",
        ),
        ("prob_0,prob_1,label\n0.75,0.25,0.5\n", "got 0.5 at line 2"),
        ("prob_0,prob_1,label\n0.75,0.25,0\n,0.25,0\n", "column 'prob_0' must have a value.*at line 3"),
        ("prob_0,prob_1,label\n0.75,0.25,0\nnan,0.25,0\n", "column 'prob_0' must have a value.*at line 3"),
        ("prob_0,prob_1,label\n0.75,0.25,0\nabc,0.25,0\n", "'prob_0' must hold numbers; got the text 'abc' at line 3"),
        ("prob_0,prob_1,label\n0.75,0.25\n", "must be a whole CSV file; .*Row #2: Expected 3 columns"),
        ("prob_0,prob_1,label\n", "p.csv: column 'prob_0' must have at least one row"),
        (
            "prob_0;prob_1;label\n0.5;0.5;1\n",
            "must have its columns separated by commas; its first row has none, but semicolons. Pass separator=';'",
        ),
        ("0.75,0.25,1\n0.5,0.5,1\n", "first row looks like data: '0.75', '0.25', '1'.*such as prob_0,prob_1,label"),
        ("0.75,1\n0.5,1\n", "'0.75', '1'.*such as score,label, and pass positive='score'"),
        ("0.3" + ",0.1" * 7 + ",1\n", "such as prob_0,prob_1,…,prob_7,label"),
        ("logit_0,logit_1,logit_3,label\n1,2,3,0\n", "logit_2 is missing"),
        (
            "prob_a,prob_b,label\n0.75,0.25,c\n",
            r"must hold class names \('a', 'b'\) or class numbers; got 'c' at line 2",
        ),
        (b"prob_0,prob_1,label\n0.5,0.5,\xff\xfe\n", "p.csv"),
    ],
)
def test_bad_csv_is_explained(csv, text, message):
    with pytest.raises(FileError, match=message):
        load(csv(text))


def _compressed(path, *, batches=3, rows=4000, compression="zstd"):
    logits = [(np.arange(rows) % (3 + column)).astype(np.float64) for column in range(3)]
    columns = {f"logit_{column}": values for column, values in enumerate(logits)}
    groups = pa.array(["a", "b"] * (rows // 2)).dictionary_encode()
    table = pa.table(columns | {"label": np.arange(rows) % 3, "group": groups})
    options = pa.ipc.IpcWriteOptions(compression=compression)
    opening = pa.ipc.new_file if path.suffix == ".feather" else pa.ipc.new_stream
    with pa.OSFile(str(path), "wb") as sink, opening(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=rows // batches + 1)
    return np.stack(logits, axis=1)


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("suffix", [".feather", ".arrow"])
def test_compressed_arrow_batches_are_read(tmp_path, suffix, compression):
    logits = _compressed(tmp_path / f"p{suffix}", compression=compression)
    assert np.array_equal(load(tmp_path / f"p{suffix}").logits.numpy(), logits)


@pytest.mark.parametrize("suffix", [".feather", ".arrow"])
def test_a_compressed_arrow_batch_that_says_it_expands_beyond_reason_is_refused_undecompressed(
    tmp_path, monkeypatch, suffix
):
    path = tmp_path / f"p{suffix}"
    _compressed(path)
    monkeypatch.setattr("calibrant.errors._ALWAYS_ALLOWED", 1 << 10)
    monkeypatch.setattr("calibrant.errors._MOST_TIMES", 2)
    monkeypatch.setattr("calibrant.files.tables._bounded", lambda *_: pytest.fail("was decompressed"))
    with pytest.raises(FileError, match="must not expand to more than"):
        load(path)


def test_a_feather_file_that_lists_more_batches_than_it_holds_is_refused(tmp_path):
    path = tmp_path / "p.feather"
    _compressed(path)
    content = path.read_bytes()
    end = content.index(b"\xff\xff\xff\xff\x00\x00\x00\x00")  # of the stream
    schema_end = content.index(b"\xff\xff\xff\xff", 12)
    path.write_bytes(content[:schema_end] + content[end:])
    with pytest.raises(FileError, match="lists 3 batches and holds 0"):
        load(path)
