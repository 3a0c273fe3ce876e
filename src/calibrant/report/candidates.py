"""Candidates of a diagnosis: numbers over runs as cells, verdicts in words, and the part about shifted test sets."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from calibrant import diagnosis
from calibrant.diagnosis.evaluated import TEMPERATURE, UNCALIBRATED
from calibrant.diagnosis.over_seeds import RunSide
from calibrant.diagnosis.shift import CLEAN
from calibrant.evidence import Difference, Side
from calibrant.report.page import Cell, Row, Section, Table, bounds_text, code, sentence, table
from calibrant.text import counted

_LONGEST_NAME = 40  # characters of a baseline's name in sentences
_MOST_DIGITS = 5
# Unlike in a comparison, where ▲ is better, the marks are the paper's: higher and lower, and higher is worse.
_OVER_SEEDS: dict[RunSide, str] = {"higher": "▲", "lower": "▼", "alike": ""}
_SIDES: dict[Side, str] = {"better": "✓", "worse": "✗", "alike": ""}
RUN_TEST = "a t-test of runs at .05, not corrected and without the noise of samples"
_OVER_LEVELS = {"ece": "ECE", "gap": "Mean confidence − accuracy", "accuracy": "Accuracy", "auroc": "AUROC"}
_BY_MAP = {"ece", "gap"}
_OF_FILE = ("accuracy", "ece", "nll", "brier", "auroc")


class SeedCell(NamedTuple):
    """A number, and how it compares with the baseline's: over seeds alone, and with the noise of samples too."""

    spread: diagnosis.Spread
    test: diagnosis.TwoSample | None = None
    difference: Difference | None = None

    @property
    def side(self) -> Side:
        return "alike" if self.difference is None else self.difference.side

    def cell(self, text: str | None = None) -> Cell:
        """Return mean and deviation, or another text, with the marks of both tests."""
        marks = ("" if self.test is None else _OVER_SEEDS[self.test.side]) + _SIDES[self.side]
        return Cell(spread_text(self.spread) if text is None else text, self.side, marks)

    def mean(self) -> Cell:
        """Return the mean with the marks."""
        return self.cell("–" if math.isnan(self.spread.mean) else f"{self.spread.mean:.4f}")


def spread_text(spread: diagnosis.Spread, digits: int = 4) -> str:
    """Return mean ± standard deviation over the runs, and how many have the number, if not all.

    Example:
        >>> from calibrant.diagnosis import spread
        >>> spread_text(spread([0.1, 0.3])), spread_text(spread([0.1, math.nan]))
        ('0.2000 ± 0.1414', '0.1000 (1 of 2 runs)')
    """
    if math.isnan(spread.mean):
        return "–"
    text = f"{spread.mean:.{digits}f}"
    if not math.isnan(spread.std):
        text += f" ± {spread.std:.{digits}f}"
    known = sum(not math.isnan(value) for value in spread.values)
    return text if known == len(spread.values) else f"{text} ({known} of {len(spread.values)} runs)"


def short_text(value: float, digits: int = 3) -> str:
    """Return a share as sentences have it, ``.094``; a dash where there is none.

    Example:
        >>> short_text(0.0941), short_text(-0.5), short_text(1.25), short_text(-1e-9), short_text(math.nan)
        ('.094', '-.500', '1.250', '.000', '–')
    """
    if math.isnan(value):
        return "–"
    text = f"{round(value, digits) + 0.0:.{digits}f}"  # + 0.0, because there is no -.000
    return text.replace("0.", ".", 1) if text.lstrip("-").startswith("0.") else text


def signed_text(value: float) -> str:
    """Return a share with its sign."""
    text = short_text(value)
    return text if math.isnan(value) or text.startswith("-") else f"+{text}"


def direction_text(direction: diagnosis.Direction) -> str:
    """Return mean confidence − accuracy with its interval and its side."""
    if math.isnan(direction.gap.mean):
        return "–"
    side = "" if direction.side == "neither" else f", {direction.side}"
    return f"{direction.gap.mean:+z.4f} ({bounds_text(direction.low, direction.high)}){side}"


