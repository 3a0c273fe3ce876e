"""Training that repeats itself."""

import pytest
import torch

from calibrant import catalogue
from calibrant.training import Recipe, Run, RuntimeOptions, deterministic_algorithms, train_runs

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")


def state():
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.backends.cudnn.deterministic,
        torch.backends.cudnn.benchmark,
    )


def test_torchs_settings_are_as_before_afterwards(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    before = state()
    with deterministic_algorithms():
        assert state() == (True, True, False)
    assert state() == before


def trained(digits, folder, device):
    recipe = Recipe(epochs=2, batch_size=64, learning_rate=0.05)
    runs = [Run(folder / loss, "digits_cnn", catalogue.losses.parse(loss), recipe) for loss in ("ce", "focal")]
    with deterministic_algorithms():
        train_runs(runs, digits, split="half-test", device=torch.device(device), runtime=RuntimeOptions(compiled=False))
    return [(run.folder / "weights.safetensors").read_bytes() for run in runs]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_cuda)])
def test_two_runs_end_with_the_same_weights(device, digits, tmp_path):
    assert trained(digits, tmp_path / "one", device) == trained(digits, tmp_path / "other", device)
