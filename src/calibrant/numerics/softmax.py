"""Softmax statistics of samples in one pass over the logits, and the array operations it is built from."""

import math
import threading
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property, lru_cache
from typing import ClassVar, Self, TypeAlias, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import logsigmoid

from calibrant.errors import one_line, warn

Flags: TypeAlias = NDArray[np.bool_]
_WORTH_THREADS = 1 << 15  # below this length torch does not divide a column among threads, either


_AUTOCAST = [*filter(torch.amp.is_autocast_available, ("cpu", "cuda", "mps", "xpu"))]  # torch < 2.13 cannot trace it


def working_dtype(values: Tensor) -> torch.dtype:
    """Return float64 for that, else float32: halves have too few digits, and integers none after the point."""
    return torch.float64 if values.dtype == torch.float64 else torch.float32


def to_working_precision(values: Tensor) -> Tensor:
    """Convert to :func:`working_dtype`."""
    return values.to(working_dtype(values))


def full_precision(values: Tensor) -> AbstractContextManager[object]:
    """Disable autocast, which would multiply matrices on the device of these values in half precision."""
    device = values.device.type
    is_on = device in _AUTOCAST and torch.is_autocast_enabled(device)
    return torch.autocast(device, enabled=False) if is_on else nullcontext()


def row_blocks(n: int, most: int) -> list[slice]:
    """Divide n samples into blocks of even size, of at most this many."""
    step = math.ceil(n / math.ceil(n / max(1, most)))
    return [slice(start, min(start + step, n)) for start in range(0, n, step)]


def argmax_rows(values: Tensor) -> Tensor:
    """Return the column of each row's first largest entry, (n, k) -> (n,)."""
    if values.device.type == "cpu" and values.dtype in (torch.float32, torch.float64):
        return torch.from_numpy(values.numpy().argmax(axis=1))
    return values.argmax(dim=1)


def columns_first(values: Tensor, *, out: Tensor) -> Tensor:
    """Transpose into ``out``, on a CPU, (n, k) -> (k, n)."""
    rows, columns = values.numpy(), out.numpy()
    for start in range(0, len(rows), 8192):  # pieces that stay in the first cache
        columns[:, start : start + 8192] = rows[start : start + 8192].T
    return out


def as_flags(memory: Tensor) -> Flags:
    """Return the first bytes of memory on a CPU as a flag for each number: new arrays of that size cost page faults."""
    return memory.view(-1).view(torch.uint8)[: memory.numel()].view(memory.shape).numpy().view(np.bool_)


def max_over_classes(columns: Tensor, flags: Flags | None = None) -> tuple[Tensor, Tensor]:
    """Return each sample's largest entry and its class, the first on a tie, of (k, n) with k < 256 on a CPU."""
    highest, k = columns.amax(dim=0), columns.shape[0]
    is_highest = np.equal(columns.numpy(), highest.numpy(), out=flags).view(np.uint8)
    # k minus the class where the entry is the largest, else 0: the largest of these is that of the first such class.
    np.multiply(is_highest, np.arange(k, 0, -1, dtype=np.uint8)[:, None], out=is_highest)
    return highest, torch.from_numpy(k - is_highest.max(axis=0)).long()


def positions_above(values: Tensor, threshold: Tensor, flags: Flags | None = None) -> Tensor:
    """Return flat positions of the entries that exceed the threshold (any shape that broadcasts)."""
    if values.device.type == "cpu":
        return torch.from_numpy(np.flatnonzero(np.greater(values.numpy(), threshold.numpy(), out=flags)))
    return positions(values > threshold)


def positions(mask: Tensor) -> Tensor:
    """Return flat positions of the true entries."""
    if mask.device.type == "cpu":
        return torch.from_numpy(np.flatnonzero(mask.numpy()))
    return mask.flatten().nonzero().flatten()


