"""Clamped models in files: what is saved comes back, only around its own network, and every bad file is refused."""

import json
import math
from dataclasses import replace

import pytest
import torch
from map_examples import EXAMPLES
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from calibrant.clamping import ClampedModel, ClampingSummary, InputSpace, StrengthTrial, load_clamped, save_clamped
from calibrant.errors import FileError, InputError
from calibrant.files import load_map, save_map
from calibrant.files.map_file import contents_metadata
from calibrant.inference import network_digest
from calibrant.maps import FitSummary, Map, Scale
from calibrant.numerics.newton import Certificate

SPACE = InputSpace(mean=(0.4, 0.6), std=(0.2, 0.3), clips=True)
SUMMARY = ClampingSummary(
    settings={"strengths": [math.inf, 3.0, 0.1], "head": "temperature", "start": {"scale": 0.01}},
    n_samples=500,
    seconds=1.25,
    certificate=Certificate(objective=0.3, gradient=1e-9, steps=12, passes=3.5),
    strength=math.inf,
    gamma=0.0,
    trials=(StrengthTrial(math.inf, 0.0, 0.0, 0.0), StrengthTrial(3.0, 0.01, 0.002, 0.5)),
    notes=("δ does not help here.",),
)
HEADS = {kind: head for kind, head in EXAMPLES.items() if isinstance(head, Map) and head.n_classes == 3}


