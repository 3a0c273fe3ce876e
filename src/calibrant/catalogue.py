"""Everything that has a name: metrics, calibrators, losses, data sets and maps, with plugins.

A registry loads its package when it is first used: measuring does not wait for calibrators or losses. It collects the
concrete classes that the package exports, and those that installed plugins declare as entry points of its group,
``calibrant.calibrators = mine = package.module:Class``. Expressions such as ``focal(gamma=2)`` and
``temperature+isotonic`` are parsed with :mod:`ast`; nothing in them is evaluated.
"""

import ast
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from types import UnionType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, Union, final, get_args, get_origin, get_type_hints

from calibrant.checks import check_known
from calibrant.errors import InputError, UnknownNameError, warn
from calibrant.paper import Paper

if TYPE_CHECKING:
    from torch import nn

    from calibrant.calibrators import Calibrator, FeatureCalibrator
    from calibrant.datasets import DatasetReader
    from calibrant.losses import Loss, MetaLoss
    from calibrant.metrics import Metric

T = TypeVar("T")

_LONGEST = 10_000  # characters of an expression; longer ones could exhaust the parser's stack


@final
class Registry(Mapping[str, T], Generic[T]):
    """Classes by the ``name`` they carry, or by one of their ``aliases``; indexing builds one with its default options.

    Args:
        noun: Name of one of them in messages, with its article.
        examples: Expressions that a message may show.
        module: Module of ``calibrant`` whose exports are searched, loaded on first use.
        bases: Names of the base classes there.
        group: Entry-point group of plugins; None if it takes none.
        combine: Builds one object of several that ``+`` connects; None if they cannot be combined.
        nested: Checks, and returns, an object that is an option of another.
        key: Attribute of a class that holds its name.

    Example:
        >>> from calibrant import catalogue
        >>> catalogue.losses["focal"]
        FocalLoss(gamma=3.0, detach_weight=False)
        >>> catalogue.losses.parse("focal(gamma=2)")
        FocalLoss(gamma=2.0, detach_weight=False)
    """

    def __init__(
        self,
        noun: str,
        examples: str,
        module: str,
        bases: tuple[str, ...],
        *,
        group: str | None = None,
        combine: Callable[[list[T]], T] | None = None,
        nested: Callable[[T], object] | None = None,
        key: str = "name",
    ) -> None:
        self.noun, self.examples, self._module, self._bases, self._group = noun, examples, module, bases, group
        self._combine, self._nested, self._key = combine, nested, key
        self._kinds: dict[str, type[T]] = {}
        self._aliases: dict[str, str] = {}  # names by alias
        self._broken: dict[str, str] = {}  # why plugins are left out, by name

    @property
    def kinds(self) -> dict[str, type[T]]:
        """The classes by name, in order of their names."""
        if not self._kinds:
            module = import_module(f"calibrant.{self._module}")
            bases = tuple(getattr(module, base) for base in self._bases)
            exported = [getattr(module, name) for name in module.__all__]
            kinds = {str(getattr(kind, self._key)): kind for kind in exported if _is_concrete(kind, bases)}
            for point in plugins(self._group) if self._group else ():
                self._add_plugin(point, kinds, bases)
            self._kinds = dict(sorted(kinds.items()))
            self._aliases = {alias: name for name, kind in kinds.items() for alias in getattr(kind, "aliases", ())}
        return self._kinds

    def __getitem__(self, name: str) -> T:
        return self._kind(name)()

    def __contains__(self, name: object) -> bool:
        return name in self.kinds or name in self._aliases

    def __iter__(self) -> Iterator[str]:
        return iter(self.kinds)

    def __len__(self) -> int:
        return len(self.kinds)

    def parse(self, text: str | T) -> T:
        """Build the object that an expression describes; one that is made is returned unchanged.

        It is a name; a name with options, ``temperature(criterion=focal,gamma=2)``; or, if they can be combined,
        several with ``+`` between them. An InputError says what is wrong with another, and names the closest.
        """
        if not isinstance(text, str):
            return text
        tree = _parsed(text)
        if tree is None:
            raise InputError(f"{self.noun} must read like {self.examples}; got {text.strip()!r}.")
        return self._build(tree, text)

    def _build(self, node: ast.expr, text: str) -> T:
        steps = _steps(node)
        if len(steps) > 1 and self._combine is not None:
            return self._combine([self._build(step, text) for step in steps])
        call = node if isinstance(node, ast.Call) else None
        target = node if call is None else call.func
        if not isinstance(target, ast.Name) or len(steps) > 1:
            raise InputError(f"{self.noun} must read like {self.examples}; got {_source(node, text)!r}.")
        kind = self._kind(target.id)
        return kind(**({} if call is None else self._options(target.id, kind, call, text)))

    def _kind(self, name: str) -> type[T]:
        kinds = self.kinds
        name = self._aliases.get(name, name)
        if name in self._broken and name not in kinds:
            raise UnknownNameError(f"{self.noun} must be one that can be loaded; {self._broken[name]}")
        check_known(name, kinds, self.noun)
        return kinds[name]

    def _options(self, name: str, kind: type[T], call: ast.Call, text: str) -> dict[str, Any]:
        if call.args:
            raise InputError(f"the options of {name} must read name=value; got {_source(call.args[0], text)!r}.")

        def nested(node: ast.expr) -> object:
            built = self._build(node, text)
            return built if self._nested is None else self._nested(built)

        hints = get_type_hints(kind.__init__)
        allowed = list(inspect.signature(kind).parameters)
        options: dict[str, Any] = {}
        for keyword in call.keywords:
            option, value = str(keyword.arg), _source(keyword.value, text)
            check_known(option, allowed, f"an option of {name}")
            if option in options:
                raise InputError(f"an option must be given once; got {option} of {name} twice.")
            try:
                options[option] = _read(value, keyword.value, hints[option], nested)
            except ValueError as error:
                if isinstance(error, InputError):  # from a nested expression, which says what is wrong with it
                    raise
                wanted = _type_in_words(hints[option])
                raise InputError(f"{option} of {name} must be {wanted}; got {value!r}.") from error
        return options

    def _add_plugin(self, point: EntryPoint, kinds: dict[str, type[T]], bases: tuple[type, ...]) -> None:
        """Add the class of an entry point; a broken plugin is reported and left out."""
        try:
            kind = point.load()
        except Exception as error:  # noqa: BLE001  # whatever a foreign package raises when it is imported
            problem = f"it cannot be loaded: {error}"
        else:
            if not _is_concrete(kind, bases):
                problem = f"it must be a concrete subclass of {' or '.join(self._bases)}; got {kind!r}"
            elif (name := getattr(kind, self._key, None)) != point.name:
                problem = f"its class has the {self._key} {name!r}; both names must be the same"
            elif point.name in kinds:
                problem = f"the name is taken by {kinds[point.name].__module__}.{kinds[point.name].__qualname__}"
            else:
                kinds[point.name] = kind
                return
        package = "its package" if point.dist is None else f"the package {point.dist.name}"
        what = f"the plugin {point.name} = {point.value} (entry point of {point.group})"
        self._broken[point.name] = f"{what} is left out: {problem}. Repair or uninstall {package}."
        warn(self._broken[point.name])


