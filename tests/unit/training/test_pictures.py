"""Training on pictures in files: what a step sees, the threads that read, stops, damaged files, and memory."""

import copy
import json
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from forked import start
from PIL import Image
from torch import nn

from calibrant import catalogue, load
from calibrant.datasets import LargeImageFolder, split_dataset
from calibrant.errors import FileError, InputError
from calibrant.processes import ProcessGroup
from calibrant.training import Recipe, Run, RuntimeOptions, Session, TrainingData, load_network, train_runs
from calibrant.training.data import plan_epoch
from calibrant.training.folder import RunFolder
from calibrant.training.stores import LoadedPictures, Standardise, random_part, training_pictures

CPU = torch.device("cpu")
SIZE = 12
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")


def write(folder, *, train=30, test=9):
    """Pictures of noise in three classes, larger than the network's inputs and of several sizes."""
    chance, stored = np.random.default_rng(0), []
    for number in range(39):
        file, side = BytesIO(), (20 + number % 5, 30 - number % 7)
        Image.fromarray(chance.integers(0, 256, (*side, 3), dtype=np.uint8)).save(file, "png")
        stored.append(file.getvalue())
    for part, n in {"train": train, "val": test}.items():
        for name in "abc":
            (folder / part / name).mkdir(parents=True)
        for number in range(n):
            at = (number + 30 * (part == "val")) % len(stored)
            (folder / part / "abc"[number % 3] / f"{number}.png").write_bytes(stored[at])
    return folder


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return write(tmp_path_factory.mktemp("pictures"))


@pytest.fixture
def dataset(pictures):
    return LargeImageFolder(size=SIZE).read(pictures)


def halved(dataset):
    return TrainingData.of(dataset, split_dataset(dataset, "half-test", seed=0))


