import numpy as np
import pytest
import torch
from made_samples import overconfident

from calibrant.calibrators import IMax
from calibrant.errors import CalibrantWarning, InputError, UnknownNameError
from calibrant.metrics import accuracy, nll
from calibrant.predictions import Predictions


def rows(n=2000, k=4, **how):
    return overconfident(n, k, **how)


def by_definition(cal, new, edges, *, shared):
    """Share of hits in the bin of every class, given the edges, then divided by the sum."""
    n, k = cal.logits.shape
    known, asked = (torch.logit(each.probs).numpy() for each in (cal, new))
    hit = (cal.labels[:, None] == torch.arange(k)).numpy()
    probs = np.empty_like(asked)
    for j in range(k):
        own = edges[0 if shared else j].numpy()
        scores, hits = (known.ravel(), hit.ravel()) if shared else (known[:, j], hit[:, j])
        place = np.searchsorted(own, scores)
        for row, score in enumerate(asked[:, j]):
            probs[row, j] = hits[place == np.searchsorted(own, score)].mean()
    probs = probs.clip(1 / ((n + 2) * (k - 1)), 1 - 1 / (n + 2))
    return probs / probs.sum(axis=1, keepdims=True)


@pytest.mark.filterwarnings("ignore:.*worse than no calibration on samples held out")
@pytest.mark.parametrize("sharing", ["shared", "classwise"])
def test_answers_are_the_shares_of_hits_in_the_bins(sharing):
    cal, new = rows(), rows(100, seed=1)
    fitted = IMax(sharing=sharing).fit(cal)
    assert fitted.curve.edges.shape == (1 if sharing == "shared" else 4, 14)
    expected = by_definition(cal, new, fitted.curve.edges, shared=sharing == "shared")
    assert np.allclose(fitted.transform(new).probs.numpy(), expected, atol=1e-9)


def test_of_two_classes_class_1_is_binned_whatever_the_sharing():
    cal = rows(k=2)
    first, second = (IMax(sharing=sharing).fit(cal) for sharing in ("shared", "classwise"))
    assert torch.equal(first.curve.values, second.curve.values)
    result = first.transform(cal)
    for answer in result.probs[:, 1].unique():
        alike = result.probs[:, 1] == answer
        assert float((cal.labels[alike] == 1).double().mean()) == pytest.approx(float(answer), abs=1e-3)


def test_few_bins_cost_little_accuracy_and_take_overconfidence_away():
    cal, new = rows(5000, k=20, sharpness=3.0), rows(5000, k=20, seed=1, sharpness=3.0)
    result = IMax().fit(cal).transform(new)
    assert float(accuracy(result)) > float(accuracy(new)) - 0.02
    assert float(nll(result)) < float(nll(new)) - 0.2


def test_a_class_without_samples_is_all_but_ruled_out_and_never_impossible():
    cal = rows()
    absent = cal[cal.labels != 2]
    with pytest.warns(CalibrantWarning, match="no calibration samples of class 2"):
        result = IMax(sharing="classwise").fit(absent).transform(cal)
    assert torch.isfinite(result.log_probs).all()
    assert float(result.probs[:, 2].max()) < 0.01


def test_the_turns_end_at_an_optimum():
    certificate = IMax().fit(rows()).summary.certificate
    assert certificate.gradient < 1e-9
    assert certificate.objective < 0


@pytest.mark.filterwarnings("ignore:.*worse than no calibration on samples held out")
def test_few_distinct_scores_get_a_bin_each():
    logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.0, 3.0]], dtype=torch.float64).repeat(50, 1)
    labels = torch.randint(0, 2, (150,), generator=torch.Generator().manual_seed(0))
    cal = Predictions.from_logits(logits, labels)
    probs = IMax().fit(cal).transform(cal).probs[:, 1]
    for start in range(3):
        share = labels[start::3].double().mean()
        assert float(probs[start]) == pytest.approx(float(share), abs=1e-9)


def test_bad_options_are_refused():
    with pytest.raises(InputError, match="n_bins"):
        IMax(n_bins=1)
    with pytest.raises(UnknownNameError, match="sharing"):
        IMax(sharing="all")
