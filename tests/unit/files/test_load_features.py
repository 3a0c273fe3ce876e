"""Features come from archives, and what is no matrix of numbers for the rows at hand is refused."""

import numpy as np
import pytest
import safetensors.torch
import torch

from calibrant.errors import FileError, UnknownNameError
from calibrant.files import load_features

FEATURES = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
FORMATS = pytest.mark.parametrize("suffix", [".npz", ".safetensors"])


def write(path, **arrays):
    if path.suffix == ".npz":
        np.savez(path, **{name: np.asarray(array) for name, array in arrays.items()})
    else:
        safetensors.torch.save_file({name: torch.as_tensor(array) for name, array in arrays.items()}, path)
    return path


@FORMATS
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_features_come_back_as_they_were(tmp_path, suffix, dtype):
    path = write(tmp_path / f"f{suffix}", features=FEATURES.to(dtype), labels=torch.arange(30))
    read = load_features(path, rows=30)
    assert read.dtype == dtype
    assert torch.equal(read, FEATURES.to(dtype))


@FORMATS
def test_another_name_can_be_given_and_the_count_left_open(tmp_path, suffix):
    path = write(tmp_path / f"f{suffix}", penultimate=FEATURES)
    assert torch.equal(load_features(path, name="penultimate"), FEATURES)


@FORMATS
def test_a_missing_array_is_named_beside_those_that_are_there(tmp_path, suffix):
    path = write(tmp_path / f"f{suffix}", penultimate=FEATURES, labels=torch.arange(30))
    with pytest.raises(UnknownNameError, match=r"must have 'features'; found .*'penultimate' \(30 x 4\)"):
        load_features(path)


@FORMATS
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (FEATURES[:20], "as many rows as the predictions, 30; got 20"),
        (FEATURES[:, 0], r"must have shape \(n, d\)"),
        (FEATURES.view(30, 2, 2), r"got \(30, 2, 2\)"),
        (torch.where(FEATURES > 2, torch.nan, FEATURES), "must be finite; got nan at row"),
        (torch.where(FEATURES > 2, torch.inf, FEATURES), "must be finite; got inf at row"),
        (FEATURES > 0, "must be real numbers"),
    ],
)
def test_what_is_no_matrix_of_the_rows_is_refused(tmp_path, suffix, wrong, message):
    path = write(tmp_path / f"f{suffix}", features=wrong.contiguous())
    with pytest.raises(FileError, match=f"f{suffix}: 'features'.*{message}"):
        load_features(path, rows=30)


def test_text_and_pickles_are_refused(tmp_path):
    np.savez(tmp_path / "text.npz", features=np.array(["a", "b"]))
    with pytest.raises(FileError, match="must hold numbers; it holds text"):
        load_features(tmp_path / "text.npz")
    np.savez(tmp_path / "objects.npz", features=np.array([{}, {}], dtype=object))
    with pytest.raises(FileError, match="could run code"):
        load_features(tmp_path / "objects.npz")


def test_files_of_other_formats_damaged_or_missing_are_refused(tmp_path):
    torch.save({"features": FEATURES}, tmp_path / "f.pt")
    with pytest.raises(FileError, match=r"must be in an \.npz or \.safetensors file"):
        load_features(tmp_path / "f.pt")
    with pytest.raises(FileError, match="must be an existing file"):
        load_features(tmp_path / "none.npz")
    (tmp_path / "cut.npz").write_bytes(b"PK\x03\x04")
    with pytest.raises(FileError, match="cut short or damaged"):
        load_features(tmp_path / "cut.npz")
