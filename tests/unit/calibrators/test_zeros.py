"""Probabilities of exactly 0: what is mixed in, that the map keeps it, and that no method is wrecked by them."""

import math
import warnings

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier

from calibrant import catalogue
from calibrant.calibrators import IsotonicRegression, TemperatureScaling
from calibrant.calibrators.selection import rank
from calibrant.errors import CalibrantWarning
from calibrant.evaluation import evaluate
from calibrant.files import load_map, save_map
from calibrant.maps import Scale
from calibrant.metrics import accuracy, calibration_refinement, nll
from calibrant.numerics.uniform_share import choose_share, floored, mixed
from calibrant.predictions import Predictions, predictions
from calibrant.report import evaluation_page, verdict

MODELS = {
    "forest": lambda: RandomForestClassifier(100, random_state=0),
    "bayes": GaussianNB,
    "neighbours": KNeighborsClassifier,
}


@pytest.fixture(scope="module")
def digits():
    """Probabilities of three models for calibration and test samples, by the model's name."""
    pixels, labels = load_digits(return_X_y=True)
    pixels, rest, labels, rest_labels = train_test_split(pixels, labels, test_size=0.6, random_state=0)
    halves = train_test_split(rest, rest_labels, test_size=0.5, random_state=0)
    made = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrantWarning)
        for name, model in MODELS.items():
            fitted = model().fit(pixels, labels)
            made[name] = tuple(
                Predictions.from_probs(fitted.predict_proba(x), y)
                for x, y in ((halves[0], halves[2]), (halves[1], halves[3]))
            )
    return made


def with_zeros(n=400, k=4, seed=0):
    """Samples of which a third have zeros in all classes but one, and one in forty of those is wrong."""
    generator = np.random.default_rng(seed)
    probs = generator.dirichlet(np.ones(k), n)
    sure = generator.random(n) < 1 / 3
    probs[sure] = np.eye(k)[generator.integers(k, size=sure.sum())]
    labels = np.array([generator.choice(k, p=row) for row in probs])
    wrong = sure & (generator.random(n) < 1 / 40)
    labels[wrong] = (labels[wrong] + 1) % k
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrantWarning)
        return Predictions.from_probs(probs, labels)


