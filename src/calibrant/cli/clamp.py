"""``calibrant clamp``: calibrate a network by a δ added to its inputs and a map after its logits."""

import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, final, get_args

from calibrant.cli import options
from calibrant.cli.options import flag, option
from calibrant.errors import CalibrantError, FileError, InputError
from calibrant.processes import ProcessGroup, join_processes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from calibrant.clamping import (
        ClampedModel,
        ClampingEvaluation,
        DeltaShape,
        InputSpace,
        NetworkPredictions,
        NeuralClamping,
        Start,
    )
    from calibrant.cli.networks import LoadedNetwork
    from calibrant.datasets import Samples
    from calibrant.inference import LabelledInputs
    from calibrant.plots import ThemeName
    from calibrant.report import Page

EXAMPLES = """\
calibrant clamp --model nets:build --weights weights.safetensors \\
    --data calibration.npz --test test.npz -o clamped
calibrant clamp --model runs/resnet110 --data ~/data/cifar10 \\
    --strength 1,0.1,0.01 -o clamped"""

_INPUTS, _METHOD = "Inputs", "Method"
_SHOWN = 6  # inputs in the figure of δ
_IMAGE_AXES, _LEAST_SIDE = 3, 2  # axes, and least height and width, of inputs that can be drawn


MODEL = (
    "package.module:factory, also 'nets:build(width=64)'; an archive of torch.export (.pt2; open "
    "only those that you trust); or a folder written by `calibrant train`."
)
_DATA = (
    "Inputs and labels (npz) to fit on, which the network was not trained on; or, without --test, the folder of the "
    "data set of a run of `calibrant train`, unless that comes with the package."
)
_TEST = "Other inputs and labels (npz), to evaluate on; of a run, its own test samples unless given."
_OUT = "Folder to write, report.json and report.md among others; the same command resumes a stopped fit in it."
_PIXELS = "Inputs are stored as 0..255: scale them to --low..--high, then normalise them."
_LOW, _HIGH = (f"{end} value of a pixel before normalisation." for end in ("Lowest", "Highest"))
_MEAN = "Mean of the normalisation: one number, or one for each channel, as in 0.49,0.48,0.45."
_STD = "Standard deviation of the normalisation: one number, or one for each channel."
_HEAD = "Calibrator after the network, as for `calibrant fit`: svs, vector, …"
_STRENGTH = (
    "Strength of the penalty on δ: path (cross-validated), a number, several to choose from (1,0.1,0.01), inf "
    "(δ = 0), or the paper's tenth-of-loss or tenth-as-term."
)
_GAMMA = "Gamma of the focal loss; 0 is the log-loss."
_SHAPE = "Learned numbers of δ: full, channel, low-frequency or low-frequency:6."
_START = "Initial δ of a single strength: zero, random, random:0.01 or data-driven."
_AUGMENTATION = "Augmentation of the calibration images: none, crop or crop-flip."
_PRESET = "default, paper (its protocol) or toolkit (the code of its authors)."
_BATCH, _BY_SIZE = "Samples in a batch: memory and speed.", "by the size of an input"


