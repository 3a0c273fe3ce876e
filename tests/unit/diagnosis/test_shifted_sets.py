"""Shifted sets: what the library corrupts, what files hold, and what does not suit the networks."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from calibrant.datasets import Samples, corrupt
from calibrant.datasets.corruptions import CORRUPTIONS
from calibrant.diagnosis import clean_samples, corrupted_sets, shift, stored_sets
from calibrant.diagnosis.shift import check_suits
from calibrant.errors import FileError, InputError, UnknownNameError

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def clean(runs, digits):
    return clean_samples(runs, digits)


def write(path, images, labels):
    np.savez(path, images=np.asarray(images), labels=np.asarray(labels))
    return path


def test_corrupted_sets_are_the_test_images_corrupted_on_their_own_scale(runs, digits, clean):
    (found,) = corrupted_sets(runs, digits, names=["gaussian_noise"], severities=[3], seed=4)
    examples = found.make(CPU)
    expected = corrupt(clean.inputs, "gaussian_noise", severity=3, seed=4, peak=16)
    assert torch.equal(examples.inputs, expected)
    assert torch.equal(examples.labels, clean.labels)
    assert int(examples.inputs.max()) == 16  # and not 255
    assert (found.title, found.source) == ("gaussian_noise, severity 3", "corruption")


def test_all_corruptions_at_five_severities_are_made_only_when_asked_for(runs, digits, monkeypatch):
    made = []

    def counted(images, name, *, severity, **options):
        made.append((name, severity))
        return corrupt(images, name, severity=severity, **options)

    monkeypatch.setattr(shift, "corrupt", counted)
    found = corrupted_sets(runs, digits)
    assert [(each.name, each.severity) for each in found] == [
        (name, severity) for name in CORRUPTIONS for severity in (1, 2, 3, 4, 5)
    ]
    assert made == []
    found[7].make(CPU)
    assert made == [(found[7].name, found[7].severity)]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"severities": [0]}, InputError, "severity must be at least 1"),
        ({"severities": [6]}, InputError, "severity must be at most 5"),
        ({"names": ["gausian_noise"]}, UnknownNameError, "Did you mean gaussian_noise"),
        ({"seed": -1}, InputError, "seed must be at least 0"),
    ],
)
def test_options_out_of_range_are_refused_before_anything_is_made(runs, digits, options, error, message):
    with pytest.raises(error, match=message):
        corrupted_sets(runs, digits, **options)


def test_a_file_is_one_set_without_severities(runs, tmp_path):
    images = torch.randint(0, 17, (30, 1, 8, 8), dtype=torch.uint8)
    labels = torch.arange(30) % 10
    (found,) = stored_sets(runs, write(tmp_path / "hands_data.npz", images, labels))
    assert (found.name, found.severity, found.source, found.title) == ("hands", None, "file", "hands")
    examples = found.make(CPU)
    assert torch.equal(examples.inputs, images)
    assert torch.equal(examples.labels, labels)
    (named,) = stored_sets(runs, tmp_path / "hands_data.npz", name="other hands")
    assert named.title == "other hands"


def test_the_name_of_a_folder_or_of_the_first_file_of_a_pair_is_that_of_the_set(runs, tmp_path):
    folder = tmp_path / "v6.1"
    folder.mkdir()
    np.save(folder / "new-images.npy", np.zeros((4, 8, 8), np.uint8))
    np.save(folder / "new-labels.npy", np.zeros(4, np.int64))
    pair = (folder / "new-images.npy", folder / "new-labels.npy")
    assert [stored_sets(runs, each)[0].name for each in (folder, pair)] == ["v6.1", "new"]


def test_five_severities_of_the_test_samples_in_one_file_are_five_sets(runs, clean, tmp_path):
    corrupted = [corrupt(clean.inputs, "contrast", severity=severity, peak=16) for severity in (1, 2, 3, 4, 5)]
    path = write(tmp_path / "contrast.npz", torch.cat(corrupted), clean.labels.repeat(5))
    found = stored_sets(runs, path)
    assert [(each.name, each.severity) for each in found] == [("contrast", severity) for severity in (1, 2, 3, 4, 5)]
    for each, images in zip(found, corrupted, strict=True):
        assert torch.equal(each.make(CPU).inputs, images)
        assert torch.equal(each.make(CPU).labels, clean.labels)


def test_labels_that_repeat_but_are_not_the_test_labels_are_one_set(runs, clean, tmp_path):
    images = torch.zeros(5 * len(clean), 1, 8, 8, dtype=torch.uint8)
    path = write(tmp_path / "cyclic.npz", images, clean.labels.roll(1).repeat(5))
    assert [each.severity for each in stored_sets(runs, path)] == [None]


def test_files_that_do_not_suit_are_refused_when_named(runs, tmp_path):
    small, labels = np.zeros((4, 8, 8), np.uint8), np.zeros(4, np.int64)
    with pytest.raises(FileError, match=r"must lie in 0\.\.9, the classes of the network; got 10 at image 0"):
        stored_sets(runs, write(tmp_path / "a.npz", small, labels + 10))
    with pytest.raises(InputError, match=r"of the size and channels .*\(1, 8, 8\).*b has shape \(4, 3, 8, 8\)"):
        stored_sets(runs, write(tmp_path / "b.npz", np.zeros((4, 8, 8, 3), np.uint8), labels))
    with pytest.raises(InputError, match=r"c has shape \(4, 1, 9, 9\)"):
        stored_sets(runs, write(tmp_path / "c.npz", np.zeros((4, 9, 9), np.uint8), labels))
    with pytest.raises(InputError, match=r"must lie in 0\.\.16, as the pixels of digits do; d has 17"):
        stored_sets(runs, write(tmp_path / "d.npz", small + np.uint8(17), labels))
    with pytest.raises(FileError):
        stored_sets(runs, tmp_path / "absent.npz")


def test_texts_cannot_be_evaluated_on_images(runs, tmp_path):
    texts = replace(runs[0], trained=replace(runs[0].settings, n_words=50, input_shape=(20,), pixel_scale=None))
    with pytest.raises(InputError, match="was trained on texts"):
        stored_sets([texts], tmp_path / "absent.npz")


def test_sets_that_a_person_makes_are_checked_as_well(runs):
    images, labels = torch.zeros(3, 1, 8, 8, dtype=torch.uint8), torch.tensor([0, 3, 12])
    with pytest.raises(InputError, match=r"mine: labels must lie in 0\.\.9, .* got 12 at row 2"):
        check_suits(Samples(images, labels), runs[0], "mine")
    with pytest.raises(InputError, match=r"torch\.float32"):
        check_suits(Samples(images.float(), labels), runs[0], "mine")
    with pytest.raises(InputError, match="at least one"):
        check_suits(Samples(images[:0], labels[:0]), runs[0], "mine")
