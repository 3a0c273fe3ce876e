"""A thousand mutated files of every kind: each is refused with our own error, or loads as something valid.

Files with a digest (maps, clamped models, confidences, weights of runs) are never accepted with other contents. The
seeds are fixed, so that a failure can be repeated; the number of a file is in the message.
"""

import random
import resource

import pytest
import torch
from made_runs import rows_of, settings_of, write_run
from map_examples import EXAMPLES
from torch import nn

from calibrant.calibrators import TemperatureScaling
from calibrant.clamping import ClampedModel, InputSpace, load_clamped, save_clamped
from calibrant.confidence import ConfidenceHead, NeighbourConfidence, load_confidence, save_confidence
from calibrant.diagnosis.runs import read_runs
from calibrant.errors import CalibrantError
from calibrant.files import load, read_map_file, save, save_map
from calibrant.files.save import WRITERS
from calibrant.maps import Scale
from calibrant.models import build_model
from calibrant.predictions import Predictions
from calibrant.training import load_network
from calibrant.training.folder import RunFolder, write_tensors
from calibrant.training.record import EpochRecord, HeldOutRecord

FILES = 1000
LESS = FILES // 4  # of a kind that has several
MOST_MEMORY = 256 << 10  # kilobytes that the peak may rise by, over all files of a kind
ROWS = Predictions.from_logits(
    torch.randn(12, 3, generator=torch.Generator().manual_seed(0)),
    torch.arange(12) % 3,
    class_names=["cat", "dog", "bird"],
)


def mutated(whole: bytes, chance: random.Random) -> bytes:
    """The same file with one to four things wrong with it."""
    data = bytearray(whole)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        at, length = chance.randrange(max(1, len(data))), chance.choice((1, 2, 4, 8, 64))
        match chance.randrange(8):
            case 0 | 1:
                data[at : at + 1] = bytes([data[at] ^ (1 << chance.randrange(8))]) if data else b""
            case 2:
                data[at : at + length] = chance.randbytes(length)
            case 3:
                data[at : at + length] = chance.choice((b"\x00", b"\xff", b"9", b"[", b"-")) * length
            case 4:
                del data[at : at + length]
            case 5:
                data[at:at] = data[chance.randrange(len(data) + 1) :][:length]
            case 6:
                del data[at:]
            case _:
                other = chance.randrange(max(1, len(data)))
                data[at : at + length], data[other : other + length] = (
                    data[other : other + length],
                    data[at : at + length],
                )
    return bytes(data)


def fuzz(path, read, check, *, files=FILES, seed=1):
    """Read that many mutations of a file, and say how many were refused."""
    whole, chance = path.read_bytes(), random.Random(seed)  # noqa: S311  # no secret
    assert check(read())  # the first time, libraries are loaded
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused = 0
    for number in range(files):
        data = mutated(whole, chance)
        path.write_bytes(data)
        try:
            found = read()
        except CalibrantError:
            refused += 1
        except Exception as error:  # noqa: BLE001  # that is what is looked for
            pytest.fail(f"file {number} of {path.name}: {type(error).__name__}: {error}")
        else:
            assert check(found), f"file {number} of {path.name} was accepted as {found}"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST_MEMORY
    path.write_bytes(whole)
    assert check(read())
    return refused


def is_valid(found):
    k = found.n_classes
    whole = len(found) > 0 and bool(found.logits.isfinite().all())
    return whole and int(found.labels.min()) >= 0 and int(found.labels.max()) < k


# The others are written and read by the same code.
@pytest.mark.parametrize("suffix", sorted({*WRITERS} - {".pth", ".tsv", ".tsv.gz", ".jsonl.gz"}))
def test_mutated_predictions_are_refused_or_valid(tmp_path, suffix):
    path = tmp_path / f"rows{suffix}"
    save(ROWS, path)
    refused = fuzz(path, lambda: load(path), is_valid)
    assert refused > FILES / 20
    if suffix in {".npz", ".pt", ".parquet", ".csv.gz"}:  # their numbers have checksums

        def is_same(found):
            return torch.equal(found.logits.float(), ROWS.logits) and torch.equal(found.labels, ROWS.labels)

        fuzz(path, lambda: load(path), is_same, files=LESS, seed=2)


def contents(module):
    return {name: values.tolist() for name, values in module.state_dict().items()}


