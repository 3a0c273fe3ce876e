"""The report of a comparison: which calibration method to use, what it gains, and what it costs.

The sentences and cells about one method are shared with the report of a clamped network, which is compared alike.
"""

import math
import shlex
from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from calibrant import catalogue
from calibrant.calibrators import Auto
from calibrant.comparison import (
    PLATT,
    TEMPERATURE,
    UNCALIBRATED,
    Comparison,
    HeldOutComparison,
    MethodResult,
    comparison_metrics,
)
from calibrant.comparison import WhyUncalibrated as Why
from calibrant.errors import check_kind
from calibrant.evidence import Difference
from calibrant.report import page
from calibrant.report.evaluation import plain_estimates
from calibrant.report.page import Cell, Page, Row, Section, Table, Verdict, code, sentence, table
from calibrant.report.risk import decision_sections, share_text
from calibrant.text import counted, joined, percent, samples_text

if TYPE_CHECKING:
    from calibrant.confidence import ConfidenceComparison

_NAMES = {UNCALIBRATED: "the uncalibrated model", TEMPERATURE: "temperature scaling", PLATT: "Platt scaling"}
_POSITIVE = "the positive class"
_DIFFERENCES = (
    "A method's number minus the baseline's. Intervals are those of the one difference, not corrected for the number "
    "of methods; those of calibration errors are of the true difference, and the number, which has noise, can lie "
    "outside."
)
_MOST_NAMED = 6
_SHOWN = 0.00005  # the least difference that four decimals show
_BRIEF = ("nll", "brier", "ece")
_ALWAYS = {metric.name for metric in comparison_metrics()}
_TONES: dict[Why | None, page.Tone] = {Why.too_few_samples: "open", Why.nothing_fitted: "bad"}


def comparison_page(
    comparison: Comparison, *, calibration: PurePath | None = None, test: PurePath | None = None, reading: str = ""
) -> Page:
    """Return the report of a comparison.

    Args:
        comparison: The numbers.
        calibration: File of the calibration samples.
        test: File of the test samples; not used where methods were compared in folds.
        reading: Options of the command line that read the files, with a space before.
    """
    check_kind(comparison, Comparison, "comparison", "Make one with calibrant.compare(calibration, test).")
    chosen, notes = comparison.recommended, method_notes(comparison.methods)
    baselines = [name for name in (UNCALIBRATED, comparison.simplest) if comparison.find(name) is not None]
    intervals = [[code(m.name), *map(page.estimate_text, m.metrics.values())] for m in comparison.fitted]
    command = f"calibrant fit {shlex.quote(chosen.name)} {shlex.quote(str(calibration))}{reading} -o map.safetensors"
    shards = 0 if comparison.streamed is None else comparison.streamed.shards
    of_decisions = {one.name: one.decisions for one in comparison.fitted}
    open_one = comparison.undecided if chosen.name == UNCALIBRATED else None
    main = {UNCALIBRATED, comparison.simplest, (open_one or chosen).name}
    shown = {name: own for name, own in of_decisions.items() if name in main}
    is_open = bool(comparison.cautions) or comparison.calibration_needed is not None
    is_advised = chosen.name != UNCALIBRATED and comparison.calibration_needed is None
    streamed = f", streamed from {counted(shards, 'file')}" if shards else ""
    return Page(
        title="Calibration methods compared",
        source=_source(comparison, calibration, test),
        facts=_facts_in_folds(comparison) if comparison.folds else held_out_facts(comparison) + streamed,
        verdict=comparison_verdict(comparison),
        brief_findings=tuple(_main_findings(comparison, chosen)),
        tone="open" if is_open else _TONES.get(comparison.why_uncalibrated, "good"),
        number=_number(comparison, chosen),
        brief=(
            Section("", (_leaderboard(comparison, is_brief=True),), legend=_legend(comparison, is_brief=True)),
            *decision_sections(shown, _POSITIVE),
        ),
        full_hint="More findings, all metrics and differences" + (f", {counted(len(notes), 'note')}" if notes else ""),
        sections=(
            Section("Methods by log-loss", (_leaderboard(comparison),), legend=_legend(comparison)),
            Section("Every number with its 95 % interval", (table(["method", *comparison.best.metrics], intervals),)),
            *(
                Section(f"Differences from {_NAMES[name]}", (_differences(comparison, name),), legend=_DIFFERENCES)
                for name in baselines
            ),
            *decision_sections(of_decisions, _POSITIVE),
            *_streamed_sections(comparison),
        ),
        notes=tuple(notes),
        brief_notes=tuple(f"{chosen.name}: {note}" for note in chosen.notes),
        settings=held_out_settings(comparison),
        commands=(command,) if calibration is not None and is_advised else (),
        data=lambda: _document(comparison, calibration, test),
    )


