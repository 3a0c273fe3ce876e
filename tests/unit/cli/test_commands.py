"""The command line as a person meets it: every option, every exit code, every bad file."""

import base64
import hashlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import zlib
from xml.etree import ElementTree as ET

import numpy as np
import pytest
import torch
import typer

from calibrant import Predictions, TopLabel, load, save
from calibrant.calibrators import HistogramBinning, TemperatureScaling
from calibrant.checks import MOST_BINS
from calibrant.cli.main import app
from calibrant.cli.output import standard_error
from calibrant.errors import InputError
from calibrant.evidence import difference
from calibrant.metrics import NLL, ace, ece, sce


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    generator = torch.Generator().manual_seed(0)
    logits = 2.5 * torch.randn(400, 3, generator=generator)
    labels = (logits / 2).softmax(1).multinomial(1, generator=generator).squeeze()
    predictions = Predictions.from_logits(logits, labels, class_names=["a", "b", "c"])
    save(predictions, folder / "model.npz")
    save(Predictions.from_logits(logits / 2, labels), folder / "cooler.npz")
    save(TopLabel(predictions.confidence, predictions.correct), folder / "answers.csv")
    np.savez(folder / "odd.npz", x=logits.numpy(), y=labels.numpy())
    (folder / "broken.npz").write_bytes((folder / "model.npz").read_bytes()[:200])
    np.savez(folder / "pickled.npz", logits=np.array([{"a": 1}], dtype=object), labels=[0])
    return folder


def test_figures_on_another_drive_are_linked_by_their_whole_path(calibrant, files, tmp_path, monkeypatch):
    def two_drives(*_paths):
        raise ValueError("path is on mount 'D:', start on mount 'C:'")

    monkeypatch.setattr(os.path, "relpath", two_drives)
    code, _, err = calibrant(
        "evaluate", files / "model.npz", "--resamples", 100, "--markdown", tmp_path / "r.md",
        "--figures", tmp_path / "figures", "--figure-format", "svg",
    )  # fmt: skip
    assert code == 0, err
    assert f"({tmp_path.as_posix()}/figures/reliability.svg)" in (tmp_path / "r.md").read_text()


def test_everything_can_be_written_at_once(calibrant, files, tmp_path):
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    code, out, err = calibrant(
        "evaluate", files / "model.npz", "--bins", 10, "--seed", 3, "--resamples", 200, "--json", tmp_path / "r.json",
        "--markdown", tmp_path / "r.md", "--html", tmp_path / "r.html",
        "--figures", tmp_path / "figures", "--figure-format", "svg", "--theme", "dark",
        "--baseline", files / "cooler.npz", "--fail-if", "ece>0.9", GITHUB_STEP_SUMMARY=str(summary),
    )  # fmt: skip
    assert code == 0, err
    assert "overconfident" in out
    assert "Compared with cooler.npz" in out
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["schema"] == "calibrant.evaluation/1"
    assert (report["n"], report["classes"], report["bins"], report["seed"]) == (400, 3, 10, 3)
    assert set(report["metrics"]["ece"]) == {"value", "low", "high", "floor", "p"}
    assert set(report["metrics"]["auroc"]) == {"value", "low", "high"}
    assert report["comparison"]["nll"]["low"] > 0  # the baseline is better
    same = difference(load(files / "cooler.npz"), load(files / "model.npz"), [NLL()], resamples=200, seed=3)["nll"]
    assert report["comparison"]["nll"]["low"] == pytest.approx(same.low)
    pictures = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert pictures == ["bins_sweep.svg", "classwise.svg", "density.svg", "reliability.svg", "risk_coverage.svg"]
    assert "(figures/reliability.svg)" in (tmp_path / "r.md").read_text()
    page = (tmp_path / "r.html").read_text()
    assert 'id="calibrant-data"' in page  # charts instead of pictures
    packed = re.search(r'id="calibrant-data">([^<]*)<', page)[1]
    charts = json.loads(zlib.decompress(base64.b64decode(packed)))
    assert [view["title"] for view in charts["views"]] == ["cooler.npz", "model.npz"]
    assert charts["comparison"]["words"] in report["verdict"]["findings"]
    assert "data:image/png;base64" not in page
    assert f"sha256:{hashlib.sha256((files / 'model.npz').read_bytes()).hexdigest()}" in page
    assert summary.read_text().startswith("before\n# Calibration report: model.npz")


