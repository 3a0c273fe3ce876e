"""Numbers behind the interactive charts of an HTML report: sums over samples, so that the file stays small.

The browser recomputes every diagram from them: ``frontend/src/data.ts`` names the same fields. Equal-width bins of
every number from 2 to 100 are exact, because samples are counted between neighbouring fractions i/b with b up to 100.
"""

import base64
import json
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calibrant import catalogue
from calibrant.comparison import UNCALIBRATED, Comparison
from calibrant.diagrams import comparison_diagram, confidence_density, risk_coverage
from calibrant.errors import FitError
from calibrant.evaluation import Evaluation
from calibrant.evidence import Difference, NetBenefit, corp, decision_curve
from calibrant.evidence.clusters import Clusters, effective_number_of
from calibrant.evidence.logistic import Outcomes
from calibrant.evidence.risk import curve_of, tenths_of
from calibrant.metrics.states import BinnedByPrediction, RankedSamples, as_divisor, weighted
from calibrant.numerics.binning import inner_edges, sums_by, top_confidences
from calibrant.numerics.inverse_temperature import fit_inverse_temperature
from calibrant.predictions import LABEL_FLOOR, Predictions, TopLabel, as_risk, counted_samples, has_risk
from calibrant.report.evaluation import brief_names, comparison_text, risk_title, slice_side, slice_subject
from calibrant.report.page import to_plain
from calibrant.report.verdict import positive_words
from calibrant.slices import Slice, samples_of
from calibrant.text import terminal_text

MOST_BINS = 100
_SLOTS = 1 << 14  # more than 100 · 99
_EXACT = 1e-10  # unit of summed confidence for the bins of the predictions themselves
_COARSE = 1e-8  # unit per sample at other temperatures: their calibration error is off by 1.6e-5 at the very most
_TEMPERATURES, _REACH = 41, 4.0  # points of the grid, and how far it goes beyond 1 and the fitted temperature
_DENSITY_STEP, _RISK_POINTS = 4, 200
_DRAWS = 1000  # behind the band of net benefits, as many as behind those of an evaluation


def evaluation_charts(
    evaluation: Evaluation,
    predictions: Predictions | TopLabel,
    *,
    name: str = "",
    slices: Sequence[Slice] = (),
    by: Mapping[str, Any] | None = None,
    other: Predictions | TopLabel | None = None,
    comparison: Mapping[str, Difference] | None = None,
    baseline: str | None = None,
) -> dict[str, Any]:
    """Return the numbers behind the charts of an evaluation, of slices by these columns, and of both of two models.

    ``other`` are the predictions of the ``baseline`` for the same samples, ``comparison`` the differences to them.
    """
    views = [view_of(predictions, name or "predictions", "as given", temperatures=True, decisions=evaluation.decisions)]
    compared = {}
    if other is not None and comparison is not None:
        title = terminal_text(baseline or "baseline")
        views = [view_of(other, "baseline", title), views[0] | {"name": "this", "title": terminal_text(name or "this")}]
        positive = None if evaluation.risk is None else positive_words(evaluation)
        compared = {"comparison": _comparison(comparison, title, positive)}
    charts = charts_of(evaluation.n_bins, views) | compared
    return charts | ({"slices": _slices(evaluation, predictions, slices, by or {})} if slices else {})


def _comparison(comparison: Mapping[str, Difference], baseline: str, positive: str | None) -> dict[str, Any]:
    """Return the differences of all metrics from a baseline, the main ones first, and what they say in a sentence."""
    main = brief_names(comparison)
    metrics = {name: catalogue.metrics[name] for name in (*main, *(name for name in comparison if name not in main))}
    facts = {"baseline": baseline, "words": comparison_text(comparison, baseline, positive), "main": len(main)}
    rows = [
        {"name": name, "title": risk_title(name, metric.title, positive), "lower_is_better": metric.lower_is_better}
        | to_plain(comparison[name])
        for name, metric in metrics.items()
    ]
    return facts | {"metrics": rows}


_MOST_PANELS = 12  # slices of a column that are drawn


