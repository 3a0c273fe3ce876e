"""Write the ONNX graph of a map as a Python module that needs NumPy alone.

Each operator of a graph is one expression; a value that is used once stands inside the expression that uses it. Only
the operators that :mod:`~calibrant.integrations.onnx_graph` writes for maps are known.
"""

import base64
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from calibrant.errors import InputError
from calibrant.predictions import SUM_TOLERANCE

_SHOWN = 32  # numbers of an array that are written as such; more are written as bytes
_WIDTH = 100  # characters of a line, as far as its values can stand on lines of their own

_INFIX = {"Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "MatMul": "@", "Pow": "**"}
_INFIX |= {"Equal": "==", "Less": "<", "LessOrEqual": "<=", "Greater": ">", "GreaterOrEqual": ">="}
_FUNCTIONS = {"Abs": "abs", "Ceil": "ceil", "Exp": "exp", "Floor": "floor", "Log": "log"}
_FUNCTIONS |= {"Round": "rint", "Sign": "sign", "Sqrt": "sqrt", "Tanh": "tanh", "Reciprocal": "reciprocal"}
_FUNCTIONS |= {"Max": "maximum", "Min": "minimum", "And": "logical_and", "Or": "logical_or", "Not": "logical_not"}
_SIGNED = {*_INFIX, "Neg", "Sigmoid"}
_FIELD = re.compile(r"{([aosi]\d)}")  # of a template
_REDUCTIONS = {"ReduceMax": "max", "ReduceMin": "min", "ReduceMean": "mean", "ReduceSum": "sum", "ArgMax": "argmax"}

# What some expressions call; a module has those that its own do.
_HELPERS = {
    "_expand": """
def _expand(x, shape):
    return np.broadcast_to(x, np.broadcast_shapes(np.shape(x), tuple(shape)))
""",
    "_log_softmax": """
def _log_softmax(x, axis):
    x = x - x.max(axis, keepdims=True)
    return x - np.log(np.exp(x).sum(axis, keepdims=True))
""",
    "_put": """
def _put(x, places, values, axis):
    x = np.array(x)
    np.put_along_axis(x, places, values, axis)
    return x
""",
    "_softmax": """
def _softmax(x, axis):
    x = np.exp(x - x.max(axis, keepdims=True))
    return x / x.sum(axis, keepdims=True)
""",
    "_top": """
def _top(x, k, axis, largest):
    order = np.argsort(-x if largest else x, axis, kind="stable").take(range(k), axis)
    return np.take_along_axis(x, order, axis), order
""",
}

# What inputs must be, and what is said if they are not.
_SUMS = f"(({{0}} >= 0) & (abs({{0}}.sum(1)[:, None] - 1) <= {SUM_TOLERANCE})).all()"
_CHECKS = dict.fromkeys(("logits", "features"), ("np.isfinite({0}).all()", "finite"))
_CHECKS["probabilities"] = (_SUMS, "from 0 to 1, and sum to one in every row")


def numpy_module(model: onnx.ModelProto, about: dict[str, Any]) -> str:
    """Return the source of a module whose function ``calibrate`` computes the graph of a map."""
    writer = _Writer(onnx.shape_inference.infer_shapes(model).graph)
    lines = list(writer.lines())
    taken = {one.name: one.type.tensor_type.shape.dim[1].dim_value for one in model.graph.input}
    scores, k = next(iter(taken.items()))
    hint = " Of two, with p that of the second: np.stack([1 - p, p], 1)." * (scores == "probabilities" and k == 2)
    given = " and ".join(f"{name} (n, {size})" for name, size in taken.items())
    checked: list[str] = []
    for name, size in taken.items():
        condition, words = _CHECKS[name]
        checked += [
            f"{name} = np.asarray({name}, dtype=np.float64)",
            f"if {name}.ndim != 2 or {name}.shape[1] != {size}:",
            f'    raise ValueError(f"{name} must have the shape (n, {size}); got {{{name}.shape}}.{hint}")',
            f"if not {condition.format(name)}:",
            f'    raise ValueError("{name} must be {words}; some are not.")',
        ]
    body = [*checked, 'with np.errstate(all="ignore"):', *(f"    {line}" for line in lines)]
    function = [
        f"def calibrate({', '.join(taken)}):",
        f'    """Return calibrated {about["outputs"]} (n, {k}), float64, of {given}."""',
        *(f"    {line}" for line in body),
    ]
    helpers = [text.strip() for name, text in _HELPERS.items() if any(f"{name}(" in line for line in lines)]
    imports = ["import numpy as np"] if not writer.is_encoded else ["import base64", "", "import numpy as np"]
    head = [
        f'"""Calibrated {about["outputs"]} of a classifier of {k} classes, from its {scores}. Needs NumPy alone."""',
        "", *imports, "", "ABOUT = {", *(f"    {key!r}: {value!r}," for key, value in about.items()), "}",
    ]  # fmt: skip
    parts = ["\n".join(head), "\n".join(function), *helpers, "\n".join(writer.constants)]
    return "\n\n\n".join(filter(None, parts)) + "\n"


@final
class _Writer:
    """The expressions of a graph's values, in the order of its nodes, and the constants that they use."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._nodes, self._result = graph.node, graph.output[0].name
        self._uses = Counter(name for node in graph.node for name in node.input)
        types = {one.name: one.type.tensor_type.elem_type for one in graph.value_info}
        self._integers = {name for name, code in types.items() if code == onnx.TensorProto.INT64}
        self._texts = {one.name: one.name for one in graph.input}  # of each value
        self._inside: dict[str, str] = {}  # operators of values that stand inside the expression that uses them
        self._named: dict[str, str] = {}
        self._numbers = itertools.count()
        self.arrays = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
        self.constants: list[str] = []
        self.is_encoded = False

    def lines(self) -> Iterator[str]:
        """Yield the statements of the function."""
        for node in self._nodes:
            if not any(self._uses[name] or name == self._result for name in node.output):
                continue
            text, first = self._expression(node), node.output[0]
            while len(text) > _WIDTH and (inside := [name for name in node.input if name in self._inside]):
                longest = max(inside, key=lambda name: len(self._texts[name]))
                del self._inside[longest]
                yield self._assigned(self._texts[longest], longest)
                text = self._expression(node)
            if first == self._result:
                yield f"return {text}"
            elif len(node.output) > 1:
                yield self._assigned(text, *node.output)
            elif self._uses[first] == 1:
                self._texts[first], self._inside[first] = text, node.op_type
            else:
                yield self._assigned(text, first)

    def _assigned(self, text: str, *values: str) -> str:
        """Return the statement that gives values names of their own."""
        names = [f"x{next(self._numbers)}" for _ in values]
        self._texts.update(zip(values, names, strict=True))
        return f"{', '.join(names)} = {text}"

    def _expression(self, node: onnx.NodeProto) -> str:
        attributes = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
        operator, given = node.op_type, list(node.input)
        if operator in _INFIX:
            sign = "//" if operator == "Div" and node.output[0] in self._integers else _INFIX[operator]
            return f" {sign} ".join(self.operand(name) for name in given)
        if operator in _FUNCTIONS:
            return f"np.{_FUNCTIONS[operator]}({', '.join(self.number(name) for name in given)})"
        if operator in _REDUCTIONS:
            axes = attributes.get("axes", [attributes["axis"]] if "axis" in attributes else None)
            axes = self.arrays[given[1]].tolist() if len(given) > 1 else axes
            axis = axes[0] if axes and len(axes) == 1 else tuple(axes) if axes else None
            keep = ", keepdims=True" if attributes.get("keepdims", 1) else ""
            return f"np.{_REDUCTIONS[operator]}({self.array(given[0])}, axis={axis}{keep})"
        if operator not in _OTHERS:
            raise InputError(f"a map for NumPy must be made of operators that it has; {operator} is not. Use .onnx.")
        return _OTHERS[operator](self, given, attributes)

    def number(self, name: str) -> str:
        """Return a value, or a constant that takes the type of what it is combined with."""
        constant = self.arrays.get(name)
        return self.array(name) if constant is None or constant.ndim else _literal(constant)

    def operand(self, name: str) -> str:
        """Return the same for use beside a sign."""
        text = self.number(name)
        return f"({text})" if self._inside.get(name) in _SIGNED or text.startswith("-") else text

    def array(self, name: str) -> str:
        """Return a value, or a constant of its own type."""
        if name not in self.arrays:
            return self._texts[name]
        constant = self.arrays[name]
        if constant.ndim == 0:
            return f"np.{constant.dtype}({_literal(constant)})"
        if name not in self._named:
            self._named[name] = f"_C{len(self._named)}"
            self.constants.append(f"{self._named[name]} = {self._written(constant)}")
        return self._named[name]

    def sizes(self, name: str) -> str:
        """Return sizes, axes or places: as a tuple where they are known."""
        return str(tuple(self.arrays[name].tolist())) if name in self.arrays else self._texts[name]

    def size(self, name: str) -> str:
        """Return the only one of some sizes."""
        return str(self.arrays[name].item()) if name in self.arrays else f"{self.operand(name)}.item()"

    def _written(self, constant: NDArray[Any]) -> str:
        """Return an array as an expression with all its digits."""
        if constant.size <= _SHOWN and np.isfinite(constant).all():
            return f"np.array({constant.tolist()}, dtype=np.{constant.dtype})"
        self.is_encoded = True
        little = constant.astype(constant.dtype.newbyteorder("<"))
        text = base64.b64encode(little.tobytes()).decode()
        parts = "\n".join(f'    "{text[place : place + _WIDTH]}"' for place in range(0, len(text), _WIDTH))
        return f'np.frombuffer(base64.b64decode(\n{parts}\n), dtype="{little.dtype.str}").reshape({constant.shape})'


def _literal(constant: NDArray[Any]) -> str:
    number = constant.item()
    if isinstance(number, float) and not np.isfinite(number):
        return "np.nan" if np.isnan(number) else "np.inf" if number > 0 else "-np.inf"
    return repr(number)


def _slice(writer: _Writer, given: list[str], _attributes: dict[str, Any]) -> str:
    x, *ends = given
    start, end, axis, step = map(writer.size, ends)
    end = "" if end == str(np.iinfo(np.int64).max) else end
    cut, place = f"{start}:{end}" if step == "1" else f"{start}:{end}:{step}", int(axis)
    around = [":"] * place + [cut] if place >= 0 else ["...", cut] + [":"] * (-1 - place)
    return f"{writer.operand(x)}[{', '.join(around)}]"


_Expression: TypeAlias = Callable[[_Writer, list[str], dict[str, Any]], str]


def _call(template: str) -> _Expression:
    """Return what fills in a node's attributes and values: {a0} as an array, {o0} beside a sign, {s0} as sizes."""

    def expression(writer: _Writer, given: list[str], attributes: dict[str, Any]) -> str:
        kinds = {"a": writer.array, "o": writer.operand, "s": writer.sizes, "i": writer.size}
        places = {field: (kinds[field[0]], int(field[1])) for field in _FIELD.findall(template)}
        values = {field: kind(given[place]) for field, (kind, place) in places.items()}
        return template.format(**values, **{"axis": 0, "perm": None, **attributes})

    return expression


_OTHERS: dict[str, _Expression] = {
    "Slice": _slice,
    "Identity": _call("{a0}"),
    "Neg": _call("-{o0}"),
    "Cast": lambda writer, given, attributes: (
        f"np.asarray({writer.array(given[0])}).astype(np.{onnx.helper.tensor_dtype_to_np_dtype(attributes['to'])})"
    ),
    "Concat": lambda writer, given, attributes: (
        f"np.concatenate([{', '.join(map(writer.array, given))}], axis={attributes['axis']})"
    ),
    "Relu": _call("np.maximum({a0}, 0)"),
    "Sigmoid": _call("1 / (1 + np.exp(-{o0}))"),
    "Where": _call("np.where({a0}, {a1}, {a2})"),
    "Softmax": _call("_softmax({a0}, {axis})"),
    "LogSoftmax": _call("_log_softmax({a0}, {axis})"),
    "CumSum": _call("np.cumsum({a0}, axis={i1})"),
    "TopK": _call("_top({a0}, {i1}, {axis}, {largest})"),
    "Shape": _call("np.array(np.shape({a0}))"),
    "Reshape": _call("np.reshape({a0}, {s1})"),
    "Expand": _call("_expand({a0}, {s1})"),
    "Transpose": _call("np.transpose({a0}, {perm})"),
    "Unsqueeze": _call("np.expand_dims({a0}, {s1})"),
    "Squeeze": _call("np.squeeze({a0}, axis={s1})"),
    "Gather": _call("np.take({a0}, {a1}, axis={axis})"),
    "GatherElements": _call("np.take_along_axis({a0}, {a1}, axis={axis})"),
    "ScatterElements": _call("_put({a0}, {a1}, {a2}, {axis})"),
    "GatherND": _call("{o0}[tuple(np.moveaxis({a1}, -1, 0))]"),
}
