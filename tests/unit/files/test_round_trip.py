"""What is saved comes back: every format, number type and record."""

import gzip

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from pyarrow import feather

from calibrant.errors import FileError, InputError
from calibrant.files import load, save
from calibrant.files.load import OPENERS
from calibrant.files.save import WRITERS
from calibrant.predictions import Predictions, TopLabel

NAMES = ("cat", "dog", 'a "quoted", bird')
CSV = (".csv", ".csv.gz", ".jsonl", ".jsonl.gz", ".tsv", ".tsv.gz")
ARCHIVES_WITH_BFLOAT16 = (".pt", ".pth", ".safetensors")


def some_predictions(dtype=torch.float32, class_names=NAMES, n=40):
    made = torch.Generator().manual_seed(7)
    logits = (torch.randn(n, 3, generator=made, dtype=torch.float64) * 5).to(dtype)
    return Predictions.from_logits(logits, torch.randint(3, (n,), generator=made), class_names=class_names)


def assert_same(loaded, saved, dtype=None):
    assert loaded.logits.dtype == (dtype or saved.logits.dtype)
    assert torch.equal(loaded.logits, saved.logits.to(loaded.logits.dtype))
    assert torch.equal(loaded.labels, saved.labels)
    assert loaded.class_names == saved.class_names


def test_every_ending_has_a_reader_and_a_writer():
    assert set(OPENERS) == {*WRITERS, ".npy"}


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("class_names", [None, NAMES])
def test_predictions_come_back_with_type_and_class_names(tmp_path, suffix, dtype, class_names):
    saved = some_predictions(dtype, class_names)
    save(saved, tmp_path / f"p{suffix}")
    expected = dtype
    if suffix in CSV:
        expected = torch.float64
    elif dtype == torch.bfloat16 and suffix not in ARCHIVES_WITH_BFLOAT16:
        expected = torch.float32
    assert_same(load(tmp_path / f"p{suffix}"), saved, expected)


@pytest.mark.parametrize("suffix", WRITERS)
def test_top_labels_come_back(tmp_path, suffix):
    saved = TopLabel([0.1, 1 / 3, 1.0, 0.0], [True, False, True, False])
    save(saved, tmp_path / f"t{suffix}")
    loaded = load(str(tmp_path / f"t{suffix}"))
    assert isinstance(loaded, TopLabel)
    assert torch.equal(loaded.confidence, saved.confidence)
    assert torch.equal(loaded.correct, saved.correct)


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_slice_is_saved_without_the_rest(tmp_path, suffix):
    whole = some_predictions(n=20_000)
    save(whole[10:12], tmp_path / f"p{suffix}")
    assert_same(load(tmp_path / f"p{suffix}"), whole[10:12], torch.float64 if suffix in CSV else None)
    assert (tmp_path / f"p{suffix}").stat().st_size < 10_000


@pytest.mark.parametrize("suffix", CSV)
def test_csv_gives_back_awkward_numbers_exactly(tmp_path, suffix):
    awkward = [[5e-324, 1e-310], [1.7976931348623157e306, -1 / 3], [0.1, 123456789.123456789], [1e21, -1e-7]]
    save(Predictions.from_logits(np.array(awkward), [0, 1, 0, 1]), tmp_path / f"p{suffix}")
    assert load(tmp_path / f"p{suffix}").logits.tolist() == awkward


def test_csv_gz_is_compressed(tmp_path):
    save(some_predictions(), tmp_path / "p.csv.gz")
    assert gzip.decompress((tmp_path / "p.csv.gz").read_bytes()).startswith(b"logit_cat,logit_dog,")


def test_a_csv_file_has_quotes_only_where_text_needs_them(tmp_path):
    names = ("cat", "dog")
    save(Predictions.from_logits([[0.5, 0.25]], [1], class_names=names), tmp_path / "p.csv")
    assert (tmp_path / "p.csv").read_text() == "logit_cat,logit_dog,label\n0.5,0.25,dog\n"
    for suffix in (".csv", ".tsv"):
        awkward = Predictions.from_logits([[0.5, 0.25]], [1], class_names=("a\tb", 'say "c", d'))
        save(awkward, tmp_path / f"q{suffix}")
        assert load(tmp_path / f"q{suffix}").class_names == awkward.class_names


