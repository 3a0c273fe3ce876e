"""Numbers behind the charts of a clamped network and of a diagnosis; ``frontend/src/data.ts`` names the same fields."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from calibrant.clamping import CLAMPED, ClampedModel, ClampingEvaluation, NetworkPredictions, clamping_metrics
from calibrant.comparison import TEMPERATURE, UNCALIBRATED
from calibrant.diagnosis import Diagnosis, EpochCurves, RefinementRow, ShiftPanel, Spread
from calibrant.diagrams import delta_picture
from calibrant.evidence import estimate
from calibrant.maps import Scale
from calibrant.predictions import Predictions
from calibrant.report.diagnosis import group_name, in_order
from calibrant.report.interactive import charts_of, view_of
from calibrant.report.page import Page, sentence, to_plain
from calibrant.text import terminal_text

CLAMPING_RECORD = "calibrant.clamping_charts/1"
_WRONG, _RIGHT = 6, 6  # samples shown
_MOST_CLASSES, _MOST_ENTRIES, _LONGEST_SIDE = 10, 200, 64
_IMAGE_AXES, _LEAST_SIDE, _WHITE = 3, 2, 255
_DENSITY_STEP = 4


def clamping_charts(evaluation: ClampingEvaluation, clamped: ClampedModel, test: NetworkPredictions) -> dict[str, Any]:
    """Return the numbers behind the charts of a clamped network.

    The ``parts`` are the network itself (``none``), temperature scaling (``temperature``), the network at x + δ without
    a head (``delta``) and the clamped network (``both``); without δ the last two are those before them. A strength of
    None is an infinite one, δ = 0.
    """
    by_method = evaluation.predictions
    shown = {
        part: (by_method[name], method.metrics)
        for part, name in (("none", UNCALIBRATED), ("temperature", TEMPERATURE))
        if (method := evaluation.find(name)) is not None
    }
    if evaluation.has_delta:
        moved, metrics = test.at(clamped.delta), clamping_metrics(evaluation.n_bins)
        shown["delta"] = moved, estimate(moved, metrics, resamples=evaluation.resamples, seed=evaluation.seed)
    if evaluation.has_delta or evaluation.head != TEMPERATURE or evaluation.summary.gamma > 0:
        shown["both"] = by_method[CLAMPED], evaluation.clamped.metrics
    titles = {"none": "uncalibrated", "both": "clamped", "temperature": "temperature only", "delta": "δ only"}
    views = [
        view_of(shown[part][0], part, title, temperatures=part == "none")
        for part, title in titles.items()
        if part in shown
    ]
    before, summary, alone = by_method[UNCALIBRATED], evaluation.summary, evaluation.find(TEMPERATURE)
    chosen = _telling_samples(before)
    # An iterable data set gives them in its own order.
    read = list(test.samples.batches(chosen, device=clamped.delta.device, batch_size=len(chosen)))
    order = {place: at for at, place in enumerate(torch.cat([places for _, places in read]).tolist())}
    inputs = torch.cat([part for part, _ in read])[[order[place] for place in chosen.tolist()]]
    delta, images = _delta(clamped, inputs)
    samples = [
        {"row": row, "label": int(before.labels[row]), "image": image}
        | _probabilities({part: predictions for part, (predictions, _) in shown.items()}, row)
        for row, image in zip(chosen.tolist(), images, strict=True)
    ]
    temperatures = {
        "both": evaluation.temperature,
        "alone": float(alone.map.temperature) if alone is not None and isinstance(alone.map, Scale) else None,
    }
    trials = [{"strength": math.inf, "change": 0.0, "standard_error": 0.0, "norm": 0.0}, *map(asdict, summary.trials)]
    names = before.class_names or list(map(str, range(before.n_classes)))
    clamping = {
        "classes": list(map(terminal_text, names)),
        "parts": {part: metrics for part, (_, metrics) in shown.items()},
        "samples": samples,
        "delta": {**delta, "norm": evaluation.norm},
        "temperatures": temperatures,
        "path": trials,
        "strength": summary.strength,
        "n": {"calibration": evaluation.n_calibration, "test": evaluation.n_test},
    }
    return charts_of(evaluation.n_bins, views) | {"clamping": to_plain(clamping)}


def clamping_record(page: Page, charts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a clamped network's own screen in the studio shows: its verdict, its notes, and its charts."""
    verdict = {"headline": page.verdict.headline, "tone": page.tone}
    return {
        "schema": CLAMPING_RECORD,
        "verdict": verdict,
        "notes": list(map(sentence, page.notes)),
        **charts["clamping"],
    }


