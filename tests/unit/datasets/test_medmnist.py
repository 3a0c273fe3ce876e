"""MedMNIST from its archives of arrays."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
import torch

from calibrant.datasets.medmnist import MEDMNIST_FLAGS, BloodMNIST, MedMNIST
from calibrant.errors import FileError, InputError, UnknownNameError

SIZES = {"train": 16, "val": 9, "test": 11}


def arrays(*, channels=3, n_classes=8):
    random = np.random.default_rng(0)
    held = {}
    for part, n in SIZES.items():
        shape = (n, 28, 28) if channels == 1 else (n, 28, 28, channels)
        held[f"{part}_images"] = random.integers(0, 256, shape, dtype=np.uint8)
        held[f"{part}_labels"] = (np.arange(n, dtype=np.uint8) % n_classes)[:, None]
    return held


def test_the_publishers_three_parts_are_kept(tmp_path):
    held = arrays()
    np.savez(tmp_path / "bloodmnist.npz", **held)
    dataset = BloodMNIST().read(tmp_path, checked=False)
    assert (len(dataset.training), len(dataset.validation), len(dataset.test)) == (16, 9, 11)
    assert tuple(dataset.training.inputs.shape) == (16, 3, 28, 28)
    assert dataset.training.inputs.is_contiguous()
    for row, channel, down, across in [(0, 0, 0, 0), (7, 2, 3, 20), (15, 1, 27, 26)]:
        assert dataset.training.inputs[row, channel, down, across] == held["train_images"][row, down, across, channel]
    assert dataset.validation.labels.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 0]
    assert (dataset.name, dataset.class_names[7], dataset.augmentation) == ("bloodmnist", "platelet", "crop-flip")


def test_grey_images_have_one_channel(tmp_path):
    held = arrays(channels=1, n_classes=4)
    np.savez_compressed(tmp_path / "octmnist.npz", **held)
    dataset = MedMNIST("octmnist").read(tmp_path, checked=False)
    assert torch.equal(dataset.test.inputs[:, 0], torch.from_numpy(held["test_images"]))
    assert dataset.name == "octmnist"


def test_both_readers_read_the_same(tmp_path):
    np.savez(tmp_path / "bloodmnist.npz", **arrays())
    first, second = (reader.read(tmp_path, checked=False) for reader in (BloodMNIST(), MedMNIST("bloodmnist")))
    assert torch.equal(first.test.inputs, second.test.inputs)
    assert BloodMNIST().remote == MedMNIST("bloodmnist").remote


def test_a_file_of_another_name_is_read_without_a_digest(tmp_path):
    np.savez(tmp_path / "my_cells.npz", class_names=np.array(["a"]), **arrays())
    assert len(BloodMNIST().read(tmp_path / "my_cells.npz").training) == 16
    with pytest.raises(FileError, match=r"bloodmnist needs bloodmnist\.npz in .*; missing: bloodmnist\.npz"):
        BloodMNIST().read(tmp_path)


def test_the_official_name_must_be_the_official_file(tmp_path, monkeypatch):
    path = tmp_path / "bloodmnist.npz"
    np.savez(path, **arrays())
    with pytest.raises(FileError, match="must be the published data, md5:7053d0359d879ad8a5505303e11de1dc; got md5:"):
        BloodMNIST().read(tmp_path)
    digest = f"md5:{hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()}"
    monkeypatch.setitem(MEDMNIST_FLAGS, "bloodmnist", replace(MEDMNIST_FLAGS["bloodmnist"], digest=digest))
    assert len(BloodMNIST().read(tmp_path).test) == 11


def test_many_labels_at_once_are_refused(tmp_path):
    with pytest.raises(InputError, match="chestmnist gives it any of fourteen at once"):
        MedMNIST("chestmnist")
    np.savez(tmp_path / "chestmnist.npz", **{**arrays(), "val_labels": np.zeros((9, 14), dtype=np.uint8)})
    with pytest.raises(FileError, match=r"val_labels must give every image one label .*got 14 labels at once"):
        MedMNIST("pathmnist").read(tmp_path / "chestmnist.npz")


def test_the_channels_are_those_of_the_published_parts():
    colour = {flag for flag, part in MEDMNIST_FLAGS.items() if part.channels == 3}
    assert colour == {"pathmnist", "dermamnist", "retinamnist", "bloodmnist"}
    assert {part.channels for part in MEDMNIST_FLAGS.values()} == {1, 3}


@pytest.mark.parametrize(
    ("flag", "channels", "n_classes", "message"),
    [
        (
            "pathmnist",
            3,
            8,
            r"of pathmnist, labels 0 to 8, .*got labels 0, 1, .*, 7 and .*medmnist\(flag=bloodmnist\)\.",
        ),
        (
            "bloodmnist",
            3,
            9,
            r"of bloodmnist, labels 0 to 7, .*got labels 0, 1, .*, 8 and .*medmnist\(flag=pathmnist\)\.",
        ),
        ("bloodmnist", 1, 8, r"and colour images; got labels 0, .*, 7 and grey images.*medmnist\(flag=tissuemnist\)\."),
        ("octmnist", 1, 2, r"it is: medmnist\(flag=pneumoniamnist\) or medmnist\(flag=breastmnist\)\."),
        ("dermamnist", 3, 6, r"got labels 0, 1, 2, 3, 4, 5 and .*No part of the collection is like that"),
    ],
)
@pytest.mark.parametrize("checked", [True, False])
def test_a_file_with_the_classes_or_channels_of_another_part_is_refused(
    tmp_path, flag, channels, n_classes, message, checked
):
    np.savez(tmp_path / "cells.npz", **arrays(channels=channels, n_classes=n_classes))
    with pytest.raises(FileError, match=message):
        MedMNIST(flag).read(tmp_path / "cells.npz", checked=checked)


@pytest.mark.parametrize(
    ("labels", "words"), [([0, 1, 2, 4, 5, 6, 7], "0, 1, 2, 4, 5, 6, 7"), ([3], "3"), ([*range(14), 99], "10, 11, ...")]
)
def test_a_class_that_is_in_no_part_of_the_file_is_refused(tmp_path, labels, words):
    held = arrays()
    for part, n in SIZES.items():
        held[f"{part}_labels"] = np.resize(labels, n)
    np.savez(tmp_path / "cells.npz", **held)
    with pytest.raises(FileError, match=rf"got labels .*{words} and colour images\. No part"):
        BloodMNIST().read(tmp_path / "cells.npz")


def test_a_class_may_be_missing_from_one_part_of_three(tmp_path):
    held = arrays()
    held["val_labels"] = np.full((9, 1), 2)
    np.savez(tmp_path / "cells.npz", **held)
    assert MedMNIST("bloodmnist").read(tmp_path / "cells.npz").validation.labels.unique().tolist() == [2]


@pytest.mark.parametrize("name", ["bloodmnist.npz", "bloodmnist_64.npz", "bloodmnist_224.npz"])
def test_without_a_flag_the_name_of_the_file_tells_the_part(tmp_path, name):
    np.savez(tmp_path / name, **arrays())
    np.savez(tmp_path / "other.npz", **arrays())
    for place in (tmp_path / name, tmp_path):
        dataset = MedMNIST().read(place, checked=False)
        assert (dataset.name, dataset.class_names[0]) == ("bloodmnist", "basophil")


def test_without_a_flag_the_official_name_must_be_the_official_file(tmp_path):
    np.savez(tmp_path / "bloodmnist.npz", **arrays())
    for place in (tmp_path / "bloodmnist.npz", tmp_path):
        with pytest.raises(FileError, match="must be the published data, md5:7053d0359d879ad8a5505303e11de1dc"):
            MedMNIST().read(place)


def test_without_a_flag_a_file_of_another_name_is_refused(tmp_path):
    np.savez(tmp_path / "bloodcells_28.npz", **arrays())
    with pytest.raises(FileError, match=r"flag must be given for a file named bloodcells_28\.npz; one of pathmnist,"):
        MedMNIST().read(tmp_path / "bloodcells_28.npz")
    with pytest.raises(FileError, match=r"medmnist needs <flag>\.npz, such as pathmnist\.npz, in "):
        MedMNIST().read(tmp_path)
    with pytest.raises(FileError, match="nowhere is not there"):
        MedMNIST().read(tmp_path / "nowhere")
    np.savez(tmp_path / "chestmnist.npz", **arrays())
    with pytest.raises(FileError, match=r"chestmnist gives it any of fourteen at once"):
        MedMNIST().read(tmp_path / "chestmnist.npz")


def test_without_a_flag_a_folder_of_several_parts_is_refused(tmp_path):
    np.savez(tmp_path / "pathmnist.npz", **arrays(n_classes=9))
    np.savez(tmp_path / "bloodmnist_64.npz", **arrays())
    with pytest.raises(
        FileError, match=r"holds bloodmnist_64\.npz, pathmnist\.npz\. Write medmnist\(flag=bloodmnist\)"
    ):
        MedMNIST().read(tmp_path)
    assert MedMNIST("pathmnist").read(tmp_path, checked=False).n_classes == 9


def test_a_file_named_as_another_part_is_refused_though_its_classes_are_as_many(tmp_path):
    np.savez(tmp_path / "breastmnist.npz", **arrays(channels=1, n_classes=2))
    with pytest.raises(FileError, match=r"must be pneumoniamnist; by its name it is breastmnist\."):
        MedMNIST("pneumoniamnist").read(tmp_path / "breastmnist.npz", checked=False)


def test_an_unknown_flag_is_refused_with_the_closest():
    with pytest.raises(UnknownNameError, match="Did you mean pathmnist"):
        MedMNIST("pathmist")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"test_images": np.zeros((11, 28, 28, 28), dtype=np.uint8)}, r"test_images must have one or three channels"),
        ({"test_images": np.zeros((11, 28, 28, 3))}, r"test_images must be pixels.*float64"),
        ({"test_images": np.zeros((10, 28, 28, 3), dtype=np.uint8)}, "10 integers, one an image"),
        ({"test_labels": np.full((11, 1), 0.5)}, r"test_labels must be \d+ integers"),
        ({"test_labels": np.full((11, 1), -1)}, "test_labels must be 0 or more; got -1 at image 0"),
        ({"test_labels": np.array([[{}]] * 11)}, "test_labels.* holds Python objects"),
        ({"train_images": np.zeros((16, 32, 32, 3), dtype=np.uint8)}, "inputs of one shape"),
    ],
)
def test_arrays_of_another_layout_are_refused(tmp_path, wrong, message):
    np.savez(tmp_path / "x.npz", **{**arrays(), **wrong})
    with pytest.raises(InputError, match=message):
        BloodMNIST().read(tmp_path / "x.npz")


def test_an_archive_without_a_part_is_refused(tmp_path):
    held = arrays()
    del held["val_images"]
    np.savez(tmp_path / "x.npz", **held)
    with pytest.raises(FileError, match=r"must hold train_images.*it lacks val_images and has train_images"):
        BloodMNIST().read(tmp_path / "x.npz")


def test_a_truncated_archive_or_something_else_is_refused(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, **arrays())
    path.write_bytes(path.read_bytes()[:20_000])
    with pytest.raises(FileError, match=r"x\.npz must be a whole NumPy archive"):
        BloodMNIST().read(path)
    path.write_bytes(b"\x80\x04cos\nsystem\n")
    with pytest.raises(FileError, match="it is something else"):
        BloodMNIST().read(path)
