"""Two processes that share every batch end with the weights of one, and only the first writes."""

import pytest
import torch
from forked import start
from held_ports import held_port
from safetensors.torch import load_file

from calibrant import catalogue
from calibrant.datasets import DigitsReader, Samples, split_dataset
from calibrant.models import build_model
from calibrant.processes import SINGLE_PROCESS
from calibrant.training import Recipe, Run, RuntimeOptions, Session, TrainingData, train_runs, train_together
from calibrant.training.folder import RunFolder

CPU = torch.device("cpu")
# Everything that sees a batch as a whole: all pairs of samples, their history, partners in another process, a norm.
RUNS = {"ce": ("ce", {"clip": 0.5}), "mmce": ("mmce", {}), "crl": ("crl", {}), "mixup": ("mdca", {"mixup": 0.3})}
STEADY = {"epochs": 2, "learning_rate": 0.02}

SCRIPT = """
import os, runpy, warnings
import torch
from safetensors.torch import save_file
from calibrant import catalogue
from calibrant.datasets import DigitsReader
from calibrant.training import Recipe, Run, train_runs, train_together
from calibrant.processes import join_processes
torch.set_num_threads(1)
warnings.simplefilter("error")
os.environ |= group
tests = runpy.run_path(file)
with join_processes() as processes:
    assert processes.count == 2
    sessions = tests["precise_sessions"](processes)
    save_file({"masks": tests["dropped"](sessions["ce"])}, out / f"dropped {processes.rank}.safetensors")
    train_together(list(sessions.values()))
    for name, session in sessions.items():
        save_file(session.state(), out / f"{name} {processes.rank}.safetensors")
    # Both resume the run that has begun; of the new one the second is given another folder, to see what it writes.
    folders = out / "begun", out / f"new of {processes.rank}"
    runs = [Run(folder, "digits_cnn", catalogue.losses.parse("ce"), Recipe(**tests["STEADY"])) for folder in folders]
    train_runs(runs, DigitsReader().read(), device=torch.device("cpu"), processes=processes)
"""


def precise_sessions(processes=SINGLE_PROCESS):
    """In float64, where what the order of adding up changes stays small.

    In float32 it does not: at a kink (of ReLU, of a maximum, of MMCE's |c - c'|) a last digit decides between two
    gradients, and weights that differ by 1e-7 in the beginning can differ by 1e-3 after three epochs.
    """
    dataset = DigitsReader().read()
    rows = split_dataset(dataset, "holdout", seed=0).training[:600]
    placed = TrainingData(Samples((rows.inputs.double() - 5) / 6, rows.labels), {}, dataset.class_names).on(CPU)
    sessions = {}
    for name, (loss, options) in RUNS.items():
        network = build_model("digits_cnn", n_classes=10, in_channels=1, image_size=8).double()
        recipe = Recipe(**{"epochs": 2, "nesterov": True, **options})
        sessions[name] = Session(network, catalogue.losses.parse(loss), placed, recipe, processes=processes)
    return sessions


def dropped(session):
    """What dropout draws when an epoch begins."""
    with torch.random.fork_rng():
        session.begin_epoch()
        return torch.nn.functional.dropout(torch.ones(256))


class Stopped(Exception):  # noqa: N818  # no error, but a stop on purpose
    pass


def _stop(_run, _record):
    raise Stopped


def _run_in(folder, after_epoch=lambda _run, _record: None):
    run = Run(folder, "digits_cnn", catalogue.losses.parse("ce"), Recipe(**STEADY))
    train_runs(
        [run], DigitsReader().read(), device=CPU, runtime=RuntimeOptions(checkpoint_seconds=0), after_epoch=after_epoch
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """What two processes leave that get the environment of torchrun."""
    out = tmp_path_factory.mktemp("processes")
    with pytest.raises(Stopped):
        _run_in(out / "begun", _stop)
    with held_port() as port:
        group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
        processes = [
            start(SCRIPT, file=__file__, out=out, group={**group, "RANK": str(rank), "LOCAL_RANK": str(rank)})
            for rank in range(2)
        ]
        try:
            for process in processes:
                process.join(900)
        finally:
            for process in processes:
                process.kill()
    assert [process.exitcode for process in processes] == [0, 0]
    return out


@pytest.fixture(scope="module")
def alone():
    sessions = precise_sessions()
    train_together(list(sessions.values()))
    return sessions


@pytest.mark.parametrize("name", RUNS)
def test_two_processes_end_with_the_weights_of_one(trained, alone, name):
    first, second = (load_file(trained / f"{name} {rank}.safetensors") for rank in range(2))
    for part, values in alone[name].state().items():
        assert torch.equal(first[part], second[part]), part
        # A gradient that one process has not seen, or has seen twice, is off by a tenth and more.
        assert float((values - first[part]).double().norm()) <= 1e-9 * float(values.double().norm()), part
    start = precise_sessions()[name].model.head.weight
    assert float((start - alone[name].model.head.weight).detach().norm()) > 0.05 * float(start.detach().norm())


def test_every_process_draws_dropout_of_its_own_and_the_first_what_one_alone_draws(trained):
    first, second = (load_file(trained / f"dropped {rank}.safetensors")["masks"] for rank in range(2))
    assert torch.equal(first, dropped(precise_sessions()["ce"]))
    assert 80 < int((first != second).sum()) < 176  # of 256 that agree by chance half of the time


def test_two_processes_resume_from_a_checkpoint(trained, tmp_path):
    _run_in(tmp_path / "alone")
    for folder in ("begun", "new of 0"):
        records = [RunFolder(each).records() for each in (tmp_path / "alone", trained / folder)]
        assert [record.epoch for record in records[1]] == [1, 2]
        for mine, theirs in zip(*records, strict=True):
            assert theirs.loss == pytest.approx(mine.loss, rel=1e-3)  # float32
            assert theirs.held_out["test"].nll == pytest.approx(mine.held_out["test"].nll, rel=1e-2)


def test_only_the_first_process_writes(trained):
    assert not (trained / "new of 1").exists()
    left = ["calibration.npz", "epochs.jsonl", "settings.json", "test.npz", "weights.safetensors"]
    for folder in ("begun", "new of 0"):
        assert sorted(path.name for path in (trained / folder).iterdir()) == left
