"""The report of an evaluation: how far the confidence can be trusted, and what to do about it."""

import itertools
import math
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from calibrant import catalogue
from calibrant.errors import check_kind
from calibrant.evaluation import Evaluation, NextStep
from calibrant.evidence import Difference, Estimate, Side, is_of_risk
from calibrant.metrics.base import Family
from calibrant.predictions import OF_CORRECTNESS
from calibrant.report import page
from calibrant.report.page import Page, Section, Tone, code, number_text, table
from calibrant.report.risk import HEADER, class_name, decision_sections, estimate_cells, risk_section, tenths_section
from calibrant.report.verdict import TOP_LABEL_COLUMNS, positive_words, size_text, verdict
from calibrant.slices import FEW, Slice
from calibrant.text import counted, percent

FAMILIES: dict[Family, str] = {
    "description": "What the predictions look like",
    "proper": "Proper scores (select by these)",
    "calibration": "Calibration: does confidence mean what it says?",
    "refinement": "Refinement: does confidence separate right from wrong?",
}

# Metrics of the brief form, as a sentence names them, and those in their place where only top labels are known.
_BRIEF_METRICS = {
    "accuracy": "accuracy", "confidence": "mean confidence", "ece": "ECE", "smece": "smooth ECE", "nll": "log-loss",
    "brier": "Brier score", "auroc": "AUROC",
}  # fmt: skip
_TOP_LABEL_FALLBACKS = {"top_brier": "Brier score of the confidence", "aurc": "area under risk-coverage"}

_OF_TOP_LABEL = ("confidence", "ece", "smece")  # left to the full form where the probability of one class has its own

_TONES: dict[NextStep, Tone] = {NextStep.leave: "good", NextStep.more_samples: "open", NextStep.check_labels: "open"}

_COMPARED = {NextStep.fit_temperature, NextStep.compare_methods, NextStep.recalibrate}

_OF_RIGHT = (
    "Accuracy: how often “right” is true where its probability is at least 50 %, and “wrong” where it is less. The "
    "share of “right” is above."
)
_OF_BOTH = "Brier score: summed over both classes, twice that of one, which scikit-learn's brier_score_loss returns."


def evaluation_page(
    evaluation: Evaluation,
    *,
    source: str | None = None,
    comparison: Mapping[str, Difference] | None = None,
    baseline: str | None = None,
    slices: Sequence[Slice] = (),
    file: PurePath | None = None,
    reading: str = "",
) -> Page:
    """Return the report of an evaluation.

    Args:
        evaluation: The numbers.
        source: Where the predictions came from.
        comparison: Differences to the predictions of a baseline for the same samples, by metric, of
            :func:`calibrant.evidence.report_differences`.
        baseline: Where the baseline came from.
        slices: Slices of the samples, the worst first.
        file: File that ``calibrant compare`` reads the samples from, whose command ends the advice to compare methods.
        reading: Options of that command, with a space before; they read confidence and correctness as probability and
            label of two classes.
    """
    check_kind(evaluation, Evaluation, "evaluation", "Make one with calibrant.evaluate(predictions).")
    classes = counted(evaluation.classes, "class", "classes") if evaluation.classes else "top label only"
    names, error = brief_names(evaluation.metrics), "tl_ece" if evaluation.is_off_by_class else "ece"
    risk, positive = evaluation.risk, positive_words(evaluation)
    of_risk = () if risk is None else (risk_section(evaluation, risk),)
    tenths = () if risk is None else (tenths_section(evaluation, risk),)
    decisions = decision_sections({"": evaluation.decisions}, positive)
    key = "Calibration error of " + positive if risk else catalogue.metrics[error].title
    of_class = positive if risk else None
    compared = comparison_text(comparison, baseline, of_class) if comparison else None
    is_advised = file is not None and not evaluation.copies and evaluation.advice.step in _COMPARED
    words = verdict(evaluation, slices, compared, "" if is_advised else reading or TOP_LABEL_COLUMNS)
    names = [name for name in names if evaluation.risk is None or name not in _OF_TOP_LABEL]
    legend = "" if risk is None else _OF_RIGHT if evaluation.positive == OF_CORRECTNESS[1] else _OF_BOTH
    main = [[catalogue.metrics[name].title, _arrow(name), *estimate_cells(evaluation.metrics[name])] for name in names]
    return Page(
        title="Calibration report",
        source=source,
        facts=f"{size_text(evaluation)}, {classes}{_shards(evaluation)}",
        verdict=words,
        tone=_TONES.get(evaluation.advice.step, "bad"),
        number=page.estimate_number(key, evaluation.metrics[error] if risk is None else risk.ece),
        brief=(
            *of_risk,
            *decisions,
            Section("Predictions" if risk else "", (table(["", "", *HEADER], main, text=(0, 1)),), (), legend),
            *_threshold_sections(evaluation, has_slices=bool(slices)),
            *_slice_sections(evaluation, slices, most=_BRIEF_SLICES),
            *_slice_threshold_sections(slices, most=_BRIEF_SLICES),
            *_baseline_section(evaluation, comparison, baseline, brief_names(comparison or ())),
        ),
        full_hint=f"All {len(evaluation.metrics)} numbers and the decompositions of the scores",
        sections=(
            *of_risk,
            *tenths,
            *decisions,
            *_families(evaluation),
            *_threshold_sections(evaluation, has_slices=bool(slices)),
            Section("Scores decomposed", items=tuple(_parts(evaluation))),
            *_streamed_sections(evaluation, slices),
            *_slice_sections(evaluation, slices),
            *_slice_threshold_sections(slices),
            *_baseline_section(evaluation, comparison, baseline, comparison or ()),
        ),
        settings=f"{evaluation.n_bins} bins; seed {evaluation.seed}",
        footer="Noise floor: what a perfectly calibrated model with these confidences would score on average; p: how "
        f"often such a model would score as much. {page.INFLATED}",
        commands=(f"calibrant compare {shlex.quote(str(file))}{reading}",) if is_advised else (),
        data=lambda: _document(evaluation, source, comparison, slices) | {"verdict": page.to_plain(words)},
    )


