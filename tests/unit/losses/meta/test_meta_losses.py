"""Losses that are learned: what they are at known parameters, and what they say of them."""

import math

import pytest
import torch
from torch.nn import functional as F

from calibrant import catalogue
from calibrant.errors import InputError
from calibrant.losses import (
    CrossEntropyLoss,
    DECELoss,
    FocalLoss,
    LabelSmoothingLoss,
    MetaFocalLoss,
    MetaL2Loss,
    MetaSmoothingLoss,
    SECELoss,
    loss_settings,
)

D, K, N = 6, 4, 50


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


@pytest.fixture
def batch():
    chance = torch.Generator().manual_seed(0)
    features = torch.randn(N, D, generator=chance, dtype=torch.float64)
    weight = torch.randn(K, D, generator=chance, dtype=torch.float64)
    return features, features @ weight.T, torch.randint(K, (N,), generator=chance), weight


def built(loss):
    loss.build(D, K, seed=0)
    return loss.double()


def gamma_net(n_features, n_classes, **options):
    loss = MetaFocalLoss(**options)
    loss.build(n_features, n_classes, seed=0)
    return loss.gamma_net


class TestGammaNet:
    def test_it_is_the_formula_of_the_paper(self, batch):
        features = batch[0]
        net = gamma_net(D, K, temperature=0.3, limit=1e9).double()
        attended = torch.zeros(N, D, dtype=torch.float64)
        for row in range(N):
            scores = [float(features[row] @ net.prototypes[:, c]) for c in range(K)]
            total = sum(math.exp(score) for score in scores)
            for c in range(K):
                attended[row] += math.exp(scores[c]) / total * net.prototypes[:, c].detach()
        assert torch.allclose(net(features), (attended @ net.weight).abs() / 0.3)

    def test_it_has_as_many_parameters_as_the_paper_counts(self):
        net = gamma_net(512, 100)
        assert sum(each.numel() for each in net.parameters()) == 51_712

    def test_gamma_is_1_on_average_where_it_is_initialised(self, batch):
        net = gamma_net(D, K).double()
        net.initialise(batch[0])
        assert float(net(batch[0]).mean()) == pytest.approx(1)

    def test_gamma_does_not_pass_its_limit(self, batch):
        net = gamma_net(D, K, limit=0.5).double()
        net.initialise(batch[0])
        assert float(net(batch[0]).max()) == 0.5
        assert float(net.unclipped(batch[0]).max()) > 0.5

    def test_features_that_are_no_numbers_are_refused(self):
        with pytest.raises(InputError, match="finite"):
            gamma_net(D, K).initialise(torch.full((3, D), math.nan))


class TestLimits:
    def test_with_gamma_1_everywhere_the_learned_focal_loss_is_the_focal_loss(self, batch):
        features, logits, labels, weight = batch
        loss = built(MetaFocalLoss())
        # One prototype for all classes, so that attention does not matter, and the same γ for each sample.
        loss.gamma_net.prototypes.copy_(torch.ones(D, K))
        loss.initialise(features)
        assert torch.allclose(loss.gamma_net(features), torch.ones(N, dtype=torch.float64))
        assert torch.allclose(loss(features, logits, labels, weight), FocalLoss(gamma=1)(logits, labels))

    def test_with_next_to_no_strength_the_learned_decay_is_the_cross_entropy(self, batch):
        features, logits, labels, weight = batch
        loss = built(MetaL2Loss(start=1e-30))
        assert torch.allclose(loss(features, logits, labels, weight), CrossEntropyLoss()(logits, labels))

    @pytest.mark.parametrize(("unit", "shape"), [("class", (K, 1)), ("feature", (1, D)), ("weight", (K, D))])
    def test_each_unit_has_a_strength_of_its_own(self, batch, unit, shape):
        weight = batch[3]
        loss = built(MetaL2Loss(unit=unit))
        strengths = torch.linspace(0.1, 0.9, shape[0] * shape[1], dtype=torch.float64).reshape(shape)
        loss.log_strength.copy_(strengths.log())
        expected = sum(
            float(strengths[i % shape[0], j % shape[1]] * weight[i, j] ** 2) for i in range(K) for j in range(D)
        )
        assert float(loss.penalty(weight)) == pytest.approx(expected)

    @pytest.mark.parametrize("unit", ["all", "class"])
    def test_learned_smoothing_begins_as_label_smoothing(self, batch, unit):
        features, logits, labels, weight = batch
        loss = built(MetaSmoothingLoss(start=0.1, unit=unit))
        expected = LabelSmoothingLoss(smoothing=0.1)(logits, labels)
        assert float(loss(features, logits, labels, weight)) == pytest.approx(float(expected), rel=1e-6)

    def test_each_class_has_a_smoothing_of_its_own(self, batch):
        features, logits, labels, weight = batch
        loss = built(MetaSmoothingLoss())
        loss.unbounded.copy_(torch.tensor([-9.0, 0.0, 0.0, 9.0]))
        smoothing = 0.5 * torch.tensor([-9.0, 0, 0, 9], dtype=torch.float64).sigmoid()
        by_hand = [
            F.cross_entropy(logits[i : i + 1], labels[i : i + 1], label_smoothing=float(smoothing[labels[i]]))
            for i in range(N)
        ]
        assert float(loss(features, logits, labels, weight)) == pytest.approx(float(torch.stack(by_hand).mean()))


