"""The report of a clamped network: whether δ helps, what it gains, what it costs, and what to use."""

import math
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from calibrant.clamping import CLAMPED, REFITTED, ClampingEvaluation, ClampingOutcome, ClampingSummary, clamping_metrics
from calibrant.comparison import TEMPERATURE, UNCALIBRATED, MethodResult
from calibrant.errors import Caveat
from calibrant.evidence import Difference, Estimate
from calibrant.maps import Scale
from calibrant.report.comparison import (
    accuracy_words,
    difference_text,
    difference_words,
    held_out_facts,
    held_out_fields,
    held_out_settings,
    method_fields,
    method_name,
    method_notes,
    points_words,
    separation_words,
)
from calibrant.report.json import document
from calibrant.report.page import (
    INFLATED,
    Cell,
    Page,
    Row,
    Section,
    Table,
    Tone,
    Verdict,
    arrow,
    counted,
    marked,
    number_text,
    p_text,
    percent_text,
    sentence,
    table,
)

__all__ = ["clamping_page", "clamping_verdict"]

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
    found: ClampingEvaluation,
    *,
    network: str | None = None,
    calibration: PurePath | None = None,
    test: PurePath | None = None,
) -> Page:
    """Return the report of a clamped network.

    Args:
        found: The numbers.
        network: Where the network came from.
        calibration: File of the calibration samples.
        test: File of the test samples.
    """
    trials = [Section("Strengths tried on the calibration samples", (_trials(found.summary),))]
    return Page(
        title="Neural Clamping",
        source=f"{calibration.name} → {test.name}" if calibration and test else None,
        facts=held_out_facts(found),
        verdict=clamping_verdict(found),
        tone=_tone(found),
        brief=(Section("", (_brief(found),), legend=_LEGEND),),
        more="All metrics and differences, δ and the head apart, the strengths tried, the fit",
        sections=(
            Section("Metrics and differences", (_values(found), _differences(found)), legend=_LEGEND),
            *([Section("δ and the head apart", (_apart(found),), legend=_apart_legend(found))] if found.parts else []),
            *(trials if found.summary.trials else []),
            Section("The fit", items=tuple(_facts(found))),
        ),
        notes=(*method_notes([*found.failures, *found.methods[:-1], *found.parts]), *_fit_notes(found.summary)),
        settings=held_out_settings(found),
        footer=INFLATED,
        data=lambda: _document(found, network, calibration, test),
    )


def _tone(found: ClampingEvaluation) -> Tone:
    if found.cautions or (found.has_delta and found.effect is None):
        return "open"
    if found.effect is None:
        return "neutral"
    tones: dict[str, Tone] = {"better": "good", "worse": "bad"}
    return tones.get(found.effect["nll"].side, "neutral")


def _document(
    found: ClampingEvaluation, network: str | None, calibration: PurePath | None, test: PurePath | None
) -> dict[str, Any]:
    """Return the JSON report.

    ``methods[i]`` has ``name``, ``title``, ``failure``, ``metrics.<name>`` as in an evaluation,
    ``differences.<baseline>.<metric>`` as in a comparison, ``changed``, ``seconds`` and ``notes``; so have the
    ``parts``, which separate δ from T, and the ``failures``, which have no numbers. ``delta.effect`` names the two of
    these that differ in δ alone, ``with`` and ``without`` it, and has their ``changes``; it is None where δ is 0 or a
    head had no optimum. ``fit`` is the summary of the clamped model; a ``strength`` of None is an infinite one, δ = 0.
    """
    effect = None
    if found.effect is not None:
        effect = {"with": found.with_delta, "without": found.without_delta, "changes": found.effect}
    return document(
        "calibrant.clamping/1",
        {
            **held_out_fields(found, calibration=calibration, test=test),
            "network": network,
            "verdict": clamping_verdict(found),
            "delta": {"norm": found.norm, "largest": found.largest, "effect": effect},
            "temperature": found.temperature,
            "head": found.head,
            "methods": [method_fields(method) for method in found.methods],
            "parts": [method_fields(method) for method in found.parts],
            "failures": [method_fields(method) for method in found.failures],
            "fit": found.summary.as_dict(),
        },
    )


# Tables.