def _shards(evaluation: Evaluation) -> str:
    """Return the number of streamed shards, and of those that are missing."""
    streamed = evaluation.streamed
    if streamed is None:
        return ""
    lacking = f", without {counted(len(streamed.missing), 'part')}" if streamed.missing else ""
    return f", streamed from {counted(streamed.shards, 'file')}{lacking}"


def _streamed_sections(evaluation: Evaluation, slices: Sequence[Slice]) -> list[Section]:
    streamed = evaluation.streamed
    if streamed is None:
        return []
    sampled = ", ".join(streamed.sampled)
    errors = [slice_.auroc_error for slice_ in slices if slice_.auroc_error is not None]
    known = [error for error in errors if not math.isnan(error)]
    of_slices = f", that of every slice to {max(known):.1g}" if known else ""
    items = [
        f"Ranks are in bounded memory: the AUROC is exact to {streamed.auroc_error:.1g}{of_slices}.",
        (
            f"What one temperature removes{', ' + sampled if sampled else ''} and all charts are of a uniform sample "
            f"of {streamed.sample:,} samples; all else is of all samples."
        ),
        *(f"Missing: {name}" for name in streamed.missing),
    ]
    return [Section("Streamed", items=tuple(items))]


def _threshold_sections(evaluation: Evaluation, *, has_slices: bool) -> list[Section]:
    """Return the thresholds of the confidence for the error rates that were asked for."""
    rows = []
    for point in evaluation.operating_points:
        asked = [f"{100 * point.error_rate:g} %", "guaranteed" if point.is_guaranteed else "estimate"]
        if point.threshold is None:
            rows.append([*asked, point.accepts, "", "", "", ""])
            continue
        places = 1 if point.error_rate >= 0.01 else 3
        cells = []
        for share, low, high in (
            (point.coverage, point.coverage_low, point.coverage_high),
            (point.error, point.error_low, point.error_high),
        ):
            cells += [percent(share, places), f"{100 * low:.{places}f} … {percent(high, places)}"]
        rows.append([*asked, point.accepts, *cells])
    if not rows:
        return []
    header = ["errors ≤", "", "confidence", "coverage", "95 % interval", "error rate", "95 % interval"]
    legend = (
        "Coverage: share of samples accepted; error rate: share of wrong ones among them. Estimate: chosen on these "
        "samples, so that the error rate of new ones is often above. Guaranteed: above in at most 5 % of cases, the "
        f"choice included, for independent {'clusters' if evaluation.clusters else 'samples'} drawn alike. Intervals "
        "are those of one threshold."
    )
    if has_slices:
        legend += " These are of all samples together: the error rate of a slice may be higher."
    items = _needs_no_threshold(evaluation)
    return [Section("Thresholds", (table(header, rows, text=(0, 1)),), items=items, legend=legend)]


