"""``calibrant train`` as a person meets it: what it leaves, what it says, what it refuses."""

import dataclasses
import json
import re
from io import StringIO
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

from calibrant.cli.train import _progress_bars
from calibrant.datasets import DigitsReader
from calibrant.files import load
from calibrant.training import RECIPES, Recipe, load_network, predict

DIGITS = ("train", "--dataset", "digits", "--model", "digits_cnn", "--device", "cpu")
LEFT = ["calibration.npz", "epochs.jsonl", "settings.json", "test.npz", "weights.safetensors"]


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def settings(folder):
    return json.loads((folder / "settings.json").read_text())["settings"]


def rows(out):
    """The table's rows, by the run's name."""
    lines = [line.split() for line in out.splitlines()]
    heading = next(place for place, line in enumerate(lines) if line[:2] == ["run", "accuracy"])
    assert lines[heading] == ["run", "accuracy", "nll", "ece", "auroc", "T", "nll", "at", "T", "ece", "at", "T"]
    return {line[0]: [float(number) for number in line[1:]] for line in lines[heading + 1 :] if len(line) == 8}


def test_a_run_leaves_predictions_that_the_other_commands_take(calibrant, tmp_path):
    folder = tmp_path / "run"
    code, out, err = calibrant(*DIGITS, "--epochs", 4, "--batch-size", 32, "--trace", "-o", folder)
    assert code == 0
    first, *lines = err.splitlines()
    assert first == "Training for 4 epochs on cpu."
    assert [line.split(":")[0] for line in lines] == [f"run epoch {epoch} of 4" for epoch in range(1, 5)]
    assert files(folder) == sorted([*LEFT, "learning.npz"])
    accuracy, nll, ece, auroc, temperature, _, _ = rows(out)["run"]
    assert accuracy > 0.8
    assert f"calibrant compare {folder / 'calibration.npz'} {folder / 'test.npz'}" in out.replace("\n", "")
    learned = np.load(folder / "learning.npz")["learned_epoch"]
    assert (learned.shape, learned.min() >= 1, learned.max() <= 5) == ((1168,), True, True)

    code, _, err = calibrant("evaluate", folder / "test.npz", "--resamples", 100, "--json", tmp_path / "r.json")
    assert code == 0, err
    report = json.loads((tmp_path / "r.json").read_text())
    for name, number in (("accuracy", accuracy), ("nll", nll), ("ece", ece), ("auroc", auroc)):
        assert report["metrics"][name]["value"] == pytest.approx(number, abs=6e-5)
    code, out, err = calibrant(
        "compare", folder / "calibration.npz", folder / "test.npz", "--methods", "temperature", "--resamples", 100
    )
    assert code == 0, err
    assert "129 calibration samples, 500 test samples, 10 classes" in out
    code, out, err = calibrant("fit", "temperature", folder / "calibration.npz", "-o", tmp_path / "map.safetensors")
    assert code == 0, err
    assert temperature > 0

    test = load(folder / "test.npz")
    assert torch.equal(predict(load_network(folder), DigitsReader().read().test.inputs), test.logits)


def test_a_finished_run_trains_nothing_and_says_the_table_again(calibrant, tmp_path, monkeypatch):
    command = (*DIGITS, "--epochs", 1, "-o", tmp_path / "run")
    code, first, err = calibrant(*command)
    assert code == 0, err
    before = {name: (tmp_path / "run" / name).stat().st_mtime_ns for name in LEFT}
    monkeypatch.setattr(torch.autograd, "backward", lambda *_, **__: pytest.fail("it was finished"))
    code, again, _ = calibrant(*command)
    assert (code, again) == (0, first)
    assert {name: (tmp_path / "run" / name).stat().st_mtime_ns for name in LEFT} == before


def test_a_note_about_the_temperature_of_a_run_names_the_run(calibrant, tmp_path):
    command = (*DIGITS, "--loss", "ce", "--loss", "focal", "--epochs", 1, "--out", tmp_path / "runs")
    assert calibrant(*command)[0] == 0
    labels = np.arange(300) % 10  # all are predicted, with certainty
    certain = 40 * np.eye(10, dtype=np.float32)[labels]
    np.savez(tmp_path / "runs" / "digits_cnn-ce-seed0" / "calibration.npz", logits=certain, labels=labels)
    code, _, err = calibrant(*command)
    notes = [line for line in err.splitlines() if line.startswith("note: ")]
    assert code == 0
    assert notes
    assert all(line.startswith("note: digits_cnn-ce-seed0: ") for line in notes)


