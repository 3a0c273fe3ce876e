"""A judgement as Markdown, for a pull request, a model card or a job summary."""

from collections.abc import Sequence
from pathlib import PurePath

from calibrant.report.clamping.judgement import CLAMPED, ClampingJudgement
from calibrant.report.clamping.rows import change_rows, trial_lines, value_rows
from calibrant.report.clamping.wording import clamping_verdict, head_words, other_notes
from calibrant.report.markdown import table

__all__ = ["clamping_to_markdown"]


def clamping_to_markdown(
    found: ClampingJudgement, *, source: str | None = None, figures: Sequence[PurePath] = ()
) -> str:
    """The judgement as one Markdown page.

    Args:
        found: The numbers.
        source: Where the rows came from, for the title.
        figures: Pictures to show, as the page should address them.
    """
    words, rivals = clamping_verdict(found), list(reversed(found.clamped.against))
    headings = [heading for rival in rivals for heading in (f"{CLAMPED} − {rival}", "p")]
    lines = [
        f"# Neural Clamping{f': {source}' if source else ''}",
        "",
        f"**{words.headline}**",
        "",
        *(f"- {finding}" for finding in words.findings),
        "",
        "**Next:** " + " ".join(words.next_steps),
        "",
        *(line for figure in figures for line in (f"![{figure.stem.replace('_', ' ')}]({figure})", "")),
        *table(["metric", *(f"`{entry.name}`" for entry in found.entries)], value_rows(found), left=1),
        "",
        *table(["metric", *headings], change_rows(found, rivals), left=1),
        "",
        "With 95 % intervals; the differences are paired. ▲ better, ▼ worse than the other beyond noise.",
    ]
    if trials := trial_lines(found):
        cells = [(f"**{t.strength}** ←" if t.chosen else t.strength, t.gain, t.norm) for t in trials]
        header = ["λ a row", "change of held-out log-loss (± standard error)", "‖δ‖"]
        lines += ["", "## Strengths tried on the calibration rows", "", *table(header, cells, left=1)]
    lines += ["", "## The fit", "", *(f"- {fact}" for fact in _facts(found))]
    if notes := other_notes(found):
        lines += ["", "## Notes", "", *(f"- {note}" for note in notes)]
    lines += ["", _footer(found)]
    return "\n".join(lines) + "\n"


def _facts(found: ClampingJudgement) -> list[str]:
    summary, certificate = found.summary, found.summary.certificate
    facts = [f"head: {head_words(found.head)}, " + ("δ = 0" if not found.moves else f"‖δ‖ = {found.norm:.4g}")]
    if found.temperature is not None:
        facts.append(f"T = {found.temperature:.4f}")
    facts.append(f"λ = {summary.strength:.4g} a row, γ = {summary.gamma:g}; {summary.seconds:.3g} s")
    if certificate is not None:
        facts.append(
            f"objective {certificate.objective:.5f}, gradient {certificate.gradient:.1e} after "
            f"{certificate.passes:.0f} passes over {summary.rows:,} rows"
        )
    return facts


def _footer(found: ClampingJudgement) -> str:
    return (
        f"{found.calibration_rows:,} rows to fit, {found.test_rows:,} to judge, {found.classes} classes; "
        f"{found.n_bins} bins; {found.resamples} resamples; seed {found.seed}. Noise inflates calibration errors: "
        "their interval is one for the true error, and can lie below the value."
    )
