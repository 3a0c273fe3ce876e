"""A package that declares an entry point adds its calibrator to every command, without a change here."""

import json
import os
import subprocess
import sys

import pytest

import calibrant
from calibrant.files import save
from calibrant.testing import overconfident

MODULE = '''
from dataclasses import dataclass
from typing import ClassVar, final

import torch

from calibrant.calibrators import Calibrator, TemperatureScaling
from calibrant.calibrators.base import Fitted
from calibrant.maps import Scale


@final
@dataclass(frozen=True)
class Halving(Calibrator):
    """Divide all logits by a number."""

    name: ClassVar[str] = "halving"
    title: ClassVar[str] = "Division by a number"
    family: ClassVar[str] = "scaling"
    paper = TemperatureScaling.paper
    preserves_accuracy: ClassVar[bool] = True
    preserves_ranking: ClassVar[bool] = False

    by: float = 2.0

    def _fit(self, predictions):
        return Fitted(Scale(torch.tensor(self.by, dtype=torch.float64), n_classes=predictions.n_classes))
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "halving.py").write_text(MODULE)
    information = folder / "halving-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: halving\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        "[calibrant.calibrators]\nhalving = halving:Halving\nbroken = no_such:Thing\n"
    )
    save(overconfident(300, 3), folder / "calibration.npz")
    save(overconfident(300, 3, seed=1), folder / "test.npz")
    return folder


COMMANDS = {
    "compare": ["calibration.npz", "test.npz", "--methods", "halving(by=3),temperature", "--resamples", "100"],
    "fit": ["halving", "calibration.npz", "-o", "map.safetensors"],
    "list": ["calibrators"],
}
SCRIPT = """
import json, sys
from calibrant.cli.main import run
for name, arguments in json.loads(sys.argv[1]).items():
    sys.argv = ["calibrant", name, *arguments]
    try:
        run()
    except SystemExit as stopped:
        print(f"{name} ended with {stopped.code or 0}")
"""


@pytest.fixture(scope="module")
def printed(folder):
    """What the commands print, one after the other, in a process that knows the plugin."""
    source = os.path.dirname(os.path.dirname(calibrant.__file__))  # noqa: PTH120  # as PYTHONPATH wants it
    environment = os.environ | {"PYTHONPATH": f"{source}{os.pathsep}{folder}", "COLUMNS": "120"}
    command = [sys.executable, "-c", SCRIPT, json.dumps(COMMANDS)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize("name", COMMANDS)
def test_a_plugin_is_found_by_the_commands(printed, name):
    before, ended, _ = printed.stdout.partition(f"{name} ended with 0\n")
    assert ended
    own = before.rpartition(" ended with 0\n")[2]
    assert "halving" in own or "Division by a number" in own


def test_a_broken_plugin_is_a_note_of_one_line(printed):
    notes = [line for line in printed.stderr.splitlines() if "broken" in line]
    assert notes
    assert all(line.startswith("note: the plugin broken = no_such:Thing (entry point of") for line in notes)
    assert notes[0].endswith("cannot be loaded: No module named 'no_such'. Repair or uninstall the package halving.")
    assert "callback" not in printed.stderr
