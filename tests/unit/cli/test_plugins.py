"""A package that declares an entry point adds its calibrator to every command, without a change here."""

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
    (information / "entry_points.txt").write_text("[calibrant.calibrators]\nhalving = halving:Halving\n")
    save(overconfident(300, 3), folder / "calibration.npz")
    save(overconfident(300, 3, seed=1), folder / "test.npz")
    return folder


@pytest.mark.parametrize(
    "arguments",
    [
        ("compare", "calibration.npz", "test.npz", "--methods", "halving(by=3),temperature", "--resamples", "100"),
        ("fit", "halving", "calibration.npz", "-o", "map.safetensors"),
        ("list", "calibrators"),
    ],
)
def test_a_plugin_is_found_by_the_commands(folder, arguments):
    source = os.path.dirname(os.path.dirname(calibrant.__file__))  # noqa: PTH120  # as PYTHONPATH wants it
    environment = os.environ | {"PYTHONPATH": f"{source}{os.pathsep}{folder}", "COLUMNS": "120"}
    script = "from calibrant.cli.main import run; run()"
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "halving" in done.stdout or "Division by a number" in done.stdout
