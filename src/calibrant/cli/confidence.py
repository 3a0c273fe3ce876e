"""``calibrant confidence``: fit ConfidNet and TrustScore for a trained network, and compare them with its softmax."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, final

from calibrant.cli import options
from calibrant.cli.clamp import MODEL, Inputs
from calibrant.cli.options import option
from calibrant.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from calibrant.cli.networks import LoadedNetwork
    from calibrant.confidence import LearnedConfidence
    from calibrant.inference import LabelledInputs
    from calibrant.plots import ThemeName
    from calibrant.predictions import TopLabel
    from calibrant.report import Page

EXAMPLES = """\
calibrant confidence --model runs/resnet20 --data other.npz --test test.npz \\
    -o confidence
calibrant confidence --model nets:build --weights weights.safetensors \\
    --layer fc --data other.npz --test test.npz -o confidence"""

_METHOD = "Method"
_DATA = "Inputs and labels (npz) to fit on; for ConfidNet, samples that the network was not trained on."
_OUT = "Folder to write: the fitted confidences (safetensors), their test predictions and report.json."
_LAYER = "Layer whose inputs are the features, such as fc; needed unless the network has features and head."
_TRAINING = "Inputs and labels (npz) that TrustScore compares with, best those of the training."
_FITTED = "Evaluate a confidence that this command saved, instead of fitting. May be repeated."
_NAMES = ("confidnet", "trust_score")
_LINES = 5  # printed by ConfidNet where there is no terminal


@final
@dataclass(frozen=True)
class MethodOptions:
    """The methods to fit, and their options; those that are None are the paper's."""

    method: Annotated[
        list[str] | None, option("NAME", "confidnet or trust_score. May be repeated.", _METHOD, show_default="both")
    ] = None
    layer: Annotated[str | None, option("NAME", _LAYER, _METHOD)] = None
    training: Annotated[Path | None, option("FILE", _TRAINING, _METHOD, show_default="--data")] = None
    fitted: Annotated[list[Path] | None, option("FILE", _FITTED, _METHOD)] = None
    epochs: Annotated[int, option("N", "Epochs of ConfidNet.", _METHOD, min=1)] = 500
    units: Annotated[int, option("N", "Units in each hidden layer of ConfidNet.", _METHOD, min=1)] = 400
    learning_rate: Annotated[float, option("X", "Learning rate of ConfidNet.", _METHOD)] = 1e-4
    fine_tune_epochs: Annotated[int, option("N", "Epochs of fine-tuning a copy of the network.", _METHOD, min=0)] = 0
    alpha: Annotated[float, option("X", "Share of each class that TrustScore leaves out.", _METHOD)] = 0.0


