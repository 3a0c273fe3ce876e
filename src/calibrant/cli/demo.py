"""``calibrant demo``: the main job on data that comes with the package."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["demo"]

# So few that the network learns them by heart and becomes visibly overconfident.
TRAINING_IMAGES = 100
CALIBRATION_IMAGES = 500
EPOCHS = 100


def demo(
    out: Annotated[Path, typer.Option(help="Folder for predictions, figures and reports.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Of the network and the split.")] = 0,
) -> None:
    """Train a small network on hand-written digits, find out how far its confidence can be trusted, and mend it."""
    import torch
    from rich.console import Console
    from rich.progress import Progress

    from calibrant.cli.comparison import ComparisonRequest, run_comparison
    from calibrant.cli.evaluation import Request, run_evaluation
    from calibrant.datasets import Examples, load_digits
    from calibrant.losses import CrossEntropyLoss
    from calibrant.models import DigitsCNN
    from calibrant.predictions import Predictions
    from calibrant.sources import save
    from calibrant.training import Recipe, Session, Speed, TrainingData, predict, train_together

    console, names = Console(), tuple("0123456789")
    digits = load_digits()
    order = torch.randperm(len(digits.images), generator=torch.Generator().manual_seed(seed))
    sizes = [TRAINING_IMAGES, CALIBRATION_IMAGES, len(order) - TRAINING_IMAGES - CALIBRATION_IMAGES]
    training, calibration, test = order.split(sizes)
    console.print(f"Training a small network on {len(training)} of {len(order):,} hand-written digits …")
    torch.manual_seed(seed)
    model = DigitsCNN()
    data = TrainingData(Examples(digits.images[training], digits.labels[training]), {}, names)
    recipe = Recipe(epochs=EPOCHS, batch_size=32, learning_rate=0.05, weight_decay=0.0, seed=seed)
    session = Session(model, CrossEntropyLoss(), data.on(torch.device("cpu")), recipe, Speed(traced=False))
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("training", total=EPOCHS)
        train_together([session], after_epoch=lambda _session, _record: progress.advance(task))
    out.mkdir(parents=True, exist_ok=True)
    for part, rows in (("calibration", calibration), ("test", test)):
        logits = predict(model, digits.images[rows])
        save(Predictions.from_logits(logits, digits.labels[rows], class_names=names), out / f"digits-{part}.npz")
    console.print(f"Judging it: calibrant evaluate {out / 'digits-test.npz'}", style="bold")
    request = Request(
        file=out / "digits-test.npz", figures=out, markdown=out / "report.md", json=out / "report.json", seed=seed
    )
    code = run_evaluation(request)
    fitting, judging = out / "digits-calibration.npz", out / "digits-test.npz"
    console.print(f"\nMending it: calibrant compare {fitting} {judging}", style="bold")
    run_comparison(
        ComparisonRequest(
            fitting, judging, figures=out, markdown=out / "leaderboard.md", json=out / "leaderboard.json", seed=seed
        )
    )
    raise typer.Exit(code)