def _source(comparison: Comparison, calibration: PurePath | None, test: PurePath | None) -> str | None:
    if comparison.folds and calibration:
        return calibration.name
    return f"{calibration.name} → {test.name}" if calibration and test else None


def _facts_in_folds(comparison: Comparison) -> str:
    samples = samples_text(comparison.n_test, comparison.effective_n_test, "sample", comparison.clusters_test)
    return f"{samples} in {comparison.folds} folds, {counted(comparison.n_classes, 'class', 'classes')}"


def _test_samples(comparison: Comparison) -> str:
    return "samples" if comparison.folds else "test samples"


def _streamed_sections(comparison: Comparison) -> list[Section]:
    streamed = comparison.streamed
    if streamed is None:
        return []
    shown = dict.fromkeys((UNCALIBRATED, comparison.recommended.name))
    errors = " and ".join(f"that of {name} to {streamed.auroc_error[name]:.1g}" for name in shown)
    ranks = f"Ranks are in bounded memory, so that an AUROC is exact to an error: {errors}."
    sampled = "Charts" if comparison.n_classes > 2 else "Charts, differences of calibration errors and decisions"
    items = (ranks, f"{sampled} are of a uniform sample of {streamed.charted:,} test samples.")
    return [Section("Streamed", items=items)]


# Numbers.


def _number(comparison: Comparison, chosen: MethodResult) -> page.KeyNumber:
    """Return the gain in log-loss, or the log-loss where no method is recommended."""
    change = chosen.differences.get(UNCALIBRATED, {}).get("nll")
    if change is None:
        return page.estimate_number("Log-loss, uncalibrated", comparison.uncalibrated.metrics["nll"])
    return page.difference_number(f"Log-loss of {chosen.name} − uncalibrated", change)


def _leaderboard(comparison: Comparison, *, is_brief: bool = False) -> Table:
    """Return the methods in order, with the log-loss relative to the baseline and other metrics."""
    hidden = _ALWAYS.difference(_BRIEF) if is_brief else {"accuracy"}
    names = [name for name in comparison.best.metrics if name not in hidden]
    best = {name: _best(comparison, name) for name in names}
    first, *others = (page.arrow(name, _lower_is_better(name)) for name in names)
    header = ["method", first, f"nll − {comparison.baseline}", *others, "accuracy", *([] if is_brief else ["fit, s"])]
    rows: list[Row] = []
    for method in comparison.methods:
        is_chosen = method is comparison.recommended
        name = code(method.name, bold=is_chosen, mark="←" if is_chosen else "")
        if method.failure is not None:
            rows.append([name, "", "not fitted", *[""] * (len(header) - 3)])
            continue
        against = method.differences.get(comparison.baseline)
        cells: list[Cell | str] = []
        for metric in names:
            text = _digits(method.metrics[metric].value, metric)
            side = "alike" if against is None else against[metric].side
            cells.append(page.comparison_cell(text, side, bold=text == best[metric]))
        cells.insert(1, "–" if against is None else page.difference_text(against["nll"]))
        change = method.differences[UNCALIBRATED]["accuracy"].value if UNCALIBRATED in method.differences else 0.0
        cells.append(f"{100 * change:+z.2f}" if change and method.changed else "0")
        if not is_brief:
            cells.append(f"{method.seconds:.2f}" if method.seconds < 9.995 else f"{method.seconds:.0f}")
        rows.append([name, *cells])
    return table(header, rows)


