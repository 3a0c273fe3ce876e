"""The report of a clamped network: whether δ helps, what it gains, what it costs, and what to use."""

import math
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from calibrant.clamping import CLAMPED, REFITTED, ClampingEvaluation, ClampingOutcome, ClampingSummary, clamping_metrics
from calibrant.comparison import TEMPERATURE, UNCALIBRATED
from calibrant.errors import Caveat
from calibrant.evidence import Difference
from calibrant.maps import Scale
from calibrant.report import comparison, page
from calibrant.report.comparison import difference_words, method_fields, points_words
from calibrant.report.page import Cell, Page, Row, Section, Table, Tone, Verdict, code, table
from calibrant.report.risk import share_text
from calibrant.text import counted, joined

_BRIEF = ("accuracy", "nll", "ece", "auroc")
_LEGEND = (
    "With 95 % intervals; the differences are paired. ▲ clearly better, ▼ clearly worse than the other: beyond noise "
    "and by enough to matter."
)
_PARTS = {
    "T* only": "T* only: the clamped network without δ.",
    "head* only": "head* only: the clamped network without δ.",
    REFITTED: f"{REFITTED}: T refitted for the log-loss at the same δ.",
}
_CAVEATS = {
    Caveat.not_at_optimum: "δ is not quite at its optimum",
    Caveat.objective_rose: "the objective rose during the fit",
    Caveat.weakest_strength: "the weakest of the strengths tried won, so a weaker one may do better",
    Caveat.path_cut_short: "weaker strengths could not be tried",
    Caveat.delta_too_large: "δ is so large that the network hardly sees its inputs",
    Caveat.no_better_than_guessing: "the predictions are no better than guessing",
}
_BY_LOG_LOSS = "with the default preset and --gamma 0, which solve T for the log-loss"


def clamping_page(
    record: ClampingEvaluation,
    *,
    network: str | None = None,
    calibration: PurePath | None = None,
    test: PurePath | None = None,
) -> Page:
    """Return the report of a clamped network.

    Args:
        record: The numbers.
        network: Where the network came from.
        calibration: File of the calibration samples.
        test: File of the test samples.
    """
    summary = record.summary
    sections = [Section("Metrics and differences", _metrics(record), legend=_legend(record))]
    if record.parts:
        legend = " ".join(_PARTS[part.name] for part in record.parts)
        sections.append(Section("δ and the head apart", (_apart(record),), legend=legend))
    if summary.trials:
        sections.append(Section("Strengths tried on the calibration samples", (_trials(summary),)))
    # The verdict has the outcome of cross-validation, but not why it failed.
    failed = summary.outcome is ClampingOutcome.cross_validation_failed
    notes = comparison.method_notes([*record.failures, *record.methods[:-1], *record.parts])
    return Page(
        title="Neural Clamping",
        source=f"{calibration.name} → {test.name}" if calibration and test else None,
        facts=comparison.held_out_facts(record),
        verdict=clamping_verdict(record),
        tone=_tone(record),
        number=_number(record),
        brief=(Section("", (_brief(record),), legend=_legend(record)),),
        full_hint="All metrics and differences, δ and the head apart, the strengths tried, the fit",
        sections=(*sections, Section("The fit", items=tuple(_facts(record)))),
        notes=(*notes, *(summary.all_notes if failed else summary.notes)),
        settings=comparison.held_out_settings(record),
        data=lambda: _document(record, network, calibration, test),
    )


def _tone(record: ClampingEvaluation) -> Tone:
    if record.cautions or (record.has_delta and record.effect is None):
        return "open"
    if record.effect is None:
        return "neutral"
    tones: dict[str, Tone] = {"better": "good", "worse": "bad"}
    return tones.get(record.effect["nll"].side, "neutral")


def _number(record: ClampingEvaluation) -> page.KeyNumber:
    """Return the effect of δ on the log-loss, or the log-loss of the clamped network where that is unknown."""
    if record.effect is None:
        return page.estimate_number("Log-loss of the clamped network", record.clamped.metrics["nll"])
    return page.difference_number(f"Log-loss of {record.with_delta} − {record.without_delta}", record.effect["nll"])


