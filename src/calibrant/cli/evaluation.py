"""What ``calibrant evaluate`` does once torch may be loaded: load, judge, write, gate."""

import json
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import final

from rich.console import Console

from calibrant.cli.gate import Gate
from calibrant.cli.progress import stages
from calibrant.errors import CalibrantWarning, InputError
from calibrant.evidence import Difference, compare
from calibrant.plots import THEMES, ThemeName, figures, save_figures
from calibrant.predictions import Predictions, TopLabel
from calibrant.report import Evaluation, evaluate
from calibrant.report.document import to_document
from calibrant.report.evaluation import metrics_for
from calibrant.report.markdown import to_markdown
from calibrant.report.terminal import to_terminal
from calibrant.sources import load
from calibrant.sources.atomic import atomic_text

__all__ = ["Judgement", "Request", "run_evaluation"]


@final
@dataclass(frozen=True)
class Request:
    """What the person asked for."""

    file: Path
    kind: str | None = None
    names: dict[str, str | None] | None = None
    n_bins: int = 15
    seed: int = 0
    resamples: int = 1000
    json: Path | None = None
    markdown: Path | None = None
    figures: Path | None = None
    figure_format: str = "png"
    theme: str = "light"
    fail_if: tuple[str, ...] = ()
    compare: Path | None = None

    def __post_init__(self) -> None:
        for option, given, known in (
            ("--figure-format", self.figure_format, ("png", "svg", "pdf")),
            ("--theme", self.theme, tuple(THEMES)),
        ):
            if given not in known:
                raise InputError(f"{option} must be one of {', '.join(known)}; got {given!r}.")


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
    out, err = Console(), Console(stderr=True)
    if not out.is_terminal:
        out.width = 120
    with _warnings_shown(err), stages(err) as stage:
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
    predictions = _load(request.file, request)
    second = None if request.compare is None else _load(request.compare, request)
    metrics = metrics_for(predictions, n_bins=request.n_bins)
    for gate in gates:
        gate.check_measured(metrics)
    comparison = None
    if second is not None:
        stage(f"comparing with {request.compare}")
        comparison = compare(predictions, second, metrics, seed=request.seed)
    evaluation = evaluate(
        predictions, n_bins=request.n_bins, resamples=request.resamples, seed=request.seed, progress=stage
    )
    pictures: list[Path] = []
    if request.figures is not None:
        stage("drawing")
        theme: ThemeName = "dark" if request.theme == "dark" else "light"
        drawn = figures(predictions, n_bins=request.n_bins, theme=theme, seed=request.seed)
        pictures = save_figures(drawn, request.figures, formats=[request.figure_format])
    return Judgement(evaluation, comparison, pictures)


def _write(request: Request, found: Judgement) -> list[Path]:
    """Write the reports that were asked for, and the summary of a job that has one."""
    source, written = request.file.name, []
    if request.json is not None:
        document = to_document(found.evaluation, source=source, comparison=found.comparison)
        with atomic_text(request.json) as stream:
            stream.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
        written.append(request.json)

    def page(pictures: list[Path]) -> str:
        return to_markdown(
            found.evaluation, source=source, comparison=found.comparison, other=_other(request), figures=pictures
        )

    if request.markdown is not None:
        folder = request.markdown.parent
        with atomic_text(request.markdown) as stream:
            stream.write(page([Path(os.path.relpath(picture, folder)) for picture in found.pictures]))
        written.append(request.markdown)
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(summary).open("a", encoding="utf-8") as stream:
            stream.write(page([]))
    return written


def _other(request: Request) -> str | None:
    return None if request.compare is None else request.compare.name


def _load(path: Path, request: Request) -> Predictions | TopLabel:
    names = request.names or {}
    return load(
        path,
        kind=request.kind,  # type: ignore[arg-type]  # the command line offers only the three kinds
        scores=names.get("scores"),
        labels=names.get("labels"),
        confidence=names.get("confidence"),
        correct=names.get("correct"),
    )


@contextmanager
def _warnings_shown(err: Console) -> Iterator[None]:
    """Our own warnings as one line each; others as Python shows them."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        if issubclass(warning.category, CalibrantWarning):
            err.print(f"note: {warning.message}", style="yellow")
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
