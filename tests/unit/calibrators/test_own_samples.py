"""Before and after on the samples of the fit: the numbers, and the warning where a map is worse than none."""

import dataclasses
import warnings
from typing import ClassVar, final

import pytest
import torch

from calibrant import catalogue
from calibrant.calibrators.base import Calibrator, CalibratorFamily, Fitted, with_scores
from calibrant.comparison import MethodResult, compare
from calibrant.errors import CalibrantWarning
from calibrant.files import load_map, save_map
from calibrant.maps import Affine, FitSummary, Identity, Scale
from calibrant.metrics import accuracy, brier, nll
from calibrant.paper import Paper
from calibrant.predictions import Predictions
from calibrant.report import comparison_page
from calibrant.report.comparison import method_notes


@final
@dataclasses.dataclass(frozen=True)
class Fixed(Calibrator):
    """A temperature and shifts of the classes that are not fitted at all."""

    name: ClassVar[str] = "fixed"
    title: ClassVar[str] = "Fixed"
    family: ClassVar[CalibratorFamily] = "scaling"
    paper: ClassVar[Paper] = Paper("Nobody", 2000, "Nothing", "arXiv:0000.00000")
    preserves_accuracy: ClassVar[bool] = False
    preserves_ranking: ClassVar[bool] = False

    temperature: float = 1.0
    shift: float = 0.0

    def _fit(self, predictions):
        if self.temperature == 1 and self.shift == 0:
            return Fitted(Identity(n_classes=predictions.n_classes))
        if self.shift == 0:
            return Fitted(Scale(torch.tensor(self.temperature), n_classes=predictions.n_classes))
        bias = torch.zeros(predictions.n_classes)
        bias[0] = self.shift
        return Fitted(Affine(torch.ones(()), bias, n_classes=predictions.n_classes))


def calibrated(n, k=3, *, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, k, generator=generator, dtype=torch.float64)
    return Predictions.from_logits(logits, logits.softmax(1).multinomial(1, generator=generator)[:, 0])


def fit_and_notes(calibrator, rows):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted = calibrator.fit(rows)
    return fitted, [str(each.message) for each in caught if issubclass(each.category, CalibrantWarning)]


@pytest.mark.parametrize("n", [400, 9_000])
def test_a_map_that_is_worse_than_none_warns_with_the_numbers_of_all_samples(n):
    rows = calibrated(n)
    fitted, warned = fit_and_notes(Fixed(temperature=4.0), rows)
    assert len(warned) == 1
    assert "log-loss" in warned[0]
    assert "Brier score" in warned[0]
    assert fitted.summary.notes == tuple(warned)
    assert fitted.summary.compared == n
    mapped = fitted.transform(rows)
    for scores, shown in ((fitted.summary.before, rows), (fitted.summary.after, mapped)):
        assert scores["nll"] == pytest.approx(nll(shown), rel=1e-9)
        assert scores["brier"] == pytest.approx(brier(shown), rel=1e-9)
        assert scores["accuracy"] == pytest.approx(accuracy(shown), rel=1e-9)


def test_of_very_many_samples_some_thousands_tell_that_a_map_is_worse_than_none():
    rows = calibrated(200_000)
    fitted, warned = fit_and_notes(Fixed(temperature=4.0), rows)
    assert len(warned) == 1
    assert fitted.summary.compared == 10_000
    assert fitted.summary.after["nll"] == pytest.approx(nll(fitted.transform(rows)), rel=0.02)


def test_a_map_that_changes_next_to_nothing_is_silent():
    rows = calibrated(20_000)
    fitted, warned = fit_and_notes(Fixed(temperature=1.0001), rows)
    assert not warned
    assert fitted.summary.compared == 500


def test_a_map_that_lowers_the_accuracy_by_a_point_warns():
    _, warned = fit_and_notes(Fixed(shift=3.0), calibrated(2000))
    assert "accuracy" in warned[0]


@pytest.mark.parametrize("n", [400, 20_000])
def test_a_map_that_helps_is_silent_and_few_samples_are_enough_to_see_it(n):
    rows = calibrated(n)
    rows = rows.with_logits(3 * rows.logits)
    fitted, warned = fit_and_notes(catalogue.parse_calibrator("temperature"), rows)
    assert not warned
    assert fitted.summary.compared == min(n, 500)
    assert fitted.summary.after["nll"] < fitted.summary.before["nll"]


def test_a_rise_within_noise_is_noted_without_a_warning():
    rows = calibrated(400)
    best = float(catalogue.parse_calibrator("temperature").fit(rows).temperature)
    fitted, warned = fit_and_notes(Fixed(temperature=best * 1.02 if best > 1 else best / 1.02), rows)
    assert not warned
    assert fitted.summary.before["nll"] != fitted.summary.after["nll"]


def test_uncalibrated_is_never_worse():
    fitted, warned = fit_and_notes(catalogue.parse_calibrator("uncalibrated"), calibrated(1000))
    assert not warned
    assert fitted.summary.notes == ()
    assert fitted.summary.before == fitted.summary.after


@pytest.mark.parametrize("name", ["temperature+temperature", "auto"])
def test_a_composition_is_compared_as_a_whole(name):
    rows = calibrated(600)
    rows = rows.with_logits(3 * rows.logits)
    fitted = catalogue.parse_calibrator(name).fit(rows)
    assert fitted.summary.after["nll"] < fitted.summary.before["nll"]


def test_the_numbers_are_read_back_from_a_file(tmp_path):
    rows = calibrated(300)
    fitted, _ = fit_and_notes(Fixed(temperature=4.0), rows)
    save_map(fitted, tmp_path / "map.safetensors")
    assert load_map(tmp_path / "map.safetensors").summary == fitted.summary


def test_a_leaderboard_shows_the_numbers_and_says_the_same_note_once():
    rows = calibrated(600)
    board = compare(rows[:300], rows[300:], [Fixed(temperature=4.0), Fixed(temperature=4.1)], resamples=50)
    methods = {each["name"]: each for each in comparison_page(board).data()["methods"]}
    own = methods["fixed(temperature=4.0)"]["own_samples"]
    assert own["n"] == 300
    assert own["after"]["nll"] > own["before"]["nll"]
    assert sum("worse than no calibration" in line for line in method_notes(board.methods)) == 2
    twice = [MethodResult("one", "", notes=("the same",)), MethodResult("two", "", notes=("the same", "another"))]
    assert method_notes(twice) == ["one, two: the same", "two: another"]


def test_one_sample_is_compared():
    fitted, warned = fit_and_notes(Fixed(temperature=4.0), Predictions.from_logits([[2.0, 0.0]], [0]))
    assert not warned
    assert fitted.summary.compared == 1


def test_of_classes_that_tie_for_the_top_the_first_is_the_prediction():
    rows = Predictions.from_logits(torch.zeros(10, 3), [0] * 2 + [1] * 8)
    found = with_scores(FitSummary("none"), rows, lambda logits, _: logits + torch.tensor([0.0, 1.0, 0.0]))
    assert found.before["accuracy"] == pytest.approx(0.2)
    assert found.after["accuracy"] == pytest.approx(0.8)


def test_losses_whose_squares_overflow_are_compared():
    logits = torch.zeros(40, 2, dtype=torch.float64)
    logits[:20, 0] = 1e300
    rows = Predictions.from_logits(logits, [1] * 20 + [0] * 20)
    found = with_scores(FitSummary("none"), rows, lambda given, _: given / 2)
    assert found.notes == ()
    assert found.after["nll"] == pytest.approx(found.before["nll"] / 2)