@final
@dataclass(frozen=True)
class Inputs:
    """The arrays of inputs and labels, and the range and normalisation of the inputs."""

    inputs: Annotated[str, option("NAME", "Array of the inputs, as the network takes them.", _INPUTS)] = "inputs"
    labels: Annotated[str, option("NAME", "Array of the labels, class numbers from 0.", _INPUTS)] = "labels"
    pixels: Annotated[bool, flag("--pixels", _PIXELS, _INPUTS)] = False
    low: Annotated[float | None, option("X", _LOW, _INPUTS, show_default="0")] = None
    high: Annotated[float | None, option("X", _HIGH, _INPUTS, show_default="1")] = None
    mean: Annotated[str | None, option("NUMBERS", _MEAN, _INPUTS)] = None
    std: Annotated[str | None, option("NUMBERS", _STD, _INPUTS)] = None

    def space(self, network: "LoadedNetwork", *, clip: bool = False) -> "InputSpace | None":
        """Return the range and normalisation of the network's inputs; None if they are neither known nor needed."""
        from calibrant.clamping import InputSpace

        is_range_given = any(given is not None for given in (self.low, self.high, self.mean, self.std))
        if network.is_run:
            if is_range_given or self.pixels:
                raise InputError(
                    "--pixels, --low, --high, --mean and --std must be left out with a folder of calibrant train: its "
                    "network takes pixels as they were stored, and normalises them itself."
                )
            return None if network.space is None else replace(network.space, clips=clip)
        if not (is_range_given or clip or self.pixels):
            return None
        return InputSpace(
            low=0.0 if self.low is None else self.low,
            high=1.0 if self.high is None else self.high,
            mean=None if self.mean is None else _numbers(self.mean, "--mean"),
            std=None if self.std is None else _numbers(self.std, "--std"),
            clips=clip,
        )


@final
@dataclass(frozen=True)
class Method:
    """The options of Neural Clamping, as they were typed; those that are None are the preset's."""

    head: Annotated[str | None, option("NAME", _HEAD, _METHOD, show_default="temperature")] = None
    strength: Annotated[str | None, option("TEXT", _STRENGTH, _METHOD, show_default="path")] = None
    gamma: Annotated[str | None, option("X", _GAMMA, _METHOD, show_default="0")] = None
    delta_shape: Annotated[str | None, option("NAME", _SHAPE, _METHOD, show_default="full")] = None
    start: Annotated[str | None, option("NAME", _START, _METHOD, show_default="zero")] = None
    augmentation: Annotated[str | None, option("NAME", _AUGMENTATION, _METHOD, show_default="none")] = None
    preset: Annotated[str, option("NAME", _PRESET, _METHOD)] = "default"
    batch_size: Annotated[int | None, option("N", _BATCH, _METHOD, min=1, show_default=_BY_SIZE)] = None

    def build(self, seed: int) -> "NeuralClamping":
        """Return the preset with the options that were given."""
        from calibrant import catalogue
        from calibrant.checks import check_known
        from calibrant.clamping import NeuralClamping

        preset = self.preset
        method = NeuralClamping
        presets = {"default": method(), "paper": method.paper_protocol(), "toolkit": method.toolkit()}
        check_known(preset, presets, "--preset")
        given = {name: text for name, text in vars(self).items() if text is not None and name != "preset"}
        if preset != "default" and given.keys() & {"head", "delta_shape"}:
            raise InputError(
                f"--head and --delta-shape must be left out with --preset {preset}, which learns δ and a temperature."
            )
        if preset != "default" and self.strength == "path":
            raise InputError(
                f"--strength must be a number, several, or one of the paper's rules with --preset {preset}: its "
                "stochastic descent cannot be cross-validated."
            )
        readers: dict[str, Callable[[str], Any]] = {
            "head": catalogue.parse_calibrator,
            "gamma": lambda text: _one_or_several(text, "--gamma"),
            "strength": _strength,
            "delta_shape": _delta_shape,
            "start": _start,
        }
        changes = {name: readers[name](text) if name in readers else text for name, text in given.items()}
        if isinstance(changes.get("gamma"), tuple) and preset == "default":
            raise InputError(
                "--gamma must be one number, except with --preset paper, which chooses as the paper does: a held-out "
                "log-loss would always prefer 0, which minimises it."
            )
        return replace(presets[preset], seed=seed, **changes)