def test_large_pictures_are_trained_on_by_any_number_of_threads_with_batches_counted(calibrant, tmp_path, monkeypatch):
    chance = np.random.default_rng(0)
    for part, n in {"train": 12, "test": 8}.items():
        for number in range(n):
            path = tmp_path / "data" / part / "ab"[number % 2] / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(chance.integers(0, 256, (14, 12, 3), dtype=np.uint8)).save(path)
    own = ("train", "--dataset", "large_image_folder(size=8)", "--data", tmp_path / "data", "--model", "digits_cnn")
    recipe = ("--epochs", 1, "--batch-size", 4, "--split", "half-test", "--device", "cpu")
    monkeypatch.setattr("calibrant.cli.train._SECONDS_A_LINE", 0.0)
    said = [calibrant(*own, *recipe, "--read-threads", n, "-o", tmp_path / str(n)) for n in (1, 3)]
    for code, _, err in said:
        assert code == 0, err
        assert "those that are held out are read once" in err.replace("\n", " ")
        assert ": batch 2 of 3 in this epoch" in err
    one, three = ((tmp_path / name / "weights.safetensors").read_bytes() for name in "13")
    assert one == three
    assert settings(tmp_path / "1")["recipe"]["augmentation"] == "resized-crop-flip"


def test_several_losses_seeds_and_networks_make_a_folder_each(calibrant, tmp_path):
    quick = (*DIGITS, "--epochs", 1, "--batch-size", 1024, "--evaluate-every", 5, "-o", tmp_path / "all")
    code, out, err = calibrant(*quick, "--loss", "ce", "--loss", "focal(gamma=3)", "--seed", 0, "--seed", 7)
    assert code == 0, err
    names = [f"digits_cnn-{loss}-seed{seed}" for loss in ("ce", "focal-gamma3") for seed in (0, 7)]
    assert files(tmp_path / "all") == sorted(names)
    assert list(rows(out)) == names
    numbers = rows(out)[names[1]]
    assert all(files(tmp_path / "all" / name) == LEFT for name in names)
    weights = {name: (tmp_path / "all" / name / "weights.safetensors").read_bytes() for name in names}
    assert len(set(weights.values())) == 4
    told = settings(tmp_path / "all" / "digits_cnn-focal-gamma3-seed7")
    assert (told["loss"]["loss"], told["loss"]["gamma"], told["recipe"]["seed"]) == ("focal", 3.0, 7)
    # One of these is there already, and stays; a network of one step is as good as guessing, which is noted.
    code, out, err = calibrant(*quick, "--model", "resnet20")
    assert (code, list(rows(out))) == (0, ["digits_cnn-ce-seed0", "resnet20-ce-seed0"])
    assert "Warning" not in err
    assert files(tmp_path / "all") == sorted([*names, "resnet20-ce-seed0"])
    assert (tmp_path / "all" / names[0] / "weights.safetensors").read_bytes() == weights[names[0]]
    code, narrow, _ = calibrant(*quick, "--loss", "ce", "--loss", "focal(gamma=3)", "--seed", 7, COLUMNS="80")
    lines = narrow.splitlines()
    assert lines[2].strip() == names[1]  # a line of its own, and nothing is broken
    assert list(map(float, lines[3].split())) == numbers
    assert f"calibrant diagnose {tmp_path / 'all'}" in lines


def test_gamma_is_short_for_the_option_of_a_loss(calibrant, tmp_path):
    quick = (*DIGITS, "--epochs", 1, "--batch-size", 512)
    assert calibrant(*quick, "--loss", "focal", "--gamma", 2.5, "-o", tmp_path / "short")[0] == 0
    assert calibrant(*quick, "--loss", "focal(gamma=2.5)", "-o", tmp_path / "long")[0] == 0
    assert settings(tmp_path / "short") == settings(tmp_path / "long")
    weights = [(tmp_path / name / "weights.safetensors").read_bytes() for name in ("short", "long")]
    assert weights[0] == weights[1]


def test_options_reach_the_recipe(calibrant, tmp_path):
    code, _, err = calibrant(
        *DIGITS, "--recipe", "overconfidence", "--epochs", 2, "--batch-size", 256, "--learning-rate", 0.02,
        "--weight-decay", 0.001, "--warmup", 1, "--augmentation", "crop", "--mixup", 0.2, "--clip", 2,
        "--precision", "float32", "--split", "half-test", "--split-seed", 3, "-o", tmp_path / "run",
    )  # fmt: skip
    assert code == 0, err
    told = settings(tmp_path / "run")
    assert told["recipe"] == {
        "epochs": 2, "batch_size": 256, "learning_rate": 0.02, "momentum": 0.9, "nesterov": False,
        "weight_decay": 0.001, "schedule": "steps", "milestones": [1, 2], "decay": 0.1, "warmup": 1,
        "augmentation": "crop", "mixup": 0.2, "clip": 2.0, "precision": "float32", "select": "last", "seed": 0,
    }  # fmt: skip
    assert (told["split"], told["split_seed"]) == ("half-test", 3)
    assert (len(load(tmp_path / "run" / "calibration.npz")), len(load(tmp_path / "run" / "test.npz"))) == (250, 250)