def _brief(found: ClampingEvaluation) -> Table:
    """Return the metrics that matter most, and the first pair of methods compared."""
    name, baseline = _pairs(found)[0]
    method = found.find(name)
    assert method is not None, "only methods with metrics are compared"
    rows: list[Row] = []
    for metric in clamping_metrics():
        if metric.name in _BRIEF:
            change = method.differences[baseline][metric.name]
            values = [number_text(other.metrics[metric.name].value) for other in found.methods]
            compared = marked(difference_text(change), change.side)
            rows.append([arrow(metric.name, metric.lower_is_better), *values, compared, p_text(change.p)])
    names = [method_name(other.name) for other in found.methods]
    return table(["metric", *names, f"{name} − {method_name(baseline)}", "p"], rows)


def _pairs(found: ClampingEvaluation) -> list[tuple[str, str]]:
    """Return the methods to compare: the pair that isolates δ first, then the clamped network and every other."""
    first = [(found.with_delta, found.without_delta)] if found.with_delta and found.without_delta else []
    return list(dict.fromkeys([*first, *((CLAMPED, baseline) for baseline in reversed(found.clamped.differences))]))


def _values(found: ClampingEvaluation) -> Table:
    """Return each metric with its interval, for every method."""
    rows: list[Row] = [
        [arrow(metric.name, metric.lower_is_better), *(_value(method.metrics[metric.name]) for method in found.methods)]
        for metric in clamping_metrics()
    ]
    return table(["metric", *(method_name(method.name) for method in found.methods)], rows)


def _value(estimated: Estimate) -> str:
    if math.isnan(estimated.low):
        return number_text(estimated.value)
    return f"{number_text(estimated.value)} ({number_text(estimated.low)} … {number_text(estimated.high)})"


def _differences(found: ClampingEvaluation) -> Table:
    """Return the paired differences of every pair."""
    compared = _pairs(found)
    rows: list[Row] = []
    for metric in clamping_metrics():
        row: list[Cell | str] = [metric.name]
        for name, baseline in compared:
            method = found.find(name)
            assert method is not None, "only methods with metrics are compared"
            change = method.differences[baseline][metric.name]
            row += [marked(difference_text(change), change.side), p_text(change.p)]
        rows.append(row)
    headings = [text for name, baseline in compared for text in (f"{name} − {method_name(baseline)}", "p")]
    return table(["metric", *headings], rows)


def _apart(found: ClampingEvaluation) -> Table:
    """Return the metrics with δ and without, each with its head."""
    has_temperature = found.temperature is not None
    rows: list[Row] = []
    for method in (found.find(found.head), *found.parts, found.clamped):
        if method is not None:
            delta = "δ*" if method.name in {CLAMPED, REFITTED} else "0"
            temperature = [f"{_temperature(found, method):.4f}"] if has_temperature else []
            values = [_value(method.metrics[name]) for name in ("nll", "ece", "accuracy")]
            rows.append([Cell(method_name(method.name), code=True), delta, *temperature, *values])
    return table(["", "δ", *["T"] * has_temperature, "nll ↓", "ece ↓", "accuracy ↑"], rows)


def _temperature(found: ClampingEvaluation, method: MethodResult) -> float:
    fitted = float(method.map.temperature) if isinstance(method.map, Scale) else found.temperature
    assert fitted is not None, "the head is a temperature"
    return fitted


def _apart_legend(found: ClampingEvaluation) -> str:
    return " ".join(_PARTS[method.name] for method in found.parts)


def _trials(summary: ClampingSummary) -> Table:
    """Return every strength tried, from an infinite one (δ = 0) to the weakest."""
    rows: list[Row] = [[_strength("∞ (δ = 0)", is_chosen=math.isinf(summary.strength)), "0", "0"]]
    for trial in summary.trials:
        change = f"{trial.change:+.5f} ± {trial.standard_error:.5f}"
        is_chosen = trial.strength == summary.strength
        rows.append([_strength(f"{trial.strength:.3g}", is_chosen=is_chosen), change, f"{trial.norm:.3g}"])
    header = ["λ per sample", "change of held-out log-loss (± standard error)", "‖δ‖"]
    return table(header, rows)


def _strength(text: str, *, is_chosen: bool) -> Cell:
    return Cell(text, bold=is_chosen, mark="←" * is_chosen)


