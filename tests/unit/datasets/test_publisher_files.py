"""Files are found where people put them, and are what they should be."""

import gzip
import hashlib
import io
import tarfile

import numpy as np
import pytest

from calibrant.datasets.cifar import CIFAR10
from calibrant.datasets.image_folder import ImageFolder
from calibrant.datasets.publisher_files import FileLayout, check_file, content_digest, find_files
from calibrant.errors import FileError

READER = CIFAR10()
LAYOUT = FileLayout(("a.bin", "b.bin"), ("sub", "deeper/sub"), "bundle")


def contents(place):
    return {member.name: (member.size, member.read()) for member in place.members()}


@pytest.mark.parametrize("sub", ["", "sub", "deeper/sub"])
def test_files_are_found_plain_or_compressed_here_or_below(tmp_path, sub):
    folder = tmp_path / sub
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "a.bin").write_bytes(b"first")
    (folder / "b.bin.gz").write_bytes(gzip.compress(b"second"))
    place = find_files(READER, tmp_path, [LAYOUT])
    assert contents(place) == {"a.bin": (5, b"first"), "b.bin": (6, b"second")}


def test_a_file_stands_for_its_folder(tmp_path):
    for name in LAYOUT.files:
        (tmp_path / name).write_bytes(b"x")
    assert set(contents(find_files(READER, tmp_path / "a.bin", [LAYOUT]))) == {"a.bin", "b.bin"}
    (tmp_path / "c").write_bytes(b"x")
    with pytest.raises(FileError, match="c is another file"):
        find_files(READER, tmp_path / "c", [LAYOUT])


def test_half_of_the_files_here_and_half_below_are_not_put_together(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.bin").write_bytes(b"x")
    (tmp_path / "sub" / "b.bin").write_bytes(b"x")
    with pytest.raises(FileError, match=r"missing: b\.bin"):
        find_files(READER, tmp_path, [LAYOUT])


def test_unpacked_files_come_before_the_archive_and_the_archive_before_half_of_them(tmp_path, pack):
    pack(tmp_path / "bundle.tar.gz", {"a.bin": b"packed", "b.bin": b"packed"}, "sub")
    (tmp_path / "a.bin").write_bytes(b"plain")
    assert contents(find_files(READER, tmp_path, [LAYOUT]))["a.bin"][1] == b"packed"
    (tmp_path / "b.bin").write_bytes(b"plain")
    assert contents(find_files(READER, tmp_path, [LAYOUT]))["a.bin"][1] == b"plain"


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE])
def test_a_link_or_a_device_in_an_archive_is_no_file(tmp_path, kind):
    with tarfile.open(tmp_path / "bundle.tar.gz", "w:gz") as tar:
        link = tarfile.TarInfo("a.bin")
        link.type, link.linkname = kind, "/etc/passwd"
        tar.addfile(link)
        other = tarfile.TarInfo("b.bin")
        other.size = 1
        tar.addfile(other, io.BytesIO(b"b"))
    with pytest.raises(FileError, match=r"missing: a\.bin"):
        contents(find_files(READER, tmp_path, [LAYOUT]))


def test_a_file_in_another_folder_of_the_archive_is_passed_over(tmp_path, pack):
    pack(tmp_path / "bundle.tar", {"../a.bin": b"evil", "other/a.bin": b"no", "./sub/a.bin": b"yes", "sub/b.bin": b"b"})
    assert contents(find_files(READER, tmp_path, [LAYOUT]))["a.bin"][1] == b"yes"


def test_a_damaged_gzip_file_is_named(tmp_path):
    whole = gzip.compress(np.random.default_rng(0).bytes(5000))
    for broken in (whole[:-100], whole[:2000] + b"xxxx" + whole[2004:], b"no gzip at all"):
        (tmp_path / "a.gz").write_bytes(broken)
        with pytest.raises(FileError, match=r"a\.gz must be a whole gzip file; reading it failed"):
            contents(find_files(READER, tmp_path, [FileLayout(("a",))]))


def test_filling_beyond_the_end_is_refused(tmp_path):
    (tmp_path / "a").write_bytes(b"12345")
    array = np.empty((2, 2), dtype=np.uint8)
    for member in find_files(READER, tmp_path, [FileLayout(("a",))]).members():
        member.fill(array)
        assert array.tobytes() == b"1234"
        with pytest.raises(FileError, match="a must have 3 more bytes"):
            member.fill(array)


def test_a_reader_without_an_address_does_not_offer_a_download(tmp_path):
    with pytest.raises(FileError, match=r"missing: x\. Get them from https://image-net\.org\.$"):
        find_files(ImageFolder(), tmp_path, [FileLayout(("x",))])


@pytest.mark.parametrize("algorithm", ["md5", "sha256"])
def test_a_file_is_checked_by_size_and_by_digest(tmp_path, algorithm):
    path = tmp_path / "a"
    path.write_bytes(b"calibrant")
    digest = f"{algorithm}:{hashlib.new(algorithm, b'calibrant').hexdigest()}"
    check_file(path, digest=digest, size=9)
    with pytest.raises(FileError, match="a must have 10 bytes; got 9: it was cut short"):
        check_file(path, digest=digest, size=10)
    with pytest.raises(FileError, match="a must have 8 bytes; got 9: it is another file"):
        check_file(path, digest=digest, size=8)
    path.write_bytes(b"calibranT")
    with pytest.raises(FileError, match=rf"{digest}; got {algorithm}:.*checked=False \(--unchecked\)"):
        check_file(path, digest=digest, size=9)


def test_the_digest_of_content_does_not_depend_on_how_it_lies_in_memory():
    array = np.arange(12, dtype=np.uint8).reshape(3, 4)
    assert content_digest(array) == content_digest(np.asfortranarray(array)) == content_digest(array[:1], array[1:])
    assert content_digest(array) != content_digest(array.T)


def test_a_file_that_expands_beyond_reason_is_refused_before_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("calibrant.errors._ALWAYS_ALLOWED", 1 << 20)
    (tmp_path / "a.gz").write_bytes(gzip.compress(bytes(1 << 24)))
    with pytest.raises(FileError, match="must not expand to more than"):
        contents(find_files(READER, tmp_path, [FileLayout(("a",))]))


def test_an_archive_whose_directory_claims_more_than_memory_is_refused(tmp_path):
    entry = tarfile.TarInfo("a.bin")
    entry.size = 1 << 60
    (tmp_path / "bundle.tar").write_bytes(entry.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    with pytest.raises(FileError, match="must not expand to more than"):
        contents(find_files(READER, tmp_path, [LAYOUT]))
