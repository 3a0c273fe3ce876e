"""Translate a program of :func:`torch.export.export` into an ONNX graph, operator by operator.

A map's formula stands once, in its module; the graph is read off the traced program, so maps of plugins reach ONNX,
too. What depends on fitted numbers alone is computed here, with their full precision, and becomes a constant. Only
operators whose meaning is the same since opset 13 are written, so that a graph can be grafted onto those of other
exporters. Others are refused, as are options that a translation does not know.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias, final

import onnx
import torch
from onnx import TensorProto, helper
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from calibrant.errors import InputError

LEAST_OPSET = 13
_AXES_ARE_INPUTS = 18  # opset from which ReduceMax and ReduceMean take their axes as an input

TYPES: dict[torch.dtype, int] = {
    torch.float32: TensorProto.FLOAT,
    torch.float64: TensorProto.DOUBLE,
    torch.float16: TensorProto.FLOAT16,
    torch.int64: TensorProto.INT64,
    torch.int32: TensorProto.INT32,
    torch.bool: TensorProto.BOOL,
}


class Value(NamedTuple):
    """A tensor that is known only when the graph runs."""

    name: str
    dtype: torch.dtype


Operand: TypeAlias = Value | Tensor | bool | int | float
Translation: TypeAlias = Callable[..., Any]
_TRANSLATIONS: dict[str, Translation] = {}


@final
@dataclass
class GraphWriter:
    """The nodes and constants of a graph in the making.

    Args:
        opset: Version of ONNX's operators, 13 or later.
        prefix: Put before every name that the writer makes.
    """

    opset: int
    prefix: str = ""
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[TensorProto] = field(default_factory=list)
    _known: dict[tuple[Any, ...], str] = field(default_factory=dict)

    def add(self, operator: str, *inputs: str, dtype: torch.dtype, n_outputs: int = 1, **attributes: Any) -> Any:
        """Append a node and return its value, or its values if there are several."""
        names = [f"{self.prefix}{operator.lower()}_{len(self.nodes)}_{i}" for i in range(n_outputs)]
        node = helper.make_node(operator, list(inputs), names, name=f"{self.prefix}{len(self.nodes)}", **attributes)
        self.nodes.append(node)
        values = [Value(name, dtype) for name in names]
        return values[0] if n_outputs == 1 else values

    def name(self, operand: Operand, dtype: torch.dtype) -> str:
        """Return the name of an operand in a type: a cast value, or a constant."""
        if isinstance(operand, Value):
            return self.cast(operand, dtype).name
        digits = torch.float64 if isinstance(operand, float) else None
        array = torch.as_tensor(operand, dtype=digits).detach().to(dtype).cpu().contiguous().numpy()
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._known:
            self._known[key] = f"{self.prefix}constant_{len(self._known)}"
            self.constants.append(onnx.numpy_helper.from_array(array, self._known[key]))
        return self._known[key]

    def cast(self, value: Value, dtype: torch.dtype) -> Value:
        """Return the value in a type."""
        return value if value.dtype == dtype else self.add("Cast", value.name, dtype=dtype, to=TYPES[dtype])

    def apply(self, operator: str, *operands: Operand, dtype: torch.dtype, of: torch.dtype | None = None) -> Value:
        """Append a node without attributes whose inputs have one type: that of the result, or ``of``."""
        return self.add(operator, *(self.name(operand, of or dtype) for operand in operands), dtype=dtype)

    def reduce(self, operator: str, operand: Operand, axes: Sequence[int], *, dtype: torch.dtype, keep: bool) -> Value:
        """Append a reduction along axes."""
        name = self.name(operand, dtype)
        if operator == "ReduceSum" or self.opset >= _AXES_ARE_INPUTS:
            axes_name = self.name(torch.tensor(axes), torch.int64)
            return self.add(operator, name, axes_name, dtype=dtype, keepdims=int(keep))
        along: dict[str, Any] = {"axes": list(axes)} if axes else {}  # along all without
        return self.add(operator, name, dtype=dtype, keepdims=int(keep), **along)

    def shape(self, sizes: Sequence[Operand]) -> str:
        """Return the name of a shape whose sizes are numbers or values."""
        if all(isinstance(size, int) for size in sizes):
            return self.name(torch.tensor(sizes, dtype=torch.int64), torch.int64)
        line = self.name(torch.tensor([1]), torch.int64)
        parts = [
            self.add("Reshape", size.name, line, dtype=torch.int64).name
            if isinstance(size, Value)
            else self.name(torch.tensor([size]), torch.int64)
            for size in sizes
        ]
        return self.add("Concat", *parts, dtype=torch.int64, axis=0).name

    def shape_of(self, operand: Operand) -> str:
        """Return the name of the shape of an operand."""
        assert isinstance(operand, Value | Tensor)
        return self.add("Shape", self.name(operand, operand.dtype), dtype=torch.int64).name

    def translate(self, program: ExportedProgram, inputs: Sequence[Value]) -> Value:
        """Append a program's operators, applied to these values; return its first result."""
        if not _is_writable(program):
            program = program.run_decompositions()  # into torch's core operators, which takes longer
        known: dict[torch.fx.Node, Any] = {}
        held = {**program.state_dict, **program.constants}
        given = iter(inputs)
        for spec, node in zip(program.graph_signature.input_specs, program.graph.nodes, strict=False):
            known[node] = next(given) if spec.kind is InputKind.USER_INPUT else held[str(spec.target)]
        for node in program.graph.nodes:
            if node.op == "call_function":
                arguments = torch.fx.node.map_arg((node.args, node.kwargs), lambda inner: known[inner])
                known[node] = self._call(node, *arguments)
        outputs = next(node for node in program.graph.nodes if node.op == "output").args[0]
        result = known[outputs[0]]
        assert isinstance(result, Value)
        return result

    def _call(self, node: torch.fx.Node, args: Any, kwargs: Any) -> Any:
        target: Any = node.target
        leaves = torch.utils._pytree.tree_leaves((args, kwargs), is_leaf=lambda leaf: isinstance(leaf, Value))
        if target.__name__ == "getitem" or not any(isinstance(leaf, Value) for leaf in leaves):
            return target(*args, **kwargs)  # one of several values, or of fitted numbers alone
        operator, result = _name(node), node.meta.get("val")
        if operator in _ALONG_AXES and len(args) > 1 and isinstance(args[1], int | list):
            rank = node.all_input_nodes[0].meta["val"].ndim  # onnxruntime takes no negative axis of an empty batch
            args = (args[0], (torch.tensor(args[1]) % rank).tolist(), *args[2:])
        try:
            dtype = result.dtype if isinstance(result, Tensor) else torch.int64
            return _TRANSLATIONS[operator](self, dtype, *args, **kwargs)
        except (AttributeError, KeyError, TypeError, ValueError) as error:  # another operator, option or type
            raise InputError(f"a map for ONNX must have known operators; got {target}. Export it as .pt2.") from error


