"""A clamped network evaluated and put into words: each verdict on samples for which it is the right one."""

import json
import math
import warnings
from dataclasses import replace

import pytest
import torch
from made_records import reviewed
from torch import nn

from calibrant.calibrators import StructuredVectorScaling, TemperatureScaling, Uncalibrated
from calibrant.calibrators.base import Trial
from calibrant.clamping import (
    ClampedModel,
    ClampingOutcome,
    ClampingSummary,
    ExactSolver,
    NeuralClamping,
    StochasticSolver,
    StrengthTrial,
    evaluate_clamping,
    needs_refit,
)
from calibrant.errors import CalibrantWarning, InputError
from calibrant.evidence import Difference, difference
from calibrant.maps import Scale
from calibrant.metrics import ECE, NLL, Accuracy
from calibrant.predictions import Predictions
from calibrant.report import clamping_page, clamping_verdict, to_markdown

SHIFT = 0.8


def network():
    torch.manual_seed(0)
    return nn.Linear(5, 3)


def case(
    delta,
    temperature=1.0,
    *,
    shift=SHIFT,
    heat=2.0,
    gamma=0.0,
    strength=0.1,
    trials=(),
    n=600,
    head=None,
    truth=None,
    **fields,
):
    """Labels drawn from softmax(f(x + shift) · heat); a given δ; all evaluated on other samples."""
    generator = torch.Generator().manual_seed(3)
    inputs, model = torch.randn(2 * n, 5, generator=generator), network()
    with torch.no_grad():
        labels = (heat * model(inputs + shift)).softmax(1).multinomial(1, generator=generator)[:, 0]
        if truth is not None:
            labels[:n] = truth(model, inputs[:n])
        rows = Predictions.from_logits(model(inputs), labels)
        fields = {"head_is_optimal": gamma == 0} | fields
        summary = ClampingSummary({"strength": strength}, n, 1.0, None, strength, gamma, trials, **fields)
        scale = Scale(torch.tensor(temperature, dtype=torch.float64), n_classes=3)
        clamped = ClampedModel(model, torch.full((5,), float(delta)), scale, summary=summary)
        after = Predictions.from_logits(clamped(inputs), labels)
    refit = after[:n] if needs_refit(clamped) else None
    return evaluate_clamping(clamped, rows[:n], rows[n:], after[n:], calibration_after=refit, head=head, resamples=200)


def fitted(method, *, shift=SHIFT, heat=2.0, n=300):
    """The same network and labels, with a fit and its summary."""
    generator = torch.Generator().manual_seed(4)
    inputs, model = torch.randn(2 * n, 5, generator=generator), network().eval()
    with torch.no_grad():
        labels = (heat * model(inputs + shift)).softmax(1).multinomial(1, generator=generator)[:, 0]
        rows = Predictions.from_logits(model(inputs), labels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrantWarning)
        clamped = method.fit(model, (inputs[:n], labels[:n]))
    with torch.no_grad():
        after = Predictions.from_logits(clamped(inputs), labels)
    return evaluate_clamping(
        clamped, rows[:n], rows[n:], after[n:], calibration_after=after[:n], head=method.head, resamples=100
    )


def with_effect(found, effect):
    """The same evaluation with another effect of δ."""
    differences = {**found.clamped.differences, found.without_delta: found.effect | effect}
    return replace(found, methods=(*found.methods[:-1], replace(found.clamped, differences=differences)))


def searched(found):
    """The same evaluation as if the strength had been chosen."""
    settings = {"strength": "path"}
    return replace(found, summary=replace(found.summary, settings=settings, outcome=ClampingOutcome.no_help))


def without_spread():
    change = Difference(0.5, 0.4, -0.1, -0.1, -0.1, math.nan, math.nan, "alike")
    return replace(with_effect(case(SHIFT, 0.5), {"nll": change, "ece": change, "accuracy": change}), n_test=1)


def costly():
    better, worse = (Difference(0.5, 0.4, -0.1, -0.2, -0.05, 0.001, 0.001, side) for side in ("better", "worse"))
    return with_effect(case(SHIFT, 0.5), {"nll": better, "ece": better, "accuracy": worse})


