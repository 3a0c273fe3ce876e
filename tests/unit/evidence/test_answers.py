"""Confidences in being right, as the probability of "right", which is what separates right answers from wrong ones."""

import pytest
import torch
from tests.unit.scale.test_state import state_of

from calibrant import Predictions, TopLabel, aurc, auroc, compare, evaluate
from calibrant.evidence import report_differences
from calibrant.gates import Gate
from calibrant.metrics import AUROC
from calibrant.report import comparison_page, to_markdown
from calibrant.scale.trend import measure_trend

DRAWS = {"resamples": 50, "seed": 0}


@pytest.fixture(scope="module")
def answers():
    """Overconfident ones, of which calibration takes many across 50 %."""
    generator = torch.Generator().manual_seed(0)
    odds = torch.randn(800, generator=generator, dtype=torch.float64)
    right = torch.rand(800, generator=generator) < odds.sigmoid()
    return TopLabel((0.8 * odds + 1.5).sigmoid(), right)


@pytest.fixture(scope="module")
def classes(answers):
    return Predictions.from_binary_probs(answers.confidence, answers.correct.long(), class_names=("wrong", "right"))


def test_how_well_a_confidence_separates_is_the_same_as_of_the_confidences_alone(answers, classes):
    metrics, alone = evaluate(classes, **DRAWS).metrics, evaluate(answers, **DRAWS).metrics
    names = ["auroc", "aurc", "e_aurc", "augrc", "fpr95", "aupr_error"]
    assert [metrics[name].value for name in names] == pytest.approx([alone[name].value for name in names])
    assert metrics["auroc"].low == pytest.approx(alone["auroc"].low)


def test_a_rising_function_of_the_confidence_changes_no_separation(answers, classes):
    compared = compare(classes[:400], classes[400:], [], **DRAWS)
    before, after = compared.uncalibrated.metrics, compared.find("platt").metrics
    assert compared.find("platt").changed > 0.2
    assert before["aurc"].value == pytest.approx(float(aurc(answers[400:])))
    assert after["auroc"].value == pytest.approx(float(auroc(answers[400:])))
    page = to_markdown(comparison_page(compared))
    assert "right from wrong worse" not in page
    assert "AUROC and AURC are of the probability" in page


def test_differences_trends_and_gates_are_of_that_confidence_too(answers, classes):
    halved = classes.with_logits(classes.logits / 2 - torch.tensor([0.0, 0.7], dtype=torch.float64))
    plain = classes.with_logits(classes.logits)
    assert report_differences(plain, halved, [AUROC()], **DRAWS)["auroc"].value == pytest.approx(0, abs=1e-12)
    states = {"before": state_of(plain, []), "after": state_of(halved, [])}
    periods = measure_trend(states, metrics=["auroc"], resamples=20).periods
    assert [period.metrics["auroc"].value for period in periods] == pytest.approx([float(auroc(answers))] * 2, abs=1e-3)
    gate = Gate.parse("auroc<0.5", "fail_if").of_two_classes("“right”", of_answers=True)
    assert gate.subject == "of the probability of “right”"


def test_other_pairs_of_classes_are_separated_by_their_top_label(classes):
    others = Predictions(classes.logits, classes.labels, class_names=("cat", "dog"))
    assert evaluate(others, **DRAWS).metrics["auroc"].value == pytest.approx(float(auroc(others)))
