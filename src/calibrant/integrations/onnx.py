"""Deploy a fitted map without calibrant: as an ONNX graph, a NumPy module, or an archive of torch.export.

``export`` writes a map alone, for a server that has the model's scores, or a clamped network whole, as ``.pt2``.
``graft`` puts a map behind the output of a network's ONNX graph, and for Neural Clamping δ before its input, so that
serving code does not change: the inputs and the names of the outputs stay. Needs ``onnx``
(``pip install "calibrant[onnx]"``), except for ``.pt2``.
"""

import json
import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, final, get_args

import torch
from torch import Tensor, nn

from calibrant import __version__
from calibrant.atomic import atomic_path
from calibrant.checks import check_known, existing_file
from calibrant.clamping import ClampedModel
from calibrant.errors import Argument, FileError, InputError, one_line, reading
from calibrant.files.map_file import AnyMap, check_class_names
from calibrant.inference import state_digest
from calibrant.maps import Map, ProximityMap
from calibrant.predictions import PROB_FLOOR

if TYPE_CHECKING:
    import onnx

ScoreKind: TypeAlias = Literal["logits", "probabilities"]

KEY = "calibrant"  # of the metadata
_OPSET = 17
_IR_VERSION = 8  # the one of opset 17: newer ones are refused by older runtimes
_SUFFIXES = (".onnx", ".py", ".pt2")
_MOST_BYTES = 2**31 - 1  # of one protobuf message


def export(
    fitted: AnyMap | ClampedModel,
    path: str | os.PathLike[str],
    *,
    inputs: ScoreKind = "logits",
    outputs: ScoreKind | None = None,
    class_names: tuple[str, ...] | None = None,
) -> None:
    """Write a fitted map to a file that runs without calibrant: ``.onnx``, ``.py``, or ``.pt2`` for torch.export.

    The graph takes scores (n, k) in float32 for any n, under the name of ``inputs``, and gives ``calibrated_logits`` or
    ``calibrated_probabilities``; a map that needs features takes ``features`` (n, d) too. The metadata has the method,
    its options, calibrant's version and a digest of the fitted numbers, as JSON under the key ``calibrant``. The
    Python module needs NumPy alone: its function ``calibrate`` computes the same in float64, and ``ABOUT`` has the
    metadata.

    Of a :class:`~calibrant.clamping.ClampedModel` the ``.pt2`` file holds x + δ, the network and the map, for inputs of
    the network; as an ONNX graph it is written by :func:`graft`.

    Args:
        fitted: A fitted map, or a clamped model with its network.
        path: Path of the file; the folder must exist, and an existing file is replaced.
        inputs: Kind of scores that the graph takes: that which the map was fitted on.
        outputs: Kind of scores that it gives; the same if not given.
        class_names: Names of the classes, for the metadata; those of the map unless given.

    Raises:
        FileError: If the ending is another, or the file cannot be written.

    Example:
        >>> import tempfile
        >>> from calibrant.maps import Scale
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     export(Scale(torch.tensor(2.0), n_classes=3), f"{folder}/map.pt2")
        ...     program = torch.export.load(f"{folder}/map.pt2").module()
        >>> program(torch.tensor([[2.0, 0.0, 4.0]]))
        tensor([[1., 0., 2.]])
    """
    suffix = check_suffix(path)
    made: _Deployed | _DeployedNetwork
    if isinstance(fitted, ClampedModel):
        head = _Deployed(fitted.head, inputs, outputs or inputs)
        made, about = _DeployedNetwork(fitted, head), _about(head, class_names, clamped=fitted)
    else:
        made = _Deployed(fitted, inputs, outputs or inputs)
        about = _about(made, class_names)
    if suffix != ".pt2":
        if isinstance(made, _DeployedNetwork):
            raise InputError(
                "a clamped network must be exported to .pt2, or grafted onto its own ONNX graph; got "
                f"{os.fspath(path)}. Call graft(clamped, 'network.onnx', path)."
            )
        graph = _map_graph(made, about, torch.float32 if suffix == ".onnx" else torch.float64)
        from calibrant.integrations.numpy_module import numpy_module  # which needs onnx too

        content = graph.SerializeToString() if suffix == ".onnx" else numpy_module(graph, about).encode()
        with atomic_path(path) as file:
            file.write_bytes(content)
    else:
        with atomic_path(path) as file:
            partial = file.with_suffix(".pt2")  # torch looks at the ending
            torch.export.save(_traced(made, made.examples()), partial, extra_files={f"{KEY}.json": json.dumps(about)})
            partial.replace(file)


