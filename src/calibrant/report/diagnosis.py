"""The report of a diagnosis: trained networks side by side over losses and seeds, on both sides of calibration."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from calibrant import catalogue
from calibrant.diagnosis import Calibratability, CandidateVerdict, CoefficientCurve, Diagnosis, Spread
from calibrant.diagnosis.curves import Band, EpochCurves, LearnedGroup, SizePoint
from calibrant.diagnosis.evaluated import TEMPERATURE, UNCALIBRATED
from calibrant.diagnosis.summaries import NOT_AN_IDENTITY, ORACLE, SEPARATION, Refinement, RefinementRow
from calibrant.evidence import Side
from calibrant.report import candidates, page
from calibrant.report.page import Page, Row, Section, Table, Verdict, code, sentence, table
from calibrant.text import counted, samples_text

_DRAWN = ("confidence", "right", "wrong")  # fields of a density with hundreds of points, which only a figure needs
_ALL_EPOCHS, _MOST_EPOCHS = 10, 7  # most epochs that are all shown, and columns where there are more
_LEARNED = "#.4g"  # a weight decay may be of any size
_TERMS = {
    "reliability": "reliability", "resolution": "resolution", "uncertainty": "uncertainty", "refinement": "refinement",
    "alpha": "α", "beta": "β", "gamma": "γ", "equation_9": "α − β − γ (eq. 9)", "ece": "ece",
    "confidence_minus_accuracy": "confidence − accuracy", "overconfident_bins": "bins not underconfident",
}  # fmt: skip


def diagnosis_page(record: Diagnosis, *, source: str | None = None) -> Page:
    """Return the report of a diagnosis.

    Args:
        record: The numbers.
        source: Where the runs came from.
    """
    runs, names = sum(len(one.seeds) for one in record.candidates), [one.name for one in record.candidates]
    trained = counted(runs, "run") + (f" of {counted(len(names), 'candidate')}" if runs > len(names) else "")
    seeds = "Means over seeds. " if record.has_seeds else ""
    optimal = f"{_predicted_class(record)}optimal: the lowest ECE of any temperature, an oracle's."
    brief = f"{seeds}{optimal} {_marks(record)}".strip()
    refined = "Refinement: does confidence separate right from wrong?"
    return Page(
        title="Diagnosis",
        source=source,
        facts=f"{trained}, {samples_text(record.n, record.effective_n, 'test sample')}",
        verdict=diagnosis_verdict(record),
        number=_number(record),
        brief=(
            Section("", (_brief(record),), legend=brief),
            *([] if record.shift is None else candidates.brief_shift_sections(record.shift)),
        ),
        full_hint="All metrics, decompositions, curves and tests",
        sections=(
            Section("Calibratability: the ECE that a map leaves", (_calibratability(record),), legend=_legend(record)),
            Section(refined, (_refinement(record),), legend=_REFINEMENT),
            *_splits(record),
            Section("Murphy's decomposition, and the terms of equation 9", (_terms(record),), legend=_EQUATION_9),
            Section("Direction of miscalibration", (_directions(record),), legend=_DIRECTION),
            *_curves(record),
            *([] if record.shift is None else [candidates.shift_section(record.shift)]),
            *_tests(record),
            Section("Runs", (_runs(record),)),
        ),
        notes=tuple(diagnosis_notes(record)),
        settings=f"{record.n_bins} bins; {record.resamples} resamples; seed {record.seed}",
        data=lambda: _document(record),
    )


def _number(record: Diagnosis) -> page.KeyNumber:
    """Return the largest difference in ECE after temperature scaling from the baseline; its own ECE if it is alone."""
    changes = {one.candidate: one.ece_after_temperature for one in record.verdicts}
    known = {name: change for name, change in changes.items() if not math.isnan(change.value)}
    if not known:
        ece = next(one for one in record.calibratability if one.candidate == record.baseline).ece[TEMPERATURE]
        lowest = f"runs from {ece.lowest:.4f} to {ece.highest:.4f}" if len(ece.values) > 1 else "one run"
        return page.KeyNumber("ECE after temperature scaling", page.number_text(ece.mean), lowest)
    # Those beyond noise first.
    name = max(known, key=lambda name: (known[name].side != "alike", abs(known[name].value)))
    return page.difference_number(f"ECE after temperature scaling of {name} − {record.baseline}", known[name])


def _document(record: Diagnosis) -> dict[str, Any]:
    """Return the JSON report.

    ``verdict`` has the words; the rest are the fields of :class:`~calibrant.diagnosis.Diagnosis` under their names, but
    for ``classes`` and ``bins``. A number over runs has ``mean``, ``std``, ``lowest``, ``highest`` and ``values``, one
    per run. Densities are left out, except for their medians.
    """
    plain = record.as_dict()
    for candidate in plain["refinement"]:
        for row in candidate["rows"]:
            if row["density"] is not None:
                row["density"] = {name: part for name, part in row["density"].items() if name not in _DRAWN}
    for verdict, fields in zip(record.verdicts, plain["verdicts"], strict=True):
        fields["words"], fields["basis"] = candidate_words(record, verdict)
    fields = {"verdict": diagnosis_verdict(record), "classes": plain.pop("n_classes"), "bins": plain.pop("n_bins")}
    return page.document("calibrant.diagnosis/1", fields | plain)


def in_order(record: Diagnosis, records: Iterable[Any]) -> list[Any]:
    """Return records of candidates with that of the baseline first."""
    return sorted(records, key=lambda one: one.candidate != record.baseline)


def _rows(record: Diagnosis) -> list[tuple[Refinement, RefinementRow]]:
    return [(one, row) for one in in_order(record, record.refinement) for row in one.rows]


# Tables.


def _errors(record: Diagnosis, one: Calibratability, maps: Iterable[str]) -> list[candidates.SeedCell]:
    """Return accuracy, the ECE under each map, and the optimal ECE of a candidate."""
    accuracy = next((verdict.accuracy for verdict in record.verdicts if verdict.candidate == one.candidate), None)
    return [
        candidates.SeedCell(one.accuracy, difference=accuracy),
        *(candidates.SeedCell(one.ece[name], one.t_tests.get(name), one.differences.get(name)) for name in maps),
        candidates.SeedCell(one.optimal_ece, one.t_tests.get(ORACLE)),
    ]


def _brief(record: Diagnosis) -> Table:
    """Return the numbers of each candidate that matter most."""
    refinements = {one.candidate: one.rows[0] for one in record.refinement}
    gaps = {one.candidate: one.gap.mean for one in record.directions if one.map == UNCALIBRATED}
    rows: list[Row] = []
    for one in in_order(record, record.calibratability):
        auroc, gap = _separation(refinements[one.candidate], "auroc"), gaps[one.candidate]
        cells = [cell.mean() for cell in (*_errors(record, one, (UNCALIBRATED, TEMPERATURE)), auroc)]
        rows.append([code(one.candidate), *cells, "–" if math.isnan(gap) else f"{gap:+z.4f}"])
    header = ["candidate", "accuracy", "ece", "ece, temperature", "ece, optimal", "auroc", "confidence − accuracy"]
    return table(header, rows)


def _calibratability(record: Diagnosis) -> Table:
    errors = ["ece ↓" if name == UNCALIBRATED else f"ece, {name} ↓" for name in record.maps]
    rows = [
        [
            code(one.candidate),
            *(cell.cell() for cell in _errors(record, one, record.maps)),
            candidates.spread_text(one.temperature, 3),
            candidates.spread_text(one.oracle_temperature, 3),
        ]
        for one in in_order(record, record.calibratability)
    ]
    return table(["candidate", "accuracy ↑", *errors, "optimal ↓", "T", "optimal T"], rows)


def _separation(row: RefinementRow, metric: str) -> candidates.SeedCell:
    return candidates.SeedCell(
        row.metrics[metric], row.t_tests.get(metric), row.auroc_difference if metric == "auroc" else None
    )


def _refinement(record: Diagnosis) -> Table:
    rows = [
        [code(one.candidate), row.map, *(_separation(row, metric).cell() for metric in SEPARATION)]
        for one, row in _rows(record)
    ]
    header = ["candidate", "map", *(page.arrow(name, catalogue.metrics[name].lower_is_better) for name in SEPARATION)]
    return table(header, rows, text=(0, 1))


def _splits(record: Diagnosis) -> list[Section]:
    """Return log-loss and Brier score of the networks, and how much of them a temperature removes."""
    rows: list[tuple[Sequence[str], Row]] = []
    for one in in_order(record, record.refinement):
        spreads: dict[str, Spread] = {}
        for score, split in one.splits.items():
            spreads |= {score: split.total, f"{score} calibration": split.calibration}
            spreads[f"{score} refinement"] = split.refinement
        if spreads:
            rows.append(
                (["candidate", *spreads], [code(one.candidate), *map(candidates.spread_text, spreads.values())])
            )
    return [Section("Log-loss and Brier score decomposed", _tables(rows), legend=_SPLITS)] if rows else []


def _terms(record: Diagnosis) -> Table:
    rows = [
        [code(one.candidate), row.map, *(candidates.spread_text({**row.murphy, **row.terms}[name]) for name in _TERMS)]
        for one, row in _rows(record)
        if row.density is not None
    ]
    return table(["candidate", "map", *_TERMS.values()], rows, text=(0, 1))


def _directions(record: Diagnosis) -> Table:
    texts = {(one.candidate, one.map): candidates.direction_text(one) for one in record.directions}
    names = dict.fromkeys(one.candidate for one in in_order(record, record.directions))
    rows = [[code(name), *(texts[name, mapping] for mapping in record.maps)] for name in names]
    return table(["candidate", *record.maps], rows)


def _tests(record: Diagnosis) -> list[Section]:
    """Return every comparison of an ECE with the baseline's: on the same samples, and over seeds alone."""
    rows: list[Row] = []
    for one in in_order(record, record.calibratability):
        for name, change in one.differences.items():
            test = one.t_tests[name]
            rows.append([
                code(one.candidate), name, f"{change.value:+z.4f}", page.bounds_text(change.low, change.high),
                *(page.p_text(p, resampled=not change.covers_seeds) for p in (change.p, change.corrected_p)),
                "" if test.note is not None else f"{test.t:.2f} ({test.df:.1f})",
                "" if test.note is not None else page.p_text(test.p, resampled=False),
            ])  # fmt: skip
    header = ["candidate", "map", "difference of ece", "95 % interval", "p", "corrected", "t (df) of runs", "p of runs"]
    title = f"Differences in ECE from {record.baseline}"
    return [Section(title, (table(header, rows, text=(0, 1)),))] if rows else []


