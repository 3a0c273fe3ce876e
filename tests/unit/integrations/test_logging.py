"""Trackers with the call signatures of the real ones, and TensorBoard itself where it is installed."""

import math

import pytest
from matplotlib.figure import Figure

from calibrant import evaluate
from calibrant.errors import InputError
from calibrant.integrations.logging import log_evaluation


@pytest.fixture(scope="module")
def evaluation():
    return evaluate(confidence=[0.9] * 80 + [0.6] * 40, correct=[True] * 50 + [False] * 70, resamples=100)


class MLflow:
    """The functions of the module that are called, as MLflow 3 declares them."""

    def __init__(self):
        self.metrics, self.files = {}, {}

    def log_metrics(self, metrics, step=None, synchronous=None, run_id=None, timestamp=None):
        self.metrics.update({(name, step): value for name, value in metrics.items()})

    def log_text(self, text, artifact_file, run_id=None):
        self.files[artifact_file] = text

    def log_figure(self, figure, artifact_file, *, save_kwargs=None):
        self.files[artifact_file] = figure


class Run:
    """A run of Weights & Biases."""

    def __init__(self):
        self.logged = []

    def log(self, data, step=None, commit=None):
        self.logged.append((step, data))


class Writer:
    """A SummaryWriter."""

    def __init__(self):
        self.scalars, self.texts, self.figures = {}, {}, {}

    def add_scalar(self, tag, scalar_value, global_step=None, walltime=None, new_style=False, double_precision=False):
        self.scalars[tag, global_step] = scalar_value

    def add_text(self, tag, text_string, global_step=None, walltime=None):
        self.texts[tag] = text_string

    def add_figure(self, tag, figure, global_step=None, close=True, walltime=None):
        assert not close, "the figure is the caller's"
        self.figures[tag] = figure


class LightningLogger:
    """A logger of Lightning, which keeps its tracker in ``experiment``."""

    def __init__(self, experiment):
        self.experiment, self.metrics = experiment, {}

    def log_metrics(self, metrics, step=None):
        self.metrics.update(metrics)


def test_mlflow_gets_scalars_with_their_interval_the_report_and_figures(evaluation):
    tracker, figure = MLflow(), Figure()
    scalars = log_evaluation(evaluation, to=tracker, step=7, figures={"reliability": figure})
    assert tracker.metrics == {(name, 7): value for name, value in scalars.items()}
    ece = evaluation.metrics["ece"]
    names = ("ece", "ece_low", "ece_high")
    assert [scalars[f"calibration/{name}"] for name in names] == [ece.value, ece.low, ece.high]
    assert set(tracker.files) == {"calibration/7/report.md", "calibration/7/reliability.png"}
    assert "overconfident" in tracker.files["calibration/7/report.md"]


def test_weights_and_biases_gets_one_dictionary_a_step(evaluation):
    run, figure = Run(), Figure()
    scalars = log_evaluation(evaluation, to=run, step=2, prefix="val/", figures={"reliability": figure})
    ((step, data),) = run.logged
    assert step == 2
    assert data == {**scalars, "val/reliability": figure}


def test_tensorboard_gets_scalars_text_and_figures(evaluation):
    writer, figure = Writer(), Figure()
    scalars = log_evaluation(evaluation, to=writer, figures={"reliability": figure})
    assert writer.scalars == {(name, None): value for name, value in scalars.items()}
    assert writer.figures == {"calibration/reliability": figure}
    assert "overconfident" in writer.texts["calibration/report"]


def test_a_logger_of_lightning_gets_scalars_and_its_tracker_the_figures(evaluation):
    figure = Figure()
    for tracker, figures_of in ((Writer(), lambda t: t.figures), (Run(), lambda t: t.logged[0][1])):
        logger = LightningLogger(tracker)
        scalars = log_evaluation(evaluation, to=logger, step=1, figures={"reliability": figure})
        assert logger.metrics == scalars
        assert figures_of(tracker) == {"calibration/reliability": figure}


def test_undefined_numbers_are_left_out():
    few = evaluate(confidence=[0.9, 0.8], correct=[True, True], resamples=100)
    scalars = log_evaluation(few, to=Run())
    assert all(math.isfinite(value) for value in scalars.values())
    assert "calibration/ece" in scalars
    assert "calibration/auroc" not in scalars


def test_what_is_no_tracker_is_refused(evaluation):
    with pytest.raises(InputError, match="SummaryWriter"):
        log_evaluation(evaluation, to=[])


def test_the_real_tensorboard_reads_back_what_was_logged(evaluation, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        scalars = log_evaluation(evaluation, to=writer, step=5, figures={"reliability": Figure()})
    events = EventAccumulator(str(tmp_path)).Reload()
    assert set(events.Tags()["scalars"]) == set(scalars)
    (event,) = events.Scalars("calibration/ece")
    assert (event.step, event.value) == (5, pytest.approx(scalars["calibration/ece"]))
    assert events.Tags()["images"] == ["calibration/reliability"]
