"""Three laws for every map: in onnxruntime, in NumPy, and from an archive of torch.export, it gives what torch does."""

import ast
import json
import warnings

import numpy as np
import pytest
import torch
from map_examples import EXAMPLES, program_of

from calibrant import catalogue
from calibrant.errors import CalibrantWarning
from calibrant.inference import state_digest
from calibrant.maps import Map
from calibrant.predictions import Predictions
from calibrant.testing import hard_logits, overconfident

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
onnx = pytest.importorskip("onnx", reason="onnx is not installed")
from calibrant.integrations import onnx as made  # noqa: E402

K = 4


def with_zeros():
    """Probabilities with exact zeros, as of a forest: the map mixes in a share of the uniform distribution."""
    rows = overconfident(300, K)
    tenths = (rows.logits.softmax(1) * 10).floor()
    tenths[torch.arange(len(rows)), rows.predicted] += 10 - tenths.sum(1)
    return Predictions.from_probs(tenths / 10, rows.labels)


def fitted_maps():
    """A fitted map of every method of the catalogue, and of every kind that none of them uses.

    Methods whose maps differ in their numbers alone make the same graph; one of them stands for all.
    """
    maps, graphs, kinds = {}, set(), set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrantWarning)
        for name in [*catalogue.calibrators, "temperature+isotonic"]:
            fitted = catalogue.parse_calibrator(name).fit(overconfident(300, K))
            graph = program_of(fitted)
            maps |= {} if graph in graphs else {name: fitted}
            graphs.add(graph)
            kinds |= {part.kind for part in fitted.modules() if hasattr(part, "kind")}
        maps["zeros"] = catalogue.parse_calibrator("temperature").fit(with_zeros())
    for kind, example in EXAMPLES.items():
        if kind not in kinds:
            maps[kind] = example
            kinds |= {part.kind for part in example.modules() if hasattr(part, "kind")}
    return maps


MAPS = fitted_maps()


def arguments(fitted, logits):
    """Logits, and features for a map that needs them."""
    features = () if isinstance(fitted, Map) else (logits[:, :2].clamp(-1e3, 1e3),)
    return (logits, *features)


def test_the_whole_catalogue_is_here():
    kinds = {part.kind for fitted in MAPS.values() for part in fitted.modules() if hasattr(part, "kind")}
    assert kinds == set(catalogue.maps)


@pytest.fixture
def traced_once(monkeypatch):
    """Let the graph and the archive of one map be made of one program: tracing is what takes time."""
    programs, traced = [], made._traced
    monkeypatch.setattr(
        made, "_traced", lambda *given: programs[0] if programs else programs.append(traced(*given)) or programs[0]
    )


@pytest.mark.usefixtures("traced_once")
@pytest.mark.parametrize("name", MAPS)
def test_graph_and_archive_give_what_torch_does(name, tmp_path):
    fitted = MAPS[name]
    content = made.bytes_of(fitted)
    session, graph = onnxruntime.InferenceSession(content), onnx.load_from_string(content).graph
    sorts = [node for node in graph.node if node.op_type == "TopK"]
    # No size, such as a number of samples that is 0, lies before it: older runtimes divide by it, and crash.
    assert {onnx.helper.get_node_attr_value(node, "axis") for node in sorts} <= {0, -2}  # of two axes
    about = json.loads(session.get_modelmeta().custom_metadata_map["calibrant"])
    assert about["method"] == (fitted.kind if fitted.summary is None else fitted.summary.method)
    assert about["digest"] == state_digest(fitted.state_dict())
    logits = hard_logits(fitted.n_classes).float()
    tiny, huge = torch.finfo(torch.float32).smallest_normal, torch.finfo(torch.float32).max
    logits = torch.cat([logits, logits[:40] * tiny, logits[:40].clamp(-1, 1) * huge / 4])
    given = arguments(fitted, logits)
    feed = dict(zip(("logits", "features"), (values.numpy() for values in given), strict=False))
    (result,) = session.run(["calibrated_logits"], feed)
    result = torch.from_numpy(result)
    assert result.dtype == torch.float32
    # A sample within rounding of the edge of a step may fall on its other side.
    near = [fitted(logits * (1 + shift), *given[1:]) for shift in (0, 1e-6, -1e-6)]
    off = torch.stack([((result - one).abs() / (1 + one.abs())).amax(dim=1) for one in near])
    assert off.amin(dim=0).max() <= 1e-5
    assert (off[0] > 1e-5).double().mean() <= 0.01
    if getattr(fitted, "keeps_predicted", False):
        assert torch.equal(result.argmax(1), logits.argmax(1))
    for n in (0, 1):
        (few,) = session.run(None, {key: values[:n] for key, values in feed.items()})
        assert few.shape == (n, fitted.n_classes)
        assert torch.allclose(torch.from_numpy(few), result[:n], rtol=1e-5, atol=1e-5)

    made.export(fitted, tmp_path / "map.pt2")
    files = {"calibrant.json": ""}
    program = torch.export.load(tmp_path / "map.pt2", extra_files=files).module()
    assert json.loads(files["calibrant.json"]) == about
    for n in (1, len(logits)):
        few = [values[:n] for values in given]
        assert torch.allclose(program(*few), fitted(*few), rtol=1e-5, atol=1e-5)


def identity_graph(k, code):
    """A network that gives what it is given."""
    infos = [onnx.helper.make_tensor_value_info(name, code, ["n", k]) for name in ("given", "logits")]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["given"], ["logits"])], "net", infos[:1], infos[1:]
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)


def module_of(fitted, folder):
    """The function of the Python module, which must import nothing but NumPy."""
    made.export(fitted, folder / "map.py")
    source = (folder / "map.py").read_text()
    lines = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert {alias.name for line in lines for alias in line.names} <= {"numpy", "base64"}
    assert all(len(line) < 200 for line in source.splitlines() if not line.startswith(("_C", "    'class_names'")))
    names = {}
    exec(source, names)  # noqa: S102  # our own
    return names["calibrate"]


@pytest.mark.usefixtures("traced_once")
@pytest.mark.parametrize("name", MAPS)
def test_in_double_precision_it_has_all_digits(name, tmp_path):
    fitted = MAPS[name]
    calibrate = module_of(fitted, tmp_path)
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(50, fitted.n_classes, generator=generator, dtype=torch.float64)
    hard = torch.cat([logits, hard_logits(fitted.n_classes).double()])
    given = arguments(fitted, hard)
    expected = fitted(*given)
    result = torch.from_numpy(calibrate(*(values.numpy() for values in given)))
    results = [(result, expected)]
    for n in (0, 1):
        few = calibrate(*(values[:n].numpy() for values in given))
        assert few.shape == (n, fitted.n_classes)
        assert np.allclose(few, result[:n], rtol=1e-12)
    if isinstance(fitted, Map):
        grafted = made.graft(fitted, identity_graph(fitted.n_classes, onnx.TensorProto.DOUBLE))
        session = onnxruntime.InferenceSession(grafted.SerializeToString())
        results.append((torch.from_numpy(session.run(None, {"given": logits.numpy()})[0]), expected[:50]))
    for result, wanted in results:
        assert result.dtype == torch.float64
        off = ((result - wanted).abs() / (1 + wanted.abs())).amax(dim=1)
        digits = 1e-11 if isinstance(fitted, Map) else 1e-5  # distances of features are in float32
        assert (off > digits).double().mean() <= 0.02  # a sample may lie at the edge of a step
