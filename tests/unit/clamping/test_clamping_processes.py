"""Two processes fit the δ and the head of one, fail together, and only the first writes."""

import numpy as np
import pytest
import torch
from forked import start
from held_ports import held_port
from safetensors.torch import load_file
from torch import nn

from calibrant.calibrators import StructuredVectorScaling
from calibrant.clamping import NeuralClamping, PerChannel, RandomStart, StochasticSolver
from calibrant.processes import SINGLE_PROCESS, ProcessGroup

# An odd number of images, folds and batches of uneven parts; a last batch of one sample, which one process is without.
N, BATCH = 201, 40
METHODS = {
    "path": NeuralClamping(delta_shape=PerChannel(), strength=(1e-3,), folds=2, batch_size=BATCH),
    "augmented": NeuralClamping(strength=0.01, augmentation="crop-flip", views=2, batch_size=BATCH),
    "svs": NeuralClamping(strength=0.01, head=StructuredVectorScaling()),
    "stochastic": NeuralClamping(
        strength=0.01,
        start=RandomStart(),
        solver=StochasticSolver(epochs=3, batch_size=BATCH, momentum=0.5),
        augmentation="crop-flip",
    ),
}

SCRIPT = """
import os, runpy, sys, warnings
import torch
from safetensors.torch import save_file
from calibrant.clamping.passes import Passes
from calibrant.cli.main import app
from calibrant.errors import CalibrantError
from calibrant.inference import LabelledInputs
from calibrant.processes import join_processes
for stream, path in enumerate(said, start=1):
    os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY), stream)
torch.set_num_threads(1)
warnings.simplefilter("error")
os.environ |= group
sys.path.insert(0, str(out))
tests, target = runpy.run_path(file), out
method = tests["METHODS"]["augmented"]
with join_processes() as processes:
    for name, clamped in tests["fitted"](processes, folder=out / "journal").items():
        tensors = {part: values.contiguous() for part, values in clamped.state_dict().items()}
        save_file(tensors, out / f"{name} {processes.rank}.safetensors")
    network, inputs, labels = tests["problem"]()
    one = Passes(network, LabelledInputs.of((inputs[:1], labels[:1])), processes=processes)
    assert torch.equal(one.logits(torch.zeros_like(inputs[0])), network(inputs[:1]))
    # What only the second process sees: an error in its network, and other samples.
    for fails, moves in ((True, 0.0), (False, 1.0)):
        network, inputs, labels = tests["problem"]()
        if processes.rank == 1:
            network[-1].fails, inputs = fails, inputs + moves
        try:
            method.fit(network, (inputs, labels), processes=processes)
        except (CalibrantError, RuntimeError) as error:
            (out / f"error {fails} {processes.rank}").write_text(str(error))
    if processes.rank == 1:  # to see that it writes nothing
        target = out / "elsewhere"
    command = f"clamp --model nets:build --data {out}/cal.npz --test {out}/cal.npz -o {target}/cli"
    try:
        app([*command.split(), "--strength", "0.01", "--resamples", "100", "--device", "cpu"])
    except SystemExit as end:
        assert not end.code
    raise CalibrantError("they all stop here")
"""


class Network(nn.Module):
    """A linear network, which can fail where it is called with many samples."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(64, 3, dtype=torch.float64)
        self.fails = False

    def forward(self, inputs):
        if self.fails and len(inputs) == BATCH and torch.is_grad_enabled():
            raise RuntimeError("out of order")
        return 4 * torch.tanh(self.layer(inputs.flatten(1)))


def problem():
    network = nn.Sequential(nn.Identity(), Network()).eval()
    inputs = torch.rand(N, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        probs = network(inputs + 1).softmax(dim=1)
    return network, inputs, torch.multinomial(probs, 1, generator=torch.Generator().manual_seed(2))[:, 0]


def fitted(processes=SINGLE_PROCESS, *, folder=None):
    network, inputs, labels = problem()
    return {
        name: method.fit(network, (inputs, labels), processes=processes, folder=folder and folder / name)
        for name, method in METHODS.items()
    }


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder that two processes leave which get the environment of torchrun, and what each printed."""
    out = tmp_path_factory.mktemp("processes")
    _, inputs, labels = problem()
    np.savez(out / "cal.npz", inputs=inputs.numpy(), labels=labels.numpy())
    (out / "nets.py").write_text(f"import runpy\nbuild = lambda: runpy.run_path({__file__!r})['problem']()[0]\n")
    said = [[out / f"printed {rank}", out / f"told {rank}"] for rank in range(2)]
    with held_port() as port:
        group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
        groups = [{**group, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(2)]
        processes = [
            start(SCRIPT, file=__file__, out=out, said=paths, group=of_rank)
            for paths, of_rank in zip(said, groups, strict=True)
        ]
        try:
            for process in processes:
                process.join(900)
        finally:
            for process in processes:
                process.kill()
    texts = [[path.read_text() for path in paths] for paths in said]
    return out, [(*both, process.exitcode) for both, process in zip(texts, processes, strict=True)]


@pytest.mark.parametrize("name", METHODS)
def test_two_processes_find_the_delta_and_the_head_of_one(run, name):
    out, printed = run
    assert (out / f"{name} 1.safetensors").exists(), printed
    alone = METHODS[name].fit(problem()[0], problem()[1:])
    assert float(alone.delta.norm()) > 0.01
    assert name != "path" or alone.summary.trials
    first, second = (load_file(out / f"{name} {rank}.safetensors") for rank in range(2))
    for part, values in alone.state_dict().items():
        assert torch.equal(first[part], second[part]), part
        torch.testing.assert_close(first[part], values, rtol=1e-6, atol=1e-9)


def test_an_error_of_one_process_is_raised_in_all(run):
    out, _ = run
    own, others = ((out / f"error True {rank}").read_text() for rank in (1, 0))
    assert "out of order" in own
    assert "out of order" in others
    for rank in range(2):
        assert "same network, samples" in (out / f"error False {rank}").read_text()


def test_only_the_first_process_writes_and_prints(run):
    out, (first, second) = run
    assert not list((out / "journal").glob("*/*"))
    assert not (out / "elsewhere").exists()
    assert (out / "cli" / "clamped.safetensors").exists()
    assert "Neural Clamping" in first[0]
    # Of torch 2.10, gloo itself prints a line in every process when it connects.
    assert [line for line in second[0].splitlines() if not line.startswith("[Gloo] ")] == []


def test_one_process_shows_an_error_of_all(run):
    _, printed = run
    assert sorted(code for *_, code in printed) == [1, 2]
    assert sum("they all stop here" in err for _, err, _ in printed) == 1


def test_shares_are_the_whole():
    shares = [ProcessGroup(3, rank).share_of(4) for rank in range(3)]
    assert [part for share in shares for part in range(4)[share]] == [0, 1, 2, 3]
    assert ProcessGroup(3, 0).share_of(2) == slice(0, 0)
