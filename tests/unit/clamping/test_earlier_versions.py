"""Clamped files and journals of version 2 are read under today's names, and a fit resumes from such a journal."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from calibrant.clamping import InputSpace, NeuralClamping, PerChannel, load_clamped
from calibrant.errors import FileError

EARLIER = Path(__file__).parents[2] / "data" / "clamped"
METHOD = NeuralClamping(strength=(1.0, 0.1, 0.01), delta_shape=PerChannel(), space=InputSpace(low=-4, high=4), folds=3)


def network():
    generator = torch.Generator().manual_seed(0)
    made = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).double().eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randint(-64, 64, parameter.shape, generator=generator).double() / 64)
    return made


def samples():
    inputs = torch.randint(-128, 128, (240, 6), generator=torch.Generator().manual_seed(1)).double() / 64
    return inputs, torch.from_numpy(np.load(EARLIER / "data.npz")["labels"]).long()


def test_a_clamped_file_of_version_2_is_read_under_todays_names():
    clamped = load_clamped(EARLIER / "version-2.safetensors", network())
    assert (clamped.summary.n_samples, clamped.summary.strength) == (240, 0.1)
    assert clamped.summary.settings["delta_shape"] == {"kind": "PerChannel"}
    assert clamped.summary.settings == METHOD.settings()
    assert clamped.summary.outcome == "helps"
    assert len(clamped.summary.trials) == 3


def test_a_fit_resumes_from_a_journal_of_version_2_and_gives_the_same_model(tmp_path):
    folder = tmp_path / "journal"
    shutil.copytree(EARLIER / "journal", folder)
    done = []
    clamped = METHOD.fit(network(), samples(), folder=folder, progress=lambda what, _passes: done.append(what))
    assert not any("λ = 1" in what and what.startswith("cross-validation") for what in done)  # nothing is fitted twice
    known = load_clamped(EARLIER / "version-2.safetensors", network())
    torch.testing.assert_close(clamped.delta, known.delta, rtol=1e-9, atol=1e-12)
    assert clamped.temperature == pytest.approx(known.temperature, rel=1e-9)
    assert not list(folder.iterdir())


def test_a_journal_of_version_2_of_another_fit_is_refused(tmp_path):
    shutil.copytree(EARLIER / "journal", tmp_path / "journal")
    other = NeuralClamping(strength=(1.0, 0.1, 0.01), space=InputSpace(low=-4, high=4), folds=3)
    with pytest.raises(FileError, match="journal of this same fit"):
        other.fit(network(), samples(), folder=tmp_path / "journal")