def _runs(record: Diagnosis) -> Table:
    rows = [
        [code(one.name), one.words, ", ".join(map(str, one.seeds)), f"{one.calibration_rows:,}", ", ".join(one.folders)]
        for one in record.candidates
    ]
    return table(["candidate", "", "seeds", "calibration samples", "folders"], rows, text=(0, 1, 4))


# Curves.


def _curves(record: Diagnosis) -> list[Section]:
    sections = []
    for curve in record.coefficients:
        title = f"Over a coefficient: {curve.option} of {curve.loss}"
        sections.append(Section(title, (_coefficient(curve, record),), legend=_COEFFICIENTS))
    if record.validation_sizes:
        draws = counted(record.validation_sizes[0].draws, "draw")
        legend = f"{_SIZES} over runs and {draws}; the last column is all of them, once."
        sections.append(Section("How many calibration samples a map needs", _sizes(record), legend=legend))
    if record.epochs:
        sections.append(Section("Optimal ECE over epochs", _epochs(record), legend=_EPOCHS))
    if losses := _learned_losses(record):
        sections.append(Section("Parameters of learned losses", losses, legend=_LOSSES))
    if record.learned_epochs:
        sections.append(Section("When samples were learned", (_learned(record),), legend=_LEARNED_SAMPLES))
    return sections