def _best(comparison: Comparison, metric: str) -> str:
    values = [method.metrics[metric].value for method in comparison.fitted]
    known, is_lower = [value for value in values if not math.isnan(value)], _lower_is_better(metric)
    return _digits((min if is_lower else max)(known), metric) if known and is_lower is not None else ""


def _lower_is_better(metric: str) -> bool | None:
    """Return whether a lower value is better; None where neither is, or the metric is in no catalogue."""
    return catalogue.metrics[metric].lower_is_better if metric in catalogue.metrics else None


def _digits(value: float, metric: str) -> str:
    """Return four decimals, or five for the classwise error, which many classes make small."""
    return f"{value:.5f}" if metric == "sce" and value >= 0 else page.number_text(value)


def _differences(comparison: Comparison, baseline: str) -> Table:
    rows: list[Row] = []
    for method in comparison.fitted:
        if baseline in method.differences:
            changes = method.differences[baseline]
            first, *others = map(page.difference_cell, changes.values())
            tests = [page.p_text(changes["nll"].p), page.p_text(changes["nll"].corrected_p)]
            rows.append([code(method.name), first, *tests, *others])
    first_name, *names = comparison.best.metrics
    return table(["method", first_name, "p", "corrected", *names], rows)


def _legend(comparison: Comparison, *, is_brief: bool = False) -> str:
    end = ", of the samples whose confidence is on the right side of 50 %" if comparison.is_of_correctness else ""
    legend = (
        f"▲ clearly better, ▼ clearly worse than {_NAMES[comparison.baseline]}: beyond noise and by enough to matter. "
        f"In brackets: 95 % interval, paired. Bold: best of the column. accuracy: change in percentage points{end}."
    )
    if comparison.n_classes == 2:
        ranks = ", AUROC and AURC" if comparison.is_of_correctness else ""
        legend += f" Calibration errors{ranks} are of the probability of the positive class."
    if is_brief:
        return legend
    planned = f"{_NAMES[comparison.simplest]} against the uncalibrated model is one planned test, not corrected"
    return f"{legend} p-values are corrected for the number of methods (Holm) in each column; {planned}."


def _document(comparison: Comparison, calibration: PurePath | None, test: PurePath | None) -> dict[str, Any]:
    """Return the JSON report.

    ``calibration_needed`` is about how many calibration samples would settle the answer, if those at hand are too few.
    ``folds``, where there is one file: each of its samples is a test sample, of maps fitted outside its fold.
    ``methods[i]`` has ``name`` and ``title``, then ``failure`` with the reason why it was not fitted, or None and:
    ``metrics.<name>`` as in an evaluation; ``differences.<baseline>.<metric>`` with ``baseline`` and ``candidate`` (the
    two numbers), ``value`` (candidate minus baseline), ``low``, ``high``, ``p``, ``corrected_p`` and ``side``
    ("better", "worse", "alike"); ``to_best``, the same for nll against the best; ``changed``, ``seconds``;
    ``own_samples``, the scores ``before`` and ``after`` of the samples of the fit, means over ``n`` of them; ``notes``.
    """
    methods = [
        method_fields(method) | ({} if method.failure is not None else {"to_best": method.to_best})
        for method in comparison.methods
    ]
    words = {
        "verdict": comparison_verdict(comparison),
        "recommended": comparison.recommended.name,
        "calibration_needed": comparison.calibration_needed,
    }
    shared = held_out_fields(comparison, calibration=calibration, test=calibration if comparison.folds else test)
    shared |= {"folds": comparison.folds} if comparison.folds else {}
    streamed = {} if comparison.streamed is None else {"streamed": comparison.streamed}
    return page.document("calibrant.comparison/1", {**shared, **streamed, **words, "methods": methods})


# Words.


def comparison_verdict(comparison: Comparison) -> Verdict:
    """Put a comparison into words."""
    chosen, best = comparison.recommended, comparison.best
    alike = [m.name for m in comparison.fitted if m.to_best is not None and m.to_best.side == "alike"]
    harmful = [m.name for m in comparison.fitted if _side(m, UNCALIBRATED, "nll") == "worse"]
    findings = [
        *_main_findings(comparison, chosen),
        *([f"On these samples {best.name} is not clearly better than {_listed(alike)}."] if alike else []),
        *separation_words(chosen),
        _calibration(comparison, chosen),
        *([f"Clearly worse than {_NAMES[UNCALIBRATED]}: {_listed(harmful)}."] if harmful else []),
    ]
    return Verdict(_headline(comparison, chosen), findings, _next_steps(comparison, chosen))