def row_products(first: Tensor, second: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Sum the products of each row of (n, k) with that of (n, k) or with the only one of (1, k), giving (n,)."""
    if first.device.type != "cpu":
        return torch.sum(first * second.to(first.device), dim=1, out=out)
    # On a CPU no third array is written.
    out = first.new_empty(len(first)) if out is None else out
    return _sum_each_row("ij,ij->i", first, second if second.shape == first.shape else second.expand_as(first), out=out)


def column_products(first: Tensor, second: Tensor, *, out: Tensor) -> Tensor:
    """Sum the products of each column, on a CPU, (k, n) -> (n,)."""
    return _sum_each_row("ji,ji->i", first, second, out=out)


def row_sums(values: Tensor, *, out: Tensor) -> Tensor:
    """Sum each row, (n, k) -> (n,)."""
    if values.shape[0] == 1:  # torch would split a long one among threads
        return out.copy_(values.expand(2, -1).contiguous().sum(dim=1)[:1])
    return torch.sum(values, dim=1, out=out)


def _sum_each_row(formula: str, *values: Tensor, out: Tensor) -> Tensor:
    if out.shape[0] == 1:  # NumPy would merge the axes of a single row and sum in another order
        pair = np.einsum(formula, *(value.numpy().repeat(2, axis=formula.index("i")) for value in values))
        return out.copy_(torch.from_numpy(pair[:1]))
    np.einsum(formula, *(value.numpy() for value in values), out=out.numpy())
    return out


def sum_columns(columns: Tensor, *, out: Tensor) -> Tensor:
    """Sum each column, on a CPU, (k, n) -> (n,), k >= 2.

    Plain additions of two rows at a time are rounded alike at every position, by whatever instructions.
    """
    if columns.shape[1] >= _WORTH_THREADS and torch.get_num_threads() > 1:
        torch.add(columns[0], columns[1], out=out)
        for column in columns[2:]:
            out.add_(column)
        return out
    arrays, total = columns.numpy(), out.numpy()
    np.add(arrays[0], arrays[1], out=total)
    for array in arrays[2:]:
        np.add(total, array, out=total)
    return out


def logaddexp(first: Tensor, second: Tensor) -> Tensor:
    """Return log(exp(a) + exp(b)) of every pair, of which one may be minus infinity; differentiable."""
    return torch.maximum(first, second) - logsigmoid((first - second).abs())


def sigmoid(log_odds: Tensor) -> Tensor:
    """Return 1/(1 + exp(-x)) of every entry."""
    return torch.exp(-log_odds).add_(1).reciprocal_()


def run_ends(values: Tensor) -> Tensor:
    """Return positions of the last of each run of equal neighbours, (n,) -> (runs,)."""
    last = torch.tensor([len(values) - 1], device=values.device)
    if values.device.type == "cpu":
        array = values.numpy()
        return torch.cat([torch.from_numpy(np.flatnonzero(np.not_equal(array[1:], array[:-1]))), last])
    return torch.cat([(values[1:] != values[:-1]).nonzero().flatten(), last])


def sort_in_place(values: Tensor) -> Tensor:
    """Return the numbers in rising order, without the index array that ``torch.sort`` makes."""
    if values.device.type == "cpu":
        values.numpy().sort()
        return values
    return values.sort().values


_kept = threading.local()


def workspace(parts: int, size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return uninitialised memory of shape (parts, size), valid until this thread asks again.

    On a CPU it is kept between calls (24 MB for float32 as used here); a GPU's allocator does that itself.
    """
    if device.type != "cpu":
        return torch.empty(parts, size, dtype=dtype, device=device)
    kept: Tensor | None = getattr(_kept, "memory", None)
    if kept is None or kept.dtype != dtype or kept.numel() < parts * size:
        with torch.inference_mode(mode=False):  # memory made under it could not be written to afterwards
            kept = _kept.memory = torch.empty(parts * size, dtype=dtype, device=device)
    return kept[: parts * size].view(parts, size)


def top_leads(values: Tensor, *, relative: float, absolute: float, most: float) -> bool:
    """Whether the largest entry of every row leads the others by a margin, on a CPU, (n, k) with few classes.

    The margin is ``relative`` times the entry's magnitude plus ``absolute``; no magnitude may exceed ``most``.
    """
    array, step = values.numpy(), 8192
    for start in range(0, len(array), step):
        columns = np.ascontiguousarray(array[start : start + step].T)
        highest = columns.max(axis=0)
        size = np.abs(highest)
        if size.max() > most:
            return False
        lowest = highest - (size * array.dtype.type(relative) + array.dtype.type(absolute))
        if np.count_nonzero(columns >= lowest) != len(highest):
            return False
    return True


_FEW = 32  # classes up to which a block is transposed, on a CPU


def is_by_class(logits: Tensor) -> bool:
    """Whether logits, (n, k), of few classes are stored by columns, on a CPU."""
    n, k = logits.shape
    return k <= _FEW and logits.stride() != (k, 1) and logits.stride(0) == 1 and logits.device.type == "cpu" and n > 1


@lru_cache(maxsize=1)
def _cached_arange(n: int) -> Tensor:  # not to be changed
    return torch.arange(n)


@final
@dataclass(frozen=True)
class Layout:
    """The memory layout of a block of n samples and k classes: (n, k), or (k, n) if transposed."""

    n: int
    k: int
    transposed: bool

    @classmethod
    def of(cls, logits: Tensor) -> Self:
        n, k = logits.shape
        return cls(n, k, k <= _FEW and logits.device.type == "cpu")

    def lay_out(self, logits: Tensor, *, out: Tensor) -> Tensor:
        """Return the block in this layout; in ``out`` where it must be copied."""
        if self.transposed:
            return logits.T if is_by_class(logits) else columns_first(logits, out=out)
        return logits if logits.is_contiguous() else out.copy_(logits)

    def reuse(self, memory: Tensor) -> Tensor:
        """Return the start of flat memory as a block in this layout."""
        return memory[: self.n * self.k].view((self.k, self.n) if self.transposed else (self.n, self.k))

    def largest(self, block: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Return the largest entry of every sample and its class, the first on a tie, (n,) each."""
        if self.transposed:
            return max_over_classes(block, as_flags(memory))
        top = argmax_rows(block)
        return block.view(-1).index_select(0, self.places(top)), top

    def places(self, classes: Tensor) -> Tensor:
        """Return flat positions of the entries of the given class of each sample, (n,)."""
        if self.transposed:
            return torch.add(_cached_arange(self.n), classes, alpha=self.n)
        return torch.arange(0, self.n * self.k, self.k, device=classes.device).add_(classes)

    def of_places(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """Return samples and classes of flat positions, int32: the inverse of :meth:`places`."""
        length = self.n if self.transposed else self.k
        # Exact integer division in floats: several times faster than dividing integers.
        line = places.double().add_(0.5).mul_(1 / length).int()
        column = torch.sub(places.int(), line, alpha=length)
        return (column, line) if self.transposed else (line, column)

    def broadcastable(self, rows: Tensor) -> Tensor:
        """Return one number per sample, shaped to broadcast with a block."""
        return rows if self.transposed else rows[:, None]

    def sum_classes(self, block: Tensor, out: Tensor) -> None:
        """Sum over the classes of every sample, into (n,)."""
        (sum_columns if self.transposed else row_sums)(block, out=out)

    def sum_products(self, first: Tensor, second: Tensor, *, memory: Tensor, out: Tensor) -> None:
        """Sum over the classes of the product of two blocks, into (n,)."""
        if self.transposed:
            column_products(first, second, out=out)
        elif first.device.type == "cpu":
            row_products(first, second, out=out)
        else:
            self.sum_classes(torch.mul(first, second, out=memory), out)

    def add_by_group(self, block: Tensor, scale: Tensor, group: Tensor, sums: Tensor) -> None:
        """Add a block, times one number per sample, to the sums by group and class, (g, k)."""
        if not self.transposed:
            sums += torch.zeros_like(sums, dtype=block.dtype).index_add_(0, group, block * scale[:, None])
            return
        for number, column in enumerate(block):
            sums[:, number] += torch.bincount(group, (column * scale).double(), len(sums))


# Numbers in a block: few enough for a processor's last cache, many beside the cost of a call; on a GPU blocks bound
# memory, by a quarter of the logits' own if that is more.
_BLOCK, _GPU_BLOCK = 1 << 21, 1 << 26
# Logits for which a kernel is compiled, which takes a second at its first use on a machine; classes that it can hold.
_KERNEL_LOGITS, _KERNEL_CLASSES = 1 << 26, 1 << 13
_ABOVE_ROUNDING = 1 + 2e-5  # exceeds the rounding of float32 logarithms near that of 1e-30
_UNDERFLOW = 1e-30  # below this the sum of the other classes' exponentials has lost digits


class Normalised(IntEnum):
    """Whether logits are log-probabilities; the largest is then the confidence, whatever the others add up to."""

    NO = 0
    ROUNDED = 1  # of probabilities that were rounded: a confidence near 1 has lost the digits of the odds against it
    EXACT = 2  # the largest has all the digits of its type, however close to 0


# Odds against the top class below which a float32 confidence has too few digits to give them, and a float64 one.
_DIGITS_LEFT, _DOUBLE_DIGITS_LEFT = 2.0**-12, 2.0**-26


def odds_of_largest(highest: Tensor, rest: Tensor, normalised: Normalised) -> tuple[Tensor, Tensor]:
    """Return the odds against log-probabilities, and where these are better than ``rest``, the sum of the others.

    They depend on the given confidence alone, so that samples with the same one stay tied; sums of the others differ in
    the last digit. A float64 confidence may have been rounded to fewer digits than it can hold, unless the sum agrees.
    """
    odds = torch.expm1(-highest)
    if normalised == Normalised.EXACT:
        return odds, torch.ones_like(odds, dtype=torch.bool)
    known = odds > _DIGITS_LEFT
    if odds.dtype == torch.float64:
        known |= (odds > _DOUBLE_DIGITS_LEFT) & ((odds - rest).abs() <= 2 * torch.finfo(odds.dtype).eps)
    return odds, known


@final
@dataclass(frozen=True)
class Wanted:
    """The optional sums that the pass computes."""

    entropy: bool = False
    squares: bool = False
    above: float = math.inf  # sum the classes and list probabilities above this; infinity: neither

    def __or__(self, other: Self) -> Self:
        return type(self)(self.entropy or other.entropy, self.squares or other.squares, min(self.above, other.above))

    def covers(self, other: Self) -> bool:
        """Whether this includes all that the other asks for."""
        return self | other == self


TOP_LABEL = Wanted()


@final
class SoftmaxRows:
    """Softmax of each sample, kept as sums of ``exp(logit - top logit)`` without the top entry.

    Leaving the top entry (whose exponential is exactly 1) out of the sum is what distinguishes confidences near 1:
    ``1 + rest`` rounds to 1 in float32 long before ``rest`` does.

    Args:
        logits: Shape (n, k), k >= 2, finite.
        labels: Shape (n,).
        wanted: Optional sums to compute.
        normalised: Whether the logits are log-probabilities. The confidence is then the given one, not one minus a sum
            of the others, so that samples with the same given confidence keep it.
        least: Smallest probability of a label that the log-loss counts; smaller ones are counted as this.
        floor: Smallest probability among the logits. Where all others have it, their sum is rounded alike.
        weights: Shape (n,), float64, of the samples in the sums over them (``other_sums``).
        group: Shape (n,), the group of samples in whose sums each is counted; one for all if None.
    """

    _can_compile: ClassVar[bool] = True  # until Triton has failed

    def __init__(
        self,
        logits: Tensor,
        labels: Tensor,
        wanted: Wanted,
        *,
        normalised: Normalised = Normalised.NO,
        least: float = 0.0,
        floor: float = 0.0,
        weights: Tensor | None = None,
        group: Tensor | None = None,
    ) -> None:
        n, k = logits.shape
        dtype, device = working_dtype(logits), logits.device
        self.wanted, self.group, self._normalised = wanted, group, normalised
        self._least_rest = (k - 1) * floor * _ABOVE_ROUNDING
        self._most_nll = -math.log(least) if least else math.inf
        self.top = torch.empty(n, dtype=torch.int64, device=device)  # class of the largest logit, the first on a tie
        # Log-odds of the top class; sum of the others' exponentials; label's logit minus the top one; all (n,).
        columns = torch.empty(5, n, dtype=dtype, device=device)
        self.log_odds, self.rest, self.label_gap, self._weighted_gap, self._squares = columns
        n_groups = 0 if group is None or math.isinf(wanted.above) else int(group.max()) + 1
        # Of probabilities that are not the top one, for all samples and for each group.
        self.other_sums = torch.zeros(k, dtype=torch.float64, device=device)
        self.other_sums_by_group = torch.zeros(n_groups, k, dtype=torch.float64, device=device)
        self._others_above: list[tuple[Tensor, Tensor, Tensor]] = []
        # Relative to the largest weight, so that float32 can hold them.
        most = 1.0 if weights is None else float(weights.max()) or 1.0
        self._weights = None if weights is None else (weights / most).to(dtype)
        if device.type == "cpu":
            blocks = row_blocks(n, _BLOCK // k)
            memory = workspace(3, blocks[0].stop * k, dtype, device)
            for rows in blocks:
                self._pass(logits[rows].to(dtype), labels[rows], rows, memory)
        elif not (n * k >= _KERNEL_LOGITS and self._passed_by_kernel(logits, labels, columns)):
            for rows in row_blocks(n, max(_GPU_BLOCK // k, n // 4)):
                self._pass_on_gpu(logits[rows], labels[rows], rows)
        self.other_sums *= most
        self.other_sums_by_group *= most

    def _pass(self, logits: Tensor, labels: Tensor, rows: slice, memory: Tensor) -> None:
        layout = Layout.of(logits)
        scratch, gaps, others = (layout.reuse(part) for part in memory)
        block = layout.lay_out(logits, out=scratch)
        highest, top = layout.largest(block, others)
        self.top[rows] = top
        torch.sub(block, layout.broadcastable(highest), out=gaps)
        torch.index_select(gaps.view(-1), 0, layout.places(labels), out=self.label_gap[rows])
        torch.exp(gaps, out=others)
        others.view(-1).index_fill_(0, layout.places(top), 0.0)
        layout.sum_classes(others, rest := self.rest[rows])
        self._add_up_to_one(highest, rest)
        _log_odds(rest, gaps.T if layout.transposed else gaps, top, out=self.log_odds[rows])
        if self.wanted.entropy:
            layout.sum_products(others, gaps, memory=scratch, out=self._weighted_gap[rows])
        if self.wanted.squares:
            layout.sum_products(others, others, memory=scratch, out=self._squares[rows])
        if self.wanted.above < math.inf:
            self._sum_others(others, rest + 1, layout, rows)
            self._list_above(others, rest + 1, layout, rows, None, as_flags(gaps))

    def _pass_on_gpu(self, logits: Tensor, labels: Tensor, rows: slice) -> None:
        """Take the same sums from the probabilities, which one kernel computes: fewer passes over memory."""
        layout, rest = Layout.of(logits), self.rest[rows]
        top = self.top[rows] = logits.argmax(dim=1)
        highest, label_logit = (logits.gather(1, c[:, None])[:, 0].to(rest.dtype) for c in (top, labels))
        torch.sub(label_logit, highest, out=self.label_gap[rows])
        probs = logits.softmax(dim=1, dtype=rest.dtype)
        top_places = layout.places(top)
        of_top = probs.view(-1).index_select(0, top_places)
        others = probs.view(-1).index_fill_(0, top_places, 0.0).view_as(probs)
        # In one pass, the mean of the others and that of their squares.
        squares, mean = torch.var_mean(others, dim=1, correction=0)
        squares.addcmul_(mean, mean)
        torch.mul(mean, layout.k, out=rest).div_(of_top)
        self._add_up_to_one(highest, rest)
        _log_odds(rest, logits if layout.k > 2 else logits - highest[:, None], top, out=self.log_odds[rows])
        if self.wanted.squares:
            torch.mul(squares, layout.k, out=self._squares[rows]).div_(of_top.square())
        if self.wanted.above < math.inf:
            total = (rest + 1).mul_(of_top)  # 1, unless the confidence was given
            self._sum_others(others, total, layout, rows)
            # Of many classes few have a large probability: most samples have none to list.
            some = positions_above(others.amax(dim=1), total * self.wanted.above)
            few = others.index_select(0, some)
            self._list_above(few, total.index_select(0, some), Layout.of(few), rows, some, None)
        if self.wanted.entropy:
            information = torch.special.entr(others, out=others).sum(dim=1)  # Σ p (log total - gap)
            torch.sub(rest * rest.log1p(), information.mul_(rest + 1), out=self._weighted_gap[rows])

    def _passed_by_kernel(self, logits: Tensor, labels: Tensor, columns: Tensor) -> bool:
        """Whether one kernel took the sums; it is for logits as they are, and needs Triton and a compiler."""
        plain = not self._normalised and self._weights is None and self.group is None
        k, above = logits.shape[1], self.wanted.above
        if not (self._can_compile and plain and logits.dtype != torch.float64 and 2 < k <= _KERNEL_CLASSES):
            return False
        try:
            from calibrant.numerics.softmax_kernel import list_above, sum_rows  # Triton comes with torch for CUDA

            sums, counts = sum_rows(logits, labels, self.top, columns[1:], above)
            listed = [list_above(logits, self.top, self.rest, counts, above)] if above < math.inf else []
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:  # noqa: BLE001  # of whatever kind Triton's are
            SoftmaxRows._can_compile = False
            if not isinstance(error, ImportError):
                warn(f"a GPU kernel does not compile, so metrics are slower. Is there a C compiler? {one_line(error)}")
            return False
        self.other_sums, self._others_above = sums, listed  # not before both: arrays add to them
        _log_odds(self.rest, logits, self.top, out=self.log_odds)
        return True

    def _add_up_to_one(self, highest: Tensor, rest: Tensor) -> None:
        """Make the sums of the others those of the given confidences, if log-probabilities were given."""
        if self._normalised:
            rest.clamp_(min=self._least_rest)
            odds, known = odds_of_largest(highest, rest, self._normalised)
            torch.where(known, odds, rest, out=rest)

    def _sum_others(self, others: Tensor, total: Tensor, layout: Layout, block: slice) -> None:
        """Sum the others, divided by the total of their sample, over the samples."""
        scale = total.reciprocal()
        scale = scale if self._weights is None else scale.mul_(self._weights[block])
        self.other_sums += others @ scale if layout.transposed else scale @ others
        if self.group is not None:
            layout.add_by_group(others, scale, self.group[block], self.other_sums_by_group)

    def _list_above(
        self, others: Tensor, total: Tensor, layout: Layout, block: slice, samples: Tensor | None, flags: Flags | None
    ) -> None:
        """List the others above the wanted probability, of some samples of the block if they are named."""
        places = positions_above(others, layout.broadcastable(total * self.wanted.above), flags)
        rows, classes = layout.of_places(places)
        probabilities = others.view(-1).index_select(0, places).mul_(total.reciprocal().index_select(0, rows))
        rows = rows if samples is None else samples.index_select(0, rows).int()
        self._others_above.append((rows.add_(block.start), classes, probabilities))

    @cached_property
    def confidence(self) -> Tensor:
        return (self.rest + 1).reciprocal_()

    @cached_property
    def log_total(self) -> Tensor:  # log of the sum of all exponentials
        return self.rest.log1p()

    @cached_property
    def label_probability(self) -> Tensor:
        return self.label_gap.exp().mul_(self.confidence)

    def nll(self) -> Tensor:
        """Return minus the log-probability of the label, (n,)."""
        nll = self.log_total - self.label_gap
        return nll if math.isinf(self._most_nll) else nll.clamp_(max=self._most_nll)

    def entropy(self) -> Tensor:
        """Return the entropy in nats, (n,)."""
        return self.log_total - self._weighted_gap * self.confidence

    def brier(self) -> Tensor:
        """Return the squared distance to the one-hot label, summed over the classes, (n,)."""
        return (self._squares + 1).mul_(self.confidence.square()).sub_(self.label_probability, alpha=2).add_(1)

    def other_entries(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return samples, classes and probabilities of the entries above the wanted threshold that are not the top."""
        if len(self._others_above) > 1:
            rows, classes, probabilities = (torch.cat(column) for column in zip(*self._others_above, strict=True))
            self._others_above = [(rows, classes, probabilities)]
        return self._others_above[0]


def _log_odds(rest: Tensor, gaps: Tensor, top: Tensor, *, out: Tensor) -> None:
    """Return minus the log-sum-exp of the other classes' gaps; given more than two classes, logits will do."""
    if gaps.shape[1] == 2:  # exact, so that a temperature cannot change the order
        torch.sum(gaps, dim=1, out=out).neg_()
        return
    torch.log(rest, out=out).neg_()
    if rest.min() < _UNDERFLOW:
        lost = (rest < _UNDERFLOW).nonzero().flatten()
        exact = gaps.index_select(0, lost).double().contiguous()
        exact = exact.sub_(exact.amax(dim=1, keepdim=True)).scatter_(1, top[lost, None], -torch.inf)
        second = exact.amax(dim=1)
        total = row_sums(exact.sub_(second[:, None]).exp_(), out=torch.empty_like(second))
        out[lost] = total.log_().add_(second).neg_().to(out.dtype)
