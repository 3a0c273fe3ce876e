"""What ``calibrant evaluate`` does once torch may be loaded: load, judge, write, gate."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from calibrant.cli.gate import Gate
from calibrant.cli.notes import warnings_shown
from calibrant.cli.options import Names
from calibrant.cli.output import standard_error, standard_output
from calibrant.cli.progress import stages
from calibrant.cli.reading import read
from calibrant.cli.writing import Reports, write_reports
from calibrant.errors import InputError
from calibrant.evaluation import Evaluation, evaluate, metrics_for
from calibrant.evidence import Difference, difference
from calibrant.predictions import Predictions, TopLabel
from calibrant.report import Figure, evaluation_page, show

__all__ = ["Judgement", "Request", "run_evaluation"]


@final
@dataclass(frozen=True)
class Request:
    """What the person asked for."""

    file: Path
    names: Names = field(default_factory=Names)
    n_bins: int = 15
    seed: int = 0
    resamples: int = 1000
    reports: Reports = field(default_factory=Reports)
    fail_if: tuple[str, ...] = ()
    compare: Path | None = None
    full: bool = False


@final
@dataclass(frozen=True)
class Judgement:
    """What was found."""

    evaluation: Evaluation
    comparison: dict[str, Difference] | None
    pictures: list[Figure]


def run_evaluation(request: Request) -> int:
    """Carry the request out; the exit code is 1 if a gate failed, else 0."""
    gates = [Gate.parse(text) for text in request.fail_if]
    request.reports.check(path for path in (request.file, request.compare) if path is not None)
    out, err = standard_output(), standard_error()
    with warnings_shown(err), stages(err) as stage:
        found = _judge(request, gates, stage)
    metrics = found.evaluation.metrics
    page = evaluation_page(
        found.evaluation,
        source=request.file.name,
        comparison=found.comparison,
        other=None if request.compare is None else request.compare.name,
    )
    show(page, full=request.full, console=out)
    written = write_reports(page, request.reports, found.pictures)
    if written:
        out.print("Wrote " + ", ".join(str(path) for path in written), style="dim")
    failed = [gate for gate in gates if gate.fails(metrics)]
    for gate in gates:
        out.print(gate.describe(metrics), style="bold red" if gate in failed else "green")
    return int(bool(failed))


def _judge(request: Request, gates: list[Gate], stage: Callable[[str], None]) -> Judgement:
    """Read, measure, compare and draw. All that can be wrong with the request is found before the long work."""
    stage(f"reading {request.file}")
    predictions = read(request.file, request.names)
    second = None if request.compare is None else read(request.compare, request.names)
    metrics = metrics_for(predictions, n_bins=request.n_bins)
    for gate in gates:
        gate.check_measured(metrics)
    comparison = None
    if second is not None:
        if type(second) is not type(predictions):
            raise InputError(f"{request.file} and {request.compare} must hold predictions of one kind.")
        stage(f"comparing with {request.compare}")
        comparison = difference(second, predictions, metrics, seed=request.seed)
    evaluation = evaluate(
        predictions, n_bins=request.n_bins, resamples=request.resamples, seed=request.seed, progress=stage
    )
    return Judgement(evaluation, comparison, _pictures(request, predictions, stage))


def _pictures(request: Request, predictions: Predictions | TopLabel, stage: Callable[[str], None]) -> list[Figure]:
    if request.reports.figures is None and request.reports.html is None:
        return []
    from calibrant.plots import figures  # loads matplotlib

    stage("drawing")
    return request.reports.draw(
        lambda theme: figures(predictions, n_bins=request.n_bins, theme=theme, seed=request.seed)
    )