@join_processes()
def clamp(  # noqa: PLR0913, PLR0917  # a command line has many options
    model: Annotated[str, option("NETWORK", MODEL)],
    out: Annotated[Path, option("FOLDER", _OUT, names=("--out", "-o"))],
    data: Annotated[Path | None, option("FILE", _DATA)] = None,
    test: Annotated[Path | None, option("FILE", _TEST)] = None,
    weights: Annotated[Path | None, option("FILE", "Weights (.safetensors, .pt, .pth) of a factory's network.")] = None,
    with_weights: Annotated[bool, flag("--with-weights", "Save the network's weights in clamped.safetensors.")] = False,
    given: Inputs = Inputs(),
    clip: Annotated[bool, flag("--clip", "Clip x + δ to the range of a pixel.", _INPUTS)] = False,
    chosen: Method = Method(),
    device: options.Device = None,
    full: options.Full = False,
    bins: options.Bins = 15,
    resamples: options.Resamples = 500,
    seed: options.Seed = 0,
    reports: options.ReportOptions = options.ReportOptions(),
) -> "Page":
    """Calibrate a frozen network by Neural Clamping.

    Fits one δ that is added to all inputs, and a temperature after the logits, and evaluates on other samples whether
    δ helps beyond temperature scaling.
    """
    from calibrant.clamping import evaluate_clamping, needs_refit
    from calibrant.cli.networks import error_context, read_network
    from calibrant.cli.output import print_warnings, spinner, standard_error
    from calibrant.report.clamping import clamping_page
    from calibrant.report.terminal import show

    method = chosen.build(seed)
    folder = ClampFolder(out)
    options.check_folder(out)
    folder.check()
    reports.check(filter(None, [data, test]))
    torch_device = options.choose_device(device)
    processes, console, err = ProcessGroup.current(), reports.console(), standard_error()
    err.quiet = not processes.is_first
    with print_warnings(err) as printed, spinner(err) as stage:
        with processes.agreed():
            stage(f"loading the network {model}")
            network = read_network(model, weights, torch_device)
            method = _with_space(method, given.space(network, clip=clip))
            paths = [Path(model), *filter(None, [weights])]
            data, test, calibration_runs, test_runs = _runs(network, method, paths, data, test, given, stage)
            with error_context(data):
                calibration = calibration_runs.at_zero()
            with error_context(test):
                before = test_runs.at_zero()
        processes.from_first(lambda: folder.begin(_settings(network, calibration_runs, test_runs, method)))
        try:
            clamped = _clamped(network, calibration_runs, method, folder, stage, processes, with_weights=with_weights)
        except CalibrantError:
            folder.remove_if_empty()
            raise
        except KeyboardInterrupt:
            err.print("Stopped. The same command resumes from what was computed so far.")
            raise
        stage("evaluating")
        with error_context(test):
            after = test_runs.predictions_of(clamped)
        refitted = calibration_runs.predictions_of(clamped) if needs_refit(clamped) else None
        evidence = {"n_bins": bins, "resamples": resamples, "seed": seed}
        evaluation = evaluate_clamping(
            clamped, calibration, before, after, calibration_after=refitted, head=method.head, **evidence
        )
        drawn = reports.draw(
            lambda theme: _figures(evaluation, network, test_runs, clamped, bins, theme), in_html=False
        )
        commands = (f"calibrant evaluate {out / 'after.npz'} --baseline {out / 'before.npz'}",)
        page = replace(clamping_page(evaluation, network=model, calibration=data, test=test), commands=commands)
        page = _with_charts(reports.with_origin(page, [data, test]), evaluation, clamped, test_runs, out)
        json_file, markdown_file = reports.json or out / "report.json", reports.markdown or out / "report.md"
        in_folder = replace(reports, json=json_file, markdown=markdown_file)
        written = [folder.clamped, *_save_predictions(evaluation, out), *in_folder.write(page, drawn)]
    show(page.without_notes(printed), full=full, console=console)
    console.print("Wrote " + ", ".join(map(str, written)), style="dim")
    return page


def _with_space(method: "NeuralClamping", space: "InputSpace | None") -> "NeuralClamping":
    from calibrant.clamping import DataDrivenStart

    if isinstance(method.start, DataDrivenStart) and method.start.eta == "theorem" and space is None:
        raise InputError(
            "--start data-driven must know the range of a pixel; give --low and --high (--mean and --std, if "
            "inputs are normalised), or take --start data-driven:quantile."
        )
    return replace(method, space=space)