def test_a_fail_if_condition_holds_only_if_the_whole_interval_is_beyond_the_bound(calibrant, files, json_of):
    value = json_of("model.npz")["metrics"]["ece"]
    between = (value["low"] + value["value"]) / 2
    quick = ["evaluate", files / "model.npz", "--resamples", 200, "--fail-if"]
    assert calibrant(*quick, f"ece>{value['low'] - 0.01}")[0] == 1
    assert calibrant(*quick, f"ece>{between}")[0] == 0
    assert calibrant(*quick, "auroc<0.99", "--fail-if", "ece>0.9")[0] == 1


def test_a_fail_unless_condition_passes_only_if_the_whole_interval_is_within_the_bound(calibrant, files, json_of):
    value = json_of("model.npz")["metrics"]["ece"]
    quick = ["evaluate", files / "model.npz", "--resamples", 200, "--fail-unless"]
    between = (value["value"] + value["high"]) / 2
    assert calibrant(*quick, f"ece<{value['high'] + 0.01}")[0] == 0
    code, out, _ = calibrant(*quick, f"ece<{between}")
    assert code == 1
    assert "is not shown" in out
    assert calibrant(*quick, f"ece<{between}", "--point")[0] == 0
    assert calibrant(*quick[:-1], "--fail-if", f"ece>{(value['low'] + value['value']) / 2}", "--point")[0] == 1


def test_gates_on_the_difference_from_a_baseline_stand_in_every_report(calibrant, files, tmp_path):
    code, out, err = calibrant(
        "evaluate", files / "model.npz", "--baseline", files / "cooler.npz", "--resamples", 200,
        "--fail-if", "nll_difference>0", "--fail-unless", "auroc > 0.5", "--junit", tmp_path / "gates.xml",
        "--json", tmp_path / "r.json", "--markdown", tmp_path / "r.md",
    )  # fmt: skip
    assert code == 1, err
    failed, passed = json.loads((tmp_path / "r.json").read_text())["gates"]
    assert (failed["condition"], failed["failed"], passed["failed"]) == ("nll_difference > 0", True, False)
    change = difference(load(files / "cooler.npz"), load(files / "model.npz"), [NLL()], resamples=200)["nll"]
    assert failed["low"] == pytest.approx(change.low)
    assert "## Gates" in (tmp_path / "r.md").read_text()
    suite = ET.parse(tmp_path / "gates.xml").getroot()[0]  # noqa: S314  # our own
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    assert [case.get("name") for case in suite if case.find("failure") is not None] == ["--fail-if nll_difference > 0"]
    assert out.count("--fail") == 2


@pytest.fixture
def json_of(calibrant, files, tmp_path):
    """The JSON report of a file."""

    def evaluate(name, *options):
        target = tmp_path / "out.json"
        code, _, err = calibrant("evaluate", files / name, "--resamples", 200, "--json", target, *options)
        assert code == 0, err
        return json.loads(target.read_text())

    return evaluate


def test_the_same_seed_writes_the_same_report(json_of):
    assert json_of("model.npz", "--seed", 5) == json_of("model.npz", "--seed", 5)


def test_a_table_of_confidence_and_correctness_is_enough(json_of):
    report = json_of("answers.csv")
    assert report["classes"] is None
    assert "ece" in report["metrics"]
    assert "nll" not in report["metrics"]