def _needs_no_threshold(evaluation: Evaluation) -> tuple[str, ...]:
    """Return a sentence on error rates that no threshold is needed for, and on the error of guessing one class."""
    met = [point for point in evaluation.operating_points if point.coverage == 1 and not point.is_guaranteed]
    if not met:
        return ()
    rates = " and ".join(f"{100 * point.error_rate:g} %" for point in met)
    text = f"No threshold is needed for {rates}: of all samples, {100 * met[0].error:.2f} % are wrong."
    if (most := evaluation.majority) is None:
        return (text,)
    name, error = class_name(most.label, most.name), 1 - most.share
    text += f" Always predicting {name}, the most frequent class, is wrong for {100 * error:.2f} %."
    if error <= max(point.error_rate for point in met):
        text += " So such a rate is met without finding any sample of the others: ask for a lower one"
        of_rare = ", or for a threshold of the rarer class's probability: --top-label --confidence NAME --correct NAME."
        text += of_rare if evaluation.classes == 2 else "."
    return (text,)


def _document(
    evaluation: Evaluation, source: str | None, comparison: Mapping[str, Difference] | None, slices: Sequence[Slice]
) -> dict[str, Any]:
    """Return the fields of the JSON report, without the words of the verdict.

    ``metrics.<name>`` has ``value``, ``low`` and ``high``, and for calibration errors ``floor`` and ``p``. ``advice``
    has the ``step`` to take next, its ``reason``, and the ``samples`` that would decide where more are the step.
    """
    fields: dict[str, Any] = page.to_plain(evaluation)
    first = {"bins" if name == "n_bins" else name: fields.pop(name) for name in ("n", "classes", "n_bins", "seed")}
    fields["metrics"] = plain_estimates(evaluation.metrics)
    fields["murphy"]["refinement"] = evaluation.murphy.refinement
    fields["refinement_terms"]["equation_9"] = evaluation.refinement_terms.equation_9
    fields["zeros"] = None if evaluation.zeros is None else evaluation.zeros.as_dict()
    if evaluation.risk is not None:
        estimates = {name: one for name, one in vars(evaluation.risk).items() if isinstance(one, Estimate)}
        fields["risk"] |= plain_estimates(estimates)
    fields["line"] = None if evaluation.line is None else plain_estimates(evaluation.line._asdict())
    if comparison is not None:
        fields["comparison"] = comparison
    if slices:
        fields["slices"] = [_plain_slice(slice_) for slice_ in slices]
    first |= {"verdict": None, "advice": evaluation.advice}
    return page.document("calibrant.evaluation/1", {"source": source, **first, **fields})


def _plain_slice(slice_: Slice) -> dict[str, Any]:
    risk = None if slice_.risk is None else plain_estimates(vars(slice_.risk))
    plain: dict[str, Any] = page.to_plain(slice_)
    return plain | {"metrics": plain_estimates(slice_.metrics), "risk": risk}


def plain_estimates(metrics: Mapping[str, Estimate]) -> dict[str, dict[str, float]]:
    """Return value and bounds of each metric, and of calibration errors floor and p."""
    plain: dict[str, dict[str, float]] = page.to_plain(metrics)
    for name, key in itertools.product(plain, ("floor", "p")):
        if plain[name][key] is None:
            del plain[name][key]
    return plain


def brief_names(known: Collection[str]) -> list[str]:
    """Return the main metrics among those known."""
    return [name for name in (*_BRIEF_METRICS, *_TOP_LABEL_FALLBACKS) if name in known][: len(_BRIEF_METRICS)]


def _families(evaluation: Evaluation) -> list[Section]:
    """Return all metrics, a section for every family."""
    sections = []
    titles: Mapping[Family, str] = FAMILIES
    if evaluation.risk is not None:
        of = positive_words(evaluation)
        titles = FAMILIES | {"calibration": f"Calibration: does the probability of {of} mean what it says?"}
    for family, title in titles.items():
        rows = [
            [code(_arrow(name)), catalogue.metrics[name].title, *estimate_cells(estimated)]
            for name, estimated in evaluation.metrics.items()
            if catalogue.metrics[name].family == family
        ]
        legend = _OF_BOTH if evaluation.classes == 2 and family == catalogue.metrics["brier"].family else ""
        if rows:
            sections.append(Section(title, (table(["metric", "", *HEADER], rows, description=1),), legend=legend))
    return sections


def _arrow(name: str) -> str:
    return page.arrow(name, catalogue.metrics[name].lower_is_better)


