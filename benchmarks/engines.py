"""Dask and Ray on this machine beside the local engine: the same shards, two workers each, all started before."""

import importlib.util
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks.bounds import Bound
from benchmarks.scale import CLASSES, write_shard
from benchmarks.timing import in_turns

__all__ = ["report"]

PACKAGES = {"local": "multiprocessing", "dask": "distributed", "ray": "ray"}
_ROWS, _SHARDS, _WORKERS, _ROUNDS = 1_000_000, 6, 2, 12


def report() -> str:
    """The section of the results."""
    from calibrant.files.choose import LoadOptions
    from calibrant.scale import Engine, Plan, find_shards, gather

    missing = [name for name, package in PACKAGES.items() if importlib.util.find_spec(package) is None]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        write_shard(Path(folder) / "0.parquet", _ROWS, 0)
        for part in range(1, _SHARDS):  # the same samples under other names
            (Path(folder) / f"{part}.parquet").hardlink_to(Path(folder) / "0.parquet")
        shards = find_shards([folder])
        plan = Plan.of(shards[0], LoadOptions())
        tasks = {}
        for name in [one for one in PACKAGES if one not in missing]:
            engine = stack.enter_context(Engine(name, _WORKERS).started())  # type: ignore[arg-type]
            tasks[name] = partial(gather, shards, plan, engine=engine)
            tasks[name]()  # every worker has imported what it needs
        seconds = in_turns(tasks, rounds=_ROUNDS, clock=time.perf_counter)
    lines = [
        f"## Engines, {_SHARDS} x {_ROWS:,} x {CLASSES} float32 in Parquet, {_WORKERS} workers on this machine",
        "",
        f"The state of a whole report; least time of {_ROUNDS} rounds in turns, once all are started.",
        "",
        "| engine | seconds | times the local one |",
        "|---|---|---|",
    ]
    for name, package in PACKAGES.items():
        if name in missing:
            lines.append(f"| {name} | not measured: {package} is not installed | |")
        else:
            lines.append(f"| {name} | {seconds[name]:.2f} | {seconds[name] / seconds['local']:.2f} |")
    bounds = [
        Bound(f"{name}, times the local engine", seconds[name] / seconds["local"], at_most=1.15)
        for name in seconds
        if name != "local"
    ]
    return "\n".join([*lines, "", *map(str, bounds), ""])
