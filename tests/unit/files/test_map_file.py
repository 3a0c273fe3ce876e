"""Maps in files: what is saved comes back, old files stay readable, and every bad file is reported as what it is."""

import copy
import json
import math
import os
import pickle
import resource
import stat
import struct
from pathlib import Path

import pytest
import torch
from map_examples import EXAMPLES, used
from safetensors import safe_open
from safetensors.torch import save_file

from calibrant import catalogue
from calibrant.calibrators import Calibrator, Chain, TemperatureScaling, Uncalibrated
from calibrant.errors import FileError, InputError
from calibrant.files import load_feature_map, load_map, read_map_file, save, save_map
from calibrant.files.map_file import contents_metadata, digest
from calibrant.maps import Affine, ChainMap, Map, Scale
from calibrant.predictions import Predictions

GOLDEN = Path(__file__).parents[2] / "data" / "maps"
SCALE = EXAMPLES["scale"]


def some_logits(n_classes, dtype=torch.float32):
    return (4 * torch.randn(50, n_classes, generator=torch.Generator().manual_seed(3))).to(dtype)


def some_predictions(class_names=("cat", "dog", "bird"), n=200):
    made = torch.Generator().manual_seed(5)
    logits = 3 * torch.randn(n, 3, generator=made)
    labels = (logits / 2).softmax(1).multinomial(1, generator=made).squeeze()
    return Predictions.from_logits(logits, labels, class_names=class_names)


def contents(path):
    """The document and the tensors of a file, read without our own code."""
    with safe_open(str(path), framework="pt") as file:
        held = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # no mapping
        return json.loads(file.metadata()["calibrant"]), held


def write(path, document, tensors):
    """A file whose digest is that of its contents, whatever these are."""
    save_file(tensors, path, metadata=contents_metadata(document, tensors))
    return path


@pytest.fixture
def saved(tmp_path):
    """A map of each sort of part in a file, and its contents."""
    path = tmp_path / "map.safetensors"
    save_map(EXAMPLES["chain"], path)
    return path, *contents(path)


def test_every_map_and_curve_has_an_example():
    assert set(EXAMPLES) == set(catalogue.maps)
    for kind, example in EXAMPLES.items():
        assert kind in {module.kind for module in example.modules() if hasattr(module, "kind")}


@pytest.mark.parametrize("kind", EXAMPLES)
def test_a_map_comes_back_to_the_last_bit(tmp_path, kind):
    example = EXAMPLES[kind]
    save_map(example, tmp_path / "map.safetensors")
    loaded = read_map_file(tmp_path / "map.safetensors").map
    assert repr(loaded) == repr(example)
    assert type(loaded) is type(example)
    assert {name: t.tolist() for name, t in loaded.state_dict().items()} == {
        name: t.tolist() for name, t in example.state_dict().items()
    }
    assert getattr(loaded, "gives_log_probs", True) == getattr(example, "gives_log_probs", True)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        logits = some_logits(example.n_classes, dtype)
        assert torch.equal(used(loaded, logits), used(example, logits))


@pytest.mark.parametrize(
    "calibrator", [TemperatureScaling(), Uncalibrated(), Chain((TemperatureScaling(), Uncalibrated()))]
)
def test_the_summary_of_the_fit_comes_back_with_that_of_every_step(tmp_path, calibrator: Calibrator):
    predictions = some_predictions()
    fitted = calibrator.fit(predictions)
    save_map(fitted, tmp_path / "map.safetensors", fitted_on=predictions)
    loaded = load_map(tmp_path / "map.safetensors")
    assert loaded.summary == fitted.summary
    steps = zip(loaded.modules(), fitted.modules(), strict=True)
    assert all(ours.summary == theirs.summary for ours, theirs in steps if isinstance(ours, Map))


