"""Metrics with the interface of TorchMetrics: the catalogue's numbers, in batches, on processes and devices."""

import pickle

import pytest
import torch
from apple_gpu import AppleGPU
from torch import distributed, multiprocessing

from calibrant import catalogue
from calibrant.errors import InputError
from calibrant.metrics.base import RankMetric
from calibrant.metrics.states import TopStatistic
from calibrant.predictions import Predictions
from calibrant.testing import overconfident

pytest.importorskip("torchmetrics", reason="torchmetrics is not installed")
from calibrant.integrations.torchmetrics import CalibrantMetric, metric_collection

K = 5
ROWS = overconfident(600, K, dtype=torch.float32)
PARTS = (slice(0, 250), slice(250, 251), slice(251, 600))
# Ranks are counted in cells; the others differ by the rounding of float32 confidences.
TOLERANCE = {"fpr95": 5e-3, "aupr_error": 1e-3, "aupr_success": 1e-3}


def updated(metric, rows=ROWS, parts=PARTS, *, probs=False):
    for part in parts:
        scores = rows.logits[part]
        metric.update(scores.softmax(1) if probs else scores, rows.labels[part])
    return metric


@pytest.mark.parametrize("inputs", ["logits", "probs"])
@pytest.mark.parametrize("name", list(catalogue.metrics))
def test_each_gives_the_number_of_the_catalogue_in_batches(name, inputs):
    metric = updated(CalibrantMetric(name, inputs=inputs, num_classes=K), probs=inputs == "probs")
    rows = ROWS if inputs == "logits" else Predictions.from_probs(ROWS.logits.softmax(1), ROWS.labels)
    wanted = catalogue.metrics[name](rows)
    tolerance = TOLERANCE.get(name, 1e-4 if isinstance(catalogue.metrics[name], RankMetric) else 1e-5)
    assert float(metric.compute()) == pytest.approx(wanted, abs=tolerance)


@pytest.mark.parametrize("name", [n for n, m in catalogue.metrics.items() if isinstance(m.statistic, TopStatistic)])
def test_metrics_of_the_top_label_never_wait_for_the_device(name):
    # A tensor on this device has no numbers: whatever reads one on the way raises.
    metric = CalibrantMetric(name).to("meta")
    metric.update(torch.empty(8, 3, device="meta"), torch.empty(8, dtype=torch.int64, device="meta"))


class TestCollection:
    def test_one_update_serves_all_metrics(self, monkeypatch):
        passes = []
        counted = CalibrantMetric._predictions
        monkeypatch.setattr(
            CalibrantMetric, "_predictions", lambda self, *rows: passes.append(self) or counted(self, *rows)
        )
        names = ("ece", "mce", "nll", "sce", "auroc", "smece")
        metrics = updated(metric_collection(*names, num_classes=K, prefix="val_"))
        assert len(passes) == len(PARTS)
        values = metrics.compute()
        assert set(values) == {f"val_{name}" for name in names}
        for name in names:
            assert float(values[f"val_{name}"]) == pytest.approx(catalogue.metrics[name](ROWS), abs=1e-4)
        metrics.reset()
        assert float(updated(metrics, parts=PARTS[:1]).compute()["val_nll"]) == pytest.approx(
            catalogue.metrics["nll"](ROWS[PARTS[0]])
        )

    def test_equal_names_are_refused(self):
        with pytest.raises(InputError, match="different names, at least one; got ece, ece"):
            metric_collection("ece", "ece(n_bins=10)")


def _count_half(rank, folder):
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    metrics = metric_collection("ece", "nll", "auroc")
    half = slice(0, 250) if rank == 0 else slice(250, 600)
    metrics.update(ROWS.logits[half], ROWS.labels[half])
    torch.save({name: float(value) for name, value in metrics.compute().items()}, f"{folder}/{rank}.pt")
    distributed.destroy_process_group()


