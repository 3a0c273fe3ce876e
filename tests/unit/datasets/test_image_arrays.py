"""Files of images that were not trained on: what is read, and how the others are refused."""

import io
import re

import numpy as np
import pytest
import torch

from calibrant.datasets import read_shifted
from calibrant.errors import FileError, InputError, UnknownNameError

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 8, 9, 3), dtype=np.uint8)
LABELS = np.array([3, 0, 9, 1, 1, 2])
FIRST = torch.from_numpy(IMAGES.transpose(0, 3, 1, 2).copy())


def archive(folder, **arrays):
    path = folder / "shifted.npz"
    np.savez(path, **arrays)
    return path


def pair(folder, name="cifar10.1_v6", images=IMAGES, labels=LABELS):
    paths = folder / f"{name}_data.npy", folder / f"{name}_labels.npy"
    np.save(paths[0], images)
    np.save(paths[1], labels)
    return paths


def check(examples):
    assert torch.equal(examples.inputs, FIRST)
    assert examples.inputs.is_contiguous()
    assert examples.labels.dtype == torch.int64
    assert examples.labels.tolist() == LABELS.tolist()


@pytest.mark.parametrize(("images", "labels"), [("images", "labels"), ("data", "targets"), ("x", "y"), ("inputs", "y")])
def test_an_archive_is_read_whatever_its_arrays_are_called(tmp_path, images, labels):
    check(read_shifted(archive(tmp_path, **{images: IMAGES, labels: LABELS}), n_classes=10))


def test_channels_may_come_first(tmp_path):
    check(read_shifted(archive(tmp_path, images=FIRST.numpy(), labels=LABELS)))


def test_arrays_that_are_not_needed_are_not_looked_at(tmp_path):
    # As in CIFAR-10.2, whose list of words is a pickle.
    names = np.array(["ship", None], dtype=object)
    check(read_shifted(archive(tmp_path, images=IMAGES, labels=LABELS, label_names=names)))


@pytest.mark.parametrize("dtype", ["uint8", "int32", ">i8", "uint16"])
def test_labels_may_be_of_any_integer_type(tmp_path, dtype):
    check(read_shifted(pair(tmp_path, labels=LABELS.astype(dtype)), n_classes=10))


def test_a_pair_is_found_by_folder_by_its_first_file_or_by_both(tmp_path):
    images, labels = pair(tmp_path)
    for path in (tmp_path, str(tmp_path), images, (images, labels), (str(images), str(labels))):
        check(read_shifted(path, n_classes=10))
    labels.rename(tmp_path / "elsewhere.npy")
    check(read_shifted((images, tmp_path / "elsewhere.npy")))


def test_a_file_of_any_name_has_its_labels_in_labels_npy(tmp_path):
    np.save(tmp_path / "fog.npy", IMAGES)
    np.save(tmp_path / "frost.npy", IMAGES)
    np.save(tmp_path / "labels.npy", LABELS)
    check(read_shifted(tmp_path / "fog.npy"))
    with pytest.raises(FileError, match=r"one pair .*found fog\.npy, frost\.npy, labels\.npy\. Name the file"):
        read_shifted(tmp_path)


def test_two_pairs_in_a_folder_are_refused(tmp_path):
    pair(tmp_path)
    pair(tmp_path, name="cifar10.1_v4")
    with pytest.raises(FileError, match=r"found cifar10\.1_v4_data\.npy, cifar10\.1_v6_data\.npy\. Name the one"):
        read_shifted(tmp_path)


def test_an_empty_folder_and_missing_files_are_refused(tmp_path):
    with pytest.raises(FileError, match="found nothing"):
        read_shifted(tmp_path)
    for missing in ("none.npz", "none.npy", "none_data.npy"):
        with pytest.raises(FileError, match=rf"{missing} must be an existing file; there is none"):
            read_shifted(tmp_path / missing)
    images, labels = pair(tmp_path)
    labels.unlink()
    said = r"v6_data\.npy must have its labels beside it, in cifar10\.1_v6_labels\.npy; there is no such file.*savez\("
    with pytest.raises(FileError, match=said):
        read_shifted(images)
    with pytest.raises(FileError, match=r"found cifar10\.1_v6_data\.npy\. Name the file of images\.$"):
        read_shifted(tmp_path)
    with pytest.raises(FileError, match=r"v6_labels\.npy must be an existing file; there is none"):
        read_shifted((images, labels))
    with pytest.raises(FileError, match="must be a file; it is a folder"):
        read_shifted((images, tmp_path))


def test_grey_images_get_an_axis_for_their_channel(tmp_path):
    examples = read_shifted(archive(tmp_path, images=IMAGES[..., 0], labels=LABELS))
    assert torch.equal(examples.inputs, FIRST[:, :1])
    assert torch.equal(read_shifted(archive(tmp_path, images=IMAGES[..., :1], labels=LABELS)).inputs, FIRST[:, :1])