def verdict_words(verdict: diagnosis.CandidateVerdict, candidate: str, baseline: str) -> str:
    """Return one sentence about a candidate against the baseline; a second if their accuracies differ.

    If both have a single run, the sentence says so: another seed may reverse it.
    """
    raw, scaled, auroc, accuracy = verdict.raw_ece, verdict.ece_after_temperature, verdict.auroc, verdict.accuracy
    numbers = {candidate: (auroc.candidate, accuracy.candidate), baseline: (auroc.baseline, accuracy.baseline)}
    shares = {name: accuracy for name, (auroc, accuracy) in numbers.items() if math.isnan(auroc)}
    how = " or ".join(dict.fromkeys("right" if share > 0.5 else "wrong" for share in shares.values()))
    undefined = f"no AUROC, because all predictions of {' and of '.join(shares)} are {how}" if shares else ""
    if raw.side == scaled.side == auroc.side == "alike":
        missing = "no number after temperature scaling, which could not be fitted"
        after = missing if _is_missing(scaled) else f"after temperature scaling {_pair(scaled, 3)}"
        parts = [f"raw ECE {_pair(raw, 3)}, {after}", undefined or f"AUROC {_pair(auroc, 2)}"]
        text = f"{candidate} and {baseline} do not differ clearly: {', '.join(parts)}."
    else:
        separation = f"; there is {undefined}" if undefined else _auroc_words(raw, scaled, auroc)
        text = f"{_ece_words(candidate, baseline, raw, scaled)}{separation}."
    if not raw.covers_seeds:
        text = f"In single runs, {text}"
    elif candidate != verdict.candidate:  # a name is not capitalised
        text = sentence(text)
    if accuracy.side == "alike":
        return text
    return f"{text} Its accuracy is {'higher' if accuracy.side == 'better' else 'lower'}: {_pair(accuracy, 3)}."


def baseline_words(words: str) -> str:
    """Return what sentences call the baseline: a long name is written once, and not in every one."""
    return words if len(words) <= _LONGEST_NAME else "the baseline"


def basis_words(verdict: diagnosis.CandidateVerdict, samples: str) -> str:
    """Return the runs, test samples and kinds of noise behind a verdict."""
    runs, others, candidates = verdict.runs, verdict.baseline_runs, verdict.n_compared
    if runs == others == 1:
        basis = f"Single runs, on the same {samples}: the noise of samples is known, that of seeds is not."
    else:
        single = ", where a single run is assumed to vary as those of the other side do" if 1 in {runs, others} else ""
        both = f"{counted(runs, 'run')} against {counted(others, 'run')}"
        basis = f"{both}, on the same {samples}: the noise of samples and of seeds{single}."
    return basis if candidates == 1 else f"{basis} Corrected for {candidates} comparisons at once (Holm)."


def _ece_words(candidate: str, baseline: str, raw: Difference, scaled: Difference) -> str:
    """Return the ECE before and after temperature scaling."""
    if raw.side == "alike" and scaled.side == "alike" and not _is_missing(scaled):
        before, after = f"raw ({_pair(raw, 3)} for {baseline})", f"after temperature scaling ({_pair(scaled, 3)})"
        return f"{candidate} does not change ECE clearly, neither {before} nor {after}"
    if raw.side == "alike":
        text = f"{candidate} does not change raw ECE clearly ({_pair(raw, 3)} for {baseline})"
    else:
        value, other = _texts(raw, 3)
        text = f"{candidate} {'lowers' if raw.side == 'better' else 'raises'} raw ECE from {other} to {value}"
    if _is_missing(scaled):
        return f"{text}; temperature scaling could not be fitted"
    return f"{text}, {_after_temperature(raw, scaled)} for {baseline}"


def _after_temperature(raw: Difference, scaled: Difference) -> str:
    numbers = _pair(scaled, 3)
    if scaled.side == "alike":
        return f"but after temperature scaling the two do not differ clearly: {numbers}"
    word = "lower" if scaled.side == "better" else "higher"
    if raw.side == scaled.side:
        return f"and after temperature scaling it is still {word}: {numbers}"
    if raw.side == "alike":
        return f"but after temperature scaling it is {word}: {numbers}"
    return f"but after temperature scaling it is {numbers}"


def _auroc_words(raw: Difference, scaled: Difference, auroc: Difference) -> str:
    if auroc.side == "alike":
        return f", and it separates errors neither better nor worse: AUROC {_pair(auroc, 2)}"
    # The side of the last clause, unless that was that nothing differs.
    before = scaled.side if scaled.side != "alike" else raw.side if _is_missing(scaled) else "alike"
    same_way = before == auroc.side or (before == "alike" and raw.side != "alike")
    return f", {'and' if same_way else 'but'} it separates errors {auroc.side}: AUROC {_pair(auroc, 2)}"


def _is_missing(change: Difference) -> bool:
    return math.isnan(change.value)


def _pair(change: Difference, digits: int) -> str:
    value, other = _texts(change, digits)
    return f"{value} against {other}"


