"""The shift panel: the same networks, the same maps, other images."""

import json
import math
import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch

from calibrant import catalogue
from calibrant.calibrators import HistogramBinning, StructuredVectorScaling, TemperatureScaling
from calibrant.datasets import DigitsReader, Samples, corrupt
from calibrant.diagnosis import (
    MAPS,
    ShiftedSet,
    clean_samples,
    corrupted_sets,
    evaluate_candidates,
    grouped,
    read_runs,
    shift_panel,
)
from calibrant.errors import FitError, InputError, UnknownNameError
from calibrant.evidence import difference
from calibrant.metrics import AUROC, ECE, auroc, brier, ece, nll
from calibrant.predictions import Predictions
from calibrant.report import to_plain
from calibrant.training import Recipe, Run, load_network, train_runs

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def evaluated(runs):
    return evaluate_candidates(grouped(runs), maps=MAPS)


@pytest.fixture(scope="module")
def clean(runs, digits):
    return clean_samples(runs, digits)


@pytest.fixture(scope="module")
def panel(evaluated, runs, digits):
    names = ("defocus_blur", "motion_blur", "impulse_noise")
    return shift_panel(evaluated, corrupted_sets(runs, digits, names=names), baseline="ce", device=CPU)


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A network that has learned its digits, its data, and what it was evaluated on."""
    digits, path = DigitsReader().read(), tmp_path_factory.mktemp("learned") / "run"
    recipe = Recipe(epochs=3, batch_size=32, learning_rate=0.05)
    train_runs([Run(path, "digits_cnn", catalogue.parse_any_loss("ce"), recipe)], digits, device=CPU)
    runs = read_runs([path])
    return evaluate_candidates(grouped(runs), maps=MAPS[:1]), runs, digits


def stored(examples, name="stored"):
    return ShiftedSet(name, None, "file", lambda _device: examples)


def rows_of(panel, **wanted):
    return [row for row in panel.rows if all(getattr(row, name) == value for name, value in wanted.items())]


def test_the_clean_images_give_the_clean_numbers_to_the_last_digit(evaluated, clean):
    panel = shift_panel(evaluated, [stored(clean)], baseline="ce", device=CPU)
    before, after = rows_of(panel, shift="clean"), rows_of(panel, shift="stored")
    assert len(before) == len(after) == 2 * 4
    for old, new in zip(before, after, strict=True):
        assert (old.candidate, old.map) == (new.candidate, new.map)
        assert new.metrics == old.metrics
        assert new.direction == old.direction
        assert all(change.values == (0.0, 0.0) for change in new.change.values())
    for candidate in evaluated.candidates:
        for name in evaluated.map_names:
            (row,) = rows_of(panel, shift="clean", candidate=candidate.name, map=name)
            assert row.metrics["ece"] == candidate.over_runs(name, "ece")


def test_the_numbers_are_those_of_the_networks_on_these_images_after_maps_fitted_on_clean_samples(
    panel, evaluated, runs, clean
):
    images = corrupt(clean.inputs, "motion_blur", severity=4, peak=16)
    seeds = {run.settings.loss["loss"]: [] for run in runs}
    for run in runs:
        with torch.no_grad():
            logits = load_network(run.path)(images)
        raw = Predictions.from_logits(logits, clean.labels)
        mapped = {"uncalibrated": raw} | {method.name: method.fit(run.calibration).transform(raw) for method in MAPS}
        seeds[run.settings.loss["loss"]].append(mapped)
    for candidate, loss in zip(evaluated.candidates, seeds, strict=True):
        for name in evaluated.map_names:
            (row,) = rows_of(panel, candidate=candidate.name, map=name, shift="motion_blur", severity=4)
            for place, found in enumerate(seeds[loss]):
                rows = found[name]
                right = float((rows.logits.argmax(1) == clean.labels).double().mean())
                assert row.metrics["accuracy"].values[place] == pytest.approx(right)
                for metric in (ece, nll, brier, auroc):
                    assert row.metrics[metric.__name__].values[place] == pytest.approx(metric(rows), abs=1e-6)
                claimed = float(rows.logits.double().softmax(1).max(1).values.mean())
                assert row.metrics["gap"].values[place] == pytest.approx(claimed - right, abs=1e-6)
            assert row.direction.gap == row.metrics["gap"]
            assert row.n == len(clean)


def test_nothing_is_fitted_on_shifted_samples(evaluated, clean, monkeypatch):
    def refuse(*_arguments):
        raise AssertionError("a map was fitted")

    for method in (TemperatureScaling, HistogramBinning, StructuredVectorScaling):
        monkeypatch.setattr(method, "fit", refuse)
    panel = shift_panel(evaluated, [stored(clean[:40])], baseline="ce", device=CPU)
    assert not any(math.isnan(row.metrics["ece"].mean) for row in panel.rows)


def test_accuracy_falls_with_severity_in_the_mean_over_corruptions(learned):
    evaluated, runs, digits = learned
    names = ("contrast", "defocus_blur", "impulse_noise", "motion_blur")
    panel = shift_panel(evaluated, corrupted_sets(runs, digits, names=names), baseline="ce", device=CPU)
    levels = [each for each in panel.levels if each.map == "uncalibrated"]
    assert [each.severity for each in levels] == [0, 1, 2, 3, 4, 5]
    accuracy = [each.metrics["accuracy"].mean for each in levels]
    assert accuracy[0] > 0.9
    assert accuracy == sorted(accuracy, reverse=True)
    assert accuracy[-1] < accuracy[0] - 0.15


def test_changes_are_taken_run_by_run(panel):
    for row in rows_of(panel, shift="impulse_noise", severity=5):
        (before,) = rows_of(panel, shift="clean", candidate=row.candidate, map=row.map)
        for name, change in row.change.items():
            expected = np.subtract(row.metrics[name].values, before.metrics[name].values)
            np.testing.assert_array_equal(change.values, expected)


def test_rows_stand_by_set_then_candidate_then_map_and_tell_what_set_they_are_of(panel, evaluated, clean):
    assert len(panel.rows) == 16 * 2 * 4
    assert [(row.candidate, row.map) for row in panel.rows[:8]] == [
        (each.name, name)
        for each in evaluated.candidates
        for name in ("uncalibrated", "temperature", "histogram", "svs")
    ]
    told = [(each.shift, each.source, each.severity, each.n) for each in panel.sets]
    assert told[:2] == [("clean", "clean", None, len(clean)), ("defocus_blur", "corruption", 1, len(clean))]
    assert told == list(dict.fromkeys((row.shift, row.source, row.severity, row.n) for row in panel.rows))


def test_a_set_without_severities_is_held_against_the_reference_on_the_same_samples(evaluated, clean, runs):
    images = corrupt(clean.inputs, "defocus_blur", severity=4, peak=16)
    examples = Samples(images, clean.labels)
    panel = shift_panel(evaluated, [stored(examples)], baseline="ce", device=CPU, resamples=50, seed=3)
    (row,) = rows_of(panel, shift="stored", candidate="label_smoothing(0.1)", map="uncalibrated")
    tops = []
    for loss in ("ce", "label_smoothing"):
        path = next(run.path for run in runs if run.path.name == f"{loss}-1")
        with torch.no_grad():
            tops.append(Predictions.from_logits(load_network(path)(images), clean.labels).top)
    expected = difference(*tops, [ECE(), AUROC()], resamples=50, seed=3)
    for metric in ("ece", "auroc"):
        assert row.by_seed[metric][1].value == pytest.approx(expected[metric].value, abs=1e-6)
        assert row.by_seed[metric][1].low == pytest.approx(expected[metric].low, abs=1e-6)
    assert row.differences["ece"].candidate == pytest.approx(row.metrics["ece"].mean)
    assert all(not each.differences for each in rows_of(panel, candidate="ce") + rows_of(panel, shift="clean"))
    assert panel.levels == ()


def test_sets_with_severities_are_compared_in_their_mean_alone(panel):
    assert all(not row.differences for row in panel.rows)
    assert all(bool(level.t_tests) == (level.candidate != "ce") for level in panel.levels)


def test_sets_are_made_one_after_the_other_and_dropped(evaluated, clean):
    alive = []

    def make(_device):
        # All that was made before is gone.
        assert [each() for each in alive] == [None] * len(alive)
        examples = Samples(clean.inputs.clone(), clean.labels)
        alive.append(weakref.ref(examples.inputs))
        return examples

    sets = [ShiftedSet("again", severity, "file", make) for severity in (1, 2, 3)]
    shift_panel(evaluated, sets, baseline="ce", device=CPU)
    assert len(alive) == 3


def test_progress_counts_networks_and_sets(evaluated, clean):
    told = []
    sets = [stored(clean[:20], name) for name in ("one", "two")]
    shift_panel(evaluated, sets, baseline="ce", device=CPU, resamples=2, progress=lambda *each: told.append(each))
    assert told[0] == ("making one", 0, 8)
    assert told[1] == ("ce-0 on one", 0, 8)
    assert told[-1] == ("label_smoothing-1 on two", 7, 8)
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)


def test_a_map_that_could_not_be_fitted_has_no_numbers_here_either(runs, clean, monkeypatch):
    def fail(_self, _predictions):
        raise FitError("it did not converge.")

    monkeypatch.setattr(HistogramBinning, "fit", fail)
    evaluated = evaluate_candidates(grouped(runs[:2]), maps=MAPS[:2])
    panel = shift_panel(evaluated, [stored(clean)], baseline="ce", device=CPU, resamples=2)
    (row,) = rows_of(panel, shift="stored", map="histogram")
    assert math.isnan(row.metrics["ece"].mean)
    assert math.isnan(row.change["accuracy"].mean)
    assert row.direction.side == "neither"


def test_a_network_is_overconfident_where_it_is_wrong_and_does_not_know(learned):
    evaluated, runs, digits = learned
    # The same pictures under labels that are all wrong: accuracy is gone, confidence is not.
    examples = clean_samples(runs, digits)
    wrong = Samples(examples.inputs, (examples.labels + 5) % 10)
    panel = shift_panel(evaluated, [stored(wrong)], baseline="ce", device=CPU, resamples=2)
    assert [row.direction.side for row in rows_of(panel, shift="clean")] == ["underconfident", "neither"]
    for row in rows_of(panel, shift="stored"):
        assert row.direction.side == "overconfident"
        assert row.change["gap"].mean == pytest.approx(-row.change["accuracy"].mean, abs=1e-6)
        assert row.change["accuracy"].mean < -0.8


def test_the_panel_goes_into_a_file(panel):
    plain = json.loads(json.dumps(to_plain(panel), allow_nan=False))
    assert plain["baseline"] == "ce"
    assert len(plain["rows"]) == len(panel.rows)
    assert plain["levels"][0]["severity"] == 0


def test_bad_sets_are_refused(evaluated, clean):
    with pytest.raises(InputError, match="there must be a shifted set"):
        shift_panel(evaluated, [], baseline="ce", device=CPU)
    with pytest.raises(InputError, match="stored is there twice"):
        shift_panel(evaluated, [stored(clean), stored(clean)], baseline="ce", device=CPU)
    with pytest.raises(UnknownNameError, match="a candidate must be"):
        shift_panel(evaluated, [stored(clean)], baseline="focal", device=CPU)
    large = Samples(torch.zeros(2, 1, 16, 16, dtype=torch.uint8), clean.labels[:2])
    with pytest.raises(InputError, match=r"large has shape \(2, 1, 16, 16\)"):
        shift_panel(evaluated, [stored(large, "large")], baseline="ce", device=CPU)
    with pytest.raises(InputError, match="others: labels must lie in"):
        shift_panel(evaluated, [stored(replace(clean, labels=clean.labels + 9), "others")], baseline="ce", device=CPU)
