"""An ablation of Neural Clamping as Markdown: the paper's Table 4, with intervals and paired comparisons."""

from calibrant.clamping.study.ablation_record import Ablation, AblationComparison, AblationRow
from calibrant.report.clamping.effect import REFITTED, DeltaEffect
from calibrant.report.clamping.fit_words import cross_validated_words, fit_notes, reservations
from calibrant.report.markdown import table
from calibrant.report.rows import INFLATED, comparison_rows, interval, number

__all__ = ["ablation_to_markdown"]

_ARROWS = {True: " ↓", False: " ↑", None: ""}


def ablation_to_markdown(found: Ablation, *, source: str | None = None) -> str:
    """The ablation as one Markdown page.

    Args:
        found: From :func:`calibrant.clamping.study.ablation.ablation`.
        source: What was calibrated, for the title.
    """
    planned = [each for each in found.comparisons if each.is_planned]
    lines = [f"# Neural Clamping taken apart{f': {source}' if source else ''}", "", *_answer(found)]
    lines += [*_values(found), "", "## Every number with its 95 % interval", "", *_intervals(found)]
    for each in planned:
        header = ("metric", each.rival, each.row, "difference", "95 % interval", "p")
        rows = [(f"`{name}`", *rest) for name, *rest in comparison_rows(each.differences)]
        lines += ["", f"## {each.row} against {each.rival}", "", _question(each), "", *table(header, rows, left=1)]
    if notes := _notes(found):
        lines += ["", "## Notes of the fit", "", *(f"- {note}" for note in notes)]
    lines += ["", _footer(found)]
    return "\n".join(lines) + "\n"


def _answer(found: Ablation) -> list[str]:
    """What δ brings by itself, where the log-loss was measured, and what would change how that is read."""
    pair = found.comparison(REFITTED, "TS") or found.comparisons[0]
    if found.norm == 0:
        return ["**The fit leaves δ = 0: what it changes is the head alone.**", ""]
    if "nll" not in pair.differences:
        return []
    effect = DeltaEffect.of(pair.row, pair.rival, found.metrics, pair.differences)
    kind, still = ("T", "temperature scaling") if pair.rival == "TS" else ("head", "the head alone")
    held = [] if found.clamped.summary is None else reservations(found.clamped.summary)
    last = f" But {', and '.join(held)}." if held else ""
    return [
        f"**{effect.headline(still, len(found.still))}{last}**",
        "",
        effect.sentence(f"with the best {kind} both times"),
        "",
    ]


def _notes(found: Ablation) -> list[str]:
    summary = found.clamped.summary
    return [] if summary is None else [*cross_validated_words(summary), *fit_notes(summary)]


def _values(found: Ablation) -> list[str]:
    header = ["row", "δ", "T", *(f"{metric.name}{_ARROWS[metric.lower_is_better]}" for metric in found.metrics)]
    return table(header, [_line(row, [number(each.value) for each in row.metrics.values()]) for row in found.rows])


def _intervals(found: Ablation) -> list[str]:
    names = [metric.name for metric in found.metrics]
    rows = [[f"`{row.name}`", *(interval(each) for each in row.metrics.values())] for row in found.rows]
    return table(["row", *names], rows, left=1)


def _line(row: AblationRow, cells: list[str]) -> list[str]:
    temperature = "" if row.temperature is None else f"{row.temperature:.4f}"
    return [f"`{row.name}`", "δ*" if row.is_moved else "0", temperature, *cells]


def _question(pair: AblationComparison) -> str:
    """What a comparison tells."""
    if pair.row == REFITTED:
        return "T by log-loss both times: what δ brings."
    if pair.rival in {"T* only", "head* only"}:
        return "The same head, which was fitted with δ: not a fair trial of the head without it."
    return "δ and the head both differ." if pair.rival == "TS" else "The head fitted with δ and without: what δ brings."


def _footer(found: Ablation) -> str:
    focal = f" γ = {found.gamma:g} in `TS (focal)`." if any(row.name == "TS (focal)" for row in found.rows) else ""
    return (
        f"{found.calibration_rows:,} rows to fit, {len(found.still):,} to judge, {found.still.n_classes} classes; "
        f"‖δ*‖ = {found.norm:.4g}; {found.resamples} resamples; seed {found.seed}.{focal} Differences are the row's "
        f"number minus the rival's, on the same test rows; p-values are those of single comparisons. {INFLATED}"
    )
