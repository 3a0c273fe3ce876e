"""An archive is unpacked into its folder, whole, or not at all."""

import stat
import zipfile

import pytest

from calibrant.datasets.publisher_files import unpack
from calibrant.errors import FileError

FILES = {"data/a.txt": b"first", "data/deep/b.txt": b"second", "top.txt": b"third"}


def make(path, files):
    with zipfile.ZipFile(path, "w") as bundle:
        bundle.writestr("data/empty/", b"")
        for name, content in files.items():
            bundle.writestr(name, content)


def test_everything_arrives_and_nothing_else(tmp_path):
    path = tmp_path / "x.zip"
    make(path, FILES)
    folder = tmp_path / "into"
    folder.mkdir()
    assert unpack(path, folder) == [folder / "data", folder / "top.txt"]
    found = {str(held.relative_to(folder)): held.read_bytes() for held in folder.rglob("*") if held.is_file()}
    assert found == FILES


@pytest.mark.parametrize("name", ["../evil.txt", "data/../../evil.txt", "/evil.txt", "..\\evil.txt", "C:evil.txt"])
def test_a_name_that_leads_out_of_the_folder_is_refused(tmp_path, name):
    path = tmp_path / "x.zip"
    make(path, {**FILES, name: b"evil"})
    folder = tmp_path / "into"
    folder.mkdir()
    with pytest.raises(FileError, match=r"leads out of the folder\. Nothing was unpacked"):
        unpack(path, folder)
    assert list(folder.iterdir()) == []
    assert not list(tmp_path.rglob("*evil*"))


def test_a_link_in_a_zip_archive_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as bundle:
        link = zipfile.ZipInfo("data")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        bundle.writestr(link, "..")
    (tmp_path / "into").mkdir()
    with pytest.raises(FileError, match="'data' is a link"):
        unpack(tmp_path / "x.zip", tmp_path / "into")


def test_a_damaged_archive_leaves_nothing(tmp_path):
    path = tmp_path / "x.zip"
    make(path, {f"data/{number}": bytes([number]) * 3000 for number in range(30)})
    content = bytearray(path.read_bytes())
    content[len(content) // 2 :] = content[len(content) // 2 + 40 :]
    path.write_bytes(content)
    folder = tmp_path / "into"
    folder.mkdir()
    with pytest.raises(FileError, match="must be a whole archive"):
        unpack(path, folder)
    assert list(folder.iterdir()) == []


def test_what_is_there_is_not_overwritten(tmp_path):
    path = tmp_path / "x.zip"
    make(path, FILES)
    (tmp_path / "top.txt").write_bytes(b"mine")
    with pytest.raises(FileError, match=r"must not hold top\.txt"):
        unpack(path, tmp_path)
    assert (tmp_path / "top.txt").read_bytes() == b"mine"
    assert not (tmp_path / "data").exists()