def test_names_and_kind_can_be_given(json_of):
    report = json_of("odd.npz", "--logits", "--scores", "x", "--labels", "y")
    assert report["metrics"]["ece"] == json_of("model.npz")["metrics"]["ece"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing.npz"], ["missing.npz"]),
        (["odd.npz"], ["x", "y", "labels"]),
        (["odd.npz", "--logits", "--scores", "z", "--labels", "y"], ["z", "x"]),
        (["broken.npz"], ["broken.npz"]),
        (["pickled.npz"], ["pickled.npz"]),
        (["model.npz", "--logits", "--probs"], ["one of --logits, --probs and --top-label"]),
        (["model.npz", "--fail-if", "eec>0.1"], ["Did you mean ece"]),
        (["model.npz", "--fail-if", "ECE>0.1"], ["Did you mean ece"]),
        (["model.npz", "--fail-if", "ece"], ["ece>0.05"]),
        (["model.npz", "--fail-unless", "ECE_difference<1"], ["Did you mean ece"]),
        (["model.npz", "--fail-unless", "nll_difference<1"], ["--baseline"]),
        (["model.npz", "--point"], ["--fail-if", "--fail-unless"]),
        (["model.npz", "--junit", "gates.xml"], ["--fail-if", "--fail-unless"]),
        (["model.npz", "--theme", "pink"], ["light", "dark"]),
        (["model.npz", "--figure-format", "gif"], ["png", "svg", "pdf"]),
        (["model.npz", "--bins", "0"], ["bins"]),
        (["answers.csv", "--fail-if", "nll>1"], ["nll", "all classes"]),
        (["model.npz", "--baseline", "answers.csv"], ["one kind"]),
        (["."], ["broken.npz"]),  # a folder is all its files
    ],
)
def test_bad_input_is_reported_in_one_line_and_exits_with_2(calibrant, files, arguments, said, tmp_path):
    given = [files / a if a.endswith((".npz", ".csv")) else a for a in arguments]
    given = [files if a == "." else a for a in given]
    code, _, err = calibrant("evaluate", *given, "--resamples", "100", "--json", tmp_path / "r.json")
    assert code == 2, err
    assert "Traceback" not in err
    assert all(word in err for word in said), err
    assert not (tmp_path / "r.json").exists()


def test_advice_is_given_in_the_words_of_the_command_line(calibrant, files, tmp_path):
    _, _, err = calibrant("evaluate", files / "odd.npz")
    assert "pass --logits (or --probs) and --scores x and --labels y" in err
    (tmp_path / "mine.csv").write_text("conf,ok\n0.9,1\n0.8,0\n")
    _, _, err = calibrant("evaluate", tmp_path / "mine.csv", "--top-label")
    assert "--confidence conf and --correct NAME" in err
    assert "=" not in err


def test_too_few_samples_to_decide_a_fail_if_condition_are_an_error(calibrant, tmp_path):
    save(TopLabel([0.9, 0.8, 0.7], [True, False, True]), tmp_path / "three.csv")
    code, out, _ = calibrant("evaluate", tmp_path / "three.csv", "--resamples", 100)
    assert code == 0
    assert "nan" not in out
    code, _, err = calibrant("evaluate", tmp_path / "three.csv", "--resamples", 100, "--fail-if", "ece>0.1")
    assert code == 2
    assert "too few samples" in err
    assert calibrant("evaluate", tmp_path / "three.csv", "--resamples", 100, "--fail-if", "ece>0.9", "--point")[0] == 0


def test_a_true_class_of_probability_zero_is_noted(calibrant, tmp_path):
    save(Predictions.from_probs([[1.0, 0.0], [0.5, 0.5]] * 10, [0, 1] * 10), tmp_path / "fine.npz")
    np.savez(tmp_path / "zero.npz", probs=[[1.0, 0.0], [0.5, 0.5]] * 10, labels=[1, 1] * 10)
    code, _, err = calibrant("evaluate", tmp_path / "zero.npz", "--resamples", 100)
    assert code == 0
    assert "note: 10 of 20 true classes were given probability 0" in " ".join(err.split())