def confidence(  # noqa: PLR0913, PLR0917  # a command line has many options
    model: Annotated[str, option("NETWORK", MODEL)],
    test: Annotated[Path, option("FILE", "Other inputs and labels (npz), to evaluate on.")],
    out: Annotated[Path, option("FOLDER", _OUT, names=("--out", "-o"))],
    data: Annotated[Path | None, option("FILE", _DATA)] = None,
    weights: Annotated[
        Path | None,
        option("FILE", "Weights (.safetensors, .pt, .pth) of the factory's network, or the folder of its run."),
    ] = None,
    given: Inputs = Inputs(),
    chosen: MethodOptions = MethodOptions(),
    device: options.Device = None,
    full: options.Full = False,
    resamples: options.Resamples = 500,
    seed: options.Seed = 0,
    reports: options.ReportOptions = options.ReportOptions(),
) -> "Page":
    """Compare other confidences with the softmax of a network.

    Fits and saves them. ConfidNet learns the probability of the true class from the network's features; TrustScore
    compares distances to training samples. Predictions do not change.
    """
    from calibrant.checks import check_known
    from calibrant.cli.networks import error_context, read_network, read_samples
    from calibrant.cli.output import print_warnings, spinner, standard_error
    from calibrant.confidence import compare_confidences, load_confidence, save_confidence
    from calibrant.files import save
    from calibrant.report.comparison import confidence_page

    for name in chosen.method or ():
        check_known(name, _NAMES, "--method")
    if data is None and not chosen.fitted:
        raise InputError("--data must name samples to fit on, or --fitted a saved confidence; got neither.")
    files = [path for path in (data, test, chosen.training) if path is not None]
    options.check_folder(out)
    reports.check(files)
    console, err = reports.console(), standard_error()
    with print_warnings(err), spinner(err) as stage:
        stage(f"loading the network {model}")
        network = read_network(model, weights, options.choose_device(device))
        names: dict[str, Any] = {"inputs": given.inputs, "labels": given.labels, "pixels": given.pixels}

        def read(path: Path) -> "LabelledInputs":
            stage(f"reading {path}")
            return read_samples(path, network, **names, space=given.space(network))

        test_samples = read(test)
        saved = {path.stem: load_confidence(path, network.model) for path in chosen.fitted or ()}
        fitted = cast("dict[str, LearnedConfidence]", saved)
        if data is not None:
            samples = read(data)
            training = samples if chosen.training is None else read(chosen.training)
            with error_context(data, unless="layer"):
                fitted |= _fit(chosen, network, samples, training, seed, stage)
        with error_context(test):
            compared, tops = compare_confidences(
                network.model, fitted, test_samples, resamples=resamples, seed=seed, progress=stage
            )
        out.mkdir(parents=True, exist_ok=True)
        written = []
        for name, learned in fitted.items():
            if data is not None and name in _NAMES:
                save_confidence(learned, out / f"{name}.safetensors")
                written.append(out / f"{name}.safetensors")
        for name, top in tops.items():
            save(top, out / f"{name}.npz")
            written.append(out / f"{name}.npz")
        drawn = reports.draw(lambda theme: _figures(tops, theme))
        page = confidence_page(compared, network=model, test=test)
    reports = replace(reports, json=reports.json or out / "report.json")
    reports.show_and_write(page, drawn, console, full=full, inputs=files)
    console.print("Wrote " + ", ".join(map(str, written)), style="dim")
    return page


def _fit(
    chosen: MethodOptions,
    network: "LoadedNetwork",
    samples: "LabelledInputs",
    training: "LabelledInputs",
    seed: int,
    stage: Callable[[str], None],
) -> "dict[str, LearnedConfidence]":
    """Fit the chosen methods, by name."""
    from calibrant.cli.output import standard_error
    from calibrant.confidence import ConfidNet, TrustScore

    err = standard_error()

    def progress(text: str, epochs: float) -> None:
        stage(f"ConfidNet: {text}")
        if not err.is_terminal and epochs % max(1, chosen.epochs // _LINES) == 0:
            err.print(f"ConfidNet: {text}")

    layer, wanted = network.layer(chosen.layer), chosen.method or _NAMES
    fitted: dict[str, LearnedConfidence] = {}
    if "confidnet" in wanted:
        rates = {"learning_rate": chosen.learning_rate, "fine_tune_epochs": chosen.fine_tune_epochs}
        method = ConfidNet(units=chosen.units, epochs=chosen.epochs, seed=seed, **cast("Any", rates))
        fitted["confidnet"] = method.fit(network.model, samples, layer=layer, progress=progress)
    if "trust_score" in wanted:
        stage("TrustScore: features of the samples")
        fitted["trust_score"] = TrustScore(alpha=chosen.alpha).fit_network(network.model, training, layer=layer)
    return fitted


def _figures(tops: "dict[str, TopLabel]", theme: "ThemeName") -> "dict[str, Figure]":
    """Draw the risk at every coverage by each confidence, beside that by the softmax."""
    from calibrant.plots import plot_risk_coverage

    (baseline, softmax), *others = tops.items()
    return {
        f"{name}_and_{baseline}": cast(
            "Figure", plot_risk_coverage(softmax, other=top, set_names=(baseline, name), theme=theme).figure
        )
        for name, top in others
    }