def _telling_samples(before: Predictions) -> Tensor:
    """Return samples to show, of as many classes as possible: the surest that are wrong, and the surest right ones."""
    order = before.top.confidence.argsort(descending=True, stable=True)
    wrong, right = (order[before.top.correct[order] == is_right].tolist() for is_right in (False, True))
    labels, chosen = before.labels.tolist(), []
    for places, count in ((wrong, _WRONG), (right, _RIGHT)):
        first = {labels[place]: place for place in reversed(places)}.values()  # the surest of each class
        others = [place for place in places[: 2 * count] if place not in first]
        chosen += [*sorted(first, key=places.index), *others][:count]
    return torch.tensor(chosen)


def _delta(clamped: ClampedModel, inputs: Tensor) -> tuple[dict[str, Any], list[Any]]:
    """Return δ and the images in steps from black (0) to white (255); of other inputs the numbers of δ, and no images.

    Large images are made smaller, and the numbers of a long δ are grouped: the largest of each group is shown.
    """
    delta, shape = clamped.delta.detach().float().cpu(), inputs.shape[1:]
    if len(shape) == _IMAGE_AXES and min(shape[1:]) >= _LEAST_SIDE:
        picture = delta_picture(clamped, inputs)
        step = (picture.high - picture.low) / _WHITE
        images = _smaller((picture.inputs - picture.low) / step).clamp(0, _WHITE).round().long()
        maps = _smaller(picture.maps[None] / step)[0]
        limit = float(maps.abs().max()) or float(_WHITE)
        drawn = {"values": (maps * 100).round().div(100).tolist(), "limit": limit, "factor": _WHITE / limit}
        return drawn | {"low": 0, "high": _WHITE}, images.tolist()
    groups = delta.flatten().split(math.ceil(delta.numel() / _MOST_ENTRIES))
    values = [float(f"{float(group[group.abs().argmax()]):.5g}") for group in groups]
    ends = [sum(len(group) for group in groups[: i + 1]) for i in range(len(groups))] if len(groups[0]) > 1 else []
    names = [f"{end - len(group)}–{end - 1}" for end, group in zip(ends, groups, strict=bool(ends))]
    limit = max(map(abs, values)) or 1.0
    drawn = {"values": values, "limit": limit, "factor": 1.0, "low": 0, "high": 1} | ({"names": names} if names else {})
    return drawn, [None] * len(inputs)


def _smaller(images: Tensor) -> Tensor:
    """Return images (m, c, h, w) with sides of at most 64 pixels."""
    side = max(images.shape[2:])
    if side <= _LONGEST_SIDE:
        return images
    size = [max(1, round(length * _LONGEST_SIDE / side)) for length in images.shape[2:]]
    return interpolate(images, size=size, mode="area")


def _probabilities(parts: Mapping[str, Predictions], row: int) -> dict[str, Any]:
    """Return the probabilities of a sample by every part; of many classes those with the largest, and the true one."""
    probs = {part: predictions[row : row + 1].probs[0].double() for part, predictions in parts.items()}
    largest = torch.stack(list(probs.values())).amax(0)
    largest[parts["none"].labels[row]] = math.inf
    k = min(len(largest), _MOST_CLASSES)
    shown = largest.topk(k).indices.sort().values
    rounded = {part: (values[shown] * 1e6).round().div(1e6).tolist() for part, values in probs.items()}
    return {"shown": shown.tolist(), "probs": rounded}


# Diagnosis.


