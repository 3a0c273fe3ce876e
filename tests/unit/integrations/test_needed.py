"""Doors whose framework is missing say what to install."""

import importlib
import sys

import pytest


@pytest.mark.parametrize(
    ("door", "packages", "extra"),
    [
        ("sklearn", ("sklearn",), "sklearn"),
        ("torchmetrics", ("torchmetrics",), "torchmetrics"),
        ("lightning", ("lightning", "pytorch_lightning"), "lightning"),
        ("transformers", ("transformers",), "hf"),
    ],
)
def test_a_missing_framework_is_named_with_the_extra_that_installs_it(monkeypatch, door, packages, extra):
    for loaded in [name for name in sys.modules if name.split(".")[0] in packages]:
        monkeypatch.delitem(sys.modules, loaded)
    for package in packages:
        monkeypatch.setitem(sys.modules, package, None)  # importing it raises
    monkeypatch.delitem(sys.modules, f"calibrant.integrations.{door}", raising=False)
    with pytest.raises(ModuleNotFoundError, match=rf"pip install 'calibrant\[{extra}\]'"):
        importlib.import_module(f"calibrant.integrations.{door}")
