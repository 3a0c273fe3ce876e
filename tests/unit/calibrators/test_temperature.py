import math
import warnings

import made_samples
import pytest
import torch
from scipy.optimize import minimize_scalar

from calibrant import catalogue
from calibrant.calibrators import TemperatureScaling
from calibrant.clamping import NeuralClamping
from calibrant.errors import CalibrantWarning, FitError, InputError
from calibrant.metrics import ECE, auroc, nll
from calibrant.predictions import Predictions


def overconfident(n=3000, k=5, *, temperature=2.0, dtype=torch.float32, **how):
    return made_samples.overconfident(n, k, sharpness=temperature, dtype=dtype, **how)


def test_the_temperature_that_made_the_labels_is_found():
    fitted = TemperatureScaling().fit(overconfident(100_000, temperature=2.5))
    assert float(fitted.temperature) == pytest.approx(2.5, rel=0.01)


def test_at_the_optimum_the_expected_logit_is_the_labels_on_average():
    rows = overconfident(dtype=torch.float64)
    logits = TemperatureScaling().fit(rows).transform(rows).logits
    expected = (logits.softmax(1) * logits).sum(1).mean()
    assert float(expected) == pytest.approx(float(logits.gather(1, rows.labels[:, None]).mean()), abs=1e-5)


def test_it_is_equivariant_to_the_scale_of_the_logits():
    rows = overconfident()
    scaled = Predictions.from_logits(7 * rows.logits, rows.labels)
    first, second = (float(TemperatureScaling().fit(each).temperature) for each in (rows, scaled))
    assert second == pytest.approx(7 * first, rel=1e-5)


def test_probabilities_and_logits_give_the_same_answer():
    rows = overconfident(dtype=torch.float64)
    same = Predictions.from_probs(rows.probs, rows.labels)
    first, second = (TemperatureScaling().fit(each).transform(each).probs for each in (rows, same))
    assert torch.allclose(first, second, atol=1e-5)


def test_two_classes_keep_their_auroc():
    rows = overconfident(k=2)
    assert auroc(TemperatureScaling().fit(rows).transform(rows)) == auroc(rows)


def test_mostly_wrong_predictions_get_a_positive_temperature():
    rows = overconfident()
    wrong = Predictions.from_logits(rows.logits, rows.logits.argmin(1))
    with pytest.warns(CalibrantWarning, match="no better than guessing.*shifted by one class"):
        fitted = TemperatureScaling().fit(wrong)
    assert float(fitted.temperature) > 0
    assert nll(fitted.transform(wrong)) == pytest.approx(torch.tensor(5.0).log().item(), abs=1e-2)


@pytest.mark.filterwarnings("ignore:.*worse than no calibration")
@pytest.mark.parametrize("size", [1e-3, 1.0, 1e6, 1e100])
def test_without_a_mistake_half_an_unseen_one_is_counted_with_a_warning(size):
    logits = overconfident(300, dtype=torch.float64).logits
    labels, runner_up = logits.topk(2, dim=1).indices.unbind(1)
    with pytest.warns(CalibrantWarning, match="half a pseudo-error.*some wrong predictions"):
        fitted = TemperatureScaling().fit(Predictions.from_logits(size * logits, labels))

    def loss(log_beta):
        log_probs = (math.exp(log_beta) * logits).log_softmax(1)
        seen, unseen = (-log_probs.gather(1, chosen[:, None]).mean() for chosen in (labels, runner_up))
        return float(seen + unseen / (2 * len(labels)))

    best = minimize_scalar(loss, bounds=(-10, 10), method="bounded", options={"xatol": 1e-10})
    assert float(fitted.temperature) / size == pytest.approx(math.exp(-best.x), rel=1e-4)
    certificate = fitted.summary.certificate
    assert certificate.objective == pytest.approx(best.fun, rel=1e-9)
    assert certificate.gradient < 1e-8
    assert any("half a pseudo-error" in note for note in fitted.summary.notes)


def test_without_a_mistake_the_focal_criterion_has_no_temperature():
    rows = overconfident()
    with pytest.raises(FitError, match="some wrong predictions"):
        TemperatureScaling(criterion="focal").fit(Predictions.from_logits(rows.logits, rows.predicted))