TRIALS = tuple(StrengthTrial(strength, -0.01, 0.001, 0.1) for strength in (1.0, 0.1))
CASES = {
    "the right δ": lambda: case(SHIFT, 0.5),
    "a wrong δ": lambda: case(-SHIFT, 0.5),
    "a wrong δ by the focal loss": lambda: case(-SHIFT, 0.5, gamma=1.0),
    "a δ too small to matter": lambda: case(1e-4, 0.5, shift=0.0, trials=TRIALS[1:]),
    "δ = 0 as requested": lambda: case(0.0, 0.5, shift=0.0, strength=math.inf, trials=TRIALS[:1]),
    "δ = 0 as chosen": lambda: searched(case(0.0, 0.5, shift=0.0, strength=math.inf, trials=TRIALS[:1])),
    "δ = 0 and T = 1": lambda: searched(case(0.0, 1.001, shift=0.0, heat=1.0, strength=math.inf, trials=TRIALS[:1])),
    "δ = 0 by the focal loss": lambda: case(0.0, 3.0, shift=0.0, gamma=3.0, strength=math.inf),
    "T too high, δ too small to matter": lambda: case(1e-3, 3.0, shift=0.0, head_is_optimal=False),
    "T right, δ too small to matter": lambda: case(1e-3, 0.5, shift=0.0, head_is_optimal=False),
    "T much too high": lambda: case(SHIFT, 8.0, head_is_optimal=False),
    "T a little too high": lambda: case(SHIFT, 0.8, head_is_optimal=False),
    "no spread in the test samples": without_spread,
    "accuracy lost": costly,
    "no head": lambda: fitted(NeuralClamping(head=Uncalibrated(), strength=0.01)),
    "another head": lambda: fitted(NeuralClamping(head=StructuredVectorScaling(), strength=0.01)),
    "strength picked from two": lambda: case(SHIFT, 0.5, trials=TRIALS),
    "no δ could be tried": lambda: fitted(NeuralClamping(), shift=0.0, heat=1e3),
}


def test_the_verdict_of_each_case_reads_as_was_reviewed(golden):
    records = {name: make() for name, make in CASES.items()}
    golden("clamping-verdicts.txt", reviewed(records, clamping_verdict))


def test_the_right_delta_is_compared_with_both_baselines():
    found = case(SHIFT, 0.5)
    assert [method.name for method in found.methods] == ["uncalibrated", "temperature", "clamped"]
    expected = difference(found.predictions["temperature"], found.predictions["clamped"], [NLL()], resamples=200)["nll"]
    change = found.clamped.differences["temperature"]["nll"]
    assert change.value == pytest.approx(expected.value)
    assert (change.low, change.high) == pytest.approx((expected.low, expected.high), abs=0.02)
    assert found.norm == pytest.approx(SHIFT * 5**0.5)
    # Where the temperature is solved, the clamped network itself shows the effect of δ.
    assert (found.with_delta, found.without_delta) == ("clamped", "temperature")
    assert found.effect is found.clamped.differences["temperature"]  # computed once
    assert [part.name for part in found.parts] == ["T* only"]
    assert torch.equal(found.predictions["T* only"].logits, found.predictions["uncalibrated"].logits / 0.5)


@pytest.mark.parametrize("how", [{"head_is_optimal": False}, {"gamma": 2.0}])
def test_elsewhere_delta_is_evaluated_by_the_best_temperature_with_it_and_without(how):
    found = case(SHIFT, 4.0, **how)
    inputs, labels, model = torch.randn(1200, 5, generator=torch.Generator().manual_seed(3)), None, network()
    labels = found.predictions["uncalibrated"].labels
    with torch.no_grad():
        moved = Predictions.from_logits(model(inputs[600:] + SHIFT), labels)
    best = found.find("TS on δ*").map
    assert float(best.temperature) == pytest.approx(0.5, rel=0.15)  # the heat of 2, whatever T the fit had
    expected = difference(
        found.predictions["temperature"], best.transform(moved), [NLL(), ECE(), Accuracy()], resamples=200
    )
    for name, change in expected.items():
        assert found.effect[name].value == pytest.approx(change.value, abs=1e-6), name
    assert found.effect["nll"].side == "better"


def test_where_no_temperature_can_be_refitted_the_effect_of_delta_is_unknown(monkeypatch):
    monkeypatch.setattr("calibrant.clamping.evaluation._refitted", lambda *_: Trial(failure="it has no optimum."))
    found = case(SHIFT, 0.5, head_is_optimal=False)
    assert found.effect is None
    words = clamping_verdict(found)
    assert words.headline.startswith("Whether δ helps is unknown")
    assert "TS on δ* could not be fitted: it has no optimum." in clamping_page(found).notes
    document = clamping_page(found).data()
    assert (document["delta"]["effect"], document["failures"][0]["name"]) == (None, "TS on δ*")


