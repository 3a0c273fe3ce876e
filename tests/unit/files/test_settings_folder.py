"""A folder of long work says which work it is, and is never taken for another's."""

import pytest

from calibrant.atomic import SettingsFolder
from calibrant.errors import FileError


def folder(path, schema="calibrant.run/1"):
    return SettingsFolder(path, schema, work="run", command="calibrant train")


def test_a_new_or_empty_folder_may_be_begun_and_then_says_what_it_is(tmp_path):
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "new" / "one", tmp_path / "empty"):
        begun = folder(path)
        begun.check()
        assert not begun.is_begun
        begun.begin({"settings": {"seed": 1}})
        assert folder(path).is_begun
        assert folder(path).document() == {"format": "calibrant.run/1", "settings": {"seed": 1}}
        folder(path).check()


def test_what_a_killed_write_left_does_not_count(tmp_path):
    (tmp_path / ".calibrant-0123.tmp").write_text("half")
    folder(tmp_path).check()
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(FileError, match="or that of a run by calibrant train; it holds something else"):
        folder(tmp_path).check()
    with pytest.raises(FileError, match="it holds something else"):
        folder(tmp_path / "mine.txt").check()


def test_settings_of_another_kind_or_that_cannot_be_read_are_refused(tmp_path):
    folder(tmp_path, "calibrant.clamp/1").begin({})
    with pytest.raises(FileError, match="must be the settings of a run by calibrant train; it is not"):
        folder(tmp_path).check()
    (tmp_path / "settings.json").write_text("{")
    with pytest.raises(FileError, match="must be the settings of a run; it cannot be read"):
        folder(tmp_path).document()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="could not be made: Not a directory"):
        folder(tmp_path / "file" / "run").begin({})
