"""``calibrant evaluate``: measure how far the confidence in a file of predictions can be trusted."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, final

import typer

from calibrant.cli import options
from calibrant.cli.options import INPUT, flag, option
from calibrant.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from calibrant.evidence import Estimate
    from calibrant.metrics import Metric
    from calibrant.plots import ThemeName
    from calibrant.predictions import Predictions, TopLabel

EXAMPLES = """\
calibrant evaluate test.csv
calibrant evaluate test.csv --probs --scores p_ --labels y
calibrant evaluate test.csv --figures figures --json report.json
calibrant evaluate new.csv --baseline old.csv
calibrant evaluate test.csv --fail-if 'ece>0.05' --fail-if 'auroc<0.8'"""


_FAIL_IF = "Exit with 1 if the whole interval of a metric is beyond a bound, as in 'ece>0.05'. May be repeated."
_TOP_LABEL = "The file has only the confidence of the predicted class and whether it is correct."


def evaluate(  # noqa: PLR0913, PLR0917  # a command line has many options
    file: options.PredictionsFile,
    baseline: Annotated[
        Path | None, option("FILE", "Predictions of another model for the same samples, to compare with.")
    ] = None,
    fail_if: Annotated[list[str] | None, option("CONDITION", _FAIL_IF)] = None,
    full: options.Full = False,
    bins: options.Bins = 15,
    resamples: options.Resamples = 1000,
    seed: options.Seed = 0,
    given: options.Scores = options.Scores(),
    top_label: Annotated[bool, flag("--top-label", _TOP_LABEL, INPUT)] = False,
    confidence: Annotated[str | None, option("NAME", "Column of the confidence, with --top-label.", INPUT)] = None,
    correct: Annotated[
        str | None, option("NAME", "Column of whether the prediction is correct, with --top-label.", INPUT)
    ] = None,
    reports: options.Reports = options.Reports(),
) -> None:
    """Measure how far the confidence of a classifier can be trusted.

    Reads logits or probabilities with labels, and prints a verdict, every metric with its 95 % interval, and what to do
    next. Exit codes: 0, 1 if a --fail-if condition holds, 2 for bad input.
    """
    from calibrant.cli.output import print_warnings, spinner, standard_error, standard_output
    from calibrant.evaluation import evaluate as evaluate_predictions
    from calibrant.evaluation import metrics_for
    from calibrant.evidence import difference
    from calibrant.files import load
    from calibrant.report import evaluation_page

    kind, scores, labels = given.kind(top_label=top_label), given.scores, given.labels
    load_file = partial(load, kind=kind, scores=scores, labels=labels, confidence=confidence, correct=correct)
    conditions = [FailCondition.parse(text) for text in fail_if or ()]
    inputs = [path for path in (file, baseline) if path is not None]
    reports.check(inputs)
    out, err = standard_output(), standard_error()
    with print_warnings(err), spinner(err) as stage:
        stage(f"reading {file}")
        predictions = load_file(file)
        baseline_predictions = None if baseline is None else load_file(baseline)
        metrics = metrics_for(predictions, n_bins=bins)
        for condition in conditions:
            condition.check_is_reported(metrics)
        differences = None
        if baseline_predictions is not None:
            stage(f"comparing with {baseline}")
            differences = difference(baseline_predictions, predictions, metrics, resamples=resamples, seed=seed)
        with _threads_for(predictions):
            evaluation = evaluate_predictions(predictions, n_bins=bins, resamples=resamples, seed=seed, progress=stage)

        def draw(theme: "ThemeName") -> "dict[str, Figure]":
            from calibrant.plots import figures as draw_figures  # loads matplotlib

            stage("drawing")
            ece = evaluation.metrics["ece"]
            return draw_figures(predictions, n_bins=bins, theme=theme, seed=seed, name=file.name, ece=ece)

        def charts() -> dict[str, Any]:
            from calibrant.report.interactive import evaluation_charts

            return evaluation_charts(evaluation, predictions, name=file.name)

        drawn = reports.draw(draw, in_html=False)
    baseline_name = None if baseline is None else baseline.name
    page = evaluation_page(evaluation, source=file.name, comparison=differences, baseline=baseline_name)
    reports.show_and_write(replace(page, charts=charts), drawn, out, full=full, inputs=inputs)
    holding = [condition for condition in conditions if condition.holds(evaluation.metrics)]
    for condition in conditions:
        out.print(condition.describe(evaluation.metrics), style="bold red" if condition in holding else "green")
    raise typer.Exit(int(bool(holding)))


# Below this many logits, threads spend more time waiting for each other than they save.
_MIN_LOGITS_FOR_THREADS = 1 << 22


@contextmanager
def _threads_for(predictions: "Predictions | TopLabel") -> Iterator[None]:
    """Evaluate a small file on one thread."""
    import torch

    threads, numbers = torch.get_num_threads(), len(predictions) * getattr(predictions, "n_classes", 1)
    torch.set_num_threads(threads if numbers >= _MIN_LOGITS_FOR_THREADS else 1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@final
@dataclass(frozen=True)
class FailCondition:
    """A condition of ``--fail-if``; it holds only if the whole interval is beyond the bound."""

    metric: str
    above: bool
    bound: float

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a condition such as ``ece>0.05``."""
        from calibrant import catalogue

        number = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
        parts = re.fullmatch(rf"\s*(\w+)\s*([<>])=?\s*({number})\s*", text)
        if parts is None:
            raise InputError(f"--fail-if must read like 'ece>0.05' or 'auroc<0.8'; got {text!r}.")
        return cls(catalogue.metrics.parse(parts[1]).name, parts[2] == ">", float(parts[3]))

    def check_is_reported(self, metrics: "Iterable[Metric]") -> None:
        """Check that the metric is among those of the report."""
        if self.metric not in {metric.name for metric in metrics}:
            raise InputError(
                f"--fail-if must name a metric of the report; {self.metric} needs the probabilities of all classes, "
                "or is excluded from reports."
            )

    def holds(self, estimates: "Mapping[str, Estimate]") -> bool:
        """Return whether the whole interval is beyond the bound; an InputError if the metric has no interval."""
        nearest = estimates[self.metric].low if self.above else estimates[self.metric].high
        if math.isnan(nearest):
            raise InputError(
                f"--fail-if needs an interval; {self.metric} has none here (too few samples, or undefined)."
            )
        return nearest > self.bound if self.above else nearest < self.bound

    def describe(self, estimates: "Mapping[str, Estimate]") -> str:
        """Return the condition, whether it holds, and the estimate in one line."""
        estimate, sign = estimates[self.metric], ">" if self.above else "<"
        outcome = "holds" if self.holds(estimates) else "does not hold"
        interval = f"{estimate.value:.4f}, interval {estimate.low:.4f} to {estimate.high:.4f}"
        return f"--fail-if {self.metric} {sign} {self.bound:g}: {outcome} ({interval})"