def test_the_focal_criterion_flattens_more():
    rows = overconfident()
    plain, focal = (float(TemperatureScaling(criterion=name).fit(rows).temperature) for name in ("nll", "focal"))
    assert focal > 1.1 * plain


def test_a_focal_criterion_without_focus_is_the_log_loss():
    rows = overconfident()
    plain = TemperatureScaling().fit(rows)
    assert torch.equal(TemperatureScaling(criterion="focal", gamma=0.0).fit(rows).temperature, plain.temperature)


@pytest.mark.parametrize(
    ("criterion", "grid"),
    [
        ("ece-neural-clamping", [i / 1000 for i in range(1, 5001)]),
        ("ece-overconfidence", [i / 100 for i in range(1, 1001)]),
        ("ece-meta-regularization", [i / 10 for i in range(1, 101)]),
    ],
)
def test_each_error_criterion_takes_the_lowest_of_its_papers_grid(criterion, grid):
    rows = overconfident(300, dtype=torch.float64)
    errors = [ECE()(Predictions.from_logits(rows.logits / t, rows.labels)) for t in grid[:: len(grid) // 100]]
    chosen = float(TemperatureScaling(criterion=criterion).fit(rows).temperature)
    assert chosen in grid
    at_chosen = ECE()(Predictions.from_logits(rows.logits / chosen, rows.labels))
    assert at_chosen <= min(errors) + 1e-9


def test_the_end_of_a_grid_is_not_taken_in_silence():
    rows = overconfident(temperature=40.0)
    with pytest.warns(CalibrantWarning, match="end of the grid"):
        TemperatureScaling(criterion="ece-meta-regularization").fit(rows)


def test_one_sample_in_a_hundred_thousand_cannot_hide():
    rows = overconfident(100_000)
    logits = rows.logits.clone()
    logits[7] = torch.tensor([1e4, 0, 0, 0, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = TemperatureScaling().fit(Predictions.from_logits(logits, rows.labels))
    assert fitted.summary.certificate.gradient < 1e-4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"criterion": "mse"}, "criterion must be one of nll, focal"),
        ({"gamma": -1.0}, "gamma must be at least 0"),
        ({"gamma": float("nan")}, "gamma must be at least 0"),
        ({"n_bins": 0}, "n_bins must be at least 1"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        TemperatureScaling(**options)


def test_a_table_of_top_labels_is_refused():
    with pytest.raises(InputError, match="must be fitted on Predictions; got TopLabel"):
        TemperatureScaling().fit(overconfident().top)


class TestGivenValue:
    def test_a_given_temperature_is_taken_and_nothing_is_fitted(self):
        rows = overconfident()
        for value in (1.5, 0.2):
            if value < 1:  # sharper than predictions that are too sure already
                with pytest.warns(CalibrantWarning, match="worse than no calibration"):
                    fitted = TemperatureScaling(value=value).fit(rows)
            else:
                fitted = TemperatureScaling(value=value).fit(rows)
            assert float(fitted.temperature) == value
            assert fitted.summary.certificate is None
            assert torch.equal(fitted.transform(rows).logits, rows.logits / value)

    def test_it_needs_no_wrong_sample(self):
        rows = Predictions.from_logits(5 * torch.eye(3), torch.arange(3))
        assert float(TemperatureScaling(value=0.9).fit(rows).temperature) == 0.9

    def test_it_is_written_as_the_other_options_are(self):
        assert catalogue.parse_calibrator("temperature(value=1.5)") == TemperatureScaling(value=1.5)
        assert catalogue.parse_calibrator("temperature(value=none)") == TemperatureScaling()

    @pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan")])
    def test_a_temperature_that_is_none_is_refused(self, value):
        with pytest.raises(InputError, match="value"):
            TemperatureScaling(value=value)

    def test_a_criterion_beside_it_is_refused(self):
        with pytest.raises(InputError, match="criterion must be left out"):
            TemperatureScaling(criterion="focal", value=1.5)

    def test_a_clamped_network_learns_its_own(self):
        with pytest.raises(InputError, match="value"):
            NeuralClamping(head=TemperatureScaling(value=1.5))
