"""The report of a diagnosis: trained networks side by side over losses and seeds, on both sides of calibration."""

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from calibrant import catalogue
from calibrant.diagnosis import (
    Band,
    CandidateVerdict,
    CoefficientCurve,
    Diagnosis,
    Direction,
    EpochCurves,
    LearnedGroup,
    Refinement,
    RefinementRow,
    SizePoint,
)
from calibrant.diagnosis.calibratability import NOT_AN_IDENTITY, ORACLE, SEPARATION
from calibrant.diagnosis.evaluated import TEMPERATURE, UNCALIBRATED
from calibrant.evidence import Side
from calibrant.report.candidate_verdict import baseline_words, basis_words, verdict_words
from calibrant.report.json import document
from calibrant.report.page import (
    INFLATED,
    Cell,
    Page,
    Row,
    Section,
    Table,
    Verdict,
    arrow,
    counted,
    p_text,
    sentence,
    table,
)
from calibrant.report.shift import RUN_TEST, brief_shift_sections, shift_section, shift_sentences
from calibrant.report.spread import SeedCell, direction_text, map_name, short_text, spread_text

__all__ = ["candidate_words", "diagnosis_notes", "diagnosis_page", "diagnosis_verdict"]

_DRAWN = ("confidence", "right", "wrong")  # of a density: hundreds of points that only a figure needs
_FEW = 2  # runs whose deviation says little about their noise
_ALL_EPOCHS, _MOST_EPOCHS = 10, 7  # columns: so many are shown without a gap, and so many of more
_LEARNED = "#.4g"  # a weight decay may be of any size
_TERMS = {
    "reliability": "reliability", "resolution": "resolution", "uncertainty": "uncertainty", "refinement": "refinement",
    "alpha": "α", "beta": "β", "gamma": "γ", "equation_9": "α − β − γ (eq. 9)", "ece": "ece",
    "confidence_minus_accuracy": "confidence − accuracy", "overconfident_bins": "bins not underconfident",
}  # fmt: skip


def diagnosis_page(found: Diagnosis, *, source: str | None = None) -> Page:
    """Return the report of a diagnosis.

    Args:
        found: The numbers.
        source: Where the runs came from.
    """
    runs, candidates = sum(len(each.seeds) for each in found.candidates), len(found.candidates)
    trained = (
        f"{counted(runs, 'run')} of {counted(candidates, 'candidate')}" if runs > candidates else counted(runs, "run")
    )
    return Page(
        title="Diagnosis",
        source=source,
        facts=f"{trained}, {counted(found.n, 'test sample')}",
        verdict=diagnosis_verdict(found),
        brief=(
            Section("", (_brief(found),), legend=_brief_legend(found)),
            *([] if found.shift is None else brief_shift_sections(found.shift)),
        ),
        more="All metrics, decompositions, curves and tests",
        sections=(
            Section("Calibratability: the ECE that a map leaves", (_calibratability(found),), legend=_legend(found)),
            Section(
                "Refinement: does confidence separate right from wrong?", (_refinement(found),), legend=_REFINEMENT
            ),
            *_splits(found),
            Section("Murphy's decomposition, and the terms of equation 9", (_terms(found),), legend=_EQUATION_9),
            Section("Direction of miscalibration", (_directions(found),), legend=_DIRECTION),
            *_curves(found),
            *([] if found.shift is None else [shift_section(found.shift)]),
            *_tests(found),
            Section("Runs", (_runs(found),)),
        ),
        notes=tuple(diagnosis_notes(found)),
        settings=f"{found.n_bins} bins; {found.resamples} resamples; seed {found.seed}",
        footer=INFLATED,
        data=lambda: _document(found),
    )


