"""Fitting a map and using it, from the command line."""

import json

import numpy as np
import pytest
import safetensors.torch
import torch

from calibrant import Predictions, TopLabel, catalogue, load, save
from calibrant.calibrators import TemperatureScaling
from calibrant.files import load_feature_map, load_map, read_map_file, save_map
from calibrant.files.save import WRITERS
from calibrant.maps import Scale

NAMES = ["cat", "dog", "bird"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    made = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(600, 3, generator=made)
    labels = (logits / 2).softmax(1).multinomial(1, generator=made).squeeze()
    both = Predictions.from_logits(logits, labels, class_names=NAMES)
    save(both[:400], folder / "cal.npz")
    save(both[400:], folder / "test.npz")
    test = both[400:]
    np.savez(folder / "probs.npz", probs=test.probs.numpy(), labels=test.labels.numpy())
    np.savez(folder / "unlabelled.npz", logits=test.logits.numpy())
    np.savez(folder / "odd.npz", x=test.logits.numpy(), y=test.labels.numpy())
    np.savez(folder / "binary.npz", logits=test.logits[:, 1].numpy(), labels=(test.labels == 1).long().numpy())
    save(Predictions.from_logits(test.logits, test.labels, class_names=NAMES[::-1]), folder / "turned.npz")
    save(Predictions.from_logits(test.logits, test.labels, class_names=["a", "b", "c"]), folder / "others.npz")
    save(Predictions.from_logits(torch.cat([test.logits, test.logits], 1), test.labels), folder / "six.npz")
    save(TopLabel(test.confidence, test.correct), folder / "answers.csv")
    for name, rows in (("cal", both[:400]), ("test", test)):
        arrays = {"logits": rows.logits.numpy(), "labels": rows.labels.numpy()}
        np.savez(
            folder / f"{name}-features.npz", **arrays, features=rows.logits[:, :2].numpy(), layer=rows.logits.numpy()
        )
    save_map(TemperatureScaling().fit(both[:400]), folder / "map.safetensors", fitted_on=both[:400])
    (folder / "short.safetensors").write_bytes((folder / "map.safetensors").read_bytes()[:-5])
    return folder


def test_fitting_says_what_came_of_it_and_writes_the_map(calibrant, files, tmp_path):
    path = tmp_path / "map.safetensors"
    code, out, err = calibrant("fit", "temperature", files / "cal.npz", "-o", path)
    assert code == 0, err
    found = read_map_file(path)
    expected = TemperatureScaling().fit(load(files / "cal.npz"))
    assert torch.equal(found.map.temperature, expected.temperature)
    assert found.class_names == tuple(NAMES)
    words = " ".join(out.split())
    assert "Temperature scaling" in words
    assert "keeps the predicted class; may change the order of samples by confidence" in words
    assert "converged: gradient" in words
    assert "over 400 samples" in words
    assert f"temperature {float(expected.temperature):.6g}" in words
    assert "It was fitted on these samples" in words
    for name, value in found.document["after"].items():
        assert f"{name} {found.document['before'][name]:.4f} {value:.4f}" in words


def test_a_search_that_ends_at_its_bound_is_not_called_converged(calibrant, files, tmp_path):
    rows = load(files / "cal.npz")
    save(Predictions.from_logits(rows.logits, rows.logits.argmin(1)), tmp_path / "wrong.npz")
    code, out, err = calibrant("fit", "temperature", tmp_path / "wrong.npz", "-o", tmp_path / "map.safetensors")
    assert code == 0, err
    words = " ".join(out.split())
    assert "converged" not in words
    assert "optimum stopped at gradient" in words
    assert ": see the note" in words
    assert "no better than guessing" in " ".join(err.split())


@pytest.mark.parametrize(
    ("method", "file", "said"),
    [
        ("temperature", "binary.npz", "keeps the predicted class and the order of samples by confidence"),
        ("auto(candidates=[none])", "cal.npz", "keeps the predicted class and the order of samples by confidence"),
        ("auto(candidates=[temperature])", "cal.npz", "keeps the predicted class; may change the order of samples"),
        ("auto(candidates=[temperature])+none", "binary.npz", "keeps the predicted class and the order of samples"),
        ("vector", "cal.npz", "keeps no guarantee; may change the predicted class"),
    ],
)
def test_what_is_kept_goes_by_the_map_that_was_fitted(calibrant, files, tmp_path, method, file, said):
    code, out, err = calibrant("fit", method, files / file, "-o", tmp_path / "map.safetensors")
    assert code == 0, err
    assert said in " ".join(out.split())


def test_what_auto_keeps_depends_on_its_choice(calibrant, tmp_path):
    made = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(600, 3, generator=made)
    labels = (logits + 3 * torch.eye(3)[0]).softmax(1).multinomial(1, generator=made).squeeze()
    save(Predictions.from_logits(logits, labels), tmp_path / "shifted.npz")
    code, out, err = calibrant(
        "fit", "auto(candidates=[vector])", tmp_path / "shifted.npz", "-o", tmp_path / "map.safetensors"
    )
    assert code == 0, err
    words = " ".join(out.split())
    assert "keeps no guarantee; may change the predicted class" in words
    assert "chosen by 5-fold cross-validated nll: vector" in words


def test_options_and_chains_are_understood(calibrant, files, tmp_path):
    path = tmp_path / "map.safetensors"
    code, out, err = calibrant("fit", "temperature(criterion=focal,gamma=2)+none", files / "cal.npz", "-o", path)
    assert code == 0, err
    fitted = load_map(path)
    assert fitted.summary.method == "chain"
    assert fitted.maps[0].summary.settings["criterion"] == "focal"
    assert fitted.maps[0].summary.settings["gamma"] == 2
    assert "temperature's optimum" in out
    assert "uncalibrated's optimum" in out


def test_square_brackets_are_shown_as_they_are(calibrant, files, tmp_path):
    path = tmp_path / "map[bold].safetensors"
    code, out, err = calibrant("fit", "chain(steps=[none,none])", files / "cal.npz", "-o", path)
    assert (code, err) == (0, "")
    assert "chain(steps=[none,none])" in out
    assert "map[bold].safetensors" in out


@pytest.mark.parametrize("suffix", WRITERS)
def test_applying_gives_the_same_as_in_python_in_every_format(calibrant, files, tmp_path, suffix):
    path = tmp_path / f"out{suffix}"
    code, out, err = calibrant("apply", files / "map.safetensors", files / "test.npz", "-o", path)
    assert code == 0, err
    assert "200 samples with temperature: logits, with their labels" in out
    expected = load_map(files / "map.safetensors").transform(load(files / "test.npz"))
    written = load(path)
    assert torch.equal(written.logits.float(), expected.logits)
    assert torch.equal(written.labels, expected.labels)
    assert written.class_names == tuple(NAMES)


@pytest.mark.parametrize("suffix", WRITERS)
def test_probabilities_give_probabilities(calibrant, files, tmp_path, suffix):
    path = tmp_path / f"out{suffix}"
    code, out, err = calibrant("apply", files / "map.safetensors", files / "probs.npz", "-o", path)
    assert code == 0, err
    assert "probabilities" in out
    with pytest.raises(ValueError, match="logits"):
        load(path, kind="logits")
    expected = load_map(files / "map.safetensors").transform(load(files / "test.npz")).probs
    torch.testing.assert_close(load(path, kind="probs").probs.float(), expected)


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_file_without_labels_stays_without(calibrant, files, tmp_path, suffix):
    path = tmp_path / f"out{suffix}"
    code, out, err = calibrant("apply", files / "map.safetensors", files / "unlabelled.npz", "-o", path)
    assert code == 0, err
    assert "without labels" in out
    with pytest.raises(ValueError, match="labels"):
        load(path)
    code, _, err = calibrant("apply", files / "map.safetensors", path, "-o", tmp_path / "twice.npz")
    assert code == 0, err
    divided = load_map(files / "map.safetensors")
    expected = divided(divided(load(files / "test.npz").logits))
    torch.testing.assert_close(torch.tensor(np.load(tmp_path / "twice.npz")["logits"]).float(), expected)
    assert set(np.load(tmp_path / "twice.npz")) == {"logits"}


def test_class_names_without_labels_are_kept_in_a_table(calibrant, files, tmp_path):
    (tmp_path / "in.csv").write_text("prob_cat,prob_dog,prob_bird\n0.5,0.25,0.25\n0,1,0\n")
    code, _, err = calibrant("apply", files / "map.safetensors", tmp_path / "in.csv", "-o", tmp_path / "out.csv")
    assert (code, err) == (0, "")
    assert (tmp_path / "out.csv").read_text().splitlines()[0].replace('"', "") == "prob_cat,prob_dog,prob_bird"


def test_one_logit_a_row_is_two_classes(calibrant, files, tmp_path):
    path = tmp_path / "map.safetensors"
    assert calibrant("fit", "temperature", files / "binary.npz", "-o", path)[0] == 0
    assert calibrant("apply", path, files / "binary.npz", "-o", tmp_path / "out.npz")[0] == 0
    assert load(tmp_path / "out.npz").n_classes == 2
    fitted, given = load_map(path), np.load(files / "binary.npz")["logits"]
    written = np.load(tmp_path / "out.npz")["logits"]
    assert written.shape == given.shape
    np.testing.assert_allclose(written, given / float(fitted.temperature), rtol=1e-6)


@pytest.mark.parametrize(("fitted_on", "applied_to"), [("cal.npz", "probs.npz"), ("probs.npz", "test.npz")])
def test_logits_for_a_map_of_probabilities_are_reported_where_it_matters(
    calibrant, files, tmp_path, fitted_on, applied_to
):
    path, out = tmp_path / "map.safetensors", tmp_path / "out.npz"
    for method, matters in (("vector", True), ("temperature", False)):
        assert calibrant("fit", method, files / fitted_on, "-o", path)[0] == 0
        code, _, err = calibrant("apply", path, files / applied_to, "-o", out)
        assert code == 0
        assert ("depends on which" in " ".join(err.split())) == matters
        assert calibrant("apply", path, files / fitted_on, "-o", out)[2] == ""


def test_what_stands_beside_the_scores_goes_along_and_the_rest_is_named(calibrant, files, tmp_path):
    first, second = tmp_path / "temperature.safetensors", tmp_path / "density.safetensors"
    given, out = files / "cal-features.npz", tmp_path / "out.npz"
    assert calibrant("fit", "temperature", given, "-o", first)[0] == 0
    code, said, _ = calibrant("apply", first, given, "-o", out)
    assert code == 0
    assert "Copied unchanged: features, layer." in said
    assert "Not copied" not in said
    assert np.array_equal(np.load(out)["features"], np.load(given)["features"])
    code, _, err = calibrant("fit", "density_ratio", out, "-o", second)
    assert code == 0, err
    code, said, _ = calibrant("apply", first, given, "-o", tmp_path / "out.csv")
    assert "Not copied: features, layer." in said


def test_no_probability_is_written_as_zero(calibrant, files, tmp_path):
    sharp = Scale(torch.tensor(1e-3), n_classes=3)
    save_map(sharp, tmp_path / "map.safetensors")
    assert calibrant("apply", tmp_path / "map.safetensors", files / "probs.npz", "-o", tmp_path / "out.npz")[0] == 0
    assert np.load(tmp_path / "out.npz")["probs"].min() == np.finfo(np.float32).smallest_normal


def test_cite_takes_what_fit_takes(calibrant):
    code, out, _ = calibrant("cite", "temperature(criterion=focal)+isotonic")
    assert code == 0
    assert out.splitlines()[0].startswith("Guo et al. (2017)")
    assert out.splitlines()[1].startswith("Zadrozny & Elkan (2002)")
    assert out.count("@inproceedings{") == 2
    assert "author = {Chuan Guo and Geoff Pleiss and Yu Sun and Kilian Q. Weinberger}" in out
    code, out, _ = calibrant("cite", "piece")
    assert (code, "arXiv:2306.04590" in out) == (0, True)


def test_names_and_kind_can_be_given_to_both(calibrant, files, tmp_path):
    named = ["--logits", "--scores", "x", "--labels", "y"]
    path = tmp_path / "map.safetensors"
    assert calibrant("fit", "uncalibrated", files / "odd.npz", "-o", path, *named)[0] == 0
    assert calibrant("apply", path, files / "odd.npz", "-o", tmp_path / "out.npz", *named)[0] == 0
    again = load(tmp_path / "out.npz", kind="logits", scores="x", labels="y")  # names are kept
    assert torch.equal(again.logits, load(files / "test.npz").logits)


@pytest.mark.parametrize("name", [None, "layer"])
def test_features_are_read_from_the_same_file(calibrant, files, tmp_path, name):
    path, named = tmp_path / "map.safetensors", [] if name is None else ["--features", name]
    code, out, err = calibrant("fit", "bin_mean_shift(bands=2)", files / "cal-features.npz", "-o", path, *named)
    assert code == 0, err
    assert "Bin-mean-shift" in out
    code, out, err = calibrant("apply", path, files / "test-features.npz", "-o", tmp_path / "out.npz", *named)
    assert code == 0, err
    test = load(files / "test-features.npz")
    features = np.load(files / "test-features.npz")[name or "features"]
    assert torch.equal(load(tmp_path / "out.npz").logits, load_feature_map(path).transform(test, features).logits)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["fit", "temperatur", "cal.npz", "-o", "OUT"], ["Did you mean temperature?"]),
        (["fit", "temperature(gama=2)", "cal.npz", "-o", "OUT"], ["Did you mean gamma?"]),
        (["fit", "temperature(gamma=x)", "cal.npz", "-o", "OUT"], ["gamma of temperature must be a number"]),
        (["fit", "temperature", "missing.npz", "-o", "OUT"], ["missing.npz"]),
        (["fit", "temperature", "unlabelled.npz", "-o", "OUT"], ["labels"]),
        (["fit", "temperature", "odd.npz", "-o", "OUT"], ["--scores x and --labels y"]),
        (["fit", "temperature", "answers.csv", "-o", "OUT"], ["every class"]),
        (["fit", "temperature", "cal.npz", "-o", "map.pt"], [".safetensors"]),
        (["fit", "temperature", "cal.npz", "-o", "no/map.safetensors"], ["folder"]),
        (["fit", "temperature", "map.safetensors", "-o", "map.safetensors"], ["must not be written to"]),
        (["fit", "temperature", "cal.npz"], ["--out"]),
        (["fit", "temperature", "cal.npz", "-o", "OUT", "--logits", "--probs"], ["one of --logits"]),
        (["fit", "density_ratio", "cal.npz", "-o", "OUT"], ["'features'", "--features NAME"]),
        (["fit", "density_ratio", "cal-features.npz", "--features", "x", "-o", "OUT"], ["'x'", "--features NAME"]),
        (["fit", "density_ratio", "cal-features.npz", "--features", "labels", "-o", "OUT"], ["shape (n, d)"]),
        (["fit", "temperature", "cal-features.npz", "--features", "layer", "-o", "OUT"], ["must be left out"]),
        (["fit", "none+density_ratio", "cal-features.npz", "-o", "OUT"], ["needs features"]),
        (["apply", "map.safetensors", "test-features.npz", "--features", "layer", "-o", "OUT"], ["must be left out"]),
        (["apply", "missing.safetensors", "test.npz", "-o", "OUT"], ["missing.safetensors"]),
        (["apply", "short.safetensors", "test.npz", "-o", "OUT"], ["short.safetensors", "cut short"]),
        (["apply", "test.npz", "test.npz", "-o", "OUT"], ["not a safetensors file"]),
        (["apply", "map.safetensors", "six.npz", "-o", "OUT"], ["3 classes", "it has 6"]),
        (["apply", "map.safetensors", "turned.npz", "-o", "OUT"], ["'bird'", "'cat'", "another order"]),
        (["apply", "map.safetensors", "others.npz", "-o", "OUT"], ["class 0 is 'a'", "'cat'"]),
        (["apply", "map.safetensors", "answers.csv", "-o", "OUT"], ["logits", "confidence"]),
        (["apply", "map.safetensors", "odd.npz", "-o", "OUT"], ["pass --logits (or --probs) and --scores x."]),
        (
            ["apply", "map.safetensors", "odd.npz", "--logits", "--scores", "x", "--labels", "z", "-o", "OUT"],
            ["--labels z"],
        ),
        (["apply", "map.safetensors", "test.npz", "-o", "out.txt"], [".npz", ".txt"]),
        (["apply", "map.safetensors", "test.npz", "-o", "test.npz"], ["must not be written to"]),
        (["apply", "map.safetensors", "test.npz", "-o", "map.safetensors"], ["must not be written to"]),
        (["cite", "temperatur"], ["Did you mean temperature?"]),
    ],
)
def test_bad_input_is_reported_in_one_line_and_exits_with_2(calibrant, files, tmp_path, arguments, said):
    before = {path.name: path.read_bytes() for path in files.iterdir()}
    out = tmp_path / "out.safetensors"
    given = [out if a == "OUT" else files / a if a.endswith((".npz", ".csv", ".safetensors")) else a for a in arguments]
    code, _, err = calibrant(*given)
    assert code == 2, err
    assert "Traceback" not in err
    assert all(word in err for word in said), err
    assert not out.exists()
    assert {path.name: path.read_bytes() for path in files.iterdir()} == before


