"""Data of one's own in npz files: what is read, and how everything else is refused."""

import numpy as np
import pytest
import torch

from calibrant.errors import InputError
from calibrant.training import read_arrays

PIXELS = np.arange(24 * 4 * 5 * 3, dtype=np.uint32).reshape(24, 4, 5, 3).astype(np.uint8)
LABELS = np.arange(24) % 3


@pytest.fixture
def saved(tmp_path):
    """Write arrays to a file of its own, and return the path."""

    def save(name="train", **arrays):
        np.savez(tmp_path / f"{name}.npz", **{"inputs": PIXELS, "labels": LABELS} | arrays)
        return tmp_path / f"{name}.npz"

    return save


@pytest.mark.parametrize(
    ("pixels", "layout", "shape"),
    [
        (PIXELS, "auto", (3, 4, 5)),
        (PIXELS.transpose(0, 3, 1, 2), "auto", (3, 4, 5)),
        (PIXELS[..., 0], "auto", (1, 4, 5)),
        (PIXELS, "channels_first", (4, 5, 3)),  # any number of channels, where their place is given
        (PIXELS.transpose(0, 3, 1, 2), "channels_last", (5, 3, 4)),
    ],
)
def test_images_are_read_with_their_channels_first(saved, pixels, layout, shape):
    dataset = read_arrays(saved(inputs=pixels), saved("test", inputs=pixels[:6], labels=LABELS[:6]), layout=layout)
    assert (tuple(dataset.training.inputs.shape[1:]), len(dataset.test)) == (shape, 6)
    assert dataset.training.inputs.dtype == torch.uint8
    assert (len(dataset.pixel_scale.mean), dataset.augmentation, dataset.class_names) == (
        shape[0],
        "none",
        ("0", "1", "2"),
    )
    if shape == (3, 4, 5):
        assert np.array_equal(dataset.training.inputs.numpy(), PIXELS.transpose(0, 3, 1, 2))


def test_numbers_are_read_unchanged_and_labels_by_name_number_or_whole_float(saved):
    values, words = np.random.default_rng(0).normal(size=(24, 7)), np.array(["b", "a", "c"])[LABELS]
    files = (
        saved(x=values, y=words),
        saved("test", x=values.astype(np.float16), y=words),
        saved("val", x=values, y=words),
    )
    dataset = read_arrays(*files, inputs="x", labels="y")
    assert dataset.pixel_scale is None
    assert torch.equal(dataset.training.inputs, torch.from_numpy(values).float())
    assert dataset.class_names == ("a", "b", "c")
    assert dataset.validation.labels[:3].tolist() == [1, 0, 2]
    named = read_arrays(
        saved(class_names=["b", "a", "c", "d"], labels=words), saved("test", labels=LABELS.astype(float))
    )
    assert named.class_names == ("b", "a", "c", "d")
    in_bytes = read_arrays(saved(class_names=[b"b", b"a", b"c", b"d"], labels=words), saved("test"))
    assert in_bytes.class_names == named.class_names
    assert torch.equal(named.training.labels, named.test.labels)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"inputs": PIXELS.astype(np.int64)}, "must be images, uint8 of shape"),
        ({"inputs": PIXELS[:, 0, 0]}, r"got uint8 of shape \(24, 3\)"),
        ({"inputs": PIXELS[:, :3]}, "may be read both ways"),
        ({"inputs": np.full((24, 2), 1e300)}, "must be finite in float32; got 1e[+]300 at row 0"),
        ({"labels": LABELS[:9]}, r"must have shape \(24,\), a label an input; got \(9,\)"),
        ({"labels": LABELS + 0.5}, "whole numbers from 0, or the names of the classes; got float64"),
        (
            {"labels": np.where(LABELS, LABELS, np.inf)},
            "whole numbers from 0, or the names of the classes; got float64",
        ),
        ({"labels": LABELS * 10**9}, "must be below 1,000,000; got 2,000,000,000. Save identifiers as text"),
        ({"labels": np.array([b"a", b"\xff", b"c"])[LABELS]}, "in UTF-8"),
        ({"labels": LABELS - 1}, "labels must"),
        ({"labels": np.array(["bird", "cat", "dog"])[LABELS], "class_names": ["bird", "cats", "dog"]}, "mean cats"),
        ({"class_names": ["a"]}, "must have at least two classes"),
        ({"labels": LABELS, "class_names": ["a", "b"]}, "labels must lie in 0..1"),
        ({"labels": np.array([{}] * 24, dtype=object)}, "pickle"),
    ],
)
def test_arrays_of_another_kind_are_refused_with_the_file(saved, tmp_path, arrays, words):
    with pytest.raises(InputError, match=words) as raised:
        read_arrays(saved(**arrays), saved("test"))
    assert str(tmp_path) in str(raised.value)


def test_arrays_of_another_name_or_file_are_refused(saved, tmp_path):
    with pytest.raises(InputError, match=r"lacks x and has inputs, labels\. Name the arrays: --inputs NAME"):
        read_arrays(saved(), saved("test"), inputs="x")
    with pytest.raises(InputError, match="must be an existing file"):
        read_arrays(saved(), tmp_path / "other.npz")
    with pytest.raises(InputError, match="inputs must be of one type in all files"):
        read_arrays(saved(), saved("test", inputs=PIXELS / 255))