def _document(found: Diagnosis) -> dict[str, Any]:
    """Return the JSON report.

    ``verdict`` has the words; the rest are the fields of :class:`~calibrant.diagnosis.Diagnosis` under their names, but
    for ``bins``. A number over runs has ``mean``, ``std``, ``lowest``, ``highest`` and ``values``, one per run.
    Densities are left out, except for their medians.
    """
    plain = found.as_dict()
    for candidate in plain["refinement"]:
        for row in candidate["rows"]:
            for name in _DRAWN if row["density"] is not None else ():
                del row["density"][name]
    for verdict, fields in zip(found.verdicts, plain["verdicts"], strict=True):
        fields["words"], fields["basis"] = candidate_words(found, verdict)
    bins = plain.pop("n_bins")
    return document("calibrant.diagnosis/1", {"verdict": diagnosis_verdict(found), "bins": bins, **plain})


class _OfCandidate(Protocol):
    @property
    def candidate(self) -> str: ...


_Found = TypeVar("_Found", bound=_OfCandidate)
_Any = TypeVar("_Any")


def _in_order(found: Diagnosis, records: Iterable[_Found]) -> list[_Found]:
    """Return the records with that of the baseline first."""
    return sorted(records, key=lambda one: one.candidate != found.baseline)


def _rows(found: Diagnosis) -> list[tuple[Refinement, RefinementRow]]:
    return [(one, row) for one in _in_order(found, found.refinement) for row in one.rows]


def _name(candidate: str) -> Cell:
    return Cell(candidate, code=True)


# Tables.


def _brief(found: Diagnosis) -> Table:
    """Return the numbers of each candidate that matter most."""
    accuracies = {verdict.candidate: verdict.accuracy for verdict in found.verdicts}
    refinements = {one.candidate: one.rows[0] for one in found.refinement}
    gaps = {one.candidate: one for one in found.directions if one.map == UNCALIBRATED}
    rows: list[Row] = []
    for one in _in_order(found, found.calibratability):
        row = refinements[one.candidate]
        cells = [
            SeedCell(one.accuracy, difference=accuracies.get(one.candidate)),
            *(SeedCell(one.ece[m], one.t_tests.get(m), one.differences.get(m)) for m in (UNCALIBRATED, TEMPERATURE)),
            SeedCell(one.optimal_ece, one.t_tests.get(ORACLE)),
            SeedCell(row.metrics["auroc"], row.t_tests.get("auroc"), row.auroc_difference),
        ]
        gap = gaps[one.candidate].gap.mean
        rows.append([_name(one.candidate), *map(_mean, cells), "–" if math.isnan(gap) else f"{gap:+.4f}"])
    header = ["candidate", "accuracy", "ece", "ece, temperature", "ece, optimal", "auroc", "confidence − accuracy"]
    return table(header, rows)


def _mean(cell: SeedCell) -> Cell:
    mean = cell.spread.mean
    return Cell("–" if math.isnan(mean) else f"{mean:.4f}", cell.side, cell.marks)


def _brief_legend(found: Diagnosis) -> str:
    seeds = "Means over seeds. " if any(len(each.seeds) > 1 for each in found.candidates) else ""
    return f"{seeds}optimal: the lowest ECE of any temperature, an oracle's. {_marks(found)}".strip()


def _calibratability(found: Diagnosis) -> Table:
    accuracies = {verdict.candidate: verdict.accuracy for verdict in found.verdicts}
    errors = ["ece ↓" if name == UNCALIBRATED else f"ece, {name} ↓" for name in found.maps]
    rows: list[Row] = []
    for one in _in_order(found, found.calibratability):
        cells = [
            SeedCell(one.accuracy, difference=accuracies.get(one.candidate)).cell(),
            *(SeedCell(one.ece[m], one.t_tests.get(m), one.differences.get(m)).cell() for m in found.maps),
            SeedCell(one.optimal_ece, one.t_tests.get(ORACLE)).cell(),
            SeedCell(one.temperature).cell(3),
            SeedCell(one.oracle_temperature).cell(3),
        ]
        rows.append([_name(one.candidate), *cells])
    return table(["candidate", "accuracy ↑", *errors, "optimal ↓", "T", "optimal T"], rows)


