"""Maps as ONNX graphs and archives of torch.export, and grafts onto the graphs of networks."""

import json
import sys

import numpy as np
import pytest
import torch
from torch import nn

from calibrant.calibrators import BetaCalibration, TemperatureScaling
from calibrant.clamping import ClampedModel, InputSpace, load_clamped, save_clamped
from calibrant.cli.main import run
from calibrant.errors import FileError, InputError
from calibrant.files import save_map
from calibrant.integrations.onnx import bytes_of, export, graft
from calibrant.maps import Affine, Map, Scale
from calibrant.predictions import Predictions
from calibrant.testing import overconfident

HALVED = Scale(torch.tensor(2.0), n_classes=3)
SCORES = torch.tensor([[2.0, 0.0, -1.0], [0.5, 0.5, 0.0], [-30.0, 40.0, 1.0]])


@pytest.fixture(scope="module")
def onnx():
    return pytest.importorskip("onnx", reason="onnx is not installed")


@pytest.fixture(scope="module")
def onnxruntime(onnx):  # noqa: ARG001  # which writes what this runs
    return pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 3))


def network_graph(onnx, *, outputs=("logits",), opset=17, dtype="FLOAT", classes=3, input_shape=("n", 2)):
    """The network above as another exporter would write it: logits, and whatever else is asked for."""
    helper, code = onnx.helper, getattr(onnx.TensorProto, dtype)
    array = {"FLOAT": np.float32, "FLOAT16": np.float16}[dtype]
    weight, bias = (values.detach().numpy().astype(array) for values in network()[0].parameters())
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["logits"], transB=1)]
    nodes += [helper.make_node("Softmax", ["logits"], ["probs"], axis=1)]
    shapes = {"logits": ["n", classes], "probs": ["n", 3]}
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", code, list(input_shape))],
        [helper.make_tensor_value_info(name, code, shapes[name]) for name in outputs],
        [onnx.numpy_helper.from_array(weight, "w"), onnx.numpy_helper.from_array(bias, "b")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def run_graph(onnxruntime, model, **feed):
    content = model if isinstance(model, bytes) else model.SerializeToString()
    return onnxruntime.InferenceSession(content).run(None, {name: value.numpy() for name, value in feed.items()})


def test_the_metadata_names_the_method_and_the_digest(onnx):
    model = onnx.load_from_string(bytes_of(HALVED, class_names=("a", "b", "c")))
    about = json.loads({entry.key: entry.value for entry in model.metadata_props}["calibrant"])
    assert about["method"] == "scale"
    assert about["digest"].startswith("sha256:")
    assert (about["inputs"], about["outputs"], about["class_names"]) == ("logits", "logits", ["a", "b", "c"])
    assert [one.name for one in (*model.graph.input, *model.graph.output)] == ["logits", "calibrated_logits"]


def test_probabilities_go_in_and_out_as_predictions_read_them(onnxruntime):
    probs = torch.tensor([[1.0, 0.0, 0.0], [0.2, 0.3, 0.5]])
    (result,) = run_graph(onnxruntime, bytes_of(HALVED, inputs="probabilities"), probabilities=probs)
    assert np.allclose(result, HALVED.predict_proba(probs=probs), atol=1e-6)
    (result,) = run_graph(onnxruntime, bytes_of(HALVED, outputs="probabilities"), logits=SCORES)
    assert np.allclose(result, HALVED(SCORES).softmax(1), atol=1e-6)


def test_a_module_of_numpy_checks_what_it_is_given(onnx, tmp_path):  # noqa: ARG001  # which writes it
    names = ('a"""', "b\\", "c'\n")
    export(HALVED, tmp_path / "map.py", inputs="probabilities", class_names=names)
    module = {}
    exec((tmp_path / "map.py").read_text(), module)  # noqa: S102  # our own
    assert module["ABOUT"]["class_names"] == list(names)
    probs = np.array([[1.0, 0.0, 0.0], [0.2, 0.3, 0.5]])
    assert np.allclose(module["calibrate"](probs), HALVED.predict_proba(probs=probs), rtol=1e-12)
    assert np.allclose(module["calibrate"](probs.tolist()), HALVED.predict_proba(probs=probs), rtol=1e-12)
    for given, words in [
        (probs[0], "shape"),
        (probs[:, :2], r"\(n, 3\)"),
        (-probs, "from 0 to 1"),
        (probs * np.nan, "0 to"),
        (probs / 2, "sum to one"),  # as of some of the classes, which the map refuses, too
        (probs * 0, "sum to one"),
    ]:
        with pytest.raises(ValueError, match=words):
            module["calibrate"](given)
    assert module["calibrate"](probs[:0]).shape == (0, 3)


def test_a_module_for_two_classes_says_what_to_do_with_one_probability(onnx, tmp_path):  # noqa: ARG001  # which writes it
    export(Scale(torch.tensor(2.0), n_classes=2), tmp_path / "map.py", inputs="probabilities")
    module = {}
    exec((tmp_path / "map.py").read_text(), module)  # noqa: S102  # our own
    p = np.array([0.1, 0.9])
    with pytest.raises(ValueError, match=r"must have the shape \(n, 2\); got \(2,\)\..*np\.stack\(\[1 - p, p\], 1\)"):
        module["calibrate"](p)
    assert module["calibrate"](np.stack([1 - p, p], 1)).shape == (2, 2)


def test_a_map_with_one_number_of_a_column_is_exported(onnx):
    assert onnx.load_from_string(bytes_of(Scale(torch.arange(4.0)[1::2][:1][0], n_classes=3)))
    fitted = BetaCalibration().fit(overconfident(200, 2))
    assert onnx.load_from_string(bytes_of(fitted))


def test_an_archive_runs_in_torch_for_any_number_of_samples(tmp_path):
    export(HALVED, tmp_path / "map.pt2")
    files = {"calibrant.json": ""}
    program = torch.export.load(tmp_path / "map.pt2", extra_files=files).module()
    for n in (1, 2, 3):
        assert torch.equal(program(SCORES[:n]), HALVED(SCORES[:n]))
    assert json.loads(files["calibrant.json"])["method"] == "scale"


def test_a_map_of_operators_that_have_no_translation_is_decomposed_first(onnxruntime):
    class Swished(Map, kind="swished"):
        def calibrated(self, logits):
            return nn.functional.silu(logits) + torch.addcmul(logits, logits, logits)

    fitted = Swished(3)
    (result,) = run_graph(onnxruntime, bytes_of(fitted), logits=SCORES)
    assert np.allclose(result, fitted(SCORES), rtol=1e-5)


def test_values_changed_in_place_that_others_see_are_decomposed_first(onnxruntime):
    class Shared(Map, kind="shared"):
        def calibrated(self, logits):
            moved = logits + 1
            doubled = moved * 2
            moved.mul_(3)
            return moved + doubled

    fitted = Shared(3)
    (result,) = run_graph(onnxruntime, bytes_of(fitted), logits=SCORES)
    assert np.allclose(result, fitted(SCORES), rtol=1e-5)


ORDER = torch.tensor([2, 0, 1])
FORMULAS = {
    "one class less": lambda z: z - z[:, 2][:, None],
    "another order": lambda z: z[:, ORDER],
    "the larger of two": lambda z: torch.max(z, torch.tensor([0.5])),
    "a mean of all": lambda z: z - z.mean(),
    "whole numbers": lambda z: z * (z.long() >= 0.5),
    "both": lambda z: torch.where(z.isfinite(), z, 0.0),
    "sizes": lambda z: z * (z.shape[0] * 2 - 1) + z.shape[0] // 2,
    "places beyond all edges": lambda z: torch.searchsorted(torch.arange(4.0), z * 1e38 * 10, right=True).float(),
    "thirds": lambda z: (z.double() / 3 * 0.3 - (z.double() / 10)).float() * 1e9,
    "powers": lambda z: torch.expm1(z * 1e-3) + torch.expm1(z.double() * 1e-3).float(),
}


def map_of(formula):
    class Plugin(Map, kind="plugin"):
        def calibrated(self, logits):
            return formula(logits)

    return Plugin(3)


@pytest.mark.parametrize("formula", FORMULAS.values(), ids=FORMULAS)
def test_maps_of_plugins_give_what_they_do_in_torch(onnxruntime, formula):
    (result,) = run_graph(onnxruntime, bytes_of(map_of(formula)), logits=SCORES)
    assert result.shape == SCORES.shape
    assert np.allclose(result, map_of(formula)(SCORES), rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("onnx")
@pytest.mark.parametrize(
    "formula",
    [
        lambda z: z // 0.3,
        lambda z: torch.round(z, decimals=1),
        lambda z: z / z.norm(p=3, dim=1, keepdim=True),
        lambda z: z.bfloat16().float(),
        lambda z: z + z.max(),
        lambda z: torch.searchsorted(z.sort(1).values, z).float(),
        torch.lgamma,
    ],
)
def test_operators_and_options_that_cannot_be_written_are_refused(formula):
    with pytest.raises(InputError, match=r"known operators; got aten\.\w+\.\w+. Export it as .pt2"):
        bytes_of(map_of(formula))


class TestClampedArchive:
    """x + δ, the network and the map in one archive of torch.export."""

    @pytest.mark.parametrize("clips", [False, True])
    def test_it_gives_what_the_clamped_network_does_for_any_number_of_samples(self, tmp_path, clips):
        space = InputSpace(clips=clips)
        clamped = ClampedModel(network(), torch.tensor([0.4, -0.3]), HALVED, space=space).eval()
        for outputs in ("logits", "probabilities"):
            export(clamped, tmp_path / "clamped.pt2", outputs=outputs)
            program = torch.export.load(tmp_path / "clamped.pt2").module()
            for n in (1, 2, 5):
                wanted = clamped(torch.rand(n, 2, generator=torch.Generator().manual_seed(n)))
                wanted = wanted.softmax(1) if outputs == "probabilities" else wanted
                given = program(torch.rand(n, 2, generator=torch.Generator().manual_seed(n)))
                assert torch.allclose(given, wanted, atol=1e-5)

    def test_the_metadata_tells_another_delta(self, onnx, tmp_path):
        digests = set()
        for delta in (0.4, 0.5):
            clamped = ClampedModel(network(), torch.tensor([delta, 0.0]), HALVED)
            export(clamped, tmp_path / "clamped.pt2")
            files = {"calibrant.json": ""}
            torch.export.load(tmp_path / "clamped.pt2", extra_files=files)
            about = json.loads(files["calibrant.json"])
            assert about["method"] == "neural_clamping(head=scale)"
            grafted = graft(clamped, network_graph(onnx))
            assert json.loads(grafted.metadata_props[0].value) == about
            digests.add(about["digest"])
        assert len(digests) == 2

    def test_what_cannot_be_exported_is_refused(self, tmp_path):
        class Fixed(nn.Module):
            def forward(self, inputs):
                return inputs.reshape(4, 2) @ torch.ones(2, 3)

        clamped = ClampedModel(network(), torch.zeros(2), HALVED)
        save_clamped(clamped, tmp_path / "clamped.safetensors")
        for model, options, said in (
            (ClampedModel(Fixed(), torch.zeros(2), HALVED), {}, "for any number of samples; it raised"),
            (load_clamped(tmp_path / "clamped.safetensors"), {}, "was loaded without its network"),
            (clamped, {"inputs": "probabilities"}, "must be given its logits; got inputs='probabilities'"),
        ):
            with pytest.raises(InputError, match=said):
                export(model, tmp_path / "no.pt2", **options)
        with pytest.raises(InputError, match=r"grafted onto its own ONNX graph; got .*no.onnx"):
            export(clamped, tmp_path / "no.onnx")
        assert not [*tmp_path.glob("no*")]


class TestGraft:
    @pytest.mark.parametrize("opset", [13, 18])
    def test_the_network_gives_calibrated_logits_under_the_same_name(self, onnx, onnxruntime, opset):
        inputs = torch.randn(5, 2)
        grafted = graft(HALVED, network_graph(onnx, opset=opset))
        assert [one.name for one in grafted.graph.output] == ["logits"]
        (result,) = run_graph(onnxruntime, grafted, x=inputs)
        assert np.allclose(result, HALVED(network()(inputs)).detach(), atol=1e-5)

    def test_what_is_computed_from_the_scores_sees_the_calibrated_ones(self, onnx, onnxruntime):
        inputs = torch.randn(5, 2)
        grafted = graft(HALVED, network_graph(onnx, outputs=("logits", "probs")), output="logits")
        logits, probs = run_graph(onnxruntime, grafted, x=inputs)
        wanted = HALVED(network()(inputs)).detach()
        assert np.allclose(logits, wanted, atol=1e-5)
        assert np.allclose(probs, wanted.softmax(1), atol=1e-5)

    def test_a_map_can_follow_another(self, onnx, onnxruntime):
        twice = graft(HALVED, graft(HALVED, network_graph(onnx)))
        inputs = torch.randn(5, 2)
        assert np.allclose(run_graph(onnxruntime, twice, x=inputs)[0], network()(inputs).detach() / 4, atol=1e-5)

    def test_the_scores_keep_their_type(self, onnx, onnxruntime):
        inputs = torch.randn(5, 2, dtype=torch.float16)
        (result,) = run_graph(onnxruntime, graft(HALVED, network_graph(onnx, dtype="FLOAT16")), x=inputs)
        assert result.dtype == inputs.numpy().dtype
        assert np.allclose(result, network().to(inputs.dtype)(inputs).detach() / 2, atol=1e-3)

    @pytest.mark.parametrize("clips", [False, True])
    def test_delta_is_added_to_the_input_of_a_clamped_network(self, onnx, onnxruntime, clips):
        space = InputSpace(clips=clips)
        clamped = ClampedModel(network(), torch.tensor([0.4, -0.3]), HALVED, space=space).eval()
        inputs = torch.rand(5, 2)
        (result,) = run_graph(onnxruntime, graft(clamped, network_graph(onnx)), x=inputs)
        assert np.allclose(result, clamped(inputs).detach(), atol=1e-5)

    def test_more_weights_than_one_file_holds_are_refused(self, onnx, monkeypatch):
        monkeypatch.setattr("calibrant.integrations.onnx._MOST_BYTES", 35)
        with pytest.raises(InputError, match=r"less than 2 GB of weights.*it has 36 bytes"):
            graft(HALVED, network_graph(onnx))

    def test_graphs_that_do_not_fit_are_refused(self, onnx):
        clamped = ClampedModel(network(), torch.zeros(4), HALVED)
        for fitted, options, said in (
            (HALVED, {"outputs": ("logits", "probs")}, r"it has 2: logits, probs. Name the one with output=NAME"),
            (HALVED, {"outputs": ("probs",)}, "it comes from a Softmax"),
            (HALVED, {"classes": 5}, r"must have shape \(n, 3\).*it has \(n, 5\)"),
            (HALVED, {"opset": 12}, "must be of opset 13 or later; it is of 12"),
            (clamped, {}, r"of the shape \(n, 4\) of δ; it has \(n, 2\)"),
        ):
            with pytest.raises(InputError, match=said):
                graft(fitted, network_graph(onnx, **options))
        with pytest.raises(InputError, match=r"comes from a (Gemm|MatMul)"):
            graft(HALVED, network_graph(onnx), inputs="probabilities")
        with pytest.raises(InputError, match=r"output must be one of logits, probs; got 'logit'. Did you mean logits"):
            graft(HALVED, network_graph(onnx, outputs=("logits", "probs")), output="logit")
        with pytest.raises(InputError, match="must be a fitted map; got TemperatureScaling"):
            bytes_of(TemperatureScaling())


class TestCommand:
    @pytest.fixture
    def calibrant(self, capsys, monkeypatch, tmp_path):
        monkeypatch.chdir(tmp_path)

        def run_command(*arguments):
            monkeypatch.setattr("sys.argv", ["calibrant", "export", *map(str, arguments)])
            with pytest.raises(SystemExit) as stopped:
                run()
            return stopped.value.code or 0, *capsys.readouterr()

        return run_command

    def test_it_exports_the_kind_that_the_map_was_fitted_on(self, calibrant, onnxruntime):
        predictions = Predictions.from_probs(SCORES.softmax(1), [0, 1, 2])
        save_map(Affine(torch.eye(3), torch.ones(3), n_classes=3), "map.safetensors", fitted_on=predictions)
        code, out, err = calibrant("map.safetensors", "-o", "map.onnx")
        assert (code, err) == (0, "")
        assert "probabilities in, probabilities out" in out
        assert onnxruntime.InferenceSession("map.onnx").get_inputs()[0].name == "probabilities"

    def test_it_grafts_maps_and_clamped_networks(self, calibrant, onnx, onnxruntime, tmp_path):
        onnx.save(network_graph(onnx), "network.onnx")
        clamped = ClampedModel(network(), torch.tensor([0.4, -0.3]), HALVED).eval()
        (tmp_path / "clamped").mkdir()
        save_clamped(clamped, "clamped/clamped.safetensors")
        inputs = torch.randn(5, 2)
        for source in ("clamped", "clamped/clamped.safetensors"):
            code, out, err = calibrant(source, "--onto", "network.onnx", "-o", "deployed.onnx")
            assert (code, err) == (0, ""), out
            (result,) = onnxruntime.InferenceSession("deployed.onnx").run(None, {"x": inputs.numpy()})
            assert np.allclose(result, clamped(inputs).detach(), atol=1e-5)
        code, _, err = calibrant("clamped", "-o", "alone.onnx")
        assert (code, "--onto FILE" in err) == (2, True)

    def test_it_writes_a_clamped_network_whole(self, calibrant, tmp_path):
        (tmp_path / "exported_nets.py").write_text(
            "import torch\n\ndef build():\n    torch.manual_seed(0)\n"
            "    return torch.nn.Sequential(torch.nn.Linear(2, 3))\n",
            encoding="utf-8",
        )
        clamped = ClampedModel(network(), torch.tensor([0.4, -0.3]), HALVED).eval()
        (tmp_path / "clamped").mkdir()
        save_clamped(clamped, "clamped/clamped.safetensors")
        code, out, err = calibrant("clamped", "--model", "exported_nets:build", "-o", "clamped.pt2")
        assert (code, err) == (0, ""), out
        assert "inputs of exported_nets:build in, logits out" in out
        inputs = torch.randn(5, 2)
        assert torch.allclose(torch.export.load("clamped.pt2").module()(inputs), clamped(inputs), atol=1e-5)
        save_map(HALVED, "map.safetensors")
        for arguments, said in (
            (("clamped", "-o", "c.pt2"), "--model NETWORK"),
            (("clamped", "--model", "exported_nets:build", "-o", "c.onnx"), "--onto FILE"),
            (("clamped", "--model", "exported_nets:build", "--onto", "n.onnx", "-o", "c.onnx"), "left out with --onto"),
            (("clamped", "--weights", "w.safetensors", "-o", "c.pt2"), "together with --model"),
            (("map.safetensors", "--model", "exported_nets:build", "-o", "c.pt2"), "a map of scores alone"),
        ):
            code, _, err = calibrant(*arguments)
            assert (code, said in err) == (2, True), err

    def test_bad_input_is_one_line(self, calibrant, onnx, tmp_path):
        save_map(HALVED, "map.safetensors")
        onnx.save(network_graph(onnx, outputs=("logits", "probs")), "two.onnx")
        (tmp_path / "cut.onnx").write_bytes(b"\x08\x07 not a graph")
        for arguments, said in (
            (("map.safetensors", "-o", "map.txt"), "ends in .onnx, .py or .pt2; got map.txt"),
            (("map.safetensors", "-o", "no/map.onnx"), "there is no folder no"),
            (("two.onnx", "-o", "map.onnx"), "must be a map saved by calibrant"),
            (("map.safetensors", "--onto", "two.onnx", "-o", "m.onnx"), "Name the one with --output NAME"),
            (("map.safetensors", "--onto", "cut.onnx", "-o", "m.onnx"), "must be a whole ONNX file"),
            (("map.safetensors", "--onto", "two.onnx", "-o", "two.onnx"), "it is an input file"),
            (("map.safetensors", "--onto", "two.onnx", "-o", "m.pt2"), "must be written to .onnx"),
            (("map.safetensors", "--output", "logits", "-o", "m.onnx"), "--output must be given together with --onto"),
            (
                ("map.safetensors", "--inputs", "scores", "-o", "m.onnx"),
                "--inputs must be one of logits, probabilities",
            ),
        ):
            code, out, err = calibrant(*arguments)
            assert (code, out, said in err, len(err.splitlines())) == (2, "", True, 1), err


def test_without_the_package_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(InputError, match=r"pip install .calibrant\[onnx\]"):
        bytes_of(HALVED)


def test_other_endings_are_refused(tmp_path):
    with pytest.raises(FileError, match=r"ends in .onnx, .py or .pt2"):
        export(HALVED, tmp_path / "map.pb")


@pytest.mark.parametrize("names", [("a",), "abc"])
def test_names_of_classes_are_one_for_each(onnx, names):  # noqa: ARG001  # which writes it
    with pytest.raises(InputError, match="class_names must name all 3 classes"):
        bytes_of(HALVED, class_names=names)