class TestObjectives:
    def test_the_objective_is_the_error_and_as_much_cross_entropy_as_is_asked_for(self, batch):
        _, logits, labels, _ = batch
        entropy = float(CrossEntropyLoss()(logits, labels))
        for objective, error in (("sece", SECELoss()), ("dece", DECELoss())):
            alone = float(error.penalty(logits, labels))
            assert float(
                MetaFocalLoss(objective=objective, cross_entropy=0.0).held_out(logits, labels)
            ) == pytest.approx(alone)
            both = MetaFocalLoss(objective=objective, cross_entropy=2.0).held_out(logits, labels)
            assert float(both) == pytest.approx(alone + 2 * entropy)
        assert float(MetaFocalLoss(objective="ce").held_out(logits, labels)) == pytest.approx(entropy)


class TestMessages:
    def test_it_tells_how_gamma_lies_and_how_often_it_is_cut_off(self, batch):
        loss = built(MetaFocalLoss(limit=1.0))
        loss.initialise(batch[0])
        gamma = loss.gamma_net.unclipped(batch[0])
        told = loss.describe(batch[0])
        assert told["gamma_clipped"] == pytest.approx(float((gamma > 1).double().mean()))
        assert 0 < told["gamma_clipped"] < 1
        assert told["gamma_mean"] == pytest.approx(float(gamma.clamp(max=1).mean()))
        assert told["gamma_std"] == pytest.approx(float(gamma.clamp(max=1).std(correction=0)))

    def test_it_tells_the_strengths_and_the_smoothing(self):
        features = torch.zeros(1, D, dtype=torch.float64)
        assert built(MetaL2Loss(start=0.25)).describe(features) == pytest.approx(
            {"l2_mean": 0.25, "l2_least": 0.25, "l2_most": 0.25}
        )
        assert built(MetaSmoothingLoss(start=0.2)).describe(features)["smoothing_most"] == pytest.approx(0.2)


class TestRefusals:
    def test_one_that_was_not_built_says_so(self, batch):
        with pytest.raises(InputError, match="must be built"):
            MetaFocalLoss()(*batch)

    def test_features_with_a_picture_left_in_them_are_refused(self, batch):
        _, logits, labels, weight = batch
        with pytest.raises(InputError, match=r"shape \(n, d\).*Pool or flatten"):
            built(MetaFocalLoss())(torch.zeros(N, D, 2, 2), logits, labels, weight)

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: MetaFocalLoss(objective="ece"), "objective"),
            (lambda: MetaFocalLoss(temperature=0), "temperature"),
            (lambda: MetaFocalLoss(limit=-1), "limit"),
            (lambda: MetaFocalLoss(cross_entropy=-1), "cross_entropy"),
            (lambda: MetaFocalLoss(objective="ce", cross_entropy=7.0), "cross_entropy must be left out.*7.0"),
            (lambda: MetaL2Loss(objective="ce", cross_entropy=0), "cross_entropy must be left out"),
            (lambda: MetaFocalLoss(learning_rate=0), "learning_rate"),
            (lambda: MetaL2Loss(unit="layer"), "unit"),
            (lambda: MetaL2Loss(start=0), "start"),
            (lambda: MetaSmoothingLoss(start=0.5), "start"),
            (lambda: MetaSmoothingLoss(start=0), "start"),
            (lambda: MetaSmoothingLoss(unit="row"), "unit"),
        ],
    )
    def test_options_out_of_range_are_refused(self, make, message):
        with pytest.raises(InputError, match=message):
            make()


