"""What all readers have in common, and the digits that come with the package."""

import dataclasses
import re

import pytest
import torch

from calibrant import catalogue
from calibrant.datasets import MNIST, DigitsReader, FashionMNIST, load_digits
from calibrant.datasets.cifar import CIFAR10_CLASSES, CIFAR100_CLASSES
from calibrant.datasets.medmnist import MEDMNIST_FLAGS
from calibrant.errors import FileError, UnknownNameError

NAMES = [
    *("bloodmnist", "cifar10", "cifar100", "digits", "fashion_mnist", "image_folder", "imagenet"),
    *("large_image_folder", "medmnist", "mnist", "newsgroups", "svhn", "tiny_imagenet"),
]


def test_every_data_set_is_there_under_its_name():
    assert list(catalogue.datasets) == NAMES
    for name, reader in catalogue.datasets.items():
        assert reader.name == name
        assert catalogue.datasets.parse(name) == reader


def test_an_unknown_data_set_is_refused_with_the_closest():
    with pytest.raises(UnknownNameError, match="Did you mean cifar100"):
        catalogue.datasets.parse("cifar1000")


@pytest.mark.parametrize("reader", catalogue.datasets.values(), ids=NAMES)
def test_a_reader_is_a_frozen_record_that_says_where_it_comes_from(reader):
    assert dataclasses.is_dataclass(reader)
    with pytest.raises(dataclasses.FrozenInstanceError):
        reader.other = 1
    assert reader.title
    assert reader.paper.title
    assert reader.homepage.startswith("http")


@pytest.mark.parametrize("reader", catalogue.datasets.values(), ids=NAMES)
def test_addresses_and_digests_are_well_formed(reader):
    for file in reader.remote:
        assert re.fullmatch(r"https?://\S+", file.url)
        assert re.fullmatch(r"sha256:[0-9a-f]{64}|md5:[0-9a-f]{32}", file.digest)
        assert re.fullmatch(r"[\w.-]+\.\w+", file.name)
    assert len({file.name for file in reader.remote}) == len(reader.remote)


@pytest.mark.parametrize("reader", [r for r in catalogue.datasets.values() if not r.is_embedded], ids=lambda r: r.name)
def test_an_empty_folder_is_an_error_in_words(reader, tmp_path):
    with pytest.raises(FileError, match=rf"{reader.name} needs .*{re.escape(str(tmp_path))}"):
        reader.read(tmp_path)


def test_the_number_of_classes_is_known_before_the_files_are_read():
    counts = [len(part.class_names) for part in MEDMNIST_FLAGS.values()]
    assert {name: reader.n_classes for name, reader in catalogue.datasets.items()} == {
        "bloodmnist": len(MEDMNIST_FLAGS["bloodmnist"].class_names),
        "cifar10": len(CIFAR10_CLASSES),
        "cifar100": len(CIFAR100_CLASSES),
        "digits": DigitsReader().read().n_classes,
        "fashion_mnist": len(FashionMNIST.class_names),
        "image_folder": None,
        "imagenet": 1000,
        "large_image_folder": None,
        "medmnist": (min(counts), max(counts)),
        "mnist": len(MNIST.class_names),
        "newsgroups": 20,
        "svhn": 10,
        "tiny_imagenet": 200,
    }


def test_only_the_digits_come_with_the_package():
    assert [name for name, reader in catalogue.datasets.items() if reader.is_embedded] == ["digits"]


def test_classes_of_cifar_are_different_and_in_alphabetical_order():
    assert len(set(CIFAR10_CLASSES)) == 10
    assert len(set(CIFAR100_CLASSES)) == 100
    assert list(CIFAR100_CLASSES) == sorted(CIFAR100_CLASSES)


def test_the_digits_are_divided_once_and_for_all(tmp_path):
    dataset, again = DigitsReader().read(), DigitsReader().read(tmp_path, checked=False)
    assert (len(dataset.training), len(dataset.test)) == (1297, 500)
    assert torch.equal(dataset.test.inputs, again.test.inputs)
    # Were another version of torch to draw other samples, results would no longer compare.
    assert dataset.test.labels[:12].tolist() == [0, 4, 0, 4, 1, 2, 6, 7, 0, 5, 6, 5]
    assert dataset.pixel_scale.peak == 16


def test_the_digits_of_both_parts_are_all_the_digits():
    dataset, digits = DigitsReader().read(), load_digits()
    together = torch.cat([dataset.training.inputs, dataset.test.inputs])
    assert together.dtype == torch.uint8
    assert int(together.sum()) == int((digits.images * 16).sum())
    counts = dataset.training.labels.bincount() + dataset.test.labels.bincount()
    assert torch.equal(counts, digits.labels.bincount())
    rows = {row.numpy().tobytes() for row in together}
    assert len(rows) == len({row.numpy().tobytes() for row in (digits.images * 16).byte()})