@pytest.mark.parametrize("name", catalogue.calibrators)
@pytest.mark.filterwarnings("ignore::calibrant.errors.CalibrantWarning")
def test_what_every_calibrator_makes_comes_back(tmp_path, name):
    predictions = some_predictions(n=300)
    fitted = catalogue.calibrators[name].fit(predictions)
    save_map(fitted, tmp_path / "map.safetensors", fitted_on=predictions)
    loaded = load_map(tmp_path / "map.safetensors")
    assert loaded.summary == fitted.summary
    assert torch.equal(loaded.transform(predictions).logits, fitted.transform(predictions).logits)


@pytest.mark.parametrize("name", catalogue.feature_calibrators)
@pytest.mark.filterwarnings("ignore::calibrant.errors.CalibrantWarning")
def test_what_looks_at_features_comes_back_with_them(tmp_path, name):
    predictions = some_predictions(n=300)
    features = torch.randn(300, 5, generator=torch.Generator().manual_seed(1))
    path = tmp_path / "map.safetensors"
    fitted = catalogue.feature_calibrators[name].fit(predictions, features)
    save_map(fitted, path, fitted_on=predictions, features=features)
    loaded = load_feature_map(path)
    assert loaded.summary == fitted.summary
    assert loaded.reference.dtype == torch.float32
    assert torch.equal(loaded.transform(predictions, features).logits, fitted.transform(predictions, features).logits)
    document, _ = contents(path)
    assert document["after"]["accuracy"] == document["before"]["accuracy"]
    assert document["digest"] == digest(predictions, features) != digest(predictions)
    with pytest.raises(InputError, match="features"):
        save_map(fitted, path, fitted_on=predictions)


def test_a_map_is_read_as_what_it_is(tmp_path):
    save_map(EXAMPLES["scale"], tmp_path / "plain.safetensors")
    save_map(EXAMPLES["table"], tmp_path / "needy.safetensors")
    with pytest.raises(FileError, match="load_feature_map"):
        load_map(tmp_path / "needy.safetensors")
    with pytest.raises(FileError, match="load_map"):
        load_feature_map(tmp_path / "plain.safetensors")


def test_the_document_says_how_the_map_came_about(tmp_path):
    predictions = some_predictions()
    fitted = TemperatureScaling().fit(predictions)
    path = tmp_path / "map.safetensors"
    save_map(fitted, path, fitted_on=predictions)
    document, _ = contents(path)
    assert document["format"] == "calibrant.map/2"
    assert document["map"] == {"kind": "scale", "settings": {}, "n_classes": 3, "parts": {}}
    assert document["method"] == "temperature"
    assert document["method_settings"] == TemperatureScaling().settings()
    assert document["rows"] == 200
    assert set(document["certificate"]) == {"objective", "gradient", "steps", "passes"}
    assert document["class_names"] == ["cat", "dog", "bird"]
    assert read_map_file(path).class_names == ("cat", "dog", "bird")
    assert read_map_file(path).document == document
    before = predictions.logits.double().log_softmax(1).gather(1, predictions.labels[:, None]).mean()
    right = (predictions.logits.argmax(1) == predictions.labels).double().mean()
    assert document["before"]["nll"] == pytest.approx(-float(before))
    assert document["before"]["accuracy"] == document["after"]["accuracy"] == pytest.approx(float(right))
    assert document["after"]["nll"] < document["before"]["nll"]
    assert set(document["after"]) == {"nll", "brier", "ece", "accuracy"}


def test_the_digest_tells_rows_apart_and_knows_them_again():
    logits, labels = some_logits(3), torch.zeros(50, dtype=torch.int64)
    known = digest(Predictions.from_logits(logits, labels))
    assert known == digest(Predictions.from_logits(logits.clone(), labels, class_names=["a", "b", "c"]))
    others = [
        Predictions.from_logits(logits.flip(0), labels),
        Predictions.from_logits(logits, labels + 1),
        Predictions.from_logits(logits.double(), labels),
        Predictions.from_logits(logits.bfloat16(), labels),
        Predictions.from_logits(logits[:, :2], labels),
    ]
    assert len({known, *(digest(each) for each in others)}) == 6