def test_every_number_of_a_recipe_has_an_option(calibrant, tmp_path):
    given = {
        "epochs": 3, "batch_size": 256, "learning_rate": 0.02, "momentum": 0.8, "nesterov": True,
        "weight_decay": 0.001, "schedule": "steps", "milestones": [1, 2], "decay": 0.2, "warmup": 1,
        "augmentation": "crop", "mixup": 0.2, "clip": 2.0, "precision": "float32", "select": "best", "seed": 5,
    }  # fmt: skip
    assert set(given) == {field.name for field in dataclasses.fields(Recipe)}
    usual = dataclasses.asdict(RECIPES["default"].changed({"nesterov": False}))
    options = []
    for name, value in given.items():
        assert value != usual[name], "an option that does nothing would pass"
        text = ",".join(map(str, value)) if isinstance(value, list) else value
        options += [f"--{name.replace('_', '-')}", *([] if value is True else [text])]
    code, _, err = calibrant(*DIGITS, *options, "--no-compile", "-o", tmp_path / "run")
    assert code == 0, err
    assert settings(tmp_path / "run")["recipe"] == given


def test_part_of_the_samples_can_train(calibrant, tmp_path):
    code, _, err = calibrant(*DIGITS, "--epochs", 1, "--train-samples", 300, "--trace", "-o", tmp_path / "run")
    assert code == 0, err
    assert settings(tmp_path / "run")["train_samples"] == 300
    assert len(np.load(tmp_path / "run" / "learning.npz")["learned_epoch"]) == 300


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--no-nesterov"], {"nesterov": False}),
        (["--milestones", "1"], {"schedule": "steps", "milestones": [1]}),
        (["--recipe", "dark-side", "--decay", "0.2"], {"schedule": "steps", "milestones": [1, 2], "decay": 0.2}),
        (["--recipe", "dark-side", "--schedule", "cosine"], {"schedule": "cosine", "milestones": []}),
    ],
)
def test_an_option_changes_its_part_of_the_recipe(calibrant, tmp_path, options, expected):
    code, _, err = calibrant(*DIGITS, "--epochs", 2, "--batch-size", 512, *options, "-o", tmp_path / "run")
    assert code == 0, err
    recipe = settings(tmp_path / "run")["recipe"]
    assert {name: recipe[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--dataset", "digit"], ["Did you mean digits?"]),
        (["--dataset", "cifar10"], ["--data must name the folder of CIFAR-10", "https://www.cs.toronto.edu/~kriz"]),
        (["--dataset", "cifar10", "--data", "nowhere"], ["nowhere is not there", "https://www.cs.toronto.edu/~kriz"]),
        (["--model", "digits_cn"], ["--model must be one of", "Did you mean digits_cnn?"]),
        (["--model", "text_cnn"], ["text_cnn takes texts, and the data are images"]),
        (["--loss", "focall"], ["Did you mean focal?"]),
        (["--loss", "focal(gama=2)"], ["Did you mean gamma?"]),
        (["--loss", "ce(reduction=none)"], ["must be mean or sum to train with it"]),
        (["--loss", "ce", "--gamma", "2"], ["an option of ce must be one of", "got 'gamma'"]),
        (["--loss", "focal(gamma=1)", "--gamma", "2"], ["one plain --loss", "'focal(gamma=3)'"]),
        (["--loss", "focal", "--loss", "ce", "--gamma", "2"], ["one plain --loss", "focal and ce"]),
        (["--loss", "crl", "--mixup", "0.2"], ["mixup must be 0 with crl"]),
        (["--recipe", "dark-sid"], ["--recipe must be one of", "Did you mean dark-side?"]),
        (["--split", "hold-out"], ["--split must be one of", "Did you mean holdout?"]),
        (["--split", "official"], ["digits has none. Use 'holdout'"]),
        (["--augmentation", "flip"], ["none, crop, crop-flip"]),
        (["--precision", "float16"], ["auto, float32, bfloat16"]),
        (["--schedule", "step"], ["Did you mean steps?"]),
        (["--schedule", "steps"], ["milestones must be given with schedule='steps'"]),
        (["--milestones", "1;2"], ["--milestones must be whole numbers", "'1;2'"]),
        (["--milestones", "3,2"], ["milestones must rise"]),
        (["--milestones", "1", "--schedule", "cosine"], ["milestones must be given with schedule='steps' alone"]),
        (["--decay", "0.2"], ["decay must come with schedule 'steps'"]),
        (["--momentum", "1.5"], ["momentum must"]),
        (["--momentum", "0"], ["nesterov needs a momentum above 0"]),
        (["--device", "nonsense"], ["--device must be one that torch can use here, such as cpu; got 'nonsense'"]),
        (["--device", "meta"], ["--device must be one that torch can use here"]),
        (["--device", "cuda:99"], ["--device must be one that torch can use here"]),
        (["--batch-size", "5000"], ["batch_size must be at most the 1168 training samples; got 5000"]),
        (["--epochs", "0"], ["epochs must be at least 1"]),
        (["--seed", "3", "--seed", "3"], ["must be named once"]),
        (["--evaluate-every", "0"], ["--evaluate-every"]),
    ],
)
def test_bad_input_is_reported_in_one_line_exits_with_2_and_leaves_nothing(calibrant, tmp_path, arguments, said):
    code, out, err = calibrant(*DIGITS, "--epochs", 1, *arguments, "-o", tmp_path / "run")
    assert code == 2, err
    assert out == ""
    assert "Traceback" not in err
    assert all(word in err for word in said), err
    assert not (tmp_path / "run").exists()