@pytest.mark.parametrize("kind", ["fitted", "chain", "bands", "order_preserving"])
def test_a_mutated_map_is_refused_or_the_same(tmp_path, kind):
    path = tmp_path / "map.safetensors"
    if kind == "fitted":
        rows = rows_of(100, "calibration")
        save_map(TemperatureScaling().fit(rows), path, fitted_on=rows)
    else:
        save_map(EXAMPLES[kind], path)
    original = read_map_file(path)

    def same(found):
        return contents(found.map) == contents(original.map) and found.document == original.document

    fuzz(path, lambda: read_map_file(path), same, files=LESS)


def test_no_flipped_bit_of_a_map_is_accepted(tmp_path):
    path = tmp_path / "map.safetensors"
    save_map(EXAMPLES["scale"], path)
    whole = path.read_bytes()
    numbers = range(8 * (len(whole) - 8), 8 * len(whole))
    for place in (*range(0, numbers.start, 9), *numbers):  # of the numbers every bit, of the rest every ninth
        data = bytearray(whole)
        data[place // 8] ^= 1 << place % 8
        path.write_bytes(data)
        with pytest.raises(CalibrantError):
            read_map_file(path)


def test_a_mutated_clamped_model_is_refused_or_the_same(tmp_path):
    network = nn.Linear(4, 3).eval()
    path = tmp_path / "clamped.safetensors"
    clamped = ClampedModel(
        network, torch.tensor([0.1, -0.2, 0.0, 0.3]), Scale(torch.tensor(1.7), n_classes=3), space=InputSpace()
    )
    save_clamped(clamped, path, with_weights=True)
    before = contents(network)

    def same(found):
        return contents(found) == contents(clamped) and contents(network) == before and found.space == clamped.space

    fuzz(path, lambda: load_clamped(path, network), same)


@pytest.mark.parametrize("kind", ["head", "trust"])
def test_a_mutated_confidence_is_refused_or_the_same(tmp_path, kind):
    path = tmp_path / "confidence.safetensors"
    fitted = (
        ConfidenceHead(3, layers=2, units=4)
        if kind == "head"
        else NeighbourConfidence(torch.randn(6, 2), torch.arange(6) % 3, n_classes=3)
    )
    save_confidence(fitted, path)

    def same(found):
        return type(found) is type(fitted) and contents(found) == contents(fitted)

    fuzz(path, lambda: load_confidence(path), same, files=FILES // 2)


@pytest.fixture
def run(tmp_path):
    """A finished run's folder, small and whole."""
    held_out = {"test": HeldOutRecord(0.5, 1.0, 0.1, 1.5, 0.05, 3.0)}
    records = [EpochRecord(epoch, 0.5, 0.1, 1.0 / epoch, 0.5, held_out) for epoch in (1, 2, 3)]
    folder, settings = tmp_path / "run", settings_of()
    rows = [rows_of(8, part) for part in ("calibration", "test")]
    write_run(folder, settings, *rows, records=records, learning=([1, 2, 3], [0.5, 1.0, 2.0]))
    network = build_model("digits_cnn", n_classes=4, in_channels=1, image_size=8)
    write_tensors(network.state_dict(), folder / "weights.safetensors", {"format": "calibrant.run/1"})
    return folder


@pytest.mark.parametrize("name", ["settings.json", "epochs.jsonl", "learning.npz"])
def test_mutated_notes_of_a_run_are_refused_or_valid(run, name):
    def read():
        (found,) = read_runs([run])
        return found, found.learning

    def valid(found):
        one, learning = found
        sizes = (*one.settings.input_shape, len(one.settings.class_names), one.settings.recipe.epochs)
        return all(size >= 1 for size in sizes) and len(learning.learned_epoch) == len(learning.max_logit)

    fuzz(run / name, read, valid)


def test_mutated_records_of_a_run_without_weights_are_refused_or_valid(run):
    (run / "weights.safetensors").unlink()
    fuzz(run / "epochs.jsonl", lambda: read_runs([run]), bool, files=FILES // 2)


@pytest.mark.parametrize("name", ["settings.json", "weights.safetensors"])
def test_a_mutated_network_of_a_run_is_refused_or_the_same(run, name):
    original = contents(load_network(run))
    fuzz(run / name, lambda: load_network(run), lambda found: contents(found) == original, files=LESS)
    assert RunFolder(run).is_finished
