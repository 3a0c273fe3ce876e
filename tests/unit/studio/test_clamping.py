"""Neural Clamping in the studio, without a server: its numbers are those of the library."""

import json

import pytest
import torch

from calibrant.clamping import NetworkPredictions, NeuralClamping, evaluate_clamping, load_clamped
from calibrant.errors import FileError
from calibrant.metrics import brier, ece, nll
from calibrant.models import DigitsCNN
from calibrant.predictions import Predictions
from calibrant.studio import api
from calibrant.training import train_on_digits

STRENGTHS = [1.0, 0.1]


@pytest.fixture(scope="module")
def network():
    """The network as the command has it: with weights that were copied into a new one, which may round otherwise."""
    trained, model = train_on_digits(seed=1), DigitsCNN()
    model.load_state_dict({name: values.contiguous() for name, values in trained.model.state_dict().items()})
    return trained._replace(model=model.eval())


@pytest.fixture(scope="module")
def clamped(tmp_path_factory):
    """The answer of the studio, what it said meanwhile, and the folder of its files."""
    folder, said = tmp_path_factory.mktemp("clamped"), []
    answer = api.clamp(
        strengths=STRENGTHS, n_bins=10, seed=1, folder=str(folder), progress=lambda *words: said.append(words)
    )
    return answer, said, folder


def test_the_numbers_are_those_of_the_library(clamped, network):
    answer, said, _ = clamped
    json.dumps(answer, allow_nan=False)
    fitted = NeuralClamping(strength=tuple(STRENGTHS), seed=1).fit(network.model, network.calibration)
    calibration, test = (NetworkPredictions(network.model, part) for part in (network.calibration, network.test))
    expected = evaluate_clamping(
        fitted, calibration.at_zero(), test.at_zero(), test.predictions_of(fitted), n_bins=10, seed=1
    )
    names = {"none": "uncalibrated", "temperature": "temperature", "both": "clamped"}
    for part, name in names.items():
        estimate = expected.find(name).metrics["nll"]
        shown = answer["parts"][part]["nll"]
        assert (shown["value"], shown["low"], shown["high"]) == (estimate.value, estimate.low, estimate.high)
        assert answer["parts"][part]["ece"]["value"] == expected.find(name).metrics["ece"].value
    moved = test.at(fitted.delta)
    delta = answer["parts"]["delta"]
    assert delta["ece"]["value"] == pytest.approx(ece(moved, n_bins=10))
    assert (delta["nll"]["value"], delta["brier"]["value"]) == pytest.approx((nll(moved), brier(moved)))
    assert answer["temperatures"]["both"] == fitted.temperature
    assert [trial["change"] for trial in answer["path"][1:]] == [trial.change for trial in fitted.summary.trials]
    assert answer["strength"] == fitted.summary.strength
    assert ("training a small network on digits", 1.0) in said


def test_a_sample_is_shown_with_what_the_network_makes_of_it(clamped, network):
    answer, _, folder = clamped
    again = load_clamped(folder / "clamped.safetensors", DigitsCNN())
    assert len(answer["samples"]) == 12
    low, high = torch.aminmax(network.test.images[[sample["row"] for sample in answer["samples"]]])
    step = float(high - low) / 255  # images are drawn in 256 levels
    assert torch.tensor(answer["delta"]["values"]).reshape(8, 8) * step == pytest.approx(
        again.delta[0], abs=0.01 * step
    )
    assert answer["delta"]["factor"] == pytest.approx(float((high - low) / again.delta.abs().max()))
    for sample in answer["samples"]:
        image = network.test.images[sample["row"]]
        assert torch.tensor(sample["image"]).reshape(8, 8) * step + low == pytest.approx(image[0], abs=0.51 * step)
        assert sample["label"] == int(network.test.labels[sample["row"]])
        with torch.no_grad():
            logits = {"none": network.model(image[None]), "delta": network.model((image + again.delta)[None])}
            logits["both"] = again(image[None])
        logits["temperature"] = logits["none"] / answer["temperatures"]["alone"]
        for part, values in logits.items():
            probs = Predictions.from_logits(values, torch.tensor([0])).probs[0]
            assert sample["probs"][part] == pytest.approx(probs.tolist(), abs=1e-5)
    surest = [max(sample["probs"]["none"]) for sample in answer["samples"][:6]]
    assert surest == sorted(surest, reverse=True)


def test_the_lines_do_the_same(clamped):
    answer, _, _ = clamped
    names = {}
    exec(answer["lines"]["python"], names)  # noqa: S102
    assert names["clamped"].temperature == answer["temperatures"]["both"]
    assert "--strength 1,0.1 --bins 10 --seed 1 -o clamped" in answer["lines"]["cli"]


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "Run the same calibrant clamp command again"), (b"{", "whole record"), (b"[]", "schema"),
     (b'{"schema": "other/1"}', "schema"), (b"\xff", "whole record")],
)  # fmt: skip
def test_a_folder_without_a_record_says_what_to_do(tmp_path, content, words):
    if content is not None:
        (tmp_path / "charts.json").write_bytes(content)
    with pytest.raises(FileError, match=words) as caught:
        api.clamped({"path": str(tmp_path), "name": "mine"}, progress=lambda *_: None)
    assert str(tmp_path) not in str(caught.value)
