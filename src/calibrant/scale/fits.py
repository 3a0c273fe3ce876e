"""Fit calibrators on more samples than memory holds, by few passes over the shards.

Smooth fits begin at the optimum of a uniform sample. That of all samples is near, and the curvature there is almost the
same, so that every pass, which adds up a gradient, gains digits. They minimise what a fit in memory minimises, and end
at its parameters. Binning methods count their samples in narrow cells of log-odds; the fit says what that can change.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from calibrant.calibrators import Calibrator, Chain, affine, base, ensembles, logistic
from calibrant.calibrators.base import Fitted, floored_log_odds, gathered_warnings, top_label, with_scores
from calibrant.calibrators.binning import equal_mass_shares, hit_shares
from calibrant.errors import FitError, InputError
from calibrant.maps import Affine, ChainMap, Map, Scale, Steps, TopLabelMap
from calibrant.metrics.states import RankedCells
from calibrant.numerics import softmax_regression as softmax
from calibrant.numerics.binning import inner_edges, sums_by
from calibrant.numerics.inverse_temperature import InverseTemperatureFit, find_root, temperature_derivatives
from calibrant.numerics.isotonic import Blocks, pooled
from calibrant.numerics.logistic import Features, LogisticFit, Targets, fit_logistic, line_sums
from calibrant.numerics.logistic import Sums as LineSums
from calibrant.numerics.newton import Certificate, CurvatureMemory, Point, Preconditioner, newton_direction
from calibrant.numerics.softmax_regression import Ridge, WeightShape
from calibrant.predictions import Predictions
from calibrant.scale.jobs import LOCAL, Engine, first_design
from calibrant.scale.passes import Passes, Sums, leading
from calibrant.scale.shards import Plan, Shard
from calibrant.text import counted


class StreamedFit(NamedTuple):
    """A map that was fitted on all samples, and a uniform sample of them."""

    map: Map
    sample: Predictions


def fit_streamed(
    calibrator: Calibrator,
    shards: Sequence[Shard],
    plan: Plan,
    *,
    engine: Engine = LOCAL,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> StreamedFit | None:
    """Fit a calibrator on the samples of all shards; None in the processes of ``torchrun`` but the first.

    Given probabilities with zeros are mixed with a share of the uniform distribution, which the sample chooses.
    """
    check_streams(calibrator)
    start = time.perf_counter()
    for shard in shards:
        plan.check(shard)
    tasks = plan.tasks(shards)
    design = first_design(plan, tasks, n_bins=15, seed=seed)
    if design.classes is None:
        raise InputError("a calibrator must be fitted on scores of every class; these files have only the top label.")
    with leading(engine, tasks) as run:
        if run is None:
            return None
        passes = Passes(run, plan, design, progress)
        sample, n = passes.given, passes.totals.n
        if n == len(sample):
            fitted = calibrator.fit_without_scores(sample)
        else:
            maps = [_fitted(step, passes, start) for step in _steps(calibrator)]
            fitted = maps[0]
            if isinstance(calibrator, Chain):
                notes = [note for part in maps if part.summary is not None for note in part.summary.notes]
                chain = Fitted(ChainMap(maps, n_classes=sample.n_classes), None, (*dict.fromkeys(notes),))
                fitted = calibrator.finished(chain, sample, 0.0, (), rows=n, start=start)
    assert fitted.summary is not None
    known = sample.normalised
    fitted.summary = with_scores(fitted.summary, sample, lambda logits, _: fitted.apply_as(logits, known))
    return StreamedFit(fitted, sample)


def check_streams(calibrator: Any) -> None:
    """Raise if a calibrator needs all samples in memory."""
    for step in _steps(calibrator):
        if step.name not in _METHODS:
            *names, last = _METHODS
            raise InputError(
                f"{step.name} cannot be fitted on streamed files; {', '.join(names)} and {last} can, and chains of "
                "them, such as temperature+isotonic. Fit it on fewer samples, as many as fit in memory."
            )
        if getattr(step, "criterion", "nll") != "nll" or getattr(step, "value", None) is not None:
            raise InputError(
                f"{step.name} must minimise the log-loss if streamed; got {step.expression}. Fit it in memory."
            )


def _steps(calibrator: Any) -> Sequence[Any]:
    return calibrator.steps if isinstance(calibrator, Chain) else (calibrator,)


def _fitted(step: Calibrator, passes: Passes, start: float) -> Map:
    """Fit one method, and apply it to all samples; ``start`` is when the passes began."""
    with gathered_warnings() as warned:
        share = step.uniform_share(passes.given)
        passes.mix_in(share)
        fitted = _METHODS[step.name](step, passes)
    if fitted.certificate is not None:
        fitted = fitted._replace(certificate=fitted.certificate._replace(passes=float(passes.count)))
    made = step.finished(fitted, passes.given, share, warned, rows=passes.totals.n, start=start)
    passes.apply(made)
    return made


@contextmanager
def _on_the_sample(passes: Passes) -> Iterator[None]:
    """Say in errors that the fit failed on the sample already."""
    try:
        yield
    except FitError as error:
        many = f"the fit begins on a uniform sample of {len(passes.sample):,} of {passes.totals.n:,} samples, and fails"
        raise type(error)(f"{many} there: ", *error.args) from error


# Temperature: the slope of the log-loss, and two more derivatives, as sums over all samples.

_REACH = 4.0  # the temperature of all samples lies within this factor of that of the sample, or the fit fails
_PRECISION = 1e-10  # relative, of the temperature


def _temperature(calibrator: Any, passes: Passes) -> Fitted:
    first = affine.inverse_temperature(passes.sample)
    if first.end != "interior":  # a guess in memory, too
        return calibrator._fit(passes.sample)._replace(notes=("the temperature is that of a uniform sample.",))
    best = _polished(passes, first)
    return Fitted(_scale(passes, best.beta), best.certificate)


def _scale(passes: Passes, beta: float) -> Scale:
    return Scale(torch.tensor(1 / beta, dtype=torch.float64), n_classes=passes.sample.n_classes)


def _polished(passes: Passes, first: InverseTemperatureFit) -> InverseTemperatureFit:
    """Return the optimum of all samples, from that of some of them."""
    sums = torch.zeros(4)

    def derivatives(beta: float) -> Sequence[float]:
        nonlocal sums
        sums = passes.add(partial(_derivatives, beta=beta), f"T = {1 / beta:.6g}")["sums"] / passes.totals.mass
        return sums[1:].tolist()

    low, high = first.beta / _REACH, first.beta * _REACH
    root = find_root(derivatives, start=first.beta, low=low, high=high, tolerance=_PRECISION, max_calls=12)
    if not low < root.value < high:
        raise FitError(
            f"the temperature of all samples must be near that of a sample of them, {1 / first.beta:.4g}; it is beyond "
            f"{1 / low:.4g} or {1 / high:.4g}. Do the shards hold what their names say?"
        )
    certificate = Certificate(-float(sums[0]), abs(root.residual), root.calls, float(root.calls))
    return InverseTemperatureFit(root.value, certificate)


def _derivatives(samples: Predictions, *, beta: float) -> Sums:
    """Return the sums of log-probabilities and three derivatives of the log-loss."""
    sums = torch.zeros(4, dtype=torch.float64)
    for block in temperature_derivatives(samples.logits, samples.labels, beta):
        columns: tuple[Tensor, ...] = (block.log_prob, block.slope, block.curvature, block.third)
        if samples.weights is not None:
            columns = tuple(column.double() * samples.weights[block.rows] for column in columns)
        sums += torch.stack([column.sum(dtype=torch.float64) for column in columns])
    return {"sums": sums}


# Affine functions of the logits: quasi-Newton steps, with the curvature of the sample.

_TOLERANCE = 1e-9  # largest entry of the gradient, inputs being of unit size
_STEPS, _SHORTEST = 60, 1e-3
_NOISE = 1e-13  # rounding in a comparison of two values
_SOLVED = 1e-3  # relative residual of a step's linear system


def _unpenalised(calibrator: Calibrator, passes: Passes, *, shape: WeightShape) -> Fitted:
    affine.check_every_class_seen(passes.sample, calibrator.title)
    with _on_the_sample(passes):
        beta = affine.temperature_fit(passes.sample, calibrator.title).beta
    logits, k = passes.sample.logits, passes.sample.n_classes
    if shape == "matrix":
        axes, start = softmax.Axes.of(logits), softmax.pack((beta, 0.0), k, shape, logits.device)
        fit = _affine(passes, partial(_turned, axes=axes), shape, start=softmax.unpack(axes.inwards(start), shape))
        weight, bias = axes.outwards(fit.weight, fit.bias, start)
    else:
        fit = _affine(passes, _logits, shape, start=(beta, 0.0))
        weight, bias = fit.weight, fit.bias
    return Fitted(Affine(weight, bias, n_classes=k), fit.certificate)


def _structured(calibrator: Any, passes: Passes, *, shape: WeightShape) -> Fitted:
    base.warn_of_missing_classes(passes.sample, calibrator.title)
    k, first = passes.sample.n_classes, affine.inverse_temperature(passes.sample)
    first = _polished(passes, first) if first.end == "interior" else affine.finite_temperature_fit(passes.sample)
    fit = _affine(passes, partial(affine.log_probs_at, beta=first.beta), shape, calibrator.ridge(passes.totals.size, k))
    both = (_scale(passes, first.beta), Affine(fit.weight, fit.bias, n_classes=k, of_log_probs=True))
    return Fitted(ChainMap(both, n_classes=k), fit.certificate)


def _logits(samples: Predictions) -> Tensor:
    return samples.logits


def _turned(samples: Predictions, *, axes: softmax.Axes) -> Tensor:
    return axes.turned(samples.logits)


def _affine(
    passes: Passes,
    inputs_of: Callable[[Predictions], Tensor],
    shape: WeightShape,
    ridge: Ridge = Ridge(),  # noqa: B008  # a tuple of numbers
    *,
    start: tuple[Tensor | float, Tensor | float] = (1.0, 0.0),
) -> softmax.AffineFit:
    """Fit weight and bias of inputs that follow from the logits of a sample."""
    inputs, labels, weights = few = _samples(passes.sample, inputs_of)
    with _on_the_sample(passes):
        first = softmax.fit_affine(inputs, labels, weights=weights, shape=shape, ridge=ridge, start=start)
    loss = softmax.affine_loss(few, shape, ridge)
    theta = loss.levelled(softmax.pack((first.weight, first.bias), inputs.shape[1], shape, inputs.device))
    loss.value_and_gradient(theta, exact=False)  # whose curvature serves all steps
    precondition, small = loss.preconditioner(strong=True), torch.zeros_like(theta)

    def solve(residual: Tensor) -> Tensor:
        return newton_direction(loss, -residual.view_as(theta), precondition, _SOLVED, small)[0].flatten()

    def evaluate(at: Tensor) -> Point:
        sums = passes.add(partial(_affine_sums, theta=at, shape=shape, inputs_of=inputs_of), "gradient")
        value, gradient = float(sums["value"]) / passes.totals.mass, sums["gradient"] / passes.totals.mass
        if not isinstance(loss, softmax.ScalarLoss):  # which has no penalty here
            away = at - loss.centre
            value, gradient = value + float((loss.penalty * away.square()).sum()), gradient + 2 * loss.penalty * away
        return Point(value, gradient)

    theta, certificate = _descend(evaluate, theta, solve, softmax.parameter_sizes(inputs, theta, shape))
    return softmax.AffineFit(*softmax.unpack(loss.levelled(theta), shape), certificate)


def _samples(samples: Predictions, inputs_of: Callable[[Predictions], Tensor]) -> softmax.Samples:
    return softmax.Samples(inputs_of(samples), samples.labels, samples.weights)


def _affine_sums(
    samples: Predictions, *, theta: Tensor, shape: WeightShape, inputs_of: Callable[[Predictions], Tensor]
) -> Sums:
    few = _samples(samples, inputs_of)
    point = softmax.affine_loss(few, shape, Ridge()).value_and_gradient(theta, exact=True)
    return {"value": torch.tensor(point.value * few.size, dtype=torch.float64), "gradient": point.gradient * few.size}


def _descend(
    evaluate: Callable[[Tensor], Point], theta: Tensor, solve: Preconditioner, size: Tensor
) -> tuple[Tensor, Certificate]:
    """Minimise from near the optimum by L-BFGS, given the inverse of a curvature that is nearly right."""
    memory, here = CurvatureMemory(), evaluate(theta)
    for step in range(_STEPS):
        steepness = float((here.gradient / size).abs().max())
        if steepness <= _TOLERANCE:
            return theta, Certificate(here.value, steepness, step, 0.0)
        direction = memory.direction(here.gradient.flatten(), ridge=0.0, solve=solve)
        assert direction is not None
        slope, length = float(direction @ here.gradient.flatten()), 1.0
        while length > _SHORTEST:
            trial = theta + length * direction.view_as(theta)
            there = evaluate(trial)
            if there.value <= here.value + 1e-4 * length * slope + _NOISE * max(1.0, abs(here.value)):
                break
            length /= 2
        else:
            break
        memory.learn((trial - theta).flatten(), (there.gradient - here.gradient).flatten())
        theta, here = trial, there
    raise FitError(
        f"the gradient must fall below {_TOLERANCE:g} for the fit to count; it is {steepness:.2g} after {step} "
        "steps. Check the logits for extreme values, or use a method with a penalty, such as svs or sms."
    )


# Logistic regressions: Newton's method in memory, with sums over all samples.


def _logistic(calibrator: Any, passes: Passes) -> Fitted:
    def fit(scores: Tensor, targets: Targets, features: Features, **options: Tensor | None) -> LogisticFit:
        def sums_of_all(lines: Targets, used: Tensor, weights: Tensor) -> LineSums:
            lines = lines._replace(labels=lines.labels[:0])
            work = partial(_line_sums, targets=lines, used=used, weights=weights, features=features)
            sums = passes.add(work, f"{len(lines.classes)} regressions")
            return LineSums(*(sums[name] for name in LineSums._fields))

        return fit_logistic(scores, targets, features, sums_of_all=sums_of_all, **options)

    return calibrator._fit(passes.sample, logistic.Regression(fit, passes.totals.of_classes, passes.totals.size))


def _line_sums(samples: Predictions, *, targets: Targets, used: Tensor, weights: Tensor, features: Features) -> Sums:
    scores, classes = logistic.bounded_log_odds(samples)
    targets, lines = targets._replace(labels=samples.labels), targets.classes - classes[0]
    sums = line_sums(targets, used, weights, scores, lines, features, samples.weights)
    return {**sums._asdict(), "total": torch.tensor(sums.total, dtype=torch.float64)}


# Ensemble temperature scaling: Newton's method for the shares.

_CLOSE = 1e-5  # a step after which the next one is beyond rounding


def _ensemble(calibrator: Any, passes: Passes) -> Fitted:
    with _on_the_sample(passes):
        first = affine.temperature_fit(passes.sample, calibrator.title)
    beta = (_polished(passes, first) if first.end == "interior" else first).beta
    shares, _ = ensembles.minimise_on_simplex(ensembles.mixture_log_loss(passes.sample, beta), 3)
    for _ in range(_STEPS):
        sums = passes.add(partial(_mixture_sums, beta=beta, shares=shares), "shares of the mixture")
        value, gradient, hessian = (sums[name] / passes.totals.mass for name in ("value", "gradient", "hessian"))
        last, gap = shares, max(ensembles.simplex_gap(shares.numpy(), gradient.numpy()), 0.0)
        shares, model = ensembles.minimise_on_simplex(partial(_quadratic, float(value), gradient, hessian, last), 3)
        moved = float((shares - last).abs().max())
        if moved <= _CLOSE:
            break
    else:
        raise FitError(f"the shares of a mixture did not converge in {_STEPS} steps; the remaining gap is {gap:.2g}.")
    # The last step was not evaluated; Newton's steps make a gap smaller by about their length.
    certificate = model._replace(gradient=max(model.gradient, gap * moved))
    return Fitted(ensembles.mixture(passes.sample, beta, shares), certificate)


def _mixture_sums(samples: Predictions, *, beta: float, shares: Tensor) -> Sums:
    mass = float(len(samples) if samples.weights is None else samples.weights.sum())
    value, gradient, hessian = ensembles.mixture_log_loss(samples, beta)(shares)
    means = {"value": torch.tensor(value, dtype=torch.float64), "gradient": gradient, "hessian": hessian}
    return {name: mean * mass for name, mean in means.items()}


def _quadratic(
    value: float, gradient: Tensor, hessian: Tensor, centre: Tensor, shares: Tensor
) -> tuple[float, Tensor, Tensor]:
    away = shares - centre
    bent = hessian @ away
    return value + float(gradient @ away + away @ bent / 2), gradient + bent, hessian


# Binning of the top label: counts, in bins or in narrow cells.

_CELLS = RankedCells(1 << 16)


def _histogram(calibrator: Any, passes: Passes) -> Fitted:
    if calibrator.bins == "equal_width":
        edges = torch.logit(inner_edges(calibrator.n_bins, passes.sample.logits.device))
        sums = passes.add(partial(_counts_between, edges=edges), "counts of the bins")
        share, note = (
            hit_shares(sums["rows"], sums["hits"]),
            f"samples were counted in {counted(passes.count, 'pass', 'passes')}.",
        )
    else:
        blocks = _cells(passes)
        edges, share = equal_mass_shares(blocks, calibrator.n_bins)
        most = _largest(blocks, blocks.rows) / passes.totals.mass
        note = (
            f"bins end where one of {len(blocks.rows):,} cells of log-odds does: within {most:.1g} of all samples from "
            f"where a fit in memory would end them ({counted(passes.count, 'pass', 'passes')})."
        )
    return _of_top(passes, edges, share, note)


def _isotonic(_: Any, passes: Passes) -> Fitted:
    blocks = _cells(passes)
    fitted = Blocks.of(pooled(*(column.numpy() for column in blocks)))
    # Within a cell the order of hits and misses is unknown. The sum of the fit up to a score is the greatest convex
    # function below the sum of the hits, and no farther from that of other sums than these are from each other.
    error = _largest(blocks, blocks.hits * (1 - blocks.mean)) / passes.totals.mass
    note = (
        f"fitted to {len(blocks.rows):,} cells of log-odds: up to any score, the sum of confidences over the number of "
        f"all samples is within {error:.1g} of that of a fit in memory ({counted(passes.count, 'pass', 'passes')})."
    )
    return _of_top(passes, fitted.edges, fitted.mean, note)


def _of_top(passes: Passes, edges: Tensor, share: Tensor, note: str) -> Fitted:
    curve = Steps(edges[None], floored_log_odds(share, passes.totals.size)[None])
    return Fitted(TopLabelMap(curve, n_classes=passes.sample.n_classes), None, (note,))


def _largest(blocks: Blocks, numbers: Tensor) -> float:
    """Return the largest number of a cell that holds several scores; others lose nothing."""
    return float(numbers.where(blocks.high > blocks.low, 0).max())


def _cells(passes: Passes) -> Blocks:
    """Return the samples in cells of log-odds, each with its lowest and highest."""
    sums = passes.add(_counts_of_cells, "counts of cells")
    seen = sums["rows"] > 0
    return Blocks(*(sums[name][seen] for name in Blocks._fields))


def _counts_of_cells(samples: Predictions) -> Sums:
    log_odds, hit = top_label(samples)
    cell, scores = _CELLS.cell_of(log_odds).long(), log_odds.double()
    ends = scores.new_full((2, _CELLS.cells), torch.inf)
    low = ends[0].scatter_reduce(0, cell, scores, "amin")
    high = (-ends[1]).scatter_reduce(0, cell, scores, "amax")
    return {"low": low, "high": high, **_rows_and_hits(cell, hit, samples.weights, _CELLS.cells)}


def _counts_between(samples: Predictions, *, edges: Tensor) -> Sums:
    log_odds, hit = top_label(samples)
    place = torch.searchsorted(edges.to(log_odds), log_odds)  # exactly as the map will search them
    return _rows_and_hits(place, hit, samples.weights, len(edges) + 1)


def _rows_and_hits(place: Tensor, hit: Tensor, weights: Tensor | None, size: int) -> Sums:
    rows = torch.ones_like(place, dtype=torch.float64) if weights is None else weights
    return {"rows": sums_by(place, rows, size), "hits": sums_by(place, rows * hit, size)}


_METHODS: dict[str, Callable[[Any, Passes], Fitted]] = {
    "temperature": _temperature,
    "ets": _ensemble,
    "bias_corrected": partial(_unpenalised, shape="number"),
    "vector": partial(_unpenalised, shape="diagonal"),
    "matrix": partial(_unpenalised, shape="matrix"),
    "svs": partial(_structured, shape="diagonal"),
    "sms": partial(_structured, shape="matrix"),
    "platt": _logistic,
    "beta": _logistic,
    "quadratic": _logistic,
    "histogram": _histogram,
    "isotonic": _isotonic,
}