def test_a_refit_without_its_samples_is_refused():
    summary = ClampingSummary({}, 9, 1.0, None, 0.1, 0.0, head_is_optimal=False)
    scale = Scale(torch.tensor(1.0, dtype=torch.float64), n_classes=3)
    clamped = ClampedModel(network(), torch.ones(5), scale, summary=summary)
    rows = Predictions.from_logits(torch.randn(40, 3, generator=torch.manual_seed(0)), torch.arange(40) % 3)
    with pytest.raises(InputError, match="calibration_after must be given"):
        evaluate_clamping(clamped, rows[:20], rows[20:], rows[20:], resamples=100)
    with pytest.raises(InputError, match="head must be the method of the clamped model's head"):
        evaluate_clamping(clamped, rows[:20], rows[20:], rows[20:], head=StructuredVectorScaling())


@pytest.mark.parametrize(
    ("method", "shift", "words"),
    [
        (NeuralClamping(strength=0.001, solver=ExactSolver(max_passes=2)), SHIFT, "But δ is not quite at its optimum."),
        (NeuralClamping(strength=(1.0, 0.1)), SHIFT, "But the weakest of the strengths tried won, so a weaker one may"),
        (
            replace(NeuralClamping.paper_protocol(), solver=StochasticSolver(learning_rate=1.0, epochs=3)),
            SHIFT,
            "the objective rose during the fit",
        ),
        (NeuralClamping(strength=1e-4), 2.0, "But δ is so large that the network hardly sees its inputs"),
    ],
    ids=["passes", "weakest", "rate", "size"],
)
def test_caveats_of_a_fit_stand_in_the_headline(method, shift, words):
    found = fitted(method, shift=shift, heat=1.0)
    assert words in clamping_verdict(found).headline, found.summary.notes


def test_notes_of_the_fit_stand_once():
    note, trials = "δ helps: at strength 1 per sample …", (StrengthTrial(0.1, -0.01, 0.001, 0.1),)
    notes = ("T = 2 after 100 epochs.",)
    found = case(SHIFT, 0.5, notes=notes, trials=trials, outcome=ClampingOutcome.helps, outcome_note=note)
    assert clamping_page(found).notes == ("T = 2 after 100 epochs.",)
    assert "## Notes\n\n- T = 2 after 100 epochs." in to_markdown(clamping_page(found))


def test_the_document_is_plain_json():
    found = case(0.0, 0.5, shift=0.0, strength=math.inf)
    document = json.loads(json.dumps(clamping_page(found, network="net:build").data(), allow_nan=False))
    assert (document["schema"], document["network"], document["temperature"]) == (
        "calibrant.clamping/1",
        "net:build",
        0.5,
    )
    assert document["fit"]["strength"] is None
    assert document["methods"][1]["differences"]["uncalibrated"]["nll"]["side"] == "better"


def test_samples_that_were_fitted_on_are_a_warning():
    generator = torch.Generator().manual_seed(0)
    inputs, labels = torch.randn(200, 5, generator=generator), torch.randint(3, (200,), generator=generator)
    model = network().eval()
    with torch.no_grad():
        labels = torch.where(torch.arange(200) % 2 == 0, model(inputs).argmax(1), labels)
        rows = Predictions.from_logits(3 * model(inputs), labels)
    clamped = NeuralClamping(strength=math.inf).fit(model, (inputs, labels))
    with pytest.warns(CalibrantWarning, match="also calibration samples"):
        found = evaluate_clamping(clamped, rows, rows, TemperatureScaling().fit(rows).transform(rows), resamples=100)
    words = clamping_verdict(found)
    assert words.findings[0].startswith("200 of 200 test samples")
    assert words.headline.startswith("Warning: 200 of 200 test samples are also calibration samples. δ was held")
    assert words.next_steps == ["Resolve the warning above first, then clamp again: the answer may change."]
    with pytest.raises(InputError, match="must have the summary"):
        evaluate_clamping(ClampedModel(model, torch.zeros(5), clamped.head), rows, rows, rows)
