"""Fit temperature scaling on more samples than memory holds, by passes over the shards that add up derivatives.

A first pass keeps a uniform sample, on which the fit starts. The log-loss is convex in 1/T with three known
derivatives, so one or two more passes over all samples find its minimum to ten digits: the temperature of a fit in
memory.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load as tensors_of
from safetensors.torch import save as bytes_of

from calibrant.calibrators import TemperatureScaling
from calibrant.calibrators.base import with_scores
from calibrant.errors import CalibrantError, FitError, InputError, without_our_warnings
from calibrant.maps import FitSummary, Scale
from calibrant.numerics.inverse_temperature import find_root, temperature_derivatives
from calibrant.numerics.newton import Certificate
from calibrant.predictions import Predictions
from calibrant.scale.jobs import LOCAL, Engine, first_design
from calibrant.scale.shards import Plan, Shard, Task
from calibrant.scale.state import Design, Sample, of_positive_weight, sample_size

_REACH = 4.0  # the temperature of all samples lies within this factor of that of the sample, or the fit fails
_PRECISION = 1e-10  # relative, of the temperature


class StreamedFit(NamedTuple):
    """A map that was fitted on all samples, and a uniform sample of them."""

    map: Scale
    sample: Predictions


def fit_temperature(
    shards: Sequence[Shard],
    plan: Plan,
    *,
    calibrator: TemperatureScaling = TemperatureScaling(),  # noqa: B008  # frozen
    engine: Engine = LOCAL,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> StreamedFit:
    """Fit a temperature on the samples of all shards.

    Given probabilities with zeros are mixed with a share of the uniform distribution, which the sample chooses.
    """
    if calibrator.settings() != TemperatureScaling().settings():
        raise InputError("a streamed temperature must minimise the log-loss; got another criterion, or a given value.")
    if engine.name == "torchrun":
        raise InputError("--engine must be local, dask or ray to fit; got torchrun, which evaluates only.")
    start = time.perf_counter()
    for shard in shards:
        plan.check(shard)
    tasks = plan.tasks(shards)
    design = first_design(plan, tasks, n_bins=15, seed=seed)
    if design.classes is None:
        raise InputError("a calibrator must be fitted on scores of every class; these files have only the top label.")
    progress("drawing a sample")
    sample, n = _drawn(tasks, plan, design, engine)
    fitted = calibrator.fit_without_scores(sample)
    assert isinstance(fitted, Scale)
    assert fitted.summary is not None
    summary = replace(fitted.summary, rows=n, seconds=time.perf_counter() - start)
    if n > len(sample):
        fitted, summary = _polished(fitted, summary, tasks, plan, engine, n, progress)
        summary = replace(summary, seconds=time.perf_counter() - start)
    known = sample.normalised
    fitted.summary = with_scores(summary, sample, lambda logits, _: fitted.apply_as(logits, known))
    return StreamedFit(fitted, sample)


def _drawn(tasks: Sequence[Task], plan: Plan, design: Design, engine: Engine) -> tuple[Predictions, int]:
    """Return a uniform sample of all samples, and their number."""
    kept, n = Sample(sample_size(design.classes)), 0
    for answer in engine.run(partial(_sample_of_task, plan=plan, design=design), tasks):
        tensors = tensors_of(_checked(answer))
        n += int(tensors.pop("n"))
        kept.merge(Sample.restore(tensors, design))
    samples = kept.predictions
    assert isinstance(samples, Predictions)
    return samples, n


def _checked(answer: bytes | CalibrantError) -> bytes:
    if isinstance(answer, CalibrantError):
        raise answer
    return answer


def _sample_of_task(task: Task, *, plan: Plan, design: Design) -> bytes:
    kept, n = Sample(sample_size(design.classes)), 0
    with without_our_warnings():
        for samples, keys in plan.keyed(task, design.seed):
            design.check(samples, task.shard.path)
            counted, its_keys = of_positive_weight(samples, keys)
            n += len(counted)
            kept.add(counted, its_keys)
    return bytes_of({**kept.tensors(), "n": torch.tensor(n)})


def _polished(
    start: Scale,
    summary: FitSummary,
    tasks: Sequence[Task],
    plan: Plan,
    engine: Engine,
    n: int,
    progress: Callable[[str], None],
) -> tuple[Scale, FitSummary]:
    """Return the optimum for all samples, from that of some of them."""
    share = 0.0 if start.uniform_share is None else float(start.uniform_share)
    sums = np.zeros(5)

    def derivatives(beta: float) -> Sequence[float]:
        nonlocal sums
        progress(f"a pass over {n:,} samples at T = {1 / beta:.6g}")
        sums = np.zeros(5)
        for answer in engine.run(partial(_derivatives_of_task, plan=plan, beta=beta, share=share), tasks):
            sums = sums + np.frombuffer(_checked(answer))
        return [float(column) / float(sums[0]) for column in sums[2:]]

    first = 1 / float(start.temperature)
    low, high = first / _REACH, first * _REACH
    root = find_root(derivatives, start=first, low=low, high=high, tolerance=_PRECISION, max_calls=12)
    if not low < root.value < high:
        raise FitError(
            f"the temperature of all samples must be near that of a sample of them, {1 / first:.4g}; it is beyond "
            f"{1 / low:.4g} or {1 / high:.4g}. Do the shards hold what their names say?"
        )
    beta = root.value
    fitted = Scale(start.temperature.new_tensor(1 / beta, dtype=torch.float64), n_classes=start.n_classes)
    if share:
        fitted.mix_in(torch.tensor(share, dtype=torch.float64))
    certificate = Certificate(-float(sums[1] / sums[0]), abs(root.residual), root.calls, 1.0 + root.calls)
    return fitted, replace(summary, certificate=certificate)


def _derivatives_of_task(task: Task, *, plan: Plan, beta: float, share: float) -> bytes:
    """Return the sums of weights, log-probabilities and their three derivatives over the samples of one task."""
    total: NDArray[np.float64] = np.zeros(5)
    with without_our_warnings():
        for samples, _ in plan.keyed(task, 0):
            assert isinstance(samples, Predictions)
            counted = samples.with_positive_weights().mixed_with_uniform(share)
            weights = counted.weights
            for block in temperature_derivatives(counted.logits, counted.labels, beta):
                columns: tuple[Any, ...] = (block.log_prob, block.slope, block.curvature, block.third)
                if weights is not None:
                    columns = tuple(column.double() * weights[block.rows] for column in columns)
                total[1:] += [float(column.sum(dtype=torch.float64)) for column in columns]
            total[0] += len(counted) if weights is None else math.fsum(weights.tolist())
    return total.tobytes()
