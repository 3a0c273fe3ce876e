"""Numbers behind the charts of a clamped network and of a diagnosis: those of Python, and nothing but plain data."""

import json
import math
from dataclasses import replace

import pytest
import torch
from made_records import HOSTILE, made_diagnosis, made_large_diagnosis, small_clamping

from calibrant.comparison import TEMPERATURE, UNCALIBRATED
from calibrant.metrics import ECE, NLL
from calibrant.predictions import Predictions
from calibrant.report import clamping_page, to_html
from calibrant.report.network_charts import clamping_charts, diagnosis_charts


def plain(charts):
    """The charts as a browser reads them: no NaN."""
    return json.loads(json.dumps(charts, allow_nan=False))


@pytest.mark.parametrize("shape", [(1, 4, 4), (3, 4, 4), (2, 3, 5), (1, 96, 80), (7,), (30, 15)])
def test_parts_samples_and_delta_are_those_of_the_network(shape):
    evaluation, clamped, test = small_clamping(shape)
    charts = plain(clamping_charts(evaluation, clamped, test))
    found, (inputs, _) = charts["clamping"], next(iter(test.samples.batches(device="cpu", batch_size=400)))
    with torch.no_grad():
        moved = Predictions.from_logits(clamped.model(inputs + clamped.delta), test.samples.labels)
    assert list(found["parts"]) == ["none", "temperature", "delta", "both"]
    assert found["parts"]["delta"]["ece"]["value"] == pytest.approx(ECE()(moved))
    assert found["parts"]["delta"]["nll"]["value"] == pytest.approx(NLL()(moved))
    assert found["parts"]["temperature"]["nll"]["value"] == evaluation.find(TEMPERATURE).metrics["nll"].value
    assert [view["title"] for view in charts["views"]] == ["uncalibrated", "clamped", "temperature only", "δ only"]
    assert len(found["samples"]) == 12
    for sample in found["samples"]:
        before = evaluation.predictions[UNCALIBRATED][sample["row"] : sample["row"] + 1]
        assert sample["label"] == int(before.labels[0])
        assert sample["probs"]["none"] == pytest.approx(before.probs[0][sample["shown"]].tolist(), abs=1e-6)
    delta, image = found["delta"], found["samples"][0]["image"]
    if len(shape) == 3:
        pixels, change = torch.tensor(image), torch.tensor(delta["values"])
        assert pixels.shape == change.shape
        assert max(pixels.shape) <= 64
        assert 0 <= pixels.min() <= pixels.max() <= 255
        assert delta["factor"] * delta["limit"] == pytest.approx(255)
        assert change.abs().max() == pytest.approx(delta["limit"], abs=0.01)
    else:
        assert image is None
        groups = clamped.delta.flatten().split(-(-clamped.delta.numel() // 200))
        assert [abs(value) for value in delta["values"]] == pytest.approx(
            [float(group.abs().max()) for group in groups], rel=1e-4
        )
        assert delta.get("names", [])[:1] == (["0–2"] if shape == (30, 15) else [])


def test_the_images_and_delta_are_in_the_same_units():
    evaluation, clamped, test = small_clamping((1, 4, 4))
    found = clamping_charts(evaluation, clamped, test)["clamping"]
    rows = [sample["row"] for sample in found["samples"]]
    inputs = next(iter(test.samples.batches(torch.tensor(rows), device="cpu", batch_size=12)))[0]
    low, high = float(inputs.min()), float(inputs.max())
    step = (high - low) / 255
    assert torch.tensor(found["samples"][3]["image"]) == pytest.approx((inputs[3] - low) / step, abs=0.51)
    assert torch.tensor(found["delta"]["values"]) == pytest.approx(clamped.delta / step, abs=0.01)


def test_the_surest_mistakes_come_first_and_of_different_classes():
    evaluation, clamped, test = small_clamping((7,))
    before, samples = (
        evaluation.predictions[UNCALIBRATED],
        clamping_charts(evaluation, clamped, test)["clamping"]["samples"],
    )
    rows = torch.tensor([sample["row"] for sample in samples])
    assert before.correct[rows].tolist() == [False] * 6 + [True] * 6
    assert before.confidence[rows[0]] == before.confidence[~before.correct].max()
    assert len(set(before.labels[rows[:6]].tolist())) == before.n_classes


def test_without_delta_the_clamped_network_is_temperature_scaling():
    found = clamping_charts(*small_clamping((1, 4, 4), delta=0.0))["clamping"]
    assert list(found["parts"]) == ["none", "temperature"]
    assert found["delta"]["norm"] == 0


def test_the_page_of_a_clamped_network_stays_small_and_has_one_script():
    evaluation, clamped, test = small_clamping((3, 96, 96))
    page = replace(clamping_page(evaluation), charts=lambda: clamping_charts(evaluation, clamped, test))
    text = to_html(page)
    assert len(text) < 1_000_000
    assert text.count("<script") == 2  # the data, and what draws them


def test_a_diagnosis_has_every_candidate_run_and_curve():
    record = made_large_diagnosis()
    found = plain(diagnosis_charts(record))["diagnosis"]
    assert found["candidates"][0]["name"] == record.baseline == found["baseline"]
    by_name = {one["name"]: one for one in found["candidates"]}
    for able in record.calibratability:
        mine = by_name[able.candidate]
        for name in record.maps:
            mean = able.ece[name].mean
            assert mine["maps"][name]["ece"]["mean"] == (None if math.isnan(mean) else pytest.approx(mean, abs=1e-6))
            assert len(mine["maps"][name]["ece"]["values"]) == len(able.ece[name].values)
    titles = [curve["title"] for curve in found["curves"]]
    for part in ("Under shift", "On files", "over the", "calibration samples", "Over epochs", "Top logits"):
        assert any(part in title for title in titles), part
    for curve in found["curves"]:
        for group in curve["groups"]:
            assert group["series"]
            assert all(len(one["x"]) == len(one["mean"]) for one in group["series"])


def test_severities_are_those_of_the_shift_panel():
    panel = made_large_diagnosis().shift
    curve = next(
        one for one in diagnosis_charts(made_large_diagnosis())["diagnosis"]["curves"] if "Under shift" in one["title"]
    )
    group = next(one for one in curve["groups"] if one["title"] == "ECE, temperature")
    for series in group["series"]:
        levels = [one for one in panel.levels if (one.candidate, one.map) == (series["name"], TEMPERATURE)]
        levels = sorted((one for one in levels if one.source == panel.levels[0].source), key=lambda one: one.severity)
        assert series["x"] == [one.severity for one in levels]
        assert series["mean"] == pytest.approx([one.metrics["ece"].mean for one in levels], abs=1e-6)


def test_a_single_candidate_and_hostile_names_are_plain_text():
    record = made_diagnosis(seeds=(0,), alone=True)
    named = replace(record, candidates=tuple(replace(one, words=HOSTILE) for one in record.candidates))
    found = plain(diagnosis_charts(named))["diagnosis"]
    assert "\x1b" not in found["candidates"][0]["words"]
    assert found["candidates"][0]["overall"] is None
