import math
from functools import partial
from itertools import pairwise

import pytest
import torch
from scipy.optimize import brentq, minimize_scalar

from calibrant.errors import FitError
from calibrant.numerics.inverse_temperature import (
    fit_inverse_temperature,
    focal_loss,
    log_loss,
    temperature_derivatives,
)


def rows(n, k, *, seed=0, dtype=torch.float64, temperature=2.0):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, k, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    return (temperature * logits).to(dtype), labels


def slope(logits, labels, beta):
    probs = (beta * logits).softmax(1)
    return float(((probs * logits).sum(1) - logits.gather(1, labels[:, None])[:, 0]).mean())


class TestTemperatureDerivatives:
    @pytest.mark.parametrize("k", [2, 7, 40])
    @pytest.mark.parametrize("beta", [0.05, 0.6, 3.0])
    def test_derivatives_are_those_of_the_log_loss(self, k, beta):
        logits, labels = rows(50, k)
        leaf = torch.full((50, 1), beta, dtype=torch.float64, requires_grad=True)
        log_prob = (leaf * logits).log_softmax(1).gather(1, labels[:, None])[:, 0]
        (first,) = torch.autograd.grad(-log_prob.sum(), leaf, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), leaf)
        (block,) = temperature_derivatives(logits, labels, beta)
        assert torch.allclose(block.log_prob, log_prob, atol=1e-12)
        assert torch.allclose(block.slope, first[:, 0], atol=1e-11)
        assert torch.allclose(block.curvature, second[:, 0], atol=1e-10)

    def test_blocks_cover_all_samples_in_order(self):
        logits, labels = rows(5000, 500, dtype=torch.float32)
        ends = [(block.rows.start, block.rows.stop) for block in temperature_derivatives(logits, labels, 1.0)]
        assert len(ends) > 1
        assert ends[0][0] == 0
        assert ends[-1][1] == 5000
        assert all(first[1] == second[0] for first, second in pairwise(ends))


class TestFitInverseTemperature:
    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
    @pytest.mark.parametrize(("n", "k"), [(30, 2), (500, 3), (6000, 40), (90_000, 4)])
    def test_it_is_the_root_that_brent_finds(self, n, k, dtype):
        logits, labels = rows(n, k, dtype=dtype)
        exact = brentq(partial(slope, logits.double(), labels), 1e-3, 1e3, xtol=1e-14)
        assert fit_inverse_temperature(logits, labels).beta == pytest.approx(exact, rel=2e-6)

    @pytest.mark.parametrize("scale", [1e-6, 1e-3, 1e3, 1e6])
    def test_the_unit_of_the_logits_does_not_matter(self, scale):
        logits, labels = rows(3000, 5)
        plain, scaled = fit_inverse_temperature(logits, labels), fit_inverse_temperature(scale * logits, labels)
        assert scaled.beta * scale == pytest.approx(plain.beta, rel=1e-6)
        assert scaled.end == "interior"

    def test_many_samples_are_read_about_twice(self):
        logits, labels = rows(90_000, 4)
        certificate = fit_inverse_temperature(logits, labels).certificate
        assert certificate.passes < 2.6
        assert certificate.gradient < 1e-6

    def test_samples_sorted_by_class_do_not_mislead_the_first_search(self):
        logits, labels = rows(20_000, 5)
        order = labels.argsort()
        found = fit_inverse_temperature(logits[order], labels[order])
        assert found.beta == pytest.approx(fit_inverse_temperature(logits, labels).beta, rel=1e-6)

    @pytest.mark.parametrize("gamma", [0.5, 1.0, 3.0])
    def test_the_focal_minimum_is_the_lowest_of_a_fine_search(self, gamma):
        logits, labels = rows(800, 5)

        def mean_focal(log_temperature):
            log_prob = (logits / math.exp(log_temperature)).log_softmax(1).gather(1, labels[:, None])
            return float(-((1 - log_prob.exp()) ** gamma * log_prob).mean())

        exact = math.exp(minimize_scalar(mean_focal, bounds=(-2, 3), method="bounded", options={"xatol": 1e-10}).x)
        found = fit_inverse_temperature(logits, labels, loss=partial(focal_loss, gamma=gamma))
        assert 1 / found.beta == pytest.approx(exact, rel=1e-5)

    def test_derivatives_of_the_focal_loss_are_right(self):
        log_prob = torch.linspace(-6, -1e-3, 40, dtype=torch.float64, requires_grad=True)
        value, first, second = focal_loss(log_prob, gamma=2.5)
        (slope_,) = torch.autograd.grad(value.sum(), log_prob, create_graph=True)
        assert torch.allclose(first, slope_)
        assert torch.allclose(second, torch.autograd.grad(slope_.sum(), log_prob)[0])

    def test_a_focal_loss_without_focus_is_the_log_loss(self):
        log_prob = torch.tensor([-0.1, -2.0], dtype=torch.float64)
        focal, plain = focal_loss(log_prob, gamma=0.0), log_loss(log_prob)
        for one, other in zip(focal, plain, strict=True):
            assert torch.allclose(one, other.expand(2))

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
    @pytest.mark.parametrize("n", [1, 20, 300, 9000])
    def test_all_right_ends_at_the_cold_end(self, n, dtype):
        logits, _ = rows(n, 4, dtype=dtype)
        assert fit_inverse_temperature(logits, logits.argmax(1)).end == "zero_temperature"

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
    def test_one_wrong_sample_is_enough(self, dtype):
        logits, _ = rows(300, 4, dtype=dtype)
        labels = logits.argmax(1)
        labels[7] = logits[7].argmin()
        assert fit_inverse_temperature(logits, labels).end == "interior"

    def test_all_wrong_ends_at_the_hot_end(self):
        logits, _ = rows(300, 4)
        assert fit_inverse_temperature(logits, logits.argmin(1)).end == "infinite_temperature"

    @pytest.mark.parametrize("gamma", [0.0, 1.0])
    @pytest.mark.parametrize("share", [1e-3, 0.9, 1.0, 1.49, 1.51, 1e3])
    def test_the_start_of_the_search_does_not_change_it(self, share, gamma):
        logits, labels = rows(2000, 4)
        loss = partial(focal_loss, gamma=gamma) if gamma else log_loss
        plain = fit_inverse_temperature(logits, labels, loss=loss)
        found = fit_inverse_temperature(logits, labels, loss=loss, near=share * plain.beta)
        assert found.beta == pytest.approx(plain.beta, rel=5e-6)
        assert found.certificate.objective == pytest.approx(plain.certificate.objective, rel=2e-6)
        assert found.end == "interior"

    def test_near_the_minimum_few_samples_are_read_and_no_subsample(self):
        logits, labels = rows(6000, 7)
        plain = fit_inverse_temperature(logits, labels)
        found = fit_inverse_temperature(logits, labels, near=1.02 * plain.beta)
        assert found.certificate.passes <= 4
        assert found.certificate.passes == found.certificate.steps

    @pytest.mark.parametrize(
        ("near", "end"),
        [
            (1.0, "zero_temperature"),
            (1e3, "zero_temperature"),
            (1.0, "infinite_temperature"),
            (1e-3, "infinite_temperature"),
        ],
    )
    def test_an_end_is_still_an_end_from_another_start(self, near, end):
        logits, _ = rows(300, 4)
        labels = logits.argmax(1) if end == "zero_temperature" else logits.argmin(1)
        assert fit_inverse_temperature(logits, labels, near=near).end == end

    def test_equal_logits_have_no_temperature(self):
        with pytest.raises(FitError, match="logits must differ within a sample"):
            fit_inverse_temperature(torch.ones(20, 3), torch.zeros(20, dtype=torch.int64))


