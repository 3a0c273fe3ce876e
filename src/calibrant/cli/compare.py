"""``calibrant compare``: calibration methods side by side, each evaluated on samples that it was not fitted on."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from calibrant.cli import options
from calibrant.cli.inputs import Source, threads_for
from calibrant.cli.options import argument, option
from calibrant.cli.scale import ScaleOptions
from calibrant.errors import CalibrantWarning, InputError, warn

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from calibrant.calibrators import Calibrator
    from calibrant.files.load import Part
    from calibrant.plots import ThemeName
    from calibrant.predictions import Predictions
    from calibrant.report import Page
    from calibrant.scale.compare import StreamedComparison

EXAMPLES = """\
calibrant compare calibration.csv test.csv
calibrant compare calibration.csv test.csv --methods all --json methods.json
calibrant compare all.csv --split fold=cal,test
calibrant compare all.csv --folds 10
calibrant compare cal.npz test.npz --methods svs,temperature+isotonic
calibrant compare cal.npz test.npz --metric ks --metric smece
calibrant compare cal.csv test.csv --positive p_fraud --threshold 0.05
calibrant compare 'cal/*.parquet' 'test/*.parquet' --workers 4"""

_CALIBRATION = "Predictions to fit on, of samples the model was not trained on: a file, a folder or a quoted pattern."
_TEST = (
    "Predictions of the same model for other samples, to evaluate on, likewise. Without it, and without --split, "
    "methods are cross-validated."
)
_FOLDS = "Number of folds of the cross-validation, where there is one file; 5 unless given."
_METHODS = "default (by the numbers of samples and classes), all, or comma-separated names as for `calibrant fit`."
_METRIC = "One more metric of the tables, such as ks, or one of your own. May be repeated."


def compare(  # noqa: PLR0913, PLR0917  # a command line has many options
    calibration_file: Annotated[Path, argument("CALIBRATION", _CALIBRATION)],
    test_file: Annotated[Path | None, argument("TEST", _TEST)] = None,
    methods: Annotated[str, option("NAMES", _METHODS)] = "default",
    metric: Annotated[list[str] | None, option("NAME", _METRIC)] = None,
    folds: Annotated[int | None, option("N", _FOLDS)] = None,
    threshold: options.Thresholds = None,
    full: options.Full = False,
    bins: options.Bins = 15,
    resamples: options.Resamples = 500,
    seed: options.Seed = 0,
    given: options.ScoreOptions = options.ScoreOptions(),
    split: options.SplitColumn = None,
    scale: ScaleOptions = ScaleOptions(),
    reports: options.ReportOptions = options.ReportOptions(),
) -> "Page":
    """Compare calibration methods on held-out predictions.

    Fits every method on one file, evaluates it on another, ranks them by log-loss with intervals and paired tests, and
    recommends one. Of one file, --split names the samples of each part, or every sample is evaluated in turn by a map
    that was fitted on those outside its fold.
    """
    from calibrant import catalogue
    from calibrant.cli.output import print_warnings, progress_bar, standard_error
    from calibrant.comparison import compare as compare_methods
    from calibrant.comparison import default_methods
    from calibrant.report.comparison import comparison_page

    named, parts = parse_methods(methods), options.SplitOption.parse(split)
    metrics = [catalogue.metrics.parse(name) for name in metric or ()]
    files = _files(calibration_file, test_file, split, folds)
    reports.check(files)
    sets = [Source.find([file]) for file in files]
    inputs = [path for source in sets for path in source.paths]
    reports.check(inputs)
    out, err = reports.console(), standard_error()
    dropped: list[CalibrantWarning] = []
    with print_warnings(err, dropped), progress_bar(err) as progress:
        progress(f"reading {' and '.join(map(str, dict.fromkeys(files)))}", 0, 1)
        evidence: dict[str, Any] = {"n_bins": bins, "resamples": resamples, "seed": seed}
        is_streamed = any(scale.streams(source) for source in sets)
        evidence["thresholds"] = options.check_thresholds(threshold)
        if is_streamed and (metrics or len(sets) == 1):
            received = "--metric" if metrics else "a comparison in folds"
            raise InputError(f"{received} must come with files that fit into memory; these are streamed.")
        if is_streamed:
            comparison, test = _compare_streamed(sets, scale, given, parts, named, progress=progress, **evidence)
        else:
            calibration = sets[0].load_classes(given, parts, "calibration")
            others = None if len(sets) == 1 else sets[1].load_classes(given, parts, "test")
            if split is not None and others is not None:
                _warn_of_shared_clusters(calibration, others)
            chosen, test = named or default_methods(calibration), calibration if others is None else others
            with threads_for(calibration, test):
                comparison = compare_methods(
                    calibration, others, chosen, folds=folds, metrics=metrics, **evidence, progress=progress
                )
        progress("drawing", 1, 1)

        def draw(theme: "ThemeName") -> "dict[str, Figure]":
            from calibrant.plots import comparison_figures  # loads matplotlib

            return comparison_figures(comparison, test, n_bins=bins, theme=theme, name=files[-1].name)

        drawn = reports.draw(draw, in_html=False)

    def charts() -> dict[str, Any]:
        from calibrant.report.interactive import comparison_charts

        return comparison_charts(comparison, test)

    reading = given.as_arguments(split=split)
    page = comparison_page(comparison, calibration=files[0], test=files[-1], reading=reading)
    page = replace(page, charts=charts).with_dropped(dropped)
    reports.show_and_write(page, drawn, out, full=full, inputs=inputs)
    return page


def _files(calibration: Path, test: Path | None, split: str | None, folds: int | None) -> list[Path]:
    """Return the files to fit and to evaluate on, or the one file whose samples are compared in folds."""
    ways = {"two files": test, "--split": split, "--folds": folds}
    if len(received := [name for name, value in ways.items() if value is not None]) > 1:
        raise InputError(
            "calibrant compare must be given two files, or one alone, or one with --split or --folds; got "
            f"{' and '.join(received)}."
        )
    return [calibration] if test is None and split is None else [calibration, test or calibration]


def _warn_of_shared_clusters(calibration: "Predictions", test: "Predictions") -> None:
    """Warn if clusters of one file are in both of its parts."""
    if calibration.clusters is not None and test.clusters is not None:
        shared = len({*calibration.clusters.tolist()} & {*test.clusters.tolist()})
        if shared:
            warn(
                f"{shared:,} of {test.n_clusters:,} clusters of the test samples are also in the calibration samples, "
                "which favours flexible methods. Split the file so that no cluster is in both parts."
            )


def _compare_streamed(
    sets: list[Source],
    scale: ScaleOptions,
    given: options.ScoreOptions,
    split: options.SplitOption | None,
    methods: "tuple[Calibrator, ...]",
    *,
    progress: Callable[[str, int, int], None],
    **evidence: Any,
) -> "StreamedComparison":
    """Compare methods on shards that are read in batches."""
    from calibrant.scale.compare import ShardSet, compare_streamed
    from calibrant.scale.jobs import warn_of_missing

    if any(source.are_states for source in sets):
        raise InputError("methods must be compared on predictions; got states, which hold sums. Name the files.")
    scale.check_passes("compare")

    def opened(source: Source, part: "Part") -> ShardSet:
        return ShardSet(source.shards, scale.plan(source.shards, given.as_options(), split, part))

    calibration, test = opened(sets[0], "calibration"), opened(sets[1], "test")
    with scale.started() as engine:  # once for all fits
        for one in (calibration, test):
            warn_of_missing(one.shards, one.plan, engine=engine)
        return compare_streamed(calibration, test, methods or None, engine=engine, progress=progress, **evidence)


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
