"""A report as Markdown, for a pull request, a model card or a job summary."""

from collections.abc import Sequence
from pathlib import PurePath
from urllib.parse import quote

from calibrant.evidence import Difference
from calibrant.report.evaluation import Evaluation
from calibrant.report.rows import HEADINGS, INFLATED, comparison_rows, metric_rows, part_lines
from calibrant.report.wording import Verdict, verdict
from calibrant.shown_text import markdown_text

__all__ = ["opening", "table", "to_markdown"]


def to_markdown(
    evaluation: Evaluation,
    *,
    source: str | None = None,
    comparison: dict[str, Difference] | None = None,
    other: str | None = None,
    figures: Sequence[PurePath] = (),
) -> str:
    """The report as one Markdown page.

    Args:
        evaluation: The numbers.
        source: Where the predictions came from, for the title.
        comparison: Differences to a second set, if there is one.
        other: Where the second set came from.
        figures: Pictures to show, as the page should address them.
    """
    classes = f", {evaluation.classes} classes" if evaluation.classes else ", top label only"
    lines = opening("Calibration report", verdict(evaluation), source=source, figures=figures)
    for family, rows in metric_rows(evaluation).items():
        if rows:
            cells = [(f"`{r.name}` {r.better}".strip(), r.title, r.value, r.interval, r.floor, r.p) for r in rows]
            header = ("metric", "", "value", "95 % interval", "noise floor", "p")
            lines += [f"## {HEADINGS[family]}", "", *table(header, cells), ""]
    lines += ["## Scores taken apart", "", *(f"- {line}" for line in part_lines(evaluation)), ""]
    if comparison is not None:
        title = f"## Compared with {markdown_text(other)}" if other else "## Comparison"
        header = ("metric", "this", "other", "other − this", "95 % interval", "p")
        lines += [title, "", *table(header, comparison_rows(comparison)), ""]
    lines.append(
        f"{evaluation.n:,} rows{classes}; {evaluation.n_bins} bins; seed {evaluation.seed}. Noise floor: what a "
        "perfectly calibrated model with these confidences would score on average; p: how often such a model would "
        f"score as much. {INFLATED}"
    )
    return "\n".join(lines) + "\n"


def opening(title: str, words: Verdict, *, source: str | None, figures: Sequence[PurePath]) -> list[str]:
    """The lines above the tables: title, verdict, next steps and pictures."""
    return [
        f"# {title}{f': {markdown_text(source)}' if source else ''}",
        "",
        f"**{markdown_text(words.headline)}**",
        "",
        *(f"- {markdown_text(finding)}" for finding in words.findings),
        "",
        "**Next:** " + " ".join(map(markdown_text, words.next_steps)),
        "",
        *(line for figure in figures for line in (_picture(figure), "")),
    ]


def _picture(path: PurePath) -> str:
    return f"![{markdown_text(path.stem.replace('_', ' '))}]({quote(path.as_posix())})"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 2) -> list[str]:
    """The lines of a table, without the named columns that are empty; the first columns are set from the left."""
    kept = [i for i, name in enumerate(header) if not name or any(row[i] for row in rows)]
    rule = ["---" if i < left else "---:" for i in range(len(header))]
    lines = [[line[i] for i in kept] for line in (header, rule, *rows)]
    return ["| " + " | ".join(line) + " |" for line in lines]