@pytest.mark.parametrize("name", sorted(path.stem for path in GOLDEN.glob("*.safetensors")))
def test_files_of_earlier_versions_keep_loading_and_give_the_same(name):
    recorded = json.loads((GOLDEN / "outputs.json").read_text())
    found = read_map_file(GOLDEN / f"{name}.safetensors")
    logits = torch.tensor(recorded["logits"][str(found.map.n_classes)], dtype=torch.float64)
    expected = torch.tensor(recorded["outputs"][name], dtype=torch.float64)
    in_float32 = any(tensor.dtype == torch.float32 for tensor in found.map.state_dict().values())
    tolerance = 1e-5 if in_float32 else 1e-12  # processors round differently
    torch.testing.assert_close(used(found.map, logits), expected, rtol=tolerance, atol=tolerance)
    assert (GOLDEN / f"{name}.safetensors").stat().st_size < 5000


def test_there_is_a_file_of_an_earlier_version_for_every_kind():
    def names(described):
        parts = [
            part for below in described["parts"].values() for part in (below if isinstance(below, list) else [below])
        ]
        return {described["kind"]}.union(*map(names, parts))

    found = [names(contents(path)[0]["map"]) for path in GOLDEN.glob("*.safetensors")]
    assert set().union(*found) == set(catalogue.maps)


def test_an_earlier_file_has_its_summary_names_and_numbers():
    found = read_map_file(GOLDEN / "fitted_temperature.safetensors")
    assert found.map.summary.method == "temperature"
    assert found.map.summary.rows == 200
    assert found.map.summary.certificate.gradient < 1e-6
    assert found.class_names == ("cat", "dog", "bird")
    assert found.document["digest"].startswith("sha256:")
    assert found.document["after"]["nll"] < found.document["before"]["nll"]


def test_a_file_cut_short_anywhere_is_refused(saved, tmp_path):
    whole = saved[0].read_bytes()
    for length in range(0, len(whole), 37):
        (tmp_path / "short.safetensors").write_bytes(whole[:length])
        with pytest.raises(FileError, match=r"short\.safetensors"):
            load_map(tmp_path / "short.safetensors")


def test_a_pickle_is_not_even_looked_into(tmp_path):
    class Bomb:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'exploded'}",)

    (tmp_path / "map.safetensors").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(FileError, match="not a safetensors file"):
        load_map(tmp_path / "map.safetensors")
    assert not (tmp_path / "exploded").exists()


def test_predictions_are_no_map(tmp_path):
    save(some_predictions(), tmp_path / "p.safetensors")
    with pytest.raises(FileError, match=r"something else \(found 'labels', 'logits'"):
        load_map(tmp_path / "p.safetensors")


