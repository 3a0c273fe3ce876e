"""Order-preserving functions: optima that scipy agrees with, distortions they can correct, and what they must keep."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from calibrant.calibrators import DiagonalOrderPreserving, OrderInvariant, OrderPreserving, TemperatureScaling
from calibrant.calibrators.order_preserving import GapStretchLoss, SlopeLoss, StretchWeights, knots_for
from calibrant.datasets import load_resnet110
from calibrant.errors import CalibrantWarning, FitError, InputError
from calibrant.metrics import nll
from calibrant.numerics.newton import newton_by_part, quasi_newton
from calibrant.predictions import Predictions

METHODS = (DiagonalOrderPreserving(), OrderInvariant(), OrderPreserving())
EACH = pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)


def drawn(n, k, bend=lambda logits: 1.5 * logits, *, seed=0, dtype=torch.float64):
    """Labels drawn by the softmax of logits, which are then bent: the predictions are wrong as the bend is."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, k, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    return Predictions.from_logits(bend(logits).to(dtype), labels)


def gain_over_temperature(method, bend, *, n=4000, k=5):
    cal, test = drawn(n, k, bend, seed=1), drawn(20_000, k, bend, seed=2)
    return nll(TemperatureScaling().fit(cal).transform(test)) - nll(method.fit(cal).transform(test))


def numeric_gradient(function, point, step=1e-6):
    moves = step * torch.eye(len(point), dtype=torch.float64)
    return torch.stack([(function(point + move)[0] - function(point - move)[0]) / (2 * step) for move in moves])