def _name(node: torch.fx.Node) -> str:
    """Return the name of a node's operator, of which a variant in place has the same."""
    schema = getattr(node.target, "_schema", None)
    return node.target.__name__ if schema is None else schema.name.removeprefix("aten::").rstrip("_")  # type: ignore[union-attr]


def _is_writable(program: ExportedProgram) -> bool:
    """Return whether every operator on the inputs is known, and changes nothing in place that others see."""
    taken = set(program.graph_signature.user_inputs)
    varying = {node for node in program.graph.nodes if node.op == "placeholder" and node.name in taken}
    for node in program.graph.nodes:
        if node.op != "call_function" or varying.isdisjoint(node.all_input_nodes):
            continue
        varying.add(node)
        schema = getattr(node.target, "_schema", None)
        if schema is not None and _name(node) not in _TRANSLATIONS:
            return False
        if schema is not None and schema.is_mutable:
            changed = node.args[0]
            if set(changed.users) != {node} or changed.op != "call_function" or _name(changed) in _VIEWS:
                return False
    return True


def _translates(*operators: str) -> Callable[[Translation], Translation]:
    def register(function: Translation) -> Translation:
        _TRANSLATIONS.update(dict.fromkeys(operators, function))
        return function

    return register


# Operators that ONNX has as such. Each translation gets the writer, the type of the result, and ATen's own arguments.

