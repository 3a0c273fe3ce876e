"""Small logistic regressions, many at once: one per class, on a few functions of one score.

Newton's method in float64, in coordinates in which the features are uncorrelated and of unit size, so that neither
scores of 10⁴ nor a feature that repeats another trouble it. The features are made block by block and never kept.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from calibrant.numerics.newton import Certificate

# Scores (c, m) in float64 -> features (c, d, m), a constant among them.
Features: TypeAlias = Callable[[Tensor], Tensor]

_BLOCK = 1 << 19  # scores at once
_SUBSAMPLE = 20_000  # samples of the first, rough fit, if there are four times as many
_MAX_STEPS = 50
_SMALL_STEP = 1e-8  # in units in which features have size 1, relative to the weights and at least to 1
_STUCK = 2.0**-8  # share of a step below which a line restarts at the first start
_ROUNDING = 1e-13  # apparent rise of a loss at its optimum
_REDUNDANT = 1e-12  # share of the features' variance below which a direction is rounding


class Targets(NamedTuple):
    """Targets of c regressions: in line j, ``hit[j]`` where the label is ``classes[j]`` and ``miss[j]`` elsewhere."""

    labels: Tensor  # (n,)
    classes: Tensor  # (c,)
    hit: Tensor  # (c,), float64
    miss: Tensor  # (c,), float64

    def lines(self, lines: Tensor) -> "Targets":
        return Targets(self.labels, self.classes[lines], self.hit[lines], self.miss[lines])

    def of(self, rows: slice) -> Tensor:
        """Return the targets of some samples, (c, m)."""
        return torch.where(self.labels[rows] == self.classes[:, None], self.hit[:, None], self.miss[:, None])


class LogisticFit(NamedTuple):
    """The optimum of each of c regressions, where there is one."""

    weights: Tensor  # (c, d)
    converged: Tensor  # bool, (c,); where not, the best weights are infinite, or were not reached
    separable: Tensor  # bool, (c,): these weights separate hits from misses, so larger ones are always better
    objective: Tensor  # mean log-loss, (c,)
    gradient: Tensor  # largest entry of its gradient, features being of unit size, (c,)
    steps: int
    passes: float

    def columns(self) -> tuple[Tensor, ...]:  # with a line for each regression
        return self.weights, self.converged, self.separable, self.objective, self.gradient

    def certificate(self) -> Certificate:
        return Certificate(float(self.objective.mean()), float(self.gradient.max()), self.steps, self.passes)


def fit_logistic(
    scores: Tensor,
    targets: Targets,
    features: Features,
    *,
    weights: Tensor | None = None,
    active: Tensor | None = None,
    sums_of_all: "LineSums | None" = None,
) -> LogisticFit:
    """Fit weights w that minimise the mean log-loss of ``sigmoid(w · features(score))`` for each line of scores (c, n).

    Where the targets are 0 and 1 and the features separate them there is no optimum. ``active``, bool (c, d), are the
    features that a line may use, all by default; the weights of the others are 0. ``weights``, (n,), float64 and above
    0, are those of the samples in the mean, equal by default. Where these are a sample of those to fit on,
    ``sums_of_all`` makes a pass over the latter.
    """
    every = scores.shape[1] // _SUBSAMPLE if sums_of_all is None else 1
    rough = None
    if every >= 4 or sums_of_all is not None:
        thin = targets._replace(labels=targets.labels[::every])
        few = None if weights is None else weights[::every]
        rough = fit_logistic(scores[:, ::every], thin, features, weights=few, active=active)
    problem = _Problem(scores, targets, features, weights, active, sums_of_all)
    starts = [torch.zeros_like(problem.like_scores), problem.like_scores]
    if rough is not None:
        starts = [torch.where(rough.converged[:, None], problem.inwards(rough.weights), starts[0])]
    point, converged, last, steps, passes = _newton(problem, starts)
    return LogisticFit(
        weights=problem.outwards(point),
        converged=converged,
        separable=last.separable & (targets.hit == 1) & (targets.miss == 0),
        objective=last.loss,
        gradient=last.gradient.abs().amax(dim=1),
        steps=steps,
        passes=1 + passes + (0 if rough is None else rough.passes / every),
    )


class Sums(NamedTuple):
    """Sums over samples at some weights, one line per regression."""

    loss: Tensor  # (c,)
    gradient: Tensor  # (c, 1, d), by the weights of the features
    curvature: Tensor  # (c, d, d)
    wrong: Tensor  # (c,): 0 if no sample lies on the wrong side
    total: Tensor | float  # weight of the samples


# Targets of c lines, the features that each may use (c, d, 1), and their weights (c, 1, d).
LineSums: TypeAlias = Callable[[Targets, Tensor, Tensor], Sums]


class _Pass(NamedTuple):
    """Sums over all samples at some weights, one line per regression."""

    loss: Tensor  # (c,)
    gradient: Tensor  # (c, d)
    curvature: Tensor  # (c, d, d)
    separable: Tensor  # (c,): every sample lies on the right side


class _Problem:
    """The samples, and the coordinates in which features are uncorrelated and of unit size."""

    def __init__(
        self,
        scores: Tensor,
        targets: Targets,
        features: Features,
        weights: Tensor | None,
        active: Tensor | None,
        sums_of_all: LineSums | None,
    ) -> None:
        self.scores, self.targets, self._features, self._weights = scores, targets, features, weights
        self._sums_of_all = sums_of_all
        self.size = features(scores[:1, :1].double()).shape[1]
        used = torch.ones(len(scores), self.size) if active is None else active
        self._used = used.to(device=scores.device)[..., None].double()
        lines = torch.arange(len(self.scores), device=self.scores.device)
        moments = torch.zeros(len(lines), self.size, self.size, dtype=torch.float64, device=self.scores.device)
        along = torch.zeros(len(lines), self.size, dtype=torch.float64, device=self.scores.device)
        n = self.scores.shape[1]
        for rows, block in _blocks(self.scores, lines, features, self._used):
            moments += block @ block.mT / n
            along += (block @ self.scores[:, rows, None].double())[..., 0] / n
        size = moments.diagonal(dim1=1, dim2=2).sqrt()
        inverse = torch.where(size > 0, 1 / size, 0.0)
        variance, directions = torch.linalg.eigh(moments * inverse[:, :, None] * inverse[:, None, :])
        kept = variance > _REDUNDANT * variance.amax(dim=1, keepdim=True)
        root = variance.clamp(min=0).sqrt()
        self._out = inverse[:, :, None] * directions * torch.where(kept, 1 / root, 0.0)[:, None, :]
        self._in = torch.where(kept, root, 0.0)[:, :, None] * directions.mT * size[:, None, :]
        self.like_scores = (self._out.mT @ along[..., None])[..., 0]  # the point whose logits are closest to the scores
        self._idle = torch.diag_embed((~kept).double())  # keeps redundant directions fixed

    def outwards(self, point: Tensor) -> Tensor:
        """Return the weights of the features themselves, (c, d)."""
        return (self._out @ point[..., None])[..., 0]

    def inwards(self, weights: Tensor) -> Tensor:
        return (self._in @ weights[..., None])[..., 0]

    def evaluate(self, lines: Tensor, point: Tensor) -> _Pass:
        """Make one pass over the samples, for some of the regressions."""
        out = self._out[lines]
        weights = (out @ point[..., None]).mT  # (c, 1, d)
        targets, used = self.targets.lines(lines), self._used[lines]
        if self._sums_of_all is not None:
            sums = self._sums_of_all(targets, used, weights)
        else:
            sums = line_sums(targets, used, weights, self.scores, lines, self._features, self._weights)
        total = sums.total
        curvature = out.mT @ sums.curvature @ out / total + self._idle[lines]
        return _Pass(sums.loss / total, (sums.gradient @ out)[:, 0] / total, curvature, sums.wrong == 0)


def line_sums(
    targets: Targets,
    used: Tensor,
    weights: Tensor,
    scores: Tensor,
    lines: Tensor,
    features: Features,
    counts: Tensor | None,
) -> Sums:
    """Make one pass over samples, given scores, (l, n), of which c lines count, and how much a sample counts, (n,)."""
    (loss, wrong), gradient = weights.new_zeros(2, len(lines)), torch.zeros_like(weights)
    curvature = weights.new_zeros(len(lines), weights.shape[2], weights.shape[2])
    for rows, values in _blocks(scores, lines, features, used):
        logit = weights @ values  # (c, 1, m)
        target = targets.of(rows)[:, None]
        prob = logit.sigmoid()
        wrong += ~((target - 0.5) * logit > 0).all(dim=2)[:, 0]
        # ln(1 + e^x) = max(x, 0) - ln max(p, 1 - p)
        linear, likelier = logit.clamp(min=0) - target * logit, prob.maximum(1 - prob)
        slope, spread = prob - target, prob * (1 - prob)
        if counts is None:
            loss += linear.sum(dim=(1, 2)) - _sum_of_logs(likelier[:, 0])
        else:
            count = counts[rows]
            loss += (linear.sub_(likelier.log_()) @ count)[:, 0]
            slope, spread = slope * count, spread * count
        gradient += slope @ values.mT
        curvature += (values * spread) @ values.mT
    return Sums(loss, gradient, curvature, wrong, scores.shape[1] if counts is None else float(counts.sum()))


def _blocks(scores: Tensor, lines: Tensor, features: Features, used: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Return the samples, and the features of some lines there, (c, d, m)."""
    n, whole = scores.shape[1], len(lines) == len(scores)
    step = max(1, _BLOCK // len(lines))
    for start in range(0, n, step):
        rows = slice(start, min(start + step, n))
        yield rows, features((scores[:, rows] if whole else scores[lines, rows]).double()) * used


def _sum_of_logs(values: Tensor) -> Tensor:
    """Sum the logarithms of numbers in 1/2..1, (c, m) -> (c,): of products of 512, as logarithms are slow."""
    whole = values.shape[1] // 512 * 512
    products = values[:, :whole].unflatten(1, (-1, 512)).prod(dim=2)
    return products.log().sum(dim=1) + values[:, whole:].prod(dim=1).log()


def _newton(problem: _Problem, starts: list[Tensor]) -> tuple[Tensor, Tensor, _Pass, int, float]:
    """Newton's method from the best of some starts, with steps halved until the loss does not rise.

    Converged lines are left alone. A line that barely moves (far out, where all logits are saturated, the curvature is
    useless) restarts at the first start, where the curvature is largest.

    Where the features separate hits from misses, each step goes as far as the last and the loss falls towards 0; such a
    line is recognised as soon as every sample lies on its right side, or by the number of steps.
    """
    point = starts[0].clone()
    lines = torch.arange(len(point), device=point.device)
    at, passes = problem.evaluate(lines, point), float(len(starts))
    first = _Pass(*(known.clone() for known in at))
    elsewhere = torch.zeros_like(at.separable)  # began at another start than the first
    for other in starts[1:]:
        seen = problem.evaluate(lines, other)
        better = seen.loss < at.loss
        point[better] = other[better]
        elsewhere |= better
        _replace(at, better, seen, better)
    move, share = _newton_step(at), torch.ones_like(at.loss)
    certain = (problem.targets.hit == 1) & (problem.targets.miss == 0)
    for steps in range(_MAX_STEPS + 1):
        arrived = move.abs().amax(dim=1) <= _SMALL_STEP * (1 + point.abs().amax(dim=1))
        endless = certain & at.separable
        todo = lines[~(arrived | endless)]
        if not len(todo) or steps == _MAX_STEPS:
            break
        trial = point[todo] + share[todo, None] * move[todo]
        seen = problem.evaluate(todo, trial)
        passes += len(todo) / len(lines)
        better = seen.loss <= at.loss[todo] * (1 + _ROUNDING)
        share[todo] = torch.where(better, 1.0, share[todo] / 2)
        moved = todo[better]
        point[moved], move[moved] = trial[better], _newton_step(seen)[better]
        _replace(at, moved, seen, better)
        creeping = elsewhere & (share < _STUCK)
        if creeping.any():
            elsewhere &= ~creeping
            point[creeping], share[creeping] = starts[0][creeping], 1.0
            _replace(at, creeping, first, creeping)
            move[creeping] = _newton_step(first)[creeping]
    return point, arrived & ~endless, at, steps, passes


def _replace(at: _Pass, lines: Tensor, by: _Pass, taken: Tensor) -> None:
    for known, new in zip(at, by, strict=True):
        known[lines] = new[taken]


def _newton_step(at: _Pass) -> Tensor:
    # Towards infinite weights the curvature vanishes; a trace of it keeps the system solvable.
    trace = at.curvature.diagonal(dim1=1, dim2=2).amax(dim=1) * 1e-14 + 1e-300
    damped = at.curvature + torch.diag_embed(trace[:, None].expand_as(at.gradient))
    return torch.linalg.solve(damped, -at.gradient)
