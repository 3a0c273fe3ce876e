"""The options that choose what is read from a file, in every command that reads one."""

import json

import numpy as np
import pytest

from calibrant.files import load, load_map


@pytest.fixture
def table(tmp_path, monkeypatch):
    """A file with two parts, class names as columns, and what else people keep."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 240)
    probs = rng.dirichlet([1.0] * 3, 240) * 0.4 + 0.6 * np.eye(3)[labels]
    names = ["cat", "dog", "eel"]
    rows = [
        f"{row:03};{';'.join(f'{100 * p:.1f}' for p in probs[row])};{names[labels[row]]};{'val' if row % 2 else 'test'}"
        for row in range(240)
    ]
    (tmp_path / "all.csv").write_text("\n".join(["id;cat;dog;eel;species;fold", *rows]) + "\n")
    return tmp_path / "all.csv"


READ = ("--probs", "--scores", "cat,dog,eel", "--labels", "species", "--separator", ";", "--normalise")


def test_a_part_is_evaluated_and_the_other_fitted_on(calibrant, table, tmp_path):
    code, out, err = calibrant("evaluate", table, *READ, "--split", "fold", "--json", "r.json")
    assert (code, err) == (0, "")
    assert json.loads((tmp_path / "r.json").read_text())["n"] == 120
    code, out, err = calibrant("fit", "temperature", table, *READ, "--split", "fold=val,test", "-o", "map.safetensors")
    assert code == 0, err
    assert load_map("map.safetensors").summary.rows == 120
    code, out, err = calibrant("apply", "map.safetensors", table, *READ, "-o", "out.csv")
    assert (code, err) == (0, "")
    assert "Copied unchanged: id, fold." in out
    header, first = (tmp_path / "out.csv").read_text().replace('"', "").splitlines()[:2]
    assert header == "id;cat;dog;eel;species;fold"
    assert first.startswith("000;0.")
    code, _, err = calibrant("evaluate", "out.csv", *READ, "--split", "fold")  # as the input was read
    assert (code, err) == (0, "")
    assert load("out.csv", kind="probs", scores="cat,dog,eel", labels="species", separator=";").labels.shape == (240,)


def test_one_file_is_enough_to_compare(calibrant, table):
    code, out, err = calibrant("compare", table, *READ, "--split", "fold", "--methods", "temperature")
    assert code == 0, err
    shown = " ".join(out.split())
    assert "--separator ';'" in shown
    assert "--split fold -o map.safetensors" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("compare", "all.csv", "all.csv", "--split", "fold"), "got two files and --split"),
        (("evaluate", "all.csv"), "separated by commas; its first row has none, but semicolons. Pass --separator ';'."),
        (("evaluate", "all.csv", *READ[:-1]), "'cat' must lie in 0..1; got"),
        (("evaluate", "all.csv", *READ[:-1]), "If these are percentages, pass --percent; if counts, pass --normalise"),
        (("evaluate", "all.csv", *READ, "--split", "fold=cal"), "must read like 'fold' or 'fold=cal,test'"),
        (
            ("fit", "temperature", "all.csv", *READ, "--split", "fold=cal,test", "-o", "m.safetensors"),
            "'fold' must hold 'cal'",
        ),
        (("evaluate", "all.csv", *READ, "--split", "species"), "--split species=CALIBRATION,TEST"),
        (("evaluate", "all.csv", *READ, "--split", "part"), "must have the column 'part'"),
        (
            ("evaluate", "all.csv", "--positive", "cat", "--labels", "species", "--separator", ";"),
            "--positive-class eel",
        ),
    ],
)
def test_bad_options_are_explained(calibrant, table, arguments, message):
    assert table.exists()
    code, _, err = calibrant(*arguments)
    assert code == 2
    assert message in " ".join(err.split())


def test_a_split_without_calibration_samples_shows_what_the_column_holds(calibrant, table):
    text = table.read_text().replace(";val", ";train")
    table.write_text(text)
    code, _, err = calibrant("fit", "temperature", table, *READ, "--split", "fold", "-o", "m.safetensors")
    assert code == 2
    assert "it holds 'test' (120), 'train' (120)" in " ".join(err.split())
