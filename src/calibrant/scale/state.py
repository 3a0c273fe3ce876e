"""The state of an evaluation: fixed-size sums over any number of samples, from which every number of a report follows.

States of batches, files and days add up to that of all their samples. Besides the sums that metrics read, a state has

- the same sums over 256 groups of samples, whose redrawing is the bootstrap;
- the counts of right and wrong predictions of every group at some 2,000 levels of confidence, likewise;
- of two classes sums over cells of the probability of the positive one (:mod:`calibrant.scale.risk`);
- sums over slices of the samples, if they are asked for (:mod:`calibrant.scale.slices`), of two classes also of that
  probability;
- a uniform sample of at most 131,072 samples, for what sums do not tell: labels drawn from a calibrated model, the
  cross-fitted temperature, the kernel calibration error.

Group and sample follow from a hash of the seed, the shard and the row, so that the answer does not depend on batches,
workers or the order of the shards.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, fields, replace
from functools import partial, reduce
from operator import or_
from pathlib import Path
from typing import Any, Self, TypeAlias, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibrant import catalogue
from calibrant.checks import existing_file
from calibrant.errors import FileError, InputError, reading
from calibrant.evaluation import metrics_for
from calibrant.files.map_file import Container
from calibrant.inference import tensors_under
from calibrant.labels import Words
from calibrant.metrics import Metric
from calibrant.metrics.base import RankMetric
from calibrant.metrics.smooth import KernelFeatures
from calibrant.metrics.states import (
    EXACT,
    BinMoments,
    Binned,
    BinnedMoments,
    Cells,
    Ranked,
    RankedCells,
    Statistic,
    Sums,
    TopStatistic,
)
from calibrant.numerics.binning import bin_index, sums_by
from calibrant.numerics.softmax import Normalised, Wanted
from calibrant.predictions import Predictions, TopLabel, ZeroCells, as_risk, counted_samples
from calibrant.scale.risk import ranked_at_means, ranked_risks, sums_of_risk
from calibrant.scale.slices import SliceSums
from calibrant.text import listed

Keys: TypeAlias = NDArray[np.uint64]

GROUPS = 256  # as the bootstrap in memory has them
_CELLS = RankedCells()
_JOINED = 3  # bits: so many neighbouring cells (8) are one level of the bootstrap
_MOST_CLASS_NUMBERS = 1 << 20  # in the states of all classes by group; more classes have fewer groups
_SAMPLE, _FEWEST_SAMPLED, _SAMPLED_NUMBERS = 1 << 17, 10_000, 1 << 22
_ORDER = np.uint64((1 << 56) - 1)  # bits of a key that order the sample; the others choose the group
FORMAT = Container("calibrant.state", 3, "the state of an evaluation", "Make one with `calibrant state`.")


def sample_keys(seed: int, shard: str, first: int, n: int) -> Keys:
    """Return 64 random bits for each of n rows of a shard, from its row ``first`` on.

    Example:
        >>> bool((sample_keys(0, "a", 0, 10)[4:] == sample_keys(0, "a", 4, 6)).all())
        True
    """
    name = hashlib.blake2b(f"{seed}/{shard}".encode(), digest_size=8).digest()
    # SplitMix64 (Steele, Lea & Flood, 2014): a counter times the golden ratio, mixed by two products.
    keys = np.arange(first, first + n, dtype=np.uint64)
    keys *= np.uint64(0x9E3779B97F4A7C15)
    keys += np.frombuffer(name, dtype="<u8").astype(np.uint64)
    mixed = np.empty_like(keys)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        keys ^= np.right_shift(keys, np.uint64(shift), out=mixed)
        keys *= np.uint64(factor)
    keys ^= np.right_shift(keys, np.uint64(31), out=mixed)
    return keys


def of_positive_weight(samples: Predictions | TopLabel, keys: Keys) -> tuple[Predictions | TopLabel, Keys]:
    """Return the samples that count at all, with their keys; there must be one."""
    if samples.weights is None or bool(samples.weights.all()):
        return samples, keys
    counted = samples.weights > 0
    return samples[counted], keys[counted.numpy()]


@final
@dataclass(frozen=True)
class Design:
    """What a state is gathered for; states of one design add up."""

    metrics: tuple[str, ...]
    n_bins: int
    seed: int
    classes: int | None  # None where only top labels are known
    class_names: tuple[str, ...] | None = None
    given_as_probs: bool = False
    weighted: bool = False
    dtype: str = "float32"  # of the scores
    by: tuple[str, ...] = ()  # columns to slice by

    @classmethod
    def of(cls, samples: Predictions | TopLabel, *, n_bins: int = 15, seed: int = 0, by: tuple[str, ...] = ()) -> Self:
        """Return the design for a report of samples like these."""
        names = tuple(metric.name for metric in metrics_for(samples, n_bins=n_bins))
        return cls(names, n_bins, seed, None, by=by).like(samples)

    def like(self, samples: Predictions | TopLabel) -> Self:
        """Return the design for the same metrics of samples like these."""
        weighted = samples.weights is not None
        k, names, as_probs, dtype = None, None, False, "float64"
        if isinstance(samples, Predictions):
            k, names, as_probs = samples.n_classes, samples.class_names, samples.given_as_probs
            dtype = str(samples.stored.dtype).removeprefix("torch.")
        return replace(self, classes=k, class_names=names, given_as_probs=as_probs, weighted=weighted, dtype=dtype)

    def chosen(self) -> list[Metric]:
        """Return the metrics, those of ranks in bounded memory."""
        made = []
        for name in self.metrics:
            metric = catalogue.metrics[name]
            metric = replace(metric, n_bins=self.n_bins) if hasattr(metric, "n_bins") else metric
            if isinstance(metric, RankMetric):
                metric = replace(metric, ranks=_CELLS)
            elif metric.statistic == EXACT:  # a metric of someone else's, which reads ranks in cells as well
                object.__setattr__(metric := copy(metric), "statistic", _CELLS)
            made.append(metric)
        return made

    def difference(self, other: Self) -> str | None:
        """Return in words how samples of another design differ; None if they do not."""
        for field, mine in asdict(self).items():
            if mine != (theirs := getattr(other, field)):
                title = _TITLES.get(field, field)
                return f"{title} {_shown(theirs)} instead of {_shown(mine)}"
        return None

    def check(self, samples: Predictions | TopLabel, path: Path) -> None:
        """Raise if samples of a file are not like those that the design was made for."""
        if different := self.difference(self.like(samples)):
            raise FileError(f"{path} must hold predictions like the first shard; it has {different}.")


_TITLES = {
    "n_bins": "a number of bins of", "class_names": "class names", "dtype": "scores of type",
    "classes": "a number of classes of", "given_as_probs": "scores that are probabilities:", "weighted": "weights:",
    "by": "slices by",
}  # fmt: skip


def _shown(value: object) -> str:
    if isinstance(value, tuple) and value:
        return listed(value, 3)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value in {None, ()} else str(value)


@final
class EvaluationState:
    """Sums over samples, by name, and a uniform sample of them."""

    def __init__(self, design: Design) -> None:
        self.design = design
        self.n = 0
        self.sums: dict[str, Tensor] = {}
        self.smallest = float("inf")  # probability that is not 0
        self.labelled = 0  # keys times labels, 64 bits: equal where samples, their order and their labels are
        sliced = partial(SliceSums, design.n_bins, GROUPS, weighted=design.weighted)
        self.slices = {"slices": sliced(of_all_classes=design.classes is not None)}
        self.slices |= {"risk_slices": sliced(of_all_classes=False)} if design.classes == 2 else {}
        self.sample = Sample(sample_size(design.classes))
        self.metrics = design.chosen()
        moments = BinnedMoments(design.n_bins)
        self._moments = (moments, Binned(design.n_bins), BinnedMoments(1), Binned(1))  # all follow from the first
        followed = {_CELLS, *self._moments}
        statistics = {metric.name: metric.statistic for metric in self.metrics if metric.statistic not in followed}
        # By the name of the first metric that reads them; the kernel calibration error is that of the sample.
        named = {s: n for n, s in reversed(statistics.items()) if not isinstance(s, KernelFeatures)}
        named[moments] = "moments"
        self.top: dict[str, Statistic] = {n: s for s, n in named.items() if isinstance(s, TopStatistic)}
        self.all_classes: dict[str, Statistic] = {n: s for s, n in named.items() if not isinstance(s, TopStatistic)}
        self._wanted = reduce(or_, (statistic.wanted for statistic in named), Wanted())
        self.class_groups = GROUPS
        self.limit_class_groups(_MOST_CLASS_NUMBERS)

    def limit_class_groups(self, numbers: int) -> None:
        """Have fewer groups of samples by class, if they would hold more numbers, but at least 16."""
        in_group = (self.design.classes or 1) * self.design.n_bins
        while self.class_groups > 16 and self.class_groups * in_group > numbers:
            self.class_groups //= 2

    def add(self, samples: Predictions | TopLabel, keys: Keys, columns: Mapping[str, Words] | None = None) -> None:
        """Add samples, given the key of each, and the columns to slice by."""
        given, columns = samples, columns or {}
        samples, keys = of_positive_weight(samples, keys)
        if len(samples) < len(given) and given.weights is not None:
            columns = {name: words[given.weights > 0] for name, words in columns.items()}
        self.n += len(samples)
        self.labelled = (self.labelled + _labelled(samples, keys)) % 2**64
        group = torch.from_numpy((keys >> np.uint64(56)).astype(np.int32))  # counted twice as fast as int64
        class_group = group % self.class_groups
        if isinstance(samples, Predictions):
            samples.softmax_rows(self._wanted, class_group)
        for name, statistic in self.top.items():
            self._add(name, statistic(samples))
        self._add_ranks(samples.top, group)
        if isinstance(samples, Predictions):
            self._add_classes(samples, class_group)
        rows = None  # the same of both
        for name, slices in self.slices.items() if columns else ():
            rows = slices.add(samples if name == "slices" else as_risk(samples), group, columns)
        self.sample.add(samples, keys, rows)

    def _add(self, name: str, state: Any, *, rows: int | None = None) -> None:
        """Add a state to the sums of that name; stacked ones to the first of so many rows."""
        assert isinstance(state, Sums)
        for field, more in zip(fields(state), state.tensors(), strict=True):
            self._add_numbers(f"{name}.{field.name}", more, rows=rows)

    def _add_numbers(self, name: str, numbers: Tensor, *, rows: int | None = None) -> None:
        if name not in self.sums:
            shape = numbers.shape if rows is None else (rows, *numbers.shape[1:])
            self.sums[name] = torch.zeros(shape, dtype=torch.float64)
        target = self.sums[name] if rows is None else self.sums[name][: len(numbers)]
        target += numbers

    def _add_ranks(self, top: TopLabel, group: Tensor) -> None:
        cells = _CELLS(top)
        self._add("cells", cells)
        cell, n_levels = _CELLS.cell_of(top.log_odds), (_CELLS.cells >> _JOINED) + self.design.n_bins
        # Both rise with the confidence, so their sum tells a cell that an edge of the bins cuts from its other part.
        level = (cell >> _JOINED) + bin_index(top.confidence, self.design.n_bins)
        confidence = top.confidence if top.weights is None else top.confidence * top.weights
        self._add_numbers("level.confidence", sums_by(level, confidence, n_levels))
        place = (group * 2 + ~top.correct) * n_levels + level
        if "level.mass" not in self.sums:
            self.sums["level.mass"] = torch.zeros(GROUPS, 2, n_levels, dtype=torch.float64)
        self.sums["level.mass"].view(-1).index_add_(0, place, top.mass)
        if top.weights is not None:
            squares = top.weights.square()
            self._add_numbers("cells.squared_right", sums_by(cell, squares * top.correct, _CELLS.cells))
            index = group * n_levels + level
            self._add_numbers("level.squares", sums_by(index, squares, GROUPS * n_levels).view(GROUPS, -1))

    def _add_classes(self, samples: Predictions, group: Tensor) -> None:
        for name, statistic in self.all_classes.items():
            self._add(name, statistic.by_group(samples, group), rows=self.class_groups)
        k = samples.n_classes
        self._add_numbers("predicted.samples", torch.bincount(samples.predicted, minlength=k))
        if samples.weights is not None:
            self._add_numbers("predicted.squares", sums_by(samples.predicted, samples.weights.square(), k))
        if k == 2:
            for name, sums in sums_of_risk(samples, self.design.n_bins).items():
                self._add_numbers(f"risk.{name}", sums)
        if (zeros := samples.zero_cells) is not None:
            self._add_numbers("zeros", torch.tensor(zeros[:4], dtype=torch.float64))
            self.smallest = min(self.smallest, zeros.smallest)

    def merge(self, other: Self) -> None:
        """Add the samples of another state."""
        if different := self.design.difference(other.design):
            raise InputError(f"states must be gathered alike to add up; got {different}.")
        for name, numbers in other.sums.items():
            self._add_numbers(name, numbers)
        self.n += other.n
        self.smallest = min(self.smallest, other.smallest)
        self.labelled = (self.labelled + other.labelled) % 2**64
        rows = [slices.merge(other.slices[name]) for name, slices in self.slices.items() if self.design.by]
        self.sample.merge(other.sample, rows[0] if rows else None)

    # What is read off the sums.

    def _of(self, name: str, statistic: Statistic) -> Sums:
        """Return the state of that name, as its statistic gathers it."""
        kind = type(statistic(_ONE if isinstance(statistic, TopStatistic) else _ONE_OF_TWO))
        return kind(*(self.sums[f"{name}.{field.name}"] for field in fields(kind)))  # type: ignore[return-value,arg-type]

    def states(self) -> dict[Statistic, Sums]:
        """Return the state of each statistic but that of the kernel calibration error, which the sample has."""
        states = {statistic: self._of(name, statistic) for name, statistic in self.top.items()}
        for statistic, groups in self.group_states().items():
            states[statistic] = type(groups)(*(part.sum(0) for part in groups.tensors()))
        moments = states[self._moments[0]]
        assert isinstance(moments, BinMoments)
        joined = moments.in_one_bin()
        followed = zip(self._moments, (moments, moments.bins, joined, joined.bins), strict=True)
        return {**states, **dict(followed), _CELLS: self.cells}

    def group_states(self) -> dict[Statistic, Sums]:
        """Return the states of the groups of samples, stacked, of statistics of all classes."""
        return {statistic: self._of(name, statistic) for name, statistic in self.all_classes.items()}

    @property
    def cells(self) -> Cells:
        return Cells(*(self.sums[f"cells.{name}"] for name in ("total", "right", "confidence", "squared_weights")))

    def ranked(self) -> Ranked:
        """Return the samples of each cell as tied at their mean confidence."""
        cells, log_odds = self.cells, self.cells.ranked.log_odds
        seen = cells.total > 0
        total, right, confidence, squares = (part[seen] for part in cells.tensors())
        ranked = Ranked(log_odds, confidence / total, right, total - right, confidence)
        if not self.design.weighted:
            return ranked
        return replace(ranked, squared_weights=squares, squared_right=self.sums["cells.squared_right"][seen])

    def levels(self) -> tuple[Ranked, Tensor, Tensor | None]:
        """Return the levels, their right and wrong samples by group, (256, 2, m), and squared weights, (256, m)."""
        mass = self.sums["level.mass"]
        total = mass.sum((0, 1))
        seen = total > 0
        right, total = mass[:, 0].sum(0)[seen], total[seen]
        confidence = self.sums["level.confidence"][seen] / total
        squares = self.sums["level.squares"][:, seen] if self.design.weighted else None
        of_all = None if squares is None else squares.sum(0)
        return ranked_at_means(confidence, right, total - right, of_all), mass[:, :, seen], squares

    def ranked_risks(self) -> Ranked:
        """Return the samples of each cell of the probability of the positive class of two as tied."""
        return ranked_risks(self.sums_of_risk(), self.design.n_bins)

    def sums_of_risk(self) -> dict[str, Tensor]:
        """Return the sums over the cells of that probability, by name."""
        return tensors_under("risk.", self.sums)

    @property
    def zeros(self) -> ZeroCells | None:
        if "zeros" not in self.sums:
            return None
        cells, of_cells, labels, floored_labels = (int(count) for count in self.sums["zeros"])
        return ZeroCells(cells, of_cells, labels, floored_labels, self.smallest)

    def save(self, path: str | Path, *, notes: Mapping[str, Any] | None = None) -> None:
        """Write the state into one file, with notes on what it was gathered from."""
        FORMAT.write(path, {**self._document(), "notes": dict(notes or {})}, self._tensors())

    def _document(self) -> dict[str, Any]:
        facts = {"n": self.n, "smallest": min(self.smallest, 2.0), "labelled": self.labelled}
        return {"design": asdict(self.design), **facts, **(self.slices["slices"].document() if self.design.by else {})}

    def _tensors(self) -> dict[str, Tensor]:
        parts = self.slices if self.design.by else {}
        sliced = {f"{part}.{name}": numbers for part, of in parts.items() for name, numbers in of.sums.items()}
        return {**self.sums, **sliced, **self.sample.tensors()}

    def to_bytes(self) -> bytes:
        """Return the state as bytes, for another process; sums that are 0, as most of few samples, are left out."""
        from safetensors.torch import save

        sent, shapes = self._tensors(), dict[str, tuple[int, ...]]()
        for name, sums in [(name, sums) for name, sums in sent.items() if not name.startswith("sample.")]:
            places = torch.from_numpy(np.flatnonzero(sums.numpy() != 0))  # in half the time of torch's
            if 2 * len(places) < sums.numel():
                shapes[name] = sums.shape
                sent |= {name: sums.flatten()[places], f"places.{name}": places}
        return save(sent, {"state": json.dumps({**self._document(), "shapes": shapes})})

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the state that :meth:`to_bytes` wrote, unchecked."""
        from safetensors.torch import load

        length = int.from_bytes(data[:8], "little")
        document = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["state"])
        sent = load(data)
        for name, shape in document["shapes"].items():
            flat = torch.zeros(shape, dtype=torch.float64).view(-1)
            sent[name] = flat.index_copy_(0, sent.pop(f"places.{name}"), sent[name]).view(shape)
        return cls._restore(document, sent)

    @classmethod
    def load(cls, path: str | Path) -> tuple[Self, dict[str, Any]]:
        """Read a state, and the notes that it was saved with."""
        file = existing_file(path, holding="a state")
        with reading(file, "state of an evaluation"):
            document, tensors = FORMAT.read(file)
            try:
                state = cls._restore(document, tensors)
                state._check_shapes()
            except (LookupError, TypeError, ValueError, RuntimeError, InputError) as error:
                what = str(error).rstrip(".")
                raise FileError(f"{path} must be a whole state; missing or wrong: {what}. {FORMAT.advice}") from error
            return state, dict(document["notes"])

    @classmethod
    def _restore(cls, document: Mapping[str, Any], tensors: dict[str, Tensor]) -> Self:
        facts: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in document["design"].items()}
        design = Design(**facts)
        state = cls(design)
        state.n, state.smallest = int(document["n"]), float(document["smallest"])
        state.labelled = int(document.get("labelled", 0))
        held = {name: tensors.pop(name) for name in [*tensors] if name.startswith("sample.")}
        for part, slices in state.slices.items() if design.by else ():
            start = f"{part}."
            sliced = {name.removeprefix(start): tensors.pop(name) for name in [*tensors] if name.startswith(start)}
            slices.restore(document, sliced)
        state.sample = Sample.restore(held, design)
        state.sums = {name: values.double() for name, values in tensors.items()}
        return state

    def _check_shapes(self) -> None:
        """Raise unless the sums are those of samples like the kept ones: their names and shapes, and finite."""
        like = EvaluationState(self.design)
        if self.n and self.sums["moments.count"].shape == (self.design.n_bins,):  # no more bins than the file holds
            one = self.sample._parts[0][1][:1]
            if different := self.design.difference(self.design.like(one)):
                raise ValueError(different)
            like.add(one, np.zeros(1, np.uint64))
        shapes, wanted = ({name: one.shape for name, one in state.sums.items()} for state in (self, like))
        if self.n < 0 or not isinstance(self.design.seed, int) or shapes != wanted:
            raise ValueError(min((name for name, _ in shapes.items() ^ wanted.items()), default="n or seed"))
        if broken := [name for name, numbers in self.sums.items() if not bool(numbers.isfinite().all())]:
            raise ValueError(broken[0])