def test_a_folder_in_the_way_is_refused_and_kept(calibrant, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    code, _, err = calibrant(*DIGITS, "--epochs", 1, "-o", tmp_path)
    assert (code, "it holds something else" in err) == (2, True)
    code, _, err = calibrant(*DIGITS, "--epochs", 1, "-o", tmp_path / "mine.txt")
    assert (code, "is a file" in err) == (2, True)
    assert files(tmp_path) == ["mine.txt"]


def test_a_training_that_diverges_is_reported_in_one_line(calibrant, tmp_path):
    code, _, err = calibrant(*DIGITS, "--epochs", 2, "--learning-rate", "1e6", "-o", tmp_path / "run")
    assert code == 2
    assert "Traceback" not in err
    assert "must stay finite" in err
    assert "ower the learning rate" in err


def test_several_runs_do_not_go_into_the_folder_of_one(calibrant, tmp_path):
    (tmp_path / "settings.json").write_text("{}")
    code, _, err = calibrant(*DIGITS, "--epochs", 1, "--seed", 0, "--seed", 1, "-o", tmp_path)
    assert code == 2
    assert "--out must be a folder for 2 runs" in err


def test_a_run_that_diverges_is_named_and_the_others_are_reported(calibrant, tmp_path):
    losses = ["--loss", "ce", "--loss", "mbls(weight=1e30,margin=0)"]
    code, out, err = calibrant(*DIGITS, "--epochs", 1, "--batch-size", 64, *losses, "-o", tmp_path)
    assert code == 2
    assert "mbls-weight1e30-margin0-seed0: the" in err.replace("\n", "")
    assert list(rows(out)) == ["digits_cnn-ce-seed0"]


def test_a_finished_run_is_reported_as_finished(calibrant, tmp_path):
    for said in ("", "holds a finished run"):
        code, _, err = calibrant(*DIGITS, "--epochs", 1, "--batch-size", 64, "-o", tmp_path / "run")
        assert code == 0
        assert said in " ".join(err.split())  # the console may break the line


def test_a_folder_of_another_finished_run_is_refused_without_its_numbers(calibrant, tmp_path):
    command = (*DIGITS, "--epochs", 1, "--batch-size", 64, "-o", tmp_path / "run")
    code, _, err = calibrant(*command)
    assert code == 0, err
    code, out, err = calibrant(*command, "--loss", "focal")
    assert (code, out) == (2, "")
    assert "must hold a run of the same settings" in err
    assert "nothing is trained there" not in err.replace("\n", " ")


def test_a_deterministic_run_ends_on_a_cpu_as_any_other(calibrant, tmp_path):
    for name, options in {"plain": (), "deterministic": ("--deterministic",)}.items():
        code, _, _ = calibrant(*DIGITS, "--epochs", 1, *options, "-o", tmp_path / name)
        assert code == 0
    plain, deterministic = (
        (tmp_path / name / "weights.safetensors").read_bytes() for name in ("plain", "deterministic")
    )
    assert plain == deterministic
    assert not torch.are_deterministic_algorithms_enabled()


def test_progress_at_80_columns_shows_the_epoch_the_time_left_and_the_accuracy(tmp_path):
    recipe, held_out = SimpleNamespace(epochs=200), {"test": SimpleNamespace(accuracy=0.926, ece=0.059)}
    run = Mock(folder=tmp_path / "resnet110-label_smoothing-smoothing0.05-seed0", recipe=recipe)
    shown = StringIO()
    console = Console(file=shown, width=80, force_terminal=True, color_system=None)
    with _progress_bars([run], console, is_shown=True) as (after_epoch, _):
        after_epoch(run, SimpleNamespace(epoch=120, loss=0.331, held_out=held_out))
    assert re.search(r"resnet110\S*…\S*seed0 [━╸ ]+ 120/200 \S+ test accuracy 0.926", shown.getvalue())