@pytest.mark.parametrize("name", catalogue.meta_losses)
def test_each_is_found_by_name_with_its_options_and_tells_them(name):
    loss = catalogue.parse_any_loss(f"{name}(objective=dece,learning_rate=0.01)")
    settings = loss_settings(loss)
    assert settings["loss"] == name
    assert (settings["objective"], settings["learning_rate"]) == ("dece", 0.01)
    assert "objective='dece'" in repr(loss)


class TestOptions:
    def test_the_error_of_the_objective_may_have_options_of_its_own(self, batch):
        _, logits, labels, _ = batch
        for text, error in (
            ("sece(bandwidth=0.2)", SECELoss(bandwidth=0.2)),
            ("dece(n_bins=4,bin_temperature=0.1)", DECELoss(n_bins=4, bin_temperature=0.1)),
        ):
            loss = catalogue.parse_any_loss(f"meta_focal(objective={text},cross_entropy=0)")
            assert float(loss.held_out(logits, labels)) == float(error.penalty(logits, labels))
        assert loss_settings(loss)["objective"]["n_bins"] == 4

    def test_a_plain_name_is_that_error_as_it_comes(self, batch):
        _, logits, labels, _ = batch
        named, given = MetaL2Loss(objective="sece"), MetaL2Loss(objective=SECELoss())
        assert float(named.held_out(logits, labels)) == float(given.held_out(logits, labels))
        assert loss_settings(named)["objective"] == "sece"

    def test_another_loss_is_no_objective(self):
        with pytest.raises(InputError, match="sece, dece or ce"):
            catalogue.parse_any_loss("meta_focal(objective=focal(gamma=2))")

    def test_an_unknown_schedule_is_refused(self):
        with pytest.raises(InputError, match="schedule"):
            MetaFocalLoss(schedule="cosine")


class TestSigns:
    SIGNS = ("absolute", "relu", "softplus", "sigmoid", "min-max")

    @pytest.mark.parametrize("sign", SIGNS)
    def test_gamma_is_never_negative_nor_above_its_limit_and_begins_around_1(self, batch, sign):
        net = gamma_net(D, K, sign=sign, limit=5.0).double()
        net.initialise(batch[0])
        gamma = net(100 * batch[0])
        assert 0 <= float(gamma.min()) <= float(gamma.max()) <= 5
        exact = {"absolute": 1e-12, "relu": 1e-12, "softplus": 0.05, "sigmoid": 0.1, "min-max": 0.9}[sign]
        assert float(net.unclipped(batch[0]).mean()) == pytest.approx(1, abs=exact)

    @pytest.mark.parametrize("sign", SIGNS)
    def test_gamma_has_a_slope_in_the_parameters(self, batch, sign):
        net = gamma_net(D, K, sign=sign).double()
        net.initialise(batch[0])
        with torch.enable_grad():
            slopes = torch.autograd.grad(net(batch[0]).square().sum(), list(net.parameters()))
        assert all(bool(slope.isfinite().all() and slope.any()) for slope in slopes)

    def test_each_is_the_formula_of_its_docstring(self, batch):
        nets = {sign: gamma_net(D, K, sign=sign, limit=4.0).double() for sign in self.SIGNS}
        attended = (batch[0] @ nets["relu"].prototypes).softmax(1) @ nets["relu"].prototypes.T
        score = attended @ nets["relu"].weight / nets["relu"].temperature
        low, high = score.min(), score.max()
        known = {
            "absolute": score.abs(),
            "relu": score.clamp(min=0),
            "softplus": (1 + (math.e - 1) * score.exp()).log(),
            "sigmoid": 4 / (1 + 3 * (-score).exp()),
            "min-max": 2 * (score - low) / (high - low),
        }
        for sign, net in nets.items():
            assert torch.allclose(net.unclipped(batch[0]), known[sign]), sign

    def test_samples_that_are_all_alike_are_in_the_middle_of_their_range(self):
        net = gamma_net(D, K, sign="min-max").double()
        assert net(torch.ones(3, D, dtype=torch.float64)).tolist() == [1, 1, 1]

    def test_a_relu_that_would_be_0_everywhere_is_turned_around(self):
        net = gamma_net(D, K, sign="relu").double()
        features = torch.ones(3, D, dtype=torch.float64)
        if float(net.unclipped(features).max()) > 0:
            net.weight.data.neg_()
        net.initialise(features)
        assert float(net(features).mean()) == pytest.approx(1)

    def test_a_sigmoid_below_1_is_refused(self):
        with pytest.raises(InputError, match="limit must be above 1"):
            MetaFocalLoss(sign="sigmoid", limit=0.5)
