"""Shards of any format, engine and division give the answer of one file; what goes wrong is named, nothing is lost."""

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from forked import start
from held_ports import held_port
from pyarrow import csv
from tests.unit.scale.test_state import predictions_of

from calibrant import save
from calibrant.errors import CalibrantWarning, FileError, InputError
from calibrant.files.choose import LoadOptions
from calibrant.files.load import load_detailed
from calibrant.labels import joined_columns
from calibrant.report import to_plain
from calibrant.scale import Engine, EvaluationState, Plan, evaluate_state, find_shards, gather
from calibrant.slices import slice_words

N, K = 900, 3


def table_of(rows: slice, **changes: object) -> pa.Table:
    samples = predictions_of(N, K)[rows]
    columns = {f"logit_{i}": samples.logits[:, i].numpy() for i in range(K)}
    columns |= {"label": samples.labels.numpy(), "fold": np.where(np.arange(len(samples)) % 3, "test", "cal")}
    return pa.table({**columns, **changes})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "preds"
    for name, rows in (("day=1/a", slice(0, 200)), ("day=1/b", slice(200, 650)), ("day=2/a", slice(650, N))):
        path = made / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table_of(rows), path, row_group_size=100)
    (made / "_SUCCESS").touch()
    return made


def gathered(*sources: object, **options: object):
    shards = find_shards(sources)  # type: ignore[arg-type]
    return gather(shards, Plan.of(shards[0], LoadOptions(labels=None)), **options)  # type: ignore[arg-type]


def values_of(state) -> dict[str, float]:
    return {name: estimate.value for name, estimate in evaluate_state(state, resamples=100).metrics.items()}


def test_folders_patterns_and_lists_mean_the_same_shards(folder):
    names = ["day=1/a.parquet", "day=1/b.parquet", "day=2/a.parquet"]
    paths = [folder / name for name in names]
    for sources in ([folder], [folder / "**" / "*.parquet"], paths, [*reversed(paths), paths[0]]):
        assert [shard.name for shard in find_shards(sources)] == names
    assert [shard.name for shard in find_shards([folder / "day=1"])] == ["a.parquet", "b.parquet"]


def test_shards_of_two_drives_have_their_whole_paths_as_names(folder, monkeypatch):
    def two_drives(_paths):
        raise ValueError("Paths don't have the same drive")

    monkeypatch.setattr(os.path, "commonpath", two_drives)
    names = [shard.name for shard in find_shards([folder])]
    assert names == [
        f"{folder.as_posix().lstrip('/')}/day={day}" for day in ("1/a.parquet", "1/b.parquet", "2/a.parquet")
    ]


def test_sources_without_predictions_are_refused(tmp_path):
    with pytest.raises(FileError, match="there is none"):
        find_shards([tmp_path])
    with pytest.raises(FileError, match="does not exist"):
        find_shards([tmp_path / "none.parquet"])


@pytest.mark.parametrize(
    "suffix", [".parquet", ".npz", ".npy", ".csv", ".csv.gz", ".tsv", ".jsonl", ".safetensors", ".arrow", ".pt"]
)
def test_shards_of_every_format_are_read_in_batches_and_give_the_numbers_of_one_file(tmp_path, suffix, monkeypatch):
    monkeypatch.setattr("calibrant.files.text._JSON_CHUNK", 1 << 13)
    samples = predictions_of(N, K)
    for number, rows in enumerate((slice(0, 300), slice(300, N))):
        if suffix == ".npy":
            np.save(tmp_path / f"logits{number}.npy", samples.logits[rows].numpy())
            np.save(tmp_path / "answers.npy", samples.labels[:300].numpy())
        else:
            save(samples[rows], tmp_path / f"{number}{suffix}")
    options = LoadOptions(labels="answers.npy", kind="logits") if suffix == ".npy" else LoadOptions()
    shards = find_shards([tmp_path / "logits0.npy"] if suffix == ".npy" else [tmp_path])
    plan = replace(Plan.of(shards[0], options), rows=150)
    sizes = [len(batch.samples) for task in plan.tasks(shards) for batch in plan.batches(task)]
    assert max(sizes) <= 150 or suffix == ".pt"
    state = gather(shards, plan).state
    samples = samples[:300] if suffix == ".npy" else samples
    assert state.n == sum(sizes) == len(samples)
    states = state.states()
    for metric in state.metrics:
        if metric.name in {"accuracy", "ece", "nll", "brier", "sce", "smece"}:
            assert float(metric.value(states[metric.statistic])) == pytest.approx(metric(samples), abs=1e-12)


