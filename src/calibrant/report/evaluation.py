"""The report of an evaluation: how far the confidence can be trusted, and what to do about it."""

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from calibrant import catalogue
from calibrant.errors import CHECK_LABELS, check_kind
from calibrant.evaluation import (
    NOISE_LEVEL,
    WORTHWHILE,
    Evaluation,
    NextStep,
    Reason,
    WorstClass,
    is_beyond_noise,
    smallest_visible,
)
from calibrant.evidence import LEVEL, Difference, Estimate, Side, is_of_risk
from calibrant.evidence.logistic import NoLine
from calibrant.metrics import ScoreSplit
from calibrant.metrics.base import Family
from calibrant.predictions import LABEL_FLOOR, OF_CORRECTNESS, PROB_FLOOR
from calibrant.report import page
from calibrant.report.page import Page, Section, Tone, Verdict, code, number_text, table
from calibrant.report.risk import (
    HEADER,
    class_name,
    decision_sections,
    decision_words,
    either,
    error_text,
    highest_words,
    places_of,
    risk_headline,
    risk_section,
    separates,
    separation_words,
    size_of,
    tenths_section,
)
from calibrant.slices import FEW, Slice
from calibrant.text import counted, percent, samples_text

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

_STEPS = {
    Reason.temperature_helps: "Fit a temperature on samples that are not used for testing, and evaluate again.",
    Reason.scores_disagree: (
        "A temperature lowers one proper score and raises the other: compare methods (calibrant compare) on samples "
        "that are not used for testing before fitting one."
    ),
    Reason.classes_differ: (
        "One temperature cannot correct classes that are off in opposite directions: compare methods (calibrant "
        "compare); platt, svs and sms correct every class."
    ),
    Reason.not_by_temperature: (
        "Temperature scaling would not help: look at the classes and bins above, and compare methods "
        "(calibrant compare)."
    ),
    Reason.gain_unknown: (
        "Recalibrate the confidence: compare methods (calibrant compare) on samples that are not used for testing."
    ),
    Reason.too_small: "Leave the confidence unchanged: its error is too small to matter.",
    Reason.calibrated: "Leave the confidence unchanged: recalibrating could only add noise.",
    Reason.like_guessing: f"It is right no more often than guessing would be. {CHECK_LABELS}",
}
_RISK_STEP = (
    "One temperature cannot correct the level of a probability: compare methods (calibrant compare) on samples that "
    "are not used for testing; platt corrects level and spread."
)
_TONES: dict[NextStep, Tone] = {NextStep.leave: "good", NextStep.more_samples: "open", NextStep.check_labels: "open"}

_OF_RIGHT = (
    "Accuracy: how often “right” is true where its probability is at least 50 %, and “wrong” where it is less. The "
    "share of “right” is above."
)
_NO_LINES: dict[NoLine | None, str] = {
    NoLine.all_right: "every prediction is right",
    NoLine.all_wrong: "every prediction is wrong",
    NoLine.extreme: "some confidences are 0 or 1",
    NoLine.constant: "all confidences are the same",
    NoLine.separable: "a threshold of the confidence separates right from wrong predictions",
    None: "some confidences are 0 or 1, all are the same, or a threshold separates right from wrong predictions",
}
_MOST_NAMED = 5  # of the classes that never occur
_POOR = 0.65  # AUROC below which the confidence is not to be relied on to choose predictions
_COMMON = 0.9  # share of a class from which the other one of two is rare
_COLUMNS = " --probs --positive confidence --labels correct"


