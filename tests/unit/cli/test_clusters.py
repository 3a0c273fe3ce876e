"""``--clusters COLUMN``: samples that are not independent, from a file to the report."""

import json

import numpy as np
import pytest

from calibrant import Predictions, evaluate, load, save
from calibrant.report.interactive import view_of
from calibrant.testing import overconfident

SAMPLES = overconfident(240, 3)
QUESTIONS = np.repeat([f"q{number:03d}" for number in range(60)], 4)


@pytest.fixture
def file(tmp_path):
    lines = ["logit_0,logit_1,logit_2,label,question,fold"]
    lines += [
        ",".join([*(repr(score) for score in row), str(label), question, str(place // 120)])
        for place, (row, label, question) in enumerate(
            zip(SAMPLES.logits.tolist(), SAMPLES.labels.tolist(), QUESTIONS, strict=True)
        )
    ]
    (tmp_path / "test.csv").write_text("\n".join(lines) + "\n")
    return tmp_path / "test.csv"


def test_evaluate_counts_clusters(calibrant, file, tmp_path):
    code, out, err = calibrant(
        *("evaluate", file, "--clusters", "question", "--resamples", 100, "--json", tmp_path / "e.json"),
        *("--html", tmp_path / "e.html", "--by", "fold", "--error-rate", 0.4),
    )
    assert code == 0, err
    expected = evaluate(SAMPLES.with_clusters(QUESTIONS), resamples=100)
    assert f"240 samples in 60 clusters (effective {expected.effective_n:,.0f})" in " ".join(out.split())
    report = json.loads((tmp_path / "e.json").read_text())
    assert (report["n"], report["clusters"]) == (240, 60)
    assert report["metrics"]["ece"]["high"] == pytest.approx(expected.metrics["ece"].high)
    assert "in 60 clusters" in (tmp_path / "e.html").read_text()


def test_slices_of_one_cluster_have_no_interval_and_the_report_says_why(calibrant, file):
    rows = [line.split(",") for line in file.read_text().splitlines()[1:]]
    rows = [",".join([*row[:4], f"topic {place // 24}"]) for place, row in enumerate(rows)]
    file.write_text("\n".join(["logit_0,logit_1,logit_2,label,topic", *rows]) + "\n")
    command = ("evaluate", file, "--clusters", "topic", "--resamples", 100, "--by")
    why = "One of a few clusters has no interval"
    assert why in " ".join(calibrant(*command, "topic")[1].split())
    assert why not in " ".join(calibrant("evaluate", file, "--resamples", 100, "--by", "topic")[1].split())


def test_charts_name_the_samples_and_not_their_effective_number():
    density = view_of(SAMPLES.with_clusters(QUESTIONS), "a", "a")["density"]
    assert (density["n_right"], density["n_wrong"]) == (int(SAMPLES.correct.sum()), int((~SAMPLES.correct).sum()))


def test_compare_and_fit_take_clusters(calibrant, file, tmp_path):
    code, out, err = calibrant(
        *("compare", file, "--split", "fold=0,1", "--clusters", "question", "--methods", "temperature"),
        *("--resamples", 100, "--json", tmp_path / "c.json"),
    )
    assert code == 0, err
    assert "120 test samples in 30 clusters" in " ".join(out.split())
    assert json.loads((tmp_path / "c.json").read_text())["test"]["clusters"] == 30
    code, _, err = calibrant("fit", "auto", file, "--clusters", "question", "--out", tmp_path / "map.safetensors")
    assert code == 0, err


def test_a_cluster_in_both_parts_is_a_warning(calibrant, file):
    command = ("compare", file, "--clusters", "question", "--methods", "temperature", "--resamples", 100, "--split")
    assert "clusters" not in calibrant(*command, "fold=0,1")[2]
    file.write_text(file.read_text().replace("q029,0", "q029,1", 1))
    code, _, err = calibrant(*command, "fold=0,1")
    assert code == 0
    assert "1 of 31 clusters of the test samples are also in the calibration samples" in " ".join(err.split())


def test_a_baseline_has_the_same_clusters(calibrant, file):
    code, out, err = calibrant("evaluate", file, "--baseline", file, "--clusters", "question", "--resamples", 100)
    assert code == 0, err
    assert "No clear difference" in out or "no clear difference" in out


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--clusters", "questio"], "the nearest is 'question'"),
        (["--clusters", "question", "--stream"], "--clusters is for one file in memory"),
    ],
)
def test_clusters_that_cannot_be_read_are_refused(calibrant, file, given, message):
    code, _, err = calibrant("evaluate", file, *given)
    assert code == 2
    assert message in " ".join(err.split())


def test_a_row_without_a_cluster_is_named_or_dropped(calibrant, file):
    lines = file.read_text().splitlines()
    lines[5] = lines[5].replace("q001", "")
    file.write_text("\n".join(lines) + "\n")
    code, _, err = calibrant("evaluate", file, "--clusters", "question")
    assert code == 2
    assert "column 'question' must have a value in every row; got none" in " ".join(err.split())
    assert "at line 6. Fill it in, or drop them: --missing drop." in " ".join(err.split())
    code, out, err = calibrant("evaluate", file, "--clusters", "question", "--missing", "drop", "--resamples", 100)
    assert code == 0, err
    assert "239 samples in 60 clusters" in " ".join(out.split())
    assert "1 of 240 rows of test.csv lack a score, label, weight or cluster" in " ".join(out.split())
    file.write_text(file.read_text().replace(",q002,", ",NA,"))
    code, _, err = calibrant("evaluate", file, "--clusters", "question")
    assert code == 2
    assert "one of 5 such rows" in " ".join(err.split())
    code, out, err = calibrant(
        *("evaluate", file, "--clusters", "question", "--weights", "label", "--by", "fold", "--missing", "drop"),
        *("--resamples", 100),
    )
    assert code == 0, err
    assert "By fold" in out


def test_clusters_are_saved_and_loaded_by_name(tmp_path):
    samples = SAMPLES.with_clusters(QUESTIONS)
    for name in ("c.npz", "c.csv", "c.parquet"):
        save(samples, tmp_path / name)
        again = load(tmp_path / name, clusters="clusters")
        assert isinstance(again, Predictions)
        assert again.clusters.tolist() == samples.clusters.tolist()
        assert load(tmp_path / name).clusters is None
