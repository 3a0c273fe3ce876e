"""The folder of a run: what it holds, and whom it lets go on."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from calibrant.datasets import Samples
from calibrant.errors import FileError
from calibrant.files import load
from calibrant.training.folder import RunFolder


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_run_leaves_the_files_that_are_promised(train_in, begun, digits):
    assert files(begun) == ["checkpoint.safetensors", "epochs.jsonl", "settings.json"]
    train_in(begun)
    assert files(begun) == ["calibration.npz", "epochs.jsonl", "settings.json", "test.npz", "weights.safetensors"]
    document = json.loads((begun / "settings.json").read_text())
    assert document["format"] == "calibrant.run/1"
    assert set(document["ran_on"]) == {"calibrant", "torch", "python", "device"}
    settings = document["settings"]
    assert (settings["dataset"], settings["model"], settings["loss"]["loss"]) == ("few digits", "digits_cnn", "ce")
    # What the recipe leaves open is decided, and recorded.
    assert (settings["recipe"]["precision"], settings["recipe"]["augmentation"]) == ("float32", "none")
    records = [json.loads(line) for line in (begun / "epochs.jsonl").read_text().splitlines()]
    assert [record["epoch"] for record in records] == [1, 2, 3, 4]
    test = load(begun / "test.npz")
    assert (len(test), test.class_names) == (100, digits.class_names)
    assert records[-1]["held_out"]["test"]["accuracy"] == float((test.predicted == test.labels).double().mean())


OTHERS = [
    ("ce", {"learning_rate": 0.3}, "recipe.learning_rate 0.3, not 0.05"),
    ("ce", {"seed": 1, "epochs": 5}, "recipe.epochs 5, not 4; recipe.seed 1, not 0"),
    ("focal(gamma=2)", {}, "loss.loss 'focal', not 'ce'; loss.gamma 2.0, not None"),
]


def test_other_settings_are_refused_and_the_difference_is_named(train_in, begun):
    for finish in (False, True):
        if finish:
            train_in(begun)
        before = {name: (begun / name).read_bytes() for name in files(begun)}
        for loss, recipe, said in OTHERS:
            with pytest.raises(FileError) as refused:
                train_in(begun, loss, **recipe)
            assert f"here they are {said}" in str(refused.value)
            assert "Name another folder, or delete this one." in str(refused.value)
        assert {name: (begun / name).read_bytes() for name in files(begun)} == before


def test_other_samples_are_other_settings(train_in, begun, digits):
    inputs = digits.training.inputs.clone()
    inputs[0, 0, 0, 0] += 1
    changed = replace(digits, training=Samples(inputs, digits.training.labels))
    with pytest.raises(FileError, match=r"here they are data_digest '\w{16}', not '\w{16}'\. Name another"):
        train_in(begun, dataset=changed)


def test_a_finished_run_is_left_alone(train_in, begun):
    train_in(begun)
    before = {name: (begun / name).stat().st_mtime_ns for name in files(begun)}
    train_in(begun, after_epoch=lambda *_: pytest.fail("it was finished"))
    assert {name: (begun / name).stat().st_mtime_ns for name in files(begun)} == before


def test_a_folder_with_something_else_is_left_alone(train_in, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("all of it")
    with pytest.raises(FileError, match="must be a new or empty folder, or that of a run by"):
        train_in(tmp_path / "mine")
    assert files(tmp_path / "mine") == ["thesis.tex"]
    with pytest.raises(FileError, match="must be a new or empty folder"):
        train_in(tmp_path / "mine" / "thesis.tex")
    with pytest.raises(FileError, match="could not be made: Not a directory"):
        train_in(tmp_path / "mine" / "thesis.tex" / "run")


def test_an_empty_folder_or_one_of_a_run_that_was_killed_at_once_is_taken(train_in, tmp_path):
    (tmp_path / ".calibrant-0123456789abcdef.tmp").write_text("{")
    train_in(tmp_path, epochs=1)
    assert RunFolder(tmp_path).is_finished


def test_a_folder_that_nobody_may_write_into_is_reported(train_in, tmp_path, monkeypatch):
    def denied(*_arguments, **_options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(type(tmp_path), "mkdir", denied)
    with pytest.raises(FileError, match="run could not be made: Permission denied"):
        train_in(tmp_path / "run")


def test_no_file_of_a_run_is_a_pickle(train_in, tmp_path):
    folder = train_in(tmp_path / "run", epochs=1)
    assert set(load_file(folder / "weights.safetensors")) == {
        f"{part}.{what}" for part in ("body.0", "body.3", "body.7", "head") for what in ("weight", "bias")
    }
    assert all(torch.isfinite(values).all() for values in load_file(folder / "weights.safetensors").values())
