"""The affine family: derivatives, optima, gauges, and what has no optimum."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression
from torch.autograd.functional import vhp
from torch.nn.functional import cross_entropy

from calibrant.errors import FitError
from calibrant.numerics.newton import Point, Settings, minimise
from calibrant.numerics.softmax_regression import DiagonalLoss, MatrixLoss, Ridge, Samples, ScalarLoss, fit_affine

SHAPES = ("number", "diagonal", "matrix")
SIZES = {"few classes": (300, 4), "many classes": (700, 40)}
each_shape = pytest.mark.parametrize("shape", SHAPES)
each_size = pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)


def rows_of(n, k, *, seed=0, noise=1.0, dtype=torch.float64):
    """Inputs with slopes, shifts and mixtures of classes to undo."""
    generator = torch.Generator().manual_seed(seed)
    honest = 2 * torch.randn(n, k, generator=generator, dtype=torch.float64)
    labels = torch.multinomial((honest / noise).softmax(1), 1, generator=generator)[:, 0]
    labels[:k] = torch.arange(k)
    slope = 1 + 0.3 * torch.randn(k, generator=generator, dtype=torch.float64)
    mixing = slope.diag() + 0.1 * torch.randn(k, k, generator=generator, dtype=torch.float64)
    return (honest @ mixing + torch.randn(k, generator=generator, dtype=torch.float64)).to(dtype), labels


def damped_newton(columns, labels, k):
    """The smallest mean log-loss of softmax regression on the columns, by Newton's method with the whole Hessian."""
    n, d = columns.shape
    hot, theta = np.eye(k)[labels], np.zeros((k, d))

    def loss_and_probs(at):
        logits = columns @ at.T
        top = logits.max(axis=1, keepdims=True)
        powers = np.exp(logits - top)
        total = powers.sum(axis=1, keepdims=True)
        return float((np.log(total) + top - (logits * hot).sum(axis=1, keepdims=True)).mean()), powers / total

    loss, probs = loss_and_probs(theta)
    for _ in range(50):
        gradient = ((probs - hot).T @ columns / n).ravel()
        if np.abs(gradient).max() < 1e-11:
            break
        weights = np.einsum("ia,ab->iab", probs, np.eye(k)) - np.einsum("ia,ib->iab", probs, probs)
        hessian = np.einsum("iab,ic,id->acbd", weights, columns, columns, optimize=True).reshape(k * d, k * d) / n
        step = np.linalg.lstsq(hessian, -gradient, rcond=1e-13)[0].reshape(k, d)
        length = 1.0
        while length > 1e-6 and loss_and_probs(theta + length * step)[0] > loss + 1e-14:
            length /= 2
        theta = theta + length * step
        loss, probs = loss_and_probs(theta)
    return loss


def objective(inputs, labels, weight, bias, ridge, weights=None):
    """Written anew, for autograd."""
    if weights is None:
        weights = inputs.new_ones(len(labels))
    k = inputs.shape[1]
    matrix = weight if weight.ndim == 2 else weight.expand(k).diag()
    diagonal = matrix.diagonal()
    off_diagonal = matrix - diagonal.diag()
    penalty = ridge.diagonal * (diagonal - 1).square().sum() + ridge.off_diagonal * off_diagonal.square().sum()
    losses = cross_entropy(inputs @ matrix.T + bias, labels, reduction="none")
    return losses @ weights / weights.sum() + penalty + ridge.bias * bias.square().sum()


def value_of(theta, samples, shape, ridge):
    inputs, labels, weights = samples
    if shape == "number":
        return objective(inputs, labels, theta[0], theta[1:], ridge, weights)
    weight = theta[:, 0] if shape == "diagonal" else theta[:, :-1]
    return objective(inputs, labels, weight, theta[:, -1], ridge, weights)


def samples_of(n, k, *, is_weighted):
    weights = 3 * torch.rand(n, generator=torch.Generator().manual_seed(11), dtype=torch.float64) + 0.1
    return Samples(*rows_of(n, k), weights if is_weighted else None)


def some_theta(k, shape):
    generator = torch.Generator().manual_seed(7)
    size = {"number": (k + 1,), "diagonal": (k, 2), "matrix": (k, k + 1)}[shape]
    return 0.4 * torch.randn(size, generator=generator, dtype=torch.float64)


def loss_of(shape):
    return {"number": ScalarLoss, "diagonal": DiagonalLoss, "matrix": MatrixLoss}[shape]


