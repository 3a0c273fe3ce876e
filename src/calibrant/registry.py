"""Registries of named classes, and the expressions that name them: ``focal(gamma=2)``, ``temperature+isotonic``.

A registry collects the concrete classes that a package exports, and those that installed plugins declare as entry
points. Expressions are parsed with :mod:`ast`; nothing in them is evaluated.
"""

import ast
import inspect
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from types import UnionType
from typing import Any, Generic, Literal, TypeVar, Union, final, get_args, get_origin, get_type_hints

from calibrant.checks import check_known
from calibrant.errors import CalibrantWarning, InputError

__all__ = ["Registry", "plugins", "split_list"]

T = TypeVar("T")

_LONGEST = 10_000  # characters of an expression; longer ones could exhaust the parser's stack


@final
class Registry(Mapping[str, T], Generic[T]):
    """Classes by the ``name`` they carry; indexing builds one with its default options.

    Args:
        what: What one of them is called in messages, with its article.
        examples: Expressions that a message may show.
        module: Package or module whose exports are searched, loaded on first use.
        bases: Names of the base classes there.
        group: Entry-point group of plugins; None if it takes none.
        combine: Build one object of several that ``+`` connects; None if they cannot be combined.
        nested: Check of one that stands inside another, as an option of it; it returns what may stand there.
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
        what: str,
        *,
        examples: str,
        module: str,
        bases: tuple[str, ...],
        group: str | None = None,
        combine: Callable[[list[T]], T] | None = None,
        nested: Callable[[T], object] | None = None,
        key: str = "name",
    ) -> None:
        self.what, self.examples, self._nested, self._key = what, examples, nested, key
        self._module, self._bases, self._group, self._combine = module, bases, group, combine
        self._kinds: dict[str, type[T]] = {}

    @property
    def kinds(self) -> dict[str, type[T]]:
        """The classes by name, in order of their names."""
        if not self._kinds:
            module = import_module(self._module)
            bases = tuple(getattr(module, base) for base in self._bases)
            exported = [getattr(module, name) for name in module.__all__]
            kinds = {str(getattr(kind, self._key)): kind for kind in exported if _is_concrete(kind, bases)}
            for point in plugins(self._group) if self._group else ():
                self._add_plugin(point, kinds, bases)
            self._kinds = dict(sorted(kinds.items()))
        return self._kinds

    def __getitem__(self, name: str) -> T:
        check_known(name, self.kinds, self.what)
        return self.kinds[name]()

    def __contains__(self, name: object) -> bool:
        return name in self.kinds

    def __iter__(self) -> Iterator[str]:
        return iter(self.kinds)

    def __len__(self) -> int:
        return len(self.kinds)

    def parse(self, text: str) -> T:
        """Build what an expression describes.

        Args:
            text: A name; a name with options, ``temperature(criterion=focal,gamma=2)``; or, where they can be
                combined, several with ``+`` between them.

        Raises:
            UnknownNameError: If there is no such name or option; the message names the closest.
            InputError: If the text is no such expression, or a value does not suit its option.
        """
        tree = _parsed(text)
        if tree is None:
            raise InputError(f"{self.what} must read like {self.examples}; got {text.strip()!r}.")
        return self._build(tree, text)

    def _build(self, node: ast.expr, text: str) -> T:
        steps = _steps(node)
        if len(steps) > 1 and self._combine is not None:
            return self._combine([self._build(step, text) for step in steps])
        call = node if isinstance(node, ast.Call) else None
        target = node if call is None else call.func
        if not isinstance(target, ast.Name) or len(steps) > 1:
            raise InputError(f"{self.what} must read like {self.examples}; got {_source(node, text)!r}.")
        check_known(target.id, self.kinds, self.what)
        kind = self.kinds[target.id]
        return kind(**({} if call is None else self._options(target.id, kind, call, text)))

    def _inside(self, node: ast.expr, text: str) -> object:
        built = self._build(node, text)
        return built if self._nested is None else self._nested(built)

    def _options(self, name: str, kind: type[T], call: ast.Call, text: str) -> dict[str, Any]:
        if call.args:
            raise InputError(f"the options of {name} must read name=value; got {_source(call.args[0], text)!r}.")
        hints = get_type_hints(kind.__init__)
        allowed = list(inspect.signature(kind).parameters)
        options: dict[str, Any] = {}
        for keyword in call.keywords:
            option, value = str(keyword.arg), _source(keyword.value, text)
            check_known(option, allowed, f"an option of {name}")
            if option in options:
                raise InputError(f"an option must be given once; got {option} of {name} twice.")
            try:
                options[option] = _read(value, keyword.value, hints[option], lambda node: self._inside(node, text))
            except InputError:  # from a nested expression, which says what is wrong with it
                raise
            except ValueError as error:
                raise InputError(
                    f"{option} of {name} must be {_type_in_words(hints[option])}; got {value!r}."
                ) from error
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
        warnings.warn(
            f"the plugin {point.name} = {point.value} (entry point of {point.group}) is left out: {problem}.",
            CalibrantWarning,
            stacklevel=2,
        )


@cache
def plugins(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points that installed packages declare for a group, sorted by name; none is loaded."""
    return tuple(sorted(entry_points(group=group), key=lambda point: point.name))


def split_list(text: str) -> list[str]:
    """Split expressions at the commas outside all brackets.

    Raises:
        InputError: If a bracket is not closed, or was never opened.

    Example:
        >>> split_list("none, temperature(criterion=focal,gamma=2)")
        ['none', 'temperature(criterion=focal,gamma=2)']
    """
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
    """The expression tree of a text; None if it has none."""
    split_list(text)  # refuses unbalanced brackets in words of their own
    try:
        return ast.parse(text.strip(), mode="eval").body if len(text) <= _LONGEST else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _steps(node: ast.expr) -> list[ast.expr]:
    """The operands of ``a + b + c``, from left to right."""
    steps: list[ast.expr] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        steps.insert(0, node.right)
        node = node.left
    return [node, *steps]


def _source(node: ast.expr, text: str) -> str:
    return ast.get_source_segment(text.strip(), node) or ""


def _read(text: str, node: ast.expr, hint: Any, build: Callable[[ast.expr], Any]) -> Any:
    """Read the source text of an option as its type hint says; ValueError if it cannot be."""
    form, parts = get_origin(hint), get_args(hint)
    if form in {Union, UnionType}:
        # "none" is None before it is a word, and every text is a word: these two are tried first and last.
        for part in sorted(parts, key=lambda part: (part is not type(None), part is str)):
            try:
                return _read(text, node, part, build)
            except InputError:
                raise
            except ValueError:
                continue
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
