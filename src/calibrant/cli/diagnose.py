"""``calibrant diagnose``: which way to train leaves a network that can be calibrated, and that knows its errors?"""

from pathlib import Path
from typing import Annotated

import typer

from calibrant.cli.options import MOST_SEED

__all__ = ["diagnose"]


def diagnose(  # noqa: PLR0913, PLR0917  # a command line has many options
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Folders that calibrant train has left, or a folder with several in it.", show_default=False
        ),
    ],
    reference: Annotated[
        str | None,
        typer.Option(help="The way to train that the others are held against, as the tables call it. (plain ce)"),
    ] = None,
    maps: Annotated[
        str | None,
        typer.Option(
            help="What is fitted on calibration rows: names with commas between them, as in `calibrant compare`, "
            "temperature among them; paper: as in Wang et al. 2021. (temperature,histogram,svs)"
        ),
    ] = None,
    shift: Annotated[
        list[Path] | None,
        typer.Option(
            help="Images of the same classes that the world shifted (npz, npy with labels beside it, or a folder of "
            "both), to judge on too. May be given more than once.",
        ),
    ] = None,
    corrupt: Annotated[
        str | None,
        typer.Option(
            help="Judge on corrupted test images too: common (noise, blur, contrast, brightness, JPEG), all, or names "
            "with commas between them."
        ),
    ] = None,
    severity: Annotated[
        str | None, typer.Option(help="Of the corruptions, 1 to 5, with commas between them. (all five)")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="The folder of the runs' data set, for --corrupt.")] = None,
    unchecked: Annotated[
        bool, typer.Option("--unchecked", help="Take data files that are not the published ones.")
    ] = False,
    device: Annotated[
        str | None, typer.Option(help="Where networks see shifted images: cpu, cuda. (a GPU if there is one)")
    ] = None,
    bins: Annotated[int, typer.Option(min=1, max=1_000_000, help="Bins of the binned errors.")] = 15,
    draws: Annotated[
        int, typer.Option(min=0, help="Draws of calibration rows, for the curves over their number; 0: no curves.")
    ] = 3,
    resamples: Annotated[int, typer.Option(min=100, help="Draws behind intervals and tests.")] = 500,
    seed: Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Of all draws.")] = 0,
    json: Annotated[Path | None, typer.Option(help="Write the diagnosis as JSON here.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the diagnosis as Markdown here.")] = None,
    figures: Annotated[Path | None, typer.Option(help="Write the figures into this folder.")] = None,
    figure_format: Annotated[str, typer.Option(help="png, svg or pdf.")] = "png",
    theme: Annotated[str, typer.Option(help="light or dark.")] = "light",
) -> None:
    """Judge ways to train by what post-hoc calibration can still do, and by how well confidence separates errors."""
    from calibrant.cli.diagnosing import DiagnosisRequest, run_diagnosis
    from calibrant.cli.shifting import ShiftRequest
    from calibrant.cli.writing import Reports

    run_diagnosis(
        DiagnosisRequest(
            runs=tuple(runs),
            reference=reference,
            maps=maps,
            shift=ShiftRequest(
                files=tuple(shift or ()),
                corrupt=corrupt,
                severity=severity,
                data=data,
                is_checked=not unchecked,
                device=device,
            ),
            n_bins=bins,
            draws=draws,
            resamples=resamples,
            seed=seed,
            reports=Reports(json, markdown, figures, figure_format, theme),
        )
    )
