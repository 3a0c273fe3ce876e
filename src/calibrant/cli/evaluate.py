"""``calibrant evaluate``: judge a file of predictions."""

from pathlib import Path
from typing import Annotated

import typer

from calibrant.cli.options import MOST_SEED, Logits, Names, PredictionsFile, Probs, Scores, TrueLabels, one_kind

__all__ = ["evaluate"]


def evaluate(  # noqa: PLR0913, PLR0917  # a command line has many options
    file: PredictionsFile,
    logits: Logits = False,
    probs: Probs = False,
    top_label: Annotated[bool, typer.Option("--top-label", help="The file has confidence and correct only.")] = False,
    scores: Scores = None,
    labels: TrueLabels = None,
    confidence: Annotated[str | None, typer.Option(help="Name of the confidence (top label).")] = None,
    correct: Annotated[str | None, typer.Option(help="Name of the correctness (top label).")] = None,
    bins: Annotated[int, typer.Option(min=1, help="Bins of the binned errors.")] = 15,
    seed: Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Of the resampling.")] = 0,
    resamples: Annotated[int, typer.Option(min=100, help="Draws behind intervals and noise floors.")] = 1000,
    json: Annotated[Path | None, typer.Option(help="Write the report as JSON here.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the report as Markdown here.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the report as one HTML file here.")] = None,
    figures: Annotated[Path | None, typer.Option(help="Write the figures into this folder.")] = None,
    figure_format: Annotated[str, typer.Option(help="png, svg or pdf.")] = "png",
    theme: Annotated[str, typer.Option(help="light or dark.")] = "light",
    fail_if: Annotated[
        list[str] | None,
        typer.Option(help="Exit with 1 if the whole interval is beyond the bound, e.g. 'ece>0.05'. May be repeated."),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Print all numbers, not only those that matter most.")] = False,
    compare: Annotated[Path | None, typer.Option(help="A second file with the same rows, to compare with.")] = None,
) -> None:
    """How far can this confidence be trusted? Every number with its interval, a verdict in words, and pictures."""
    from calibrant.cli.evaluation import Request, run_evaluation
    from calibrant.cli.writing import Reports

    kind = one_kind(logits=logits, probs=probs, top_label=top_label)
    request = Request(
        file=file,
        names=Names(kind, scores, labels, confidence, correct),
        n_bins=bins,
        seed=seed,
        resamples=resamples,
        reports=Reports(json, markdown, figures, figure_format, theme, html),
        fail_if=tuple(fail_if or ()),
        compare=compare,
        full=full,
    )
    raise typer.Exit(run_evaluation(request))