def _refinement(found: Diagnosis) -> Table:
    rows: list[Row] = []
    for one, row in _rows(found):
        cells = [
            SeedCell(row.metrics[m], row.t_tests.get(m), row.auroc_difference if m == "auroc" else None).cell()
            for m in SEPARATION
        ]
        rows.append([_name(one.candidate), map_name(row.map), *cells])
    header = ["candidate", "map", *(arrow(name, catalogue.metrics[name].lower_is_better) for name in SEPARATION)]
    return table(header, rows, text=(0, 1))


def _splits(found: Diagnosis) -> list[Section]:
    """Return log-loss and Brier score of the networks, and how much of them a temperature removes."""
    parts = {"": "total", " calibration": "calibration", " refinement": "refinement"}
    rows: list[Row] = []
    header: list[str] = []
    for one in _in_order(found, found.refinement):
        if one.splits:
            cells = [spread_text(getattr(split, field)) for split in one.splits.values() for field in parts.values()]
            header = ["candidate", *(f"{score}{part}" for score in one.splits for part in parts)]
            rows.append([_name(one.candidate), *cells])
    if not rows:
        return []
    legend = (
        "By a temperature that is cross-fitted on the test samples: calibration is what it removes, refinement what it "
        "leaves. A richer map would remove more."
    )
    return [Section("Log-loss and Brier score decomposed", (table(header, rows),), legend=legend)]


def _terms(found: Diagnosis) -> Table:
    rows: list[Row] = []
    for one, row in _rows(found):
        if row.density is not None:
            values = {**row.murphy, **row.terms}
            rows.append([_name(one.candidate), map_name(row.map), *(spread_text(values[name]) for name in _TERMS)])
    return table(["candidate", "map", *_TERMS.values()], rows, text=(0, 1))


def _directions(found: Diagnosis) -> Table:
    lines: dict[str, dict[str, Direction]] = {}
    for one in _in_order(found, found.directions):
        lines.setdefault(one.candidate, {})[one.map] = one
    rows: list[Row] = [
        [_name(candidate), *(direction_text(by_map[name]) for name in found.maps)]
        for candidate, by_map in lines.items()
    ]
    return table(["candidate", *map(map_name, found.maps)], rows)


def _tests(found: Diagnosis) -> list[Section]:
    """Return every comparison of an ECE with the baseline's: on the same samples, and over seeds alone."""
    rows: list[Row] = []
    for one in _in_order(found, found.calibratability):
        for name, change in one.differences.items():
            test = one.t_tests[name]
            rows.append([
                _name(one.candidate), map_name(name), f"{change.value:+.4f}", f"{change.low:+.4f} … {change.high:+.4f}",
                *(p_text(p, resampled=not change.covers_seeds) for p in (change.p, change.corrected_p)),
                "" if test.note is not None else f"{test.t:.2f} ({test.df:.1f})",
                "" if test.note is not None else p_text(test.p, resampled=False),
            ])  # fmt: skip
    header = ["candidate", "map", "difference of ece", "95 % interval", "p", "corrected", "t (df) of runs", "p of runs"]
    title = f"Differences in ECE from {found.baseline}"
    return [Section(title, (table(header, rows, text=(0, 1)),))] if rows else []


def _runs(found: Diagnosis) -> Table:
    rows: list[Row] = [
        [
            _name(one.name),
            one.words,
            ", ".join(map(str, one.seeds)),
            f"{one.calibration_rows:,}",
            ", ".join(one.folders),
        ]
        for one in found.candidates
    ]
    return table(["candidate", "", "seeds", "calibration samples", "folders"], rows, text=(0, 1, 4))


# Curves.


