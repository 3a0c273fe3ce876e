"""Thirty files as people have them are evaluated from the command line, and give the numbers of the same samples."""

import gzip
import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "data" / "files"))
import make  # the script that writes the files

sys.path.pop(0)


def brier(probs, labels):
    return float(((probs - np.eye(probs.shape[1])[labels]) ** 2).sum(1).mean())


TEST = np.array(make.FOLDS) == "test"
TRUE = {
    **{name: (make.N, brier(make.PROBS, make.LABELS)) for name in make.THREE},
    **{name: (make.N, brier(np.stack([1 - make.P, make.P], 1), make.POSITIVE)) for name in make.TWO},
    **dict.fromkeys(make.TOP, (make.N, None)),
    **{name: (int(TEST.sum()), brier(make.PROBS[TEST], make.LABELS[TEST])) for name in make.SPLIT},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    make.write_files(folder)
    return folder


def test_there_are_thirty():
    assert len(TRUE) >= 30


@pytest.mark.parametrize("name", TRUE)
def test_a_file_is_evaluated(calibrant, folder, monkeypatch, name):
    monkeypatch.chdir(folder)
    arguments = {**make.THREE, **make.TWO, **make.TOP, **make.SPLIT}[name][1]
    code, _, err = calibrant("evaluate", name, *arguments, "--resamples", "100", "--json", "report.json")
    assert (code, err) == (0, "")
    report = json.loads(Path("report.json").read_text())
    n, true_brier = TRUE[name]
    assert report["n"] == n
    if true_brier is None:
        top = np.mean(make.PROBS.argmax(1) == make.LABELS)
        assert report["metrics"]["accuracy"]["value"] == pytest.approx(top, abs=1e-12)
    else:
        assert report["metrics"]["brier"]["value"] == pytest.approx(true_brier, abs=1e-5)


@pytest.mark.parametrize("options", [(), ("--stream",)])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("p.csv", "prob_0,prob_1,label\n0.5,0.5,0\n0.5,0.5,7\n", 3),
        ("p.csv", "prob_0,prob_1,label\r\n\r\n0.5,0.5,0\r\n\r\n0.5,0.5,7\r\n", 5),
        ("p.csv", 'prob_0,prob_1,label,text\n0.5,0.5,0,"a\n\n""b"""\n0.5,0.5,7,"c\n"\n', 5),
        ("p.jsonl", '{"probs": [0.5, 0.5], "label": 0}\n\n{"probs": [0.5, 0.5], "label": 7, "text": "\\""}\n', 3),
    ],
)
def test_a_row_of_text_is_named_by_its_line(calibrant, tmp_path, name, text, line, pack, options):
    path = tmp_path / (name if pack is bytes else f"{name}.gz")
    path.write_bytes(pack(text.encode()))
    code, _, error = calibrant("evaluate", path, *options)
    assert code == 2
    assert f"got 7 at line {line}." in " ".join(error.split())
