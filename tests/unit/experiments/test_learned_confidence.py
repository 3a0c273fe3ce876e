"""Table 4 of the dark side: the small grid end to end, what a head learns from, and what records are turned into."""

import dataclasses

import pytest
import torch
from experiments.__main__ import STUDIES, main
from experiments.learned_confidence import study as learned_confidence
from experiments.learned_confidence.results import PUBLISHED, numbers_of, page_of
from experiments.published import read_published
from experiments.runner import Cell, Place

from calibrant.datasets import CIFAR10, Dataset, DigitsReader, PixelScale, Samples, split_dataset
from calibrant.training import TrainingData


@pytest.mark.usefixtures("here")
@pytest.mark.filterwarnings("ignore::calibrant.errors.CalibrantWarning")  # which workers show, and do not raise
def test_the_quick_grid_runs_from_the_command_line_to_a_page(tmp_path, capfd):
    records = str(tmp_path / "records.jsonl")
    assert main(["run", "learned-confidence", "--quick", "--records", records]) == 0
    assert main(["check", "learned-confidence", "--quick", "--records", records]) == 0
    assert main(["table", "learned-confidence", "--quick", "--records", records, "--out", str(tmp_path)]) == 0
    page = (tmp_path / "learned-confidence-study.md").read_text(encoding="utf-8")
    assert "## Small CNN on digits" in page
    assert "| CFN (held-out samples) | " in page
    assert (tmp_path / "images" / "learned-confidence.png").exists()
    printed = capfd.readouterr().out
    assert "fine-tuning, epoch 1 of 1" in printed
    assert "1 cells done" in printed


def test_the_records_say_what_published_toml_says_they_say(capsys):
    assert main(["check", "learned-confidence"]) == 0, capsys.readouterr().out


def test_every_published_number_is_one_that_the_grid_will_have():
    cells = [cell.settings for cell in STUDIES["learned-confidence"].cells(quick=False)]
    assert {each.id for each in read_published(PUBLISHED)} <= set(numbers_of([measured(cell) for cell in cells]))


