"""A training that is stopped resumes from its last state, and ends as one that was not."""

from dataclasses import replace

import pytest
from experiments import trained
from experiments.meta_regularization.study import META_REGULARIZATION_STUDY
from experiments.overconfidence.study import OVERCONFIDENCE_STUDY
from experiments.runner import Place
from experiments.trained import Training

from calibrant.errors import FileError


@pytest.fixture(autouse=True)
def _state_after_every_epoch(monkeypatch):
    monkeypatch.setattr(trained, "_SECONDS", 0.0)


def ended(network):
    """Return what a study could know of a trained network."""
    trace, tensors = network.session.trace, {}
    kept = trained._parted(network.kept, tensors, "kept")
    tensors |= network.logits | ({} if trace is None else trace.state())
    return {"kept": kept, "accuracies": [record.accuracy for record in network.session.records]} | {
        name: values.tolist() for name, values in tensors.items()
    }


def run(study, folder, *, until=None):
    """Return how the study's quick networks end; with ``until`` the run is stopped after that epoch."""
    training: Training = study.prepare.__self__
    keep = training.keep

    def stopped(network, record):
        keep(network, record)
        if record.epoch == until:
            raise KeyboardInterrupt

    training = replace(training, keep=stopped, evaluate=ended)
    cells = study.cells(quick=True)[-2:]
    place, found = Place(networks=folder, device="cpu", commit="c"), {}
    prepared = training.prepare(place, cells, quick=True)
    prepared([cell.settings for cell in cells], found.__setitem__)
    return found


@pytest.mark.parametrize("study", [OVERCONFIDENCE_STUDY, META_REGULARIZATION_STUDY], ids=lambda study: study.name)
def test_a_stopped_training_ends_as_one_that_was_not(tmp_path, study):
    whole = run(study, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(study, tmp_path / "stopped", until=4 if study is META_REGULARIZATION_STUDY else 2)
    assert list((tmp_path / "stopped").iterdir())
    resumed = run(study, tmp_path / "stopped")
    (before,) = resumed[1].pop("before")
    assert before["commit"] == "c"
    assert before["epoch"] >= 1
    assert before["seconds"] > 0
    resumed[0].pop("before", None)
    assert resumed == whole
    assert not list((tmp_path / "stopped").iterdir())


def test_a_state_of_another_training_is_refused_by_name(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(OVERCONFIDENCE_STUDY, tmp_path, until=2)
    first, *_ = sorted(tmp_path.iterdir())
    first.write_bytes(first.read_bytes()[:-100])
    with pytest.raises(FileError, match=r"under-way-\w+\.safetensors must be the state .* Delete it"):
        run(OVERCONFIDENCE_STUDY, tmp_path)
