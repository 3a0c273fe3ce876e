"""Files are fetched, checked, and never half there. The server is this machine."""

import functools
import hashlib
import http.server
import sys
import threading
import zipfile
from dataclasses import dataclass
from typing import ClassVar

import pytest

from calibrant.datasets.cifar import CIFAR10
from calibrant.datasets.dataset import DatasetReader, RemoteFile
from calibrant.datasets.digits import DigitsReader
from calibrant.datasets.image_folder import ImageFolder
from calibrant.datasets.medmnist import MedMNIST
from calibrant.datasets.publisher_files import download
from calibrant.errors import FileError, InputError
from calibrant.paper import Paper


@dataclass(frozen=True)
class Remote(DatasetReader):
    """A data set on this machine."""

    name: ClassVar[str] = "remote"
    title: ClassVar[str] = "Remote"
    n_classes: ClassVar[int] = 2
    paper: ClassVar[Paper] = CIFAR10.paper
    homepage: ClassVar[str] = "https://example.org"

    files: tuple[RemoteFile, ...] = ()

    @property
    def remote(self):
        return self.files

    def read(self, folder, *, checked=True):
        raise NotImplementedError


class Quiet(http.server.SimpleHTTPRequestHandler):
    asked: ClassVar[list[str]] = []

    def log_message(self, *_):
        self.asked.append(self.path)


@pytest.fixture
def server(tmp_path):
    """A folder, and the address under which its files can be fetched."""
    pytest.importorskip("pooch")
    folder = tmp_path / "served"
    folder.mkdir()
    Quiet.asked.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder)) as served:
        thread = threading.Thread(target=served.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield folder, f"http://127.0.0.1:{served.server_address[1]}"
        served.shutdown()
        thread.join()


def remote(url, content, **options):
    return RemoteFile(url, f"sha256:{hashlib.sha256(content).hexdigest()}", **options)


def test_a_file_is_fetched_once(server, tmp_path, capfd):
    folder, address = server
    (folder / "a.bin").write_bytes(b"content")
    reader = Remote((remote(f"{address}/a.bin?download=1", b"content"),))
    for _ in range(2):
        assert download(reader, tmp_path / "into" / "deep") == [tmp_path / "into" / "deep" / "a.bin"]
    assert (tmp_path / "into" / "deep" / "a.bin").read_bytes() == b"content"
    assert len(Quiet.asked) == 1
    assert capfd.readouterr() == ("", "")


def test_what_came_must_be_what_was_published(server, tmp_path):
    folder, address = server
    (folder / "a.bin").write_bytes(b"something else")
    with pytest.raises(FileError, match=r"a\.bin could not be fetched.*hash"):
        download(Remote((remote(f"{address}/a.bin", b"content"),)), tmp_path / "into")
    assert list((tmp_path / "into").iterdir()) == []


def test_a_file_that_is_not_there_is_refused(server, tmp_path):
    _, address = server
    with pytest.raises(FileError, match=r"b\.bin could not be fetched: 404.*https://example\.org by hand"):
        download(Remote((remote(f"{address}/b.bin", b""),)), tmp_path / "into")
    assert list((tmp_path / "into").iterdir()) == []


def test_a_persons_own_file_is_not_overwritten(server, tmp_path):
    folder, address = server
    (folder / "a.bin").write_bytes(b"content")
    (tmp_path / "a.bin").write_bytes(b"mine")
    with pytest.raises(FileError, match=r"a\.bin must be the published file.*Move it away"):
        download(Remote((remote(f"{address}/a.bin", b"content"),)), tmp_path)
    assert (tmp_path / "a.bin").read_bytes() == b"mine"


def test_an_archive_that_must_be_unpacked_is(server, tmp_path):
    folder, address = server
    with zipfile.ZipFile(folder / "set.zip", "w") as bundle:
        bundle.writestr("set/a.txt", "first")
    file = remote(f"{address}/set.zip", (folder / "set.zip").read_bytes(), unpack=True)
    for _ in range(2):
        download(Remote((file,)), tmp_path / "into")
    assert (tmp_path / "into" / "set" / "a.txt").read_text() == "first"


def test_a_data_set_without_an_address_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"image_folder cannot be fetched: it has no stable address"):
        download(ImageFolder(), tmp_path)


def test_a_collection_is_fetched_by_parts_only(tmp_path):
    with pytest.raises(InputError, match=r"a part must be named, as in medmnist\(flag=bloodmnist\)"):
        download(MedMNIST(), tmp_path)


def test_for_what_comes_with_the_package_there_is_nothing_to_fetch(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    assert download(DigitsReader(), tmp_path / "into") == []
    assert not (tmp_path / "into").exists()


def test_a_missing_package_is_refused_with_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(InputError, match=r"pip install calibrant\[download\]"):
        download(CIFAR10(), tmp_path / "into")
    assert not (tmp_path / "into").exists()