@pytest.mark.parametrize("where", ["fit", "write"])
def test_stopping_leaves_the_old_file_and_no_other(calibrant, files, tmp_path, monkeypatch, where):
    def stop(*_arguments, **_options):
        raise KeyboardInterrupt

    path = tmp_path / "map.safetensors"
    path.write_bytes(b"the old one")
    if where == "fit":
        monkeypatch.setattr(TemperatureScaling, "_fit", stop)
    else:
        monkeypatch.setattr(safetensors.torch, "save_file", stop)
    code, _, err = calibrant("fit", "temperature", files / "cal.npz", "-o", path)
    assert code == 130
    assert "no partial files were left" in err
    assert path.read_bytes() == b"the old one"
    assert list(tmp_path.iterdir()) == [path]


def test_a_map_is_replaced_and_an_old_name_is_no_trouble(calibrant, files, tmp_path):
    path = tmp_path / "map.safetensors"
    for method in ("uncalibrated", "temperature"):
        assert calibrant("fit", method, files / "cal.npz", "-o", path)[0] == 0
    assert load_map(path).summary.method == "temperature"


def test_list_names_every_calibrator_and_cite_knows_them(calibrant):
    code, out, _ = calibrant("list", "calibrators")
    assert code == 0
    for name, calibrator in {**catalogue.calibrators, **catalogue.feature_calibrators}.items():
        line = next(line for line in out.splitlines() if line.split()[:1] == [name])
        assert ("accuracy" in line.rsplit(calibrator.paper.short)[0]) >= calibrator.preserves_accuracy
        code, cited, _ = calibrant("cite", name)
        assert code == 0
        assert calibrator.paper.title in cited