@pytest.mark.skipif(not distributed.is_gloo_available(), reason="gloo is not available")
@pytest.mark.filterwarnings("ignore:This process")  # of Python 3.12, about forks
def test_two_processes_give_what_one_does(tmp_path):
    processes = multiprocessing.get_context("fork")
    started = [processes.Process(target=_count_half, args=(rank, tmp_path)) for rank in (0, 1)]
    for process in started:
        process.start()
    for process in started:
        process.join(600)
    alone = {name: float(value) for name, value in updated(metric_collection("ece", "nll", "auroc")).compute().items()}
    for rank in (0, 1):
        assert torch.load(tmp_path / f"{rank}.pt") == pytest.approx(alone, abs=1e-12)


def test_weights_and_ignored_labels_count_as_said():
    logits, labels = ROWS.logits[:40], ROWS.labels[:40].clone()
    labels[10:] = -1
    for name in ("ece", "nll"):
        ignoring = CalibrantMetric(name, ignore_index=-1)
        ignoring.update(logits, labels)
        weighing = CalibrantMetric(name)
        weighing.update(logits, labels.clamp(min=0), weights=(labels >= 0).double())
        wanted = catalogue.metrics[name](ROWS[:10])
        assert float(ignoring.compute()) == pytest.approx(wanted, abs=1e-6)
        assert float(weighing.compute()) == pytest.approx(wanted, abs=1e-6)
        ignoring.update(logits, torch.full_like(labels, -1))
        assert float(ignoring.compute()) == pytest.approx(wanted, abs=1e-6)


# Metrics that depend on the number of samples itself, as the laws of weights say; by how much, here.
ON_N = {"ace": 1e-3, "aurc": 1e-3, "e_aurc": 1e-3, "ece_l1_debiased": 1e-2, "ece_l2_debiased": 2e-2, "kde_ece": 1e-2}


@pytest.mark.parametrize("name", [name for name in catalogue.metrics if name not in {"sece_printed", "skce"}])
def test_a_whole_weight_repeats_its_sample(name):
    weights = torch.randint(0, 4, (len(ROWS),), generator=torch.Generator().manual_seed(0))
    weighted, scaled, repeated = (CalibrantMetric(name, num_classes=K) for _ in range(3))
    for part in PARTS:
        weighted.update(ROWS.logits[part], ROWS.labels[part], weights=weights[part])
        scaled.update(ROWS.logits[part], ROWS.labels[part], weights=0.1 * weights[part].double())
    again = torch.arange(len(ROWS)).repeat_interleave(weights)
    repeated.update(ROWS.logits[again], ROWS.labels[again])
    assert float(weighted.compute()) == pytest.approx(float(repeated.compute()), abs=ON_N.get(name, 1e-7))
    assert float(scaled.compute()) == pytest.approx(float(weighted.compute()), abs=1e-9)


def test_weights_of_nothing_are_refused():
    logits, labels = ROWS.logits[:4].clone(), ROWS.labels[:4]
    for name in ("ece", "nll"):
        for weight in (-1.0, torch.nan, torch.inf):
            metric = CalibrantMetric(name)
            metric.update(logits, labels, weights=torch.tensor([1.0, weight, 0.0, 2.0]))
            with pytest.raises(InputError, match="weights finite and at least 0; of 3 samples 1 had others"):
                metric.compute()
        with pytest.raises(InputError, match=r"must have the labels' shape \(4,\); got \(3,\)"):
            CalibrantMetric(name).update(logits, labels, weights=torch.ones(3))
        for unseen in (torch.zeros(4), torch.tensor([0.0, 0.0, 0.0, 1.0])):
            metric = CalibrantMetric(name, ignore_index=int(labels[3]))
            metric.update(logits[[3] * 4], labels[[3] * 4], weights=unseen)
            with pytest.raises(InputError, match="at least one sample"):
                metric.compute()


