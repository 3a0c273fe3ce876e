"""``calibrant train``: train networks, and leave predictions ready to be judged and mended."""

from pathlib import Path
from typing import Annotated

import typer

from calibrant.cli.options import MOST_SEED

__all__ = ["train"]


def train(  # noqa: PLR0913, PLR0917  # a command line has many options
    dataset: Annotated[
        str,
        typer.Option(help="A name of `calibrant list datasets`, with options if any: 'medmnist(flag=pathmnist)'."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder of the run; of several, one folder each in it.")],
    data: Annotated[Path | None, typer.Option(help="The folder (or file) in which the data set lies.")] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="A name of `calibrant list models`. Several train side by side. (resnet20)")
    ] = None,
    loss: Annotated[
        list[str] | None,
        typer.Option(help="A name of `calibrant list losses`, with options: 'focal(gamma=3)'. Several as well. (ce)"),
    ] = None,
    gamma: Annotated[float | None, typer.Option(help="Short for the option of that name of a single loss.")] = None,
    seed: Annotated[
        list[int] | None,
        typer.Option(min=0, max=MOST_SEED, help="Of weights, order and augmentation. Several as well. (0)"),
    ] = None,
    recipe: Annotated[
        str, typer.Option(help="default, or a paper's: overconfidence, dark-side, meta-regularization.")
    ] = "default",
    epochs: Annotated[int | None, typer.Option(help="Passes over the data; milestones move along.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Rows a step.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="The highest one.")] = None,
    momentum: Annotated[float | None, typer.Option(help="Momentum of the gradient, in 0..1.")] = None,
    nesterov: Annotated[
        bool | None, typer.Option("--nesterov/--no-nesterov", help="Look ahead along the momentum, or not.")
    ] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Pull of the weights towards 0.")] = None,
    schedule: Annotated[str | None, typer.Option(help="cosine, steps or constant.")] = None,
    milestones: Annotated[
        str | None, typer.Option(help="Epochs at whose start the rate falls, with commas: '60,120'. Implies steps.")
    ] = None,
    decay: Annotated[float | None, typer.Option(help="Factor of the rate at each milestone.")] = None,
    warmup: Annotated[int | None, typer.Option(help="Epochs in which the rate rises.")] = None,
    augmentation: Annotated[str | None, typer.Option(help="none, crop or crop-flip. (the data set's usual)")] = None,
    mixup: Annotated[float | None, typer.Option(help="The alpha of mixup; 0 mixes nothing.")] = None,
    clip: Annotated[float | None, typer.Option(help="The largest norm of a step's gradient.")] = None,
    precision: Annotated[str | None, typer.Option(help="auto, float32 or bfloat16.")] = None,
    select: Annotated[
        str | None, typer.Option(help="Epoch to keep: last, best (calibration error rate) or best-nll. (last)")
    ] = None,
    train_samples: Annotated[
        int | None, typer.Option(min=1, help="Train on so many samples, drawn by --split-seed. (all)")
    ] = None,
    split: Annotated[str, typer.Option(help="Who calibrates: holdout, half-test, official or 8:1:1.")] = "holdout",
    split_seed: Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Of that division.")] = 0,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or cuda:1. (a GPU if there is one)")] = None,
    no_compile: Annotated[bool, typer.Option("--no-compile", help="Start at once, and run slower, on a GPU.")] = False,
    trace: Annotated[
        bool, typer.Option("--trace", help="Look at every training row after each epoch: when was it learned?")
    ] = False,
    judge_every: Annotated[int, typer.Option(min=1, help="Epochs between looks at the held-out rows.")] = 1,
    download: Annotated[bool, typer.Option("--download", help="Fetch what is missing into --data first.")] = False,
    unchecked: Annotated[
        bool, typer.Option("--unchecked", help="Take files that are not the published ones, in the same layout.")
    ] = False,
) -> None:
    """Train one network or several side by side; stopped, the same command goes on where it was."""
    from calibrant.cli.training import TrainingRequest, run_training, whole_numbers

    changes = {
        "epochs": epochs, "batch_size": batch_size, "learning_rate": learning_rate, "momentum": momentum,
        "nesterov": nesterov, "weight_decay": weight_decay, "schedule": schedule,
        "milestones": None if milestones is None else whole_numbers(milestones, "--milestones"), "decay": decay,
        "warmup": warmup, "augmentation": augmentation, "mixup": mixup, "clip": clip, "precision": precision,
        "select": select,
    }  # fmt: skip
    run_training(
        TrainingRequest(
            dataset=dataset,
            out=out,
            data=data,
            models=tuple(model or ["resnet20"]),
            losses=tuple(loss or ["ce"]),
            gamma=gamma,
            seeds=tuple(seed or [0]),
            recipe=recipe,
            changes={name: value for name, value in changes.items() if value is not None},
            split=split,
            split_seed=split_seed,
            train_samples=train_samples,
            device=device,
            is_compiled=not no_compile,
            is_traced=trace,
            judge_every=judge_every,
            download=download,
            is_checked=not unchecked,
        )
    )