@pytest.mark.parametrize("suffix", CSV)
@pytest.mark.parametrize("names", [("true", "nan", "2024-01-01"), ("2024-01-01", "2024-01-02", "2024-01-03")])
def test_csv_keeps_class_names_that_look_like_values(tmp_path, names, suffix):
    saved = some_predictions(torch.float64, names)
    save(saved, tmp_path / f"p{suffix}")
    assert_same(load(tmp_path / f"p{suffix}"), saved)


def test_csv_keeps_class_names_that_are_numbers_in_order(tmp_path):
    saved = some_predictions(torch.float64, ("1", "2", "3"))
    save(saved, tmp_path / "p.csv")
    assert_same(load(tmp_path / "p.csv"), saved)


def test_csv_of_classes_named_by_their_number_needs_no_names(tmp_path):
    saved = some_predictions(torch.float64, ("0", "1", "2"))
    save(saved, tmp_path / "p.csv")
    assert load(tmp_path / "p.csv").class_names is None


@pytest.mark.parametrize("names", [("1", "3", "2"), ("cat", "7", "dog"), ("crane", "crane", "dog"), ("", "a", "b")])
def test_csv_refuses_class_names_that_columns_cannot_carry(tmp_path, names):
    with pytest.raises(FileError, match=r"class names in a CSV file must be different words.*\.parquet"):
        save(some_predictions(class_names=names), tmp_path / "p.csv")
    assert list(tmp_path.iterdir()) == []
    save(some_predictions(class_names=names), tmp_path / "p.parquet")
    assert load(tmp_path / "p.parquet").class_names == names


def test_the_names_inside_the_files_are_the_documented_ones(tmp_path):
    for suffix in (".npz", ".parquet", ".feather"):
        save(some_predictions(), tmp_path / f"p{suffix}")
    with np.load(tmp_path / "p.npz") as archive:
        assert sorted(archive.files) == ["class_names", "labels", "logits"]
    columns = ["logit_0", "logit_1", "logit_2", "label"]
    assert pq.read_table(tmp_path / "p.parquet").column_names == columns
    assert feather.read_table(tmp_path / "p.feather").column_names == columns


def test_a_thousand_classes_stay_in_order(tmp_path):
    logits = torch.arange(3000.0).reshape(3, 1000)
    for suffix in (".parquet", ".csv", ".arrow"):
        save(Predictions.from_logits(logits, [0, 500, 999]), tmp_path / f"p{suffix}")
        assert torch.equal(load(tmp_path / f"p{suffix}").logits.float(), logits)


def test_a_loaded_safetensors_file_does_not_change_when_the_file_does(tmp_path):
    saved = some_predictions()
    save(saved, tmp_path / "p.safetensors")
    loaded = load(tmp_path / "p.safetensors")
    with (tmp_path / "p.safetensors").open("r+b") as file:
        file.seek(-400, 2)
        file.write(bytes(400))
    assert_same(loaded, saved)


def test_only_predictions_are_saved(tmp_path):
    with pytest.raises(InputError, match="must be Predictions or a TopLabel; got Tensor"):
        save(torch.ones(3), tmp_path / "p.npz")


def test_tensors_are_written_as_by_their_library(tmp_path):
    from safetensors.torch import save_file

    from calibrant.files.save import load_scores, save_score_batches

    kinds = (
        torch.bool,
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.float16,
        torch.bfloat16,
        torch.int32,
        torch.float64,
    )
    columns = {f"{place % 3} {kind} é": torch.arange(6).reshape(3, 2).to(kind) for place, kind in enumerate(kinds)}
    tensors = {"logits": torch.eye(3), "labels": torch.arange(3), **columns, "none": torch.empty(3, 0)}
    save_file(tensors, tmp_path / "in.safetensors", {"about": "a run"})
    given = load_scores(tmp_path / "in.safetensors")
    assert save_score_batches(iter([given]), tmp_path / "out.safetensors").left == given.left
    assert (tmp_path / "out.safetensors").read_bytes() == (tmp_path / "in.safetensors").read_bytes()