def ridge_for(shape):
    return Ridge(diagonal=0.02, off_diagonal=0.3 if shape == "matrix" else 0.0, bias=0.05)


class TestDerivatives:
    @pytest.mark.parametrize("is_weighted", [False, True])
    @each_size
    @each_shape
    def test_value_and_gradient_are_those_of_autograd(self, shape, size, is_weighted):
        samples, ridge = samples_of(*size, is_weighted=is_weighted), ridge_for(shape)
        theta = some_theta(size[1], shape).requires_grad_()
        value = value_of(theta, samples, shape, ridge)
        value.backward()
        point = loss_of(shape)(samples, ridge).value_and_gradient(theta.detach(), exact=True)
        assert point.value == pytest.approx(value.item(), abs=1e-12)
        assert torch.allclose(point.gradient, theta.grad, atol=1e-12)

    @pytest.mark.parametrize("is_weighted", [False, True])
    @each_size
    @each_shape
    def test_products_with_the_hessian_are_those_of_autograd(self, shape, size, is_weighted):
        samples, ridge = samples_of(*size, is_weighted=is_weighted), ridge_for(shape)
        theta, direction = some_theta(size[1], shape), some_theta(size[1], shape).flip(0)
        expected = vhp(lambda at: value_of(at, samples, shape, ridge), theta, direction)[1]
        function = loss_of(shape)(samples, ridge)
        function.value_and_gradient(theta, exact=True)
        assert torch.allclose(function.hessian_product(direction), expected, rtol=1e-4, atol=1e-5)

    @each_shape
    def test_single_precision_looks_are_near_double_precision_ones(self, shape):
        function, theta = loss_of(shape)(Samples(*rows_of(400, 6)), Ridge()), some_theta(6, shape)
        coarse, exact = (function.value_and_gradient(theta, exact=exact) for exact in (False, True))
        assert coarse.value == pytest.approx(exact.value, abs=1e-5)
        assert torch.allclose(coarse.gradient, exact.gradient, atol=1e-5)

    @pytest.mark.parametrize("strong", [False, True])
    @pytest.mark.parametrize("shape", SHAPES)
    def test_preconditioners_are_symmetric_and_positive(self, shape, strong):
        function = loss_of(shape)(samples_of(400, 6, is_weighted=strong), ridge_for(shape))
        function.value_and_gradient(some_theta(6, shape), exact=True)
        solve = function.preconditioner(strong=strong)
        generator = torch.Generator().manual_seed(3)
        one, other = (torch.randn(some_theta(6, shape).shape, generator=generator, dtype=torch.float64) for _ in "ab")
        if shape == "number":
            one[1:], other[1:] = one[1:] - one[1:].mean(), other[1:] - other[1:].mean()
        else:
            one, other = one - one.mean(0), other - other.mean(0)  # as all residuals are
        assert float((one * solve(other)).sum()) == pytest.approx(float((other * solve(one)).sum()), rel=1e-4)
        assert float((one * solve(one)).sum()) > 0