def diagnosis_charts(record: Diagnosis) -> dict[str, Any]:
    """Return the numbers behind the charts of a diagnosis: candidates, their runs, and curves over what varies."""
    errors = {entry.candidate: entry for entry in record.calibratability}
    refinements = {entry.candidate: entry for entry in record.refinement}
    verdicts = {verdict.candidate: verdict for verdict in record.verdicts}
    gaps = {(entry.candidate, entry.map): entry for entry in record.directions}
    candidates = []
    for candidate in sorted(record.candidates, key=lambda one: one.name != record.baseline):
        error, verdict = errors[candidate.name], verdicts.get(candidate.name)
        sides = {"ece": "ece_after_temperature", "raw": "raw_ece", "auroc": "auroc", "accuracy": "accuracy"}
        candidates.append({
            "name": terminal_text(candidate.name),
            "words": terminal_text(candidate.words),
            "seeds": candidate.seeds,
            "folders": list(map(terminal_text, candidate.folders)),
            "accuracy": _spread(error.accuracy),
            "temperature": _spread(error.temperature),
            "optimal": _spread(error.optimal_ece),
            "overall": None if verdict is None else verdict.overall,
            "sides": {} if verdict is None else {key: getattr(verdict, name).side for key, name in sides.items()},
            "maps": {
                row.map: _under_map(row, error.ece[row.map], record.n, error.accuracy)
                | {"gap": _rounded([gap.gap.mean, gap.low, gap.high])}
                for row in refinements[candidate.name].rows
                if (gap := gaps[candidate.name, row.map])
            },
        })  # fmt: skip
    diagnosis = {
        "baseline": terminal_text(record.baseline),
        "maps": record.maps,
        "n": record.n,
        "candidates": candidates,
        "curves": list(_curves(record)),
    }
    return charts_of(record.n_bins, []) | {"diagnosis": to_plain(diagnosis)}


def _under_map(row: RefinementRow, ece: Spread, n: int, accuracy: Spread) -> dict[str, Any]:
    """Return the numbers of a candidate under one map."""
    share = row.metrics.get("accuracy", accuracy).mean
    right = 0 if math.isnan(share) else round(n * share)
    density = None if row.density is None else {
        "right": _rounded(row.density.right[::_DENSITY_STEP], 4),
        "wrong": _rounded(row.density.wrong[::_DENSITY_STEP], 4),
        "n_right": right,
        "n_wrong": n - right,
        "auroc": row.metrics["auroc"].mean,
    }  # fmt: skip
    spreads = {"ece": ece, "auroc": row.metrics["auroc"]}
    spreads |= {name: row.murphy[name] for name in ("reliability", "refinement") if name in row.murphy}
    return {name: _spread(spread) for name, spread in spreads.items()} | {"density": density}


def _spread(spread: Spread) -> dict[str, Any]:
    return {name: _rounded([getattr(spread, name)])[0] for name in ("mean", "std", "lowest", "highest")} | {
        "values": _rounded(spread.values)
    }


def _rounded(values: Iterable[float], digits: int = 6) -> list[float]:
    return [value if math.isnan(value) else round(value, digits) for value in values]


_METRICS = {"ece": "ECE", "accuracy": "Accuracy", "auroc": "AUROC", "gap": "Mean confidence − accuracy"}
_OVER_EPOCHS = {"optimal_ece": "ECE at the best temperature", "ece": "ECE", "accuracy": "Accuracy",
                "temperature": "Best temperature", "nll": "Log-loss", "max_logit": "Largest logit"}  # fmt: skip
_SHARES = {*_METRICS, "optimal_ece"}  # shown in percent


