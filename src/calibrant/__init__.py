"""Measure how far a classifier's confidence can be trusted, and calibrate it.

The public names are in ``__init__.pyi``, which type checkers read, and nowhere else. Each is loaded when it is first
used, so that ``calibrant --help`` loads neither torch nor numpy. Everything else is imported from its package.
"""

import ast
from importlib import import_module
from pathlib import Path

_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
_HOMES = {name.name: node.module for node in _STUB.body if isinstance(node, ast.ImportFrom) for name in node.names}

__all__ = sorted(_HOMES)  # noqa: PLE0605


def __getattr__(name: str) -> object:
    if name == "__version__":
        return _version()
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'calibrant' has no attribute {name!r}")
    return getattr(import_module(home), name)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("calibrant")
    except PackageNotFoundError:  # run from the source tree
        return "not installed"


def __dir__() -> list[str]:
    return __all__
