"""What damage, a full disk or another run's file does to the folder of a run: it is reported, and the run resumes."""

import json
import os
import resource
import sys
from functools import partial

import pytest
from safetensors.torch import load_file, save_file

from calibrant.errors import FileError
from calibrant.training import RuntimeOptions
from calibrant.training.folder import RunFolder

NO_SETTINGS = {
    "{": "it cannot be read",
    "[]": "by calibrant train; it is not",
    '{"format": "calibrant.run/9"}': "by calibrant train; it is not",
    '{"format": "calibrant.run/1"}': "must be the settings of a run",
    '{"format": "calibrant.run/1", "settings": {"model": "x"}}': "must be the settings of a run",
}


def test_damaged_settings_are_refused(train_in, begun):
    for text, said in NO_SETTINGS.items():
        (begun / "settings.json").write_text(text)
        with pytest.raises(FileError, match=said):
            train_in(begun)


def _cut_short(path):
    path.write_bytes(path.read_bytes()[:-100])


def _emptied(path):
    path.write_bytes(b"")


def _without_words(path):
    save_file(load_file(path), path)


def _of_another_network(path):
    with_head = load_file(path)
    with_head["model.head.weight"] = with_head["model.head.weight"][:5].contiguous()
    save_file(with_head, path, metadata={"calibrant": json.dumps({"records": []})})


def test_a_checkpoint_that_is_damaged_or_anothers_is_refused_and_can_be_deleted(train_in, begun):
    checkpoint = begun / "checkpoint.safetensors"
    whole = checkpoint.read_bytes()
    for damage in (_cut_short, _emptied, _without_words, _of_another_network):
        checkpoint.write_bytes(whole)
        damage(checkpoint)
        with pytest.raises(FileError, match=r"must be a checkpoint of this run; .* Delete it to start anew"):
            train_in(begun)
    checkpoint.unlink()
    train_in(begun)
    assert RunFolder(begun).is_finished


def test_a_trace_cannot_begin_in_the_middle(train_in, begun):
    with pytest.raises(FileError, match="the state must hold a trace"):
        train_in(begun, runtime=RuntimeOptions(traced=True))
    train_in(begun, runtime=RuntimeOptions(traced=False))


@pytest.fixture
def full_disk(monkeypatch):
    """A disk on which no file gets larger than a few bytes (as the system sees it), or nothing reaches it at all."""

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(how):
        monkeypatch.setattr(sys, "dont_write_bytecode", True)  # Python 3.11 would leave half a file of a module behind
        if how == "no large file":
            resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))
        else:
            monkeypatch.setattr(os, "fsync", _full)

    def _full(_handle):
        raise OSError(28, "No space left on device")

    def empty():
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        monkeypatch.undo()

    yield fill, empty
    empty()


# In the middle, and where the run would finish.
@pytest.mark.parametrize(("how", "epochs"), [("no large file", 4), ("nothing", 4), ("no large file", 3)])
def test_a_full_disk_leaves_the_last_checkpoint_to_resume_from(
    train_in, tmp_path, stop_after, stopped, full_disk, how, epochs
):
    fill, empty = full_disk
    runtime = RuntimeOptions(checkpoint_seconds=0, evaluate_every=epochs)
    train = partial(train_in, epochs=epochs, runtime=runtime)
    straight, run = tmp_path / "straight", tmp_path / "run"
    train(straight)
    with pytest.raises(stopped):
        train(run, after_epoch=stop_after(2))
    before = (run / "checkpoint.safetensors").read_bytes()
    fill(how)
    try:
        with pytest.raises(FileError, match=r"could not be written: .*space left"):
            train(run)
    finally:
        empty()
    assert (run / "checkpoint.safetensors").read_bytes() == before
    assert not (run / "weights.safetensors").exists()
    assert not list(run.glob(".*"))
    train(run)
    assert (run / "weights.safetensors").read_bytes() == (straight / "weights.safetensors").read_bytes()