class TestExtremeSizes:
    """Against Brent's method on logits of ordinary size, of which the others are multiples."""

    @pytest.mark.parametrize(
        ("dtype", "power"),
        [
            (torch.float64, -1000),
            (torch.float64, -400),
            (torch.float64, 400),
            (torch.float64, 1010),
            (torch.float32, -110),
            (torch.float32, 110),
            (torch.bfloat16, 100),
        ],
    )
    def test_the_temperature_grows_with_the_logits(self, dtype, power):
        logits, labels = rows(300, 4, dtype=dtype)
        exact = brentq(partial(slope, logits.double(), labels), 1e-3, 1e3, xtol=1e-14)
        best = fit_inverse_temperature(torch.ldexp(logits.double(), torch.tensor(float(power))).to(dtype), labels)
        assert math.ldexp(best.beta, power) == pytest.approx(exact, rel=3e-6)
        assert best.certificate.gradient < 1e-5

    @pytest.mark.parametrize("ruled_out", [-1e4, -1e5, -1e9, -1e30, -3e38])
    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
    def test_classes_ruled_out_by_a_logit_far_below_leave_it_where_it_is(self, dtype, ruled_out):
        logits, labels = rows(300, 4, dtype=dtype, temperature=0.01)
        exact = brentq(partial(slope, logits.double(), labels), 1e-1, 1e4, xtol=1e-12)
        wider = torch.cat([logits, torch.full((300, 2), ruled_out, dtype=dtype)], dim=1)
        best = fit_inverse_temperature(wider, labels)
        assert best.end == "interior"
        assert best.beta == pytest.approx(exact, rel=3e-6)

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
    def test_a_sample_that_is_sure_and_right_leaves_it_where_it_is(self, dtype):
        logits, labels = rows(300, 4, dtype=dtype)
        exact = brentq(partial(slope, logits.double(), labels), 1e-3, 1e3, xtol=1e-14)
        logits[7, labels[7]] = torch.finfo(dtype).max
        without = torch.arange(300) != 7
        others = brentq(partial(slope, logits[without].double(), labels[without]), 1e-3, 1e3, xtol=1e-14)
        assert fit_inverse_temperature(logits, labels).beta == pytest.approx(others, rel=3e-6)
        assert others == pytest.approx(exact, rel=0.1)

    @pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 1e-42), (torch.float64, 1e-310)])
    def test_logits_too_small_for_a_temperature_are_refused_with_what_to_do(self, dtype, size):
        logits, labels = rows(300, 4)
        with pytest.raises(FitError, match="multiply all of them by one number"):
            fit_inverse_temperature((logits * size).to(dtype), labels)

    def test_an_offset_costs_no_digits(self):
        logits, labels = rows(300, 4)
        logits = (16 * logits).round() / 16
        exact = fit_inverse_temperature(logits.float(), labels).beta
        assert fit_inverse_temperature((logits + 1e6).float(), labels).beta == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("n", "k"), [(300, 3), (3000, 5), (20_000, 10), (60_000, 4)])
@pytest.mark.parametrize("loss", [log_loss, partial(focal_loss, gamma=1.0)], ids=["log-loss", "focal"])
def test_the_certificate_bounds_the_gradient_at_the_temperature_returned(loss, n, k, dtype):
    logits, labels = rows(n, k, dtype=dtype)
    best = fit_inverse_temperature(logits, labels, loss=loss)
    beta = torch.tensor(best.beta, dtype=torch.float64, requires_grad=True)
    log_prob = (beta * logits.double()).log_softmax(1).gather(1, labels[:, None])[:, 0]
    (gradient,) = torch.autograd.grad(loss(log_prob).value.mean(), beta)
    assert float(gradient.abs()) <= best.certificate.gradient + 1e-15
    assert best.certificate.gradient < 1e-5
