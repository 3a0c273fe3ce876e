"""Streaming from Parquet: its rate against reading alone, and its memory from 10^5 to 10^8 samples."""

import os
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from benchmarks.bounds import Bound
from benchmarks.memory import peak_of
from benchmarks.timing import in_turns

__all__ = ["report"]

CLASSES, SHARD = 10, 5_000_000
SIZES = (100_000, 1_000_000, 10_000_000, 100_000_000)
NINE = ("accuracy", "nll", "brier", "ece", "ace", "mce", "sce", "auroc", "aurc")
_TIMED, _LINKS = 2_000_000, 8


def write_shard(path: Path, n: int, seed: int) -> None:
    """Write logits whose labels are right for four of five samples and random for the others."""
    rng = np.random.default_rng(seed)
    with pq.ParquetWriter(path, _SCHEMA, use_dictionary=False) as writer:
        for start in range(0, n, 1_000_000):
            rows = min(1_000_000, n - start)
            logits = 3 * rng.standard_normal((CLASSES, rows), dtype=np.float32)
            labels = np.where(rng.random(rows) < 0.8, logits.argmax(0), rng.integers(0, CLASSES, rows))
            writer.write_table(pa.table([*logits, labels], schema=_SCHEMA))


_SCHEMA = pa.schema([*((f"logit_{i}", pa.float32()) for i in range(CLASSES)), ("label", pa.int64())])


def report() -> str:
    """The section of the results."""
    with tempfile.TemporaryDirectory() as folder:
        return "\n".join([*_rates(Path(folder)), "", *_by_classes(), "", *_memory(Path(folder)), ""])


def _rates(folder: Path) -> list[str]:
    from calibrant import TemperatureScaling, catalogue
    from calibrant.files.choose import LoadOptions
    from calibrant.metrics.base import RankMetric, Tally
    from calibrant.metrics.states import RankedCells
    from calibrant.scale import Engine, Plan, find_shards, fit_streamed, gather
    from calibrant.scale.evaluation import estimate_state

    for part in range(2):
        write_shard(folder / f"rate{part}.parquet", _TIMED, part)
    one, both = find_shards([folder / "rate0.parquet"]), find_shards([folder / "rate*.parquet"])
    plan = Plan.of(one[0], LoadOptions())
    chosen = [catalogue.metrics[name] for name in NINE]
    chosen = [replace(metric, ranks=RankedCells()) if isinstance(metric, RankMetric) else metric for metric in chosen]

    def read() -> int:
        with pq.ParquetFile(one[0].path) as file:
            return sum(len(batch) for batch in file.iter_batches(plan.rows, columns=plan.names, use_threads=False))

    def nine() -> object:
        tally = Tally(chosen)
        for task in plan.tasks(one):
            for batch in plan.batches(task):
                tally.add(batch.samples)
        return tally.values()

    def with_intervals() -> object:
        state = gather(one, plan).state  # type: ignore[union-attr]
        return estimate_state(state, state.sample.predictions, chosen, resamples=200)

    tasks = {"read": read, "nine": nine, "all": lambda: gather(one, plan), "intervals": with_intervals}
    tasks["temperature"] = lambda: fit_streamed(TemperatureScaling(), one, plan)
    times = in_turns(tasks, rounds=3)
    fitted = fit_streamed(TemperatureScaling(), one, plan)
    certificate = fitted.map.summary.certificate  # type: ignore[union-attr]
    assert certificate is not None
    for part in range(_LINKS):  # the same samples under other names: more work for the same disk
        (folder / f"more{part}.parquet").hardlink_to(one[0].path)
    many = find_shards([folder / "*.parquet"])
    engines = {
        (len(shards), workers): partial(gather, shards, plan, engine=Engine("local", workers))
        for shards in (both, many)
        for workers in (1, 2)
    }
    wall = in_turns(engines, rounds=2, clock=time.perf_counter)
    more = {workers: wall[len(many), workers] - wall[len(both), workers] for workers in (1, 2)}  # without the start
    lines = [
        f"## Streaming from Parquet, {_TIMED:,} x {CLASSES} float32, on one thread",
        "",
        "Processor time; reading is that of the columns by pyarrow, in the same batches.",
        "",
        "| work | times reading | million samples a second |",
        "|---|---|---|",
    ]
    titles = {
        "read": "reading", "nine": "nine metrics", "all": "the state of a whole report",
        "intervals": "the same, and nine metrics with intervals from 200 draws", "temperature": "a temperature",
    }  # fmt: skip
    for name, title in titles.items():
        lines.append(f"| {title} | {times[name] / times['read']:.1f} | {_TIMED / times[name] / 1e6:.2f} |")
    bounds = [
        Bound("nine metrics, times reading", times["nine"] / times["read"], at_most=2),
        Bound("nine metrics, million samples a second", _TIMED / times["nine"] / 1e6, at_least=4),
        Bound("with intervals, times nine metrics", times["intervals"] / times["nine"], at_most=4),
        Bound("passes of a temperature", certificate.passes, at_most=4),
        Bound("rate of two processes over that of one, once started", more[1] / more[2], at_least=1.8),
    ]
    return [*lines, "", *map(str, bounds)]


