"""A clamped network judged and put into words: each verdict on rows for which it is the right one."""

import json
import math
import warnings
from dataclasses import replace

import pytest
import torch
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
from calibrant.report.terminal import to_terminal

SHIFT = 0.8


def network():
    torch.manual_seed(0)
    return nn.Linear(5, 3)


STOCHASTIC = {"solver": {"kind": "StochasticSolver"}}


def case(
    delta,
    temperature=1.0,
    *,
    shift=SHIFT,
    heat=2.0,
    gamma=0.0,
    strength=0.1,
    trials=(),
    notes=(),
    n=600,
    head=None,
    settings=None,
    truth=None,
):
    """Labels drawn from softmax(f(x + shift) · heat); a δ that is given, and not learned; all judged on other rows."""
    generator = torch.Generator().manual_seed(3)
    inputs, model = torch.randn(2 * n, 5, generator=generator), network()
    with torch.no_grad():
        labels = (heat * model(inputs + shift)).softmax(1).multinomial(1, generator=generator)[:, 0]
        if truth is not None:
            labels[:n] = truth(model, inputs[:n])
        rows = Predictions.from_logits(model(inputs), labels)
        summary = ClampingSummary(
            {"strength": strength, **(settings or {})}, n, 1.0, None, strength, gamma, trials, notes
        )
        scale = Scale(torch.tensor(temperature, dtype=torch.float64), n_classes=3)
        clamped = ClampedModel(model, torch.full((5,), float(delta)), scale, summary=summary)
        after = Predictions.from_logits(clamped(inputs), labels)
    refit = after[:n] if needs_refit(clamped) else None
    return evaluate_clamping(clamped, rows[:n], rows[n:], after[n:], calibration_after=refit, head=head, resamples=200)


def fitted(method, *, shift=SHIFT, heat=2.0, n=300):
    """The same network and labels, with all that a fit says of itself."""
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


def shown(found, width=120):
    return to_terminal(clamping_page(found), width=width, full=True).plain


def test_the_right_delta_helps_against_both_rivals():
    found = case(SHIFT, 0.5)
    assert clamping_verdict(found).headline.startswith("δ helps: it lowers the log-loss from")
    assert [entry.name for entry in found.methods] == ["uncalibrated", "temperature", "clamped"]
    expected = difference(found.predictions["temperature"], found.predictions["clamped"], [NLL()], resamples=200)["nll"]
    change = found.clamped.differences["temperature"]["nll"]
    assert change.value == pytest.approx(expected.value)
    assert (change.low, change.high) == pytest.approx((expected.low, expected.high), abs=0.02)
    assert found.norm == pytest.approx(SHIFT * 5**0.5)
    assert "load_clamped" in clamping_verdict(found).next_steps[-1]


def test_a_wrong_delta_does_harm_and_the_answer_is_temperature_scaling():
    words = clamping_verdict(case(-SHIFT, 0.5))
    assert words.headline.startswith("δ does harm here: it raises the log-loss")
    assert words.headline.endswith("Use temperature scaling.")
    assert "--strength path" in words.next_steps[-1]


def test_a_delta_too_small_to_matter_makes_no_difference():
    words = clamping_verdict(case(1e-4, 0.5, shift=0.0, trials=(StrengthTrial(0.1, -0.01, 0.001, 0.1),)))
    assert words.headline.startswith("δ does not change the log-loss beyond noise")
    assert "more calibration samples" in words.next_steps[-1]
    assert "the one strength tried, λ = 0.1 per sample, changes the log-loss by -0.0100 ± 0.0010" in words.findings[1]


def test_no_delta_is_told_with_the_temperature():
    found = case(0.0, 0.5, shift=0.0, strength=math.inf, trials=(StrengthTrial(1.0, 0.01, 0.002, 0.1),))
    assert clamping_verdict(found).headline == "δ was held at 0, as requested: this is temperature scaling (T = 0.500)."
    searched = ClampingSummary({"strength": "path"}, 600, 1.0, None, math.inf, 0.0, found.summary.trials)
    words = clamping_verdict(replace(found, summary=searched))
    assert words.headline == "δ does not help here: use temperature scaling (T = 0.500), with δ = 0."
    assert "the one strength tried, λ = 1 per sample" in words.findings[0]
    assert set(found.clamped.differences) == {"uncalibrated"}
    assert "∞ (δ = 0) ←" in shown(found)


def test_neither_delta_nor_temperature_is_told_too():
    trials = (StrengthTrial(1.0, 0.01, 0.002, 0.1),)
    found = case(0.0, 1.001, shift=0.0, heat=1.0, strength=math.inf, trials=trials)
    found = replace(found, summary=replace(found.summary, settings={"strength": "path"}))
    words = clamping_verdict(found)
    assert words.headline == "δ does not help here, and neither does temperature scaling (T = 1.001) clearly."
    assert words.next_steps == ["Leave the network uncalibrated, or evaluate on more test samples."]