def test_the_modules_of_torch_are_never_searched_for_garbage(files):
    code = (
        "import gc\n"
        "from calibrant.cli.main import app\n"
        "try: app()\n"
        "finally: assert gc.isenabled() and gc.get_freeze_count() > 100_000, gc.get_freeze_count()\n"
    )
    command = [sys.executable, "-c", code, "evaluate", str(files / "model.npz"), "--resamples", "100"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "command",
    [
        "evaluate {0} --resamples 100",
        "compare {0} {0} --methods temperature --resamples 100",
        "fit temperature {0} -o {1}",
    ],
    ids=["evaluate", "compare", "fit"],
)
@pytest.mark.filterwarnings("ignore::calibrant.errors.CalibrantWarning")
def test_a_small_file_is_read_on_one_thread_and_others_keep_theirs(calibrant, files, tmp_path, monkeypatch, command):
    asked, set_threads = [], torch.set_num_threads
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: (asked.append(threads), set_threads(threads)))
    before = torch.get_num_threads()
    words = command.format(files / "model.npz", tmp_path / "map.safetensors").split()
    assert calibrant(*words)[0] == 0
    assert asked == [1, before]
    assert torch.get_num_threads() == before


@pytest.mark.skipif(sys.platform == "win32", reason="a signal to itself ends a process there")
def test_ctrl_c_while_torch_is_imported_waits_for_the_import(tmp_path):
    # As torch does, whose import of NumPy continues without what was interrupted.
    fake = """
import os, signal, time
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.2)
except KeyboardInterrupt:
    raise AttributeError("half a module") from None
"""
    (tmp_path / "torch.py").write_text(fake)
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    command = [sys.executable, "-m", "calibrant", "evaluate", "test.csv"]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "calibrant: interrupted; no partial files were left.\n")