class TestTheShare:
    def test_and_a_temperature_give_certain_predictions_the_confidence_they_deserve(self):
        generator = np.random.default_rng(1)
        probs = np.eye(4)[generator.integers(4, size=8000)]
        labels = probs.argmax(1)
        wrong = generator.random(8000) < 1 / 40
        labels[wrong] = (labels[wrong] + generator.integers(1, 4, size=wrong.sum())) % 4
        log_probs = torch.from_numpy(probs).clamp(min=1e-30).log()
        share = choose_share(log_probs, torch.from_numpy(labels))
        floor = mixed(log_probs, torch.tensor(share, dtype=torch.float64)) if share else log_probs
        fitted = catalogue.parse_calibrator("temperature").fit(Predictions.from_logits(floor, labels))
        assert float(fitted(floor).softmax(1).amax(1).mean()) == pytest.approx(1 - wrong.mean(), abs=1e-4)

    def test_is_too_small_to_matter_where_a_temperature_needs_none(self):
        generator = torch.Generator().manual_seed(0)
        logits = 8 * torch.randn(3000, 5, generator=generator, dtype=torch.float64)
        labels = (logits / 2).softmax(1).multinomial(1, generator=generator)[:, 0]
        rows = Predictions.from_probs(logits.softmax(1), labels)
        assert float(rows.probs.min()) < 1e-12
        share = rows.uniform_share
        plain, again = (
            catalogue.parse_calibrator("temperature").fit(each) for each in (Predictions(logits, labels), rows)
        )
        assert share < 1e-6
        assert nll(again.transform(rows)) == pytest.approx(nll(plain.transform(Predictions(logits, labels))), rel=1e-3)

    def test_is_none_for_the_few_cells_that_a_softmax_makes_tiny(self):
        generator = torch.Generator().manual_seed(0)
        logits = 10 * torch.randn(2000, 10, generator=generator)
        rows = Predictions.from_probs(logits.softmax(1), logits.argmax(1))
        assert (rows.probs < 1e-20).any()  # far below what is asked for
        assert rows.uniform_share == 0.0

    def test_lets_no_zero_stand_for_less_than_the_model_can_tell(self):
        """No sample is wrong where a class got no votes, and still a zero is not believed."""
        generator = np.random.default_rng(0)
        votes = np.array([generator.multinomial(5, p) for p in generator.dirichlet(np.full(3, 0.3), 500)])
        labels = np.array([generator.choice(3, p=row / 5) for row in votes])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrantWarning)
            assert Predictions.from_probs(votes / 5, labels).uniform_share >= 0.1

    @pytest.mark.parametrize("labels", ["all right", "two samples"])
    def test_is_the_rule_of_succession_where_nothing_can_be_learned(self, labels):
        rows = with_zeros()
        sure = (rows.confidence == 1).nonzero()[:, 0]
        rows = rows[sure[:2]] if labels == "two samples" else Predictions.from_probs(rows.probs, rows.predicted)
        assert rows.uniform_share == pytest.approx(1 / (len(rows) + 1))

    def test_is_not_asked_for_where_nothing_is_tiny(self):
        rows = Predictions.from_probs(torch.tensor([[0.7, 0.3], [1e-9, 1 - 1e-9]], dtype=torch.float64), [0, 1])
        assert rows.uniform_share == 0.0
        assert Predictions.from_logits([[0.0, -500.0], [0.0, 1.0]], [0, 1]).uniform_share == 0.0

    def test_is_the_same_for_every_type(self):
        rows = with_zeros()
        probs = rows.probs.where(rows.probs > 1e-20, 0.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrantWarning)
            shares = [
                Predictions.from_probs(probs.to(dtype), rows.labels).uniform_share
                for dtype in (torch.float32, torch.float64)
            ]
        assert shares[0] == shares[1] > 0

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("share", [1e-29, 1e-6, 0.1, 0.5])
    def test_keeps_the_predicted_class_of_classes_one_rounding_apart(self, dtype, share):
        generator = torch.Generator().manual_seed(0)
        low = torch.randn(2000, 5, generator=generator, dtype=dtype)
        low[:, 3] = low.amax(dim=1)
        low[:, 4] = torch.nextafter(low[:, 3], torch.tensor(torch.inf, dtype=dtype))
        assert torch.equal(floored(low, torch.tensor(share, dtype=dtype)).argmax(1), low.argmax(1))

    def test_keeps_the_order_of_samples_by_confidence(self):
        rows = with_zeros()
        after = floored(rows.logits, torch.tensor(0.2, dtype=torch.float64)).exp().amax(1)
        order = rows.confidence.argsort(stable=True)
        assert (after[order].diff() >= -1e-15).all()


class TestTheMap:
    @pytest.mark.parametrize("name", ["temperature", "svs", "platt", "isotonic", "ets", "histogram_classwise"])
    def test_answers_logits_as_it_answers_probabilities(self, name):
        rows = with_zeros()
        fitted = catalogue.parse_calibrator(name).fit(rows)
        assert fitted.uniform_share is not None
        offset = rows.logits + 7.0
        torch.testing.assert_close(fitted(rows.logits).softmax(-1), fitted(offset).softmax(-1), rtol=1e-10, atol=1e-13)

    @pytest.mark.parametrize("name", ["temperature", "sms", "temperature+isotonic"])
    def test_is_read_back_with_its_share(self, tmp_path, name):
        rows = with_zeros()
        fitted = catalogue.parse_calibrator(name).fit(rows)
        save_map(fitted, tmp_path / "map.safetensors", fitted_on=rows)
        again = load_map(tmp_path / "map.safetensors")
        assert torch.equal(again(rows.logits), fitted(rows.logits))

    @pytest.mark.parametrize("name", ["temperature", "temperature+irm", "auto"])
    def test_says_what_was_mixed_in(self, name):
        fitted = catalogue.parse_calibrator(name).fit(with_zeros())
        assert fitted.summary is not None
        assert sum("of the given probabilities are 0" in note for note in fitted.summary.notes) == 1
        assert "uniform_share" in repr(fitted)

    def test_uncalibrated_has_none(self):
        rows = with_zeros()
        fitted = catalogue.parse_calibrator("uncalibrated").fit(rows)
        assert fitted.uniform_share is None
        assert fitted.transform(rows).given_as_probs
        assert nll(fitted.transform(rows)) == nll(rows)

    def test_of_a_chain_has_it_in_its_first_step_only(self):
        chain = catalogue.parse_calibrator("temperature+isotonic").fit(with_zeros())
        shares = [part.uniform_share for part in chain.maps]
        assert chain.uniform_share is None
        assert shares[0] is not None
        assert shares[1] is None

    def test_can_be_exported(self):
        rows = with_zeros()
        fitted = catalogue.parse_calibrator("temperature").fit(rows)
        exported = torch.export.export(fitted, (rows.logits,)).module()
        torch.testing.assert_close(exported(rows.logits), fitted(rows.logits))

    def test_without_a_share_is_as_before(self):
        logits = torch.randn(10, 3)
        assert torch.equal(Scale(torch.tensor(2.0), n_classes=3)(logits), logits / 2)


