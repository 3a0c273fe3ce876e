"""The data of runs, read again: the same samples, or an error that says how they differ."""

from dataclasses import replace

import pytest
import torch
from PIL import Image

from calibrant.datasets import CIFAR10, ImageFolder, LargeImageFolder, MedMNIST, Samples
from calibrant.diagnosis import clean_samples, read_run_dataset
from calibrant.errors import FileError, InputError


def changed(run, **settings):
    return replace(run, trained=replace(run.settings, **settings))


def test_the_test_images_are_those_of_the_runs_own_split(runs, digits):
    found = clean_samples(runs, digits)
    assert torch.equal(found.labels, runs[0].test.labels)
    # Half of the test part is evaluated: its samples, in their order.
    assert len(found) == 100
    places = [int((digits.test.inputs == image).flatten(1).all(1).nonzero()[0]) for image in found.inputs[:10]]
    assert places == sorted(places)


def test_other_test_samples_are_refused(runs, digits):
    fewer = replace(digits, test=digits.test[:150])
    with pytest.raises(InputError, match=r"test\.npz has 100 test samples and digits has 75"):
        clean_samples(runs, fewer)
    labels = digits.test.labels.roll(1)
    with pytest.raises(InputError, match=r"row \d+ \(counting from 0\) is of class \d .* samples differ\)"):
        clean_samples(runs, replace(digits, test=Samples(digits.test.inputs, labels)))


@pytest.mark.parametrize("part", ["test", "training"])
def test_one_pixel_that_differs_is_refused(runs, digits, part):
    images = getattr(digits, part).inputs.clone()
    images[0, 0, 0, 0] += 1
    other = replace(digits, **{part: Samples(images, getattr(digits, part).labels)})
    with pytest.raises(InputError, match="labels of digits are the same, but its images or its other samples are not"):
        clean_samples(runs, other)


def test_other_classes_are_refused(runs, digits):
    with pytest.raises(InputError, match="it has 10 classes and digits 11"):
        clean_samples(runs, replace(digits, class_names=(*digits.class_names, "10")))
    with pytest.raises(InputError, match="their classes differ"):
        clean_samples(runs, replace(digits, class_names=digits.class_names[::-1]))


def test_texts_have_no_test_images(runs, digits):
    with pytest.raises(InputError, match=r"must take images; .* was trained on texts .* without a shift"):
        clean_samples([changed(runs[0], n_words=50, input_shape=(20,), pixel_scale=None)], digits)
    with pytest.raises(InputError, match=r"inputs of shape \(7,\)"):
        clean_samples([changed(runs[0], input_shape=(7,), pixel_scale=None)], digits)


def test_every_run_is_checked_and_not_the_first_alone(runs, digits):
    with pytest.raises(InputError, match="are not"):
        clean_samples([*runs, changed(runs[0], data_digest="0" * 16)], digits)


def test_bundled_data_need_no_folder_and_others_do(runs):
    assert len(read_run_dataset(runs).test) == 500
    with pytest.raises(FileError, match="data must name the folder of CIFAR-10"):
        read_run_dataset([changed(runs[0], dataset=CIFAR10.name)])


def test_a_part_of_a_collection_is_read_by_its_own_name(runs, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(MedMNIST, "read", lambda reader, folder, *, checked: asked.append((reader, folder, checked)))
    read_run_dataset([changed(runs[0], dataset="pathmnist")], tmp_path, checked=False)
    assert asked == [(MedMNIST("pathmnist"), tmp_path, False)]


def test_folders_of_pictures_are_read_again_at_the_size_of_the_training(runs, tmp_path):
    for part in ("train", "val"):
        for name in ("cat", "dog"):
            (tmp_path / part / name).mkdir(parents=True)
            Image.new("RGB", (40, 30), "red").save(tmp_path / part / name / "1.png")
    for reader in (ImageFolder(), ImageFolder(size=16), LargeImageFolder(size=24, crop=0.5)):
        dataset = reader.read(tmp_path)
        again = read_run_dataset([changed(runs[0], dataset=dataset.name)], tmp_path)
        assert torch.equal(again.test.tensor, dataset.test.tensor)
    assert dataset.name == "large_image_folder(size=24,crop=0.5)"


def test_data_that_cannot_be_read_again_are_named(runs):
    with pytest.raises(InputError, match=r"is of 'my own'\. Read it yourself"):
        read_run_dataset([changed(runs[0], dataset="my own")])
    with pytest.raises(InputError, match=r"must be of one data set; .* is of digits and .* of mnist"):
        read_run_dataset([runs[0], changed(runs[1], dataset="mnist")])
