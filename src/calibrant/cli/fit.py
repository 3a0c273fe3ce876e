"""``calibrant fit``: fit a calibrator on held-out predictions and save it as a map."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from calibrant.cli import options
from calibrant.cli.inputs import Files, Source, threads_for
from calibrant.cli.options import argument, option
from calibrant.cli.scale import ScaleOptions
from calibrant.errors import InputError
from calibrant.text import counted, terminal_text

if TYPE_CHECKING:
    from rich.table import Table

    from calibrant.catalogue import AnyCalibrator
    from calibrant.files.map_file import AnyMap
    from calibrant.maps import FitSummary

EXAMPLES = """\
calibrant fit auto calibration.csv -o map.safetensors
calibrant fit temperature all.csv --split fold=cal,test -o map.safetensors
calibrant fit temperature 'cal/*.parquet' --workers 4 -o map.safetensors
calibrant fit temperature+isotonic calibration.npz -o map.safetensors
calibrant fit 'histogram(n_bins=20)' calibration.npz -o map.safetensors"""

_MAX_PRINTED = 6  # parameters are printed if there are at most so many
_CONVERGED = 1e-4  # largest gradient of a converged search
_METHOD = (
    "Name from `calibrant list calibrators`; with options, as in 'temperature(criterion=focal)'; or a chain, as in "
    "temperature+isotonic."
)


def fit(
    method: Annotated[str, argument("METHOD", _METHOD)],
    files: Files,
    out: Annotated[Path, option("FILE", "Map to write (.safetensors).", names=("--out", "-o"))],
    features: options.Features = None,
    given: options.ScoreOptions = options.ScoreOptions(),
    split: options.SplitColumn = None,
    scale: ScaleOptions = ScaleOptions(),
) -> None:
    """Fit a calibrator and save it as a map.

    The predictions must be for samples that the model was not trained on. The numbers printed are of these same
    samples; evaluate the map on others, with `calibrant apply` and `calibrant evaluate`.
    """
    from rich import box
    from rich.table import Column, Table

    from calibrant.calibrators import Calibrator
    from calibrant.catalogue import parse_any_calibrator
    from calibrant.cli.output import print_warnings, spinner, standard_error, standard_output
    from calibrant.files import load_features, read_map_file, save_map
    from calibrant.files.map_file import MAP_CONTAINER

    calibrator, parts = parse_any_calibrator(method), options.SplitOption.parse(split)
    if isinstance(calibrator, Calibrator):
        options.refuse_features(features, method)
    MAP_CONTAINER.check_path(out)
    source = Source.find(files)
    options.check_output(out, source.paths)
    err = standard_error()
    with print_warnings(err) as printed, spinner(err) as stage:
        stage(f"reading {source.name}")
        fitted: AnyMap
        feature_values, is_sample = None, scale.streams(source)
        if is_sample:
            fitted, predictions = scale.fit(calibrator, source, given.as_options(), parts, progress=stage)
        else:
            predictions = source.load_classes(given, parts, "calibration")
            if not isinstance(calibrator, Calibrator):
                _check_rows_are_those_of_features(method, source, given, parts)
                feature_values = load_features(source.paths[0], name=features or "features", rows=len(predictions))
            stage(f"fitting {method} on {len(predictions):,} samples")
            with threads_for(predictions):
                fitted = calibrator.fit(predictions, *(() if feature_values is None else (feature_values,)))
        stage(f"writing {out}")
        save_map(fitted, out, fitted_on=predictions, features=feature_values, is_sample=is_sample)
    console, reading = standard_output(), given.as_arguments()
    console.print(f"{calibrator.title} ({method}), fitted on {terminal_text(source.name)}", style="bold")
    console.print(_facts(calibrator, fitted))
    assert fitted.summary is not None
    notes = Table.grid(padding=(0, 1))
    for note in [note for note in fitted.summary.notes if note not in printed]:
        notes.add_row("•", note)
    console.print(notes)
    rows, seen = fitted.summary.rows, len(predictions)
    samples = f"on {seen:,} of these samples" if is_sample and seen < rows else "on these samples"
    columns = (Column(samples), Column("before", justify="right"), Column("after", justify="right"))
    table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False)
    document = read_map_file(out).document
    for name, before in document["before"].items():
        table.add_row(name, f"{before:.4f}", f"{document['after'][name]:.4f}")
    console.print(table)
    console.print("It was fitted on these samples, so the numbers are optimistic. Evaluate it on others:", style="dim")
    for command in (
        f"apply {out} TEST{given.as_arguments(missing='keep')} -o CALIBRATED",
        f"evaluate CALIBRATED{reading}",
    ):
        console.print(f"  calibrant {command}", style="dim", soft_wrap=True)  # in one piece, to be copied
    console.print(f"Wrote {out}", style="dim")


def _check_rows_are_those_of_features(
    method: str, source: Source, given: options.ScoreOptions, parts: options.SplitOption | None
) -> None:
    """Raise if predictions are not all the rows of one file, as features are."""
    if len(source.paths) > 1:
        raise InputError(f"{method} must be given one file, with its features; got {len(source.paths)}.")
    for name, is_given in (("--missing", given.missing != "refuse"), ("--split", parts is not None)):
        if is_given:
            raise InputError(f"{name} must be left out with {method}: features are not split. Save others.")


def _facts(calibrator: "AnyCalibrator", fitted: "AnyMap") -> "Table":
    """Return a table of the samples, what the map preserves, how the fit ended, and its parameters if they are few."""
    from rich.table import Table

    from calibrant.maps import ChainMap, Map

    assert fitted.summary is not None
    n, seconds = fitted.summary.rows, fitted.summary.seconds
    table = Table.grid(padding=(0, 2))
    table.add_row("fitted on", f"{counted(n, 'sample')}, {fitted.n_classes:,} classes, in {seconds:.2g} s")
    table.add_row("keeps", _preserved(calibrator, fitted))
    steps = [step.summary for step in fitted.maps if isinstance(step, Map)] if isinstance(fitted, ChainMap) else []
    searches = [(f"{summary.method}'s optimum", summary) for summary in steps if summary is not None]
    for name, summary in searches or [("optimum", fitted.summary)]:
        table.add_row(name, _optimum(summary))
    for name, values in fitted.state_dict().items():
        if values.numel() <= _MAX_PRINTED:
            shown = [f"{value:.6g}" for value in values.reshape(-1).tolist()]
            table.add_row(name, "inf (equal probabilities)" if shown == ["inf"] else ", ".join(shown))
    return table


def _preserved(calibrator: "AnyCalibrator", fitted: "AnyMap") -> str:
    """Return what the map preserves and what it may change, in words."""
    from calibrant.calibrators import Auto, Chain
    from calibrant.maps import ChainMap, Identity, Map, Scale

    steps: list[tuple[AnyCalibrator, object]] = [(calibrator, fitted)]
    if isinstance(calibrator, Chain) and isinstance(fitted, ChainMap):
        steps = list(zip(calibrator.steps, fitted.maps, strict=True))
    keeps_class = all(
        step.preserves_accuracy or (isinstance(step, Auto) and isinstance(part, Map) and part.keeps_predicted)
        for step, part in steps
    )
    keeps_order = all(
        step.preserves_ranking or isinstance(part, Identity) or (isinstance(part, Scale) and part.n_classes == 2)
        for step, part in steps
    )
    predicted, order = "the predicted class", "the order of samples by confidence"
    if keeps_class and keeps_order:
        return f"{predicted} and {order}"
    if not keeps_class and not keeps_order:
        return f"no guarantee; may change {predicted} and {order}"
    return f"{predicted}; may change {order}" if keeps_class else f"{order}; may change {predicted}"


def _optimum(summary: "FitSummary") -> str:
    """Return how the search for the optimum ended, in words."""
    certificate = summary.certificate
    if certificate is None:
        return "closed form, no search"
    passes = f"{certificate.passes:.1f} passes over {summary.rows:,} samples"
    gradient = abs(certificate.gradient)
    if gradient <= _CONVERGED:
        return f"converged: gradient {gradient:.1g} after {passes}"
    note = ": see the note" if summary.notes else ""
    return f"stopped at gradient {gradient:.1g} after {passes}{note}"
