"""``calibrant trend``: metrics of predictions over time, from the states of days or weeks."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calibrant.cli import options
from calibrant.cli.options import argument, flag, option
from calibrant.cli.scale import find_states
from calibrant.errors import FileError, InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from calibrant.plots import ThemeName
    from calibrant.report import Page

EXAMPLES = """\
calibrant trend 'day*.state'
calibrant trend mon.state tue.state wed.state --metric ece --metric auroc
calibrant trend 'day*.state' --fail-if-worse
calibrant trend 'day*.state' --figures figures --html trend.html"""


def trend(
    files: Annotated[
        list[Path], argument("STATE", "States in the order of time, a folder or a quoted pattern of them.")
    ],
    metric: Annotated[list[str] | None, option("NAME", "Metric to follow; ece, accuracy, nll unless given.")] = None,
    fail_if_worse: Annotated[
        bool, flag("--fail-if-worse", "Exit with 1 if a metric became worse in the last period.")
    ] = False,
    full: options.Full = False,
    resamples: options.Resamples = 1000,
    reports: options.Reports = options.Reports(),
) -> "Page":
    """Follow metrics over time, and test whether they changed.

    Every state, as `calibrant state` writes them, is one period. It is compared with those before it since the last
    change, with a correction for every look: however often new states are added, a change is shown where there is none
    with probability .05. Names that the shell has sorted are put in the order of the numbers in them.
    """
    from calibrant.cli.output import print_warnings, spinner, standard_error, standard_output
    from calibrant.report.trend import trend_page
    from calibrant.scale import EvaluationState
    from calibrant.scale.trend import measure_trend

    paths = _in_order(files)
    reports.check(paths)
    err = standard_error()
    with print_warnings(err), spinner(err) as stage:
        names = [path.name.removesuffix(".state") for path in paths]
        if len(set(names)) < len(names):
            names = [str(path.with_suffix("")) for path in paths]
        states = {name: EvaluationState.load(path)[0] for name, path in zip(names, paths, strict=True)}
        if len(states) < len(paths):
            raise InputError("states must be given once each; got one twice.")
        measured = measure_trend(states, metrics=metric or (), resamples=resamples, progress=stage)

        def draw(theme: "ThemeName") -> "dict[str, Figure]":
            from calibrant.plots import plot_trend  # loads matplotlib

            return {"trend": plot_trend(measured, theme=theme)}

        drawn = reports.draw(draw)
    page, out = trend_page(measured), standard_output()
    reports.show_and_write(page, drawn, out, full=full, inputs=paths)
    if fail_if_worse:
        worse = measured.worse(last := measured.periods[-1])
        mark, style = ("✗", "bold red") if worse else ("✓", "green")
        out.print(f"{mark} --fail-if-worse: {', '.join(worse) or 'nothing'} became worse in {last.name}", style=style)
        if worse:
            raise typer.Exit(1)
    return page


def _in_order(files: Sequence[Path]) -> list[Path]:
    """Return states as they were given; a folder, or what a shell made of a pattern, by the numbers in the names."""
    paths = find_states(files)
    for path in paths:
        if path.suffix.lower() != ".state":
            raise FileError(f"{path} must be a state (.state). Make one: calibrant state {path} -o {path.stem}.state")
    if [str(path) for path in paths] != sorted(map(str, paths)):
        return paths
    return sorted(paths, key=lambda path: [int(part) if part.isdigit() else part for part in _NUMBERS.split(str(path))])


_NUMBERS = re.compile(r"(\d+)")