def _parts(evaluation: Evaluation) -> list[str]:
    """Return the decompositions, a sentence each."""
    text, of_class = page.number_text, f" of {positive_words(evaluation)}:"
    lines = [
        f"{name} {text(split.total)} = removed by one temperature {text(split.calibration)} "
        f"({text(split.calibration_low)} … {text(split.calibration_high)}) + left {text(split.refinement)}, "
        "cross-fitted"
        for name, split in evaluation.splits.items()
    ]
    lines += [
        f"{name.removeprefix('risk_')}{of_class if name.startswith('risk_') else ''} {text(split.score)} = "
        f"miscalibration {text(split.miscalibration)} (of a calibrated model about {text(split.floor)}; p "
        f"{page.p_text(split.p)}) − discrimination {text(split.discrimination)} + uncertainty "
        f"{text(split.uncertainty)} (CORP, exact)"
        for name, split in evaluation.corp.items()
    ]
    parts, terms = evaluation.murphy, evaluation.refinement_terms
    of = "" if evaluation.risk is None else " of the predicted class"
    lines.append(
        f"top_brier {text(parts.brier)} = reliability {text(parts.reliability)} − resolution {text(parts.resolution)} "
        f"+ uncertainty {text(parts.uncertainty)} + within bins {text(parts.within_bin)} (Murphy, exact)"
    )
    lines.append(
        f"α {text(terms.alpha)} − β {text(terms.beta)} − γ {text(terms.gamma)} = {text(terms.equation_9)} (equation 9 "
        f"of Singh et al., which is not an identity); exact: ece{of} {text(terms.ece)} ≥ |confidence − accuracy| "
        f"{text(abs(terms.confidence_minus_accuracy))}"
    )
    return lines


def comparison_text(comparison: Mapping[str, Difference], baseline: str | None, positive: str | None = None) -> str:
    """Return a sentence on the main metrics in which the predictions are better or worse than the baseline.

    ``positive`` are words for the positive class of two.
    """
    sides: dict[Side, list[str]] = {"better": [], "worse": [], "alike": []}
    for name in brief_names(comparison):
        title, change = (_BRIEF_METRICS | _TOP_LABEL_FALLBACKS)[name], comparison[name]
        if positive and name == "auroc":
            title = "AUROC of correctness"
        title = risk_title(name, title, positive)
        if catalogue.metrics[name].lower_is_better is not None:
            sides[change.side].append(title if change.side == "alike" else f"{title} ({change.value:+z.4f})")
    words = {"better": "better in", "worse": "worse in", "alike": "no clear difference in"}
    parts = [f"{words[side]} {', '.join(titles)}" for side, titles in sides.items() if titles]
    return f"Compared with {baseline or 'the baseline'} on the same samples: {'; '.join(parts)}."


def risk_title(name: str, title: str, positive: str | None) -> str:
    """Return the title of a metric in a comparison, with the class that it is of; no ``positive``, no two classes."""
    return f"{title} of {positive}" if positive and is_of_risk(catalogue.metrics[name]) else title


def _baseline_section(
    evaluation: Evaluation, comparison: Mapping[str, Difference] | None, baseline: str | None, shown: Collection[str]
) -> list[Section]:
    """Return paired differences from a baseline for the metrics shown, and name the others that differ clearly."""
    if comparison is None:
        return []
    others = [(name, d.side) for name, d in comparison.items() if name not in shown]
    clear = {side: [name for name, own in others if own == side] for side in ("better", "worse")}
    words = [f"{len(names)} {side} ({', '.join(names)})" for side, names in clear.items() if names]
    words += [f"{left} neither"] if (left := len(others) - sum(map(len, clear.values()))) else []
    positive, streamed, legend = None, evaluation.streamed, ""
    if evaluation.risk is not None:
        positive = positive_words(evaluation)
        legend = f"Calibration errors are of the probability of {positive}; auroc is of the predicted class."
        if streamed is not None and streamed.sample < evaluation.n:
            legend += f" Those errors are those of a uniform sample of {streamed.sample:,} samples."
    rows = [
        [code(risk_title(name, name, positive)), number_text(d.baseline), number_text(d.candidate),
         page.comparison_cell(f"{d.value:+z.4f}", d.side), page.bounds_text(d.low, d.high), page.p_text(d.p)]
        for name, d in ((name, comparison[name]) for name in shown)
    ]  # fmt: skip
    header = ["metric", "baseline", "this", "this − baseline", "95 % interval", "p"]
    title = f"Compared with {baseline}" if baseline else "Comparison"
    items = (f"Other metrics: {', '.join(words)}.",) if words else ()
    return [Section(title, (table(header, rows),), items, legend)]


