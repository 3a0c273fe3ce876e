"""What ``calibrant compare`` does once torch may be loaded: read, fit, judge, draw, write."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import cast, final

from matplotlib.figure import Figure

from calibrant.cli.methods import Methods
from calibrant.cli.notes import warnings_shown
from calibrant.cli.options import Names
from calibrant.cli.output import standard_error, standard_output
from calibrant.cli.progress import counted
from calibrant.cli.reading import read_predictions
from calibrant.cli.writing import Reports, write_json, write_page
from calibrant.comparison import UNCALIBRATED, Comparison, compare
from calibrant.diagrams import reliability
from calibrant.plots import ThemeName, plot_leaderboard, plot_reliability
from calibrant.predictions import Predictions
from calibrant.report.comparison.diagram import leaderboard_diagram
from calibrant.report.comparison.document import leaderboard_to_document
from calibrant.report.comparison.markdown import leaderboard_to_markdown
from calibrant.report.comparison.terminal import leaderboard_to_terminal

__all__ = ["ComparisonRequest", "run_comparison"]


@final
@dataclass(frozen=True)
class ComparisonRequest:
    """What the person asked for."""

    calibration: Path
    test: Path
    methods: str = "default"
    names: Names = field(default_factory=Names)
    n_bins: int = 15
    seed: int = 0
    resamples: int = 500
    reports: Reports = field(default_factory=Reports)


def run_comparison(request: ComparisonRequest) -> None:
    """Carry the request out. All that can be wrong with it is found before the long work."""
    methods = Methods.parse(request.methods)
    request.reports.check([request.calibration, request.test])
    out, err = standard_output(), standard_error()
    with warnings_shown(err), counted(err) as count:
        count(f"reading {request.calibration} and {request.test}", 0, 1)
        calibration, test = (read_predictions(path, request.names) for path in (request.calibration, request.test))
        board = compare(
            calibration,
            test,
            methods.for_rows(calibration),
            n_bins=request.n_bins,
            resamples=request.resamples,
            seed=request.seed,
            progress=count,
        )
        count("drawing", 1, 1)
        pictures = request.reports.save_pictures(lambda theme: _drawn(board, test, request.n_bins, theme))
    source = f"{request.calibration.name} → {request.test.name}"
    out.print(leaderboard_to_terminal(board, source=source))
    written = [
        *pictures,
        *write_json(
            request.reports.json,
            lambda: leaderboard_to_document(board, calibration=request.calibration.name, test=request.test.name),
        ),
        *write_page(
            request.reports.markdown,
            pictures,
            lambda figures: leaderboard_to_markdown(board, source=source, figures=figures),
        ),
    ]
    chosen = board.recommended.name
    if chosen != UNCALIBRATED:
        out.print(f"Next: calibrant fit '{chosen}' {request.calibration} -o map.safetensors", style="bold")
    if written:
        out.print("Wrote " + ", ".join(str(path) for path in written), style="dim")


def _drawn(board: Comparison, test: Predictions, n_bins: int, theme: ThemeName) -> dict[str, Figure]:
    """The board, and the reliability of the best method before and after."""
    drawn = {"leaderboard": plot_leaderboard(leaderboard_diagram(board), theme=theme)}
    shown = board.recommended if board.recommended.name != UNCALIBRATED else board.best
    if shown.map is not None and shown.name != UNCALIBRATED:
        before, after = (reliability(rows, n_bins=n_bins) for rows in (test, shown.map.transform(test)))
        ax = plot_reliability(before, other=after, labels=("before", f"after {shown.name}"), theme=theme)
        drawn["before_and_after"] = cast("Figure", ax.figure)
    return drawn