class TestOptima:
    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
    @each_size
    @each_shape
    def test_the_gradient_vanishes_where_the_certificate_says_so(self, shape, size, dtype):
        (inputs, labels), ridge = rows_of(*size, dtype=dtype), ridge_for(shape)
        fit = fit_affine(inputs, labels, shape=shape, ridge=ridge)
        weight, bias = fit.weight.clone().requires_grad_(), fit.bias.clone().requires_grad_()
        value = objective(inputs.double(), labels, weight, bias, ridge)
        value.backward()
        assert fit.certificate.objective == pytest.approx(value.item(), abs=1e-12)
        assert fit.certificate.gradient <= 1e-8
        assert bias.grad.abs().max() <= 1e-7
        assert weight.grad.abs().max() <= 1e-6  # in units of its inputs, which are not of unit size

    def test_without_penalties_a_matrix_agrees_with_scikit_learn(self):
        inputs, labels = rows_of(2000, 5)
        fit = fit_affine(inputs, labels, shape="matrix")
        theirs = LogisticRegression(C=np.inf, tol=1e-12, max_iter=10_000, solver="newton-cg").fit(inputs, labels)
        ours = (inputs @ fit.weight.T + fit.bias).softmax(1)
        assert torch.allclose(ours, torch.from_numpy(theirs.predict_proba(inputs)), atol=1e-6)

    @pytest.mark.parametrize("is_weighted", [False, True])
    @each_shape
    def test_penalised_optima_agree_with_those_of_scipy(self, shape, is_weighted):
        samples, ridge = samples_of(1000, 4, is_weighted=is_weighted), ridge_for(shape)
        inputs, labels, weights = samples
        fit = fit_affine(inputs, labels, weights=weights, shape=shape, ridge=ridge)
        size = some_theta(4, shape).shape

        def value(flat):
            theta = torch.from_numpy(flat.copy()).requires_grad_()
            loss = value_of(theta.view(size), samples, shape, ridge)
            loss.backward()
            return loss.item(), theta.grad.numpy()

        start = np.zeros(some_theta(4, shape).numel())
        theirs = minimize(
            value, start, jac=True, method="L-BFGS-B", options={"gtol": 1e-10, "ftol": 0, "maxiter": 9999}
        )
        assert fit.certificate.objective == pytest.approx(theirs.fun, abs=1e-10)
        found = torch.from_numpy(theirs.x).view(size)
        ours = {
            "number": lambda: torch.cat([fit.weight[None], fit.bias]),
            "diagonal": lambda: torch.stack([fit.weight, fit.bias], dim=1),
            "matrix": lambda: torch.cat([fit.weight, fit.bias[:, None]], dim=1),
        }[shape]()
        assert torch.allclose(ours, found, atol=1e-6)

    @pytest.mark.parametrize("penalised", [False, True])
    @each_shape
    def test_the_start_does_not_matter(self, shape, penalised):
        (inputs, labels), ridge = rows_of(800, 4), ridge_for(shape) if penalised else Ridge()
        one = fit_affine(inputs, labels, shape=shape, ridge=ridge)
        other = fit_affine(inputs, labels, shape=shape, ridge=ridge, start=(3.0, torch.arange(4.0)))
        assert torch.allclose(one.weight, other.weight, atol=1e-5)
        assert torch.allclose(one.bias, other.bias, atol=1e-5)

    @each_shape
    def test_the_scale_of_the_inputs_does_not_matter(self, shape):
        inputs, labels = rows_of(800, 4)
        one = fit_affine(inputs, labels, shape=shape)
        for factor in (1e-4, 1e4):
            other = fit_affine(factor * inputs, labels, shape=shape, start=(1 / factor, 0.0))
            assert torch.allclose(one.weight, factor * other.weight, atol=1e-5)

    @pytest.mark.parametrize("total", [1e-60, 1e60])
    @each_shape
    def test_the_scale_of_the_weights_does_not_matter(self, shape, total):
        inputs, labels, weights = samples_of(300, 4, is_weighted=True)
        one, other = (fit_affine(inputs, labels, weights=w, shape=shape) for w in (weights, total * weights))
        assert torch.allclose(one.weight, other.weight, atol=1e-6)

    def test_a_number_added_to_all_logits_of_a_sample_does_not_matter_to_a_multiple(self):
        inputs, labels = rows_of(800, 4)
        offsets = -1e6 * torch.rand(800, 1, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
        one, other = (fit_affine(values, labels, shape="number") for values in (inputs, inputs + offsets))
        assert torch.allclose(one.weight, other.weight, atol=1e-6)

    @pytest.mark.parametrize("shape", ["number", "diagonal", "matrix"])
    def test_a_number_added_to_all_logits_of_all_samples_goes_into_the_bias(self, shape):
        inputs, labels = rows_of(800, 4)
        one, other = (fit_affine(values, labels, shape=shape) for values in (inputs, inputs - 1e4))
        shift = (one.bias - other.bias) + 1e4 * (other.weight.sum(1) if shape == "matrix" else other.weight)
        assert torch.allclose(other.weight, one.weight, atol=1e-5)
        assert torch.allclose(shift, shift.mean(), atol=1e-3)  # which no probability shows

    @each_shape
    def test_samples_of_equal_logits_may_alternate_with_others(self, shape):
        inputs, labels = rows_of(8000, 4)
        inputs[::4] = 3.0  # a stride of 4 sees no other samples
        assert fit_affine(inputs, labels, shape=shape).certificate.gradient <= 1e-8

    @each_shape
    def test_a_network_that_gives_every_sample_the_same_logits_gets_the_shares_of_the_classes(self, shape):
        labels = rows_of(1000, 4)[1]
        inputs = torch.tensor([0.1, 0.2, 0.3, 0.7], dtype=torch.float64).expand(1000, 4)
        fit = fit_affine(inputs, labels, shape=shape)
        logits = inputs[0] @ fit.weight.T + fit.bias if shape == "matrix" else inputs[0] * fit.weight + fit.bias
        assert torch.allclose(logits.softmax(0), labels.bincount().double() / 1000, atol=1e-7)

    def test_many_samples_begin_with_a_fit_of_some(self):
        inputs, labels = rows_of(20_000, 3)
        fit = fit_affine(inputs, labels, shape="diagonal")
        assert fit.certificate.steps <= 4
        assert fit.certificate.passes % 1 != 0
        assert fit.certificate.gradient <= 1e-8

    def test_off_diagonals_that_hardly_matter_are_solved_with_the_strong_preconditioner(self):
        generator = torch.Generator().manual_seed(0)
        inputs = torch.randn(600, 3, generator=generator, dtype=torch.float64) @ torch.randn(3, 12).double()
        inputs += 0.01 * torch.randn(600, 12, generator=generator, dtype=torch.float64)  # nearly of rank three
        labels = torch.multinomial((inputs / 2).softmax(1), 1, generator=generator)[:, 0]
        fit = fit_affine(inputs, labels, shape="matrix", ridge=Ridge(1e-6, 1e-6, 1e-6))
        assert fit.certificate.gradient <= 1e-8


class TestGauge:
    @each_shape
    def test_the_bias_sums_to_zero_where_it_is_free(self, shape):
        inputs, labels = rows_of(500, 4)
        assert abs(float(fit_affine(inputs, labels, shape=shape).bias.sum())) < 1e-9

    def test_off_diagonals_sum_to_zero_in_every_column_where_they_are_free(self):
        weight = fit_affine(*rows_of(800, 4), shape="matrix").weight
        assert (weight.sum(0) - weight.diagonal()).abs().max() < 1e-9

    def test_the_free_optimum_is_the_limit_of_weak_penalties(self):
        inputs, labels = rows_of(800, 4)
        free = fit_affine(inputs, labels, shape="matrix")
        nearly = fit_affine(inputs, labels, shape="matrix", ridge=Ridge(off_diagonal=1e-8, bias=1e-8))
        assert torch.allclose(free.weight, nearly.weight, atol=1e-4)
        assert torch.allclose(free.bias, nearly.bias, atol=1e-4)

    def test_what_the_samples_leave_open_stays_as_it_was(self):
        inputs, labels = rows_of(500, 2)
        inputs[:, 0] = 0  # as from_binary_logits makes it
        fit = fit_affine(inputs, labels, shape="diagonal")
        assert float(fit.weight[0]) == 1.0


class TestNoOptimum:
    @each_shape
    def test_separable_samples_are_refused(self, shape):
        inputs, _ = rows_of(200, 4)
        with pytest.raises(FitError, match="200 calibration samples are separable"):
            fit_affine(inputs, inputs.argmax(1), shape=shape)

    @pytest.mark.parametrize("n", [400, 20_000, 40_000])
    @pytest.mark.parametrize("shape", ["diagonal", "matrix"])
    def test_one_separable_class_is_enough_to_be_refused(self, shape, n):
        inputs, labels = rows_of(n, 4)
        inputs[:, 2] = torch.where(labels == 2, 5.0, -5.0) + 0.1 * inputs[:, 2]
        with pytest.raises(FitError, match="separable"):
            fit_affine(inputs, labels, shape=shape)

    def test_a_class_without_samples_is_refused_without_a_penalty(self):
        inputs, labels = rows_of(400, 4)
        seen = labels != 2
        with pytest.raises(FitError, match="separable"):
            fit_affine(inputs[seen], labels[seen], shape="number")

    @each_shape
    def test_with_penalties_both_are_fitted(self, shape):
        inputs, labels = rows_of(400, 4)
        seen = labels != 2
        assert fit_affine(inputs[seen], labels[seen], shape=shape, ridge=ridge_for(shape)).certificate.gradient <= 1e-8
        assert fit_affine(inputs, inputs.argmax(1), shape=shape, ridge=ridge_for(shape)).certificate.gradient <= 1e-8

    @pytest.mark.parametrize("shape", ["diagonal", "matrix"])
    def test_two_separable_classes_are_refused_where_the_others_overlap(self, shape):
        inputs, labels = rows_of(300, 4)
        pair = (labels == 0) | (labels == 1)
        inputs[pair, 0] = torch.where(labels[pair] == 0, 1.0, -1.0) * (1 + inputs[pair, 0].abs())
        inputs[~pair, 0] = 0
        if shape == "diagonal":  # one weight a class, so that class 1 must move, too
            inputs[pair, 1] = -inputs[pair, 0]
            inputs[~pair, 1] = 0
        with pytest.raises(FitError, match="separable"):
            fit_affine(inputs, labels, shape=shape)

    @pytest.mark.parametrize("constant", [0.0, 7.0])
    @pytest.mark.parametrize(("noise", "dtype"), [(1e-6, torch.float64), (1e-5, torch.float64), (1e-4, torch.float32)])
    @pytest.mark.parametrize(("n", "k"), [(400, 3), (2000, 5)])
    def test_logits_whose_sum_hardly_differs_have_the_optimum_that_damped_newton_finds(
        self, n, k, noise, dtype, constant
    ):
        generator = torch.Generator().manual_seed(0)
        logits = 2 * torch.randn(n, k, generator=generator, dtype=torch.float64)
        labels = torch.multinomial((0.7 * logits).softmax(1), 1, generator=generator)[:, 0]
        sums = constant + noise * torch.randn(n, 1, generator=generator, dtype=torch.float64)
        inputs = (logits - logits.mean(dim=1, keepdim=True) + sums).to(dtype)
        fit = fit_affine(inputs, labels, shape="matrix")
        assert fit.certificate.gradient < 1e-8
        assert fit.certificate.steps <= 10
        # The same samples in other coordinates: the sum, in units of its noise, in place of the last logit.
        exact = inputs.double()
        total = exact.sum(dim=1, keepdim=True)
        columns = torch.cat([exact[:, :-1], (total - total.mean()) / total.std(), torch.ones(n, 1)], dim=1)
        assert fit.certificate.objective == pytest.approx(damped_newton(columns.numpy(), labels.numpy(), k), abs=1e-9)

    def test_logits_whose_sum_differs_by_rounding_are_fitted_without_it(self):
        generator = torch.Generator().manual_seed(0)
        logits = 2 * torch.randn(1000, 4, generator=generator, dtype=torch.float64)
        labels = torch.multinomial((0.7 * logits).softmax(1), 1, generator=generator)[:, 0]
        centred = logits - logits.mean(dim=1, keepdim=True)
        for dtype in (torch.float32, torch.float64):
            fit = fit_affine(centred.to(dtype), labels, shape="matrix")
            assert fit.weight.abs().max() < 10
            assert fit.certificate.objective == pytest.approx(
                damped_newton(np.c_[centred[:, :-1].numpy(), np.ones(1000)], labels.numpy(), 4), abs=1e-7
            )

    @pytest.mark.parametrize("n", [400, 20_000])
    @pytest.mark.parametrize("shape", ["diagonal", "matrix"])
    def test_one_stray_sample_in_many_is_enough_for_an_optimum(self, shape, n):
        inputs, labels = rows_of(n, 3)
        inputs[:, 2] = torch.where(labels == 2, 5.0, -5.0) + 0.1 * inputs[:, 2]
        inputs[(labels == 0).nonzero()[0], 2] = 5.5
        inputs[(labels == 2).nonzero()[0], 2] = -5.5
        fit = fit_affine(inputs, labels, shape=shape)
        assert fit.certificate.gradient <= 1e-8


def test_a_preconditioner_that_rounding_made_indefinite_does_not_stop_the_descent():
    """Conjugate gradients divide by the product of residual and preconditioned residual, which is negative here."""

    class Bowl:
        curvature = torch.tensor([1.0, 10.0, 100.0], dtype=torch.float64)

        def value_and_gradient(self, theta, *, exact):  # noqa: ARG002
            return Point(float((self.curvature * theta.square()).sum()) / 2, self.curvature * theta)

        def hessian_product(self, direction):
            return self.curvature * direction

        def preconditioner(self, *, strong):  # noqa: ARG002
            return lambda vector: -vector

    start = torch.ones(3, dtype=torch.float64)
    found = minimise(Bowl(), start, Settings(size=torch.ones(3, dtype=torch.float64), tolerance=1e-9))
    assert found.end == "converged"
    assert found.theta.abs().max() < 1e-8