def test_the_document_in_the_file_is_plain_json(calibrant, files, tmp_path):
    path = tmp_path / "map.safetensors"
    calibrant("fit", "temperature", files / "cal.npz", "-o", path)
    with safetensors.safe_open(str(path), framework="np") as file:
        assert json.loads(file.metadata()["calibrant"])["method"] == "temperature"


class TestGivenTemperature:
    @pytest.mark.parametrize("file", ["test.npz", "unlabelled.npz"])
    def test_it_is_applied_without_a_fit(self, calibrant, files, tmp_path, file):
        code, out, err = calibrant("apply", "temperature(value=1.5)", files / file, "-o", tmp_path / "out.npz")
        assert code == 0, err
        assert "with temperature(value=1.5): logits" in out.replace("\n", " ")
        given, after = np.load(files / "test.npz")["logits"], np.load(tmp_path / "out.npz")["logits"]
        np.testing.assert_array_equal(after, given / np.float32(1.5))

    def test_other_methods_must_be_fitted_first(self, calibrant, files, tmp_path):
        for text in ("temperature(criterion=focal)", "temperature(value=none)"):
            code, _, err = calibrant("apply", text, files / "test.npz", "-o", tmp_path / "out.npz")
            assert code == 2
            assert "only a temperature with a value" in " ".join(err.split())
        assert not (tmp_path / "out.npz").exists()

    def test_a_value_that_is_none_is_refused(self, calibrant, files, tmp_path):
        code, _, err = calibrant("apply", "temperature(value=-1)", files / "test.npz", "-o", tmp_path / "out.npz")
        assert code == 2
        assert "value must be" in " ".join(err.split())


