"""``calibrant compare`` as a person meets it."""

import json

import pytest
import torch

from calibrant import Predictions, TopLabel, ks, load, save
from calibrant.cli.compare import parse_methods
from calibrant.comparison import default_methods


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(900, 3, generator=generator)
    labels = (logits / 3).softmax(1).multinomial(1, generator=generator).squeeze()
    both = Predictions.from_logits(logits, labels, class_names=["a", "b", "c"])
    save(both[:400], folder / "cal.npz")
    save(both[400:], folder / "test.npz")
    save(TopLabel(both.confidence, both.correct), folder / "answers.csv")
    save(Predictions.from_logits(logits[:, :2], labels % 2), folder / "two.npz")
    save(Predictions.from_logits(logits, labels, class_names=["a", "b", "x"]), folder / "named.npz")
    return folder


def test_everything_can_be_written_at_once(calibrant, files, tmp_path):
    summary = tmp_path / "summary.md"
    code, out, err = calibrant(
        "compare", files / "cal.npz", files / "test.npz",
        "--methods", "temperature,temperature(criterion=focal,gamma=2)",
        "--bins", 10, "--seed", 3, "--resamples", 100, "--json", tmp_path / "b.json", "--markdown", tmp_path / "b.md",
        "--html", tmp_path / "b.html",
        "--figures", tmp_path / "figures", "--figure-format", "svg", "--theme", "dark",
        GITHUB_STEP_SUMMARY=str(summary),
    )  # fmt: skip
    assert code == 0, err
    assert "temperature ←" in out
    assert f"calibrant fit temperature {files / 'cal.npz'} -o map.safetensors" in out
    assert 'id="calibrant-data"' in (tmp_path / "b.html").read_text()
    board = json.loads((tmp_path / "b.json").read_text())
    assert board["schema"] == "calibrant.comparison/1"
    assert (board["calibration"]["n"], board["test"]["n"], board["bins"], board["seed"]) == (400, 500, 10, 3)
    assert {method["name"] for method in board["methods"]} == {
        "uncalibrated", "temperature", "temperature(criterion=focal,gamma=2.0)",
    }  # fmt: skip
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {"comparison.svg", "before_and_after.svg"}
    assert "(figures/comparison.svg)" in (tmp_path / "b.md").read_text()
    assert summary.read_text().startswith("# Calibration methods compared")
    lines = [line for line in out.splitlines() if "calibrant fit" not in line and not line.startswith("Wrote")]
    assert max(map(len, lines)) <= 120


def test_more_metrics_have_columns_and_are_asked_of_files_that_fit_into_memory(calibrant, files, tmp_path):
    command = ["compare", files / "cal.npz", files / "test.npz", "--methods", "temperature", "--resamples", 100]
    code, out, err = calibrant(*command, "--metric", "ks", "--metric", "entropy", "--json", tmp_path / "board.json")
    assert code == 0, err
    (header,) = [line for line in out.splitlines() if line.startswith("method")]
    assert "ks ↓" in header
    assert header.split().index("entropy") == header.split().index("accuracy") - 1  # without a direction
    uncalibrated = {one["name"]: one for one in json.loads((tmp_path / "board.json").read_text())["methods"]}
    assert uncalibrated["uncalibrated"]["metrics"]["ks"]["value"] == pytest.approx(ks(load(files / "test.npz")))
    code, _, err = calibrant(*command, "--metric", "kss")
    assert (code, "Did you mean ks?" in err) == (2, True)
    code, _, err = calibrant(*command, "--metric", "ks", "--stream")
    assert (code, "must come with files that fit into memory" in err) == (2, True)


def test_the_same_seed_writes_the_same_numbers(calibrant, files, tmp_path):
    found = []
    for name in ("first", "second"):
        target = tmp_path / f"{name}.json"
        command = ["compare", files / "cal.npz", files / "test.npz", "--methods", "temperature", "--resamples", 100]
        assert calibrant(*command, "--json", target)[0] == 0
        board = json.loads(target.read_text())
        for method in board["methods"]:
            method.pop("seconds")
        found.append(board)
    assert found[0] == found[1]


