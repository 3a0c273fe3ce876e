"""Memory of an evaluation, in a process of its own: what it takes above the data grows by a few numbers per sample."""

import subprocess
import sys
from pathlib import Path

import pytest

_EVALUATE = """
from pathlib import Path
import torch
from calibrant import Predictions, evaluate

def megabytes(what):
    return int(Path("/proc/self/status").read_text().split(what)[1].split()[0]) / 1024

torch.set_num_threads(1)
generator = torch.Generator().manual_seed(0)
logits = 2 * torch.randn(100_000, 10, generator=generator)
samples = Predictions(logits, logits.div(2).softmax(dim=1).multinomial(1, generator=generator).flatten())
evaluate(samples[:2000], resamples=50)  # loads what is loaded once
before = megabytes("VmRSS:")
evaluate(samples, resamples=50)
print(megabytes("VmHWM:") - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell the peak of a process")
def test_an_evaluation_takes_less_than_a_kilobyte_per_sample() -> None:
    done = subprocess.run([sys.executable, "-c", _EVALUATE], capture_output=True, text=True, check=True, timeout=300)
    assert float(done.stdout) < 100
