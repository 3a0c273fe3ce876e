"""What the tests of training share: few digits, so that an epoch takes a blink, and networks that train on them."""

from pathlib import Path

import pytest
import torch
from torch import nn

from calibrant import catalogue
from calibrant.datasets import Dataset, DigitsReader, split_dataset
from calibrant.models import build_model
from calibrant.training import Recipe, Run, RuntimeOptions, Session, TrainingData, train_runs

CPU = torch.device("cpu")
SMALL = {"epochs": 4, "batch_size": 32, "learning_rate": 0.05, "nesterov": True}


@pytest.fixture(scope="session")
def digits():
    """320 digits to train on, 200 to test; divided by ``half-test`` every part knows every class."""
    whole = DigitsReader().read()
    return Dataset(
        "few digits", whole.class_names, whole.training[:320], whole.test[:200], pixel_scale=whole.pixel_scale
    )


@pytest.fixture(scope="session")
def data(digits):
    return TrainingData.of(digits, split_dataset(digits, "half-test", seed=0))


@pytest.fixture(scope="session")
def placed(data):
    return data.on(CPU)


@pytest.fixture
def session_of(placed):
    """A network in training, with its loss and recipe as texts."""

    def make(loss="ce", *, model=None, runtime=None, **recipe):
        chosen = Recipe(**{**SMALL, **recipe})
        network = build_model("digits_cnn", n_classes=10, in_channels=1, image_size=8, seed=chosen.seed)
        return Session(network if model is None else model, catalogue.losses.parse(loss), placed, chosen, runtime)

    return make


@pytest.fixture
def changing_network():
    """One with all that a training changes or draws besides weights: running statistics, and dropout."""

    def make():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Dropout(0.3), nn.Linear(288, 10)
        )

    return make


@pytest.fixture
def train_in(digits):
    """Train in a folder, as ``train_runs`` does; ``after_epoch`` may stop it."""

    def train(folder, loss="ce", *, dataset=None, after_epoch=None, runtime=None, **recipe):
        run = Run(Path(folder), "digits_cnn", catalogue.losses.parse(loss), Recipe(**{**SMALL, **recipe}))
        told = {} if after_epoch is None else {"after_epoch": after_epoch}
        rows = digits if dataset is None else dataset
        train_runs(
            [run], rows, split="half-test", device=CPU, runtime=runtime or RuntimeOptions(checkpoint_seconds=0), **told
        )
        return run.folder

    return train


class Stopped(Exception):  # noqa: N818  # no error, but a stop on purpose
    """Somebody pulled the plug."""


@pytest.fixture
def stop_after():
    """An ``after_epoch`` that stops at a given one, once it is written down."""

    def make(epoch):
        def stop(_run, record):
            if record.epoch == epoch:
                raise Stopped

        return stop

    return make


@pytest.fixture
def stopped():
    return Stopped


@pytest.fixture
def begun(train_in, tmp_path, stop_after):
    """The folder of a run that was stopped after its second epoch of four."""
    with pytest.raises(Stopped):
        train_in(tmp_path / "run", after_epoch=stop_after(2))
    return tmp_path / "run"
