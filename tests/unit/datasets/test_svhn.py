"""SVHN from MATLAB files."""

import hashlib

import numpy as np
import pytest
from scipy.io import savemat

from calibrant.datasets.dataset import RemoteFile
from calibrant.datasets.mnist import SVHN
from calibrant.errors import FileError

RANDOM = np.random.default_rng(0)


def put(folder, *, train=None, test=None, compress=True):
    made = {"train_32x32.mat": train, "test_32x32.mat": test}
    for name, given in made.items():
        n = 12 if name.startswith("train") else 10
        held = {
            "X": RANDOM.integers(0, 256, (32, 32, 3, n), dtype=np.uint8),
            "y": (np.arange(n, dtype=np.uint8) % 10 + 1)[:, None],
        }
        savemat(folder / name, {**held, **(given or {})}, do_compression=compress)


def test_images_are_turned_to_channel_row_column_and_ten_is_zero(tmp_path):
    images = RANDOM.integers(0, 256, (32, 32, 3, 12), dtype=np.uint8)
    put(tmp_path, train={"X": images})
    dataset = SVHN().read(tmp_path, checked=False)
    training = dataset.training
    assert tuple(training.inputs.shape) == (12, 3, 32, 32)
    for row, channel, down, across in [(0, 0, 0, 0), (3, 2, 5, 17), (11, 1, 31, 30)]:
        assert training.inputs[row, channel, down, across] == images[down, across, channel, row]
    assert training.labels.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2]
    assert dataset.augmentation == "crop"  # a mirrored digit is no digit


def test_labels_may_be_of_any_number_type(tmp_path):
    # MATLAB's own numbers are doubles.
    put(tmp_path, test={"y": np.arange(1.0, 11.0)[:, None]}, compress=False)
    assert SVHN().read(tmp_path, checked=False).test.labels.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"X": np.zeros((10, 32, 32, 3), dtype=np.uint8)}, r"must hold 'X', images of 32 x 32 x 3 x n bytes"),
        ({"X": np.zeros((32, 32, 3, 10))}, r"must hold 'X'.*got float64"),
        ({"y": np.arange(9)[:, None]}, r"must hold 'y', labels of 10 images"),
        ({"y": np.arange(10)[:, None]}, r"labels in 1\.\.10, where 10 is zero; got 0 at 0"),
        ({"y": np.arange(2, 12)[:, None]}, r"labels in 1\.\.10.*got 11 at 9"),
        ({"y": np.full((10, 1), 1.5)}, r"labels in 1\.\.10.*got 1\.5 at 0"),
    ],
)
def test_a_file_of_another_layout_is_refused(tmp_path, wrong, message):
    put(tmp_path, test=wrong)
    with pytest.raises(FileError, match=message):
        SVHN().read(tmp_path, checked=False)


def test_a_truncated_file_is_refused_checked_or_not(tmp_path):
    put(tmp_path)
    path = tmp_path / "test_32x32.mat"
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(FileError, match=r"train_32x32\.mat must have 182,040,794 bytes; got .*: it was cut short"):
        SVHN().read(tmp_path)
    with pytest.raises(FileError, match=r"test_32x32\.mat must be a whole MATLAB file"):
        SVHN().read(tmp_path, checked=False)


def test_no_matlab_file_at_all_is_refused(tmp_path):
    put(tmp_path)
    (tmp_path / "train_32x32.mat").write_bytes(b"<html>moved</html>" * 20)
    with pytest.raises(FileError, match=r"train_32x32\.mat must be a whole MATLAB file"):
        SVHN().read(tmp_path, checked=False)


def test_missing_files_are_named(tmp_path):
    with pytest.raises(FileError, match=r"svhn needs train_32x32\.mat and test_32x32\.mat.*missing: train_32x32\.mat"):
        SVHN().read(tmp_path)


def test_the_digest_is_of_the_files(tmp_path, monkeypatch):
    put(tmp_path)
    files = [(tmp_path / file.name) for file in SVHN.remote]
    made = tuple(
        RemoteFile(f"https://example.org/{path.name}", f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}")
        for path in files
    )
    monkeypatch.setattr(SVHN, "remote", made)
    assert len(SVHN().read(tmp_path).training) == 12
    put(tmp_path)
    with pytest.raises(FileError, match=r"train_32x32\.mat must be the published data"):
        SVHN().read(tmp_path)
