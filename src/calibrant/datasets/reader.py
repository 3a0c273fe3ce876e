"""What a reader of a data set is: where its files are to be had, and how they become tensors.

A reader is a frozen record of options. It reads files that lie in a folder and never goes to the network by itself;
:func:`calibrant.datasets.download` does that when it is asked to.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final
from urllib.parse import urlsplit

from calibrant.datasets.dataset import Dataset
from calibrant.paper import Paper

__all__ = ["DatasetReader", "RemoteFile"]


@final
@dataclass(frozen=True)
class RemoteFile:
    """A file that the publisher offers, and how to know that it arrived whole.

    Args:
        url: Where it is.
        digest: What it must hash to, ``sha256:...`` or ``md5:...``.
        size: Its bytes, where they are known.
        unpack: Whether it must be unpacked to be read. Most archives are read as they are.

    Example:
        >>> RemoteFile("https://example.org/files/blood.npz?download=1", "md5:7053d0359d879ad8a5505303e11de1dc").name
        'blood.npz'
    """

    url: str
    digest: str
    size: int | None = None
    unpack: bool = False

    @property
    def name(self) -> str:
        """What the file is called on disk."""
        return urlsplit(self.url).path.rsplit("/", 1)[-1]


class DatasetReader(ABC):
    """Reads one data set from the files that its publisher gives out."""

    name: ClassVar[str]  # short: the catalogue's key and the word on the command line
    title: ClassVar[str]  # as people say it
    n_classes: ClassVar[int | tuple[int, int] | None]  # (fewest, most) of a collection; None where the files decide
    is_embedded: ClassVar[bool] = False  # whether the data come with the package: nothing to fetch, no folder to name
    why_no_remote: ClassVar[str] = "it has no stable address"  # said where there are no files to fetch
    paper: ClassVar[Paper]
    homepage: ClassVar[str]  # where a person gets the files

    @property
    @abstractmethod
    def remote(self) -> tuple[RemoteFile, ...]:
        """The files to fetch; none where no address is stable. A plain class variable will do."""

    @abstractmethod
    def read(self, folder: Path, *, checked: bool = True) -> Dataset:
        """Read the data set.

        Args:
            folder: Where the files lie, or the one file or archive itself.
            checked: Whether the files must be the published ones, to the byte. False reads a person's own files in the
                same layout; that the layout is right is checked all the same.

        Raises:
            FileError: If a file is missing, cut short, of another layout, or not the published one.
        """
