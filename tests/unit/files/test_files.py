"""Files that are missing, foreign, damaged or dangerous give one clear error."""

import collections
import json
import pickle
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.torch
import torch

from calibrant.errors import FileError, reading
from calibrant.files import load, save
from calibrant.files.save import WRITERS
from calibrant.predictions import Predictions, TopLabel

LOGITS = torch.randn(30, 3, generator=torch.Generator().manual_seed(3))
SAVED = Predictions.from_logits(LOGITS, torch.arange(30) % 3, class_names=("cat", "dog", "eel"))


@pytest.mark.parametrize("suffix", WRITERS)
def test_missing_empty_and_folder_are_distinguished(tmp_path, suffix):
    path = tmp_path / f"p{suffix}"
    with pytest.raises(FileError, match="must be an existing file; there is none"):
        load(path)
    path.touch()
    with pytest.raises(FileError, match="it is empty"):
        load(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(FileError, match="it is a folder"):
        load(path)


@pytest.mark.parametrize("name", ["p.xlsx", "p", "p.gz", ".npz.old"])
def test_an_unknown_ending_lists_the_known_ones(tmp_path, name):
    (tmp_path / name).write_text("x")
    for act in (load, lambda path: save(SAVED, path)):
        with pytest.raises(FileError, match=r"must end in one of .*\.csv, .*\.safetensors"):
            act(tmp_path / name)


def test_a_name_with_a_null_character_is_refused():
    with pytest.raises(FileError, match="must be an existing file"):
        load("a\0.npz")


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize(
    "junk", [b"x", b"hello, world\n" * 50, bytes(500), b"PK\x03\x04" + bytes(40), b"ARROW1\0\0PAR1"]
)
def test_junk_is_refused(tmp_path, suffix, junk):
    (tmp_path / f"p{suffix}").write_bytes(junk)
    with pytest.raises(FileError, match=f"p{suffix}"):
        load(tmp_path / f"p{suffix}")


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize("record", [SAVED, SAVED.top], ids=["predictions", "top-label"])
def test_a_file_cut_short_anywhere_is_refused(tmp_path, suffix, record):
    path = tmp_path / f"p{suffix}"
    save(record, path)
    whole = path.read_bytes()
    for cut in sorted({1, 2, 7, 40, *np.linspace(3, len(whole) - 1, 40, dtype=int).tolist()}):
        path.write_bytes(whole[:cut])
        try:
            loaded = load(path)
        except FileError as error:
            assert str(path) in str(error)  # noqa: PT017  # what is left of a CSV file may be one
        else:
            assert suffix in {".csv", ".jsonl", ".tsv"}
            assert len(loaded) <= len(record)


@pytest.mark.parametrize("suffix", [suffix for suffix in WRITERS if suffix not in {".feather", ".pth"}])
def test_a_damaged_byte_gives_predictions_or_a_file_error(tmp_path, suffix):
    path = tmp_path / f"p{suffix}"
    save(SAVED, path)
    whole = path.read_bytes()
    random = np.random.default_rng(5)
    for place in random.integers(len(whole), size=60).tolist():
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(random.integers(8))
        path.write_bytes(damaged)
        try:
            assert isinstance(load(path), Predictions | TopLabel)
        except FileError as error:
            assert str(path) in str(error)  # noqa: PT017  # either is right


def test_parquet_checksums_find_a_changed_number(tmp_path):
    path = tmp_path / "p.parquet"
    save(Predictions.from_logits(torch.full((2000, 2), 1.5).mul(torch.rand(2000, 2)), [0] * 2000), path)
    damaged = bytearray(path.read_bytes())
    damaged[4000] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(FileError, match="must be a whole Parquet file"):
        load(path)


def test_a_page_that_claims_two_gigabytes_does_not_get_them(tmp_path):
    path = tmp_path / "p.parquet"
    save(Predictions.from_logits(torch.rand(12, 3), torch.arange(12) % 3), path)
    whole = path.read_bytes()
    assert whole[4:10:2] == b"\x15\x15\x15"  # the first page: its type, and its sizes before and after compression
    path.write_bytes(whole[:9] + b"\xfe\xff\xff\xff\x0f" + whole[10:])  # 2**31 - 1
    code = (
        "import sys, pyarrow; from calibrant import errors, load\n"
        "try: load(sys.argv[1])\n"
        "except errors.FileError: print(pyarrow.default_memory_pool().max_memory())"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 1 << 24


def test_objects_in_an_npz_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", logits=np.array([[1, None]], dtype=object), labels=[0])
    with pytest.raises(FileError, match=r"'logits' must be an array of numbers.*\(a pickle\).*run code"):
        load(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", logits=np.eye(2), labels=[0, 1], class_names=np.array(["a", "b"], dtype=object))
    with pytest.raises(FileError, match="'class_names' must be an array of numbers or text"):
        load(tmp_path / "b.npz")


def test_an_npz_array_nobody_needs_is_not_read(tmp_path):
    np.savez(tmp_path / "a.npz", logits=np.eye(2), labels=[0, 1], notes=np.array([None]))
    assert len(load(tmp_path / "a.npz")) == 2
    np.savez(tmp_path / "a.npz", logits=np.eye(2), notes=np.array([None]))
    with pytest.raises(FileError, match=r"found 'logits' \(2 x 2\), 'notes'\. .*labels=NAME"):
        load(tmp_path / "a.npz")


def test_an_npz_of_bytes_labels_and_compression_is_read(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", logits=np.eye(2), labels=np.array([b"x", b"y"]), class_names=["x", "y"])
    assert load(tmp_path / "a.npz").labels.tolist() == [0, 1]


def test_a_pickle_under_another_name_is_refused(tmp_path):
    for suffix in (".npz", ".pt"):
        (tmp_path / f"a{suffix}").write_bytes(pickle.dumps({"logits": [[1.0, 2.0]], "labels": Evil()}))
        with pytest.raises(FileError):
            load(tmp_path / f"a{suffix}")


class Evil:
    """Fails the test if anything unpickles it."""

    def __reduce__(self):
        return (pytest.fail, ("code from a file was run",))


def test_objects_in_a_torch_file_are_refused_without_advice_to_trust_it(tmp_path):
    torch.save({"logits": LOGITS, "labels": Evil()}, tmp_path / "a.pt")
    with pytest.raises(FileError, match=r"must hold tensors only.*run code") as caught:
        load(tmp_path / "a.pt")
    assert "weights_only" not in str(caught.value)
    for held in ([LOGITS], LOGITS):
        torch.save(held, tmp_path / "a.pt")
        with pytest.raises(FileError, match=r"must hold a dict of tensors; it holds a (list|Tensor)\. Save it with"):
            load(tmp_path / "a.pt")


def test_a_checkpoint_with_plain_values_beside_the_tensors_is_read(tmp_path):
    held = {"epoch": 3, "logits": LOGITS, "labels": torch.zeros(30, dtype=torch.int32), 7: LOGITS}
    torch.save(held, tmp_path / "a.pt")
    assert torch.equal(load(tmp_path / "a.pt").logits, LOGITS)
    torch.save(collections.OrderedDict(logits=LOGITS.to_sparse(), labels=torch.zeros(30).long()), tmp_path / "a.pt")
    with pytest.raises(FileError, match=r"a\.pt: 'logits' must be a plain tensor"):
        load(tmp_path / "a.pt")


def test_safetensors_class_names_must_be_a_list(tmp_path):
    tensors = {"logits": LOGITS, "labels": torch.zeros(30, dtype=torch.int64)}
    for text in ("cat,dog,eel", json.dumps({"0": "cat"})):
        safetensors.torch.save_file(tensors, tmp_path / "a.safetensors", metadata={"class_names": text})
        with pytest.raises(FileError, match=r"a\.safetensors"):
            load(tmp_path / "a.safetensors")


@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".pt"])
def test_the_error_for_an_unknown_matrix_names_the_option(tmp_path, suffix):
    arrays = {"softmax_out": LOGITS.softmax(1), "y": torch.arange(30) % 3}
    path = tmp_path / f"a{suffix}"
    if suffix == ".npz":
        np.savez(path, **{name: array.numpy() for name, array in arrays.items()})
    else:
        {".pt": torch.save, ".safetensors": safetensors.torch.save_file}[suffix](arrays, path)
    with pytest.raises(FileError, match=r"'softmax_out' \(30 x 3\), 'y' \(30\).*scores='softmax_out' and labels='y'"):
        load(path, kind="probs")
    assert len(load(path, kind="probs", scores="softmax_out", labels="y")) == 30


def test_only_the_columns_that_are_needed_are_read(tmp_path):
    table = pa.table({"confidence": [0.5] * 9, "correct": [True] * 9, "text": ["long" * 1000 for _ in range(9)]})
    pq.write_table(table, tmp_path / "a.parquet", use_dictionary=False, compression="none", write_page_checksum=True)
    raw = bytearray((tmp_path / "a.parquet").read_bytes())
    raw[len(raw) // 2] ^= 1  # in the text, whose checksum is wrong now
    (tmp_path / "a.parquet").write_bytes(raw)
    assert len(load(tmp_path / "a.parquet")) == 9


def test_importing_what_people_import_first_loads_no_table_library_and_no_optimiser():
    code = (
        "import sys, calibrant.files\n"
        "from calibrant import Predictions, ece, evaluate, load\n"
        "heavy = ('pyarrow', 'safetensors', 'pandas', 'polars', 'matplotlib', 'scipy.optimize')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_polars_frame_is_read_without_pandas():
    pytest.importorskip("polars")
    code = (
        "import sys, polars, calibrant.files as s\n"
        "s.load(polars.DataFrame({'confidence': [0.5], 'correct': [True]}))\n"
        "print('pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_file_one_may_not_read_is_reported(tmp_path):
    with (
        pytest.raises(FileError, match=r"p\.npz must be readable; you lack the permission"),
        reading(tmp_path / "p.npz", ""),
    ):
        raise PermissionError(13, "Permission denied")