@cache
def plugins(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points that installed packages declare for a group, sorted by name; none is loaded."""
    return tuple(sorted(entry_points(group=group), key=lambda point: point.name))


def split_list(text: str) -> list[str]:
    """Split expressions at the commas outside all brackets; an InputError if a bracket is not opened and closed."""
    pieces, depth = [""], 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if depth < 0:
            break
        if letter == "," and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += letter
    if depth:
        raise InputError(f"every bracket must be opened and closed; got {text!r}.")
    return [piece.strip() for piece in pieces]


def _is_concrete(kind: object, bases: tuple[type, ...]) -> bool:
    return isinstance(kind, type) and issubclass(kind, bases) and not inspect.isabstract(kind)


def _parsed(text: str) -> ast.expr | None:
    """Parse a text into an expression tree; None if it is not an expression."""
    split_list(text)  # raises for unbalanced brackets
    try:
        return ast.parse(text.strip(), mode="eval").body if len(text) <= _LONGEST else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _steps(node: ast.expr) -> list[ast.expr]:
    """Return the operands of ``a + b + c``, from left to right."""
    steps: list[ast.expr] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        steps.insert(0, node.right)
        node = node.left
    return [node, *steps]


def _source(node: ast.expr, text: str) -> str:
    return ast.get_source_segment(text.strip(), node) or ""


def _read(text: str, node: ast.expr, hint: Any, build: Callable[[ast.expr], Any]) -> Any:
    """Convert the source text of an option to its type hint; ValueError if it cannot be converted."""
    form, parts = get_origin(hint), get_args(hint)
    if form in {Union, UnionType}:
        # "none" is None before it is a word, and every text is a word: these two are tried first and last.
        for part in sorted(parts, key=lambda part: (part is not type(None), part is str)):
            try:
                return _read(text, node, part, build)
            except ValueError as error:
                if isinstance(error, InputError):
                    raise
        raise ValueError(text)
    if form is Literal:
        return _choice(text, {str(part): part for part in parts})
    if form is tuple:
        if not isinstance(node, ast.List):
            raise ValueError(text)
        return tuple(_read(ast.unparse(item), item, parts[0], build) for item in node.elts)
    reader = _READERS.get(hint)
    return build(node) if reader is None else reader[0](text)


def _choice(text: str, choices: Mapping[str, Any]) -> Any:
    if text not in choices:
        raise ValueError(text)
    return choices[text]


def _number(text: str) -> float:
    if math.isnan(value := float(text)):
        raise ValueError(text)
    return value


_READERS: dict[Any, tuple[Callable[[str], Any], str]] = {
    bool: (lambda text: _choice(text.lower(), {"true": True, "false": False}), "true or false"),
    int: (int, "a whole number"),
    float: (_number, "a number"),
    str: (str, "a word"),
    type(None): (lambda text: _choice(text.lower(), {"none": None}), "none"),
}


def _type_in_words(hint: Any) -> str:
    form, parts = get_origin(hint), get_args(hint)
    if form in {Union, UnionType}:
        return " or ".join(_type_in_words(part) for part in parts)
    if form is Literal:
        return f"one of {', '.join(map(str, parts))}"
    if form is tuple:
        return f"a list in square brackets, each of it {_type_in_words(parts[0])}"
    return _READERS[hint][1] if hint in _READERS else "a method"


AnyCalibrator = Union["Calibrator", "FeatureCalibrator"]  # the second is fitted on features as well


def _chain(steps: "list[AnyCalibrator]") -> "AnyCalibrator":
    from calibrant.calibrators import Chain

    return Chain(tuple(_without_features(step) for step in steps))


def _without_features(method: "AnyCalibrator") -> "Calibrator":
    from calibrant.calibrators import Calibrator

    if isinstance(method, Calibrator):
        return method
    raise InputError(f"{method.name} needs features as well as predictions, and cannot be used here: fit it by itself.")


_METHODS = "temperature, temperature(criterion=focal) or temperature+isotonic"
_LOSSES = "ce, focal(gamma=2) or mmce(base=focal)"
_CALIBRATOR_PLUGINS, _LOSS_PLUGINS = "calibrant.calibrators", "calibrant.losses"

metrics: "Registry[Metric]" = Registry("a metric", "ece or nll", "metrics", ("Metric",), group="calibrant.metrics")
calibrators: "Registry[Calibrator]" = Registry(
    "a method", _METHODS, "calibrators", ("Calibrator",), group=_CALIBRATOR_PLUGINS
)
feature_calibrators: "Registry[FeatureCalibrator]" = Registry(
    "a method", _METHODS, "calibrators", ("FeatureCalibrator",), group="calibrant.feature_calibrators"
)
losses: "Registry[Loss]" = Registry("a loss", _LOSSES, "losses", ("RowLoss", "PenalisedLoss"), group=_LOSS_PLUGINS)
meta_losses: "Registry[MetaLoss]" = Registry("a loss", "meta_focal(objective=sece)", "losses", ("MetaLoss",))
datasets: "Registry[DatasetReader]" = Registry(
    "a data set", "cifar100 or medmnist(flag=pathmnist)", "datasets", ("DatasetReader",), group="calibrant.datasets"
)
maps: "Registry[nn.Module]" = Registry(
    "a kind of map", "scale", "maps", ("Map", "ProximityMap", "Curve", "Surface"), key="kind"
)
_any_calibrators: "Registry[AnyCalibrator]" = Registry(
    "a method",
    _METHODS,
    "calibrators",
    ("Calibrator", "FeatureCalibrator"),
    group=_CALIBRATOR_PLUGINS,
    combine=_chain,
    nested=_without_features,
)
_any_losses: "Registry[Loss | MetaLoss]" = Registry(
    "a loss",
    "ce, focal(gamma=2), mmce(base=focal) or meta_focal(objective=sece)",
    "losses",
    ("RowLoss", "PenalisedLoss", "MetaLoss"),
    group=_LOSS_PLUGINS,
)


def parse_any_calibrator(text: str) -> "AnyCalibrator":
    """Build the calibrator that an expression describes, also one that needs features; see :meth:`Registry.parse`."""
    return _any_calibrators.parse(text)


def parse_calibrator(text: str) -> "Calibrator":
    """Build the calibrator that an expression describes; an InputError if it needs features."""
    return _without_features(parse_any_calibrator(text))


def parse_any_loss(text: str) -> "Loss | MetaLoss":
    """Build the loss that an expression describes, also one with parameters that are meta-learned."""
    return _any_losses.parse(text)


def find_papers(text: str) -> tuple[Paper, ...]:
    """Return the papers behind a metric, a loss or a calibrator (or the steps of a chain), without repetition.

    Example:
        >>> [paper.short for paper in find_papers("temperature+isotonic")]
        ['Guo et al. (2017)', 'Zadrozny & Elkan (2002)']
    """
    from calibrant.calibrators import Chain
    from calibrant.losses import MetaLoss, PenalisedLoss, RowLoss

    if not set(text) & set("+()"):
        papers = _papers_by_name()
        check_known(text, papers, "a metric, loss or calibrator")
        return papers[text]
    if text.partition("(")[0].strip() in _any_losses:
        loss = parse_any_loss(text)
        parts = (part for part in loss.modules() if isinstance(part, RowLoss | PenalisedLoss | MetaLoss))
        return tuple(dict.fromkeys(part.paper for part in parts))
    method = parse_any_calibrator(text)
    steps = method.steps if isinstance(method, Chain) else (method,)
    return tuple(dict.fromkeys(step.paper for step in steps))


def _papers_by_name() -> dict[str, tuple[Paper, ...]]:
    """Return the papers of every name; two where a metric and a loss share a name but not a paper."""
    registries = (metrics, _any_calibrators, _any_losses)
    named = [(name, kind.paper) for registry in registries for name, kind in registry.kinds.items()]
    # A metric that is a plain function, as it needs more than predictions; from the same paper as this calibrator.
    named.append(("piece", feature_calibrators["density_ratio"].paper.at("eq. 4")))
    papers: dict[str, tuple[Paper, ...]] = {}
    for name, paper in named:
        known = papers.get(name, ())
        papers[name] = known if any(paper.title == other.title for other in known) else (*known, paper)
    return papers
