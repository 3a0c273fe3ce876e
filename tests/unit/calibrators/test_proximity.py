"""Calibration by proximity: densities and cells against brute force, and samples that only proximity can calibrate."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm

from calibrant.calibrators import (
    BinMeanShift,
    Calibrator,
    DensityRatioCalibration,
    FeatureCalibrator,
    TemperatureScaling,
)
from calibrant.calibrators.features import bandwidth, grid_density
from calibrant.errors import CalibrantWarning, FitError, InputError
from calibrant.maps import Bands, ProximityMap, Table
from calibrant.metrics import nll, piece
from calibrant.numerics.neighbours import proximity
from calibrant.predictions import Predictions

METHODS = (DensityRatioCalibration(), BinMeanShift(), BinMeanShift(rule="replace"))
EACH = pytest.mark.parametrize("method", METHODS, ids=lambda method: f"{method.name}-{getattr(method, 'rule', '')}")


def biased(n, seed=0, *, k=5, dtype=torch.float64):
    """Far samples are overconfident by a quarter, near samples are not confident enough; the mean is about right."""
    generator = torch.Generator().manual_seed(seed)
    far = torch.rand(n, generator=generator) < 0.5
    features = torch.where(far, 1.0, 0.1)[:, None] * torch.randn(n, 16, generator=generator)
    features[:, 0] += 1
    confidence = 0.5 + 0.45 * torch.rand(n, generator=generator, dtype=torch.float64)
    predicted = torch.randint(0, k, (n,), generator=generator)
    truth = torch.where(far, confidence - 0.25, (confidence + 0.15).clamp(max=0.99))
    right = torch.rand(n, generator=generator, dtype=torch.float64) < truth
    probs = ((1 - confidence) / (k - 1))[:, None].repeat(1, k).scatter(1, predicted[:, None], confidence[:, None])
    other = (predicted + torch.randint(1, k, (n,), generator=generator)) % k
    return Predictions.from_probs(probs.to(dtype), torch.where(right, predicted, other)), features.double(), truth


class TestWhatTheyCalibrate:
    CAL, TEST = biased(3000, seed=1), biased(8000, seed=2)

    def test_density_ratio_finds_the_truth_that_a_temperature_cannot_see(self):
        (cal, cal_features, _), (test, features, truth) = self.CAL, self.TEST
        after = DensityRatioCalibration().fit(cal, cal_features).transform(test, features)
        scaled = TemperatureScaling().fit(cal).transform(test)
        near = proximity(features, cal_features)
        assert nll(after) < nll(scaled) - 0.08
        assert piece(after, near) < piece(scaled, near) / 3
        assert float((test.confidence - truth).abs().mean()) > 0.15
        assert float((after.confidence - truth).abs().mean()) < 0.03

    @EACH
    def test_every_method_lowers_log_loss_and_proximity_error(self, method):
        (cal, cal_features, _), (test, features, _) = self.CAL, self.TEST
        fitted = method.fit(cal, cal_features)
        after, near = fitted.transform(test, features), fitted.proximity(features)
        assert nll(after) < nll(test) - 0.04
        assert piece(after, near) < 0.65 * piece(test, near)

    @EACH
    def test_no_prediction_changes(self, method):
        (cal, cal_features, _), (test, features, _) = self.CAL, self.TEST
        assert torch.equal(method.fit(cal, cal_features).transform(test, features).predicted, test.predicted)

    @EACH
    def test_the_variant_of_the_public_code_helps_as_well(self, method):
        (cal, cal_features, _), (test, features, _) = self.CAL, self.TEST
        variant = type(method)(closeness="mean_exp_square")
        fitted = variant.fit(cal, cal_features)
        assert nll(fitted.transform(test, features)) < nll(test) - 0.04
        expected = proximity(features, cal_features, closeness="mean_exp_square")
        assert torch.allclose(fitted.proximity(features), expected)


class TestDensities:
    def test_the_grid_holds_the_sum_of_all_kernels(self):
        rng = np.random.default_rng(0)
        x, y = rng.random(40), rng.random(40)
        counts = rng.random(40)
        axes = tuple(torch.linspace(*ends, dtype=torch.float64) for ends in ((-0.5, 1.5, 7), (0.0, 1.0, 5)))
        result = grid_density(*map(torch.from_numpy, (x, y, counts)), axes, (0.1, 0.3)).numpy()
        for i, a in enumerate(np.linspace(-0.5, 1.5, 7)):
            for j, b in enumerate(np.linspace(0, 1, 5)):
                expected = (counts * norm.pdf(a, x, 0.1) * norm.pdf(b, y, 0.3)).sum()
                assert result[i, j] == pytest.approx(expected, rel=1e-9)

    def test_the_bandwidth_is_that_of_the_normal_reference_rule(self):
        # statsmodels: 1.06 σ n^(-1/(4 + d))
        values = torch.linspace(0, 1, 1000, dtype=torch.float64)
        every, first = torch.ones(1000, dtype=torch.bool), torch.arange(1000) == 0
        counts, deviation = torch.ones_like(values), float(np.std(values.numpy()))
        assert bandwidth(values, every, counts) == pytest.approx(1.06 * deviation * 1000 ** (-1 / 6))
        assert bandwidth(values, first, counts) == pytest.approx(1.06 * deviation)

    def test_looking_up_the_table_is_as_good_as_adding_up_all_kernels(self):
        cal, features, _ = biased(1500, seed=3)
        fitted = DensityRatioCalibration().fit(cal, features)
        near = proximity(features).numpy()
        confidence, correct = cal.confidence.numpy(), cal.correct.numpy()
        rng = np.random.default_rng(0)
        c = rng.uniform(confidence.min(), confidence.max(), 400)
        d = rng.uniform(near.min(), near.max(), 400)
        per_area = []
        for side in (correct, ~correct):
            n = side.sum()
            widths = [1.06 * values[side].std() * n ** (-1 / 6) for values in (confidence, near)]
            kernels = norm.pdf(c[:, None], confidence[side], widths[0]) * norm.pdf(d[:, None], near[side], widths[1])
            per_area.append(kernels.sum(1))
        one_row = 1 / (np.ptp(confidence) * np.ptp(near))
        right, wrong = per_area[0] + c * one_row, per_area[1] + (1 - c) * one_row
        expected = np.clip(right / (right + wrong), 1 / 1502, 1 - 1 / 1502)
        looked_up = fitted.surface(torch.logit(torch.from_numpy(c)), torch.from_numpy(d)).sigmoid().numpy()
        assert np.abs(looked_up - expected).max() < 1e-3

    def test_far_from_all_samples_the_confidence_stays(self):
        table = DensityRatioCalibration().fit(*biased(500)[:2]).surface
        assert isinstance(table, Table)
        # No row is less sure than .5, but the table reaches from the least sure to the surest.
        confidence = torch.logit(torch.tensor(0.7, dtype=torch.float64))
        inside = table(confidence, table.proximity.mean())
        beyond = table(confidence, torch.tensor(5.0, dtype=torch.float64))
        assert torch.equal(beyond, table(confidence, table.proximity[1]))
        assert inside != beyond


class TestCells:
    def test_cells_against_loops(self):
        cal, features, _ = biased(400, seed=3)
        fitted = BinMeanShift(bands=4, cells=5, shrinkage=0.5).fit(cal, features)
        near = proximity(features).numpy()
        confidence, correct = cal.confidence.numpy(), cal.correct.numpy()
        expected = np.empty(400)
        for band in np.array_split(np.argsort(near), 4):
            for cell in np.array_split(band[np.argsort(confidence[band])], 5):
                expected[cell] = confidence[cell] + 0.5 * (correct[cell].mean() - confidence[cell].mean())
        log_odds = torch.logit(torch.from_numpy(confidence))
        result = fitted.surface(log_odds, torch.from_numpy(near)).sigmoid().numpy()
        np.testing.assert_allclose(result, np.clip(expected, 1 / 402, 1 - 1 / 402), atol=1e-9)

    def test_replaced_confidences_are_the_accuracies_of_cells(self):
        cal, features, _ = biased(400, seed=3)
        fitted = BinMeanShift(bands=4, cells=5, rule="replace").fit(cal, features)
        near = proximity(features)
        result = fitted.surface(torch.logit(cal.confidence), near).sigmoid()
        for band in near.argsort().split(100):
            for cell in band[cal.confidence[band].argsort()].split(20):
                accuracy = float(cal.correct[cell].double().mean())
                assert result[cell].tolist() == pytest.approx([min(accuracy, 1 - 1 / 402)] * 20)

    def test_a_shift_beyond_one_stops_at_the_floor(self):
        bands = Bands(torch.zeros(0), torch.zeros(1, 0), torch.tensor([[0.2]]), torch.tensor(1.0), torch.tensor(0.01))
        result = bands(torch.logit(torch.tensor([0.5, 0.9, 1 - 1e-6])), torch.zeros(3)).sigmoid()
        assert result.tolist() == pytest.approx([0.7, 0.99, 0.99], abs=1e-6)


class TestTheMap:
    CAL, FEATURES, _ = biased(300)

    @EACH
    def test_logits_and_features_of_any_type_and_shape_will_do(self, method):
        fitted = method.fit(self.CAL, self.FEATURES)
        logits, features = self.CAL.logits[:24], self.FEATURES[:24]
        expected = fitted(logits, features)
        assert torch.allclose(expected.logsumexp(1), torch.zeros(24, dtype=torch.float64), atol=1e-12)
        assert torch.allclose(fitted(logits.view(4, 6, 5), features.view(4, 6, 16)).view(24, 5), expected)
        assert torch.allclose(fitted(logits[0], features[0]), expected[0])
        for dtype, near in ((torch.float32, 1e-3), (torch.bfloat16, 0.1), (torch.float16, 0.01)):
            result = fitted(logits.to(dtype), features.to(dtype))
            assert result.dtype == dtype
            assert torch.equal(result.argmax(1), logits.to(dtype).argmax(1))
            assert (result.double() - expected).abs().median() < near

    @EACH
    def test_a_map_is_built_again_from_its_buffers_settings_and_part(self, method):
        fitted = method.fit(self.CAL, self.FEATURES)
        part = type(fitted.surface)(**dict(fitted.surface.named_buffers()), **fitted.surface.settings())
        again = ProximityMap(fitted.reference, part, n_classes=5, **fitted.settings())
        assert torch.equal(again(self.CAL.logits, self.FEATURES), fitted(self.CAL.logits, self.FEATURES))
        assert set(fitted.state_dict()) == {"reference", *(f"surface.{name}" for name, _ in part.named_buffers())}

    @EACH
    def test_an_exported_map_answers_the_same(self, method):
        fitted = method.fit(self.CAL, self.FEATURES)
        rows = torch.export.Dim("rows", min=2)
        logits, features = self.CAL.logits.float(), self.FEATURES.float()
        shapes = {"logits": {0: rows}, "features": {0: rows}}
        program = torch.export.export(fitted, (logits, features), dynamic_shapes=shapes)
        assert torch.allclose(
            program.module()(logits[:17], features[:17]), fitted(logits[:17], features[:17]), atol=1e-6
        )

    def test_the_length_of_features_plays_no_part(self):
        fitted = DensityRatioCalibration().fit(self.CAL, self.FEATURES)
        stretched = self.FEATURES * torch.linspace(1, 9, 300)[:, None]
        assert torch.allclose(fitted.proximity(stretched), fitted.proximity(self.FEATURES), atol=1e-9)

    def test_features_keep_their_type_in_the_map(self):
        assert DensityRatioCalibration().fit(self.CAL, self.FEATURES.float()).reference.dtype == torch.float32
        assert DensityRatioCalibration().fit(self.CAL, self.FEATURES.numpy()).reference.dtype == torch.float64

    def test_a_summary_tells_how_it_came_about(self):
        fitted = BinMeanShift(bands=3).fit(self.CAL, self.FEATURES)
        assert fitted.summary.method == "bin_mean_shift"
        assert fitted.summary.rows == 300
        assert fitted.summary.settings == {
            "bands": 3, "cells": 10, "shrinkage": 0.5, "rule": "shift", "neighbours": 10,
            "closeness": "exp_mean_distance",
        }  # fmt: skip
        assert "rows=300" in repr(fitted)

    def test_what_does_not_fit_the_map_is_refused(self):
        fitted = DensityRatioCalibration().fit(self.CAL, self.FEATURES)
        logits = self.CAL.logits
        for arguments, message in (
            ((logits[:, :4], self.FEATURES), "fitted for 5 classes; got logits of 4"),
            ((logits, self.FEATURES[:, :3]), "fitted on 16 features; got 3"),
            ((logits[:5], self.FEATURES), "must have as many rows"),
        ):
            with pytest.raises(InputError, match=message):
                fitted(*arguments)
        with pytest.raises(InputError, match="as many rows"):
            fitted.transform(self.CAL, self.FEATURES[:10])


class TestHardCases:
    @EACH
    @pytest.mark.parametrize("k", [2, 1000])
    def test_few_and_many_classes(self, method, k):
        cal, features, _ = biased(300, k=k)
        after = method.fit(cal, features).transform(cal, features)
        assert torch.isfinite(after.log_probs).all()
        assert torch.equal(after.predicted, cal.predicted)

    @EACH
    def test_as_few_samples_as_neighbours_are_refused(self, method):
        cal, features, _ = biased(10)
        with pytest.raises(FitError, match=r"more samples than neighbours \(10\).*fewer neighbours"):
            method.fit(cal, features)
        few = type(method)(neighbours=3)
        if method.name == "density_ratio":
            with pytest.warns(CalibrantWarning, match="hardly known"):
                fitted = few.fit(cal, features)
            assert "hardly known" in fitted.summary.notes[0]
        else:
            fitted = few.fit(cal, features)
        assert math.isfinite(nll(fitted.transform(cal, features)))

    @pytest.mark.filterwarnings("ignore:the density of")
    @EACH
    @pytest.mark.parametrize("truth", ["right", "wrong"])
    def test_samples_that_are_all_right_or_all_wrong_leave_a_floor(self, method, truth):
        cal, features, _ = biased(200)
        labels = cal.predicted if truth == "right" else (cal.predicted + 1) % 5
        cal = Predictions.from_logits(cal.logits, labels)
        after = method.fit(cal, features).transform(cal, features)
        assert math.isfinite(nll(after))
        assert float(after.confidence.max()) <= 1 - 1 / 202 + 1e-9
        assert torch.equal(after.predicted, cal.predicted)

    @pytest.mark.filterwarnings("ignore:.*probability 0")
    @EACH
    def test_one_hot_probabilities_become_accuracies(self, method):
        cal, features, _ = biased(500)
        certain = Predictions.from_probs(torch.nn.functional.one_hot(cal.predicted, 5).float(), cal.labels)
        after = method.fit(certain, features).transform(certain, features)
        assert nll(after) < 3
        assert 0.5 < float(after.confidence.mean()) < 0.9

    @pytest.mark.filterwarnings("ignore:the density of")
    @EACH
    def test_samples_and_features_that_are_all_alike(self, method):
        cal, features, _ = biased(100)
        same = Predictions.from_logits(cal.logits[:1].repeat(100, 1), cal.labels)
        after = method.fit(same, features[:1].repeat(100, 1)).transform(same, features[:1].repeat(100, 1))
        accuracy = float(same.correct.double().mean())
        pull = 0.5 if getattr(method, "rule", "") == "shift" else 1.0
        wanted = float(same.confidence[0]) + pull * (accuracy - float(same.confidence[0]))
        assert after.confidence.tolist() == pytest.approx([max(wanted, 0.2)] * 100, abs=0.02)

    @EACH
    def test_float32_confidences_of_one_are_brought_down(self, method):
        cal, features, _ = biased(500)
        sure = Predictions.from_logits((40 * cal.logits).float(), cal.labels)
        assert (sure.logits.softmax(1).amax(1) == 1).double().mean() > 0.5
        after = method.fit(sure, features.float()).transform(sure, features.float())
        assert nll(after) < nll(sure) / 2
        assert torch.equal(after.predicted, sure.predicted)

    @EACH
    def test_features_that_do_not_belong_are_refused(self, method):
        cal, features, _ = biased(50)
        for wrong, message in ((features[:49], "as many rows"), (features * torch.nan, "finite"), (None, "array")):
            with pytest.raises(InputError, match=message):
                method.fit(cal, wrong)
        with pytest.raises(InputError, match="must be given Predictions; got TopLabel"):
            method.fit(cal.top, features)

    def test_options_are_checked(self):
        for method, wrong in (
            (DensityRatioCalibration, {"neighbours": 0}),
            (DensityRatioCalibration, {"closeness": "cosine"}),
            (BinMeanShift, {"bands": 0}),
            (BinMeanShift, {"cells": 0}),
            (BinMeanShift, {"shrinkage": 0.0}),
            (BinMeanShift, {"shrinkage": 1.5}),
            (BinMeanShift, {"rule": "swap"}),
        ):
            with pytest.raises(InputError, match=next(iter(wrong))):
                method(**wrong)

    def test_they_are_calibrators_of_their_own_kind(self):
        for method in METHODS:
            assert isinstance(method, FeatureCalibrator)
            assert not isinstance(method, Calibrator)


@EACH
def test_autocast_changes_neither_a_fit_nor_its_map(method):
    samples, features, _ = biased(600, dtype=torch.float32)
    fitted = method.fit(samples, features.float())
    plain = fitted.transform(samples, features.float())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        again = method.fit(samples, features.float())
        assert torch.equal(fitted.transform(samples, features.float()).logits, plain.logits)
    assert all(torch.equal(mine, other) for mine, other in zip(fitted.buffers(), again.buffers(), strict=True))


def test_arrays_in_place_of_predictions_are_refused_with_what_to_give():
    samples, features, _ = biased(300)
    fitted = DensityRatioCalibration().fit(samples, features)
    for wrong in (
        lambda: fitted.transform(samples.logits.numpy(), features),
        lambda: fitted([[0.0] * 5], features[:1]),
    ):
        with pytest.raises(InputError, match=r"Predictions\.from_logits"):
            wrong()