def _side(method: MethodResult, baseline: str, metric: str) -> str | None:
    return method.differences[baseline][metric].side if baseline in method.differences else None


def _main_findings(comparison: Comparison, chosen: MethodResult) -> list[str]:
    """Return the findings that may change the decision."""
    failed = [method.name for method in comparison.methods if method.failure is not None]
    return [
        *map(sentence, comparison.cautions),
        *_few_calibration(comparison),
        *_undecided(comparison, chosen),
        *_gains(comparison, chosen),
        *_brier(comparison, chosen),
        *(_crossing(chosen) if comparison.is_of_correctness else accuracy_sentences(chosen)),
        *([f"Not fitted: {_listed(failed)}; see the notes for the reasons."] if failed else []),
    ]


def _few_calibration(comparison: Comparison) -> list[str]:
    """Return that the answer hangs on the draw of the calibration samples, where it does."""
    if comparison.calibration_needed is None:
        return []
    samples = samples_text(comparison.n_calibration, comparison.effective_n_calibration, "calibration sample")
    others = "fitted on as many others, it may well help where it does not here, or not where it does"
    if comparison.folds:
        return [f"In every fold the methods were fitted on {samples}: {others}."]
    return [f"Every method was fitted once, on {samples}: {others}. The intervals are those of this one fit."]


def _headline(comparison: Comparison, chosen: MethodResult) -> str:
    others = len(comparison.fitted) - 1
    why, is_few = comparison.why_uncalibrated, comparison.calibration_needed is not None
    if why is None:
        lowers = f"lowers the log-loss from {comparison.uncalibrated.nll:.4f} to {chosen.nll:.4f}"
        gain = f"it {lowers}"
        if is_few:
            return f"Too few calibration samples to choose a method by: here {chosen.name} {lowers}."
        if chosen.name == comparison.simplest and others > 1:
            rest = "the other method is not" if others == 2 else f"none of {others - 1} others is"
            return f"{sentence(_NAMES[chosen.name])} is enough: {gain}, and {rest} clearly better."
        none = f", and none of {others - 1} others is clearly better" if chosen is not comparison.best else ""
        return f"Use {chosen.name} ({chosen.title}): {gain}{none}."
    none = f"{'no method' if others == 1 else f'none of {others} methods'} clearly lowers the log-loss."
    if comparison.cautions and others:
        return f"No advice can be based on these two sets, for the reasons below: {none}"
    if is_few and why is Why.nothing_helps:
        return f"Too few calibration samples to decide whether any method helps: {none}"
    return {
        Why.nothing_helps: f"Leave the model uncalibrated: {none}",
        Why.too_few_samples: f"Too few {_test_samples(comparison)} to decide whether any method helps: {none}",
        Why.nothing_fitted: "Nothing to compare: no method could be fitted on the calibration samples.",
    }[why]


def _crossing(method: MethodResult) -> list[str]:
    """Return how many confidences in being right a method moves across one half; "accuracy" is of that side."""
    if method.name == UNCALIBRATED or method.changed == 0:
        return []
    return [f"It moves the confidence of {percent(method.changed)} of samples across 50 %; the answers stay the same."]


def _undecided(comparison: Comparison, chosen: MethodResult) -> list[str]:
    """Return what the samples leave open, where no method is recommended."""
    undecided = comparison.undecided if chosen.name == UNCALIBRATED else None
    if undecided is None:
        return []
    change = undecided.differences[UNCALIBRATED]["nll"]
    if math.isnan(change.p):
        return [f"The {_test_samples(comparison)} are too few, or too much alike, to show the noise."]
    difference = f"{difference_words(change)} than that of {_NAMES[UNCALIBRATED]}"
    why = "the interval has room for a gain that would matter"
    if change.high < 0 and not change.is_significant:
        alone, corrected = (page.p_text(p) for p in (change.p, change.corrected_p))
        best = f"the best of {len(comparison.fitted) - 1} (corrected {corrected})"
        why = f"clear of one method alone (p {alone}), but not of {best}"
    return [f"The log-loss of {undecided.name} is {difference}: {why}."]