def _curves(record: Diagnosis) -> Iterator[dict[str, Any]]:
    """Yield curves of all candidates over severities, files, calibration samples, coefficients and epochs."""
    if record.shift is not None:
        yield from _shift_curves(record.shift)
    for curve in record.coefficients:
        xs = [point.value for point in curve.points]
        series = [_series(name, xs, [point.ece[name] for point in curve.points]) for name in record.maps]
        groups = [_group("ECE after maps", series[1:]), _group("ECE, uncalibrated too", series)]
        option = curve.option.rpartition(".")[2].replace("_", " ")
        yield _curve(f"ECE over the {option} of {curve.loss}", option, groups)
    if record.validation_sizes:
        ordered = in_order(record, record.validation_sizes)
        groups = [
            _group(f"ECE after {name}", [
                _series(curve.candidate, *zip(*((point.rows, point.ece[name]) for point in curve.points), strict=True))
                for curve in ordered
            ])
            for name in record.maps[1:]
        ]  # fmt: skip
        over = "lowest to highest run and draw of calibration samples"
        yield _curve("How many calibration samples a map needs", "Calibration samples", groups, log=True, over=over)
    if record.epochs:
        ordered = in_order(record, record.epochs)
        learned = {name: name.replace("_", " ") for curve in ordered for name in curve.learned}
        groups = [
            _group(words, [_over_epochs(curve, name) for curve in ordered if name in {*curve.numbers, *curve.learned}],
                   share=name in _SHARES)
            for name, words in {**_OVER_EPOCHS, **learned}.items()
        ]  # fmt: skip
        yield _curve("Over epochs, on the test samples", "Epoch", groups)
    if record.learned_epochs:
        groups = []
        for curve in in_order(record, record.learned_epochs):
            centres = [(a + b) / 2 for a, b in itertools.pairwise(curve.edges)]
            series = [
                {"name": group_name(group), "x": _rounded(centres), "mean": group.counts} for group in curve.groups
            ]
            groups.append(_group(f"Samples, {curve.candidate}", series, share=False))
        yield _curve("Top logits of training samples, by the epoch they were learned in", "Top logit", groups)


def _shift_curves(panel: ShiftPanel) -> Iterator[dict[str, Any]]:
    """Yield metrics over severities, by source, and on the files without severities."""

    def groups(xs: Sequence[int], metrics_of: Callable[[str, str, int], Mapping[str, Spread]]) -> list[dict[str, Any]]:
        return [
            _group(f"{words}, {name}", [
                _series(one, xs, [metrics_of(one, name, x)[metric] for x in xs]) for one in panel.candidates
            ])
            for metric, words in _METRICS.items()
            for name in panel.maps
        ]  # fmt: skip

    for levels in panel.levels_by_source.values():
        severities = sorted({severity for _, _, severity in levels})
        names = next(level.shifts for level in levels.values() if level.severity)
        lines = groups(severities, lambda name, map_, x, levels=levels: levels[name, map_, x].metrics)  # type: ignore[misc]
        yield _curve(f"Under shift, mean over {', '.join(names)}", "Severity (0: clean)", lines)
    sets = panel.sets_without_severity
    if len(sets) > 1:  # the clean samples, and others
        rows = [panel.rows_of(summary) for summary in sets]
        lines = groups(range(len(sets)), lambda name, map_, x: rows[x][name, map_].metrics)
        yield _curve("On files of shifted images", "", lines) | {
            "names": [terminal_text(summary.shift) for summary in sets]
        }


def _curve(
    title: str, x_title: str, groups: list[dict[str, Any]], *, log: bool = False, over: str = "lowest to highest run"
) -> dict[str, Any]:
    known = [group for group in groups if group["series"]]
    return {"title": terminal_text(title), "x_title": terminal_text(x_title), "log": log, "over": over, "groups": known}


def _group(title: str, series: Sequence[Any], *, share: bool = True) -> dict[str, Any]:
    return {"title": terminal_text(title), "share": share, "series": list(series)}


def _series(name: str, xs: Sequence[float], spreads: Sequence[Spread]) -> dict[str, Any]:
    ends = {end: _rounded([getattr(spread, end) for spread in spreads]) for end in ("mean", "lowest", "highest")}
    return {"name": terminal_text(name), "x": list(xs), **ends}


def _over_epochs(curves: EpochCurves, name: str) -> dict[str, Any]:
    band = {**curves.numbers, **curves.learned}[name]
    ends = {end: _rounded(getattr(band, end)) for end in ("mean", "lowest", "highest")}
    return {"name": terminal_text(curves.candidate), "x": list(curves.epochs), **ends}
