"""Tables 1 to 3 of Neural Clamping: the paper's descent, networks that are trained once, and the quick grid."""

import json
import zlib

import numpy as np
import pytest
import torch
from experiments.__main__ import STUDIES, main
from experiments.posthoc_maps import networks
from experiments.posthoc_maps.descent import STRENGTHS, descend, descend_odir
from experiments.posthoc_maps.networks import bench_of
from experiments.posthoc_maps.results import (
    COLUMNS,
    NEAR,
    PAPER_ACCURACY,
    PUBLISHED,
    chosen_pilot,
    numbers_of,
    pilot_numbers,
)
from experiments.posthoc_maps.study import BLOOD, CHOSEN, COMPARED, DIGITS, PILOT_SEEDS, POSTHOC_MAPS_STUDY, longer
from experiments.published import read_published
from experiments.records import Records
from experiments.runner import Cell, Place
from PIL import Image
from safetensors.torch import save_file
from torch.nn import functional as F

from calibrant.calibrators import TemperatureScaling
from calibrant.errors import FitError, InputError
from calibrant.metrics import nll
from calibrant.models import build_model
from calibrant.predictions import Predictions
from calibrant.training import RuntimeOptions, train_runs


@pytest.fixture(scope="module")
def samples():
    logits = 2 * torch.randn(400, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.multinomial((logits / 2).softmax(1), 1, generator=torch.Generator().manual_seed(1))[:, 0]
    return Predictions.from_logits(logits, labels)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("kind", ["temperature", "vector", "matrix"])
def test_three_steps_are_those_of_torchs_plain_sgd(samples, kind, reduction):
    start = {"temperature": torch.ones(()), "vector": torch.ones(4), "matrix": torch.eye(4)}[kind]
    scale, bias = start.double().requires_grad_(), torch.zeros(4).double().requires_grad_()
    parameters = [scale] if kind == "temperature" else [scale, bias]
    optimiser = torch.optim.SGD(parameters, lr=1e-3)
    mapped = {
        "temperature": lambda: samples.logits / scale,
        "vector": lambda: samples.logits * scale + bias,
        "matrix": lambda: samples.logits @ scale.T + bias,
    }[kind]
    for _ in range(3):
        optimiser.zero_grad()
        F.cross_entropy(mapped(), samples.labels, reduction=reduction).backward()
        optimiser.step()
    found = descend(samples, kind, reduction, epochs=3).transform(samples)
    assert torch.allclose(found.logits, mapped().detach(), rtol=1e-12, atol=1e-12)


def test_a_thousand_steps_of_the_sum_reach_the_optimum_and_of_the_mean_do_not(samples):
    optimum = float(TemperatureScaling().fit(samples).temperature)
    reached = [1 / float(descend(samples, "temperature", each).weight[0, 0]) for each in ("sum", "mean")]
    assert reached[0] == pytest.approx(optimum, rel=1e-6)
    assert 1 < reached[1] < 1 + 0.5 * (optimum - 1)


def test_a_descent_that_comes_apart_is_refused(samples):
    with pytest.raises(FitError, match="must stay finite"):
        descend(samples, "vector", "sum", rate=1e307, epochs=3)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_three_steps_with_odir_are_those_of_torchs_plain_sgd(samples, reduction):
    weight, bias = torch.eye(4).double().requires_grad_(), torch.zeros(4).double().requires_grad_()
    optimiser = torch.optim.SGD([weight, bias], lr=1e-3)
    for _ in range(3):
        optimiser.zero_grad()
        off_diagonal = weight - weight.diag().diag()
        loss = F.cross_entropy(samples.logits @ weight.T + bias, samples.labels, reduction=reduction)
        (loss + 50 * (off_diagonal.square().sum() / 12 + bias.square().sum() / 4)).backward()
        optimiser.step()
    found = descend(samples, "matrix", reduction, epochs=3, strength=50)
    assert torch.allclose(found.weight, weight.detach(), rtol=1e-12, atol=1e-12)
    assert torch.allclose(found.bias, bias.detach(), rtol=1e-12, atol=1e-12)


def test_odir_takes_the_strength_of_the_lowest_loss_and_leaves_out_what_diverges(samples):
    diverging = 1e9
    tried = [nll(descend(samples, "matrix", "sum", epochs=20, strength=each).transform(samples)) for each in STRENGTHS]
    found = descend_odir(samples, "sum", epochs=20, strengths=(diverging, *STRENGTHS))
    assert nll(found.transform(samples)) == min(tried)
    with pytest.raises(FitError, match="must stay finite"):
        descend_odir(samples, "sum", epochs=200, strengths=(diverging,))


@pytest.mark.usefixtures("here")
@pytest.mark.filterwarnings("ignore::calibrant.errors.CalibrantWarning")  # which workers show, and do not raise
def test_the_quick_grid_runs_from_the_command_line_to_a_page(tmp_path, capfd):
    records = str(tmp_path / "records.jsonl")
    assert main(["run", "posthoc-maps", "--quick", "--records", records]) == 0
    assert main(["check", "posthoc-maps", "--quick", "--records", records]) == 0
    assert main(["table", "posthoc-maps", "--quick", "--records", records, "--out", str(tmp_path)]) == 0
    page = (tmp_path / "posthoc-maps-study.md").read_text(encoding="utf-8")
    for text in ("| MS | descent, sum |", "## Small network on digits", "| NC (FL) | paper | 0 | 1 |", "ImageNet"):
        assert text in page
    assert {path.name for path in (tmp_path / "images").iterdir()} == {
        "posthoc-maps-resnet110.png",
        "posthoc-maps-digits-cnn.png",
    }
    printed = capfd.readouterr().out
    assert "24 cells done" in printed
    assert printed.count("digits-digits_cnn-0 epoch") == DIGITS["train_epochs"]  # trained once, for 15 cells
    assert (tmp_path / "records-networks" / "digits-digits_cnn-0" / "weights.safetensors").exists()


def test_the_records_say_what_published_toml_says_they_say(capsys):
    assert main(["check", "posthoc-maps"]) == 0, capsys.readouterr().out


def measured(cell):
    """Return a record with made numbers, all of them different."""
    value = 0.01 + 0.0001 * (zlib.crc32(Cell(cell).key.encode()) % 1000)
    row = {metric: [value, value / 2, 2 * value] for metric in COLUMNS}
    numbers = {"metrics": row, "to_temperature": row}
    if cell["method"].startswith("NC"):
        compared = {".".join(baseline): row for baseline in COMPARED}
        numbers |= {"T": 1.0, "norm": 0.0, "seconds": 1.0, "differences": compared}
    return {"cell": dict(cell), "numbers": numbers}


def test_every_published_number_is_one_that_the_grid_will_have():
    cells = [cell.settings for cell in STUDIES["posthoc-maps"].cells(quick=False)]
    assert {each.id for each in read_published(PUBLISHED)} <= set(numbers_of([measured(cell) for cell in cells]))


def test_what_clamping_gains_is_a_share_of_the_best_baseline_of_any_fit():
    own = {**BLOOD, "division": "other", "network_seed": 0}
    errors = {("TS", "optimum"): 0.02, ("Dir-ODIR", "optimum"): 0.016, ("SVS", "optimum"): 0.001}
    records = [measured({"method": method, "fit": fit, **own}) for method, fit in errors]
    for record, error in zip(records, errors.values(), strict=True):
        record["numbers"]["metrics"]["ece"] = [error, error - 0.01, error + 0.01]
    clamped = measured({"method": "NC (FL)", "fit": "paper", "epochs": 100, "seed": 0, **own})
    clamped["numbers"]["metrics"]["ece"] = [0.012, 0.002, 0.022]
    clamped["numbers"]["differences"] = {
        "TS (grid).optimum": clamped["numbers"]["differences"]["TS (grid).optimum"],
        "Dir-ODIR.optimum": {metric: [-0.004, -0.012, 0.002] for metric in COLUMNS},
    }
    found = numbers_of([*records, clamped])
    gain = found["gain.resnet50_imagenet.NC (FL).paper.ece"]
    assert gain[:3] == pytest.approx((25, -12.5, 75))  # SVS is not in the paper
    assert "Dir-ODIR, optimum" in gain.about
    assert found["to best.resnet50_imagenet.NC (FL).paper.ece"][:3] == pytest.approx((-0.4, -1.2, 0.2))
    # Where Neural Clamping was not compared with it in pairs, the interval is that of two independent numbers.
    records[1]["cell"]["fit"] = "descent, sum"
    wider = numbers_of([*records, clamped])["to best.resnet50_imagenet.NC (FL).paper.ece"]
    assert wider.value == pytest.approx(-0.4)
    assert wider.high - wider.low == pytest.approx(2 * 2**0.5)
    assert "independent" in wider.about


def test_official_records_of_bloodmnist_take_the_place_of_others():
    cells = [
        {"method": "TS", "fit": "optimum", **BLOOD, "network_seed": 0, "division": each}
        for each in ("other", "official")
    ]
    records = [measured(cell) for cell in cells]
    records[1]["numbers"]["metrics"]["ece"] = [0.5, 0.4, 0.6]
    assert numbers_of(records[:1])["resnet50_imagenet.TS.optimum.ece"].value < 50
    assert numbers_of(records)["resnet50_imagenet.TS.optimum.ece"].value == 50


def test_networks_on_few_images_are_others_than_those_on_all():
    cells = [
        {"method": "TS", "fit": "optimum", **training, "network_seed": 0, "division": "other"}
        for training in (BLOOD, longer(*CHOSEN))
    ]
    records = [measured(cell) for cell in cells]
    records[1]["numbers"]["metrics"]["ece"] = [0.5, 0.4, 0.6]
    found = numbers_of(records)
    assert found["resnet50_imagenet.TS.optimum.ece"].value < 50
    assert found["resnet50_overconfident.TS.optimum.ece"].value == 50


def test_fits_behind_one_network_are_averaged_before_networks_are_compared():
    own = {"method": "NC (CE)", "fit": "paper", "epochs": 100, **longer(*CHOSEN), "division": "other"}
    records = []
    for network, errors in enumerate([(0.01, 0.03), (0.05, 0.07)]):
        for seed, error in enumerate(errors):
            records.append(measured({**own, "network_seed": network, "seed": seed}))
            records[-1]["numbers"]["metrics"]["ece"] = [error, error, error]
    number = numbers_of(records)["resnet50_overconfident.NC (CE).paper.ece"]
    assert number.value == pytest.approx(4)
    assert number.high - number.value == pytest.approx(12.706 * 2)  # of two networks, 2 and 6 %, not of four
    alone = numbers_of(records[:2])["resnet50_overconfident.NC (CE).paper.ece"]
    assert alone.high - alone.value == pytest.approx(12.706 * 1)


def pilot(samples, epochs, accuracy, ece, seed=PILOT_SEEDS[0]):
    cell = {"method": "none", "fit": "pilot", **longer(samples, epochs), "network_seed": seed}
    record = measured(cell)
    record["numbers"]["metrics"] |= {"accuracy": [accuracy] * 3, "ece": [ece] * 3}
    return record


def test_the_pilot_of_the_papers_accuracy_and_the_nearest_ece_is_chosen():
    pilots = [pilot(2_000, 20, 0.83, 0.0577), pilot(3_000, 10, 0.87, 0.03), pilot(3_000, 20, 0.845, 0.07)]
    assert chosen_pilot(pilots) == (3_000, 20)  # the first is not near the paper's 85.8 %
    assert chosen_pilot([*pilots, pilot(3_000, 20, 0.76, 0.07, seed=PILOT_SEEDS[1])]) == (3_000, 10)  # in the mean
    assert chosen_pilot(pilots[:1]) is None
    assert not any("none" in name for name in numbers_of(pilots))  # they are in no table


def test_the_pilots_do_not_tell_the_overconfident_training_from_the_one_that_they_choose():
    records = Records(POSTHOC_MAPS_STUDY.folder / "records.jsonl").read()
    numbers = pilot_numbers(records)
    taken, nearest = numbers[CHOSEN], numbers[chosen_pilot(records)]
    assert abs(taken["accuracy"].value - PAPER_ACCURACY) <= NEAR
    assert taken["ece"].low < nearest["ece"].value < taken["ece"].high


@pytest.mark.parametrize(
    ("only", "missing"),
    [
        (["network=vit_s16"], ["val/<class>/", "vit_small_patch16_224.augreg_in21k_ft_in1k.safetensors"]),
        (["division=other"], ["bloodcells_28.npz"]),
        (["division=official"], ["bloodmnist.npz"]),
        (["network=wrn40_10"], ["cifar-100"]),
        (["division=other", "division=None"], ["bloodcells_28.npz", "resnet101-63fe2227.pth", "mixer_b16"]),
    ],
)
@pytest.mark.usefixtures("here")
def test_missing_files_are_named_before_a_cell_begins(tmp_path, capsys, only, missing):
    (tmp_path / "data").mkdir()
    conditions = [each for condition in only for each in ("--only", condition)]
    records = tmp_path / "records.jsonl"
    arguments = ["run", "posthoc-maps", "--records", str(records), "--device", "cpu", *conditions]
    assert main([*arguments, "--data", str(tmp_path / "data")]) == 2
    said = capsys.readouterr().err
    assert all(name in said for name in missing), said
    assert not records.read_bytes()
    assert main(arguments) == 2  # without a folder
    assert "--data must name" in capsys.readouterr().err


def test_a_training_that_is_killed_resumes_and_is_the_one_that_was_not(tmp_path, monkeypatch):
    place = {name: Place(networks=tmp_path / name, device="cpu") for name in ("whole", "killed")}
    whole = bench_of(place["whole"], DIGITS, quick=True)

    def train(*arguments, after_epoch, **options):
        def end(run, record):
            after_epoch(run, record)
            if record.epoch == 2:
                raise KeyboardInterrupt

        train_runs(*arguments, **options | {"runtime": RuntimeOptions(checkpoint_seconds=0)}, after_epoch=end)

    with monkeypatch.context() as patched:
        patched.setattr(networks, "train_runs", train)
        with pytest.raises(KeyboardInterrupt):
            bench_of(place["killed"], DIGITS, quick=True)
    seen = []
    monkeypatch.setattr(networks, "print", lambda text, **_: seen.append(text), raising=False)
    resumed = bench_of(place["killed"], DIGITS, quick=True)
    assert [text.split()[2] for text in seen] == ["3"]
    again = bench_of(place["killed"], DIGITS, quick=True)
    assert len(seen) == 1
    for other in (resumed, again):
        for part in networks.PARTS:
            assert torch.equal(whole.predictions[part].logits, other.predictions[part].logits)


def test_the_folder_of_another_training_is_refused(tmp_path):
    place = Place(networks=tmp_path, device="cpu")
    bench_of(place, DIGITS, quick=True)
    (tmp_path / "digits-digits_cnn-0" / "weights.safetensors").unlink()
    with pytest.raises(InputError, match=r"recipe\.epochs"):
        bench_of(place, {**DIGITS, "train_epochs": 2}, quick=True)


def test_bloodmnist_in_another_division_is_read_from_its_own_file(tmp_path):
    generator = np.random.default_rng(0)
    parts = {
        f"{part}_{what}": values
        for part, n in (("train", 64), ("val", 24), ("test", 24))
        for what, values in (
            ("images", generator.integers(256, size=(n, 28, 28, 3), dtype=np.uint8)),
            ("labels", np.arange(n)[:, None] % 8),
        )
    }
    np.savez(tmp_path / "bloodcells_28.npz", **parts)
    cell = {**longer(32, 3), "division": "other", "network_seed": 0, "batch_size": 32}
    bench = bench_of(Place(data=tmp_path, networks=tmp_path / "networks", device="cpu"), cell, quick=False)
    assert [len(bench.predictions[part]) for part in networks.PARTS] == [24, 24]
    assert bench.predictions["test"].n_classes == 8
    assert bench.features["test"].shape == (24, 2048)
    fast = bench.for_gradients(bench.images["test"][0].clone().requires_grad_())
    assert torch.allclose(fast, bench.predictions["test"].logits, rtol=1e-3, atol=1e-3)


SMALL = {name: each._replace(size=32) for name, each in networks.PUBLISHED.items()}


@pytest.fixture(scope="module")
def small_imagenet(tmp_path_factory):
    """Tiny pictures and random weights under the publishers' names, in a folder laid out as ImageNet's."""
    folder = tmp_path_factory.mktemp("imagenet")
    generator = np.random.default_rng(0)
    for name in ("n01", "n02", "n03"):
        (folder / "val" / name).mkdir(parents=True)
        for number in range(10):
            pixels = generator.integers(256, size=(40, 50, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / "val" / name / f"{number}.png")
    published = {"stem.conv": "conv1", "stem.norm": "bn1", "head": "fc", "shortcut": "downsample", ".norm": ".bn"}
    for name, each in SMALL.items():
        model = build_model(name, n_classes=3, image_size=32)
        weights = model.state_dict()
        if name != "resnet101_imagenet":
            save_file({key: values.contiguous() for key, values in weights.items()}, folder / each.file)
            continue
        blocks = [f"layer{stage}.{place}" for stage, n in enumerate((3, 4, 23, 3), start=1) for place in range(n)]
        renamed = {}
        for key, values in weights.items():
            if key.startswith("body."):
                _, block, rest = key.split(".", 2)
                key = f"{blocks[int(block)]}.{rest}"  # noqa: PLW2901
            for ours, theirs in published.items():
                key = key.replace(ours, theirs)  # noqa: PLW2901
            renamed[key] = values
        torch.save(renamed, folder / each.file)
    return folder


@pytest.fixture
def imagenet(small_imagenet, monkeypatch):
    monkeypatch.setattr(networks, "PUBLISHED", SMALL)
    return small_imagenet


@pytest.mark.parametrize("network", networks.PUBLISHED)
def test_published_networks_are_loaded_and_halves_of_the_pictures_calibrate_and_test(imagenet, network):
    cell = {"network": network, "weights": networks.PUBLISHED[network].file}
    bench = bench_of(Place(data=imagenet, device="cpu"), cell, quick=False)
    rows = [bench.images[part].dataset.indices for part in networks.PARTS]
    assert sorted(rows[0] + rows[1]) == list(range(30))
    assert [len(bench.predictions[part]) for part in networks.PARTS] == [15, 15]
    model = build_model(network, n_classes=3, image_size=32).eval()
    inputs = torch.stack([image for image, _ in bench.images["test"].dataset])
    with torch.no_grad():
        assert torch.allclose(bench.predictions["test"].logits, model(inputs), rtol=1e-3, atol=1e-3)


@pytest.mark.usefixtures("here")
@pytest.mark.filterwarnings("ignore::calibrant.errors.CalibrantWarning")  # of so few pictures
def test_cells_of_imagenet_run_from_a_folder_of_pictures(imagenet, tmp_path, monkeypatch):
    network = {"network": "vit_s16", "weights": networks.PUBLISHED["vit_s16"].file}
    cells = [
        {"method": "none", "fit": "none", **network},
        {"method": "MS", "fit": "descent, mean", "epochs": 5, **network},
        {"method": "density ratio", "fit": "features", **network},
        {"method": "NC (FL)", "fit": "paper", "epochs": 1, "seed": 0, **network},
    ]
    monkeypatch.setattr("experiments.posthoc_maps.study.RESAMPLES", 20)
    prepared = POSTHOC_MAPS_STUDY.prepare(
        Place(data=imagenet, networks=tmp_path / "networks", device="cpu"), [Cell(each) for each in cells], quick=False
    )
    answers = {}
    prepared(cells, answers.__setitem__)
    for place, cell in enumerate(cells):
        assert isinstance(answers[place], dict), answers[place]
        json.dumps(answers[place], allow_nan=False)
        assert {"metrics", "to_temperature"} <= set(answers[place]), cell
    assert answers[3]["norm"] > 0
    absent = {".".join(each) for each in COMPARED} - set(answers[3]["differences"])
    assert absent <= {"MS.optimum"}  # so few pictures are separable, or just not


def test_weights_that_do_not_fit_are_refused_by_the_names_of_both_files(imagenet):
    cell = {"network": "mixer_b16", "weights": networks.PUBLISHED["vit_s16"].file}
    with pytest.raises(InputError, match=r"vit_small.*must hold the weights of mixer_b16"):
        bench_of(Place(data=imagenet, device="cpu"), cell, quick=False)
