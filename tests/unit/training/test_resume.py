"""A run that was stopped, in whatever way, ends with the very weights of one that was not."""

import signal
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from forked import start

from calibrant import catalogue
from calibrant.training import Recipe, Run, RuntimeOptions, train_runs, train_together
from calibrant.training.folder import RunFolder

TRACED = RuntimeOptions(traced=True, checkpoint_seconds=0)

# Every epoch is written down. Torch on one thread, as in these tests, adds up in the same order. Before the last epoch
# it waits, so that it cannot end before it is killed.
SCRIPT = """
import signal
import torch
from calibrant import catalogue
from calibrant.datasets import Dataset, DigitsReader
from calibrant.training import Recipe, Run, RuntimeOptions, train_runs
torch.set_num_threads(1)
all_of = DigitsReader().read()
scale = all_of.pixel_scale
digits = Dataset("few digits", all_of.class_names, all_of.training[:320], all_of.test[:200], pixel_scale=scale)
recipe = Recipe(epochs=6, batch_size=32, augmentation="crop")
run = Run(folder, "digits_cnn", catalogue.losses.parse("crl"), recipe)
runtime = RuntimeOptions(traced=True, checkpoint_seconds=0)
wait = lambda _run, record: record.epoch < 5 or signal.pause()
train_runs([run], digits, split="half-test", device=torch.device("cpu"), runtime=runtime, after_epoch=wait)
"""


def without_time(records):
    return [replace(record, seconds=0.0) for record in records]


def epochs(session, count):
    for _ in range(count):
        session.begin_epoch()
        for _ in range(session.steps_an_epoch):
            session.advance()
        session.end_epoch()


@pytest.mark.parametrize("loss", ["ce", "crl", "focal_schedule(gammas=[5,1],starts=[0,4])"])
def test_three_epochs_and_three_more_are_six_to_the_last_bit(session_of, changing_network, loss):
    runtime = replace(TRACED, evaluate_every=3)
    sessions = [session_of(loss, model=changing_network(), epochs=6, seed=3, runtime=runtime) for _ in range(3)]
    straight, first, second = sessions
    with torch.random.fork_rng():
        epochs(straight, 6)
        epochs(first, 3)
        state, records = first.state(), list(first.records)
        epochs(first, 1)  # what was taken out does not move any more
        torch.rand(99)
        second.restore(state, records)
        epochs(second, 3)
    expected, found = straight.state(), second.state()
    assert expected.keys() == found.keys()
    assert {name.split(".")[0] for name in expected} == {"model", "optimiser", "trace"} | (
        set() if loss == "ce" else {"loss"}
    )
    assert all(torch.equal(values, found[name]) for name, values in expected.items())
    assert without_time(second.records) == without_time(straight.records)
    if loss == "crl":
        assert torch.equal(second.loss.times_right, straight.loss.times_right)
        assert int(second.loss.times_right.max()) > 3


def test_training_leaves_torchs_chance_as_it_was(session_of, changing_network):
    session = session_of(model=changing_network(), epochs=1)
    before = torch.random.get_rng_state()
    train_together([session])
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_folder_resumes_where_it_was_stopped(train_in, tmp_path, stop_after, stopped):
    loss, broken = "crl", tmp_path / "broken"
    straight = train_in(tmp_path / "straight", loss, runtime=TRACED)
    for epoch in (1, 3):
        with pytest.raises(stopped):
            train_in(broken, loss, runtime=TRACED, after_epoch=stop_after(epoch))
        assert len(RunFolder(broken).records()) == epoch
        assert not RunFolder(broken).is_finished
    seen = []
    train_in(broken, loss, runtime=TRACED, after_epoch=lambda _run, record: seen.append(record.epoch))
    assert seen == [4]
    for name in ("weights.safetensors", "calibration.npz", "test.npz"):
        assert (broken / name).read_bytes() == (straight / name).read_bytes(), name
    learned = [np.load(folder / "learning.npz") for folder in (straight, broken)]
    for name in ("learned_epoch", "max_logit"):
        assert np.array_equal(learned[0][name], learned[1][name])
    records = [without_time(RunFolder(folder).records()) for folder in (straight, broken)]
    assert records[0] == records[1]


def test_without_a_checkpoint_yet_a_run_starts_from_the_beginning(train_in, tmp_path, stop_after, stopped):
    rarely = RuntimeOptions(checkpoint_seconds=1000)
    with pytest.raises(stopped):
        train_in(tmp_path / "run", runtime=rarely, after_epoch=stop_after(2))
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["settings.json"]
    seen = []
    train_in(tmp_path / "run", runtime=rarely, after_epoch=lambda _run, record: seen.append(record.epoch))
    assert seen == [1, 2, 3, 4]


def test_a_run_killed_twice_ends_with_the_weights_of_one_that_was_not(digits, tmp_path):
    killed = tmp_path / "killed"
    for records in (1, 3):
        _kill_once_recorded(killed, records)
        assert not RunFolder(killed).is_finished
    straight = tmp_path / "straight"
    for folder in (straight, killed):
        run = Run(
            folder, "digits_cnn", catalogue.losses.parse("crl"), Recipe(epochs=6, batch_size=32, augmentation="crop")
        )
        train_runs([run], digits, split="half-test", device=torch.device("cpu"), runtime=TRACED)
    assert (killed / "weights.safetensors").read_bytes() == (straight / "weights.safetensors").read_bytes()
    assert (killed / "test.npz").read_bytes() == (straight / "test.npz").read_bytes()
    records = [without_time(RunFolder(folder).records()) for folder in (killed, straight)]
    assert records[0] == records[1]
    assert not (killed / "checkpoint.safetensors").exists()


def _kill_once_recorded(folder: Path, records: int) -> None:
    """Start the run, and end it by SIGKILL, which no process can prepare for."""
    process = start(SCRIPT, folder=folder)
    try:
        deadline = time.monotonic() + 600
        while len(RunFolder(folder).records()) < records:
            assert process.is_alive(), "its error stands in what was printed"
            assert time.monotonic() < deadline
            time.sleep(0.002)
    finally:
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
