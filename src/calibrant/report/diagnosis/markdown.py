"""A diagnosis as Markdown, for a pull request, a model card or a job summary: every table."""

from collections.abc import Sequence
from pathlib import PurePath

from calibrant.diagnosis import Diagnosis
from calibrant.diagnosis.evaluated import UNCALIBRATED
from calibrant.diagnosis.refinement import SEPARATION
from calibrant.errors import markdown_code, markdown_text
from calibrant.report.diagnosis.cells import direction_text
from calibrant.report.diagnosis.curves import Grid, coefficient_grids, epoch_grids, learned_grid, loss_grids, size_grids
from calibrant.report.diagnosis.legends import (
    COEFFICIENTS,
    DIRECTION,
    EPOCHS,
    EQUATION_9,
    LEARNED,
    LOSSES,
    REFINEMENT,
    SPLITS,
    calibratability_legend,
    marks_legend,
    shift_legend,
    sizes_legend,
)
from calibrant.report.diagnosis.rows import (
    calibratability_lines,
    direction_lines,
    in_order,
    map_words,
    refinement_lines,
    split_lines,
    term_lines,
)
from calibrant.report.diagnosis.shift import shift_grids
from calibrant.report.diagnosis.wording import diagnosis_words, note_lines
from calibrant.report.markdown import opening, table
from calibrant.report.rows import INFLATED, p_text

__all__ = ["diagnosis_to_markdown"]

_ARROWS = {
    "accuracy": "↑", "auroc": "↑", "aupr_success": "↑", "aupr_error": "↑", "aurc": "↓", "e_aurc": "↓", "nll": "↓",
    "brier": "↓", "top_brier": "↓", "optimal": "↓",
}  # fmt: skip
_TERMS = {
    "reliability": "reliability", "resolution": "resolution", "uncertainty": "uncertainty", "refinement": "refinement",
    "alpha": "α", "beta": "β", "gamma": "γ", "equation_9": "α − β − γ (eq. 9)", "ece": "ece",
    "confidence_minus_accuracy": "confidence − accuracy", "overconfident_bins": "bins not underconfident",
}  # fmt: skip


def diagnosis_to_markdown(found: Diagnosis, *, source: str | None = None, figures: Sequence[PurePath] = ()) -> str:
    """The diagnosis as one Markdown page.

    Args:
        found: The numbers.
        source: Where the runs came from, for the title.
        figures: Pictures to show, as the page should address them.
    """
    marks = marks_legend(found)
    lines = [
        *opening("Diagnosis", diagnosis_words(found), source=source, figures=figures),
        *_section("Calibratability: what a map can still mend", _calibratability(found), calibratability_legend(found)),
        *([marks, ""] if marks else []),
        *_section("Refinement: does confidence tell right from wrong?", _refinement(found), REFINEMENT),
        *_section("Log-loss and Brier score taken apart", _splits(found), SPLITS),
        *_section("Murphy's parts, and the terms of equation 9", _terms(found), EQUATION_9),
        *_section("The direction of miscalibration", _direction(found), DIRECTION),
        *_curves(found),
        *_shift(found),
        *_tests(found),
        *_runs(found),
    ]
    if notes := note_lines(found):
        lines += ["## Notes", "", *(f"- {markdown_text(note)}" for note in notes), ""]
    lines.append(
        f"{found.n:,} test rows; {found.n_bins} bins; {found.resamples} resamples; seed {found.seed}. {INFLATED}"
    )
    return "\n".join(lines) + "\n"


def _section(title: str, rows: list[str], legend: str) -> list[str]:
    return [f"## {title}", "", *rows, "", legend, ""] if rows else []


def _calibratability(found: Diagnosis) -> list[str]:
    lines = calibratability_lines(found)
    header = ["candidate", *(_error_heading(name) if name in found.maps else _heading(name) for name in lines[0].cells)]
    digits = {"T": 3, "optimal T": 3}
    rows = [
        [markdown_code(line.candidate), *(cell.in_full(digits.get(name, 4)) for name, cell in line.cells.items())]
        for line in lines
    ]
    return table(header, rows, left=1)


