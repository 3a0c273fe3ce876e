"""Many small logistic regressions: against scikit-learn, and where there is no optimum."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch.nn.functional import binary_cross_entropy_with_logits as log_loss

from calibrant.numerics.logistic import Targets, fit_logistic


def line(scores):
    return torch.stack([torch.ones_like(scores), scores], dim=1)


def parabola(scores):
    return torch.stack([torch.ones_like(scores), scores, scores.square()], dim=1)


def noisy(n, c, *, seed=0):
    """Scores of c classes and labels that follow them loosely."""
    generator = torch.Generator().manual_seed(seed)
    scores = 3 * torch.randn(c, n, generator=generator, dtype=torch.float64) - 1
    labels = torch.multinomial((0.6 * scores.T).softmax(1), 1, generator=generator)[:, 0]
    return scores, labels


def targets(labels, classes, *, hit=1.0, miss=0.0):
    full = torch.ones(len(classes), dtype=torch.float64)
    return Targets(labels, torch.tensor(classes), hit * full, miss * full)


def sklearn_weights(features, hit):
    """The intercept and the slopes; the features have the constant first."""
    made = LogisticRegression(C=np.inf, tol=1e-12, max_iter=10_000).fit(features[1:].T.numpy(), hit.numpy())
    return np.concatenate([made.intercept_, made.coef_[0]])


class TestOptimum:
    @pytest.mark.parametrize("features", [line, parabola])
    def test_it_is_scikit_learns_for_every_class(self, features):
        scores, labels = noisy(1500, 4)
        fit = fit_logistic(scores, targets(labels, range(4)), features)
        assert fit.converged.all()
        for j in range(4):
            expected = sklearn_weights(features(scores[j : j + 1])[0], labels == j)
            assert np.allclose(fit.weights[j].numpy(), expected, rtol=1e-5, atol=1e-6)

    @pytest.mark.parametrize("n", [700, 100_000])  # the second starts from a subsample
    def test_its_certificate_is_what_the_samples_say(self, n):
        scores, labels = noisy(n, 3, seed=1)
        fit = fit_logistic(scores, targets(labels, range(3)), line)
        weights = fit.weights.clone().requires_grad_()
        logits = (weights[:, None] @ line(scores))[:, 0]
        losses = log_loss(logits, (labels == torch.arange(3)[:, None]).double(), reduction="none").mean(1)
        losses.sum().backward()
        losses = losses.detach()
        assert torch.allclose(losses, fit.objective, rtol=1e-12)
        assert weights.grad.abs().max() < 1e-8
        assert fit.certificate().gradient < 1e-8
        assert fit.certificate().objective == pytest.approx(float(losses.mean()))

    def test_a_subsample_saves_passes_over_all_samples(self):
        scores, labels = noisy(200_000, 2, seed=2)
        assert fit_logistic(scores, targets(labels, range(2)), line).passes < 6

    @pytest.mark.parametrize("scale", [1e-4, 1e4])
    def test_the_size_of_the_scores_does_not_matter(self, scale):
        scores, labels = noisy(800, 2)
        plain = fit_logistic(scores, targets(labels, range(2)), parabola)
        scaled = fit_logistic(scale * scores, targets(labels, range(2)), parabola)
        powers = torch.tensor([1.0, scale, scale**2], dtype=torch.float64)
        assert torch.allclose(scaled.weights * powers, plain.weights, rtol=1e-6, atol=1e-9)

    def test_soft_targets_give_their_cross_entropy(self):
        scores, labels = noisy(500, 2, seed=3)
        scores = scores[1:]
        aim = targets(labels, [1], hit=0.9, miss=0.2)
        target = aim.of(slice(None))[0].numpy()
        # A sample of target t is t samples that are hits and 1 - t that are not.
        twice, weight = np.tile(scores.numpy().T, (2, 1)), np.concatenate([target, 1 - target])
        made = LogisticRegression(C=np.inf, tol=1e-12, max_iter=10_000)
        made.fit(twice, np.repeat([1, 0], 500), sample_weight=weight)
        expected = [made.intercept_[0], made.coef_[0, 0]]
        assert fit_logistic(scores, aim, line).weights[0].tolist() == pytest.approx(expected, rel=1e-5)

    def test_features_that_are_not_active_have_no_weight(self):
        scores, labels = noisy(900, 2)
        active = torch.tensor([[True, False, True], [True, True, True]])
        fit = fit_logistic(scores, targets(labels, range(2)), parabola, active=active)
        assert fit.weights[0, 1] == 0
        square_alone = torch.stack([torch.ones_like(scores[0]), scores[0].square()])
        expected = sklearn_weights(square_alone, labels == 0)
        assert np.allclose(fit.weights[0, [0, 2]].numpy(), expected, rtol=1e-5, atol=1e-6)


class TestNoOptimum:
    def test_separable_classes_are_reported(self):
        scores, labels = torch.tensor([[-3.0, -2.0, -1.0, 1.0, 2.0, 4.0]]), torch.tensor([0, 0, 0, 1, 1, 1])
        assert fit_logistic(scores, targets(labels, [1]), line).converged.tolist() == [False]

    def test_classes_that_only_touch_are_reported(self):
        scores, labels = torch.tensor([[-3.0, -2.0, -1.0, -1.0, 2.0, 4.0]]), torch.tensor([0, 0, 0, 1, 1, 1])
        assert fit_logistic(scores, targets(labels, [1]), line).converged.tolist() == [False]

    def test_a_class_without_samples_is_reported_and_the_others_are_fitted(self):
        scores, labels = noisy(300, 3)
        fit = fit_logistic(scores, targets(labels, [0, 7, 2]), line)
        assert fit.converged.tolist() == [True, False, True]

    def test_soft_targets_always_leave_an_optimum(self):
        scores, labels = torch.tensor([[-3.0, -2.0, -1.0, 1.0, 2.0, 4.0]]), torch.tensor([0, 0, 0, 1, 1, 1])
        fit = fit_logistic(scores, targets(labels, [1], hit=0.8, miss=0.2), parabola)
        assert fit.converged.all()
        assert torch.isfinite(fit.weights).all()


class TestRedundantFeatures:
    def test_equal_scores_give_the_share_of_hits(self):
        labels = torch.tensor([1, 1, 1, 0])
        fit = fit_logistic(torch.full((1, 4), 2.5), targets(labels, [1]), parabola)
        assert fit.converged.all()
        value = (fit.weights @ parabola(torch.tensor([[2.5]], dtype=torch.float64))[0]).sigmoid()
        assert float(value) == pytest.approx(0.75)

    def test_two_distinct_scores_and_three_features_fit_both_shares(self):
        scores = torch.tensor([[-100.0, -100.0, -100.0, 100.0, 100.0, 100.0]])
        fit = fit_logistic(scores, targets(torch.tensor([0, 0, 1, 1, 1, 0]), [1]), parabola)
        both = torch.tensor([[-100.0, 100.0]], dtype=torch.float64)
        assert (fit.weights @ parabola(both)[0]).sigmoid().flatten().tolist() == pytest.approx([1 / 3, 2 / 3])
