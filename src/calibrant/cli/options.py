"""The options that say what a file of predictions holds, written once for every command that reads one."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeAlias, final

import typer

__all__ = [
    "MOST_SEED",
    "Features",
    "Logits",
    "MapOut",
    "Names",
    "Out",
    "PredictionsFile",
    "Probs",
    "Scores",
    "TrueLabels",
    "one_kind",
]

MOST_SEED = 2**63 - 1  # the largest that every generator takes

PredictionsFile: TypeAlias = Annotated[
    Path, typer.Argument(help="npz, csv, parquet, feather, arrow, safetensors or pt.", show_default=False)
]
Logits: TypeAlias = Annotated[bool, typer.Option("--logits", help="The numbers are logits.")]
Probs: TypeAlias = Annotated[bool, typer.Option("--probs", help="The numbers are probabilities.")]
Scores: TypeAlias = Annotated[str | None, typer.Option("--scores", help="Name of the logits or probabilities.")]
Features: TypeAlias = Annotated[
    str | None,
    typer.Option("--features", help="Name of the features, for methods that look at them. [features]"),
]
TrueLabels: TypeAlias = Annotated[str | None, typer.Option("--labels", help="Name of the labels.")]
Out: TypeAlias = Annotated[
    Path, typer.Option("--out", "-o", help="The file to write; its ending says the format.", show_default=False)
]
MapOut: TypeAlias = Annotated[
    Path, typer.Option("--out", "-o", help="The map to write; ends in .safetensors.", show_default=False)
]


@final
@dataclass(frozen=True)
class Names:
    """What the person said about the numbers in the file; None where nothing was said."""

    kind: str | None = None
    scores: str | None = None
    labels: str | None = None
    confidence: str | None = None
    correct: str | None = None


def one_kind(*, logits: bool, probs: bool, top_label: bool = False) -> str | None:
    """What the numbers were said to be.

    Raises:
        BadParameter: If they were said to be two things.
    """
    kinds = [kind for kind, given in (("logits", logits), ("probs", probs), ("top-label", top_label)) if given]
    if len(kinds) > 1:
        flags = " and ".join(f"--{kind}" for kind in kinds)
        raise typer.BadParameter(f"give one of --logits, --probs and --top-label; got {flags}.")
    return kinds[0] if kinds else None