def test_an_infinite_temperature_is_explained(calibrant, files, tmp_path):
    _, out, _ = calibrant("fit", "ets", files / "cal.npz", "-o", tmp_path / "ets.safetensors")
    assert "inf (equal probabilities)" in out


def test_confidences_of_answers_that_are_mostly_wrong_are_calibrated_as_is_advised(calibrant, tmp_path):
    confidence = np.repeat([0.7, 0.8, 0.9, 0.99], 100)
    right = np.arange(400) % 100 < np.repeat([20, 30, 40, 45], 100)
    save(TopLabel(torch.from_numpy(confidence), torch.from_numpy(right)), tmp_path / "answers.csv")
    _, _, err = calibrant("fit", "isotonic", tmp_path / "answers.csv", "-o", tmp_path / "map.safetensors")
    methods = " ".join(err.split()).partition("of being right, by ")[2].partition(":")[0].split(" or ")
    assert methods == ["isotonic_ovr", "platt"]
    reading = ["--probs", "--positive", "confidence", "--labels", "correct", "-o"]
    for method in methods:
        assert calibrant("fit", method, tmp_path / "answers.csv", *reading, tmp_path / "map.safetensors")[0] == 0
        files = (tmp_path / "map.safetensors", tmp_path / "answers.csv")
        assert calibrant("apply", *files, *reading, tmp_path / "calibrated.csv")[0] == 0
        calibrated = load(tmp_path / "calibrated.csv")
        assert float(calibrated.confidence.mean()) == pytest.approx(right.mean(), abs=0.02)
    for method, is_noted in {"isotonic": True, "temperature": True, "isotonic_ovr": False, "platt": False}.items():
        _, out, _ = calibrant("fit", method, tmp_path / "answers.csv", *reading, tmp_path / "map.safetensors")
        assert ("cannot go below 50 %" in " ".join(out.split())) is is_noted


@pytest.mark.parametrize("stream", [[], ["--stream"]])
def test_apply_has_no_log_loss_to_speak_of(calibrant, tmp_path, stream):
    probs, labels = np.tile([[0.0, 0.2, 0.8], [0.5, 0.3, 0.2]], (20, 1)), np.tile([0, 2], 20)
    np.savez(tmp_path / "zeros.npz", probs=probs, labels=labels)
    code, out, err = calibrant(
        "apply", "temperature(value=2)", tmp_path / "zeros.npz", "-o", tmp_path / "out.npz", *stream
    )
    assert code == 0, err
    assert "floor" not in out + err