def _by_classes() -> list[str]:
    from calibrant import Predictions
    from calibrant.scale import EvaluationState
    from calibrant.scale.state import Design, sample_keys

    lines = [
        "The state of a whole report, from samples in memory:",
        "",
        "| classes | million samples a second | MB | processor seconds to add one to another |",
        "|---|---|---|---|",
    ]
    for classes, n in ((2, 300_000), (10, 300_000), (100, 60_000), (1000, 12_000)):
        generator = torch.Generator().manual_seed(0)
        logits = torch.randn(n, classes, generator=generator)
        samples = Predictions.from_logits(logits, torch.randint(0, classes, (n,), generator=generator))
        states = [EvaluationState(Design.of(samples)) for _ in range(2)]
        seconds = []
        for state in states:
            fresh, start = samples[:], time.process_time()
            state.add(fresh, sample_keys(0, "a", 0, n))
            seconds.append(time.process_time() - start)
        sent, start = states[1].to_bytes(), time.process_time()
        states[0].merge(EvaluationState.from_bytes(sent))
        adding = time.process_time() - start
        lines.append(f"| {classes} | {n / min(seconds) / 1e6:.2f} | {len(sent) / 1e6:.0f} | {adding:.2f} |")
    return lines


def _memory(folder: Path) -> list[str]:
    lines = [
        "Peak of the process that gathers the state of a whole report, and its rate:",
        "",
        "| samples | peak | million samples a second |",
        "|---|---|---|",
    ]
    peaks = []
    for size in SIZES:
        parts = Path(tempfile.mkdtemp(dir=folder))
        for number, start in enumerate(range(0, size, SHARD)):
            write_shard(parts / f"{number}.parquet", min(SHARD, size - start), number)
        peak, seconds = peak_of("benchmarks.scale", str(parts))
        peaks.append(peak)
        lines.append(f"| {size:,} | {peak:.0f} MB | {size / seconds / 1e6:.2f} |")
        print(lines[-1], flush=True)
        fitted = peak_of("benchmarks.scale", str(parts), "temperature")  # the last is that of most samples
        for path in parts.iterdir():
            path.unlink()
    bounds = [
        Bound("peak, MB", max(peaks), at_most=1000),
        Bound("most over least peak, 10^5 to 10^8", max(peaks) / min(peaks), at_most=1.1),
        Bound("peak of a temperature of 10^8, MB", fitted[0], at_most=1000),
        Bound("its passes", fitted[1], at_most=4),
        Bound("T of 10^6 float64, streamed minus in memory", _difference_of_temperatures(folder), at_most=1e-9),
    ]
    return [*lines, "", *map(str, [*bounds, *_memory_of_apply(folder)])]


def _memory_of_apply(folder: Path) -> list[Bound]:
    """Compare the peak of ``apply`` to 10^6 and to three times as many samples, by format."""
    from calibrant import Predictions, save

    bounds = []
    for suffix in (".csv", ".npz", ".safetensors"):
        peaks = []
        for n in (1_000_000, 3_000_000):
            parts = Path(tempfile.mkdtemp(dir=folder))
            made = torch.Generator().manual_seed(n)
            labels = torch.randint(CLASSES, (n,), generator=made)
            save(Predictions.from_logits(torch.randn(n, CLASSES, generator=made), labels), parts / f"p{suffix}")
            peaks.append(peak_of("benchmarks.scale", str(parts), "apply")[0])
            for path in (parts / f"p{suffix}", parts / "out" / f"p{suffix}"):
                path.unlink()
        bounds.append(Bound(f"peak of apply to 3 * 10^6 over 10^6, {suffix}", peaks[1] / peaks[0], at_most=1.15))
    return bounds


def _difference_of_temperatures(folder: Path) -> float:
    from calibrant import TemperatureScaling, load
    from calibrant.files.choose import LoadOptions
    from calibrant.scale import Plan, find_shards, fit_streamed

    parts = Path(tempfile.mkdtemp(dir=folder))
    for number in range(2):
        path = parts / f"{number}.parquet"
        write_shard(path, 500_000, number)
        wide = pa.schema([*((f"logit_{i}", pa.float64()) for i in range(CLASSES)), ("label", pa.int64())])
        pq.write_table(pq.read_table(path).cast(wide), path)
    shards = find_shards([parts])
    streamed = fit_streamed(TemperatureScaling(), shards, Plan.of(shards[0], LoadOptions()))
    joined = pa.concat_tables([pq.read_table(shard.path) for shard in shards])
    in_memory = TemperatureScaling().fit(load(joined))
    return abs(float(streamed.map.temperature) - float(in_memory.temperature))  # type: ignore[union-attr]


def _measure(folder: str, work: str = "state") -> None:
    """Gather the state of a folder, or apply a map to it, and print the seconds; or fit, and print the passes."""
    from calibrant import TemperatureScaling
    from calibrant.files.choose import LoadOptions
    from calibrant.maps import Scale
    from calibrant.scale import Plan, find_shards, fit_streamed, gather
    from calibrant.scale.apply import apply_to_shards, targets

    torch.set_num_threads(1)
    shards = find_shards([folder])
    plan, start = Plan.of(shards[0], LoadOptions()), time.process_time()
    if work == "state":
        gather(shards, plan)
        print(time.process_time() - start)
        return
    if work == "apply":
        chosen = targets(shards, Path(folder) / "out", sources=())
        apply_to_shards(chosen, lambda *_: Scale(torch.tensor(0.5), n_classes=CLASSES), plan, identity="")
        print(time.process_time() - start)
        return
    fitted = fit_streamed(TemperatureScaling(), shards, plan)
    print(fitted.map.summary.certificate.passes)  # type: ignore[union-attr]


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    _measure(*sys.argv[1:])