_DIRECT = {"abs": "Abs", "ceil": "Ceil", "exp": "Exp", "floor": "Floor", "log": "Log", "neg": "Neg", "round": "Round"}
_DIRECT |= {"reciprocal": "Reciprocal", "relu": "Relu", "sigmoid": "Sigmoid", "sqrt": "Sqrt", "tanh": "Tanh"}
_DIRECT |= {"logical_not": "Not", "bitwise_not": "Not", "erf": "Erf", "sign": "Sign"}
_DIRECT |= {"mul": "Mul", "div": "Div", "maximum": "Max", "minimum": "Min", "pow": "Pow"}
_DIRECT |= {"logical_and": "And", "logical_or": "Or", "bitwise_and": "And", "bitwise_or": "Or"}
_DIRECT |= {"mm": "MatMul", "bmm": "MatMul", "matmul": "MatMul", "floordiv": "Div"}  # the last, of sizes
_COMPARISONS = {"eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual"}
_REDUCTIONS = {"amax": "ReduceMax", "amin": "ReduceMin", "mean": "ReduceMean", "sum": "ReduceSum"}
_ALONG_AXES = {*_REDUCTIONS, "argmax", "logsumexp", "max"}
_VIEWS = {"view", "_unsafe_view", "reshape", "expand", "expand_as", "permute", "unsqueeze", "squeeze", "select"}
_VIEWS |= {"slice", "unbind", "getitem", "alias", "detach", "to", "contiguous", "movedim", "transpose", "t", "numpy_T"}


def _direct(operator: str) -> Translation:
    def translate(writer: GraphWriter, dtype: torch.dtype, /, *operands: Operand) -> Value:
        is_both = operator == "Mul" and dtype == torch.bool
        return writer.apply("And" if is_both else operator, *operands, dtype=dtype)

    return translate


_TRANSLATIONS |= {ours: _direct(theirs) for ours, theirs in _DIRECT.items()}


def _sum(operator: str) -> Translation:
    def translate(writer: GraphWriter, dtype: torch.dtype, /, a: Operand, b: Operand, *, alpha: float = 1) -> Value:
        b = b if alpha == 1 else writer.apply("Mul", b, alpha, dtype=dtype)
        return writer.apply(operator, a, b, dtype=dtype)

    return translate


_TRANSLATIONS |= {"add": _sum("Add"), "sub": _sum("Sub")}


def _comparison(operator: str) -> Translation:
    def translate(writer: GraphWriter, dtype: torch.dtype, /, a: Operand, b: Operand) -> Value:
        like: list[Any] = [torch.empty(1, dtype=one.dtype) if isinstance(one, Value) else one for one in (a, b)]
        return writer.apply(operator, a, b, dtype=dtype, of=torch.result_type(*like))

    return translate


_TRANSLATIONS |= {ours: _comparison(theirs) for ours, theirs in _COMPARISONS.items()}


@_translates("where")
def _where(writer: GraphWriter, dtype: torch.dtype, /, condition: Operand, a: Operand, b: Operand) -> Value:
    names = (writer.name(condition, torch.bool), writer.name(a, dtype), writer.name(b, dtype))
    return writer.add("Where", *names, dtype=dtype)


@_translates("clamp", "clamp_min")
def _clamp(
    writer: GraphWriter, dtype: torch.dtype, /, x: Operand, low: Operand | None = None, high: Operand | None = None
) -> Operand:
    if low is not None:
        x = writer.apply("Max", x, low, dtype=dtype)
    return x if high is None else writer.apply("Min", x, high, dtype=dtype)