def _gains(comparison: Comparison, chosen: MethodResult) -> list[str]:
    """Return the difference in log-loss from both baselines."""
    if chosen.name == UNCALIBRATED:
        return []
    gains = [
        f"{difference_words(chosen.differences[baseline]['nll'])} than that of {words}"
        for baseline, words in _NAMES.items()
        if baseline in chosen.differences
    ]
    lines = [f"Its log-loss is {', and '.join(gains)}."] if gains else []
    best, gap = comparison.best, chosen.to_best
    if gap is not None and f"{gap.value:.4f}" != "0.0000":
        no_other = best.beats(comparison.simplest) or comparison.find(comparison.simplest) is None
        doubt = _NAMES[UNCALIBRATED if no_other else comparison.simplest]
        if gap.side == "alike" and chosen.name != comparison.simplest:
            doubt = f"{chosen.name}, which is simpler" if chosen.fitted_numbers < best.fitted_numbers else chosen.name
        lines.append(
            f"The log-loss of {best.name} is lower still, by {gap.value:.4f} ({gap.low:.4f} to {gap.high:.4f}), but "
            f"with {len(comparison.fitted)} methods to choose from that is not clearly better than {doubt}."
        )
    return lines


def _brier(comparison: Comparison, chosen: MethodResult) -> list[str]:
    """Return where the other proper score disagrees: with the method itself, or with the choice of it."""
    lowest = min(comparison.fitted, key=lambda method: method.metrics["brier"].value)
    start = "The Brier score, the other proper score,"
    if _side(chosen, UNCALIBRATED, "brier") == "worse":
        change = difference_words(chosen.differences[UNCALIBRATED]["brier"])
        differs = f"disagrees: that of {chosen.name} is {change} than that of {_NAMES[UNCALIBRATED]}."
        weighs = "It weighs confident mistakes less than the log-loss does"
        return [f"{start} {differs} {weighs}; by it, {lowest.name} is best."]
    has_other = comparison.simplest in chosen.differences and chosen.name != UNCALIBRATED
    baseline = comparison.simplest if has_other else UNCALIBRATED
    is_better = _side(chosen, baseline, "brier") == "better"
    if lowest is chosen or is_better or _side(lowest, baseline, "brier") != "better":
        return []
    but = "" if chosen.name == baseline else f", and {chosen.name} does not improve on it"
    change = difference_words(lowest.differences[baseline]["brier"])
    better = f"{change} than that of {_NAMES[baseline]}, which is clearly better{but}"
    return [f"{start} would choose {lowest.name}: it is {better}."]


def _calibration(comparison: Comparison, chosen: MethodResult) -> str:
    """Return the calibration error, and whether it would have chosen another method."""
    lowest = min(comparison.fitted, key=lambda method: method.metrics["ece"].value)
    is_same = chosen.name == UNCALIBRATED
    before = "" if is_same else f", before {comparison.uncalibrated.metrics['ece'].value:.4f}"
    line = f"Its ECE is {chosen.metrics['ece'].value:.4f}{before}"
    if lowest is chosen:
        return f"{line}, the lowest here too."
    gap, value = lowest.nll - chosen.nll, lowest.metrics["ece"].value
    if abs(gap) < _SHOWN:
        end = "the same."
    elif gap < 0:
        end = f"{-gap:.4f} lower too."
    else:
        end = f"{gap:.4f} higher: choose by the log-loss, because a low ECE alone does not make good probabilities."
    return f"{line}. ECE ranks {lowest.name} first ({value:.4f}), whose log-loss is {end}"


