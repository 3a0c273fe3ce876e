"""Tables 2 and 3 of the dark side: the small grid end to end, shifted sets, and what records are turned into."""

import numpy as np
import pytest
import torch
from experiments.__main__ import STUDIES, main
from experiments.published import read_published
from experiments.refinement import study as refinement
from experiments.refinement.results import PUBLISHED, numbers_of, page_of
from experiments.runner import Cell, Place
from PIL import Image

from calibrant.datasets import CIFAR10, Dataset, PixelScale, Samples, image_folder
from calibrant.errors import InputError


@pytest.mark.usefixtures("here")
@pytest.mark.filterwarnings("ignore::calibrant.errors.CalibrantWarning")  # which workers show, and do not raise
def test_the_quick_grid_runs_from_the_command_line_to_a_page(tmp_path, capfd):
    records = str(tmp_path / "records.jsonl")
    assert main(["run", "refinement", "--quick", "--records", records, "--together", "2"]) == 0
    assert main(["check", "refinement", "--quick", "--records", records]) == 0
    assert main(["table", "refinement", "--quick", "--records", records, "--out", str(tmp_path)]) == 0
    page = (tmp_path / "refinement-study.md").read_text(encoding="utf-8")
    assert "## small CNN on digits" in page
    assert "| MX | TS (1.5) | 1 | " in page
    assert "## Confidences of right and of wrong predictions" in page
    assert {each.name for each in (tmp_path / "images").iterdir()} == {"refinement.png", "refinement-densities.png"}
    assert "2 cells done" in capfd.readouterr().out


def test_the_records_say_what_published_toml_says_they_say(capsys):
    assert main(["check", "refinement"]) == 0, capsys.readouterr().out


def test_every_published_number_is_one_that_the_grid_will_have():
    cells = [cell.settings for cell in STUDIES["refinement"].cells(quick=False)]
    records = [
        trained(cell["method"], cell["seed"], network=cell["network"], data=cell["data"], sets=sets)
        for cell in cells
        for sets in [("test", *refinement.SHIFTED.get(cell["data"], ()))]
    ]
    found = numbers_of(records)
    assert all(each.id in found for each in read_published(PUBLISHED))


def test_shifted_images_beside_the_data_are_evaluated_by_maps_of_the_calibration_samples(tmp_path, monkeypatch):
    generator = torch.Generator().manual_seed(0)

    def read(_reader, _folder):
        images = torch.randint(256, (600, 3, 8, 8), dtype=torch.uint8, generator=generator)
        samples = Samples(images, torch.arange(600) % 4)
        return Dataset("cifar10", tuple("abcd"), samples, samples, pixel_scale=PixelScale.of(images))

    monkeypatch.setattr(CIFAR10, "read", read)
    shifted = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)
    np.savez(tmp_path / "cinic10_sample.npz", x=shifted, y=np.arange(40) % 4)
    cell = {
        **refinement.WAYS["LS"], "method": "LS", "seed": 0, "data": "cifar10", "network": "digits_cnn",
        "epochs": 1, "batch_size": 32, "evaluate_every": 1,
    }  # fmt: skip
    reported = {}
    refinement.REFINEMENT_STUDY.prepare(Place(tmp_path, "cpu"), [Cell(cell)], quick=False)([cell], reported.__setitem__)
    assert set(reported[0]["rows"]) == {"test", "cinic10"}
    assert set(reported[0]["rows"]["cinic10"]) == {"none", "TS (1.5)", "TS", "SVS"}
    assert reported[0]["T"]["TS (1.5)"] == 1.5


def save_noise(path, chance):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(chance.integers(0, 256, (30, 40, 3), dtype=np.uint8)).save(path)


FEW = pytest.mark.filterwarnings("ignore::calibrant.errors.CalibrantWarning")  # of one sample to calibrate on


@pytest.fixture
def imagenet(tmp_path, monkeypatch):
    """ImageNet of four classes, with the shifted set beside it, in folders of class numbers."""
    chance = np.random.default_rng(0)
    for number, wnid in enumerate(["n01440764", "n01443537", "n01484850", "n01491361"]):
        for picture in range(3):
            save_noise(tmp_path / "imagenet" / "train" / wnid / f"{wnid}_{picture}.JPEG", chance)
        save_noise(tmp_path / "imagenet" / "val" / wnid / "ILSVRC2012_val_0.JPEG", chance)
        save_noise(tmp_path / refinement.SHIFTED["imagenet"]["imagenet-v2"] / str(number) / "0.jpeg", chance)
    monkeypatch.setattr(image_folder, "_IMAGENET_COUNTS", (4, 12, 4))
    return tmp_path