def _curves(found: Diagnosis) -> list[Section]:
    sections = [
        Section(
            f"Over a coefficient: {curve.option} of {curve.loss}", (_coefficient(curve, found),), legend=_COEFFICIENTS
        )
        for curve in found.coefficients
    ]
    if found.validation_sizes:
        draws = counted(found.validation_sizes[0].draws, "draw")
        legend = (
            f"ECE after maps fitted on so many calibration samples, mean over runs and {draws}; the last column is all "
            "of them, once."
        )
        sections.append(Section("How many calibration samples a map needs", _sizes(found), legend=legend))
    if found.epochs:
        sections.append(Section("Optimal ECE over epochs", _epochs(found), legend=_EPOCHS))
    if losses := _learned_losses(found):
        sections.append(Section("Parameters of learned losses", losses, legend=_LOSSES))
    if found.learned_epochs:
        sections.append(Section("When samples were learned", (_learned(found),), legend=_LEARNED_SAMPLES))
    return sections


def _coefficient(curve: CoefficientCurve, found: Diagnosis) -> Table:
    rows: list[Row] = [
        [
            f"{point.value:g}",
            *(spread_text(point.ece[name]) for name in found.maps),
            spread_text(point.optimal_ece),
            spread_text(point.temperature, 3),
            spread_text(point.accuracy),
        ]
        for point in curve.points
    ]
    return table([curve.option.rpartition(".")[2], *map(map_name, found.maps), "optimal", "T", "accuracy"], rows)


def _sizes(found: Diagnosis) -> tuple[Table, ...]:
    """Return a table for each set of numbers of calibration samples."""
    tables = []
    for members in _grouped(_in_order(found, found.validation_sizes), lambda one: tuple(p.rows for p in one.points)):
        rows: list[Row] = [
            [_name(one.candidate), name, *(_size_text(point, name) for point in one.points)]
            for one in members
            for name in found.maps[1:]
        ]
        header = ["candidate", "map", *(counted(point.rows, "sample") for point in members[0].points)]
        tables.append(table(header, rows, text=(0, 1)))
    return tuple(tables)


def _size_text(point: SizePoint, name: str) -> str:
    spread, failed = point.ece[name], point.failed[name]
    if math.isnan(spread.mean):
        return "–"
    fits = len(spread.values) - failed
    text = f"{spread.mean:.4f}" + (f" ({spread.lowest:.4f} … {spread.highest:.4f})" if fits > 1 else "")
    return f"{text}, {failed} of {len(spread.values)} not fitted" if failed else text


def _epochs(found: Diagnosis) -> tuple[Table, ...]:
    """Return a table for each set of epochs."""
    tables = []
    for members in _grouped(_in_order(found, found.epochs), lambda one: one.epochs):
        shown = _shown_epochs(members[0])
        rows: list[Row] = []
        for one in members:
            band = one.numbers["optimal_ece"]
            lowest = band.mean[one.epochs.index(one.lowest_epoch)]
            ends = [f"{lowest:.4f}", str(one.lowest_epoch), f"{one.rise:+.4f}"]
            rows.append([_name(one.candidate), *_band_texts(one, band, shown, ".4f"), *ends])
        header = ["candidate", *(f"epoch {epoch}" for epoch in shown), "lowest", "at epoch", "rise to the end"]
        tables.append(table(header, rows))
    return tuple(tables)


def _learned_losses(found: Diagnosis) -> tuple[Table, ...]:
    """Return the parameters that learned losses report, such as the mean γ, over the epochs."""
    tables = []
    learned = [one for one in _in_order(found, found.epochs) if one.learned]
    for members in _grouped(learned, lambda one: one.epochs):
        shown = _shown_epochs(members[0])
        rows: list[Row] = [
            [_name(one.candidate), name, *_band_texts(one, band, shown, _LEARNED)]
            for one in members
            for name, band in one.learned.items()
        ]
        tables.append(table(["candidate", "", *(f"epoch {epoch}" for epoch in shown)], rows, text=(0, 1)))
    return tuple(tables)