def test_a_newer_format_asks_for_an_update(saved, tmp_path):
    _, document, tensors = saved
    newer = write(tmp_path / "n.safetensors", document | {"format": "calibrant.map/3", "calibrant": "9.0"}, tensors)
    with pytest.raises(FileError, match=r"newer calibrant \(9\.0\).*Update calibrant"):
        load_map(newer)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d, _t: d.update(format="other.thing/1"), "other.thing/1"),
        (lambda d, _t: d.pop("format"), "damaged"),
        (lambda d, _t: d.pop("map"), "damaged"),
        (lambda d, _t: d.pop("method"), "damaged"),
        (lambda d, _t: d["map"].update(kind="exec"), "one of affine.*got 'exec'.*newer"),
        (lambda d, _t: d["map"].update(kind=["scale"]), "damaged"),
        (lambda d, _t: d["map"].update(kind="steps", n_classes=None, parts={}), "is missing"),
        (lambda d, _t: d["map"].update(n_classes=4), "same number of classes"),
        (lambda d, _t: d["map"].update(n_classes="3"), "n_classes"),
        (lambda d, _t: d["map"].update(n_classes=10**15), "n_classes"),
        (lambda d, _t: d["map"].update(n_classes=None), "'n_classes' is missing"),
        (lambda d, _t: d["map"]["settings"].update(power=2), "'power' is not known"),
        (lambda d, _t: d["map"]["parts"]["maps"][0].update(kind="identity"), "'temperature' is not known"),
        (lambda d, _t: d["map"]["parts"]["maps"][1].update(parts={}), "'curve' is missing"),
        (lambda d, _t: d["map"]["parts"].update(maps=[]), "not known|none of them"),
        (lambda _d, t: t.pop("maps.0.temperature"), "'temperature' is missing"),
        (lambda _d, t: t.update(extra=torch.zeros(1).double()), "'extra' is not known"),
        (lambda _d, t: t.update({"maps.7.extra": torch.zeros(1).double()}), "'maps.7.extra' is none of them"),
        (lambda _d, t: t.update({"maps.0.temperature": torch.tensor(float("nan")).double()}), "NaN"),
        (lambda _d, t: t.update({"maps.0.temperature": torch.tensor(1)}), "real"),
        (lambda _d, t: t.update({"maps.0.temperature": torch.ones(7).double()}), "single number"),
        (
            lambda _d, t: t.update({"maps.1.curve.values": torch.ones(1, 2).double()}),
            r"values must have shape \(1, 4\)",
        ),
        (lambda d, _t: d.update(class_names=["a"]), "all 3 classes"),
        (lambda d, _t: d.update(class_names=3), "class_names"),
    ],
)
def test_a_document_or_numbers_that_do_not_fit_are_reported_in_one_line(saved, tmp_path, change, said):
    _, document, tensors = saved
    change(document, tensors)
    path = write(tmp_path / "odd.safetensors", document, tensors)
    with pytest.raises(FileError, match=said) as raised:
        load_map(path)
    assert "odd.safetensors" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_numbers_that_were_altered_are_refused(saved, tmp_path):
    path, _, _ = saved
    with safe_open(str(path), framework="pt") as file:
        metadata, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    assert float(tensors["maps.0.temperature"]) == pytest.approx(1.7)
    altered = tmp_path / "altered.safetensors"
    for change in (
        {"maps.0.temperature": -tensors["maps.0.temperature"]},
        {"maps.0.temperature": torch.nextafter(tensors["maps.0.temperature"], torch.tensor(2.0).double())},
        {"maps.0.temperature": tensors["maps.0.temperature"].float()},
    ):
        save_file(tensors | change, altered, metadata=metadata)
        with pytest.raises(FileError, match="damaged or edited"):
            load_map(altered)
    text = metadata["calibrant"]
    for edited in (text.replace("{}", "{ }", 1), text.replace("sha256", "sha255"), "{" + text.partition(", ")[2]):
        json.loads(edited)
        save_file(tensors, altered, metadata={"calibrant": edited})
        with pytest.raises(FileError, match="damaged or edited"):
            load_map(altered)


def test_the_same_map_is_the_same_file_to_the_byte(tmp_path):
    for name in ("a", "b", "c", "d"):
        save_map(EXAMPLES["chain"], tmp_path / f"{name}.safetensors")
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1


