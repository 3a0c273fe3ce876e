"""``calibrant compare``: which method suits these predictions?"""

from pathlib import Path
from typing import Annotated

import typer

from calibrant.cli.options import MOST_SEED, Logits, Names, Probs, Scores, TrueLabels, one_kind

__all__ = ["compare"]


def compare(  # noqa: PLR0913, PLR0917  # a command line has many options
    calibration: Annotated[
        Path, typer.Argument(help="Predictions to fit on, for rows the model was not trained on.", show_default=False)
    ],
    test: Annotated[Path, typer.Argument(help="Other predictions of the same model, to judge by.", show_default=False)],
    methods: Annotated[
        str,
        typer.Option(
            help="default (a good few for so many rows and classes), all, or names with commas between them, as in "
            "`calibrant fit`: 'svs,temperature+isotonic'."
        ),
    ] = "default",
    logits: Logits = False,
    probs: Probs = False,
    scores: Scores = None,
    labels: TrueLabels = None,
    bins: Annotated[int, typer.Option(min=1, help="Bins of the binned errors.")] = 15,
    seed: Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Of the resampling.")] = 0,
    resamples: Annotated[int, typer.Option(min=100, help="Draws behind intervals and tests.")] = 500,
    json: Annotated[Path | None, typer.Option(help="Write the leaderboard as JSON here.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the leaderboard as Markdown here.")] = None,
    figures: Annotated[Path | None, typer.Option(help="Write the figures into this folder.")] = None,
    figure_format: Annotated[str, typer.Option(help="png, svg or pdf.")] = "png",
    theme: Annotated[str, typer.Option(help="light or dark.")] = "light",
) -> None:
    """Fit many methods on one file, judge them on another, and say which to use: a leaderboard with intervals."""
    from calibrant.cli.comparison import ComparisonRequest, run_comparison
    from calibrant.cli.writing import Reports

    run_comparison(
        ComparisonRequest(
            calibration=calibration,
            test=test,
            methods=methods,
            names=Names(one_kind(logits=logits, probs=probs), scores, labels),
            n_bins=bins,
            seed=seed,
            resamples=resamples,
            reports=Reports(json, markdown, figures, figure_format, theme),
        )
    )
