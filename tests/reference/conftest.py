"""What the reference tests share: the data sets, and which files pytest must leave to the peers' environment."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from calibrant.predictions import Predictions, TopLabel

# These import the peers, or are only run beside them.
collect_ignore = [
    "cases.py",
    "fit_question.py",
    "fitted",
    "peers",
    "question.py",
    "record.py",
    "torch_uncertainty_files.py",
]


def _neighbour(name: str) -> ModuleType:
    """A module of this folder, which is not a package and not on the path."""
    spec = importlib.util.spec_from_file_location(f"reference_{name}", Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their own module up
    spec.loader.exec_module(module)
    return module


_DATASETS = {name: make() for name, make in _neighbour("data").DATASETS.items()}


@pytest.fixture(scope="session")
def reference_data() -> Callable[[str], object]:
    """A data set by name."""
    return _DATASETS.__getitem__


@pytest.fixture(scope="session")
def reference_predictions() -> Callable[[str], Predictions]:
    """A data set by name, as the library takes it."""

    def make(name: str) -> Predictions:
        data = _DATASETS[name]
        if data.logits is None:
            return Predictions.from_probs(data.given_probs, data.labels)
        return Predictions.from_logits(data.logits, data.labels)

    return make


@pytest.fixture(scope="session")
def reference_top() -> Callable[[str], TopLabel]:
    """A data set by name, as confidence and correctness: exactly what some peers are given."""
    return lambda name: TopLabel(_DATASETS[name].confidence, _DATASETS[name].correct)
