"""Every data set by its short name."""

from calibrant.checks import check_known
from calibrant.datasets.cifar import CIFAR10, CIFAR100
from calibrant.datasets.digits import DigitsReader
from calibrant.datasets.idx import MNIST, FashionMNIST
from calibrant.datasets.image_folder import ImageFolder
from calibrant.datasets.medmnist import BloodMNIST, MedMNIST
from calibrant.datasets.newsgroups import Newsgroups
from calibrant.datasets.reader import DatasetReader
from calibrant.datasets.svhn import SVHN
from calibrant.datasets.tiny_imagenet import TinyImageNet

__all__ = ["all_datasets", "find_dataset"]

_READERS: tuple[type[DatasetReader], ...] = (
    BloodMNIST,
    CIFAR10,
    CIFAR100,
    DigitsReader,
    FashionMNIST,
    ImageFolder,
    MNIST,
    MedMNIST,
    Newsgroups,
    SVHN,
    TinyImageNet,
)


def all_datasets() -> dict[str, DatasetReader]:
    """Every data set's reader with its default options, by name.

    Example:
        >>> all_datasets()["cifar100"].title
        'CIFAR-100'
    """
    made = [kind() for kind in _READERS]
    return {reader.name: reader for reader in sorted(made, key=lambda reader: reader.name)}


def find_dataset(name: str) -> DatasetReader:
    """The reader of that name, with its default options.

    Raises:
        UnknownNameError: If there is none; the message names the closest.
    """
    known = all_datasets()
    check_known(name, known, "a data set")
    return known[name]