_BRIEF_SLICES = 10  # of each column


def _slice_sections(evaluation: Evaluation, slices: Sequence[Slice], *, most: int | None = None) -> list[Section]:
    """Return a section for every column, with its slices or the worst of them; the last one has the legend."""
    of_class = evaluation.risk is not None
    columns = ("predicted", "observed") if of_class else ("confidence", "accuracy")
    subject = slice_subject(evaluation, slices)
    subject = subject and f": {subject}"
    tested = counted(sum(not math.isnan(slice_.corrected_p) for slice_ in slices), "slice")
    legend = (
        f"The worst first, by the error above its noise floor. p: how often calibrated predictions would show such an "
        f"error, corrected for {tested} (Holm). To the rest: {columns[0]} − {columns[1]} in percentage points, "
        "minus that of all other samples; ▼ is further from 0 than theirs, ▲ closer, beyond noise. A slice of fewer "
        "than ten samples is not tested."
    )
    if any(slice_.n >= FEW and math.isnan(slice_.metrics["ece"].low) for slice_ in slices):
        legend += " One of a few clusters has no interval, and a weak test."
    sections, by_column = [], _by_column(slices)
    for column, own in by_column.items():
        shown, left = own[:most], len(own) - len(own[:most])
        rows = [[page.name_cell(slice_.value), f"{slice_.n:,}", *_slice_cells(slice_)] for slice_ in shown]
        weight = [] if own[0].weight is None else ["weight"]
        header = [column, "n", *weight, *columns, "ece", "95 % interval", "p", "to the rest"]
        more = (f"and {counted(left, 'other slice')}",) if left else ()
        is_last = column == [*by_column][-1]
        sections.append(Section(f"By {column}{subject}", (table(header, rows),), more, legend if is_last else ""))
    return sections


def slice_subject(evaluation: Evaluation, slices: Sequence[Slice]) -> str:
    """Return what the numbers of slices of two classes are of; nothing for more classes."""
    if evaluation.risk is None or not slices:
        return ""
    return f"probability of {positive_words(evaluation)}"


def _by_column(slices: Sequence[Slice]) -> dict[str, list[Slice]]:
    columns: dict[str, list[Slice]] = {}
    for slice_ in slices:
        columns.setdefault(slice_.column, []).append(slice_)
    return columns


def _slice_threshold_sections(slices: Sequence[Slice], *, most: int | None = None) -> list[Section]:
    """Return a section for every column with the thresholds of its slices, or of the worst of them."""
    legend = (
        "Each is chosen on the samples of its slice alone. Several slices are looked at at once: a guarantee is that "
        "of one, and of twenty, one may be above its error rate."
    )
    sections, by_column = [], _by_column([slice_ for slice_ in slices if slice_.operating_points])
    for column, own in by_column.items():
        rows = []
        for slice_ in own[:most]:
            for estimated, guaranteed in zip(slice_.operating_points[::2], slice_.operating_points[1::2], strict=True):
                cells = [page.name_cell(slice_.value), f"{slice_.n:,}", f"{100 * estimated.error_rate:g} %"]
                for point in (estimated, guaranteed):
                    cells += [point.accepts, "" if point.threshold is None else percent(point.coverage)]
                rows.append(cells)
        header = [column, "n", "errors ≤", "estimate", "coverage", "guaranteed", "coverage"]
        is_last = column == [*by_column][-1]
        sections.append(Section(f"Thresholds by {column}", (table(header, rows),), legend=legend if is_last else ""))
    return sections


def _slice_cells(slice_: Slice) -> list[object]:
    numbers = [] if slice_.weight is None else [percent(slice_.weight)]
    numbers += [percent(one.value) for one in (slice_.claimed, slice_.occurred)]
    error, rest = slice_.metrics["ece"], slice_.to_rest
    ece = page.Cell(number_text(error.value), bold=slice_.is_miscalibrated)
    p = "" if math.isnan(slice_.corrected_p) else page.p_text(slice_.corrected_p)
    cells = [*numbers, ece, page.interval_text(error), p]
    if not math.isfinite(rest.value):
        return [*cells, ""]
    return [*cells, page.comparison_cell(f"{100 * rest.value:+z.1f}", slice_side(slice_))]


def slice_side(slice_: Slice) -> Side:
    """Return whether a slice is further from calibration than the rest, or closer, beyond noise."""
    return "worse" if slice_.is_worse else "better" if slice_.to_rest.is_significant else "alike"
