"""The datasets of the papers and of the demonstration, read from their canonical files."""

from calibrant.datasets.bundled import BundledPredictions, load_resnet110
from calibrant.datasets.cifar import CIFAR10, CIFAR100
from calibrant.datasets.corruptions import Corruption, all_corruptions, corrupt
from calibrant.datasets.dataset import Augmentation, Dataset, Examples, PixelScale
from calibrant.datasets.digits import Digits, DigitsReader, load_digits
from calibrant.datasets.download import download
from calibrant.datasets.idx import MNIST, FashionMNIST
from calibrant.datasets.image_arrays import ImageLayout
from calibrant.datasets.image_folder import ImageFolder
from calibrant.datasets.medmnist import BloodMNIST, MedMNIST
from calibrant.datasets.newsgroups import Newsgroups
from calibrant.datasets.reader import DatasetReader, RemoteFile
from calibrant.datasets.shelf import all_datasets, find_dataset
from calibrant.datasets.shifted import read_shifted
from calibrant.datasets.splits import Split, all_splits, split_dataset
from calibrant.datasets.svhn import SVHN
from calibrant.datasets.tiny_imagenet import TinyImageNet

__all__ = [
    "CIFAR10",
    "CIFAR100",
    "MNIST",
    "SVHN",
    "Augmentation",
    "BloodMNIST",
    "BundledPredictions",
    "Corruption",
    "Dataset",
    "DatasetReader",
    "Digits",
    "DigitsReader",
    "Examples",
    "FashionMNIST",
    "ImageFolder",
    "ImageLayout",
    "MedMNIST",
    "Newsgroups",
    "PixelScale",
    "RemoteFile",
    "Split",
    "TinyImageNet",
    "all_corruptions",
    "all_datasets",
    "all_splits",
    "corrupt",
    "download",
    "find_dataset",
    "load_digits",
    "load_resnet110",
    "read_shifted",
    "split_dataset",
]
