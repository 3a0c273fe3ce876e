"""``calibrant trend``: metrics of predictions over time, from the states of days or weeks, or a column of them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calibrant.cli import options
from calibrant.cli.inputs import Source, find_states
from calibrant.cli.options import argument, flag, option
from calibrant.errors import CalibrantWarning, FileError, InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from calibrant.plots import ThemeName
    from calibrant.report import Page
    from calibrant.scale import EvaluationState

EXAMPLES = """\
calibrant trend 'day*.state'
calibrant trend mon.state tue.state wed.state --metric ece --metric auroc
calibrant trend 'day*.state' --fail-if-worse
calibrant trend preds.parquet --by day
calibrant trend 'day*.state' --figures figures --html trend.html"""


def trend(  # noqa: PLR0913, PLR0917  # a command line has many options
    files: Annotated[
        list[Path],
        argument("STATE", "States in the order of time, a folder or a quoted pattern; or, with --by, files."),
    ],
    by: Annotated[str | None, option("COLUMN", "Column of the periods, of files of predictions.")] = None,
    metric: Annotated[
        list[str] | None,
        option("NAME", "Metric to follow; ece, accuracy, nll unless given; of two classes ece, risk_auroc, nll."),
    ] = None,
    fail_if_worse: Annotated[
        bool, flag("--fail-if-worse", "Exit with 1 if a metric became worse in the last period; not in one before it.")
    ] = False,
    full: options.Full = False,
    bins: options.Bins = 15,
    resamples: options.Resamples = 1000,
    seed: options.Seed = 0,
    given: options.ScoreOptions = options.ScoreOptions(),
    confidences: options.ConfidenceOptions = options.ConfidenceOptions(),
    reports: options.ReportOptions = options.ReportOptions(),
) -> "Page":
    """Follow metrics over time, and test whether they changed.

    Every state, as `calibrant state` writes them, or every value of a column is one period. It is compared with those
    before it since the last change, with a correction for every look: however often new ones are added, a change is
    shown where there is none with probability .05. Names are put in the order of the numbers in them, those of states
    if the shell has sorted them.
    """
    from calibrant.cli.output import print_warnings, spinner, standard_error
    from calibrant.report.trend import trend_page
    from calibrant.scale import Plan
    from calibrant.scale.jobs import LOCAL, warn_of_missing
    from calibrant.scale.trend import measure_trend, states_by

    source = None if by is None else Source.find(files)
    paths = _in_order(files) if source is None else source.paths
    reports.check(paths)
    err = standard_error()
    dropped: list[CalibrantWarning] = []
    with print_warnings(err, dropped), spinner(err) as stage:
        if by is not None and source is not None:
            stage(f"reading {source.name}")
            if source.are_states:
                raise InputError("--by must be given files of predictions; got states, which are periods themselves.")
            plan = Plan.of(source.shards[0], replace(confidences.as_options(given), extra=(by,)))
            warn_of_missing(source.shards, plan, engine=LOCAL)
            states = states_by(by, source.shards, plan, n_bins=bins, seed=seed)
        elif (bins, seed, given, confidences) != (15, 0, options.ScoreOptions(), options.ConfidenceOptions()):
            raise InputError("options of reading must come with --by; states were gathered with their own.")
        else:
            states = _load(paths)
        measured = measure_trend(states, metrics=metric or (), resamples=resamples, progress=stage)

        def draw(theme: "ThemeName") -> "dict[str, Figure]":
            from calibrant.plots import plot_trend  # loads matplotlib

            return {"trend": plot_trend(measured, theme=theme)}

        drawn = reports.draw(draw, in_html=False)
    page = trend_page(measured, source=None if source is None else f"{source.name} by {by}").with_dropped(dropped)
    out = reports.console()
    reports.show_and_write(page, drawn, out, full=full, inputs=paths)
    if fail_if_worse:
        *earlier, (last, worse) = [(period.name, measured.worse(period)) for period in measured.periods]
        mark, style = ("✗", "bold red") if worse else ("✓", "green")
        known = "; ".join(f"{', '.join(names)} in {name}" for name, names in earlier if names)
        known = f" (before: {known})" if known else ""
        out.print(f"{mark} --fail-if-worse: {', '.join(worse) or 'nothing'} became worse in {last}{known}", style=style)
        if worse:
            raise typer.Exit(1)
    return page


def _load(paths: Sequence[Path]) -> "dict[str, EvaluationState]":
    """Load states by their names, or by their paths where two have one name."""
    from calibrant.files.load import warn_again
    from calibrant.scale import EvaluationState

    names = [path.name.removesuffix(".state") for path in paths]
    if len(set(names)) < len(names):
        names = [str(path.with_suffix("")) for path in paths]
    states = {}
    for name, path in zip(names, paths, strict=True):
        states[name], notes = EvaluationState.load(path)
        for facts in notes.get("dropped", ()):
            warn_again(facts)
    if len(states) < len(paths):
        raise InputError("states must be given once each; got one twice.")
    return states


def _in_order(files: Sequence[Path]) -> list[Path]:
    """Return states as they were given; a folder, or what a shell made of a pattern, by the numbers in the names."""
    from calibrant.scale.trend import in_time_order

    paths = find_states(files)
    for path in paths:
        if path.suffix.lower() != ".state":
            raise FileError(
                f"{path} must be a state (.state). Make one: calibrant state {path} -o {path.stem}.state; or name the "
                "column of its periods: --by COLUMN."
            )
    names = [str(path) for path in paths]
    return [Path(name) for name in in_time_order(names)] if names == sorted(names) else paths
