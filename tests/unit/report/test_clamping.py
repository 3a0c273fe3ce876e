"""A clamped network judged and put into words: each verdict on rows for which it is the right one."""

import json
import math
from dataclasses import replace

import pytest
import torch
from rich.console import Console
from torch import nn

from calibrant.calibrators import StructuredVectorScaling, TemperatureScaling
from calibrant.clamping import ClampedModel, ClampingSummary, NeuralClamping, StrengthTrial
from calibrant.errors import CalibrantWarning, InputError
from calibrant.evidence import compare
from calibrant.maps import Scale
from calibrant.metrics import NLL
from calibrant.predictions import Predictions
from calibrant.report.clamping.document import clamping_to_document
from calibrant.report.clamping.judgement import judge_clamping
from calibrant.report.clamping.markdown import clamping_to_markdown
from calibrant.report.clamping.terminal import clamping_to_terminal
from calibrant.report.clamping.wording import clamping_verdict, other_notes

SHIFT = 0.8


def network():
    torch.manual_seed(0)
    return nn.Linear(5, 3)


def case(
    delta, temperature=1.0, *, shift=SHIFT, heat=2.0, gamma=0.0, strength=0.1, trials=(), notes=(), n=600, head=None
):
    """Labels drawn from softmax(f(x + shift) · heat); a δ that is given, and not learned; all judged on other rows."""
    generator = torch.Generator().manual_seed(3)
    inputs, model = torch.randn(2 * n, 5, generator=generator), network()
    with torch.no_grad():
        labels = (heat * model(inputs + shift)).softmax(1).multinomial(1, generator=generator)[:, 0]
        rows = Predictions.from_logits(model(inputs), labels)
        summary = ClampingSummary({"strength": strength}, n, 1.0, None, strength, gamma, trials, notes)
        scale = Scale(torch.tensor(temperature, dtype=torch.float64), n_classes=3)
        clamped = ClampedModel(model, torch.full((5,), float(delta)), scale, summary=summary)
        after = Predictions.from_logits(clamped(inputs[n:]), labels[n:])
    return judge_clamping(clamped, rows[:n], rows[n:], after, head=head, resamples=200)


def shown(found):
    console = Console(width=120)
    with console.capture() as captured:
        console.print(clamping_to_terminal(found))
    return captured.get()


def test_the_right_delta_helps_against_both_rivals():
    found = case(SHIFT, 0.5)
    assert clamping_verdict(found).headline.startswith("δ helps: it lowers the log-loss from")
    assert [entry.name for entry in found.entries] == ["none", "temperature", "clamped"]
    expected = compare(found.predictions["temperature"], found.predictions["clamped"], [NLL()], resamples=200)["nll"]
    change = found.clamped.against["temperature"]["nll"]
    assert change.value == pytest.approx(expected.difference)
    assert (change.low, change.high) == pytest.approx((expected.low, expected.high), abs=0.02)
    assert found.norm == pytest.approx(SHIFT * 5**0.5)
    assert "load_clamped" in clamping_verdict(found).next_steps[-1]


def test_a_wrong_delta_does_harm_and_the_answer_is_temperature_scaling():
    words = clamping_verdict(case(-SHIFT, 0.5))
    assert words.headline.startswith("δ does harm here: it raises the log-loss")
    assert words.headline.endswith("The answer is temperature scaling.")
    assert "--strength path" in words.next_steps[-1]


def test_a_delta_too_small_to_matter_makes_no_difference():
    words = clamping_verdict(case(1e-4, 0.5, shift=0.0, trials=(StrengthTrial(0.1, -0.01, 0.001, 0.1),)))
    assert words.headline.startswith("δ makes no difference beyond noise")
    assert "more calibration rows" in words.next_steps[-1]
    assert "the one strength tried, λ = 0.1 a row, changes the log-loss by -0.0100 ± 0.0010" in words.findings[0]


