import pytest
import torch
from torch import nn

from calibrant.errors import InputError
from calibrant.maps import (
    Affine,
    BetaCurve,
    ChainMap,
    Identity,
    Line,
    Mixture,
    OneVsRest,
    Polynomial,
    Scale,
    Steps,
    TopLabelMap,
    TwoClassMap,
)
from calibrant.predictions import Predictions

LOGITS = 3 * torch.randn(40, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def number(*values):
    return torch.tensor(values, dtype=torch.float64)


class TestScaleAndAffine:
    def test_a_scale_divides(self):
        assert torch.equal(Scale(torch.tensor(2.0), n_classes=4)(LOGITS), LOGITS / 2)

    def test_an_infinite_temperature_makes_all_classes_alike(self):
        alike = Scale(torch.tensor(torch.inf), n_classes=4)(LOGITS)
        assert torch.equal(alike.argmax(1), LOGITS.argmax(1))
        assert float((alike.softmax(1) - 0.25).abs().max()) <= torch.finfo(alike.dtype).eps

    def test_a_number_a_diagonal_and_a_matrix_can_say_the_same(self):
        bias = number(1, 2, 3, 4)
        maps = [Affine(weight, bias, n_classes=4) for weight in (number(2)[0], 2 * torch.ones(4), 2 * torch.eye(4))]
        for made in maps:
            assert torch.allclose(made(LOGITS), 2 * LOGITS + bias)

    def test_row_j_of_the_matrix_makes_logit_j(self):
        weight = torch.zeros(4, 4)
        weight[0, 3] = 1
        assert torch.equal(Affine(weight, torch.zeros(4), n_classes=4)(LOGITS)[:, 0], LOGITS[:, 3])

    def test_of_log_probabilities_a_shift_of_the_logits_does_not_matter(self):
        made = Affine(torch.rand(4, 4), torch.rand(4), n_classes=4, of_log_probs=True)
        assert torch.allclose(made(LOGITS + 5), made(LOGITS))


class TestCurves:
    def test_steps_are_closed_on_the_right(self):
        curve = Steps(edges=number(0, 1)[None], values=number(-1, 5, 9)[None])
        assert curve(number(-3, 0, 0.5, 1, 1.5)).tolist() == [-1, -1, 5, 5, 9]

    def test_each_class_may_have_its_own_steps(self):
        edges = torch.stack([number(0, 1), number(2, torch.inf)])
        values = torch.stack([number(1, 2, 3), number(4, 5, 6)])
        curve = Steps(edges, values)
        assert curve(torch.tensor([[0.5, 0.5], [9.0, 9.0]])).tolist() == [[2, 4], [3, 5]]

    def test_a_line_is_straight_between_its_knots_and_level_beyond(self):
        curve = Line(knots=number(0, 2, 4)[None], values=number(1, 5, 5)[None])
        assert curve(number(-1, 0, 1, 3, 9)).tolist() == [1, 1, 3, 5, 5]

    def test_a_polynomial_has_its_lowest_power_first(self):
        assert Polynomial(number(1, 2, 3)[None])(number(2)).tolist() == [1 + 4 + 12]

    def test_a_beta_curve_of_ones_changes_nothing(self):
        log_odds = number(-3, 0, 7)
        assert torch.allclose(BetaCurve(number(1), number(1), number(0))(log_odds), log_odds)


class TestCurvedMaps:
    identity = Polynomial(number(0, 1)[None])

    def test_the_curve_that_changes_nothing_changes_no_probability(self):
        for made in (TopLabelMap(self.identity, n_classes=4), OneVsRest(self.identity, n_classes=4)):
            assert torch.allclose(made(LOGITS), LOGITS.log_softmax(1))
        assert torch.allclose(TwoClassMap(self.identity)(LOGITS[:, :2]), LOGITS[:, :2].log_softmax(1))

    def test_one_against_the_rest_divides_by_the_sum(self):
        values = torch.logit(number(0.2, 0.6))[None]
        made = OneVsRest(Steps(number(0)[None], values), n_classes=3)
        probs = made(torch.tensor([[5.0, 0.0, 0.0]], dtype=torch.float64)).exp()
        assert probs[0].tolist() == pytest.approx([0.6, 0.2, 0.2])

    def test_equal_steps_give_equal_confidences_to_the_last_bit(self):
        made = TopLabelMap(Steps(number(0)[None], torch.logit(number(0.7, 0.7))[None]), n_classes=4)
        predictions = Predictions.from_logits(LOGITS.float(), torch.zeros(40, dtype=torch.int64))
        assert len(made.transform(predictions).confidence.unique()) == 1


class TestCompositions:
    def test_a_mixture_is_the_mean_of_probabilities(self):
        parts = [Scale(torch.tensor(2.0), n_classes=4), Identity(n_classes=4)]
        mixed = Mixture(number(0.25, 0.75), parts, n_classes=4)(LOGITS).exp()
        assert torch.allclose(mixed, 0.25 * (LOGITS / 2).softmax(1) + 0.75 * LOGITS.softmax(1))

    def test_a_part_without_weight_does_not_count(self):
        parts = [Scale(torch.tensor(2.0), n_classes=4), Identity(n_classes=4)]
        assert torch.allclose(Mixture(number(1, 0), parts, n_classes=4)(LOGITS).exp(), (LOGITS / 2).softmax(1))

    def test_a_mixture_of_a_map_with_a_uniform_share_is_that_map(self):
        part = Scale(number(2.0)[0], n_classes=4)
        part.mix_in(number(0.1)[0])
        mixed = Mixture(number(1), [part], n_classes=4)
        assert torch.allclose(mixed(100 * LOGITS).exp(), part(100 * LOGITS).softmax(1))

    @pytest.mark.parametrize("call", [lambda made: made(number(1)[0]), lambda made: made.predict_proba(logits=3.0)])
    def test_a_single_number_is_refused(self, call):
        with pytest.raises(InputError, match=r"a single number|must have shape"):
            call(Identity(n_classes=4))

    def test_a_mixture_can_keep_the_predicted_class_ahead_of_all_ties(self):
        flat = [Scale(torch.tensor(torch.inf), n_classes=4)]
        mixed = Mixture(number(1), flat, n_classes=4, keeps_predicted=True)(LOGITS)
        assert torch.equal(mixed.argmax(1), LOGITS.argmax(1))
        assert torch.allclose(mixed.exp().sum(1), number(1), rtol=1e-14)

    def test_keeping_it_ahead_changes_no_sample_where_it_is(self):
        parts = [Scale(torch.tensor(2.0), n_classes=4), Identity(n_classes=4)]
        plain, kept = (Mixture(number(0.25, 0.75), parts, n_classes=4, keeps_predicted=each) for each in (False, True))
        assert torch.equal(kept(LOGITS), plain(LOGITS))

    def test_a_chain_goes_from_left_to_right(self):
        shift = Affine(number(1)[0], torch.ones(4), n_classes=4)
        chain = ChainMap([shift, Scale(torch.tensor(2.0), n_classes=4)], n_classes=4)
        assert torch.allclose(chain(LOGITS), (LOGITS + 1) / 2)

    def test_uncalibrated_keeps_given_confidences(self):
        given = Predictions.from_probs([[0.7, 0.2, 0.1], [0.7, 0.15, 0.15]], [0, 1])
        for made in (Identity(n_classes=3), ChainMap([Identity(n_classes=3)], n_classes=3)):
            assert made.transform(given).normalised

    def test_it_stands_behind_a_network(self):
        network = nn.Sequential(nn.Linear(7, 4), Scale(torch.tensor(2.0), n_classes=4))
        inputs = torch.randn(3, 7)
        assert torch.equal(network(inputs), network[0](inputs) / 2)


class TestRefusals:
    def test_results_that_are_no_numbers_are_not_passed_on(self):
        made = Scale(torch.tensor(torch.nan), n_classes=4)
        with pytest.raises(InputError, match="finite"):
            made.transform(Predictions.from_logits(LOGITS, torch.zeros(40, dtype=torch.int64)))


class TestCasts:
    def test_half_precision_leaves_steps_where_they_are(self):
        made = TopLabelMap(Steps(number(1.001, 1.003)[None], number(1, 2, 3)[None]), n_classes=4)
        for cast in (made.bfloat16(), made.half(), made.to(torch.bfloat16)):
            assert cast.curve.edges.dtype == torch.float64
            assert cast.curve.edges.tolist() == [[1.001, 1.003]]

    def test_single_precision_and_devices_are_as_ever(self):
        made = Scale(torch.tensor(2.0), n_classes=4)
        assert made.float().temperature.dtype == torch.float32
        assert made.double().temperature.dtype == torch.float64
        assert made.to("meta", torch.bfloat16).temperature.device.type == "meta"

    def test_whole_numbers_are_not_truncated(self):
        result = Scale(torch.tensor(2.0), n_classes=3)(torch.tensor([[3, 1, 0]]))
        assert result.dtype == torch.float32
        assert result.tolist() == [[1.5, 0.5, 0.0]]


class TestNamesOfClasses:
    """A map refuses scores whose classes stand in another order than those of its fit."""

    @pytest.fixture
    def frame(self):
        pandas = pytest.importorskip("pandas")
        probs = (3 * torch.randn(60, 3, generator=torch.Generator().manual_seed(0))).softmax(1)
        return pandas.DataFrame(probs.numpy(), columns=["prob_cat", "prob_dog", "prob_eel"])

    @pytest.fixture
    def labels(self, frame):
        probs = torch.tensor(frame.to_numpy())
        drawn = probs.sqrt().multinomial(1, generator=torch.Generator().manual_seed(1))[:, 0]
        return [["cat", "dog", "eel"][number] for number in drawn]

    def test_a_frame_in_another_order_is_refused_by_a_fitted_and_by_a_loaded_map(self, frame, labels, tmp_path):
        from calibrant import TemperatureScaling, load_map, save_map

        fitted = TemperatureScaling().fit(probs=frame, labels=labels)
        save_map(fitted, tmp_path / "map.safetensors")
        turned = frame[frame.columns[::-1]]
        for made in (fitted, load_map(tmp_path / "map.safetensors")):
            assert made.class_names == ("cat", "dog", "eel")
            assert made.predict_proba(probs=frame).shape == (60, 3)
            with pytest.raises(InputError, match="another order"):
                made.predict_proba(probs=turned)
            with pytest.raises(InputError, match="another order"):
                made.transform(Predictions.from_probs(turned, labels))
            with pytest.raises(InputError, match="other names"):
                made.predict_proba(probs=frame.rename(columns={"prob_eel": "prob_cow"}))

    def test_columns_of_numbers_and_arrays_have_no_names_to_compare(self, frame, labels):
        from calibrant import TemperatureScaling

        fitted = TemperatureScaling().fit(probs=frame, labels=labels)
        for plain in (frame.to_numpy(), frame.set_axis(range(3), axis=1)):
            assert (fitted.predict_proba(probs=plain) == fitted.predict_proba(probs=frame)).all()

    def test_a_map_of_features_compares_them_too(self, frame, labels):
        from calibrant.calibrators import DensityRatioCalibration

        samples, features = Predictions.from_probs(frame, labels), torch.eye(60, 4)
        fitted = DensityRatioCalibration().fit(samples, features)
        with pytest.raises(InputError, match="another order"):
            fitted.transform(Predictions.from_probs(frame[frame.columns[::-1]], labels), features)
