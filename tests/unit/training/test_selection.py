"""Which epoch's weights a run keeps, and on how many samples it trains."""

import json
from dataclasses import replace

import pytest
import torch

from calibrant.datasets import split_dataset
from calibrant.errors import InputError
from calibrant.files import load
from calibrant.losses import CrossEntropyLoss
from calibrant.metrics import accuracy, nll
from calibrant.models import build_model
from calibrant.training import Recipe, Run, Session, train_runs
from calibrant.training.folder import RunFolder
from calibrant.training.record import EpochRecord, HeldOutRecord
from calibrant.training.run import subset_split
from calibrant.training.session import selected_epoch

# At this rate an epoch can be worse than the one before.
WILD = {"epochs": 6, "learning_rate": 0.4, "schedule": "constant", "nesterov": False}


def epoch(number, *, right, loss, judged=True):
    held_out = {"calibration": HeldOutRecord(right, loss, 0.1, 1.0, 0.1, 1.0)} if judged else {}
    return EpochRecord(number, 1.0, 0.1, 1.0, 0.5, held_out)


def test_the_best_epoch_is_the_first_of_the_most_accurate_or_of_the_lowest_log_loss():
    records = [
        epoch(1, right=0.5, loss=0.9),
        epoch(2, right=0.8, loss=0.7),
        epoch(3, right=0.0, loss=0.0, judged=False),
        epoch(4, right=0.8, loss=0.6),
        epoch(5, right=0.7, loss=0.6),
    ]
    assert selected_epoch(records, "last") == 5
    assert selected_epoch(records, "best") == 2
    assert selected_epoch(records, "best-nll") == 4
    assert selected_epoch([], "best") == 0


@pytest.mark.parametrize(("select", "metric"), [("best", accuracy), ("best-nll", nll)])
def test_a_run_leaves_the_predictions_and_weights_of_the_selected_epoch(train_in, tmp_path, select, metric):
    folder = train_in(tmp_path / "run", select=select, **WILD)
    opened = RunFolder(folder)
    chosen = selected_epoch(opened.records(), select)
    wanted = opened.records()[chosen - 1].held_out
    for part in ("calibration", "test"):
        name = "accuracy" if metric is accuracy else "nll"
        assert float(metric(load(folder / f"{part}.npz"))) == pytest.approx(getattr(wanted[part], name), rel=1e-6)
    # The same training to that epoch and no further ends with the same weights.
    short = RunFolder(train_in(tmp_path / "short", **{**WILD, "epochs": chosen}))
    assert all(torch.equal(opened.weights()[name], each) for name, each in short.weights().items())


def test_at_this_rate_the_selected_epoch_is_not_the_last(train_in, tmp_path):
    records = RunFolder(train_in(tmp_path / "run", select="best", **WILD)).records()
    assert selected_epoch(records, "best") < len(records)  # or the test above would show nothing


def test_a_run_that_is_stopped_after_its_best_epoch_still_keeps_it(train_in, tmp_path, stop_after, stopped):
    whole = train_in(tmp_path / "whole", select="best", **WILD)
    with pytest.raises(stopped):
        train_in(tmp_path / "run", select="best", after_epoch=stop_after(5), **WILD)
    resumed = train_in(tmp_path / "run", select="best", **WILD)
    ours, theirs = RunFolder(resumed).weights(), RunFolder(whole).weights()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_folder_that_was_written_before_there_was_a_choice_can_be_read(train_in, tmp_path):
    folder = train_in(tmp_path / "run", epochs=1)
    path = folder / "settings.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    del document["settings"]["recipe"]["select"], document["settings"]["train_samples"]
    path.write_text(json.dumps(document), encoding="utf-8")
    assert RunFolder(folder).settings().recipe.select == "last"


def test_an_unknown_selection_is_refused():
    with pytest.raises(InputError, match="select"):
        Recipe(select="first")


class TestTrainSamples:
    def trained(self, digits, folder, n):
        run = Run(folder, "digits_cnn", CrossEntropyLoss(), Recipe(epochs=1, batch_size=32))
        train_runs([run], digits, split="half-test", device=torch.device("cpu"), train_samples=n)
        return RunFolder(folder)

    def test_a_run_trains_on_as_many_as_asked_and_says_so(self, digits, tmp_path):
        folder = self.trained(digits, tmp_path / "run", 96)
        assert folder.settings().train_samples == 96
        whole = self.trained(digits, tmp_path / "whole", None)
        assert folder.settings().data_digest != whole.settings().data_digest
        assert not torch.equal(folder.weights()["head.weight"], whole.weights()["head.weight"])

    def test_fewer_samples_are_among_more(self, digits):
        split = split_dataset(digits, "half-test", seed=0)
        few, more = (subset_split(split, n, 7).training for n in (40, 200))
        rows = {tuple(each.flatten().tolist()) for each in more.inputs}
        assert len(few) == 40
        assert all(tuple(each.flatten().tolist()) in rows for each in few.inputs)
        assert torch.equal(subset_split(split, len(split.training), 7).training.labels, split.training.labels)

    def test_more_than_there_are_is_refused(self, digits, tmp_path):
        with pytest.raises(InputError, match="at most the 320"):
            self.trained(digits, tmp_path / "run", 321)


def test_an_epoch_is_selected_only_where_there_are_samples_to_choose_by(data):
    alone = replace(data, held_out={"test": data.held_out["test"]}).on(torch.device("cpu"))
    network = build_model("digits_cnn", n_classes=10, in_channels=1, image_size=8)
    with pytest.raises(InputError, match="select must be 'last' without calibration samples"):
        Session(network, CrossEntropyLoss(), alone, Recipe(batch_size=32, select="best"))