def _slices(
    evaluation: Evaluation, predictions: Predictions | TopLabel, slices: Sequence[Slice], by: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the slices, the worst first, with the cells of those that have a diagram."""
    drawn: Counter[str] = Counter()
    entries = []
    of_class = evaluation.risk is not None
    subject, predictions = slice_subject(evaluation, slices), as_risk(predictions) if of_class else predictions
    for one in slices:
        cells = None
        if drawn[one.column] < _MOST_PANELS:
            inside = samples_of([one], {one.column: by[one.column]})[0].to(predictions.device)
            if bool(inside.any()):  # of a stream, none of its samples may have been kept
                top = _in_whole_samples(predictions[inside]).top
                cells = _packed_cells(_cell_sums(top.confidence, top.correct, top.weights), _EXACT)
                drawn[one.column] += 1
        ece, rest = one.metrics["ece"], one.to_rest
        entries.append(
            {
                "column": terminal_text(one.column),
                "value": terminal_text(one.value),
                "n": one.n,
                "weight": one.weight,
                "subject": subject,
                "of_class": of_class,
                "accuracy": one.occurred.value,
                "confidence": one.claimed.value,
                "ece": {"value": ece.value, "low": ece.low, "high": ece.high},
                "floor": ece.floor,
                "p": one.corrected_p,
                "miscalibrated": one.is_miscalibrated,
                "to_rest": {"value": rest.value, "low": rest.low, "high": rest.high, "p": rest.corrected_p},
                "side": slice_side(one),
                "cells": cells,
            }
        )
    plain: list[dict[str, Any]] = to_plain(entries)
    return plain


def comparison_charts(comparison: Comparison, test: Predictions, *, shown: Iterable[str] = ()) -> dict[str, Any]:
    """Return the numbers behind the charts of a comparison: all methods, and the predictions before and after.

    The views are the uncalibrated model, the recommended method (or else the best), temperature scaling, and those of
    ``shown``.
    """
    chosen = comparison.recommended if comparison.recommended.name != UNCALIBRATED else comparison.best
    methods_shown = (chosen, *map(comparison.find, (comparison.baseline, *shown)))
    by_method = {method.name: method for method in methods_shown if method is not None}
    own = comparison.uncalibrated.decisions
    views = [view_of(test, UNCALIBRATED, "uncalibrated", temperatures=True, decisions=own)]
    views += [
        view_of(method.evaluated.transform(test), name, name, decisions=method.decisions)
        for name, method in by_method.items()
        if method.evaluated is not None and name != UNCALIBRATED
    ]
    diagram = comparison_diagram(comparison)
    by_name = {method.name: method for method in comparison.fitted}
    methods = [
        to_plain(dots)
        | {
            "title": by_name[dots.name].title,
            "accuracy_change": by_name[dots.name].differences.get(UNCALIBRATED, {}).get("accuracy"),
        }
        for dots in diagram.methods
    ]
    return charts_of(comparison.n_bins, views, methods=methods, baseline=diagram.baseline)


def charts_of(
    n_bins: int, views: list[dict[str, Any]], *, methods: Iterable[Mapping[str, Any]] = (), baseline: str = ""
) -> dict[str, Any]:
    """Return the document of a report's charts."""
    charts: dict[str, Any] = to_plain(
        {"schema": "calibrant.charts/1", "n_bins": n_bins, "views": views, "methods": list(methods)}
    )
    return charts | {"baseline": baseline}


def charts_of_several(reports: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the charts of several reports, by the id of their element, with equal temperatures once in ``shared``."""
    shared: list[dict[str, Any]] = []
    documents = {}
    for name, charts in reports.items():
        views = []
        for view in charts["views"]:
            grid = view["temperatures"]
            if grid is not None and grid not in shared:
                shared.append(grid)
            views.append({**view, "temperatures": None if grid is None else shared.index(grid)})
        documents[name] = {**charts, "views": views}
    return {"schema": "calibrant.charts/1", "shared": shared, "reports": documents}


def packed(charts: Mapping[str, Any]) -> str:
    """Return deflated JSON as base64, which holds no character that HTML could read as markup."""
    text = json.dumps(charts, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def view_of(
    predictions: Predictions | TopLabel,
    name: str,
    title: str,
    *,
    temperatures: bool = False,
    decisions: Sequence[NetBenefit] = (),
) -> dict[str, Any]:
    """Return the numbers of one set of predictions; reliability is that of the second class where there are two.

    ``decisions`` are those of the report, whose numbers the chart has at their thresholds of whole percents.
    """
    rows, has_weights, of_two = len(predictions), predictions.weights is not None, has_risk(predictions)
    predictions = _in_whole_samples(predictions)
    top = predictions.top
    rows = _size(top) if has_weights else rows
    density, risk = confidence_density(predictions), risk_coverage(predictions)
    kept = np.unique(np.linspace(0, len(risk.coverage) - 1, _RISK_POINTS).round().astype(int))
    return {
        "name": terminal_text(name),
        "title": terminal_text(title),
        "n": _size(top),
        **_claims(as_risk(predictions) if of_two else top),
        "confidences": _packed_cells(_cell_sums(top.confidence, top.correct, top.weights), _EXACT) if of_two else None,
        "density": {
            "right": _rounded(density.right[::_DENSITY_STEP], 4),
            "wrong": _rounded(density.wrong[::_DENSITY_STEP], 4),
            "n_right": round(density.share_right * rows),
            "n_wrong": rows - round(density.share_right * rows),
            "auroc": density.auroc,
        },
        "risk": {
            "coverage": _rounded(risk.coverage[kept], 5),
            "risk": _rounded(risk.risk[kept], 5),
            "low": _rounded(risk.risk_low[kept], 5),
            "high": _rounded(risk.risk_high[kept], 5),
            "optimal": _rounded(risk.optimal[kept], 5),
            "aurc": risk.aurc,
        },
        "temperatures": _temperatures(predictions) if temperatures and isinstance(predictions, Predictions) else None,
        "classes": _classes(predictions) if isinstance(predictions, Predictions) else None,
        "positive": _positive(predictions, decisions) if of_two else None,
    }


def _claims(samples: TopLabel) -> dict[str, Any]:
    """Return the numbers of reliability diagrams: of confidences, or of the probability of a class."""
    return {
        "accuracy": samples.accuracy,
        "confidence": float(weighted(samples.confidence, samples.weights).mean() * (len(samples) / _size(samples))),
        "cells": _packed_cells(_cell_sums(samples.confidence, samples.correct, samples.weights), _EXACT),
        "ranks": _ranks(samples),
        "corp": _corp(samples),
    }


def _positive(predictions: Predictions | TopLabel, reported: Sequence[NetBenefit]) -> dict[str, Any]:
    """Return how often the second of two classes occurs at each probability of it, and what acting on it gains."""
    risks, names = as_risk(predictions), getattr(predictions, "class_names", None)
    curve, by_threshold = curve_of(Outcomes.of(risks)), {one.threshold: one for one in reported}
    decisions = [by_threshold.get(one.threshold, one) for one in decision_curve(risks, resamples=_DRAWS)]
    tenths = [
        [one.predicted, one.observed.value, one.observed.low, one.observed.high, one.low, one.high, one.share]
        for one in tenths_of(risks)
    ]
    columns = {"benefit": "value", "low": "low", "high": "high"}
    return {
        "name": terminal_text(names[1]) if names else None,
        "tenths": _rounded(np.array(tenths), 5),
        "curve": None if curve is None else {name: _rounded(column, 5) for name, column in vars(curve).items()},
        "decisions": {
            "threshold": [one.threshold for one in decisions],
            "all": _rounded([one.treat_all.value for one in decisions], 5),
            "treated": _rounded([one.treated.value for one in decisions], 5),
            "found": _rounded([one.sensitivity.value for one in decisions], 5),
            "right": _rounded([one.precision.value for one in decisions], 5),
            **{
                name: _rounded([getattr(one.net_benefit, end) for one in decisions], 5) for name, end in columns.items()
            },
        },
    }


def _in_whole_samples(predictions: Predictions | TopLabel) -> Predictions | TopLabel:
    """Return samples whose weights add up to their effective number, rounded: charts count in independent samples."""
    counted = counted_samples(predictions)
    effective = effective_number_of(counted)
    if effective is None:
        return counted
    return counted.with_weights(counted.mass * (max(1, round(effective)) / counted.mass.sum()))


def _size(samples: Predictions | TopLabel) -> int:
    return len(samples) if samples.weights is None else round(float(samples.weights.sum()))


def _rounded(values: Any, digits: int) -> Any:
    """Return numbers with fewer digits, as lists; a single number stays."""
    if isinstance(values, float):
        return values
    return np.round(np.asarray(values, dtype=np.float64), digits).tolist()


@cache
def fractions() -> Tensor:
    """Return the distinct fractions i/b in 0..1 for b up to 100, rising, float64."""
    edges = [torch.arange(b + 1, dtype=torch.float64) / b for b in range(1, MOST_BINS + 1)]
    return torch.unique(torch.cat(edges))


@cache
def _first_cells() -> Tensor:
    """Return the cell of each multiple of 1 / slots, (slots + 1,)."""
    starts = torch.arange(_SLOTS + 1, dtype=torch.float64) / _SLOTS
    return (torch.bucketize(starts, fractions()) - 1).clamp_(min=0)


def _cell_sums(confidence: Tensor, correct: Tensor, weights: Tensor | None) -> Tensor:
    """Count samples, correct ones and summed confidence between neighbouring fractions, (3, cells)."""
    shift = inner_edges(2)[0] - 0.5  # bins end a little above their edge: see calibrant.numerics.binning
    confidence = confidence.cpu().double()
    shifted = (confidence - shift).clamp_(min=0)
    # No two fractions are as close as two slots: a sample is in the first cell of its slot, or in the next one. That is
    # ten times faster than a search.
    index = _first_cells().index_select(0, (shifted * _SLOTS).long())
    index += shifted > fractions()[1:].index_select(0, index)
    size = len(fractions()) - 1
    columns = (torch.ones_like(confidence), correct.cpu().double(), confidence)
    weights = None if weights is None else weights.cpu()
    return torch.stack([sums_by(index, weighted(column, weights), size) for column in columns])


def _packed_cells(sums: Tensor, unit: float) -> dict[str, Any]:
    """Return the occupied cells as small whole numbers; counts of weighted samples with four digits."""
    count, correct, confidence = sums
    if not torch.equal(count, count.round()):
        count, correct = count.round(decimals=4), correct.round(decimals=4)
    occupied = count.nonzero()[:, 0]
    count, correct, confidence = (column[occupied] for column in (count, correct, confidence))
    columns = {
        "step": occupied.diff(prepend=torch.tensor([-1])),
        "count": count,
        "wrong": count - correct,
        "offset": ((confidence - count * fractions()[occupied]) / unit).round(),
    }
    whole = {name: column.long().tolist() for name, column in columns.items()} | {"unit": unit}
    if torch.equal(count, count.round()):
        return whole
    return whole | {name: _rounded(columns[name], 4) for name in ("count", "wrong")}


def _ranks(predictions: Predictions | TopLabel) -> dict[str, list[float]]:
    """Return sums between all ranks at which some bin of equal mass ends, as ACE cuts them: ties are exchangeable."""
    ranked = RankedSamples()(predictions).ranked
    rank, right = ranked.cumulative_total.cpu().numpy(), ranked.cumulative_right.cpu().numpy()
    gap = ranked.gap.cumsum(-1, dtype=torch.float64).cpu().numpy()
    bins = np.arange(1, MOST_BINS + 1)
    n = round(rank[-1])
    ends = np.unique(np.concatenate([np.floor(n * np.arange(b + 1) / b) for b in bins]))
    right_at, gap_at = (np.interp(ends, np.append(0, rank), np.append(0, column)) for column in (right, gap))
    return {
        "step": np.diff(ends).astype(int).tolist(),
        "confidence": _rounded(np.diff(right_at - gap_at), 10),
        "correct": _rounded(np.diff(right_at), 10),
    }


def _temperatures(predictions: Predictions) -> dict[str, Any] | None:
    """Return log-loss and cells at temperatures around 1 and the one with the lowest log-loss.

    The cells are of the confidence or, of two classes, of the probability of the second.
    Given probabilities with zeros are mixed with a share of the uniform distribution, as temperature scaling does.
    """
    share = predictions.uniform_share
    grid, fitted = _temperature_grid(predictions)
    cells = torch.zeros(len(grid), 3, len(fractions()) - 1, dtype=torch.float64)
    loss = torch.zeros(len(grid), dtype=torch.float64)
    most = -np.log(LABEL_FLOOR) if predictions.given_as_probs else np.inf
    for block in predictions.blocks():
        logits = block.mixed_with_uniform(share).logits
        confidences = top_confidences(logits, grid)
        gap = (logits.amax(1) - logits.gather(1, block.labels[:, None])[:, 0]).double()
        is_second, occurred = block.predicted == 1, block.correct
        if predictions.n_classes == 2:
            occurred = block.labels == 1
        for place, confidence in enumerate(confidences):
            shown = confidence if predictions.n_classes > 2 else confidence.where(is_second, 1 - confidence)
            cells[place] += _cell_sums(shown, occurred, block.weights)
            losses = (gap / grid[place] - confidence.double().log()).clamp(max=most)
            loss[place] += float(weighted(losses, block.weights).sum())
    return {
        "temperature": grid.tolist(),
        "nll": _rounded(loss / _size(predictions), 6),
        "cells": [_packed_cells(sums, _COARSE * _size(predictions)) for sums in cells],
        "fitted": fitted,
        "uniform_share": share,
    }


def _temperature_grid(predictions: Predictions) -> tuple[Tensor, float | None]:
    """Return temperatures, and the one with the lowest log-loss, which is among them; None if there is none."""
    logits = predictions.mixed_with_uniform(predictions.uniform_share).logits
    fitted: float | None = None
    try:
        fit = fit_inverse_temperature(logits, predictions.labels, weights=predictions.weights)
        fitted = float(f"{1 / fit.beta:.6g}") if fit.end == "interior" else None
    except FitError:  # samples of equal logits
        pass
    ends = (1.0, fitted or 1.0)
    grid = np.geomspace(min(ends) / _REACH, max(ends) * _REACH, _TEMPERATURES)
    # Points next to the two that must be in it would be steps of the slider that change nothing.
    apart = [t for t in grid if min(abs(np.log(t / end)) for end in ends) > 0.3 * np.log(grid[1] / grid[0])]
    return torch.tensor(sorted({*(float(f"{t:.4g}") for t in apart), *ends}), dtype=torch.float64), fitted


def _classes(predictions: Predictions) -> dict[str, list[Any]]:
    """Return samples of each class, and of its predictions the number, summed confidence and number correct.

    With weights also the share of the class in them; with weights or clusters also the effective number of its
    predictions, which the two sums belong to.
    """
    state = BinnedByPrediction(1)(predictions)
    (count, confidence, correct), k = (part[:, 0] for part in state.tensors()), predictions.n_classes
    names = predictions.class_names or [f"class {label}" for label in range(k)]
    weight = effective = None
    if predictions.weights is not None:
        if not bool((predictions.weights == predictions.weights[0]).all()):
            weight = _rounded(sums_by(predictions.labels, predictions.weights, k) / predictions.weights.sum(), 6)
        clusters, of_weights = Clusters.of(predictions.top), predictions.weights.square()
        squares = (
            sums_by(predictions.predicted, of_weights, k)
            if clusters is None
            else clusters.squares(predictions.predicted, k)
        )
        effective = count.square() / as_divisor(squares)
        confidence, correct = (part / as_divisor(count) * effective for part in (confidence, correct))
    return {
        "name": [terminal_text(name) for name in names],
        "samples": predictions.label_counts.tolist(),
        "predicted": torch.bincount(predictions.predicted, minlength=k).tolist(),
        "confidence": _rounded(confidence.cpu(), 4),
        "correct": correct.round().long().tolist() if effective is None else _rounded(correct.cpu(), 4),
        "weight": weight,
        "effective": None if effective is None else _rounded(effective.cpu(), 4),
    }


def _corp(predictions: Predictions | TopLabel) -> dict[str, Any]:
    """Return the isotonic curve with its band at common confidences, and the split of the Brier score."""
    fitted = corp(predictions)
    corners, accuracy = (part.numpy() for part in fitted.points)
    confidence = np.union1d(corners, fitted.confidence.numpy())
    band = (fitted.band_low.numpy(), fitted.band_high.numpy())
    return {
        "confidence": _rounded(confidence, 4),
        "curve": _rounded(np.interp(confidence, corners, accuracy), 4),
        "lower": _rounded(np.interp(confidence, fitted.confidence.numpy(), band[0]), 4),
        "upper": _rounded(np.interp(confidence, fitted.confidence.numpy(), band[1]), 4),
        **fitted.brier._asdict(),
    }