@pytest.mark.parametrize(
    ("kind", "buffer", "wrong", "said"),
    [
        ("scale", "temperature", -2.0, "above 0"),
        ("scale", "temperature", 0.0, "above 0"),
        ("affine", "bias", [0.0, 0.0, math.inf], "finite"),
        ("affine", "weight", [1.0, 1.0], "weight must have one of the shapes"),
        ("affine", "bias", [0.0, 0.0], "each of 3 classes"),
        ("bands", "surface.least", 0.75, r"in 0\.\.0\.5"),
        ("bands", "surface.keep_share", -1.0, r"in 0\.\.1"),
        ("bands", "surface.offsets", [[0.0, 0.0, 2.0], [0.0, 0.0, 0.0]], r"in -1\.\.1"),
        ("bands", "surface.cell_edges", [[1.0, 0.0], [0.0, 1.0]], "rising"),
        ("bands", "surface.edges", [0.4, 0.2], "rising"),
        ("beta", "curve.a", [1.0, 2.0], "one number per column"),
        ("chain", "maps.1.curve.edges", [[0.5, -1.0, 2.0]], "edges must be rising"),
        ("class_bins", "values", [[0.0], [1.0]], r"shape \(3, bins\)"),
        ("line", "curve.knots", [[0.0, -2.0, 4.0]], "knots must be rising"),
        ("line", "curve.values", [[0.0, math.inf, 4.0]], "finite"),
        ("mixture", "weights", [1.25, -0.25], "negative"),
        ("mixture", "weights", [0.5, 0.25], "sum to one"),
        ("mixture", "weights", [1.0], "one for each of 2 maps"),
        ("monotone", "beta", 0.0, "above 0"),
        ("monotone", "slopes", [0.5, 0.0, 1.0], "slopes must be above 0"),
        ("monotone", "knots", [-0.5, -3.0], "rising"),
        ("one_vs_rest", "curve.knots", [[0.0, 1.0, 2.0]] * 2, "values must have shape"),
        ("order_preserving", "centre", [0.0, 0.0], r"shape \(3,\)"),
        ("order_preserving", "beta", -0.8, "above 0"),
        ("polynomial", "curve.coefficients", [[0.0, 1.0]] * 2, "1 or 3 columns; got 2"),
        ("pooled", "curve.values", [[1.0, 0.0, 2.0, 3.0]], "must not fall"),
        ("proximity", "reference", [[3.0, 4.0]] * 4, "length one"),
        ("proximity", "reference", [[1.0, 0.0]], "at most 1, the calibration samples"),
        ("table", "surface.confidence", [0.9, 0.3], "rising"),
        ("top_label", "curve.knots", [[0.0, 1.0]], "values must have shape"),
        ("two_class", "curve.b", [math.inf], "finite"),
    ],
)
def test_numbers_out_of_their_range_are_neither_read_nor_written(tmp_path, kind, buffer, wrong, said):
    path, good = tmp_path / "odd.safetensors", EXAMPLES[kind]
    save_map(good, path)
    document, tensors = contents(path)
    tensors[buffer] = torch.tensor(wrong, dtype=torch.float64)
    write(path, document, tensors)
    with pytest.raises(FileError, match=said):
        read_map_file(path)
    odd = copy.deepcopy(good)
    place, _, name = buffer.rpartition(".")
    setattr(odd.get_submodule(place), name, tensors[buffer])
    with pytest.raises(InputError, match=said):
        save_map(odd, tmp_path / "never.safetensors")
    assert not (tmp_path / "never.safetensors").exists()


@pytest.mark.parametrize("kind", EXAMPLES)
def test_every_kind_refuses_numbers_that_are_not_finite(tmp_path, kind):
    path = tmp_path / "odd.safetensors"
    save_map(EXAMPLES[kind], path)
    document, tensors = contents(path)
    for name, values in tensors.items():
        write(path, document, tensors | {name: torch.full_like(values, -math.inf)})
        if not name.endswith("edges"):  # a Steps curve with all edges at minus infinity has one value everywhere
            with pytest.raises(FileError, match=r"odd\.safetensors"):
                read_map_file(path)


@pytest.mark.parametrize("kind", EXAMPLES)
def test_a_count_of_classes_is_compared_with_the_numbers_before_memory_is_asked_for(tmp_path, kind):
    path = tmp_path / "odd.safetensors"
    save_map(EXAMPLES[kind], path)
    document, tensors = contents(path)

    def claim(described):
        if described["n_classes"] is not None:
            described["n_classes"] = 1 << 24
        for below in described["parts"].values():
            for part in below if isinstance(below, list) else [below]:
                claim(part)

    claim(document["map"])
    write(path, document, tensors)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        loaded = read_map_file(path).map
    except FileError:
        loaded = None
    # In kilobytes: one line of such a map's logits would be 64 MiB.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 15
    if loaded is not None:  # one curve or number serves any number of classes
        assert all(values.numel() < 100 for values in loaded.buffers())


