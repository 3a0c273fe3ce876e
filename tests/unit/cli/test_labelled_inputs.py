"""Inputs from a file become what the network takes, or the file is refused."""

import numpy as np
import pytest
import torch
from torch import nn

from calibrant.clamping import InputSpace, samples_digest
from calibrant.cli.clamp import ClampFolder, Inputs
from calibrant.cli.networks import LoadedNetwork, read_samples
from calibrant.errors import FileError, InputError
from calibrant.inference import LabelledInputs

PIXELS = np.arange(2 * 3 * 2 * 2, dtype=np.uint8).reshape(2, 3, 2, 2) * 10
LABELS = np.array([0, 1])


@pytest.fixture
def read(tmp_path):
    def rows_of(inputs, model=None, *, is_run=False, pixels=False, space=None, labels=LABELS):
        np.savez(tmp_path / "rows.npz", inputs=inputs, labels=labels)
        network = LoadedNetwork(model or nn.Linear(2, 2), is_run)
        rows = read_samples(
            tmp_path / "rows.npz", network, inputs="inputs", labels="labels", pixels=pixels, space=space
        )
        return next(rows.batches(device="cpu"))[0]

    return rows_of


def test_pixels_are_scaled_into_the_range_and_normalised_by_channel(read):
    mean, std = (0.1, 0.2, 0.3), (0.5, 1.0, 2.0)
    assert torch.equal(read(PIXELS, pixels=True), torch.tensor(PIXELS) / 255)
    found = read(PIXELS, pixels=True, space=InputSpace(low=-1, high=1, mean=mean, std=std))
    expected = (PIXELS / 255 * 2 - 1 - np.reshape(mean, (3, 1, 1))) / np.reshape(std, (3, 1, 1))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert found.dtype == torch.float32


def test_numbers_take_the_type_of_the_network_s_weights(read):
    assert read(np.ones((2, 4)), nn.Linear(2, 2).double()).dtype == torch.float64
    assert read(np.ones((2, 4), dtype=np.float64)).dtype == torch.float32
    assert read(np.ones((2, 4), dtype=np.float16), nn.Flatten()).dtype == torch.float32


def test_a_run_takes_stored_pixels_as_they_are(read):
    assert torch.equal(read(PIXELS, is_run=True), torch.tensor(PIXELS).float())
    with pytest.raises(FileError, match="no meaning for tokens"):
        read(np.ones((2, 4), dtype=np.int64), is_run=True)


def test_whole_numbers_that_may_be_pixels_are_not_guessed_to_be(read):
    with pytest.raises(FileError, match=r"rows.npz: .* got uint8. Give --pixels"):
        read(PIXELS)
    with pytest.raises(FileError, match=r"stored as uint8 for --pixels; got torch.float32"):
        read(PIXELS.astype(np.float32), pixels=True)


def test_the_space_is_what_the_options_say_or_what_a_run_knows():
    network = LoadedNetwork(nn.Linear(2, 2))
    assert Inputs().space(network) is None
    assert Inputs(pixels=True).space(network) == InputSpace()
    assert Inputs().space(network, clip=True) == InputSpace(clips=True)
    given = Inputs(high=255, mean="125.3", std="63,62.1,66.7").space(network)
    assert given == InputSpace(high=255, mean=(125.3,), std=(63, 62.1, 66.7))
    run = LoadedNetwork(nn.Linear(2, 2), True, InputSpace(high=16))
    assert Inputs().space(run, clip=True) == InputSpace(high=16, clips=True)
    with pytest.raises(InputError, match="must be left out with a folder of calibrant train"):
        Inputs(low=0.0).space(run)


def test_a_digest_depends_on_the_samples_and_not_on_how_they_are_batched():
    inputs, labels = torch.randn(7, 3, generator=torch.manual_seed(0)), torch.arange(7)
    digest = samples_digest(LabelledInputs.of((inputs, labels)))
    assert digest == samples_digest(LabelledInputs.of((inputs, labels), batch_size=2))
    assert digest != samples_digest(LabelledInputs.of((inputs, labels.flip(0))))
    assert digest != samples_digest(LabelledInputs.of((inputs.flip(0), labels)))


def test_delete_results_deletes_the_files_of_a_fit_and_no_others(tmp_path):
    folder = ClampFolder(tmp_path / "out")
    folder.begin({"seed": 0})
    for name in ("after.npz", "clamped.safetensors", "final.journal", "mine.txt"):
        (folder.path / name).write_text(name)
    with pytest.raises(FileError, match="seed 1, not 0"):
        ClampFolder(folder.path).begin({"seed": 1})
    folder.delete_results()
    assert sorted(path.name for path in folder.path.iterdir()) == ["mine.txt", "settings.json"]
    ClampFolder(folder.path).begin({"seed": 1})  # nothing was found here, so it is in nobody's way
    ClampFolder(folder.path).begin({"seed": 1})