def test_help_is_quick_and_loads_no_torch():
    code = "import sys, calibrant.cli.main; print([m for m in ('torch', 'numpy', 'rich.table') if m in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "[]"
    process = subprocess.Popen([sys.executable, "-m", "calibrant", "--help"], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    assert used.ru_utime + used.ru_stime < 5  # seconds of a processor, which others on it do not lengthen


@pytest.mark.parametrize(
    "command",
    [
        ("compare", "a.npz", "b.npz"),
        ("evaluate", "a.npz"),
        ("demo",),
        ("train", "--dataset", "digits", "-o", "out"),
        ("diagnose", "out"),
        ("clamp", "--model", "a:b", "--data", "a.npz", "--test", "b.npz", "-o", "out"),
    ],
    ids=lambda command: command[0],
)
@pytest.mark.parametrize("seed", [-1, 2**63])
def test_a_seed_that_no_generator_takes_is_refused_before_anything_is_read(calibrant, command, seed):
    code, _, err = calibrant(*command, "--seed", seed)
    assert code == 2
    assert "--seed" in err


@pytest.mark.parametrize("bins", [0, MOST_BINS + 1])
@pytest.mark.parametrize("command", [("compare", "a.npz", "b.npz"), ("evaluate", "a.npz"), ("diagnose", "out")])
def test_bins_follow_the_rule_of_n_bins(calibrant, command, bins):
    code, _, err = calibrant(*command, "--bins", bins)
    assert code == 2
    assert "--bins" in err
    predictions = Predictions([[1.0, 0.0]] * 4, [0, 1, 0, 1])
    for metric in (ece, sce, ace):
        with pytest.raises(InputError, match="n_bins must be at"):
            metric(predictions, n_bins=bins)
    for method in (HistogramBinning, TemperatureScaling):
        with pytest.raises(InputError, match="n_bins must be at"):
            method(n_bins=bins)
    code, _, err = calibrant(*command, "--bins", MOST_BINS)
    assert (code, "--bins" in err) == (2, False)  # the files are missing


def test_list_names_every_corruption_with_its_strengths(calibrant):
    code, out, err = calibrant("list", "corruptions")
    assert code == 0, err
    assert "gaussian_noise" in out
    assert "jpeg_compression" in out


def test_list_names_every_metric_and_cite_knows_them(calibrant):
    code, out, _ = calibrant("list", "metrics")
    assert code == 0
    for name in ("ece", "auroc", "skce", "e_aurc"):
        assert name in out
    code, out, _ = calibrant("cite", "ece")
    assert code == 0
    assert "arXiv:1706.04599" in out
    assert "@inproceedings{guo2017on" in out
    assert calibrant("cite", "nothing")[0] == 2


def test_cite_knows_losses_networks_and_data_sets(calibrant):
    for name, authors in {
        "inverse_focal": ["Wang"],
        "entropy": ["Tang", "Pereyra"],  # the metric of Neural Clamping, and the loss
        "mmce(base=focal)": ["Kumar", "Lin et al."],
        "resnet110": ["He et al."],
        "cifar100": ["Krizhevsky"],
        "mixup": ["Zhang"],
        "neural_clamping": ["Tang"],
        "confidnet": ["Corbière"],
        "trust_score": ["Jiang"],
    }.items():
        code, out, err = calibrant("cite", name)
        assert code == 0, err
        assert all(author in out for author in authors), out
    code, out, _ = calibrant("cite", "ece", "temperature", "svs", "isotonic", "temperature+isotonic")
    assert code == 0
    assert all(out.count(name) == 1 for name in ("@inproceedings{guo2017on,", "@misc{berta2025structured,"))
    code, _, err = calibrant("cite", "digits_cnn")
    assert (code, "comes from none" in err) == (2, True)


COMMANDS = typer.main.get_command(app).commands


@pytest.mark.parametrize("name", COMMANDS)
def test_help_explains_every_option_fits_80_columns_and_ends_with_examples(calibrant, name):
    code, out, _ = calibrant(name, "--help", COLUMNS="80")
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    assert not re.search(r"<\w+>|\d{8,}|[a-z]\.\.\.\n|[a-z]…\n", out)  # no <bool>, no 2^63, nothing cut
    for parameter in COMMANDS[name].params:
        assert parameter.help.endswith((".", "…"))
        assert parameter.opts[-1] in out or parameter.metavar in out
    assert f"\nExamples:\n  calibrant {name}" in out


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_of_the_help_are_commands_that_can_be_parsed(name):
    lines = COMMANDS[name].epilog.replace("\\\n", " ").splitlines()
    assert lines
    for line in lines:
        program, command, *arguments = shlex.split(line)
        assert (program, command) == ("calibrant", name)
        COMMANDS[name].make_context(name, arguments)


def test_the_list_of_commands_fits_80_columns_and_cuts_nothing(calibrant):
    code, out, _ = calibrant("--help", COLUMNS="80")
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    assert not re.search(r"[a-z]\.\.\.\n", out)
    assert all(f"\n  {name} " in out for name in COMMANDS)


def test_an_error_is_one_line_in_a_log_and_breaks_between_words_on_a_terminal(calibrant, monkeypatch, tmp_path):
    (tmp_path / "p.csv").write_text("cat,dog,species\n0.5,0.5,cat\n")
    code, _, logged = calibrant("evaluate", tmp_path / "p.csv", COLUMNS="60")
    assert (code, logged.count("\n")) == (2, 1)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    code, _, shown = calibrant("evaluate", tmp_path / "p.csv", COLUMNS="60")
    assert code == 2
    text = shown[shown.index("calibrant:") :]
    assert all(len(line) <= 60 for line in text.splitlines() if " " in line)
    assert text.split() == logged.split()


def test_the_width_of_piped_output_is_that_of_columns_or_120(calibrant):
    for columns in (80, 100):
        code, out, _ = calibrant("list", "metrics", COLUMNS=str(columns))
        assert code == 0
        assert columns - 20 <= max(map(len, out.splitlines())) <= columns
    code, out, _ = calibrant("list", "metrics", COLUMNS="")
    assert 100 < max(map(len, out.splitlines())) <= 120


def test_the_version_can_be_asked(calibrant):
    code, out, _ = calibrant("--version")
    assert (code, out.split()[0]) == (0, "calibrant")


def test_thresholds_for_error_rates_are_in_the_terminal_and_in_json_in_memory_and_streamed(calibrant, tmp_path):
    generator = torch.Generator().manual_seed(0)
    confidence = (torch.rand(4000, generator=generator, dtype=torch.float64) * 100).floor() / 100
    right = torch.rand(4000, generator=generator) < confidence
    rows = [f"{float(c):.2f},{int(y)},{1 + i % 2}" for i, (c, y) in enumerate(zip(confidence, right, strict=True))]
    path = tmp_path / "p.csv"
    path.write_text("\n".join(["confidence,correct,w", *rows]) + "\n")
    for weights in ([], ["--weights", "w"]):
        points = []
        for reading in ([], ["--stream"]):
            code, out, err = calibrant(
                "evaluate", path, "--error-rate", 0.1, "--error-rate", 0.0001, "--resamples", 100, *weights, *reading,
                "--json", tmp_path / "e.json",
            )  # fmt: skip
            assert code == 0, err
            assert "0.01 % guaranteed none" in " ".join(out.split())
            points.append(json.loads((tmp_path / "e.json").read_text())["operating_points"])
        assert [one["is_guaranteed"] for one in points[0]] == [False, True, False, True]
        assert points[0][3]["threshold"] is None
        for exact, streamed in zip(*points, strict=True):
            assert streamed["coverage"] == pytest.approx(exact["coverage"])
        if not weights:
            for one in points[0][:2]:
                accepted = confidence >= one["threshold"]
                assert float(accepted.double().mean()) == pytest.approx(one["coverage"])
                assert float((~right[accepted]).double().mean()) == pytest.approx(one["error"])
    for reading in ([], ["--stream"]):
        options = ("--error-rate", 0.1, "--by", "w", "--resamples", 100, *reading, "--json", tmp_path / "e.json")
        code, out, err = calibrant("evaluate", path, *options)
        assert code == 0, err
        assert "Thresholds by w" in out
        assert "one may be above" in " ".join(out.split())
        slices = json.loads((tmp_path / "e.json").read_text())["slices"]
        assert [len(one["operating_points"]) for one in slices] == [2, 2]
        assert {one["value"]: one["n"] for one in slices} == {"1": 2000, "2": 2000}
    assert calibrant("evaluate", path, "--error-rate", 5)[0] == 2


@pytest.mark.parametrize("reading", [[], ["--stream"]])
def test_a_rate_that_guessing_the_most_frequent_class_keeps_to_is_said_to_be_so(calibrant, tmp_path, reading):
    path = tmp_path / "p.csv"
    # Of 100 samples, 4 are positive, and all are predicted as negative: 4 % are wrong, as by guessing.
    rows = [f"{0.01 + 0.001 * i},{int(i % 25 == 0)},{1 + i % 25 // 24}" for i in range(100)]
    path.write_text("\n".join(["p,y,w", *rows]) + "\n")
    options = ("--positive", "p", "--labels", "y", "--resamples", 100, *reading, "--json", tmp_path / "e.json")
    out = " ".join(calibrant("evaluate", path, *options, "--error-rate", 0.05)[1].split())
    assert "No threshold is needed for 5 %: of all samples, 4.00 % are wrong." in out
    assert "Always predicting class 0, the most frequent class, is wrong for 4.00 %. So such a rate is met" in out
    assert "≥ 0.0" not in out
    assert json.loads((tmp_path / "e.json").read_text())["majority"] == {"label": 0, "name": None, "share": 0.96}
    assert "No threshold is needed" not in calibrant("evaluate", path, *options, "--error-rate", 0.03)[1]
    calibrant("evaluate", path, *options, "--weights", "w")
    share = json.loads((tmp_path / "e.json").read_text())["majority"]["share"]
    assert share == pytest.approx(100 / 104)


def test_json_on_standard_output_stands_there_alone(calibrant, files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = calibrant("evaluate", files / "model.npz", "--resamples", 100, "--json", "-", "--fail-if", "ece>0")
    assert code == 1
    assert json.loads(out)["n"] == 400
    assert "Calibration report" in err
    assert "--fail-if ece > 0" in err
    code, out, err = calibrant("evaluate", files / "model.npz", "--resamples", 100, "--markdown", "-")
    assert (code, out) == (2, "")
    assert "standard output" in err
    assert not (tmp_path / "-").exists()


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
def test_output_that_cannot_hold_every_sign_has_others_like_them(calibrant, tmp_path, monkeypatch, encoding):
    table = "prob_北,prob_naïve,label\n" + "0.9,0.1,naïve\n0.2,0.8,naïve\n" * 30
    (tmp_path / "odd.csv").write_text(table, encoding="utf-8")
    evaluate = ("evaluate", tmp_path / "odd.csv", "--resamples", 100, "--full")
    for more in ([], ["--json", "-"]):
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
        assert calibrant(*evaluate, *more)[0] == 0
        sys.stdout.flush()
        text = sys.stdout.buffer.getvalue().decode(encoding)
        if more:
            assert "北" in json.dumps(json.loads(text), ensure_ascii=False)
        else:
            name, arrow = ("北", "→") if encoding == "utf-8" else ("\\u5317", ">")
            assert name in text
            assert f"\n{arrow} No sample is" in text


def test_without_a_standard_output_a_command_works(calibrant, files, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    assert calibrant("evaluate", files / "model.npz", "--resamples", 100, "--json", tmp_path / "r.json")[0] == 0
    assert json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))["n"] == 400


def test_a_pipe_is_refused_as_one(calibrant, tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    for name in ("-", tmp_path / "pipe.csv"):
        code, _, err = calibrant("evaluate", name)
        assert code == 2
        assert "is a pipe" in err


@pytest.fixture
def sure(tmp_path):
    """A folder with files of an overconfident model, whose names and columns must be quoted, and of confidences."""
    rng = np.random.default_rng(0)
    logits = 3 * rng.normal(size=(1200, 3))
    labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(1)
    percent = np.exp(logits) / np.exp(logits).sum(1, keepdims=True) * 100
    lines = [";".join([*(f"{p:.4f}" for p in row), f"{y}", ("cal", "the test")[n % 2]])
             for n, (row, y) in enumerate(zip(percent, labels, strict=True))]  # fmt: skip
    for name, some in {"it's sure": lines, "half 1": lines[::2], "half 2": lines[1::2]}.items():
        (tmp_path / f"{name}.csv").write_text("a;b;c;who is;part of\n" + "\n".join(some) + "\n")
    rows = [f"{p:.3f},{int(rng.random() < p / 2)},{1 + n % 2}" for n, p in enumerate(rng.random(2000))]
    (tmp_path / "sure.csv").write_text("my p,is it,w\n" + "\n".join(rows) + "\n")
    return tmp_path


_SURE = ("--probs", "--scores", "a:c", "--labels", "who is", "--percent", "--separator", ";", "--normalise")
_SPLIT = ("--split", "part of=cal,the test")
_CONFIDENCES = ("--top-label", "--confidence", "my p", "--correct", "is it", "--weights", "w")


@pytest.mark.parametrize(
    ("name", "options", "samples"),
    [
        ("it's sure.csv", _SURE, "1,200 samples in 5 folds"),
        ("it's sure.csv", (*_SURE, *_SPLIT), "600 calibration samples, 600 test samples"),
        ("sure.csv", _CONFIDENCES, "2,000 samples"),
        ("half *.csv", _SURE, "1,200 samples in 5 folds"),
    ],
)
def test_the_advice_to_compare_methods_ends_with_a_command_that_runs(calibrant, sure, name, options, samples):
    code, out, err = calibrant("evaluate", sure / name, *options, "--resamples", 100)
    assert code == 0, err
    (line,) = [line for line in out.splitlines() if line.startswith("  calibrant compare ")]
    code, out, err = calibrant(*shlex.split(line)[1:], "--methods", "platt", "--resamples", 100)
    assert code == 0, err
    assert samples in out


def test_no_command_is_advised_for_what_compare_does_not_take(calibrant, sure):
    file = sure / "it's sure.csv"
    assert calibrant("state", file, "-o", sure / "sure.state", *_SURE)[0] == 0
    for given in (
        (sure / "half 1.csv", sure / "half 2.csv", *_SURE),
        (file, "--stream", *_SURE),
        (sure / "sure.state",),
    ):
        code, out, err = calibrant("evaluate", *given, "--resamples", 100)
        assert code == 0, err
        assert "calibrant compare tests whether" in " ".join(out.split())
        assert "  calibrant compare " not in out
    code, out, err = calibrant("evaluate", file, "--stream", *_SURE, *_SPLIT, "--resamples", 100)
    assert (code, out.count("  calibrant compare ")) == (0, 1), err


@pytest.fixture(scope="module")
def risks(tmp_path_factory):
    """Two files of a probability of the positive class, half as large as it should be."""
    folder, rng = tmp_path_factory.mktemp("risks"), np.random.default_rng(0)
    for name in ("cal.csv", "test.csv"):
        p = rng.beta(1, 9, size=1500)
        rows = [f"{one:.6g},{int(rng.random() < 2 * one)}" for one in p]
        (folder / name).write_text("risk,y\n" + "\n".join(rows) + "\n")
    return folder


RISK = ("--probs", "--positive", "risk", "--labels", "y", "--resamples", "100")


def test_two_classes_are_evaluated_by_the_probability_of_the_positive_one(calibrant, risks, tmp_path):
    page = tmp_path / "page.json"
    files = ("--figures", tmp_path / "figures", "--html", tmp_path / "page.html", "--json", page)
    asked = ("--threshold", "0.1", "--threshold", "0.3")
    code, out, err = calibrant("evaluate", risks / "test.csv", *RISK, *asked, *files)
    assert (code, err) == (0, "")
    assert "too low: the probability of class 1" in out
    report = json.loads(page.read_text())
    assert [one["threshold"] for one in report["decisions"]] == [0.1, 0.3]
    assert report["risk"]["ratio"]["low"] > 1.5
    assert len(report["risk"]["tenths"]) == 10
    assert {"risk.png", "decisions.png"} <= {path.name for path in (tmp_path / "figures").iterdir()}


def test_methods_are_compared_by_their_net_benefit(calibrant, risks, tmp_path):
    page = tmp_path / "page.json"
    options = ("--threshold", "0.2", "--methods", "platt", "--json", page, "--figures", tmp_path)
    assert calibrant("compare", risks / "cal.csv", risks / "test.csv", *RISK, *options)[0] == 0
    methods = {one["name"]: one for one in json.loads(page.read_text())["methods"]}
    gain = methods["platt"]["decisions"][0]["to_baseline"]
    assert gain["low"] > 0
    assert methods["uncalibrated"]["decisions"][0]["to_baseline"]["value"] == 0
    assert (tmp_path / "decisions.png").exists()


@pytest.mark.parametrize("wrong", ["evaluate {0} --threshold 5", "compare {0} {0} --threshold 10 --stream"])
def test_thresholds_that_cannot_be_are_refused(calibrant, risks, wrong):
    code, _, err = calibrant(*wrong.format(risks / "test.csv").split(), *RISK)
    assert code == 2
    assert "--threshold" in err
    assert "must" in err


def test_streamed_samples_have_decisions(calibrant, risks, tmp_path):
    page = tmp_path / "page.json"
    asked = ("--threshold", "0.1", "--stream", "--json", page)
    assert calibrant("evaluate", risks / "test.csv", *RISK, *asked)[0] == 0
    report = json.loads(page.read_text())
    assert report["decisions"][0]["net_benefit"]["value"] > 0
    assert report["line"]["slope"]["value"] > 0


def test_lines_that_go_into_a_log_are_not_cut(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    standard_error().print("digits_cnn-ce-seed0 epoch 1 of 6: test accuracy 0.960, loss 0.151, ece 0.038")
    assert capsys.readouterr().err.count("\n") == 1