def test_no_delta_is_told_with_the_temperature():
    found = case(0.0, 0.5, shift=0.0, strength=math.inf, trials=(StrengthTrial(1.0, 0.01, 0.002, 0.1),))
    assert clamping_verdict(found).headline == "δ was held at 0, as asked: this is temperature scaling (T = 0.500)."
    searched = ClampingSummary({"strength": "path"}, 600, 1.0, None, math.inf, 0.0, found.summary.trials)
    words = clamping_verdict(replace(found, summary=searched))
    assert words.headline == "δ does not help here: the answer is temperature scaling (T = 0.500), with δ = 0."
    assert "the one strength tried, λ = 1 a row" in words.findings[0]
    assert set(found.clamped.against) == {"none"}
    assert "→ ∞ (δ = 0)" in shown(found)


def test_neither_delta_nor_temperature_is_told_too():
    found = case(0.0, 1.001, shift=0.0, heat=1.0, strength=math.inf)
    found = replace(found, summary=replace(found.summary, settings={"strength": "path"}))
    words = clamping_verdict(found)
    assert words.headline == "δ does not help here, and neither does temperature scaling (T = 1.001) beyond noise."
    assert words.next_steps == ["Leave the network as it is, or judge on more test rows."]


def test_a_head_by_the_focal_loss_must_also_beat_temperature_scaling():
    # Its own optimum is far from the best temperature, so being better than it alone would prove nothing.
    found = case(1e-3, 0.5, shift=0.0, gamma=3.0)
    assert [entry.name for entry in found.entries][2] == "temperature(criterion=focal,gamma=3.0)"
    assert found.clamped.against[found.head]["nll"].side == "better"
    assert found.rival == "temperature"
    assert clamping_verdict(found).headline.startswith("δ makes no difference beyond noise")


def test_another_head_is_judged_alone_too():
    found = case(SHIFT, 0.5, head=StructuredVectorScaling())
    assert [entry.name for entry in found.entries] == ["none", "temperature", "svs", "clamped"]
    assert set(found.clamped.against) == {"none", "temperature", "svs"}
    text = shown(found)
    assert max(map(len, text.splitlines())) <= 120
    assert "clamped − svs" in text
    assert "clamped − temperature" in text


def test_notes_of_the_fit_are_told_once():
    found = case(SHIFT, 0.5, notes=("δ helps: at λ = 1 a row …", "T = 2 after 100 epochs."))
    assert other_notes(found) == ["T = 2 after 100 epochs."]
    assert "note: T = 2 after" in shown(found)
    assert "## Notes\n\n- T = 2 after 100 epochs." in clamping_to_markdown(found)


def test_the_document_is_plain_json():
    found = case(0.0, 0.5, shift=0.0, strength=math.inf)
    document = json.loads(json.dumps(clamping_to_document(found, network="net:build"), allow_nan=False))
    assert (document["schema"], document["network"], document["temperature"]) == (
        "calibrant.clamping/1",
        "net:build",
        0.5,
    )
    assert document["fit"]["strength"] is None
    assert document["methods"][1]["against"]["none"]["nll"]["side"] == "better"


def test_rows_that_were_fitted_on_are_told():
    generator = torch.Generator().manual_seed(0)
    inputs, labels = torch.randn(200, 5, generator=generator), torch.randint(3, (200,), generator=generator)
    model = network().eval()
    with torch.no_grad():
        rows = Predictions.from_logits(3 * model(inputs), labels)
    clamped = NeuralClamping(strength=math.inf).fit(model, (inputs, labels))
    with pytest.warns(CalibrantWarning, match="also among the calibration rows"):
        found = judge_clamping(clamped, rows, rows, TemperatureScaling().fit(rows).transform(rows), resamples=100)
    words = clamping_verdict(found)
    assert words.findings[0].startswith("200 of 200 test rows")
    assert words.next_steps[0].startswith("Settle the warning above first")
    with pytest.raises(InputError, match="must have the summary"):
        judge_clamping(ClampedModel(model, torch.zeros(5), clamped.head), rows, rows, rows)