def test_where_the_temperature_is_solved_the_clamped_network_itself_judges_delta():
    found = case(SHIFT, 0.5)
    assert (found.with_delta, found.without_delta) == ("clamped", "temperature")
    assert found.effect is found.clamped.differences["temperature"]  # computed once
    assert [part.name for part in found.parts] == ["T* only"]
    assert torch.equal(found.predictions["T* only"].logits, found.predictions["uncalibrated"].logits / 0.5)


@pytest.mark.parametrize("how", [{"settings": STOCHASTIC}, {"gamma": 2.0}, {"gamma": 2.0, "settings": STOCHASTIC}])
def test_elsewhere_delta_is_judged_by_the_best_temperature_with_it_and_without(how):
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


def test_a_temperature_that_moved_is_not_taken_for_delta():
    # All that the clamped network gains over temperature scaling by focal loss, or loses, is T.
    for heat, temperature in ((2.0, 0.5), (2.0, 3.0)):
        found = case(1e-3, temperature, shift=0.0, heat=heat, settings=STOCHASTIC)
        words = clamping_verdict(found)
        assert words.headline.startswith("δ does not change the log-loss beyond noise")
        assert words.next_steps[-1].startswith("Use temperature scaling, or clamp with the default preset")
    assert "But its T = 3.000 leaves the clamped network worse than temperature scaling" in words.headline
    assert any(finding.startswith("T alone: it is 3.000, and 0.") for finding in words.findings)


def test_a_delta_that_helps_behind_a_bad_temperature_is_told_from_it():
    words = clamping_verdict(case(SHIFT, 8.0, settings=STOCHASTIC))
    assert words.headline.startswith("δ helps: it lowers the log-loss from")
    assert "(T refitted)" in words.headline
    assert "But its T = 8.000 leaves the clamped network worse than temperature scaling" in words.headline
    assert words.next_steps[-1].startswith("Use temperature scaling, or clamp with the default preset and --gamma 0")
    less = clamping_verdict(case(SHIFT, 0.8, settings=STOCHASTIC))
    assert "Its own T = 0.800 leaves the clamped network at" in less.headline
    assert less.next_steps[-1].startswith("Clamp with the default preset")


def test_a_wrong_delta_does_harm_whatever_its_temperature():
    assert clamping_verdict(case(-SHIFT, 0.5, gamma=1.0)).headline.startswith("δ does harm here")


def test_where_no_temperature_can_be_refitted_nothing_is_said_of_delta(monkeypatch):
    monkeypatch.setattr("calibrant.clamping.evaluation._refitted", lambda *_: Trial(failure="it has no optimum."))
    found = case(SHIFT, 0.5, settings=STOCHASTIC)
    assert found.effect is None
    words = clamping_verdict(found)
    assert words.headline.startswith("Whether δ helps is unknown")
    assert "TS on δ* could not be fitted: it has no optimum." in clamping_page(found).notes
    document = clamping_page(found).data()
    assert (document["delta"]["effect"], document["failures"][0]["name"]) == (None, "TS on δ*")
    assert "TS on δ* could not be fitted" in shown(found)


def with_effect(found, effect):
    """The same evaluation with another effect of δ."""
    differences = {**found.clamped.differences, found.without_delta: found.effect | effect}
    return replace(found, methods=(*found.methods[:-1], replace(found.clamped, differences=differences)))


def test_rows_without_spread_say_nothing_of_delta():
    change = Difference(0.5, 0.4, -0.1, -0.1, -0.1, math.nan, math.nan, "alike")
    found = with_effect(case(SHIFT, 0.5), {"nll": change, "ece": change, "accuracy": change})
    assert clamping_verdict(replace(found, n_test=1)).headline.startswith(
        "Whether δ helps is unknown, because the test samples show no spread: the log-loss goes from 0.5000 "
        "(temperature scaling) to 0.4000 on 1 test sample."
    )


def test_without_a_head_delta_is_judged_against_the_network_itself():
    found = fitted(NeuralClamping(head=Uncalibrated(), strength=0.01))
    assert (found.with_delta, found.without_delta, found.parts) == ("clamped", "uncalibrated", ())
    words = clamping_verdict(found)
    assert words.findings[0].startswith("δ alone, with no head: log-loss")
    assert "(the uncalibrated network)" in words.headline


