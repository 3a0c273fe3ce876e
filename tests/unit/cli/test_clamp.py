"""``calibrant clamp`` as a person meets it: what it leaves, what it prints, how it resumes, what it refuses."""

import json
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import save_model
from torch import nn

from calibrant.clamping import ClampedModel, NetworkPredictions, NeuralClamping, load_clamped, save_clamped
from calibrant.files import load
from calibrant.metrics import nll
from calibrant.predictions import Predictions
from calibrant.studio import api

LEFT = [
    "after.npz",
    "before.npz",
    "charts.json",
    "clamped.safetensors",
    "report.json",
    "report.md",
    "settings.json",
    "temperature.npz",
]
MODULE = """
import torch
from torch import nn


def build():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


class Sure(nn.Module):
    def forward(self, inputs):
        return inputs[:, :3].softmax(1)
"""


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).eval()


def rows(n, shift, seed):
    """Inputs, and labels that a hotter network would give that is fed something else by so much."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(n, 6, generator=generator)
    with torch.no_grad():
        truth = 3 * network()(inputs + shift)
    return inputs, truth.softmax(dim=1).multinomial(1, generator=generator)[:, 0]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    (folder / "clamp_net.py").write_text(MODULE)
    save_model(network(), folder / "weights.safetensors")
    for name, shift, n, seed in (
        ("cal", 1.0, 400, 1),
        ("test", 1.0, 600, 2),
        ("fine-cal", 0, 400, 3),
        ("fine", 0, 600, 4),
    ):
        inputs, labels = rows(n, shift, seed)
        np.savez(folder / f"{name}.npz", inputs=inputs.numpy(), labels=labels.numpy())
    return folder


@pytest.fixture
def clamp(calibrant, files, monkeypatch):
    """The command in the folder of the files, quickly: exit code, standard output and standard error."""
    monkeypatch.chdir(files)
    monkeypatch.syspath_prepend(str(files))

    def run_command(out, *more, model="clamp_net:build", data="cal.npz", test="test.npz", **environment):
        weights = ["--weights", "weights.safetensors"] if model == "clamp_net:build" and "--weights" not in more else []
        given = ["--model", model, *weights, "--data", data, "--test", test, "-o", out, "--device", "cpu", *more]
        return calibrant("clamp", *given, *([] if "--resamples" in more else ["--resamples", 100]), **environment)

    return run_command


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_shift_of_all_inputs_is_found_and_undone(clamp, tmp_path):
    out = tmp_path / "out"
    code, told, err = clamp(out, "--strength", "0.03,0.001", "--html", tmp_path / "clamp.html")
    assert code == 0, err
    assert "δ helps: it lowers the log-loss from" in told
    lines = [line for line in told.splitlines() if "calibrant evaluate" not in line]  # a command stays in one piece
    assert max(map(len, lines)) <= 120
    assert names(out) == LEFT
    before, temperature, after = (load(out / f"{name}.npz") for name in ("before", "temperature", "after"))
    inputs, labels = rows(600, 1.0, 2)
    with torch.no_grad():
        truth = Predictions.from_logits(3 * network()(inputs + 1.0), labels)
        assert torch.allclose(before.logits, network()(inputs))
        clamped = load_clamped(out / "clamped.safetensors", network())
        assert torch.allclose(clamped(inputs), after.logits)
    assert nll(after) < nll(truth) + 0.02 < nll(temperature) < nll(before)

    report = json.loads((out / "report.json").read_text())
    shown = api.clamped({"path": str(out), "name": "out"}, progress=lambda *_: None)
    assert shown["parts"]["both"]["nll"]["value"] == report["methods"][2]["metrics"]["nll"]["value"]
    moved = after.with_logits(after.logits * clamped.temperature)
    assert shown["parts"]["delta"]["nll"]["value"] == pytest.approx(nll(moved))
    assert [trial["change"] for trial in shown["path"][1:]] == [trial.change for trial in clamped.summary.trials]
    assert report["schema"] == "calibrant.clamping/1"
    assert [method["name"] for method in report["methods"]] == ["uncalibrated", "temperature", "clamped"]
    assert set(report["methods"][2]["metrics"]) == {"accuracy", "nll", "ece", "ace", "brier", "auroc"}
    assert report["methods"][2]["metrics"]["nll"]["value"] == pytest.approx(float(nll(after)))
    assert report["methods"][2]["differences"]["temperature"]["nll"]["side"] == "better"
    assert [trial["strength"] for trial in report["fit"]["trials"]] == [0.03, 0.001]
    assert report["delta"]["norm"] == pytest.approx(float(clamped.delta.norm()))
    page = (out / "report.md").read_text()
    assert page.startswith("# Neural Clamping: cal.npz → test.npz\n\n**δ helps")
    assert "**0.001** ←" in page
    html = (tmp_path / "clamp.html").read_text()
    assert 'id="calibrant-data"' in html
    assert "<p>cal.npz: <code>sha256:" in html


@pytest.mark.parametrize(
    ("more", "with_delta", "runs"),
    [(("--strength", 0.01), "clamped", 1), (("--preset", "toolkit"), "TS on δ*", 2)],
    ids=["solved", "descended"],
)
def test_delta_is_evaluated_at_the_best_temperature_and_refitted_only_where_that_is_needed(
    clamp, tmp_path, monkeypatch, more, with_delta, runs
):
    counted, run = [], NetworkPredictions.predictions_of
    monkeypatch.setattr(NetworkPredictions, "predictions_of", lambda *given: counted.append(given) or run(*given))
    code, told, err = clamp(tmp_path / "out", *more)
    assert (code, len(counted)) == (0, runs), err
    effect = json.loads((tmp_path / "out" / "report.json").read_text())["delta"]["effect"]
    assert (effect["with"], effect["without"]) == (with_delta, "temperature")
    assert effect["changes"]["nll"]["side"] == "better"
    assert f"{with_delta} − temperature" in told


def test_where_inputs_are_as_they_should_be_the_answer_is_a_temperature(clamp, tmp_path):
    out = tmp_path / "out"
    code, told, err = clamp(out, "--strength", "1,0.1", data="fine-cal.npz", test="fine.npz")
    assert code == 0, err
    assert "δ does not help here: use temperature scaling (T = 0.3" in told
    assert "**∞ (δ = 0)** ←" in (out / "report.md").read_text()
    assert not load_clamped(out / "clamped.safetensors").delta.any()
    temperature, after = (load(out / f"{name}.npz") for name in ("temperature", "after"))
    assert torch.allclose(temperature.logits, after.logits, atol=1e-4)
    methods = json.loads((out / "report.json").read_text())["methods"]
    assert set(methods[2]["differences"]) == {"uncalibrated"}  # from temperature scaling it does not differ


def test_what_it_leaves_is_what_the_library_gives(clamp, tmp_path):
    assert clamp(tmp_path / "out", "--strength", 0.01, "--seed", 3)[0] == 0
    left = load_clamped(tmp_path / "out" / "clamped.safetensors")
    fitted = NeuralClamping(strength=0.01, seed=3).fit(network(), rows(400, 1.0, 1))
    assert torch.equal(left.delta, fitted.delta)
    assert left.temperature == fitted.temperature
    assert left.summary.settings == fitted.summary.settings | {"gamma": 0.0}


def test_everything_can_be_written_at_once(clamp, tmp_path):
    summary = tmp_path / "summary.md"
    code, told, err = clamp(
        tmp_path / "out", "--strength", 0.01, "--bins", 10, "--seed", 3, "--json", tmp_path / "r.json", "--markdown",
        tmp_path / "r.md", "--figures", tmp_path / "figures", "--figure-format", "svg", "--theme", "dark",
        "--with-weights", "--head", "svs", GITHUB_STEP_SUMMARY=str(summary),
    )  # fmt: skip
    assert code == 0, err
    assert names(tmp_path / "out") == [name for name in LEFT if not name.startswith("report")]
    report = json.loads((tmp_path / "r.json").read_text())
    assert (report["bins"], report["seed"], report["head"]) == (10, 3, "svs")
    assert [method["name"] for method in report["methods"]] == ["uncalibrated", "temperature", "svs", "clamped"]
    assert set(report["methods"][3]["differences"]) == {"uncalibrated", "temperature", "svs"}
    assert names(tmp_path / "figures") == ["before_and_after.svg"]  # rows of six numbers are no images
    assert "(figures/before_and_after.svg)" in (tmp_path / "r.md").read_text()
    assert summary.read_text().startswith("# Neural Clamping")
    assert f"calibrant evaluate {tmp_path / 'out' / 'after.npz'}" in told.replace("\n", "")
    torch.manual_seed(9)
    other = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    load_clamped(tmp_path / "out" / "clamped.safetensors", other)  # which gets the weights in the file
    assert torch.equal(other[0].weight, network()[0].weight)


def test_a_finished_fit_is_evaluated_again_and_not_fitted_again(clamp, tmp_path, monkeypatch):
    out = tmp_path / "out"
    code, first, err = clamp(out, "--strength", 0.01)
    assert code == 0, err
    written = (out / "clamped.safetensors").stat().st_mtime_ns
    monkeypatch.setattr(NeuralClamping, "fit", None)
    code, again, err = clamp(out, "--strength", 0.01)
    assert (code, again) == (0, first)
    assert "holds a finished fit" in " ".join(err.split())
    assert (out / "clamped.safetensors").stat().st_mtime_ns == written
    code, _, err = clamp(out, "--strength", 0.02)
    assert code == 2
    assert "strength 0.02, not 0.01" in err
    code, _, err = clamp(out, "--strength", 0.01, data="fine-cal.npz")
    assert (code, "data '" in err) == (2, True)


def test_a_killed_fit_resumes_and_ends_where_it_would_have(clamp, tmp_path, monkeypatch):
    command = ("--strength", "0.1,0.01,0.001")
    assert clamp(tmp_path / "whole", *command)[0] == 0
    fit = NeuralClamping.fit

    def killed(self, model, data, *, folder, **_):
        def pull_the_plug(what, _):
            if "λ = 0.01" in what:
                raise KeyboardInterrupt

        return fit(self, model, data, folder=folder, progress=pull_the_plug)

    monkeypatch.setattr(NeuralClamping, "fit", killed)
    code, _, err = clamp(tmp_path / "stopped", *command)
    assert (code, "resumes from what was computed so far" in err) == (130, True)
    assert [name for name in names(tmp_path / "stopped") if not name.endswith(".journal")] == ["settings.json"]
    assert len(names(tmp_path / "stopped")) == 6  # the five folds of the first strength
    monkeypatch.setattr(NeuralClamping, "fit", fit)
    assert clamp(tmp_path / "stopped", *command)[0] == 0
    assert names(tmp_path / "stopped") == LEFT
    whole, stopped = (load_clamped(tmp_path / name / "clamped.safetensors") for name in ("whole", "stopped"))
    assert torch.equal(whole.delta, stopped.delta)


def test_a_kill_between_the_fit_and_its_saving_loses_nothing(clamp, tmp_path, monkeypatch):
    command, out, steps = ("--strength", "0.1,0.01"), tmp_path / "stopped", []
    fit = NeuralClamping.fit

    def counted(self, model, data, *, progress, **more):
        steps.append(0)

        def counting(what, passes):
            steps[-1] += "λ" in what
            progress(what, passes)

        return fit(self, model, data, progress=counting, **more)

    def killed(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(NeuralClamping, "fit", counted)
    monkeypatch.setattr("calibrant.clamping.save_clamped", killed)
    assert clamp(out, *command)[0] == 130
    assert "final.journal" in names(out)
    monkeypatch.setattr("calibrant.clamping.save_clamped", save_clamped)
    assert clamp(out, *command)[0] == 0
    assert steps[1] == 0 < steps[0]
    assert names(out) == LEFT
    clamp(tmp_path / "whole", *command)
    whole, stopped = (load_clamped(tmp_path / name / "clamped.safetensors") for name in ("whole", "stopped"))
    assert torch.equal(whole.delta, stopped.delta)


def test_a_kill_between_saving_and_forgetting_leaves_nothing_either(clamp, tmp_path):
    out = tmp_path / "out"
    assert clamp(out, "--strength", "0.01")[0] == 0
    (out / "final.journal").write_text("left")
    assert clamp(out, "--strength", "0.01")[0] == 0
    assert names(out) == LEFT


def test_a_fit_that_cannot_be_leaves_nothing_in_the_way(clamp, files, tmp_path):
    inputs, _ = rows(50, 0.0, 5)
    with torch.no_grad():
        right = network()(inputs).argmax(dim=1)
    np.savez(files / "right.npz", inputs=inputs.numpy(), labels=right.numpy())
    code, out, err = clamp(tmp_path / "out", "--strength", "inf", data="right.npz")
    assert (code, out) == (2, "")
    assert "with some wrong predictions" in err
    assert not (tmp_path / "out").exists()


def test_a_folder_of_something_else_is_refused_and_kept(clamp, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    code, _, err = clamp(tmp_path)
    assert (code, "it holds something else" in err) == (2, True)
    code, _, err = clamp(tmp_path / "mine.txt")
    assert (code, "is a file" in err) == (2, True)
    (tmp_path / "settings.json").write_text("{}")
    code, _, err = clamp(tmp_path)
    assert (code, "must be the settings of a fit by calibrant clamp" in err) == (2, True)
    assert names(tmp_path) == ["mine.txt", "settings.json"]


def test_arrays_of_other_names_and_types_are_taken(clamp, files, tmp_path):
    inputs, labels = rows(400, 1.0, 1)
    np.savez(files / "wide.npz", x=inputs.double().numpy(), y=labels.to(torch.int8).numpy())
    assert clamp(tmp_path / "plain", "--strength", "inf")[0] == 0
    more = ("--inputs", "x", "--labels", "y", "--strength", "inf")
    code, _, err = clamp(tmp_path / "other", *more, data="wide.npz", test="wide.npz")
    assert (code, "also calibration samples" in " ".join(err.split())) == (0, True)
    plain, other = (load_clamped(tmp_path / name / "clamped.safetensors") for name in ("plain", "other"))
    assert plain.temperature == other.temperature


def test_presets_and_options_reach_the_method(clamp, tmp_path, monkeypatch):
    asked = []

    def fit(self, model, data, **_):
        asked.append(self)
        return ClampedModel(
            model, torch.zeros(6), self.head.fit(Predictions.from_logits(model(data_of(data)), data.labels))
        )

    def data_of(data):
        return torch.cat([inputs for inputs, _ in data.batches(device="cpu")])

    monkeypatch.setattr(NeuralClamping, "fit", fit)
    monkeypatch.setattr("calibrant.clamping.evaluate_clamping", lambda *_, **__: sys.exit(0))
    for place, more in enumerate(
        (
            ("--preset", "paper", "--gamma", "0,0.5,1", "--start", "random:0.1", "--seed", 4),
            ("--preset", "toolkit", "--strength", "tenth-as-term"),
            ("--delta-shape", "channel", "--start", "data-driven", "--low", -9, "--high", 9, "--strength", 2, "--clip"),
            (
                "--mean",
                "0.5",
                "--std",
                "0.1",
                "--low",
                -99,
                "--high",
                99,
                "--batch-size",
                7,
                "--gamma",
                2,
                "--strength",
                "inf",
            ),
        )
    ):
        assert clamp(tmp_path / str(place), *more)[0] == 0
    paper, toolkit, free, spaced = asked
    assert paper == NeuralClamping.paper_protocol(gamma=(0.0, 0.5, 1.0), start=paper.start, seed=4)
    assert (paper.start.scale, toolkit.strength, toolkit.penalty) == (0.1, "tenth-as-term", "norm")
    assert (type(free.delta_shape).__name__, free.start.name, free.strength) == ("PerChannel", "data-driven", 2.0)
    assert (free.space.low, free.space.high, free.space.clips) == (-9, 9, True)
    assert (spaced.space.mean, spaced.space.std, spaced.batch_size, spaced.gamma) == ((0.5,), (0.1,), 7, 2.0)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--strength", "much"], ["--strength must be", "tenth-as-term; got 'much'"]),
        (["--strength", "tenth-as-term"], ["--strength tenth-as-term divides", "a start that is not 0"]),
        (["--gamma", "0,1"], ["--gamma must be one number, except with --preset paper"]),
        (["--gamma", "1", "--head", "svs"], ["gamma must be 0 with the head svs"]),
        (["--head", "svz"], ["Did you mean svs?"]),
        (["--delta-shape", "chanel"], ["Did you mean channel?"]),
        (["--delta-shape", "full:2"], ["a whole number after low-frequency:"]),
        (["--delta-shape", "low-frequency"], ["low frequencies need images"]),
        (["--start", "radom"], ["Did you mean random?"]),
        (["--start", "random:much"], ["the scale of --start random: must be a number"]),
        (["--start", "data-driven", "--strength", "1"], ["--low and --high", "data-driven:quantile"]),
        (["--augmentation", "flip"], ["none, crop, crop-flip"]),
        (["--preset", "papr"], ["Did you mean paper?"]),
        (["--preset", "paper", "--head", "svs"], ["--head and --delta-shape must be left out with --preset paper"]),
        (["--preset", "toolkit", "--strength", "path"], ["cannot be cross-validated"]),
        (["--mean", "grey"], ["--mean must be a number"]),
        (["--low", "3", "--high", "2"], ["low must be below high"]),
        (["--low", "0"], ["cal.npz: inputs must lie in the space's range, 0 to 1"]),
        (["--pixels"], ["cal.npz: inputs must be stored as uint8 for --pixels"]),
        (["--device", "gpu"], ["--device must be one that torch can use here"]),
        (["--batch-size", "0"], ["--batch-size"]),
        (["--seed", "-1"], ["'--seed'"]),
        (["--seed", str(2**63)], ["'--seed'"]),
        (["--bins", str(2**63)], ["'--bins'"]),
        (["--theme", "pink"], ["light, dark"]),
        (["--json", "nowhere/r.json"], ["there is no folder nowhere"]),
    ],
)
def test_bad_options_are_reported_in_one_line_exit_with_2_and_leave_nothing(clamp, tmp_path, more, said):
    code, out, err = clamp(tmp_path / "out", *more)
    assert (code, out) == (2, "")
    assert "Traceback" not in err
    assert all(word in err for word in said), err
    assert not (tmp_path / "out").exists()


def test_bad_files_are_reported_in_one_line_and_named(clamp, files, tmp_path):
    inputs, labels = (values.numpy() for values in rows(20, 1.0, 1))
    np.savez(files / "odd.npz", x=inputs, y=labels)
    np.savez(files / "pixels.npz", inputs=np.zeros((20, 6), dtype=np.uint8), labels=labels)
    np.savez(files / "tokens.npz", inputs=np.zeros((20, 6), dtype=np.int64), labels=labels)
    np.savez(files / "four.npz", inputs=inputs, labels=labels + 1)
    np.savez(files / "wider.npz", inputs=np.hstack([inputs, inputs]), labels=labels)
    np.savez(files / "words.npz", inputs=inputs, labels=np.array(["a", "b", "c"])[labels])
    np.savez(files / "pickled.npz", inputs=np.array([{"a": 1}], dtype=object), labels=[0])
    np.savez(files / "nan.npz", inputs=np.full_like(inputs, np.nan), labels=labels)
    (files / "cut.npz").write_bytes((files / "cal.npz").read_bytes()[:300])
    for name, said in {
        "missing.npz": "must be an existing file",
        "odd.npz": "has x, y. Name the arrays: --inputs NAME",
        "pixels.npz": "Give --pixels to scale 0..255",
        "tokens.npz": "δ has no meaning for tokens",
        "four.npz": "labels must lie in 0..2, as there are 3 classes; got 3",
        "words.npz": "'labels' must be numbers; it is text",
        "pickled.npz": "could run code when read",
        "nan.npz": "must be finite; got nan at row 0",
        "cut.npz": "must be a whole NumPy archive",
        "weights.safetensors": "must end in .npz",
    }.items():
        for which in ({"data": name}, {"test": name}):
            code, out, err = clamp(tmp_path / "out", **which)
            assert (code, out, name in err, said in err, len(err.splitlines())) == (2, "", True, True, 1), err
    code, _, err = clamp(tmp_path / "out", test="wider.npz")
    assert (code, "wider.npz: inputs must have the shape of those in cal.npz, (n, 6); got (n, 12)" in err) == (2, True)
    code, _, err = clamp(tmp_path / "out", data="wider.npz")
    assert (code, "the network must take inputs of shape (n, 12)" in err) == (2, True)
    code, _, err = clamp(tmp_path / "out", model="clamp_net:Sure")
    assert (code, "calibrant: the network must return logits; got probabilities" in err) == (2, True)
    assert not (tmp_path / "out").exists()


def test_an_exported_network_of_a_largest_batch_works_with_batches_as_small(clamp, files, tmp_path):
    shapes = ({0: torch.export.Dim("n", max=64)},)
    torch.export.save(torch.export.export(network(), (torch.rand(2, 6),), dynamic_shapes=shapes), files / "most.pt2")
    code, out, err = clamp(tmp_path / "out", "--strength", "inf", model="most.pt2")
    assert (code, out) == (2, "")
    said = " ".join(err.split())
    assert "the network must take a batch of 400 samples; it takes 16" in said
    assert "Give a smaller batch_size." in said
    code, _, err = clamp(tmp_path / "out", "--strength", "inf", "--batch-size", 64, model="most.pt2")
    assert code == 0, err
    assert "training mode" not in err


def test_a_network_that_mixes_samples_is_reported_once(clamp, files, tmp_path):
    mixing = "\n\ndef mixing():\n    return nn.Sequential(build(), nn.Softmax(dim=0), nn.Linear(3, 3))\n"
    (files / "mixing_net.py").write_text(MODULE + mixing)
    code, _, err = clamp(tmp_path / "out", "--strength", "inf", model="mixing_net:mixing")
    assert code == 0, err
    assert " ".join(err.split()).count("must not depend on the others in its batch") == 1


def test_a_run_has_the_samples_of_its_data_set(calibrant, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    few = ("--epochs", 1, "--batch-size", 64, "--device", "cpu", "--no-compile")
    trained = ("train", "--dataset", "digits", "--model", "digits_cnn", "--train-samples", 300, *few, "-o", "run")
    assert calibrant(*trained)[0] == 0
    options = ("-o", "out", "--strength", "1,0.1", "--resamples", 100, "--device", "cpu")
    code, told, err = calibrant("clamp", "--model", "run", *options)
    assert code == 0, err
    assert "digits calibration → digits test" in told
    before, expected = load("out/before.npz"), load("run/test.npz")
    assert torch.equal(before.labels, expected.labels)
    assert torch.allclose(before.logits, expected.logits, atol=1e-4)
    assert f"{len(load('run/calibration.npz'))} calibration samples" in told
    settings = tmp_path / "run" / "settings.json"
    settings.write_text(settings.read_text().replace('"digits"', '"mine"'))
    for arguments, message in {
        ("--model", "run"): "mine of run is yours",
        ("--model", "run", "--test", "x.npz"): "--data must name inputs",
        ("--model", "torch.nn:Identity()"): "--data and --test must name",
    }.items():
        code, _, err = calibrant("clamp", *arguments, "-o", "other", "--device", "cpu")
        assert code == 2
        assert message in " ".join(err.split())
