"""``calibrant evaluate``: judge a file of predictions."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["evaluate"]


def evaluate(  # noqa: PLR0913, PLR0917  # a command line has many options
    file: Annotated[Path, typer.Argument(help="npz, csv, parquet, feather, arrow, safetensors or pt.")],
    logits: Annotated[bool, typer.Option("--logits", help="The numbers are logits.")] = False,
    probs: Annotated[bool, typer.Option("--probs", help="The numbers are probabilities.")] = False,
    top_label: Annotated[bool, typer.Option("--top-label", help="The file has confidence and correct only.")] = False,
    scores: Annotated[str | None, typer.Option(help="Name of the logits or probabilities.")] = None,
    labels: Annotated[str | None, typer.Option(help="Name of the labels.")] = None,
    confidence: Annotated[str | None, typer.Option(help="Name of the confidence (top label).")] = None,
    correct: Annotated[str | None, typer.Option(help="Name of the correctness (top label).")] = None,
    bins: Annotated[int, typer.Option(min=1, help="Bins of the binned errors.")] = 15,
    seed: Annotated[int, typer.Option(help="Of the resampling.")] = 0,
    resamples: Annotated[int, typer.Option(min=100, help="Draws behind intervals and noise floors.")] = 1000,
    json: Annotated[Path | None, typer.Option(help="Write the report as JSON here.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the report as Markdown here.")] = None,
    figures: Annotated[Path | None, typer.Option(help="Write the figures into this folder.")] = None,
    figure_format: Annotated[str, typer.Option(help="png, svg or pdf.")] = "png",
    theme: Annotated[str, typer.Option(help="light or dark.")] = "light",
    fail_if: Annotated[
        list[str] | None,
        typer.Option(help="Exit with 1 if the whole interval is beyond the bound, e.g. 'ece>0.05'. May be repeated."),
    ] = None,
    compare: Annotated[Path | None, typer.Option(help="A second file with the same rows, to compare with.")] = None,
) -> None:
    """How far can this confidence be trusted? Every number with its interval, a verdict in words, and pictures."""
    from calibrant.cli.evaluation import Request, run_evaluation

    kinds = [kind for kind, given in (("logits", logits), ("probs", probs), ("top-label", top_label)) if given]
    if len(kinds) > 1:
        raise typer.BadParameter(f"give one of --logits, --probs and --top-label; got {' and '.join(kinds)}.")
    names = {"scores": scores, "labels": labels, "confidence": confidence, "correct": correct}
    request = Request(
        file=file,
        kind=kinds[0] if kinds else None,
        names=names,
        n_bins=bins,
        seed=seed,
        resamples=resamples,
        json=json,
        markdown=markdown,
        figures=figures,
        figure_format=figure_format,
        theme=theme,
        fail_if=tuple(fail_if or ()),
        compare=compare,
    )
    raise typer.Exit(run_evaluation(request))
