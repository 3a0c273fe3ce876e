"""``calibrant demo``: the main job on data that comes with the package."""

from pathlib import Path
from typing import Annotated

import typer

from calibrant.cli.options import MOST_SEED

__all__ = ["demo"]


def demo(
    out: Annotated[Path, typer.Option(help="Folder for predictions, figures and reports.")] = Path("demo"),
    seed: Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Of the network and the split.")] = 0,
) -> None:
    """Train a small network on digits, judge and mend its confidence; mend a ResNet-110's; clamp the small network."""
    from calibrant.cli.demonstration import clamp_digits, mend_resnet110, train_and_mend_digits

    train_and_mend_digits(out, seed)
    mend_resnet110(out / "resnet110", seed)
    clamp_digits(out, seed)