def _document(
    record: ClampingEvaluation, network: str | None, calibration: PurePath | None, test: PurePath | None
) -> dict[str, Any]:
    """Return the JSON report.

    ``methods[i]`` has ``name``, ``title``, ``failure``, ``metrics.<name>`` as in an evaluation,
    ``differences.<baseline>.<metric>`` as in a comparison, ``changed``, ``seconds`` and ``notes``; so have the
    ``parts``, which separate δ from T, and the ``failures``, which have no numbers. ``delta.effect`` names the two of
    these that differ in δ alone, ``with`` and ``without`` it, and has their ``changes``; it is None where δ is 0 or a
    head had no optimum. ``fit`` is the summary of the clamped model; a ``strength`` of None is an infinite one, δ = 0.
    """
    effect = None
    if record.effect is not None:
        effect = {"with": record.with_delta, "without": record.without_delta, "changes": record.effect}
    return page.document(
        "calibrant.clamping/1",
        {
            **comparison.held_out_fields(record, calibration=calibration, test=test),
            "network": network,
            "verdict": clamping_verdict(record),
            "delta": {"norm": record.norm, "largest": record.largest, "effect": effect},
            "temperature": record.temperature,
            "head": record.head,
            "methods": list(map(method_fields, record.methods)),
            "parts": list(map(method_fields, record.parts)),
            "failures": list(map(method_fields, record.failures)),
            "fit": record.summary.as_dict(),
        },
    )


# Tables.


def _brief(record: ClampingEvaluation) -> Table:
    """Return the metrics that matter most, and the first pair of methods compared."""
    pair = _pairs(record)[0]
    rows = [
        [
            page.arrow(metric.name, metric.lower_is_better),
            *(page.number_text(method.metrics[metric.name].value) for method in record.methods),
            *_compared(record, pair, metric.name),
        ]
        for metric in clamping_metrics()
        if metric.name in _BRIEF
    ]
    return table(["metric", *(method.name for method in record.methods), " − ".join(pair), "p"], rows)


def _pairs(record: ClampingEvaluation) -> list[tuple[str, str]]:
    """Return the methods to compare: the pair that isolates δ first, then the clamped network and every other."""
    pairs = [(CLAMPED, baseline) for baseline in reversed(record.clamped.differences)]
    if record.with_delta and record.without_delta:
        pairs.insert(0, (record.with_delta, record.without_delta))
    return list(dict.fromkeys(pairs))


def _compared(record: ClampingEvaluation, pair: tuple[str, str], metric: str) -> list[Cell | str]:
    """Return the paired difference of two methods and its p-value."""
    method = record.find(pair[0])
    assert method is not None, "only methods with metrics are compared"
    change = method.differences[pair[1]][metric]
    return [page.difference_cell(change), page.p_text(change.p)]


def _metrics(record: ClampingEvaluation) -> tuple[Table, Table]:
    """Return each metric with its interval for every method, and the paired differences of every pair."""
    metrics, pairs = clamping_metrics(), _pairs(record)
    values = [
        [page.arrow(one.name, one.lower_is_better), *(page.estimate_text(m.metrics[one.name]) for m in record.methods)]
        for one in metrics
    ]
    changes = [[one.name, *(cell for pair in pairs for cell in _compared(record, pair, one.name))] for one in metrics]
    headings = [text for pair in pairs for text in (" − ".join(pair), "p")]
    return table(["metric", *(m.name for m in record.methods)], values), table(["metric", *headings], changes)


def _apart(record: ClampingEvaluation) -> Table:
    """Return the metrics with δ and without, each with its head."""
    rows: list[Row] = []
    for method in (record.find(record.head), *record.parts, record.clamped):
        if method is not None:
            delta = "δ*" if method.name in {CLAMPED, REFITTED} else "0"
            fitted = float(method.map.temperature) if isinstance(method.map, Scale) else record.temperature
            temperature = "" if record.temperature is None else f"{fitted:.4f}"
            values = [page.estimate_text(method.metrics[name]) for name in ("nll", "ece", "accuracy")]
            rows.append([code(method.name), delta, temperature, *values])
    return table(["", "δ", "T", "nll ↓", "ece ↓", "accuracy ↑"], rows)


