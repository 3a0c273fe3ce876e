"""``calibrant shift``: class proportions and accuracy of predictions without labels, beside a labelled reference."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from calibrant.cli import options
from calibrant.cli.inputs import Source, threads_for
from calibrant.cli.options import argument, option
from calibrant.errors import CalibrantWarning, FileError, InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from calibrant.files.choose import LoadOptions
    from calibrant.plots import ThemeName
    from calibrant.predictions import Predictions
    from calibrant.report import Page

EXAMPLES = """\
calibrant shift calibration.csv new.csv
calibrant shift calibration.csv new.csv -o adjusted.safetensors
calibrant shift cal.csv new.csv --map map.safetensors -o adjusted.safetensors
calibrant shift test.parquet 'today/*.parquet' --html shift.html"""


def shift(  # noqa: PLR0913, PLR0917  # a command line has many options
    reference: Annotated[Path, argument("REFERENCE", "Predictions with labels, as for evaluate: not of training.")],
    new: Annotated[list[Path], argument("NEW", "New predictions of the same model; labels are not needed.")],
    map_file: Annotated[
        Path | None,
        option("MAP", "Map in use, written by `calibrant fit`, whose result is adjusted.", names=("--map",)),
    ] = None,
    out: Annotated[Path | None, option("FILE", "Adjusted map to write (.safetensors).", names=("--out", "-o"))] = None,
    full: options.Full = False,
    resamples: options.Resamples = 1000,
    seed: options.Seed = 0,
    given: options.ScoreOptions = options.ScoreOptions(),
    reports: options.ReportOptions = options.ReportOptions(),
) -> "Page":
    """Estimate class proportions and accuracy without labels.

    Compares new predictions with a labelled reference: did the proportions of the classes change, did anything else,
    which accuracy is to be expected, and a map that is adjusted to the new proportions. All of it assumes that samples
    of one class look as they did, which is tested. Labels of the new file, if it has any, only show how close that
    comes.
    """
    from calibrant.cli.output import print_warnings, spinner, standard_error
    from calibrant.errors import Caveat
    from calibrant.files import read_map_file, save_map
    from calibrant.files.map_file import MAP_CONTAINER
    from calibrant.maps import Map
    from calibrant.report.shift import shift_page
    from calibrant.shift import measure_shift

    if out is not None:
        MAP_CONTAINER.check_path(out)
    sources = [Source.find([reference]), Source.find(new)]
    if any(source.are_states for source in sources):
        raise InputError("a shift must be measured on predictions; got states, which hold sums. Name the files.")
    inputs = [path for source in sources for path in source.paths] + ([] if map_file is None else [map_file])
    reports.check(inputs)
    if out is not None:
        options.check_output(out, inputs)
    console, err, names = reports.console(), standard_error(), [source.name for source in sources]
    dropped: list[CalibrantWarning] = []
    with print_warnings(err, dropped, except_for=Caveat.floored_labels), spinner(err) as stage:
        saved = None if map_file is None else read_map_file(map_file)
        if saved is not None and not isinstance(saved.map, Map):
            raise InputError(f"{map_file} must be a map of scores alone; it needs features.")
        stage(f"reading {names[0]}")
        old = _load(sources[0], given.as_options())
        stage(f"reading {names[1]}")
        is_labelled, reading = _reading(sources[1], given)
        now = _load(sources[1], reading)
        with threads_for(old, now):
            evidence = {"resamples": resamples, "seed": seed}
            fitted = None if saved is None else saved.map
            measured = measure_shift(old, now, labelled=is_labelled, fitted=fitted, **evidence, progress=stage)  # type: ignore[arg-type]

        def draw(theme: "ThemeName") -> "dict[str, Figure]":
            from calibrant.plots import shift_figures  # loads matplotlib

            stage("drawing")
            return shift_figures(measured, name=names[1], theme=theme)

        drawn = reports.draw(draw)
        if out is not None:
            save_map(measured.map, out)
    command = _command(reference, new, map_file, out, given, is_labelled=is_labelled)
    page = shift_page(measured, reference=names[0], new=names[1], command=command, is_saved=out is not None)
    reports.show_and_write(page.with_dropped(dropped), drawn, console, full=full, inputs=inputs)
    if out is not None:
        console.print(f"Wrote {out}", style="dim")
    return page


def _load(source: Source, reading: "LoadOptions") -> "Predictions":
    """Load the scores of every class; a FileError if there are only those of the predicted one."""
    from calibrant.predictions import TopLabel

    predictions = source.load(reading, None, "test").predictions
    if isinstance(predictions, TopLabel):
        raise FileError(
            f"{source.name} must have logits or probabilities of every class, which show the proportions of classes; "
            "it has only the confidence of the predicted one. Save the model's logits."
        )
    return predictions


def _reading(source: Source, given: options.ScoreOptions) -> "tuple[bool, LoadOptions]":
    """Return whether new predictions have labels, and the options to read them with."""
    from calibrant.files.choose import choose
    from calibrant.files.load import open_for_names

    reading = replace(given.as_options(), labels_needed=False)
    content = open_for_names(source.paths[0], reading)
    if reading.labels is not None and reading.labels not in content.names:
        reading = replace(reading, labels=None)
    return choose(content, reading).labels is not None, reading


def _command(
    reference: Path,
    new: list[Path],
    map_file: Path | None,
    out: Path | None,
    given: options.ScoreOptions,
    *,
    is_labelled: bool,
) -> str:
    """Return the command that applies the saved map to the new predictions, or that saves it."""
    files = shlex.join(map(str, new))
    if out is not None:
        reading = (given if is_labelled else replace(given, labels=None)).as_arguments(missing="keep")
        written = f"adjusted{new[0].suffix}" if len(new) == 1 and new[0].is_file() else "adjusted"  # or a folder
        return f"calibrant apply {shlex.quote(str(out))} {files}{reading} -o {written}"
    by_map = "" if map_file is None else f" --map {shlex.quote(str(map_file))}"
    return (
        f"calibrant shift {shlex.quote(str(reference))} {files}{by_map}{given.as_arguments()} -o adjusted.safetensors"
    )
