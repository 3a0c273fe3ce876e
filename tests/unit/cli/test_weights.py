"""``--weights COLUMN``: weighted samples from a file to the report, its charts and its figures."""

import json

import numpy as np
import pytest
import torch

from calibrant import TopLabel, load, nll, save
from calibrant.diagrams import bins_sweep, classwise_reliability, confidence_density, reliability, risk_coverage
from calibrant.errors import InputError
from calibrant.report.interactive import view_of
from calibrant.testing import overconfident

SAMPLES = overconfident(500, 3)
WEIGHTS = np.random.default_rng(0).lognormal(0, 0.8, 500)


@pytest.fixture
def file(tmp_path):
    columns = [SAMPLES.logits.numpy(), SAMPLES.labels.numpy()[:, None], WEIGHTS[:, None], np.arange(500)[:, None] % 2]
    np.savetxt(
        tmp_path / "test.csv",
        np.hstack(columns),
        delimiter=",",
        comments="",
        header="logit_0,logit_1,logit_2,label,w,fold",
    )
    return tmp_path / "test.csv"


def test_evaluate_counts_by_weight(calibrant, file, tmp_path):
    code, out, err = calibrant("evaluate", file, "--weights", "w", "--resamples", 100, "--json", tmp_path / "e.json",
                               "--html", tmp_path / "e.html")  # fmt: skip
    assert code == 0, err
    weighted = SAMPLES.with_weights(WEIGHTS)
    assert f"500 samples (effective {weighted.effective_size:,.0f})" in out
    report = json.loads((tmp_path / "e.json").read_text())
    assert report["effective_n"] == pytest.approx(weighted.effective_size)
    assert report["metrics"]["nll"]["value"] == pytest.approx(nll(weighted))


def test_compare_fits_and_evaluates_by_weight(calibrant, file):
    code, out, err = calibrant("compare", file, "--split", "fold=0,1", "--weights", "w", "--methods", "temperature",
                               "--resamples", 100)  # fmt: skip
    assert code == 0, err
    assert "250 test samples (effective " in out
    assert "--weights w" in out  # of the command that fits the recommended method


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("v", "must have the column 'v'"),
        ("wieght", "; the nearest is 'weight'."),
        ("w", "got -1 at line 4"),
        ("weight", "got nan at line 3"),
    ],
)
def test_bad_weights_in_a_file_are_refused(calibrant, tmp_path, name, message):
    path = tmp_path / "bad.csv"
    path.write_text("logit_0,logit_1,label,w,weight\n1,0,0,1,1\n0,1,1,2,\n1,0,1,-1,1\n")
    code, _, err = calibrant("evaluate", path, "--weights", name)
    assert code == 2
    assert message in " ".join(err.split())


def test_weights_are_saved_and_loaded_by_name(tmp_path):
    for samples in (SAMPLES.with_weights(WEIGHTS), TopLabel([0.9, 0.8], [True, False], weights=[1, 2])):
        save(samples, tmp_path / "w.npz")
        assert torch.equal(load(tmp_path / "w.npz", weights="weights").weights, samples.weights)
        assert load(tmp_path / "w.npz").weights is None


def test_samples_that_all_weigh_nothing_are_refused():
    part = SAMPLES.with_weights((np.arange(500) >= 250).astype(float))[:250]
    with pytest.raises(InputError, match="must not all be 0"):
        reliability(part)


def test_diagrams_of_whole_weights_equal_repetition_in_all_but_noise():
    weights = torch.randint(0, 4, (500,), generator=torch.Generator().manual_seed(0))
    weighted, repeated = SAMPLES.with_weights(weights), SAMPLES[torch.arange(500).repeat_interleave(weights)]
    first, second = reliability(weighted), reliability(repeated)
    for name in ("accuracy", "confidence"):
        torch.testing.assert_close(getattr(first.bins, name), getattr(second.bins, name))
    shares = [diagram.bins.count / diagram.bins.count.sum() for diagram in (first, second)]
    torch.testing.assert_close(*shares)
    assert first.ece == pytest.approx(second.ece)
    assert (first.bins.band_high - first.bins.band_low).mean() > (second.bins.band_high - second.bins.band_low).mean()
    density, other = confidence_density(weighted), confidence_density(repeated)
    assert (density.share_right, density.auroc) == pytest.approx((other.share_right, other.auroc))
    assert density.median_right == pytest.approx(other.median_right)
    curve, other_curve = risk_coverage(weighted), risk_coverage(repeated)
    at = np.linspace(0.1, 1, 10)
    risks = [np.interp(at, one.coverage, one.risk) for one in (curve, other_curve)]
    assert risks[0] == pytest.approx(risks[1], abs=2e-3)
    assert (curve.risk_high - curve.risk_low)[-1] > (other_curve.risk_high - other_curve.risk_low)[-1]
    sweep, other_sweep = bins_sweep(weighted, n_bins=[10, 15]), bins_sweep(repeated, n_bins=[10, 15])
    torch.testing.assert_close(sweep.ece, other_sweep.ece)
    assert (sweep.floor > other_sweep.floor).all()
    assert [of.error for of in classwise_reliability(weighted).classes] == pytest.approx(
        [of.error for of in classwise_reliability(repeated).classes]
    )


def test_scaling_all_weights_changes_no_chart():
    first, second = (
        view_of(SAMPLES.with_weights(scale * WEIGHTS), "a", "a") for scale in (1, 1024)
    )  # a power of two rounds nothing
    assert json.dumps(first) == json.dumps(second)


def test_charts_hold_the_binned_error_of_weighted_samples():
    view = view_of(SAMPLES.with_weights(WEIGHTS), "a", "a", temperatures=True)
    assert view["n"] == round(SAMPLES.with_weights(WEIGHTS).effective_size)
    assert sum(view["cells"]["count"]) == pytest.approx(view["n"], rel=1e-4)
    assert sum(view["ranks"]["step"]) == view["n"]
    wrong = sum(view["cells"]["wrong"]) / view["n"]
    assert 1 - wrong == pytest.approx(view["accuracy"], abs=1e-4)
    at_one = view["temperatures"]["nll"][view["temperatures"]["temperature"].index(1.0)]
    assert at_one == pytest.approx(nll(SAMPLES.with_weights(WEIGHTS)), abs=1e-5)
    plain = view_of(SAMPLES, "a", "a")
    assert json.dumps(view_of(SAMPLES.with_weights(np.full(500, 2.0)), "a", "a")) == json.dumps(plain)
