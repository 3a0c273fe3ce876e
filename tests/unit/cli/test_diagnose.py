"""``calibrant diagnose`` as a person meets it."""

import json
import shutil

import numpy as np
import pytest
from made_runs import CPU, rows_of, settings_of, write_run

from calibrant import catalogue
from calibrant.datasets import DigitsReader
from calibrant.diagnosis import save_run
from calibrant.plots import diagnosis as diagnosis_plots
from calibrant.training import Recipe, Run, train_runs

QUICK = ["--resamples", 100, "--draws", 0]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two losses on the digits for an epoch, side by side in one folder, and pictures that are moved by a pixel."""
    out, digits = tmp_path_factory.mktemp("trained"), DigitsReader().read()
    recipe = Recipe(epochs=1, batch_size=128, learning_rate=0.05)
    losses = {"ce": "ce", "smooth": "label_smoothing(smoothing=0.1)"}
    runs = [
        Run(out / "runs" / name, "digits_cnn", catalogue.parse_any_loss(loss), recipe) for name, loss in losses.items()
    ]
    train_runs(runs, digits, device=CPU)
    moved = np.roll(digits.test.inputs.numpy()[:100], 1, axis=3)
    np.savez(out / "moved.npz", images=moved, labels=digits.test.labels.numpy()[:100])
    np.savez(out / "wide.npz", images=np.repeat(moved, 2, axis=3), labels=digits.test.labels.numpy()[:100])
    return out


@pytest.fixture
def made(tmp_path):
    """A folder with runs written by hand: two of cross-entropy, one of label smoothing."""

    def make(folder, loss, seed, **settings):
        parts = [rows_of(120, part, noise=0.1, seed=seed) for part in ("calibration", "test")]
        return write_run(tmp_path / folder, settings_of(loss, seed, **settings), *parts)

    make("runs/ce-0", "ce", 0)
    make("runs/ce-1", "ce", 1)
    make("runs/ls-0", "label_smoothing(smoothing=0.1)", 0)
    make("others/named", "ce", 2, class_names=("w", "x", "y", "z"))
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("no run")
    np.save(tmp_path / "alone.npy", np.zeros((5, 8, 8), dtype=np.uint8))
    return tmp_path


def test_everything_can_be_written_at_once(calibrant, trained, tmp_path, monkeypatch):
    asked = {}
    drawn = diagnosis_plots.diagnosis_figures

    def some(found, *, theme):
        asked["theme"] = theme
        return {"two_sided": drawn(found, theme=theme)["two_sided"]}

    monkeypatch.setattr(diagnosis_plots, "diagnosis_figures", some)
    summary = tmp_path / "summary.md"
    code, out, err = calibrant(
        "diagnose", trained / "runs", "--bins", 10, "--seed", 3, "--resamples", 100, "--draws", 1,
        "--corrupt", "contrast,brightness", "--severity", "5,1", "--shift", trained / "moved.npz", "--device", "cpu",
        "--json", tmp_path / "d.json", "--markdown", tmp_path / "d.md", "--figures", tmp_path / "figures",
        "--html", tmp_path / "d.html", "--full",
        "--figure-format", "svg", "--theme", "dark", GITHUB_STEP_SUMMARY=str(summary),
    )  # fmt: skip
    assert code == 0, err
    found = json.loads((tmp_path / "d.json").read_text())
    assert found["schema"] == "calibrant.diagnosis/1"
    assert (found["n"], found["bins"], found["seed"], found["resamples"], found["baseline"]) == (500, 10, 3, 100, "ce")
    assert [(each["shift"], each["severity"]) for each in found["shift"]["sets"]] == [
        ("clean", None), ("contrast", 1), ("contrast", 5), ("brightness", 1), ("brightness", 5), ("moved", None),
    ]  # fmt: skip
    assert found["verdicts"][0]["words"].startswith("In single runs, label smoothing 0.1")
    assert " ".join(found["verdict"]["headline"].split()[:8]) in out
    for title in ("Calibratability", "Refinement", "Direction", "How many calibration samples", "Under a shift"):
        assert title in out
    assert max(map(len, out.splitlines())) <= 120
    page = (tmp_path / "d.md").read_text()
    assert "**ECE, mean over contrast, brightness**" in page
    assert "**moved, 100 samples**" in page
    assert "(figures/two_sided.svg)" in page
    assert asked == {"theme": "dark"}
    assert [path.name for path in (tmp_path / "figures").iterdir()] == ["two_sided.svg"]
    assert summary.read_text().startswith("# Diagnosis: runs")
    html = (tmp_path / "d.html").read_text()
    assert 'id="calibrant-data"' in html
    assert all(f"<p>{name}: <code>sha256:" in html for name in ("ce/test.npz", "smooth/test.npz", "moved.npz"))


def test_the_same_seed_writes_the_same_numbers(calibrant, made):
    written = []
    for name in ("first", "second"):
        code, _, err = calibrant("diagnose", made / "runs", *QUICK, "--json", made / f"{name}.json")
        assert code == 0, err
        written.append((made / f"{name}.json").read_text())
    assert written[0] == written[1]


def test_runs_may_be_named_one_by_one(calibrant, made):
    code, out, err = calibrant("diagnose", made / "runs/ls-0", made / "runs/ce-0", *QUICK)
    assert code == 0, err
    assert "ls-0, ce-0 (2 runs, 120 test samples)" in out
    assert "Single runs, on the same 120 test samples" in out


def test_a_run_alone_has_nothing_to_be_held_against(calibrant, made):
    code, out, err = calibrant("diagnose", made / "runs/ce-0", *QUICK)
    assert code == 0, err
    assert "nothing to compare it with" in out


def test_another_reference_turns_the_comparison_round(calibrant, made):
    target = made / "d.json"
    code, _, err = calibrant("diagnose", made / "runs", *QUICK, "--baseline", "label_smoothing(0.1)", "--json", target)
    assert code == 0, err
    found = json.loads(target.read_text())
    assert [(each["candidate"], each["baseline"]) for each in found["verdicts"]] == [("ce", "label_smoothing(0.1)")]


def test_other_maps_may_be_asked_for(calibrant, made):
    target = made / "d.json"
    code, out, err = calibrant(
        "diagnose", made / "runs", *QUICK, "--full", "--maps", "isotonic, temperature", "--json", target
    )
    assert code == 0, err
    assert json.loads(target.read_text())["maps"] == ["uncalibrated", "isotonic", "temperature"]
    words = " ".join(out.split())
    assert all(name in words for name in ("accuracy ↑", "ece ↓", "isotonic", "temperature", "optimal ↓"))
    assert "histogram" not in words


def test_the_maps_of_the_paper_have_a_name_of_their_own_and_their_options_are_shown(calibrant, made):
    target = made / "d.json"
    code, out, err = calibrant("diagnose", made / "runs", *QUICK, "--full", "--maps", "paper", "--json", target)
    assert code == 0, err
    settings = json.loads(target.read_text())["map_settings"]
    assert settings["temperature"]["criterion"] == "ece-overconfidence"
    assert settings["histogram"]["bins"] == "equal_width"
    said = " ".join(out.split())
    assert "(temperature with criterion ece-overconfidence, histogram with bins equal_width)" in said
    code, out, err = calibrant("diagnose", made / "runs", *QUICK, "--full")
    assert (code, " with criterion" in out) == (0, False)


def test_of_a_folder_of_runs_those_that_were_stopped_are_left_out_and_named(calibrant, made):
    (made / "runs/ce-1/weights.safetensors").unlink()
    code, out, err = calibrant("diagnose", made / "runs", *QUICK)
    assert code == 0
    assert "ce-1wasstoppedbeforeitsend,andisleftout." in "".join(err.split())  # a long path breaks anywhere
    assert "2 runs, 120 test samples" in out


def test_a_folder_of_stopped_runs_alone_is_refused(calibrant, made):
    for weights in made.glob("runs/*/weights.safetensors"):
        weights.unlink()
    code, _, err = calibrant("diagnose", made / "runs", *QUICK)
    assert code == 2
    assert "must hold a finished run" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "table of runs (.csv, .json); it does not exist."),
        (["file"], "table of runs (.csv, .json); it is a file."),
        (["empty"], "it has no settings.json"),
        (["runs", "runs/ce-0"], "is named twice"),
        (["runs", "others"], "must have the same classes, in the same order"),
        (["runs", "--baseline", "focal"], "--baseline must be one of ce, label_smoothing(0.1); got 'focal'"),
        (["runs", "--figure-format", "gif"], "--figure-format must be one of png, svg, pdf"),
        (["runs", "--figures", "file"], "file is a file"),
        (["runs", "--json", "absent/d.json"], "there is no folder"),
        (["runs", "--markdown", "runs"], "it is a folder"),
        (["runs", "--json", "runs/ce-0/test.npz"], "must not be written to"),
        (["runs", "--corrupt", "fog"], "--corrupt must be one of brightness"),
        (["runs", "--corrupt", " , "], "--corrupt must be common, all, or some of"),
        (["runs", "--corrupt", "all", "--severity", "0"], "--severity must be 1 to 5"),
        (["runs", "--severity", "1"], "--severity is only for --corrupt"),
        (["runs", "--data", "empty"], "--data is only for --corrupt"),
        (["runs", "--shift", "absent.npz"], "--shift must name a file or folder of images; there is no"),
        (["runs", "--shift", "file", "--shift", "file"], "--shift must name each file once"),
        (
            ["runs", "--maps", "histogram,svs"],
            "--maps must be different methods, temperature among them; got histogram",
        ),
        (["runs", "--maps", "paper,temperature"], "--maps must be different methods, temperature among them; got temp"),
        (["runs", "--maps", "temperature,,svs"], "--maps must be paper, or comma-separated names"),
        (["runs", "--maps", "temperatur"], "Did you mean temperature"),
        (["runs", "--shift", "file"], "must end in .npz or .npy"),
        (["runs", "--shift", "file"], "numpy.savez(path, images=images, labels=labels)"),
        (["runs", "--shift", "alone.npy"], "alone.npy must have its labels beside it, in labels.npy"),
        (["runs", "--corrupt", "common"], "'made'"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(calibrant, made, monkeypatch, arguments, message):
    monkeypatch.chdir(made)
    code, out, err = calibrant("diagnose", *arguments, *QUICK)
    assert code == 2
    assert message in err
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert not out


@pytest.mark.parametrize("option", [("--seed", -1), ("--bins", 0), ("--draws", -1), ("--resamples", 5)])
def test_options_out_of_range_are_refused(calibrant, made, option):
    code, _, err = calibrant("diagnose", made / "runs", *option)
    assert code == 2
    assert option[0] in err


def test_a_run_without_calibration_samples_is_refused(calibrant, made):
    (made / "runs/ce-1/calibration.npz").unlink()
    code, _, err = calibrant("diagnose", made / "runs", *QUICK)
    assert code == 2
    assert "must have calibration samples" in err


def test_shifted_images_of_another_size_are_refused_before_anything_is_evaluated(calibrant, trained, monkeypatch):
    monkeypatch.setattr("calibrant.diagnosis.diagnose", lambda *_, **__: pytest.fail("it was evaluated"))
    code, _, err = calibrant("diagnose", trained / "runs", *QUICK, "--shift", trained / "wide.npz")
    assert code == 2
    assert "of the size and channels that the networks take" in err


def test_two_shifted_files_of_one_name_are_distinguished_by_their_folders(calibrant, trained, tmp_path):
    for place in ("one", "two"):
        (tmp_path / place).mkdir()
        shutil.copy(trained / "moved.npz", tmp_path / place / "moved.npz")
    files = [argument for place in ("one", "two") for argument in ("--shift", tmp_path / place / "moved.npz")]
    code, out, err = calibrant("diagnose", trained / "runs/ce", *QUICK, *files, "--device", "cpu")
    assert code == 0, err
    assert "one/moved (100 samples)" in out
    assert "two/moved (100 samples)" in out


def test_runs_of_other_training_loops_are_read_from_a_folder_of_them_and_from_a_table(calibrant, tmp_path):
    lines = ["name,seed,calibration,test"]
    for name, scale in (("plain", 3.0), ("mixup", 1.0)):
        for seed in (0, 1):
            folder = f"runs/{name}-{seed}"
            parts = {part: rows_of(120, part, scale=scale, noise=0.1, seed=seed) for part in ("calibration", "test")}
            save_run(tmp_path / folder, name=name, seed=seed, **parts)
            lines.append(f"{name},{seed},{folder}/calibration.npz,{folder}/test.npz")
    (tmp_path / "runs.csv").write_text("\n".join(lines))
    reports = []
    for given in ("runs", "runs.csv"):
        target = tmp_path / "report.json"
        code, out, err = calibrant("diagnose", tmp_path / given, "--baseline", "plain", *QUICK, "--json", target)
        assert code == 0, err
        assert "mixup" in out
        reports.append(json.loads(target.read_text()))
    names = [{one["name"]: one["seeds"] for one in report["candidates"]} for report in reports]
    assert names == [{"plain": [0, 1], "mixup": [0, 1]}] * 2
    numbers = [{one["candidate"]: one["ece"] for one in report["calibratability"]} for report in reports]
    assert numbers[0] == numbers[1]
    code, _, err = calibrant("diagnose", tmp_path / "runs.csv", "--shift", tmp_path / "runs.csv")
    assert code == 2
    assert "shifted" in err
    code, _, err = calibrant("diagnose", tmp_path / "runs.csv", "--json", tmp_path / "runs.csv")
    assert code == 2
    assert "input file" in err