@_translates("log1p")
def _log1p(writer: GraphWriter, dtype: torch.dtype, /, x: Operand) -> Value:
    """Write log(1 + x) to all digits: x log(u) / (u - 1), where u is 1 + x after rounding."""
    u = writer.apply("Add", x, 1, dtype=dtype)
    is_one = writer.apply("Equal", u, 1, dtype=torch.bool, of=dtype)
    below = _where(writer, dtype, is_one, 1, writer.apply("Sub", u, 1, dtype=dtype))
    ratio = writer.apply("Div", writer.apply("Log", u, dtype=dtype), below, dtype=dtype)
    # At infinity the quotient has no value.
    is_huge = writer.apply("Greater", u, 1e30 if dtype != torch.float16 else 6e4, dtype=torch.bool, of=dtype)
    precise = _where(writer, dtype, is_one, x, writer.apply("Mul", x, ratio, dtype=dtype))
    return _where(writer, dtype, is_huge, writer.apply("Log", u, dtype=dtype), precise)


@_translates("expm1")
def _expm1(writer: GraphWriter, dtype: torch.dtype, /, x: Operand) -> Value:
    """Write exp(x) - 1 to all digits, as tanh(x / 2) (exp(x) + 1)."""
    tanh = writer.apply("Tanh", writer.apply("Mul", x, 0.5, dtype=dtype), dtype=dtype)
    power = writer.apply("Exp", x, dtype=dtype)
    return writer.apply("Mul", tanh, writer.apply("Add", power, 1, dtype=dtype), dtype=dtype)


@_translates("log_sigmoid")
def _log_sigmoid(writer: GraphWriter, dtype: torch.dtype, /, x: Operand) -> Value:
    """Write min(x, 0) - log(1 + exp(-|x|))."""
    power = writer.apply("Exp", writer.apply("Neg", writer.apply("Abs", x, dtype=dtype), dtype=dtype), dtype=dtype)
    return writer.apply("Sub", writer.apply("Min", x, 0, dtype=dtype), _log1p(writer, dtype, power), dtype=dtype)


@_translates("lerp")
def _interpolate(writer: GraphWriter, dtype: torch.dtype, /, start: Operand, end: Operand, share: Operand) -> Value:
    """Write start + share (end - start), or from the end backwards where that is closer, as torch does."""
    length = writer.apply("Sub", end, start, dtype=dtype)
    forwards = writer.apply("Add", start, writer.apply("Mul", share, length, dtype=dtype), dtype=dtype)
    left = writer.apply("Sub", 1, share, dtype=dtype)
    backwards = writer.apply("Sub", end, writer.apply("Mul", left, length, dtype=dtype), dtype=dtype)
    is_near = writer.apply("Less", writer.apply("Abs", share, dtype=dtype), 0.5, dtype=torch.bool, of=dtype)
    return _where(writer, dtype, is_near, forwards, backwards)


# Along axes.


@_translates("logsumexp")
def _logsumexp(
    writer: GraphWriter, dtype: torch.dtype, /, x: Operand, axes: Sequence[int], keep: bool = False
) -> Value:
    """Write log(sum(exp(x))), which is minus infinity of nothing but minus infinity."""
    highest = writer.reduce("ReduceMax", x, axes, dtype=dtype, keep=True)
    is_none = writer.apply("Equal", highest, -math.inf, dtype=torch.bool, of=dtype)
    highest = _where(writer, dtype, is_none, 0, highest)
    powers = writer.apply("Exp", writer.apply("Sub", x, highest, dtype=dtype), dtype=dtype)
    logarithm = writer.apply("Log", writer.reduce("ReduceSum", powers, axes, dtype=dtype, keep=True), dtype=dtype)
    result = writer.apply("Add", logarithm, highest, dtype=dtype)
    return result if keep else _squeeze(writer, dtype, result, axes)