def _trials(summary: ClampingSummary) -> Table:
    """Return every strength tried, from an infinite one (δ = 0) to the weakest."""
    tried = [(math.inf, "∞ (δ = 0)", "0", "0")]
    for trial in summary.trials:
        change = f"{trial.change:+z.5f} ± {trial.standard_error:.5f}"
        tried.append((trial.strength, f"{trial.strength:.3g}", change, f"{trial.norm:.3g}"))
    chosen = summary.strength
    rows = [[Cell(text, bold=by == chosen, mark="←" if by == chosen else ""), *texts] for by, text, *texts in tried]
    return table(["λ per sample", "change of held-out log-loss (± standard error)", "‖δ‖"], rows)


def _facts(record: ClampingEvaluation) -> list[str]:
    summary, certificate = record.summary, record.summary.certificate
    size = f"‖δ‖ = {record.norm:.4g}" if record.has_delta else "δ = 0"
    facts = [f"head: {record.head}, {size}"]
    if record.temperature is not None:
        facts.append(f"T = {record.temperature:.4f}")
    facts.append(f"λ = {summary.strength:.4g} per sample, γ = {summary.gamma:g}; {summary.seconds:.3g} s")
    if certificate is not None:
        facts.append(
            f"objective {certificate.objective:.5f}, gradient {certificate.gradient:.1e} after "
            f"{certificate.passes:.0f} passes over {counted(summary.n_samples, 'sample')}"
        )
    return facts


def _legend(record: ClampingEvaluation) -> str:
    """Return what the marks mean, and what the ECE of two classes is of."""
    return _LEGEND + (" The ECE is that of the predicted class." if record.n_classes == 2 else "")


# Words.


def clamping_verdict(record: ClampingEvaluation) -> Verdict:
    """Put the evaluation of a clamped network into words."""
    moved = record.clamped.changed
    changed = [
        f"It changes the predicted class of {share_text(moved)} of samples." if moved else "It changes no prediction."
    ]
    if record.effect is None or record.without_delta not in {TEMPERATURE, UNCALIBRATED}:
        changed = comparison.accuracy_sentences(record.clamped)  # its change differs from that by δ alone
    findings = [
        *map(page.sentence, record.cautions),
        *_effect(record),
        *_temperature_alone(record),
        *_cross_validated(record.summary),
        *_gains(record),
        *changed,
        *comparison.separation_words(record.clamped),
    ]
    if record.effect is None:  # it has the calibration error
        others = [f"{method.metrics['ece'].value:.4f} for {method.name}" for method in record.methods[:-1]]
        findings.append(f"Its ECE is {record.clamped.metrics['ece'].value:.4f}, against {', '.join(others)}.")
    if record.has_delta:
        at = "" if record.temperature is None else f", and T = {record.temperature:.3f}"
        size = f"‖δ‖ is {record.norm:.4g}, its largest entry {record.largest:.4g} in the network's own units{at}."
        findings.append(size)
    return Verdict(_headline(record), findings, _next_steps(record))


def _headline(record: ClampingEvaluation) -> str:
    """Return the answer, with the warnings and caveats that change how it is read."""
    warnings = "".join(f"Warning: {caution.problem}. " for caution in record.cautions)
    answer = _answer(record) if record.has_delta else _answer_without_delta(record)
    caveats = [words for caveat, words in _CAVEATS.items() if caveat in record.summary.caveats]
    return f"{warnings}{answer}" + (f" But {', and '.join(caveats)}." if caveats else "")


def _answer(record: ClampingEvaluation) -> str:
    """Return whether δ helps, in a sentence, and what its head does where that differs."""
    effect, answer, samples = record.effect, _head(record.baseline), counted(record.n_test, "test sample")
    if effect is None:
        unknown = "Whether δ helps is unknown, because a temperature could not be fitted both with it and without."
        by = difference_words(record.clamped.differences[record.baseline]["nll"])
        return f"{unknown} The log-loss of the clamped network is {by} than that of {answer}, on {samples}."
    change, last = effect["nll"], _against_temperature(record, effect["nll"])
    after = f"{change.candidate:.4f}{' (T refitted)' if record.with_delta == REFITTED else ''}"
    numbers = f"from {change.baseline:.4f} ({_head(record.head)}) to {after} on {samples}{_though(effect)}"
    if math.isnan(change.p):
        unknown = "Whether δ helps is unknown, because the test samples are too few, or too much alike"
        return f"{unknown}: the log-loss goes {numbers}.{last}"
    if change.side == "better":
        return f"δ helps: it lowers the log-loss {numbers}.{last}"
    if change.side == "worse":
        return f"δ does harm here: it raises the log-loss {numbers}. Use {answer}.{last}"
    by = "by enough to matter" if change.is_significant else "beyond noise"
    return f"δ does not change the log-loss {by}, {numbers}: use {answer}, which is simpler.{last}"