def test_columns_of_text_have_the_types_of_the_whole_file(tmp_path):
    words = ["1.0"] * 60 + ["north"] * 20 + ["1"] * 20  # numbers in the first batches
    lines = [f"{i % 3},{1 - i % 3},{['cat', 'dog'][i % 2]},{words[i]},{i}.0" for i in range(100)]
    (tmp_path / "a.csv").write_text("logit_cat,logit_dog,label,region,shift\n" + "\n".join(lines))
    shards = find_shards([tmp_path / "a.csv"])
    with pytest.warns(CalibrantWarning, match="'label' depends on the label alone"):
        Plan.of(shards[0], LoadOptions(extra=("label",)))
    plan = replace(Plan.of(shards[0], LoadOptions(extra=("region", "shift"))), rows=10)
    batches = list(plan.batches(*plan.tasks(shards)))
    loaded = load_detailed(tmp_path / "a.csv", LoadOptions(extra=("region", "shift")))
    assert torch.equal(torch.cat([batch.samples.logits for batch in batches]), loaded.predictions.logits)
    assert torch.equal(torch.cat([batch.samples.labels for batch in batches]), loaded.predictions.labels)
    read = {name: joined_columns([batch.columns[name] for batch in batches]) for name in ("region", "shift")}
    whole = {name: slice_words(column) for name, column in loaded.extra.items()}
    for name, column in read.items():
        assert [column.distinct[code] for code in column.codes] == [
            whole[name].distinct[code] for code in whole[name].codes
        ]
    (tmp_path / "a.csv").write_text("logit_cat,logit_dog,label\n" + "1,2,cat\n" * 50 + "1,two,cat\n")
    with pytest.raises(FileError, match="two"):
        gathered(tmp_path / "a.csv")


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_a_batch_may_have_no_sample_of_the_positive_class(tmp_path, suffix):
    scores = np.random.default_rng(0).random(300)
    table = {"p": scores, "y": np.where(np.arange(300) % 100 == 99, "fraud", "fair")}
    for name, rows in (("a", slice(0, 200)), ("b", slice(200, 290))):  # the second file has none
        part = pa.table({column: values[rows] for column, values in table.items()})
        path = tmp_path / f"{name}{suffix}"
        pq.write_table(part, path) if suffix == ".parquet" else csv.write_csv(part, path)
    shards, options = find_shards([tmp_path]), LoadOptions(positive="p", labels="y", positive_class="fraud")
    plan = replace(Plan.of(shards[0], options), rows=40)
    state = gather(shards, plan).state
    assert (state.n, state.design.class_names) == (290, ("fair", "fraud"))
    whole = load_detailed(shards[0].path, options).predictions
    assert float(state.sums["moments.correct"].sum()) == int(whole.top.correct.sum()) + int(
        (scores[200:290] < 0.5).sum()
    )
    with pytest.raises(InputError, match="must be a label in 'y' of the first shard"):
        Plan.of(shards[1], options)
    third = pa.table({"p": scores[:40], "y": ["odd"] * 40})
    path = tmp_path / f"c{suffix}"
    pq.write_table(third, path) if suffix == ".parquet" else csv.write_csv(third, path)
    with pytest.raises(FileError, match=r"must have two classes .* got 3: 'fair', 'fraud', 'odd'"):
        gather(find_shards([tmp_path]), plan)


