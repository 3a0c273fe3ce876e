"""``calibrant diagnose``: compare trained networks by what calibration can still do for them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from calibrant.cli import options
from calibrant.cli.options import argument, flag, option
from calibrant.errors import FileError, InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Console

    from calibrant.calibrators import Calibrator
    from calibrant.diagnosis import DiagnosedRun, ShiftedSet
    from calibrant.plots import ThemeName

EXAMPLES = """\
calibrant diagnose runs
calibrant diagnose runs/ce-seed0 runs/focal-seed0 --baseline ce
calibrant diagnose runs.csv --baseline plain --weights importance
calibrant diagnose runs --corrupt common --data ~/data --markdown report.md"""

_SHIFT = "Shifted data"
_COMMON = ("gaussian_noise", "defocus_blur", "contrast", "brightness", "jpeg_compression")
_INPUT_FILES = ("settings.json", "epochs.jsonl", "calibration.npz", "test.npz", "learning.npz", "weights.safetensors")
_MOST_NAMED = 3  # folders in a title


_RUNS = "Folders written by `calibrant train` or save_run, a folder of several, or tables of runs (csv, json)."
_MAPS = "Calibrators to fit: comma-separated names, temperature among them; or paper, as in Wang et al. (2021)."
_DRAWS = "Random subsets of the calibration samples behind the curves over their number; 0 for no curves."
_FILES = (
    "Shifted images of the same classes: npz, npy with its labels beside it, or a folder of these or of pictures, in a "
    "folder for each class. May be repeated."
)
_CORRUPT = (
    "Corruptions of the test images: common (noise, blur, contrast, brightness, JPEG), all, or names with commas."
)
_SEVERITY = "Severities of the corruptions, 1 to 5, comma-separated."


def diagnose(  # noqa: PLR0913, PLR0917  # a command line has many options
    runs: Annotated[list[Path], argument("RUNS", _RUNS)],
    baseline: Annotated[
        str | None,
        option("NAME", "The loss that the others are compared with, named as in the tables.", show_default="plain ce"),
    ] = None,
    maps: Annotated[str | None, option("NAMES", _MAPS, show_default="temperature,histogram,svs")] = None,
    source: options.ScoreOptions = options.ScoreOptions(),
    full: options.Full = False,
    bins: options.Bins = 15,
    draws: Annotated[int, option("N", _DRAWS, min=0)] = 3,
    resamples: options.Resamples = 500,
    seed: options.Seed = 0,
    shift: Annotated[list[Path] | None, option("FILE", _FILES, _SHIFT)] = None,
    corrupt: Annotated[str | None, option("NAMES", _CORRUPT, _SHIFT)] = None,
    severity: Annotated[str | None, option("NUMBERS", _SEVERITY, _SHIFT, show_default="all five")] = None,
    data: Annotated[Path | None, option("FOLDER", "Data set of the runs, for --corrupt.", _SHIFT)] = None,
    unchecked: Annotated[bool, flag("--unchecked", "Accept files that differ from published ones.", _SHIFT)] = False,
    device: options.Device = None,
    reports: options.ReportOptions = options.ReportOptions(),
) -> None:
    """Compare trained networks over losses and seeds.

    Evaluates runs by what post-hoc calibration can still do for them, and by how well their confidence separates
    correct from wrong predictions. A table of runs of any training loop has the columns name, calibration and test
    (files of predictions), perhaps seed, and others as options; the options under Input say how to read these files.
    """
    from calibrant.checks import check_known
    from calibrant.cli.output import print_warnings, progress_bar, standard_error
    from calibrant.diagnosis import diagnose as diagnose_runs
    from calibrant.diagnosis import grouped, read_runs
    from calibrant.report.diagnosis import diagnosis_page

    out, err = reports.console(), standard_error()
    folders = list(_folders(runs, err))
    files = tuple(shift or ())
    reports.check([*folders, *(folder / name for folder in folders for name in _INPUT_FILES), *files])
    for i, file in enumerate(files):
        if file.resolve() in {other.resolve() for other in files[:i]}:
            raise InputError(f"--shift must name each file once; {file} is named twice.")
        if not file.exists():
            raise FileError(f"--shift must name a file or folder of images; there is no {file}.")
    names, severities = _corruptions(corrupt, severity, data)
    calibrators = _calibrators(maps)
    with print_warnings(err), progress_bar(err) as progress:
        progress("reading the runs", 0, len(folders))
        if source.missing != "refuse":
            raise InputError("--missing must be left out of diagnose, whose runs have the same samples.")
        loaded = read_runs(folders, source.as_options() if source != options.ScoreOptions() else None)
        predictions = [file for run in loaded for file in (run.calibration_file, run.test_file)]
        reports.check(predictions)
        if baseline is not None:
            check_known(baseline, [candidate.name for candidate in grouped(loaded)], "--baseline")
        sets = _shifted_sets(loaded, files, names, severities, data=data, checked=not unchecked, seed=seed)
        chosen = options.choose_device(device) if files or names else None
        numbers = {"n_bins": bins, "draws": draws, "resamples": resamples, "seed": seed}
        diagnosis = diagnose_runs(
            loaded, baseline=baseline, maps=calibrators, sets=sets, device=chosen, progress=progress, **numbers
        )

        def draw(theme: "ThemeName") -> "dict[str, Figure]":
            from calibrant.plots.diagnosis import diagnosis_figures  # loads matplotlib

            progress("drawing", 0, 1)
            return diagnosis_figures(diagnosis, theme=theme)

        def charts() -> dict[str, Any]:
            from calibrant.report.network_charts import diagnosis_charts

            return diagnosis_charts(diagnosis)

        drawn = reports.draw(draw, in_html=False)
    titles = [path.resolve().name for path in runs]
    title = ", ".join(titles) if len(titles) <= _MOST_NAMED else f"{titles[0]} and {len(titles) - 1} more"
    page = replace(diagnosis_page(diagnosis, source=title), charts=charts)
    reports.show_and_write(page, drawn, out, full=full, inputs=[*(run.test_file for run in loaded), *files])


def _folders(given: Sequence[Path], err: "Console") -> Iterator[Path]:
    """Yield the runs and tables that were named, and the finished runs inside a folder of several."""
    from calibrant.diagnosis.run_table import RUN_FILE, TABLE_ENDINGS
    from calibrant.training.folder import RunFolder

    for path in given:
        if path.is_file() and path.suffix.lower() in TABLE_ENDINGS:
            yield path
            continue
        if not path.is_dir():
            got = "it is a file" if path.exists() else "it does not exist"
            wanted = "a folder written by calibrant train or save_run, or a table of runs (.csv, .json)"
            raise FileError(f"{path} must be {wanted}; {got}.")
        marks = ("settings.json", RUN_FILE)
        is_run = any((path / mark).exists() for mark in marks)
        inside = [] if is_run else sorted({file.parent for mark in marks for file in path.glob(f"*/{mark}")})
        finished = [folder for folder in inside if (folder / RUN_FILE).exists() or RunFolder(folder).has_answers]
        for folder in inside:
            if finished and folder not in finished:
                err.print(f"note: {folder} was stopped before its end, and is left out.", style="yellow")
        yield from finished or inside or [path]


def _calibrators(text: str | None) -> "tuple[Calibrator, ...]":
    """Read the names of calibrators; ``paper`` means several."""
    from calibrant import catalogue
    from calibrant.diagnosis import MAPS, PAPER_MAPS
    from calibrant.diagnosis.evaluated import check_maps

    if text is None:
        return MAPS
    calibrators: list[Calibrator] = []
    for name in options.split_names(text, "--maps", "paper"):
        calibrators += PAPER_MAPS if name == "paper" else [catalogue.parse_calibrator(name)]
    check_maps(calibrators, "--maps")
    return tuple(calibrators)


def _corruptions(
    corrupt: str | None, severity: str | None, data: Path | None
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Read the names and severities of ``--corrupt`` and ``--severity``; no names without ``--corrupt``."""
    from calibrant.checks import check_known
    from calibrant.datasets.corruptions import CORRUPTIONS
    from calibrant.diagnosis.shift import SEVERITIES

    if corrupt is None:
        for name, given in (("--severity", severity), ("--data", data)):
            if given is not None:
                raise InputError(f"{name} is only for --corrupt, which is not given. Add --corrupt common.")
        return (), ()
    known = tuple(CORRUPTIONS)
    names = tuple(dict.fromkeys(name.strip() for name in corrupt.split(",") if name.strip()))
    if names in {("all",), ("common",)}:
        names = known if names == ("all",) else _COMMON
    for name in names:
        check_known(name, (*known, "all", "common"), "--corrupt")
    if not names:
        raise InputError(f"--corrupt must be common, all, or some of {', '.join(known)}; got nothing.")
    if severity is None:
        return names, SEVERITIES
    chosen = {text.strip() for text in severity.split(",")}
    if not chosen <= set(map(str, SEVERITIES)):
        raise InputError(f"--severity must be 1 to 5, comma-separated; got {severity!r}.")
    return names, tuple(sorted(map(int, chosen)))


def _shifted_sets(
    runs: "Sequence[DiagnosedRun]",
    files: Sequence[Path],
    names: Iterable[str],
    severities: Iterable[int],
    *,
    data: Path | None,
    checked: bool,
    seed: int,
) -> "list[ShiftedSet]":
    """Return the corrupted and stored sets; each is made when it is needed."""
    from calibrant.diagnosis import corrupted_sets, read_run_dataset, stored_sets

    sets: list[ShiftedSet] = []
    if names:
        dataset = read_run_dataset(runs, data, checked=checked)
        sets += corrupted_sets(runs, dataset, names=tuple(names), severities=tuple(severities), seed=seed)
    file_names = [file.name for file in files]
    for file in files:
        # Two files of one name are distinguished by their folders.
        name = f"{file.resolve().parent.name}/{file.stem}" if file_names.count(file.name) > 1 else None
        sets += stored_sets(runs, file, name=name)
    return sets
