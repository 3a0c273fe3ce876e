"""The network that a command is given: made, exported, or a run's; and how everything else is refused."""

import sys

import pytest
import torch
from safetensors.torch import save_file, save_model
from torch import nn

from calibrant.clamping import ClampedModel
from calibrant.cli.networks import read_network
from calibrant.errors import InputError
from calibrant.maps import Scale

CPU = torch.device("cpu")
MODULE = """
import torch
from torch import nn

answer = 42
ready = nn.Linear(3, 2)


def build():
    return nn.Sequential(nn.Linear(3, 4), nn.Dropout(), nn.Linear(4, 2))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.again = self.first

    def forward(self, inputs):
        return self.again(self.first(inputs))


class Kit:
    @staticmethod
    def build():
        return nn.Linear(3, 2)


def needs(width):
    return nn.Linear(width, 2)


def gives():
    return [1, 2]


def breaks():
    raise OSError("no such disk\\nat all")
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a module, which is the current one and not where Python looks by itself."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    (tmp_path / "my_nets.py").write_text(MODULE)
    (tmp_path / "my_broken.py").write_text("import no_such_package\n")
    yield tmp_path
    for name in ("my_nets", "my_broken"):
        sys.modules.pop(name, None)


def model(text, weights=None):
    return read_network(text, weights, CPU).model


@pytest.mark.usefixtures("here")
def test_a_factory_in_the_current_folder_makes_the_network_in_evaluation_mode():
    made = model("my_nets:build")
    assert [type(part) for part in made] == [nn.Linear, nn.Dropout, nn.Linear]
    assert not any(part.training for part in made.modules())
    assert isinstance(model("my_nets:Kit.build"), nn.Linear)
    assert isinstance(model("my_nets:ready"), nn.Linear)
    assert type(model("calibrant.models:DigitsCNN")).__name__ == "DigitsCNN"


def test_weights_are_loaded_if_they_are_of_this_very_network(here):
    given = model("my_nets:build")
    save_model(given, here / "w.safetensors")
    loaded = model("my_nets:build", here / "w.safetensors")
    assert torch.equal(loaded[0].weight, given[0].weight)
    tied = model("my_nets:Tied")
    save_model(tied, here / "tied.safetensors")  # which holds what is shared once
    assert torch.equal(model("my_nets:Tied", here / "tied.safetensors").again.weight, tied.first.weight)

    state = dict(given.state_dict())
    odd = {"0.weight": state["0.weight"][:2].clone(), "module.0.bias": state["0.bias"], "2.bias": state["2.bias"]}
    save_file(odd, here / "odd.safetensors")
    with pytest.raises(InputError, match=r"2 missing \(0.bias, 2.weight\), 1 unknown \(module.0.bias\), 1 of another"):
        model("my_nets:build", here / "odd.safetensors")
    with pytest.raises(InputError, match=r"must end in .safetensors, .pt or .pth; .*save_model"):
        model("my_nets:build", here / "w.ckpt")
    (here / "cut.safetensors").write_bytes((here / "w.safetensors").read_bytes()[:60])
    with pytest.raises(InputError, match=r"cut.safetensors must be a whole safetensors file"):
        model("my_nets:build", here / "cut.safetensors")


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no_nets:build", "no_nets is neither in the folder"),
        ("calibrant.no_nets:build", "calibrant.no_nets is neither in the folder"),
        ("my_broken:build", "my_broken could not be imported: ModuleNotFoundError: No module named 'no_such_package'"),
        ("my_nets:biuld", "build, Tied, Kit, needs, gives, breaks; got 'biuld'. Did you mean build?"),
        ("my_nets:Kit.make", "has no attribute 'make'"),
        ("my_nets:answer", "must be a function that makes the network; it is of type int"),
        ("my_nets:gives", "must make a torch.nn.Module; it returned a list"),
        ("my_nets:needs", "when called without arguments; it raised TypeError: needs() missing 1"),
        ("my_nets:breaks", "it raised OSError: no such disk. Give it what it needs"),
        ("my_nets", "package.module:factory, an archive of torch.export (.pt2), or a folder"),
        ("my_nets.py", "which is none of them. Name the function in it that makes the network: my_nets:NAME"),
        (":build", "got ':build'"),
        ("my nets:build", "got 'my nets:build'"),
        ("nowhere.pt2", "nowhere.pt2 must be an existing file"),
        (".", "settings.json must be the settings of a run"),
    ],
)
def test_what_is_no_network_is_refused(text, said):
    with pytest.raises(InputError) as raised:
        model(text)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_weights_of_torch_save_are_read_without_running_what_else_is_in_the_file(here):
    given = model("my_nets:build")
    torch.save(given.state_dict(), here / "w.pt")
    torch.save({"epoch": 3, "state_dict": given.state_dict()}, here / "checkpoint.pth")
    for name in ("w.pt", "checkpoint.pth"):
        assert torch.equal(model("my_nets:build", here / name)[0].weight, given[0].weight)
    torch.save(given, here / "whole.pt")
    with pytest.raises(InputError, match=r"could run code when read. .*torch.save\(network.state_dict\(\), path\)"):
        model("my_nets:build", here / "whole.pt")


def test_an_exported_network_takes_any_number_of_samples_and_has_its_own_weights(here, capfd):
    network = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)).eval()
    example = (torch.randn(2, 3),)
    rows = torch.export.Dim("n")
    torch.export.save(torch.export.export(network, example, dynamic_shapes=({0: rows},)), here / "net.pt2")
    torch.export.save(torch.export.export(network, example), here / "two.pt2")
    (here / "other.pt2").write_bytes((here / "net.pt2").read_bytes()[:100])
    capfd.readouterr()
    loaded, inputs = model("net.pt2"), torch.randn(7, 3)
    assert torch.allclose(loaded(inputs), network(inputs))
    assert not loaded.training
    clamped = ClampedModel(loaded, torch.ones(3), Scale(torch.tensor(2.0), n_classes=2))  # no other mode to go to
    assert torch.allclose(clamped.train().eval()(inputs), network(inputs + 1) / 2)
    with pytest.raises(InputError, match=r"two.pt2 must take any number of samples; it was exported for 2"):
        model("two.pt2")
    with pytest.raises(InputError, match=r"other.pt2 must be a whole archive of torch.export"):
        model("other.pt2")
    with pytest.raises(InputError, match=r"--weights must be left out with --model net.pt2"):
        model("net.pt2", here / "w.safetensors")
    assert capfd.readouterr().err == ""  # torch would log a page


def test_a_run_of_calibrant_train_takes_the_pixels_that_were_stored(calibrant, here):
    options = ["--model", "digits_cnn", "--epochs", 1, "--batch-size", 512, "--device", "cpu"]
    assert calibrant("train", "--dataset", "digits", *options, "-o", here / "run")[0] == 0
    network = read_network("run", None, CPU)
    assert (network.is_run, network.space.low, network.space.high, network.class_names[3]) == (True, 0, 16, "3")
    assert (network.dtype, network.model.training) == (torch.float32, False)