def test_the_head_learns_from_training_images_and_held_out_ones_choose_its_epoch(tmp_path, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    asked = {}

    def read(_reader, _folder):
        images = torch.randint(256, (600, 3, 8, 8), dtype=torch.uint8, generator=generator)
        samples = Samples(images, torch.arange(600) % 4)
        scale = PixelScale.of(images)
        return Dataset("cifar10", tuple("abcd"), samples, samples, pixel_scale=scale, augmentation="crop-flip")

    @dataclasses.dataclass(frozen=True)
    class Watched:
        method: object

        def fit(self, network, data, **options):
            asked.update(options, inputs=data[0], labels=data[1], training=network.training)
            return self.method.fit(network, data, **options)

        def fit_features(self, predictions, features):
            asked["held-out samples"] = len(predictions)
            return self.method.fit_features(predictions, features)

    confidnet = learned_confidence.ConfidNet
    monkeypatch.setattr(CIFAR10, "read", read)
    monkeypatch.setattr(learned_confidence, "ConfidNet", lambda **options: Watched(confidnet(**options)))
    cell = {
        **learned_confidence.NETWORK, "network": "digits_cnn", "method": "Baseline", "seed": 0, "data": "cifar10",
        "epochs": 1, "batch_size": 32, "evaluate_every": 1, "head_epochs": 2, "fine_tune_epochs": 1,
    }  # fmt: skip
    reported = {}
    study = learned_confidence.LEARNED_CONFIDENCE_STUDY
    study.prepare(Place(tmp_path, "cpu"), [Cell(cell)], quick=False)([cell], reported.__setitem__)
    split = split_dataset(read(None, None), "holdout", seed=0)
    n, held_out = len(split.training.labels), len(split.calibration.labels)
    assert asked["validation"].tolist() == list(range(n, n + held_out))
    assert len(asked["inputs"]) == n + held_out
    assert asked["augment"] is not None
    assert asked["held-out samples"] == held_out
    assert not asked["training"]
    assert list(reported[0]["rows"]) == ["Baseline", "TS", "CFN", "CFN (held-out samples)"]
    assert reported[0]["wrong"]["training"] <= n
    for name, change in reported[0]["differences"].items():
        for metric, (value, *_) in change.items():
            rows = reported[0]["rows"]
            assert value == pytest.approx(rows[name][metric][0] - rows["Baseline"][metric][0], abs=2e-6)


def test_moved_images_are_those_of_the_training_with_black_borders():
    images = torch.arange(1, 1 + 40 * 3 * 5 * 6).view(40, 3, 5, 6) % 251 + 1
    scale = PixelScale((0.5, 0.25, 0.1), (0.2, 0.5, 1.0))
    data = TrainingData(
        Samples(images.to(torch.uint8), torch.zeros(40, dtype=torch.int64)), {}, ("a", "b"), scale, "crop-flip"
    )
    mean, std = (torch.tensor(numbers)[:, None, None] for numbers in (scale.mean, scale.std))
    moved = learned_confidence.random_moves(data, seed=0)((images / scale.peak - mean) / std)
    pixels = ((moved * std + mean) * scale.peak).round().long()
    assert moved.shape == images.shape
    framed = torch.nn.functional.pad(images, (4, 4, 4, 4))
    found = set()
    for image, frame in zip(pixels, framed, strict=True):
        crops = {(down, right): frame[:, down : down + 5, right : right + 6] for down in range(9) for right in range(9)}
        wanted = {(*place, False): crop for place, crop in crops.items()}
        wanted |= {(*place, True): crop.flip(2) for place, crop in crops.items()}
        places = [place for place, crop in wanted.items() if torch.equal(crop, image)]
        assert places
        found.add(places[0])
    assert {mirrored for *_, mirrored in found} == {False, True}
    assert len(found) > 20


def test_what_is_not_augmented_in_training_is_not_moved():
    digits = DigitsReader().read()
    data = dataclasses.replace(TrainingData.of(digits, split_dataset(digits, "holdout", seed=0)), augmentation="none")
    assert learned_confidence.random_moves(data, seed=0) is None


def measured(cell, auroc=0.9, gain=0.01):
    def row(value):
        return {"ece": [0.1, 0.09, 0.12], "auroc": [value, value - 0.01, value + 0.01], "aupr_error": [0.4, 0.3, 0.5]}

    names = ("TS", "CFN", "CFN (held-out samples)")
    change = {"ece": [-0.05, -0.06, -0.04], "auroc": [gain, gain - 0.002, gain + 0.002], "aupr_error": [0.0, -0.1, 0.1]}
    numbers = {
        "accuracy": 0.7,
        "wrong": {"training": 30, "calibration": 1400},
        "T": 1.5,
        "epoch": dict.fromkeys(names[1:], 7),
        "fine_tuned": 2,
        "rows": {"Baseline": row(auroc), **{name: row(auroc + gain) for name in names}},
        "differences": dict.fromkeys(names, change),
    }
    return {"cell": dict(cell), "numbers": numbers, "device": "cpu", "torch": "2", "commit": "0" * 40}


def test_differences_are_those_of_the_same_samples_not_of_two_intervals():
    cell = next(iter(STUDIES["learned-confidence"].cells(quick=False))).settings
    number = numbers_of([measured(cell)])["cifar100.CFN - Baseline.auroc"]
    assert number[:3] == pytest.approx((1.0, 0.8, 1.2))


def test_the_page_says_how_long_was_trained_and_what_there_was_to_learn_from():
    cells = [cell.settings for cell in STUDIES["learned-confidence"].cells(quick=False)]
    page = page_of([measured(cell) for cell in cells], images=None)
    assert "the network for 100 epochs, the head for 100, both for up to 10 more" in page
    assert "Wrong predictions to learn from: 30, 30, 30 of the training images, 1,400, 1,400, 1,400" in page
    assert "| Table 4, CIFAR-100, ConfidNet, AUROC in percent | 86 |" in page
    assert (
        "| Table 4, CIFAR-10: ConfidNet separates right from wrong better than the softmax (+0.05) | **holds** |"
        in page
    )