def test_a_refit_without_its_rows_is_refused():
    summary = ClampingSummary(STOCHASTIC, 9, 1.0, None, 0.1, 0.0)
    scale = Scale(torch.tensor(1.0, dtype=torch.float64), n_classes=3)
    clamped = ClampedModel(network(), torch.ones(5), scale, summary=summary)
    rows = Predictions.from_logits(torch.randn(40, 3, generator=torch.manual_seed(0)), torch.arange(40) % 3)
    with pytest.raises(InputError, match="calibration_after must be given"):
        evaluate_clamping(clamped, rows[:20], rows[20:], rows[20:], resamples=100)
    with pytest.raises(InputError, match="head must be the method that fitted"):
        evaluate_clamping(clamped, rows[:20], rows[20:], rows[20:], head=StructuredVectorScaling())


def test_delta_at_0_by_the_focal_loss_is_told_from_temperature_scaling():
    found = case(0.0, 3.0, shift=0.0, gamma=3.0, strength=math.inf)
    words = clamping_verdict(found)
    assert words.headline.startswith(
        "δ was held at 0, as requested: this is temperature scaling by the focal loss (T = 3.000)."
    )
    assert "By the log-loss it would be better" in words.headline
    assert found.parts == ()
    assert words.next_steps == ["Use temperature scaling by the log-loss (--gamma 0)."]


def test_what_goes_the_other_way_stands_in_the_headline():
    better, worse = (Difference(0.5, 0.4, -0.1, -0.2, -0.05, 0.001, 0.001, side) for side in ("better", "worse"))
    found = with_effect(case(SHIFT, 0.5), {"nll": better, "ece": better, "accuracy": worse})
    assert clamping_verdict(replace(found, n_test=100)).headline.startswith(
        "δ helps: it lowers the log-loss from 0.5000 (temperature scaling) to 0.4000 on 100 test samples, though "
        "accuracy falls by 10.00 points."
    )
    assert clamping_verdict(found).next_steps[-1].startswith("If a lower accuracy is acceptable, deploy")


def test_another_head_is_judged_alone_too():
    found = fitted(NeuralClamping(head=StructuredVectorScaling(), strength=0.01))
    assert [entry.name for entry in found.methods] == ["uncalibrated", "temperature", "svs", "clamped"]
    assert set(found.clamped.differences) == {"uncalibrated", "temperature", "svs"}
    text = shown(found)
    assert max(map(len, text.splitlines())) <= 120
    assert "clamped − svs" in text
    assert (found.with_delta, found.without_delta) == ("clamped", "svs")
    assert [part.name for part in found.parts] == ["head* only"]
    assert "clamped − temperature" in text


@pytest.mark.parametrize(
    ("method", "shift", "said"),
    [
        (NeuralClamping(strength=0.001, solver=ExactSolver(max_passes=2)), SHIFT, "But δ is not quite at its optimum."),
        (NeuralClamping(strength=(1.0, 0.1)), SHIFT, "But the weakest of the strengths tried won, so a weaker one may"),
        (
            replace(NeuralClamping.paper(), solver=StochasticSolver(learning_rate=1.0, epochs=3)),
            SHIFT,
            "the objective rose during the fit",
        ),
        (NeuralClamping(strength=1e-4), 2.0, "But δ is so large that the network hardly sees its inputs"),
    ],
    ids=["passes", "weakest", "rate", "size"],
)
def test_what_a_fit_holds_against_its_answer_stands_in_the_headline(method, shift, said):
    found = fitted(method, shift=shift, heat=1.0)
    assert said in clamping_verdict(found).headline, found.summary.notes


def test_a_delta_that_could_not_be_tried_is_not_said_to_be_of_no_help():
    found = fitted(NeuralClamping(), shift=0.0, heat=1e3)
    assert found.summary.outcome is ClampingOutcome.untried
    assert clamping_verdict(found).headline.startswith("Whether δ helps is unknown, because it could not be tried")


def test_the_cross_validated_change_is_called_optimistic_where_it_was_picked():
    several = tuple(StrengthTrial(strength, -0.01, 0.001, 0.1) for strength in (1.0, 0.1))
    told = [case(SHIFT, 0.5, trials=trials) for trials in (several, several[1:])]
    picked, alone = (clamping_verdict(found).findings[1] for found in told)
    assert picked.endswith("That is optimistic, as it was chosen from 2 on the same folds; the test samples decide.")
    assert "optimistic" not in alone


def test_notes_of_the_fit_are_told_once():
    notes, trials = ("δ helps: at λ = 1 a row …", "T = 2 after 100 epochs."), (StrengthTrial(0.1, -0.01, 0.001, 0.1),)
    found = case(SHIFT, 0.5, notes=notes, trials=trials, settings={"strength": [0.1]})
    assert clamping_page(found).notes == ("T = 2 after 100 epochs.",)
    assert "note: T = 2 after" in shown(found)
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


def test_rows_that_were_fitted_on_are_told():
    generator = torch.Generator().manual_seed(0)
    inputs, labels = torch.randn(200, 5, generator=generator), torch.randint(3, (200,), generator=generator)
    model = network().eval()
    with torch.no_grad():
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