def test_a_shape_that_may_be_read_both_ways_asks_for_the_layout(tmp_path):
    narrow = IMAGES[:, :3]  # (6, 3, 9, 3)
    path = archive(tmp_path, images=narrow, labels=LABELS)
    with pytest.raises(FileError, match=r"'images' .*shape \(6, 3, 9, 3\) may be read both ways.*channels_first"):
        read_shifted(path)
    assert torch.equal(read_shifted(path, layout="channels_last").inputs, FIRST[:, :, :3])
    assert torch.equal(read_shifted(path, layout="channels_first").inputs, torch.from_numpy(narrow))


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (
            IMAGES / 255,
            r"in uint8; got float64\. If they lie in 0\.\.1, save \(images \* full\)\.round\(\).*mostly 255",
        ),
        (IMAGES.astype(np.int64), r"got int64\. Save images\.astype\('uint8'\)"),
        (IMAGES.reshape(6, -1), r"be images, .*got shape \(6, 216\)"),
        (IMAGES[..., :2], r"one or three channels; got shape \(6, 8, 9, 2\)"),
        (IMAGES[:0], "at least one; got shape"),
    ],
)
def test_images_that_are_none_are_refused(tmp_path, images, message):
    with pytest.raises(FileError, match=r"shifted\.npz: 'images' must .*" + message):
        read_shifted(archive(tmp_path, images=images, labels=LABELS))


def test_a_layout_that_the_shape_contradicts_is_refused(tmp_path):
    path = archive(tmp_path, images=IMAGES, labels=LABELS)
    with pytest.raises(FileError, match=r"three channels where layout='channels_first' has them; got shape"):
        read_shifted(path, layout="channels_first")
    with pytest.raises(UnknownNameError, match="Did you mean channels_first"):
        read_shifted(path, layout="channel_first")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (LABELS + 1, r"in 0\.\.9, the classes of the network; got 10 at image 2\. If labels start at 1, subtract"),
        (LABELS * 3, r"lie in 0\.\.9, .*got 27 at image 2\.$"),
        (LABELS - 1, r"got -1 at image 1\. Remove rows without a label"),
        (LABELS.astype(float), "6 integers, one an image; got float64"),
        (LABELS > 1, "got bool"),
        (LABELS[:5], r"6 integers.* shape \(5,\)"),
        (np.eye(10, dtype=int)[LABELS], r"one an image; got int64 of shape \(6, 10\)"),
        (np.array(list("abcdef")), "6 integers"),
    ],
)
def test_labels_that_are_none_are_refused(tmp_path, labels, message):
    with pytest.raises(FileError, match=r"shifted\.npz: 'labels' must .*" + message):
        read_shifted(archive(tmp_path, images=IMAGES, labels=labels), n_classes=10)


def test_without_a_number_of_classes_labels_have_no_upper_end(tmp_path):
    path = archive(tmp_path, images=IMAGES, labels=LABELS * 100)
    assert int(read_shifted(path).labels.max()) == 900
    with pytest.raises(FileError, match=r"must be 0 or more; got -1"):
        read_shifted(archive(tmp_path, images=IMAGES, labels=LABELS - 1))
    with pytest.raises(InputError, match="n_classes must be at least 1"):
        read_shifted(path, n_classes=0)


def test_an_archive_must_have_one_array_of_each_kind(tmp_path):
    with pytest.raises(FileError, match=r"one of the arrays images, data, inputs, x; it has pictures, labels\."):
        read_shifted(archive(tmp_path, pictures=IMAGES, labels=LABELS))
    with pytest.raises(FileError, match="it has images and x"):
        read_shifted(archive(tmp_path, images=IMAGES, x=IMAGES, labels=LABELS))
    with pytest.raises(FileError, match=r"exactly one of the arrays labels, targets, y; it has images\."):
        read_shifted(archive(tmp_path, images=IMAGES))


class Trap:
    """Sets itself off when it is unpickled."""

    def __reduce__(self):
        return (exec, ("raise SystemExit('a pickle was run')",))


def test_no_pickle_is_run(tmp_path):
    trap = np.array([Trap()] * 6, dtype=object)
    with pytest.raises(FileError, match=r"'labels' must be an array of numbers or text; it holds Python objects"):
        read_shifted(archive(tmp_path, images=IMAGES, labels=trap))
    with pytest.raises(FileError, match=r"v6_data\.npy must be an array of numbers or text; it holds Python objects"):
        read_shifted(pair(tmp_path, images=trap))
    plain = io.BytesIO()
    np.save(plain, trap, allow_pickle=True)
    for name in ("bare.npz", "bare.npy"):
        (tmp_path / name).write_bytes(plain.getvalue()[128:])
        with pytest.raises(FileError, match=rf"{re.escape(name)} must be a NumPy .*; it is something else"):
            read_shifted(tmp_path / name if name.endswith("z") else (tmp_path / name, tmp_path / name))


def test_a_file_that_was_cut_short_is_refused(tmp_path):
    for path in (archive(tmp_path, images=IMAGES, labels=LABELS), pair(tmp_path)[0]):
        path.write_bytes(path.read_bytes()[:300])
        with pytest.raises(FileError, match=rf"{re.escape(path.name)} must be a whole NumPy "):
            read_shifted(path)


def test_other_endings_and_other_numbers_of_paths_are_refused(tmp_path):
    with pytest.raises(FileError, match=r"must end in \.npz or \.npy; got .*photos\.zip.*numpy\.savez"):
        read_shifted(tmp_path / "photos.zip")
    with pytest.raises(InputError, match=r"a pair \(images, labels\); got 3 of them"):
        read_shifted(("a", "b", "c"))
