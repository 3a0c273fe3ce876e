"""A judgement as Markdown, for a pull request, a model card or a job summary."""

from collections.abc import Sequence
from pathlib import PurePath

from calibrant.clamping import ClampingEvaluation
from calibrant.errors import markdown_text
from calibrant.report.clamping.rows import change_rows, pairs, part_legend, part_rows, trial_lines, value_rows
from calibrant.report.clamping.wording import clamping_verdict, other_notes
from calibrant.report.comparison import held_out_facts as rows_words
from calibrant.report.comparison import held_out_settings as settings_words
from calibrant.report.markdown import opening, table
from calibrant.report.rows import INFLATED

__all__ = ["clamping_to_markdown"]


def clamping_to_markdown(
    found: ClampingEvaluation, *, source: str | None = None, figures: Sequence[PurePath] = ()
) -> str:
    """The judgement as one Markdown page.

    Args:
        found: The numbers.
        source: Where the rows came from, for the title.
        figures: Pictures to show, as the page should address them.
    """
    compared = pairs(found)
    headings = [heading for pair in compared for heading in (str(pair), "p")]
    lines = [
        *opening("Neural Clamping", clamping_verdict(found), source=source, figures=figures),
        *table(["metric", *(f"`{entry.name}`" for entry in found.methods)], value_rows(found), left=1),
        "",
        *table(["metric", *headings], change_rows(found, compared), left=1),
        "",
        "With 95 % intervals; the differences are paired. ▲ better, ▼ worse than the other beyond noise.",
    ]
    if parts := part_rows(found):
        header, *cells = parts
        cells = [[f"`{name}`", *rest] for name, *rest in cells]
        lines += ["", "## δ and the head taken apart", "", *table(header, cells, left=1), "", part_legend(found)]
    if trials := trial_lines(found):
        tried = [(f"**{t.strength}** ←" if t.chosen else t.strength, t.change, t.norm) for t in trials]
        header = ["λ a row", "change of held-out log-loss (± standard error)", "‖δ‖"]
        lines += ["", "## Strengths tried on the calibration rows", "", *table(header, tried, left=1)]
    lines += ["", "## The fit", "", *(f"- {markdown_text(fact)}" for fact in _facts(found))]
    if notes := other_notes(found):
        lines += ["", "## Notes", "", *(f"- {markdown_text(note)}" for note in notes)]
    lines += ["", f"{rows_words(found)}; {settings_words(found)}. {INFLATED}"]
    return "\n".join(lines) + "\n"


def _facts(found: ClampingEvaluation) -> list[str]:
    summary, certificate = found.summary, found.summary.certificate
    facts = [f"head: {found.head}, " + ("δ = 0" if not found.has_delta else f"‖δ‖ = {found.norm:.4g}")]
    if found.temperature is not None:
        facts.append(f"T = {found.temperature:.4f}")
    facts.append(f"λ = {summary.strength:.4g} a row, γ = {summary.gamma:g}; {summary.seconds:.3g} s")
    if certificate is not None:
        facts.append(
            f"objective {certificate.objective:.5f}, gradient {certificate.gradient:.1e} after "
            f"{certificate.passes:.0f} passes over {summary.n_samples:,} samples"
        )
    return facts
