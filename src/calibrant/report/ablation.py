"""An ablation of Neural Clamping as Markdown: the paper's Table 4, with intervals and paired comparisons."""

from calibrant.clamping.study.ablation_record import Ablation, AblationComparison, AblationRow
from calibrant.report.markdown import table
from calibrant.report.rows import comparison_rows, interval, number, p_text

__all__ = ["ablation_to_markdown"]

_ARROWS = {True: " ↓", False: " ↑", None: ""}
_LEVEL = 0.05


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
    if found.clamped.summary is not None and found.clamped.summary.notes:
        lines += ["", "## Notes of the fit", "", *(f"- {note}" for note in found.clamped.summary.notes)]
    lines += ["", _footer(found)]
    return "\n".join(lines) + "\n"


def _answer(found: Ablation) -> list[str]:
    """What δ brings by itself, in a sentence, where the log-loss was measured."""
    pair = found.comparison("TS on δ*", "TS") or found.comparisons[0]
    if found.norm == 0:
        return ["**The fit leaves δ = 0: what it changes is the head alone.**", ""]
    if "nll" not in pair.differences:
        return []
    change = pair.differences["nll"]
    words = "δ lowers the log-loss" if change.difference < 0 else "δ raises the log-loss"
    if not change.p <= _LEVEL:
        words = "Whether δ changes the log-loss cannot be told from these rows"
    numbers = f"{change.difference:+.4f} ({change.low:+.4f} … {change.high:+.4f}), p {_told(change.p)}"
    return [f"**{words}:** `{pair.row}` minus `{pair.rival}` is {numbers}.", ""]


def _told(p: float) -> str:
    text = p_text(p)
    return text if text.startswith("<") else f"= {text}"


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
    if pair.row == "TS on δ*":
        return "T by log-loss both times: what δ brings."
    if pair.rival in {"T* only", "head* only"}:
        return "The same head, which was fitted with δ: not a fair trial of the head without it."
    return "δ and the head both differ." if pair.rival == "TS" else "The head fitted with δ and without: what δ brings."


def _footer(found: Ablation) -> str:
    focal = f" γ = {found.gamma:g} in `TS (focal)`." if any(row.name == "TS (focal)" for row in found.rows) else ""
    return (
        f"{found.calibration_rows:,} rows to fit, {len(found.still):,} to judge, {found.still.n_classes} classes; "
        f"‖δ*‖ = {found.norm:.4g}; {found.resamples} resamples; seed {found.seed}.{focal} Differences are the row's "
        "number minus the rival's, on the same test rows; p-values are those of single comparisons. Noise inflates "
        "calibration errors: their interval is one for the true error, and can lie below the value."
    )
