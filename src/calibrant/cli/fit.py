"""``calibrant fit``: learn a map from held-out predictions."""

from typing import Annotated

import typer

from calibrant.cli.options import Features, Logits, MapOut, Names, PredictionsFile, Probs, Scores, TrueLabels, one_kind

__all__ = ["fit"]


def fit(
    method: Annotated[
        str,
        typer.Argument(
            help="A name of `calibrant list calibrators`; with options, 'temperature(criterion=focal)'; "
            "or a chain, temperature+isotonic.",
            show_default=False,
        ),
    ],
    file: PredictionsFile,
    out: MapOut,
    logits: Logits = False,
    probs: Probs = False,
    scores: Scores = None,
    labels: TrueLabels = None,
    features: Features = None,
) -> None:
    """Fit a calibrator on predictions for rows that the model was not trained on, and save it as a map."""
    from calibrant.cli.fitting import run_fit

    run_fit(method, file, Names(one_kind(logits=logits, probs=probs), scores, labels), features, out)