def _facts(found: ClampingEvaluation) -> list[str]:
    summary, certificate = found.summary, found.summary.certificate
    size = f"‖δ‖ = {found.norm:.4g}" if found.has_delta else "δ = 0"
    facts = [f"head: {method_name(found.head)}, {size}"]
    if found.temperature is not None:
        facts.append(f"T = {found.temperature:.4f}")
    facts.append(f"λ = {summary.strength:.4g} per sample, γ = {summary.gamma:g}; {summary.seconds:.3g} s")
    if certificate is not None:
        facts.append(
            f"objective {certificate.objective:.5f}, gradient {certificate.gradient:.1e} after "
            f"{certificate.passes:.0f} passes over {counted(summary.n_samples, 'sample')}"
        )
    return facts


def _fit_notes(summary: ClampingSummary) -> list[str]:
    """Return the notes of the fit, without the outcome of cross-validation, which the verdict has."""
    is_stated = summary.outcome in {ClampingOutcome.helps, ClampingOutcome.no_help}
    return list(summary.notes[1:] if is_stated else summary.notes)


# Words.


def clamping_verdict(found: ClampingEvaluation) -> Verdict:
    """Put the evaluation of a clamped network into words."""
    return Verdict(
        headline=_headline(found),
        findings=[
            *map(sentence, found.cautions),
            *_effect(found),
            *_temperature_alone(found),
            *_cross_validated(found.summary),
            *_gains(found),
            *_changed(found),
            *separation_words(found.clamped),
            *_calibration(found),
            *_size(found),
        ],
        next_steps=_next_steps(found),
    )


def _headline(found: ClampingEvaluation) -> str:
    """Return the answer, with the warnings and caveats that change how it is read."""
    warnings = "".join(f"Warning: {caution.problem}. " for caution in found.cautions)
    answer = _answer(found) if found.has_delta else _answer_without_delta(found)
    caveats = [words for caveat, words in _CAVEATS.items() if caveat in found.summary.caveats]
    return f"{warnings}{answer}" + (f" But {', and '.join(caveats)}." if caveats else "")


def _answer(found: ClampingEvaluation) -> str:
    effect = found.effect
    if effect is None:
        change = found.clamped.differences[found.baseline]["nll"]
        return (
            "Whether δ helps is unknown, because a temperature could not be fitted both with it and without. The "
            f"log-loss of the clamped network is {difference_words(change)} than that of {_head(found.baseline)}, on "
            f"{counted(found.n_test, 'test sample')}."
        )
    return _effect_headline(found, effect) + _against_temperature(found, effect["nll"])


def _effect_headline(found: ClampingEvaluation, effect: Mapping[str, Difference]) -> str:
    """Return whether δ helps, in a sentence."""
    change, answer = effect["nll"], _head(found.baseline)
    after = f"{change.candidate:.4f}{' (T refitted)' if found.with_delta == REFITTED else ''}"
    samples = counted(found.n_test, "test sample")
    numbers = f"from {change.baseline:.4f} ({_head(found.head)}) to {after} on {samples}{_though(effect)}"
    if math.isnan(change.p):
        return f"Whether δ helps is unknown, because the test samples show no spread: the log-loss goes {numbers}."
    if change.side == "better":
        return f"δ helps: it lowers the log-loss {numbers}."
    if change.side == "worse":
        return f"δ does harm here: it raises the log-loss {numbers}. Use {answer}."
    by = "by enough to matter" if change.is_beyond_noise else "beyond noise"
    return f"δ does not change the log-loss {by}, {numbers}: use {answer}, which is simpler."


def _though(effect: Mapping[str, Difference]) -> str:
    """Return what goes the other way."""
    parts = []
    for name, title in (("accuracy", "accuracy"), ("ece", "ECE")):
        change = effect[name]
        if change.side not in {"alike", effect["nll"].side}:
            size = f"{100 * abs(change.value):.2f} points" if name == "accuracy" else f"{abs(change.value):.4f}"
            parts.append(f"{title} {'rises' if change.value > 0 else 'falls'} by {size}")
    return f", though {' and '.join(parts)}" if parts else ""