def bytes_of(
    fitted: AnyMap,
    *,
    inputs: ScoreKind = "logits",
    outputs: ScoreKind | None = None,
    class_names: tuple[str, ...] | None = None,
) -> bytes:
    """Return the content of the ``.onnx`` file that :func:`export` writes."""
    made = _Deployed(fitted, inputs, outputs or inputs)
    return _map_graph(made, _about(made, class_names)).SerializeToString()


def graft(
    fitted: AnyMap | ClampedModel,
    model: "str | os.PathLike[str] | onnx.ModelProto",
    path: str | os.PathLike[str] | None = None,
    *,
    output: str | None = None,
    inputs: ScoreKind = "logits",
    outputs: ScoreKind | None = None,
    class_names: tuple[str, ...] | None = None,
) -> "onnx.ModelProto":
    """Return the ONNX graph of a network with a map behind its scores, and write it where a path is given.

    Inputs and outputs keep their names; the scores before calibration are not an output any more. Of a
    :class:`~calibrant.clamping.ClampedModel` the head is the map, and x + δ, clipped if it clips, becomes the input.

    Args:
        fitted: A fitted map of logits, or a clamped model (with its network or without).
        model: The network's graph, or the path of its ``.onnx`` file, of opset 13 or later. It is not changed.
        path: Path of the file to write, ending in ``.onnx``.
        output: Name of the graph's output that holds the scores; needed where it has several.
        inputs: Kind of scores that the network gives; the map must have been fitted on these.
        outputs: Kind of scores that the result gives; the same if not given.
        class_names: Names of the classes, for the metadata; those of the map unless given.
    """
    if path is not None and check_suffix(path) != ".onnx":
        raise FileError(f"a map grafted onto an ONNX graph must be written to .onnx; got {os.fspath(path)}.")
    head = fitted.head if isinstance(fitted, ClampedModel) else fitted
    if not isinstance(head, Map):
        raise InputError(
            f"what is grafted must be a map of logits alone, or a clamped model; got {type(head).__name__}. Export a "
            "map that needs features by itself, and feed it logits and features."
        )
    made, clamped = _Deployed(head, inputs, outputs or inputs), fitted if isinstance(fitted, ClampedModel) else None
    grafted = _grafted(made, clamped, model, output)
    _describe(grafted, _about(made, class_names, clamped=clamped))
    if path is not None:
        with atomic_path(path) as file:
            file.write_bytes(grafted.SerializeToString())
    return grafted


def check_suffix(path: str | os.PathLike[str]) -> str:
    """Return the ending of a file to write, which must be one that is known."""
    suffix = Path(path).suffix.lower()
    if suffix not in _SUFFIXES:
        raise FileError(f"an exported map must be a file that ends in .onnx, .py or .pt2; got {os.fspath(path)}.")
    return suffix


