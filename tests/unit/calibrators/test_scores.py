import torch

from calibrant.calibrators.base import class_map, one_vs_rest_log_odds, top_label
from calibrant.maps import OneVsRest, Steps, TwoClassMap
from calibrant.predictions import Predictions


def test_the_top_label_is_that_of_the_predictions():
    logits = 3 * torch.randn(200, 6, generator=torch.Generator().manual_seed(0))
    rows = Predictions.from_logits(logits, logits.roll(1, 0).argmax(1))
    log_odds, correct = top_label(rows)
    assert torch.allclose(log_odds.double(), rows.top.log_odds.double(), atol=1e-4)
    assert torch.equal(correct, rows.correct)


def test_every_class_has_a_line_of_its_own():
    logits = torch.randn(50, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    scores, classes = one_vs_rest_log_odds(Predictions.from_logits(logits, torch.zeros(50, dtype=torch.int64)))
    assert list(classes) == [0, 1, 2]
    assert torch.allclose(scores.sigmoid().T, logits.softmax(1))


def test_two_classes_are_one_line_about_class_1():
    rows = Predictions.from_binary_logits([1.0, -2.0, 0.5], [1, 0, 1])
    scores, classes = one_vs_rest_log_odds(rows)
    assert list(classes) == [1]
    assert scores.tolist() == [[1.0, -2.0, 0.5]]
    steps = Steps(torch.zeros(1, 1), torch.zeros(1, 2))
    assert isinstance(class_map(steps, 2), TwoClassMap)
    assert isinstance(class_map(steps, 3), OneVsRest)
