"""What cannot be trained is refused with words, before the long work, and leaves nothing behind."""

import pytest
import torch

from calibrant import catalogue
from calibrant.datasets import Dataset, Samples
from calibrant.errors import FitError, InputError, UnknownNameError
from calibrant.losses import CrossEntropyLoss
from calibrant.models import build_model
from calibrant.processes import ProcessGroup
from calibrant.training import Recipe, Run, RuntimeOptions, Session, train_runs, train_together


@pytest.fixture
def network():
    return build_model("digits_cnn", n_classes=10, in_channels=1, image_size=8)


@pytest.mark.parametrize(
    ("loss", "recipe", "said"),
    [
        ("ce", {"batch_size": 321}, "batch_size must be at most the 320 training samples; got 321"),
        ("crl", {"mixup": 0.2}, "mixup must be 0 with crl, which follows single samples"),
        ("ce(reduction=none)", {}, "the reduction of a loss must be mean or sum to train with it; got none"),
    ],
)
def test_loss_recipe_and_data_must_go_together(session_of, loss, recipe, said):
    with pytest.raises(InputError, match=said):
        session_of(loss, **recipe)


def test_a_batch_must_be_shared_evenly_among_processes(placed, network):
    with pytest.raises(InputError, match="batch_size must be a multiple of the 3 processes; got 32"):
        Session(network, CrossEntropyLoss(), placed, Recipe(batch_size=32), processes=ProcessGroup(3, 0))
    assert [ProcessGroup(4, rank).part_of(32) for rank in range(4)] == [slice(8 * i, 8 * i + 8) for i in range(4)]


@pytest.mark.parametrize(
    ("model", "loss", "recipe", "error"),
    [
        ("digits_cn", "ce", {}, UnknownNameError),
        ("text_cnn", "ce", {}, InputError),
        ("vgg16_bn", "ce", {}, InputError),  # whose images are at least 16 x 16
        ("digits_cnn", "ce", {"batch_size": 1000}, InputError),
        ("digits_cnn", "crl", {"mixup": 0.2}, InputError),
    ],
)
def test_a_run_that_is_refused_leaves_no_folder_in_the_way(digits, tmp_path, model, loss, recipe, error):
    good = Run(tmp_path / "first", "digits_cnn", catalogue.losses.parse("ce"), Recipe(epochs=1, batch_size=32))
    bad = Run(tmp_path / "second", model, catalogue.losses.parse(loss), Recipe(**recipe))
    with pytest.raises(error):
        train_runs([good, bad], digits, split="half-test", device=torch.device("cpu"))
    assert not list(tmp_path.iterdir())


def test_texts_cannot_be_mixed(tmp_path):
    texts = Samples(torch.randint(1, 9, (40, 5)), torch.arange(40) % 2)
    dataset = Dataset("texts", ("a", "b"), texts, texts, n_words=9)
    run = Run(tmp_path / "run", "text_cnn", catalogue.losses.parse("ce"), Recipe(epochs=1, batch_size=4, mixup=0.2))
    with pytest.raises(InputError, match="mixup must be 0 for texts"):
        train_runs([run], dataset, split="half-test", device=torch.device("cpu"))


@pytest.mark.parametrize("rate", [1e6, 1e30])
def test_a_training_that_comes_apart_says_so_and_what_helps(train_in, tmp_path, rate):
    with pytest.raises(FitError, match=r"must stay finite; .*[Ll]ower the learning rate.*clip"):
        train_in(tmp_path / "run", learning_rate=rate, momentum=0.9, epochs=3)
    assert not (tmp_path / "run" / "weights.safetensors").exists()


def test_clipping_and_a_warmup_help_a_rate_that_is_too_high(session_of):
    session = session_of(learning_rate=2.0, clip=0.1, warmup=1, epochs=2)
    train_together([session])
    assert session.records[-1].loss < 2.4


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"evaluate_every": 0}, "evaluate_every must be at least 1"),
        ({"checkpoint_seconds": -1}, "checkpoint_seconds must be"),
    ],
)
def test_a_speed_that_cannot_be_is_refused(options, said):
    with pytest.raises(InputError, match=said):
        RuntimeOptions(**options)