def test_parts_for_other_classes_and_records_of_fits_that_cannot_be_are_refused(tmp_path):
    rows = some_predictions()
    path = tmp_path / "map.safetensors"
    save_map(TemperatureScaling().fit(rows), path)
    document, tensors = contents(path)
    for key, wrong in (
        ("method", 3), ("method_settings", []), ("rows", -1), ("rows", 2.5), ("seconds", math.nan), ("notes", "text"),
        ("certificate", {"objective": "low"}), ("certificate", {"steps": 3}), ("certificate", 3),
    ):  # fmt: skip
        write(path, document | {key: wrong}, tensors)
        with pytest.raises(FileError, match=r"map\.safetensors"):
            load_map(path)


def test_what_a_map_may_have_beside_its_constructor_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(Scale, "optional_attributes", ("remark", "mark", "inner", "absent"))
    fitted = Scale(torch.tensor(2.0), n_classes=3)
    fitted.remark, fitted.absent = "dry", None
    fitted.register_buffer("mark", torch.tensor([1.0, 2.0]))
    fitted.inner = Affine(torch.tensor(1.0), torch.zeros(3), n_classes=3)
    path = tmp_path / "map.safetensors"
    save_map(fitted, path)
    loaded = load_map(path)
    assert loaded.remark == "dry"
    assert loaded.mark.tolist() == [1.0, 2.0]
    assert isinstance(loaded.inner, Affine)
    save_map(EXAMPLES["scale"], path)
    assert not hasattr(load_map(path), "mark")


def test_metadata_that_is_no_json_is_damage(tmp_path):
    save_file({}, tmp_path / "m.safetensors", metadata={"calibrant": "{"})
    with pytest.raises(FileError, match="damaged"):
        load_map(tmp_path / "m.safetensors")


def test_a_missing_or_empty_file_or_a_folder_is_refused(tmp_path):
    (tmp_path / "empty.safetensors").touch()
    for name, said in (("none.safetensors", "existing"), ("empty.safetensors", "a map; it is empty"), (".", "folder")):
        with pytest.raises(FileError, match=said):
            load_map(tmp_path / name)


def test_what_cannot_be_saved_is_refused_and_leaves_no_file(tmp_path):
    class Mine(Map):
        kind = "scale"

        def calibrated(self, logits):
            return logits

    three = some_predictions()
    fitted = TemperatureScaling().fit(three)
    path = tmp_path / "map.safetensors"
    for map_, said, options in (
        (Mine(3), "one of calibrant.maps", {}),
        (TemperatureScaling(), "fitted map", {}),
        (fitted, "200 rows", {"fitted_on": three[:100]}),
        (EXAMPLES["two_class"], "2 classes", {"fitted_on": three}),
        (fitted, "all 3 classes", {"class_names": ["a"]}),
        (fitted, "all 3 classes", {"class_names": "abc"}),
    ):
        with pytest.raises(InputError, match=said):
            save_map(map_, path, **options)
    with pytest.raises(FileError, match=r"must end in \.safetensors"):
        save_map(fitted, tmp_path / "map.pt")
    with pytest.raises(FileError, match="Make the folder"):
        save_map(fitted, tmp_path / "no" / "map.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_replaced_and_keeps_its_permissions_and_a_new_one_gets_the_usual(tmp_path):
    path = tmp_path / "map.safetensors"
    save_map(SCALE, path)
    before = os.umask(0)
    os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~before
    path.chmod(0o640)
    save_map(EXAMPLES["affine"], path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert isinstance(load_map(path), Affine)
    assert list(tmp_path.iterdir()) == [path]


def test_a_map_in_float32_or_used_in_two_places_is_saved_too(tmp_path):
    path = tmp_path / "map.safetensors"
    part = Scale(torch.tensor(1.3), n_classes=3).float()
    twice = ChainMap([part, part], n_classes=3)
    save_map(twice, path)
    logits = some_logits(3)
    assert torch.equal(load_map(path)(logits), twice(logits))


def test_the_file_is_safetensors_with_names_of_the_state_dict(saved):
    path, _, tensors = saved
    length = struct.unpack("<Q", path.read_bytes()[:8])[0]
    header = json.loads(path.read_bytes()[8 : 8 + length])
    assert set(header) - {"__metadata__"} == set(EXAMPLES["chain"].state_dict()) == set(tensors)