class Network(nn.Module):
    """With features and a head, dropout and running statistics."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(3)
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(3 * SIZE * SIZE, 16), nn.ReLU(), nn.Dropout(0.2))
        self.head = nn.Linear(16, 3)

    def features(self, inputs):
        return self.body(self.norm(inputs))

    def forward(self, inputs):
        return self.head(self.features(inputs))


def train(folder, dataset, loss="ce", *, split="half-test", runtime=None, after_epoch=None, device=CPU, **recipe):
    options = {"epochs": 3, "batch_size": 8, "learning_rate": 0.02, "precision": "float32"}
    own = Run(folder, "nets:Network", catalogue.parse_any_loss(loss), Recipe(**{**options, **recipe}), Network)
    told = {} if after_epoch is None else {"after_epoch": after_epoch}
    train_runs([own], dataset, split=split, device=device, runtime=runtime or RuntimeOptions(), **told)
    return folder


def same_results(first, second):
    files = ("weights.safetensors", "calibration.npz", "test.npz")
    return all((first / name).read_bytes() == (second / name).read_bytes() for name in files)


pytestmark = pytest.mark.filterwarnings("ignore:.*lacks . of 3 classes")


def seen_by(data, recipe, *, epoch=0):
    """The inputs of every step of an epoch."""
    session = Session(Network(), catalogue.losses.parse("ce"), data, recipe)
    seen, session.epoch = [], epoch
    session.model.register_forward_pre_hook(lambda _network, given: seen.append(given[0].clone()))
    with torch.random.fork_rng():
        session.begin_epoch()
        for _ in range(session.steps_an_epoch):
            session.advance()
    return torch.stack(seen)


def test_a_step_sees_random_parts_of_the_pictures_of_its_plan(dataset):
    data = halved(dataset)
    seen = seen_by(data.on(CPU), Recipe(batch_size=8, seed=5), epoch=2)
    plan = plan_epoch(30, 8, seed=5, epoch=2)
    steps = training_pictures(plan.samples, plan.mirrored, plan.partners, slice(0, 8), seed=5, epoch=2, mixes=False)
    scale = Standardise(dataset.pixel_scale)
    for step, (samples, shapes) in enumerate(steps):
        assert samples == plan.samples[step].tolist()
        for place, (sample, shape) in enumerate(zip(samples, shapes, strict=True)):
            with Image.open(dataset.training.inputs.path(sample)) as picture:
                expected = np.asarray(shape(picture.convert("RGB"), SIZE)).transpose(2, 0, 1)
            assert torch.equal(seen[step, place], scale(torch.from_numpy(expected.copy())))
    assert seen[0].is_contiguous(memory_format=torch.channels_last)
    assert not torch.equal(seen, seen_by(data.on(CPU), Recipe(batch_size=8, seed=5), epoch=3))


def test_without_augmentation_a_step_sees_what_an_evaluation_does(dataset):
    data = halved(dataset).on(CPU, "none")
    seen = seen_by(data, Recipe(batch_size=8))
    plan = plan_epoch(30, 8, seed=0, epoch=0)
    assert torch.equal(seen[1], data.training.inputs.plain(plan.samples[1]))
    every = torch.cat(list(data.training.batches()))
    assert torch.equal(every[plan.samples[2]], seen[2])
    assert every.shape == (30, 3, SIZE, SIZE)


@pytest.mark.parametrize("mixup", [0.0, 0.4])
def test_processes_that_share_a_batch_read_what_one_alone_sees(dataset, mixup):
    data = halved(dataset).on(CPU)
    plan = plan_epoch(30, 8, seed=0, epoch=0, mixup=mixup)
    samples, shifts, mirrored, partners = (field[0] for field in plan[:4])

    def loaded(part):
        store = LoadedPictures(data.training.inputs, 8)
        store.begin(
            training_pictures(plan.samples, plan.mirrored, plan.partners, part, seed=0, epoch=0, mixes=mixup > 0)
        )
        store.load()
        return store

    whole = loaded(slice(0, 8)).augmented(samples, shifts, mirrored)
    for rank in range(2):
        part = ProcessGroup(2, rank).part_of(8)
        store = loaded(part)
        assert torch.equal(store.augmented(samples[part], shifts[part], mirrored[part]), whole[part])
        if mixup:
            other = partners[part]
            assert torch.equal(store.augmented(samples[other], shifts[other], mirrored[other]), whole[other])


@pytest.mark.parametrize(
    ("loss", "options"),
    [("ce", {}), ("ce", {"mixup": 0.3}), ("crl", {}), ("meta_smoothing", {"split": "8:1:1"})],
    ids=["ce", "mixup", "crl", "meta"],
)
@pytest.mark.filterwarnings("ignore:.*a held-out batch of")
def test_results_do_not_depend_on_the_threads_nor_on_a_stop(dataset, tmp_path, stop_after, stopped, loss, options):
    straight = train(tmp_path / "one", dataset, loss, runtime=RuntimeOptions(read_threads=1, traced=True), **options)
    broken = tmp_path / "many"
    many = RuntimeOptions(read_threads=5, traced=True)
    with pytest.raises(stopped):
        train(broken, dataset, loss, runtime=many, after_epoch=stop_after(1), **options)
    assert RunFolder(broken).records()[-1].epoch == 1  # although an epoch takes less than the time between checkpoints
    train(broken, dataset, loss, runtime=many, **options)
    assert same_results(straight, broken)
    assert RunFolder(straight).settings().recipe.augmentation == "resized-crop-flip"


def test_a_trained_network_takes_stored_pixels(dataset, tmp_path):
    run = train(tmp_path / "run", dataset)
    network = load_network(run, Network())
    test = halved(dataset).held_out["test"]
    with torch.no_grad():
        assert torch.allclose(network(test.tensor), load(run / "test.npz").logits, atol=1e-5)


def test_a_damaged_picture_stops_the_run_that_resumes_once_it_is_there_again(tmp_path, dataset, stop_after, stopped):
    folder = write(tmp_path / "own")
    own = LargeImageFolder(size=SIZE).read(folder)
    expected = train(tmp_path / "expected", dataset)
    with pytest.raises(stopped):
        train(tmp_path / "run", own, after_epoch=stop_after(1))
    path = folder / "train" / "b" / "4.png"
    whole = path.read_bytes()
    path.write_bytes(whole[:200])
    with pytest.raises(FileError, match=r"these are not: .*train.b.4\.png \(.*\)\. Get them again: the same command"):
        train(tmp_path / "run", own)
    assert RunFolder(tmp_path / "run").records()[-1].epoch == 1
    path.write_bytes(whole)
    assert same_results(train(tmp_path / "run", own), expected)


def test_damaged_pictures_that_are_held_out_are_named_before_the_first_epoch(tmp_path):
    folder = write(tmp_path / "own")
    for number in range(5):
        (folder / "val" / "abc"[number % 3] / f"{number}.png").write_bytes(b"no picture")
    with pytest.raises(FileError, match=r"val.a.0\.png .*;.* and 2 more\. Remove"):
        train(tmp_path / "run", LargeImageFolder(size=SIZE).read(folder), split="holdout")
    assert not (tmp_path / "run").exists()


def test_a_run_of_other_files_is_another_run(tmp_path, stop_after, stopped):
    folder = write(tmp_path / "own")
    with pytest.raises(stopped):
        train(tmp_path / "run", LargeImageFolder(size=SIZE).read(folder), after_epoch=stop_after(1))
    (folder / "train" / "a" / "0.png").rename(folder / "train" / "a" / "00.png")
    with pytest.raises(FileError, match="must hold a run of the same settings"):
        train(tmp_path / "run", LargeImageFolder(size=SIZE).read(folder))
    settings = json.loads((tmp_path / "run" / "settings.json").read_text())["settings"]
    assert settings["pixel_scale"]["mean"] == [0.485, 0.456, 0.406]


def test_augmentations_are_those_of_the_place_of_the_pictures(dataset, data):
    files = halved(dataset)
    with pytest.raises(InputError, match="none or resized-crop-flip for pictures that are read in batches; got 'crop'"):
        files.on(CPU, "crop")
    with pytest.raises(InputError, match="none or crop or crop-flip for images in memory; got 'resized-crop-flip'"):
        data.on(CPU, "resized-crop-flip")


def test_a_random_part_lies_in_the_picture_and_has_the_usual_area_and_sides():
    width, height = 80, 50
    place = np.zeros((height, width, 3), dtype=np.uint8)
    place[..., 0], place[..., 1] = np.arange(width), np.arange(height)[:, None]
    picture, generator = Image.fromarray(place), torch.Generator().manual_seed(0)
    areas, mirrored = [], 0
    for draws in torch.rand(400, 10, 4, dtype=torch.float64, generator=generator).tolist():
        flag = draws[0][0] < 0.5
        part = np.asarray(random_part(picture, 32, draws=draws, mirrored=flag)).astype(float)
        across, down = part[16, -1, 0] - part[16, 0, 0], part[-1, 16, 1] - part[0, 16, 1]
        assert (across < 0) == flag
        wide, high = (abs(span) * 32 / 31 for span in (across, down))
        areas.append(wide * high / (width * height))
        mirrored += flag
        assert 0.6 < wide / high < 1.6  # 3:4 to 4:3, but for whole pixels and their rounding
    assert 0.06 < min(areas) < 0.15
    assert 0.75 < max(areas) < 1.05
    assert 0.35 < float(np.mean(areas)) < 0.6  # parts that do not fit are drawn again


@pytest.mark.parametrize(("size", "sides"), [((300, 10), (13, 10)), ((10, 300), (10, 13))])
def test_of_a_long_picture_the_middle_is_taken_where_no_draw_fits(size, sides):
    stripes = np.zeros((size[1], size[0], 3), dtype=np.uint8)
    middle = [slice((side - own) // 2, (side - own) // 2 + own) for side, own in zip(size, sides, strict=True)]
    stripes[middle[1], middle[0]] = 200
    whole = [[1.0, 0.5, 0.5, 0.5]] * 10  # all of its area, square
    part = np.asarray(random_part(Image.fromarray(stripes), 8, draws=whole, mirrored=False))
    assert np.unique(part).tolist() == [200]


MEMORY = """
import ctypes, runpy
from pathlib import Path
import torch
from torch import nn
# Else glibc keeps what is freed, more of it in some runs than in others.
if hasattr(libc := ctypes.CDLL(None), "mallopt"):
    assert libc.mallopt(-8, 1) and libc.mallopt(-3, 65536)  # one arena; a mapping of its own for what is larger
