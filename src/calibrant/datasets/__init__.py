"""The datasets of the papers and of the demonstration, read from their canonical files."""

from calibrant.datasets.cifar import CIFAR10, CIFAR100, read_human_labels
from calibrant.datasets.corruptions import corrupt
from calibrant.datasets.dataset import (
    Augmentation,
    Dataset,
    DatasetReader,
    PixelScale,
    RemoteFile,
    Samples,
    Split,
    all_splits,
    split_dataset,
)
from calibrant.datasets.digits import DigitsReader, load_digits, load_resnet110
from calibrant.datasets.image_arrays import ImageLayout, read_shifted
from calibrant.datasets.image_folder import ImageFolder, ImageNet, LargeImageFolder, PictureDataset, TinyImageNet
from calibrant.datasets.medmnist import BloodMNIST, MedMNIST
from calibrant.datasets.mnist import MNIST, SVHN, FashionMNIST
from calibrant.datasets.newsgroups import Newsgroups
from calibrant.datasets.publisher_files import download

__all__ = [
    "CIFAR10", "CIFAR100", "MNIST", "SVHN", "Augmentation", "BloodMNIST", "Dataset", "DatasetReader", "DigitsReader",
    "FashionMNIST", "ImageFolder", "ImageLayout", "ImageNet", "LargeImageFolder", "MedMNIST", "Newsgroups",
    "PictureDataset", "PixelScale", "RemoteFile", "Samples", "Split", "TinyImageNet", "all_splits", "corrupt",
    "download", "load_digits", "load_resnet110", "read_human_labels", "read_shifted", "split_dataset",
]  # fmt: skip
