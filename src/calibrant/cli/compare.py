"""``calibrant compare``: calibration methods side by side, fitted on one file and evaluated on another."""

from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

from calibrant.cli import options
from calibrant.cli.options import argument, option
from calibrant.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from calibrant.calibrators import Calibrator
    from calibrant.plots import ThemeName
    from calibrant.report import Page

EXAMPLES = """\
calibrant compare calibration.csv test.csv
calibrant compare calibration.csv test.csv --methods all --json methods.json
calibrant compare all.csv --split fold=cal,test
calibrant compare calibration.npz test.npz --methods svs,temperature+isotonic"""

_CALIBRATION = "Predictions to fit on, for samples that the model was not trained on."
_TEST = "Predictions of the same model for other samples, to evaluate on. Left out with --split."
_METHODS = (
    "default (by the numbers of samples and classes), all, or names as for `calibrant fit`, with commas between them."
)


def compare(  # noqa: PLR0913, PLR0917  # a command line has many options
    calibration_file: Annotated[Path, argument("CALIBRATION", _CALIBRATION)],
    test_file: Annotated[Path | None, argument("TEST", _TEST)] = None,
    methods: Annotated[str, option("NAMES", _METHODS)] = "default",
    full: options.Full = False,
    bins: options.Bins = 15,
    resamples: options.Resamples = 500,
    seed: options.Seed = 0,
    given: options.Scores = options.Scores(),
    split: options.SplitColumn = None,
    reports: options.Reports = options.Reports(),
) -> "Page":
    """Compare calibration methods on held-out predictions.

    Fits every method on one file, evaluates it on another (or on the other samples of the same, with --split), ranks
    them by log-loss with intervals and paired tests, and recommends one.
    """
    from calibrant.cli.output import print_warnings, progress_bar, standard_error, standard_output
    from calibrant.comparison import compare as compare_methods
    from calibrant.comparison import default_methods
    from calibrant.report.comparison import comparison_page

    named, parts = parse_methods(methods), options.Split.parse(split)
    if (test_file is None) == (parts is None):
        received = "both" if parts else "one file"
        raise InputError(f"calibrant compare must be given two files, or one with --split; got {received}.")
    test_file = test_file or calibration_file
    reports.check([calibration_file, test_file])
    out, err = standard_output(), standard_error()
    with print_warnings(err), progress_bar(err) as progress:
        progress(f"reading {calibration_file} and {test_file}", 0, 1)
        calibration = given.load(calibration_file, parts, "calibration")
        test = given.load(test_file, parts, "test")
        chosen = named or default_methods(calibration)
        evidence = {"n_bins": bins, "resamples": resamples, "seed": seed}
        comparison = compare_methods(calibration, test, chosen, **evidence, progress=progress)
        progress("drawing", 1, 1)

        def draw(theme: "ThemeName") -> "dict[str, Figure]":
            from calibrant.plots import comparison_figures  # loads matplotlib

            return comparison_figures(comparison, test, n_bins=bins, theme=theme, name=test_file.name)

        drawn = reports.draw(draw, in_html=False)

    def charts() -> dict[str, Any]:
        from calibrant.report.interactive import comparison_charts

        return comparison_charts(comparison, test)

    reading = given.as_arguments() + (f" --split {quote(split)}" if split else "")
    page = comparison_page(comparison, calibration=calibration_file, test=test_file, reading=reading)
    page = replace(page, charts=charts)
    reports.show_and_write(page, drawn, out, full=full, inputs=[calibration_file, test_file])
    return page


def parse_methods(text: str) -> "tuple[Calibrator, ...]":
    """Read ``all``, or descriptions with commas between them; nothing for ``default``."""
    from calibrant import catalogue

    names = options.split_names(text, "--methods", "default, all")
    if names == ["default"]:
        return ()
    if names == ["all"]:
        # Without steps a chain is the uncalibrated model, which always takes part.
        return tuple(method for name, method in catalogue.calibrators.items() if name != "chain")
    return tuple(catalogue.parse_calibrator(name) for name in names)
