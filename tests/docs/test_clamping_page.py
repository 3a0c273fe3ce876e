"""What the page on Neural Clamping says in words and no block of it prints."""

import contextlib
import re
from pathlib import Path

from calibrant import catalogue
from calibrant.calibrators import DirichletODIR, MatrixScalingODIR
from calibrant.clamping import NeuralClamping
from calibrant.errors import InputError

PAGE = Path(__file__).parents[2] / "docs" / "clamping.md"


def test_the_heads_it_names_are_those_that_are_taken():
    (paragraph,) = re.findall(r"^\*\*Heads\.\*\*(.*?)\n\n", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    named = set(re.findall(r"`(\w+)`", paragraph))
    taken = {"ms_odir", "dirichlet_odir"}  # with options that they have no default for
    for name, calibrator in catalogue.calibrators.items():
        with contextlib.suppress(InputError):
            NeuralClamping(head=calibrator)
            taken.add(name)
    NeuralClamping(head=MatrixScalingODIR(strength=0.1, bias_strength=0.1))
    NeuralClamping(head=DirichletODIR(strength=0.1, bias_strength=0.1))
    assert named == taken