def test_what_does_not_count_may_be_unreadable():
    logits, labels = ROWS.logits[:4].clone(), ROWS.labels[:4].clone()
    logits[3], labels[3] = torch.nan, 255
    for name in ("ece", "nll", "auroc"):
        metric = CalibrantMetric(name, ignore_index=255)
        metric.update(logits, labels)
        assert float(metric.compute()) == pytest.approx(catalogue.metrics[name](ROWS[:3]), abs=1e-4)


def test_pixels_are_samples():
    logits, labels = ROWS.logits[:24].view(2, 3, 4, K).movedim(-1, 1), ROWS.labels[:24].view(2, 3, 4)
    metric = CalibrantMetric("ece")
    metric.update(logits, labels)
    assert float(metric.compute()) == pytest.approx(catalogue.metrics["ece"](ROWS[:24]), abs=1e-6)


def test_forward_gives_the_batch_and_compute_all():
    metric = CalibrantMetric("ece")
    for part in PARTS:
        batch = metric(ROWS.logits[part], ROWS.labels[part])
        assert float(batch) == pytest.approx(catalogue.metrics["ece"](ROWS[part]), abs=1e-6)
    assert float(metric.compute()) == pytest.approx(catalogue.metrics["ece"](ROWS), abs=1e-6)
    copied = pickle.loads(pickle.dumps(metric))  # noqa: S301  # our own
    assert float(copied.compute()) == float(metric.compute())
    assert (metric.higher_is_better, CalibrantMetric("auroc").higher_is_better) == (False, True)


@pytest.mark.filterwarnings("ignore:The ``compute`` method")
def test_computing_before_any_update_is_an_error():
    with pytest.raises(InputError, match="ece must have counted at least one sample"):
        CalibrantMetric("ece").compute()


def test_logits_given_as_probabilities_are_reported():
    metric = CalibrantMetric("ece", inputs="probs")
    metric.update(torch.tensor([[0.2, 0.8], [0.9, -1.0], [0.5, 0.4]]), torch.tensor([0, 0, 1]))
    with pytest.raises(InputError, match=r"sum to one.*of 3 samples 2 had others"):
        metric.compute()


@pytest.mark.parametrize("inputs", ["logits", "probs"])
def test_numbers_that_are_none_and_unknown_classes_are_reported(inputs):
    scores = ROWS.logits[:4].softmax(1).clone()
    scores[1, 2] = torch.nan
    metric = CalibrantMetric("ece", inputs=inputs)
    metric.update(scores, torch.tensor([0, 1, K, -1]))
    with pytest.raises(InputError, match=r"of 4 samples 3 had others. Give ignore_index="):
        metric.compute()


def test_bad_input_is_refused():
    labels = torch.tensor([0, 1])
    for scores, said in (
        (torch.zeros(2), r"got \(2,\) and \(2,\)"),
        (torch.zeros(3, K), r"got \(3, 5\) and \(2,\)"),
        (torch.zeros(2, K, dtype=torch.int64), "scores must be floating-point numbers"),
        (torch.zeros(2, 4), "num_classes=5 classes; got 4"),
    ):
        with pytest.raises(InputError, match=said):
            CalibrantMetric("ece", num_classes=K).update(scores, labels)
    with pytest.raises(InputError, match="sce must know the number of classes"):
        CalibrantMetric("sce")
    with pytest.raises(InputError, match="Did you mean ece"):
        CalibrantMetric("ecee")
    with pytest.raises(InputError, match="inputs must be one of logits, probs"):
        CalibrantMetric("ece", inputs="scores")


@pytest.mark.parametrize("name", ["ece", "nll", "auroc"])
def test_sums_stay_on_the_cpu_for_an_apple_gpu_which_has_no_float64(name):
    expected = updated(CalibrantMetric(name)).compute()
    metric = CalibrantMetric(name)
    with AppleGPU():
        metric.to("mps")
        for part in PARTS:
            metric.update(ROWS.logits[part].to("mps"), ROWS.labels[part].to("mps"))
        assert metric.compute() == expected
    metric.reset()
    assert updated(metric).compute() == expected
