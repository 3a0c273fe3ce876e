"""Passes over the samples of all shards, each of which adds up what a fit needs to know of them.

The first pass counts, and draws a uniform sample that is kept in memory. Every other one maps a function over batches
of samples, as the calibrator sees them, and adds up its answers in the order of the shards.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from typing import Any, NamedTuple, TypeAlias, final

import torch
from safetensors.torch import load as tensors_of
from safetensors.torch import save as bytes_of
from torch import Tensor

from calibrant.errors import CalibrantError, without_our_warnings
from calibrant.maps import Map
from calibrant.numerics.uniform_share import choose_share
from calibrant.predictions import Predictions, needs_floor
from calibrant.scale.engines import Answer, run_torchrun
from calibrant.scale.jobs import Engine
from calibrant.scale.shards import Plan, Task
from calibrant.scale.state import Design, Sample, of_positive_weight, sample_size

_NUMBERS, _LEAST_ROWS = 1 << 23, 1 << 12  # scores at a time, and samples at least

Sums: TypeAlias = dict[str, Tensor]
Work: TypeAlias = Callable[[Task], bytes]
Run: TypeAlias = Callable[[Work], Iterator[Answer]]


@contextmanager
def leading(engine: Engine, tasks: Sequence[Task]) -> Iterator[Run | None]:
    """Yield what maps a function over the tasks; None, when all is done, in processes of torchrun but the first.

    The first process decides: for every pass it broadcasts the work to the others and gathers their answers.
    """
    if engine.name != "torchrun" or "RANK" not in os.environ:
        with engine.started() as running:  # for all passes, since processes take seconds to start
            yield lambda work: running.run(work, tasks)
        return
    import torch.distributed as dist

    started = not dist.is_initialized()
    if started:
        dist.init_process_group("gloo")
    group = dist.new_group(backend="gloo")
    try:
        if dist.get_rank() == 0:
            try:
                yield partial(_run_everywhere, tasks=tasks, group=group)
            finally:
                _broadcast(None, group)
        else:
            while (work := _broadcast(None, group)) is not None:
                list(run_torchrun(work, tasks))
            yield None
    finally:
        if started:
            dist.destroy_process_group()


def _run_everywhere(work: Work, *, tasks: Sequence[Task], group: Any) -> Iterator[Answer]:
    _broadcast(work, group)
    failure = None
    for answer in run_torchrun(work, tasks):  # all of them, because the other processes wait to send theirs
        failure = failure or (answer if isinstance(answer, CalibrantError) else None)
        if failure is None:
            yield answer
    if failure is not None:
        yield failure


def _broadcast(work: Work | None, group: Any) -> Work | None:
    """Send the work of the first process to all others, and return it; None ends them."""
    import torch.distributed as dist

    message = [work]
    dist.broadcast_object_list(message, src=0, group=group)
    return message[0]


class Totals(NamedTuple):
    """Counts of all samples."""

    n: int
    mass: float  # sum of the weights
    size: float  # effective number of samples
    labels: Tensor  # samples of every class, (k,)
    of_classes: Tensor  # their effective number, (k,)
    uniform_share: float  # of given probabilities with zeros


@final
class Passes:
    """All samples, as the calibrator sees them, and a uniform sample of these in memory."""

    def __init__(self, run: Run, plan: Plan, design: Design, progress: Callable[[str], None]) -> None:
        self._run, self._plan, self._progress = run, plan, progress
        self._maps: tuple[Map, ...] = ()
        self.count, self._share = 0, 0.0
        progress("counting, and drawing a sample")
        sums, kept = Sums(), Sample(sample_size(design.classes))
        for tensors in self._answers(partial(_first_of_task, plan=plan, design=design)):
            drawn = {name: tensors.pop(name) for name in [*tensors] if name.startswith("sample.")}
            kept.merge(Sample.restore(drawn, design))
            _merge(sums, tensors)
        given = kept.predictions
        assert isinstance(given, Predictions)
        self.totals = _totals(sums, given)
        self.given = self.sample = given
        self._stand_for_all()

    def mix_in(self, share: float) -> None:
        """Mix a share of the uniform distribution into all samples, from the next pass on."""
        self._share, self.sample = share, self.given.mixed_with_uniform(share)
        self._stand_for_all()

    def apply(self, fitted: Map) -> None:
        """Apply a map to all samples as they were given, from the next pass on; passes are counted from 0 again."""
        self._maps, self._share, self.count = (*self._maps, fitted), 0.0, 0
        self.given = self.sample = fitted.transform(self.given)
        self._stand_for_all()

    def _stand_for_all(self) -> None:
        object.__setattr__(self.sample, "label_counts", self.totals.labels)
        share = self.totals.uniform_share if self.sample.given_as_probs else 0.0
        object.__setattr__(self.sample, "uniform_share", share)

    def add(self, work: Callable[[Predictions], Mapping[str, Tensor]], title: str) -> Sums:
        """Return the sums of a function of batches of samples; of ``low`` the smallest, of ``high`` the largest."""
        start = time.monotonic()
        self._progress(f"pass {self.count + 1} over {self.totals.n:,} samples: {title}")
        sums = Sums()
        function = partial(_sums_of_task, plan=self._plan, maps=self._maps, share=self._share, work=work)
        for done, tensors in enumerate(self._answers(function), 1):
            _merge(sums, tensors)
            seconds = time.monotonic() - start
            self._progress(f"pass {self.count + 1}: {title}, {done} parts, {seconds:.0f} s")
        return sums

    def _answers(self, work: Work) -> Iterator[Sums]:
        for answer in self._run(work):
            if isinstance(answer, CalibrantError):
                raise answer
            yield tensors_of(answer)
        self.count += 1


def _merge(sums: Sums, more: Mapping[str, Tensor]) -> None:
    for name, numbers in more.items():
        join = {"low": torch.minimum, "high": torch.maximum}.get(name, torch.add)
        sums[name] = join(sums[name], numbers) if name in sums else numbers


def _sums_of_task(
    task: Task, *, plan: Plan, maps: Sequence[Map], share: float, work: Callable[[Predictions], Mapping[str, Tensor]]
) -> bytes:
    sums = Sums()
    with without_our_warnings(), torch.no_grad():
        for samples, _, _ in plan.keyed(task, 0):
            assert isinstance(samples, Predictions)
            counted = samples.with_positive_weights()
            for block in counted.blocks(max(_LEAST_ROWS, _NUMBERS // counted.n_classes)):
                calibrated = reduce(lambda part, fitted: fitted.transform(part), maps, block)
                _merge(sums, work(calibrated.mixed_with_uniform(share)))
    return bytes_of({name: numbers.clone().contiguous() for name, numbers in sums.items()})


def _first_of_task(task: Task, *, plan: Plan, design: Design) -> bytes:
    kept, sums = Sample(sample_size(design.classes)), Sums()
    with without_our_warnings():
        for samples, keys, _ in plan.keyed(task, design.seed):
            design.check(samples, task.shard.path)
            counted, its_keys = of_positive_weight(samples, keys)
            assert isinstance(counted, Predictions)
            kept.add(counted, its_keys)
            _merge(sums, _counts(counted))
    return bytes_of({**kept.tensors(), **sums})


def _counts(samples: Predictions) -> Sums:
    """Return the counts from which :class:`Totals` follow."""
    masses = torch.bincount(samples.labels, samples.mass, minlength=samples.n_classes)
    counts = {"labels": samples.label_counts, "masses": masses, "squares": samples.mass.square().sum()}
    if (zeros := samples.zero_cells) is None:
        return counts
    of_label = samples.logits.gather(1, samples.labels[:, None])
    lowest = torch.stack([samples.logits.amin(), of_label.amin()]).double()
    return {**counts, "zeros": torch.tensor([zeros.cells, zeros.of_cells]), "low": lowest}


def _totals(sums: Sums, sample: Predictions) -> Totals:
    n, mass = int(sums["labels"].sum()), float(sums["masses"].sum())
    scale = mass / float(sums["squares"])
    size = mass * scale
    share = 0.0
    if "zeros" in sums and needs_floor(*sums["zeros"].tolist(), *sums["low"].tolist()):
        share = choose_share(sample.logits, sample.labels, sample.mass * (size / sample.mass.sum()))
    return Totals(n, mass, size, sums["labels"], sums["masses"] * scale, share)
