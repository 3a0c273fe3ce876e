"""A write is whole or did not happen."""

import errno
import multiprocessing
import os
import signal
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from forked import start

from calibrant.atomic import atomic_binary, atomic_path, atomic_text, is_temporary
from calibrant.errors import FileError
from calibrant.files import load, save
from calibrant.files.save import WRITERS
from calibrant.predictions import Predictions

OLD = Predictions.from_logits([[1.0, 2.0]], [0])
NEW = Predictions.from_logits(torch.randn(500, 2), torch.zeros(500, dtype=torch.int64))


def test_text_and_bytes_arrive(tmp_path):
    with atomic_text(tmp_path / "a.txt") as file:
        file.write("γ\n")
    with atomic_binary(tmp_path / "b.bin") as file:
        file.write(b"\x00\x01")
    assert (tmp_path / "a.txt").read_bytes() == "γ\n".encode()
    assert (tmp_path / "b.bin").read_bytes() == b"\x00\x01"
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("stop", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_a_stopped_write_leaves_the_old_file_and_nothing_else(tmp_path, stop):
    (tmp_path / "a.txt").write_text("old")

    def write_and_stop():
        with atomic_text(tmp_path / "a.txt") as file:
            file.write("half of the n")
            file.flush()
            raise stop

    with pytest.raises(stop):
        write_and_stop()
    assert (tmp_path / "a.txt").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_save_that_fails_at_the_last_moment_leaves_the_old_predictions(tmp_path, suffix, monkeypatch):
    path = tmp_path / f"p{suffix}"
    save(OLD, path)

    def full(_handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileError, match="could not be written: No space left on device"):
        save(NEW, path)
    assert len(load(path)) == 1
    assert list(tmp_path.iterdir()) == [path]


def test_the_bytes_are_on_disk_before_the_name_is(tmp_path, monkeypatch):
    order = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (order.append("fsync"), fsync(handle)))
    monkeypatch.setattr(os, "replace", lambda old, new: (order.append("replace"), replace(old, new)))
    with atomic_binary(tmp_path / "a") as file:
        file.write(b"x")
    assert order == ["fsync", "replace", "fsync"]


def test_a_new_file_has_usual_permissions_and_an_old_one_keeps_its_own(tmp_path):
    (tmp_path / "plain").touch()
    for _ in range(2):
        with atomic_text(tmp_path / "a") as file:
            file.write("x")
        usual = (tmp_path / "plain").stat().st_mode
        assert (tmp_path / "a").stat().st_mode == usual
        (tmp_path / "plain").chmod(0o640)
        (tmp_path / "a").chmod(0o640)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "real.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to("real.txt")
    with atomic_text(tmp_path / "link.txt") as file:
        file.write("new")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text() == "new"


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileError, match=r"could not be written: No such file.*Make the folder .*nowhere first"):
        save(OLD, tmp_path / "nowhere" / "p.npz")


def test_a_folder_or_a_device_is_not_replaced(tmp_path):
    (tmp_path / "p.npz").mkdir()
    for path in (tmp_path / "p.npz", "/dev/null"):
        with pytest.raises(FileError, match="must be an ordinary file"), atomic_path(path):
            pass


def test_two_writers_do_not_meet(tmp_path):
    with atomic_text(tmp_path / "a") as first, atomic_text(tmp_path / "a") as second:
        first.write("first")
        second.write("second")
    assert (tmp_path / "a").read_text() == "first"
    assert len(list(tmp_path.iterdir())) == 1


WRITER = """
import os, signal
from calibrant.atomic import atomic_text
with atomic_text(path) as file:
    file.write("half")
    file.flush()
    if pipe is None:
        os.kill(os.getpid(), signal.SIGKILL)
    pipe.send("writing")
    pipe.recv()
"""


def test_what_a_killed_writer_left_is_removed_by_the_next_one_and_a_living_one_is_left_alone(tmp_path):
    killed = start(WRITER, path=tmp_path / "a", pipe=None)
    killed.join(300)
    assert killed.exitcode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert is_temporary(left)
    pipe, other = multiprocessing.Pipe()
    living = start(WRITER, path=tmp_path / "b", pipe=other)
    with other:
        assert pipe.poll(300)
    with pipe:
        assert pipe.recv() == "writing"
        assert not left.exists()
        (held,) = tmp_path.iterdir()
        with atomic_text(tmp_path / "a") as file:
            file.write("whole")
        assert held.exists()
        pipe.send("end")
    living.join(300)
    assert living.exitcode == 0
    assert (tmp_path / "a").read_text() == "whole"
    assert (tmp_path / "b").read_text() == "half"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_a_link_of_such_a_name_leads_nowhere(tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "data").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / ".calibrant-00.tmp").symlink_to(tmp_path / "precious")
    with atomic_text(tmp_path / "folder" / "a") as file:
        file.write("x")
    assert (tmp_path / "precious" / "data").exists()


def test_many_writers_in_one_folder_take_nothing_from_each_other(tmp_path):
    def write(name):
        for turn in range(50):
            with atomic_text(tmp_path / name) as file:
                file.write(f"{name} {turn}")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, "abcdefgh"))
    assert [path.read_text() for path in sorted(tmp_path.iterdir())] == [f"{name} 49" for name in "abcdefgh"]


def test_what_is_flushed_may_be_written_as_windows_asks(tmp_path, monkeypatch):
    fcntl, flush = pytest.importorskip("fcntl"), os.fsync

    def flush_as_windows(handle):
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise PermissionError  # no folder can be opened there
        if fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "Bad file descriptor")
        flush(handle)

    monkeypatch.setattr(os, "fsync", flush_as_windows)
    save(OLD, tmp_path / "a.npz")
    save(NEW, tmp_path / "a.npz")
    assert len(load(tmp_path / "a.npz")) == 500