torch.set_num_threads(1)
tests = runpy.run_path(file)
dataset = tests["LargeImageFolder"](size=128).read(folder)
pool = lambda: nn.Sequential(nn.AvgPool2d(64), nn.Flatten(), nn.Linear(12, 3))
loss, recipe = tests["catalogue"].losses.parse("ce"), tests["Recipe"](epochs=1, batch_size=16)
run = tests["Run"](folder / "run", "nets:pool", loss, recipe, pool)
tests["train_runs"]([run], dataset, device=torch.device("cpu"), runtime=tests["RuntimeOptions"](read_threads=2))
(folder / "peak").write_text(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell the peak of a process")
def test_memory_does_not_grow_with_the_number_of_pictures(tmp_path):
    def peak(folder):
        process = start(MEMORY, file=__file__, folder=folder)
        process.join(900)
        assert process.exitcode == 0
        return int((folder / "peak").read_text())

    # The 260 held-out ones, evaluated in batches of up to 256, take as much in both.
    few, many = write(tmp_path / "few", train=30, test=260), write(tmp_path / "many", train=930, test=260)
    in_memory = 900 * 3 * 128 * 128 / 1024  # of the other pictures, 43 MB
    assert peak(many) - peak(few) < in_memory / 2


@needs_cuda
@pytest.mark.parametrize("mixup", [0.0, 0.3])
def test_captured_steps_find_the_pictures_of_their_plan(dataset, mixup):
    """As on the CPU, up to rounding: a step that met another's pictures would be far off."""
    data = halved(dataset)
    recipe = Recipe(epochs=3, batch_size=8, learning_rate=0.02, precision="float32", mixup=mixup)
    network = Network()
    network.body[3] = nn.Identity()  # dropout draws other numbers on a GPU
    logits = {}
    for name in ("cpu", "cuda"):
        session = Session(copy.deepcopy(network), catalogue.losses.parse("ce"), data.on(torch.device(name)), recipe)
        assert session.is_captured == (name == "cuda")
        with torch.random.fork_rng():
            for _ in range(3):
                session.begin_epoch()
                for _ in range(session.steps_an_epoch):
                    session.advance()
                session.end_epoch()
        logits[name] = session.held_out_logits["test"].cpu()
    torch.testing.assert_close(logits["cuda"], logits["cpu"], rtol=1e-3, atol=1e-3)


def test_reading_stops_with_an_epoch_that_was_stopped(dataset):
    """The memory of one epoch is not written by the threads of another."""
    data = halved(dataset).on(CPU)
    store, plan = LoadedPictures(data.training.inputs, 8), plan_epoch(30, 8, seed=0, epoch=0)
    rows = plan.samples[0]
    seen = []
    for _ in range(3):
        store.begin(
            training_pictures(plan.samples, plan.mirrored, plan.partners, slice(0, 8), seed=0, epoch=0, mixes=False)
        )
        store.load()
        seen.append(store.plain(rows))
    assert torch.equal(seen[0], seen[1])
    assert torch.equal(seen[0], seen[2])