def _though(effect: Mapping[str, Difference]) -> str:
    """Return the metrics that change in the other direction."""
    parts = []
    for name, title in (("accuracy", "accuracy"), ("ece", "ECE")):
        change = effect[name]
        if change.side not in {"alike", effect["nll"].side}:
            size = f"{100 * abs(change.value):.2f} points" if name == "accuracy" else f"{abs(change.value):.4f}"
            parts.append(f"{title} {'rises' if change.value > 0 else 'falls'} by {size}")
    return f", though {' and '.join(parts)}" if parts else ""


def _against_temperature(record: ClampingEvaluation, effect: Difference) -> str:
    """Return how the clamped network compares with temperature scaling, where that differs from the effect of δ."""
    differences, temperature = record.clamped.differences.get(TEMPERATURE), record.find(TEMPERATURE)
    if differences is None or temperature is None:
        return ""
    own = differences["nll"].side
    head = "head" if record.temperature is None else f"T = {record.temperature:.3f}"
    numbers = f"temperature scaling ({record.clamped.nll:.4f} against {temperature.nll:.4f})"
    if effect.side == own:
        is_short = own == "better" and record.clamped.differences.get(REFITTED, differences)["nll"].side == "worse"
        return f" Its own {head} leaves the clamped network at {record.clamped.nll:.4f}." if is_short else ""
    if effect.side == "better" or own == "worse":
        word = "worse" if own == "worse" else "no better"
        return f" But its {head} leaves the clamped network {word} than {numbers}."
    return f" With its {head}, the clamped network is better than {numbers} all the same." if own == "better" else ""


def _answer_without_delta(record: ClampingEvaluation) -> str:
    at = "" if record.temperature is None else f" (T = {record.temperature:.3f})"
    focal = " by the focal loss" if record.summary.gamma > 0 else ""
    head = f"{_head(record.head)}{focal}{at}"
    best, differences = record.find(TEMPERATURE), record.clamped.differences.get(TEMPERATURE)
    though = ""
    if focal and best is not None and differences is not None and differences["nll"].side == "worse":
        though = f" By the log-loss it would be better: {best.nll:.4f} instead of {record.clamped.nll:.4f}."
    if record.summary.settings.get("strength") == math.inf:
        return f"δ was held at 0, as requested: this is {head}.{though}"
    if record.summary.outcome is ClampingOutcome.cross_validation_failed:
        return f"Whether δ helps is unknown, because it could not be tried: this is {head}, with δ = 0.{though}"
    if record.is_no_better_than_uncalibrated:
        return f"δ does not help here, and neither does {head} clearly.{though}"
    return f"δ does not help here: use {head}, with δ = 0.{though}"


def _head(name: str) -> str:
    """Return what a sentence calls a head without δ."""
    if name == TEMPERATURE:
        return "temperature scaling"
    return "the uncalibrated network" if name == UNCALIBRATED else f"{name} alone"


def _effect(record: ClampingEvaluation) -> list[str]:
    """Return the changes in log-loss, calibration error and accuracy by δ alone, with their intervals."""
    if record.effect is None:
        return []
    head = "T" if record.temperature is not None else record.head
    how = "with no head" if record.head == UNCALIBRATED else f"with the best {head} both times"
    parts = []
    for name, title in (("nll", "log-loss"), ("ece", "ECE"), ("accuracy", "accuracy")):
        change = record.effect[name]
        by = points_words(change) if name == "accuracy" else difference_words(change)
        doubt = ", too little to matter" if change.is_significant else ", noise"
        parts.append(f"{title} {by}{doubt if change.side == 'alike' else ''}")
    return [f"δ alone, {how}: {'; '.join(parts)}."]