def _shown_epochs(curves: EpochCurves) -> list[int]:
    """Return all epochs of a few; of more some, evenly spaced, the first and the last among them."""
    if len(curves.epochs) <= _ALL_EPOCHS:
        return list(curves.epochs)
    step = (len(curves.epochs) - 1) / (_MOST_EPOCHS - 1)
    return [curves.epochs[round(place * step)] for place in range(_MOST_EPOCHS)]


def _band_texts(curves: EpochCurves, band: Band, shown: Sequence[int], form: str) -> list[str]:
    places = [curves.epochs.index(epoch) for epoch in shown]
    ranges = [f" ({band.lowest[place]:{form}} … {band.highest[place]:{form}})" * (curves.runs > 1) for place in places]
    return [f"{band.mean[place]:{form}}{text}" for place, text in zip(places, ranges, strict=True)]


def _learned(found: Diagnosis) -> Table:
    """Return the share of samples and their top logits, by the epochs in which they were learned."""
    rows: list[Row] = [
        [_name(one.candidate), *map(_group_text, one.groups), spread_text(one.rank_correlation, 3)]
        for one in _in_order(found, found.learned_epochs)
    ]
    header = ["candidate", *map(_group_name, found.learned_epochs[0].groups), "rank correlation"]
    return table(header, rows)


def _group_name(group: LearnedGroup) -> str:
    if group.first is None:
        return "never"
    return f"epoch {group.first}" if group.first == group.last else f"epochs {group.first}–{group.last}"


def _group_text(group: LearnedGroup) -> str:
    return f"{group.share:.2f} of samples: {group.mean:.1f} ± {group.std:.1f}" if group.rows else "–"


def _grouped(records: Iterable[_Any], key: Callable[[_Any], Hashable]) -> list[list[_Any]]:
    """Return those with the same key together, in order of first appearance."""
    groups: dict[Hashable, list[_Any]] = {}
    for one in records:
        groups.setdefault(key(one), []).append(one)
    return list(groups.values())


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


def _legend(found: Diagnosis) -> str:
    unusual = [
        f"{name} with {option} {value}"
        for name, options in found.map_settings.items()
        for option, value in options.items()
        if name in catalogue.calibrators and value != catalogue.calibrators[name].settings()[option]
    ]
    seeds = " Mean ± standard deviation over seeds." if any(len(each.seeds) > 1 for each in found.candidates) else ""
    options = f" ({', '.join(unusual)})" if unusual else ""
    legend = (
        f"ECE with {found.n_bins} bins: uncalibrated, then after each map, fitted on the calibration samples"
        f"{options}. optimal: the lowest of any temperature, searched on the test "
        f"samples; an oracle, and no method.{seeds}"
    )
    return f"{legend} {_marks(found)}".strip()


def _marks(found: Diagnosis) -> str:
    """Return what the marks mean; empty where there are none."""
    if not found.verdicts:
        return ""
    covers = {verdict.raw_ece.covers_seeds for verdict in found.verdicts}
    seeds = ", and of seeds where either has several runs" if len(covers) > 1 else " and of seeds" * any(covers)
    corrected = f", corrected for {len(found.verdicts)} comparisons (Holm)" if len(found.verdicts) > 1 else ""
    marks = (
        f"✓ clearly better, ✗ clearly worse than {found.baseline} on the same samples: beyond the noise of samples"
        f"{seeds}{corrected}."
    )
    if not any(test.note is None for each in found.calibratability for test in each.t_tests.values()):
        return marks
    return f"{marks} ▲ higher, ▼ lower than {found.baseline} by {RUN_TEST} (as in Wang et al. 2021)."


# Words.


