"""Memory of an evaluation, in a process of its own: what it takes above the data grows by a few numbers per sample."""

from pathlib import Path

import pytest
import torch
from forked import start

from calibrant.evaluation import metrics_for
from calibrant.evidence import estimates
from calibrant.metrics import SCE
from calibrant.predictions import Predictions

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
taken.write_text(str(megabytes("VmHWM:") - before))
"""


def test_very_many_classes_are_resampled_in_fewer_groups_and_have_no_kernel_error(monkeypatch) -> None:
    generator = torch.Generator().manual_seed(0)
    samples = Predictions(torch.randn(300, 12_000, generator=generator), torch.arange(300))
    less = Predictions(samples.logits[:, :5000], samples.labels)
    assert {m.name for m in metrics_for(less)} - {m.name for m in metrics_for(samples)} == {"skce"}
    drawn = []
    monkeypatch.setattr(estimates, "estimate_groups", lambda *given, **_: drawn.append(given[3].shape[1]) or {})
    for given in (samples, less, Predictions(samples.logits[:, :400], samples.labels)):
        with pytest.raises(KeyError, match="sce"):  # nothing was estimated
            estimates.estimate(given, [SCE()], resamples=100)
    assert drawn == [87, 209, 256]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell the peak of a process")
def test_an_evaluation_takes_less_than_a_kilobyte_per_sample(tmp_path: Path) -> None:
    process = start(_EVALUATE, taken=tmp_path / "taken")
    process.join(900)
    assert process.exitcode == 0
    assert 10 < float((tmp_path / "taken").read_text()) < 100