def test_the_usual_methods_are_tried_unless_others_are_named(calibrant, files):
    code, out, err = calibrant("compare", files / "cal.npz", files / "test.npz", "--resamples", 100)
    assert code == 0, err
    names = [method.name for method in default_methods(load(files / "cal.npz")) if method.name != "uncalibrated"]
    assert {"temperature", "sms", "isotonic", "histogram"} <= set(names)
    for name in ("uncalibrated", *names):
        assert f"\n{name} " in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["cal.npz", "missing.npz"], ["missing.npz"]),
        (["cal.npz", "two.npz"], ["same classes", "3 and 2"]),
        (["cal.npz", "named.npz"], ["name the classes alike", "'c'", "'x'"]),
        (["cal.npz", "answers.csv"], ["logits or probabilities of every class"]),
        (["cal.npz", "test.npz", "--methods", "temprature"], ["Did you mean temperature"]),
        (["cal.npz", "test.npz", "--methods", "temperature,,none"], ["--methods", "comma-separated"]),
        (["cal.npz", "test.npz", "--methods", ""], ["--methods"]),
        (["cal.npz", "test.npz", "--theme", "pink"], ["light", "dark"]),
        (["cal.npz", "test.npz", "--figure-format", "gif"], ["png", "svg", "pdf"]),
        (["cal.npz", "test.npz", "--bins", "0"], ["bins"]),
        (["cal.npz", "test.npz", "--logits", "--probs"], ["one of --logits"]),
        (["cal.npz", "test.npz", "--json", "no/such/folder/b.json"], ["no folder"]),
    ],
)
def test_bad_input_is_reported_in_one_line_and_exits_with_2(calibrant, files, tmp_path, arguments, said):
    given = [files / each if each.endswith((".npz", ".csv")) else each for each in arguments]
    code, _, err = calibrant("compare", *given, "--resamples", 100, "--markdown", tmp_path / "b.md")
    assert code == 2, err
    assert "Traceback" not in err
    assert all(word in err for word in said), err
    assert not (tmp_path / "b.md").exists()


@pytest.mark.parametrize("reading", [[], ["--stream"]])
def test_confidences_of_answers_are_compared_by_methods_that_can_go_below_half(calibrant, tmp_path, reading):
    generator = torch.Generator().manual_seed(0)
    levels = torch.tensor([0.5, 0.7, 0.8, 0.85, 0.9, 0.95])
    right = torch.tensor([0.25, 0.3, 0.35, 0.4, 0.6, 0.8])
    for name in ("cal", "test"):
        drawn = torch.randint(6, (400,), generator=generator)
        correct = torch.rand(400, generator=generator) < right[drawn]
        rows = [f"{float(c):.2f},{'yes' if y else 'no'}" for c, y in zip(levels[drawn], correct, strict=True)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["confidence,correct", *rows]) + "\n")
    options = ["--probs", "--positive", "confidence", "--labels", "correct", "--resamples", 100]
    code, out, err = calibrant(
        "compare", tmp_path / "cal.csv", tmp_path / "test.csv", *options, *reading, "--json", tmp_path / "c.json"
    )
    assert code == 0, err
    assert "guessing" not in out + err  # half of the answers being right is no sign of wrong labels
    board = json.loads((tmp_path / "c.json").read_text())
    tried = {method["name"] for method in board["methods"]}
    assert {"isotonic_ovr", "platt", "beta", "venn_abers", "histogram_classwise"} <= tried
    assert not tried & {"temperature", "isotonic", "histogram", "ets"}
    assert board["recommended"] in tried - {"uncalibrated"}
    best = next(method for method in board["methods"] if method["name"] == board["recommended"])
    assert set(best["differences"]) <= {"uncalibrated", "platt"}
    code, out, err = calibrant(
        "compare", tmp_path / "cal.csv", tmp_path / "test.csv", *options, *reading, "--methods", "temperature"
    )
    assert code == 0, err
    assert "\ntemperature " in out  # still there for those who name it
    assert "Temperature scaling is enough" not in out


