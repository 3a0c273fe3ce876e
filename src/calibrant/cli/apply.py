"""``calibrant apply``: calibrate a file of predictions with a saved map."""

from pathlib import Path
from typing import Annotated

import typer

from calibrant.cli.options import Features, Logits, Names, Out, PredictionsFile, Probs, Scores, TrueLabels, one_kind

__all__ = ["apply"]


def apply(
    map_file: Annotated[
        Path,
        typer.Argument(
            metavar="{map}",
            help="A map that `calibrant fit` made, or a given temperature: 'temperature(value=1.5)'.",
            show_default=False,
        ),
    ],
    file: PredictionsFile,
    out: Out,
    logits: Logits = False,
    probs: Probs = False,
    scores: Scores = None,
    labels: TrueLabels = None,
    features: Features = None,
) -> None:
    """Calibrate predictions: logits give logits, probabilities give probabilities, none of them 0.

    Labels, if any, are kept, and so is what else the file has for every row, such as features.
    """
    from calibrant.cli.applying import run_apply

    run_apply(map_file, file, Names(one_kind(logits=logits, probs=probs), scores, labels), features, out)
