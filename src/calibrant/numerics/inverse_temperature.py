"""The inverse temperature that minimises a loss: derivatives in one pass, and a certified root search."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from calibrant.errors import FitError
from calibrant.numerics.newton import Certificate
from calibrant.numerics.softmax import Layout, row_blocks, to_working_precision, working_dtype, workspace


class Root(NamedTuple):
    """A root, a bound on the function's value there, and the calls of the function."""

    value: float
    residual: float
    calls: int


def find_root(
    function: Callable[[float], Sequence[float]],
    *,
    start: float,
    low: float,
    high: float,
    tolerance: float = 1e-10,
    max_calls: int = 100,
) -> Root:
    """Find the root of an increasing function with known slope between positive bounds, up to a relative error.

    A Newton step that leaves the bracket, or does not shrink it fast enough, is replaced by bisection in the logarithm.
    If the function returns its second derivative after value and slope, steps are of third order and the last one is
    not checked by another call. Where the function does not change its sign, the root is put at the bound. A root that
    is not found in ``max_calls`` is a FitError.

    Example:
        >>> round(find_root(lambda x: (x * x - 2, 2 * x), start=1.0, low=0.1, high=10.0).value, 9)
        1.414213562
    """
    x, width = start, math.log(high / low)
    for calls in range(1, max_calls + 1):
        value, slope, *third = function(x)
        low, high = (low, x) if value > 0 else (x, high)
        step, error = _step(value, slope, third[0] if third else math.nan, x)
        inside = low <= x + step <= high
        if value == 0 or (inside and error <= tolerance * x) or high - low <= tolerance * high:
            return Root(x + step if inside else x, slope * error if inside and slope > 0 else value, calls)
        # Every fourth call the bracket must have halved since the last check, or it is halved now.
        slow = calls % 4 == 0 and math.log(high / low) > width / 2
        width = math.log(high / low) if calls % 4 == 0 else width
        x = x + step if low < x + step < high and not slow else (low * high) ** 0.5
    raise FitError(
        f"no root found in {max_calls} evaluations; the bracket is still {low:.6g} to {high:.6g}. "
        "The data may be separable: check that some predictions are wrong."
    )


def _step(value: float, slope: float, third: float, x: float) -> tuple[float, float]:
    """Return the step to the root, and a bound on its error."""
    if not slope > 0:
        return 0.0, math.inf
    newton = -value / slope
    correction = -third * newton * newton / (2 * slope)
    if not abs(correction) <= abs(newton) / 4:  # too far away, or not known
        return newton, abs(newton)
    if newton == 0:
        return 0.0, 0.0
    # Three terms of the inverse series without the third derivative, whose part is smaller than the second term by
    # about the relative size of the step.
    return newton + correction + 2 * correction * correction / newton, abs(correction * newton / x)


_SETTLED = 1e-8  # residual at which functions of unit size count as solved


def root_of_decreasing(
    function: Callable[[Tensor], Tensor], low: Tensor, high: Tensor, *, at_high: Tensor | None = None
) -> Tensor:
    """Find the roots of many decreasing functions at once, by false position that halves a side kept twice (Illinois).

    The functions are negative at ``high`` (``at_high``, where known); one already negative at ``low`` has its root put
    there. Ten steps reach 1e-7 for functions without sharp bends.

    Example:
        >>> round(root_of_decreasing(lambda x: 2 - x * x, torch.tensor([0.0]), torch.tensor([2.0])).item(), 5)
        1.41421
    """
    at_low = function(low)
    at_high = function(high) if at_high is None else at_high
    outside, middle = at_low <= 0, high
    kept_low, kept_high = torch.zeros_like(outside), torch.zeros_like(outside)
    for _ in range(10):
        middle = low + (high - low) * (at_low / (at_low - at_high).clamp(min=1e-300)).clamp(0, 1)
        value = function(middle)
        if bool((outside | (value.abs() <= _SETTLED)).all()):
            break
        left = value > 0
        at_high = torch.where(left & kept_high, at_high / 2, torch.where(left, at_high, value))
        at_low = torch.where(~left & kept_low, at_low / 2, torch.where(left, value, at_low))
        low, high = torch.where(left, middle, low), torch.where(left, high, middle)
        kept_low, kept_high = ~left, left
    return torch.where(outside, low, middle)