def test_the_same_file_twice_is_noted(calibrant, files):
    code, _, err = calibrant(
        "compare", files / "cal.npz", files / "cal.npz", "--methods", "uncalibrated", "--resamples", 100
    )
    assert code == 0
    assert "note: 400 of 400 test samples are also calibration samples" in " ".join(err.split())


def test_an_unknown_method_is_found_before_the_files_are_read(calibrant):
    code, _, err = calibrant("compare", "no.npz", "no.npz", "--methods", "tempreature")
    assert code == 2
    assert "Did you mean temperature" in err


@pytest.mark.parametrize("below", ["", "deeper/still"])
@pytest.mark.parametrize("command", ["compare", "evaluate"])
def test_figures_that_cannot_be_written_are_found_before_the_files_are_read(calibrant, tmp_path, command, below):
    (tmp_path / "taken").write_text("old")
    files = ["no.npz"] * (2 if command == "compare" else 1)
    code, _, err = calibrant(command, *files, "--figures", tmp_path / "taken" / below)
    assert code == 2
    assert "must be a folder" in " ".join(err.split())
    assert "Traceback" not in err


def test_a_page_that_cannot_be_written_is_found_before_the_files_are_read(calibrant, tmp_path):
    for target, said in ((tmp_path, "it is a folder"), (tmp_path / "no" / "r.md", "there is no folder")):
        code, _, err = calibrant("evaluate", "no.npz", "--markdown", target)
        assert code == 2
        assert said in " ".join(err.split())


@pytest.mark.parametrize(
    "stopped_in",
    [
        "calibrant.comparison.compare",
        "calibrant.report.comparison.comparison_page",
        "calibrant.report.comparison.comparison_verdict",
    ],
)
def test_stopping_it_leaves_no_broken_file(calibrant, files, tmp_path, monkeypatch, stopped_in):
    def interrupted(*_arguments, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(stopped_in, interrupted)
    (tmp_path / "b.md").write_text("old")
    (tmp_path / "b.json").write_text("old")
    code, _, err = calibrant(
        "compare", files / "cal.npz", files / "test.npz", "--methods", "temperature", "--resamples", 100,
        "--json", tmp_path / "b.json", "--markdown", tmp_path / "b.md",
        "--html", tmp_path / "b.html",
    )  # fmt: skip
    assert code == 130
    assert "no partial files were left" in err
    assert {path.name for path in tmp_path.iterdir()} == {"b.md", "b.json"}
    assert (tmp_path / "b.md").read_text() == "old"


def test_commas_inside_brackets_do_not_divide():
    text = "auto(candidates=[none,temperature],folds=3),temperature+none"
    assert [method.name for method in parse_methods(text)] == ["auto", "chain"]
    assert "chain" not in [method.name for method in parse_methods("all")]
    assert {"uncalibrated", "temperature", "auto"} <= {method.name for method in parse_methods("all")}


def test_one_file_is_compared_in_five_folds(calibrant, files, tmp_path):
    command = ["compare", files / "cal.npz", "--methods", "temperature", "--resamples", 100]
    code, out, err = calibrant(
        *command, "--json", tmp_path / "r.json", "--html", tmp_path / "r.html", "--figures", tmp_path
    )
    assert code == 0, err
    assert "400 samples in 5 folds" in out
    assert f"calibrant fit temperature {files / 'cal.npz'} -o map.safetensors" in out
    document = json.loads((tmp_path / "r.json").read_text())
    assert (document["folds"], document["calibration"]["n"], document["test"]["n"]) == (5, 320, 400)
    assert (tmp_path / "before_and_after.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    "more", [("FILE", "--folds", 3), ("--split", "fold", "--folds", 3), ("FILE", "--split", "fold")]
)
def test_ways_to_compare_exclude_each_other(calibrant, files, more):
    code, _, err = calibrant(
        "compare", files / "cal.npz", *[files / "test.npz" if word == "FILE" else word for word in more]
    )
    assert code == 2
    assert " and " in err


def test_a_streamed_file_is_not_compared_in_folds(calibrant, files):
    code, _, err = calibrant("compare", files / "cal.npz", "--stream")
    assert code == 2
    assert "memory" in err