def _texts(change: Difference, digits: int) -> tuple[str, str]:
    """Return both numbers, with as many digits as it takes to distinguish them where they differ clearly."""
    most = digits if change.side == "alike" else _MOST_DIGITS
    texts = [(short_text(change.candidate, by), short_text(change.baseline, by)) for by in range(digits, most + 1)]
    return next((pair for pair in texts if pair[0] != pair[1]), texts[-1])


def shift_section(panel: diagnosis.ShiftPanel) -> Section:
    """Return metrics by severity, averaged over corruptions; each corruption at its most severe; then the files."""
    tables = (*_by_severity(panel), *_by_corruption(panel), *_by_file(panel))
    return Section("Under a shift", tables, legend=_legend(panel))


def _legend(panel: diagnosis.ShiftPanel) -> str:
    legend = (
        "Nothing is fitted on shifted samples: the maps are those of the clean calibration samples. Severity 3 of one "
        "corruption is not as bad as severity 3 of another."
    )
    if any(test.note is None for level in panel.levels for test in level.t_tests.values()):
        legend += f" ▲ higher, ▼ lower than {panel.baseline} there by {RUN_TEST}."
    if any(row.differences for row in panel.rows):
        legend += f" ✓ better, ✗ worse than {panel.baseline} on the samples of a file, as above."
    return legend


def _by_severity(panel: diagnosis.ShiftPanel) -> Iterator[Table]:
    for levels in panel.levels_by_source.values():
        severities = sorted({severity for _, _, severity in levels})
        header = ["candidate", "map", *(f"severity {severity}" if severity else CLEAN for severity in severities)]
        names = next(level.shifts for level in levels.values() if level.severity)
        for metric, words in _OVER_LEVELS.items():
            rows = [
                [code(candidate), name, *(_cells(levels[candidate, name, at])[metric].cell() for at in severities)]
                for candidate, name in _pairs(panel, panel.maps if metric in _BY_MAP else (UNCALIBRATED,))
            ]
            yield table(header, rows, text=(0, 1), title=f"{words}, mean over {', '.join(names)}")


def _by_corruption(panel: diagnosis.ShiftPanel) -> Iterator[Table]:
    """Yield the ECE under each corruption at the most severe level."""
    for source, levels in panel.levels_by_source.items():
        severity = max(severity for _, _, severity in levels)
        worst = [summary for summary in panel.sets if (summary.source, summary.severity) == (source, severity)]
        by_shift = [panel.rows_of(summary) for summary in worst]
        rows = [
            [code(candidate), name, *(_with_direction(of_shift[candidate, name]) for of_shift in by_shift)]
            for candidate, name in _pairs(panel, (UNCALIBRATED, TEMPERATURE))
        ]
        if len(worst) > 1:
            header = ["candidate", "map", *(summary.shift for summary in worst)]
            yield table(header, rows, text=(0, 1), title=f"ECE at severity {severity}, by corruption")


def _with_direction(row: diagnosis.ShiftRow) -> str:
    return spread_text(row.metrics["ece"]) + ("" if row.direction.side == "neither" else f", {row.direction.side}")


def _by_file(panel: diagnosis.ShiftPanel) -> Iterator[Table]:
    header = ["candidate", "map", *_OF_FILE, "ece since clean", "confidence − accuracy"]
    for summary in _files(panel):
        rows, of_file = list[Row](), panel.rows_of(summary)
        for key in _pairs(panel, panel.maps):
            row = of_file[key]
            cells = [_cells(row)[metric].cell() for metric in _OF_FILE]
            since = "–" if math.isnan(row.change["ece"].mean) else f"{row.change['ece'].mean:+z.4f}"
            rows.append([code(row.candidate), row.map, *cells, since, direction_text(row.direction)])
        title = f"{summary.shift}, {counted(summary.n, 'sample')}"
        yield table(header, rows, text=(0, 1, len(header) - 1), title=title)


def _files(panel: diagnosis.ShiftPanel) -> list[diagnosis.ShiftSummary]:
    return [summary for summary in panel.sets_without_severity if summary.source != CLEAN]


def _pairs(panel: diagnosis.ShiftPanel, maps: Sequence[str]) -> list[tuple[str, str]]:
    """Return all pairs of a candidate and a map, those of the baseline first."""
    return [(candidate, name) for candidate in panel.candidates for name in maps]


# The shift in short: clean samples beside the most severe level of corruptions, and beside each file.