# Numbers in a block: two such blocks stay in a processor's last cache. On a GPU blocks only bound the memory.
_BLOCK, _GPU_BLOCK = 1 << 21, 1 << 26
_LARGE = 128.0  # above this a scaled top logit leaves its differences too few digits: 8e-6 in float32
_FAR = 1e9  # two to the minus this is zero in every type, and its cube is finite in every type


class TemperatureDerivatives(NamedTuple):
    """Log-probability of the label and derivatives at one inverse temperature β, all of shape (m,)."""

    rows: slice
    log_prob: Tensor  # log-probability of the label
    slope: Tensor  # d(-log_prob)/dβ: the expected logit minus the label's
    curvature: Tensor  # d²(-log_prob)/dβ²: the variance of the logit
    third: Tensor  # d³(-log_prob)/dβ³: its third central moment


def temperature_derivatives(logits: Tensor, labels: Tensor, beta: float) -> Iterator[TemperatureDerivatives]:
    """Yield log-probabilities of the label and their derivatives at ``softmax(beta * logits)``, block by block.

    Works in the logits' own precision (float64 stays, the rest is float32).
    """
    n, k = logits.shape
    dtype = working_dtype(logits)
    blocks = row_blocks(n, (_BLOCK if logits.device.type == "cpu" else _GPU_BLOCK) // k)
    memory = workspace(3, blocks[0].stop * k, dtype, logits.device)
    scale = beta * math.log2(math.e)  # powers of two are a third faster than powers of e
    for rows in blocks:
        label_gap, sums = _block_sums(logits[rows].to(dtype), labels[rows], scale, memory, careful=False)
        if not math.isfinite(float(sums[1].sum())):  # logits near the largest number of their type
            label_gap, sums = _block_sums(logits[rows].to(dtype), labels[rows], scale, memory, careful=True)
        total, (mean, square, cube) = sums[0], sums[1:].div_(sums[0]).unbind()
        variance = square - mean.square()
        yield TemperatureDerivatives(
            rows,
            total.log2().mul_(-math.log(2)).add_(label_gap, alpha=beta).clamp_(min=torch.finfo(dtype).min),
            mean / scale - label_gap,
            variance / scale**2,
            (cube - mean * (square + 2 * variance)) / scale**3,
        )


def _block_sums(
    logits: Tensor, labels: Tensor, scale: float, memory: Tensor, *, careful: bool
) -> tuple[Tensor, Tensor]:
    """Return label minus top logit, (m,), and Σ_k p_k g_k^j for j = 0..3, with g = scale x (logit - top), p = 2^g."""
    layout = Layout.of(logits)
    gaps, powers, scratch = (layout.reuse(part) for part in memory)
    block = layout.lay_out(logits, out=scratch)
    highest = block.amax(dim=0 if layout.transposed else 1)
    label_gap = block.view(-1).index_select(0, layout.places(labels)).sub_(highest)
    if careful or float(highest.abs().max()) * scale > _LARGE:
        torch.sub(block, layout.broadcastable(highest), out=gaps).mul_(scale).clamp_(min=-_FAR)
    else:  # in one go, which rounds the logits instead of their differences
        torch.add(layout.broadcastable(highest * -scale), block, alpha=scale, out=gaps)
    torch.exp2(gaps, out=powers)
    sums = torch.empty(4, layout.n, dtype=block.dtype, device=block.device)
    layout.sum_classes(powers, out=sums[0])
    layout.sum_products(powers, gaps, memory=scratch, out=sums[1])
    layout.sum_products(powers.mul_(gaps), gaps, memory=scratch, out=sums[2])
    layout.sum_products(powers.mul_(gaps), gaps, memory=scratch, out=sums[3])
    return label_gap, sums


_FEW_SAMPLES = 500  # samples of the first, cheap search
_GRID = 65  # inverse temperatures tried where the loss is not convex: a third apart
_REACH = 1e4  # factor by which a temperature may differ from the logits' own spread
_FINE, _ROUGH = 2e-6, 2e-3  # relative error of the answer, and of the rough ones it starts from
_NEAR = 1.5  # factor by which the minimum may differ from a given ``near``
_INSIDE = 1 + 2e-3  # closer to an end of the bracket than this is at the end
# Logits that differ by more, or typically by less, than these are first scaled so that their cubes are finite.
_WIDEST, _NARROWEST = 1e6, 1e-6
# Powers of two that an inverse temperature may be, the largest difference of logits being about 1.
_HOTTEST_POWER, _COLDEST_POWER = -14, 1060
_ALL_EQUAL = "logits must differ within a sample for a temperature to matter; got samples of equal logits."


class LossTerms(NamedTuple):
    """A loss of each sample and its first two derivatives in the log-probability, (m,) each."""

    value: Tensor
    first: Tensor
    second: Tensor


SampleLoss: TypeAlias = Callable[[Tensor], LossTerms]


def log_loss(log_prob: Tensor) -> LossTerms:
    """``-ln p``."""
    return LossTerms(-log_prob, log_prob.new_full((), -1.0), log_prob.new_zeros(()))


def focal_loss(log_prob: Tensor, *, gamma: float) -> LossTerms:
    """``-(1 - p)^γ ln p``."""
    p, q = log_prob.exp(), (-torch.expm1(log_prob)).clamp(min=1e-12)
    power, once = q**gamma, gamma * q ** (gamma - 1) * p
    first = once * log_prob - power
    second = once * (2 + log_prob - (gamma - 1) * p / q * log_prob)
    return LossTerms(-power * log_prob, first, second)


class InverseTemperatureFit(NamedTuple):
    """The best inverse temperature, and whether it is a minimum.

    At zero temperature sharper is always better (every prediction is right), at infinite temperature flatter is (they
    are worse than guessing).
    """

    beta: float
    certificate: Certificate
    end: Literal["interior", "zero_temperature", "infinite_temperature"] = "interior"


def fit_inverse_temperature(
    logits: Tensor,
    labels: Tensor,
    *,
    weights: Tensor | None = None,
    loss: SampleLoss = log_loss,
    near: float | None = None,
    span: float | None = None,
) -> InverseTemperatureFit:
    """Minimise the mean loss of ``softmax(beta * logits)``.

    Growing subsamples give the start, by steps of third order kept inside a bracket, so that one or two passes over all
    samples suffice. A loss that is not convex is first evaluated on a grid.

    Args:
        logits: Shape (n, k), finite, not all alike.
        labels: Shape (n,).
        weights: Weights of the samples in the mean, (n,), float64, above 0; None for equal ones.
        loss: Loss of the label's log-probability; if not convex, its minimum must be near that on a subsample.
        near: Minimum for similar logits; the search then begins there, on all samples.
        span: The largest difference of any two logits, where it is known.

    Raises:
        FitError: If all samples have equal logits, or the logits' type cannot hold the temperature.
    """
    search = _Search(logits, labels, loss, weights)
    if near is not None:
        beside = search.beside(near)
        if beside is not None:
            return beside
    low, high = beta_range(logits)
    if span is None:
        least, most = torch.aminmax(to_working_precision(logits))
        span = float(most.double() - least.double())
    if high <= _REACH / _NARROWEST and span <= _WIDEST:
        return search.between(low, high)
    scaled, power = _brought_to_size(logits, labels, weights)
    best = _Search(scaled, labels, loss, weights).between(1 / _REACH, _REACH)
    return _in_the_unit_of(logits, best, power)


def fit_with_pseudo_error(logits: Tensor, labels: Tensor, weights: Tensor | None = None) -> InverseTemperatureFit:
    """Minimise the mean log-loss plus that of half a sample more, whose label is the runner-up.

    Where no prediction is wrong, the log-loss alone has no minimum. Half an unseen failure is what Jeffreys' prior adds
    to n successes; it is spread over all samples. The certificate is that of the penalised loss. Weights count samples.
    """
    n, k = logits.shape
    size = n if weights is None else float(weights.sum())
    gaps = logits.double() / 2 - logits.amax(dim=1, keepdim=True).double() / 2  # halves, whose differences are finite
    runner_up = gaps.topk(2, dim=1).indices[:, 1]
    unit = -float(gaps.gather(1, runner_up[:, None]).mean())
    if unit == 0:
        raise FitError(_ALL_EQUAL)
    gaps = (gaps / unit).clamp(min=-_WIDEST)
    columns: list[float] = []

    def slopes(beta: float) -> Sequence[float]:
        nonlocal columns
        of_labels, of_unseen = (_sums(gaps, chosen, log_loss, beta, weights) for chosen in (labels, runner_up))
        columns = [one + 0.5 / size * other for one, other in zip(of_labels, of_unseen, strict=True)]
        return columns[1:]

    # Each of n (k - 1) gaps g pulls with g e^(-βg) <= 1 / (e β), all of them against 1 / 2.
    root = find_root(slopes, start=math.log(2 * n + 1), low=1 / _REACH, high=max(_REACH, 2.0 * n * k), tolerance=_FINE)
    slope = abs(slopes(root.value)[0])  # at the answer, which is a step beyond the last point evaluated
    certificate = Certificate(columns[0], slope, root.calls, 2.0 * (root.calls + 1))
    return _in_the_unit_of(logits, InverseTemperatureFit(root.value, certificate), -1 - math.log2(unit))


class _Search:
    """The samples, and the mean loss at the inverse temperature that was tried last."""

    def __init__(self, logits: Tensor, labels: Tensor, loss: SampleLoss, weights: Tensor | None) -> None:
        self._logits, self._labels, self._loss, self._weights = logits, labels, loss, weights
        self._value, self._rounding = math.nan, 0.0
        self._eps = torch.finfo(working_dtype(logits)).eps

    def _derivatives(self, logits: Tensor, labels: Tensor, weights: Tensor | None, beta: float) -> Sequence[float]:
        self._value, *slopes = _sums(logits, labels, self._loss, beta, weights)
        self._rounding = self._eps * abs(slopes[1]) * beta  # what rounding of the logits can add to the slope
        return slopes

    def _certificate(self, root: Root, passes: float) -> Certificate:
        return Certificate(self._value, max(abs(root.residual), self._rounding), root.calls, passes)

    def _root_on_all(self, start: float, low: float, high: float) -> Root:
        derivatives = partial(self._derivatives, self._logits, self._labels, self._weights)
        return find_root(derivatives, start=start, low=low, high=high, tolerance=_FINE)

    def beside(self, near: float) -> InverseTemperatureFit | None:
        """Return the minimum close to a guess; None if it is not there."""
        low, high = near / _NEAR, near * _NEAR
        root = self._root_on_all(near, low, high)
        if not low * _INSIDE < root.value < high / _INSIDE:
            return None
        return InverseTemperatureFit(root.value, self._certificate(root, root.calls))

    def between(self, low: float, high: float) -> InverseTemperatureFit:
        """Return the minimum within a bracket, from growing subsamples."""
        logits, labels, loss, weights = self._logits, self._labels, self._loss, self._weights
        around, start, passes = (low, high), (low * high) ** 0.5, 0.0
        for chosen in _subsamples(len(logits), logits.device):
            few = logits.index_select(0, chosen), labels[chosen], None if weights is None else weights[chosen]
            share = len(chosen) / len(logits)
            if loss is not log_loss and not passes:
                around, start = _around_the_lowest(*few, loss, (low, high))
                passes += _GRID * share
            derivatives = partial(self._derivatives, *few)
            rough = find_root(derivatives, start=start, low=around[0], high=around[1], tolerance=_ROUGH)
            start, passes = rough.value, passes + rough.calls * share
        root = self._root_on_all(start, *around)
        if around != (low, high) and not around[0] * _INSIDE < root.value < around[1] / _INSIDE:
            # All samples have their minimum elsewhere than the subsample of the grid.
            passes += root.calls
            root = self._root_on_all(root.value, low, high)
        certificate = self._certificate(root, passes + root.calls)
        # A label that is not the top class has a probability of at most a half, however cold.
        least = 1 / len(logits) if weights is None else float(weights.min() / weights.sum())
        one_wrong = float(loss(torch.tensor(math.log(0.5))).value) * least
        if root.value * _INSIDE >= high or certificate.objective < one_wrong:
            return InverseTemperatureFit(root.value, certificate, "zero_temperature")
        is_hot = root.value <= low * _INSIDE
        return InverseTemperatureFit(root.value, certificate, "infinite_temperature" if is_hot else "interior")


def beta_range(logits: Tensor) -> tuple[float, float]:
    """Return the lowest and the highest inverse temperature worth trying, from the gaps below the top logit."""
    some = logits[:: max(1, len(logits) // 200)].double() / 2  # halves, whose differences are finite
    wide = float((some.amax(dim=1) - some.mean(dim=1)).mean())
    first, second = some.topk(2, dim=1).values.unbind(dim=1)
    near = float((first - second).median())
    # Far from the mean, but near the second: some classes were ruled out by a logit of -10⁴, say.
    narrow = near if 0 < near < wide / 100 else wide
    least = torch.finfo(torch.float64).tiny * _REACH
    return 0.5 / _REACH / max(wide, least), 0.5 / max(narrow, least) * _REACH


def _brought_to_size(logits: Tensor, labels: Tensor, weights: Tensor | None) -> tuple[Tensor, int]:
    """Return float64 logits times the power of two at which the best inverse temperature is about 1, and that power.

    The slope of the log-loss increases, so a bisection over powers of two finds where it changes its sign.
    """
    gaps = logits.double() - logits.amax(dim=1, keepdim=True).double()
    widest = -float(gaps.min())
    if widest == 0:
        raise FitError(_ALL_EQUAL)
    power = -math.frexp(widest)[1]
    gaps = _times_power(gaps, power)  # in -1..0
    of_label = gaps.gather(1, labels[:, None])

    def falls(trial: int) -> bool:
        probs = _times_power(gaps, trial).softmax(dim=1)
        slopes = (probs * gaps).sum(dim=1, keepdim=True) - of_label
        return float((slopes if weights is None else slopes * weights[:, None]).sum()) <= 0

    low, high = _HOTTEST_POWER, _COLDEST_POWER
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if falls(middle) else (low, middle)
    return _times_power(gaps, low).clamp(min=-torch.finfo(torch.float64).max / 4), power + low


def _times_power(values: Tensor, power: int) -> Tensor:
    """Multiply by a power of two in two steps, because the power alone may overflow."""
    return values * math.ldexp(1.0, power // 2) * math.ldexp(1.0, power - power // 2)


def _in_the_unit_of(logits: Tensor, best: InverseTemperatureFit, power: float) -> InverseTemperatureFit:
    """Convert a fit for logits times a power of two to the logits' unit; raise if their type cannot hold it."""
    dtype = working_dtype(logits)
    limits = torch.finfo(dtype)
    # Both the temperature and its inverse must be normal numbers.
    least, most = math.log2(max(limits.tiny, 1 / limits.max)), math.log2(min(limits.max, 1 / limits.tiny))
    sought = math.log2(best.beta) + power
    if best.end == "infinite_temperature":  # as hot as can be
        sought = max(sought, least)
    elif best.end == "zero_temperature":
        sought = min(sought, most)
    elif not least <= sought <= most:
        size = "large" if sought < least else "small"
        raise FitError(
            f"the logits must be of a size whose best temperature {dtype} can hold; theirs is about "
            f"10^{-sought * math.log10(2):.0f}. The logits are too {size}: multiply all of them by one number, so that "
            "those of a sample differ by 1 to 100."
        )
    return best._replace(beta=2.0**sought)


def _subsamples(n: int, device: torch.device) -> Iterator[Tensor]:
    """Yield subsamples for rough searches: a few, eight times as many, …, an eighth of all; all where they are few."""
    if n < 4 * _FEW_SAMPLES:
        yield torch.arange(n, device=device)
        return
    generator, size = torch.Generator().manual_seed(0), _FEW_SAMPLES
    while size < n // 8:
        yield torch.randint(n, (size,), generator=generator).to(device)
        size *= 8
    yield torch.randint(n, (max(n // 8, _FEW_SAMPLES),), generator=generator).to(device)


def _around_the_lowest(
    logits: Tensor, labels: Tensor, weights: Tensor | None, loss: SampleLoss, ends: tuple[float, float]
) -> tuple[tuple[float, float], float]:
    """Return the neighbours of the lowest point of a grid between two ends, and that point."""
    low, high = ends
    grid = [low * (high / low) ** (step / (_GRID - 1)) for step in range(_GRID)]
    values = [_sums(logits, labels, loss, beta, weights)[0] for beta in grid]
    best = values.index(min(values))
    return (grid[max(best - 1, 0)], grid[min(best + 1, _GRID - 1)]), grid[best]


def _sums(logits: Tensor, labels: Tensor, loss: SampleLoss, beta: float, weights: Tensor | None = None) -> list[float]:
    """Return the mean loss and its first two derivatives in beta (three of the log-loss), summed in float64."""
    sums = [0.0] * (4 if loss is log_loss else 3)
    for block in temperature_derivatives(logits, labels, beta):
        if loss is log_loss:
            columns: tuple[Tensor, ...] = (block.log_prob, block.slope, block.curvature, block.third)
        else:
            value, first, second = loss(block.log_prob)
            curvature = second * block.slope.square() - first * block.curvature
            columns = (value, -first * block.slope, curvature)
        if weights is not None:
            columns = tuple(column * weights[block.rows] for column in columns)
        sums = [total + float(column.sum(dtype=torch.float64)) for total, column in zip(sums, columns, strict=True)]
    if loss is log_loss:
        sums[0] = -sums[0]
    size = len(logits) if weights is None else float(weights.sum())
    return [total / size for total in sums]