def _reduction(operator: str) -> Translation:
    def translate(
        writer: GraphWriter, dtype: torch.dtype, /, x: Operand, axes: Any = (), keep: bool = False, **_options: Any
    ) -> Value:
        axes = [axes] if isinstance(axes, int) else list(axes)
        return writer.reduce(operator, x, axes, dtype=dtype, keep=keep)

    return translate


_TRANSLATIONS |= {ours: _reduction(theirs) for ours, theirs in _REDUCTIONS.items()}


@_translates("argmax")
def _argmax(writer: GraphWriter, dtype: torch.dtype, /, x: Value, axis: int, keep: bool = False) -> Value:
    return writer.add("ArgMax", x.name, dtype=dtype, axis=axis, keepdims=int(keep))  # the first on a tie


@_translates("max")
def _max(writer: GraphWriter, dtype: torch.dtype, /, x: Any, axis: Any, keep: bool = False) -> Any:
    if isinstance(axis, Value | Tensor):  # of two tensors
        return writer.apply("Max", x, axis, dtype=dtype)
    highest = writer.reduce("ReduceMax", x, [axis], dtype=x.dtype, keep=keep)
    return highest, _argmax(writer, torch.int64, x, axis, keep)


@_translates("linalg_vector_norm")
def _norm(
    writer: GraphWriter, dtype: torch.dtype, /, x: Operand, order: float = 2, axes: Any = (), keep: bool = False
) -> Value:
    if order != 2:
        raise ValueError("a norm must be of order 2")
    squares = writer.apply("Mul", x, x, dtype=dtype)
    return writer.apply("Sqrt", writer.reduce("ReduceSum", squares, list(axes), dtype=dtype, keep=keep), dtype=dtype)


@_translates("cumsum")
def _cumsum(writer: GraphWriter, dtype: torch.dtype, /, x: Operand, axis: int) -> Value:
    return writer.add("CumSum", writer.name(x, dtype), writer.name(axis, torch.int64), dtype=dtype)


@_translates("topk")
def _topk(
    writer: GraphWriter,
    _dtype: torch.dtype,
    /,
    x: Value,
    k: Operand,
    axis: int = -1,
    largest: bool = True,
    ordered: bool = True,
) -> tuple[Value, Value]:
    # With axes reversed: ONNX Runtime up to 1.30 divides by the product of the sizes before TopK's axis, which ends the
    # process, on x86-64, where there are no samples.
    how = {"axis": -1 - axis, "largest": int(largest), "sorted": int(ordered)}
    turned = writer.add("Transpose", x.name, dtype=x.dtype)
    pair = writer.add("TopK", turned.name, writer.shape([k]), dtype=x.dtype, n_outputs=2, **how)
    values, order = (writer.add("Transpose", part.name, dtype=part.dtype) for part in pair)
    return values, Value(order.name, torch.int64)


# Places: sizes, order and look-ups.


@_translates("sym_size")
def _size(writer: GraphWriter, _dtype: torch.dtype, /, x: Value, axis: int) -> Value:
    return writer.add("Gather", writer.shape_of(x), writer.name(axis, torch.int64), dtype=torch.int64, axis=0)


@_translates("view", "_unsafe_view", "reshape")
def _view(writer: GraphWriter, dtype: torch.dtype, /, x: Operand, sizes: Sequence[Any]) -> Value:
    unknown = [size for size in sizes if isinstance(size, Value) or size == -1]
    if len(unknown) == 1:
        sizes = [-1 if isinstance(size, Value) else size for size in sizes]
    return writer.add("Reshape", writer.name(x, dtype), writer.shape(sizes), dtype=dtype)


@_translates("expand")
def _expand(writer: GraphWriter, dtype: torch.dtype, /, x: Operand, sizes: Sequence[Any], **_options: Any) -> Value:
    shape = writer.shape([1 if isinstance(size, int) and size == -1 else size for size in sizes])
    return writer.add("Expand", writer.name(x, dtype), shape, dtype=dtype)


@_translates("expand_as")
def _expand_as(writer: GraphWriter, dtype: torch.dtype, /, x: Operand, other: Operand) -> Value:
    return writer.add("Expand", writer.name(x, dtype), writer.shape_of(other), dtype=dtype)


