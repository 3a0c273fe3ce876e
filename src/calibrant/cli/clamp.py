"""``calibrant clamp``: calibrate a network at both ends, by a δ added to its inputs and a map behind its logits."""

from pathlib import Path
from typing import Annotated

import typer

from calibrant.cli.options import MOST_SEED

__all__ = ["clamp"]


def clamp(  # noqa: PLR0913, PLR0917  # a command line has many options
    model: Annotated[
        str,
        typer.Option(
            help="package.module:factory (called without arguments), an archive of torch.export (.pt2; open only those "
            "you trust), or a folder left by calibrant train.",
        ),
    ],
    data: Annotated[Path, typer.Option(help="npz of inputs and labels that the network was not trained on.")],
    test: Annotated[Path, typer.Option(help="npz of other rows, to judge by.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write; stopped, the command goes on in it.")],
    weights: Annotated[Path | None, typer.Option(help="Weights (safetensors) for what the factory makes.")] = None,
    inputs: Annotated[str, typer.Option(help="Name of the inputs, (n, ...), as the network takes them.")] = "inputs",
    labels: Annotated[str, typer.Option(help="Name of the labels, (n,), class numbers from 0.")] = "labels",
    pixels: Annotated[
        bool,
        typer.Option("--pixels", help="Inputs are stored as 0..255: scale them to --low..--high, then normalise."),
    ] = False,
    low: Annotated[float | None, typer.Option(help="Lowest value of a pixel before the normalisation. (0)")] = None,
    high: Annotated[float | None, typer.Option(help="Highest value of a pixel. (1)")] = None,
    mean: Annotated[
        str | None, typer.Option(help="Of the normalisation: one a channel, 0.49,0.48,0.45; or one.")
    ] = None,
    std: Annotated[str | None, typer.Option(help="The same, of the deviation.")] = None,
    clip: Annotated[bool, typer.Option("--clip", help="Bring x + δ back into the range of a pixel.")] = False,
    head: Annotated[
        str | None,
        typer.Option(help="What stands behind the network, as in `calibrant fit`: svs, vector. (temperature)"),
    ] = None,
    strength: Annotated[
        str | None,
        typer.Option(
            help="How tightly δ is held: path (cross-validated), a number, several to choose from (1,0.1,0.01), inf "
            "(δ = 0), or the paper's tenth-of-loss, tenth-as-term. (path)"
        ),
    ] = None,
    gamma: Annotated[str | None, typer.Option(help="Of the focal loss; 0 is the log-loss. (0)")] = None,
    freedom: Annotated[
        str | None, typer.Option(help="How δ may vary: full, channel, low-frequency or low-frequency:6. (full)")
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(help="The first δ of a single strength: zero, random, random:0.01, data-driven. (zero)"),
    ] = None,
    augmentation: Annotated[
        str | None, typer.Option(help="Of the calibration images, while δ is learned: none, crop, crop-flip. (none)")
    ] = None,
    preset: Annotated[
        str, typer.Option(help="default, paper (its protocol to the letter) or toolkit (its authors' code).")
    ] = "default",
    device: Annotated[str, typer.Option(help="auto (a GPU if there is one), cpu, cuda or cuda:1.")] = "auto",
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Rows at a time: memory and speed. (by their size)")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Of folds, starts, orders and resampling.")] = 0,
    bins: Annotated[int, typer.Option(min=1, max=1_000_000, help="Bins of the binned errors.")] = 15,
    resamples: Annotated[int, typer.Option(min=100, help="Draws behind intervals and tests.")] = 500,
    with_weights: Annotated[
        bool, typer.Option("--with-weights", help="Put the network's weights into clamped.safetensors too.")
    ] = False,
    json: Annotated[Path | None, typer.Option(help="Write the report as JSON here. (report.json in --out)")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write it as Markdown here. (report.md in --out)")] = None,
    figures: Annotated[Path | None, typer.Option(help="Write the figures into this folder.")] = None,
    figure_format: Annotated[str, typer.Option(help="png, svg or pdf.")] = "png",
    theme: Annotated[str, typer.Option(help="light or dark.")] = "light",
) -> None:
    """Neural Clamping: learn one δ for all inputs and a temperature for a frozen network, and say whether δ helps."""
    from calibrant.cli.clamp_case import ClampRequest
    from calibrant.cli.clamp_method import MethodText
    from calibrant.cli.clamp_space import SpaceText
    from calibrant.cli.clamping import run_clamping
    from calibrant.cli.writing import Reports

    run_clamping(
        ClampRequest(
            model=model,
            weights=weights,
            data=data,
            test=test,
            out=out,
            inputs=inputs,
            labels=labels,
            pixels=pixels,
            space=SpaceText(low, high, mean, std, clip),
            method=MethodText(
                preset=preset,
                head=head,
                gamma=gamma,
                strength=strength,
                freedom=freedom,
                start=start,
                augmentation=augmentation,
                batch_size=batch_size,
                seed=seed,
            ),
            device=device,
            n_bins=bins,
            resamples=resamples,
            with_weights=with_weights,
            reports=Reports(json, markdown, figures, figure_format, theme),
        )
    )