class _ShiftLine(NamedTuple):
    """A candidate under a map: its metrics on the clean samples and under the shift."""

    clean: Mapping[str, diagnosis.Spread]
    shifted: Mapping[str, SeedCell]


class UnderShift(NamedTuple):
    """One shift: its name, and every candidate under every map."""

    title: str
    lines: Mapping[tuple[str, str], _ShiftLine]  # by candidate and map


def under_shifts(panel: diagnosis.ShiftPanel) -> list[UnderShift]:
    """Return the most severe level of corruptions made here, of those in files, and every file without severities."""
    clean = {(row.candidate, row.map): row.metrics for row in panel.rows if row.source == CLEAN}
    shifts = []
    for source, by_severity in panel.levels_by_source.items():
        severity = max(severity for _, _, severity in by_severity)
        levels = [level for level in by_severity.values() if level.severity == severity]
        names = levels[0].shifts
        several = f"{len(names)} corruptions of files" if source == "file" else f"{len(names)} corruptions"
        named = names[0] if len(names) == 1 else several
        lines = {
            (level.candidate, level.map): _ShiftLine(clean[level.candidate, level.map], _cells(level))
            for level in levels
        }
        shifts.append(UnderShift(f"{named} at severity {severity}", lines))
    for summary in _files(panel):
        lines = {key: _ShiftLine(clean[key], _cells(row)) for key, row in panel.rows_of(summary).items()}
        shifts.append(UnderShift(f"{summary.shift} ({counted(summary.n, 'sample')})", lines))
    return shifts


def _cells(row: diagnosis.ShiftLevel | diagnosis.ShiftRow) -> dict[str, SeedCell]:
    """Return the metrics with their tests: a level has those of runs, a file those of samples."""
    tests = row.t_tests if isinstance(row, diagnosis.ShiftLevel) else {}
    differences = row.differences if isinstance(row, diagnosis.ShiftRow) else {}
    return {name: SeedCell(spread, tests.get(name), differences.get(name)) for name, spread in row.metrics.items()}


def brief_shift_sections(panel: diagnosis.ShiftPanel) -> list[Section]:
    """Return the metrics that matter most, on clean samples and under each shift."""
    sections = []
    for under in under_shifts(panel):
        rows: list[Row] = []
        for candidate, _ in _pairs(panel, (UNCALIBRATED,)):
            raw, scaled = (under.lines[candidate, name] for name in (UNCALIBRATED, TEMPERATURE))
            gap = signed_text(scaled.shifted["gap"].spread.mean)
            moved = [_moved(raw, "accuracy"), _moved(raw, "ece"), _moved(scaled, "ece"), _moved(raw, "auroc")]
            rows.append([code(candidate), *moved, gap])
        header = ["candidate", "accuracy", "ece, uncalibrated", "ece, temperature", "auroc", "confidence − accuracy"]
        sections.append(Section(f"Shift: clean → {under.title}", (table(header, rows),)))
    return sections


def _moved(line: _ShiftLine, metric: str) -> Cell:
    cell = line.shifted[metric]
    return cell.cell(f"{short_text(line.clean[metric].mean)} → {short_text(cell.spread.mean)}")


def shift_sentences(panel: diagnosis.ShiftPanel, baseline: str) -> list[str]:
    """Return a sentence for each shift: what it does to the baseline and, on files, who is better or worse there."""
    sentences = []
    for under in under_shifts(panel):
        accuracy, ece = (
            f"from {short_text(line.clean[metric].mean)} to {short_text(line.shifted[metric].spread.mean)}"
            for name, metric in ((UNCALIBRATED, "accuracy"), (TEMPERATURE, "ece"))
            for line in [under.lines[panel.baseline, name]]
        )
        sentences.append(
            f"Under {under.title}, the accuracy of {baseline} goes {accuracy} and its ECE after the clean samples' "
            f"temperature {ece}{_others(under)}."
        )
    return sentences


def _others(under: UnderShift) -> str:
    """Return the candidates whose ECE after a temperature is clearly lower or higher than the baseline's there."""
    names: dict[Side, list[str]] = {"better": [], "worse": []}
    for (candidate, map_), line in under.lines.items():
        # A t-test of runs alone, which is all that means over corruptions have, is too little for a sentence.
        side = line.shifted["ece"].side
        if map_ == TEMPERATURE and side in names:
            names[side].append(candidate)
    words = {"better": "lower", "worse": "higher"}
    parts = [f"{words[side]} for {', '.join(candidates)}" for side, candidates in names.items() if candidates]
    return f" ({'; '.join(parts)})" if parts else ""