@final
class _Deployed(nn.Module):
    """A map between the scores that a model gives and those that its users want."""

    def __init__(self, fitted: AnyMap, inputs: ScoreKind, outputs: ScoreKind) -> None:
        super().__init__()
        if not isinstance(fitted, Map | ProximityMap):
            raise InputError(f"what is exported must be a fitted map; got {type(fitted).__name__}. Call fit first.")
        check_known(inputs, get_args(ScoreKind), "inputs")
        check_known(outputs, get_args(ScoreKind), "outputs")
        # A copy, whose tensors are no slices of one: an archive would keep the whole behind each.
        self.fitted = deepcopy(fitted).cpu()._apply(torch.clone)
        self.inputs, self.outputs = inputs, outputs

    def forward(self, scores: Tensor, features: Tensor | None = None) -> Tensor:
        if self.inputs == "probabilities":
            scores = scores.clamp(min=PROB_FLOOR).log()  # as Predictions reads them
        calibrated: Tensor = self.fitted(scores) if features is None else self.fitted(scores, features)
        return calibrated.softmax(dim=-1) if self.outputs == "probabilities" else calibrated

    def examples(self, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
        """Return a few samples by the names of the graph's inputs."""
        scores = torch.rand(4, self.fitted.n_classes, generator=torch.Generator().manual_seed(0)).to(dtype)
        if isinstance(self.fitted, Map):
            return {self.inputs: scores}
        return {self.inputs: scores, "features": torch.ones(4, self.fitted.reference.shape[1], dtype=dtype)}


@final
class _DeployedNetwork(nn.Module):
    """A clamped network between its inputs and the scores that its users want."""

    def __init__(self, clamped: ClampedModel, head: _Deployed) -> None:
        super().__init__()
        if head.inputs != "logits":
            raise InputError(f"the map of a clamped network must be given its logits; got inputs={head.inputs!r}.")
        self.clamped = deepcopy(clamped).cpu()
        assert isinstance(head.fitted, Map)
        self.clamped.head, self.outputs = head.fitted, head.outputs

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.clamped(inputs)
        return logits.softmax(dim=-1) if self.outputs == "probabilities" else logits

    def examples(self) -> dict[str, Tensor]:
        """Return a few inputs, of the type of the network's weights."""
        weights = (values.dtype for values in self.clamped.model.state_dict().values() if values.is_floating_point())
        return {"inputs": torch.zeros(4, *self.clamped.delta.shape, dtype=next(weights, torch.float32))}


@final
class _Perturbed(nn.Module):
    """The input of a clamped network."""

    def __init__(self, clamped: ClampedModel) -> None:
        super().__init__()
        self.clamped = clamped

    def forward(self, inputs: Tensor) -> Tensor:
        return self.clamped.perturbed(inputs)


def _traced(module: nn.Module, examples: dict[str, Tensor]) -> torch.export.ExportedProgram:
    """Return the module as a program for any number of samples."""
    samples = torch.export.Dim("n", min=1)
    arguments = tuple(examples.values())
    module.eval()
    with torch.no_grad(), _without_notices():
        try:
            return torch.export.export(module, arguments, dynamic_shapes=tuple({0: samples} for _ in arguments))
        except RuntimeError as error:
            raise InputError(
                "a network must be one that torch.export takes, for any number of samples; it raised "
                f"{one_line(error)}. Write its forward without branches on values and without a fixed batch."
            ) from error


def _written(
    module: nn.Module, examples: dict[str, Tensor], *, opset: int, result: str, prefix: str = ""
) -> "tuple[list[onnx.NodeProto], list[onnx.TensorProto]]":
    """Return the nodes and constants that a module becomes; its inputs have the names of the examples."""
    from onnx import helper

    from calibrant.integrations.onnx_graph import GraphWriter, Value

    writer = GraphWriter(opset, prefix)
    program = _traced(module, examples)
    with _without_notices():
        value = writer.translate(program, [Value(name, given.dtype) for name, given in examples.items()])
    return [
        *writer.nodes,
        helper.make_node("Identity", [value.name], [result], name=f"{prefix}result"),
    ], writer.constants


@contextmanager
def _without_notices() -> Iterator[None]:
    """Silence torch's notices about its own code."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def _about(
    made: _Deployed, class_names: tuple[str, ...] | None, *, clamped: ClampedModel | None = None
) -> dict[str, Any]:
    """Return what the metadata says of a map, and of the δ of a clamped network."""
    summary, fitted = made.fitted.summary, made.fitted.state_dict()
    method = made.fitted.kind if summary is None else summary.method
    names = made.fitted.class_names if class_names is None else class_names
    check_class_names(names, made.fitted.n_classes)
    return {
        "calibrant": __version__,
        "method": method if clamped is None else f"neural_clamping(head={method})",
        "settings": {} if summary is None else summary.settings,
        "digest": state_digest(fitted if clamped is None else fitted | {"delta": clamped.delta}),
        "inputs": made.inputs,
        "outputs": made.outputs,
        "class_names": names if names is None else list(names),
    }


def _describe(model: "onnx.ModelProto", about: dict[str, Any]) -> None:
    kept = [entry for entry in model.metadata_props if entry.key != KEY]
    del model.metadata_props[:]
    model.metadata_props.extend(kept)
    model.metadata_props.add(key=KEY, value=json.dumps(about))


def _map_graph(made: _Deployed, about: dict[str, Any], dtype: torch.dtype = torch.float32) -> "onnx.ModelProto":
    """Return a map alone as an ONNX model."""
    onnx = _library()
    from onnx import helper

    from calibrant.integrations.onnx_graph import TYPES

    examples, result = made.examples(dtype), f"calibrated_{made.outputs}"
    nodes, constants = _written(made, examples, opset=_OPSET, result=result)
    sizes = {name: values.shape[1] for name, values in examples.items()} | {result: made.fitted.n_classes}
    infos = [helper.make_tensor_value_info(name, TYPES[dtype], ["n", size]) for name, size in sizes.items()]
    graph = helper.make_graph(nodes, "calibrant", infos[:-1], infos[-1:], constants)
    imported = [helper.make_opsetid("", _OPSET)]
    model = helper.make_model(graph, opset_imports=imported, ir_version=_IR_VERSION, producer_name="calibrant")
    model.producer_version = about["calibrant"]
    _describe(model, about)
    onnx.checker.check_model(model)
    return model


def _library() -> Any:
    """Return the module ``onnx``, or say how to install it."""
    try:
        import onnx
    except ImportError as error:
        raise InputError('ONNX files and Python modules need onnx: pip install "calibrant[onnx]".') from error
    return onnx


def _grafted(
    made: _Deployed, clamped: ClampedModel | None, given: "str | os.PathLike[str] | onnx.ModelProto", output: str | None
) -> "onnx.ModelProto":
    """Return a copy of the graph with the map behind an output, and δ before the input of a clamped model."""
    onnx = _library()
    from calibrant.integrations.onnx_graph import TYPES

    where = "the model" if isinstance(given, onnx.ModelProto) else os.fspath(given)
    model = onnx.ModelProto()
    model.CopyFrom(given if isinstance(given, onnx.ModelProto) else _read(onnx, given))
    graph, types = model.graph, {code: dtype for dtype, code in TYPES.items()}
    if (size := sum(len(weights.raw_data) for weights in graph.initializer)) > _MOST_BYTES:
        raise InputError(
            f"{where} must have less than 2 GB of weights, the limit of one ONNX file; it has {size:,} bytes. Export "
            "the map alone, and feed it the network's scores."
        )
    scores, opset, prefix = _scores(graph, output, made, where), _opset(model, where), _unused_prefix(graph)
    place, producer = next((i, node) for i, node in enumerate(graph.node) if scores.name in node.output)
    before = f"{prefix}uncalibrated"
    # What the network computes from its scores, such as a second output of probabilities, gets the calibrated ones.
    producer.output[list(producer.output).index(scores.name)] = before
    (example,) = made.examples(types[scores.type.tensor_type.elem_type]).values()
    added, constants = _written(made, {before: example}, opset=opset, result=scores.name, prefix=prefix)
    nodes = [*graph.node[: place + 1], *added, *graph.node[place + 1 :]]
    if clamped is not None:
        entry, seen = _input(graph, clamped, where), f"{prefix}perturbed"
        _rename_uses(nodes, entry.name, seen)
        example = torch.zeros(4, *clamped.delta.shape, dtype=types[entry.type.tensor_type.elem_type])
        perturbed, more = _written(
            _Perturbed(clamped), {entry.name: example}, opset=opset, result=seen, prefix=f"{prefix}input/"
        )
        nodes, constants = [*perturbed, *nodes], [*constants, *more]
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]  # copies: the list is replaced
    del graph.node[:]
    graph.node.extend(nodes)
    graph.initializer.extend(constants)
    with reading(where, "ONNX graph after the graft"):
        onnx.checker.check_model(model)
    return model


def _unused_prefix(graph: "onnx.GraphProto") -> str:
    """Return a prefix that no name of the graph begins with: a map may be grafted onto a graft."""
    names = [name for node in graph.node for name in (node.name, *node.output)]
    names += [one.name for one in (*graph.initializer, *graph.input)]
    numbers = ("calibrant/", *(f"calibrant_{number}/" for number in range(2, len(names) + 3)))
    return next(prefix for prefix in numbers if not any(name.startswith(prefix) for name in names))


def _rename_uses(nodes: "Iterable[onnx.NodeProto]", old: str, new: str) -> None:
    """Let nodes, also those inside branches and loops, take another value in place of one."""
    for node in nodes:
        node.input[:] = [new if name == old else name for name in node.input]
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                _rename_uses(inner.node, old, new)


def _input(graph: "onnx.GraphProto", clamped: ClampedModel, where: str) -> "onnx.ValueInfoProto":
    """Return the input that δ is added to; an InputError if it is not one, or of another shape."""
    from calibrant.integrations.onnx_graph import TYPES

    held = {one.name for one in graph.initializer}
    taken = [one for one in graph.input if one.name not in held]
    if len(taken) != 1:
        names = ", ".join(one.name for one in taken) or "none"
        raise InputError(f"{where} must have one input for δ to be added to; it has {len(taken)}: {names}.")
    tensor, shape = taken[0].type.tensor_type, tuple(clamped.delta.shape)
    floats = [code for dtype, code in TYPES.items() if dtype.is_floating_point]
    sizes = [size.dim_value for size in tensor.shape.dim]
    fits = len(sizes) == len(shape) + 1 and all(a in (0, b) for a, b in zip(sizes[1:], shape, strict=True))
    if tensor.elem_type not in floats or not fits:
        shown = ", ".join(str(size) if size else "n" for size in sizes)
        raise InputError(
            f"the input {taken[0].name!r} of {where} must be floating-point numbers of the shape "
            f"(n, {', '.join(map(str, shape))}) of δ; it has ({shown}). Graft onto the network that was clamped."
        )
    return taken[0]


def _read(onnx: Any, path: "str | os.PathLike[str]") -> "onnx.ModelProto":
    file = existing_file(path, holding="an ONNX graph")
    with reading(file, "ONNX file"):
        onnx.checker.check_model(str(file))  # in memory it could not be above 2 GB
        return onnx.load(file)


def _opset(model: "onnx.ModelProto", where: str) -> int:
    from calibrant.integrations.onnx_graph import LEAST_OPSET

    opset = next((one.version for one in model.opset_import if one.domain in ("", "ai.onnx")), None)
    if opset is None:  # a graph of another domain's operators alone
        model.opset_import.add(domain="", version=_OPSET)
        return _OPSET
    if opset < LEAST_OPSET:
        raise InputError(
            f"{where} must be of opset {LEAST_OPSET} or later; it is of {opset}. Export the network anew, or convert "
            "it with onnx.version_converter."
        )
    return opset


def _scores(graph: "onnx.GraphProto", output: str | None, made: _Deployed, where: str) -> "onnx.ValueInfoProto":
    """Return the output that holds the scores; an InputError if it is not one that the map can follow."""
    from calibrant.integrations.onnx_graph import TYPES

    names = [one.name for one in graph.output]
    if output is None and len(names) != 1:
        raise InputError(
            f"{where} must have one output of scores; it has {len(names)}: {', '.join(names)}. Name the one with ",
            Argument("output", "NAME", is_literal=False),
            ".",
        )
    chosen = output or names[0]
    check_known(chosen, names, "output")
    scores = next(one for one in graph.output if one.name == chosen)
    floats = [code for dtype, code in TYPES.items() if dtype.is_floating_point]
    if not scores.type.HasField("tensor_type") or scores.type.tensor_type.elem_type not in floats:
        raise InputError(
            f"the output {chosen!r} of {where} must be a tensor of floating point; it is something else. Export the "
            "network so that it gives its logits as one tensor (scikit-learn: zipmap=False)."
        )
    sizes = [size.dim_value for size in scores.type.tensor_type.shape.dim]
    k = made.fitted.n_classes
    if scores.type.tensor_type.HasField("shape") and (len(sizes) != 2 or sizes[1] not in (0, k)):
        shown = ", ".join(str(size) if size else "n" for size in sizes)
        raise InputError(f"the output {chosen!r} of {where} must have shape (n, {k}), as the map; it has ({shown}).")
    made_by = next((node.op_type for node in graph.node if chosen in node.output), None)
    if made_by is None:
        raise InputError(f"the output {chosen!r} of {where} must be computed by the graph; it is an input or constant.")
    if made_by == "Softmax" and made.inputs == "logits":
        raise InputError(
            f"the output {chosen!r} of {where} must be logits, which the map was fitted on; it comes from a Softmax, "
            "so it is probabilities. Export the network without it, or fit the map on its probabilities."
        )
    if made_by in {"Gemm", "MatMul", "LogSoftmax"} and made.inputs == "probabilities":
        raise InputError(
            f"the output {chosen!r} of {where} must be probabilities, which the map was fitted on; it comes from a "
            f"{made_by}, so it is logits. Name another output, or fit the map on its logits."
        )
    return scores
