"""A journal returns what was written for the same fit, and nothing that is incomplete or of another fit."""

import pytest
import torch

from calibrant.clamping.fitting import Journal
from calibrant.errors import FileError

IDENTITY = {"settings": {"strength": 1.0, "space": None}, "digest": "abc"}


def entry(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return {
        "delta": torch.randn(2, 3, generator=generator, dtype=torch.float64),
        "epochs": torch.tensor(7),
        "half": torch.randn(4, generator=generator).half(),
    }


def assert_same(result, known):
    assert set(result) == set(known)
    for name, tensor in known.items():
        assert torch.equal(result[name], tensor)
        assert result[name].dtype == tensor.dtype


def test_what_was_noted_is_recalled_by_another_journal_of_the_same_fit(tmp_path):
    Journal(tmp_path / "new" / "folder", IDENTITY).write("fit-0", entry(), final=True)
    again = Journal(tmp_path / "new" / "folder", dict(reversed(IDENTITY.items())))
    assert_same(again.read("fit-0"), entry())
    assert again.read("fit-1") is None


def test_a_later_note_takes_the_place_of_the_one_before(tmp_path):
    journal = Journal(tmp_path, IDENTITY)
    journal.write("fit", entry(0), final=True)
    journal.write("fit", entry(1), final=True)
    assert_same(journal.read("fit"), entry(1))
    assert [path.name for path in tmp_path.iterdir()] == ["fit.journal"]


def test_notes_that_are_not_final_are_not_written_all_the_time(tmp_path):
    journal = Journal(tmp_path, IDENTITY, every=3600)
    journal.write("fit", entry())
    assert journal.read("fit") is None
    eager = Journal(tmp_path, IDENTITY, every=0)
    eager.write("fit", entry(0))
    eager.write("fit", entry(1))
    assert_same(eager.read("fit"), entry(1))


def test_a_tensor_with_a_gradient_or_a_stride_is_noted_unchanged(tmp_path):
    journal = Journal(tmp_path, IDENTITY)
    wide = torch.arange(12.0).reshape(3, 4)
    journal.write("fit", {"turned": wide.T, "leaf": wide.clone().requires_grad_()}, final=True)
    assert_same(journal.read("fit"), {"turned": wide.T, "leaf": wide})


def test_without_a_folder_nothing_is_remembered():
    journal = Journal(None, IDENTITY)
    journal.write("fit", entry(), final=True)
    assert journal.read("fit") is None
    journal.clear()


def test_a_closed_journal_leaves_the_folder_to_other_files(tmp_path):
    (tmp_path / "mine.txt").write_text("kept")
    journal = Journal(tmp_path, IDENTITY)
    journal.write("a", entry(), final=True)
    journal.write("b", entry(), final=True)
    journal.clear()
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    Journal(tmp_path, {"another": "fit"})


@pytest.mark.parametrize("other", [{**IDENTITY, "digest": "abd"}, {**IDENTITY, "settings": {"strength": 2.0}}, {}])
def test_the_beginnings_of_another_fit_are_refused(tmp_path, other):
    Journal(tmp_path, other).write("fit", entry(), final=True)
    with pytest.raises(FileError, match=r"must be new, or hold the journal of this same fit.*Name another folder"):
        Journal(tmp_path, IDENTITY)
    assert (tmp_path / "fit.journal").exists()


@pytest.mark.parametrize("kept", [0, 5, 100, -1])
def test_a_truncated_entry_is_refused_by_name(tmp_path, kept):
    Journal(tmp_path, IDENTITY).write("fit", entry(), final=True)
    path = tmp_path / "fit.journal"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(FileError, match=r"fit\.journal (cannot be read|must be an entry of a journal).*Delete it"):
        Journal(tmp_path, IDENTITY)


def test_a_foreign_file_of_the_same_ending_is_refused(tmp_path):
    (tmp_path / "x.journal").write_text("Dear diary")
    with pytest.raises(FileError, match=r"x\.journal must be an entry of a journal.*Delete it"):
        Journal(tmp_path, IDENTITY)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="could not be created"):
        Journal(tmp_path / "file", IDENTITY)


def test_a_note_that_fails_leaves_the_one_before(tmp_path, monkeypatch):
    journal = Journal(tmp_path, IDENTITY)
    journal.write("fit", entry(0), final=True)

    def full(*_arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("calibrant.files.map_file.save_tensors", full)
    with pytest.raises(FileError):
        journal.write("fit", entry(1), final=True)
    assert_same(journal.read("fit"), entry(0))
    assert [path.name for path in tmp_path.iterdir()] == ["fit.journal"]


def test_numbers_that_were_altered_are_not_resumed_from(tmp_path):
    Journal(tmp_path, IDENTITY).write("fit", entry(), final=True)
    path = tmp_path / "fit.journal"
    whole = bytearray(path.read_bytes())
    whole[-1] ^= 1
    path.write_bytes(whole)
    with pytest.raises(FileError, match=r"must hold what was written into it.*Delete it"):
        Journal(tmp_path, IDENTITY)