@_translates("permute")
def _permute(writer: GraphWriter, dtype: torch.dtype, /, x: Operand, order: Sequence[int]) -> Value:
    return writer.add("Transpose", writer.name(x, dtype), dtype=dtype, perm=[axis % len(order) for axis in order])


@_translates("unsqueeze")
def _unsqueeze(writer: GraphWriter, dtype: torch.dtype, /, x: Operand, axis: int) -> Value:
    return writer.add("Unsqueeze", writer.name(x, dtype), writer.name(torch.tensor([axis]), torch.int64), dtype=dtype)


@_translates("squeeze")
def _squeeze(writer: GraphWriter, dtype: torch.dtype, /, x: Operand, axes: Any) -> Value:
    axes = torch.tensor([axes] if isinstance(axes, int) else axes)
    return writer.add("Squeeze", writer.name(x, dtype), writer.name(axes, torch.int64), dtype=dtype)


@_translates("cat")
def _cat(writer: GraphWriter, dtype: torch.dtype, /, parts: Sequence[Operand], axis: int = 0) -> Value:
    return writer.add("Concat", *(writer.name(part, dtype) for part in parts), dtype=dtype, axis=axis)


@_translates("slice")
def _slice(
    writer: GraphWriter,
    dtype: torch.dtype,
    /,
    x: Operand,
    axis: int = 0,
    start: Any = None,
    end: Any = None,
    step: int = 1,
) -> Value:
    ends = (0 if start is None else start, torch.iinfo(torch.int64).max if end is None else end, axis, step)
    return writer.add("Slice", writer.name(x, dtype), *(writer.shape([end]) for end in ends), dtype=dtype)


@_translates("select")
def _select(writer: GraphWriter, dtype: torch.dtype, /, x: Operand, axis: int, place: int) -> Value:
    return writer.add("Gather", writer.name(x, dtype), writer.name(place, torch.int64), dtype=dtype, axis=axis)


@_translates("sort")
def _sort(
    writer: GraphWriter,
    dtype: torch.dtype,
    /,
    x: Value,
    dim: int = -1,
    descending: bool = False,
    *,
    stable: bool = True,  # noqa: ARG001  # TopK is: it puts the first of equal numbers first
) -> tuple[Value, Value]:
    return _topk(writer, dtype, x, _size(writer, torch.int64, x, dim), dim, descending)


@_translates("gather")
def _gather(writer: GraphWriter, dtype: torch.dtype, /, x: Operand, axis: int, places: Operand) -> Value:
    return writer.add("GatherElements", writer.name(x, dtype), writer.name(places, torch.int64), dtype=dtype, axis=axis)


@_translates("scatter")
def _scatter(
    writer: GraphWriter, dtype: torch.dtype, /, x: Operand, axis: int, places: Operand, source: Operand
) -> Value:
    updates = source if isinstance(source, Value | Tensor) else _expand_as(writer, dtype, source, places)
    names = (writer.name(x, dtype), writer.name(places, torch.int64), writer.name(updates, dtype))
    return writer.add("ScatterElements", *names, dtype=dtype, axis=axis)


@_translates("index")
def _index(writer: GraphWriter, dtype: torch.dtype, /, x: Operand, places: Sequence[Operand | None]) -> Value:
    name, known = writer.name(x, dtype), [place for place in places if place is not None]
    if len(known) == 1:
        axis = next(axis for axis, place in enumerate(places) if place is not None)
        return writer.add("Gather", name, writer.name(known[0], torch.int64), dtype=dtype, axis=axis)
    if len(known) < len(places):
        raise ValueError("an index must name a place along every axis, or along one")
    columns = [_unsqueeze(writer, torch.int64, place, -1).name for place in known]
    return writer.add("GatherND", name, writer.add("Concat", *columns, dtype=torch.int64, axis=-1).name, dtype=dtype)