def _next_steps(comparison: Comparison, chosen: MethodResult) -> list[str]:
    first = []
    if comparison.cautions:
        first = ["Resolve the warning above first, then compare again: the answer may change."]
    if needed := comparison.calibration_needed:
        until = "" if comparison.why_uncalibrated is None else "; until then use no calibration"
        first.append(f"Gather about {needed:,} calibration samples and compare again{until}.")
    if comparison.why_uncalibrated is not None:
        steps = {
            Why.nothing_helps: "Leave the model uncalibrated: recalibrating could only add noise.",
            Why.too_few_samples: f"Compare on more {_test_samples(comparison)}; until then use no calibration.",
            Why.nothing_fitted: "Fit on other samples: the notes say what they must have.",
        }
        return first or [steps[comparison.why_uncalibrated]]
    if comparison.calibration_needed is not None:
        return first
    fitted_on = "all" if comparison.folds else "the calibration"
    step = f"Fit {chosen.name} on {fitted_on} samples and apply it to the outputs of the model."
    if len(comparison.fitted) > 2 and chosen.name not in {comparison.simplest, Auto.name}:
        step += (
            f" It was chosen on these {_test_samples(comparison)}, so expect a little less on new ones; auto chooses "
            "without them."
        )
    return [*first, step]


def _listed(names: Sequence[str]) -> str:
    """Return ``a, b and c``, at most six of them."""
    shown = list(names)
    if len(shown) > _MOST_NAMED:
        shown = [*shown[: _MOST_NAMED - 1], f"{len(shown) - _MOST_NAMED + 1} more"]
    return joined(shown)


# Shared with the report of a clamped network.


def held_out_facts(record: HeldOutComparison) -> str:
    """Return the size of the data."""
    samples = counted(record.n_calibration, "calibration sample")
    test = samples_text(record.n_test, record.effective_n_test, "test sample", record.clusters_test)
    return f"{samples}, {test}, {counted(record.n_classes, 'class', 'classes')}"


def held_out_settings(record: HeldOutComparison) -> str:
    """Return what decides the numbers, given the data."""
    return f"{record.n_bins} bins; {record.resamples} resamples; seed {record.seed}"


def held_out_fields(
    record: HeldOutComparison, *, calibration: PurePath | None, test: PurePath | None
) -> dict[str, Any]:
    """Return the size of the data and the settings for the JSON report."""
    return {
        "calibration": {"source": calibration and calibration.name, "n": record.n_calibration},
        "test": {
            "source": test and test.name,
            "n": record.n_test,
            "effective_n": record.effective_n_test,
            "clusters": record.clusters_test,
        },
        "classes": record.n_classes,
        "bins": record.n_bins,
        "seed": record.seed,
        "resamples": record.resamples,
    }


def method_fields(method: MethodResult) -> dict[str, Any]:
    """Return one method for the JSON report: its numbers and differences, or why there are none."""
    fields: dict[str, Any] = {"name": method.name, "title": method.title, "failure": method.failure}
    if method.failure is None:
        fields |= {"metrics": plain_estimates(method.metrics), "differences": method.differences}
        fields |= {"changed": method.changed, "seconds": method.seconds}
        fields |= {"decisions": method.decisions} if method.decisions else {}
        summary = None if method.map is None else method.map.summary
        if summary is not None and summary.compared:
            fields["own_samples"] = {"n": summary.compared, "before": summary.before, "after": summary.after}
    return fields | {"notes": method.notes}


def method_notes(methods: Sequence[MethodResult]) -> list[str]:
    """Return why methods could not be fitted, and the warnings of the others; a warning of several stands once."""
    failed = [f"{method.name} could not be fitted: {method.failure}" for method in methods if method.failure]
    fitted = (method for method in methods if method.failure is None)
    return failed + page.notes_with_names((method.name, note) for method in fitted for note in method.notes)


def difference_words(change: Difference) -> str:
    """Return by how much a number is lower or higher, with the interval."""
    word, ends = ("lower", (-change.high, -change.low)) if change.value <= 0 else ("higher", (change.low, change.high))
    return f"{abs(change.value):.4f} ({page.bounds_text(*ends, '.4f', 'to')}) {word}"


def points_words(change: Difference) -> str:
    """Return a difference of shares in percentage points, with the interval."""
    value, low, high = (100 * number for number in (change.value, change.low, change.high))
    return f"{value:+z.2f} points ({page.bounds_text(low, high, '+z.2f', 'to')})"


