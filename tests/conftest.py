"""What all tests share: where the strategies lie, and how Hypothesis and torch run."""

import functools
import gc
import os
import sys
from pathlib import Path

import pytest
import torch
import typer
from hypothesis import HealthCheck, Phase, settings

# The tests are no package, so that a test file is found by its path alone; what they share is put in reach.
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(1, str(Path(__file__).parents[1]))  # of the experiments

# Reports are as wide as COLUMNS says, which readline, where pytest loads it, sets to that of its own terminal.
os.environ["COLUMNS"] = "120"

# Small arrays are slower on several threads, and the cores are shared.
torch.set_num_threads(1)

# Typer would build all commands anew for each one that is run.
typer.main.get_command = functools.cache(typer.main.get_command)

# The same examples every time, so that a red suite is red for everyone, and few, because every law is tried on every
# metric. `pytest --hypothesis-profile=explore` looks further.
settings.register_profile(
    "repeatable",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=10,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("explore", deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("repeatable")


def pytest_addoption(parser):
    parser.addoption(
        "--regenerate-golden", action="store_true", help="Write tests/golden anew, to be reviewed as a diff."
    )


def pytest_collection_finish():
    """Leave what was imported and collected, a million objects, out of every later search for garbage."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def golden(request):
    """Compare text with a file of tests/golden, or write the file with --regenerate-golden."""

    def compare(name, text):
        path = Path(__file__).parent / "golden" / name
        if request.config.getoption("--regenerate-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8"), f"{name} differs; see tests/conftest.py if that is meant"

    return compare