def test_arrays_that_end_early_are_refused(tmp_path):
    samples = predictions_of(100, K)
    np.savez_compressed(tmp_path / "a.npz", logits=np.asfortranarray(samples.logits), labels=samples.labels.numpy())
    assert gathered(tmp_path / "a.npz").state.n == 100  # by columns, so that it is read whole
    np.savez(tmp_path / "a.npz", logits=samples.logits.numpy(), labels=samples.labels.numpy()[:90])
    with pytest.raises(FileError, match=r"a\.npz"):
        gathered(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", logits=samples.logits.numpy(), labels=samples.labels.numpy())
    stored = bytearray((tmp_path / "a.npz").read_bytes())
    stored[1000] ^= 1
    (tmp_path / "a.npz").write_bytes(stored)
    with pytest.raises(FileError, match=r"a\.npz"):
        gathered(tmp_path / "a.npz")


def test_batches_and_parts_change_nothing(folder, monkeypatch):
    shards = find_shards([folder])
    plan = Plan.of(shards[0], LoadOptions())
    whole = gather(shards, plan)
    monkeypatch.setattr("calibrant.scale.shards._TASK_BATCHES", 0)
    monkeypatch.setattr("calibrant.scale.shards._TASK_ROWS", 1)
    assert len(plan.tasks(shards)) > 3
    parts = gather(shards, Plan(plan.options, plan.choice, rows=37, names=plan.names))
    for name, numbers in whole.state.sums.items():
        torch.testing.assert_close(parts.state.sums[name], numbers, rtol=1e-12, atol=1e-12)
    assert torch.equal(parts.state.sample.predictions.logits, whole.state.sample.predictions.logits)


_PEAK = """
from pathlib import Path
import torch
from calibrant.files.choose import LoadOptions
from calibrant.scale import Plan, find_shards, gather

torch.set_num_threads(1)
shards = find_shards([path])
gather(shards, Plan.of(shards[0], LoadOptions()))
peak.write_text(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell the peak of a process")
def test_many_batches_take_the_memory_of_one(tmp_path):
    peaks = []
    for n in (100_000, 1_000_000):
        logits = np.random.default_rng(0).standard_normal((10, n), dtype=np.float32)
        columns = {f"logit_{i}": column for i, column in enumerate(logits)}
        table = pa.table({**columns, "label": logits.argmax(0)})
        pq.write_table(table, tmp_path / f"{n}.parquet", use_dictionary=False)
        process = start(_PEAK, path=tmp_path / f"{n}.parquet", peak=tmp_path / "peak")
        process.join(900)
        assert process.exitcode == 0
        peaks.append(int((tmp_path / "peak").read_text()))
    assert peaks[1] < 1.1 * peaks[0]


def test_a_column_chooses_the_samples(folder):
    shards = find_shards([folder])
    plan = Plan.of(shards[0], LoadOptions(), ("fold", "test", None))
    expected = sum(int((np.arange(n) % 3 != 0).sum()) for n in (200, 450, 250))
    assert gather(shards, plan).state.n == expected
    whole = gather(shards, Plan.of(shards[0], LoadOptions())).state.sample.predictions
    chosen = gather(shards, plan).state.sample.predictions
    rows = {tuple(row) for row in whole.logits.tolist()}
    assert all(tuple(row) in rows for row in chosen.logits.tolist())
    with pytest.raises(InputError, match="none of them does"):
        gather(shards, Plan.of(shards[0], LoadOptions(), ("fold", "test", "no such part")))
    with pytest.raises(InputError, match="where is for one file in memory"):
        Plan.of(shards[0], LoadOptions(where={"fold": "test"}))


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (table_of(slice(0, 9)).drop_columns(["logit_2"]), "logit_2"),
        (table_of(slice(0, 9)).drop_columns(["label"]), "label"),
        (table_of(slice(0, 9)).rename_columns(["prob_0", "prob_1", "prob_2", "label", "fold"]), "logit_0"),
        (table_of(slice(0, 9)).cast(pa.schema([(n, pa.float32()) for n in ("logit_0", "logit_1", "logit_2")]
                                              + [("label", pa.int64()), ("fold", pa.string())])), "float32 instead of"),
        (table_of(slice(0, 9), logit_1=[float("nan")] * 9), "logit_1"),
        (table_of(slice(0, 9), label=[7] * 9), "label"),
        (pa.table({**{n: table_of(slice(0, 9))[n] for n in ("label", "fold")},
                   **{f"logit_{n}": table_of(slice(0, 9))["logit_0"] for n in range(4)}}), "same columns"),
    ],
)  # fmt: skip
def test_a_shard_unlike_the_first_is_named(folder, table, words):
    pq.write_table(table, folder / "zz.parquet")
    with pytest.raises(FileError, match=r"zz\.parquet") as raised:
        gathered(folder)
    assert words in str(raised.value)
    result = gathered(folder, allow_missing=True)
    assert result.state.n == N
    assert len(result.missing) == 1
    assert "zz.parquet" in result.missing[0]
    report = evaluate_state(result.state, resamples=100, shards=3, missing=result.missing)
    assert report.streamed.missing == tuple(result.missing)


def test_classes_in_another_order_are_refused(tmp_path):
    samples = predictions_of(40, 2)
    for name, order in (("a", ("cat", "dog")), ("b", ("dog", "cat"))):
        columns = {f"logit_{word}": samples.logits[:, place].numpy() for place, word in enumerate(order)}
        pq.write_table(pa.table({**columns, "label": ["cat"] * 40}), tmp_path / f"{name}.parquet")
    with pytest.raises(FileError, match=r"b\.parquet must have the same columns in the same order"):
        gathered(tmp_path)


def test_a_truncated_shard_is_named(folder):
    path = folder / "day=2" / "a.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(FileError, match=r"day=2/a\.parquet"):
        gathered(folder)


def test_a_shard_without_rows_adds_nothing(folder):
    pq.write_table(table_of(slice(0, 1)).slice(0, 0), folder / "zz.parquet")
    with pytest.warns(CalibrantWarning, match=r"zz\.parquet has no rows"):
        assert gathered(folder).state.n == N


def test_a_shard_that_changes_or_vanishes_is_noticed(folder):
    shards = find_shards([folder])
    plan = Plan.of(shards[0], LoadOptions())
    task = plan.tasks(shards)[0]
    reader = plan.batches(task)
    next(reader)
    os.utime(shards[0].path, ns=(1, 1))
    with pytest.raises(FileError, match="must not change while it is read"):
        list(reader)
    shards[0].path.unlink()
    with pytest.raises(FileError, match="must stay while it is read"):
        shards[0].check_unchanged()


def test_a_killed_job_continues(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("calibrant.scale.jobs._SHARE", float("inf"))
    monkeypatch.setattr("calibrant.scale.shards._TASK_BATCHES", 0)
    monkeypatch.setattr("calibrant.scale.shards._TASK_ROWS", 1)
    expected, job = gathered(folder), tmp_path / "job"

    class Killed(BaseException):
        pass

    seen = []

    def killed_after_two(line: str) -> None:
        seen.append(line)
        if len(seen) == 3:
            raise Killed

    with pytest.raises(Killed):
        gathered(folder, checkpoint=job, progress=killed_after_two)
    lines: list[str] = []
    result = gathered(folder, checkpoint=job, progress=lines.append)
    assert lines[0].startswith("continuing after 2 of")
    assert "samples" in lines[1]
    assert "left" in lines[1]
    for name, numbers in expected.state.sums.items():
        assert torch.equal(result.state.sums[name], numbers), name
    assert torch.equal(result.state.sample.predictions.logits, expected.state.sample.predictions.logits)
    shard = folder / "day=1" / "b.parquet"
    facts, content = shard.stat(), shard.read_bytes()
    shard.write_bytes(content[:5] + bytes([content[5] ^ 1]) + content[6:])
    os.utime(shard, ns=(facts.st_atime_ns, facts.st_mtime_ns))  # as `cp -p` of another version would
    with pytest.raises(FileError, match=r"day=1/b\.parquet has changed since"):
        gathered(folder, checkpoint=job)
    shard.write_bytes(content)
    os.utime(shard, ns=(1, 1))
    with pytest.raises(FileError, match=r"day=1/b\.parquet has changed since"):
        gathered(folder, checkpoint=job)


def test_a_continued_job_names_missing_shards_once(folder, tmp_path):
    (folder / "day=2" / "b.parquet").write_bytes(b"PAR1")
    for _ in range(2):
        assert len(gathered(folder, checkpoint=tmp_path / "job", allow_missing=True).missing) == 1


def test_two_jobs_with_one_checkpoint_are_refused(folder, tmp_path):
    def second(_line: str) -> None:
        with pytest.raises(FileError, match="another is running with it"):
            gathered(folder, checkpoint=tmp_path / "job")

    gathered(folder, checkpoint=tmp_path / "job", progress=second)
    with pytest.raises(FileError, match="must be this job's checkpoint; options or columns differ"):
        gathered(folder, checkpoint=tmp_path / "job", seed=1)


def test_workers_that_are_killed_at_random_moments_change_nothing(folder, monkeypatch):
    """Thirty times, while they start, read, answer or wait."""
    monkeypatch.setattr("calibrant.scale.shards._TASK_BATCHES", 0)
    monkeypatch.setattr("calibrant.scale.shards._TASK_ROWS", 1)
    monkeypatch.setattr("calibrant.scale.engines._LIVES", 30)  # one task may be hit many times
    rng, killed = np.random.default_rng(0), list[int]()
    moved, done = threading.Event(), threading.Event()

    def report(engine: Engine) -> str:
        result = gathered(folder, engine=engine, progress=lambda _line: moved.set())
        return json.dumps(to_plain(evaluate_state(result.state, resamples=50)))

    def kill() -> None:
        while not done.wait(rng.uniform(0, 0.1)):
            if moved.is_set() and (workers := multiprocessing.active_children()):
                moved.clear()  # not before a worker has had the time to answer
                worker = workers[rng.integers(len(workers))].pid
                with suppress(ProcessLookupError):  # the one that was killed before, and is replaced by now
                    os.kill(worker, signal.SIGKILL)
                    killed.append(worker)

    expected = report(Engine())
    killer = threading.Thread(target=kill)
    killer.start()
    try:
        with Engine("local", workers=2).started() as engine:
            while len(killed) < 30:
                assert report(engine) == expected
    finally:
        done.set()
        killer.join()


TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


@pytest.mark.parametrize("engine", ["torchrun", "dask", "ray", "spark"])
def test_every_engine_gives_the_same_report(folder, tmp_path, engine):
    module = {"dask": "distributed", "ray": "ray", "spark": "pyspark", "torchrun": "torch"}[engine]
    pytest.importorskip(module)
    if engine == "spark" and shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    start = [*TORCHRUN, "-m", "calibrant"] if engine == "torchrun" else [sys.executable, "-m", "calibrant"]
    report = tmp_path / "report.json"
    arguments = ["evaluate", str(folder), "--resamples", "100", "--json", str(report), "--engine", engine]
    arguments += (
        ["--checkpoint", str(tmp_path / "job"), "--baseline", str(folder)]
        if engine == "torchrun"
        else ["--workers", "2"]
    )
    done = subprocess.run([*start, *arguments], capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("Calibration report") == 1
    expected = evaluate_state(gathered(folder).state, resamples=100)
    text = report.read_text()
    assert f'"value": {expected.metrics["ece"].value!r}' in text


# The command in one process of torchrun, which says in how many groups of processes it took part.
COUNTED = """
import contextlib, os, sys
import torch.distributed as dist
from calibrant.cli.main import run
joined, join = [], dist.init_process_group
dist.init_process_group = lambda *args, **options: joined.append(1) or join(*args, **options)
os.environ |= group
sys.argv = ["calibrant", *arguments]
with said.open("w") as file, contextlib.redirect_stdout(file):
    try:
        run()
    finally:
        print("groups:", len(joined))
"""


def test_processes_of_torchrun_leave_out_rows_and_write_one_state(tmp_path):
    """Finding the rows and gathering the others share one group of processes: a second one fails at times."""
    samples, shards, out = predictions_of(400, 3), tmp_path / "preds", tmp_path / "all.state"
    shards.mkdir()
    for number in range(2):
        part = samples[200 * number : 200 * (number + 1)]
        logits = part.logits.numpy().copy()
        logits[:3] = np.nan
        np.savez(shards / f"{number}.npz", logits=logits, labels=part.labels.numpy())
    arguments = ["state", str(shards), "-o", str(out), "--engine", "torchrun", "--missing", "drop"]
    said = [tmp_path / "first.txt", tmp_path / "second.txt"]
    with held_port() as port:
        group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
        told = [{"group": {**group, "RANK": str(rank), "LOCAL_RANK": str(rank)}, "said": said[rank]} for rank in (0, 1)]
        processes = [start(COUNTED, arguments=arguments, **one) for one in told]
        for process in processes:
            process.join(300)
    assert [process.exitcode for process in processes] == [0, 0]
    assert [path.read_text().count("Wrote ") for path in said] == [1, 0]
    assert [path.read_text().count("groups: 1") for path in said] == [1, 1]
    assert EvaluationState.load(out)[0].n == 394


def test_engines_that_do_not_exist_are_named():
    with pytest.raises(InputError, match="must be one of local, torchrun, dask, ray, spark"):
        Engine("slurm")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="--address belongs to"):
        Engine("local", address="tcp://127.0.0.1:1")


def test_shards_below_the_limit_are_evaluated_in_memory(folder, monkeypatch):
    from calibrant.cli.inputs import Source
    from calibrant.cli.scale import ScaleOptions

    source = Source.find([folder])
    assert not ScaleOptions().streams(source)
    assert ScaleOptions(stream=True).streams(source)
    monkeypatch.setattr("calibrant.cli.scale._MOST_NUMBERS", 100)
    assert ScaleOptions().streams(source)