def _against_temperature(found: ClampingEvaluation, effect: Difference) -> str:
    """Return how the clamped network compares with temperature scaling, where that differs from the effect of δ."""
    differences, temperature = found.clamped.differences.get(TEMPERATURE), found.find(TEMPERATURE)
    if differences is None or temperature is None:
        return ""
    own = differences["nll"].side
    head = "head" if found.temperature is None else f"T = {found.temperature:.3f}"
    numbers = f"temperature scaling ({found.clamped.nll:.4f} against {temperature.nll:.4f})"
    if effect.side == own:
        is_short = own == "better" and found.clamped.differences.get(REFITTED, differences)["nll"].side == "worse"
        return f" Its own {head} leaves the clamped network at {found.clamped.nll:.4f}." if is_short else ""
    if effect.side == "better" or own == "worse":
        word = "worse" if own == "worse" else "no better"
        return f" But its {head} leaves the clamped network {word} than {numbers}."
    return f" With its {head}, the clamped network is better than {numbers} all the same." if own == "better" else ""


def _answer_without_delta(found: ClampingEvaluation) -> str:
    at = "" if found.temperature is None else f" (T = {found.temperature:.3f})"
    focal = " by the focal loss" if found.summary.gamma > 0 else ""
    head = f"{_head(found.head)}{focal}{at}"
    best, differences = found.find(TEMPERATURE), found.clamped.differences.get(TEMPERATURE)
    though = ""
    if focal and best is not None and differences is not None and differences["nll"].side == "worse":
        though = f" By the log-loss it would be better: {best.nll:.4f} instead of {found.clamped.nll:.4f}."
    if found.summary.settings.get("strength") == math.inf:
        return f"δ was held at 0, as requested: this is {head}.{though}"
    if found.summary.outcome is ClampingOutcome.untried:
        return f"Whether δ helps is unknown, because it could not be tried: this is {head}, with δ = 0.{though}"
    if found.is_no_better_than_uncalibrated:
        return f"δ does not help here, and neither does {head} clearly.{though}"
    return f"δ does not help here: use {head}, with δ = 0.{though}"


def _head(name: str) -> str:
    """Return what a sentence calls a head without δ."""
    if name == TEMPERATURE:
        return "temperature scaling"
    return "the uncalibrated network" if name == UNCALIBRATED else f"{name} alone"


def _effect(found: ClampingEvaluation) -> list[str]:
    """Return the changes in log-loss, calibration error and accuracy by δ alone, with their intervals."""
    if found.effect is None:
        return []
    head = "T" if found.temperature is not None else method_name(found.head)
    how = "with no head" if found.head == UNCALIBRATED else f"with the best {head} both times"
    parts = []
    for name, title in (("nll", "log-loss"), ("ece", "ECE"), ("accuracy", "accuracy")):
        change = found.effect[name]
        by = points_words(change) if name == "accuracy" else difference_words(change)
        doubt = ", too little to matter" if change.is_beyond_noise else ", noise"
        parts.append(f"{title} {by}{doubt if change.side == 'alike' else ''}")
    return [f"δ alone, {how}: {'; '.join(parts)}."]


def _temperature_alone(found: ClampingEvaluation) -> list[str]:
    """Return what T does by itself, where it is not the best one."""
    alone, best, refitted = (found.find(name) for name in ("T* only", TEMPERATURE, REFITTED))
    if alone is None or best is None or refitted is None:
        return []
    assert refitted.map is not None, "a fitted method has a map"
    with_delta, without = (
        difference_words(change["nll"])
        for change in (found.clamped.differences[REFITTED], alone.differences[TEMPERATURE])
    )
    optimum = float(refitted.map.get_buffer("temperature"))
    text = f"T alone: it is {found.temperature:.3f}, and {optimum:.3f} would be the best with δ, so the log-loss is"
    return [f"{text} {with_delta}; without δ it is {without} than that of temperature scaling."]


def _cross_validated(summary: ClampingSummary) -> list[str]:
    """Return how the strength was chosen, and how much that number is worth."""
    if not summary.trials:
        return []
    best = min(summary.trials, key=lambda trial: trial.change)
    chosen = next((trial for trial in summary.trials if trial.strength == summary.strength), best)
    n, which = len(summary.trials), "best" if math.isinf(summary.strength) else "chosen"
    strength = f"the {which} of {n} strengths" if n > 1 else "the one strength tried"
    change = f"{chosen.change:+.4f} ± {chosen.standard_error:.4f} (standard error) against δ = 0"
    last = (
        f". That is optimistic, as it was chosen from {n} on the same folds; the test samples decide" if n > 1 else ""
    )
    text = f"Cross-validated on the calibration samples, {strength}, λ = {chosen.strength:.3g} per sample,"
    return [f"{text} changes the log-loss by {change}{last}."]