def some_network(seed=0, width=4):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = nn.Sequential(
            nn.Conv2d(2, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.Flatten(), nn.Linear(20 * width, 3)
        )
        network(torch.randn(50, 2, 4, 5))
    return network.eval()


def some_inputs():
    return torch.randn(6, 2, 4, 5, generator=torch.Generator().manual_seed(1))


def some_clamped(head=None, **options):
    delta = 0.3 * torch.randn(2, 4, 5, generator=torch.Generator().manual_seed(2))
    return ClampedModel(some_network(), delta, head or Scale(torch.tensor(1.7), n_classes=3), **options)


def contents(path):
    """The document and the tensors of a file, read without our own code."""
    with safe_open(str(path), framework="pt") as file:
        held = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # no mapping
        return json.loads(file.metadata()["calibrant"], parse_constant=pytest.fail), held


@pytest.fixture
def path(tmp_path):
    return tmp_path / "clamped.safetensors"


@pytest.fixture
def saved(path):
    save_clamped(some_clamped(space=SPACE, summary=SUMMARY), path)
    return path, *contents(path)


@pytest.mark.parametrize("kind", HEADS)
def test_it_comes_back_to_the_last_bit_with_every_head(path, kind):
    clamped = some_clamped(HEADS[kind], space=SPACE)
    save_clamped(clamped, path)
    loaded = load_clamped(path, clamped.model)
    assert loaded.model is clamped.model
    assert repr(loaded) == repr(clamped)
    assert {name: t.tolist() for name, t in loaded.state_dict().items()} == {
        name: t.tolist() for name, t in clamped.state_dict().items()
    }
    assert torch.equal(loaded(some_inputs()), clamped(some_inputs()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_delta_keeps_its_type_and_an_absent_one_stays_absent(path, dtype):
    clamped = ClampedModel(some_network(), torch.zeros(2, 4, 5, dtype=dtype), HEADS["scale"])
    save_clamped(clamped, path)
    loaded = load_clamped(path, some_network())
    assert loaded.delta.dtype == dtype
    assert torch.equal(loaded.perturbed(some_inputs()), some_inputs())


def test_the_space_and_both_summaries_come_back(path):
    head = Scale(torch.tensor(1.7), n_classes=3)
    head.summary = FitSummary("temperature", {"criterion": "nll"}, 500, 0.1, Certificate(0.3, math.inf, 4, 4.0), ("a",))
    for space, summary in ((SPACE, SUMMARY), (None, None), (None, replace(SUMMARY, certificate=None, strength=3.0))):
        save_clamped(some_clamped(head, space=space, summary=summary), path)
        loaded = load_clamped(path, some_network())
        assert (loaded.space, loaded.summary, loaded.head.summary) == (space, summary, head.summary)


def test_the_file_is_small_and_says_what_it_is_in_plain_json(saved):
    path, document, tensors = saved
    assert set(tensors) == {"delta", "head.temperature"}
    assert path.stat().st_size < 3000
    assert document["format"] == "calibrant.clamped/3"
    assert document["head"] == {"kind": "scale", "settings": {}, "n_classes": 3, "parts": {}}
    assert document["space"] == SPACE.settings()
    assert document["summary"]["n_samples"] == 500
    assert document["summary"]["strength"] == {"float": "inf"}  # JSON has no word for it
    assert document["network"] == network_digest(some_network())


def test_a_loaded_one_is_in_evaluation_mode(saved):
    network = some_network().train()
    assert not any(module.training for module in load_clamped(saved[0], network).modules())


def test_another_network_is_refused_and_left_as_it_was(saved):
    path, *_ = saved
    tweaked = some_network()
    with torch.no_grad():
        tweaked[4].bias[0] = torch.nextafter(tweaked[4].bias[0], torch.tensor(9.0))
    statistics = some_network()
    statistics[1].running_mean += 1e-3
    for other in (some_network(seed=1), some_network(width=3), tweaked, statistics, some_network().bfloat16()):
        before = network_digest(other.train())
        with pytest.raises(InputError, match=r"clamped\.safetensors was fitted for another network") as raised:
            load_clamped(path, other)
        assert not isinstance(raised.value, FileError)
        assert network_digest(other) == before
        assert other.training


def test_with_weights_any_network_of_the_same_build_becomes_the_one_it_was_fitted_for(path):
    clamped = some_clamped()
    save_clamped(clamped, path, with_weights=True)
    assert set(contents(path)[1]) == {"delta", "head.temperature"} | {
        f"network.{name}" for name in clamped.model.state_dict()
    }
    for other in (some_network(seed=1), torch.compile(some_network(seed=1), backend="eager"), clamped.model):
        loaded = load_clamped(path, other)
        assert loaded.model is other
        assert network_digest(other) == network_digest(clamped.model)
    assert torch.equal(load_clamped(path, some_network(seed=1))(some_inputs()), clamped(some_inputs()))


def test_with_weights_a_network_of_another_build_is_refused_and_left_as_it_was(path):
    save_clamped(some_clamped(), path, with_weights=True)
    cases = (
        (some_network(width=3), "7 of another shape"),
        (some_network().bfloat16(), r"of another type \(0\.bias, 0\.weight, 1\.bias, \.\.\.\)"),
        (nn.Linear(2, 3), r"2 missing \(bias, weight\), 9 unknown"),
    )
    for other, odd in cases:
        before = network_digest(other)
        with pytest.raises(InputError, match=f"fitted for another network: weights must be .*{odd}"):
            load_clamped(path, other)
        assert network_digest(other) == before


def test_weights_that_are_tied_or_scattered_in_memory_are_saved_too(path):
    network = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    network[1].weight = network[0].weight
    network[0].bias = nn.Parameter(torch.arange(6.0)[::2])
    clamped = ClampedModel(network, torch.ones(3), HEADS["scale"])
    save_clamped(clamped, path, with_weights=True)
    other = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    other[1].weight = other[0].weight
    assert torch.equal(load_clamped(path, other)(torch.zeros(1, 3)), clamped(torch.zeros(1, 3)))


def test_a_state_of_more_than_tensors_cannot_be_saved_but_is_no_hindrance_without_weights(path):
    class Odd(nn.Linear):
        def get_extra_state(self):
            return {"anything": 1}

        def set_extra_state(self, state):
            pass

    clamped = ClampedModel(Odd(2, 3), torch.ones(2), HEADS["scale"])
    with pytest.raises(InputError, match=r"only tensors.*'_extra_state'"):
        save_clamped(clamped, path, with_weights=True)
    assert not path.exists()
    save_clamped(clamped, path)
    assert load_clamped(path, clamped.model).model is clamped.model


def test_without_a_network_all_can_be_looked_at_but_nothing_computed_or_saved(saved, tmp_path):
    loaded = load_clamped(saved[0])
    assert torch.equal(loaded.delta, some_clamped().delta)
    assert loaded.temperature == pytest.approx(1.7)
    assert loaded.summary == SUMMARY
    with pytest.raises(InputError, match=r"without its network.*load_clamped\(path, model\)"):
        loaded(some_inputs())
    with pytest.raises(InputError, match="loaded without"):
        save_clamped(loaded, tmp_path / "again.safetensors")
    with pytest.raises(InputError, match=r"torch\.nn\.Module; got dict"):
        load_clamped(saved[0], {})


def test_a_file_cut_short_anywhere_is_refused(saved, tmp_path):
    whole = saved[0].read_bytes()
    for length in range(0, len(whole), 37):
        (tmp_path / "short.safetensors").write_bytes(whole[:length])
        with pytest.raises(FileError, match=r"short\.safetensors"):
            load_clamped(tmp_path / "short.safetensors", some_network())


def test_files_of_something_else_are_refused_with_what_they_are(tmp_path, saved):
    (tmp_path / "text.safetensors").write_text("this is a text of some length", encoding="utf-8")
    save_file({"weight": torch.zeros(2)}, tmp_path / "weights.safetensors")
    save_map(HEADS["scale"], tmp_path / "map.safetensors")
    (tmp_path / "empty.safetensors").touch()
    for name, message in (
        ("text", "not a safetensors file"),
        ("weights", r"something else \(found 'weight'\)"),
        ("map", r"; it is 'calibrant\.map/2'"),
        ("empty", "a clamped model; it is empty"),
        ("none", "existing file"),
    ):
        with pytest.raises(FileError, match=message):
            load_clamped(tmp_path / f"{name}.safetensors")
    with pytest.raises(FileError, match=r"; it is 'calibrant\.clamped/3'"):
        load_map(saved[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d, _t: d.update(format="calibrant.clamped/4", calibrant="9.0"), r"newer calibrant \(9\.0\).*Update"),
        (lambda d, _t: d.pop("format"), "damaged"),
        (lambda d, _t: d.pop("network"), "damaged"),
        (lambda d, _t: d.pop("summary"), "damaged"),
        (lambda d, _t: d["summary"].pop("gamma"), "damaged"),
        (lambda d, _t: d["summary"].update(strength="much"), "strength must be a number from 0"),
        (lambda d, _t: d["space"].update(std=[0.0]), "std must be above 0"),
        (lambda d, _t: d["space"].update(mean=[0.5, 0.5, 0.5], std=None), "channels"),
        (lambda d, _t: d["head"].update(kind="exec"), "got 'exec'"),
        (lambda d, _t: d.update(with_weights=True), "weights in it"),
        (lambda _d, t: t.pop("delta"), "numbers must be those"),
        (lambda _d, t: t.pop("head.temperature"), "'temperature' is missing"),
        (lambda _d, t: t.update(delta=torch.full((2, 4, 5), torch.nan)), "finite"),
        (lambda _d, t: t.update(delta=torch.zeros(2, 4, 5, dtype=torch.int64)), "floating point"),
        (lambda _d, t: t.update(extra=torch.zeros(1)), "got others"),
    ],
)
def test_a_document_or_numbers_that_do_not_fit_are_reported_in_one_line(saved, tmp_path, change, message):
    _, document, tensors = saved
    change(document, tensors)
    save_file(tensors, tmp_path / "odd.safetensors", metadata=contents_metadata(document, tensors))
    with pytest.raises(FileError, match=message) as raised:
        load_clamped(tmp_path / "odd.safetensors", some_network())
    assert "odd.safetensors" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_damaged_weights_are_found_by_their_fingerprint_and_not_loaded(path, tmp_path):
    save_clamped(some_clamped(), path, with_weights=True)
    document, tensors = contents(path)
    tensors["network.4.bias"][0] += 1
    save_file(tensors, tmp_path / "odd.safetensors", metadata=contents_metadata(document, tensors))
    with pytest.raises(FileError, match="they differ"):
        load_clamped(tmp_path / "odd.safetensors", some_network())


def test_what_cannot_be_written_is_reported_and_leaves_no_file(tmp_path, monkeypatch):
    clamped = some_clamped()
    with pytest.raises(FileError, match=r"must end in \.safetensors"):
        save_clamped(clamped, tmp_path / "clamped.pt")
    with pytest.raises(FileError, match="Make the folder"):
        save_clamped(clamped, tmp_path / "no" / "clamped.safetensors")
    with pytest.raises(InputError, match="ClampedModel can be saved; got Sequential"):
        save_clamped(clamped.model, tmp_path / "clamped.safetensors")

    def full_disk(*_args, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("safetensors.torch.save_file", full_disk)
    with pytest.raises(FileError, match="No space left on device"):
        save_clamped(clamped, tmp_path / "clamped.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_a_head_that_is_none_of_ours_is_refused(path):
    class Mine(Map):
        kind = "scale"

        def calibrated(self, logits):
            return logits

    with pytest.raises(InputError, match=r"one of calibrant\.maps"):
        save_clamped(some_clamped(Mine(3)), path)
    assert not path.exists()