class TestOptima:
    def test_the_gradient_of_the_network_is_that_of_its_loss(self):
        generator = torch.Generator().manual_seed(0)
        gaps, seen = torch.rand(30, 4, generator=generator).double(), torch.randn(30, 5, generator=generator).double()
        labels = torch.randint(0, 5, (30,), generator=generator)
        objective = GapStretchLoss(gaps, seen, labels, hidden=3, weight_decay=2.0, seed=0)
        point = objective.start + torch.randn(len(objective.start), generator=generator).double()
        assert torch.allclose(objective(point)[1], numeric_gradient(objective, point), atol=1e-7)

    @pytest.mark.parametrize("weighted", [False, True])
    def test_the_curvature_of_the_network_is_that_of_the_gradients_of_single_samples(self, weighted):
        generator = torch.Generator().manual_seed(0)
        gaps, seen = torch.rand(30, 4, generator=generator).double(), torch.randn(30, 5, generator=generator).double()
        labels = torch.randint(0, 5, (30,), generator=generator)
        counts = torch.rand(30, generator=generator).double() + 0.5 if weighted else None
        objective = GapStretchLoss(gaps, seen, labels, counts=counts, hidden=3, weight_decay=1e-9, seed=0)
        point = objective.start + torch.randn(len(objective.start), generator=generator).double()
        own = torch.stack([objective.part(torch.tensor([row]))(point)[1] for row in range(30)])
        share = torch.full((30,), 1 / 30).double() if counts is None else counts / counts.sum()
        assert torch.allclose(objective.curvature(point), (own.T * share) @ own, atol=1e-7)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
    def test_products_of_the_slopes_of_sure_samples_are_no_denormal_numbers_which_would_be_slow(self, dtype):
        seen = torch.randn(50, 3, generator=torch.Generator().manual_seed(0)).to(dtype)
        gaps, rank = torch.full((50, 2), 500.0, dtype=dtype), torch.arange(50) % 2  # half of them are right
        objective = GapStretchLoss(gaps, seen, rank, hidden=4, weight_decay=1.0, seed=0)
        slopes = objective._backward(slice(None), objective._read(objective.start))[1][2]
        assert (slopes != 0).any()
        assert slopes[slopes != 0].abs().min() ** 2 > torch.finfo(dtype).tiny

    @pytest.mark.parametrize("sees", ["given", "sorted"])
    def test_curvatures_of_a_part_lead_to_a_minimum_of_all_resnet_samples(self, sees):
        cal = load_resnet110().calibration
        scaled = TemperatureScaling().fit(cal).transform(cal).logits.double()
        ranked, order = scaled.sort(dim=1, descending=True, stable=True)
        rank = (order == cal.labels[:, None]).byte().argmax(1)
        seen = (ranked if sees == "sorted" else scaled).log_softmax(1)
        seen = (seen - seen.mean(0)) / seen.std(0)
        objective = GapStretchLoss(-ranked.diff(), seen, rank, hidden=2, weight_decay=3.0, seed=0)
        part = objective.part(torch.randperm(len(cal), generator=torch.Generator().manual_seed(0))[:1000])
        options = {"share": 0.2, "tolerance": 1e-5, "gain": 2e-6}
        point, certificate = newton_by_part(objective, part, part.curvature, objective.start, **options)
        plain = quasi_newton(objective, objective.start, tolerance=1e-5)[1]
        assert certificate.gradient == pytest.approx(float(objective(point)[1].abs().max()), rel=1e-9)
        assert certificate.gradient <= 1e-5
        assert certificate.objective == pytest.approx(plain.objective, abs=1e-5)

    def test_many_samples_are_fitted_as_well_as_by_the_plain_search(self, monkeypatch):
        cal = drawn(200_000, 3, lambda logits: torch.sinh(logits / 2) + torch.tensor([0.5, 0.0, 0.0]))
        method = OrderInvariant(hidden=4)
        fast = method.fit_without_scores(cal)
        monkeypatch.setattr("calibrant.calibrators.order_preserving._TWO_STAGES", 300_000)
        plain = method.fit_without_scores(cal)
        assert fast.summary.certificate.objective < plain.summary.certificate.objective + 1e-5
        assert fast.summary.certificate.gradient <= 1e-4
        assert fast.summary.certificate.passes < plain.summary.certificate.passes / 1.5

    @pytest.mark.parametrize(
        ("bend", "at_bound"), [(lambda z: torch.sinh(z / 2), True), (lambda z: z + 3 * z.sin(), False)]
    )
    def test_a_curve_of_many_samples_has_the_optimum_of_all(self, bend, at_bound, monkeypatch):
        cal = drawn(200_000, 3, bend)
        fast = DiagonalOrderPreserving().fit_without_scores(cal)
        monkeypatch.setattr("calibrant.calibrators.order_preserving._TWO_STAGES", 300_000)
        plain = DiagonalOrderPreserving().fit_without_scores(cal)
        assert bool((plain.slopes <= 0.01).any()) == at_bound
        assert torch.allclose(fast.slopes, plain.slopes, rtol=0, atol=1e-4)
        assert fast.summary.certificate.objective == pytest.approx(plain.summary.certificate.objective, abs=1e-9)
        assert fast.summary.certificate.gradient <= 1e-7

    def test_passes_in_single_precision_end_at_the_same_minimum(self, monkeypatch):
        cal = drawn(20_500, 3, lambda logits: torch.sinh(logits / 2))
        single = OrderInvariant(hidden=4).fit_without_scores(cal)
        monkeypatch.setattr("calibrant.calibrators.order_preserving._MANY", 30_000)
        double = OrderInvariant(hidden=4).fit_without_scores(cal)
        assert nll(single.transform(cal)) == pytest.approx(nll(double.transform(cal)), abs=2e-5)

    def test_the_gradient_of_the_slopes_is_that_of_their_loss(self):
        generator = torch.Generator().manual_seed(0)
        log_probs = torch.randn(30, 5, generator=generator).double().log_softmax(1)
        labels = torch.randint(0, 5, (30,), generator=generator)
        knots = knots_for(log_probs, 6)
        objective = SlopeLoss(log_probs, labels, knots, weight_decay=2.0)
        point = torch.rand(len(knots) + 1, generator=generator).double() + 0.2
        assert torch.allclose(objective(point)[1], numeric_gradient(objective, point), atol=1e-7)

    def test_a_network_that_stretches_nothing_is_temperature_scaling(self):
        cal = drawn(500, 6)
        for method in (OrderInvariant(weight_decay=1e9), OrderPreserving(weight_decay=1e9)):
            same, scaled = method.fit(cal).transform(cal), TemperatureScaling().fit(cal).transform(cal)
            assert torch.allclose(same.probs, scaled.probs, atol=1e-5)

    def test_a_curve_that_may_not_bend_is_temperature_scaling(self):
        cal = drawn(500, 6)
        same = DiagonalOrderPreserving(weight_decay=1e6).fit(cal).transform(cal)
        assert torch.allclose(same.probs, TemperatureScaling().fit(cal).transform(cal).probs, atol=1e-5)

    def test_another_optimiser_finds_the_same_curve(self):
        cal, method = drawn(400, 4), DiagonalOrderPreserving(pieces=4, weight_decay=0.5)
        fitted = method.fit(cal)
        log_probs = (cal.logits * float(fitted.beta)).log_softmax(1).numpy()
        knots, labels = fitted.knots.numpy(), cal.labels.numpy()
        x = np.concatenate([[log_probs.min() - 1], knots, [1.0]])

        def objective(slopes):
            value = np.interp(log_probs, x, np.concatenate([[0.0], np.cumsum(slopes * np.diff(x))]))
            value -= np.log(np.exp(value).sum(1, keepdims=True))
            return -value[np.arange(400), labels].mean() + 0.5 * 4 / 400 * np.square(np.diff(slopes)).sum()

        best = minimize(objective, np.ones(4), method="SLSQP", bounds=[(0.01, None)] * 4, options={"ftol": 1e-14})
        assert fitted.slopes.tolist() == pytest.approx(best.x.tolist(), abs=1e-3)
        assert fitted.summary.certificate.objective == pytest.approx(best.fun, abs=1e-8)

    @EACH
    def test_the_certificate_tells_of_an_optimum(self, method):
        certificate = method.fit(drawn(500, 6)).summary.certificate
        assert certificate.gradient <= 1e-4
        assert certificate.passes >= certificate.steps

    def test_what_was_fitted_is_what_is_applied(self):
        cal = drawn(300, 5)
        for method in (OrderInvariant(), OrderPreserving()):
            fitted = method.fit(cal)
            network = StretchWeights(*(fitted.get_buffer(name) for name in StretchWeights._fields))
            start = torch.randn(32, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
            seen = (cal.logits * fitted.beta).log_softmax(1)
            seen = seen.sort(dim=1, descending=True).values if method.name == "order_invariant" else seen
            spread = seen.std(dim=0, correction=0)
            moved = (network.hidden_weight * spread * math.sqrt(5) - start).square().sum()
            moved += network.hidden_bias.square().sum() + 32 * network.out_weight.square().sum()
            penalty = float(method.weight_decay * moved / len(cal))
            assert nll(fitted.transform(cal)) + penalty == pytest.approx(fitted.summary.certificate.objective, abs=1e-9)

    @EACH
    def test_the_same_samples_and_seed_give_the_same_map(self, method):
        cal = drawn(300, 5)
        first, second = method.fit(cal).state_dict(), method.fit(cal).state_dict()
        assert all(torch.equal(first[name], second[name]) for name in first)


class TestTruths:
    def test_every_method_corrects_a_bend_that_a_temperature_cannot(self):
        # Large differences were squeezed, small ones were not.
        bend = lambda logits: torch.sinh(logits / 2)  # noqa: E731
        for method in METHODS:
            assert gain_over_temperature(method, bend) > 0.002, method.name

    def test_only_the_network_that_knows_the_classes_corrects_overrated_ones(self):
        rated = torch.tensor([1.5, 0.0, 0.0, 0.0, -1.5], dtype=torch.float64)
        bend = lambda logits: logits + rated  # noqa: E731
        assert gain_over_temperature(OrderPreserving(), bend) > 0.02
        assert gain_over_temperature(OrderInvariant(), bend) < 0.01

    @EACH
    @pytest.mark.parametrize("n", [100, 1000])
    def test_where_a_temperature_is_all_that_is_wrong_little_is_lost(self, method, n):
        assert gain_over_temperature(method, lambda logits: 3 * logits, n=n, k=10) > -0.004

    @EACH
    def test_the_order_of_every_sample_is_kept(self, method):
        cal, test = drawn(300, 20), drawn(300, 20, seed=5, dtype=torch.float32)
        order = test.logits.argsort(dim=1, descending=True)
        after = method.fit(cal).transform(test)
        assert (after.logits.gather(1, order).diff(dim=1) <= 0).all()
        assert torch.equal(after.predicted, test.predicted)

    @EACH
    def test_the_unit_of_the_logits_plays_no_part(self, method):
        cal = drawn(300, 5)
        large = Predictions.from_logits(1000 * cal.logits + 7, cal.labels)
        expected = method.fit(cal).transform(cal).probs
        assert torch.allclose(method.fit(large).transform(large).probs, expected, atol=1e-4)


class TestHardCases:
    @EACH
    @pytest.mark.parametrize(("n", "k"), [(10, 3), (10, 100), (200, 2), (60, 1000)])
    @pytest.mark.filterwarnings("ignore:.*no calibration samples of class")
    def test_few_samples_and_few_or_many_classes_are_fitted(self, method, n, k):
        cal = drawn(n, k, lambda logits: 3 * logits)
        assert nll(method.fit(cal).transform(cal)) < nll(cal)

    @EACH
    @pytest.mark.filterwarnings("ignore:.*no calibration samples of class")
    def test_a_class_without_samples_keeps_a_probability(self, method):
        cal = drawn(200, 4)
        cal = Predictions.from_logits(cal.logits, cal.labels.clamp(max=2))
        assert (method.fit(cal).transform(cal).probs > 0).all()

    @EACH
    def test_samples_that_are_all_right_have_no_optimum(self, method):
        cal = drawn(200, 4)
        with pytest.raises(FitError, match="wrong predictions"):
            method.fit(Predictions.from_logits(cal.logits, cal.predicted))

    @EACH
    def test_samples_that_are_all_wrong_give_equal_probabilities_and_a_warning(self, method):
        cal = drawn(200, 4)
        cal = Predictions.from_logits(cal.logits, cal.logits.argmin(1))
        with pytest.warns(CalibrantWarning, match="no better than guessing"):
            fitted = method.fit(cal)
        assert torch.allclose(fitted.transform(cal).probs, torch.tensor(0.25, dtype=torch.float64), atol=1e-2)

    @EACH
    def test_one_hot_probabilities_become_the_accuracy(self, method):
        cal = drawn(400, 4)
        accuracy = float(cal.correct.double().mean())
        one_hot = torch.nn.functional.one_hot(cal.predicted, 4).float()
        with pytest.warns(CalibrantWarning, match="probability 0"):
            certain = Predictions.from_probs(one_hot, cal.labels)
        after = method.fit(certain).transform(certain)
        assert float(after.confidence.mean()) == pytest.approx(accuracy, abs=0.01)
        assert nll(after) < 1

    @EACH
    def test_float32_confidences_of_one_are_softened(self, method):
        cal = drawn(300, 4, lambda logits: 40 * logits, dtype=torch.float32)
        assert (cal.logits.softmax(1).amax(1) == 1).double().mean() > 0.2
        after = method.fit(cal).transform(cal)
        assert nll(after) < 1
        assert torch.equal(after.predicted, cal.predicted)

    def test_options_are_checked(self):
        for wrong in ({"hidden": 0}, {"weight_decay": 0.0}, {"weight_decay": math.inf}):
            for method in (OrderInvariant, OrderPreserving):
                with pytest.raises(InputError, match=next(iter(wrong))):
                    method(**wrong)
        for wrong in ({"pieces": 1}, {"weight_decay": -1.0}):
            with pytest.raises(InputError, match=next(iter(wrong))):
                DiagonalOrderPreserving(**wrong)
