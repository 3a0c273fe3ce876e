"""Every data set by its short name."""

from calibrant.datasets.cifar import CIFAR10, CIFAR100
from calibrant.datasets.dataset import DatasetReader
from calibrant.datasets.digits import DigitsReader
from calibrant.datasets.image_folder import ImageFolder, TinyImageNet
from calibrant.datasets.medmnist import BloodMNIST, MedMNIST
from calibrant.datasets.mnist import MNIST, SVHN, FashionMNIST
from calibrant.datasets.newsgroups import Newsgroups
from calibrant.named_text import NamedKind, read_named

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


def find_dataset(text: str) -> DatasetReader:
    """The reader of the data set that a text describes.

    Args:
        text: A name, or a name with options: ``medmnist(flag=pathmnist)``.

    Raises:
        UnknownNameError: If there is no such data set or option; the message names the closest.
        InputError: If the text does not read like that, or a value does not suit its option.

    Example:
        >>> find_dataset("newsgroups(n_words=5000)")
        Newsgroups(n_words=5000, max_length=500, headers='subject')
    """
    return read_named(text, all_datasets(), NamedKind("a data set", "cifar100 or medmnist(flag=pathmnist)"), str)