def diagnosis_verdict(found: Diagnosis) -> Verdict:
    """Put a diagnosis into words: each candidate against the baseline, and what that is based on."""
    words = [candidate_words(found, verdict) for verdict in found.verdicts]
    bases = list(dict.fromkeys(basis for _, basis in words))
    stories = [text if len(bases) == 1 else f"{text} ({basis.rstrip('.')})" for text, basis in words]
    return Verdict(
        headline=_headline(found),
        findings=[
            _baseline_words(found),
            *(stories if len(stories) > 1 else []),
            *(bases if len(bases) == 1 else []),
            *([] if found.shift is None else shift_sentences(found.shift, _baseline(found))),
        ],
        next_steps=_next_steps(found),
    )


def candidate_words(found: Diagnosis, verdict: CandidateVerdict) -> tuple[str, str]:
    """Return the verdict on a candidate in words, and what it is based on."""
    names = {each.name: each.words for each in found.candidates}
    return verdict_words(verdict, names[verdict.candidate], _baseline(found)), basis_words(verdict, found.n)


def _headline(found: Diagnosis) -> str:
    if not found.verdicts:
        return f"One candidate, {_full_name(found)}: there is nothing to compare it with."
    if len(found.verdicts) == 1:
        return candidate_words(found, found.verdicts[0])[0]
    calibrated = _sides(found.verdicts, "ece_after_temperature", "is", "are", "{} calibrated")
    separated = _sides(found.verdicts, "auroc", "separates", "separate", "errors {}")
    return (
        f"{len(found.verdicts)} candidates against {_baseline(found)}: after temperature scaling {calibrated}; "
        f"{separated}."
    )


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


def _baseline_words(found: Diagnosis) -> str:
    mine = next(each for each in found.calibratability if each.candidate == found.baseline)
    auroc = next(each for each in found.refinement if each.candidate == found.baseline).rows[0].metrics["auroc"]
    direction = next(each for each in found.directions if (each.candidate, each.map) == (found.baseline, UNCALIBRATED))
    claim = "" if direction.side == "neither" else f", {direction.side}"
    name = _full_name(found)
    if name != _baseline(found):
        name += f", {_baseline(found)},"
    is_undefined = math.isnan(auroc.mean)
    separation = "no AUROC, as every prediction is right or every one is wrong" if is_undefined else (
        f"AUROC {short_text(auroc.mean)}"
    )  # fmt: skip
    return (
        f"{sentence(name)} itself: accuracy {short_text(mine.accuracy.mean)}, ECE "
        f"{short_text(mine.ece[UNCALIBRATED].mean)}{claim}, after temperature scaling "
        f"{short_text(mine.ece[TEMPERATURE].mean)}, {separation}."
    )


def _next_steps(found: Diagnosis) -> list[str]:
    fewest = min(len(each.seeds) for each in found.candidates)
    steps = []
    if fewest == 1:
        steps.append(
            "One run does not show whether a loss or luck did it: train with more seeds (--seed 0 --seed 1 --seed 2)."
        )
    elif fewest == _FEW:
        steps.append("Two runs say little about their noise: a third seed narrows every interval.")
    steps.append(
        "A map can remove the ECE of a network. Choose by accuracy, by the ECE after a map and by AUROC; then "
        "calibrant compare RUN/calibration.npz RUN/test.npz chooses the map."
    )
    return steps


def _baseline(found: Diagnosis) -> str:
    return baseline_words(_full_name(found))


def _full_name(found: Diagnosis) -> str:
    return next(each.words for each in found.candidates if each.name == found.baseline)


def diagnosis_notes(found: Diagnosis) -> list[str]:
    """Return what runs lack, why maps could not be fitted, and warnings; what candidates share stands once."""
    notes: dict[str, list[str]] = {}
    for one in found.candidates:
        for note in one.notes:
            notes.setdefault(note, []).append(one.name)
    for each in found.calibratability:
        for where, why in each.failures.items():
            notes.setdefault(f"{where}: not fitted, because {why}", []).append(each.candidate)
        for note in each.notes:
            notes.setdefault(note, []).append(each.candidate)
    return [f"{', '.join(candidates)}: {note}" for note, candidates in notes.items()]
