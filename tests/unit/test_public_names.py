import ast
import importlib
from pathlib import Path

import pytest

import calibrant

SOURCE = Path(calibrant.__file__)


def test_every_public_name_can_be_had():
    for name in calibrant.__all__:
        assert getattr(calibrant, name) is not None


def test_public_names_are_sorted_and_few_enough_to_read():
    assert calibrant.__all__ == sorted(calibrant.__all__)
    assert dir(calibrant) == calibrant.__all__


def test_what_type_checkers_see_is_what_is_exported():
    tree = ast.parse(SOURCE.read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        (alias.name, node.module) for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert {name for name, _ in seen} == set(calibrant.__all__)
    for name, module in seen:
        assert getattr(importlib.import_module(module), name) is getattr(calibrant, name)


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        calibrant.no_such_name  # noqa: B018


@pytest.mark.parametrize("package", ["metrics", "evidence", "report", "files", "diagrams", "plots", "datasets"])
def test_a_folder_exports_exactly_what_it_says(package):
    module = importlib.import_module(f"calibrant.{package}")
    assert all(hasattr(module, name) for name in module.__all__)
