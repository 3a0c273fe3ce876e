"""What ``calibrant evaluate`` does once torch may be loaded: load, judge, write, gate."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import final

from calibrant.cli.gate import Gate
from calibrant.cli.notes import warnings_shown
from calibrant.cli.options import Names
from calibrant.cli.output import standard_error, standard_output
from calibrant.cli.progress import stages
from calibrant.cli.reading import read
from calibrant.cli.writing import Reports, write_json, write_page
from calibrant.evidence import Difference, difference
from calibrant.predictions import Predictions, TopLabel
from calibrant.report import Evaluation, evaluate
from calibrant.report.document import to_document
from calibrant.report.evaluation import metrics_for
from calibrant.report.markdown import to_markdown
from calibrant.report.terminal import to_terminal

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


@final
@dataclass(frozen=True)
class Judgement:
    """What was found."""

    evaluation: Evaluation
    comparison: dict[str, Difference] | None
    pictures: list[Path]


def run_evaluation(request: Request) -> int:
    """Carry the request out; the exit code is 1 if a gate failed, else 0."""
    gates = [Gate.parse(text) for text in request.fail_if]
    request.reports.check(path for path in (request.file, request.compare) if path is not None)
    out, err = standard_output(), standard_error()
    with warnings_shown(err), stages(err) as stage:
        found = _judge(request, gates, stage)
    metrics, source = found.evaluation.metrics, request.file.name
    out.print(to_terminal(found.evaluation, source=source, comparison=found.comparison, other=_other(request)))
    written = [*found.pictures, *_write(request, found)]
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
        stage(f"comparing with {request.compare}")
        comparison = difference(predictions, second, metrics, seed=request.seed)
    evaluation = evaluate(
        predictions, n_bins=request.n_bins, resamples=request.resamples, seed=request.seed, progress=stage
    )
    return Judgement(evaluation, comparison, _pictures(request, predictions, stage))


def _pictures(request: Request, predictions: Predictions | TopLabel, stage: Callable[[str], None]) -> list[Path]:
    if request.reports.figures is None:
        return []
    from calibrant.plots import figures  # matplotlib is loaded for those who want pictures

    stage("drawing")
    return request.reports.save_pictures(
        lambda theme: figures(predictions, n_bins=request.n_bins, theme=theme, seed=request.seed)
    )


def _write(request: Request, found: Judgement) -> list[Path]:
    """Write the reports that were asked for, and the summary of a job that has one."""
    source = request.file.name

    def page(pictures: Sequence[PurePath]) -> str:
        return to_markdown(
            found.evaluation, source=source, comparison=found.comparison, other=_other(request), figures=pictures
        )

    return [
        *write_json(
            request.reports.json,
            lambda: to_document(found.evaluation, source=source, comparison=found.comparison),
        ),
        *write_page(request.reports.markdown, found.pictures, page),
    ]


def _other(request: Request) -> str | None:
    return None if request.compare is None else request.compare.name