def _refinement(found: Diagnosis) -> list[str]:
    header = ["candidate", "map", *(_heading(name) for name in SEPARATION)]
    rows = [
        [markdown_code(line.candidate), map_words(line.map), *(cell.in_full() for cell in line.cells.values())]
        for line in refinement_lines(found)
    ]
    return table(header, rows)


def _splits(found: Diagnosis) -> list[str]:
    lines = split_lines(found)
    if not lines:
        return []
    names = list(lines[0].cells)
    rows = [[markdown_code(line.candidate), *(line.cells[name].in_full() for name in names)] for line in lines]
    return table(["candidate", *names], rows, left=1)


def _terms(found: Diagnosis) -> list[str]:
    rows = [
        [markdown_code(line.candidate), map_words(line.map), *(line.cells[name].in_full() for name in _TERMS)]
        for line in term_lines(found)
    ]
    return table(["candidate", "map", *_TERMS.values()], rows)


def _direction(found: Diagnosis) -> list[str]:
    rows = [
        [markdown_code(name), *(direction_text(by_map[each]) for each in found.maps)]
        for name, by_map in direction_lines(found)
    ]
    return table(["candidate", *(map_words(name) for name in found.maps)], rows, left=1)


def _curves(found: Diagnosis) -> list[str]:
    lines = []
    for grid in coefficient_grids(found):
        lines += _section(f"Over a coefficient: {grid.title}", _grid(grid, left=1), COEFFICIENTS)
    if found.validation_sizes:
        lines += _grids("How many calibration rows a map needs", size_grids(found), sizes_legend(found), left=2)
    if found.epochs:
        lines += _grids("Optimal ECE over epochs", epoch_grids(found), EPOCHS, left=1)
    if losses := loss_grids(found):
        lines += _grids("What learned losses learned", losses, LOSSES, left=2)
    if (learned := learned_grid(found)) is not None:
        lines += _grids("When rows were learned", [learned], LEARNED, left=1)
    return lines


def _grids(title: str, grids: Sequence[Grid], legend: str, *, left: int) -> list[str]:
    return [f"## {title}", "", *(line for grid in grids for line in (*_grid(grid, left=left), "")), legend, ""]


def _grid(grid: Grid, *, left: int) -> list[str]:
    return table(grid.header, grid.rows, left=left)


def _shift(found: Diagnosis) -> list[str]:
    if found.shift is None:
        return []
    lines = ["## Under a shift", "", shift_legend(found.shift), ""]
    for grid in shift_grids(found.shift):
        lines += [f"**{grid.title}**", "", *_grid(grid, left=2), ""]
    return lines


def _tests(found: Diagnosis) -> list[str]:
    """Every comparison of an ECE with the reference's: on the same rows, and over seeds alone."""
    rows = []
    for one in in_order(found, found.calibratability):
        for name, against in one.differences.items():
            test = one.t_tests[name]
            rows.append([
                markdown_code(one.candidate), map_words(name), f"{against.value:+.4f}",
                f"{against.low:+.4f} … {against.high:+.4f}",
                *(p_text(p, resampled=not against.covers_seeds) for p in (against.p, against.corrected_p)),
                "" if test.note is not None else f"{test.t:.2f} ({test.df:.1f})",
                "" if test.note is not None else p_text(test.p, resampled=False),
            ])  # fmt: skip
    if not rows:
        return []
    header = ["candidate", "map", "difference of ece", "95 % interval", "p", "corrected", "t (df) of runs", "p of runs"]
    return [f"## Every ECE against that of {markdown_code(found.baseline)}", "", *table(header, rows), ""]


def _runs(found: Diagnosis) -> list[str]:
    rows = [
        [markdown_code(one.name), markdown_text(one.words), ", ".join(map(str, one.seeds)), f"{one.calibration_rows:,}",
         ", ".join(markdown_code(folder) for folder in one.folders)]
        for one in found.candidates
    ]  # fmt: skip
    header = ["candidate", "", "seeds", "calibration rows", "folders"]
    return ["## Runs", "", *table(header, rows), ""]


def _heading(name: str) -> str:
    return f"{name} {_ARROWS[name]}" if name in _ARROWS else name


def _error_heading(name: str) -> str:
    return "ece ↓" if name == UNCALIBRATED else f"ece, {name} ↓"