def accuracy_sentences(method: MethodResult) -> list[str]:
    """Return what a method does to the predictions and their accuracy."""
    if method.name == UNCALIBRATED:
        return []
    if method.changed == 0:
        return ["It changes no prediction, so the accuracy stays the same."]
    change = method.differences[UNCALIBRATED]["accuracy"]
    start = f"It changes the predicted class of {share_text(method.changed)} of samples; accuracy"
    if change.side == "alike":
        why = "too little to matter" if change.is_significant else "noise"
        if why == "noise" and (change.low > 0 or change.high < 0):
            why = "noise, once corrected for the number of methods"
        return [f"{start} changes by {points_words(change)}: {why}."]
    return [f"{start} {'rises' if change.value > 0 else 'falls'}: {points_words(change)}."]


def separation_words(method: MethodResult) -> list[str]:
    """Return what a method does to the separation of right from wrong."""
    if math.isnan(value := method.metrics["auroc"].value):  # every prediction is right, or every one is wrong
        return []
    change = method.differences[UNCALIBRATED]["auroc"] if UNCALIBRATED in method.differences else None
    if change is None or math.isnan(change.low):
        return [f"Confidence separates right from wrong with an AUROC of {value:.4f}."]
    bounds = page.bounds_text(change.low, change.high, joined="to")
    differ = ", whose predictions differ" if method.changed > 0.01 else ""  # so other samples are right
    difference = f"{change.value:+z.4f} ({bounds}) against {_NAMES[UNCALIBRATED]}{differ}"
    words = "about as well" if change.is_significant else "as well, within noise"
    words = words if change.side == "alike" else change.side
    return [f"Confidence separates right from wrong {words}: AUROC {value:.4f}, {difference}."]


def confidence_page(compared: "ConfidenceComparison", *, network: str = "", test: PurePath | None = None) -> Page:
    """Return the report of confidences that are compared with the softmax's own."""
    names = list(next(iter(compared.metrics.values())))
    header = [page.arrow(name, catalogue.metrics[name].lower_is_better) for name in names]
    cells: list[Row] = []
    for name, estimates in compared.metrics.items():
        sides = compared.differences.get(name, {})
        texts = ((key, page.number_text(one.value)) for key, one in estimates.items())
        cells.append([code(name), *(page.comparison_cell(t, sides[k].side) if k in sides else t for k, t in texts)])
    intervals = [[code(n), *map(page.estimate_text, by.values())] for n, by in compared.metrics.items()]
    changes = [[code(n), *map(page.difference_cell, by.values())] for n, by in compared.differences.items()]
    numbers = table(["confidence", *header], cells)
    legend = "▲ clearly better, ▼ clearly worse than the softmax: beyond noise and by enough to matter."
    best, title = compared.best, "separates correct from wrong predictions"
    findings = []
    for name, by in compared.differences.items():
        clear = ", ".join(metric for metric, change in by.items() if change.side == "better")
        better = f"; clearly better by {clear}" if clear else ""
        findings.append(f"{name}: AUROC {page.difference_text(by['auroc'])} from the softmax{better}.")
    if best == "softmax":
        headline = f"By AUROC no other confidence {title} clearly better than the softmax."
        steps = ["Keep the softmax; more samples that the network was not trained on may help ConfidNet."]
    else:
        auroc = page.difference_text(compared.differences[best]["auroc"])
        headline = f"{best} {title} better than the softmax: AUROC {auroc}."
        steps = [f"Use the confidence of {best}; calibrate it before you read it as a probability."]
    return Page(
        title="Confidences compared",
        source=f"{network} on {test.name}" if network and test else None,
        facts=f"{counted(compared.n_samples, 'test sample')}, {compared.n_wrong:,} predicted wrongly",
        verdict=Verdict(headline, findings, steps),
        tone="neutral" if best == "softmax" else "good",
        brief=(Section("", (numbers,), legend=legend),),
        full_hint="Intervals and differences",
        sections=(
            Section("Confidences", (numbers,), legend=legend),
            Section("Every number with its 95 % interval", (table(["confidence", *names], intervals),)),
            Section("Differences from the softmax", (table(["confidence", *names], changes),)),
        ),
        data=lambda: {"schema": "calibrant.confidence-comparison/1", **page.to_plain(compared.as_dict())},
    )