def _temperature_alone(record: ClampingEvaluation) -> list[str]:
    """Return the effect of T alone, where T is not the best temperature."""
    alone, best, refitted = (record.find(name) for name in ("T* only", TEMPERATURE, REFITTED))
    if alone is None or best is None or refitted is None:
        return []
    assert refitted.map is not None, "a fitted method has a map"
    with_delta = difference_words(record.clamped.differences[REFITTED]["nll"])
    without = difference_words(alone.differences[TEMPERATURE]["nll"])
    optimum = float(refitted.map.get_buffer("temperature"))
    text = f"T alone: it is {record.temperature:.3f}, and {optimum:.3f} would be the best with δ, so the log-loss is"
    return [f"{text} {with_delta}; without δ it is {without} than that of temperature scaling."]


def _cross_validated(summary: ClampingSummary) -> list[str]:
    """Return how the strength was chosen, and how reliable its held-out gain is."""
    if not summary.trials:
        return []
    best = min(summary.trials, key=lambda trial: trial.change)
    chosen = next((trial for trial in summary.trials if trial.strength == summary.strength), best)
    n, which = len(summary.trials), "best" if math.isinf(summary.strength) else "chosen one"
    strength = f"the {which} of {n} strengths" if n > 1 else "the one strength tried"
    change = f"{chosen.change:+z.4f} ± {chosen.standard_error:.4f} (standard error) against δ = 0"
    last = (
        f". That is optimistic, as it was chosen from {n} on the same folds; the test samples decide" if n > 1 else ""
    )
    text = f"Cross-validated on the calibration samples, {strength}, λ = {chosen.strength:.3g} per sample,"
    return [f"{text} changes the log-loss by {change}{last}."]


def _gains(record: ClampingEvaluation) -> list[str]:
    """Return the log-loss of the clamped network against the others, but for the effect of δ alone."""
    stated = record.without_delta if record.with_delta == CLAMPED else None
    parts = [
        f"{difference_words(change['nll'])} than that of {_head(baseline)}"
        for baseline, change in reversed(record.clamped.differences.items())
        if baseline not in {stated, REFITTED}
    ]
    return [f"The log-loss of the clamped network is {joined(parts)}."] if parts else []


def _next_steps(record: ClampingEvaluation) -> list[str]:
    """Return recommendations, most urgent first; if the data split is suspect, only that."""
    if record.cautions:
        return ["Resolve the warning above first, then clamp again: the answer may change."]
    steps = [_next_step(record)]
    if Caveat.weakest_strength in record.summary.caveats:
        weaker = ",".join(f"{record.summary.strength / by:.2g}" for by in (1, 10, 100))
        steps.append(f"Try weaker strengths as well: --strength {weaker}.")
    return steps


def _next_step(record: ClampingEvaluation) -> str:
    differences, effect = record.clamped.differences.get(TEMPERATURE), record.effect
    helps = effect is not None and effect["nll"].side == "better"
    lost = {"worse", "alike"} if record.has_delta else {"worse"}
    is_beaten = differences is not None and differences["nll"].side in lost
    if not record.has_delta and not is_beaten and record.is_no_better_than_uncalibrated:
        return "Leave the network uncalibrated, or evaluate on more test samples."
    if (helps or not record.has_delta) and not is_beaten:
        if differences is not None and record.clamped.differences.get(REFITTED, differences)["nll"].side == "worse":
            return f"Clamp {_BY_LOG_LOSS}; or deploy what there is, clamped.safetensors."
        is_costly = effect is not None and effect["accuracy"].side == "worse"
        deploy = "eploy clamped.safetensors: load_clamped(path, network) returns the network with δ and head."
        return f"If a lower accuracy is acceptable, d{deploy}" if is_costly else f"D{deploy}"
    return f"Use {_head(record.baseline)}{_alternative(record, helps=helps)}."


def _alternative(record: ClampingEvaluation, *, helps: bool) -> str:
    if not record.has_delta:
        return " by the log-loss (--gamma 0)" if record.summary.gamma > 0 else ""
    if record.find(REFITTED) is not None:
        return f", or clamp {_BY_LOG_LOSS}"
    if helps:
        return ", or clamp with another head"
    if record.summary.trials:
        return ", or more calibration samples, or a δ of fewer numbers (--delta-shape)"
    return ", or let cross-validation choose the strength of the penalty on δ (--strength path)"
