"""MNIST and Fashion-MNIST from IDX files."""

import gzip
import struct

import numpy as np
import pytest
import torch

from calibrant.datasets.mnist import MNIST, FashionMNIST
from calibrant.datasets.publisher_files import content_digest
from calibrant.errors import FileError

RANDOM = np.random.default_rng(0)
ARRAYS = {
    "train-images-idx3-ubyte": RANDOM.integers(0, 256, (20, 28, 28), dtype=np.uint8),
    "train-labels-idx1-ubyte": np.arange(20, dtype=np.uint8) % 10,
    "t10k-images-idx3-ubyte": RANDOM.integers(0, 256, (5, 28, 28), dtype=np.uint8),
    "t10k-labels-idx1-ubyte": np.arange(5, dtype=np.uint8),
}


def encoded(array):
    return struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape) + array.tobytes()


def put(folder, arrays=ARRAYS, *, compress=False, rename=str):
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        content = array if isinstance(array, bytes) else encoded(array)
        path = folder / (rename(name) + ".gz" * compress)
        path.write_bytes(gzip.compress(content) if compress else content)


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("sub", ["", "MNIST/raw"])
def test_plain_and_compressed_files_give_the_same_images(tmp_path, compress, sub):
    put(tmp_path / sub, compress=compress)
    dataset = MNIST().read(tmp_path, checked=False)
    assert tuple(dataset.training.inputs.shape) == (20, 1, 28, 28)
    assert torch.equal(dataset.training.inputs[:, 0], torch.from_numpy(ARRAYS["train-images-idx3-ubyte"]))
    assert torch.equal(dataset.test.inputs[:, 0], torch.from_numpy(ARRAYS["t10k-images-idx3-ubyte"]))
    assert dataset.test.labels.tolist() == [0, 1, 2, 3, 4]
    assert dataset.augmentation == "crop"


def test_a_dot_in_the_name_is_as_good_as_a_dash(tmp_path):
    put(tmp_path, rename=lambda name: name.replace("-mnist", ".mnist"))
    assert len(MNIST().read(tmp_path, checked=False).training) == 20


def test_fashion_has_its_own_classes_and_folder(tmp_path):
    put(tmp_path / "FashionMNIST" / "raw")
    dataset = FashionMNIST().read(tmp_path, checked=False)
    assert dataset.class_names[9] == "Ankle boot"
    assert dataset.augmentation == "crop-flip"
    with pytest.raises(FileError, match="mnist needs train-images-idx3-ubyte"):
        MNIST().read(tmp_path)


def test_the_scale_is_that_of_the_training_part(tmp_path):
    put(tmp_path)
    pixels = ARRAYS["train-images-idx3-ubyte"] / 255
    scale = MNIST().read(tmp_path, checked=False).pixel_scale
    assert scale.mean == (round(float(pixels.mean()), 4),)
    assert scale.std == (round(float(pixels.std(ddof=1)), 4),)


def test_the_digest_is_of_the_content(tmp_path, monkeypatch):
    names = sorted(ARRAYS, key=lambda name: ("t10k" in name, "images" in name))
    digests = tuple(content_digest(ARRAYS[names[at]], ARRAYS[names[at + 1]]) for at in (0, 2))
    put(tmp_path / "plain")
    put(tmp_path / "packed", compress=True)
    with pytest.raises(FileError, match=r"the training part of mnist .* must be the published data"):
        MNIST().read(tmp_path / "plain")
    monkeypatch.setattr(MNIST, "digests", digests)
    for folder in ("plain", "packed"):
        assert len(MNIST().read(tmp_path / folder).test) == 5


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            encoded(ARRAYS["t10k-images-idx3-ubyte"]),
            r"must begin with 0x00000801, the sign of IDX labels; got 0x00000803",
        ),
        (encoded(ARRAYS["t10k-labels-idx1-ubyte"])[:-1], r"must have 13 bytes, as its header says \(5\); got 12"),
        (encoded(ARRAYS["t10k-labels-idx1-ubyte"]) + b"x", r"must have 13 bytes.*got 14"),
        (b"\x00\x00", "must have 6 more bytes"),
        (b"", "must have 8 more bytes"),
        (encoded(np.zeros(4, dtype=np.uint8)), "as many labels as images; got 4 and 5"),
        (encoded(np.array([0, 1, 10, 3, 4], dtype=np.uint8)), r"labels in 0\.\.9; got 10 at image 2"),
        (struct.pack(">2I", 0x801, 2**32 - 1), "must have 4,294,967,303 bytes"),  # and none of them is allocated
    ],
)
def test_a_wrong_file_is_refused_even_unchecked(tmp_path, wrong, message):
    put(tmp_path, {**ARRAYS, "t10k-labels-idx1-ubyte": wrong})
    with pytest.raises(FileError, match=message):
        MNIST().read(tmp_path, checked=False)