def evaluation_page(
    evaluation: Evaluation,
    *,
    source: str | None = None,
    comparison: Mapping[str, Difference] | None = None,
    baseline: str | None = None,
    slices: Sequence[Slice] = (),
    to_calibrate: str = _COLUMNS,
) -> Page:
    """Return the report of an evaluation.

    Args:
        evaluation: The numbers.
        source: Where the predictions came from.
        comparison: Differences to the predictions of a baseline for the same samples, by metric, of
            :func:`calibrant.evidence.report_differences`.
        baseline: Where the baseline came from.
        slices: Slices of the samples, the worst first.
        to_calibrate: Options that read confidence and correctness as probability and label of two classes.
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
    words = verdict(evaluation, slices, compared, to_calibrate)
    names = [name for name in names if evaluation.risk is None or name not in _OF_TOP_LABEL]
    accuracy = _OF_RIGHT if risk and evaluation.positive == OF_CORRECTNESS[1] else ""
    main = [[catalogue.metrics[name].title, _arrow(name), *_cells(evaluation.metrics[name])] for name in names]
    return Page(
        title="Calibration report",
        source=source,
        facts=f"{_size_text(evaluation)}, {classes}{_shards(evaluation)}",
        verdict=words,
        tone=_TONES.get(evaluation.advice.step, "bad"),
        number=page.estimate_number(key, evaluation.metrics[error] if risk is None else risk.ece),
        brief=(
            *of_risk,
            *decisions,
            Section("Predictions" if risk else "", (table(["", "", *HEADER], main, text=(0, 1)),), (), accuracy),
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
        "often such a model would score as much.",
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
            [code(_arrow(name)), catalogue.metrics[name].title, *_cells(estimated)]
            for name, estimated in evaluation.metrics.items()
            if catalogue.metrics[name].family == family
        ]
        if rows:
            sections.append(Section(title, (table(["metric", "", *HEADER], rows, description=1),)))
    return sections


def _arrow(name: str) -> str:
    return page.arrow(name, catalogue.metrics[name].lower_is_better)


def _cells(estimated: Estimate) -> list[str]:
    floor = "" if estimated.floor is None else number_text(estimated.floor)
    return [number_text(estimated.value), page.interval_text(estimated), floor, page.p_text(estimated.p)]


def _parts(evaluation: Evaluation) -> list[str]:
    """Return the decompositions, a sentence each."""
    text = page.number_text
    lines = [
        f"{name} {text(split.total)} = removed by one temperature {text(split.calibration)} "
        f"({text(split.calibration_low)} … {text(split.calibration_high)}) + left {text(split.refinement)}, "
        "cross-fitted"
        for name, split in evaluation.splits.items()
    ]
    lines += [
        f"{name} {text(split.score)} = miscalibration {text(split.miscalibration)} (of a calibrated model about "
        f"{text(split.floor)}; p {page.p_text(split.p)}) − discrimination {text(split.discrimination)} + uncertainty "
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
            sides[change.side].append(title if change.side == "alike" else f"{title} ({change.value:+.4f})")
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
         page.comparison_cell(f"{d.value:+.4f}", d.side), page.bounds_text(d.low, d.high), page.p_text(d.p)]
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
        f"error, corrected for {tested} (Holm). To the rest: {columns[0]} − {columns[1]}, minus that of all other "
        "samples; ▼ is further from 0 than theirs, ▲ closer, beyond noise. A slice of fewer than ten samples is not "
        "tested."
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
    return [*cells, page.comparison_cell(f"{100 * rest.value:+.1f} %", slice_side(slice_))]


def slice_side(slice_: Slice) -> Side:
    """Return whether a slice is further from calibration than the rest, or closer, beyond noise."""
    if not slice_.to_rest.is_significant:
        return "alike"
    return "worse" if abs(slice_.gap) > abs(slice_.gap - slice_.to_rest.value) else "better"


def _worst_slice(slices: Sequence[Slice]) -> list[str]:
    """Return a sentence about the worst slice that stands out from the rest."""
    worst = next((slice_ for slice_ in slices if slice_.is_miscalibrated and slice_.to_rest.is_significant), None)
    if worst is None:
        return []
    claims, right = percent(worst.claimed.value), percent(worst.occurred.value)
    words = ("claims", "right") if worst.risk is None else ("predicted", "observed")
    others = sum(slice_.is_miscalibrated for slice_ in slices)
    named = f"Worst for {worst.column} = {page.short(worst.value)} ({words[0]} {claims}, {words[1]} {right}"
    of = f"{others} of {counted(len(slices), 'slice')}"
    return [f"{named}, {counted(worst.n, 'sample')}); {of} have an error beyond noise."]


def _size_text(evaluation: Evaluation) -> str:
    return samples_text(evaluation.n, evaluation.effective_n, clusters=evaluation.clusters)


def verdict(
    evaluation: Evaluation, slices: Sequence[Slice] = (), compared: str | None = None, to_calibrate: str = _COLUMNS
) -> Verdict:
    """Put an evaluation into words; ``compared`` says how it differs from a baseline."""
    risk = evaluation.risk
    findings = [
        *filter(None, [compared]),
        *_absent(evaluation),
        _noise(evaluation.metrics, _size_text(evaluation), "confidences" if risk is None else "probabilities"),
        *_by_class(evaluation),
        *([] if risk is None else [highest_words(risk), separation_words(evaluation, risk)]),
        *decision_words(evaluation.decisions, positive_words(evaluation)),
        *_line(evaluation),
        *_of_predictions(evaluation),
        *_worst_slice(slices),
        *_rare(evaluation),
        *_split(evaluation),
        *_zeros(evaluation),
    ]
    steps = [_absent_step(evaluation) if evaluation.absent_classes else _step(evaluation, to_calibrate)]
    is_poor = risk is None and evaluation.metrics["auroc"].high < _POOR
    if is_poor and not evaluation.absent_classes:  # of no interval it is NaN
        steps.append("Do not use confidence alone to decide which predictions to trust: it ranks them too poorly.")
    return Verdict(_headline(evaluation), findings, steps)


def positive_words(evaluation: Evaluation) -> str:
    """Return what a probability is of, which decisions are taken by."""
    return "being right" if evaluation.classes is None else class_name(1, evaluation.positive)


def _of_predictions(evaluation: Evaluation) -> list[str]:
    """Return findings about the predicted class and its confidence, where there is no one positive class."""
    if evaluation.risk is not None:
        return []
    return [
        *(
            f"Predictions with {percent(worst.low)} to {percent(worst.high)} confidence "
            f"({percent(worst.share)} of samples) claim {percent(worst.confidence)} and are right "
            f"{percent(worst.accuracy)} of the time."
            for worst in evaluation.worst_bins[:1]
        ),
        *_classes(evaluation),
        _separation(evaluation.metrics["auroc"], evaluation.metrics["accuracy"].value),
    ]


def _headline(evaluation: Evaluation) -> str:
    accuracy, confidence = evaluation.metrics["accuracy"].value, evaluation.metrics["confidence"].value
    if evaluation.risk is not None:
        return risk_headline(evaluation, evaluation.risk)
    claim = f"it is {percent(confidence)} sure on average and right {percent(accuracy)} of the time"
    if evaluation.is_off_by_class:
        by_class, worst = evaluation.metrics["tl_ece"], evaluation.worst_classes
        over, under = (next(c for c in worst if (c.confidence > c.accuracy) is sure) for sure in (True, False))
        claim = f"too sure of {_class_text(over)} and not sure enough of {_class_text(under)}"
        return f"{size_of(by_class.value - (by_class.floor or 0.0))} miscalibrated by class: {claim}."
    if not is_beyond_noise(evaluation.metrics):
        return f"No miscalibration beyond noise: {claim}."
    error = evaluation.metrics["ece"].value
    if abs(evaluation.gap) < error / 2:
        return f"{size_of(error)} miscalibrated, too sure in some places and not sure enough in others: {claim}."
    return f"{size_of(error)} {'over' if evaluation.gap > 0 else 'under'}confident: {claim}."


def _class_text(worst: WorstClass, *more: str) -> str:
    name = class_name(worst.label, worst.name)
    claims, right = f"claims {percent(worst.confidence)}", f"right {percent(worst.accuracy)}"
    return f"{name} ({', '.join((claims, right, *more))})"


def _by_class(evaluation: Evaluation) -> list[str]:
    """Return the error by predicted class, where the calibration error does not show it."""
    if not evaluation.is_off_by_class:
        return []
    error = evaluation.metrics["tl_ece"]
    interval = "" if math.isnan(error.low) else f" (95 % interval {error.low:.3f} to {error.high:.3f})"
    return [
        f"It averages over classes, whose errors cancel: by predicted class the error is {error.value:.3f}{interval}."
    ]


def _noise(metrics: Mapping[str, Estimate], samples: str, numbers: str) -> str:
    error, smooth = metrics["ece"], metrics["smece"]
    interval = "" if math.isnan(error.low) else f" (95 % interval {error_text(error.low)} to {error_text(error.high)})"
    floor = error_text(error.floor or 0.0)
    score = f"ECE {error_text(error.value)}{interval}; a calibrated model with these {numbers} would score {floor}"
    first, second = ("unknown" if p is None else "< .002" if p < 0.002 else f"= {p:.3f}" for p in (error.p, smooth.p))
    if is_beyond_noise(metrics, ["ece"]):
        wide = ", although the interval, which is conservative, reaches down to 0" if error.low <= 0 else ""
        return f"{score} on {samples}, so this is beyond noise (p {first}){wide}."
    is_close = error.p is not None and error.p <= LEVEL
    bound = f"; because two errors are tested, the bound is {NOISE_LEVEL:.3f}" if is_close else ""
    explained = f"{score} on {samples}, so noise {'may explain' if is_close else 'explains'} it (p {first}{bound})"
    if is_beyond_noise(metrics):
        return f"{explained}; the error without bins, smECE {error_text(smooth.value)}, is beyond it (p {second})."
    return f"{explained}."


def _line(evaluation: Evaluation) -> list[str]:
    if evaluation.line is None and evaluation.classes is None:
        return [f"There is no calibration slope: {_NO_LINES[evaluation.no_line]}."]
    if evaluation.line is None:
        zeros = evaluation.zeros.cells if evaluation.zeros and evaluation.classes == 2 else 0
        of = class_name(1, evaluation.positive)
        return [f"There is no calibration slope: {zeros:,} of the probabilities of {of} are 0 or 1."] if zeros else []
    texts = []
    for estimated, right in ((evaluation.line.slope, 1), (evaluation.line.in_the_large, 0)):
        interval = "" if math.isnan(estimated.low) else f"{estimated.low:.2f} to {estimated.high:.2f}; "
        texts.append(f"{estimated.value:.2f} ({interval}{right} if calibrated)")
    of = "" if evaluation.classes is None else f" of {class_name(1, evaluation.positive)}"
    return [f"On the scale of log-odds{of}: calibration slope {texts[0]}, calibration in the large {texts[1]}."]


def _rare(evaluation: Evaluation) -> list[str]:
    """Return how to evaluate the probability of the rare one of two classes, which few predictions are of."""
    if evaluation.risk or evaluation.classes != 2 or evaluation.majority is None or evaluation.majority.share < _COMMON:
        return []
    share = percent(1 - evaluation.majority.share)
    how = "--top-label --confidence NAME --correct NAME"
    return [
        f"Only {share} of samples are of the rarer class. To evaluate its probability, not the predicted class: {how}."
    ]


def _classes(evaluation: Evaluation) -> list[str]:
    worst_classes = evaluation.worst_classes
    if not worst_classes:
        return []
    gaps = [worst.confidence - worst.accuracy for worst in worst_classes]
    are_all = len(worst_classes) == evaluation.classes  # if there are few classes; one is then enough
    side = "overconfident" if min(gaps) > 0 else "underconfident" if max(gaps) < 0 else "miscalibrated"
    start = f"It is {side} whichever class it predicts" + (": " if side == "miscalibrated" else ", most for ")
    few = 1 if are_all and side != "miscalibrated" else 3
    named = [_class_text(worst, counted(worst.count, "sample")) for worst in worst_classes[:few]]
    return [f"{start if are_all else 'Worst when it predicts '}{', '.join(named)}."]


def _separation(auroc: Estimate, accuracy: float) -> str:
    if math.isnan(auroc.value):
        every = "right" if accuracy == 1 else "wrong"
        return f"Every prediction is {every}, so the separation of right from wrong is undefined."
    words = page.sentence(separates(auroc, "confidence", "right from wrong"))
    interval = "" if math.isnan(auroc.low) else f"{auroc.low:.3f} to {auroc.high:.3f}; "
    return f"{words}: AUROC {auroc.value:.3f} ({interval}guessing is 0.5)."


def _split(evaluation: Evaluation) -> list[str]:
    """Return the effect of one temperature on the log-loss, and on the Brier score where its direction differs."""
    if not evaluation.splits:
        return []
    nll, brier = evaluation.splits["nll"], evaluation.splits["brier"]
    return [_removed("log-loss", nll), *([_removed("Brier score", brier)] if _side(nll) != _side(brier) else [])]


def _side(split: ScoreSplit) -> int:
    """Return 1 if a temperature lowers the score beyond noise, -1 if it raises it, 0 if the samples leave it open."""
    return int(split.calibration_low > 0) - int(split.calibration_high < 0)


def _removed(score: str, split: ScoreSplit) -> str:
    places = places_of(split.total, 3)
    share, removed = percent(abs(split.calibration) / split.total), round(split.calibration, places)
    interval = f"{split.calibration_low:z.{places}f} to {split.calibration_high:z.{places}f}"
    whole, doubt = (
        f"Of the {score} {split.total:.{places}f}, one temperature would",
        "but these samples are inconclusive",
    )
    if _side(split) > 0:
        kept = f"{split.refinement:.{places}f} is what one temperature cannot lower"
        return f"{whole} remove {split.calibration:.{places}f} ({share}; 95 % interval {interval}); {kept}."
    if _side(split) < 0:
        raised = f"{-split.calibration:.{places}f} ({share})"
        return f"One temperature would raise the {score} {split.total:.{places}f} by {raised}, beyond noise."
    if split.calibration_high < WORTHWHILE * split.total:
        low, high = (percent(end / split.total) for end in (split.calibration_low, split.calibration_high))
        return f"{whole} remove less than {100 * WORTHWHILE:.0f} % (95 % interval {low} to {high})."
    if removed > 0:
        return f"{whole} remove {split.calibration:.{places}f}, {doubt} (95 % interval {interval})."
    change = f"raise it by {-split.calibration:.{places}f}" if removed < 0 else "not change it"
    estimated = f"The {score} is {split.total:.{places}f}: one temperature would {change}, {doubt}"
    return f"{estimated} (95 % interval of what it removes {interval})."


def _absent(evaluation: Evaluation) -> list[str]:
    """Return the classes of which there is no sample, although the probabilities expect many."""
    if not evaluation.absent_classes:
        return []
    fewest, *others = sorted(round(one.expected) for one in evaluation.absent_classes)
    expected = f"at least {fewest:,} of each" if others else f"{fewest:,}"
    return [f"No sample is {_absent_names(evaluation)}, though the probabilities expect {expected}."]


def _absent_names(evaluation: Evaluation) -> str:
    names = [class_name(one.label, one.name) for one in evaluation.absent_classes]
    left = len(names) - len(shown := names[:_MOST_NAMED])
    return either([*shown, *([counted(left, "other class", "other classes")] if left else [])])


def _absent_step(evaluation: Evaluation) -> str:
    has_option = evaluation.classes == 2 and evaluation.positive != OF_CORRECTNESS[1]
    also = " and --positive-class" if has_option else ", and that they number the classes as the scores do"
    return f"No sample is {_absent_names(evaluation)}: check the labels{also}."


def _step(evaluation: Evaluation, to_calibrate: str) -> str:
    """Return the advice; where more samples are needed, how many, and what those at hand suggest."""
    advice, samples = evaluation.advice, counted(evaluation.n, "sample")
    needed = f"evaluate on about {advice.samples:,}" if advice.samples else ""
    needed += " in clusters of the same size" if evaluation.clusters else ""
    if advice.reason is Reason.floor_high:
        hidden = f"With {samples} an ECE below about {smallest_visible(evaluation.metrics):.3f} is lost in noise"
        return f"{hidden}: {needed} before relying on it."
    if evaluation.classes is None and advice.reason is Reason.gain_unknown:
        command = f"calibrant compare CALIBRATION TEST{to_calibrate}"
        return f"Calibrate the probability of being right, on samples that are not used for testing: {command}"
    if advice.reason is not Reason.gain_open:
        of_risk = evaluation.risk is not None and advice.reason is Reason.classes_differ
        return _RISK_STEP if of_risk else _STEPS[advice.reason]
    step = f"{samples} cannot decide whether a temperature helps: {needed}."
    gains = [split.calibration / split.total for split in evaluation.splits.values()]
    if min(gains) >= 0 and max(gains) >= WORTHWHILE:
        return f"{step} They suggest a temperature; calibrant compare with calibration samples tests that directly."
    if is_beyond_noise(evaluation.metrics):
        return f"{step} They suggest another method than a temperature: see calibrant compare."
    return step


def _zeros(evaluation: Evaluation) -> list[str]:
    """Return how many probabilities are 0, and the effect on the log-loss."""
    zeros = evaluation.zeros
    if zeros is None or not (zeros.cells or zeros.floored_labels):
        return []
    share = percent(zeros.cells / zeros.of_cells)
    line = f"{share} of the probabilities are 0 or below {PROB_FLOOR:g} ({zeros.cells:,} of {zeros.of_cells:,})"
    if not zeros.floored_labels:
        return [f"{line}, none of them a true class's."] if zeros.cells > zeros.of_cells / 1000 else []
    labels = "1 true class" if zeros.floored_labels == 1 else f"{zeros.floored_labels:,} true classes"
    return [f"{line}: the log-loss counts {labels} as {LABEL_FLOOR:g}, and depends on that choice."]