def _coefficient(curve: CoefficientCurve, record: Diagnosis) -> Table:
    rows: list[Row] = []
    for point in curve.points:
        spreads = (*(point.ece[name] for name in record.maps), point.optimal_ece)
        texts = [*map(candidates.spread_text, spreads), candidates.spread_text(point.temperature, 3)]
        rows.append([f"{point.value:g}", *texts, candidates.spread_text(point.accuracy)])
    return table([curve.option.rpartition(".")[2], *record.maps, "optimal", "T", "accuracy"], rows)


def _tables(rows: Iterable[tuple[Sequence[str], Row]], *, text: Sequence[int] = (0,)) -> tuple[Table, ...]:
    """Return a table for each header, with its rows."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for header, row in rows:
        groups.setdefault(tuple(header), []).append(row)
    return tuple(table(header, members, text=text) for header, members in groups.items())


def _sizes(record: Diagnosis) -> tuple[Table, ...]:
    """Return a table for each set of numbers of calibration samples."""
    rows: list[tuple[Sequence[str], Row]] = []
    for one in in_order(record, record.validation_sizes):
        header = ["candidate", "map", *(counted(point.rows, "sample") for point in one.points)]
        rows += [
            (header, [code(one.candidate), name, *(_size_text(point, name) for point in one.points)])
            for name in record.maps[1:]
        ]
    return _tables(rows, text=(0, 1))


def _size_text(point: SizePoint, name: str) -> str:
    spread, failed, tried = point.ece[name], point.failed[name], len(point.ece[name].values)
    if math.isnan(spread.mean):
        return "–"
    ends = f" ({spread.lowest:.4f} … {spread.highest:.4f})" if tried - failed > 1 else ""
    return f"{spread.mean:.4f}{ends}" + (f", {failed} of {tried} not fitted" if failed else "")


def _epochs(record: Diagnosis) -> tuple[Table, ...]:
    """Return a table for each set of epochs."""
    rows: list[tuple[Sequence[str], Row]] = []
    for one in in_order(record, record.epochs):
        shown, band = _shown_epochs(one), one.numbers["optimal_ece"]
        lowest = band.mean[one.epochs.index(one.lowest_epoch)]
        ends = {"lowest": f"{lowest:.4f}", "at epoch": str(one.lowest_epoch), "rise to the end": f"{one.rise:+z.4f}"}
        header = ["candidate", *(f"epoch {epoch}" for epoch in shown), *ends]
        rows.append((header, [code(one.candidate), *_band_texts(one, band, shown, ".4f"), *ends.values()]))
    return _tables(rows)


def _learned_losses(record: Diagnosis) -> tuple[Table, ...]:
    """Return the parameters that learned losses report, such as the mean γ, over the epochs."""
    rows: list[tuple[Sequence[str], Row]] = []
    for one in in_order(record, record.epochs):
        shown = _shown_epochs(one)
        header = ["candidate", "", *(f"epoch {epoch}" for epoch in shown)]
        rows += [
            (header, [code(one.candidate), name, *_band_texts(one, band, shown, _LEARNED)])
            for name, band in one.learned.items()
        ]
    return _tables(rows, text=(0, 1))


def _shown_epochs(curves: EpochCurves) -> list[int]:
    """Return all epochs of a few; of more some, evenly spaced, the first and the last among them."""
    if len(curves.epochs) <= _ALL_EPOCHS:
        return list(curves.epochs)
    step = (len(curves.epochs) - 1) / (_MOST_EPOCHS - 1)
    return [curves.epochs[round(place * step)] for place in range(_MOST_EPOCHS)]


def _band_texts(curves: EpochCurves, band: Band, shown: Sequence[int], form: str) -> list[str]:
    texts = []
    for place in map(curves.epochs.index, shown):
        ends = f" ({band.lowest[place]:{form}} … {band.highest[place]:{form}})" if curves.runs > 1 else ""
        texts.append(f"{band.mean[place]:{form}}{ends}")
    return texts


def _learned(record: Diagnosis) -> Table:
    """Return the share of samples and their top logits, by the epochs in which they were learned."""
    rows: list[Row] = []
    for one in in_order(record, record.learned_epochs):
        texts = [f"{of.share:.2f} of samples: {of.mean:.1f} ± {of.std:.1f}" if of.rows else "–" for of in one.groups]
        rows.append([code(one.candidate), *texts, candidates.spread_text(one.rank_correlation, 3)])
    header = ["candidate", *map(group_name, record.learned_epochs[0].groups), "rank correlation"]
    return table(header, rows)


def group_name(group: LearnedGroup) -> str:
    """Return the epochs of a group in words."""
    if group.first is None:
        return "never"
    return f"epoch {group.first}" if group.first == group.last else f"epochs {group.first}–{group.last}"


# Legends.

_REFINEMENT = (
    "auroc before and after each map: a temperature hardly changes the order of confidences, bins lose some of it. "
    "aupr and aurc depend on accuracy: compare them among candidates of the same. A map that changes predictions, as "
    "svs does, makes another classifier: its ece and auroc go with its own accuracy."
)
_EQUATION_9 = (
    f"{sentence(NOT_AN_IDENTITY)} Reliability, resolution and uncertainty are Murphy's, of the top-label Brier score; "
    "refinement is uncertainty − resolution."
)
_DIRECTION = (
    "Mean confidence − accuracy: overconfident above 0, underconfident below, neither where the 95 % interval holds 0. "
    "It is also 0 where high confidences claim too much and low ones too little."
)
_SPLITS = (
    "By a temperature that is cross-fitted on the test samples: calibration is what it removes, refinement what it "
    "leaves. A richer map would remove more."
)
_SIZES = "ECE after maps fitted on so many calibration samples, mean"
_COEFFICIENTS = "The best coefficient on this curve is optimistic: it is read off the test samples."
_EPOCHS = (
    "The lowest ECE that any temperature would give on the test samples, after so many epochs: an oracle's. The lowest "
    "of many noisy numbers is too low, so a small rise to the end means nothing."
)
_LOSSES = (
    "After so many epochs; mean over runs, and the range of runs. γ is measured on the held-out calibration samples."
)
_LEARNED_SAMPLES = (
    "Top logits of training samples, by the epoch from which they were predicted correctly to the end. The rank "
    "correlation of epoch and logit is clearly negative where the network still separates hard samples from easy ones."
)


def _legend(record: Diagnosis) -> str:
    unusual = [
        f"{name} with {option} {value}"
        for name, options in record.map_settings.items()
        for option, value in options.items()
        if name in catalogue.calibrators and value != catalogue.calibrators[name].settings()[option]
    ]
    seeds = "Mean ± standard deviation over seeds. " if record.has_seeds else ""
    options = f" ({', '.join(unusual)})" if unusual else ""
    legend = (
        f"ECE with {record.n_bins} bins: uncalibrated, then after each map, fitted on the calibration samples{options}."
        " optimal: the lowest of any temperature, searched on the test samples; an oracle, and no method. "
    )
    return f"{legend}{_predicted_class(record)}{seeds}{_marks(record)}".strip()


def _predicted_class(record: Diagnosis) -> str:
    """Return what the ECE of two classes is of: elsewhere it is that of the positive class."""
    return "The ECE is that of the predicted class. " if record.n_classes == 2 else ""


def _marks(record: Diagnosis) -> str:
    """Return what the marks mean; empty where there are none."""
    if not record.verdicts:
        return ""
    covers = [verdict.raw_ece.covers_seeds for verdict in record.verdicts]
    some = ", and of seeds where either has several runs" if any(covers) else ""
    seeds = " and of seeds" if all(covers) else some
    corrected = f", corrected for {len(record.verdicts)} comparisons (Holm)" if len(record.verdicts) > 1 else ""
    marks = (
        f"✓ clearly better, ✗ clearly worse than {record.baseline} on the same samples: beyond the noise of samples"
        f"{seeds}{corrected}."
    )
    if not any(test.note is None for one in record.calibratability for test in one.t_tests.values()):
        return marks
    return f"{marks} ▲ higher, ▼ lower than {record.baseline} by {candidates.RUN_TEST} (as in Wang et al. 2021)."


# Words.


def diagnosis_verdict(record: Diagnosis) -> Verdict:
    """Put a diagnosis into words: each candidate against the baseline, and what that is based on."""
    words = [candidate_words(record, verdict) for verdict in record.verdicts]
    bases = list(dict.fromkeys(basis for _, basis in words))
    stories = [text if len(bases) == 1 else f"{text} ({basis.rstrip('.')})" for text, basis in words]
    findings = [
        _baseline_words(record),
        *(stories if len(stories) > 1 else []),
        *(bases if len(bases) == 1 else []),
        *([] if record.shift is None else candidates.shift_sentences(record.shift, _baseline(record))),
    ]
    return Verdict(_headline(record), findings, _next_steps(record))


def candidate_words(record: Diagnosis, verdict: CandidateVerdict) -> tuple[str, str]:
    """Return the verdict on a candidate in words, and what it is based on."""
    names = {one.name: one.words for one in record.candidates}
    text = candidates.verdict_words(verdict, names[verdict.candidate], _baseline(record))
    return text, candidates.basis_words(verdict, samples_text(record.n, record.effective_n, "test sample"))


def _headline(record: Diagnosis) -> str:
    if not record.verdicts:
        return f"One candidate, {_full_name(record)}: there is nothing to compare it with."
    if len(record.verdicts) == 1:
        return candidate_words(record, record.verdicts[0])[0]
    calibrated = _sides(record.verdicts, "ece_after_temperature", "is", "are", "{} calibrated")
    separated = _sides(record.verdicts, "auroc", "separates", "separate", "errors {}")
    compared = f"{len(record.verdicts)} candidates against {_baseline(record)}"
    return f"{compared}: after temperature scaling {calibrated}; {separated}."


def _sides(verdicts: Iterable[CandidateVerdict], number: str, one: str, many: str, how: str) -> str:
    """Return ``2 are better calibrated (a, b), 1 is worse calibrated (c)``."""
    sides: dict[Side, list[str]] = {"better": [], "worse": []}
    for verdict in verdicts:
        sides.setdefault(getattr(verdict, number).side, []).append(verdict.candidate)
    parts = [
        f"{len(names)} {one if len(names) == 1 else many} {how.format(side)} ({', '.join(names)})"
        for side, names in sides.items()
        if names and side != "alike"
    ]
    return ", ".join(parts) or f"none {one} {how.format('clearly better or worse')}"


def _baseline_words(record: Diagnosis) -> str:
    mine = next(one for one in record.calibratability if one.candidate == record.baseline)
    auroc = next(one for one in record.refinement if one.candidate == record.baseline).rows[0].metrics["auroc"]
    direction = next(one for one in record.directions if (one.candidate, one.map) == (record.baseline, UNCALIBRATED))
    claim = "" if direction.side == "neither" else f", {direction.side}"
    name = _full_name(record) + ("" if _full_name(record) == _baseline(record) else f", {_baseline(record)},")
    separation = f"AUROC {candidates.short_text(auroc.mean)}"
    if math.isnan(auroc.mean):
        separation = "no AUROC, as every prediction is right or every one is wrong"
    accuracy, before, after = (
        candidates.short_text(spread.mean) for spread in (mine.accuracy, mine.ece[UNCALIBRATED], mine.ece[TEMPERATURE])
    )
    errors = f"ECE {before}{claim}, after temperature scaling {after}"
    name = name if name == record.baseline else sentence(name)
    return f"{name} itself: accuracy {accuracy}, {errors}, {separation}."


def _next_steps(record: Diagnosis) -> list[str]:
    by_seeds = {
        1: "One run does not show whether a loss or luck did it: train with more seeds (--seed 0 --seed 1 --seed 2).",
        2: "Two runs say little about their noise: a third seed narrows every interval.",
    }
    choose = (
        "A map can remove the ECE of a network. Choose by accuracy, by the ECE after a map and by AUROC; then "
        "calibrant compare CALIBRATION TEST, on the two files of predictions of its run, chooses the map."
    )
    fewest = min(len(one.seeds) for one in record.candidates)
    return [*([by_seeds[fewest]] if fewest in by_seeds else []), choose]


def _baseline(record: Diagnosis) -> str:
    return candidates.baseline_words(_full_name(record))


def _full_name(record: Diagnosis) -> str:
    return next(one.words for one in record.candidates if one.name == record.baseline)


def diagnosis_notes(record: Diagnosis) -> list[str]:
    """Return what runs lack, why maps could not be fitted, and warnings; a note of several candidates stands once."""
    notes = [(one.name, note) for one in record.candidates for note in one.notes]
    for one in record.calibratability:
        notes += [(one.candidate, f"{where}: not fitted, because {why}") for where, why in one.failures.items()]
        notes += [(one.candidate, note) for note in one.notes]
    return page.notes_with_names(notes)