def _numbers(text: str, option: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise InputError(f"{option} must be a number, or comma-separated numbers; got {text!r}.") from error


def _one_or_several(text: str, option: str) -> float | tuple[float, ...]:
    values = _numbers(text, option)
    return values[0] if len(values) == 1 else values


def _strength(text: str) -> float | tuple[float, ...] | str:
    from calibrant.clamping import StrengthRule

    rules = get_args(StrengthRule)
    if text in rules:
        return text
    try:
        return _one_or_several(text, "--strength")
    except InputError as error:
        raise InputError(
            f"--strength must be comma-separated numbers, inf, {', '.join(rules[:-1])} or {rules[-1]}; got {text!r}."
        ) from error


def _delta_shape(text: str) -> "DeltaShape":
    from calibrant.checks import check_known
    from calibrant.clamping import LowFrequencies, PerChannel, PerEntry

    kind, _, size = text.partition(":")
    known: dict[str, DeltaShape] = {"full": PerEntry(), "channel": PerChannel(), "low-frequency": LowFrequencies()}
    check_known(kind, known, "--delta-shape")
    if size and (kind != "low-frequency" or not size.isdecimal()):
        raise InputError(f"--delta-shape may only have a whole number after low-frequency:, as in :4; got {text!r}.")
    return LowFrequencies(int(size)) if size else known[kind]


def _start(text: str) -> "Start":
    from calibrant.checks import check_known
    from calibrant.clamping import DataDrivenStart, Eta, RandomStart, ZeroStart

    kind, _, option = text.partition(":")
    known: dict[str, Start] = {"zero": ZeroStart(), "random": RandomStart(), "data-driven": DataDrivenStart()}
    check_known(kind, known, "--start")
    if not option:
        return known[kind]
    if kind == "data-driven":
        check_known(option, get_args(Eta), "the η of --start data-driven:")
        return DataDrivenStart(eta=option)  # type: ignore[arg-type]  # one of them
    scale = _numbers(option, "the scale of --start random:")
    if kind == "zero" or len(scale) > 1 or not math.isfinite(scale[0]):
        raise InputError(f"--start may have a scale after random:, as in random:0.01; got {text!r}.")
    return RandomStart(scale[0])


def _of_run(paths: Sequence[Path], data: Path | None) -> "tuple[Path, Path, Samples, Samples]":
    """Read the calibration and test samples of a run, one of these paths; the first two are what reports call them."""
    from calibrant.diagnosis import held_out_samples, read_run_dataset, read_runs

    folder = next(filter(Path.is_dir, paths), None)
    if folder is None:
        raise InputError(
            "--data and --test must name inputs and labels (npz); only the folder of a run of calibrant train, as "
            "--model, has samples of its own."
        )
    (run,) = read_runs([folder])
    name = run.settings.dataset
    try:
        dataset = read_run_dataset([run], data)
    except InputError as error:
        if isinstance(error, FileError):
            raise
        raise InputError(
            f"--data and --test must be npz files of inputs and labels; {name} of {folder} is yours."
        ) from error
    return Path(f"{name} calibration"), Path(f"{name} test"), *held_out_samples(run, dataset)


def _runs(
    network: "LoadedNetwork",
    method: "NeuralClamping",
    paths: Sequence[Path],
    data: Path | None,
    test: Path | None,
    given: Inputs,
    stage: Callable[[str], None],
) -> "tuple[Path, Path, NetworkPredictions, NetworkPredictions]":
    """Read the samples of both files, or of the run among the paths, and try the network on them; name both."""
    from calibrant.clamping import NetworkPredictions
    from calibrant.cli.networks import error_context, read_samples, run_samples

    def read(path: Path) -> "LabelledInputs":
        stage(f"reading {path}")
        names = {"inputs": given.inputs, "labels": given.labels}
        return read_samples(path, network, **names, pixels=given.pixels, space=method.space)

    if test is None:
        stage("reading the data set of the run")
        data, test, *held_out = _of_run(paths, data)
        samples, test_samples = (run_samples(part, network) for part in held_out)
    elif data is None:
        raise InputError("--data must name inputs and labels to fit on, if --test is given; got none.")
    else:
        samples, test_samples = read(data), read(test)
    stage("trying the network")
    space, batch_size, class_names = method.space, method.batch_size, network.class_names
    run = partial(NetworkPredictions, network.model, space=space, batch_size=batch_size, class_names=class_names)
    with error_context(data, unless="model"):
        calibration_runs = run(samples)
    with error_context(test):
        shape, other = (f"(n, {', '.join(map(str, part.input_shape))})" for part in (samples, test_samples))
        if shape != other:
            raise InputError(f"inputs must have the shape of those in {data}, {shape}; got {other}.")
        return data, test, calibration_runs, run(test_samples)


def _settings(
    network: "LoadedNetwork", calibration: "NetworkPredictions", test: "NetworkPredictions", method: "NeuralClamping"
) -> dict[str, Any]:
    """Return the settings and digests that decide the result, as plain data for JSON."""
    from calibrant.clamping import samples_digest
    from calibrant.inference import network_digest

    digests = {"data": samples_digest(calibration.samples), "test": samples_digest(test.samples)}
    settings = {"network": network_digest(network.model), **digests, **method.settings()}
    return settings | ({"strength": "inf"} if settings["strength"] == math.inf else {})


def _clamped(
    network: "LoadedNetwork",
    calibration: "NetworkPredictions",
    method: "NeuralClamping",
    folder: "ClampFolder",
    stage: Callable[[str], None],
    processes: ProcessGroup,
    *,
    with_weights: bool,
) -> "ClampedModel":
    """Fit and save the clamped model, or load the one that an earlier run of this command saved.

    Of several processes all but the first end here.
    """
    from calibrant.clamping import load_clamped, save_clamped
    from calibrant.cli.output import standard_error

    def progress(what: str, passes: float) -> None:
        stage(f"{what} ({passes:.0f} passes)")

    is_fitted = processes.from_first(folder.clamped.exists)
    if not is_fitted:  # the folder is kept until the model is saved
        fit = partial(method.fit, network.model, calibration.samples, processes=processes)
        clamped = fit(folder=folder.path, keep_folder=True, progress=progress)
    if not processes.is_first:
        sys.exit()
    if is_fitted:
        standard_error().print(f"{folder.path} holds a finished fit: it is evaluated again, and nothing is fitted.")
        clamped = load_clamped(folder.clamped, network.model)
    if with_weights or not folder.clamped.exists():
        save_clamped(clamped, folder.clamped, with_weights=with_weights)
    folder.delete_journal()
    return clamped


def _save_predictions(evaluation: "ClampingEvaluation", out: Path) -> list[Path]:
    """Save the test predictions of the network, of temperature scaling and of the clamped network."""
    from calibrant.clamping import CLAMPED
    from calibrant.comparison import TEMPERATURE, UNCALIBRATED
    from calibrant.files import save

    written = []
    for name, file in zip((UNCALIBRATED, TEMPERATURE, CLAMPED), _PREDICTIONS, strict=True):
        if name in evaluation.predictions:
            save(evaluation.predictions[name], out / file)
            written.append(out / file)
    return written


def _with_charts(
    page: "Page", evaluation: "ClampingEvaluation", clamped: "ClampedModel", test: "NetworkPredictions", out: Path
) -> "Page":
    """Save what the studio shows of this folder; return the page with its charts."""
    from calibrant.atomic import atomic_text
    from calibrant.report.network_charts import clamping_charts, clamping_record

    charts = clamping_charts(evaluation, clamped, test)
    with atomic_text(out / "charts.json") as file:
        json.dump(clamping_record(page, charts), file, ensure_ascii=False, allow_nan=False)
    return replace(page, charts=lambda: charts)


def _figures(
    evaluation: "ClampingEvaluation",
    network: "LoadedNetwork",
    test: "NetworkPredictions",
    clamped: "ClampedModel",
    n_bins: int,
    theme: "ThemeName",
) -> "dict[str, Figure]":
    """Draw the reliability before and after, and δ, if it is not 0 and the inputs are images."""
    import torch

    from calibrant.clamping import CLAMPED
    from calibrant.comparison import UNCALIBRATED
    from calibrant.diagrams import delta_picture, reliability
    from calibrant.plots import plot_delta, plot_reliability

    before, after = (reliability(evaluation.predictions[name], n_bins=n_bins) for name in (UNCALIBRATED, CLAMPED))
    ax = plot_reliability(before, other=after, set_names=("Uncalibrated", "Neural Clamping"), theme=theme)
    drawn = {"before_and_after": cast("Figure", ax.figure)}
    shape, names = test.samples.input_shape, network.class_names
    if evaluation.has_delta and len(shape) == _IMAGE_AXES and min(shape[1:]) >= _LEAST_SIDE:
        some = torch.arange(min(_SHOWN, len(test.samples)))
        inputs, _ = next(test.samples.batches(some, device=clamped.delta.device, batch_size=_SHOWN))
        captions = tuple(str(label) if names is None else names[label] for label in test.samples.labels[some].tolist())
        drawn["delta"] = plot_delta(delta_picture(clamped, inputs, captions=captions), theme=theme)
    return drawn


_FORMAT = "calibrant.clamp/1"
_PREDICTIONS = ("before.npz", "temperature.npz", "after.npz")
_RESULTS = ("clamped.safetensors", *_PREDICTIONS, "charts.json", "report.md", "report.json")


@final
class ClampFolder:
    """Folder of one fit, which is made when the fit begins and in which a stopped fit is resumed.

    ::

        settings.json         settings and data that decide the result
        *.journal             partial results, until the model is saved
        clamped.safetensors   δ and the head
        before.npz            logits and labels of the test samples by the uncalibrated network
        temperature.npz       the same after temperature scaling; after.npz by the clamped network
        charts.json           numbers behind the charts, with a dozen test samples, for the studio
        report.md, report.json
    """

    def __init__(self, path: Path) -> None:
        from calibrant.atomic import SettingsFolder  # loads torch

        self.path, self.clamped = path, path / "clamped.safetensors"
        self._folder = SettingsFolder(path, _FORMAT, work="fit", command="calibrant clamp")
        self.check = self._folder.check
        self._is_made = False

    def begin(self, settings: dict[str, Any]) -> None:
        """Make the folder, or check that it holds the fit of these settings."""
        self.check()
        # JSON turns tuples into lists, which must not count as a difference.
        settings = json.loads(json.dumps(settings))
        if self._folder.is_begun:
            theirs = self._folder.document()["settings"]
            differing = [name for name in {**settings, **theirs} if settings.get(name) != theirs.get(name)]
            if not differing:
                return
            if self._results():
                texts = [f"{name} {settings.get(name)!r}, not {theirs.get(name)!r}" for name in differing]
                raise FileError(
                    f"{self.path} must hold a fit of the same settings to resume it; here they are "
                    f"{'; '.join(texts)}. Name another folder, or delete this one."
                )
        self._is_made = not self.path.exists()
        self._folder.begin({"settings": settings})

    def remove_if_empty(self) -> None:
        """Delete the folder of a fit that failed before it had any results."""
        if self._is_made and not self._results():
            self._folder.settings.unlink(missing_ok=True)
            if not any(self.path.iterdir()):
                self.path.rmdir()

    def delete_journal(self) -> None:
        """Delete the partial results of a fit whose model is saved."""
        for path in self.path.glob("*.journal"):
            path.unlink()

    def delete_results(self) -> None:
        """Delete the results of an earlier fit, and no other files, so that another fit can begin."""
        if self._folder.is_begun:
            self.check()
            for path in self._results():
                path.unlink()

    def _results(self) -> list[Path]:
        files = [self.path / name for name in _RESULTS]
        return [*(path for path in files if path.exists()), *self.path.glob("*.journal")]
