"""A trained network read back from its folder answers as it did when the run ended."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from calibrant import catalogue
from calibrant.datasets import Dataset, PixelScale, Samples, split_dataset
from calibrant.errors import FileError, InputError
from calibrant.files import load
from calibrant.training import Recipe, Run, load_network, predict, train_runs

CPU = torch.device("cpu")


def in_colour(examples):
    """Digits twice as large and in three channels, where a convolution's result depends on how pixels are laid out."""
    large = examples.inputs.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)
    return Samples(torch.cat([large, 16 - large, large.flip(3)], dim=1), examples.labels)


@pytest.mark.parametrize(("model", "augmentation"), [("digits_cnn", "none"), ("resnet20", "crop-flip")])
def test_a_network_of_images_takes_stored_pixels_and_gives_the_very_logits(digits, tmp_path, model, augmentation):
    training, test = digits.training[:96], digits.test
    if model == "resnet20":
        training, test = in_colour(training), in_colour(test)
    few = Dataset("few", digits.class_names, training, test, pixel_scale=PixelScale.of(training.inputs, peak=16))
    recipe = Recipe(epochs=1, batch_size=32, learning_rate=0.05, augmentation=augmentation)
    train_runs([Run(tmp_path / "run", model, catalogue.losses.parse("ce"), recipe)], few, split="half-test", device=CPU)
    network = load_network(str(tmp_path / "run"))
    assert not network.training
    split = split_dataset(few, "half-test", seed=0)
    for part in ("calibration", "test"):
        kept, rows = load(tmp_path / "run" / f"{part}.npz"), getattr(split, part)
        assert torch.equal(kept.labels, rows.labels)
        assert torch.equal(predict(network, rows.inputs), kept.logits)
        # However few at a time, up to the order of adding up.
        torch.testing.assert_close(predict(network, rows.inputs, batch_size=7), kept.logits, rtol=1e-4, atol=1e-5)


def test_a_network_of_texts_takes_word_numbers_and_gives_the_very_logits(tmp_path):
    generator = torch.Generator().manual_seed(0)
    words, labels = torch.randint(3, 20, (48, 6), generator=generator), torch.arange(48) % 2
    words[:, 0] = 1 + labels
    words[::3, 4:] = 0  # shorter texts
    texts = Samples(words, labels)
    dataset = Dataset("texts", ("one", "two"), texts[:24], texts[24:], n_words=20)
    recipe = Recipe(epochs=1, batch_size=8, learning_rate=0.01)
    run = Run(tmp_path / "run", "text_cnn", catalogue.losses.parse("ce"), recipe)
    train_runs([run], dataset, split="half-test", device=CPU)
    network, kept = load_network(tmp_path / "run"), load(tmp_path / "run" / "test.npz")
    rows = split_dataset(dataset, "half-test", seed=0).test
    assert torch.equal(predict(network, rows.inputs), kept.logits)
    assert kept.class_names == ("one", "two")


def test_what_is_no_finished_run_is_refused(train_in, begun, tmp_path):
    with pytest.raises(FileError, match=r"must be the settings of a run; it cannot be read"):
        load_network(tmp_path)
    with pytest.raises(FileError, match=r"must be the folder of a finished run; it has no weights.safetensors"):
        load_network(begun)
    train_in(begun)
    weights = begun / "weights.safetensors"
    whole = load_file(weights)
    save_file({name: values for name, values in whole.items() if "head" not in name}, weights)
    with pytest.raises(FileError, match="must hold the weights of a digits_cnn"):
        load_network(begun)
    weights.write_bytes(weights.read_bytes()[:-50])
    with pytest.raises(FileError, match="must hold a network's weights; it is damaged"):
        load_network(begun)


def test_predicting_leaves_the_network_in_the_mode_it_was_in(digits, changing_network):
    network, inputs = changing_network(), digits.test.inputs[:5].float()
    before = {name: values.clone() for name, values in network.state_dict().items()}
    first, again = predict(network.train(), inputs), predict(network, inputs)
    assert network.training
    assert torch.equal(first, again)  # no dropout
    assert not first.requires_grad
    assert all(torch.equal(values, before[name]) for name, values in network.state_dict().items())
    predict(network.eval(), inputs)
    assert not network.training


def test_predictions_of_any_network_that_gives_logits_in_some_way():
    inputs = torch.randn(5, 3)
    recurrent = nn.LSTM(3, 2)
    assert predict(recurrent, inputs, batch_size=5).shape == (5, 2)  # the first of a tuple
    with pytest.raises(InputError, match="inputs must be of the network's own type"):
        predict(recurrent, inputs.double())
    with pytest.raises(InputError, match="batch_size must be at least 1"):
        predict(recurrent, inputs, batch_size=0)