@_translates("take")
def _take(writer: GraphWriter, dtype: torch.dtype, /, x: Operand, places: Operand) -> Value:
    line = writer.add("Reshape", writer.name(x, dtype), writer.shape([-1]), dtype=dtype)
    return writer.add("Gather", line.name, writer.name(places, torch.int64), dtype=dtype, axis=0)


@_translates("searchsorted")
def _searchsorted(writer: GraphWriter, dtype: torch.dtype, /, edges: Tensor, x: Value, **options: Any) -> Value:
    """Write a binary search: from the highest power of two down, a step is taken if the edge there is below x."""
    is_right = options.get("right") or options.get("side") == "right"
    is_above, beyond = ("GreaterOrEqual", torch.nan) if is_right else ("Greater", torch.inf)  # x is not
    count = edges.shape[-1]
    steps = max(1, math.ceil(math.log2(count + 1)))
    padding = edges.new_full((*edges.shape[:-1], 2**steps - 1 - count), beyond)
    padded = torch.cat([edges, padding], dim=-1)
    table = writer.name(padded, x.dtype)
    place = writer.add("Expand", writer.name(0, torch.int64), writer.shape_of(x), dtype=torch.int64)
    for step in (2**power for power in reversed(range(steps))):
        ahead = writer.apply("Add", place, step, dtype=torch.int64)
        at = writer.apply("Sub", ahead, 1, dtype=torch.int64).name
        lookup: dict[str, Any] = {"dtype": x.dtype, "axis": edges.ndim - 1}
        edge = writer.add("Gather" if edges.ndim == 1 else "GatherElements", table, at, **lookup)
        taken = writer.apply(is_above, x, edge, dtype=torch.bool, of=x.dtype)
        place = _where(writer, torch.int64, taken, ahead, place)
    return writer.cast(place, dtype)


@_translates("addmm")
def _product_and_sum(
    writer: GraphWriter, dtype: torch.dtype, /, c: Operand, a: Operand, b: Operand, *, beta: float = 1, alpha: float = 1
) -> Value:
    product = writer.apply("Mul", writer.apply("MatMul", a, b, dtype=dtype), alpha, dtype=dtype)
    return writer.apply("Add", writer.apply("Mul", c, beta, dtype=dtype), product, dtype=dtype)


# Translations of one expression.


def _along_axis(operator: str) -> Translation:
    return lambda writer, dtype, /, x, axis, *_how: writer.add(operator, writer.name(x, dtype), dtype=dtype, axis=axis)


_TRANSLATIONS |= {
    "ne": lambda writer, dtype, /, a, b: writer.apply("Not", _TRANSLATIONS["eq"](writer, dtype, a, b), dtype=dtype),
    "square": lambda writer, dtype, /, x: writer.apply("Mul", x, x, dtype=dtype),
    "rsub": lambda writer, dtype, /, a, b, **options: _TRANSLATIONS["sub"](writer, dtype, b, a, **options),
    "full": lambda writer, dtype, /, sizes, fill, **_options: _expand(writer, dtype, fill, sizes),
    "stack": lambda writer, dtype, /, parts, axis=0: _cat(
        writer, dtype, [_unsqueeze(writer, dtype, part, axis) for part in parts], axis
    ),
}
for _names, _translation in (
    (("alias", "clone", "detach", "contiguous"), lambda _writer, _dtype, /, x, **_options: x),
    (("softmax", "_softmax"), _along_axis("Softmax")),
    (("log_softmax", "_log_softmax"), _along_axis("LogSoftmax")),
    (("_to_copy", "to"), lambda writer, dtype, /, x, *_how, **_options: writer.cast(x, dtype)),
    (("full_like", "zeros_like"), lambda writer, dtype, /, x, fill=0, **_options: _expand_as(writer, dtype, fill, x)),
    # Checks of the tracer become nothing.
    (("_assert_tensor_metadata", "_assert_scalar", "sym_constrain_range_for_size"), lambda *_given, **_options: None),
):
    _TRANSLATIONS |= dict.fromkeys(_names, _translation)