@FEW
def test_a_cell_of_imagenet_runs_on_pictures_in_files(imagenet, capsys):
    grid = [cell.settings for cell in STUDIES["refinement"].cells(quick=False)]
    declared = next(cell for cell in grid if cell["data"] == "imagenet" and cell["method"] == "MX")
    assert declared["recipe"] == "dark-side-imagenet"
    cell, reported = {**declared, "epochs": 1, "batch_size": 5}, {}
    refinement.REFINEMENT_STUDY.prepare(Place(imagenet, "cpu"), [Cell(cell)], quick=False)([cell], reported.__setitem__)
    assert not isinstance(reported[0], Exception), reported[0]
    assert set(reported[0]["rows"]) == {"test", "imagenet-v2"}
    assert reported[0]["T"]["TS (1.1)"] == 1.1
    assert "every one of 9 held-out pictures is read once" in capsys.readouterr().out
    # As test_every_published_number_is_one_that_the_grid_will_have assumes them.
    assert set(reported[0]["rows"]["test"]) == {"none", *refinement.IMAGENET_MAPS}


@FEW
def test_a_damaged_picture_of_imagenet_is_named_before_a_cell_begins(imagenet):
    path = imagenet / "imagenet" / "val" / "n01443537" / "ILSVRC2012_val_0.JPEG"
    path.write_bytes(path.read_bytes()[:300])
    cells = [cell for cell in STUDIES["refinement"].cells(quick=False) if cell.settings["data"] == "imagenet"]
    with pytest.raises(InputError, match=r"n01443537.ILSVRC2012_val_0"):
        refinement.REFINEMENT_STUDY.prepare(Place(imagenet, "cpu"), cells, quick=False)


def test_data_that_are_not_there_are_named_before_a_cell_begins(tmp_path):
    study = STUDIES["refinement"]
    with pytest.raises(
        InputError, match=r"cifar100 needs.* cifar10 needs.* imagenet needs train/<wnid> and val/<wnid>"
    ):
        study.prepare(Place(tmp_path, "cpu"), study.cells(quick=False), quick=False)


def test_the_cells_of_data_that_are_there_can_be_run_without_the_others(imagenet):
    study = STUDIES["refinement"]
    with pytest.raises(InputError, match=r"cifar10 needs.*run the cells of the others: --only data=imagenet"):
        study.prepare(Place(imagenet, "cpu"), study.cells(quick=False), quick=False)


def trained(method, seed, ece=0.1, auroc=0.9, network="vgg16_bn", data="cifar10", sets=("test",)):
    row = {"accuracy": [0.9, 0.89, 0.91], "nll": [0.3] * 3, "brier": [0.1] * 3}
    row |= {"ece": [ece, ece - 0.003, ece + 0.004], "auroc": [auroc, auroc - 0.01, auroc + 0.01]}
    maps = refinement.IMAGENET_MAPS if data == "imagenet" else refinement.MAPS
    rows = {name: dict.fromkeys(("none", *maps), row) for name in sets}
    cell = {"data": data, "network": network, "method": method, "seed": seed, "epochs": 100}
    where = {"device": "cpu", "torch": "2", "commit": "0" * 40}
    return {"cell": cell, "numbers": {"rows": rows, "T": {}, "training_accuracy": 1.0}, **where}


def test_a_difference_to_the_baseline_is_taken_seed_by_seed():
    records = [trained("Baseline", 0, auroc=0.95), trained("Baseline", 1, auroc=0.9), trained("LS", 0, auroc=0.8)]
    number = numbers_of(records)["cifar10.vgg16_bn.LS - Baseline.none.auroc"]
    assert number[:3] == pytest.approx((-15, -15 - 2**0.5, -15 + 2**0.5))


def test_a_map_is_compared_by_draws_of_the_same_samples_where_the_record_has_them():
    record = trained("Baseline", 0, auroc=0.95)
    place = "cifar10.vgg16_bn.Baseline.TS - none.auroc"
    assert numbers_of([record])[place][:3] == pytest.approx((0, -(2**0.5), 2**0.5))
    of_rows = {
        row: dict.fromkeys(("accuracy", "brier", "ece", "auroc"), (0.01, 0.009, 0.012)) for row in refinement.MAPS
    }
    record["numbers"]["differences"] = {"test": of_rows}
    assert numbers_of([record])[place][:3] == pytest.approx((1, 0.9, 1.2))


def test_maps_of_a_network_are_compared_on_the_same_samples():
    generator = torch.Generator().manual_seed(0)
    logits = {name: 3 * torch.randn(2000, 4, generator=generator) for name in ("calibration", "test")}
    labels = {name: torch.distributions.Categorical(logits=each / 2).sample() for name, each in logits.items()}
    found = refinement._rows(logits, labels)
    (value, low, high), rows = found["differences"]["test"]["TS"]["ece"], found["rows"]["test"]
    assert value == pytest.approx(rows["TS"]["ece"][0] - rows["none"]["ece"][0], abs=1e-5)
    assert low < value < high < 0
    assert found["differences"]["test"]["TS"]["accuracy"] == [0, 0, 0]


def test_the_page_has_a_table_for_each_network_and_set():
    records = [trained(method, 0, sets=("test", "cifar10.1")) for method in ("Baseline", "LS")]
    page = page_of(records, images=None)
    assert "## VGG-16 on CIFAR-10\n" in page
    assert "## VGG-16 on CIFAR-10.1\n" in page
    assert "| Table 3, CIFAR-10.1, VGG-16, LS, ECE in percent | 6.84 |" in page