def _gains(found: ClampingEvaluation) -> list[str]:
    """Return the log-loss of the clamped network against the others, but for the effect of δ alone."""
    stated = found.without_delta if found.with_delta == CLAMPED else None
    parts = [
        f"{difference_words(change['nll'])} than that of {_head(baseline)}"
        for baseline, change in reversed(found.clamped.differences.items())
        if baseline not in {stated, REFITTED}
    ]
    joined = ", ".join([*parts[:-2], " and ".join(parts[-2:])])
    return [f"The log-loss of the clamped network is {joined}."] if parts else []


def _changed(found: ClampingEvaluation) -> list[str]:
    """Return how many predictions change, and the accuracy where δ alone does something else to it."""
    if found.effect is None or found.without_delta not in {TEMPERATURE, UNCALIBRATED}:
        return accuracy_words(found.clamped)
    return [f"It changes the predicted class of {percent_text(found.clamped.changed)} of samples."]


def _calibration(found: ClampingEvaluation) -> list[str]:
    """Return the calibration error, where the effect of δ alone does not have it."""
    if found.effect is not None:
        return []
    others = [f"{method.metrics['ece'].value:.4f} of {method_name(method.name)}" for method in found.methods[:-1]]
    return [f"Its ECE is {found.clamped.metrics['ece'].value:.4f}, against {', '.join(others)}."]


def _size(found: ClampingEvaluation) -> list[str]:
    if not found.has_delta:
        return []
    at = "" if found.temperature is None else f", and T = {found.temperature:.3f}"
    return [f"‖δ‖ is {found.norm:.4g}, its largest entry {found.largest:.4g} in the network's own units{at}."]


def _next_steps(found: ClampingEvaluation) -> list[str]:
    """Return recommendations, most urgent first; if the data split is suspect, only that."""
    if found.cautions:
        return ["Resolve the warning above first, then clamp again: the answer may change."]
    steps = [_next_step(found)]
    if Caveat.weakest_strength in found.summary.caveats:
        weaker = ",".join(f"{found.summary.strength / by:.2g}" for by in (1, 10, 100))
        steps.append(f"Try weaker strengths as well: --strength {weaker}.")
    return steps


def _next_step(found: ClampingEvaluation) -> str:
    differences, effect = found.clamped.differences.get(TEMPERATURE), found.effect
    helps = effect is not None and effect["nll"].side == "better"
    lost = {"worse", "alike"} if found.has_delta else {"worse"}
    is_beaten = differences is not None and differences["nll"].side in lost
    if not found.has_delta and not is_beaten and found.is_no_better_than_uncalibrated:
        return "Leave the network uncalibrated, or evaluate on more test samples."
    if (helps or not found.has_delta) and not is_beaten:
        if differences is not None and found.clamped.differences.get(REFITTED, differences)["nll"].side == "worse":
            return f"Clamp {_BY_LOG_LOSS}; or deploy what there is, clamped.safetensors."
        is_costly = effect is not None and effect["accuracy"].side == "worse"
        deploy = "eploy clamped.safetensors: load_clamped(path, network) returns the network with δ and head."
        return f"If a lower accuracy is acceptable, d{deploy}" if is_costly else f"D{deploy}"
    return f"Use {_head(found.baseline)}{_alternative(found, helps=helps)}."


def _alternative(found: ClampingEvaluation, *, helps: bool) -> str:
    if not found.has_delta:
        return " by the log-loss (--gamma 0)" if found.summary.gamma > 0 else ""
    if found.find(REFITTED) is not None:
        return f", or clamp {_BY_LOG_LOSS}"
    if helps:
        return ", or clamp with another head"
    if found.summary.trials:
        return ", or more calibration samples, or a δ of fewer numbers (--freedom)"
    return ", or let cross-validation choose the strength of the penalty on δ (--strength path)"