def _labelled(samples: Predictions | TopLabel, keys: Keys) -> int:
    """Return a checksum of keys, labels and weights, which depends on the samples and on their order."""
    with np.errstate(over="ignore"):
        marks = keys.copy() if isinstance(samples, TopLabel) else keys * (samples.labels.numpy().astype(np.uint64) + 1)
        if samples.weights is not None:
            marks ^= samples.weights.double().numpy().view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        return int(marks.sum(dtype=np.uint64))


_ONE = TopLabel(torch.tensor([0.5]), torch.tensor([True]))
_ONE_OF_TWO = Predictions(torch.zeros(1, 2), torch.tensor([0]))


def sample_size(classes: int | None) -> int:
    """Return how many samples are kept."""
    return _SAMPLE if classes is None else min(_SAMPLE, max(_FEWEST_SAMPLED, _SAMPLED_NUMBERS // classes))


@final
class Sample:
    """The samples with the lowest keys: a uniform sample without replacement, which does not depend on their order."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._parts: list[tuple[Keys, Predictions | TopLabel, Tensor | None]] = []
        self._below = _ORDER  # keys of the samples that may still enter

    def add(self, samples: Predictions | TopLabel, keys: Keys, slices: Tensor | None = None) -> None:
        """Add samples, given the key of each, and the slices that it is in, (n, columns)."""
        if not self.size:
            return
        keys = keys & _ORDER
        known = np.concatenate([keys[keys <= self._below], *(part[0] for part in self._parts)])
        if len(known) > 3 * self.size // 2:
            self._below = np.partition(known, self.size - 1)[self.size - 1]
            for _ in range(len(self._parts)):
                self._hold(*self._parts.pop(0))
        self._hold(keys, samples, slices)

    def _hold(self, keys: Keys, samples: Predictions | TopLabel, slices: Tensor | None) -> None:
        """Copy the samples of low keys, without what has been computed from them."""
        if len(places := np.flatnonzero(keys <= self._below)):
            chosen = torch.from_numpy(places)
            self._parts.append((keys[places], samples[chosen], None if slices is None else slices[chosen]))

    def merge(self, other: Self, slices: Tensor | None = None) -> None:
        """Merge another sample; ``slices`` maps its slice numbers to those of this state."""
        for keys, samples, theirs in other._parts:
            self.add(samples, keys, None if slices is None or theirs is None else slices[theirs.long()])

    def _trim(self) -> None:
        """Join the parts and keep the samples of the lowest keys, in their order."""
        keys = np.concatenate([part[0] for part in self._parts]) if self._parts else np.empty(0, dtype=np.uint64)
        if len(self._parts) <= 1 and len(keys) <= self.size and bool((keys[1:] >= keys[:-1]).all()):
            return
        order = np.argsort(keys, kind="stable")[: self.size]
        chosen, slices = torch.from_numpy(order), [part[2] for part in self._parts if part[2] is not None]
        joined = join([part[1] for part in self._parts])[chosen]
        self._parts = [(keys[order], joined, torch.cat(slices)[chosen] if slices else None)]

    @property
    def predictions(self) -> Predictions | TopLabel:
        """The sample, in the order of its keys, with weights that add up to their effective number."""
        self._trim()
        if not self._parts:
            raise InputError("a state must hold samples to be evaluated; it holds none.")
        return counted_samples(self._parts[0][1])

    def columns(self, by: Sequence[str], values: Sequence[str]) -> dict[str, Words]:
        """Return the columns to slice by, one entry per sample, given their names and the values of all slices."""
        self._trim()
        slices = self._parts[0][2] if self._parts else None
        return {} if slices is None else {c: Words(tuple(values), slices[:, i].long()) for i, c in enumerate(by)}

    def tensors(self) -> dict[str, Tensor]:
        self._trim()
        if not self._parts:
            return {}
        keys, samples, slices = self._parts[0]
        held = {"sample.keys": torch.from_numpy(keys.view(np.int64))}
        held |= {} if slices is None else {"sample.slices": slices.int()}
        if isinstance(samples, Predictions):
            held |= {"sample.logits": samples.logits, "sample.labels": samples.labels.int()}
        else:
            held |= {"sample.confidence": samples.confidence, "sample.correct": samples.correct.byte()}
            held |= {"sample.log_odds": samples.log_odds}
        return held if samples.weights is None else {**held, "sample.weights": samples.weights}

    @classmethod
    def restore(cls, held: Mapping[str, Tensor], design: Design) -> Self:
        made = cls(sample_size(design.classes))
        if not held:
            return made
        weights = held.get("sample.weights")
        samples: Predictions | TopLabel
        if design.classes is None:
            confidence, correct, log_odds = (held[f"sample.{name}"] for name in ("confidence", "correct", "log_odds"))
            samples = TopLabel(confidence, correct, log_odds, weights)
        else:
            labels = held["sample.labels"].long()
            samples = Predictions(held["sample.logits"], labels, design.class_names, weights=weights)
            if design.given_as_probs:
                object.__setattr__(samples, "normalised", Normalised.ROUNDED)
                object.__setattr__(samples, "given_as_probs", True)
        keys, slices = held["sample.keys"].numpy().view(np.uint64), held.get("sample.slices")
        shape = None if slices is None else tuple(slices.shape)
        if keys.shape != (len(samples),) or shape != ((len(samples), len(design.by)) if design.by else None):
            raise ValueError("sample.keys")
        made._parts = [(keys, samples, slices)]
        return made


def join(parts: Sequence[Predictions | TopLabel]) -> Predictions | TopLabel:
    """Return the samples of several records of one kind."""
    first = parts[0]
    if len(parts) == 1:
        return first
    weights = None if first.weights is None else torch.cat([part.weights for part in parts])  # type: ignore[misc]
    if isinstance(first, Predictions):
        logits = torch.cat([part.logits for part in parts])  # type: ignore[union-attr]
        return first._with(logits, torch.cat([part.labels for part in parts]), weights)  # type: ignore[union-attr]
    confidence, correct, log_odds = (
        torch.cat([getattr(part, name) for part in parts]) for name in ("confidence", "correct", "log_odds")
    )
    return TopLabel._trusted(confidence, correct, log_odds, weights)