class TestModelsWithZeros:
    # Log-loss on new samples that scikit-learn's CalibratedClassifierCV reaches on these, by temperature or sigmoid,
    # rounded up: without a floor these were 1.8 (platt on the forest) and .96 (temperature on naive Bayes).
    @pytest.mark.parametrize(
        ("model", "name", "most"),
        [
            ("forest", "temperature", 0.14),
            ("forest", "sms", 0.13),
            ("forest", "platt", 0.18),
            ("bayes", "temperature", 0.60),
            ("bayes", "svs", 0.56),
            ("bayes", "platt", 0.56),
            ("neighbours", "temperature", 0.12),
            ("neighbours", "svs", 0.12),
        ],
    )
    def test_are_not_wrecked(self, digits, model, name, most):
        calibration, test = digits[model]
        calibrated = catalogue.parse_calibrator(name).fit(calibration).transform(test)
        assert nll(calibrated) < most
        assert accuracy(calibrated) > accuracy(test) - 0.01

    def test_have_their_zeros_counted(self, digits):
        _, test = digits["neighbours"]
        zeros = test.zero_cells
        assert zeros is not None
        given = test.probs < 1e-20
        assert zeros.cells == int(given.sum())
        assert zeros.of_cells == test.logits.numel()
        assert zeros.labels == zeros.floored_labels == int(given.gather(1, test.labels[:, None]).sum())
        assert zeros.smallest == pytest.approx(0.2)
        assert nll(test) <= -math.log(1e-15)

    def test_have_their_zeros_in_the_report(self, digits):
        _, test = digits["bayes"]
        found = evaluate(test, resamples=50)
        assert found.zeros == test.zero_cells
        written = evaluation_page(found).data()["zeros"]
        assert (written["read_as"], written["label_floor"]) == (1e-30, 1e-15)
        (line,) = [line for line in verdict(found).findings if "of the probabilities are 0" in line]
        assert "depends on that choice" in line

    def test_report_what_the_temperature_that_can_be_fitted_removes(self, digits):
        _, test = digits["forest"]
        split = calibration_refinement(test)["nll"]
        floor = catalogue.parse_calibrator("temperature").fit(test).transform(test)
        assert split.total == pytest.approx(nll(test), rel=1e-9)
        assert split.refinement == pytest.approx(nll(floor), rel=0.1)


def test_the_share_is_chosen_once_for_all_folds_and_methods(monkeypatch):
    calls = []
    monkeypatch.setattr(predictions, "choose_share", lambda *given: calls.append(given) or choose_share(*given))
    rows = with_zeros()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrantWarning)
        ranking = rank(rows, [TemperatureScaling(), IsotonicRegression()], folds=3)
    assert len(calls) == 1
    assert not any(result.failure for result in ranking.results)
    assert rows.part(torch.arange(50)).uniform_share == rows.uniform_share
